/*
 * Events: positions in streams. Recording stores the stream's present point, so an event is
 * finished when that operation is, whatever is recorded or enqueued later. A waiting call uses the
 * point of that moment. Any thread; no lock of its own.
 */
#include "interpose/hostcuda/internal.h"

#include <string.h>

struct df_hevent *df_hevent_find(cudaEvent_t event)
{
	return df_hslab_find(&df_h.events, event);
}

static cudaError_t enter(cudaEvent_t event, struct df_hevent **out)
{
	cudaError_t err = df_henter();

	if (err)
		return err;
	if (df_unlikely(df_htls.in_host_fn))
		return cudaErrorNotPermitted;
	*out = df_hevent_find(event);
	return *out ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

static void describe_event(struct df_hevent *e, struct df_event_info *out)
{
	out->id = e->id;
	out->device = e->device;
	out->timing = e->timing;
	out->ipc = e->ipc;
	out->user = &e->user;
	out->event = e;
}

static df_hpoint point(struct df_hevent *e)
{
	/*
	 * ACQUIRE pairs with the RELEASE in df_hevent_record(): without it a thread could take the
	 * new point and yet not see the operation counted in its stream.
	 */
	return __atomic_load_n(&e->point, __ATOMIC_ACQUIRE);
}

static int make(int device, unsigned flags, int internal, struct df_hevent **out)
{
	struct df_hevent *e = df_hslab_get(&df_h.events);

	if (!e)
		return -ENOMEM;
	e->id = df_hid();
	e->device = device;
	e->timing = !(flags & cudaEventDisableTiming);
	e->ipc = 0;
	e->internal = (uint8_t)internal;
	e->user = NULL;
	e->frontier.nr = 0;
	/*
	 * All stores are RELAXED: a stamp of the slot's previous event may still be stored, but
	 * changes nothing.
	 */
	__atomic_store_n(&e->capture_id, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&e->point, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&e->record, 0, __ATOMIC_RELAXED);
	df_hslot_publish(&e->slot);
	*out = e;
	return 0;
}

/* Ends the event's handle. Returns 1 if this call ended it. */
static int end(struct df_hevent *e)
{
	if (!df_hslot_retire(&e->slot))
		return 0;
	df_hcapture_event_gone(e);
	/* RELAXED: numbers of records are never reused, so a late stamp finds no match. */
	__atomic_store_n(&e->record, 0, __ATOMIC_RELAXED);
	df_hslab_put(&df_h.events, e);
	return 1;
}

int df_hevent_new(int device, void **event)
{
	struct df_hevent *e;
	int ret = make(device, 0, 1, &e);

	if (!ret)
		*event = e;
	return ret;
}

void df_hevent_delete(void *event)
{
	end(event);
}

static cudaError_t create(cudaEvent_t *out, unsigned flags)
{
	const unsigned known =
		cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
	struct df_hevent *e;
	cudaError_t err = df_henter();

	if (err)
		return err;
	if (!out || (flags & ~known) ||
	    ((flags & cudaEventInterprocess) && !(flags & cudaEventDisableTiming)))
		return cudaErrorInvalidValue;
	if (df_htls.in_host_fn)
		return cudaErrorNotPermitted;
	if (!df_hdev_current())
		return cudaErrorMemoryAllocation;
	if (make(df_htls.device, flags, 0, &e))
		return cudaErrorMemoryAllocation;
	*out = (cudaEvent_t)e;
	return cudaSuccess;
}

DF_H_API cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	return df_hret(create(event, 0));
}

DF_H_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
	return df_hret(create(event, flags));
}

DF_H_API cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	struct df_event_info info;
	struct df_hevent *e;
	cudaError_t err = enter(event, &e);

	if (err)
		return df_hret(err);
	if (DF_H_HOOK(event_destroy)) {
		describe_event(e, &info);
		df_hhooks()->event_destroy(&info);
	}
	return end(e) ? cudaSuccess : df_hret(cudaErrorInvalidResourceHandle);
}

