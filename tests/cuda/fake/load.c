/* What the stand-in tells of loading. FAKE_CUDA_EAGER: nothing is loaded later than its module. */
#include <stdlib.h>
#include "tests/cuda/fake/internal.h"

API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
	SEEN();
	*mode = getenv("FAKE_CUDA_EAGER") ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}
