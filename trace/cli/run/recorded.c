/* Makes steps from traces, in the recorded order of each thread's calls (recorded.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/cli/common/cli.h"
#include "trace/cli/run/recorded.h"
#include "trace/record/names.h"
#include "runtime/base/err.h"
#include "runtime/base/vec.h"

/* Returns a small number for a stream (`what` is 0) or an event (1). */
static int small(struct df_program_steps *p, int what, uint64_t id)
{
	uint64_t *number = df_map_at(&p->ids[what], id, 0);

	if (number && !*number)
		*number = ++p->nr_ids[what];
	return number ? (int)*number - 1 : 0;
}

static int comm_of(struct df_program_steps *p, const struct df_trace_comm *c)
{
	uint64_t *number = df_map_at(&p->numbers, c->hash, 0);
	struct df_comm_of *g;

	if (number && *number)
		return (int)*number - 1;
	g = number ? DF_VEC_PUSH(p->comms, p->nr_comms, p->cap_comms) : NULL;
	if (!g)
		return -1;
	*number = p->nr_comms;
	memset(g, 0, sizeof(*g));
	g->hash = c->hash;
	g->nranks = c->nranks;
	snprintf(g->name, sizeof(g->name), "%s", c->name);
	return (int)p->nr_comms - 1;
}

static int rank_of(struct df_program_steps *p, uint32_t trace, int32_t device,
		   const struct df_trace_header *h)
{
	struct df_rank_of *r;

	/* The ranks of the trace that is read are usually the last ones. */
	for (int i = p->nr_ranks; i-- > 0;)
		if (p->ranks[i].trace == trace && p->ranks[i].device == device)
			return i;
	if (p->nr_ranks == DF_MODEL_RANKS) {
		/* In order of the traces, which may be read twice. */
		p->procs_left_out += trace >= p->next_left_out;
		p->next_left_out = DF_MAX(p->next_left_out, trace + 1);
		return -1;
	}
	r = &p->ranks[p->nr_ranks];
	r->trace = trace;
	r->device = device;
	if (h->rank >= 0 && h->world > 1)
		snprintf(r->name, sizeof(r->name), "r%d", h->rank);
	else
		snprintf(r->name, sizeof(r->name), "pid %u device %d", h->pid, device);
	return p->nr_ranks++;
}

static int push_step(struct df_program_steps *p, int rank, uint32_t tid, const struct df_step_of *s)
{
	struct df_rank_of *r = &p->ranks[rank];
	struct df_step_of *slot;
	int t = 0;

	while (t < r->nr_threads && r->tid[t] != tid)
		t++;
	if (t == r->nr_threads) {
		if (t == DF_MODEL_THREADS) {
			p->left_out++;
			return 0;
		}
		r->tid[r->nr_threads++] = tid;
	}
	slot = DF_VEC_PUSH(r->steps[t], r->nr[t], r->cap[t]);
	if (!slot)
		return -ENOMEM;
	*slot = *s;
	return 0;
}

static void add_member(struct df_comm_of *c, int rank, int rank_in_it)
{
	df_ranks_add(&c->members, rank);
	if (rank_in_it >= 0 && rank_in_it < DF_MODEL_RANKS)
		c->member[rank_in_it] = rank + 1;
}

static int add_op(struct df_program_steps *p, struct df_reader *rd, const struct df_lop *op,
		  int rank, struct df_step_of *open)
{
	const struct df_trace_comm *c = df_reader_comm(rd, op->comm);
	int comm = c ? comm_of(p, c) : -1,
	    p2p = op->kind == DF_KIND_SEND || op->kind == DF_KIND_RECV;
	struct df_step_of s = {.rec = op->rec,
			       .comm = (uint32_t)comm,
			       .index = op->index,
			       .send = op->send,
			       .recv = op->recv,
			       .count = op->count,
			       .kind = op->kind,
			       .type = op->type,
			       .redop = op->redop,
			       .peer = op->peer,
			       .group = op->group,
			       .sends = op->sends,
			       .site = op->site};
	struct df_range in, out;

	if (comm < 0)
		return 0;
	df_load_buffers(op, (uint64_t)c->nranks, &in, &out);
	add_member(&p->comms[comm], rank, c->rank);
	s.op.stream = small(p, 0, op->stream);
	if (!p2p) {
		s.op.kind = DF_MOP_COLL;
		s.op.comm = comm;
		s.op.sig = op->kind | op->count << 8;
		s.op.in = in;
		s.op.out = out;
		return push_step(p, rank, op->thread, &s);
	}
	s.op.kind = DF_MOP_P2P;
	s.op.nr_p2p = 1;
	s.op.p2p[0] = (struct df_mp2p){op->kind == DF_KIND_SEND, comm, op->peer, op->count,
				       op->kind == DF_KIND_SEND ? in : out};
	/* Messages of one group are one step. */
	if (p->flags & DF_STEPS_MERGE && op->group && open->op.nr_p2p && open->rec == op->group &&
	    open->op.nr_p2p < DF_MOP_MAX_P2P) {
		struct df_rank_of *r = &p->ranks[rank];

		for (int t = 0; t < r->nr_threads; t++) {
			if (r->tid[t] == op->thread && r->nr[t]) {
				struct df_mop *m = &r->steps[t][r->nr[t] - 1].op;

				if (m->kind == DF_MOP_P2P && m->nr_p2p < DF_MOP_MAX_P2P) {
					m->p2p[m->nr_p2p++] = s.op.p2p[0];
					return 0;
				}
			}
		}
	}
	*open = s;
	open->rec = op->group;
	return push_step(p, rank, op->thread, &s);
}

