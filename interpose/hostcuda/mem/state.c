/* Holds the state of the CUDA runtime in this process and in the calling thread, and its errors. */
#include "interpose/hostcuda/code.h"
#include "interpose/hostcuda/internal.h"

struct df_hrt df_h;
const struct df_hcode *df_hcode; /* set before there are streams and functions */
__thread struct df_htls df_htls __attribute__((tls_model("initial-exec")));

cudaError_t df_herr(int err)
{
	switch (err) {
	case 0:
		return cudaSuccess;
	case -ENOMEM:
	case -EAGAIN:
		return cudaErrorMemoryAllocation;
	case -EINVAL:
		return cudaErrorInvalidValue;
	case -EOPNOTSUPP:
		return cudaErrorNotSupported;
	case -ECANCELED:
		return cudaErrorIllegalState;
	default:
		return cudaErrorUnknown;
	}
}
