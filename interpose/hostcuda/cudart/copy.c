/*
 * Copies and fills: every form of cudaMemcpy and cudaMemset on linear memory becomes one operation
 * of up to three dimensions. Synchronous forms use the legacy stream and wait. A copy from pageable
 * memory first copies the source, and one to pageable memory waits until it is done, because
 * programs rely on both. Any thread.
 */
#include "interpose/hostcuda/skins.h"

#include <stdlib.h>
#include <string.h>

/* Packs the rows of a pageable source, so that the caller may change it when we return. */
static cudaError_t stage(struct df_hop *op)
{
	size_t w = op->copy.width, h = op->copy.height, d = op->copy.depth, y, z;
	char *to = malloc(w * h * d);

	if (!to)
		return cudaErrorMemoryAllocation;
	for (z = 0; z < d; z++)
		for (y = 0; y < h; y++)
			memcpy(to + (z * h + y) * w,
			       (const char *)op->copy.src + z * op->copy.src_slice +
				       y * op->copy.src_pitch,
			       w);
	op->copy.src = op->copy.stage = to;
	op->copy.src_pitch = w;
	op->copy.src_slice = w * h;
	return cudaSuccess;
}

/* Called before synchronous work on a default stream. Returns 1 if the caller need not wait. */
static int sync_hook(struct df_hstream *s, const void *ptr)
{
	struct df_stream_info info;

	if (s->legacy && DF_H_HOOK(device_sync))
		return df_hhooks()->device_sync(s->device, DF_SYNC_MEMCPY, ptr);
	if (DF_H_HOOK(stream_sync)) {
		df_hstream_describe(s, &info);
		df_hhooks()->stream_sync(&info);
	}
	return 0;
}

/*
 * Called before a copy is put on the legacy stream. Returns 1 if its wait is released; then no
 * other hook is called.
 */
static int sync_copy_hook(struct df_hstream *s, const struct df_hop *op)
{
	struct df_stream_info info;
	struct df_touch t;

	if (!s->legacy || !DF_H_HOOK(sync_copy))
		return 0;
	df_hstream_describe(s, &info);
	return df_hhooks()->sync_copy(&info, op->kind == DF_HOP_COPY ? df_hop_touch(op, &t) : NULL);
}

static cudaError_t submit_sync(struct df_hstream *s, struct df_hop *op, enum df_work kind,
			       const void *ptr)
{
	struct df_touch touch;
	df_hpoint end;
	cudaError_t err;
	int released;

	err = df_hunsafe();
	if (!err && df_hstream_capturing(s))
		err = cudaErrorStreamCaptureUnsupported;
	if (!err)
		err = df_hcapture_check_legacy(s);
	if (err)
		return err;
	if (!sync_copy_hook(s, op))
		df_hbefore_work(s, kind, df_hop_touch(op, &touch));
	released = sync_hook(s, ptr);
	err = df_herr(df_hstream_put(s, op, &end));
	if (err)
		return err;
	if (!released)
		df_hwait_point(end);
	df_hsync_done(s->device);
	return cudaSuccess;
}

static cudaError_t copy(struct df_hop *op, enum cudaMemcpyKind kind, cudaStream_t stream, int sync)
{
	struct df_stream_info info;
	struct df_hstream *s;
	int from_pageable = 0, to_pageable = 0;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (err)
		return err;
	op->kind = DF_HOP_COPY;
	if ((unsigned)kind > cudaMemcpyDefault)
		return cudaErrorInvalidMemcpyDirection;
	if (!df_hop_bytes(op))
		return cudaSuccess;
	err = df_hcopy_check(op, kind, &from_pageable, &to_pageable);
	if (err)
		return err;
	if (sync)
		return submit_sync(s, op, DF_WORK_MEMCPY, op->copy.dst);
	if (df_hstream_capturing(s))
		return df_hsubmit(s, op, DF_WORK_MEMCPY);
	/* This function waits for the copy below, so its source need not be copied first. */
	if (from_pageable && !to_pageable) {
		err = stage(op);
		if (err)
			return err;
	}
	err = df_hsubmit(s, op, DF_WORK_MEMCPY);
	if (err) {
		df_hop_drop(op);
		return err;
	}
	if (to_pageable) {
		if (DF_H_HOOK(stream_sync)) {
			df_hstream_describe(s, &info);
			df_hhooks()->stream_sync(&info);
		}
		df_hwait_point(df_hstream_tail(s));
		df_hsync_done(s->device);
	}
	return cudaSuccess;
}

