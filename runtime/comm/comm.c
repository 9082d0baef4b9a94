/*
 * The life of a communicator: rendezvous, derivation, end. The state is written under the device's
 * lock and read anywhere. All ends (by the user, a time-out, a peer's death) take one path,
 * df_comm_end():
 *
 *   set state and stop  ->  df_executor->end(): nothing executes its operations any more, and their
 *   ends are reached, so that streams and threads continue
 *
 * The second step may wait for a driver or for NCCL, so it is taken with no lock held.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/abi.h"
#include "runtime/base/clean_text.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/exit_status.h"
#include "runtime/base/futex.h"
#include "runtime/base/hash.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/flights.h"
#include "runtime/comm/joining.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/devs.h"
#include "runtime/dfshim.h"
#include "runtime/executor.h"
#include "runtime/program/build/cost.h"
#include "trace/record/writer.h"

static void (*on_join)(void);

void df_comm_on_join(void (*fn)(void))
{
	on_join = fn;
}

int df_comm_create(int device, const struct df_comm_config *config, struct df_comm **out)
{
	struct df_comm *comm;

	if (device < 0 || device >= df_rt.nr_devs)
		return -EINVAL;
	comm = calloc(1, sizeof(*comm));
	if (!comm)
		return -ENOMEM;
	comm->dev = &df_rt.devs[device];
	if (config)
		comm->config = *config;
	comm->refs = 1;
	comm->state = DF_COMM_NEW;
	df_list_init(&comm->node);
	df_mutex_lock(&df_rt.lock);
	df_list_add_tail(&df_rt.comms, &comm->node);
	df_mutex_unlock(&df_rt.lock);
	*out = comm;
	return 0;
}

static void set_state(struct df_comm *comm, enum df_comm_state state)
{
	/* If it was ended meanwhile, it stays ended. */
	df_mutex_lock(&comm->dev->lock);
	if (comm->state != DF_COMM_ABORTED)
		__atomic_store_n(&comm->state, state, __ATOMIC_RELAXED);
	df_mutex_unlock(&comm->dev->lock);
}

/*
 * No communicator has the process as a member yet, so its trace is found by host and pid. The trace
 * shows whether it exited normally.
 */
void df_comm_lost(const struct df_member *who)
{
	df_trace(DF_REC_PEER_DEAD, -1, 0, -1, (uint64_t)who->rank, who->host, who->pid, 0, 0);
}

/*
 * Reports a member that died while the communicator was made: df_death() skips communicators
 * that are not ready.
 */
static void tell_dead(const struct df_comm *comm)
{
	int i;

	for (i = 0; comm->members && i < comm->nranks; i++) {
		const struct df_member *m = &comm->members[i];

		if (!df_ctl_is_dead(m->proc))
			continue;
		df_comm_lost(m);
		df_warn("rank %d (%s, pid %u) has died while its communicator was made, which ends "
			"with ncclRemoteError",
			i, m->hostname, m->pid);
		return;
	}
}

static int fail(struct df_comm *comm, int ret)
{
	if (ret == -ECONNRESET)
		tell_dead(comm);
	df_mutex_lock(&comm->dev->lock);
	if (comm->state != DF_COMM_ABORTED) {
		__atomic_store_n(&comm->error, ret, __ATOMIC_RELAXED);
		__atomic_store_n(&comm->state, DF_COMM_FAILED, __ATOMIC_RELAXED);
	} else if (ret == -ECANCELED && comm->error) {
		ret = comm->error;
	}
	df_mutex_unlock(&comm->dev->lock);
	return ret;
}

/* The members are known: makes what executes the communicator. */
static int meet(struct df_comm *comm, int nranks, int rank, const struct df_comm *parent,
		const struct df_cal *rows)
{
	comm->nranks = nranks;
	comm->rank = rank;
	comm->members = df_ctl_members(comm->ctl);
	comm->hash = df_ctl_hash(comm->ctl);
	return df_executor->meet(comm, parent, rows);
}

