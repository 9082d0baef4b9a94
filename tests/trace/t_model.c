/*
 * Compares the model with brute force. For tiny random programs every order of events is tried. The
 * constraints follow from the streams and events alone, by other code than the model's. All orders
 * must end alike, as the model says. Where the model differs from the reference's model.py, the
 * model is stricter.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "trace/predict/model.h"

#define PROGRAMS 4000
#define RANKS	 2
#define OPS	 6
#define STREAMS	 2
#define EVENTS	 2
#define MEMO	 (1 << 14)

struct prog {
	struct df_mop op[RANKS][OPS];
	int nr[RANKS];
	unsigned pre[RANKS][OPS];  /* set of the rank's operations that precede it */
	unsigned sync[RANKS][OPS]; /* SSYNC: set of operations for which it waits */
	int index[RANKS][OPS];	   /* COLL: index in its communicator */
};

static uint64_t state;

static unsigned roll(unsigned n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)((state >> 33) % n);
}

#define NEVER (1u << 31)

/*
 * Some programs have this form: a collective that may finish out of order, and an event after it
 * that must not complete with it.
 */
static const struct {
	enum df_mop_kind kind;
	int comm;
} planted[RANKS][OPS] = {{{DF_MOP_COLL, 0},
			  {DF_MOP_COLL, 1},
			  {DF_MOP_RECORD, 0},
			  {DF_MOP_ESYNC, 0},
			  {DF_MOP_COLL, 2}},
			 {{DF_MOP_COLL, 1}, {DF_MOP_COLL, 2}, {DF_MOP_SSYNC, 0}, {DF_MOP_COLL, 0}}};

static void make(struct prog *p)
{
	static const enum df_mop_kind kinds[] = {
		DF_MOP_COLL, DF_MOP_COLL,  DF_MOP_COLL,	 DF_MOP_COLL,  DF_MOP_KERNEL, DF_MOP_RECORD,
		DF_MOP_WAIT, DF_MOP_SSYNC, DF_MOP_ESYNC, DF_MOP_DSYNC, DF_MOP_ISYNC};
	int plant = !roll(4);

	memset(p, 0, sizeof(*p));
	for (int r = 0; r < RANKS; r++) {
		unsigned tail[STREAMS] = {0}, event[EVENTS] = {NEVER, NEVER};
		int next[3] = {0}, streams = plant && roll(2) ? 1 : STREAMS;

		p->nr[r] = plant ? 5 - r : 3 + (int)roll(OPS - 2);
		for (int i = 0; i < p->nr[r]; i++) {
			struct df_mop *o = &p->op[r][i];

			o->kind = plant ? planted[r][i].kind
					: kinds[roll(sizeof(kinds) / sizeof(*kinds))];
			o->stream = (int)roll((unsigned)streams);
			o->object = plant ? 0 : (int)roll(EVENTS);
			switch (o->kind) {
			case DF_MOP_COLL:
				o->comm = plant ? planted[r][i].comm : (int)roll(3);
				o->sig = 1;
				/* Some operations share a buffer. */
				o->reads = o->writes = 1ULL << (roll(3) ? 8 + o->comm : 0);
				p->index[r][i] = next[o->comm]++;
				p->pre[r][i] = tail[o->stream];
				tail[o->stream] |= 1u << i;
				break;
			case DF_MOP_KERNEL:
				p->pre[r][i] = tail[o->stream];
				tail[o->stream] |= 1u << i;
				break;
			case DF_MOP_RECORD:
				event[o->object] = tail[o->stream];
				break;
			case DF_MOP_WAIT:
				tail[o->stream] |= event[o->object] & ~NEVER;
				break;
			case DF_MOP_ESYNC:
				p->sync[r][i] = event[o->object];
				break;
			default:
				p->sync[r][i] = tail[o->stream];
			}
		}
	}
}

struct at {
	int pc[RANKS];
	unsigned done[RANKS];
};

static int is_op(const struct df_mop *o)
{
	return o->kind == DF_MOP_COLL || o->kind == DF_MOP_KERNEL;
}

