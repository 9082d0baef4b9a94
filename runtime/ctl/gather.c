/*
 * Allgather. Every local rank adds its bytes to the gather with its sequence number. When all local
 * ranks have, the process floods them as one share. If a share is lost because a relay died, the
 * processes that lack it ask for it (NEED). So every process keeps its last two shares. Two are
 * enough: a process that has sent share n has completed gather n - 1 and thus has share n - 1 of
 * every peer, so no peer is further behind. Shares for communicators that this process does not
 * know yet wait in a bounded stash.
 */
#include "runtime/ctl/ctl_int.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/ctl/flood.h"
#include "runtime/ctl/probe.h"
#include "runtime/ctl/tree.h"

#define GATHER_MAX_BYTES (4u << 20)
#define KEPT_MAX	 4096
#define KEPT_MAX_BYTES	 (8u << 20)
#define NEED_FIRST_NS	 (2 * DF_NS_PER_S)
#define NEED_LAST_NS	 (30 * DF_NS_PER_S)
#define NEED_PROCS	 64

struct share_msg {
	uint64_t hash, seq;
	uint32_t bytes, nr;
	uint32_t ranks[]; /* nr, padded to an even number; then nr * bytes */
};

struct left_msg {
	uint64_t hash, seq;
};

struct need_msg {
	uint64_t hash, seq, nr;
	uint64_t procs[NEED_PROCS];
};

/*
 * A frame that is kept: a peer's for a group that is not here yet, or our own for a group that we
 * have left.
 */
struct kept {
	struct df_list node;
	uint64_t hash, seq;
	size_t bytes;
	uint8_t data[];
};

struct kept_list {
	struct df_list head;
	size_t nr, bytes;
};

static struct kept_list stash, left;

static void kept_free(struct kept_list *l, struct kept *k)
{
	df_list_del(&k->node);
	l->nr--;
	l->bytes -= k->bytes;
	free(k);
}

