/*
 * Examines proxies of NCCL that make no progress, as NCCL's profiler plugin records them. Finds the
 * proxy that is the cause and not a consequence of another. Most proxies only wait for data that
 * another rank does not send, or for their own kernel. Pure functions on a result.
 */
#include <stdio.h>
#include <string.h>
#include "trace/judge/judge_int.h"
#include "trace/judge/say.h"
#include "trace/record/names.h"
#include "trace/record/proxy.h"

/*
 * How well a proxy explains that nothing moves, in ascending order. From NETWORK on, the network is
 * the cause.
 */
enum weight {
	NOTHING,
	KERNEL_READS, /* the proxy's kernel does not read data that has arrived */
	KERNEL_WRITES,
	KERNEL_SEES, /* data that has arrived does not become visible to the GPU */
	NETWORK,
	/* the peer announces no free buffer, although its proxy waits for nothing */
	NO_ROOM = NETWORK,
	UNKNOWN_SENDER, /* nothing arrives; whether the peer has sent is unknown */
	LOST,		/* nothing arrives, although the peer has sent it */
	NOT_SENT	/* the network does not report the end of a send */
};

static const struct df_trc_comm *entry_of(const struct df_check_set *set, uint32_t trace,
					  const struct df_stalled_proxy *p)
{
	const struct df_trc *t = &set->traces[trace];

	return p->comm && p->comm <= t->nr_entries ? &set->entries[t->first_entry + p->comm - 1]
						   : NULL;
}

/* Returns the proxy's unfinished operation, or NULL. */
static const struct df_uop *op_of(const struct df_check_set *set, uint32_t trace,
				  const struct df_stalled_proxy *p)
{
	const struct df_trc *t = &set->traces[trace];

	for (size_t i = 0; i < t->nr_uops; i++)
		if (set->ops[t->first_op + i].l.serial == p->op)
			return &set->ops[t->first_op + i];
	return NULL;
}

/* Returns the peer's part of the operation if it is unfinished; else NULL. */
static const struct df_uop *part_of_peer(const struct df_check_set *set, const struct df_uop *u,
					 const struct df_trc_comm *peer)
{
	const struct df_trc *t = &set->traces[peer->trace];
	int p2p = df_kind_is_p2p(u->l.kind);

	for (size_t i = 0; i < t->nr_uops; i++) {
		const struct df_uop *v = &set->ops[t->first_op + i];

		if (v->gcomm != u->gcomm || v->l.rank != peer->rank || v->l.index != u->l.index ||
		    df_kind_is_p2p(v->l.kind) != p2p)
			continue;
		if (!p2p || (v->l.kind != u->l.kind && v->l.peer == u->l.rank))
			return v;
	}
	return NULL;
}

/* Returns the peer's proxy at the other end if it makes no progress either; else NULL. */
static const struct df_stalled_proxy *far_end(const struct df_check_set *set,
					      const struct df_trc_comm *peer,
					      const struct df_uop *part, int rank,
					      const struct df_stalled_proxy *p)
{
	const struct df_trc *t = &set->traces[peer->trace];

	for (size_t i = 0; part && i < t->nr_proxies; i++) {
		const struct df_stalled_proxy *q = &t->proxies[i];

		if (q->op == part->l.serial && q->peer == rank && q->channel == p->channel &&
		    q->is_send != p->is_send)
			return q;
	}
	return NULL;
}

static int lacks_data(const struct df_stalled_proxy *p)
{
	return !p->is_send && p->at != DF_PROXY_RECV_GPU && p->at != DF_PROXY_RECV_FLUSH;
}

/* Whether the rank itself lacks data for this operation. */
static int rank_lacks_data(const struct df_trc *t, const struct df_stalled_proxy *p)
{
	for (size_t i = 0; i < t->nr_proxies; i++)
		if (t->proxies[i].op == p->op && lacks_data(&t->proxies[i]))
			return 1;
	return 0;
}

