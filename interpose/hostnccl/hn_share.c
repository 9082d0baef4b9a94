/*
 * Makes the memory that all ranks of one communicator share, and waits for other ranks. The memory
 * is an open file without a name. Other processes find it among the open files of the process that
 * made the id. It is freed when the last process that has it open closes it or ends.
 *
 * Threads: any.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "interpose/hostnccl/hn.h"
#include "runtime/base/env.h"
#include "runtime/base/log.h"

void df_hn_nap(unsigned *turns)
{
	struct timespec t = {0, 20000L << (*turns < 6 ? *turns : 6)};

	++*turns;
	nanosleep(&t, NULL);
}

ncclResult_t df_hn_id_make(struct df_hn_id *id)
{
	int fd = memfd_create("nccl", MFD_CLOEXEC);
	uint64_t nonce = 0;

	while (!nonce && getrandom(&nonce, sizeof(nonce), 0) == sizeof(nonce))
		;
	if (fd < 0 || !nonce || pwrite(fd, &nonce, sizeof(nonce), 0) != sizeof(nonce)) {
		DF_NCCL_WARN("no memory for a communicator: %s", strerror(errno));
		if (fd >= 0)
			close(fd);
		return ncclSystemError;
	}
	id->nonce = nonce;
	id->pid = getpid();
	id->fd = fd;
	return ncclSuccess;
}

static size_t stages_at(int nranks)
{
	size_t n = sizeof(struct df_hn_share) + (size_t)nranks * sizeof(struct df_hn_seat);

	return (n + 4095) & ~(size_t)4095;
}

static size_t pairs_at(int nranks)
{
	return stages_at(nranks) + (size_t)nranks * 2 * DF_HN_CHUNK;
}

char *df_hn_stage(const struct df_hn_comm *c, int rank, uint64_t chunk)
{
	return (char *)c->share + stages_at(c->nranks) +
	       ((size_t)rank * 2 + chunk % 2) * DF_HN_CHUNK;
}

struct df_hn_pair *df_hn_pair(const struct df_hn_comm *c, int from, int to)
{
	struct df_hn_pair *pairs =
		(struct df_hn_pair *)(void *)((char *)c->share + pairs_at(c->nranks));

	return &pairs[(size_t)from * (size_t)c->nranks + (size_t)to];
}

/* Maps the share of an id, with this size. Returns NULL on failure. */
static struct df_hn_share *attach(const struct df_hn_id *id, size_t bytes)
{
	struct df_hn_share *s = MAP_FAILED;
	uint64_t nonce = 0;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)id->pid, (int)id->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	/*
	 * The process may have ended, and another process with the same pid may have another file
	 * with that number.
	 */
	if (pread(fd, &nonce, sizeof(nonce), 0) == sizeof(nonce) && nonce == id->nonce &&
	    !ftruncate(fd, (off_t)bytes))
		s = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	close(fd);
	return s == MAP_FAILED ? NULL : s;
}

/* Returns the number of the network namespace, which stands for a machine; 0 if unknown. */
static uint64_t this_machine(void)
{
	struct stat st;

	return stat("/proc/self/ns/net", &st) ? 0 : (uint64_t)st.st_ino;
}

ncclResult_t df_hn_open(const struct df_hn_id *id, int nranks, int rank, struct df_hn_comm **out)
{
	struct df_hn_comm *c = calloc(1, sizeof(*c));

	if (!c)
		return ncclSystemError;
	c->counts = calloc((size_t)nranks * 4, sizeof(*c->counts));
	c->share_bytes =
		pairs_at(nranks) + (size_t)nranks * (size_t)nranks * sizeof(struct df_hn_pair);
	c->share = c->counts ? attach(id, c->share_bytes) : NULL;
	if (!c->share) {
		DF_NCCL_WARN("the process that made the id (%d) does not answer", (int)id->pid);
		free(c->counts);
		free(c);
		return ncclSystemError;
	}
	pthread_mutex_init(&c->lock, NULL);
	c->magic = DF_NCCL_COMM_MAGIC;
	c->nranks = nranks;
	c->rank = rank;
	c->device = df_hn_cuda()->get_device();
	c->share->seats[rank].device = c->device;
	c->share->seats[rank].machine = this_machine();
	/*
	 * RELEASE pairs with the ACQUIRE in df_hn_wait(): without it a rank could see the count but
	 * not this rank's seat.
	 */
	__atomic_fetch_add(&c->share->arrived, 1, __ATOMIC_RELEASE);
	*out = c;
	return ncclSuccess;
}