static void kept_add(struct kept_list *l, uint64_t hash, uint64_t seq, const void *data,
		     size_t bytes)
{
	struct kept *k = malloc(sizeof(*k) + bytes);

	if (!k)
		return;
	if (!l->head.next)
		df_list_init(&l->head);
	k->hash = hash;
	k->seq = seq;
	k->bytes = bytes;
	if (bytes)
		memcpy(k->data, data, bytes);
	df_list_add_tail(&l->head, &k->node);
	l->nr++;
	l->bytes += bytes;
	while (l->nr > KEPT_MAX || l->bytes > KEPT_MAX_BYTES)
		kept_free(l, df_list_first(&l->head, struct kept, node));
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct df_gather *gather_get(struct df_group *g, uint64_t seq, size_t bytes)
{
	struct df_gather *op;

	df_list_each(op, &g->gathers, node) if (op->seq == seq) return op;
	op = calloc(1, sizeof(*op));
	if (!op)
		return NULL;
	op->got = calloc((size_t)g->nranks, 1);
	op->data = malloc((size_t)g->nranks * bytes + 1);
	if (!op->got || !op->data) {
		free(op->got);
		free(op->data);
		free(op);
		return NULL;
	}
	op->seq = seq;
	op->bytes = bytes;
	op->nr_left = g->nr_local;
	df_list_add_tail(&g->gathers, &op->node);
	return op;
}

static void gather_free(struct df_gather *op)
{
	df_list_del(&op->node);
	free(op->got);
	free(op->data);
	free(op);
}

static void gather_put(struct df_group *g, struct df_gather *op, int rank, const void *data)
{
	if (op->got[rank])
		return;
	op->got[rank] = 1;
	op->nr_in++;
	memcpy(op->data + (size_t)rank * op->bytes, data, op->bytes);
	if (op->nr_in == g->nranks)
		df_waiters_wake(&g->waiters);
}

static void gather_check(struct df_group *g, struct df_gather *op)
{
	int i;

	if (op->nr_in == g->nranks || op->error)
		return;
	if (op->seq >= g->end)
		op->error = -ECONNRESET;
	if (!g->error && !g->gone)
		return;
	/*
	 * After a death some of the living ranks have failed already and will not contribute. A
	 * rank that exited normally is needed only if its share is missing.
	 */
	if (g->error)
		op->error = g->error;
	for (i = 0; i < g->nranks; i++)
		if (!op->got[i] && df_tree_is_dead(g->members[i].proc))
			op->error = -ECONNRESET;
}

void df_gather_recheck(struct df_group *g)
{
	struct df_gather *op;

	df_list_each(op, &g->gathers, node) gather_check(g, op);
}

static void end_at(struct df_group *g, uint64_t seq)
{
	if (seq >= g->end)
		return;
	g->end = seq;
	df_gather_recheck(g);
	df_waiters_wake(&g->waiters);
}

void df_gather_leave(struct df_group *g, uint64_t seq)
{
	struct left_msg m = {.hash = g->hash, .seq = seq};

	if (seq >= g->end)
		return;
	end_at(g, seq);
	if (g->nr_procs > 1)
		df_flood_send(DF_FLOOD_LEFT, 0, &m, sizeof(m), NULL, 0);
}

int df_gather_left(const void *data, size_t bytes)
{
	const struct left_msg *m = data;
	struct df_group *g;

	if (bytes != sizeof(*m))
		return -EPROTO;
	g = df_group_find(m->hash);
	if (g)
		end_at(g, m->seq);
	else
		kept_add(&stash, m->hash, m->seq, NULL, 0);
	return 0;
}

void df_gather_drop(struct df_group *g)
{
	struct df_gather *op, *tmp;
	int i;

	df_list_each_safe(op, tmp, &g->gathers, node) gather_free(op);
	for (i = 0; i < 2; i++) {
		if (g->shares[i].frame)
			kept_add(&left, g->hash, g->shares[i].seq, g->shares[i].frame,
				 g->shares[i].bytes);
		free(g->shares[i].frame);
	}
}

/* ---- other processes ------------------------------------------------------------------------- */

static int send_share(struct df_group *g, struct df_gather *op)
{
	size_t head = sizeof(struct share_msg) + ((size_t)g->nr_local + 1) / 2 * 8, at;
	size_t bytes = head + (size_t)g->nr_local * op->bytes;
	struct share_msg *m = calloc(1, bytes);
	struct df_share *s = &g->shares[op->seq & 1];
	int i;

	if (!m)
		return -ENOMEM;
	m->hash = g->hash;
	m->seq = op->seq;
	m->bytes = (uint32_t)op->bytes;
	for (i = 0, at = head; i < g->nranks; i++) {
		if (g->members[i].proc != df_ctl.self.proc)
			continue;
		m->ranks[m->nr++] = (uint32_t)i;
		memcpy((uint8_t *)m + at, op->data + (size_t)i * op->bytes, op->bytes);
		at += op->bytes;
	}
	free(s->frame);
	s->seq = op->seq;
	s->frame = m;
	s->bytes = bytes;
	op->sent = 1;
	return df_flood_send(DF_FLOOD_SHARE, 0, m, bytes, NULL, 0);
}

static int share_input(struct df_group *g, const struct share_msg *m, size_t bytes)
{
	size_t head = sizeof(*m) + ((size_t)m->nr + 1) / 2 * 8;
	struct df_gather *op;
	uint32_t i;

	if (m->nr > (uint32_t)g->nranks || bytes != head + (size_t)m->nr * m->bytes)
		return -EPROTO;
	/* Either the gather is done already, or no peer can have reached this number. */
	if (m->seq < g->nr_done || m->seq > g->nr_done + 1)
		return 0;
	op = gather_get(g, m->seq, m->bytes);
	if (!op)
		return 0; /* the peer will ask for it again */
	if (op->bytes != m->bytes) {
		op->error = -EPROTO;
		df_waiters_wake(&g->waiters);
		return 0;
	}
	for (i = 0; i < m->nr; i++)
		if (m->ranks[i] < (uint32_t)g->nranks)
			gather_put(g, op, (int)m->ranks[i],
				   (const uint8_t *)m + head + (size_t)i * m->bytes);
	return 0;
}

int df_gather_input(const void *data, size_t bytes)
{
	const struct share_msg *m = data;
	struct df_group *g;

	if (bytes < sizeof(*m) || m->nr > bytes / 4 || m->bytes > GATHER_MAX_BYTES)
		return -EPROTO;
	g = df_group_find(m->hash);
	if (g)
		return share_input(g, m, bytes);
	kept_add(&stash, m->hash, m->seq, data, bytes);
	return 0;
}

void df_gather_unstash(struct df_group *g)
{
	struct kept *k, *tmp;

	if (!stash.nr)
		return;
	df_list_each_safe(k, tmp, &stash.head, node)
	{
		if (k->hash != g->hash)
			continue;
		if (k->bytes)
			share_input(g, (const struct share_msg *)k->data, k->bytes);
		else
			end_at(g, k->seq);
		kept_free(&stash, k);
	}
}

static void ask(struct df_group *g, struct df_gather *op)
{
	struct need_msg m = {.hash = g->hash, .seq = op->seq};
	int i, j;

	for (i = 0; i < g->nr_procs && m.nr < NEED_PROCS; i++) {
		for (j = 0; j < g->nranks; j++)
			if (!op->got[j] && g->members[j].proc == g->procs[i])
				break;
		if (j < g->nranks && g->procs[i] != df_ctl.self.proc)
			m.procs[m.nr++] = g->procs[i];
	}
	if (m.nr)
		df_flood_send(DF_FLOOD_NEED, 0, &m, offsetof(struct need_msg, procs[m.nr]), NULL,
			      0);
}

uint64_t df_gather_ask(uint64_t now, int all)
{
	struct df_group *g, *tmp;
	struct df_gather *op;
	uint64_t next = 0;

	HASH_ITER(hh, df_ctl.groups, g, tmp)
	{
		if (g->nr_procs < 2)
			continue;
		df_list_each(op, &g->gathers, node)
		{
			if (!op->sent || op->error || op->nr_in == g->nranks)
				continue;
			if (all || op->need_at <= now) {
				ask(g, op);
				/* The process that should send it may have died unnoticed. */
				df_probe_soon();
				op->need_ns = DF_MIN(op->need_ns * 2, NEED_LAST_NS);
				op->need_at = now + op->need_ns;
			}
			next = next ? DF_MIN(next, op->need_at) : op->need_at;
		}
	}
	return next;
}

int df_gather_need(const void *data, size_t bytes)
{
	const struct need_msg *m = data;
	const void *frame = NULL;
	size_t frame_bytes = 0;
	struct df_share *s;
	struct df_group *g;
	struct kept *k;
	uint64_t i;

	if (bytes < offsetof(struct need_msg, procs) || m->nr > NEED_PROCS ||
	    bytes != offsetof(struct need_msg, procs) + m->nr * 8)
		return -EPROTO;
	for (i = 0; i < m->nr; i++)
		if (m->procs[i] == df_ctl.self.proc)
			break;
	if (i == m->nr)
		return 0;
	g = df_group_find(m->hash);
	if (g) {
		s = &g->shares[m->seq & 1];
		if (s->frame && s->seq == m->seq) {
			frame = s->frame;
			frame_bytes = s->bytes;
		}
	} else if (left.nr) {
		df_list_each(k, &left.head, node)
		{
			if (k->hash == m->hash && k->seq == m->seq) {
				frame = k->data;
				frame_bytes = k->bytes;
			}
		}
	}
	if (frame)
		df_flood_send(DF_FLOOD_SHARE, 0, frame, frame_bytes, NULL, 0);
	return 0;
}

/* ---- the call -------------------------------------------------------------------------------- */

struct wait_arg {
	const struct df_group *group;
	const struct df_gather *op;
};

static int finished(void *arg)
{
	const struct wait_arg *a = arg;

	return a->op->error || a->op->nr_in == a->group->nranks;
}

int df_ctl_allgather(struct df_ctl_comm *c, const void *in, size_t bytes, void *out,
		     const uint32_t *stop)
{
	struct df_group *g = c->group;
	struct wait_arg arg = {.group = g};
	struct df_gather *op;
	int ret;

	if (bytes > GATHER_MAX_BYTES || (size_t)g->nranks * bytes > DF_GATHER_MAX_TOTAL)
		return -EINVAL;
	df_ctl_lock();
	ret = df_group_alive(g) ? g->error : -ESHUTDOWN;
	if (ret)
		goto out;
	op = gather_get(g, c->nr_gathers, bytes);
	if (!op) {
		ret = -ENOMEM;
		goto out;
	}
	c->nr_gathers++;
	if (op->bytes != bytes)
		op->error = -EPROTO;
	else
		gather_put(g, op, c->rank, in);
	if (op->error)
		df_waiters_wake(&g->waiters);
	if (++op->nr_local_in == g->nr_local && g->nr_procs > 1 && !op->error) {
		op->need_ns = NEED_FIRST_NS;
		op->nr_repairs = df_ctl.nr_repairs;
		op->need_at = df_now_ns() + op->need_ns;
		df_ctl_timer(op->need_at);
		ret = send_share(g, op);
		if (ret)
			op->error = ret;
		/* Shares sent while the overlay was broken may be lost. */
		if (g->nr_repairs != df_ctl.nr_repairs && op->nr_in < g->nranks)
			ask(g, op);
	}
	gather_check(g, op);
	arg.op = op;
	ret = df_wait_for(&g->waiters, finished, &arg, stop);
	if (op->nr_in == g->nranks && !op->error) {
		memcpy(out, op->data, (size_t)g->nranks * bytes);
		g->nr_repairs = op->nr_repairs;
		ret = 0;
	} else if (op->error) {
		ret = op->error;
		if (ret == -EPROTO)
			df_ctl_note("communicator 0x%llx: ranks gather different numbers of bytes",
				    (unsigned long long)g->hash);
	}
	if (!--op->nr_left) {
		g->nr_done = op->seq + 1;
		gather_free(op);
	}
out:
	df_ctl_unlock();
	return ret;
}
