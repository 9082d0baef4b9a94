/*
 * Checks the memory of copies and fills: which bytes one touches, and whether it may. Any
 * thread.
 */
#include "interpose/hostcuda/internal.h"

#include <string.h>

/* Returns the end of the bytes that a box of rows covers. */
static size_t span(size_t pitch, size_t slice, size_t width, size_t height, size_t depth)
{
	return width && height && depth ? (depth - 1) * slice + (height - 1) * pitch + width : 0;
}

/*
 * Checks that the memory is of the kind that the caller names, and long enough. `want` is 1 for
 * device memory, 0 for host memory, -1 for any. *pageable says whether CUDA does not know the
 * memory.
 */
static cudaError_t check(const void *ptr, size_t bytes, int want, int *pageable)
{
	struct df_mem_info info;

	df_hmem_info(ptr, &info, NULL);
	*pageable = info.kind == DF_MEM_UNKNOWN;
	if (!ptr || (want == 1 && *pageable))
		return cudaErrorInvalidValue;
	if (!*pageable && (const char *)ptr + bytes > (char *)info.base + info.bytes)
		return cudaErrorInvalidValue;
	return cudaSuccess;
}

static int wants(enum cudaMemcpyKind kind, int source)
{
	if (kind == cudaMemcpyDefault)
		return -1;
	if (source)
		return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
	return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
}

const struct df_touch *df_hop_touch(const struct df_hop *op, struct df_touch *t)
{
	memset(t, 0, sizeof(*t));
	if (op->kind == DF_HOP_COPY) {
		t->in = (uintptr_t)op->copy.src;
		t->in_end = t->in + span(op->copy.src_pitch, op->copy.src_slice, op->copy.width,
					 op->copy.height, op->copy.depth);
		t->out = (uintptr_t)op->copy.dst;
		t->out_end = t->out + span(op->copy.dst_pitch, op->copy.dst_slice, op->copy.width,
					   op->copy.height, op->copy.depth);
		return t;
	}
	if (op->kind != DF_HOP_FILL)
		return NULL;
	t->out = (uintptr_t)op->fill.dst;
	t->out_end = t->out + span(op->fill.pitch, op->fill.slice, op->fill.width, op->fill.height,
				   op->fill.depth);
	return t;
}

cudaError_t df_hcopy_check(const struct df_hop *op, enum cudaMemcpyKind kind, int *from_pageable,
			   int *to_pageable)
{
	cudaError_t err;

	if ((unsigned)kind > cudaMemcpyDefault)
		return cudaErrorInvalidMemcpyDirection;
	if ((op->copy.height > 1 || op->copy.depth > 1) &&
	    (op->copy.width > op->copy.dst_pitch || op->copy.width > op->copy.src_pitch))
		return cudaErrorInvalidPitchValue;
	err = check(op->copy.src,
		    span(op->copy.src_pitch, op->copy.src_slice, op->copy.width, op->copy.height,
			 op->copy.depth),
		    wants(kind, 1), from_pageable);
	if (err)
		return err;
	return check(op->copy.dst,
		     span(op->copy.dst_pitch, op->copy.dst_slice, op->copy.width, op->copy.height,
			  op->copy.depth),
		     wants(kind, 0), to_pageable);
}

static size_t at(const struct cudaPitchedPtr *p, const struct cudaPos *pos)
{
	return pos->z * p->pitch * p->ysize + pos->y * p->pitch + pos->x;
}

cudaError_t df_hcopy_box(const struct cudaMemcpy3DParms *p, struct df_hop *op)
{
	if (!p || p->srcArray || p->dstArray)
		return p ? cudaErrorNotSupported : cudaErrorInvalidValue;
	*op = (struct df_hop){.kind = DF_HOP_COPY,
			      .copy = {.dst = (char *)p->dstPtr.ptr + at(&p->dstPtr, &p->dstPos),
				       .src = (char *)p->srcPtr.ptr + at(&p->srcPtr, &p->srcPos),
				       .dst_pitch = p->dstPtr.pitch,
				       .src_pitch = p->srcPtr.pitch,
				       .dst_slice = p->dstPtr.pitch * p->dstPtr.ysize,
				       .src_slice = p->srcPtr.pitch * p->srcPtr.ysize,
				       .width = p->extent.width,
				       .height = p->extent.height,
				       .depth = p->extent.depth}};
	return cudaSuccess;
}

cudaError_t df_hfill_check(const struct df_hop *op)
{
	int pageable;

	if ((op->fill.height > 1 || op->fill.depth > 1) && op->fill.width > op->fill.pitch)
		return cudaErrorInvalidPitchValue;
	return check(op->fill.dst,
		     span(op->fill.pitch, op->fill.slice, op->fill.width, op->fill.height,
			  op->fill.depth),
		     1, &pageable);
}
