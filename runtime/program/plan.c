/*
 * Builds plans and turns them into programs. This file assigns the numbers: connections of a block
 * in the order of their first use, ordinals and slices per loop by counting. One thread per object,
 * no locks.
 */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/vec.h"
#include "runtime/program/plan.h"
#include "runtime/program/program.h"
#include "runtime/program/program_names.h"

void df_prank_init(struct df_prank *r)
{
	memset(r, 0, sizeof(*r));
}

void df_prank_fini(struct df_prank *r)
{
	for (uint32_t b = 0; b < r->nr_blocks; b++)
		free(r->block[b].inst);
	free(r->block);
	free(r->dep);
	memset(r, 0, sizeof(*r));
}

struct df_pblock *df_prank_block(struct df_prank *r, uint32_t b)
{
	if (b >= r->nr_blocks) {
		if (DF_VEC_ROOM(r->block, r->cap_blocks, b + 1)) {
			r->err = -ENOMEM;
			return NULL;
		}
		memset(r->block + r->nr_blocks, 0, (b + 1 - r->nr_blocks) * sizeof(*r->block));
		r->nr_blocks = b + 1;
	}
	return &r->block[b];
}

struct df_pinst *df_prank_add(struct df_prank *r, uint32_t b, const struct df_pinst *inst)
{
	struct df_pblock *blk = df_prank_block(r, b);

	if (!blk || DF_VEC_ROOM(blk->inst, blk->cap, blk->nr + 1)) {
		r->err = -ENOMEM;
		return NULL;
	}
	blk->inst[blk->nr] = *inst;
	return &blk->inst[blk->nr++];
}

void df_prank_dep(struct df_prank *r, uint32_t b, uint32_t i, uint32_t dep_block, uint32_t dep_inst)
{
	uint32_t *at;

	if (DF_VEC_ROOM(r->dep, r->cap_deps, r->nr_deps + 1)) {
		r->err = -ENOMEM;
		return;
	}
	/* Sorted by block, so that the result does not depend on the order of insertion. */
	at = &r->block[b].inst[i].deps;
	while (*at && r->dep[*at - 1].block < dep_block)
		at = &r->dep[*at - 1].next;
	if (*at && r->dep[*at - 1].block == dep_block) {
		/* A block executes in order, so the later instruction implies the earlier one. */
		if (r->dep[*at - 1].inst < dep_inst)
			r->dep[*at - 1].inst = dep_inst;
		return;
	}
	r->dep[r->nr_deps] = (struct df_pdep){dep_block, dep_inst, *at};
	*at = ++r->nr_deps;
}

/* An open-addressing table from (direction, peer, channel) to a connection of the current block. */
struct conn_map {
	struct conn_slot {
		uint64_t key;
		uint32_t stamp, index;
	} * slot;
	uint32_t mask;
};

static uint32_t *map_find(struct conn_map *m, uint32_t stamp, int dir, int32_t peer, uint32_t chan,
			  int *fresh)
{
	uint64_t key = (uint64_t)(uint32_t)peer << 32 | chan;
	uint32_t i = (uint32_t)df_hash_u64((uint64_t)dir, key) & m->mask;

	stamp = stamp * 2 + (uint32_t)dir + 1;
	for (;; i = (i + 1) & m->mask) {
		struct conn_slot *s = &m->slot[i];

		if (s->stamp == stamp && s->key == key) {
			*fresh = 0;
			return &s->index;
		}
		if (!s->stamp) {
			s->stamp = stamp;
			s->key = key;
			*fresh = 1;
			return &s->index;
		}
	}
}

static uint32_t align8(uint32_t n)
{
	return (n + 7) & ~7u;
}

