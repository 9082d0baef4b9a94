/*
 * The functions of the fake NCCL that do more than succeed. With NCCL_COMM_ID=127.0.0.1:PORT the
 * ranks of a communicator meet there as NCCL's do: rank 0 listens, the others try until they reach
 * it. FAKE_NCCL_VERSION: the version that it reports.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "interpose/nccl/nccl_types.h"

void fake_nccl_called(const char *name);

struct fake_comm {
	uint64_t magic;
	int nranks, rank, id, nr_ops;
};

static int nr_ids;

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);

ncclResult_t pncclGetVersion(int *version)
{
	fake_nccl_called("ncclGetVersion");
	*version = getenv("FAKE_NCCL_VERSION") ? atoi(getenv("FAKE_NCCL_VERSION")) : 22809;
	return ncclSuccess;
}

ncclResult_t pncclGetUniqueId(ncclUniqueId *id)
{
	fake_nccl_called("ncclGetUniqueId");
	memset(id, 0x11, sizeof(*id));
	nr_ids++;
	memcpy(id->internal + 8, &nr_ids, sizeof(nr_ids));
	return ncclSuccess;
}

#define HANDLE_MAGIC 0x0280028002800280ull

static int all(ssize_t (*move)(int, void *, size_t), int fd, void *what, size_t bytes)
{
	return move(fd, what, bytes) == (ssize_t)bytes ? 0 : -1;
}

static ssize_t put(int fd, void *what, size_t bytes)
{
	return send(fd, what, bytes, MSG_NOSIGNAL);
}

static ssize_t take(int fd, void *what, size_t bytes)
{
	return recv(fd, what, bytes, MSG_WAITALL);
}

/*
 * NCCL's root is a thread of its own. It may still listen when all ranks have received the
 * addresses.
 */
static void *close_later(void *listener)
{
	usleep(200000);
	close((int)(intptr_t)listener);
	return NULL;
}

static int serve(const struct sockaddr_in *at, int nranks)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, came, fds[16];
	pthread_t root;
	uint64_t magic;

	if (nranks > 16)
		return -1;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(listener, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	if (bind(listener, (const struct sockaddr *)at, sizeof(*at)) || listen(listener, 16))
		return -1;
	for (came = 1; came < nranks;) {
		fds[came] = accept(listener, NULL, NULL);
		if (fds[came] < 0)
			return -1;
		/* Connections without NCCL's magic number get no answer. */
		if (!all(take, fds[came], &magic, sizeof(magic)) && magic == HANDLE_MAGIC)
			came++;
		else
			close(fds[came]);
	}
	while (--came > 0) {
		if (all(put, fds[came], &magic, sizeof(magic)))
			return -1;
		close(fds[came]);
	}
	if (pthread_create(&root, NULL, close_later, (void *)(intptr_t)listener))
		return -1;
	return pthread_detach(root);
}

static int come(const struct sockaddr_in *at)
{
	uint64_t magic = HANDLE_MAGIC;
	int fd, tries;

	for (tries = 0; tries < 3000; tries++) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		if (!connect(fd, (const struct sockaddr *)at, sizeof(*at)))
			return all(put, fd, &magic, sizeof(magic)) ||
					       all(take, fd, &magic, sizeof(magic)) ||
					       magic != HANDLE_MAGIC || close(fd)
				       ? -1
				       : 0;
		close(fd);
		if (errno != ECONNREFUSED)
			return -1;
		usleep(10000);
	}
	return -1;
}

static int meet(int nranks, int rank)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const char *address = getenv("NCCL_COMM_ID"), *port;

	if (!address || nranks < 2)
		return 0;
	port = strrchr(address, ':');
	at.sin_port = htons((uint16_t)(port ? atoi(port + 1) : 0));
	return rank ? come(&at) : serve(&at, nranks);
}

/*
 * FAKE_NCCL_SLOW=1: each AllReduce takes 60 ms, and 1 us more for each 2 elements, on the stream.
 * That is longer than the daemon takes on CPU threads, even on a loaded machine.
 * FAKE_NCCL_FAST=FILE: not in the process that creates FILE.
 */
