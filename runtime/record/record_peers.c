/*
 * The other processes of a job in mode trace. NCCL makes the communicators; the id that the
 * application passes on carries our rendezvous too (df_id_watch()). Each rank joins it on a thread
 * of its own, so that the application waits for nothing: without the control plane the job runs as
 * before, and each process knows only itself. docs/control-plane.md says what travels.
 *
 * Any thread. The entries are under one lock, which is not held across calls that can block. They
 * are never freed while their thread runs.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "kernels/abi.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/once.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/base/vec.h"
#include "runtime/comm/joining.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/dfshim.h"
#include "runtime/record/record.h"
#include "runtime/watch/look.h"
#include "runtime/watch/snapshot.h"
#include "runtime/watch/tied.h"
#include "trace/record/writer.h"

/*
 * One rank of this process in a communicator of NCCL's. A split one has no rendezvous: `root` is
 * the one that it descends from, whose members are known. The root of one that grows is its parent,
 * over which the id of its rendezvous arrives. A root is kept until all that descend from it have
 * ended.
 */
struct seat {
	struct df_list node;
	struct seat *root;
	unsigned descendants;
	int ended; /* kept for its descendants */
	int grows; /* it grows (ncclCommGrow) */
	uint64_t hash;
	int nranks, rank, nr_ids; /* nr_ids 0: the id has not arrived yet, or there is none */
	uint32_t trace;		  /* of df_trace_comm(); 0: NCCL has not made it yet */
	uint32_t stop;		  /* for df_ctl_join(): the communicator has ended */
	int joined;		  /* its thread has ended */
	uint64_t since;		  /* when it began to join */
	struct df_ctl_comm *comm; /* NULL: not all ranks have joined */
	unsigned char ids[][DF_ID_BYTES];
};

/*
 * The id of a communicator that grows. NCCL gives it to one rank of the parent and to the new ranks
 * only. That rank's process sends it to the others once the parent's processes are connected.
 */
struct df_grown {
	uint64_t hash;
	unsigned char id[DF_ID_BYTES];
};

#define MAX_GROWN 16 /* older ones have been joined */
static struct grown {
	struct df_grown id;
	uint64_t after; /* send it when this communicator's ranks have joined; 0: no more */
} grown[MAX_GROWN];
static unsigned nr_grown;

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_COMM, "peers of mode trace");
static struct df_list seats = DF_LIST_INIT(seats);
/* All processes that were ever met: those of communicators that have ended count too. */
static struct peer {
	uint64_t proc, host;
} * met;
static size_t nr_met, cap_met;
static struct df_once begun;
static int usable;    /* the control plane has started, and df_rt.self is set; atomic */
static int connected; /* all ranks of some communicator have joined; atomic */

/* ---- what the control plane reports ---------------------------------------------------------- */

static void take_grown(const struct df_grown *id, uint64_t after);

/* The messages of mode trace: another process's runtime may send others. */
static void message(uint64_t from, uint32_t kind, const void *data, size_t bytes)
{
	if (kind == DF_MSG_SNAPSHOT_ASK || kind == DF_MSG_SNAPSHOT || kind == DF_MSG_HEARD ||
	    kind == DF_MSG_SUSPECT || kind == DF_MSG_TOLD)
		df_snapshot_message(from, kind, data, bytes);
	if (kind == DF_MSG_GROWN && bytes == sizeof(struct df_grown)) {
		df_mutex_lock(&lock);
		take_grown(data, 0);
		df_mutex_unlock(&lock);
	}
}

/* Records the end for each communicator with that process. */
static void death(uint64_t proc, int in_order)
{
	struct seat *s;

	if (df_record_told())
		return; /* a consequence of the verdict */
	df_mutex_lock(&lock);
	df_list_each(s, &seats, node)
	{
		const struct df_member *m = s->comm ? df_ctl_members(s->comm) : NULL;

		for (int i = 0; m && i < s->nranks; i++)
			if (m[i].proc == proc)
				df_trace(DF_REC_PEER_DEAD, -1, s->trace, s->trace ? s->rank : -1,
					 (uint64_t)i, m[i].host, m[i].pid, (uint64_t)in_order, 0);
	}
	df_mutex_unlock(&lock);
	df_record_lost();
}

