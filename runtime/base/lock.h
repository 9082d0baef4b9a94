/*
 * Mutexes with a rank, and a one-word try-lock.
 *
 * A thread may take a lock only if its rank is higher than that of every lock it holds, so no set
 * of threads can wait for one another in a cycle. Debug builds (DF_DEBUG, on with the sanitizers)
 * check this at each lock and abort with both names. No lock is held across a call that can block
 * on a peer or in a driver, because such a call may never return; df_lock_none_held() checks that.
 */
#ifndef DF_BASE_LOCK_H
#define DF_BASE_LOCK_H

#include <pthread.h>
#include <stdint.h>

/* Locks are taken in this order, outermost first. Locks of one rank are never nested. */
enum df_lock_rank {
	DF_RANK_PROCESS = 1,  /* start and end of the library, fork */
	DF_RANK_GROUP,	      /* a group of NCCL calls */
	DF_RANK_COMM_TABLE,   /* the communicators of the process */
	DF_RANK_COMM,	      /* one communicator */
	DF_RANK_STREAM_TABLE, /* the user's streams and events */
	DF_RANK_DEVICE,	      /* one device's daemon: submission, launch, quit */
	DF_RANK_WATCHDOG,
	DF_RANK_CTL,		/* control plane */
	DF_RANK_REAP,		/* connectors that wait to be closed */
	DF_RANK_TRANSPORT,	/* one transport */
	DF_RANK_CONNECTOR,	/* connectors and mailboxes */
	DF_RANK_ARENA,		/* memory of connectors */
	DF_RANK_HOSTCUDA_TABLE, /* the CUDA runtime on the CPU: tables of objects */
	DF_RANK_HOSTCUDA,	/* ... one object of it */
	DF_RANK_LEAF,		/* no lock is taken while it is held */
	DF_RANK_NR
};

struct df_mutex {
	pthread_mutex_t mutex;
	enum df_lock_rank rank;
	const char *name;
};

#define DF_MUTEX_INIT(rank_, name_)                                                                \
	{                                                                                          \
		PTHREAD_MUTEX_INITIALIZER, rank_, name_                                            \
	}

/* name: a string that outlives the mutex. */
void df_mutex_init(struct df_mutex *m, enum df_lock_rank rank, const char *name);
void df_mutex_fini(struct df_mutex *m);
void df_mutex_lock(struct df_mutex *m);
void df_mutex_unlock(struct df_mutex *m);

/*
 * Call before anything that may block: debug builds abort if this thread holds a lock, and name
 * both.
 */
#ifdef DF_DEBUG
void df_lock_none_held(const char *call);
#else
static inline void df_lock_none_held(const char *call)
{
	(void)call;
}
#endif

/*
 * Returns 1 if it took the lock, 0 if it is held. Never blocks, so it is exempt from the order of
 * ranks.
 */
int df_mutex_trylock(struct df_mutex *m);

/*
 * Releases the mutex while it waits. Returns 0 or -ETIMEDOUT; the caller checks its own condition
 * in a loop.
 */
int df_cond_wait(pthread_cond_t *cond, struct df_mutex *m, int64_t timeout_ns);

/* Initialises a condition on the monotonic clock, which df_cond_wait() requires. */
void df_cond_init(pthread_cond_t *cond);

/* Call in loops that poll a word which another thread is about to write. */
static inline void df_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* A lock of one word, 0 when free, for sections that a second thread may skip. */
struct df_trylock {
	uint32_t held;
};

/* Returns 1 if it took the lock, 0 if it is held. */
static inline int df_trylock_try(struct df_trylock *l)
{
	uint32_t none = 0;

	/*
	 * ACQUIRE pairs with the RELEASE in df_trylock_release(): without it this thread could see
	 * the guarded data as they were before the last holder's changes. A compare-exchange,
	 * because a holder may have stored 2 to say that others sleep (df_block_take()), and that
	 * must not be overwritten.
	 */
	return !__atomic_load_n(&l->held, __ATOMIC_RELAXED) &&
	       __atomic_compare_exchange_n(&l->held, &none, 1, 0, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

static inline void df_trylock_release(struct df_trylock *l)
{
	/*
	 * RELEASE pairs with the ACQUIRE in df_trylock_try(): our changes become visible before the
	 * 0.
	 */
	__atomic_store_n(&l->held, 0, __ATOMIC_RELEASE);
}

#endif