/* Everything is known: opens the communicator for operations. */
static int ready(struct df_comm *comm, uint64_t parent)
{
	int i, nranks = comm->nranks, rank = comm->rank;
	struct df_dev *dev = comm->dev;

	comm->trace =
		df_trace_comm(comm->hash, nranks, rank, dev->index, parent, comm->config.name);
	df_trace(DF_REC_COMM_READY, dev->index, comm->trace, rank, 0, comm->hash, (uint64_t)nranks,
		 (uint64_t)dev->index, 0);
	for (i = 0; i < nranks; i++)
		df_trace(DF_REC_COMM_MEMBER, dev->index, comm->trace, rank, (uint64_t)i,
			 comm->members[i].host, comm->members[i].pid,
			 (uint64_t)comm->members[i].device, 0);
	__atomic_store_n(&dev->exec.used, 1, __ATOMIC_RELAXED);
	df_executor->start(comm);
	/*
	 * RELEASE pairs with the ACQUIRE in df_comm_is_open(): without it the watchdog and the
	 * control thread could read members that are not set yet.
	 */
	__atomic_store_n(&comm->open, 1, __ATOMIC_RELEASE);
	set_state(comm, DF_COMM_READY);
	/*
	 * df_death() skips communicators that are not open: a member may have died between the
	 * rendezvous and here.
	 */
	df_ctl_tell_deaths(comm->ctl);
	return comm->state == DF_COMM_READY ? 0 : -ECANCELED;
}

/*
 * If the runtime of some rank could not start, the ranks only get to know each other: returns
 * DF_JOIN_UNABLE.
 */
static int meet_unable(struct df_comm *comm, int nranks, int rank)
{
	int i;

	for (i = 0; i < nranks && !df_ctl_members(comm->ctl)[i].unable; i++)
		;
	if (i == nranks)
		return 0;
	comm->nranks = nranks;
	comm->rank = rank;
	comm->members = df_ctl_members(comm->ctl);
	comm->hash = df_ctl_hash(comm->ctl);
	return DF_JOIN_UNABLE;
}

/* Joins, on a rank whose own runtime could not start. */
static int join_unable(struct df_comm *comm, int nr_ids, const unsigned char (*ids)[DF_ID_BYTES],
		       int nranks, struct df_member *me)
{
	const struct df_ctl_limits limits = {df_rt.reason, comm->config.bound};
	int ret;

	me->device_id = df_hash_u64(me->proc, (uint64_t)me->rank + 1);
	me->node = me->host;
	ret = df_ctl_join(nr_ids, ids, nranks, me, &limits, &comm->stop, &comm->ctl);
	return ret ? fail(comm, ret) : meet_unable(comm, nranks, me->rank);
}

/* Returns the node that a device belongs to: the machine, or an emulated node. */
static uint64_t node_of(uint64_t host, int device)
{
	long per = df_env()->host_node_devices;

	if (per == DF_AUTO)
		return host;
	return df_hash_u64(host, (uint64_t)(device / per) + 1);
}

int df_comm_join(struct df_comm *comm, int nr_ids, const unsigned char (*ids)[DF_ID_BYTES],
		 int nranks, int rank)
{
	const struct df_ctl_limits limits = {NULL, comm->config.bound};
	enum df_call how = comm->config.grows ? DF_CALL_COMM_GROW : DF_CALL_COMM_INIT;
	struct df_member me;
	uint64_t call;
	int ret;

	set_state(comm, DF_COMM_JOINING);
	ret = df_ctl_self(&me);
	if (ret)
		return fail(comm, ret);
	me.rank = rank;
	if (__atomic_load_n(&df_rt.unable, __ATOMIC_RELAXED))
		return join_unable(comm, nr_ids, ids, nranks, &me);
	if (df_executor->open(comm, nranks, &me))
		return join_unable(comm, nr_ids, ids, nranks, &me);
	me.device = comm->dev->index;
	me.node = node_of(me.host, comm->dev->index);
	on_join();
	call = df_call_enter(how, comm->dev->index, df_id_hash(ids[0]), (uint64_t)nranks, 0);
	df_trace(DF_REC_COMM_INIT, comm->dev->index, 0, rank, call, df_id_hash(ids[0]),
		 (uint64_t)nranks, (uint64_t)comm->dev->index, 0);
	df_joining(comm, df_id_hash(ids[0]), nranks, rank);
	ret = df_ctl_join(nr_ids, ids, nranks, &me, &limits, &comm->stop, &comm->ctl);
	df_joining(comm, 0, 0, 0);
	if (!ret)
		ret = meet_unable(comm, nranks, rank);
	if (!ret)
		ret = meet(comm, nranks, rank, NULL, NULL);
	df_call_exit(call, how, comm->dev->index, ret > 0 ? 0 : (uint64_t)-ret);
	if (ret > 0)
		return ret;
	if (!ret)
		ret = ready(comm, 0);
	return ret ? fail(comm, ret) : 0;
}

