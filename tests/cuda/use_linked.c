/*
 * A program linked with libcuda (-lcuda): the loader resolves the driver's functions. Prints which
 * library each function is in, calls some, and prints how many calls the driver received. One line
 * for each fact; the test compares them.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "tests/cuda/driver/fake.h"

static const char *where(void *fn)
{
	Dl_info info;
	const char *base;

	if (!fn || !dladdr(fn, &info))
		return "nowhere";
	base = strrchr(info.dli_fname, '/');
	return base ? base + 1 : info.dli_fname;
}

static void arrived(const char *name)
{
	printf("calls %s %d\n", name, (int)fake_cuda()->calls(name));
}

int main(void)
{
	CUdriverProcAddressQueryResult status;
	void *asked = NULL;
	CUcontext ctx = NULL;
	CUdeviceptr p = 0;

	printf("linked cuMemAlloc_v2 %s\n", where((void *)cuMemAlloc_v2));
	printf("linked cuGetProcAddress_v2 %s\n", where((void *)cuGetProcAddress_v2));
	printf("linked cuStreamSynchronize_ptsz %s\n", where((void *)cuStreamSynchronize_ptsz));
	printf("linked cuInit %s\n", where((void *)cuInit));
	printf("init %d\n", cuInit(0));
	printf("context %d\n", cuDevicePrimaryCtxRetain(&ctx, 0));
	printf("current %d\n", cuCtxSetCurrent(ctx));
	printf("alloc %d\n", cuMemAlloc_v2(&p, 100) == CUDA_SUCCESS && p);
	printf("free %d\n", cuMemFree_v2(p));
	/* Every way to look a function up gives the same address. */
	cuGetProcAddress_v2("cuMemAlloc", &asked, 12000, 0, &status);
	printf("asked same %d\n", asked == (void *)cuMemAlloc_v2);
	printf("default same %d\n", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == (void *)cuMemAlloc_v2);
	asked = NULL;
	cuGetProcAddress_v2("cuGetErrorString", &asked, 12000, 0, &status);
	printf("asked cuGetErrorString %s\n", where(asked));
	/* A function that was not called before, and its form for the per-thread default stream. */
	printf("sync %d %d\n", cuStreamSynchronize(NULL), cuStreamSynchronize_ptsz(NULL));
	arrived("cuMemAlloc_v2");
	arrived("cuMemFree_v2");
	arrived("cuStreamSynchronize");
	arrived("cuStreamSynchronize_ptsz");
	return 0;
}
