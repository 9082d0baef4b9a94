/* The causes for which a job of the evaluation hangs. */
#include <stdlib.h>
#include <string.h>
#include "eval.h"

/*
 * The causes for which a program hangs, from the program alone: the model runs it to its
 * standstill, and the operations and threads that are stuck there give the class. More than one
 * word can be right.
 *
 *   MISMATCH  ranks have issued different things for the same place of a communicator (or of a
 *             pair): if none of them runs, its other causes are right too, but by our rules these
 *             remain
 *   MISSING   one runs it, and another has reached its end without it
 *   ORDER     operations that all their ranks have issued wait for one another; RESOURCE if more
 *             room would help. Where other work stands between them on every rank DATA is right
 *             too. Also where threads wait, and one of them gets further if collectives leave the
 *             order in which they were issued.
 *   SYNC      they would not, but threads are in waits for the whole device; if the program
 *             completes by our rules without the release of one, ORDER is right too
 *   DATA      the same for waits for a stream or an event; also beside MISSING, where the rank that
 *             lacks it polls its streams at its end (script.c) and they do not run dry: no record
 *             shows that these are its last calls
 */

#define EC_OPS	  8192
#define EC_BEHIND (1ULL << 63) /* MISSING, if nothing else is found: no rank runs it yet */
#define EC_POLLS  (1ULL << 62) /* who lacks it polls: DATA beside MISSING */
#define EC_DIFFER (1ULL << 61) /* MISMATCH, beside what else is found: none of them runs */

/* One collective, or one message of a group, of one rank. */
struct ec_op {
	uint64_t sig;
	size_t step;
	int message;
};

struct ec_state {
	struct df_mprog p;
	struct df_model_result res;
	uint8_t *at[DF_MODEL_RANKS]; /* by step: 1 issued, 2 started, 3 done */
};

uint64_t ec_bit(enum df_verdict v)
{
	return 1ULL << v;
}

static void ec_event(void *arg, enum df_model_event ev, int rank, int thread, size_t op,
		     const struct df_mop *mop, int task)
{
	struct ec_state *x = arg;

	(void)thread, (void)mop, (void)task;
	if (ev == DF_ME_ISSUE || ev == DF_ME_START || ev == DF_ME_DONE)
		x->at[rank][op] = ev == DF_ME_ISSUE ? 1 : ev == DF_ME_START ? 2 : 3;
}

/*
 * The sequence of a rank's operations in a communicator (peer < 0), or of its messages to or from a
 * peer there.
 */
static size_t ec_sequence(const struct ec_state *x, int rank, int comm, int peer, int send,
			  struct ec_op *out)
{
	const struct df_mthread *t = &x->p.threads[rank][0];
	size_t n = 0;

	for (size_t i = 0; i < t->nr_ops && n < EC_OPS; i++) {
		const struct df_mop *op = &t->ops[i];

		if (peer < 0 && op->kind == DF_MOP_COLL && op->comm == comm)
			out[n++] = (struct ec_op){op->sig, i, 0};
		for (int k = 0; peer >= 0 && op->kind == DF_MOP_P2P && k < op->nr_p2p; k++)
			if (op->p2p[k].comm == comm && op->p2p[k].peer == peer &&
			    op->p2p[k].send == send)
				out[n++] = (struct ec_op){op->p2p[k].count, i, k};
	}
	return n;
}

/* It has reached its end, where it polls its streams, and something of its own is not done. */
static int ec_polls(const struct ec_state *x, int rank)
{
	const struct df_mthread *t = &x->p.threads[rank][0];

	if (x->res.pc[rank][0] < t->nr_ops)
		return 0;
	for (size_t i = 0; i < t->nr_ops; i++)
		if (x->at[rank][i] == 1 || x->at[rank][i] == 2)
			return 1;
	return 0;
}

/*
 * Two ranks that must agree: the standstill as their sequences show it. Operations that are not
 * whole, or differ, are marked in `out`: they are no part of a cycle.
 */
