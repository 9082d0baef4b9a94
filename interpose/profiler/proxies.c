/*
 * Follows NCCL's proxies. These are threads of NCCL that send and receive over the network, each
 * for an operation and a channel, in steps. A step takes some microseconds, so steps are counted,
 * not recorded. A record is written when the proxies of an operation have finished sending to, or
 * receiving from, a rank; and for each proxy that does not move (watch.c).
 *
 * A proxy's steps belong to one thread of NCCL; the watching thread reads them. Everything else is
 * guarded by df_profiler_lock.
 */
#include <string.h>
#include "interpose/profiler/handles.h"
#include "interpose/profiler/nccl_profiler.h"
#include "interpose/profiler/profiler.h"
#include "runtime/base/hash.h"
#include "runtime/base/list.h"
#include "runtime/base/time.h"
#include "trace/record/proxy.h"

#define SLOTS 16u   /* NCCL has at most 8 steps in progress */
#define NOTES 1024u /* maximum number of proxies that are recorded when nothing moves */
#define LISTS 4096u /* number of lists of ways; an exchange of 1,024 ranks has 2,046 ways */

struct proxy {
	uint64_t op;  /* handle; 0 if it belongs to another process (PXN) */
	uint64_t way; /* handle; 0 if memory was short, so that its summary is lost */
	uint64_t serial;
	uint32_t comm;
	int rank, peer, is_send, steps;
	unsigned channel;
	/* These are atomic: */
	uint64_t moved_ns;
	uint32_t moves, begun, ended; /* numbers of moves, and of steps that have begun and ended */
	uint8_t at[SLOTS];	      /* enum df_proxy_at of the steps in progress */
	/* Only the proxy's thread uses this: the number of the step in each slot, plus 1. */
	unsigned last[SLOTS];
};

/* The data that an operation sends to one rank, or receives from it. */
struct way {
	struct df_list list; /* link in the list of ways with the same hash */
	uint64_t self;	     /* handle */
	uint64_t serial, began_ns, steps;
	uint32_t comm;
	int rank, peer, is_send;
	unsigned live, channels;
};

static struct df_profiler_objects proxies = {.bytes = sizeof(struct proxy),
					     .kind = DF_HANDLE_PROXY};
static struct df_profiler_objects ways = {.bytes = sizeof(struct way), .kind = DF_HANDLE_WAY};
static struct df_list lists[LISTS]; /* a list is all zero until it is used */
static uint64_t moves_before;	    /* moves of proxies that have ended */

#define GET(p)	  __atomic_load_n(p, __ATOMIC_RELAXED)
#define PUT(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)

/* Counts a move. Only the proxy's own thread writes. */
static void moved(struct proxy *p)
{
	PUT(&p->moves, p->moves + 1);
	PUT(&p->moved_ns, df_now_ns());
}

/* Returns the way of the proxy, which is made if there is none. Returns NULL if memory is short. */
static struct way *way_of(const struct proxy *p)
{
	uint64_t key = p->serial << 1 | (p->is_send != 0);
	uint64_t ranks = (uint64_t)(uint32_t)p->rank << 32 | (uint32_t)p->peer;
	struct df_list *list = &lists[df_hash_u64(df_mix64(key), ranks) % LISTS];
	struct way *w;
	void *object;
	uint64_t handle;

	if (!list->next)
		df_list_init(list);
	df_list_each(w, list, list) if (w->serial == p->serial && w->comm == p->comm &&
					w->rank == p->rank && w->peer == p->peer &&
					w->is_send == p->is_send) return w;
	handle = df_profiler_make(&ways, &object);
	if (!handle)
		return NULL;
	w = object;
	w->self = handle;
	w->serial = p->serial;
	w->began_ns = p->moved_ns;
	w->comm = p->comm;
	w->rank = p->rank;
	w->peer = p->peer;
	w->is_send = p->is_send;
	df_list_add(list, &w->list);
	return w;
}

uint64_t df_profiler_proxy_begin(uint64_t op, uint32_t comm, int rank, uint64_t serial,
				 const struct df_profiler_event *e)
{
	struct proxy *p;
	struct way *w;
	void *object;
	uint64_t handle = df_profiler_make(&proxies, &object);

	if (!handle)
		return 0;
	p = object;
	p->op = op;
	p->serial = serial;
	p->comm = comm;
	p->rank = rank;
	p->peer = e->peer;
	p->is_send = e->is_send;
	p->steps = e->steps;
	p->channel = e->channel;
	moved(p);
	w = way_of(p);
	if (w) {
		p->way = w->self;
		w->live++;
		w->channels++;
	}
	return handle;
}