struct split_row {
	int32_t color, key;
	uint32_t avoid;
	struct df_cal cal;
};

/*
 * Makes a child communicator of the parent's ranks that are listed. avoid: what the ranks'
 * df_member.avoid amount to together. rows: the calibrations that they exchanged; NULL: uses what
 * the parent knows, so that no rank waits for others.
 */
static int derive(struct df_comm *comm, struct df_comm *parent, uint64_t hash, const int *ranks,
		  int nr, uint32_t avoid, const struct df_cal *rows)
{
	int me, ret;

	for (me = 0; me < nr && ranks[me] != parent->rank; me++)
		;
	if (comm->config.share) {
		static uint64_t nr_families;

		df_mutex_lock(&df_rt.lock);
		if (!parent->family)
			parent->family = ++nr_families;
		comm->family = parent->family;
		df_mutex_unlock(&df_rt.lock);
	}
	ret = df_ctl_derive(parent->ctl, hash, ranks, nr, me, avoid, &comm->ctl);
	if (ret)
		return ret;
	ret = meet(comm, nr, me, parent, rows);
	return ret ? ret : ready(comm, parent->hash);
}

int df_comm_join_split(struct df_comm *comm, struct df_comm *parent, int color, int key)
{
	struct split_row mine = {.color = color, .key = key}, *all;
	uint32_t avoid = 0;
	struct df_cal *rows;
	int *ranks, i, j, nr = 0, ret;
	uint64_t call = 0, salt;

	if (comm)
		set_state(comm, DF_COMM_JOINING);
	all = malloc((size_t)parent->nranks * sizeof(*all));
	ranks = malloc((size_t)parent->nranks * sizeof(*ranks));
	rows = malloc((size_t)parent->nranks * sizeof(*rows));
	ret = -ENOMEM;
	if (!all || !ranks || !rows)
		goto out;
	df_executor->terms(comm, parent->nranks, &mine.cal, &mine.avoid);
	/* The call is collective, so every rank has the same count. */
	salt = ++parent->splits;
	call = df_call_enter_comm(DF_CALL_COMM_SPLIT, parent, (uint64_t)(uint32_t)color, 0);
	ret = df_ctl_allgather(parent->ctl, &mine, sizeof(mine), all, &parent->stop);
	if (ret || color < 0 || !comm)
		goto out;
	for (i = 0; i < parent->nranks; i++) {
		if (all[i].color != color)
			continue;
		for (j = nr++; j > 0 && all[ranks[j - 1]].key > all[i].key; j--)
			ranks[j] = ranks[j - 1];
		ranks[j] = i;
	}
	for (i = 0; i < nr; i++) {
		rows[i] = all[ranks[i]].cal;
		avoid |= all[ranks[i]].avoid;
	}
	ret = derive(comm, parent, df_hash_u64(df_hash_u64(parent->hash, salt), (uint64_t)color),
		     ranks, nr, avoid, rows);
out:
	if (call)
		df_call_exit(call, DF_CALL_COMM_SPLIT, parent->dev->index, (uint64_t)-ret);
	free(rows);
	free(all);
	free(ranks);
	return ret && comm ? fail(comm, ret) : ret;
}

int df_comm_join_shrink(struct df_comm *comm, struct df_comm *parent, const int *exclude,
			int nr_exclude, int abort)
{
	int *ranks, i, x = 0, nr = 0, ret;
	uint32_t avoid = 0;
	uint64_t call, hash;

	set_state(comm, DF_COMM_JOINING);
	if (abort)
		df_comm_revoke(parent);
	ranks = malloc((size_t)parent->nranks * sizeof(*ranks));
	if (!ranks)
		return fail(comm, -ENOMEM);
	hash = df_hash_u64(parent->hash, ++parent->splits);
	for (i = 0; i < parent->nranks; i++) {
		avoid |= parent->members[i].avoid;
		while (x < nr_exclude && exclude[x] < i)
			x++;
		if (x < nr_exclude && exclude[x] == i)
			hash = df_hash_u64(hash, (uint64_t)i);
		else
			ranks[nr++] = i;
	}
	call = df_call_enter_comm(DF_CALL_COMM_SHRINK, parent, 0, 0);
	ret = derive(comm, parent, hash, ranks, nr, avoid, NULL);
	df_call_exit(call, DF_CALL_COMM_SHRINK, parent->dev->index, (uint64_t)-ret);
	free(ranks);
	return ret ? fail(comm, ret) : 0;
}