static uint64_t ec_compare(struct ec_state *x, int ra, const struct ec_op *a, size_t na, int rb,
			   const struct ec_op *b, size_t nb, uint32_t (*out)[EC_OPS])
{
	uint64_t set = 0;

	for (size_t k = 0; k < na || k < nb; k++) {
		int sa = k < na ? x->at[ra][a[k].step] : 0, sb = k < nb ? x->at[rb][b[k].step] : 0;

		int differs = sa && sb && a[k].sig != b[k].sig;

		if (differs)
			set |= sa == 2 || sb == 2 ? ec_bit(DF_V_MISMATCH) : EC_DIFFER;
		if ((sa && k >= nb && x->res.pc[rb][0] == x->p.threads[rb][0].nr_ops) ||
		    (sb && k >= na && x->res.pc[ra][0] == x->p.threads[ra][0].nr_ops))
			set |= (sa == 2 || sb == 2 ? ec_bit(DF_V_MISSING) : EC_BEHIND) |
			       (ec_polls(x, sa ? rb : ra) ? EC_POLLS : 0);
		if (sa && sb && !(differs && sa == 2 && sb == 2))
			continue;
		if (k < na)
			out[ra][a[k].step] |= 1u << a[k].message;
		if (k < nb)
			out[rb][b[k].step] |= 1u << b[k].message;
	}
	return set;
}

/* The operations that all their ranks have issued, without the waits of threads. */
static void ec_issued(const struct ec_state *x, uint32_t (*out)[EC_OPS], struct df_mprog *q)
{
	memset(q, 0, sizeof(*q));
	q->nr_ranks = x->p.nr_ranks;
	q->cap = x->p.cap;
	q->one_queue = x->p.one_queue;
	q->buffered = x->p.buffered;
	for (int c = 0; c < x->p.nr_comms; c++)
		df_mprog_comm(q, &x->p.comms[c]);
	for (int r = 0; r < q->nr_ranks; r++) {
		q->nr_threads[r] = 1;
		for (size_t i = 0; i < x->res.pc[r][0]; i++) {
			struct df_mop op = x->p.threads[r][0].ops[i];
			int n = 0;

			/* Whether they agree has been looked at. */
			op.sig = 0;
			if (op.kind == DF_MOP_SSYNC || op.kind == DF_MOP_ESYNC ||
			    op.kind == DF_MOP_DSYNC || op.kind == DF_MOP_ISYNC ||
			    (op.kind == DF_MOP_COLL && out[r][i]))
				continue;
			for (int k = 0; op.kind == DF_MOP_P2P && k < op.nr_p2p; k++)
				if (!(out[r][i] >> k & 1)) {
					op.p2p[n] = op.p2p[k];
					op.p2p[n++].count = 1;
				}
			if (op.kind == DF_MOP_P2P && !(op.nr_p2p = n))
				continue;
			model_add(q, r, 0, &op);
		}
	}
}

/*
 * By the rules of dfshim, which take only the order of issue away: 1 a thread gets further, 2 the
 * program completes.
 */
static int ec_by_ours(const struct ec_state *x)
{
	struct df_model_result res;

	if (df_model_run(&x->p, DF_MODEL_P, NULL, NULL, NULL, &res))
		abort();
	if (!res.hung)
		return 2;
	for (int r = 0; r < x->p.nr_ranks; r++)
		if (res.pc[r][0] > x->res.pc[r][0])
			return 1;
	return 0;
}

