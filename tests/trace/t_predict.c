/*
 * Compares the search of `dfshim predict` with brute force. For small random programs with two
 * threads a rank an explorer that shares no code with the model tries every order of the threads'
 * and the device's steps. An end that the search finds must be an end of some order, and if some
 * order hangs the search must find a hang.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "trace/predict/predict.h"

#define PROGRAMS 400
#define RANKS	 2
#define THREADS	 2
#define STEPS	 3 /* of each thread */
#define OPS	 (THREADS * STEPS)
#define COMMS	 3
#define STREAMS	 2
#define MEMO	 (1u << 19)

struct prog {
	struct df_mop op[RANKS][OPS]; /* STEPS of the first thread, then of the second */
	int nr[RANKS][THREADS];
	/* a communicator's operations run in their order of issue, over streams too */
	int in_order;
};

/* The state of an execution, and the constraints that follow from the order of issue. */
struct at {
	int pc[RANKS][THREADS], nr_issued[RANKS];
	uint8_t issued[RANKS][OPS]; /* in order of issue */
	uint8_t done[RANKS];
	uint8_t pre[RANKS][OPS], index[RANKS][OPS], tail[RANKS][STREAMS], next[RANKS][COMMS];
	/* set of operations that the communicator's next operation must follow */
	uint8_t comm[RANKS][COMMS];
	uint8_t event[RANKS], is_event[RANKS];
};

static uint64_t state;

static unsigned roll(unsigned n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)((state >> 33) % n);
}

static void make(struct prog *p)
{
	static const enum df_mop_kind kinds[] = {DF_MOP_COLL,	DF_MOP_COLL,  DF_MOP_COLL,
						 DF_MOP_COLL,	DF_MOP_COLL,  DF_MOP_COLL,
						 DF_MOP_KERNEL, DF_MOP_WAIT,  DF_MOP_RECORD,
						 DF_MOP_SSYNC,	DF_MOP_DSYNC, DF_MOP_ESYNC};
	int same = roll(4) > 0; /* In most programs all ranks do the same. */

	memset(p, 0, sizeof(*p));
	p->in_order = (int)roll(2);
	for (int r = 0; r < RANKS; r++) {
		if (r && same) {
			memcpy(p->op[r], p->op[0], sizeof(p->op[0]));
			memcpy(p->nr[r], p->nr[0], sizeof(p->nr[0]));
			continue;
		}
		for (int t = 0; t < THREADS; t++) {
			p->nr[r][t] = 1 + (int)roll(STEPS);
			for (int i = 0; i < p->nr[r][t]; i++) {
				struct df_mop *o = &p->op[r][t * STEPS + i];

				o->kind = kinds[roll(sizeof(kinds) / sizeof(*kinds))];
				o->stream = (int)roll(STREAMS);
				o->comm = (int)roll(COMMS);
				o->sig = 1 + (o->kind == DF_MOP_COLL && !roll(4));
				/* Groups of two or three collectives. */
				if (i && o->kind == DF_MOP_COLL && o[-1].kind == DF_MOP_COLL)
					o[-1].goes_on = !roll(3);
			}
		}
	}
}

/* ---- brute force ----------------------------------------------------------------------------- */

static uint64_t memo[MEMO];
static unsigned nr_memo;
static int too_large;
static int ends; /* set of ends: 1 some order hangs, 2 some order finishes */

static int is_new(const struct at *s)
{
	uint64_t key = 0;
	unsigned i;

	for (int r = 0; r < RANKS; r++) {
		for (int k = 0; k < OPS; k++)
			key = key * 7 + (k < s->nr_issued[r] ? s->issued[r][k] + 1u : 0);
		key = key * 64 + s->done[r];
		key = key * 16 + (unsigned)(s->pc[r][0] * 4 + s->pc[r][1]);
	}
	key++;
	for (i = (unsigned)(key * 0x9e3779b97f4a7c15ULL >> 46); memo[i % MEMO]; i++)
		if (memo[i % MEMO] == key)
			return 0;
	/* There are more states than entries, so the program is left out. */
	if (nr_memo == MEMO / 2) {
		too_large = 1;
		return 0;
	}
	memo[i % MEMO] = key;
	nr_memo++;
	return 1;
}

