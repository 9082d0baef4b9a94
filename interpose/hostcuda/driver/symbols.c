/*
 * All functions of cuda.h, from the table that libdfshim.so's hook uses. Those that no other file
 * defines return CUDA_ERROR_NOT_SUPPORTED and report it once. A refused function is defined without
 * parameters, which C's calling convention allows.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <stdint.h>
#include <string.h>
#include "runtime/base/log.h"

void *df_hdriver_find(const char *base, int version, int per_thread);
void *df_hdriver_symbol(const char *symbol);

static CUresult refuse(int *warned, const char *name)
{
	/* RELAXED: at worst two threads warn. */
	if (!__atomic_exchange_n(warned, 1, __ATOMIC_RELAXED))
		df_warn("host CUDA: %s is not served; it returns CUDA_ERROR_NOT_SUPPORTED", name);
	return CUDA_ERROR_NOT_SUPPORTED;
}

#define REFUSED(symbol)                                                                            \
	CUresult none_##symbol(void) __asm__(#symbol);                                             \
	__attribute__((weak, visibility("default"))) CUresult none_##symbol(void)                  \
	{                                                                                          \
		static int warned;                                                                 \
                                                                                                   \
		return refuse(&warned, #symbol);                                                   \
	}
#define DF_CU(symbol, ...)	REFUSED(symbol)
#define DF_CU_NONE(symbol, ...) REFUSED(symbol)
#include "interpose/cuda/cuda_calls.def"
#undef DF_CU
#undef DF_CU_NONE

static const struct {
	const char *base;
	short ptds;
	int since;
	CUresult (*fn)(void);
} all[] = {
#define ROW(symbol, base, since, ptds, ...) {#base, ptds, since, none_##symbol},
#define DF_CU(...)			    ROW(__VA_ARGS__, 0)
#define DF_CU_NONE(...)			    ROW(__VA_ARGS__, 0)
#include "interpose/cuda/cuda_calls.def"
#undef DF_CU
#undef DF_CU_NONE
};

void *df_hdriver_symbol(const char *symbol)
{
	static const struct {
		const char *name;
		CUresult (*fn)(void);
	} symbols[] = {
#define SYMBOL(symbol, ...) {#symbol, none_##symbol},
#define DF_CU(...)	    SYMBOL(__VA_ARGS__, 0)
#define DF_CU_NONE(...)	    SYMBOL(__VA_ARGS__, 0)
#include "interpose/cuda/cuda_calls.def"
#undef DF_CU
#undef DF_CU_NONE
	};
	size_t i;

	for (i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		if (strcmp(symbols[i].name, symbol) == 0)
			return (void *)symbols[i].fn;
	return NULL;
}

/*
 * Returns the latest form that a program of that version knows: a per-thread form if it wants those
 * and there is one, else another form.
 */
void *df_hdriver_find(const char *base, int version, int per_thread)
{
	CUresult (*best)(void) = NULL;
	int since = 0, pass;
	size_t i;

	/* In CUDA 12 this name denotes another function. */
	if (strcmp(base, "cuGraphInstantiate") == 0 && version >= 12000)
		base = "cuGraphInstantiateWithFlags";
	for (pass = !!per_thread; pass >= 0 && !best; pass--)
		for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			if (all[i].ptds == pass && all[i].since <= version &&
			    all[i].since > since && strcmp(all[i].base, base) == 0) {
				best = all[i].fn;
				since = all[i].since;
			}
	return (void *)best;
}
