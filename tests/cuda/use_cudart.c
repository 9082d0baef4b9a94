/*
 * A program of the CUDA runtime, linked with the shared or the static libcudart, to see which
 * functions of the driver it asks for and what it gets. Prints what the runtime says; always exits
 * with 0.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>

int main(void)
{
	int n = -1;
	cudaError_t e = cudaGetDeviceCount(&n);

	printf("cudaGetDeviceCount: %s, %d\n", cudaGetErrorName(e), n);
	e = cudaFree(NULL);
	printf("cudaFree: %s\n", cudaGetErrorName(e));
	return 0;
}