/* Inserts a step without a record at a place of a thread. */
static int insert_step(struct df_rank_of *r, int t, size_t at, enum df_mop_kind kind, int flag)
{
	struct df_step_of *slot = DF_VEC_PUSH(r->steps[t], r->nr[t], r->cap[t]);

	if (!slot)
		return -ENOMEM;
	memmove(&r->steps[t][at + 1], &r->steps[t][at], (r->nr[t] - 1 - at) * sizeof(*slot));
	r->steps[t][at] =
		(struct df_step_of){.op = {.kind = kind, .object = flag}, .rec = DF_NO_REC};
	return 0;
}

#define TORCH_THREADS "pt_" /* names of PyTorch's threads begin with this */

static int begins(const struct df_lthread *t, const char *prefix)
{
	return t && !strncmp(t->name, prefix, strlen(prefix));
}

/*
 * Finds two threads of each rank that take turns. PyTorch computes the gradients of a device in a
 * thread of its own, while the caller of backward() waits, so the order of their steps is always
 * the recorded one. If several threads call backward(), this is unknown, unless one is the main
 * thread.
 */
static void find_backward(struct df_program_steps *p, const struct df_load *l, uint32_t trace)
{
	for (int k = 0; k < p->nr_ranks; k++) {
		struct df_rank_of *r = &p->ranks[k];
		int nr[2] = {0}, main = 0;

		for (int t = 0; t < r->nr_threads && r->trace == trace; t++) {
			const struct df_lthread *lt = df_load_thread(l, r->tid[t]);
			int autograd = begins(lt, DF_AUTOGRAD_THREADS);

			if (!autograd && begins(lt, TORCH_THREADS))
				continue;
			main |= !autograd && r->tid[t] == l->h.pid;
			if (!nr[autograd]++ || (!autograd && r->tid[t] == l->h.pid))
				r->backward[autograd] = t;
		}
		r->has_backward |= (nr[0] == 1 || main) && nr[1] == 1;
	}
}

/* Adds a signal and a wait for it wherever the turn passes from one of the two to the other. */
static int take_turns(struct df_program_steps *p, struct df_rank_of *r)
{
	struct df_step_of *from[2];
	size_t nr[2], at[2] = {0, 0};
	int last = -1, rc = 0;

	for (int i = 0; i < 2; i++) {
		int t = r->backward[i];

		from[i] = r->steps[t];
		nr[i] = r->nr[t];
		r->steps[t] = NULL;
		r->nr[t] = r->cap[t] = 0;
	}
	while (!rc && (at[0] < nr[0] || at[1] < nr[1])) {
		int i = at[0] == nr[0] ||
			(at[1] < nr[1] && from[1][at[1]].rec < from[0][at[0]].rec);
		int t = r->backward[i];
		struct df_step_of *slot;

		if (last >= 0 && last != i) {
			int before = r->backward[last];

			rc = insert_step(r, before, r->nr[before], DF_MOP_HSIGNAL, p->nr_flags);
			rc = rc ?: insert_step(r, t, r->nr[t], DF_MOP_HWAIT, p->nr_flags++);
		}
		last = i;
		slot = rc ? NULL : DF_VEC_PUSH(r->steps[t], r->nr[t], r->cap[t]);
		if (!slot)
			rc = -ENOMEM;
		else
			*slot = from[i][at[i]++];
	}
	free(from[0]);
	free(from[1]);
	return rc;
}

/*
 * Orders the first and the last step of each thread after and before steps of the others, as
 * recorded. The records do not show which thread created or joined which, so a thread is assumed to
 * have been created just before its first step, and joined after its last one.
 */