int df_prank_finish(const struct df_prank *r, const struct df_phead *head, struct df_program **out)
{
	uint32_t nr_inst = 0, nr_conns = 0, nr_comm = 0, nr_deps = 0, ii = 0, dd = 0, bytes;
	uint32_t off_blocks, off_inst, off_deps, off_conns;
	struct conn_map map = {0};
	struct df_program *p = NULL;
	struct df_conn_spec *conns;
	struct df_dep *deps;
	uint64_t total;

	if (r->err)
		return r->err;
	for (uint32_t b = 0; b < r->nr_blocks; b++) {
		nr_inst += r->block[b].nr;
		for (uint32_t i = 0; i < r->block[b].nr; i++) {
			const struct df_pinst *pi = &r->block[b].inst[i];

			nr_comm += (uint32_t)(pi->send_peer >= 0) + (uint32_t)(pi->recv_peer >= 0);
			for (uint32_t d = pi->deps; d; d = r->dep[d - 1].next)
				nr_deps++;
		}
	}
	for (map.mask = 15; map.mask < 2 * nr_comm; map.mask = map.mask * 2 + 1)
		;
	map.slot = calloc((size_t)map.mask + 1, sizeof(*map.slot));
	if (!map.slot)
		return -ENOMEM;
	/*
	 * There are at most as many connections as communicating operands. The rest of the table is
	 * unused.
	 */
	off_blocks = align8(sizeof(*p));
	total = off_blocks + (uint64_t)r->nr_blocks * sizeof(struct df_prog_block);
	total = (total + 7) / 8 * 8 + (uint64_t)nr_inst * sizeof(struct df_inst) +
		(uint64_t)nr_deps * sizeof(struct df_dep) + 16 +
		(uint64_t)nr_comm * sizeof(struct df_conn_spec);
	if (total > UINT32_MAX) {
		free(map.slot);
		return -EINVAL;
	}
	off_inst = align8(off_blocks + r->nr_blocks * (uint32_t)sizeof(struct df_prog_block));
	off_deps = align8(off_inst + nr_inst * (uint32_t)sizeof(struct df_inst));
	off_conns = align8(off_deps + nr_deps * (uint32_t)sizeof(struct df_dep));
	bytes = off_conns + nr_comm * (uint32_t)sizeof(struct df_conn_spec);
	p = calloc(1, bytes);
	if (!p) {
		free(map.slot);
		return -ENOMEM;
	}
	p->max_cnt = 1;
	deps = (struct df_dep *)((char *)p + off_deps);
	conns = (struct df_conn_spec *)((char *)p + off_conns);
	for (uint32_t b = 0; b < r->nr_blocks; b++) {
		const struct df_pblock *blk = &r->block[b];
		struct df_prog_block *pb = (struct df_prog_block *)((char *)p + off_blocks) + b;

		pb->first_inst = ii;
		pb->nr_inst = blk->nr;
		/* Sends first, then receives: two passes give two contiguous tables. */
		for (int dir = 0; dir < 2; dir++) {
			uint32_t first = nr_conns;

			for (uint32_t i = 0; i < blk->nr; i++) {
				const struct df_pinst *pi = &blk->inst[i];
				struct df_inst *di =
					(struct df_inst *)((char *)p + off_inst) + ii + i;
				int32_t peer = dir ? pi->recv_peer : pi->send_peer;
				uint32_t chan = dir ? pi->recv_chan : pi->send_chan, *ix;
				int fresh;

				if (!dir)
					di->send_conn = di->recv_conn = DF_NO_CONN;
				if (peer < 0)
					continue;
				ix = map_find(&map, b, dir, peer, chan, &fresh);
				if (fresh) {
					*ix = nr_conns++;
					conns[*ix] = (struct df_conn_spec){peer, chan, 0};
				}
				if (*ix - first >= DF_NO_CONN)
					goto err_big;
				if (dir) {
					di->recv_conn = (uint16_t)(*ix - first);
					di->recv_ord = conns[*ix].per_loop++;
				} else {
					di->send_conn = (uint16_t)(*ix - first);
					di->send_ord = conns[*ix].per_loop++;
				}
			}
			if (dir) {
				pb->first_recv = first;
				pb->nr_recv = nr_conns - first;
			} else {
				pb->first_send = first;
				pb->nr_send = nr_conns - first;
			}
		}
		for (uint32_t i = 0; i < blk->nr; i++, ii++) {
			const struct df_pinst *pi = &blk->inst[i];
			struct df_inst *di = (struct df_inst *)((char *)p + off_inst) + ii;

			di->op = pi->op;
			di->src_buf = pi->src_buf;
			di->dst_buf = pi->dst_buf;
			di->flags = pi->flags;
			di->src = pi->src;
			di->dst = pi->dst;
			di->cnt = pi->cnt;
			di->first_dep = dd;
			for (uint32_t d = pi->deps; d; d = r->dep[d - 1].next)
				deps[dd++] =
					(struct df_dep){r->dep[d - 1].block, r->dep[d - 1].inst};
			if (dd - di->first_dep > UINT16_MAX)
				goto err_big;
			di->nr_deps = (uint16_t)(dd - di->first_dep);
			if (pi->cnt > p->max_cnt)
				p->max_cnt = pi->cnt;
		}
	}
	free(map.slot);
	p->version = DF_ABI_VERSION;
	p->bytes = bytes;
	p->nranks = head->nranks;
	p->rank = head->rank;
	p->chunks = head->chunks;
	p->in_chunks = r->in_chunks;
	p->out_chunks = r->out_chunks;
	p->scratch_chunks = r->scratch_chunks;
	p->min_slots = head->min_slots;
	p->max_cnt = DF_MAX(p->max_cnt, head->max_cnt);
	p->max_bytes = head->max_bytes;
	p->nr_blocks = r->nr_blocks;
	p->nr_inst = nr_inst;
	p->nr_deps = nr_deps;
	p->nr_conns = nr_conns;
	p->off_blocks = off_blocks;
	p->off_inst = off_inst;
	p->off_deps = off_deps;
	p->off_conns = off_conns;
	p->hash = head->hash;
	snprintf(p->name, sizeof(p->name), "%s", head->name);
	if (df_program_stays(p, head)) {
		free(p);
		return -ENOMEM;
	}
	*out = p;
	return 0;

err_big:
	free(map.slot);
	free(p);
	return -EINVAL;
}

