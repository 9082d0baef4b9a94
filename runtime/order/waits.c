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
#include "runtime/base/vec.h"
#include "runtime/comm/flights.h"
#include "runtime/order/stream.h"
#include "runtime/order/sync.h"

#define NAP_NS (20 * DF_NS_PER_US)

/*
 * A GPU has 32 hardware queues for streams. A stream that waits occupies one, and the executor
 * needs some (struct df_executor.waiting_streams; measured by tests/gpu/litmus_queues.cu).
 */
#define CROWD_NS DF_NS_PER_S /* longest time that one more stream is kept from waiting */

/*
 * A stream that waits, and the operations that it waits for. part: of a graph that is launched on
 * it, which waits in several places at a time; NULL: the stream itself.
 */
struct waiter {
	const struct df_mstream *on, *part;
	struct df_flights set;
};

struct waits {
	struct df_flights set;
	struct waiter *waiters;
	uint32_t nr_waiters, cap_waiters;
	uint64_t full;	  /* when more waited than the executor can bear; 0: they do not */
	uint32_t putting; /* threads that are making a stream wait */
	uint32_t stopped; /* threads between df_waits_stop() and df_waits_go() */
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

/* Returns how many streams wait, and forgets the others. Lock held. */
static uint32_t nr_waiting(struct waits *w)
{
	uint32_t i = 0, nr = w->nr_waiters;

	while (i < nr) {
		if (!df_flights_done(&w->waiters[i].set)) {
			i++;
			continue;
		}
		df_flights_free(&w->waiters[i].set);
		w->waiters[i] = w->waiters[--nr];
	}
	/* RELAXED: see df_waits_collect(). */
	__atomic_store_n(&w->nr_waiters, nr, __ATOMIC_RELAXED);
	return nr;
}

/*
 * Counts the stream as waiting for the operations. Returns 1 if it did not wait before. Lock held.
 */
static int count(struct waits *w, const struct df_mstream *on, const struct df_mstream *part,
		 const struct df_flight *v, uint32_t nr)
{
	uint32_t i, at, all = nr_waiting(w);
	struct waiter *own;

	for (at = 0; at < all && (w->waiters[at].on != on || w->waiters[at].part != part); at++)
		;
	if (at == all && DF_VEC_ROOM(w->waiters, w->cap_waiters, all + 1)) {
		df_warn_once("out of memory: streams that wait for collectives are not counted");
		return 0;
	}
	own = &w->waiters[at];
	if (at == all)
		*own = (struct waiter){.on = on, .part = part};
	for (i = 0; i < nr; i++)
		add(&own->set, &v[i]);
	__atomic_store_n(&w->nr_waiters, DF_MAX(all, at + 1), __ATOMIC_RELAXED);
	return at == all;
}

/*
 * One more stream is about to wait. If the executor does not allow it, returns when another wait
 * has ended, but after CROWD_NS in any case, because the other waits may need what this thread does
 * next. Lock held; dropped meanwhile.
 */
static void make_room(struct waits *w, int device, uint32_t most)
{
	uint64_t now;
	int borne;

	while (nr_waiting(w) > most) {
		df_mutex_unlock(&lock);
		borne = df_executor->crowd(device);
		if (!borne)
			df_sleep_ns(NAP_NS);
		df_mutex_lock(&lock);
		if (borne)
			return;
		now = df_now_ns();
		if (!w->full)
			w->full = now;
		if (now - w->full < CROWD_NS)
			continue;
		df_warn_once("more than %u streams of device %d wait for collectives, and a GPU "
			     "has 32 hardware queues: what is launched from now on may stand "
			     "behind a stream that waits, and the job may hang. Use fewer streams "
			     "for collectives at a time",
			     most, device);
		return;
	}
	w->full = 0;
}

/*
 * Between begin() and end() the stream is made to wait for the operations. No lock is held while
 * begin() waits.
 */
static void begin(int device, const struct df_mstream *on, const struct df_mstream *part,
		  const struct df_flight *v, uint32_t nr)
{
	uint32_t i, most = df_executor->waiting_streams();
	struct waits *w = waits_of(device);

	df_mutex_lock(&lock);
	if (most && nr && count(w, on, part, v, nr))
		make_room(w, device, most);
	/* This loop ends: a call that has stopped waits does not depend on this thread. */
	while (w->stopped) {
		df_mutex_unlock(&lock);
		df_sleep_ns(NAP_NS);
		df_mutex_lock(&lock);
	}
	for (i = 0; i < nr; i++)
		add(&w->set, &v[i]);
	w->putting++;
	df_mutex_unlock(&lock);
}

static void end(int device)
{
	df_mutex_lock(&lock);
	waits_of(device)->putting--;
	df_mutex_unlock(&lock);
}

int df_waits_put(int device, struct df_mstream *on, const struct df_flight *v, uint32_t nr)
{
	uint32_t i;
	int ret = 0;

	begin(device, on, NULL, v, nr);
	for (i = 0; i < nr; i++) {
		int err = df_backend->stream_wait(on, v[i].done, v[i].value);

		ret = ret ? ret : err;
	}
	end(device);
	return ret;
}

int df_waits_word(int device, struct df_mstream *on, const struct df_flights *held,
		  const uint64_t *word, uint64_t value)
{
	int ret;

	if (!held->nr)
		return df_backend->stream_wait(on, word, value);
	begin(device, on, NULL, held->v, held->nr);
	ret = df_backend->stream_wait(on, word, value);
	end(device);
	return ret;
}

void df_waits_note(int device, const struct df_mstream *on, const struct df_mstream *part,
		   const struct df_flight *v, uint32_t nr)
{
	if (!nr)
		return;
	begin(device, on, part, v, nr);
	end(device);
}

void df_waits_collect(int device, const struct df_mstream *on, struct df_flights *out)
{
	struct waits *w = waits_of(device);
	uint32_t i;

	/*
	 * RELAXED: the application orders a thread that relies on another's wait after that wait.
	 */
	if (!on || !__atomic_load_n(&w->nr_waiters, __ATOMIC_RELAXED))
		return;
	df_mutex_lock(&lock);
	for (i = 0; i < w->nr_waiters; i++)
		if (w->waiters[i].on == on && df_flights_join(out, &w->waiters[i].set))
			df_warn_once(
				"out of memory: streams that wait for collectives are not counted");
	df_mutex_unlock(&lock);
}

int df_waits_crowded(int device)
{
	uint32_t nr;

	df_mutex_lock(&lock);
	nr = nr_waiting(waits_of(device));
	df_mutex_unlock(&lock);
	/*
	 * Streams whose wait has just ended keep their queues a while. A launch could then share
	 * the queue of one that still waits, perhaps for that launch.
	 */
	return nr != 0;
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