static int lifetimes(struct df_program_steps *p, struct df_rank_of *r)
{
	for (int b = 0; b < r->nr_threads; b++) {
		uint64_t first = DF_NO_REC, last = 0;

		for (size_t i = 0; i < r->nr[b]; i++) {
			if (r->steps[b][i].rec == DF_NO_REC)
				continue;
			first = first == DF_NO_REC ? r->steps[b][i].rec : first;
			last = r->steps[b][i].rec;
		}
		for (int a = 0; a < r->nr_threads && first != DF_NO_REC; a++) {
			size_t before = 0, after = 0;

			if (a == b)
				continue;
			for (size_t i = 0; i < r->nr[a]; i++)
				if (r->steps[a][i].rec != DF_NO_REC && r->steps[a][i].rec < first)
					before = i + 1;
			if (before && (insert_step(r, a, before, DF_MOP_HSIGNAL, p->nr_flags) ||
				       insert_step(r, b, 0, DF_MOP_HWAIT, p->nr_flags++)))
				return -ENOMEM;
			while (after < r->nr[a] && (r->steps[a][after].rec == DF_NO_REC ||
						    r->steps[a][after].rec < last))
				after++;
			if (after < r->nr[a] &&
			    (insert_step(r, a, after, DF_MOP_HWAIT, p->nr_flags) ||
			     insert_step(r, b, r->nr[b], DF_MOP_HSIGNAL, p->nr_flags++)))
				return -ENOMEM;
		}
	}
	return 0;
}

static int alike(const struct df_lop *a, const struct df_lop *b)
{
	int p2p = df_kind_is_p2p(a->kind);

	return a->comm == b->comm && p2p == df_kind_is_p2p(b->kind) &&
	       (!p2p || (a->kind == b->kind && a->peer == b->peer));
}

/*
 * Returns the index that an intended operation would have: after the issued ones of its kind and
 * after the intended ones of earlier notes.
 */
static uint64_t intent_index(const struct df_load *l, const struct df_lop *op, size_t note)
{
	uint64_t index = 0;
	struct df_lop other;

	for (size_t i = 0; i < l->nr_ops; i++)
		if (alike(&l->ops[i], op) && l->ops[i].index >= index)
			index = l->ops[i].index + 1;
	for (size_t i = 0; i < note; i++)
		index += df_load_intent(l, &l->notes[i], &other) && alike(&other, op);
	return index;
}

static int is_of_stream(uint32_t call)
{
	return call == DF_CALL_STREAM_SYNC || call == DF_CALL_POLL_STREAM;
}

static int add_trace(struct df_program_steps *p, const struct df_load *l, struct df_reader *rd,
		     uint32_t trace)
{
	struct df_step_of open[DF_MODEL_RANKS];
	/* (rank, event): whether modelled work was recorded in the event */
	struct df_map recorded = {0};
	size_t call = 0;
	int rc = 0;

	memset(open, 0, sizeof(open));
	if (l->h.sms && (!p->sms || l->h.sms < p->sms))
		p->sms = l->h.sms;
	if (l->h.slots && (!p->slots || l->h.slots < p->slots))
		p->slots = l->h.slots;
	for (size_t i = 0; i <= l->nr_items && !rc; i++) {
		const struct df_litem *it = &l->items[i];
		struct df_step_of s = {0};
		int rank;

		/* First the calls that were recorded before this item. */
		for (; call < l->nr_calls && (i == l->nr_items || l->calls[call].rec < it->rec) &&
		       !rc;
		     call++) {
			const struct df_lcall *c = &l->calls[call];
			struct df_step_of y = {.rec = c->rec, .site = c->site};

			rank = rank_of(p, trace, c->device, &l->h);
			/* A loop of queries that ended has waited, like the call that waits. */
			switch (df_call_is_poll(c->call) ? DF_CLASS_STREAM
							 : df_call_class(c->call)) {
			case DF_CLASS_STREAM:
				y.op.kind = is_of_stream(c->call) ? DF_MOP_SSYNC : DF_MOP_ESYNC;
				if (is_of_stream(c->call)) {
					y.op.stream = small(p, 0, c->object);
					break;
				}
				/* A wait for an event that follows no modelled work is no wait. */
				y.op.object = small(p, 1, c->object);
				if (rank < 0 || !df_map_find(&recorded, (uint64_t)rank, c->object))
					continue;
				break;
			case DF_CLASS_DEVICE:
				y.op.kind = DF_MOP_DSYNC;
				break;
			case DF_CLASS_IMPLICIT:
				y.op.kind = DF_MOP_ISYNC;
				break;
			default:
				continue;
			}
			if (rank >= 0 && c->device >= 0)
				rc = push_step(p, rank, c->thread, &y);
			if (rank >= 0 && c->open && !c->background)
				p->ranks[rank].waits = 1;
		}
		if (i == l->nr_items || rc)
			break;
		if (it->type == DF_ITEM_OP) {
			rank = rank_of(p, trace, l->ops[it->a].device, &l->h);
			if (rank >= 0)
				rc = add_op(p, rd, &l->ops[it->a], rank, &open[rank]);
			continue;
		}
		rank = rank_of(p, trace, it->device, &l->h);
		if (rank < 0 || it->device < 0)
			continue;
		s.rec = it->rec;
		s.op.stream = small(p, 0, it->stream);
		if (it->type == DF_ITEM_WORK)
			s.op.kind = DF_MOP_KERNEL;
		else if (it->type == DF_ITEM_RECORD)
			s.op.kind = DF_MOP_RECORD;
		else if (it->type == DF_ITEM_WAIT)
			s.op.kind = DF_MOP_WAIT;
		else
			continue;
		if (it->type != DF_ITEM_WORK)
			s.op.object = small(p, 1, it->a);
		if (it->type == DF_ITEM_RECORD && !df_map_at(&recorded, (uint64_t)rank, it->a))
			rc = -ENOMEM;
		rc = rc ?: push_step(p, rank, it->thread, &s);
	}
	df_map_fini(&recorded);
	/* The operations that waiting threads would have issued next are part of the program. */
	for (size_t i = 0; i < l->nr_notes && !rc; i++) {
		struct df_lop op;
		int rank;

		if (!df_load_intent(l, &l->notes[i], &op))
			continue;
		op.index = intent_index(l, &op, i);
		rank = rank_of(p, trace, op.device, &l->h);
		p->nr_intents++;
		if (rank >= 0)
			rc = add_op(p, rd, &op, rank, &open[rank]);
	}
	find_backward(p, l, trace);
	for (size_t i = 0; i < l->nr_ops; i++)
		df_stacks_get(&p->stacks, trace, l->notes, l->nr_notes, rd, l->ops[i].site);
	for (size_t i = 0; i < l->nr_calls; i++)
		df_stacks_get(&p->stacks, trace, l->notes, l->nr_notes, rd, l->calls[i].site);
	return rc;
}

