/*
 * What a job hangs of, from executions alone: neither the judge nor the model nor a trace is asked, and there is one word
 * for each job. Where the hosts stand is what the program itself says (script.c) when nothing has moved for a
 * while and no watchdog ran; then the same program is executed under other circumstances.
 *
 *   MISMATCH  two ranks have issued different things for the same place of a communicator, or of a pair
 *   MISSING   one has issued what another's program does not have
 *   RESOURCE  it completes by NCCL's rules where there is room for all
 *   ORDER     it completes by our rules although nothing is released; or all that was issued has been issued by all
 *   SYNC      it completes if waits for the whole device are released; or a host is in such a wait
 *   DATA      a host waits for a stream or an event, and another for what it has not issued
 */
#ifndef DEADLOCK_EVAL_TRUTH_H
#define DEADLOCK_EVAL_TRUTH_H

#include "eval_units.h"
#include "trace/check.h"

enum et_phase { ET_STAND, ET_ROOMY, ET_OURS, ET_RELEASED, ET_NR };

struct et_truth {
	int completes[ET_NR];
	int at[EV_RANKS]; /* the step of each rank's host */
	int known;	  /* they have been said */
};

static inline void et_read(struct et_truth *t, const char *log)
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

/* The k-th thing that a rank has for a place: in a communicator, or (peer >= 0) with a peer. 1 there is one. */
static inline int et_place(const struct script *s, int rank, int comm, int peer, int send, int k,
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

/* Two ranks that have to agree: bits of what is seen. 1 they differ, 2 one lacks it, 4 one has not issued it yet. */
static inline int et_compare(const struct script *s, const struct et_truth *t, int comm, int a,
			     int b, int pa, int pb)
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

static inline int et_compare_all(const struct script *s, const struct et_truth *t)
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

/* Where the hosts stand says it already. */
static inline int et_is_decided(const struct script *s, const struct et_truth *t)
{
	return et_compare_all(s, t) & 3;
}

static inline int et_is_device_wait(const struct script *s, const struct et_truth *t, int rank)
{
	enum sc_kind k = t->at[rank] < s->threads[rank][0].nr
				 ? s->threads[rank][0].v[t->at[rank]].kind
				 : SC_WORK;

	return k == SC_DSYNC || k == SC_FREE || k == SC_HALLOC || k == SC_HREG;
}

static inline enum df_verdict et_label(const struct script *s, const struct et_truth *t)
{
	int seen = et_compare_all(s, t);

	if (seen & 1)
		return DF_V_MISMATCH;
	if (seen & 2)
		return DF_V_MISSING;
	if (t->completes[ET_ROOMY])
		return DF_V_RESOURCE;
	/* What an implicit wait asks for our rules never do, released or not. */
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

#endif
