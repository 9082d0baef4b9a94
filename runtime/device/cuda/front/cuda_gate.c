/*
 * An event that a whole context waits for (cuCtxWaitEvent()) also counts for streams that are made,
 * or first seen, later. The operations pending behind it are kept on a stream of ours, one for each
 * device. A stream that becomes known takes over those that are not done. The driver does its own
 * part of the wait.
 *
 * By device, as the wait itself: streams of other contexts of the device wait too. Any thread; no
 * lock is held while the hooks run.
 */
#if __has_include(<cuda.h>)
#include "runtime/device/cuda/cuda_int.h"

static struct df_mstream *gates[DF_CUDA_DEVICES_MAX];

void df_cuda_gate_wait(int device, const struct df_event_info *event)
{
	struct df_stream_info info;
	struct df_mstream *s, *none = NULL;

	/* A process that only records has nothing pending. */
	if (device < 0 || device >= DF_CUDA_DEVICES_MAX || df_cuda_recording)
		return;
	/* ACQUIRE pairs with the RELEASE below: the stream is initialised. */
	s = __atomic_load_n(&gates[device], __ATOMIC_ACQUIRE);
	if (!s) {
		/* If no stream can be made, only the present streams wait. */
		if (df_cuda_api.stream_new(device, &info))
			return;
		/* RELEASE pairs with the ACQUIREs. */
		if (__atomic_compare_exchange_n(&gates[device], &none, info.stream, 0,
						__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			s = info.stream;
		} else {
			df_cuda_api.stream_delete(info.stream);
			s = none;
		}
	}
	df_cuda_stream_describe(s, &info);
	df_cuda_hooks->event_wait(&info, event);
}

void df_cuda_gate_follow(struct df_mstream *s)
{
	struct df_stream_info gate, info;
	void *user = NULL;
	struct df_event_info event = {.device = s->device, .user = &user};
	/* ACQUIRE pairs with the RELEASE in df_cuda_gate_wait(). */
	struct df_mstream *g = __atomic_load_n(&gates[s->device], __ATOMIC_ACQUIRE);

	if (!g || !df_cuda_hooks)
		return;
	df_cuda_stream_describe(g, &gate);
	df_cuda_stream_describe(s, &info);
	/*
	 * The application's events are numbered upwards, these from the largest number downwards.
	 */
	event.id = UINT64_MAX - (uint64_t)s->device;
	df_cuda_hooks->event_record(&event, &gate);
	df_cuda_hooks->event_wait(&info, &event);
	df_cuda_hooks->event_destroy(&event);
}
#endif