/* Ends a proxy. `done`: NCCL reports the end. */
static void end(const struct proxy *p, uint64_t handle, int done)
{
	struct way *w = df_profiler_find(&ways, p->way);

	if (w) {
		w->steps += GET(&p->ended);
		w->live--;
		if (!w->live && done)
			df_profiler_put(DF_REC_PROXY_DONE, w->comm, w->rank, w->serial,
					(uint64_t)(w->is_send != 0) | (uint64_t)w->channels << 8,
					(uint32_t)w->peer | w->steps << 32,
					df_now_ns() - w->began_ns, 0);
		if (!w->live) {
			df_list_del(&w->list);
			df_profiler_drop(&ways, w->self);
		}
	}
	moves_before += p->moves + 1;
	df_profiler_drop(&proxies, handle);
}

uint64_t df_profiler_proxy_end(uint64_t handle)
{
	const struct proxy *p = df_profiler_find(&proxies, handle);
	uint64_t op = p ? p->op : 0;

	if (p)
		end(p, handle, 1);
	return op;
}

void df_profiler_proxy_close(uint32_t comm)
{
	uint64_t handle;

	for (uint32_t i = 0; i < proxies.nr; i++) {
		const struct proxy *p = df_profiler_at(&proxies, i, &handle);

		if (p && p->comm == comm)
			end(p, handle, 0);
	}
}

static struct proxy *proxy_of(uint64_t step)
{
	return df_profiler_find(&proxies, df_profiler_handle_as(step, DF_HANDLE_PROXY, 0));
}

uint64_t df_profiler_step_begin(uint64_t proxy, int step)
{
	struct proxy *p = df_profiler_find(&proxies, proxy);
	unsigned at = (unsigned)step % SLOTS;

	if (!p)
		return 0;
	/* NCCL begins a step again as long as it finds no free slot for it, so that is no move. */
	if (p->last[at] != (unsigned)step + 1) {
		p->last[at] = (unsigned)step + 1;
		PUT(&p->at[at], DF_PROXY_BEGUN);
		PUT(&p->begun, p->begun + 1);
		moved(p);
	}
	return df_profiler_handle_as(proxy, DF_HANDLE_STEP, (unsigned)step);
}

void df_profiler_step_state(uint64_t step, int state)
{
	static const uint8_t places[] = {
		[DF_PROFILER_SEND_GPU_WAIT] = DF_PROXY_SEND_GPU,
		[DF_PROFILER_SEND_WAIT] = DF_PROXY_SEND_NET,
		[DF_PROFILER_RECV_WAIT] = DF_PROXY_RECV_NET,
		[DF_PROFILER_RECV_FLUSH_WAIT] = DF_PROXY_RECV_FLUSH,
		[DF_PROFILER_RECV_GPU_WAIT] = DF_PROXY_RECV_GPU,
		[DF_PROFILER_SEND_PEER_WAIT] = DF_PROXY_SEND_PEER,
	};
	struct proxy *p = proxy_of(step);
	uint8_t *at = p ? &p->at[df_profiler_handle_part(step)] : NULL;

	/* NCCL repeats a state while it waits in it, so that is no move. */
	if (!p || state < 0 || (size_t)state >= sizeof(places) || !places[state] ||
	    *at == places[state])
		return;
	PUT(at, places[state]);
	moved(p);
}

void df_profiler_step_end(uint64_t step)
{
	struct proxy *p = proxy_of(step);

	if (!p)
		return;
	PUT(&p->ended, p->ended + 1);
	moved(p);
}

uint64_t df_profiler_proxy_moves(unsigned *live)
{
	uint64_t sum = moves_before, handle;

	*live = 0;
	for (uint32_t i = 0; i < proxies.nr; i++) {
		const struct proxy *p = df_profiler_at(&proxies, i, &handle);

		if (!p)
			continue;
		/* NCCL need not report the end of a proxy that works for another process. */
		*live += p->comm != 0;
		sum += GET(&p->moves);
	}
	return sum;
}

unsigned df_profiler_proxy_note(uint64_t since_ns, uint32_t batch)
{
	uint64_t handle, now = df_now_ns(), ms;
	unsigned nr = 0;

	for (uint32_t i = 0; i < proxies.nr && nr < NOTES; i++) {
		const struct proxy *p = df_profiler_at(&proxies, i, &handle);
		uint32_t step;

		if (!p || GET(&p->moved_ns) > since_ns)
			continue;
		nr++;
		if (!batch)
			continue;
		step = GET(&p->ended);
		ms = (now - GET(&p->moved_ns)) / DF_NS_PER_MS;
		df_profiler_put(DF_REC_PROXY, p->comm, p->rank, p->serial,
				(GET(&p->begun) > step ? GET(&p->at[step % SLOTS]) : 0u) |
					(uint64_t)(p->is_send != 0) << 8 |
					(uint64_t)p->channel << 16 | (uint64_t)batch << 32,
				(uint32_t)p->peer | (uint64_t)step << 32,
				(uint32_t)p->steps | ms << 32, 0);
	}
	/* If no proxy is recorded, this record makes the earlier ones void. */
	if (!nr && batch)
		df_profiler_put(DF_REC_PROXY, 0, -1, 0, (uint64_t)batch << 32, 0, 0, 0);
	return nr;
}
