/*
 * Measures costs on this machine, for the cost model. It does so once in a process, before the
 * first communicator of several ranks, in a few milliseconds. The calling thread drives the
 * daemon's own blocks for two ranks on private memory (instructions, bytes copied, bytes reduced).
 * Then it plays ping-pong with a second thread (a hop between running threads, and between threads
 * that must be woken).
 *
 * The figures travel in the member table, so every rank of a communicator knows those of all, and
 * df_cal_agree() derives the same result everywhere. Later measurements (df_cal_note(): how long
 * operations took, compared with the prediction) travel with the next communicator: all its ranks
 * reach its creation in the same order.
 *
 * Every figure is the least of several measurements, since other load only adds time.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/abi.h"
#include "kernels/slot.h"
#include "kernels/daemon.h"
#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/futex.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/coll/calibrate.h"
#include "runtime/coll/coll.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/program/build/cost.h"
#include "runtime/program/build/tuner.h"
#include "runtime/program/program.h"

#define BUDGET_NS     (20 * DF_NS_PER_MS) /* for repeated measurements; half of it for hops */
#define BYTES	      (512 << 10) /* one rank's share: all together exceed a core's own cache */
#define NR_SMALL      64	  /* instances that are timed for the cost of instructions */
#define ROUNDS	      3
#define PING_ROUNDS   40
#define SWITCH_ROUNDS 8

/* ---- the daemon on private memory ------------------------------------------------------------ */

struct side {
	struct df_kdaemon d;
	struct df_kblock blk;
	struct df_sq_slot sq[4];
	struct df_cqe cq[4];
	struct df_kcoll k;
	struct df_kctx ctx;
	struct df_kconn conns[2];
	struct df_kinst inst[2]; /* the block keeps a pointer to the last one */
	uint64_t done;
	struct df_program *prog;
};

struct bench {
	struct side side[2];
	struct df_conn_hdr *hdr[2]; /* [i]: the connector that side i receives from */
	uint8_t *in[2], *out[2];
};

static void bench_free(struct bench *b)
{
	for (int i = 0; b && i < 2; i++) {
		df_program_free(b->side[i].prog);
		free(b->hdr[i]);
		free(b->in[i]);
		free(b->out[i]);
	}
	free(b);
}

/* Two ranks of a ring. Both programs have one block with one connection each way. */
static struct bench *bench_new(enum df_coll_kind kind, uint64_t bytes)
{
	struct bench *b = aligned_alloc(64, (sizeof(*b) + 63) / 64 * 64);

	if (!b)
		return NULL;
	memset(b, 0, sizeof(*b));
	for (int i = 0; i < 2; i++) {
		struct df_prog_req q = {.kind = kind,
					.algo = DF_ALGO_RING,
					.nranks = 2,
					.rank = i,
					.count = bytes / 4,
					.elem_bytes = 4,
					.max_blocks = 1};
		struct side *s = &b->side[i];

		b->hdr[i] = calloc(1, DF_CONN_SLOTS + 2 * bytes);
		b->in[i] = calloc(2, bytes);
		b->out[i] = calloc(2, bytes);
		if (!b->hdr[i] || !b->in[i] || !b->out[i] || df_program_build(&q, &s->prog)) {
			bench_free(b);
			return NULL;
		}
		s->d.nr_blocks = 1;
		s->d.blocks = &s->blk;
		s->d.policy = (struct df_policy){.front = 4, .floor = 1, .boost = 1, .max = 8};
		s->blk.sq.mask = s->blk.cq.mask = 3;
		s->blk.sq.slots = s->sq;
		s->blk.cq.slots = s->cq;
		s->k = (struct df_kcoll){.type = DF_FLOAT32,
					 .redop = DF_SUM,
					 .elem_bytes = 4,
					 .count = q.count,
					 .chunk_elems = q.count,
					 .tile_elems = q.count,
					 .loops = 1,
					 .ctx = &s->ctx,
					 .nr_blocks = 1,
					 .done = &s->done};
		df_kcoll_program(&s->k, s->prog);
		df_kctx_init(&s->ctx, &s->k, s->conns, 0);
		s->ctx.lead = 1;
	}
	for (int i = 0; i < 2; i++) {
		struct df_kconn end = {.state = DF_KCONN_CONNECTED,
				       .nr_slots = 2,
				       .slot_bytes = (uint32_t)bytes,
				       .per_loop = 1,
				       .tail = &b->hdr[i]->tail,
				       .head = &b->hdr[i]->head,
				       .slots = (uint8_t *)b->hdr[i] + DF_CONN_SLOTS};

		*b->side[i].ctx.recv = end;
		*b->side[!i].ctx.send = end;
	}
	return b;
}

/* Returns the thread's processor time, because on a busy machine it may not run for long. */
static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * DF_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/*
 * Returns the time in ns of `nr` instances one after the other, each submitted when the one before
 * is done.
 */