struct grow_row {
	uint8_t has_id;
	unsigned char id[DF_ID_BYTES];
};

int df_comm_join_grown(struct df_comm *comm, struct df_comm *parent, const unsigned char *id,
		       int nranks)
{
	struct grow_row mine = {.has_id = id != NULL},
			*all = malloc((size_t)parent->nranks * sizeof(*all));
	uint64_t call, key = df_hash_u64(parent->hash, ++parent->splits);
	int i = 0, ret = -ENOMEM;

	set_state(comm, DF_COMM_JOINING);
	if (id)
		memcpy(mine.id, id, sizeof(mine.id));
	/* The id is not known yet: until the parent's ranks have met, they wait for one another. */
	call = df_call_enter(DF_CALL_COMM_GROW, parent->dev->index, key, (uint64_t)parent->nranks,
			     0);
	if (all)
		ret = df_ctl_allgather(parent->ctl, &mine, sizeof(mine), all, &parent->stop);
	for (; !ret && i < parent->nranks && !all[i].has_id; i++)
		;
	if (!ret && i == parent->nranks)
		ret = -EINVAL;
	df_call_exit(call, DF_CALL_COMM_GROW, parent->dev->index, (uint64_t)-ret);
	if (ret)
		fail(comm, ret);
	else
		ret = df_comm_join(comm, 1, &all[i].id, nranks, parent->rank);
	free(all);
	return ret;
}

int df_comm_allgather(struct df_comm *comm, const void *in, size_t bytes, void *out)
{
	return df_ctl_allgather(comm->ctl, in, bytes, out, &comm->stop);
}