uint64_t ec_class(const struct script *s)
{
	static struct ec_op a[EC_OPS], b[EC_OPS];
	static uint32_t out[DF_MODEL_RANKS][EC_OPS];
	struct df_model_result res;
	struct ec_state x;
	struct df_mprog q;
	uint64_t set = 0;

	memset(&x, 0, sizeof(x));
	memset(out, 0, sizeof(out));
	to_model(s, 0, &x.p);
	for (int r = 0; r < s->nr_ranks; r++)
		x.at[r] = calloc(EC_OPS, 1);
	if (df_model_run(&x.p, DF_MODEL_BASE, NULL, ec_event, &x, &x.res))
		abort();
	for (int c = 0; x.res.hung && c < s->comm.nr; c++) {
		const struct sc_comm *m = &s->comms[c];
		size_t na = ec_sequence(&x, m->ranks[0], c, -1, 0, a), nb;

		/* Twice: an operation that one pair lacks is no part of a cycle between others. */
		for (int again = 0; again < 2; again++)
			for (int k = 0; k < m->nr; k++)
				for (int l = 0; l < m->nr; l++) {
					na = ec_sequence(&x, m->ranks[k], c, -1, 0, a);
					nb = ec_sequence(&x, m->ranks[l], c, -1, 0, b);
					set |= ec_compare(&x, m->ranks[k], a, na, m->ranks[l], b,
							  nb, out);
				}
		for (int k = 0; k < m->nr; k++)
			for (int l = 0; l < m->nr; l++) {
				na = ec_sequence(&x, m->ranks[k], c, m->ranks[l], 1, a);
				nb = ec_sequence(&x, m->ranks[l], c, m->ranks[k], 0, b);
				set |= ec_compare(&x, m->ranks[k], a, na, m->ranks[l], b, nb, out);
			}
	}
	if (!x.res.hung) {
		set = ec_bit(DF_V_OK);
	} else {
		ec_issued(&x, out, &q);
		if (df_model_run(&q, DF_MODEL_BASE, NULL, NULL, NULL, &res))
			abort();
		if (res.hung) {
			int d = *df_model_classify(&q) == 'D';

			q.cap = q.one_queue = 0;
			if (df_model_run(&q, DF_MODEL_BASE, NULL, NULL, NULL, &res))
				abort();
			set |= res.hung ? ec_bit(DF_V_ORDER) | (d ? ec_bit(DF_V_DATA) : 0)
					: ec_bit(DF_V_RESOURCE);
		} else if ((set & ~(EC_POLLS | EC_DIFFER)) == EC_BEHIND) {
			set |= ec_bit(DF_V_MISSING);
		} else if (!(set & ~EC_DIFFER)) {
			int ours = ec_by_ours(&x);
			uint64_t waits = ours ? ec_bit(DF_V_ORDER) : ec_bit(DF_V_DATA);

			for (int r = 0; r < x.p.nr_ranks; r++) {
				const struct df_mthread *t = &x.p.threads[r][0];
				size_t pc = x.res.pc[r][0];

				if (pc < t->nr_ops && (t->ops[pc].kind == DF_MOP_DSYNC ||
						       t->ops[pc].kind == DF_MOP_ISYNC))
					waits = ec_bit(DF_V_SYNC) |
						(ours == 2 ? ec_bit(DF_V_ORDER) : 0);
			}
			set |= waits;
		}
		df_mprog_fini(&q);
	}
	if (set & EC_POLLS && set & ec_bit(DF_V_MISSING))
		set |= ec_bit(DF_V_DATA);
	if (set & EC_DIFFER)
		set |= ec_bit(DF_V_MISMATCH);
	set &= ~(EC_BEHIND | EC_POLLS | EC_DIFFER);
	for (int r = 0; r < s->nr_ranks; r++)
		free(x.at[r]);
	df_mprog_fini(&x.p);
	return set;
}

/*
 * The cause for which a job hangs, from executions alone: neither the judge nor the model nor a
 * trace is asked, and there is one word for each job. The program itself names the places of its
 * threads (script.c) when nothing has moved for a while and no watchdog ran; then the same program
 * is executed under other circumstances.
 *
 *   MISMATCH  two ranks have issued different things for the same place of a communicator, or of a
 *             pair
 *   MISSING   one has issued an operation that another's program does not have
 *   RESOURCE  it completes by NCCL's rules where there is room for all
 *   ORDER     it completes by our rules although nothing is released; or all ranks have issued all
 *             operations
 *   SYNC      it completes if waits for the whole device are released; or a thread is in such a
 *             wait
 *   DATA      a thread waits for a stream or an event, and another for an operation that it has not
 *             issued
 */