static uint64_t bench_run(struct bench *b, uint32_t nr)
{
	uint64_t t = cpu_ns(), seq = b->side[0].done, end = seq + nr;

	for (; seq < end; seq++) {
		for (int i = 0; i < 2; i++) {
			struct side *s = &b->side[i];
			struct df_kinst *in = &s->inst[seq & 1];

			*in = (struct df_kinst){.in = b->in[i],
						.out = b->out[i],
						.seq = seq,
						.done_value = seq + 1,
						.blocks_left = 1,
						.waits = in->own_waits};
			s->inst[~seq & 1].next = in;
			df_sq_put(&s->blk.sq, &(struct df_sqe){&s->ctx, in}, 0);
		}
		while (b->side[0].done <= seq || b->side[1].done <= seq) {
			for (int i = 0; i < 2; i++) {
				df_block_turn(&b->side[i].d, &b->side[i].blk);
				b->side[i].blk.cq.head = b->side[i].blk.cq.tail;
			}
		}
	}
	return cpu_ns() - t;
}

/*
 * Returns the time of one instance in ns: the least of several runs of nr, the first of which
 * touches the memory. 0: no memory.
 */
static double bench_least(enum df_coll_kind kind, uint64_t bytes, uint32_t nr, uint64_t end)
{
	struct bench *b = bench_new(kind, bytes);
	uint64_t least = 0;

	for (int i = 0; b && i < ROUNDS && (i < 2 || cpu_ns() < end); i++) {
		uint64_t t = bench_run(b, nr);

		if (!least || t < least)
			least = t;
	}
	bench_free(b);
	return (double)least / nr;
}

/* ---- two threads ----------------------------------------------------------------------------- */

/* ball is even in the measuring thread's turn. Fields have lines of their own, as in connectors. */
struct pingpong {
	uint32_t ball __attribute__((aligned(64)));
	uint32_t sleep __attribute__((aligned(64))); /* whether to wait in the kernel */
	uint32_t stop;
	uint32_t refs;
	uint64_t end;
};

/* The last thread frees it, so no thread waits for a partner that never got a processor. */
static void leave(struct pingpong *p)
{
	/* ACQ_REL pairs with the other thread's: its last use precedes the free. */
	if (__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL) == 0)
		free(p);
}

/* Returns 0 when the ball has the value, 1 when time is up. */
static int await(struct pingpong *p, uint32_t value)
{
	for (uint32_t polls = 0;; polls++) {
		/*
		 * ACQUIRE pairs with the RELEASE in hit(), as between sender and receiver of a
		 * slice.
		 */
		uint32_t ball = __atomic_load_n(&p->ball, __ATOMIC_ACQUIRE);

		if (ball == value)
			return 0;
		if (__atomic_load_n(&p->stop, __ATOMIC_RELAXED))
			return 1;
		if (__atomic_load_n(&p->sleep, __ATOMIC_RELAXED))
			df_futex_wait(&p->ball, ball, DF_NS_PER_MS, 0);
		else if (polls % 1024 == 1023)
			sched_yield();
		if (polls % 256 == 255 && df_now_ns() > p->end)
			return 1;
	}
}

static void hit(struct pingpong *p, uint32_t value)
{
	/* RELEASE pairs with the ACQUIRE in await(). */
	__atomic_store_n(&p->ball, value, __ATOMIC_RELEASE);
	if (__atomic_load_n(&p->sleep, __ATOMIC_RELAXED))
		df_futex_wake(&p->ball, 1, 0);
}

static void *partner(void *arg)
{
	struct pingpong *p = arg;

	for (uint32_t ball = 1; !await(p, ball); ball += 2)
		hit(p, ball + 1);
	leave(p);
	return NULL;
}

/* Returns the least time of one way in ns; 0: no round was completed. */
static double rally(struct pingpong *p, uint32_t *ball, int rounds)
{
	uint64_t least = 0;

	for (int i = 0; i < rounds; i++, *ball += 2) {
		uint64_t t = df_now_ns();

		hit(p, *ball + 1);
		if (await(p, *ball + 2))
			return 0;
		t = df_now_ns() - t;
		if (!least || t < least)
			least = t;
	}
	return (double)least / 2;
}

static void hops(struct df_cal *cal, uint64_t end)
{
	struct pingpong *p = aligned_alloc(64, sizeof(*p));
	uint32_t ball = 0;

	if (!p)
		return;
	*p = (struct pingpong){.end = end, .refs = 2};
	if (!df_thread_start("dfshim-pingpong", 0, partner, p)) {
		if (df_rt.execs.nr_cores > 1)
			cal->v[DF_CAL_HOP] = df_cal_code(rally(p, &ball, PING_ROUNDS));
		__atomic_store_n(&p->sleep, 1, __ATOMIC_RELAXED);
		cal->v[DF_CAL_SWITCH] = df_cal_code(rally(p, &ball, SWITCH_ROUNDS));
		__atomic_store_n(&p->stop, 1, __ATOMIC_RELAXED);
		df_futex_wake(&p->ball, 1, 0);
	} else {
		leave(p);
	}
	leave(p);
}

