/*
 * Two sides of a connector: two ranks in threads or processes that execute one scenario. Uses the
 * test driver where the transport keeps data on devices. For t_conform.c, t_late.c and t_begun.c.
 */
#ifndef TESTS_TRANSPORT_SIDES_H
#define TESTS_TRANSPORT_SIDES_H

#include "tests/ctl/ctl_test.h"

#include <sched.h>

#include "kernels/daemon.h"
#include "runtime/device/cuda/cuda_far.h"
#include "runtime/device/device.h"
#include "runtime/backend.h"
#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/log.h"
#include "runtime/device/cuda/cuda_meet.h"
#include "runtime/program/proto.h"
#include "runtime/transport/arena/arena.h"
#include "runtime/transport/transport.h"
#include "tests/cuda/load.h"

/*
 * Sides 0 and 1 execute the same scenario: as threads if the transport stays within a process, else
 * as forked processes. They know each other from a communicator of two ranks.
 */
struct world {
	struct ct_share share;
	uint64_t seed;
	const struct df_tl_ops *tl;
	int (*scenario)(struct world *w, int side, const struct df_member *peer);
	int one_dies; /* the sides do not wait for each other at the end */
	int failed[2];
	pid_t pid[2];
	uint32_t turn;
	uint64_t value[8];
};

static const struct df_tl_ops *tl_now;
static int threads_now;
static __thread struct df_member self;

static inline void choose_network(void)
{
	unsigned i;

	for (i = 0; i < df_tl_nr; i++)
		if (df_tl_all[i]->caps & DF_TL_NETWORK)
			tl_now = df_tl_all[i];
}

static const struct fake_cuda *fake; /* NULL: this variant has no device memory */

/* Loads the test driver. Other processes can map its device memory. */
static void start_gpu(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const struct fake_cuda *loaded;
	char text[512];

	pthread_mutex_lock(&lock);
	if (!fake) {
		setenv("FAKE_CUDA_DEVICES", "2", 1);
		loaded = fake_load(NULL);
		df_backend = df_cuda_open_driver(text, sizeof(text));
		ck_assert_msg(df_backend != NULL, "%s", text);
		df_blocks = df_backend->blocks;
		fake = loaded;
	}
	pthread_mutex_unlock(&lock);
}

/*
 * Before and after calls of the transport: makes device memory inaccessible to the CPU, as on a
 * GPU. The test's own accesses to counters and slots stand for the blocks' and are allowed. Devices
 * of one process share their memory with the other side, so there it stays accessible.
 */
static int host_only(int on)
{
	if (fake && !threads_now)
		fake->hide(on);
	return 0;
}
#define HOST(type, call)                                                                           \
	({                                                                                         \
		host_only(1);                                                                      \
		type ret_ = call;                                                                  \
		host_only(0);                                                                      \
		ret_;                                                                              \
	})
#define HOST_VOID(call) (host_only(1), (call), (void)host_only(0))

/* For the owner: creates a connector in the state that it has after its block's first turn. */
static int make_for(enum df_proto proto, const struct df_tl_ops *tl, struct df_peer *p,
		    uint64_t key, uint32_t nr_slots, uint32_t slot_bytes, uint64_t base,
		    struct df_conn **out, struct df_kconn *k)
{
	int zero = df_proto_words(proto), ret;

	while ((ret = HOST(int, tl->create(p, key, nr_slots, slot_bytes, zero, base, out))) ==
	       -EAGAIN)
		usleep(100);
	if (ret)
		return ret;
	memset(k, 0, sizeof(*k));
	k->proto = proto;
	HOST_VOID(tl->end(*out, k));
	df_conn_begin(k);
	return 0;
}

static int make(const struct df_tl_ops *tl, struct df_peer *p, uint64_t key, uint32_t nr_slots,
		uint32_t slot_bytes, uint64_t base, struct df_conn **out, struct df_kconn *k)
{
	return make_for(DF_PROTO_SIMPLE, tl, p, key, nr_slots, slot_bytes, base, out, k);
}

