/*
 * A program of the CUDA runtime, linked with the shared or the static libcudart. It shows which
 * functions of the driver the runtime asks for. Prints the runtime's results; always exits with 0.
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
