/*
 * The symbolic execution of one loop: the rules of what may be read and written when. verify.c has
 * the postcondition.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/vec.h"
#include "runtime/program/program_names.h"
#include "runtime/program/verify/vsim.h"

#define NONE	    UINT32_MAX
#define CLOCK_BYTES (512ull << 20) /* the most that clocks may take, for each round */

/* ---- messages ---------------------------------------------------------------------------- */

int df_vsim_fail(struct df_vsim *s, uint32_t t, uint32_t step, const char *text)
{
	const struct df_gthread *th = &s->g->thread[t];

	return df_perr_set(s->err, df_plan_line(s->in->plan, th->rank, th->block, step), th->rank,
			   (int)th->block, (int)step, "%s", text);
}

static const char *const buf_name[] = {"input", "output", "scratch"};

static int fail_race(struct df_vsim *s, uint32_t t, uint32_t step, const char *does, int buf,
		     uint32_t chunk, uint32_t other, uint32_t epoch, const char *did)
{
	const struct df_gthread *o = &s->g->thread[other];
	uint32_t k = epoch - 1, round = o->nr_inst ? k / o->nr_inst : 0;
	char text[200];

	snprintf(text, sizeof(text),
		 "race: %s %s chunk %u, which block %u step %u %s%s; no dependency orders them",
		 does, buf_name[buf], chunk, o->block, o->nr_inst ? k % o->nr_inst : 0, did,
		 s->rounds > 1 && round != s->pc[t] / s->g->thread[t].nr_inst
			 ? " in another instance"
			 : "");
	return df_vsim_fail(s, t, step, text);
}

/* ---- memory ------------------------------------------------------------------------------ */

struct df_vloc *df_vsim_locate(struct df_vsim *s, int rank, int buf, uint32_t chunk, uint32_t round)
{
	const struct df_program *p = s->g->progs[rank];
	uint32_t at = s->base[rank];

	if (buf == DF_BUF_OUT && s->alias) {
		int64_t c = df_coll_alias(s->in->kind, s->in->root, rank, p->chunks, chunk);

		if (c >= 0) {
			buf = DF_BUF_IN;
			chunk = (uint32_t)c;
		}
	}
	if (buf == DF_BUF_SCRATCH)
		return &s->loc[at + p->in_chunks + p->out_chunks + chunk];
	if (buf == DF_BUF_OUT)
		at += p->in_chunks;
	return &s->loc[round * s->nr_loc + at + chunk];
}

/* Whether the action of thread o at `epoch` is ordered before the current action of thread t. */
static int before(const struct df_vsim *s, uint32_t o, uint32_t epoch, uint32_t t)
{
	if (o == t || s->comp[o] == NONE)
		return 1;
	return s->clock[(size_t)t * s->nr_comp + s->comp[o]] >= epoch;
}

static int load(struct df_vsim *s, uint32_t t, uint32_t step, uint32_t round, int buf,
		uint32_t chunk, struct df_vval *v)
{
	struct df_vloc *l = df_vsim_locate(s, s->g->thread[t].rank, buf, chunk, round);
	char text[200];
	uint32_t a;

	if (l->w_epoch && !before(s, l->w_thread, l->w_epoch, t))
		return fail_race(s, t, step, "reads", buf, chunk, l->w_thread, l->w_epoch,
				 "writes");
	if (!l->v.expr || (buf == DF_BUF_SCRATCH && l->round != round)) {
		snprintf(text, sizeof(text), "reads %s chunk %u, which holds nothing yet",
			 buf_name[buf], chunk);
		return df_vsim_fail(s, t, step, text);
	}
	*v = l->v;
	if (s->comp[t] == NONE)
		return 0;
	for (a = l->reads; a && s->acc[a - 1].thread != t; a = s->acc[a - 1].next)
		;
	if (!a) {
		if (DF_VEC_ROOM(s->acc, s->cap_acc, s->nr_acc + 1ull))
			return -ENOMEM;
		s->acc[s->nr_acc] = (struct df_vaccess){t, 0, l->reads};
		a = l->reads = ++s->nr_acc;
	}
	s->acc[a - 1].epoch = s->pc[t] + 1;
	return 0;
}