int df_comm_stopped(const struct df_comm *comm)
{
	int i;

	/* RELAXED: nothing is passed on. */
	if (__atomic_load_n(&comm->stop, __ATOMIC_RELAXED))
		return -ECANCELED;
	for (i = 0; i < comm->nranks; i++)
		if (df_ctl_is_dead(comm->members[i].proc))
			return -ECONNRESET;
	return 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

static int all_retired(void *arg)
{
	struct df_comm *comm = arg;

	/* RELAXED: the completion words have ordered the results; only the numbers count here. */
	if (__atomic_load_n(&comm->issued, __ATOMIC_RELAXED) ==
	    __atomic_load_n(&comm->retired, __ATOMIC_RELAXED))
		return 1;
	df_mutex_lock(&comm->dev->lock);
	df_executor->retire(comm->dev);
	df_mutex_unlock(&comm->dev->lock);
	return __atomic_load_n(&comm->issued, __ATOMIC_RELAXED) ==
	       __atomic_load_n(&comm->retired, __ATOMIC_RELAXED);
}

int df_comm_finalize(struct df_comm *comm)
{
	uint64_t call;

	df_trace(DF_REC_COMM_FINALIZE, comm->dev->index, comm->trace, comm->rank, 0, 0, 0, 0, 0);
	call = df_call_enter_comm(DF_CALL_COMM_FINALIZE, comm, 0, 0);
	df_executor->wait(comm->dev, all_retired, comm);
	df_call_exit(call, DF_CALL_COMM_FINALIZE, comm->dev->index, 0);
	if (df_comm_error(comm))
		return df_comm_error(comm);
	set_state(comm, DF_COMM_FINALIZED);
	return 0;
}

/* The first step of an end: marks it aborted (returns 0 if it already was). */
static int condemn(struct df_comm *comm, int error, int why)
{
	df_mutex_lock(&comm->dev->lock);
	if (comm->state == DF_COMM_ABORTED) {
		df_mutex_unlock(&comm->dev->lock);
		return 0;
	}
	/* Trace first: what the application does when it sees the state is a consequence. */
	df_trace(DF_REC_COMM_ABORT, comm->dev->index, comm->trace, comm->rank, 0, (uint64_t)why, 0,
		 0, 0);
	__atomic_store_n(&comm->error, error, __ATOMIC_RELAXED);
	__atomic_store_n(&comm->state, DF_COMM_ABORTED, __ATOMIC_RELAXED);
	/*
	 * SEQ_CST pairs with the readers of `stop` in the control plane: they see it after the poke
	 * at the latest.
	 */
	__atomic_store_n(&comm->stop, 1, __ATOMIC_SEQ_CST);
	df_executor->condemn(comm);
	df_mutex_unlock(&comm->dev->lock);
	df_ctl_poke();
	return 1;
}

/* The second step: releases its waiters. */
static void end(struct df_comm *comm)
{
	df_lock_none_held("the end of a communicator");
	df_executor->end(comm);
}

void df_comm_end(struct df_comm *comm, int error, int why)
{
	if (condemn(comm, error, why))
		end(comm);
}

/*
 * Returns a communicator that is marked, which the caller then ends; NULL: none. `ended`: the one
 * that it has ended.
 */
static struct df_comm *next_marked(struct df_comm *ended)
{
	struct df_comm *comm, *found = NULL;

	df_mutex_lock(&df_rt.lock);
	if (ended) {
		ended->ending = DF_ENDING_NO;
		/* Under the lock: afterwards it may be freed. */
		df_futex_wake(&ended->ending, INT_MAX, 0);
	}
	df_list_each(comm, &df_rt.comms, node) if (comm->ending == DF_ENDING_MARKED) found = comm;
	if (found)
		found->ending = DF_ENDING_NOW;
	df_mutex_unlock(&df_rt.lock);
	return found;
}

int df_comm_end_all(int (*wanted)(struct df_comm *comm, void *arg), void *arg, int error, int why)
{
	struct df_comm *comm;
	int nr = 0;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		if (!wanted(comm, arg) || !condemn(comm, error, why))
			continue;
		comm->ending = DF_ENDING_MARKED;
		nr++;
	}
	df_mutex_unlock(&df_rt.lock);
	/* Two threads that mark communicators share the work of ending them. */
	for (comm = NULL; (comm = next_marked(comm));)
		end(comm);
	return nr;
}

static char first_line[512];
static uint32_t has_line;

const char *df_comm_ended_for(void)
{
	/* ACQUIRE pairs with the RELEASE in df_comm_ends_for(). */
	return __atomic_load_n(&has_line, __ATOMIC_ACQUIRE) ? first_line : "";
}

void df_comm_ends_for(const char *line)
{
	if (!*line || __atomic_load_n(&has_line, __ATOMIC_RELAXED))
		return;
	snprintf(first_line, sizeof(first_line), "%s", line);
	df_text_clean(first_line, strlen(first_line));
	/* RELEASE pairs with the ACQUIRE in df_comm_ended_for(). */
	__atomic_store_n(&has_line, 1, __ATOMIC_RELEASE);
	DF_NCCL_WARN("dfshim ends communicators of this process: %s", first_line);
}

void df_comm_unheard(struct df_comm *comm, int status)
{
	if (!__atomic_exchange_n(&comm->unheard, 1, __ATOMIC_RELAXED))
		df_exit_status_unheard(status);
}

/* The program itself gives the communicator up. */
static void is_heard(struct df_comm *comm)
{
	if (__atomic_exchange_n(&comm->unheard, 0, __ATOMIC_RELAXED))
		df_exit_status_heard();
}

static int is_relative(struct df_comm *comm, void *family)
{
	return comm->family == *(const uint64_t *)family;
}

void df_comm_abort(struct df_comm *comm)
{
	is_heard(comm);
	df_comm_end(comm, -ECANCELED, 0);
	if (comm->family)
		(void)df_comm_end_all(is_relative, &comm->family, -ECANCELED, 0);
}

int df_comm_revoke(struct df_comm *comm)
{
	is_heard(comm);
	df_mutex_lock(&comm->dev->lock);
	if (comm->state != DF_COMM_READY) {
		df_mutex_unlock(&comm->dev->lock);
		return -EINVAL;
	}
	__atomic_store_n(&comm->state, DF_COMM_REVOKED, __ATOMIC_RELAXED);
	df_mutex_unlock(&comm->dev->lock);
	df_trace(DF_REC_COMM_ABORT, comm->dev->index, comm->trace, comm->rank, 0, 3, 0, 0, 0);
	df_executor->end(comm);
	return 0;
}