static void take_time(void *arg)
{
	usleep((useconds_t)(uintptr_t)arg);
}

/*
 * FAKE_NCCL_MEET=FILE: an AllReduce blocks its stream until all ranks have reached theirs, as
 * NCCL's kernels do. FILE has a word for each rank and communicator, which counts the AllReduces
 * that the rank has started.
 */
#define MEET_COMMS 64
#define MEET_RANKS 16

static void meet_on_stream(struct fake_comm *c, cudaStream_t stream, const char *file)
{
	static uint64_t(*words)[MEET_RANKS];
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	int (*write)(void *, uint64_t, uint64_t, unsigned int);
	int (*wait)(void *, uint64_t, uint64_t, unsigned int);
	size_t bytes = MEET_COMMS * sizeof(*words);
	int fd;

	if (!words) {
		fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (ftruncate(fd, (off_t)bytes))
			abort();
		words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	}
	*(void **)&write = dlsym(cuda, "cuStreamWriteValue64_v2");
	*(void **)&wait = dlsym(cuda, "cuStreamWaitValue64_v2");
	c->nr_ops++;
	write(stream, (uint64_t)&words[c->id % MEET_COMMS][c->rank], (uint64_t)c->nr_ops, 0);
	for (int i = 0; i < c->nranks; i++)
		wait(stream, (uint64_t)&words[c->id % MEET_COMMS][i], (uint64_t)c->nr_ops, 0);
}

static int is_fast(void)
{
	static int fast = -1;
	const char *file = getenv("FAKE_NCCL_FAST");

	if (fast < 0)
		fast = file && open(file, O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0;
	return fast;
}

ncclResult_t pncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
			    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	int (*host_function)(void *, void (*)(void *), void *);
	const char *file = getenv("FAKE_NCCL_MEET");
	int slow = getenv("FAKE_NCCL_SLOW") && *getenv("FAKE_NCCL_SLOW") && !is_fast();

	(void)send, (void)recv, (void)type, (void)op;
	fake_nccl_called("ncclAllReduce");
	if (file)
		meet_on_stream((struct fake_comm *)comm, stream, file);
	if (!slow)
		return ncclSuccess;
	*(void **)&host_function = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchHostFunc");
	if (host_function)
		host_function(stream, take_time, (void *)(60000 + count / 2));
	return ncclSuccess;
}

static ncclResult_t make(ncclComm_t *comm, int nranks, int rank, const ncclUniqueId *id)
{
	struct fake_comm *c = calloc(1, 4096);

	if (meet(nranks, rank)) {
		free(c);
		return ncclSystemError;
	}
	c->magic = DF_NCCL_COMM_MAGIC;
	c->nranks = nranks;
	c->rank = rank;
	memcpy(&c->id, id->internal + 8, sizeof(c->id));
	*comm = (ncclComm_t)c;
	return ncclSuccess;
}

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
	fake_nccl_called("ncclCommInitRank");
	return make(comm, nranks, rank, &id);
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
				     ncclConfig_t *config)
{
	(void)config;
	fake_nccl_called("ncclCommInitRankConfig");
	return make(comm, nranks, rank, &id);
}

/* Like the real one, it calls another NCCL function by its exported name. */
ncclResult_t pncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist)
{
	ncclUniqueId id;
	int i;

	(void)devlist;
	fake_nccl_called("ncclCommInitAll");
	ncclGetUniqueId(&id);
	for (i = 0; i < ndev; i++)
		pncclCommInitRank(&comms[i], ndev, id, i);
	return ncclSuccess;
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
	*count = ((struct fake_comm *)comm)->nranks;
	return ncclSuccess;
}

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
	*rank = ((struct fake_comm *)comm)->rank;
	return ncclSuccess;
}

const char *pncclGetErrorString(ncclResult_t result)
{
	(void)result;
	return "fake";
}