/* Executes a step of a thread. Returns 0 if the thread must wait. */
static int host(const struct prog *p, struct at *s, int r, int t)
{
	int id = t * STEPS + s->pc[r][t];
	const struct df_mop *o = &p->op[r][id];
	uint8_t all = 0;

	for (int k = 0; k < s->nr_issued[r]; k++)
		all |= (uint8_t)(1u << s->issued[r][k]);
	if ((o->kind == DF_MOP_SSYNC && s->tail[r][o->stream] & ~s->done[r]) ||
	    (o->kind == DF_MOP_DSYNC && all & ~s->done[r]) ||
	    (o->kind == DF_MOP_ESYNC && (!s->is_event[r] || s->event[r] & ~s->done[r])))
		return 0;
	s->pc[r][t]++;
	if (o->kind > DF_MOP_WAIT)
		return 1;
	s->issued[r][s->nr_issued[r]++] = (uint8_t)id;
	s->pre[r][id] = s->tail[r][o->stream];
	if (o->kind == DF_MOP_WAIT)
		s->pre[r][id] |= s->event[r];
	if (o->kind == DF_MOP_COLL) {
		s->index[r][id] = s->next[r][o->comm]++;
		if (p->in_order)
			s->pre[r][id] |= s->comm[r][o->comm];
		s->comm[r][o->comm] = (uint8_t)(s->pre[r][id] | 1u << id);
	}
	s->tail[r][o->stream] |= (uint8_t)(s->pre[r][id] | 1u << id);
	if (o->kind == DF_MOP_RECORD) {
		s->event[r] = s->tail[r][o->stream];
		s->is_event[r] = 1;
	}
	return 1;
}

/* Whether another thread is inside a group. */
static int is_between(const struct prog *p, const struct at *s, int r, int t)
{
	for (int o = 0; o < THREADS; o++)
		if (o != t && s->pc[r][o] && p->op[r][o * STEPS + s->pc[r][o] - 1].goes_on)
			return 1;
	return 0;
}

static int may_run(const struct at *s, int r, int id)
{
	int issued = 0;

	for (int k = 0; k < s->nr_issued[r]; k++)
		issued |= s->issued[r][k] == id;
	return issued && !(s->done[r] >> id & 1) && !(s->pre[r][id] & ~s->done[r]);
}

static void explore(const struct prog *p, struct at s)
{
	int moved = 0;

	if (!is_new(&s))
		return;
	for (int r = 0; r < RANKS; r++) {
		for (int t = 0; t < THREADS; t++) {
			struct at n = s;

			if (s.pc[r][t] == p->nr[r][t] || is_between(p, &s, r, t) ||
			    !host(p, &n, r, t))
				continue;
			moved = 1;
			explore(p, n);
		}
		for (int id = 0; id < OPS; id++) {
			struct at n = s;

			if (p->op[r][id].kind == DF_MOP_COLL || !may_run(&s, r, id))
				continue;
			n.done[r] |= (uint8_t)(1u << id);
			moved = 1;
			explore(p, n);
		}
	}
	for (int a = 0; a < OPS; a++) {
		for (int b = 0; b < OPS; b++) {
			struct at n = s;

			if (p->op[0][a].kind != DF_MOP_COLL || p->op[1][b].kind != DF_MOP_COLL ||
			    !may_run(&s, 0, a) || !may_run(&s, 1, b) ||
			    p->op[0][a].comm != p->op[1][b].comm ||
			    p->op[0][a].sig != p->op[1][b].sig || s.index[0][a] != s.index[1][b])
				continue;
			n.done[0] |= (uint8_t)(1u << a);
			n.done[1] |= (uint8_t)(1u << b);
			moved = 1;
			explore(p, n);
		}
	}
	if (moved)
		return;
	for (int r = 0; r < RANKS; r++) {
		for (int t = 0; t < THREADS; t++)
			moved |= s.pc[r][t] < p->nr[r][t];
		for (int k = 0; k < s.nr_issued[r]; k++)
			moved |= !(s.done[r] >> s.issued[r][k] & 1);
	}
	ends |= moved ? 1 : 2;
}

/* ---- the search ------------------------------------------------------------------------------ */

static void to_model(const struct prog *p, struct df_mprog *m, struct df_predict_order *order)
{
	memset(m, 0, sizeof(*m));
	memset(order, 0, sizeof(*order));
	m->in_order = p->in_order;
	for (int c = 0; c < COMMS; c++)
		ck_assert_int_ge(df_mprog_comm(m, &(struct df_ranks){{(1 << RANKS) - 1}}), 0);
	for (int r = 0; r < RANKS; r++) {
		int left[THREADS] = {0}, n = 0;

		for (int t = 0; t < THREADS; t++) {
			for (int i = 0; i < p->nr[r][t]; i++) {
				const struct df_mop *o = &p->op[r][t * STEPS + i];

				ck_assert_int_eq(df_mprog_add(m, r, t, o), 0);
				left[t] += df_predict_takes_turn(o->kind);
			}
			n += left[t];
		}
		/* Record the threads' turns in any order. */
		for (; n > 0; n--) {
			int t = (int)roll((unsigned)n) >= left[0];

			left[t]--;
			ck_assert_int_eq(df_predict_add(order, r, t), 0);
		}
	}
}

