/*
 * Mutexes with a rank. Invariant: a thread takes locks in the order of their ranks. Only debug
 * builds keep the list of held locks, one per thread.
 */
#include "runtime/base/lock.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/base/log.h"

#ifdef DF_DEBUG
#define NR_HELD_MAX 16

static __thread struct {
	const struct df_mutex *lock[NR_HELD_MAX];
	int nr;
} held;

static void check_order(const struct df_mutex *m)
{
	int i;

	for (i = 0; i < held.nr; i++) {
		if (held.lock[i]->rank < m->rank)
			continue;
		df_warn("lock order: '%s' (rank %d) taken while holding '%s' (rank %d)", m->name,
			(int)m->rank, held.lock[i]->name, (int)held.lock[i]->rank);
		abort();
	}
}

void df_lock_none_held(const char *call)
{
	if (!held.nr)
		return;
	df_warn("%s is called while '%s' is held", call, held.lock[held.nr - 1]->name);
	abort();
}

static void note_taken(const struct df_mutex *m)
{
	if (held.nr == NR_HELD_MAX) {
		df_warn("more than %d locks held at '%s'", NR_HELD_MAX, m->name);
		abort();
	}
	held.lock[held.nr++] = m;
}

static void note_released(const struct df_mutex *m)
{
	int i;

	for (i = held.nr - 1; i >= 0; i--) {
		if (held.lock[i] != m)
			continue;
		held.nr--;
		for (; i < held.nr; i++)
			held.lock[i] = held.lock[i + 1];
		return;
	}
	df_warn("'%s' released by a thread that does not hold it", m->name);
	abort();
}
#else
static void check_order(const struct df_mutex *m)
{
	(void)m;
}

static void note_taken(const struct df_mutex *m)
{
	(void)m;
}

static void note_released(const struct df_mutex *m)
{
	(void)m;
}
#endif

void df_mutex_init(struct df_mutex *m, enum df_lock_rank rank, const char *name)
{
	pthread_mutex_init(&m->mutex, NULL);
	m->rank = rank;
	m->name = name;
}

void df_mutex_fini(struct df_mutex *m)
{
	pthread_mutex_destroy(&m->mutex);
}

void df_mutex_lock(struct df_mutex *m)
{
	check_order(m);
	pthread_mutex_lock(&m->mutex);
	note_taken(m);
}

void df_mutex_unlock(struct df_mutex *m)
{
	note_released(m);
	pthread_mutex_unlock(&m->mutex);
}

int df_mutex_trylock(struct df_mutex *m)
{
	if (pthread_mutex_trylock(&m->mutex))
		return 0;
	note_taken(m);
	return 1;
}

void df_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

int df_cond_wait(pthread_cond_t *cond, struct df_mutex *m, int64_t timeout_ns)
{
	struct timespec ts;
	int ret;

	note_released(m);
	if (timeout_ns < 0) {
		ret = pthread_cond_wait(cond, &m->mutex);
	} else {
		clock_gettime(CLOCK_MONOTONIC, &ts);
		ts.tv_sec += (time_t)(timeout_ns / 1000000000);
		ts.tv_nsec += (long)(timeout_ns % 1000000000);
		if (ts.tv_nsec >= 1000000000) {
			ts.tv_sec++;
			ts.tv_nsec -= 1000000000;
		}
		ret = pthread_cond_timedwait(cond, &m->mutex, &ts);
	}
	note_taken(m);
	return ret == ETIMEDOUT ? -ETIMEDOUT : 0;
}