static struct df_hop flat(void *dst, const void *src, size_t bytes)
{
	return (struct df_hop){.copy = {.dst = dst,
					.src = src,
					.dst_pitch = bytes,
					.src_pitch = bytes,
					.width = bytes,
					.height = 1,
					.depth = 1}};
}

static struct df_hop rows(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
			  size_t height)
{
	return (struct df_hop){.copy = {.dst = dst,
					.src = src,
					.dst_pitch = dpitch,
					.src_pitch = spitch,
					.width = width,
					.height = height,
					.depth = 1}};
}

static cudaError_t box(const struct cudaMemcpy3DParms *p, cudaStream_t stream, int sync)
{
	struct df_hop op;
	cudaError_t err = df_hcopy_box(p, &op);

	return err ? err : copy(&op, p->kind, stream, sync);
}

static cudaError_t peer_box(const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream, int sync)
{
	struct cudaMemcpy3DParms q = {0};

	if (!p)
		return cudaErrorInvalidValue;
	q.srcArray = p->srcArray;
	q.srcPos = p->srcPos;
	q.srcPtr = p->srcPtr;
	q.dstArray = p->dstArray;
	q.dstPos = p->dstPos;
	q.dstPtr = p->dstPtr;
	q.extent = p->extent;
	q.kind = cudaMemcpyDeviceToDevice;
	return box(&q, stream, sync);
}

static cudaError_t peer(void *dst, int dst_device, const void *src, int src_device, size_t bytes,
			cudaStream_t stream, int sync)
{
	struct df_hop op = flat(dst, src, bytes);
	cudaError_t err = df_henter();

	if (err)
		return err;
	if (!df_hdevice_ok(dst_device) || !df_hdevice_ok(src_device))
		return cudaErrorInvalidDevice;
	return copy(&op, cudaMemcpyDeviceToDevice, stream, sync);
}

/* -- fills ------------------------------------------------------------------------------------- */

static cudaError_t fill_words(void *dst, size_t pitch, size_t slice, uint32_t value,
			      uint32_t elem_bytes, size_t width, size_t height, size_t depth,
			      cudaStream_t stream, int sync)
{
	struct df_hop op = {
		.kind = DF_HOP_FILL,
		.fill = {dst, pitch, slice, width * elem_bytes, height, depth, value, elem_bytes}};
	struct df_hstream *s;
	cudaError_t err = df_hstream_enter(stream, &s);

	if (err || !df_hop_bytes(&op))
		return err;
	err = df_hfill_check(&op);
	if (err)
		return err;
	return sync ? submit_sync(s, &op, DF_WORK_MEMSET, dst) : df_hsubmit(s, &op, DF_WORK_MEMSET);
}

cudaError_t df_hfill(void *dst, size_t pitch, uint32_t value, uint32_t elem_bytes, size_t width,
		     size_t height, cudaStream_t stream, int sync)
{
	if ((uintptr_t)dst % elem_bytes || (height > 1 && pitch % elem_bytes))
		return cudaErrorInvalidValue;
	return fill_words(dst, pitch, pitch * height, value, elem_bytes, width, height, 1, stream,
			  sync);
}

static cudaError_t fill(void *dst, size_t pitch, size_t slice, int value, size_t width,
			size_t height, size_t depth, cudaStream_t stream, int sync)
{
	return fill_words(dst, pitch, slice, (uint32_t)(value & 0xff), 1, width, height, depth,
			  stream, sync);
}

/*
 * The exported names. Each function has one form whose default stream is the legacy stream, and one
 * (_ptds if synchronous, _ptsz if asynchronous) whose default stream is the calling thread's.
 */
