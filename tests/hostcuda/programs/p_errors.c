/*
 * Errors: invalid handles of every kind are refused and never dereferenced; the last error belongs
 * to the thread; devices and limits are checked; kernels are refused or skipped; a forked child
 * gets an error.
 */
#include "tests/hostcuda/programs/cu.h"

#include <sys/wait.h>

static void garbage(uint64_t *rng)
{
	cudaStream_t s;
	cudaEvent_t e;
	void *bad;
	float ms;
	int i;

	CU(cudaStreamCreate(&s));
	CU(cudaEventCreate(&e));
	for (i = 0; i < 4000; i++) {
		switch (i % 4) {
		case 0:
			bad = (void *)(uintptr_t)next(rng);
			break;
		case 1: /* near valid ones */
			bad = (char *)s + 1 + next(rng) % 63;
			break;
		case 2:
			bad = (char *)e + 64 * (1 + next(rng) % 1000);
			break;
		default:
			bad = (char *)s + 4096 * (1 + next(rng) % 4000);
		}
		if ((uintptr_t)bad < 3)
			continue;
		GIVES(cudaErrorInvalidResourceHandle, cudaStreamSynchronize(bad));
		GIVES(cudaErrorInvalidResourceHandle, cudaStreamDestroy(bad));
		GIVES(cudaErrorInvalidResourceHandle, cudaEventQuery(bad));
		GIVES(cudaErrorInvalidResourceHandle, cudaEventRecord(e, bad));
		GIVES(cudaErrorInvalidResourceHandle, cudaEventRecord(bad, s));
		GIVES(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&ms, bad, e));
		GIVES(cudaErrorInvalidValue, cudaGraphDestroy(bad));
		GIVES(cudaErrorInvalidValue, cudaGraphLaunch(bad, s));
		GIVES(cudaErrorInvalidValue, cudaMemPoolDestroy(bad));
	}
	GIVES(cudaErrorInvalidResourceHandle, cudaEventQuery(NULL));
	GIVES(cudaErrorInvalidResourceHandle, cudaStreamDestroy(NULL));
	GIVES(cudaErrorInvalidResourceHandle, cudaStreamDestroy(cudaStreamPerThread));
	CU(cudaStreamDestroy(s));
	GIVES(cudaErrorInvalidResourceHandle, cudaStreamDestroy(s));
	CU(cudaEventDestroy(e));
	GIVES(cudaErrorInvalidResourceHandle, cudaEventDestroy(e));
	GIVES(cudaErrorInvalidValue, cudaEventCreateWithFlags(&e, 1u << 20));
	GIVES(cudaErrorInvalidValue, cudaStreamCreateWithFlags(&s, 0x100));
	GIVES(cudaErrorInvalidValue, cudaStreamCreate(NULL));
	(void)cudaGetLastError();
}

static void *other_thread(void *arg)
{
	int device = 77;

	(void)arg;
	CHECK(cudaGetLastError() == cudaSuccess);
	CU(cudaGetDevice(&device));
	CHECK(device == 0);
	GIVES(cudaErrorInvalidDevice, cudaSetDevice(-1));
	return NULL;
}

