/*
 * Threads of one rank that wait for one another without a call that a library could record:
 * mutexes, a lock like an interpreter's, conditions, and queues. Part of the interpreter
 * (script.c). A thread that ends releases its locks and wakes all other threads, so that a program
 * ends after it was broken off.
 */
#ifndef DEADLOCK_SCRIPT_THREADS_H
#define DEADLOCK_SCRIPT_THREADS_H

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#define NR_LOCKS 8

static struct between {
	pthread_mutex_t lock[NR_LOCKS], mutex;
	/*
	 * The number of the thread that holds each mutex, plus 1; 0 if no thread does. A thread
	 * compares an entry only with its own number.
	 */
	int held[NR_LOCKS];
	int taken[NR_LOCKS]; /* as `held`, for locks like an interpreter's */
	int signs[NR_LOCKS], ended;
	pthread_cond_t cond;
	sem_t queue[NR_LOCKS];
} between[SC_RANKS];

static void between_init(struct between *b)
{
	pthread_mutex_init(&b->mutex, NULL);
	pthread_cond_init(&b->cond, NULL);
	b->ended = 0;
	for (int i = 0; i < NR_LOCKS; i++) {
		pthread_mutex_init(&b->lock[i], NULL);
		sem_init(&b->queue[i], 0, 0);
		b->held[i] = b->taken[i] = b->signs[i] = 0;
	}
}

/* Waits for at most 5 ms, as CPython does for its lock. The caller holds b->mutex. */
static void look_up(struct between *b)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 5000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_cond_timedwait(&b->cond, &b->mutex, &until);
}

static void between_step(struct between *b, int thread, const struct sc_step *st)
{
	int i = st->object % NR_LOCKS;

	switch (st->kind) {
	case SC_LOCK:
		pthread_mutex_lock(&b->lock[i]);
		__atomic_store_n(&b->held[i], thread + 1, __ATOMIC_RELAXED);
		return;
	case SC_UNLOCK:
		__atomic_store_n(&b->held[i], 0, __ATOMIC_RELAXED);
		pthread_mutex_unlock(&b->lock[i]);
		return;
	case SC_PUT:
		sem_post(&b->queue[i]);
		return;
	case SC_GET:
		while (sem_wait(&b->queue[i]) && errno == EINTR)
			;
		return;
	default:
		break;
	}
	pthread_mutex_lock(&b->mutex);
	switch (st->kind) {
	case SC_GLOCK:
		while (b->taken[i] && !b->ended)
			look_up(b);
		b->taken[i] = thread + 1;
		break;
	case SC_GUNLOCK:
		b->taken[i] = 0;
		break;
	case SC_CSIG:
		b->signs[i] = 1;
		break;
	default:
		while (!b->signs[i] && !b->ended)
			pthread_cond_wait(&b->cond, &b->mutex);
	}
	pthread_cond_broadcast(&b->cond);
	pthread_mutex_unlock(&b->mutex);
}

/* Called when a thread has ended. `broken` means that it ended before its last step. */
static void between_end(struct between *b, int thread, int broken)
{
	pthread_mutex_lock(&b->mutex);
	b->ended |= broken;
	for (int i = 0; i < NR_LOCKS; i++) {
		if (__atomic_load_n(&b->held[i], __ATOMIC_RELAXED) == thread + 1) {
			__atomic_store_n(&b->held[i], 0, __ATOMIC_RELAXED);
			pthread_mutex_unlock(&b->lock[i]);
		}
		if (b->taken[i] == thread + 1)
			b->taken[i] = 0;
		if (broken)
			sem_post(&b->queue[i]);
	}
	pthread_cond_broadcast(&b->cond);
	pthread_mutex_unlock(&b->mutex);
}

#endif
