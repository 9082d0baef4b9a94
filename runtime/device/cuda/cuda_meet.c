/*
 * Finds out which ranks can access each other's GPU memory. When a communicator is made, its ranks
 * exchange handles of the first chunk of their GPU memory, each tries to access the chunks of its
 * node, and all exchange the results. Two ranks use the transport "p2p" only if each can access the
 * other, so both choose alike. And if a driver refuses (a divided GPU, no peer access, CUDA IPC
 * disabled), that is known before the first connector is made. Meanwhile, host memory that the
 * ranks share is pinned. Derived communicators reuse the results.
 *
 * Runs on the thread that makes the communicator, with no lock held. Driver calls that may take
 * long are made on other threads, and count as refused after a limit. One lock for the table.
 */
#if __has_include(<cuda.h>)
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/device/cuda/cuda_far.h"
#include "runtime/device/cuda/cuda_int.h"
#include "runtime/device/cuda/cuda_meet.h"
#include "runtime/transport/arena/arena.h"
#include "runtime/transport/transport_int.h"

#define CHUNK_NS (500 * DF_NS_PER_MS)
#define REACH_NS (2 * DF_NS_PER_S)

/*
 * A rank's message to the others. `bytes` is 0 if the rank has no memory that another process could
 * open.
 */
struct card {
	uint64_t bytes;
	uint8_t handle[64];
	uint32_t here; /* whether the rank has GPU memory for connectors */
	uint32_t pad;
};

struct pair_key {
	uint64_t proc;
	int32_t device, peer_device;
};

struct pair {
	struct pair_key key;
	UT_hash_handle hh;
};

static pthread_rwlock_t pairs_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct pair *pairs; /* pairs that can access each other */

int df_cuda_agreed(const struct df_member *self, const struct df_member *peer)
{
	struct pair_key key = {peer->proc, self->device, peer->device};
	struct pair *p;

	pthread_rwlock_rdlock(&pairs_lock);
	HASH_FIND(hh, pairs, &key, sizeof(key), p);
	pthread_rwlock_unlock(&pairs_lock);
	return p != NULL;
}

static void agree(const struct df_member *self, const struct df_member *peer)
{
	struct pair *p = calloc(1, sizeof(*p)), *other;

	if (!p)
		return; /* our connectors are in host memory then, and the peer finds them there */
	p->key = (struct pair_key){peer->proc, self->device, peer->device};
	pthread_rwlock_wrlock(&pairs_lock);
	HASH_FIND(hh, pairs, &p->key, sizeof(p->key), other);
	if (!other)
		HASH_ADD(hh, pairs, key, sizeof(p->key), p);
	pthread_rwlock_unlock(&pairs_lock);
	if (other)
		free(p);
}

/* ---- two GPUs of this process ---------------------------------------------------------------- */

enum access { ACCESS_UNKNOWN, ACCESS_ASKED, ACCESS_YES, ACCESS_NO };

static uint8_t accesses[DF_CUDA_DEVICES_MAX][DF_CUDA_DEVICES_MAX];

/* Enables the access from device a to the memory of b. */
static void ask_access(void *arg)
{
	uint32_t which = (uint32_t)(uintptr_t)arg;
	int a = (int)(which / DF_CUDA_DEVICES_MAX), b = (int)(which % DF_CUDA_DEVICES_MAX);
	CUcontext to = df_cuda_ctx(b);
	int can = 0, in;
	CUresult r = CUDA_ERROR_INVALID_CONTEXT;

	if (df_drv.can_access_peer(&can, df_cudevs[a].device, df_cudevs[b].device) != CUDA_SUCCESS)
		can = 0;
	in = can && to ? df_cuda_enter(df_cuda_ctx(a)) : -ENODEV;
	if (in >= 0) {
		df_cuda_quiet(-1, 1);
		r = df_drv.enable_peer(to, 0);
		df_cuda_quiet(-1, 0);
		df_cuda_leave(in);
	}
	/* Access may be enabled already, by the application. */
	can = r == CUDA_SUCCESS || r == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	/*
	 * RELEASE pairs with the ACQUIRE in access_state(): without it a thread could use the
	 * access before it is enabled.
	 */
	__atomic_store_n(&accesses[a][b], can ? ACCESS_YES : ACCESS_NO, __ATOMIC_RELEASE);
}

static enum access access_state(int a, int b)
{
	uint8_t none = ACCESS_UNKNOWN;

	if (a == b)
		return ACCESS_YES;
	if (__atomic_compare_exchange_n(&accesses[a][b], &none, ACCESS_ASKED, 0, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED) &&
	    df_cuda_aside(ask_access, (void *)(uintptr_t)(a * DF_CUDA_DEVICES_MAX + b)))
		__atomic_store_n(&accesses[a][b], ACCESS_UNKNOWN, __ATOMIC_RELAXED);
	/* ACQUIRE pairs with the RELEASE in ask_access(), which says why. */
	return __atomic_load_n(&accesses[a][b], __ATOMIC_ACQUIRE);
}

/* ---- meeting --------------------------------------------------------------------------------- */

static int wanted(void)
{
	return df_env()->p2p && !df_env()->nccl_p2p_disable;
}