/* Stores the event's time: the stream has reached this record. The device's lock is held. */
void df_hevent_stamp(struct df_hevent *e, uint64_t record)
{
	/* RELAXED: only decides whether the stamp is wanted. */
	if (__atomic_load_n(&e->record, __ATOMIC_RELAXED) != record)
		return;
	__atomic_store_n(&e->stamp, df_now_ns(), __ATOMIC_RELAXED);
	/*
	 * RELEASE pairs with the ACQUIRE in stamp_of(): without it the number could be seen before
	 * the time.
	 */
	__atomic_store_n(&e->stamp_rec, record, __ATOMIC_RELEASE);
}

int df_hevent_record(struct df_hevent *e, struct df_hstream *s)
{
	struct df_hop op = {.kind = DF_HOP_MARK};
	df_hpoint end;
	int err;

	/*
	 * On an idle stream nothing is enqueued: the stream's position is the record, unless a time
	 * is needed, or the record has to wait for other streams.
	 */
	if (!e->timing && !s->legacy && !s->blocking && !df_hstream_queues(s) && !s->queue &&
	    df_hstream_idle(s)) {
		end = df_hstream_tail(s);
		goto out;
	}
	op.mark.record = df_hid();
	if (e->timing) {
		op.mark.event = e;
		/* RELAXED: only this record's own stamp compares with it. */
		__atomic_store_n(&e->record, op.mark.record, __ATOMIC_RELAXED);
	}
	err = df_hstream_put(s, &op, &end);
	if (err)
		return err;
out:
	/* RELEASE pairs with the ACQUIRE in point(), which says why. */
	__atomic_store_n(&e->point, end, __ATOMIC_RELEASE);
	return 0;
}

int df_hevent_wait(struct df_hstream *s, struct df_hevent *e)
{
	struct df_hop op = {.kind = DF_HOP_POINT, .point = point(e)};

	if (df_hpoint_done(op.point))
		return 0;
	if (df_hpoint_stream(op.point) == s)
		return 0;
	return df_hstream_put(s, &op, NULL);
}

static cudaError_t record(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
	struct df_event_info einfo;
	struct df_stream_info sinfo;
	struct df_hstream *s;
	struct df_hevent *e;
	cudaError_t err = enter(event, &e);

	if (!err)
		err = df_hstream_enter(stream, &s);
	if (err)
		return err;
	if (flags > cudaEventRecordExternal)
		return cudaErrorInvalidValue;
	if (s->device != e->device)
		return cudaErrorInvalidResourceHandle;
	if (df_hstream_capturing(s))
		return df_hcapture_record(e, s, flags == cudaEventRecordExternal);
	/* RELAXED: events that are captured and recorded at once belong to a racing program. */
	if (__atomic_load_n(&e->capture_id, __ATOMIC_RELAXED))
		df_hcapture_event_gone(e);
	if (DF_H_HOOK(event_record)) {
		describe_event(e, &einfo);
		df_hstream_describe(s, &sinfo);
		if (df_hhooks()->event_record(&einfo, &sinfo))
			return cudaSuccess;
	}
	return df_herr(df_hevent_record(e, s));
}

DF_H_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	return df_hret(record(event, stream, 0));
}

DF_H_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
					      unsigned flags)
{
	return df_hret(record(event, stream, flags));
}

