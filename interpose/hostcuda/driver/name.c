/*
 * Programs look for the driver by its name, at run time. Beside libdfhost.so lies a libcuda.so.1 that stands for it
 * (dfhost/libcuda.so.1, without code of its own): a process that has libdfhost.so preloaded has that name too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

__attribute__((constructor)) static void take_name(void)
{
	static const char at[] = "dfhost/libcuda.so.1";
	char path[4096];
	Dl_info self;
	int dir;

	if (!dladdr((void *)(uintptr_t)take_name, &self) || !self.dli_fname)
		return;
	dir = (int)(strrchr(self.dli_fname, '/') ? strrchr(self.dli_fname, '/') + 1 - self.dli_fname
						 : 0);
	/* Where it is not, there is no driver: the runtime's functions work all the same. */
	if (snprintf(path, sizeof(path), "%.*s%s", dir, self.dli_fname, at) < (int)sizeof(path))
		dlopen(path, RTLD_NOW | RTLD_LOCAL);
}