static int store(struct df_vsim *s, uint32_t t, uint32_t step, uint32_t round, int buf,
		 uint32_t chunk, struct df_vval v)
{
	struct df_vloc *l = df_vsim_locate(s, s->g->thread[t].rank, buf, chunk, round);

	if (buf == DF_BUF_IN && !s->in->own_input)
		return df_vsim_fail(s, t, step, "writes to the input, which belongs to the caller");
	if (l->w_epoch && !before(s, l->w_thread, l->w_epoch, t))
		return fail_race(s, t, step, "writes", buf, chunk, l->w_thread, l->w_epoch,
				 "writes");
	for (uint32_t a = l->reads; a; a = s->acc[a - 1].next) {
		if (!before(s, s->acc[a - 1].thread, s->acc[a - 1].epoch, t))
			return fail_race(s, t, step, "writes", buf, chunk, s->acc[a - 1].thread,
					 s->acc[a - 1].epoch, "reads");
	}
	l->v = v;
	l->v.raw = 0;
	l->reads = 0;
	l->round = round;
	l->w_thread = t;
	l->w_epoch = s->pc[t] + 1;
	/*
	 * Short chunks have the higher indices. A value that is longer than its new place loses its
	 * end.
	 */
	if (buf != DF_BUF_SCRATCH &&
	    chunk % s->g->progs[0]->chunks > s->sym->set[s->sym->expr[v.expr].set].low)
		s->out->whole_chunks = 1;
	return 0;
}

/* ---- one instruction --------------------------------------------------------------------- */

static void join_clock(struct df_vsim *s, uint32_t t, const uint32_t *c)
{
	uint32_t *mine = s->clock + (size_t)t * s->nr_comp;

	for (uint32_t k = 0; c && k < s->nr_comp; k++) {
		if (mine[k] < c[k])
			mine[k] = c[k];
	}
}

static int too_large(struct df_vsim *s)
{
	return df_perr_set(
		s->err, -1, -1, -1, -1,
		"%u steps in %u blocks of %d ranks are too many to be verified: take fewer "
		"ranks, blocks or chunks",
		s->nr_steps, s->g->nr_threads, s->g->nranks);
}

static int copy_clock(struct df_vsim *s, uint32_t t, uint32_t **out)
{
	*out = NULL;
	if (!s->nr_comp)
		return 0;
	if (!s->clocks_left--)
		return too_large(s);
	*out = malloc(s->nr_comp * sizeof(**out));
	if (!*out)
		return -ENOMEM;
	memcpy(*out, s->clock + (size_t)t * s->nr_comp, s->nr_comp * sizeof(**out));
	return 0;
}

static int check_flags(struct df_vsim *s, uint32_t t, uint32_t step, struct df_inst *in,
		       unsigned flags)
{
	/* These flags do not depend on values. */
	flags |= in->flags & (DF_INST_STAYS | DF_INST_KNOWN);
	if (s->set_flags) {
		in->flags = (uint8_t)flags;
		return 0;
	}
	if (flags == in->flags || !df_coll_reduces(s->in->kind))
		return 0;
	if ((flags ^ in->flags) & DF_INST_FINAL)
		return df_vsim_fail(
			s, t, step,
			flags & DF_INST_FINAL
				? "completes the reduction, but is not marked final"
				: "is marked final, but does not complete the reduction");
	return df_vsim_fail(s, t, step,
			    (flags & ~(unsigned)in->flags)
				    ? "uses an untouched input, but is not marked raw"
				    : "is marked raw, but its operand is not an untouched input");
}

static int combine(struct df_vsim *s, uint32_t t, uint32_t step, struct df_vval a, struct df_vval b,
		   struct df_vval *v)
{
	const struct df_sym_set *set;
	char text[200], list[120];

	v->expr = df_sym_join(s->sym, a.expr, b.expr);
	if (s->sym->err)
		return s->sym->err;
	v->raw = v->final = 0;
	set = &s->sym->set[s->sym->expr[v->expr].set];
	if (df_coll_reduces(s->in->kind) && set->dup) {
		df_sym_str(s->sym, s->sym->expr[v->expr].set, list, sizeof(list));
		snprintf(text, sizeof(text), "counts a contribution twice: %s", list);
		return df_vsim_fail(s, t, step, text);
	}
	return 0;
}