/* It ended inside a rendezvous that this process serves. */
static void lost(const struct df_member *who)
{
	df_trace(DF_REC_PEER_DEAD, -1, 0, -1, (uint64_t)who->rank, who->host, who->pid, 0, 0);
}

static void add_met(struct df_procs *p)
{
	df_mutex_lock(&lock);
	for (size_t i = 0; i < nr_met; i++)
		if (met[i].proc != df_rt.self.proc)
			df_procs_add(p, met[i].proc);
	df_mutex_unlock(&lock);
}

int df_record_plane(void)
{
	/* ACQUIRE pairs with the RELEASE in begin(). */
	return __atomic_load_n(&usable, __ATOMIC_ACQUIRE);
}

int df_record_peers(void)
{
	/* ACQUIRE pairs with the RELEASE in arrived(). */
	return __atomic_load_n(&connected, __ATOMIC_ACQUIRE);
}

/* Returns 1 if the control plane can be used. A forked child leaves it to its parent. */
static int begin(void)
{
	static const struct df_ctl_events events = {message, death, lost};
	int ret;

	if (df_once_begin(&begun, "The control plane of mode trace")) {
		df_record_live();
		df_tied_by(add_met);
		df_ctl_set_events(&events);
		ret = df_ctl_self(&df_rt.self);
		if (ret)
			df_info("mode trace: no control plane: %s", strerror(-ret));
		/* RELEASE pairs with df_record_plane(): df_rt.self is set. */
		__atomic_store_n(&usable, !ret, __ATOMIC_RELEASE);
		df_once_end(&begun);
	}
	return df_record_plane() && df_rt.self.pid == (uint32_t)getpid();
}

/* ---- joining --------------------------------------------------------------------------------- */

void df_record_id(unsigned char id[DF_ID_BYTES])
{
	int ret;

	if (!df_env()->trace_peers || df_env()->nccl_comm_id || !begin())
		return;
	ret = df_id_watch(id, 0);
	if (ret)
		df_info("mode trace: the id cannot carry the rendezvous: %s", strerror(-ret));
}

static int is_met(uint64_t proc)
{
	size_t i = 0;

	while (i < nr_met && met[i].proc != proc)
		i++;
	return i < nr_met;
}

/* Sends the ids that waited for this communicator. */
static void send_grown(uint64_t after)
{
	for (;;) {
		struct df_grown id = {0};

		df_mutex_lock(&lock);
		for (unsigned i = 0; i < MAX_GROWN && !id.hash; i++) {
			if (grown[i].after != after)
				continue;
			grown[i].after = 0;
			id = grown[i].id;
		}
		df_mutex_unlock(&lock);
		if (!id.hash)
			return;
		df_ctl_send(NULL, 0, DF_MSG_GROWN, &id, sizeof(id));
	}
}

/* All ranks have joined. */
static void arrived(struct seat *s, struct df_ctl_comm *comm)
{
	const struct df_member *m = df_ctl_members(comm);
	size_t before;
	int leads = 1;

	df_mutex_lock(&lock);
	before = nr_met;
	s->comm = comm;
	for (int i = 0; i < s->nranks; i++) {
		struct peer *p;

		p = is_met(m[i].proc) ? NULL : DF_VEC_PUSH(met, nr_met, cap_met);
		if (p)
			*p = (struct peer){.proc = m[i].proc, .host = m[i].host};
	}
	for (size_t i = 0; i < nr_met; i++)
		leads &= met[i].proc >= df_rt.self.proc;
	leads &= nr_met > before;
	df_mutex_unlock(&lock);
	/* So that a suspicion needs no flood to find the leader. */
	if (leads)
		df_ctl_send(NULL, 0, DF_MSG_LEADS, NULL, 0);
	/* RELEASE pairs with df_record_peers(): the processes are known. */
	__atomic_store_n(&connected, 1, __ATOMIC_RELEASE);
	df_ctl_tell_deaths(comm);
	df_record_wake();
	send_grown(s->hash);
}

static void forget(struct seat *s)
{
	if (s->comm)
		df_ctl_leave(s->comm);
	free(s);
}

