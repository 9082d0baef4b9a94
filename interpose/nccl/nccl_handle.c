/*
 * Handles: allocation, tombstones, NCCL's checks of a communicator.
 *
 * Invariant: the memory of a handle is never unmapped, and is reused only after GRAVES other
 * handles were destroyed. Locks: that of the tombstones (leaf); a handle's own mutex guards its
 * lists only.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_group.h"
#include "interpose/nccl/nccl_handle.h"
#include "interpose/nccl/nccl_mem.h"
#include "interpose/real/real.h"
#include "interpose/nccl/nccl_status.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"

#define GRAVES 4096

static struct df_mutex graves_lock = DF_MUTEX_INIT(DF_RANK_LEAF, "graveyard");
static struct df_handle *oldest, *newest;
static unsigned nr_graves, nr_handles;

static int is_foreign(const void *comm)
{
	switch (df_front_now()) {
	case DF_FRONT_PLAIN:
	case DF_FRONT_TRACE:
		return 1;
	case DF_FRONT_UNABLE:
		return !df_is_ours(comm);
	case DF_FRONT_OWN:
		return comm && *(const uint64_t *)comm == DF_NCCL_COMM_MAGIC && !df_on_hostcuda();
	case DF_FRONT_UNDECIDED:
	case DF_FRONT_REFUSE:
		break;
	}
	return 0;
}

int df_foreign_slow(void **comm)
{
	void *real = NULL;

	/*
	 * ACQUIRE pairs with the RELEASE in hand_over(): without it, the real library's
	 * communicator could be used before its contents are visible.
	 */
	if (df_is_ours(*comm))
		real = __atomic_load_n(&((struct df_handle *)*comm)->real, __ATOMIC_ACQUIRE);
	if (real)
		*comm = real;
	else if (!is_foreign(*comm))
		return 0;
	df_group_real();
	return 1;
}

struct df_handle *df_handle_new(const struct df_config *config, int device)
{
	struct df_handle *h = NULL;
	unsigned n;

	df_mutex_lock(&graves_lock);
	if (nr_graves > GRAVES) {
		h = oldest;
		oldest = h->next;
		nr_graves--;
	}
	n = ++nr_handles;
	df_mutex_unlock(&graves_lock);
	if (!h && posix_memalign((void **)&h, 64, sizeof(*h)))
		return NULL;
	memset(h, 0, sizeof(*h));
	h->config = *config;
	h->device = device;
	h->rank = h->nranks = -1;
	h->tag = n;
	h->free_redop = -1;
	pthread_mutex_init(&h->lock, NULL);
	h->magic = DF_HANDLE_MAGIC;
	return h;
}

static void bury(struct df_handle *h)
{
	struct df_range *r;

	df_windows_drop(h);
	pthread_mutex_lock(&h->lock);
	while ((r = h->ranges)) {
		h->ranges = r->next;
		free(r);
	}
	free(h->redops);
	h->redops = NULL;
	h->nr_redops = 0;
	pthread_mutex_unlock(&h->lock);
	/*
	 * RELEASE pairs with the ACQUIRE of df_handle_flags(): without it a thread could see a live
	 * handle whose lists are freed.
	 */
	__atomic_fetch_or(&h->flags, DF_H_DEAD, __ATOMIC_RELEASE);
	h->comm = NULL;
	df_mutex_lock(&graves_lock);
	h->next = NULL;
	if (nr_graves)
		newest->next = h;
	else
		oldest = h;
	newest = h;
	nr_graves++;
	df_mutex_unlock(&graves_lock);
}

/* Waits until no call is inside. Returns 0, or -ETIMEDOUT. */
static int quiesce(struct df_handle *h)
{
	struct timespec nap = {0, 100000};
	int turns;

	for (turns = 0; turns < 100000; turns++) {
		/*
		 * This pairs with df_handle_enter() and with the RELEASE in df_handle_leave(),
		 * which say why.
		 */
		if (__atomic_load_n(&h->users, __ATOMIC_SEQ_CST) == 0)
			return 0;
		nanosleep(&nap, NULL);
	}
	return -ETIMEDOUT;
}