struct told {
	size_t issued[RANKS][THREADS];
	int open[RANKS]; /* number of the thread whose group is open, plus 1 */
	int nr;
};

static void tell(void *arg, enum df_model_event ev, int rank, int thread, size_t op,
		 const struct df_mop *mop, int task)
{
	struct told *x = arg;

	(void)task;
	if (ev == DF_ME_LEAVE) {
		ck_assert_msg(!x->open[rank] || x->open[rank] == thread + 1,
			      "thread %d of rank %d got between a group's operations", thread,
			      rank);
		x->open[rank] = mop->goes_on ? thread + 1 : 0;
	}
	if (ev != DF_ME_ISSUE)
		return;
	ck_assert_uint_ge(op, x->issued[rank][thread]);
	x->issued[rank][thread] = op + 1;
	x->nr++;
}

START_TEST(test_brute_force)
{
	int can_hang = 0, found_few = 0, differ = 0, nr_memo_max = 0, left_out = 0;
	int found_windows[3] = {0};

	state = df_test_seed();
	for (int n = 0; n < PROGRAMS; n++) {
		struct df_predict_opts all = {.tries = 1000}, few = {.tries = 100};
		struct df_predict_finding f, g;
		struct df_predict_order order;
		struct df_mprog m;
		struct prog p;
		int rc;

		make(&p);
		memset(memo, 0, sizeof(memo));
		nr_memo = 0;
		ends = 0;
		too_large = 0;
		explore(&p, (struct at){0});
		if (too_large) {
			left_out++;
			continue;
		}
		nr_memo_max = (int)nr_memo > nr_memo_max ? (int)nr_memo : nr_memo_max;
		to_model(&p, &m, &order);
		rc = df_predict_search(&m, &order, &all, &f);
		ck_assert_int_ge(rc, 0);
		ck_assert_int_eq(rc, f.what != NULL);
		ck_assert_msg(rc == (ends & 1),
			      "program %d (seed %llu): the search %s, of all orders %s", n,
			      (unsigned long long)df_test_seed(), rc ? f.what : "finds nothing",
			      ends & 1 ? "some hang" : "none hangs");
		ck_assert_msg(rc || f.complete, "program %d was not searched whole", n);
		can_hang += ends & 1;
		differ += ends == 3;
		if (rc) {
			struct told told = {0};

			/* An execution that was found can be repeated with the same result. */
			ck_assert_int_eq(df_predict_again(&m, &order, &all, &f, tell, NULL, &told),
					 0);
			ck_assert_uint_eq((size_t)told.nr, f.res.nr_tasks);
		}
		rc = df_predict_search(&m, &order, &few, &g);
		ck_assert_int_ge(rc, 0);
		ck_assert_msg(!rc || ends & 1, "program %d: found what no order has", n);
		found_few += rc;
		/* Through windows, whose ends are not the program's end. */
		for (few.window = 1; few.window <= 3; few.window++) {
			rc = df_predict_search(&m, &order, &few, &g);
			ck_assert_int_ge(rc, 0);
			ck_assert_msg(!rc || ends & 1,
				      "program %d, window %zu: found what no order has", n,
				      few.window);
			found_windows[few.window - 1] += rc;
		}
		df_predict_order_fini(&order);
		df_mprog_fini(&m);
	}
	printf("%d programs: %d can hang, %d of them only in some orders; found with 100 tries %d, "
	       "in windows of 1, 2, 3 operations %d, %d, %d; at most %d states\n",
	       PROGRAMS, can_hang, differ, found_few, found_windows[0], found_windows[1],
	       found_windows[2], nr_memo_max);
	ck_assert_int_lt(left_out, PROGRAMS / 50);
	ck_assert_int_gt(differ, PROGRAMS / 50);
	/* For programs with more orders than tries. */
	ck_assert_int_ge(found_few * 100, can_hang * 99);
}
END_TEST

/* ---- long programs --------------------------------------------------------------------------- */

#define LONG 400 /* steps of a rank */

/* Adds a step of a thread, and records the thread's turn if the step takes one. */
static void add_step(struct df_mprog *m, struct df_predict_order *order, int r, int t,
		     struct df_mop op)
{
	ck_assert_int_eq(df_mprog_add(m, r, t, &op), 0);
	if (df_predict_takes_turn(op.kind))
		ck_assert_int_eq(df_predict_add(order, r, t), 0);
}

/*
 * Threads that hand over to each other, as PyTorch's do around backward(), so that only one order
 * is possible. With `loose` one hand-over in the middle is missing. Both threads wait for the
 * device there, so one order deadlocks.
 */