ncclResult_t df_hn_error(const struct df_hn_comm *c)
{
	/* Both loads are RELAXED: they only show that the communicator is unusable. */
	ncclResult_t error = (ncclResult_t)DF_HN_GET(&c->error);

	return error ? error : DF_HN_GET(&c->share->stopped) ? ncclRemoteError : ncclSuccess;
}

ncclResult_t df_hn_wait(struct df_hn_comm *c, const uint32_t *word, uint32_t least)
{
	ncclResult_t error = ncclSuccess;
	unsigned turns = 0;

	__atomic_fetch_add(&df_hn_seat(c)->setting_up, 1, __ATOMIC_RELAXED);
	/*
	 * ACQUIRE pairs with the RELEASE of the increment: without it the data that the other rank
	 * has published might not be visible.
	 */
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < least && !(error = df_hn_error(c)))
		df_hn_nap(&turns);
	if (error)
		df_hn_tell_stopped();
	__atomic_fetch_sub(&df_hn_seat(c)->setting_up, 1, __ATOMIC_RELAXED);
	return error;
}

/*
 * Refuses two ranks on one device, as NCCL does: they would wait for one another in the device's
 * own queues.
 */
static ncclResult_t one_rank_a_device(const struct df_hn_comm *c)
{
	const struct df_hn_seat *s = c->share->seats;
	int i, k;

	for (i = 0; i < c->nranks && !df_env()->nccl_multi_rank_gpu; i++)
		for (k = 0; k < i; k++)
			if (s[i].device == s[k].device && s[i].machine == s[k].machine) {
				DF_NCCL_WARN("Duplicate GPU detected : rank %d and rank %d both on "
					     "CUDA device %x",
					     k, i, (unsigned)s[i].device);
				return ncclInvalidUsage;
			}
	return ncclSuccess;
}

void df_hn_connect(struct df_hn_comm *c)
{
	if (!__atomic_exchange_n(&c->used, 1, __ATOMIC_RELAXED))
		/* RELEASE pairs with the ACQUIRE in df_hn_wait(). */
		__atomic_fetch_add(&c->share->connected, 1, __ATOMIC_RELEASE);
}

/*
 * Returns the variable's value when the first communicator was made, as NCCL does: that value holds
 * for all.
 */
static int connects_when_made(void)
{
	static int is_known, connects;
	const char *set;

	/* ACQUIRE pairs with the RELEASE below. */
	if (!__atomic_load_n(&is_known, __ATOMIC_ACQUIRE)) {
		set = getenv("NCCL_RUNTIME_CONNECT");
		__atomic_store_n(&connects, set && !strcmp(set, "0"), __ATOMIC_RELAXED);
		/*
		 * RELEASE pairs with the ACQUIRE above: without it a thread could miss the
		 * answer.
		 */
		__atomic_store_n(&is_known, 1, __ATOMIC_RELEASE);
	}
	return __atomic_load_n(&connects, __ATOMIC_RELAXED);
}

ncclResult_t df_hn_meet(struct df_hn_comm *c, const struct df_hn_id *id)
{
	int connects = connects_when_made();
	ncclResult_t res = df_hn_wait(c, &c->share->arrived, (uint32_t)c->nranks);

	if (res)
		return res;
	/* All ranks have the file open, so the process that made it closes it. */
	if (id->pid == getpid() && !__atomic_exchange_n(&c->share->closed, 1, __ATOMIC_RELAXED))
		close(id->fd);
	res = one_rank_a_device(c);
	if (!res && connects)
		df_hn_connect(c);
	return res;
}

void df_hn_close(struct df_hn_comm *c)
{
	struct df_hn_share *s = c->share;

	if (!s)
		return;
	c->share = NULL;
	munmap(s, c->share_bytes);
	free(c->counts);
	c->counts = NULL;
}
