/*
 * Every function of libcuda, from the table of the hook: counted, and successful or "not supported". Weak:
 * the other files define those that do something.
 */
#include "tests/cuda/fake/internal.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define WEAK __attribute__((weak, visibility("default")))
#define DF_CU(symbol, base, since, ptds, class, kind, object, params, args)                        \
	WEAK CUresult symbol params                                                                \
	{                                                                                          \
		fake_count(#symbol);                                                               \
		return CUDA_SUCCESS;                                                               \
	}
#define DF_CU_NONE(symbol, base, since, ptds)                                                      \
	CUresult none_##symbol(void) __asm__(#symbol);                                             \
	WEAK CUresult none_##symbol(void)                                                          \
	{                                                                                          \
		fake_count(#symbol);                                                               \
		return CUDA_ERROR_NOT_SUPPORTED;                                                   \
	}
#include "interpose/cuda/cuda_api.def"
#undef DF_CU
#undef DF_CU_NONE

static const struct fake_symbol all[] = {
#define DF_CU(symbol, base, since, ptds, class, kind, object, params, args)                        \
	{#symbol, #base, since, ptds, (void *)symbol},
#define DF_CU_NONE(symbol, base, since, ptds) {#symbol, #base, since, ptds, (void *)none_##symbol},
#include "interpose/cuda/cuda_api.def"
};

const struct fake_symbol *fake_symbols(unsigned int *nr)
{
	*nr = sizeof(all) / sizeof(all[0]);
	return all;
}
