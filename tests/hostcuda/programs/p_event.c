/*
 * Events: a record is a snapshot of the stream's position; a wait uses the record that is current
 * at its call; times are the stream's; handles may be destroyed before their record is reached.
 */
#include "tests/hostcuda/programs/cu.h"

static void set(void *arg)
{
	++*(int *)arg;
}

static void snapshot(void)
{
	struct gate g = {0}, h = {0};
	cudaStream_t s, t;
	cudaEvent_t e;
	int ran = 0;

	CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CU(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
	CU(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
	CU(cudaEventQuery(e)); /* an event that was never recorded counts as finished */
	CU(cudaEventSynchronize(e));
	CU(cudaLaunchHostFunc(s, gate_wait, &g));
	CU(cudaEventRecord(e, s));
	CU(cudaLaunchHostFunc(s, gate_wait, &h));
	GIVES(cudaErrorNotReady, cudaEventQuery(e));
	CU(cudaStreamWaitEvent(t, e, 0));
	CU(cudaLaunchHostFunc(t, set, &ran));
	/* A later record changes the event's state, but not what t waits for. */
	CU(cudaEventRecord(e, s));
	gate_open(&g);
	CU(cudaStreamSynchronize(t));
	CHECK(ran == 1);
	GIVES(cudaErrorNotReady, cudaEventQuery(e));
	gate_open(&h);
	CU(cudaEventSynchronize(e));
	CU(cudaEventQuery(e));
	CU(cudaStreamDestroy(s));
	CU(cudaStreamDestroy(t));
	CU(cudaEventDestroy(e));
	(void)cudaGetLastError();
}

static void nap(void *arg)
{
	usleep((useconds_t)(intptr_t)arg);
}

static void times(void)
{
	cudaEvent_t a, b, plain;
	cudaStream_t s;
	struct gate g = {0};
	float ms = -1;

	CU(cudaStreamCreate(&s));
	CU(cudaEventCreate(&a));
	CU(cudaEventCreate(&b));
	CU(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
	GIVES(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, a, b));
	CU(cudaEventRecord(a, s));
	CU(cudaLaunchHostFunc(s, nap, (void *)20000));
	CU(cudaEventRecord(b, s));
	CU(cudaEventSynchronize(b));
	CU(cudaEventElapsedTime(&ms, a, b));
	CHECK(ms >= 19.9f);
	CU(cudaEventElapsedTime(&ms, b, a));
	CHECK(ms <= -19.9f);
	CU(cudaEventRecord(plain, s));
	CU(cudaStreamSynchronize(s));
	GIVES(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, a, plain));
	CU(cudaLaunchHostFunc(s, gate_wait, &g));
	CU(cudaEventRecord(b, s));
	GIVES(cudaErrorNotReady, cudaEventElapsedTime(&ms, a, b));
	gate_open(&g);
	CU(cudaStreamSynchronize(s));
	CU(cudaEventElapsedTime(&ms, a, b));
	CU(cudaEventDestroy(a));
	CU(cudaEventDestroy(b));
	CU(cudaEventDestroy(plain));
	CU(cudaStreamDestroy(s));
}

/* The handle is destroyed and its slot reused before the stream reaches the record. */
static void destroyed_early(void)
{
	struct gate g = {0};
	cudaStream_t s, t;
	cudaEvent_t e, f;
	float ms;
	int ran = 0;

	CU(cudaStreamCreate(&s));
	CU(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
	CU(cudaEventCreate(&e));
	CU(cudaLaunchHostFunc(s, gate_wait, &g));
	CU(cudaEventRecord(e, s));
	CU(cudaStreamWaitEvent(t, e, 0));
	CU(cudaLaunchHostFunc(t, set, &ran));
	CU(cudaEventDestroy(e));
	GIVES(cudaErrorInvalidResourceHandle, cudaEventQuery(e));
	CU(cudaEventCreate(&f));
	CU(cudaEventQuery(f));
	gate_open(&g);
	CU(cudaStreamSynchronize(t));
	CHECK(ran == 1);
	CU(cudaStreamSynchronize(s));
	GIVES(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, f, f));
	CU(cudaEventDestroy(f));
	CU(cudaStreamDestroy(s));
	CU(cudaStreamDestroy(t));
	(void)cudaGetLastError();
}

/* Events between devices; and streams that are destroyed while others wait for their events. */
static void devices(void)
{
	struct gate g = {0};
	cudaStream_t s[4];
	cudaEvent_t e[4];
	int ran[4] = {0}, i;

	for (i = 0; i < 4; i++) {
		CU(cudaSetDevice(i));
		CU(cudaStreamCreate(&s[i]));
		CU(cudaEventCreate(&e[i]));
		if (i == 0)
			CU(cudaLaunchHostFunc(s[0], gate_wait, &g));
		else
			CU(cudaStreamWaitEvent(s[i], e[i - 1], 0));
		CU(cudaLaunchHostFunc(s[i], set, &ran[i]));
		CU(cudaEventRecord(e[i], s[i]));
	}
	GIVES(cudaErrorInvalidResourceHandle, cudaEventRecord(e[0], s[1]));
	for (i = 0; i < 3; i++)
		CU(cudaStreamDestroy(s[i]));
	GIVES(cudaErrorNotReady, cudaEventQuery(e[3]));
	gate_open(&g);
	CU(cudaEventSynchronize(e[3]));
	for (i = 0; i < 4; i++)
		CHECK(ran[i] == 1);
	CU(cudaStreamDestroy(s[3]));
	for (i = 0; i < 4; i++)
		CU(cudaEventDestroy(e[i]));
	CU(cudaSetDevice(0));
	(void)cudaGetLastError();
}

int main(void)
{
	snapshot();
	times();
	destroyed_early();
	devices();
	return 0;
}