static void *join(void *arg)
{
	struct df_ctl_comm *comm;
	struct df_member me;
	struct seat *s = arg;
	int ended;

	if (!df_ctl_self(&me)) {
		me.rank = s->rank;
		me.node = me.host;
		if (!df_ctl_join(s->nr_ids, (const unsigned char(*)[DF_ID_BYTES])s->ids, s->nranks,
				 &me, NULL, &s->stop, &comm))
			arrived(s, comm);
	}
	df_mutex_lock(&lock);
	s->joined = 1;
	ended = (int)s->stop;
	df_mutex_unlock(&lock);
	if (ended)
		forget(s);
	return NULL;
}

/* Starts to join. The caller holds the lock. */
static void start_joining(struct seat *s, int nr_ids, const unsigned char (*ids)[DF_ID_BYTES])
{
	memcpy(s->ids, ids, (size_t)nr_ids * DF_ID_BYTES);
	s->nr_ids = nr_ids;
	s->since = df_now_ns();
	s->joined = df_thread_start("dfshim-join", 1 << 18, join, s) != 0;
	if (s->joined)
		df_info("mode trace: no thread to join the other processes");
}

/* Returns a seat without ids, or NULL. */
static struct seat *seat_new(uint64_t hash, int nr_ids, int nranks, int rank)
{
	struct seat *s = nranks < 2 || rank < 0 || rank >= nranks || !begin()
				 ? NULL
				 : calloc(1, sizeof(*s) + (size_t)nr_ids * DF_ID_BYTES);

	if (!s)
		return NULL;
	s->hash = hash;
	s->nranks = nranks;
	s->rank = rank;
	s->joined = 1;
	return s;
}

void df_record_join(uint64_t hash, int nr_ids, const unsigned char (*ids)[DF_ID_BYTES], int nranks,
		    int rank, int grows)
{
	struct seat *s;

	for (int i = 0; i < nr_ids; i++)
		if (!df_id_is_watched(ids[i]))
			return;
	s = nr_ids < 1 ? NULL : seat_new(hash, nr_ids, nranks, rank);
	if (!s)
		return;
	df_mutex_lock(&lock);
	df_list_add_tail(&seats, &s->node);
	s->grows = grows;
	start_joining(s, nr_ids, ids);
	df_mutex_unlock(&lock);
}

/* Returns NULL if there is none. The caller holds the lock. */
static struct seat *seat_of(uint64_t hash, int rank)
{
	struct seat *s;

	df_list_each(s, &seats, node)
	{
		if (s->hash == hash && (rank < 0 || s->rank == rank) && !s->ended)
			return s;
	}
	return NULL;
}

/*
 * Returns the seat whose rendezvous connects the ranks of a communicator, or NULL. rank: as in
 * seat_of(). The caller holds the lock.
 */
static struct seat *root_of(uint64_t hash, int rank)
{
	struct seat *s = seat_of(hash, rank);

	return s && s->root && !s->grows ? s->root : s;
}

/* The caller holds the lock. */
static void descend(struct seat *s, struct seat *root)
{
	s->root = root;
	if (root)
		root->descendants++;
}

/* ---- growing --------------------------------------------------------------------------------- */

/* Keeps the id, and lets the ranks of this process that wait for it join. Under the lock. */
static void take_grown(const struct df_grown *id, uint64_t after)
{
	struct seat *s;

	grown[nr_grown++ % MAX_GROWN] = (struct grown){.id = *id, .after = after};
	df_list_each(s, &seats, node)
	{
		if (s->hash == id->hash && s->grows && !s->nr_ids)
			start_joining(s, 1, &id->id);
	}
}

void df_record_grow_id(unsigned char id[DF_ID_BYTES], uint64_t hash, uint64_t parent)
{
	struct df_grown g = {.hash = hash};
	uint64_t after;
	struct seat *s;

	if (!parent || !df_env()->trace_peers || !begin() || df_id_watch(id, hash)) {
		(void)df_id_name(id, hash);
		return;
	}
	memcpy(g.id, id, DF_ID_BYTES);
	df_mutex_lock(&lock);
	s = root_of(parent, -1);
	take_grown(&g, s ? s->hash : 0);
	after = s && s->comm ? s->hash : 0;
	df_mutex_unlock(&lock);
	if (after)
		send_grown(after);
}

