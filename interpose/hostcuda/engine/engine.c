/*
 * Executes the operations of streams. Each device has a list of streams with unfinished operations.
 * A thread (the device's engine thread, a thread that synchronises, or the thread that enqueues on
 * an idle stream) takes the first operation of a stream whose condition holds. An operation that
 * must wait is not taken, so no wait occupies a thread, and no stream blocks another, unless NCCL's
 * rules put both on one hardware queue.
 *
 * Entered by every thread. The device's lock guards queues; it is not held while an operation runs,
 * except for those that only touch a word. At most one thread executes a stream at a time.
 */
#include "interpose/hostcuda/code.h"
#include "interpose/hostcuda/internal.h"
#include "runtime/base/thread.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void kick_active(struct df_hdev *but);

/* -- operations -------------------------------------------------------------------------------- */

size_t df_hop_bytes(const struct df_hop *op)
{
	switch (op->kind) {
	case DF_HOP_COPY:
		return op->copy.width * op->copy.height * op->copy.depth;
	case DF_HOP_FILL:
		return op->fill.width * op->fill.height * op->fill.depth;
	default:
		return 0;
	}
}

static void fill(const struct df_hop *op)
{
	size_t i, y, z;

	for (z = 0; z < op->fill.depth; z++) {
		for (y = 0; y < op->fill.height; y++) {
			char *row = (char *)op->fill.dst + z * op->fill.slice + y * op->fill.pitch;

			if (op->fill.elem_bytes == 1) {
				memset(row, (int)op->fill.value, op->fill.width);
				continue;
			}
			for (i = 0; i < op->fill.width; i += op->fill.elem_bytes)
				memcpy(row + i, &op->fill.value, op->fill.elem_bytes);
		}
	}
}

/* Asks the test's table whether to skip the operation. */
static int moves(const struct df_hop *op, int after)
{
	if (op->kind == DF_HOP_COPY)
		return df_hcode->moves(after, 0, op->copy.dst, df_hop_bytes(op));
	if (op->kind == DF_HOP_FILL)
		return df_hcode->moves(after, 1, op->fill.dst, df_hop_bytes(op));
	return 0;
}

/* Executes an operation that moves data or may take long; no lock is held. */
static void exec_op(struct df_hop *op)
{
	size_t y, z;

	if (df_hcode && df_hcode->moves && moves(op, 0))
		return;
	switch (op->kind) {
	case DF_HOP_COPY:
		for (z = 0; z < op->copy.depth; z++)
			for (y = 0; y < op->copy.height; y++)
				memmove((char *)op->copy.dst + z * op->copy.dst_slice +
						y * op->copy.dst_pitch,
					(const char *)op->copy.src + z * op->copy.src_slice +
						y * op->copy.src_pitch,
					op->copy.width);
		free(op->copy.stage);
		break;
	case DF_HOP_FILL:
		fill(op);
		break;
	case DF_HOP_FREE:
		df_hmem_free(op->ptr);
		break;
	case DF_HOP_CALL:
		op->call.fn(op->call.arg);
		break;
	default:
		break;
	}
	if (df_hcode && df_hcode->moves)
		moves(op, 1);
}

void df_hop_drop(struct df_hop *op)
{
	if (op->kind == DF_HOP_COPY)
		free(op->copy.stage);
}

static int instant(const struct df_hop *op)
{
	return op->kind == DF_HOP_MARK || op->kind == DF_HOP_WRITE || op->kind == DF_HOP_WAIT ||
	       op->kind == DF_HOP_POINT || op->kind == DF_HOP_KERNEL;
}

