/* Prints the runtime's name for every error code. t_table.sh compares runtimes. */
#include <cuda_runtime_api.h>
#include <stdio.h>

int main(void)
{
	int i;

	for (i = 0; i < 1100; i++)
		printf("%d %s\n", i, cudaGetErrorName((cudaError_t)i));
	return 0;
}