static int exec(struct df_vsim *s, uint32_t t, uint32_t step, uint32_t round)
{
	const struct df_gthread *th = &s->g->thread[t];
	struct df_inst *in = (struct df_inst *)&th->inst[step];
	const struct df_op_info *op = &df_op_info[in->op];
	uint32_t global = s->first_step[t] + step;
	struct df_vslice *rx = NULL, *tx = NULL;
	unsigned flags = 0, first_flags = 0;
	int reduces = df_coll_reduces(s->in->kind);
	char text[200];
	int rc;

	if (op->recvs) {
		const struct df_gconn *c = &s->g->conn[th->recv[in->recv_conn]];

		rx = &s->slice[round * s->g->nr_slices + c->first_slice + in->recv_ord];
		join_clock(s, t, rx->clock);
		if (rx->cnt != in->cnt) {
			snprintf(text, sizeof(text), "receives %u chunks where rank %d sends %u",
				 in->cnt, c->src, rx->cnt);
			return df_vsim_fail(s, t, step, text);
		}
	}
	if (s->comp[t] != NONE)
		s->clock[(size_t)t * s->nr_comp + s->comp[t]] = s->pc[t] + 1;
	if (op->sends) {
		const struct df_gconn *c = &s->g->conn[th->send[in->send_conn]];

		tx = &s->slice[round * s->g->nr_slices + c->first_slice + in->send_ord];
		if (DF_VEC_ROOM(s->val, s->cap_val, s->nr_val + (uint64_t)in->cnt))
			return -ENOMEM;
		tx->first = s->nr_val;
		tx->cnt = in->cnt;
		s->nr_val += in->cnt;
	}
	for (uint32_t i = 0; in->op != DF_OP_NOP && i < in->cnt; i++) {
		struct df_vval a = {0}, b = {0}, v = {0};

		flags = 0;
		/* In place, such a copy does nothing. */
		if (in->op == DF_OP_COPY && !reduces &&
		    df_vsim_locate(s, th->rank, in->src_buf, in->src + i, round) ==
			    df_vsim_locate(s, th->rank, in->dst_buf, in->dst + i, round)) {
			if (s->trace)
				s->trace[global] = df_hash_u64(
					s->trace[global],
					df_vsim_locate(s, th->rank, in->src_buf, in->src + i, round)
						->v.expr);
			continue;
		}
		if (op->reads) {
			rc = load(s, t, step, round, in->src_buf, in->src + i, &a);
			if (rc)
				return rc;
			flags |= a.raw ? DF_INST_RAW_SRC : 0;
		}
		v = op->recvs ? s->val[rx->first + i] : a;
		if (in->op == DF_OP_REDUCE) {
			rc = load(s, t, step, round, in->dst_buf, in->dst + i, &b);
			if (rc)
				return rc;
			flags |= b.raw ? DF_INST_RAW_DST : 0;
		} else if (op->reduces) {
			b = v;
		}
		if (op->reduces) {
			rc = combine(s, t, step, a, b, &v);
			if (rc)
				return rc;
		}
		v.raw = 0;
		if (!v.final && (op->reduces || op->writes) && reduces &&
		    s->sym->set[s->sym->expr[v.expr].set].complete) {
			v.final = 1;
			flags |= DF_INST_FINAL;
		}
		flags = reduces ? flags : 0;
		if (i && flags != first_flags)
			return df_vsim_fail(
				s, t, step,
				"mixes untouched or complete chunks with others; split the step");
		first_flags = flags;
		if (s->trace)
			s->trace[global] = df_hash_u64(s->trace[global], v.expr);
		if (op->writes) {
			rc = store(s, t, step, round, in->dst_buf, in->dst + i, v);
			if (rc)
				return rc;
		}
		if (op->sends)
			s->val[tx->first + i] = v;
	}
	if (op->sends) {
		tx->sent = 1;
		rc = copy_clock(s, t, &tx->clock);
		if (rc)
			return rc;
	}
	if (op->recvs) {
		s->clocks_left += rx->clock != NULL;
		free(rx->clock);
		rx->clock = NULL;
	}
	if (s->wanted[global]) {
		rc = copy_clock(s, t, &s->step_clock[round * s->nr_steps + global]);
		if (rc)
			return rc;
	}
	return round ? 0 : check_flags(s, t, step, in, flags);
}

/* ---- the run ----------------------------------------------------------------------------- */