static int hazard(const struct df_mop *a, const struct df_mop *b)
{
	return (a->writes & (b->reads | b->writes)) || (a->reads & b->writes);
}

/* Whether no earlier unfinished operation prevents operation i from running. */
static int may_run(const struct prog *p, const struct at *s, int r, int i, enum df_model_mode mode)
{
	unsigned left = p->pre[r][i] & ~s->done[r];

	if (i >= s->pc[r] || s->done[r] >> i & 1)
		return 0;
	if (!left || mode == DF_MODEL_BASE || p->op[r][i].kind != DF_MOP_COLL)
		return !left;
	for (int k = 0; k < OPS; k++)
		if (left >> k & 1 &&
		    (p->op[r][k].kind != DF_MOP_COLL || hazard(&p->op[r][k], &p->op[r][i])))
			return 0;
	return 1;
}

static int host_may(const struct prog *p, const struct at *s, int r, enum df_model_mode mode)
{
	const struct df_mop *o = &p->op[r][s->pc[r]];
	int soft = mode == DF_MODEL_SE || (mode == DF_MODEL_SI && o->kind == DF_MOP_ISYNC);

	if (o->kind == DF_MOP_SSYNC || o->kind == DF_MOP_ESYNC)
		return !(p->sync[r][s->pc[r]] & ~s->done[r]);
	if (o->kind != DF_MOP_DSYNC && o->kind != DF_MOP_ISYNC)
		return 1;
	for (int i = 0; i < s->pc[r]; i++) {
		unsigned before = p->pre[r][i] & ~s->done[r], coll = 0;

		if (!is_op(&p->op[r][i]) || s->done[r] >> i & 1)
			continue;
		for (int k = 0; k < OPS; k++)
			coll |= (before >> k & 1) && p->op[r][k].kind == DF_MOP_COLL;
		if (!soft || (p->op[r][i].kind != DF_MOP_COLL && !coll))
			return 0;
	}
	return 1;
}

static int finished(const struct prog *p, const struct at *s)
{
	for (int r = 0; r < RANKS; r++) {
		if (s->pc[r] < p->nr[r])
			return 0;
		for (int i = 0; i < p->nr[r]; i++)
			if (is_op(&p->op[r][i]) && !(s->done[r] >> i & 1))
				return 0;
	}
	return 1;
}

static uint32_t memo[MEMO];
static int nr_memo, ends; /* set of ends: 1 some order hangs, 2 some order finishes */

static void explore(const struct prog *p, struct at s, enum df_model_mode mode)
{
	uint32_t key =
		(uint32_t)(s.pc[0] | s.pc[1] << 3) | s.done[0] << 6 | s.done[1] << 12 | 1u << 31;
	int moved = 0;

	for (int i = 0; i < nr_memo; i++)
		if (memo[i] == key)
			return;
	ck_assert_int_lt(nr_memo, MEMO);
	memo[nr_memo++] = key;
	for (int r = 0; r < RANKS; r++) {
		struct at n = s;

		if (s.pc[r] < p->nr[r] && host_may(p, &s, r, mode)) {
			n.pc[r]++;
			moved = 1;
			explore(p, n, mode);
		}
		for (int i = 0; i < p->nr[r]; i++) {
			n = s;
			if (p->op[r][i].kind != DF_MOP_KERNEL || !may_run(p, &s, r, i, mode))
				continue;
			n.done[r] |= 1u << i;
			moved = 1;
			explore(p, n, mode);
		}
	}
	for (int i = 0; i < p->nr[0]; i++) {
		for (int k = 0; k < p->nr[1]; k++) {
			struct at n = s;

			if (p->op[0][i].kind != DF_MOP_COLL || p->op[1][k].kind != DF_MOP_COLL ||
			    p->op[0][i].comm != p->op[1][k].comm ||
			    p->index[0][i] != p->index[1][k] || !may_run(p, &s, 0, i, mode) ||
			    !may_run(p, &s, 1, k, mode))
				continue;
			n.done[0] |= 1u << i;
			n.done[1] |= 1u << k;
			moved = 1;
			explore(p, n, mode);
		}
	}
	if (!moved)
		ends |= finished(p, &s) ? 2 : 1;
}

