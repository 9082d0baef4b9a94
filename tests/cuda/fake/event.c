/* The events of the stand-in driver. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include "tests/cuda/fake/internal.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

API CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	SEEN();
	*out = calloc(1, sizeof(**out));
	(*out)->flags = flags;
	return CUDA_SUCCESS;
}
API CUresult cuEventDestroy_v2(CUevent e)
{
	SEEN();
	(void)e; /* operations may still name it */
	return CUDA_SUCCESS;
}
API CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned int flags)
{
	struct op op = {.kind = OP_RECORD, .event = e};
	int captured;

	s = fake_stream_of(s, 0);
	pthread_mutex_lock(&fake_lock);
	captured = s->capture && !(flags & CU_EVENT_RECORD_EXTERNAL);
	e->capture = captured ? s->capture : NULL;
	e->capture_id = s->capture_id;
	e->nr_behind = 0;
	if (captured)
		fake_nodes_join(&e->behind, &e->nr_behind, s->behind, s->nr_behind);
	else if (!s->capture)
		op.point = ++e->recorded;
	pthread_mutex_unlock(&fake_lock);
	if (!captured)
		fake_put(s, &op);
	return CUDA_SUCCESS;
}
API CUresult cuEventRecord(CUevent e, CUstream s)
{
	SEEN();
	return cuEventRecordWithFlags(e, s, 0);
}
/* An event that was recorded in a capture takes the stream into it. */
API CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned int flags)
{
	int captured, foreign;

	SEEN();
	s = fake_stream_of(s, 0);
	pthread_mutex_lock(&fake_lock);
	captured = e->capture && !(flags & CU_EVENT_WAIT_EXTERNAL);
	foreign = s->capture && !(flags & CU_EVENT_WAIT_EXTERNAL) && e->capture != s->capture;
	if (captured && (!s->capture || !foreign)) {
		s->capture = e->capture;
		s->capture_id = e->capture_id;
		fake_nodes_join(&s->behind, &s->nr_behind, e->behind, e->nr_behind);
		foreign = 0;
	}
	pthread_mutex_unlock(&fake_lock);
	if (foreign)
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	if (!captured)
		fake_put(s, &(struct op){.kind = OP_AFTER, .event = e, .point = e->recorded});
	return CUDA_SUCCESS;
}
API CUresult cuEventQuery(CUevent e)
{
	CUresult ret;

	SEEN();
	pthread_mutex_lock(&fake_lock);
	ret = e->reached < e->recorded ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
	pthread_mutex_unlock(&fake_lock);
	return fake_ctx_error(fake_ctx_now()) ? fake_ctx_error(fake_ctx_now()) : ret;
}
API CUresult cuEventElapsedTime_v2(float *ms, CUevent a, CUevent b)
{
	CUresult ret = CUDA_ERROR_NOT_READY;

	SEEN();
	pthread_mutex_lock(&fake_lock);
	if (!a->recorded || !b->recorded || (a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)
		ret = CUDA_ERROR_INVALID_HANDLE;
	else if (a->reached == a->recorded && b->reached == b->recorded)
		ret = CUDA_SUCCESS;
	if (ret == CUDA_SUCCESS)
		*ms = (float)((double)(b->when.tv_sec - a->when.tv_sec) * 1e3 +
			      (double)(b->when.tv_nsec - a->when.tv_nsec) / 1e6);
	pthread_mutex_unlock(&fake_lock);
	return ret;
}
API CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b)
{
	SEEN();
	return cuEventElapsedTime_v2(ms, a, b);
}
API CUresult cuEventSynchronize(CUevent e)
{
	SEEN();
	pthread_mutex_lock(&fake_lock);
	while (e->reached < e->recorded)
		pthread_cond_wait(&fake_moved, &fake_lock);
	pthread_mutex_unlock(&fake_lock);
	return fake_ctx_error(fake_ctx_now());
}