void et_read(struct et_truth *t, const char *log)
{
	FILE *f = fopen(log, "r");
	char line[400];
	int r, thread, step;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "@ %d %d %d", &r, &thread, &step) != 3 || thread || r < 0 ||
		    r >= EV_RANKS)
			continue;
		t->at[r] = step;
		t->known = 1;
	}
	if (f)
		fclose(f);
}

/*
 * The k-th thing that a rank has for a place: in a communicator, or (peer >= 0) with a peer. 1
 * there is one.
 */
static int et_place(const struct script *s, int rank, int comm, int peer, int send, int k,
		    uint64_t *sig, int *step)
{
	const struct sc_thread *t = &s->threads[rank][0];

	for (int i = 0; i < t->nr; i++) {
		const struct sc_step *st = &t->v[i];
		int it = peer < 0 ? st->kind == SC_COLL && st->comm == comm
				  : st->kind == (send ? SC_SEND : SC_RECV) && st->comm == comm &&
					    st->peer == peer;

		if (!it || k--)
			continue;
		*sig = st->count << 8 | (peer < 0 ? (uint64_t)st->coll : 0);
		*step = i;
		return 1;
	}
	return 0;
}

/*
 * Two ranks that have to agree: bits of what is seen. 1 they differ, 2 one lacks it, 4 one has not
 * issued it yet.
 */
static int et_compare(const struct script *s, const struct et_truth *t, int comm, int a, int b,
		      int pa, int pb)
{
	int seen = 0;

	for (int k = 0;; k++) {
		uint64_t sa = 0, sb = 0;
		int ia = 0, ib = 0, has_a = et_place(s, a, comm, pa, 1, k, &sa, &ia),
		    has_b = et_place(s, b, comm, pb, 0, k, &sb, &ib);
		int issued_a = has_a && ia < t->at[a], issued_b = has_b && ib < t->at[b];

		if (!issued_a && !issued_b)
			return seen;
		if (issued_a && issued_b)
			seen |= sa != sb;
		else
			seen |= !has_a || !has_b ? 2 : 4;
	}
}

static int et_compare_all(const struct script *s, const struct et_truth *t)
{
	int seen = 0;

	for (int c = 0; c < s->comm.nr; c++) {
		const struct sc_comm *m = &s->comms[c];

		for (int i = 0; i < m->nr; i++)
			for (int k = 0; k < m->nr; k++) {
				int a = m->ranks[i], b = m->ranks[k];

				if (a < b)
					seen |= et_compare(s, t, c, a, b, -1, -1);
				if (a != b)
					seen |= et_compare(s, t, c, a, b, b, a);
			}
	}
	return seen;
}

int et_is_decided(const struct script *s, const struct et_truth *t)
{
	return et_compare_all(s, t) & 3;
}

static int et_is_device_wait(const struct script *s, const struct et_truth *t, int rank)
{
	enum sc_kind k = t->at[rank] < s->threads[rank][0].nr
				 ? s->threads[rank][0].v[t->at[rank]].kind
				 : SC_WORK;

	return k == SC_DSYNC || k == SC_FREE || k == SC_HALLOC || k == SC_HREG;
}

enum df_verdict et_label(const struct script *s, const struct et_truth *t)
{
	int seen = et_compare_all(s, t);

	if (seen & 1)
		return DF_V_MISMATCH;
	if (seen & 2)
		return DF_V_MISSING;
	if (t->completes[ET_ROOMY])
		return DF_V_RESOURCE;
	/* An implicit wait is one that our rules never make, released or not. */
	if (t->completes[ET_OURS] && seen & 4)
		for (int r = 0; r < s->nr_ranks; r++)
			if (et_is_device_wait(s, t, r) &&
			    s->threads[r][0].v[t->at[r]].kind != SC_DSYNC)
				return DF_V_SYNC;
	if (t->completes[ET_OURS] || !seen)
		return DF_V_ORDER;
	if (t->completes[ET_RELEASED])
		return DF_V_SYNC;
	for (int r = 0; r < s->nr_ranks; r++)
		if (et_is_device_wait(s, t, r))
			return DF_V_SYNC;
	return DF_V_DATA;
}
