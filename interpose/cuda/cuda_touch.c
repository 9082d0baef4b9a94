/* Finds the bytes that pitched and batched copies touch. Threads: any. */
#include <stddef.h>
#include <stdint.h>
#include "interpose/cuda/cuda_touch.h"

/* One side of a copy: linear memory in rows and layers. */
struct box {
	uintptr_t base;
	size_t pitch, layer; /* bytes */
	size_t width, height, depth;
};

static uintptr_t box_end(const struct box *b)
{
	if (!b->width || !b->height || !b->depth)
		return b->base;
	return b->base + (b->depth - 1) * b->layer + (b->height - 1) * b->pitch + b->width;
}

static int touch_boxes(const struct box *from, const struct box *to, struct df_touch *t)
{
	*t = (struct df_touch){from->base, box_end(from), to->base, box_end(to)};
	return 1;
}

/*
 * Returns the address of linear memory. `side` is src or dst. The structures differ, but the names
 * of their members are the same.
 */
#define LINEAR(c, side)                                                                            \
	((c)->side##MemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)(c)->side##Host                  \
						     : (uintptr_t)(c)->side##Device)
#define BOX2(c, side)                                                                              \
	((struct box){                                                                             \
		.base = LINEAR(c, side) + (c)->side##Y * (c)->side##Pitch + (c)->side##XInBytes,   \
		.pitch = (c)->side##Pitch,                                                         \
		.width = (c)->WidthInBytes,                                                        \
		.height = (c)->Height,                                                             \
		.depth = 1,                                                                        \
	})
#define BOX3(c, side)                                                                              \
	((struct box){                                                                             \
		.base = LINEAR(c, side) +                                                          \
			((c)->side##Z * (c)->side##Height + (c)->side##Y) * (c)->side##Pitch +     \
			(c)->side##XInBytes,                                                       \
		.pitch = (c)->side##Pitch,                                                         \
		.layer = (c)->side##Pitch * (c)->side##Height,                                     \
		.width = (c)->WidthInBytes,                                                        \
		.height = (c)->Height,                                                             \
		.depth = (c)->Depth,                                                               \
	})
#define ARRAYS(c)                                                                                  \
	((c)->srcMemoryType == CU_MEMORYTYPE_ARRAY || (c)->dstMemoryType == CU_MEMORYTYPE_ARRAY)

int df_cuda_touch_2d(const CUDA_MEMCPY2D *c, struct df_touch *t)
{
	return c && !ARRAYS(c) && touch_boxes(&BOX2(c, src), &BOX2(c, dst), t);
}

int df_cuda_touch_3d(const CUDA_MEMCPY3D *c, struct df_touch *t)
{
	return c && !ARRAYS(c) && touch_boxes(&BOX3(c, src), &BOX3(c, dst), t);
}

int df_cuda_touch_3d_peer(const CUDA_MEMCPY3D_PEER *c, struct df_touch *t)
{
	return c && !ARRAYS(c) && touch_boxes(&BOX3(c, src), &BOX3(c, dst), t);
}

/* Extends t to the memory that both touch, and everything in between. `first`: t is empty. */
static void touch_join(struct df_touch *t, const struct df_touch *more, int first)
{
	if (first) {
		*t = *more;
		return;
	}
	t->in = more->in < t->in ? more->in : t->in;
	t->in_end = more->in_end > t->in_end ? more->in_end : t->in_end;
	t->out = more->out < t->out ? more->out : t->out;
	t->out_end = more->out_end > t->out_end ? more->out_end : t->out_end;
}

static int batch_known(CUstream s, size_t nr)
{
	return nr && s && s != CU_STREAM_LEGACY;
}

int df_cuda_touch_batch(CUstream s, const CUdeviceptr *to, const CUdeviceptr *from,
			const size_t *bytes, size_t nr, struct df_touch *t)
{
	if (!batch_known(s, nr) || !to || !from || !bytes)
		return 0;
	for (size_t i = 0; i < nr; i++) {
		struct df_touch one = {from[i], from[i] + bytes[i], to[i], to[i] + bytes[i]};

		touch_join(t, &one, i == 0);
	}
	return 1;
}

#if CUDA_VERSION >= 12080
/*
 * An element of a copy between pointers is a byte. A row length or layer height of 0 means no gap.
 */
static struct box box_operand(const CUmemcpy3DOperand *o, const CUextent3D *e)
{
	size_t pitch = o->op.ptr.rowLength ? o->op.ptr.rowLength : e->width;

	return (struct box){
		.base = o->op.ptr.ptr,
		.pitch = pitch,
		.layer = pitch * (o->op.ptr.layerHeight ? o->op.ptr.layerHeight : e->height),
		.width = e->width,
		.height = e->height,
		.depth = e->depth,
	};
}

int df_cuda_touch_3d_batch(CUstream s, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t nr,
			   struct df_touch *t)
{
	if (!batch_known(s, nr) || !ops)
		return 0;
	for (size_t i = 0; i < nr; i++) {
		struct box from = box_operand(&ops[i].src, &ops[i].extent);
		struct box to = box_operand(&ops[i].dst, &ops[i].extent);
		struct df_touch one;

		if (ops[i].src.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
		    ops[i].dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
			return 0;
		touch_boxes(&from, &to, &one);
		touch_join(t, &one, i == 0);
	}
	return 1;
}
#endif