/*
 * Whether a rank on the same machine lacks data of this collective from another machine. It may
 * pass the data on to this rank over NVLink, where no proxy works.
 */
static int neighbour_lacks_data(const struct df_check_set *set, uint32_t trace,
				const struct df_uop *u, const struct df_stalled_proxy *p)
{
	const struct df_trc_comm *peer;
	const struct df_uop *v;

	if (df_kind_is_p2p(u->l.kind))
		return 0;
	for (uint32_t i = 0; i < set->nr_traces; i++) {
		const struct df_trc *t = &set->traces[i];

		if (t->h.host_hash != set->traces[trace].h.host_hash)
			continue;
		for (size_t k = 0; k < t->nr_proxies; k++) {
			const struct df_stalled_proxy *q = &t->proxies[k];

			if (!lacks_data(q) || q->channel != p->channel)
				continue;
			v = op_of(set, i, q);
			if (!v || v->gcomm != u->gcomm || v->l.index != u->l.index)
				continue;
			peer = df_set_entry(set, v->gcomm, q->peer);
			if (!peer || set->traces[peer->trace].h.host_hash != t->h.host_hash)
				return 1;
		}
	}
	return 0;
}

static enum weight weigh(const struct df_check_result *r, uint32_t trace,
			 const struct df_stalled_proxy *p)
{
	const struct df_check_set *set = r->set;
	const struct df_trc_comm *e = entry_of(set, trace, p), *peer;
	const struct df_uop *u = op_of(set, trace, p), *part;
	const struct df_stalled_proxy *far;

	if (!e || !u || u->done == DF_NONE || !r->g.stuck[u->done])
		return NOTHING;
	peer = df_set_entry(set, u->gcomm, p->peer);
	part = peer ? part_of_peer(set, u, peer) : NULL;
	far = peer ? far_end(set, peer, part, e->rank, p) : NULL;
	/* The peer's kernel does not run, which is another cause. */
	if (part && part->l.state == DF_OP_ISSUED && !df_lop_blind(&part->l))
		return NOTHING;
	switch (p->at) {
	case DF_PROXY_SEND_NET:
		return NOT_SENT;
	case DF_PROXY_RECV_NET:
		/*
		 * A sender without a record may be in another process, or its record may be lost.
		 */
		if (!peer || (part && !far))
			return UNKNOWN_SENDER;
		return far && far->step <= p->step && far->at != DF_PROXY_SEND_NET ? NOTHING : LOST;
	case DF_PROXY_SEND_PEER:
		return far && (far->at == DF_PROXY_RECV_GPU || far->at == DF_PROXY_RECV_FLUSH)
			       ? NOTHING
			       : NO_ROOM;
	case DF_PROXY_RECV_FLUSH:
		return KERNEL_SEES;
	case DF_PROXY_SEND_GPU:
		return rank_lacks_data(&set->traces[trace], p) ||
				       neighbour_lacks_data(set, trace, u, p)
			       ? NOTHING
			       : KERNEL_WRITES;
	default:
		return KERNEL_READS;
	}
}

static uint64_t moved_at(const struct df_check_set *set, uint32_t trace,
			 const struct df_stalled_proxy *p)
{
	return p->moved_ns + (uint64_t)set->traces[trace].skew_ns;
}