void df_handle_free(struct df_handle *h)
{
	/*
	 * This pairs with the same line in another thread (an abort during a destroy or a failing
	 * init): only the first finds the flag unset. Without a read-modify-write, both would free.
	 */
	if (__atomic_fetch_or(&h->flags, DF_H_CLAIMED, __ATOMIC_SEQ_CST) & DF_H_CLAIMED)
		return;
	if (quiesce(h)) {
		df_warn("communicator %p: a call is still inside it after ten seconds; it is not "
			"freed",
			(void *)h);
		return;
	}
	if (h->comm)
		df_comm_destroy(h->comm);
	bury(h);
}

ncclResult_t df_ptr_check(const void *ptr, const char *op, const char *arg)
{
	if (df_likely(ptr != NULL))
		return ncclSuccess;
	DF_NCCL_WARN("%s : %s argument is NULL", op, arg);
	return ncclInvalidArgument;
}

ncclResult_t df_comm_check(const void *comm, const char *op, const char *arg)
{
	if (!comm)
		return df_ptr_check(comm, op, arg);
	if (df_is_ours(comm) && !(df_handle_flags(comm) & (DF_H_CLAIMED | DF_H_ABORTED)))
		return ncclSuccess;
	if (df_front_now() == DF_FRONT_REFUSE && !df_is_ours(comm))
		return df_front_refused(op);
	DF_NCCL_WARN("Error: corrupted comm object detected");
	return ncclInvalidArgument;
}

ncclResult_t df_handle_async(struct df_handle *h)
{
	/*
	 * ACQUIRE pairs with the RELEASE in df_handle_set(): a caller that polls until ncclSuccess
	 * must then see the new communicator that the background job wrote.
	 */
	ncclResult_t res = (ncclResult_t)__atomic_load_n(&h->async, __ATOMIC_ACQUIRE);
	int err;

	if (res != ncclSuccess)
		return res;
	if (df_handle_enter(h) & (DF_H_CLAIMED | DF_H_ABORTED | DF_H_REVOKED) || !h->comm)
		err = 0;
	else
		err = df_comm_error(h->comm);
	df_handle_leave(h);
	return df_status(err);
}

void df_handle_set(struct df_handle *h, uint32_t set, uint32_t clear, ncclResult_t async)
{
	uint32_t old, now;

	if (async != ncclSuccess && async != ncclInProgress)
		set |= DF_H_FAILED;
	old = __atomic_load_n(&h->flags, __ATOMIC_RELAXED);
	do {
		now = (old & ~clear) | set;
		/*
		 * Its release pairs with the ACQUIRE of df_handle_flags(): without it, READY could
		 * be seen before the handle's fields. Sequentially consistent for
		 * df_handle_enter().
		 */
	} while (!__atomic_compare_exchange_n(&h->flags, &old, now, 0, __ATOMIC_SEQ_CST,
					      __ATOMIC_RELAXED));
	/* RELEASE pairs with the ACQUIRE in df_handle_async(), which says why. */
	__atomic_store_n(&h->async, (int)async, __ATOMIC_RELEASE);
}

ncclResult_t df_handle_ready(struct df_handle *h)
{
	ncclResult_t res = df_handle_async(h);

	if (res == ncclInProgress) {
		DF_NCCL_WARN("Attempt to use communicator before the previous operation returned "
			     "ncclSuccess");
		return ncclInvalidArgument;
	}
	return res;
}

ncclResult_t df_handle_unusable(struct df_handle *h, const char *op)
{
	ncclResult_t res = df_comm_check(h, op, "comm");
	uint32_t flags = df_handle_flags(h);

	if (res != ncclSuccess)
		return res;
	if (flags & DF_H_REVOKED) {
		DF_NCCL_WARN("%s: communicator was revoked", op);
		return ncclInvalidUsage;
	}
	res = df_handle_ready(h);
	if (res != ncclSuccess)
		return res;
	if (flags & (DF_H_FINALIZED | DF_H_DESTROYED)) {
		DF_NCCL_WARN("%s: communicator was finalized", op);
		return ncclInvalidUsage;
	}
	/* The handle may have become usable since the caller read the flags. */
	return df_handle_flags(h) == DF_H_READY ? ncclSuccess : ncclInternalError;
}

ncclResult_t df_handle_result(struct df_handle *h, int err, const char *op)
{
	ncclResult_t res;

	if (df_likely(!err))
		return ncclSuccess;
	if (df_handle_flags(h) & DF_H_REVOKED) {
		DF_NCCL_WARN("%s: communicator was revoked", op);
		return ncclInvalidUsage;
	}
	res = df_status_warn(err, op);
	if (!h->config.blocking)
		df_handle_set(h, 0, 0, res);
	return res;
}
