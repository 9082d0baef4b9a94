/*
 * The second half of the compiler: one order of all instructions (by depth, height, number),
 * separate channels for transfers that must overtake others, and blocks.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/program/lang/lower_int.h"
#include "runtime/program/program_names.h"

#define NONE UINT32_MAX

/* ---- schedule ---------------------------------------------------------------------------- */

static int sooner(const struct df_lower *w, uint32_t a, uint32_t b)
{
	const struct df_lnode *x = &w->node[a], *y = &w->node[b];

	if (x->depth != y->depth)
		return x->depth < y->depth;
	if (x->height != y->height)
		return x->height > y->height;
	return a < b;
}

static void heap_push(struct df_lower *w, uint32_t n)
{
	uint32_t i = w->nr_heap++;

	while (i && sooner(w, n, w->heap[(i - 1) / 2])) {
		w->heap[i] = w->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	w->heap[i] = n;
}

static uint32_t heap_pop(struct df_lower *w)
{
	uint32_t top = w->heap[0], n = w->heap[--w->nr_heap], i = 0;

	for (;;) {
		uint32_t k = 2 * i + 1;

		if (k >= w->nr_heap)
			break;
		if (k + 1 < w->nr_heap && sooner(w, w->heap[k + 1], w->heap[k]))
			k++;
		if (!sooner(w, w->heap[k], n))
			break;
		w->heap[i] = w->heap[k];
		i = k;
	}
	if (w->nr_heap)
		w->heap[i] = n;
	return top;
}

/* Called when n's dependencies are met. It runs when its transfer is the next on its connection. */
static void offer(struct df_lower *w, uint32_t n)
{
	struct df_lnode *x = &w->node[n];

	x->ready = 1;
	if (x->recv_x == NONE || w->conn[w->xfer[x->recv_x].conn].head == x->recv_x + 1)
		heap_push(w, n);
}

static void sent(struct df_lower *w, uint32_t x, uint32_t c)
{
	w->xfer[x].conn = c;
	w->xfer[x].next = 0;
	if (w->conn[c].tail)
		w->xfer[w->conn[c].tail - 1].next = x + 1;
	else
		w->conn[c].head = x + 1;
	w->conn[c].tail = x + 1;
}

static void received(struct df_lower *w, uint32_t x)
{
	struct df_lconn *c = &w->conn[w->xfer[x].conn];
	uint32_t head;

	c->head = head = w->xfer[x].next;
	if (!head)
		c->tail = 0;
	else if (w->node[w->xfer[head - 1].to].ready)
		heap_push(w, w->xfer[head - 1].to);
}

/* Every ready receive is behind one that is not: gives the first of them its own channel. */
static int overtake(struct df_lower *w)
{
	uint32_t best = NONE, x, c, prev = 0;

	for (uint32_t n = 0; n < w->nr; n++) {
		if (!w->node[n].dead && w->node[n].ready && !w->node[n].done &&
		    (best == NONE || sooner(w, n, best)))
			best = n;
	}
	if (best == NONE)
		return -EPROTO;
	x = w->node[best].recv_x;
	c = w->xfer[x].conn;
	if (w->l->o.blocks == DF_BLOCKS_PEER)
		return df_perr_set(w->err, (int)w->node[best].line, w->node[best].rank, -1, -1,
				   "must overtake an earlier transfer from rank %d; give it a "
				   "channel of its own",
				   w->conn[c].src);
	for (uint32_t k = w->conn[c].head; k != x + 1; k = w->xfer[k - 1].next)
		prev = k;
	w->xfer[prev - 1].next = w->xfer[x].next;
	if (w->conn[c].tail == x + 1)
		w->conn[c].tail = prev;
	sent(w, x,
	     (uint32_t)(df_lower_find_conn(w, w->conn[c].src, w->conn[c].dst, w->next_channel++) -
			w->conn));
	heap_push(w, best);
	return 0;
}

int df_lower_schedule(struct df_lower *w, uint32_t *order, uint32_t *nr_order)
{
	uint32_t left = 0, n;
	int rc;

	for (n = 0; n < w->nr; n++)
		left += !w->node[n].dead;
	for (n = 0; n < w->nr; n++) {
		if (!w->node[n].dead && !w->node[n].waits)
			offer(w, n);
	}
	while (left) {
		struct df_lnode *x;

		if (!w->nr_heap) {
			rc = overtake(w);
			if (rc)
				return rc;
		}
		n = heap_pop(w);
		x = &w->node[n];
		x->done = 1;
		left--;
		order[(*nr_order)++] = n;
		if (x->recv_x != NONE)
			received(w, x->recv_x);
		if (x->send_x != NONE)
			sent(w, x->send_x, df_lower_conn_of(w, x->send_x));
		for (uint32_t e = w->succ[n]; e; e = w->edge[e - 1].next) {
			if (!--w->node[w->edge[e - 1].node].waits)
				offer(w, w->edge[e - 1].node);
		}
	}
	return 0;
}

/* ---- blocks ------------------------------------------------------------------------------ */

/* The k-th channel in use on the rank is block k. */
int df_lower_blocks_by_channel(struct df_lower *w, uint32_t *order, uint32_t nr)
{
	int max = 0;
	uint32_t *index;

	for (uint32_t i = 0; i < nr; i++)
		max = w->node[order[i]].channel > max ? w->node[order[i]].channel : max;
	index = malloc(((size_t)max + 1) * (size_t)w->l->o.nranks * sizeof(*index));
	if (!index)
		return -ENOMEM;
	memset(index, 0, ((size_t)max + 1) * (size_t)w->l->o.nranks * sizeof(*index));
	for (uint32_t i = 0; i < nr; i++)
		index[w->node[order[i]].rank * (max + 1) + w->node[order[i]].channel] = 1;
	for (int r = 0; r < w->l->o.nranks; r++) {
		uint32_t at = 0;

		for (int c = 0; c <= max; c++) {
			uint32_t used = index[r * (max + 1) + c];

			index[r * (max + 1) + c] = at;
			at += used;
		}
	}
	for (uint32_t i = 0; i < nr; i++) {
		struct df_lnode *x = &w->node[order[i]];

		x->block = index[x->rank * (max + 1) + x->channel];
	}
	free(index);
	return 0;
}

/*
 * Pairs of connections get blocks in the order of their first use. Local steps are in the block of
 * their data.
 */
int df_lower_blocks_by_peer(struct df_lower *w, uint32_t *order, uint32_t nr)
{
	uint32_t *next = calloc((size_t)w->l->o.nranks, sizeof(*next));

	if (!next)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr; i++) {
		struct df_lnode *x = &w->node[order[i]];
		uint32_t in = x->recv_x == NONE ? NONE : w->xfer[x->recv_x].conn;
		uint32_t out = x->send_x == NONE ? NONE : w->xfer[x->send_x].conn;
		uint32_t *b = NULL;

		if (in != NONE)
			b = &w->conn[in].block_dst;
		else if (out != NONE)
			b = &w->conn[out].block_src;
		if (!b) {
			x->block = 0;
			for (uint32_t e = x->preds; e; e = w->edge[e - 1].next) {
				struct df_lnode *p = &w->node[df_lower_rep(w, w->edge[e - 1].node)];

				if (p->done == 2) {
					x->block = p->block;
					break;
				}
			}
			if (!next[x->rank])
				next[x->rank] = 1;
			x->done = 2;
			continue;
		}
		if (*b == NONE) {
			uint32_t mate = in != NONE ? w->conn[in].mate_in : w->conn[out].mate_out;

			*b = next[x->rank]++;
			if (mate != NONE)
				*(in != NONE ? &w->conn[mate].block_src
					     : &w->conn[mate].block_dst) = *b;
		}
		x->block = *b;
		x->done = 2;
	}
	free(next);
	return 0;
}

/*
 * If a block has one peer in each direction, a send and a receive with the same peer may share it
 * too.
 */
void df_lower_pair_rest(struct df_lower *w)
{
	for (uint32_t i = 0; i < w->nr_conns; i++) {
		struct df_lconn *in = &w->conn[i];

		if (in->mate_in != NONE)
			continue;
		for (uint32_t o = 0; o < w->nr_conns; o++) {
			struct df_lconn *out = &w->conn[o];

			if (out->mate_out == NONE && out->src == in->dst && out->dst == in->src &&
			    out->channel == in->channel) {
				in->mate_in = o;
				out->mate_out = i;
				break;
			}
		}
	}
}