void df_proxy_judge(struct df_check_result *r)
{
	const struct df_check_set *set = r->set;
	enum df_verdict v = r->verdict == DF_V_SLOW ? r->otherwise : r->verdict;
	enum weight best = NOTHING;

	if (v != DF_V_NET_STALL && v != DF_V_NCCL_INTERNAL && v != DF_V_GPU_STUCK &&
	    v != DF_V_UNKNOWN)
		return;
	for (uint32_t i = 0; i < set->nr_traces; i++)
		for (size_t k = 0; k < set->traces[i].nr_proxies; k++) {
			const struct df_stalled_proxy *p = &set->traces[i].proxies[k];
			enum weight w = set->traces[i].dropped ? NOTHING : weigh(r, i, p);

			/*
			 * A kernel that has not begun explains why other kernels wait, so only the
			 * network counts.
			 */
			if (v == DF_V_GPU_STUCK && w < NETWORK)
				continue;
			if (w < best || w == NOTHING ||
			    (w == best &&
			     moved_at(set, i, p) >= moved_at(set, r->proxy_trace, r->proxy)))
				continue;
			best = w;
			r->proxy = p;
			r->proxy_trace = i;
		}
	if (!r->proxy)
		return;
	v = best >= NETWORK ? DF_V_NET_STALL : DF_V_NCCL_INTERNAL;
	if (r->verdict == DF_V_SLOW) {
		r->otherwise = v;
	} else {
		r->verdict = v;
		r->qualifier[0] = '\0';
		r->confidence = DF_C_LIKELY;
	}
}

/* "step 4 of 16 on channel 2". */
static void put_step(const struct df_stalled_proxy *p, struct df_line *b)
{
	df_line_put(b, "step %u of %u on channel %u", p->step + 1, p->steps, p->channel);
}

static void put_proxy(struct df_check_result *r, uint32_t trace, const struct df_stalled_proxy *p,
		      struct df_line *b)
{
	const struct df_check_set *set = r->set;
	const struct df_trc_comm *e = entry_of(set, trace, p);
	char me[48], peer[48];

	df_say_member(set, e->gcomm, e->rank, me, sizeof(me));
	df_say_member(set, e->gcomm, p->peer, peer, sizeof(peer));
	switch (p->at) {
	case DF_PROXY_SEND_GPU:
		df_line_put(b, "the kernel of %s has not written the data for %s (", me, peer);
		break;
	case DF_PROXY_SEND_PEER:
		df_line_put(b, "%s cannot send to %s, which has announced no room (", me, peer);
		break;
	case DF_PROXY_SEND_NET:
		df_line_put(b, "the network has not reported that data from %s to %s was sent (",
			    me, peer);
		break;
	case DF_PROXY_RECV_NET:
		df_line_put(b, "no data from %s has arrived at %s (", peer, me);
		break;
	case DF_PROXY_RECV_FLUSH:
		df_line_put(b, "data that %s has received from %s is not visible to its GPU (", me,
			    peer);
		break;
	case DF_PROXY_RECV_GPU:
		df_line_put(b, "the kernel of %s has not read data that has arrived from %s (", me,
			    peer);
		break;
	default:
		df_line_put(b, "the proxy of %s makes no progress %s %s (", me,
			    p->is_send ? "sending to" : "receiving from", peer);
	}
	put_step(p, b);
	df_line_put(b, ") for %.1f s", df_say_ago(set, trace, p->moved_ns));
}

void df_line_proxy(struct df_check_result *r, struct df_line *b)
{
	const struct df_uop *u = op_of(r->set, r->proxy_trace, r->proxy);
	char op[96];

	df_line_put(b, "%s: ", df_say_op(r->set, u, op, sizeof(op)));
	put_proxy(r, r->proxy_trace, r->proxy, b);
}

#define NAMED 4

void df_explain_proxy(struct df_check_result *r)
{
	const struct df_check_set *set = r->set;
	size_t nr = 0, more = 0;

	for (uint32_t i = 0; r->proxy && i < set->nr_traces; i++)
		for (size_t k = 0; k < set->traces[i].nr_proxies && !set->traces[i].dropped; k++) {
			const struct df_stalled_proxy *p = &set->traces[i].proxies[k];
			struct df_line b = {.n = 0};

			if (p == r->proxy || !entry_of(set, i, p) ||
			    entry_of(set, i, p)->gcomm == DF_NONE)
				continue;
			if (nr == NAMED) {
				more++;
				continue;
			}
			nr++;
			put_proxy(r, i, p, &b);
			df_note(r, "also: %s", b.s);
		}
	if (more)
		df_note(r, "%zu more proxies of NCCL make no progress", more);
}