static void make_long(struct df_mprog *m, struct df_predict_order *order, int loose)
{
	uint64_t from = state;

	memset(m, 0, sizeof(*m));
	memset(order, 0, sizeof(*order));
	for (int c = 0; c < COMMS; c++)
		ck_assert_int_ge(df_mprog_comm(m, &(struct df_ranks){{(1 << RANKS) - 1}}), 0);
	for (int r = 0; r < RANKS; r++) {
		int t = 0, flag = 0;

		state = from;
		for (int i = 0; i < LONG; i++) {
			static const enum df_mop_kind kinds[] = {
				DF_MOP_COLL,   DF_MOP_COLL,  DF_MOP_COLL,
				DF_MOP_KERNEL, DF_MOP_WAIT,  DF_MOP_RECORD,
				DF_MOP_SSYNC,  DF_MOP_DSYNC, DF_MOP_RECORD};
			struct df_mop op = {.kind = kinds[roll(sizeof(kinds) / sizeof(*kinds))]};

			op.stream = (int)roll(STREAMS);
			op.comm = (int)roll(COMMS);
			op.sig = 1;
			if (!roll(4) || i == LONG / 2) {
				add_step(m, order, r, t,
					 (struct df_mop){.kind = DF_MOP_HSIGNAL, .object = flag});
				t = !t;
				add_step(m, order, r, t,
					 (struct df_mop){.kind = DF_MOP_HWAIT, .object = flag++});
			}
			add_step(m, order, r, t, op);
			if (!loose || i != LONG / 2)
				continue;
			for (int k = 0; k < 2; k++) {
				add_step(m, order, r, k,
					 (struct df_mop){.kind = DF_MOP_COLL, .comm = k, .sig = 1});
				add_step(m, order, r, k, (struct df_mop){.kind = DF_MOP_DSYNC});
			}
			add_step(m, order, r, t,
				 (struct df_mop){.kind = DF_MOP_HSIGNAL, .object = flag});
			t = !t;
			add_step(m, order, r, t,
				 (struct df_mop){.kind = DF_MOP_HWAIT, .object = flag++});
		}
	}
}

static void count_open(void *arg, int rank, int thread, size_t op, int started,
		       const struct df_ranks *here)
{
	(void)rank, (void)thread, (void)op, (void)started, (void)here;
	++*(int *)arg;
}

START_TEST(test_windows)
{
	state = df_test_seed();
	for (int n = 0; n < 60; n++) {
		struct df_predict_opts opts = {.tries = 200, .window = 8 + roll(40)};
		int loose = n % 2, rc, open = 0;
		struct df_predict_order order;
		struct df_predict_finding f;
		struct df_mprog m;

		make_long(&m, &order, loose);
		rc = df_predict_search(&m, &order, &opts, &f);
		ck_assert_msg(rc == loose, "program %d (seed %llu), window %zu: %s, although %s", n,
			      (unsigned long long)df_test_seed(), opts.window,
			      rc ? f.what : "nothing found",
			      loose ? "one order deadlocks" : "there is one order");
		if (rc) {
			ck_assert_int_eq(
				df_predict_again(&m, &order, &opts, &f, NULL, count_open, &open),
				0);
			ck_assert_int_gt(open, 0);
		}
		df_predict_order_fini(&order);
		df_mprog_fini(&m);
	}
}
END_TEST

/*
 * A group of more messages than a step holds. Its messages must run together; otherwise each rank's
 * receives would wait for its sends.
 */
START_TEST(test_large_group)
{
	static struct df_mprog m;
	struct df_model_result res;

	for (int closed = 1; closed >= 0; closed--) {
		memset(&m, 0, sizeof(m));
		ck_assert_int_ge(df_mprog_comm(&m, &(struct df_ranks){{3}}), 0);
		for (int r = 0; r < 2; r++) {
			for (int send = 1; send >= 0; send--) {
				struct df_mop op = {.kind = DF_MOP_P2P,
						    .nr_p2p = DF_MOP_MAX_P2P,
						    .goes_on = send && closed};

				for (int i = 0; i < op.nr_p2p; i++)
					op.p2p[i] = (struct df_mp2p){send, 0, !r, 4};
				ck_assert_int_eq(df_mprog_add(&m, r, 0, &op), 0);
			}
			ck_assert_int_eq(
				df_mprog_add(&m, r, 0, &(struct df_mop){.kind = DF_MOP_COLL}), 0);
		}
		ck_assert_int_eq(df_model_run(&m, DF_MODEL_BASE, NULL, NULL, NULL, &res), 0);
		ck_assert_int_eq(res.hung, !closed);
		df_mprog_fini(&m);
	}
}
END_TEST

int main(void)
{
	return DF_TESTS("predict", {test_brute_force}, {test_windows}, {test_large_group});
}