const char *df_steps_stack(const struct df_program_steps *p, int rank, const struct df_step_of *s)
{
	return df_stacks_find(&p->stacks, p->ranks[rank].trace, s->site) ?: "";
}

/*
 * Adds ranks that have issued nothing on a communicator that others use, because their absence is
 * part of the program.
 */
static void add_members(struct df_program_steps *p, const struct df_reader *rd, uint32_t trace)
{
	const struct df_trace_comm *c;

	for (uint32_t i = 1; (c = df_reader_comm(rd, i)); i++) {
		const uint64_t *number = df_map_find(&p->numbers, c->hash, 0);
		int rank = number ? rank_of(p, trace, c->device, &rd->h) : -1;

		if (rank >= 0)
			add_member(&p->comms[*number - 1], rank, c->rank);
	}
}

int df_steps_peer(const struct df_program_steps *p, int comm, int peer)
{
	return peer >= 0 && peer < DF_MODEL_RANKS ? p->comms[comm].member[peer] - 1 : -1;
}

int df_steps_load(struct df_program_steps *p, const char *sub, char **paths, size_t nr, int flags)
{
	struct df_load l;
	int rc = 0, lost = 0;

	memset(p, 0, sizeof(*p));
	p->flags = flags;
	df_load_init(&l);
	/* Two passes, because the used communicators are known only after the first. */
	for (size_t i = 0; i < (flags & DF_STEPS_MEMBERS ? 2 * nr : nr) && !rc; i++) {
		const char *why = "out of memory", *path = paths[i % nr];
		struct df_reader rd;

		if (df_reader_open(&rd, path, &why)) {
			rc = df_cli_input_error(sub, path, "%s", why);
			break;
		}
		/* The operations of a ring that has lost records are unknown. */
		lost |= rd.first > 0;
		if (i >= nr && !lost)
			add_members(p, &rd, (uint32_t)(i - nr));
		else if (i < nr && (df_load_trace(&l, &rd) || add_trace(p, &l, &rd, (uint32_t)i)))
			rc = df_cli_input_error(sub, path, "out of memory");
		df_reader_close(&rd);
	}
	df_load_fini(&l);
	for (int r = 0; r < p->nr_ranks && !rc; r++)
		if ((p->ranks[r].has_backward && take_turns(p, &p->ranks[r])) ||
		    lifetimes(p, &p->ranks[r]))
			rc = df_cli_input_error(sub, paths[p->ranks[r].trace], "out of memory");
	return rc;
}

void df_steps_free(struct df_program_steps *p)
{
	for (int r = 0; r < p->nr_ranks; r++)
		for (int t = 0; t < DF_MODEL_THREADS; t++)
			free(p->ranks[r].steps[t]);
	df_map_fini(&p->ids[0]);
	df_map_fini(&p->ids[1]);
	df_map_fini(&p->numbers);
	free(p->comms);
	df_stacks_fini(&p->stacks);
	memset(p, 0, sizeof(*p));
}