int df_hop_word_is(const struct df_hop *op)
{
	uint64_t have, want = op->word.value;
	int wide = !(op->word.how & DF_HWORD_32);

	/*
	 * ACQUIRE pairs with the RELEASE of the word's writer (the daemon, or a DF_HOP_WRITE):
	 * without it later operations of the stream could miss data that were written before the
	 * word.
	 */
	have = wide ? __atomic_load_n(op->word.addr, __ATOMIC_ACQUIRE)
		    : __atomic_load_n((uint32_t *)op->word.addr, __ATOMIC_ACQUIRE);
	switch (op->word.how & DF_HWORD_TEST) {
	case 0:
		return wide ? (int64_t)(have - want) >= 0
			    : (int32_t)((uint32_t)have - (uint32_t)want) >= 0;
	case 1:
		return have == want;
	case 2:
		return (have & want) != 0;
	default:
		return (have | want) != (wide ? UINT64_MAX : UINT32_MAX);
	}
}

/*
 * Whether this first operation of a stream keeps the stream's hardware queue waiting: for a word,
 * or for another stream.
 */
static int holds(const struct df_hop *head)
{
	return head->kind == DF_HOP_WAIT    ? !df_hop_word_is(head)
	       : head->kind == DF_HOP_POINT ? !df_hpoint_done(head->point)
					    : 0;
}

/*
 * Whether a stream on the same hardware queue waits with an operation that was put on the queue
 * before `op`. Lock held.
 */
static int behind_wait(struct df_hstream *s, const struct df_hop *op)
{
	struct df_hstream *t;

	df_list_each(t, &df_hdev(s->device)->active, active)
	{
		if (t != s && t->queue == s->queue && t->head && !t->busy &&
		    t->head->ticket < op->ticket && holds(t->head))
			return 1;
	}
	return 0;
}

static int ready(struct df_hstream *s, const struct df_hop *op)
{
	struct df_hstream *t;

	if (s->queue && (df_hcode ? behind_wait(s, op) : op->ticket != s->queue->started))
		return 0;
	if (op->kind == DF_HOP_WAIT)
		return df_hop_word_is(op);
	if (op->kind != DF_HOP_POINT || df_hpoint_done(op->point))
		return 1;
	t = df_hpoint_stream(op->point);
	if (t->device == s->device)
		return 0;
	/*
	 * SEQ_CST pairs with the SEQ_CST store of completed and load of watched in complete():
	 * without it both sides could miss the other's store, and no thread would wake this device.
	 */
	__atomic_store_n(&t->watched, 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&t->completed, __ATOMIC_SEQ_CST) >= (op->point & DF_H_POINT_SEQ);
}

/* -- wake-ups ---------------------------------------------------------------------------------- */

void df_hwake_engine(struct df_hdev *dev)
{
	/*
	 * SEQ_CST pairs with engine(): it announces its sleep before it checks work again, and we
	 * change work before we check for a sleeper. Without the total order a wake-up could be
	 * lost.
	 */
	__atomic_fetch_add(&dev->work, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&dev->engine_sleeps, __ATOMIC_SEQ_CST))
		df_futex_wake(&dev->work, 1, 0);
}

static void wake_waiters(struct df_hdev *dev)
{
	/* SEQ_CST pairs with wait_until(), for the reason given in df_hwake_engine(). */
	__atomic_fetch_add(&dev->done, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&dev->sleepers, __ATOMIC_SEQ_CST))
		df_futex_wake(&dev->done, INT_MAX, 0);
}