/* Messages of different pairs of many ranks are counted separately. */
START_TEST(test_many_ranks)
{
	/* Rank, its peer, whether it sends; in the order of each rank's calls. */
	static const int calls[][3] = {{0, 256, 1},   {0, 1, 0},     {1, 0, 1},	    {256, 0, 0},
				       {512, 513, 1}, {514, 513, 1}, {513, 514, 0}, {513, 512, 0}};
	struct df_mprog *m = calloc(1, sizeof(*m));
	struct df_model_result is;
	struct df_ranks all = {{0}};

	ck_assert_ptr_nonnull(m);
	for (int r = 0; r < 515; r++)
		df_ranks_add(&all, r);
	ck_assert_int_eq(df_mprog_comm(m, &all), 0);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		const struct df_mop op = {
			.kind = DF_MOP_P2P,
			.nr_p2p = 1,
			.p2p = {{.send = (unsigned)calls[i][2], .peer = calls[i][1], .count = 8}}};

		ck_assert_int_eq(df_mprog_add(m, calls[i][0], 0, &op), 0);
	}
	m->buffered = 1;
	for (m->agreed = 0; m->agreed < 2; m->agreed++) {
		ck_assert_int_eq(df_model_run(m, m->agreed ? DF_MODEL_LANES : DF_MODEL_BASE, NULL,
					      NULL, NULL, &is),
				 0);
		ck_assert_msg(!is.hung, "agreed %d: it hangs", m->agreed);
	}
	df_mprog_fini(m);
	free(m);
}
END_TEST

START_TEST(test_brute_force)
{
	int stricter = 0, hung_somewhere = 0;

	state = df_test_seed();
	for (int n = 0; n < PROGRAMS; n++) {
		struct df_mprog m = {0};
		struct prog p;

		make(&p);
		for (int c = 0; c < 3; c++)
			df_mprog_comm(&m, &(struct df_ranks){{(1 << RANKS) - 1}});
		for (int r = 0; r < RANKS; r++)
			for (int i = 0; i < p.nr[r]; i++)
				ck_assert_int_eq(df_mprog_add(&m, r, 0, &p.op[r][i]), 0);
		for (int mode = DF_MODEL_BASE; mode <= DF_MODEL_SE; mode++) {
			struct df_model_result is, reference;

			nr_memo = ends = 0;
			explore(&p, (struct at){0}, (enum df_model_mode)mode);
			ck_assert_msg(ends == 1 || ends == 2,
				      "program %d, mode %d: its end depends on the order", n, mode);
			m.as_reference = 0;
			ck_assert_int_eq(
				df_model_run(&m, (enum df_model_mode)mode, NULL, NULL, NULL, &is),
				0);
			ck_assert_msg(is.hung == (ends == 1),
				      "program %d, mode %d: %s, the model %s", n, mode,
				      ends == 1 ? "hangs" : "finishes",
				      is.hung ? "hangs" : "finishes");
			m.as_reference = 1;
			ck_assert_int_eq(df_model_run(&m, (enum df_model_mode)mode, NULL, NULL,
						      NULL, &reference),
					 0);
			ck_assert_msg(reference.hung <= is.hung,
				      "program %d, mode %d: the reference alone hangs", n, mode);
			stricter += is.hung && !reference.hung;
			hung_somewhere += is.hung;
		}
		df_mprog_fini(&m);
	}
	printf("%d programs, %d runs hang, %d of them not by the reference\n", PROGRAMS,
	       hung_somewhere, stricter);
	ck_assert_int_gt(stricter, 0);
	ck_assert_int_gt(hung_somewhere, PROGRAMS / 4);
}
END_TEST

int main(void)
{
	return DF_TESTS("model", {test_brute_force}, {test_many_ranks});
}
