/*
 * Events on the CUDA driver: our state of the application's events, by handle, and the functions of
 * cuda.c's table for events. The table's lock is a leaf and never held across a call of the driver.
 * Any thread.
 */
#if __has_include(<cuda.h>)
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/device/cuda/cuda_int.h"

struct event {
	void *handle;
	UT_hash_handle hh;
	uint64_t id;
	unsigned int flags;
	int device;
	void *user;
};

static pthread_rwlock_t events_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct event *events;
static uint64_t event_ids;

static struct event *event_add(void *handle, unsigned int flags)
{
	struct event *e = calloc(1, sizeof(*e)), *other;

	if (!e)
		return NULL;
	e->handle = handle;
	e->flags = flags;
	e->device = df_cuda_api.get_device();
	pthread_rwlock_wrlock(&events_lock);
	HASH_FIND_PTR(events, &handle, other);
	if (!other) {
		e->id = ++event_ids;
		HASH_ADD_PTR(events, handle, e);
	}
	pthread_rwlock_unlock(&events_lock);
	if (other)
		free(e);
	return other ? other : e;
}

int df_cuda_event(CUevent event, struct df_event_info *out)
{
	struct event *e;

	pthread_rwlock_rdlock(&events_lock);
	HASH_FIND_PTR(events, &event, e);
	pthread_rwlock_unlock(&events_lock);
	if (!e)
		e = event_add(event, CU_EVENT_DEFAULT);
	if (!e)
		return -ENOMEM;
	memset(out, 0, sizeof(*out));
	out->id = e->id;
	out->device = e->device;
	out->timing = !(e->flags & CU_EVENT_DISABLE_TIMING);
	out->ipc = !!(e->flags & CU_EVENT_INTERPROCESS);
	out->user = &e->user;
	out->event = event;
	return 0;
}

void df_cuda_event_made(CUevent event, unsigned int flags)
{
	event_add(event, flags);
}

void df_cuda_event_forget(CUevent event)
{
	struct event *e;

	pthread_rwlock_wrlock(&events_lock);
	HASH_FIND_PTR(events, &event, e);
	if (e)
		HASH_DEL(events, e);
	pthread_rwlock_unlock(&events_lock);
	free(e);
}

int df_cuda_event_record(void *event, struct df_mstream *s)
{
	int in = df_cuda_enter(s->ctx);
	CUresult r;

	if (in < 0)
		return in;
	r = df_drv.event_record(event, s->handle);
	df_cuda_leave(in);
	return df_drv_errno(r);
}

int df_cuda_event_new(int device, void **event)
{
	int in = df_cuda_enter(df_cuda_ctx(device));
	CUresult r;

	if (in < 0)
		return in;
	r = df_drv.event_create((CUevent *)event, CU_EVENT_DEFAULT);
	df_cuda_leave(in);
	return df_drv_errno(r);
}

void df_cuda_event_delete(void *event)
{
	df_drv.event_destroy(event);
}

int df_cuda_event_wait(struct df_mstream *s, void *event)
{
	int in = df_cuda_enter(s->ctx);
	CUresult r;

	if (in < 0)
		return in;
	r = df_drv.stream_wait_event(s->handle, event, 0);
	df_cuda_leave(in);
	return df_drv_errno(r);
}
#endif