#define SYNC(name, params, call)                                                                   \
	DF_H_API __typeof__(name) name##_ptds;                                                     \
	DF_H_API cudaError_t name params                                                           \
	{                                                                                          \
		cudaStream_t st = cudaStreamLegacy;                                                \
		return df_hret(call);                                                              \
	}                                                                                          \
	DF_H_API cudaError_t name##_ptds params                                                    \
	{                                                                                          \
		cudaStream_t st = cudaStreamPerThread;                                             \
		return df_hret(call);                                                              \
	}

#define ASYNC(name, params, call)                                                                  \
	DF_H_API __typeof__(name) name##_ptsz;                                                     \
	DF_H_API cudaError_t name params                                                           \
	{                                                                                          \
		return df_hret(call);                                                              \
	}                                                                                          \
	DF_H_API cudaError_t name##_ptsz params                                                    \
	{                                                                                          \
		st = df_hpt(st);                                                                   \
		return df_hret(call);                                                              \
	}

static cudaError_t flat_copy(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind,
			     cudaStream_t st, int sync)
{
	struct df_hop op = flat(dst, src, n);

	return copy(&op, kind, st, sync);
}

static cudaError_t row_copy(void *dst, size_t dp, const void *src, size_t sp, size_t w, size_t h,
			    enum cudaMemcpyKind kind, cudaStream_t st, int sync)
{
	struct df_hop op = rows(dst, dp, src, sp, w, h);

	return copy(&op, kind, st, sync);
}

SYNC(cudaMemcpy, (void *dst, const void *src, size_t n, enum cudaMemcpyKind kind),
     flat_copy(dst, src, n, kind, st, 1))
ASYNC(cudaMemcpyAsync,
      (void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t st),
      flat_copy(dst, src, n, kind, st, 0))
SYNC(cudaMemcpy2D,
     (void *dst, size_t dp, const void *src, size_t sp, size_t w, size_t h,
      enum cudaMemcpyKind kind),
     row_copy(dst, dp, src, sp, w, h, kind, st, 1))
ASYNC(cudaMemcpy2DAsync,
      (void *dst, size_t dp, const void *src, size_t sp, size_t w, size_t h,
       enum cudaMemcpyKind kind, cudaStream_t st),
      row_copy(dst, dp, src, sp, w, h, kind, st, 0))
SYNC(cudaMemcpy3D, (const struct cudaMemcpy3DParms *p), box(p, st, 1))
ASYNC(cudaMemcpy3DAsync, (const struct cudaMemcpy3DParms *p, cudaStream_t st), box(p, st, 0))
SYNC(cudaMemcpy3DPeer, (const struct cudaMemcpy3DPeerParms *p), peer_box(p, st, 1))
ASYNC(cudaMemcpy3DPeerAsync, (const struct cudaMemcpy3DPeerParms *p, cudaStream_t st),
      peer_box(p, st, 0))
SYNC(cudaMemset, (void *dst, int value, size_t n), fill(dst, n, n, value, n, 1, 1, st, 1))
ASYNC(cudaMemsetAsync, (void *dst, int value, size_t n, cudaStream_t st),
      fill(dst, n, n, value, n, 1, 1, st, 0))
SYNC(cudaMemset2D, (void *dst, size_t pitch, int value, size_t w, size_t h),
     fill(dst, pitch, pitch *h, value, w, h, 1, st, 1))
ASYNC(cudaMemset2DAsync, (void *dst, size_t pitch, int value, size_t w, size_t h, cudaStream_t st),
      fill(dst, pitch, pitch *h, value, w, h, 1, st, 0))
SYNC(cudaMemset3D, (struct cudaPitchedPtr p, int value, struct cudaExtent e),
     fill(p.ptr, p.pitch, p.pitch *p.ysize, value, e.width, e.height, e.depth, st, 1))
ASYNC(cudaMemset3DAsync, (struct cudaPitchedPtr p, int value, struct cudaExtent e, cudaStream_t st),
      fill(p.ptr, p.pitch, p.pitch *p.ysize, value, e.width, e.height, e.depth, st, 0))

DF_H_API cudaError_t cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device,
				    size_t bytes)
{
	return df_hret(peer(dst, dst_device, src, src_device, bytes, cudaStreamLegacy, 1));
}

DF_H_API cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
					 size_t bytes, cudaStream_t stream)
{
	return df_hret(peer(dst, dst_device, src, src_device, bytes, stream, 0));
}