static int run_thread(struct df_vsim *s, uint32_t t)
{
	const struct df_pgraph *g = s->g;
	const struct df_gthread *th = &g->thread[t];
	const struct df_program *p = g->progs[th->rank];
	int rc;

	while (s->pc[t] < th->nr_inst * s->rounds) {
		uint32_t round = s->pc[t] / th->nr_inst, step = s->pc[t] % th->nr_inst;
		const struct df_inst *in = &th->inst[step];

		for (uint32_t d = 0; d < in->nr_deps; d++) {
			const struct df_dep *dep = df_prog_dep(p, in->first_dep + d);
			uint32_t o = g->first_thread[th->rank] + dep->block;

			if (s->pc[o] <= round * g->thread[o].nr_inst + dep->inst) {
				s->waits_for[t] = o;
				s->dep_next[t] = s->dep_head[o];
				s->dep_head[o] = t;
				return 0;
			}
		}
		if (in->recv_conn != DF_NO_CONN) {
			uint32_t c = th->recv[in->recv_conn];

			if (!s->slice[round * g->nr_slices + g->conn[c].first_slice + in->recv_ord]
				     .sent) {
				s->waits_for[t] = g->conn[c].send_thread;
				s->wait_recv[c] = t;
				return 0;
			}
		}
		for (uint32_t d = 0; d < in->nr_deps; d++) {
			const struct df_dep *dep = df_prog_dep(p, in->first_dep + d);
			uint32_t o = g->first_thread[th->rank] + dep->block;

			join_clock(
				s, t,
				s->step_clock[round * s->nr_steps + s->first_step[o] + dep->inst]);
		}
		rc = exec(s, t, step, round);
		if (rc)
			return rc;
		s->pc[t]++;
		if (in->send_conn != DF_NO_CONN) {
			uint32_t *w = &s->wait_recv[th->send[in->send_conn]];

			if (*w != NONE)
				s->ready[s->nr_ready++] = *w;
			*w = NONE;
		}
		for (uint32_t w = s->dep_head[t]; w != NONE; w = s->dep_next[w])
			s->ready[s->nr_ready++] = w;
		s->dep_head[t] = NONE;
	}
	s->waits_for[t] = NONE;
	s->done++;
	return 0;
}

/* Follows the waits from a stuck thread to a cycle and names its members. */
static int report_deadlock(struct df_vsim *s)
{
	char text[240];
	uint32_t t = 0, start;
	size_t n;

	while (s->waits_for[t] == NONE || s->pc[t] >= s->g->thread[t].nr_inst * s->rounds)
		t++;
	for (uint32_t k = 0; k < s->g->nr_threads; k++)
		t = s->waits_for[t];
	start = t;
	n = (size_t)snprintf(text, sizeof(text), "can never go on: waits for");
	do {
		t = s->waits_for[t];
		n += (size_t)snprintf(text + n, sizeof(text) - n, " rank %d block %u step %u%s",
				      s->g->thread[t].rank, s->g->thread[t].block,
				      s->pc[t] % s->g->thread[t].nr_inst,
				      t == start ? "" : ", which waits for");
	} while (t != start && n < sizeof(text) - 60);
	if (t != start)
		snprintf(text + n, sizeof(text) - n, " ...");
	return df_vsim_fail(s, start, s->pc[start] % s->g->thread[start].nr_inst, text);
}

