/*
 * Keeps, for each device, the operations that streams wait for (waits.h). Every wait of a stream
 * for an operation is enqueued here.
 */
#include "runtime/order/waits.h"

#include "runtime/backend.h"
#include "runtime/executor.h"
#include "runtime/base/err.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/comm/flights.h"
#include "runtime/order/stream.h"
#include "runtime/order/sync.h"

#define NAP_NS (20 * DF_NS_PER_US)

/*
 * Number of hardware queues that a GPU has for streams. A stream that waits occupies its queue, and
 * the executor needs some (struct df_executor.waiting_streams; measured by
 * tests/gpu/litmus_queues.cu).
 */
#define QUEUES	 32
#define CROWD_NS DF_NS_PER_S /* maximum time that one more stream is kept from waiting */

/* A stream that waits, and the operations that it waits for. */
struct waiter {
	struct df_mstream *on;
	struct df_flights set;
};

struct waits {
	struct df_flights set;
	struct waiter waiters[QUEUES];
	uint32_t nr_waiters;
	/* when the limit of waiting streams was reached; 0 if it is not reached */
	uint64_t full;
	uint32_t putting; /* number of threads that are making a stream wait */
	uint32_t stopped; /* number of threads between df_waits_stop() and df_waits_go() */
};

/*
 * Devices whose numbers are equal modulo 64 share an entry; then a call waits for the streams of
 * both.
 */
static struct waits of[64];
static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_LEAF, "waits");

static struct waits *waits_of(int device)
{
	return &of[(unsigned int)device % DF_ARRAY_LEN(of)];
}

/* Adds an operation to a set. The caller holds the lock. */
static void add(struct df_flights *set, const struct df_flight *f)
{
	if (df_flights_add(set, f))
		df_warn_once(
			"out of memory: the driver may block while streams wait for collectives");
}

/*
 * Returns the stream's entry, or NULL if the stream is not counted as waiting. The caller holds the
 * lock.
 */
static struct waiter *waiter_of(struct waits *w, const struct df_mstream *on)
{
	uint32_t i;

	for (i = 0; i < w->nr_waiters && w->waiters[i].on != on; i++)
		;
	return i < w->nr_waiters ? &w->waiters[i] : NULL;
}

/*
 * Returns an entry for one more stream, or NULL if `most` streams wait. The caller holds the
 * lock.
 */
static struct waiter *waiter_new(struct waits *w, struct df_mstream *on, uint32_t most)
{
	uint32_t i;

	for (i = 0; i < w->nr_waiters;) {
		if (!df_flights_done(&w->waiters[i].set)) {
			i++;
			continue;
		}
		df_flights_free(&w->waiters[i].set);
		w->waiters[i] = w->waiters[--w->nr_waiters];
	}
	if (i >= DF_MIN(most, QUEUES))
		return NULL;
	w->full = 0;
	w->waiters[i] = (struct waiter){.on = on};
	return &w->waiters[w->nr_waiters++];
}

/*
 * Keeps hardware queues of the GPU free for the executor: a stream that would take one of them must
 * not wait until the wait of another stream has ended. After CROWD_NS it may, because the other
 * waits may depend on what this thread does next. Returns 1 if the stream may wait; *own is its
 * entry, or NULL if the stream is not counted. The caller holds the lock.
 */
static int may_wait(struct waits *w, int device, struct df_mstream *on, struct waiter **own)
{
	uint32_t most = df_executor->waiting_streams();
	uint64_t now;

	*own = NULL;
	if (!most)
		return 1;
	*own = waiter_of(w, on);
	if (!*own)
		*own = waiter_new(w, on, most);
	if (*own)
		return 1;
	now = df_now_ns();
	if (!w->full)
		w->full = now;
	if (now - w->full < CROWD_NS)
		return 0;
	df_warn_once(
		"more than %u streams of device %d wait for collectives, and a GPU has %d hardware queues: "
		"what is launched from now on may stand behind a stream that waits, and the job may "
		"hang. Use fewer streams for collectives at a time",
		most, device, QUEUES);
	return 1;
}

int df_waits_put(int device, struct df_mstream *on, const struct df_flight *v, uint32_t nr)
{
	struct waits *w = waits_of(device);
	struct waiter *own;
	uint32_t i;
	int ret = 0;

	df_mutex_lock(&lock);
	/*
	 * This loop ends, because the thread that has stopped waits does not depend on this
	 * thread.
	 */
	while (w->stopped || !may_wait(w, device, on, &own)) {
		df_mutex_unlock(&lock);
		df_sleep_ns(NAP_NS);
		df_mutex_lock(&lock);
	}
	for (i = 0; i < nr; i++) {
		add(&w->set, &v[i]);
		if (own)
			add(&own->set, &v[i]);
	}
	w->putting++;
	df_mutex_unlock(&lock);
	for (i = 0; i < nr; i++) {
		int err = df_executor->stream_wait(on, v[i].done, v[i].value);

		ret = ret ? ret : err;
	}
	df_mutex_lock(&lock);
	w->putting--;
	df_mutex_unlock(&lock);
	return ret;
}

void df_waits_note(int device, const struct df_flight *f)
{
	df_mutex_lock(&lock);
	add(&waits_of(device)->set, f);
	df_mutex_unlock(&lock);
}

/*
 * Iterates over the entry of the device, or over all entries if `device` is -1. Starts if `w` is
 * NULL. Returns NULL at the end.
 */
static struct waits *next_of(int device, struct waits *w)
{
	if (!w)
		return device < 0 ? of : waits_of(device);
	return device < 0 && w + 1 < of + DF_ARRAY_LEN(of) ? w + 1 : NULL;
}

int df_waits_stop(int device, int wait)
{
	struct df_dev *dev = device < 0 ? NULL : df_stream_dev(device);
	struct df_flights now = {0};
	struct waits *w;
	int none;

	for (;;) {
		df_mutex_lock(&lock);
		for (none = 1, w = NULL; (w = next_of(device, w));) {
			df_flights_prune(&w->set);
			none &= !w->set.nr && !w->putting;
			if (wait && df_flights_join(&now, &w->set))
				df_warn_once("out of memory: cannot wait for collectives");
		}
		for (w = NULL; none && (w = next_of(device, w));)
			w->stopped++;
		df_mutex_unlock(&lock);
		if (none || !wait)
			break;
		if (dev && now.nr)
			df_sync_set(dev, &now);
		else
			df_sleep_ns(NAP_NS);
		df_flights_prune(&now);
	}
	df_flights_free(&now);
	return none;
}

void df_waits_go(int device)
{
	struct waits *w = NULL;

	df_mutex_lock(&lock);
	while ((w = next_of(device, w)))
		w->stopped--;
	df_mutex_unlock(&lock);
}