/* Whether this rank can access the memory of rank m; returns -EAGAIN while that is not known. */
static int reach(const struct df_member *self, const struct df_member *m, const struct card *card)
{
	uint64_t addr;
	int ret;

	if (m->host != self->host || !card->here)
		return 0;
	if (m->proc == self->proc) {
		enum access to = access_state(self->device, m->device);
		enum access from = access_state(m->device, self->device);

		if (to == ACCESS_NO || from == ACCESS_NO)
			return 0;
		return to == ACCESS_YES && from == ACCESS_YES ? 1 : -EAGAIN;
	}
	if (!card->bytes)
		return 0;
	ret = df_cuda_far_open(self->device, m->proc, card->handle, card->bytes, &addr);
	return ret == -EAGAIN ? ret : ret == 0;
}

/* Sets a bit for each rank whose memory this rank can access. */
static void reach_all(const struct df_member *members, int nranks, int rank,
		      const struct card *cards, uint8_t *bits)
{
	uint64_t from = df_now_ns();
	int i, pending;

	do {
		pending = 0;
		for (i = 0; i < nranks && cards[rank].here; i++) {
			int ret = reach(&members[rank], &members[i], &cards[i]);

			if (ret > 0)
				bits[i / 8] |= (uint8_t)(1u << (i % 8));
			pending += ret == -EAGAIN;
		}
		if (pending)
			df_sleep_ns(100000);
	} while (pending && df_now_ns() - from < REACH_NS);
}

/* Remembers the pairs of which each rank can access the other. */
static void conclude(const struct df_member *members, int nranks, int rank, const uint8_t *all,
		     size_t row)
{
	static int told;
	int i, near = 0, far = 0;

	for (i = 0; i < nranks; i++) {
		if (members[i].host != members[rank].host)
			continue;
		near++;
		if (!(all[(size_t)rank * row + (size_t)i / 8] & 1u << (i % 8)) ||
		    !(all[(size_t)i * row + (size_t)rank / 8] & 1u << (rank % 8)))
			continue;
		agree(&members[rank], &members[i]);
		far++;
	}
	if (far < near && wanted() && !__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
		df_log(DF_LOG_INFO,
		       "rank %d reaches the GPU memory of %d of the %d ranks of this node; "
		       "connectors with the others lie in host memory",
		       rank, far, near);
}

/* ---- host memory that GPUs share ------------------------------------------------------------- */

/*
 * Pinning memory may wait for all streams, and these may soon wait for the communicator's first
 * collective. So the segments of the arena are pinned before that.
 */
static void settle_own(void)
{
	uint64_t from = df_now_ns();

	while (df_arena_settled() == -EAGAIN && df_now_ns() - from < REACH_NS)
		df_sleep_ns(100000);
}

static void settle_peers(const struct df_member *members, int nranks, int rank)
{
	const struct df_tl_ops *tl = &df_tl_shm_ops;
	struct df_peer **peers = calloc((size_t)nranks, sizeof(*peers));
	uint64_t from = df_now_ns();
	int i, begin, pending;

	/* Without memory the segments are pinned when they are needed. */
	if (!peers)
		return;
	for (i = 0; i < nranks; i++)
		if (tl->reachable(&members[rank], &members[i]) &&
		    tl->peer_get(&members[rank], &members[i], &peers[i]))
			peers[i] = NULL;
	for (begin = 1, pending = 1; pending; begin = 0) {
		for (pending = 0, i = 0; i < nranks; i++)
			pending += peers[i] && df_shm_settled(peers[i], begin) == -EAGAIN;
		if (!pending || df_now_ns() - from > REACH_NS)
			break;
		df_sleep_ns(100000);
	}
	for (i = 0; i < nranks; i++)
		if (peers[i])
			tl->peer_put(peers[i]);
	free(peers);
}

int df_cuda_meet(struct df_ctl_comm *ctl, int nranks, int rank, const uint32_t *stop)
{
	const struct df_member *members = df_ctl_members(ctl);
	size_t row = ((size_t)nranks + 7) / 8;
	int i, device = members[rank].device, ret = -ENOMEM;
	struct card mine = {0}, *cards;
	uint8_t *bits, *all;

	/* A rank without this backend does not take part in the exchange, so no rank does. */
	for (i = 0; i < nranks; i++)
		if (!members[i].gpu)
			return 0;
	df_cuda_mps_fits(members, nranks, rank);
	settle_own();
	cards = calloc((size_t)nranks, sizeof(*cards));
	bits = calloc(1, row);
	all = calloc((size_t)nranks, row);
	if (!cards || !bits || !all)
		goto out;
	if (wanted() && df_cuda_far_ready(device, CHUNK_NS)) {
		mine.here = 1;
		if (!df_cuda_far_handle(device, mine.handle, &mine.bytes))
			mine.bytes = 0;
	}
	ret = df_ctl_allgather(ctl, &mine, sizeof(mine), cards, stop);
	if (ret)
		goto out;
	settle_peers(members, nranks, rank);
	reach_all(members, nranks, rank, cards, bits);
	ret = df_ctl_allgather(ctl, bits, row, all, stop);
	if (!ret)
		conclude(members, nranks, rank, all, row);
out:
	free(cards);
	free(bits);
	free(all);
	return ret;
}
#endif
