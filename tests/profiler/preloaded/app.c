/* One rank of an NCCL program: app RANK WORLD [hang]. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "interpose/nccl/nccl_types.h"

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
			   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclCommDestroy(ncclComm_t comm);

int main(int argc, char **argv)
{
	static float data[1000];
	ncclUniqueId id = {"of all ranks"};
	ncclComm_t comm;

	if (argc < 3 || ncclCommInitRank(&comm, atoi(argv[2]), id, atoi(argv[1])))
		return 1;
	for (size_t i = 1; i <= 5; i++)
		if (ncclAllReduce(data, data, i, ncclFloat32, ncclSum, comm, NULL))
			return 1;
	if (argc > 3) {
		ncclAllReduce(data, data, 666, ncclFloat32, ncclSum, comm, NULL);
		puts("hangs");
		fflush(stdout);
		while (1)
			pause();
	}
	return ncclCommDestroy(comm) ? 1 : 0;
}
