/*
 * The daemon's GPU code in this library: the fatbin that nvcc made. A build without nvcc has none,
 * and the GPU backend reports that.
 */
#include <stddef.h>
#include "runtime/device/cuda/cuda_daemon.h"
#include "runtime/device/cuda/cuda_int.h"

#ifdef DF_FATBIN
__asm__(".section .rodata\n"
	".balign 64\n"
	"df_fatbin:\n"
	".incbin \"" DF_FATBIN "\"\n"
	".balign 8\n"
	".previous\n");

extern const unsigned char df_fatbin[] __attribute__((visibility("hidden")));

const void *df_cuda_fatbin(void)
{
	return df_fatbin;
}
#else
const void *df_cuda_fatbin(void)
{
	return NULL;
}
#endif
