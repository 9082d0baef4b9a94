/*
 * Error codes: names from the headers' enumerations (cuda_codes.def is made of them), texts from
 * the names, and the last error of each thread.
 */
#include "interpose/hostcuda/cudart/error.h"
#include "interpose/hostcuda/internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/ascii.h"

/* The usual texts of these errors. The texts of other errors are made from their names. */
static const struct {
	cudaError_t err;
	const char *text;
} texts[] = {
	{cudaSuccess, "no error"},
	{cudaErrorInvalidValue, "invalid argument"},
	{cudaErrorMemoryAllocation, "out of memory"},
	{cudaErrorInitializationError, "initialization error"},
	{cudaErrorInvalidDevice, "invalid device ordinal"},
	{cudaErrorNoDevice, "no CUDA-capable device is detected"},
	{cudaErrorNotReady, "device not ready"},
	{cudaErrorNotSupported, "operation not supported"},
	{cudaErrorNotPermitted, "operation not permitted"},
	{cudaErrorSymbolNotFound, "named symbol not found"},
	{cudaErrorUnknown, "unknown error"},
	{cudaErrorIllegalState, "the operation cannot be performed in the present state"},
	{cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"},
	{cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"},
	{cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is "
					       "already mapped"},
	{cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory "
					   "region"},
	{cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"},
	{cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during "
					    "capture"},
	{cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"},
	{cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another "
					  "stream"},
	{cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a "
					 "capturing blocking stream"},
	{cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing "
				 "stream"},
};

static const struct {
	cudaError_t err;
	const char *name;
} names[] = {
#define DF_CU_RESULT(name)
#define DF_CUDA_ERROR(name) {name, #name},
#include "interpose/hostcuda/cuda_codes.def"
};

static const char *name_of(cudaError_t err)
{
	size_t i;

	for (i = 0; i < DF_ARRAY_LEN(names); i++)
		if (names[i].err == err)
			return names[i].name;
	return NULL;
}

DF_H_API const char *cudaGetErrorName(cudaError_t err)
{
	const char *name = name_of(err);

	return name ? name : "unrecognized error code";
}

DF_H_API const char *cudaGetErrorString(cudaError_t err)
{
	static __thread char buf[80];
	const char *name = name_of(err);
	size_t i, n = 0;

	for (i = 0; i < DF_ARRAY_LEN(texts); i++)
		if (texts[i].err == err)
			return texts[i].text;
	if (!name)
		return "unrecognized error code";
	for (i = strlen("cudaError"); name[i] && n < sizeof(buf) - 2; i++) {
		if (isupper((unsigned char)name[i]) && n && !isupper((unsigned char)name[i - 1]))
			buf[n++] = ' ';
		buf[n++] = (char)df_ascii_lower((unsigned char)name[i]);
	}
	buf[n] = '\0';
	return buf;
}

DF_H_API cudaError_t cudaGetLastError(void)
{
	cudaError_t err = df_htls.last_error;

	df_htls.last_error = cudaSuccess;
	return err;
}

DF_H_API cudaError_t cudaPeekAtLastError(void)
{
	return df_htls.last_error;
}

/* Refuses a function of the table api.def. */
int df_hrefuse(int *warned, const char *name)
{
	/* RELAXED: at worst two threads warn. */
	if (!__atomic_exchange_n(warned, 1, __ATOMIC_RELAXED))
		df_warn("host CUDA: %s is not served; it returns cudaErrorNotSupported", name);
	return (int)df_hret(cudaErrorNotSupported);
}