/* ---- the result ------------------------------------------------------------------------------ */

static struct df_cal mine;
static pthread_once_t once = PTHREAD_ONCE_INIT;
/*
 * By algorithm: 8 * log2 of measured / expected, a running mean; -128: none. RELAXED: independent
 * numbers.
 */
static int seen[DF_CAL_FACTORS];

static void measure(void)
{
	uint64_t begin = cpu_ns(), end = begin + BUDGET_NS;
	double inst, copy, add;

	/*
	 * In a ring of two, an allgather takes 3 instructions per rank, all of which copy; a
	 * reduce-scatter takes 2.
	 */
	inst = bench_least(DF_COLL_ALLGATHER, 4, NR_SMALL, end) / 6;
	copy = (bench_least(DF_COLL_ALLGATHER, BYTES, 1, end) - 6 * inst) / (6.0 * BYTES);
	add = (bench_least(DF_COLL_REDUCESCATTER, BYTES, 1, end) - 4 * inst - 2 * copy * BYTES) /
	      (2.0 * BYTES);
	mine.v[DF_CAL_INST] = df_cal_code(inst);
	mine.v[DF_CAL_BYTE] = df_cal_code(copy);
	mine.v[DF_CAL_REDUCE] = df_cal_code(DF_MAX(add, copy));
	hops(&mine, df_now_ns() + BUDGET_NS / 2);
	df_log(DF_LOG_INFO,
	       "measured in %.1f ms of processor time: instruction %.0f ns, copying %.3f ns/B, "
	       "reducing %.3f ns/B, hop %.0f ns, waking %.0f ns",
	       (double)(cpu_ns() - begin) / 1e6, inst, copy, add, df_cal_value(mine.v[DF_CAL_HOP]),
	       df_cal_value(mine.v[DF_CAL_SWITCH]));
}

static void start(void)
{
	for (int i = 0; i < DF_CAL_FACTORS; i++)
		__atomic_store_n(&seen[i], -128, __ATOMIC_RELAXED);
	if (!df_blocks->gpu && !df_rt.tuner->has_cost)
		measure();
}

void df_cal_mine(struct df_cal *out, int nranks)
{
	/* A single rank has nothing to choose, so it need not measure. */
	if (nranks < 2) {
		memset(out, 0, sizeof(*out));
		memset(out->factor, -128, sizeof(out->factor));
		return;
	}
	pthread_once(&once, start);
	*out = mine;
	if (!df_blocks->gpu)
		out->v[DF_CAL_CORES] = df_cal_code(df_rt.execs.nr_cores);
	for (int i = 0; i < DF_CAL_FACTORS; i++)
		out->factor[i] = (int8_t)__atomic_load_n(&seen[i], __ATOMIC_RELAXED);
}

void df_cal_note(uint32_t algo, double ratio)
{
	int now, was, i = (int)algo - 1;

	if (i < 0 || i >= DF_CAL_FACTORS || !(ratio > 0))
		return;
	now = df_cal_log(ratio);
	was = __atomic_load_n(&seen[i], __ATOMIC_RELAXED);
	__atomic_store_n(&seen[i], was == -128 ? now : (3 * was + now) / 4, __ATOMIC_RELAXED);
}

int df_cal_members(struct df_comm *comm, const struct df_cal *rows)
{
	struct df_cost *c = &comm->choice.cost;
	struct df_cal *all;
	int i, j, nr, ret;

	*c = df_rt.tuner->cost;
	if (df_rt.tuner->has_cost)
		return 0;
	c->tile_bytes = df_coll_slot_bytes(comm);
	all = malloc((size_t)comm->nranks * sizeof(*all));
	if (!all)
		return -ENOMEM;
	for (i = nr = 0; i < comm->nranks; i++) {
		uint16_t *cores = &all[i].v[DF_CAL_CORES];

		if (rows)
			all[i] = rows[i];
		else
			memcpy(&all[i], comm->members[i].cal, sizeof(*all));
		/* The ranks that this communicator has on a node share the node's processors. */
		if (!i || comm->members[i].host != comm->members[i - 1].host)
			for (j = nr = 0; j < comm->nranks; j++)
				nr += comm->members[j].host == comm->members[i].host;
		*cores = df_cal_code(df_cal_value(*cores) / nr);
	}
	ret = df_cal_agree(c, comm->nranks, all);
	free(all);
	if (comm->nranks > 1)
		df_log(DF_LOG_INFO,
		       "agreed costs: instruction %.0f ns, copying %.3f ns/B, reducing %.3f ns/B, "
		       "hop %.0f ns, waking %.0f ns, %.1f cores; factors ring %.2f tree %.2f "
		       "allpairs %.2f hier %.2f",
		       c->inst_ns, c->byte_ns, c->reduce_ns, c->hop_ns, c->switch_ns, c->cores,
		       c->factor[DF_ALGO_RING], c->factor[DF_ALGO_TREE],
		       c->factor[DF_ALGO_ALLPAIRS], c->factor[DF_ALGO_HIER]);
	return ret;
}
