/*
 * Programs look for the driver and for CUPTI by name, at run time. The folder dfhost beside
 * libdfhost.so has a libcuda.so.1 without code of its own, and cupti/cupti.c as libcupti.so.
 * Loading them makes the names known in a process that has libdfhost.so preloaded.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/err.h"

__attribute__((constructor)) static void take_names(void)
{
	static const char *const names[] = {"libcuda.so.1", "libcupti.so.12", "libcupti.so.13"};
	char path[4096];
	Dl_info self;
	size_t i;
	int dir;

	if (!dladdr((void *)(uintptr_t)take_names, &self) || !self.dli_fname)
		return;
	dir = (int)(strrchr(self.dli_fname, '/') ? strrchr(self.dli_fname, '/') + 1 - self.dli_fname
						 : 0);
	/* If these files are missing, there is no driver. The runtime's functions still work. */
	for (i = 0; i < DF_ARRAY_LEN(names); i++)
		if (snprintf(path, sizeof(path), "%.*sdfhost/%s", dir, self.dli_fname, names[i]) <
		    (int)sizeof(path))
			dlopen(path, RTLD_NOW | RTLD_LOCAL);
}
