/* Functions for the tests of the control plane: joins by many threads, and forked processes. */
#ifndef DF_CTL_TEST_H
#define DF_CTL_TEST_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/rng.h"
#include "runtime/base/time.h"
#include "runtime/ctl/ctl.h"
#include "runtime/ctl/ctl_int.h"
#include "runtime/dfshim.h"
#include "tests/lib/test.h"

/* Arguments and result of a rank's join. */
struct ct_rank {
	pthread_t thread;
	const unsigned char (*ids)[128];
	int nr_ids, nranks, rank;
	uint32_t *stop;
	uint64_t settings;
	uint32_t gpu;
	struct df_ctl_limits limits;
	int device;
	uint64_t node;	 /* with `net`: for a transport between nodes */
	const char *net; /* NULL means none */
	struct df_ctl_comm *comm;
	int ret;
};

/*
 * Writes HOST:PORT of this machine that no other test uses at the same time. All processes of a
 * test get the same address. The loopback network has 2^24 addresses, and each test is a process
 * group (CK_FORK).
 */
static inline void ct_address(char text[64])
{
	unsigned int group = (unsigned int)getpgrp();

	snprintf(text, 64, "127.%u.%u.%u:20001", 1 + (group >> 16 & 63), group >> 8 & 255,
		 group & 255);
}

static inline int ct_join(struct ct_rank *r)
{
	struct df_member me;

	ck_assert_int_eq(df_ctl_self(&me), 0);
	me.rank = r->rank;
	me.settings = r->settings;
	me.gpu = r->gpu;
	me.device = r->device;
	me.node = r->node;
	if (r->net)
		snprintf(me.net, sizeof(me.net), "%s", r->net);
	r->ret = df_ctl_join(r->nr_ids ? r->nr_ids : 1, r->ids, r->nranks, &me,
			     r->limits.unable || r->limits.bound ? &r->limits : NULL, r->stop,
			     &r->comm);
	return r->ret;
}

static inline void *ct_join_thread(void *arg)
{
	ct_join(arg);
	return NULL;
}

/* Joins ranks first, first + step, ... of nranks, each on its own thread. Waits for all. */
static inline void ct_join_all(struct ct_rank *r, const unsigned char (*ids)[128], int nr_ids,
			       int nranks, int first, int step)
{
	int i;

	for (i = first; i < nranks; i += step) {
		r[i] = (struct ct_rank){.ids = ids, .nr_ids = nr_ids, .nranks = nranks, .rank = i};
		ck_assert_int_eq(pthread_create(&r[i].thread, NULL, ct_join_thread, &r[i]), 0);
	}
	for (i = first; i < nranks; i += step)
		pthread_join(r[i].thread, NULL);
}

/*
 * Gathers bytes that depend on the rank, and verifies them. Returns the result of df_ctl_gather(),
 * or an error if bytes are wrong.
 */
static inline int ct_gather(struct df_ctl_comm *c, int rank, int nranks, uint64_t salt,
			    size_t words, const uint32_t *stop)
{
	uint64_t *in = malloc(words * 8 + 8), *out = malloc((size_t)nranks * words * 8 + 8);
	size_t i;
	int ret, k;

	for (i = 0; i < words; i++)
		in[i] = salt * 1000003 + (uint64_t)rank * 4099 + i;
	ret = df_ctl_allgather(c, in, words * 8, out, stop);
	for (k = 0; !ret && k < nranks; k++)
		for (i = 0; i < words; i++)
			if (out[(size_t)k * words + i] != salt * 1000003 + (uint64_t)k * 4099 + i)
				ck_abort_msg("rank %d of %d got wrong bytes of rank %d", rank,
					     nranks, k);
	free(in);
	free(out);
	return ret;
}

/* Returns memory that forked processes share. */
static inline void *ct_shared(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

/*
 * Forks a child that runs `fn` and exits with its result, without the parent's atexit functions.
 * The child has no time-out. If tests/run.sh ends the parent, the child dies too.
 */
static inline pid_t ct_fork(int (*fn)(int index, void *arg), int index, void *arg)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(fn(index, arg));
	}
	return pid;
}

static inline int ct_wait(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

/* In shared memory: ids, and counters for barriers. */
struct ct_share {
	unsigned char ids[64][128];
	uint32_t arrived[64];
	uint64_t words[1024];
};

static inline void ct_arrive(struct ct_share *s, int which, uint32_t count)
{
	__atomic_add_fetch(&s->arrived[which], 1,
			   __ATOMIC_ACQ_REL); /* pairs with itself: a barrier */
	while (__atomic_load_n(&s->arrived[which], __ATOMIC_ACQUIRE) < count)
		usleep(200);
}

#endif
