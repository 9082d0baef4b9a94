/*
 * Executes launches by the rules of NCCL and of a GPU:
 *
 * - a launch starts when all its streams have reached it and the communicator's previous launch is
 *   finished; - each of its CTAs then needs an SM of its device and keeps it until the launch ends:
 *   there is no
 *   preemption. A free SM goes to the launch that was issued first, even if that has to wait for
 *   more SMs, and its CTAs wait for one another; - its streams continue when it is finished.
 *
 * One thread does this for all ranks of the process, in passes, so a waiting launch occupies no
 * thread. The thread sleeps while there are no launches; while launches wait for streams or other
 * processes, it polls them at growing intervals.
 *
 * Threads: launches arrive in the inbox, under its lock. Everything else belongs to the engine's
 * thread, which holds the lock of the pass during a pass. Lock order: pass, inbox.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include "interpose/hostnccl/hn.h"
#include "runtime/base/env.h"
#include "runtime/base/futex.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"

/* A nap makes the other ranks wait and nap, too: large operations would take twice as long. */
#define SPINS	 200
#define NAP_NS	 20000
#define MAX_NAPS 7 /* maximum number of doublings of a nap */
#define DEVICES	 1024

/* libdfhost.so, whose memory this library uses, prints the warnings. */
__attribute__((constructor)) static void loaded(void)
{
	df_env_quiet();
}

struct queue {
	struct df_hn_launch *first, **last;
};

static struct {
	pthread_mutex_t lock;
	struct queue inbox;
	int started;
	uint32_t given; /* futex word; changes when launches have arrived */
} in = {.lock = PTHREAD_MUTEX_INITIALIZER, .inbox = {NULL, &in.inbox.first}};

static pthread_mutex_t pass_lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue all = {NULL, &all.first}; /* in the order of issue */
static int sms_used[DEVICES];

static void append(struct queue *q, struct df_hn_launch *l)
{
	l->next = NULL;
	*q->last = l;
	q->last = &l->next;
}

/* Removes the launch at *p. */
static void take_out(struct queue *q, struct df_hn_launch **p)
{
	struct df_hn_launch *l = *p;

	*p = l->next;
	if (q->last == &l->next)
		q->last = p;
}

static void free_launch(struct df_hn_launch *l)
{
	free(l->ops);
	free(l);
}

static int reached(const struct df_hn_launch *l)
{
	int i;

	if (l->ticket != l->comm->turn)
		return 0;
	for (i = 0; i < l->nr_streams; i++)
		/*
		 * ACQUIRE pairs with the stream's write of the word: without it the effects of its
		 * earlier work might not be visible.
		 */
		if (__atomic_load_n(l->streams[i].word, __ATOMIC_ACQUIRE) < l->streams[i].value)
			return 0;
	return 1;
}

static int sms(void)
{
	const struct df_env *env = df_env();

	return env->host_sms == DF_AUTO ? (int)env->host_slots * DF_HN_CTAS : (int)env->host_sms;
}

/*
 * Gives the launch free SMs. Returns 1 if all its CTAs have one. A launch that needs more than the
 * device has needs all of them.
 */
static int occupy(struct df_hn_launch *l)
{
	int *used = &sms_used[l->comm->device], needs = l->comm->ctas, n = sms() - *used;

	if (needs > sms())
		needs = sms();
	if (n > needs - l->resident)
		n = needs - l->resident;
	l->resident += n;
	*used += n;
	return l->resident == needs;
}

static void start(struct df_hn_launch *l)
{
	int i;

	l->state = DF_HN_RUNS;
	for (i = 0; i < l->nr; i++)
		df_hn_op_begin(&l->ops[i]);
}

/* Makes one attempt with each operation of the launch. Sets *over if all have ended. */
static int step(struct df_hn_launch *l, int *over)
{
	int i, left = 0, moved = 0;

	for (i = 0; i < l->nr; i++) {
		if (!l->ops[i].over)
			moved |= df_hn_op_step(&l->ops[i]);
		left += !l->ops[i].over;
	}
	*over = !left;
	return moved;
}

static void finish(struct df_hn_launch *l)
{
	struct df_hn_comm *c = l->comm;

	sms_used[c->device] -= l->resident;
	c->turn++;
	/*
	 * RELAXED: only stop() of any process (hn_comm.c) reads it, when nothing makes progress any
	 * more.
	 */
	__atomic_store_n(&df_hn_seat(c)->over, c->turn, __ATOMIC_RELAXED);
	/*
	 * RELEASE pairs with the ACQUIRE of a stream's wait: without it the operations' data might
	 * not be visible there.
	 */
	__atomic_store_n(&c->done, c->turn, __ATOMIC_RELEASE);
	df_hn_cuda()->kick(c->device);
	free_launch(l);
}