DF_H_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
	struct df_event_info einfo;
	struct df_stream_info sinfo;
	struct df_hstream *s;
	struct df_hevent *e;
	cudaError_t err = enter(event, &e);
	int captured;

	if (!err)
		err = df_hstream_enter(stream, &s);
	if (!err && flags > cudaEventWaitExternal)
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	/* RELAXED for the reason given in record(). */
	if (df_hstream_capturing(s) || __atomic_load_n(&e->capture_id, __ATOMIC_RELAXED)) {
		captured = df_hcapture_wait(s, e, flags == cudaEventWaitExternal);
		if (captured)
			return df_hret(captured > 0 ? cudaSuccess : (cudaError_t)-captured);
	}
	if (DF_H_HOOK(event_wait)) {
		describe_event(e, &einfo);
		df_hstream_describe(s, &sinfo);
		df_hhooks()->event_wait(&sinfo, &einfo);
	}
	return df_hret(df_herr(df_hevent_wait(s, e)));
}

DF_H_API cudaError_t cudaEventQuery(cudaEvent_t event)
{
	struct df_event_info info;
	struct df_hevent *e;
	cudaError_t err = enter(event, &e);
	int done;

	if (!err)
		err = df_hcapture_event_check(e);
	if (err)
		return df_hret(err);
	if (DF_H_HOOK(event_query)) {
		describe_event(e, &info);
		done = !df_hhooks()->event_query(&info) && df_hpoint_done(point(e));
		df_hhooks()->queried(done);
	} else {
		done = df_hpoint_done(point(e));
	}
	return df_hret(done ? cudaSuccess : cudaErrorNotReady);
}

DF_H_API cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	struct df_event_info info;
	struct df_hevent *e;
	cudaError_t err = enter(event, &e);
	df_hpoint p;

	if (!err)
		err = df_hcapture_event_check(e);
	if (err)
		return df_hret(err);
	if (DF_H_HOOK(event_sync)) {
		describe_event(e, &info);
		df_hhooks()->event_sync(&info);
	}
	p = point(e);
	if (p)
		df_hwait_point(p);
	df_hsync_done(e->device);
	return cudaSuccess;
}

/* Returns the time of the latest record, or 0 if the event was not recorded. */
static uint64_t stamp_of(struct df_hevent *e)
{
	/* ACQUIRE pairs with the RELEASE in df_hevent_stamp(), which says why. */
	uint64_t record = __atomic_load_n(&e->stamp_rec, __ATOMIC_ACQUIRE);

	/* RELAXED: a record that is being made now does not count. */
	if (!record || record != __atomic_load_n(&e->record, __ATOMIC_RELAXED))
		return 0;
	return __atomic_load_n(&e->stamp, __ATOMIC_RELAXED);
}

DF_H_API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
	struct df_hevent *e[2];
	struct df_event_info info;
	uint64_t t[2];
	void *native;
	cudaError_t err = enter(start, &e[0]);
	int i;

	if (!err)
		err = enter(end, &e[1]);
	if (!err && !ms)
		err = cudaErrorInvalidValue;
	for (i = 0; !err && i < 2; i++) {
		err = df_hcapture_event_check(e[i]);
		if (!err && (!e[i]->timing || !point(e[i])))
			err = cudaErrorInvalidResourceHandle;
	}
	for (i = 0; !err && i < 2; i++) {
		describe_event(e[i], &info);
		native = e[i];
		if (!df_hpoint_done(point(e[i])) ||
		    (DF_H_HOOK(event_time) && df_hhooks()->event_time(&info, &native)))
			err = cudaErrorNotReady;
		e[i] = native;
		t[i] = err ? 0 : stamp_of(e[i]);
		if (!err && !t[i])
			err = cudaErrorNotReady;
	}
	if (!err)
		*ms = (float)((double)(int64_t)(t[1] - t[0]) / 1e6);
	return df_hret(err);
}

/* Not supported: events of other processes would need their streams' positions in shared memory. */
DF_H_API cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
	struct df_hevent *e;
	cudaError_t err = enter(event, &e);

	if (!err && !handle)
		err = cudaErrorInvalidValue;
	return df_hret(err ? err : cudaErrorNotSupported);
}

DF_H_API cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
	(void)handle;
	return df_hret(event ? cudaErrorNotSupported : cudaErrorInvalidValue);
}