static void last_error(void)
{
	pthread_t t;
	int n;

	CU(cudaGetDeviceCount(&n));
	GIVES(cudaErrorInvalidDevice, cudaSetDevice(n));
	CU(cudaGetDeviceCount(&n)); /* a success does not clear the error */
	CHECK(cudaPeekAtLastError() == cudaErrorInvalidDevice);
	CHECK(!pthread_create(&t, NULL, other_thread, NULL));
	pthread_join(t, NULL);
	GIVES(cudaErrorInvalidValue, cudaGetDeviceCount(NULL));
	CHECK(cudaPeekAtLastError() == cudaErrorInvalidValue);
	CHECK(cudaGetLastError() == cudaErrorInvalidValue);
	CHECK(cudaGetLastError() == cudaSuccess);
	CHECK(!strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue"));
	CHECK(!strcmp(cudaGetErrorString(cudaSuccess), "no error"));
	CHECK(!strcmp(cudaGetErrorString(cudaErrorInvalidResourceHandle),
		      "invalid resource handle"));
	CHECK(!strcmp(cudaGetErrorName((cudaError_t)12345), "unrecognized error code"));
}

static void devices(void)
{
	struct cudaDeviceProp p, q;
	char id[32];
	int n, i, v, d;

	CU(cudaGetDeviceCount(&n));
	CHECK(n == (getenv("DFSHIM_HOST_DEVICES") ? atoi(getenv("DFSHIM_HOST_DEVICES")) : 8));
	for (i = 0; i < n; i++) {
		CU(cudaGetDeviceProperties(&p, i));
		CHECK(p.totalGlobalMem > 0 && p.warpSize == 32 && p.name[0]);
		CU(cudaDeviceGetPCIBusId(id, sizeof(id), i));
		CU(cudaDeviceGetByPCIBusId(&d, id));
		CHECK(d == i);
		CU(cudaDeviceGetAttribute(&v, cudaDevAttrPciBusId, i));
		CHECK(v == p.pciBusID);
		CU(cudaDeviceGetAttribute(&v, cudaDevAttrMultiProcessorCount, i));
		CHECK(v == p.multiProcessorCount);
		if (i) {
			CHECK(memcmp(&p.uuid, &q.uuid, sizeof(p.uuid)));
			CU(cudaDeviceCanAccessPeer(&v, 0, i));
			CHECK(v == 1);
		}
		q = p;
	}
	GIVES(cudaErrorInvalidDevice, cudaGetDeviceProperties(&p, n));
	GIVES(cudaErrorInvalidDevice, cudaDeviceGetAttribute(&v, cudaDevAttrWarpSize, -1));
	CU(cudaDeviceEnablePeerAccess(1, 0));
	GIVES(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1, 0));
	CU(cudaDeviceDisablePeerAccess(1));
	GIVES(cudaErrorPeerAccessNotEnabled, cudaDeviceDisablePeerAccess(1));
	(void)cudaGetLastError();
}

static void kernels(void)
{
	cudaError_t want = getenv("DFSHIM_HOST_STUB") ? cudaSuccess : cudaErrorNotSupported;
	enum cudaDriverEntryPointQueryResult status;
	void *fn = &fn;
	static int stub;

	GIVES(want, cudaLaunchKernel(&stub, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL));
	CU(cudaStreamSynchronize(NULL));
	GIVES(cudaErrorInvalidDeviceFunction,
	      cudaLaunchKernel(NULL, (dim3){1, 1, 1}, (dim3){1, 1, 1}, NULL, 0, NULL));
	CU(cudaGetDriverEntryPointByVersion("cuNothing", &fn, 12000, 0, &status));
	CHECK(!fn && status == cudaDriverEntryPointSymbolNotFound);
	GIVES(cudaErrorSymbolNotFound,
	      cudaGetDriverEntryPointByVersion("cuNothing", &fn, 12000, 0, NULL));
	/* a function that is in the table, but refused */
	GIVES(cudaErrorNotSupported, cudaCtxResetPersistingL2Cache()
					     ? cudaErrorUnknown
					     : cudaGetExportTable((const void **)&fn, NULL));
	(void)cudaGetLastError();
}

static void in_child(void)
{
	int status, n;
	pid_t pid = fork();

	if (!pid) {
		GIVES(cudaErrorInitializationError, cudaGetDeviceCount(&n));
		GIVES(cudaErrorInitializationError, cudaStreamSynchronize(NULL));
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CU(cudaGetDeviceCount(&n));
}

static void reset(void)
{
	cudaStream_t s;
	cudaEvent_t e, other;
	size_t f0, f1, total;
	void *p;

	CU(cudaMemGetInfo(&f0, &total));
	CU(cudaStreamCreate(&s));
	CU(cudaEventCreate(&e));
	CU(cudaMalloc(&p, 5000));
	CU(cudaSetDevice(1));
	CU(cudaEventCreate(&other));
	CU(cudaSetDevice(0));
	CU(cudaMemsetAsync(p, 0, 5000, s));
	CU(cudaDeviceReset());
	GIVES(cudaErrorInvalidResourceHandle, cudaStreamQuery(s));
	GIVES(cudaErrorInvalidResourceHandle, cudaEventQuery(e));
	GIVES(cudaErrorInvalidValue, cudaFree(p));
	CU(cudaMemGetInfo(&f1, &total));
	CHECK(f0 == f1);
	CU(cudaEventDestroy(other));
	CU(cudaStreamCreate(&s));
	CU(cudaStreamDestroy(s));
}

int main(void)
{
	uint64_t rng = seed();

	last_error();
	garbage(&rng);
	devices();
	kernels();
	in_child();
	reset();
	return 0;
}