void df_record_grow(uint64_t hash, uint64_t parent, int nranks, int rank)
{
	struct seat *s = df_env()->trace_peers ? seat_new(hash, 1, nranks, rank) : NULL;

	if (!s)
		return;
	s->grows = 1;
	df_mutex_lock(&lock);
	descend(s, root_of(parent, rank));
	df_list_add_tail(&seats, &s->node);
	for (unsigned i = 0; i < MAX_GROWN && !s->nr_ids; i++)
		if (grown[i].id.hash == hash)
			start_joining(s, 1, &grown[i].id.id);
	df_mutex_unlock(&lock);
}

/* ---- communicators that NCCL has made ------------------------------------------------------- */

void df_record_made(uint64_t hash, int rank, uint32_t trace, uint64_t parent)
{
	struct seat *s, *root;

	df_mutex_lock(&lock);
	root = parent ? root_of(parent, -1) : NULL;
	if (root && (s = calloc(1, sizeof(*s)))) {
		s->hash = hash;
		s->rank = rank;
		s->joined = 1;
		descend(s, root);
		df_list_add_tail(&seats, &s->node);
	}
	s = seat_of(hash, rank);
	if (s)
		s->trace = trace;
	df_mutex_unlock(&lock);
}

/*
 * The communicator has ended: removes its seat from the list, unless other seats descend from it.
 * Then does the same with a root that was only kept for it. Adds seats to `gone` whose threads have
 * ended, so that the caller can free them. The caller holds the lock.
 */
static void vacate(struct seat *s, struct df_list *gone)
{
	struct seat *root;

	s->ended = 1;
	for (; s && s->ended && !s->descendants; s = root) {
		root = s->root;
		if (root)
			root->descendants--;
		df_list_del(&s->node);
		/* RELAXED: the thread reads it again under the lock. */
		__atomic_store_n(&s->stop, 1, __ATOMIC_RELAXED);
		if (s->joined)
			df_list_add_tail(gone, &s->node);
	}
}

void df_record_ended(uint64_t hash, int rank)
{
	struct df_list gone = DF_LIST_INIT(gone);
	struct seat *s, *tmp;
	int is;

	df_mutex_lock(&lock);
	s = seat_of(hash, rank);
	is = s != NULL;
	if (s)
		vacate(s, &gone);
	df_mutex_unlock(&lock);
	df_list_each_safe(s, tmp, &gone, node) forget(s);
	if (is)
		df_ctl_poke();
}

void df_record_add_silent(struct df_check_set *set, uint64_t proc, int certain)
{
	struct seat *s;

	df_mutex_lock(&lock);
	df_list_each(s, &seats, node)
	{
		const struct df_member *m = s->comm ? df_ctl_members(s->comm) : NULL;

		for (int i = 0; m && i < s->nranks; i++)
			if (m[i].proc == proc)
				df_look_add_silent(set, s->hash, &m[i], certain);
	}
	df_mutex_unlock(&lock);
}

int df_record_speaks_here(uint64_t host)
{
	int is = host != df_rt.self.host;

	df_mutex_lock(&lock);
	for (size_t i = 0; i < nr_met; i++)
		if (met[i].host == df_rt.self.host && met[i].proc < df_rt.self.proc &&
		    !df_ctl_is_dead(met[i].proc))
			is = 0;
	df_mutex_unlock(&lock);
	return is;
}

void df_record_goodbye(const void *words, size_t bytes, uint64_t until)
{
	if (df_record_plane())
		df_ctl_goodbye(words, bytes, until);
}

int df_record_missing(char *text, size_t size)
{
	int ranks[64], nr = 0, nranks = 0, grows = 0;
	uint64_t hash = 0, ms = 0;
	struct seat *s;

	df_mutex_lock(&lock);
	df_list_each(s, &seats, node)
	{
		if (hash || s->comm || s->trace || !s->nr_ids)
			continue;
		nr = df_ctl_missing(df_id_hash(s->ids[0]), ranks, DF_ARRAY_LEN(ranks));
		if (nr <= 0)
			continue;
		hash = df_id_hash(s->ids[0]);
		grows = s->grows;
		nranks = s->nranks;
		ms = (df_now_ns() - s->since) / DF_NS_PER_MS;
	}
	df_mutex_unlock(&lock);
	if (!hash)
		return 0;
	return df_joining_say(text, size, grows ? "ncclCommGrow" : "ncclCommInitRank", hash, nranks,
			      ranks, nr, ms,
			      "Note: a rank that runs without dfshim, or in another mode, counts "
			      "as one that has not called.\n");
}
