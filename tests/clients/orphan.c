/*
 * Two processes with a rank each. Rank 1 waits for a byte from rank 0 through a pipe; rank 0 waits
 * for an AllReduce of rank 1. When rank 0 has ended, rank 1 reads the end of the file and exits
 * with 1, as Python programs do that lose their store.
 *
 * orphan FIFO: RANK is the number of the process. The id is passed through the pipe, too.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#define MUST(call)                                                                                 \
	do {                                                                                       \
		int err = (int)(call);                                                             \
		if (err) {                                                                         \
			fprintf(stderr, "%s: %d\n", #call, err);                                   \
			exit(2);                                                                   \
		}                                                                                  \
	} while (0)

static float *mem;
static cudaStream_t stream;
static ncclComm_t comm;

static void reduce(void)
{
	MUST(ncclAllReduce(mem, mem, 1, ncclFloat, ncclSum, comm, stream));
	MUST(cudaStreamSynchronize(stream));
}

int main(int argc, char **argv)
{
	const char *text = getenv("RANK");
	ncclUniqueId id;
	int rank, fd;
	char byte;

	if (argc != 2 || !text) {
		fprintf(stderr, "usage: RANK=0|1 orphan FIFO\n");
		return 1;
	}
	rank = atoi(text);
	fd = open(argv[1], rank ? O_RDONLY : O_WRONLY);
	MUST(fd < 0);
	if (rank) {
		MUST(read(fd, &id, sizeof(id)) != sizeof(id));
	} else {
		MUST(ncclGetUniqueId(&id));
		MUST(write(fd, &id, sizeof(id)) != sizeof(id));
	}
	MUST(cudaSetDevice(rank));
	MUST(cudaMalloc((void **)&mem, sizeof(*mem)));
	MUST(cudaStreamCreate(&stream));
	MUST(ncclCommInitRank(&comm, 2, id, rank));
	reduce();
	if (rank && read(fd, &byte, 1) != 1)
		return 1;
	reduce();
	MUST(ncclCommDestroy(comm));
	return 0;
}
