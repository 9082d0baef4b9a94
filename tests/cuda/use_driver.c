/*
 * A program of the CUDA driver that finds it as libcudart does: dlopen, dlsym of
 * cuGetProcAddress_v2, then cuGetProcAddress for every other function, with versions and flags.
 * Prints for each name which library the function is in, calls some functions, and prints how many
 * calls the driver received. One line for each fact; the test compares them.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/cuda/driver/fake.h"

typedef CUresult (*proc_fn)(const char *, void **, int, cuuint64_t,
			    CUdriverProcAddressQueryResult *);
typedef CUresult (*proc1_fn)(const char *, void **, int, cuuint64_t);

static const char *where(void *fn)
{
	Dl_info info;
	const char *base;

	if (!fn)
		return "none";
	if (!dladdr(fn, &info))
		return "nowhere";
	base = strrchr(info.dli_fname, '/');
	return base ? base + 1 : info.dli_fname;
}

static void *need(proc_fn ask, const char *name, int version, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status;
	void *fn = NULL;

	ask(name, &fn, version, flags, &status);
	printf("proc %s %d %llu %s\n", name, version, (unsigned long long)flags, where(fn));
	return fn;
}

int main(void)
{
	const struct fake_cuda *(*fake)(void);
	CUresult (*wait1)(CUstream, CUdeviceptr, cuuint64_t, unsigned int);
	CUresult (*alloc)(CUdeviceptr *, size_t);
	CUresult (*query)(CUstream);
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	CUdriverProcAddressQueryResult status;
	proc_fn ask;
	proc1_fn ask1;
	void *fn, *again = NULL;
	CUdeviceptr p = 0;
	CUcontext ctx;

	if (!lib) {
		printf("dlopen: %s\n", dlerror());
		return 1;
	}
	*(void **)&fake = dlsym(lib, "fake_cuda");
	*(void **)&ask = dlsym(lib, "cuGetProcAddress_v2");
	*(void **)&ask1 = dlsym(lib, "cuGetProcAddress");
	printf("dlsym cuGetProcAddress_v2 %s\n", where((void *)ask));
	printf("dlsym cuGetErrorName %s\n", where(dlsym(lib, "cuGetErrorName")));
	printf("dlsym cuNoSuchThing %s\n", where(dlsym(lib, "cuNoSuchThing")));
	/* dlvsym() finds nothing, because the name has no version. */
	printf("dlvsym cuGetProcAddress_v2 %s\n",
	       where(dlvsym(lib, "cuGetProcAddress_v2", "ANY_1")));
	/* Like libcudart, ask for the asking function itself. */
	fn = NULL;
	ask("cuGetProcAddress", &fn, 12000, 0, &status);
	printf("self %d\n", fn == (void *)ask);
	need(ask, "cuLaunchKernel", 12000, 0);
	need(ask, "cuLaunchKernel", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
	need(ask, "cuGetErrorString", 12000, 0);
	need(ask, "cuStreamWaitEvent", 13010, 0);
	need(ask, "cuStreamWaitEvent", 13000, 0);
	need(ask, "cuNoSuchThing", 13000, 0);
	/* One function with two names. */
	fn = need(ask, "cuGraphInstantiate", 12000, 0);
	printf("alias %d\n", fn == need(ask, "cuGraphInstantiateWithFlags", 12000, 0));
	/* Two versions of a function have two wrappers; each calls its own version. */
	*(void **)&wait1 = need(ask, "cuStreamWaitValue64", 9000, 0);
	fn = need(ask, "cuStreamWaitValue64", 12000, 0);
	printf("versions differ %d\n", fn != (void *)wait1);
	wait1(NULL, 0, 0, 0);
	printf("calls cuStreamWaitValue64 %d\n", (int)fake()->calls("cuStreamWaitValue64"));
	printf("calls cuStreamWaitValue64_v2 %d\n", (int)fake()->calls("cuStreamWaitValue64_v2"));
	((CUresult(*)(unsigned int))need(ask, "cuInit", 12000, 0))(0);
	((CUresult(*)(CUcontext *, CUdevice))need(ask, "cuDevicePrimaryCtxRetain", 12000, 0))(&ctx,
											      0);
	((CUresult(*)(CUcontext))need(ask, "cuCtxSetCurrent", 12000, 0))(ctx);
	/* The older form of cuGetProcAddress returns the same function. */
	ask1("cuMemAlloc", &again, 12000, 0);
	*(void **)&alloc = need(ask, "cuMemAlloc", 12000, 0);
	printf("same %d\n", again == (void *)alloc);
	printf("dlsym same %d\n", dlsym(lib, "cuMemAlloc_v2") == (void *)alloc);
	printf("alloc %d\n", alloc(&p, 100) == CUDA_SUCCESS && p);
	printf("calls cuMemAlloc_v2 %d\n", (int)fake()->calls("cuMemAlloc_v2"));
	printf("calls cuMemAlloc %d\n", (int)fake()->calls("cuMemAlloc"));
	/* In the child of a fork, wrappers call the driver directly. */
	*(void **)&query = need(ask, "cuStreamIsCapturing", 12000, 0);
	fflush(stdout);
	if (fork() == 0) {
		p = 0;
		_exit(alloc(&p, 100) == CUDA_SUCCESS && p ? 0 : 1);
	}
	wait(&(int){0});
	return 0;
}
