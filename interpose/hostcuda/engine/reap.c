/*
 * Frees memory that operations in flight may still touch, later and without waiting, if the hooks
 * decide so. An internal stream per device waits for the ends of the device's streams and then
 * frees. Entered by threads that free; no lock of its own.
 */
#include "interpose/hostcuda/internal.h"

#include <stdlib.h>

static struct df_hstream *reaper_of(struct df_hdev *dev)
{
	/*
	 * ACQUIRE pairs with the RELEASE of the exchange below: without it the stream could be used
	 * before its members are seen.
	 */
	struct df_hstream *s = __atomic_load_n(&dev->reaper, __ATOMIC_ACQUIRE), *mine;

	if (s || df_hstream_new(dev, 0, 0, 1, &mine))
		return s;
	/* ACQ_REL pairs with the ACQUIRE above, and with another thread's exchange. */
	if (__atomic_compare_exchange_n(&dev->reaper, &s, mine, 0, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return mine;
	df_hstream_delete(mine);
	return s;
}

/* Makes the reaper wait for the present ends of all streams of the device. */
static int wait_for_all(struct df_hstream *reaper, struct df_hdev *dev)
{
	struct df_hop op = {.kind = DF_HOP_POINT};
	size_t nr = 0, i = 0;
	df_hpoint *points;
	struct df_hstream *s;
	int err = 0;

	df_mutex_lock(&dev->lock);
	df_list_each(s, &dev->active, active) nr++;
	points = malloc((nr ? nr : 1) * sizeof(*points));
	if (points) {
		df_list_each(s, &dev->active, active)
		{
			if (s != reaper)
				points[i++] = df_hstream_tail(s);
		}
	}
	df_mutex_unlock(&dev->lock);
	if (!points)
		return -ENOMEM;
	for (nr = i, i = 0; i < nr && !err; i++) {
		op.point = points[i];
		if (!df_hpoint_done(op.point))
			err = df_hstream_put(reaper, &op, NULL);
	}
	free(points);
	return err;
}

static int busy(struct df_hdev *dev)
{
	/* ACQUIRE pairs with the RELEASE in complete(): the operations' writes precede the free. */
	return dev && __atomic_load_n(&dev->nr_active, __ATOMIC_ACQUIRE);
}

int df_hreap(void *ptr, int device)
{
	struct df_hop op = {.kind = DF_HOP_FREE, .ptr = ptr};
	int from = device < 0 ? 0 : device, to = device < 0 ? df_h.nr_devices - 1 : device, i;
	struct df_hstream *reaper;
	int any = 0, err = 0;

	for (i = from; i <= to; i++)
		any |= busy(df_hdev(i));
	if (!any)
		return df_hmem_free(ptr);
	reaper = df_hdev_get(from) ? reaper_of(df_hdev(from)) : NULL;
	for (i = from; i <= to && reaper && !err; i++)
		if (busy(df_hdev(i)))
			err = wait_for_all(reaper, df_hdev(i));
	if (reaper && !err && !df_hstream_put(reaper, &op, NULL))
		return 0;
	/* There is no memory to defer the free: wait, as CUDA does. */
	for (i = from; i <= to; i++)
		if (df_hdev(i))
			df_hwait_device(df_hdev(i));
	return df_hmem_free(ptr);
}

#define PATIENCE_NS (2 * DF_NS_PER_S)

int df_hmem_alloc_patient(int device, enum df_mem_kind kind, unsigned flags, size_t bytes,
			  void **out)
{
	struct df_hdev *dev = df_hdev_get(DF_MAX(device, 0));
	uint64_t since = 0, now;
	uint32_t seen = 0, done;
	int err;

	err = df_hmem_alloc(device, kind, flags, bytes, 0, out);
	if (!err || !dev)
		return err;
	if (DF_H_HOOK(flush))
		df_hhooks()->flush(device);
	/*
	 * These frees follow the work of one stream, or of all: try again while streams progress.
	 */
	for (;;) {
		int any = busy(dev);

		err = df_hmem_alloc(device, kind, flags, bytes, 0, out);
		if (!err || !any)
			return err;
		now = df_now_ns();
		done = __atomic_load_n(&dev->done, __ATOMIC_RELAXED);
		if (!since || done != seen)
			since = now;
		else if (now - since > PATIENCE_NS)
			return err;
		seen = done;
		df_hwait_slice(dev);
	}
}