static int sim_init(struct df_vsim *s)
{
	const struct df_pgraph *g = s->g;
	uint32_t n = g->nr_threads, busy;

	s->base = calloc((size_t)g->nranks + 1, sizeof(*s->base));
	s->comp = malloc((n + 1) * sizeof(*s->comp));
	s->first_step = calloc(n + 1ull, sizeof(*s->first_step));
	if (!s->base || !s->comp || !s->first_step)
		return -ENOMEM;
	for (int r = 0; r < g->nranks; r++) {
		const struct df_program *p = g->progs[r];

		s->base[r] = s->nr_loc;
		s->nr_loc += p->in_chunks + p->out_chunks + p->scratch_chunks;
		busy = 0;
		for (uint32_t t = g->first_thread[r]; t < g->first_thread[r + 1]; t++)
			busy += g->thread[t].nr_inst > 0;
		for (uint32_t t = g->first_thread[r]; t < g->first_thread[r + 1]; t++) {
			s->comp[t] = busy > 1 && g->thread[t].nr_inst ? s->nr_comp++ : NONE;
			s->first_step[t] = s->nr_steps;
			s->nr_steps += g->thread[t].nr_inst;
		}
	}
	s->clocks_left = s->nr_comp ? s->rounds * CLOCK_BYTES / sizeof(*s->clock) / s->nr_comp : 0;
	if (df_verify_too_large(s->nr_steps, g->nranks, s->nr_comp) ||
	    (s->nr_comp && n > s->clocks_left))
		return too_large(s);
	s->clocks_left -= s->nr_comp ? n : 0;
	s->loc = calloc((size_t)s->nr_loc * s->rounds + 1, sizeof(*s->loc));
	s->slice = calloc((size_t)g->nr_slices * s->rounds + 1, sizeof(*s->slice));
	s->pc = calloc(n + 1ull, sizeof(*s->pc));
	s->clock = calloc((size_t)n * s->nr_comp + 1, sizeof(*s->clock));
	s->step_clock = calloc((size_t)s->nr_steps * s->rounds + 1, sizeof(*s->step_clock));
	s->wanted = calloc(s->nr_steps + 1ull, 1);
	s->trace = calloc(s->nr_steps + 1ull, sizeof(*s->trace));
	s->wait_recv = malloc((g->nr_conns + 1ull) * sizeof(*s->wait_recv));
	s->dep_head = malloc((n + 1ull) * sizeof(*s->dep_head));
	s->dep_next = malloc((n + 1ull) * sizeof(*s->dep_next));
	s->ready = malloc((n + 1ull) * sizeof(*s->ready));
	s->waits_for = malloc((n + 1ull) * sizeof(*s->waits_for));
	if (!s->loc || !s->slice || !s->pc || !s->clock || !s->step_clock || !s->wanted ||
	    !s->trace || !s->wait_recv || !s->dep_head || !s->dep_next || !s->ready ||
	    !s->waits_for)
		return -ENOMEM;
	for (uint32_t t = 0; t < n; t++) {
		const struct df_gthread *th = &g->thread[t];

		s->dep_head[t] = s->waits_for[t] = NONE;
		s->ready[n - 1 - t] = t;
		for (uint32_t i = 0; i < th->nr_inst; i++) {
			for (uint32_t d = 0; d < th->inst[i].nr_deps; d++) {
				const struct df_dep *dep =
					df_prog_dep(g->progs[th->rank], th->inst[i].first_dep + d);

				s->wanted[s->first_step[g->first_thread[th->rank] + dep->block] +
					  dep->inst] = 1;
			}
		}
	}
	s->nr_ready = n;
	for (uint32_t c = 0; c < g->nr_conns; c++)
		s->wait_recv[c] = NONE;
	for (int r = 0; r < g->nranks; r++) {
		for (uint32_t k = 0; k < s->rounds; k++) {
			for (uint32_t c = 0; c < g->progs[r]->in_chunks; c++)
				df_vsim_locate(s, r, DF_BUF_IN, c, k)->v =
					(struct df_vval){df_sym_leaf(s->sym, (uint32_t)r, c), 1, 0};
		}
	}
	return s->sym->err;
}

void df_vsim_fini(struct df_vsim *s)
{
	for (uint64_t i = 0; s->slice && i < (uint64_t)s->g->nr_slices * s->rounds; i++)
		free(s->slice[i].clock);
	for (uint64_t i = 0; s->step_clock && i < (uint64_t)s->nr_steps * s->rounds; i++)
		free(s->step_clock[i]);
	free(s->base);
	free(s->comp);
	free(s->first_step);
	free(s->loc);
	free(s->slice);
	free(s->pc);
	free(s->clock);
	free(s->step_clock);
	free(s->wanted);
	free(s->trace);
	free(s->wait_recv);
	free(s->dep_head);
	free(s->dep_next);
	free(s->ready);
	free(s->waits_for);
	free(s->val);
	free(s->acc);
}

int df_vsim_run(struct df_vsim *s)
{
	int rc = sim_init(s);

	while (!rc && s->nr_ready)
		rc = run_thread(s, s->ready[--s->nr_ready]);
	if (!rc && s->done != s->g->nr_threads)
		rc = report_deadlock(s);
	return rc;
}
