/*
 * The file that an address of code belongs to. As dladdr(), but without the search for the symbol,
 * which takes up to milliseconds in a library with many of them.
 */
#ifndef DF_TRACE_RECORD_MODULE_H
#define DF_TRACE_RECORD_MODULE_H

#include <stdint.h>

struct df_module {
	const char *name;     /* of the file, without its folder; valid while it is loaded */
	uintptr_t start, end; /* in memory */
};

/* Returns 0 if no file is known for the address. Any thread. Takes the loader's lock. */
int df_module_of(const void *pc, struct df_module *m);

#endif
