/*
 * Preloaded before libdfnccl.so. Hides the function with which libdfnccl.so ends stuck operations.
 * NVIDIA's NCCL has no such function, so dfshim must revoke communicators instead.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include "interpose/hostnccl/hostnccl.h"

__attribute__((visibility("default"))) const struct df_hostnccl_api *df_hostnccl(void)
{
	static struct df_hostnccl_api api;
	const struct df_hostnccl_api *(*next)(void);

	*(void **)&next = dlsym(RTLD_NEXT, "df_hostnccl");
	api = *next();
	api.stop = 0;
	return &api;
}
