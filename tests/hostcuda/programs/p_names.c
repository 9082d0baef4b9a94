/* Prints what this runtime calls every error code: compared between runtimes by t_table.sh. */
#include <cuda_runtime_api.h>
#include <stdio.h>

int main(void)
{
	int i;

	for (i = 0; i < 1100; i++)
		printf("%d %s\n", i, cudaGetErrorName((cudaError_t)i));
	return 0;
}
