/*
 * Links between emulated nodes (DFSHIM_HOST_NODE_DEVICES): the host backend's devices are grouped into nodes,
 * and what goes from one to another takes as long as a network would. A wire is spliced into the sender's end
 * of a connector: the daemon writes the slot itself, but the counter that it advances is the wire's, and the
 * connector's own follows when the slice would have arrived. Credits are not delayed.
 *
 * Each device has one link out. A slice occupies it for a fixed time and for its bytes, one slice after the
 * other; after that it is under way for the latency. So many small messages cost more than few large ones,
 * which is what hierarchical programs are about.
 *
 * Nothing waits here: every pass of the engine looks at the wires. An end that goes away delivers at once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/abi.h"
#include "runtime/backend.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/time.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/wire.h"
#include "runtime/comm/process.h"
#include "runtime/transport/bell.h"

struct df_wire {
	struct df_list node;
	uint64_t *arrived;     /* the connector's counter */
	struct df_bell *bell;  /* of the receiver */
	uint64_t *link;	       /* when the sender's link is free */
	uint64_t slice_ns;     /* how long a slice occupies it */
	uint64_t seen, passed; /* slices put on the link, and delivered */
	uint64_t *due;	       /* by slice modulo nr_slots */
	uint32_t nr_slots;
	/* The daemon's counter, on a line of its own. */
	uint64_t tail __attribute__((aligned(64)));
};

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_CONNECTOR, "wires");
static struct df_list wires = DF_LIST_INIT(wires);
static uint64_t *links; /* by device */
static uint32_t nr_wires;
static uint32_t under_way; /* slices were on a wire at the last look; read without the lock */

uint64_t df_wire_node(uint64_t host, int device)
{
	long per = df_env()->host_node_devices;

	if (per == DF_AUTO || df_backend->gpu)
		return host;
	return df_hash_u64(host, (uint64_t)(device / per) + 1);
}

int df_wire_splice(struct df_cend *end, int device, uint64_t slice_bytes)
{
	const struct df_env *env = df_env();
	struct df_wire *w;

	w = aligned_alloc(64, sizeof(*w));
	if (!w)
		return -ENOMEM;
	memset(w, 0, sizeof(*w));
	w->nr_slots = end->k->nr_slots;
	w->due = calloc(w->nr_slots, sizeof(*w->due));
	df_mutex_lock(&lock);
	if (!links)
		links = calloc((size_t)df_rt.nr_devs, sizeof(*links));
	if (!w->due || !links) {
		df_mutex_unlock(&lock);
		free(w->due);
		free(w);
		return -ENOMEM;
	}
	w->arrived = end->k->tail;
	w->bell = end->k->bell;
	w->link = &links[device];
	w->slice_ns = (uint64_t)env->host_link_message_us * DF_NS_PER_US +
		      slice_bytes * 1000 / (uint64_t)env->host_link_mb;
	/* Relaxed: this end is the counter's only writer, and it has not begun. */
	w->tail = w->seen = w->passed = __atomic_load_n(w->arrived, __ATOMIC_RELAXED);
	end->k->tail = &w->tail;
	end->wire = w;
	df_list_add_tail(&wires, &w->node);
	__atomic_store_n(&nr_wires, nr_wires + 1, __ATOMIC_RELAXED);
	df_mutex_unlock(&lock);
	return 0;
}

static void deliver(struct df_wire *w, uint64_t upto)
{
	w->passed = upto;
	/*
	 * RELEASE pairs with the ACQUIRE of tail in dfk_task_poll() of the receiver: the slot's bytes, which
	 * we have from the sender by the ACQUIRE in look(), come first.
	 */
	__atomic_store_n(w->arrived, upto, __ATOMIC_RELEASE);
	if (w->bell)
		df_bell_ring(w->bell);
}

void df_wire_unsplice(struct df_cend *end)
{
	struct df_wire *w = end->wire;
	uint64_t tail;

	if (!w)
		return;
	end->wire = NULL;
	df_mutex_lock(&lock);
	df_list_del(&w->node);
	__atomic_store_n(&nr_wires, nr_wires - 1, __ATOMIC_RELAXED);
	/* ACQUIRE pairs with the RELEASE of tail in dfk_commit(): see look(). */
	tail = __atomic_load_n(&w->tail, __ATOMIC_ACQUIRE);
	if (tail != w->passed)
		deliver(w, tail);
	end->k->tail = w->arrived;
	df_mutex_unlock(&lock);
	free(w->due);
	free(w);
}

/* 1 if slices were delivered; *busy: some are under way. */
static int look(struct df_wire *w, uint64_t now, uint32_t *busy)
{
	/*
	 * ACQUIRE pairs with the RELEASE of tail in dfk_commit() of the sender: what it wrote into the slot is
	 * ours to pass on. Without it the receiver could see the counter before the bytes.
	 */
	uint64_t tail = __atomic_load_n(&w->tail, __ATOMIC_ACQUIRE), upto = w->passed;
	uint64_t latency = (uint64_t)df_env()->host_link_us * DF_NS_PER_US;

	for (; w->seen != tail; w->seen++) {
		*w->link = DF_MAX(*w->link, now) + w->slice_ns;
		w->due[w->seen % w->nr_slots] = *w->link + latency;
	}
	while (upto != w->seen && w->due[upto % w->nr_slots] <= now)
		upto++;
	*busy |= upto != w->seen;
	if (upto == w->passed)
		return 0;
	deliver(w, upto);
	return 1;
}

int df_wire_pass(void)
{
	struct df_wire *w;
	uint32_t busy = 0;
	int moved = 0;
	uint64_t now;

	if (df_likely(!__atomic_load_n(&nr_wires, __ATOMIC_RELAXED)))
		return -1;
	df_mutex_lock(&lock);
	now = df_now_ns();
	df_list_each(w, &wires, node) moved |= look(w, now, &busy);
	__atomic_store_n(&under_way, busy, __ATOMIC_RELAXED);
	df_mutex_unlock(&lock);
	return moved;
}

int df_wire_busy(void)
{
	return __atomic_load_n(&nr_wires, __ATOMIC_RELAXED) &&
	       __atomic_load_n(&under_way, __ATOMIC_RELAXED);
}

void df_wire_flush(void)
{
	struct df_wire *w;

	df_mutex_lock(&lock);
	df_list_each(w, &wires, node)
	{
		/* ACQUIRE pairs with the RELEASE of tail in dfk_commit(): see look(). */
		uint64_t tail = __atomic_load_n(&w->tail, __ATOMIC_ACQUIRE);

		w->seen = tail;
		if (tail != w->passed)
			deliver(w, tail);
	}
	__atomic_store_n(&under_way, 0, __ATOMIC_RELAXED);
	df_mutex_unlock(&lock);
}