void df_program_free(struct df_program *prog)
{
	free(prog);
}

void df_programs_free(struct df_program **progs, int nranks)
{
	if (!progs)
		return;
	for (int r = 0; r < nranks; r++)
		df_program_free(progs[r]);
	free(progs);
}

struct df_plan *df_plan_create(enum df_coll_kind kind, int nranks, int root, uint32_t chunks)
{
	struct df_plan *plan = calloc(1, sizeof(*plan));

	if (!plan)
		return NULL;
	plan->rank = calloc((size_t)nranks, sizeof(*plan->rank));
	if (!plan->rank) {
		free(plan);
		return NULL;
	}
	plan->kind = kind;
	plan->nranks = nranks;
	plan->root = root;
	plan->chunks = chunks;
	for (int r = 0; r < nranks; r++) {
		plan->rank[r].in_chunks = df_coll_chunks(kind, nranks, root, r, chunks, 0);
		plan->rank[r].out_chunks = df_coll_chunks(kind, nranks, root, r, chunks, 1);
	}
	return plan;
}

void df_plan_destroy(struct df_plan *plan)
{
	if (!plan)
		return;
	for (int r = 0; r < plan->nranks; r++)
		df_prank_fini(&plan->rank[r]);
	free(plan->rank);
	free(plan);
}

/*
 * Hashes everything that determines the transfers and the result, but neither name nor source
 * lines.
 */
static uint64_t plan_hash(const struct df_plan *plan)
{
	uint64_t h = df_hash_u64(DF_ABI_VERSION, (uint64_t)plan->kind);

	h = df_hash_u64(h, (uint64_t)plan->nranks << 32 | (uint32_t)plan->root);
	h = df_hash_u64(h, plan->chunks);
	h = df_hash_u64(h, plan->max_bytes);
	for (int k = 0; k < plan->nranks; k++) {
		const struct df_prank *r = &plan->rank[k];

		h = df_hash_u64(h, (uint64_t)r->nr_blocks << 32 | r->scratch_chunks);
		h = df_hash_u64(h, (uint64_t)r->in_chunks << 32 | r->out_chunks);
		for (uint32_t b = 0; b < r->nr_blocks; b++) {
			h = df_hash_u64(h, r->block[b].nr);
			for (uint32_t i = 0; i < r->block[b].nr; i++) {
				const struct df_pinst *pi = &r->block[b].inst[i];

				h = df_hash_u64(h, (uint64_t)pi->op << 32 | pi->src_buf << 24 |
							   pi->dst_buf << 16 | pi->cnt);
				h = df_hash_u64(h, (uint64_t)pi->src << 32 | pi->dst);
				h = df_hash_u64(h, (uint64_t)(uint32_t)pi->send_peer << 32 |
							   (uint32_t)pi->recv_peer);
				h = df_hash_u64(h, (uint64_t)pi->send_chan << 32 | pi->recv_chan);
				for (uint32_t d = pi->deps; d; d = r->dep[d - 1].next)
					h = df_hash_u64(h, (uint64_t)r->dep[d - 1].block << 32 |
								   r->dep[d - 1].inst);
			}
		}
	}
	return h;
}

int df_plan_finish(const struct df_plan *plan, uint32_t min_slots, struct df_program ***out)
{
	struct df_program **progs = calloc((size_t)plan->nranks, sizeof(*progs));
	struct df_phead head = {.name = plan->name,
				.nranks = plan->nranks,
				.chunks = plan->chunks,
				.min_slots = min_slots,
				.max_bytes = plan->max_bytes,
				.hash = plan_hash(plan),
				.kind = plan->kind,
				.root = plan->root};
	uint32_t max_cnt = 1;

	if (!progs)
		return -ENOMEM;
	for (int r = 0; r < plan->nranks; r++) {
		int rc;

		head.rank = r;
		rc = df_prank_finish(&plan->rank[r], &head, &progs[r]);
		if (rc) {
			df_programs_free(progs, plan->nranks);
			return rc;
		}
	}
	/* The tile size depends on max_cnt and must be the same on all ranks. */
	for (int r = 0; r < plan->nranks; r++)
		max_cnt = DF_MAX(max_cnt, progs[r]->max_cnt);
	for (int r = 0; r < plan->nranks; r++)
		progs[r]->max_cnt = max_cnt;
	*out = progs;
	return 0;
}