static int peer_get(const struct df_tl_ops *tl, const struct df_member *peer, struct df_peer **out)
{
	return tl->peer_get(&self, peer, out);
}

static void step(struct world *w, int which)
{
	ct_arrive(&w->share, which, 2);
}

static int run_side(int side, void *arg)
{
	struct world *w = arg;
	char net[sizeof(((struct df_member *)NULL)->net)];
	struct ct_rank r = {
		.ids = (const unsigned char(*)[128])w->share.ids, .nranks = 2, .rank = side};
	int ret, turns;

	if (w->tl->caps & DF_TL_FAR) {
		start_gpu();
		r.gpu = 1;
		r.device = side;
	}
	if (w->tl->caps & DF_TL_NETWORK) {
		r.device = side;
		r.node = (uint64_t)side + 1;
		r.net = net;
		if (df_env()->net_gdr)
			start_gpu();
		ck_assert_int_eq(df_net_address(side, net, sizeof(net)), 0);
	}
	if (ct_join(&r))
		return 3;
	self = df_ctl_members(r.comm)[side];
	/*
	 * On a busy machine a meeting may end before the driver has answered. Both sides see the
	 * same result, so both try again.
	 */
	for (turns = 0;
	     r.gpu && turns < 60 && !w->tl->reachable(&self, &df_ctl_members(r.comm)[!side]);
	     turns++)
		ck_assert_int_eq(df_cuda_meet(r.comm, 2, side, NULL), 0);
	if (!w->tl->reachable(&self, &df_ctl_members(r.comm)[!side]))
		return 4;
	ck_assert_ptr_eq(df_tl_select(&self, &df_ctl_members(r.comm)[!side]), w->tl);
	ret = w->scenario(w, side, &df_ctl_members(r.comm)[!side]);
	if (!w->one_dies)
		step(w, 63); /* the side that leaves first would count as dead */
	df_ctl_leave(r.comm);
	return ret;
}

static int first_side(int side, void *arg)
{
	struct world *w = arg;

	/* One of the two processes makes the id. */
	if (!side)
		ck_assert_int_eq(df_id_create(w->share.ids[0]), 0);
	ct_arrive(&w->share, 0, 2);
	return run_side(side, arg);
}

struct side_arg {
	struct world *w;
	int side, ret;
};

static void *side_thread(void *arg)
{
	struct side_arg *a = arg;

	a->ret = first_side(a->side, a->w);
	return NULL;
}

static void play(int (*scenario)(struct world *w, int side, const struct df_member *peer))
{
	struct world *w = ct_shared(sizeof(*w));
	struct side_arg a[2];
	pthread_t t[2];
	int i;

	w->seed = df_test_seed();
	w->tl = tl_now;
	w->scenario = scenario;
	if (threads_now) {
		for (i = 0; i < 2; i++) {
			a[i] = (struct side_arg){.w = w, .side = i};
			pthread_create(&t[i], NULL, side_thread, &a[i]);
		}
		for (i = 0; i < 2; i++) {
			pthread_join(t[i], NULL);
			ck_assert_int_eq(a[i].ret, 0);
		}
	} else {
		for (i = 0; i < 2; i++)
			w->pid[i] = ct_fork(first_side, i, w);
		for (i = 0; i < 2; i++)
			ck_assert_int_eq(ct_wait(w->pid[i]), 0);
	}
	munmap(w, sizeof(*w));
}

static struct df_conn *find(const struct df_tl_ops *tl, struct df_peer *p, uint64_t key)
{
	struct df_conn *c = NULL;
	int ret;

	while ((ret = HOST(int, tl->find(p, key, &c))) == -EAGAIN) {
		ck_assert_ptr_null(c);
		df_tl_progress(self.device);
		sched_yield();
	}
	ck_assert_int_eq(ret, 0);
	return c;
}

#endif
