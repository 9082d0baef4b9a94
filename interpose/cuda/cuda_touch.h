/*
 * Which bytes the driver's pitched and batched copies touch, for the hook (interpose/cuda/cuda_hook.c). Private to it. Each
 * function returns 1 with the bytes, or 0: not known. Between rows there are bytes that a copy leaves alone; they count
 * as touched. What an array has for bytes is the driver's secret.
 */
#ifndef DF_INTERPOSE_CUDA_CUDA_TOUCH_H
#define DF_INTERPOSE_CUDA_CUDA_TOUCH_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>
#include "runtime/backend.h"

/* One side of a copy: linear memory in rows and layers. */
struct df_cuda_box {
	uintptr_t base;
	size_t pitch, layer; /* bytes */
	size_t width, height, depth;
};

static inline uintptr_t df_cuda_box_end(const struct df_cuda_box *b)
{
	if (!b->width || !b->height || !b->depth)
		return b->base;
	return b->base + (b->depth - 1) * b->layer + (b->height - 1) * b->pitch + b->width;
}

static inline int df_cuda_touch_boxes(const struct df_cuda_box *from, const struct df_cuda_box *to,
				      struct df_touch *t)
{
	*t = (struct df_touch){from->base, df_cuda_box_end(from), to->base, df_cuda_box_end(to)};
	return 1;
}

/* side: src, dst. The structures differ, their members' names do not. */
#define DF_CUDA_LINEAR(c, side)                                                                    \
	((c)->side##MemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)(c)->side##Host                  \
						     : (uintptr_t)(c)->side##Device)
#define DF_CUDA_BOX2(c, side)                                                                      \
	((struct df_cuda_box){                                                                     \
		.base = DF_CUDA_LINEAR(c, side) + (c)->side##Y * (c)->side##Pitch +                \
			(c)->side##XInBytes,                                                       \
		.pitch = (c)->side##Pitch,                                                         \
		.width = (c)->WidthInBytes,                                                        \
		.height = (c)->Height,                                                             \
		.depth = 1,                                                                        \
	})
#define DF_CUDA_BOX3(c, side)                                                                      \
	((struct df_cuda_box){                                                                     \
		.base = DF_CUDA_LINEAR(c, side) +                                                  \
			((c)->side##Z * (c)->side##Height + (c)->side##Y) * (c)->side##Pitch +     \
			(c)->side##XInBytes,                                                       \
		.pitch = (c)->side##Pitch,                                                         \
		.layer = (c)->side##Pitch * (c)->side##Height,                                     \
		.width = (c)->WidthInBytes,                                                        \
		.height = (c)->Height,                                                             \
		.depth = (c)->Depth,                                                               \
	})
#define DF_CUDA_ARRAYS(c)                                                                          \
	((c)->srcMemoryType == CU_MEMORYTYPE_ARRAY || (c)->dstMemoryType == CU_MEMORYTYPE_ARRAY)

static inline int df_cuda_touch_2d(const CUDA_MEMCPY2D *c, struct df_touch *t)
{
	return c && !DF_CUDA_ARRAYS(c) &&
	       df_cuda_touch_boxes(&DF_CUDA_BOX2(c, src), &DF_CUDA_BOX2(c, dst), t);
}

static inline int df_cuda_touch_3d(const CUDA_MEMCPY3D *c, struct df_touch *t)
{
	return c && !DF_CUDA_ARRAYS(c) &&
	       df_cuda_touch_boxes(&DF_CUDA_BOX3(c, src), &DF_CUDA_BOX3(c, dst), t);
}

static inline int df_cuda_touch_3d_peer(const CUDA_MEMCPY3D_PEER *c, struct df_touch *t)
{
	return c && !DF_CUDA_ARRAYS(c) &&
	       df_cuda_touch_boxes(&DF_CUDA_BOX3(c, src), &DF_CUDA_BOX3(c, dst), t);
}

/* t becomes what both touch, and what lies between. first: there is nothing in it yet. */
static inline void df_cuda_touch_join(struct df_touch *t, const struct df_touch *more, int first)
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

/*
 * A batch. On the legacy stream nothing is said, because there the kind of memory that is written counts too, and is
 * looked up only at one place.
 */
static inline int df_cuda_batch_known(CUstream s, size_t nr)
{
	return nr && s && s != CU_STREAM_LEGACY;
}

static inline int df_cuda_touch_batch(CUstream s, const CUdeviceptr *to, const CUdeviceptr *from,
				      const size_t *bytes, size_t nr, struct df_touch *t)
{
	if (!df_cuda_batch_known(s, nr) || !to || !from || !bytes)
		return 0;
	for (size_t i = 0; i < nr; i++) {
		struct df_touch one = {from[i], from[i] + bytes[i], to[i], to[i] + bytes[i]};

		df_cuda_touch_join(t, &one, i == 0);
	}
	return 1;
}

#if CUDA_VERSION >= 12080
/* Of a copy between pointers an element is a byte; 0 rows or layers lie close together. */
static inline struct df_cuda_box df_cuda_box_operand(const CUmemcpy3DOperand *o,
						     const CUextent3D *e)
{
	size_t pitch = o->op.ptr.rowLength ? o->op.ptr.rowLength : e->width;

	return (struct df_cuda_box){
		.base = o->op.ptr.ptr,
		.pitch = pitch,
		.layer = pitch * (o->op.ptr.layerHeight ? o->op.ptr.layerHeight : e->height),
		.width = e->width,
		.height = e->height,
		.depth = e->depth,
	};
}

static inline int df_cuda_touch_3d_batch(CUstream s, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t nr,
					 struct df_touch *t)
{
	if (!df_cuda_batch_known(s, nr) || !ops)
		return 0;
	for (size_t i = 0; i < nr; i++) {
		struct df_cuda_box from = df_cuda_box_operand(&ops[i].src, &ops[i].extent);
		struct df_cuda_box to = df_cuda_box_operand(&ops[i].dst, &ops[i].extent);
		struct df_touch one;

		if (ops[i].src.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
		    ops[i].dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
			return 0;
		df_cuda_touch_boxes(&from, &to, &one);
		df_cuda_touch_join(t, &one, i == 0);
	}
	return 1;
}
#endif

#endif