void df_comm_get(struct df_comm *comm)
{
	__atomic_add_fetch(&comm->refs, 1, __ATOMIC_RELAXED);
}

void df_comm_put(struct df_comm *comm)
{
	/*
	 * ACQ_REL pairs with itself: without it the thread that drops the last reference could free
	 * the communicator before another thread's last accesses.
	 */
	if (!__atomic_sub_fetch(&comm->refs, 1, __ATOMIC_ACQ_REL))
		free(comm);
}

/* Takes it out of the list of communicators. If a thread ends it, that is waited for. */
static void leave_list(struct df_comm *comm)
{
	uint32_t ending;

	df_mutex_lock(&df_rt.lock);
	while ((ending = comm->ending)) {
		df_mutex_unlock(&df_rt.lock);
		(void)df_futex_wait(&comm->ending, ending, -1, 0);
		df_mutex_lock(&df_rt.lock);
	}
	df_list_del(&comm->node);
	df_mutex_unlock(&df_rt.lock);
}

void df_comm_destroy(struct df_comm *comm)
{
	struct df_dev *dev = comm->dev;
	uint64_t call;

	call = df_call_enter_comm(DF_CALL_COMM_DESTROY, comm, 0, 0);
	df_executor->wait(dev, all_retired, comm);
	df_call_exit(call, DF_CALL_COMM_DESTROY, dev->index, 0);
	leave_list(comm);
	df_executor->forget(comm);
	df_trace(DF_REC_COMM_DESTROY, dev->index, comm->trace, comm->rank, 0, 0, 0, 0, 0);
	if (comm->ctl)
		df_ctl_leave(comm->ctl);
	df_flights_free(&comm->order.pending);
	comm->ctl = NULL;
	memset(&comm->order.pending, 0, sizeof(comm->order.pending));
	/* A graph may still be launched: its operations see this error. */
	df_mutex_lock(&dev->lock);
	__atomic_store_n(&comm->error, -ECANCELED, __ATOMIC_RELAXED);
	__atomic_store_n(&comm->state, DF_COMM_ABORTED, __ATOMIC_RELAXED);
	df_mutex_unlock(&dev->lock);
	df_comm_put(comm);
}

int df_comm_is_open(const struct df_comm *comm)
{
	/* ACQUIRE pairs with the RELEASE in ready(): the members are set. */
	return __atomic_load_n(&comm->open, __ATOMIC_ACQUIRE);
}

int df_comm_rank_of(const struct df_comm *comm, uint64_t proc)
{
	int i;

	for (i = 0; i < comm->nranks && comm->members[i].proc != proc; i++)
		;
	return i < comm->nranks ? i : -1;
}

static int is_on(struct df_comm *comm, void *dev)
{
	return comm->dev == dev;
}

static void *end_all_on(void *dev)
{
	(void)df_comm_end_all(is_on, dev, -EIO, 1);
	return NULL;
}

void df_comm_device_lost(int device)
{
	/*
	 * On a thread of its own, because ending waits for the backend's thread, which is the
	 * caller.
	 */
	df_thread_start("dfshim-end", 0, end_all_on, &df_rt.devs[device]);
}

/* ---- queries --------------------------------------------------------------------------------- */

int df_comm_nranks(const struct df_comm *comm)
{
	return comm->nranks;
}

int df_comm_rank(const struct df_comm *comm)
{
	return comm->rank;
}

uint64_t df_comm_hash(const struct df_comm *comm)
{
	return comm->hash;
}

enum df_comm_state df_comm_state(const struct df_comm *comm)
{
	return (enum df_comm_state)__atomic_load_n(&comm->state, __ATOMIC_RELAXED);
}

int df_comm_error(const struct df_comm *comm)
{
	return __atomic_load_n(&comm->error, __ATOMIC_RELAXED);
}

uint64_t df_comm_pending(const struct df_comm *comm)
{
	return __atomic_load_n(&comm->issued, __ATOMIC_RELAXED) -
	       __atomic_load_n(&comm->retired, __ATOMIC_RELAXED);
}
