/*
 * cudaDeviceReset: ends what this process has on one device. Work is finished first; then the
 * application's streams, events and memory are freed. Objects that libdfshim.so made for itself
 * remain, as do per-thread streams, which end with their threads.
 */
#include "interpose/hostcuda/internal.h"

static void end_streams(struct df_hdev *dev)
{
	struct df_stream_info info;
	struct df_hstream *s, *found;

	for (;;) {
		found = NULL;
		df_mutex_lock(&dev->lock);
		df_list_each(s, &dev->streams, all)
		{
			if (s->internal || s->legacy || s->per_thread || s->dying)
				continue;
			found = s;
			break;
		}
		df_mutex_unlock(&dev->lock);
		if (!found)
			return;
		df_hstream_describe(found, &info);
		if (DF_H_HOOK(stream_destroy))
			df_hhooks()->stream_destroy(&info);
		df_hcapture_stream_gone(found);
		df_hstream_delete(found);
	}
}

static void end_events(int device)
{
	struct df_hevent *e;
	size_t i, nr;

	df_mutex_lock(&df_h.events.lock);
	nr = df_h.events.nr_used;
	df_mutex_unlock(&df_h.events.lock);
	for (i = 0; i < nr; i++) {
		e = df_hslab_at(&df_h.events, (uint32_t)i);
		if (df_hslab_find(&df_h.events, e) && e->device == device && !e->internal)
			cudaEventDestroy((cudaEvent_t)e);
	}
}

DF_H_API cudaError_t cudaDeviceReset(void)
{
	cudaError_t err = df_henter();
	struct df_hdev *dev;

	if (!err && df_htls.in_host_fn)
		err = cudaErrorNotPermitted;
	if (!err)
		err = df_hunsafe();
	if (err)
		return df_hret(err);
	dev = df_hdev(df_htls.device);
	if (!dev)
		return cudaSuccess;
	if (df_hsync_device(dev, DF_SYNC_RESET))
		return cudaSuccess;
	end_streams(dev);
	end_events(dev->index);
	df_hmem_reset(dev->index);
	df_htls.last_error = cudaSuccess;
	return cudaSuccess;
}