void df_hdev_kick(struct df_hdev *dev)
{
	/*
	 * SEQ_CST pairs with append(): either we see the wait for a word, or the thread that added
	 * it sees the word's present value. Without it the stream would sleep although its word is
	 * there. The check saves more than a small collective costs: it wakes no threads that wait
	 * for no word.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&dev->nr_words, __ATOMIC_RELAXED))
		return;
	df_hwake_engine(dev);
	wake_waiters(dev);
}

/*
 * Wakes the engines of all busy devices but one, because a word or a stream has changed for which
 * their operations may wait.
 */
static void kick_active(struct df_hdev *but)
{
	int i;

	for (i = 0; i < df_h.nr_devices; i++) {
		struct df_hdev *dev = df_hdev(i);

		/* RELAXED: a device that gets work a moment later checks the words itself. */
		if (dev && dev != but && __atomic_load_n(&dev->nr_active, __ATOMIC_RELAXED)) {
			df_hwake_engine(dev);
			wake_waiters(dev);
		}
	}
}

/* -- running ----------------------------------------------------------------------------------- */

/* Wake-ups that are due after the lock is released. */
struct after {
	int wrote;    /* an operation wrote a word, for which any thread may wait */
	int finished; /* an operation has finished */
	int watched;
};

/* Frees an operation that has been executed, and counts it as completed. Lock held. */
static void complete(struct df_hdev *dev, struct df_hstream *s, struct df_hop *op,
		     struct after *after)
{
	op->next = dev->ops;
	dev->ops = op;
	s->busy = 0;
	after->finished++;
	/*
	 * SEQ_CST pairs with df_hpoint_done() as a release, for the reason given there. It also
	 * pairs with ready(), which sets watched before it looks at completed again.
	 */
	__atomic_store_n(&s->completed, s->completed + 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&s->watched, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(&s->watched, 0, __ATOMIC_RELAXED);
		after->watched = 1;
	}
	/*
	 * RELEASE pairs with the ACQUIRE in df_hstream_idle(): without it a thread could find the
	 * legacy stream idle but not see what the last operation wrote.
	 */
	if (s->blocking || s->legacy)
		__atomic_fetch_sub(&dev->nr_blocking, 1, __ATOMIC_RELEASE);
	if (op->kind == DF_HOP_WAIT)
		__atomic_fetch_sub(&dev->nr_words, 1, __ATOMIC_RELAXED);
	if (s->head)
		return;
	df_hstream_queue(dev, s, 0);
	df_list_del(&s->active);
	/* RELEASE pairs with the ACQUIRE in has_work(), for the same reason. */
	__atomic_fetch_sub(&dev->nr_active, 1, __ATOMIC_RELEASE);
	if (s->dying)
		df_hstream_retire(dev, s);
}

/* Takes the stream's first operation and executes it. Lock held; released while it runs. */
static void run_one(struct df_hdev *dev, struct df_hstream *s, struct after *after)
{
	struct df_hop *op = s->head;

	s->head = op->next;
	if (!s->head)
		s->tail = NULL;
	s->busy = 1;
	if (s->queue)
		s->queue->started++;
	if (op->kind == DF_HOP_HOST || op->kind == DF_HOP_CALLBACK) {
		if (df_hostfn_start(s, op) == 0)
			return;
		df_warn_once("host CUDA: no thread for a host function; it is called on a "
			     "stream's own thread");
		df_mutex_unlock(&dev->lock);
		df_hstream_host_call(s, op);
		df_mutex_lock(&dev->lock);
		return;
	}
	if (op->kind == DF_HOP_WRITE) {
		/*
		 * RELEASE pairs with the ACQUIRE of the daemon's load of a ready word and with
		 * ready(): without it they could miss the stream's earlier work.
		 */
		if (op->word.how & DF_HWORD_32)
			__atomic_store_n((uint32_t *)op->word.addr, (uint32_t)op->word.value,
					 __ATOMIC_RELEASE);
		else
			__atomic_store_n(op->word.addr, op->word.value, __ATOMIC_RELEASE);
		after->wrote = 1;
	} else if (op->kind == DF_HOP_MARK && op->mark.event) {
		df_hevent_stamp(op->mark.event, op->mark.record);
	}
	if (!instant(op)) {
		df_mutex_unlock(&dev->lock);
		exec_op(op);
		df_mutex_lock(&dev->lock);
	}
	complete(dev, s, op, after);
}

static void settle(struct df_hdev *dev, const struct after *after, int is_engine)
{
	if (!after->finished && !after->wrote)
		return;
	/*
	 * RELAXED loads: a superfluous wake-up does no harm, and a needed one follows our own
	 * stores.
	 */
	if (after->finished)
		wake_waiters(dev);
	if (!is_engine && __atomic_load_n(&dev->nr_active, __ATOMIC_RELAXED))
		df_hwake_engine(dev);
	if (after->wrote || after->watched)
		kick_active(dev);
}

int df_hrun_stream(struct df_hdev *dev, struct df_hstream *s, size_t max_bytes)
{
	struct after after = {0};
	int n = 0;

	df_mutex_lock(&dev->lock);
	while (!s->busy && s->head && df_hop_bytes(s->head) <= max_bytes && ready(s, s->head)) {
		run_one(dev, s, &after);
		n++;
	}
	df_mutex_unlock(&dev->lock);
	settle(dev, &after, 0);
	return n;
}

int df_hrun_device(struct df_hdev *dev, size_t max_bytes, int is_engine, int *word)
{
	struct after after = {0};
	struct df_hstream *s;
	int n = 0, again;

	df_mutex_lock(&dev->lock);
	do {
		again = 0;
		*word = 0;
		df_list_each(s, &dev->active, active)
		{
			if (s->busy || !s->head)
				continue;
			if (df_hop_bytes(s->head) > max_bytes)
				continue;
			if (!ready(s, s->head)) {
				*word |= s->head->kind == DF_HOP_WAIT;
				continue;
			}
			/* Begin the next search after this stream. The list may have changed. */
			df_list_del(&s->active);
			df_list_add_tail(&dev->active, &s->active);
			run_one(dev, s, &after);
			n++;
			again = 1;
			break;
		}
	} while (again);
	df_mutex_unlock(&dev->lock);
	settle(dev, &after, is_engine);
	return n;
}

struct host_call {
	struct df_hstream *stream;
	struct df_hop *op;
	int users;
};

static void host_done(void *arg)
{
	struct host_call *call = arg;
	struct df_hdev *dev = df_hdev(call->stream->device);
	struct after after = {0};

	if (call->users)
		df_hcode->host(0);
	df_htls.in_host_fn--;
	df_mutex_lock(&dev->lock);
	complete(dev, call->stream, call->op, &after);
	df_mutex_unlock(&dev->lock);
	settle(dev, &after, 0);
}

void df_hstream_host_call(struct df_hstream *s, struct df_hop *op)
{
	struct host_call call = {
		s, op,
		df_hcode && df_hcode->host &&
			!(op->kind == DF_HOP_HOST && op->host.fn == df_hcode->run)};

	df_htls.in_host_fn++;
	if (call.users)
		df_hcode->host(1);
	/*
	 * The function may end its thread: at its end, Python does that to threads that enter it.
	 * The stream continues.
	 */
	pthread_cleanup_push(host_done, &call);
	if (op->kind == DF_HOP_HOST)
		op->host.fn(op->host.arg);
	else
		op->callback.fn(op->callback.stream, cudaSuccess, op->callback.arg);
	pthread_cleanup_pop(1);
}

/* -- the engine thread ------------------------------------------------------------------------- */

static void *engine(void *arg)
{
	struct df_hdev *dev = arg;
	int64_t sleep_ns = DF_H_SLEEP_MIN_NS, bound;
	uint32_t gen;
	int word;

	for (;;) {
		/*
		 * ACQUIRE pairs with df_hwake_engine(): without it data that was written before the
		 * change could be missed below.
		 */
		gen = __atomic_load_n(&dev->work, __ATOMIC_ACQUIRE);
		if (df_hrun_device(dev, SIZE_MAX, 1, &word)) {
			sleep_ns = DF_H_SLEEP_MIN_NS;
			continue;
		}
		/* Poll, because the writer of a word does not always call kick(). */
		bound = word ? sleep_ns : -1;
		if (word && sleep_ns < (int64_t)DF_H_SLEEP_MAX_NS)
			sleep_ns *= 2;
		/* SEQ_CST, both: pairs with df_hwake_engine(), which says why. */
		__atomic_store_n(&dev->engine_sleeps, 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&dev->work, __ATOMIC_SEQ_CST) == gen &&
		    df_futex_wait(&dev->work, gen, bound, 0) == 0)
			sleep_ns = DF_H_SLEEP_MIN_NS;
		__atomic_store_n(&dev->engine_sleeps, 0, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Lock held. */
static int engine_start(struct df_hdev *dev)
{
	int ret;

	if (dev->engine_started)
		return 0;
	ret = df_thread_start("df-host-engine", 512 << 10, engine, dev);
	dev->engine_started = !ret;
	return ret;
}

/* -- enqueueing -------------------------------------------------------------------------------- */

/* Lock held. */
static int append(struct df_hdev *dev, struct df_hstream *s, const struct df_hop *from)
{
	struct df_hop *op = dev->ops;

	if (op) {
		dev->ops = op->next;
	} else {
		op = malloc(sizeof(*op));
		if (!op)
			return -ENOMEM;
	}
	*op = *from;
	op->next = NULL;
	df_hstream_queue(dev, s, 1);
	if (s->queue)
		op->ticket = s->queue->next++;
	if (op->kind == DF_HOP_WAIT) {
		__atomic_fetch_add(&dev->nr_words, 1, __ATOMIC_RELAXED);
		/* SEQ_CST pairs with df_hdev_kick(): the word is read only after this. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	}
	if (s->tail)
		s->tail->next = op;
	else
		s->head = op;
	s->tail = op;
	if (df_list_empty(&s->active)) {
		df_list_add_tail(&dev->active, &s->active);
		__atomic_fetch_add(&dev->nr_active, 1, __ATOMIC_RELAXED);
	}
	/* RELAXED: the application orders readers in other threads with this operation. */
	__atomic_store_n(&s->submitted, s->submitted + 1, __ATOMIC_RELAXED);
	if (s->blocking || s->legacy)
		__atomic_fetch_add(&dev->nr_blocking, 1, __ATOMIC_RELAXED);
	return 0;
}

/* Adds the waits that the legacy stream's rules require before an operation of s. Lock held. */
static int append_legacy_waits(struct df_hdev *dev, struct df_hstream *s)
{
	struct df_hop op = {.kind = DF_HOP_POINT};
	struct df_hstream *t = dev->legacy;
	int err;

	if (s->blocking && t->submitted > s->legacy_seen) {
		s->legacy_seen = t->submitted;
		op.point = df_hstream_tail(t);
		return df_hpoint_done(op.point) ? 0 : append(dev, s, &op);
	}
	if (!s->legacy || !__atomic_load_n(&dev->nr_blocking, __ATOMIC_RELAXED))
		return 0;
	df_list_each(t, &dev->streams, all)
	{
		if (!t->blocking)
			continue;
		op.point = df_hstream_tail(t);
		if (df_hpoint_done(op.point))
			continue;
		err = append(dev, s, &op);
		if (err)
			return err;
	}
	return 0;
}

int df_hstream_put(struct df_hstream *s, const struct df_hop *op, df_hpoint *end)
{
	struct df_hdev *dev = df_hdev(s->device);
	int err, was_idle, engine_needed;

	df_mutex_lock(&dev->lock);
	was_idle = !s->head && !s->busy;
	err = append_legacy_waits(dev, s);
	if (!err)
		err = append(dev, s, op);
	if (!err && end)
		*end = df_hstream_tail(s);
	df_mutex_unlock(&dev->lock);
	if (err)
		return err;
	if (was_idle && !(df_hcode && df_hcode->later))
		df_hrun_stream(dev, s, DF_H_INLINE_BYTES);
	/*
	 * The engine knows of a stream that was not idle, and the operation cannot begin before the
	 * earlier ones end. RELAXED: this thread can only see a count that is too high.
	 */
	engine_needed = was_idle && __atomic_load_n(&dev->nr_active, __ATOMIC_RELAXED) != 0;
	if (engine_needed) {
		df_mutex_lock(&dev->lock);
		if (!dev->engine_started)
			err = engine_start(dev);
		df_mutex_unlock(&dev->lock);
		if (err)
			df_warn_once(
				"host CUDA: no thread for the engine of device %d; streams move "
				"only while a thread synchronises",
				dev->index);
		df_hwake_engine(dev);
	}
	return 0;
}
