/* Derives the causes for which a job of the evaluation hangs (eval.h). */
#include <stdlib.h>
#include <string.h>
#include "eval.h"

/*
 * ec_class() derives the right verdicts of a program from the program alone. The model executes the
 * program until nothing can move. The operations and threads that are stuck then give the class.
 * More than one word can be right.
 *
 *   MISMATCH  Ranks have issued different operations as the k-th of a communicator (or pair). If
 *             none of them has started, the other causes are right too.
 *   MISSING   One rank has started an operation, and another has reached its end without it.
 *   ORDER     Operations that all their ranks have issued wait for one another. If other work
 *             stands between them on every rank, DATA is right too. Also if threads wait, and one
 *             of them gets further when collectives may run out of order.
 *   RESOURCE  Such operations would run with more slots or queues.
 *   SYNC      No operations wait for one another so, but threads wait for the whole device. If the
 *             program completes by dfshim's rules without a release, ORDER is right too.
 *   DATA      The same with threads that wait for a stream or an event. Also right beside MISSING
 *             if the rank that lacks the operation polls its streams at its end (script.c) and an
 *             operation there never ends: no record shows that the rank makes no further call.
 */

#define EC_OPS 8192
/* MISSING if nothing else is found, because no rank has started the operation */
#define EC_BEHIND (1ULL << 63)
/* DATA is right beside MISSING, because the rank that lacks the operation polls */
#define EC_POLLS (1ULL << 62)
/* MISMATCH is right beside other causes, because neither operation has started */
#define EC_DIFFER (1ULL << 61)

/* A collective, or one message of a group, of one rank. */
struct ec_op {
	uint64_t sig;
	size_t step;
	int message;
};

struct ec_state {
	struct df_mprog p;
	struct df_model_result res;
	uint8_t *at[DF_MODEL_RANKS]; /* for each step: 1 issued, 2 started, 3 done */
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
 * Stores the sequence of a rank's collectives in a communicator (peer < 0), or of its sends or
 * receives with a peer. Returns their number.
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

/*
 * Whether the rank has reached its end, where it polls its streams, with an unfinished operation.
 */
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
 * Compares the sequences of two ranks that must agree, and returns the causes. Marks in `out` the
 * operations that one of the ranks has not issued, or that differ and have started on both: they
 * are no part of a cycle.
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

/*
 * Makes a program `q` of the operations that all their ranks have issued, without the waits of
 * threads.
 */
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

			/* ec_compare() has already compared the signatures. */
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
 * Runs the program without the order of issue, as dfshim may. Returns 2 if it completes, 1 if a
 * thread gets further than before, else 0.
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

		/*
		 * Twice, because an operation that one pair lacks is no part of a cycle between
		 * other ranks either.
		 */
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
 * et_label() derives one class of a hang from executions alone. Neither the checker nor the model
 * nor a trace is used. A first execution without a watchdog prints the step of each thread
 * (script.c) when there is no progress. Further executions have other rules.
 *
 *   MISMATCH  Two ranks have issued different operations as the k-th of a communicator or pair.
 *   MISSING   One rank has issued an operation that another rank's program does not contain.
 *   RESOURCE  The program completes by NCCL's rules with enough slots and queues.
 *   ORDER     The program completes by dfshim's rules without a release, or all ranks have issued
 *             all operations.
 *   SYNC      The program completes if waits for the whole device are released, or a thread is in
 *             such a wait.
 *   DATA      A thread waits for a stream or an event, and another thread for an operation that
 *             this thread has not issued.
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
 * Finds the k-th operation of a rank in a communicator (peer < 0), or the k-th send to or receive
 * from `peer`. Returns 1 if the program contains it.
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
 * Compares two ranks that must agree. Returns a set of bits: 1 operations differ, 2 a program lacks
 * an operation, 4 a rank has not issued an operation yet.
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
	/* dfshim never makes implicit waits for the device, whatever the release policy. */
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