static void receive(void)
{
	pthread_mutex_lock(&in.lock);
	if (in.inbox.first) {
		*all.last = in.inbox.first;
		all.last = in.inbox.last;
		in.inbox = (struct queue){NULL, &in.inbox.first};
	}
	pthread_mutex_unlock(&in.lock);
}

/* Ends the communicator's launches without executing them. */
static void drop(struct df_hn_comm *c)
{
	struct df_hn_launch *l, **p;

	receive();
	for (p = &all.first; (l = *p);) {
		if (l->comm != c) {
			p = &l->next;
			continue;
		}
		take_out(&all, p);
		sms_used[c->device] -= l->resident;
		free_launch(l);
	}
	/* RELAXED for the reason given in finish(). */
	__atomic_store_n(&df_hn_seat(c)->over, DF_HN_ENDLESS, __ATOMIC_RELAXED);
	/*
	 * RELEASE pairs with the ACQUIRE of a stream's wait: without it later work of the stream
	 * could miss the error.
	 */
	__atomic_store_n(&c->done, DF_HN_ENDLESS, __ATOMIC_RELEASE);
	df_hn_cuda()->kick(c->device);
}

/* Makes a pass over all launches. Returns 1 if data was moved. */
static int pass(void)
{
	struct df_hn_launch *l, **p;
	int moved = 0, over;

	receive();
	for (p = &all.first; (l = *p);) {
		if (df_hn_error(l->comm)) {
			df_hn_tell_stopped();
			/* drop() changes the list, so leave the rest to the next pass. */
			drop(l->comm);
			return 1;
		}
		over = 0;
		if (l->state == DF_HN_RUNS)
			moved |= step(l, &over);
		if (over) {
			take_out(&all, p);
			finish(l);
		} else {
			p = &l->next;
		}
	}
	for (l = all.first; l; l = l->next) {
		if (l->state == DF_HN_QUEUED && reached(l))
			l->state = DF_HN_REACHED;
		if (l->state != DF_HN_REACHED || !occupy(l))
			continue;
		start(l);
		moved = 1;
	}
	return moved;
}

static void *engine(void *arg)
{
	unsigned idle = 0;

	(void)arg;
	prctl(PR_SET_NAME, "nccl-engine");
	for (;;) {
		/*
		 * ACQUIRE pairs with the RELEASE in df_hn_submit(): without it this thread could
		 * sleep although a launch has arrived.
		 */
		uint32_t given = __atomic_load_n(&in.given, __ATOMIC_ACQUIRE);
		int moved, any;

		pthread_mutex_lock(&pass_lock);
		moved = pass();
		any = all.first != NULL;
		pthread_mutex_unlock(&pass_lock);
		if (moved) {
			idle = 0;
		} else if (!any) {
			idle = 0;
			df_futex_wait(&in.given, given, -1, 0);
		} else if (++idle < SPINS) {
			sched_yield();
		} else {
			unsigned naps = idle - SPINS;

			df_futex_wait(&in.given, given,
				      NAP_NS << (naps < MAX_NAPS ? naps : MAX_NAPS), 0);
		}
	}
	return NULL;
}

/* Starts the engine's thread. The caller holds the inbox's lock. */
static void engine_start(void)
{
	if (df_thread_start(NULL, 0, engine, NULL))
		DF_NCCL_WARN("no thread could be started: no operation will end");
	else
		in.started = 1;
}

void df_hn_submit(struct df_hn_launch *l)
{
	pthread_mutex_lock(&in.lock);
	append(&in.inbox, l);
	if (!in.started)
		engine_start();
	pthread_mutex_unlock(&in.lock);
	/* RELEASE pairs with the ACQUIRE in engine(), which says why. */
	__atomic_fetch_add(&in.given, 1, __ATOMIC_RELEASE);
	df_futex_wake(&in.given, 1, 0);
}

void df_hn_drop(struct df_hn_comm *c)
{
	pthread_mutex_lock(&pass_lock);
	drop(c);
	pthread_mutex_unlock(&pass_lock);
}

void df_hn_slot_waits(void (*fn)(struct ncclComm *comm))
{
	struct df_hn_launch *l;

	pthread_mutex_lock(&pass_lock);
	for (l = all.first; l; l = l->next)
		if (l->state == DF_HN_REACHED)
			fn((struct ncclComm *)l->comm);
	pthread_mutex_unlock(&pass_lock);
}

void df_hn_engine_hold(void)
{
	pthread_mutex_lock(&pass_lock);
}

void df_hn_engine_go_on(void)
{
	pthread_mutex_unlock(&pass_lock);
}
