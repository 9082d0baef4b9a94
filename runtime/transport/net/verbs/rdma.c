/*
 * RDMA verbs as a medium of the network (../net.h); docs/network.md has the reasons. A link has
 * reliable queue pairs over all ports (rails) of its two endpoints; each uses one port of each side
 * (df_verbs_rail_with()). A frame is a send of 80 bytes into receives that are always posted. The
 * payload of a slice is written before its frame, by RDMA, into the receiver's slot of the same
 * number; a queue pair keeps its order. Slices use the pair with the lowest estimated completion
 * time. Everything else uses one pair, the lead, and so stays in order.
 *
 * There is no order between pairs. An acknowledgement says that we write no more into memory that
 * the other side has announced and closed. So it is given only when all earlier posts on the other
 * pairs are done, and it travels on the lead, behind the lead's own writes (tests/model/rails.pml).
 *
 * Over the session's first stream the connecting side sends the address of its queue pair (INFO).
 * The other side connects its own and answers with INFO, or with NO. Each then sends a frame
 * through the pair, which becomes usable when the other side's frame arrives. WISH asks the
 * connecting side to try a pair again.
 *
 * Slots are registered by connector, from its announcement until its memory is freed: the arena
 * returns pages to the system, which registered memory must not do.
 *
 * All pairs end with the session, so nothing of an old session can arrive after the next one begins
 * and slices are sent again. A port that goes down ends a session only if another pair is usable.
 *
 * For slots in GPU memory see readback.c and net/gpu.c. Only the endpoint's thread runs this code,
 * so there are no locks. The child of a fork uses none of it.
 */
#include "runtime/transport/net/verbs/pair.h"
#include "runtime/transport/net/verbs/readback.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"

enum word { INFO = 1, NO, WISH };

#define AT_ONCE	  32		    /* completions per poll */
#define SILENT_NS (2 * DF_NS_PER_S) /* a session whose peer answers begins again sooner than this */
#define PAUSE_MIN (100 * DF_NS_PER_MS)
#define PAUSE_MAX (30 * DF_NS_PER_S)
/* a pair that was usable for this long may fail once without a longer pause */
#define STEADY_NS (10 * DF_NS_PER_S)

/* ---- memory ---------------------------------------------------------------------------------- */

static int verbs_start(struct df_net_ep *ep)
{
	struct verbs *v;
	int ret = df_verbs_open(ep, &v), i;

	if (ret)
		return ret;
	ep->medium[__builtin_ctz(DF_NET_BIT_VERBS)] = v;
	for (i = 0; i < v->nr; i++) {
		const struct df_verbs_port *port = &v->rail[i].port;

		df_info("device %d can use verbs: %s:%d, %s, GID %d %s%s%s%s", ep->device,
			port->device, port->port, port->infiniband ? "InfiniBand" : "RoCE",
			port->gid_index, port->gid,
			v->rail[i].path == DF_PCI_UNKNOWN ? "" : ", path from the GPU ",
			v->rail[i].path == DF_PCI_UNKNOWN ? "" : df_pci_name(v->rail[i].path),
			v->rail[i].spare ? ", used when nearer ones fail" : "");
	}
	return 0;
}

static void verbs_forbid(struct df_net_ep *ep, struct df_net_mem *mem)
{
	int i;

	(void)ep;
	for (i = 0; i < DF_NET_RAILS; i++)
		if (mem->mr[i])
			df_ibv.dereg_mr(mem->mr[i]);
	memset(mem, 0, sizeof(*mem));
}

static void verbs_allow(struct df_net_ep *ep, void *at, size_t bytes, struct df_net_mem *out)
{
	const struct verbs *v = df_verbs(ep);
	struct ibv_mr *mr, *of_device[DF_NET_RAILS] = {NULL};
	int i, d;

	for (i = 0; i < v->nr; i++) {
		d = (int)(v->rail[i].device - v->device);
		mr = of_device[d];
		if (!mr) {
			mr = df_verbs_register(v->device[d].pd, at, bytes,
					       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
			/* Devices are numbered from 0, so mr[0] shows whether any is registered. */
			out->mr[d] = of_device[d] = mr;
		}
		if (!mr) {
			df_warn_once("%s cannot register %zu bytes: %s (see `ulimit -l`); "
				     "their slices go over sockets",
				     v->rail[i].port.device, bytes, strerror(errno));
			verbs_forbid(ep, out);
			return;
		}
		out->lkey[i] = mr->lkey;
		out->rkey[i] = mr->rkey;
	}
}

uint64_t df_verbs_patience(void)
{
	return (uint64_t)df_env()->net_timeout_ms * DF_NS_PER_MS / 3;
}

/* ---- sending --------------------------------------------------------------------------------- */

/*
 * Returns the number to acknowledge in a frame on the lead, the queue pair for all frames but
 * slices. The peer may reuse its memory after that, so all writes that were posted before must have
 * arrived: those on other queue pairs have completed, and those on the lead precede this frame.
 */
static uint64_t ack_of(const struct df_net_link *l, struct path *p)
{
	int k, open = 0;

	for (k = 0; p->marked && k < p->nr; k++)
		if (k != p->lead && p->pair[k] && (int32_t)(p->pair[k]->head - p->mark[k]) < 0)
			return p->ack;
	if (p->marked)
		p->ack = p->marked;
	p->marked = 0;
	if (p->ack == l->heard)
		return p->ack;
	for (k = 0; k < p->nr; k++) {
		if (k == p->lead || !p->pair[k])
			continue;
		p->mark[k] = p->pair[k]->tail;
		open |= p->pair[k]->head != p->pair[k]->tail;
	}
	if (open)
		p->marked = l->heard;
	else
		p->ack = l->heard;
	return p->ack;
}

/* Posts a frame. Returns -EAGAIN if the queue is full or the pair accepts no more work. */
static int post(struct df_net_link *l, struct pair *q, const struct df_net_frame *f,
		const void *payload, struct df_net_conn *from)
{
	struct ibv_sge slot, head;
	struct ibv_send_wr write, send, *bad;
	uint32_t i = q->tail % OUT_MAX;
	int ret;

	if (q->tail - q->head == OUT_MAX || q->broken)
		return -EAGAIN;
	q->rings->out[i] = *f;
	q->from[i] = from;
	head = (struct ibv_sge){.addr = (uintptr_t)&q->rings->out[i],
				.length = sizeof(q->rings->out[i]),
				.lkey = q->mr->lkey};
	send = (struct ibv_send_wr){.wr_id = i,
				    .sg_list = &head,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED};
	if (payload) {
		slot = (struct ibv_sge){.addr = (uintptr_t)payload,
					.length = f->bytes,
					.lkey = from->mem.lkey[q->rail]};
		write = (struct ibv_send_wr){.wr_id = i,
					     .next = &send,
					     .sg_list = &slot,
					     .num_sge = 1,
					     .opcode = IBV_WR_RDMA_WRITE};
		write.wr.rdma.remote_addr = f->at;
		write.wr.rdma.rkey = f->rkey[q->peer_rail];
	}
	ret = ibv_post_send(q->qp, payload ? &write : &send, &bad);
	if (ret) {
		/*
		 * Do not end the session here: the caller is iterating over the link's connectors.
		 */
		q->broken = -abs(ret);
		l->look_at = 1;
		return -EAGAIN;
	}
	if (q->head == q->tail) {
		q->moved = df_now_ns();
		l->look_at = DF_MIN(l->look_at ? l->look_at : UINT64_MAX,
				    q->moved + df_verbs_patience());
	}
	q->tail++;
	if (payload)
		q->queued += df_verbs_weight(f->bytes);
	df_net_count(&l->ep->n.frames_sent, 1);
	return 0;
}

static int verbs_send(struct df_net_link *l, const struct df_net_frame *f, const void *payload,
		      struct df_net_conn *from)
{
	struct path *p = df_verbs_path(l);
	struct pair *lead = p->pair[p->lead], *q = lead;
	struct df_net_frame with = *f;
	int ret;

	if (payload && (!f->rkey[0] || !from->mem.mr[0])) {
		if (!from->gpu && !from->peer_gpu)
			return df_session_send(l, f, payload, from);
		l->why = -ENOMEM;
		snprintf(l->what, sizeof(l->what),
			 "memory of one side cannot be registered (see `ulimit -l`), that of the "
			 "other one is a GPU's, and only RDMA gets there: set DFSHIM_NET_GDR=0");
		df_net_lost(l);
		return -EAGAIN;
	}
	/* Earlier writes must be visible before slots are written again. */
	if (f->type == DF_NET_TOLD && !df_verbs_readback_done(l->ep, p->behind))
		return -EAGAIN;
	if (f->type == DF_NET_DATA)
		q = df_verbs_pair_choose(p, f->bytes);
	/*
	 * Frames on other pairs carry 0 (no statement), because an acknowledgement there would
	 * overtake writes of the lead.
	 */
	if (q == lead)
		with.ack = ack_of(l, p);
	if (f->type == DF_NET_ACK && with.ack == l->acked)
		return 0;
	ret = post(l, q, &with, payload, from);
	if (!ret && q == lead)
		l->acked = with.ack;
	return ret;
}

static int verbs_push(struct df_net_link *l)
{
	(void)l;
	return 0;
}

/* ---- pairs begin and end --------------------------------------------------------------------- */

/* Ends the session, with the pair's port (q NULL: the first port) and the text as the reason. */
static void fail(struct df_net_link *l, const struct pair *q, int why, const char *text)
{
	const struct rail *r = q ? df_verbs_pair_rail(l, q) : df_verbs(l->ep)->rail;

	snprintf(l->what, sizeof(l->what), "%.63s:%d: %.96s", r->port.device, r->port.port, text);
	df_session_fail(l, why);
}

/*
 * The streams are open but no pair is. Counts a failed setup; after too many, uses sockets or gives
 * the link up.
 */
static void not_set_up(struct df_net_link *l, const struct pair *q)
{
	struct path *p = df_verbs_path(l);
	const struct rail *r = q ? df_verbs_pair_rail(l, q) : df_verbs(l->ep)->rail;
	uint64_t now = df_now_ns(), bound = (uint64_t)df_env()->net_timeout_ms * DF_NS_PER_MS;

	if (!p->fails++)
		p->failing = now;
	p->failed = now;
	/* A port that is briefly down is not a reason to leave verbs. */
	if (df_verbs_has_others(l) && p->fails >= SETUP_FAILS &&
	    now - p->failing >= DF_MIN(SETUP_NS, bound / 4)) {
		l->avoid |= DF_NET_BIT_VERBS;
		df_warn("verbs do not connect %s:%d (GID %s) to device %d of %s (GID %s): %s; "
			"dfshim uses sockets",
			r->port.device, r->port.port, r->port.gid, l->device,
			df_net_member(l)->hostname, q && q->peer_gid[0] ? q->peer_gid : "unknown",
			l->what[0] ? l->what : "nothing arrives");
	} else if (now - p->failing > bound) {
		df_net_lost(l);
	}
}

/* Returns pair k, without a queue pair, over this port; NULL with errno. */
static struct pair *pair_at(struct df_net_link *l, int k, int rail)
{
	struct path *p = df_verbs_path(l);

	if (!p->pair[k])
		p->pair[k] = df_verbs_pair_new(l, rail);
	else if (df_verbs_pair_move(l, p->pair[k], rail))
		return NULL;
	if (p->pair[k])
		p->nr = DF_MAX(p->nr, k + 1);
	return p->pair[k];
}

/* Returns the number of pairs that this side wants. */
static int nr_own(const struct df_net_link *l)
{
	return (int)DF_MIN(df_verbs(l->ep)->nr * df_env()->nccl_ib_qps, PAIRS_MAX);
}

static int say(struct df_net_link *l, const struct pair *q, int k, enum word word, uint32_t attempt,
	       int why)
{
	struct df_net_frame f = {.type = DF_NET_SETUP};

	if (word == INFO)
		df_verbs_pair_info(l, q, &f);
	f.a = word | (uint32_t)k << 8 | (uint32_t)nr_own(l) << 16 |
	      (q ? (uint32_t)q->rail : 0) << 24;
	f.rkey[0] = attempt;
	f.rkey[1] = (uint32_t)-why;
	return df_session_send(l, &f, NULL, NULL);
}

/* Begins to set up a pair, which later becomes usable or fails. */
static int begin_pair(struct df_net_link *l, int k)
{
	struct pair *q = pair_at(l, k, df_verbs_rail(l, k));
	int ret;

	if (!q)
		return errno ? -errno : -ENOMEM;
	q->retry_at = 0;
	q->attempt++;
	ret = df_verbs_pair_make(l, q);
	if (!ret)
		ret = say(l, q, k, INFO, q->attempt, 0);
	return ret;
}

static int nr_in_hand(const struct path *p)
{
	int k, n = 0;

	for (k = 0; k < p->nr; k++)
		n += p->pair[k] && p->pair[k]->qp;
	return n;
}

static int nr_usable(const struct path *p)
{
	int k, n = 0;

	for (k = 0; k < p->nr; k++)
		n += p->pair[k] && p->pair[k]->usable;
	return n;
}

/* Whether the pair is paused after repeated failures and another pair is not. */
static int rests(const struct path *p, int k, uint64_t now)
{
	int i, other = 0;

	if (!p->pair[k] || p->pair[k]->rest <= now)
		return 0;
	for (i = 0; i < p->nr; i++)
		other |= i != k && (!p->pair[i] || p->pair[i]->rest <= now);
	return other;
}

/* Schedules the next attempt, later each time. */
static void put_off(struct df_net_link *l, struct pair *q, uint64_t least)
{
	uint64_t now = df_now_ns();

	q->pause = DF_MIN(DF_MAX(2 * q->pause, least), PAUSE_MAX);
	q->rest = now + q->pause;
	q->retry_at = df_session_connects(l) ? q->rest : 0;
}

static int set_up_failed(struct df_net_link *l, const struct pair *q, int why, const char *text)
{
	fail(l, q, why, text);
	not_set_up(l, q);
	return 1;
}

int df_verbs_fail(struct df_net_link *l, int k, int why, const char *text)
{
	struct path *p = df_verbs_path(l);
	struct pair *q = p->pair[k];

	snprintf(q->why, sizeof(q->why), "%s", text);
	if (q->usable) {
		if (df_now_ns() - q->since > STEADY_NS)
			q->pause = 0;
		put_off(l, q, PAUSE_MIN);
		fail(l, q, why, text);
		return 1;
	}
	df_verbs_pair_end(l, q);
	put_off(l, q, DF_NS_PER_S);
	if (!l->up && df_session_connects(l) && !nr_in_hand(p))
		return set_up_failed(l, q, why, text);
	return 0;
}

void df_verbs_again(struct df_net_link *l, int k)
{
	struct path *p = df_verbs_path(l);
	struct pair *q = p->pair[k];

	q->rest = 0;
	if (q->usable || !l->up)
		return;
	if (df_session_connects(l))
		q->retry_at = l->look_at = 1;
	else
		say(l, q, k, WISH, q->attempt, 0);
}

static void verbs_end(struct df_net_link *l)
{
	struct path *p = df_verbs_path(l);
	int k;

	for (k = 0; p && k < p->nr; k++) {
		if (!p->pair[k])
			continue;
		df_verbs_pair_end(l, p->pair[k]);
		p->pair[k]->attempt = 0;
		p->pair[k]->retry_at = 0;
	}
	if (p && p->begun) {
		p->begun = 0;
		df_verbs_readback_end(l);
		p->behind = df_verbs(l->ep)->asked;
	}
	l->look_at = 0;
}

/* Begins all pairs. A paused pair begins later, unless all are paused. */
static int begin_all(struct df_net_link *l)
{
	struct path *p = df_verbs_path(l);
	uint64_t now = df_now_ns();
	int k, ret, first = -ENODEV;

	for (k = 0; k < p->nr; k++) {
		if (rests(p, k, now)) {
			p->pair[k]->retry_at = p->pair[k]->rest;
			continue;
		}
		ret = begin_pair(l, k);
		if (ret && p->pair[k]) {
			snprintf(p->pair[k]->why, sizeof(p->pair[k]->why), "no queue pair: %s",
				 strerror(-ret));
			df_verbs_pair_end(l, p->pair[k]);
			put_off(l, p->pair[k], DF_NS_PER_S);
		}
		first = k ? first : ret;
	}
	return nr_in_hand(p) ? 0 : first;
}

static int verbs_begin(struct df_net_link *l)
{
	struct path *p = df_verbs_path(l) ? df_verbs_path(l) : calloc(1, sizeof(*p));
	int ret = 0;

	l->path = p;
	if (!p)
		return -ENOMEM;
	if (p->begun)
		return 0;
	p->nr = DF_MAX(p->nr, nr_own(l));
	if (df_session_connects(l) && !pair_at(l, 0, df_verbs_rail(l, 0))) {
		df_warn_once("%s cannot register memory for another link: %s (see `ulimit -l`)",
			     df_verbs(l->ep)->rail[0].port.device, strerror(errno));
		if (df_verbs_has_others(l))
			l->avoid |= DF_NET_BIT_VERBS;
		return -ENOMEM;
	}
	p->begun = 1;
	/*
	 * Failed setups count only if they follow one another. After a longer pause the other side
	 * may have been stopped meanwhile, and its session decides about that.
	 */
	if (df_now_ns() - p->failed > SILENT_NS)
		p->fails = 0;
	/* No post of an earlier session is outstanding. */
	p->ack = l->heard;
	p->marked = 0;
	p->lead = -1;
	p->deadline = df_now_ns() +
		      DF_MIN(SETUP_NS, (uint64_t)df_env()->net_timeout_ms * DF_NS_PER_MS / 2);
	l->look_at = p->deadline;
	if (df_session_connects(l))
		ret = begin_all(l);
	if (ret) {
		const struct rail *r = df_verbs_pair_rail(l, p->pair[0]);

		snprintf(l->what, sizeof(l->what), "%s:%d: %s", r->port.device, r->port.port,
			 p->pair[0]->why);
		not_set_up(l, p->pair[0]);
	}
	return ret;
}

static void rail_text(const struct df_net_link *l, const struct pair *q, char *text, size_t size)
{
	const struct rail *r = df_verbs_pair_rail(l, q);

	snprintf(text, size, "%s:%d (GID %s) to device %d of %s (GID %s)", r->port.device,
		 r->port.port, r->port.gid, l->device, df_net_member(l)->hostname,
		 q->peer_gid[0] ? q->peer_gid : "unknown");
}

/* Warns once of a pair that is missing for longer than a new setup takes. */
static void tell_missing(const struct df_net_link *l, const struct path *p)
{
	char text[256];
	int k;

	for (k = 0; k < p->nr; k++) {
		struct pair *q = p->pair[k];

		if (!q || q->qp || q->out || !q->why[0])
			continue;
		q->out = 1;
		rail_text(l, q, text, sizeof(text));
		df_warn("verbs from %s: %s; %d of %d queue pairs are left, and this one is tried "
			"again",
			text, q->why, nr_usable(p), p->nr);
	}
}

/* The first frame has arrived over the pair. */
static void becomes_usable(struct df_net_link *l, int k)
{
	struct path *p = df_verbs_path(l);
	struct pair *q = p->pair[k];
	char text[256];

	q->usable = 1;
	q->since = df_now_ns();
	q->why[0] = '\0';
	rail_text(l, q, text, sizeof(text));
	if (q->out)
		df_warn("verbs from %s are back: %d of %d queue pairs", text, nr_usable(p), p->nr);
	else
		df_info("device %d: verbs from %s", l->ep->device, text);
	q->out = 0;
	if (l->up)
		return;
	p->fails = 0;
	p->lead = k;
	df_net_up(l);
}

/* ---- messages about pairs -------------------------------------------------------------------- */

/*
 * On the accepting side: connects our pair to the offered one, if it can. Returns 1 if the session
 * is over.
 */
static int offered(struct df_net_link *l, int k, const struct df_net_frame *f)
{
	struct path *p = df_verbs_path(l);
	struct pair *q = p->pair[k];
	int rail, ret;

	if (q && f->rkey[0] <= q->attempt)
		return 0;
	if (q && q->usable)
		return df_verbs_fail(l, k, -ECONNRESET, "the other side has given it up");
	if (q)
		df_verbs_pair_end(l, q);
	rail = df_verbs_rail_with(l, k, f);
	q = rail < 0 ? NULL : pair_at(l, k, rail);
	ret = rail < 0 ? -ENXIO : q ? 0 : -ENOMEM;
	if (q) {
		q->attempt = f->rkey[0];
		ret = rests(p, k, df_now_ns()) ? -EBUSY : df_verbs_pair_make(l, q);
	}
	if (!ret)
		ret = df_verbs_pair_join(l, q, f);
	if (!ret)
		ret = say(l, q, k, INFO, q->attempt, 0);
	if (!ret)
		return 0;
	if (q && ret != -EBUSY)
		snprintf(q->why, sizeof(q->why), "no queue pair: %s", strerror(-ret));
	if (q)
		df_verbs_pair_end(l, q);
	return say(l, q, k, NO, f->rkey[0], ret);
}

/* On the connecting side: handles the answer. */
static int answered(struct df_net_link *l, int k, const struct df_net_frame *f)
{
	const struct df_net_frame greeting = {.type = DF_NET_ACK};
	struct pair *q = df_verbs_path(l)->pair[k];
	char text[96];
	int ret;

	if (!q || !q->qp || q->sends || f->rkey[0] != q->attempt)
		return 0;
	if ((f->a & 0xff) == NO) {
		snprintf(text, sizeof(text), "the other side has no %s: %s",
			 f->rkey[1] == ENXIO ? "port of the same place" : "queue pair",
			 f->rkey[1] == ENXIO ? "NCCL_CROSS_NIC=0" : strerror((int)f->rkey[1]));
		return df_verbs_fail(l, k, -(int)f->rkey[1], text);
	}
	ret = df_verbs_pair_join(l, q, f);
	if (!ret)
		ret = post(l, q, &greeting, NULL, NULL);
	if (!ret)
		return 0;
	snprintf(text, sizeof(text), "no way to GID %s: %s", q->peer_gid, strerror(-ret));
	return df_verbs_fail(l, k, ret, text);
}

static int verbs_setup(struct df_net_link *l, const struct df_net_frame *f)
{
	int k = (int)(f->a >> 8 & 0xff), nr = (int)(f->a >> 16 & 0xff), i;
	enum word word = (enum word)(f->a & 0xff);
	struct path *p;
	int ret;

	if (k >= PAIRS_MAX || nr < 1 || nr > PAIRS_MAX || f->a >> 24 >= DF_NET_RAILS)
		return -EPROTO;
	ret = verbs_begin(l);
	if (ret) {
		df_session_fail(l, ret);
		return 1;
	}
	p = df_verbs_path(l);
	if (!df_session_connects(l))
		return word == INFO ? offered(l, k, f) : -EPROTO;
	if (word == WISH && p->pair[k] && !p->pair[k]->qp)
		p->pair[k]->retry_at = l->look_at = 1;
	/* The other side wants more pairs than we knew. */
	for (i = p->nr; i < nr; i++) {
		p->nr = i + 1;
		begin_pair(l, i);
	}
	return word == WISH ? 0 : answered(l, k, f);
}

/* ---- arrivals -------------------------------------------------------------------------------- */

static int arrived(struct df_net_link *l, int k, const struct df_net_frame *f)
{
	struct pair *q = df_verbs_path(l)->pair[k];

	if (!q->usable) {
		if (f->type != DF_NET_ACK)
			return -EPROTO;
		if (!df_session_connects(l) && post(l, q, f, NULL, NULL))
			return -EIO;
		becomes_usable(l, k);
		return 0;
	}
	if (!f->type || f->type >= DF_NET_NR || f->type == DF_NET_SETUP ||
	    (f->bytes && f->type != DF_NET_DATA))
		return -EPROTO;
	if (f->type == DF_NET_DATA && !df_net_place(l, f))
		return 0;
	if (f->bytes && df_verbs(l->ep)->reads_back && df_net_place_gpu(l, f)) {
		df_verbs_late(l, q, f);
		return 0;
	}
	return df_net_arrived(l, f);
}

/* Handles a completion. Returns -errno if the pair is finished, or 1 if the session is over. */
static int complete(struct df_net_link *l, int k, const struct ibv_wc *wc)
{
	struct pair *q = df_verbs_path(l)->pair[k];
	uint32_t i = (uint32_t)wc->wr_id;
	struct df_net_frame f;
	char text[64];
	int ret;

	/* A failed completion has only these valid fields: id, status, queue pair, vendor error. */
	if (wc->status != IBV_WC_SUCCESS) {
		snprintf(text, sizeof(text), "%s (vendor error %u)",
			 df_ibv.wc_status_str(wc->status), wc->vendor_err);
		return df_verbs_fail(l, k, df_verbs_status_errno(wc->status), text) ? 1 : -EIO;
	}
	if (!(wc->wr_id & DF_VERBS_RECEIVE)) {
		df_verbs_pair_done(q, &q->rings->out[i], df_now_ns());
		df_net_sent(q->from[i]);
		q->head++;
		return 0;
	}
	f = q->rings->in[i];
	ret = wc->byte_len == sizeof(f) ? df_verbs_pair_receive(q, i) : EPROTO;
	if (!ret)
		ret = arrived(l, k, &f);
	if (ret) {
		df_warn("device %d of %s sent data that breaks dfshim's protocol: connecting again",
			l->device, df_net_member(l)->hostname);
		q->usable = 1;
		return df_verbs_fail(l, k, -EPROTO, "the received data break dfshim's protocol");
	}
	return 0;
}

/* Polls a pair; returns as complete(). */
static int poll_pair(struct df_net_link *l, int k, uint64_t now, int arm, int *moved)
{
	struct pair *q = df_verbs_path(l)->pair[k];
	struct ibv_wc wc[AT_ONCE];
	int n, i, ret;

	if (q->broken)
		return df_verbs_fail(l, k, q->broken, "the queue pair takes no more work");
	if (arm && ibv_req_notify_cq(q->cq, 0))
		return df_verbs_fail(l, k, -EIO, "the completion queue gives no notice");
	do {
		n = ibv_poll_cq(q->cq, AT_ONCE, wc);
		if (n < 0)
			return df_verbs_fail(l, k, -EIO, "the completion queue cannot be read");
		for (i = 0; i < n; i++) {
			ret = complete(l, k, &wc[i]);
			if (ret)
				return ret;
		}
		*moved |= n > 0;
	} while (n == AT_ONCE);
	if (!q->usable && now >= q->deadline)
		return df_verbs_fail(l, k, -ETIMEDOUT, "nothing arrives through the queue pair");
	if (q->usable && q->head != q->tail && now >= q->moved + df_verbs_patience())
		return df_verbs_fail(l, k, -ETIMEDOUT,
				     "no completion, though the port reports no error");
	return 0;
}

/* Returns the first pair that exists, or NULL. */
static const struct pair *any(const struct path *p)
{
	int k;

	for (k = 0; k < p->nr; k++)
		if (p->pair[k])
			return p->pair[k];
	return NULL;
}

/* Returns when the pair needs a poll; UINT64_MAX: not without an event. */
static uint64_t due(const struct pair *q)
{
	if (!q->qp)
		return q->retry_at ? q->retry_at : UINT64_MAX;
	if (q->broken)
		return 1;
	if (!q->usable)
		return q->deadline;
	return q->head != q->tail ? q->moved + df_verbs_patience() : UINT64_MAX;
}

static int verbs_poll(struct df_net_link *l, uint64_t now, int arm)
{
	struct path *p = df_verbs_path(l);
	uint64_t look_at = UINT64_MAX;
	int k, moved = 0;

	if (!p || !p->begun)
		return 0;
	for (k = 0; k < p->nr; k++) {
		struct pair *q = p->pair[k];

		if (q && q->qp && poll_pair(l, k, now, arm, &moved) > 0)
			return 1;
		if (q && !q->qp && l->up && q->retry_at && q->retry_at <= now && begin_pair(l, k)) {
			df_verbs_pair_end(l, q);
			put_off(l, q, DF_NS_PER_S);
		}
		if (q)
			look_at = DF_MIN(look_at, due(q));
	}
	if (!l->up) {
		if (now >= p->deadline)
			return set_up_failed(l, any(p), -ETIMEDOUT,
					     "nothing arrives through the queue pair");
		look_at = DF_MIN(look_at, p->deadline);
	} else {
		tell_missing(l, p);
	}
	l->look_at = look_at == UINT64_MAX ? 0 : look_at;
	return moved;
}

const struct df_net_ops df_net_verbs = {
	.name = "verbs",
	.start = verbs_start,
	.allow = verbs_allow,
	.forbid = verbs_forbid,
	.begin = verbs_begin,
	.end = verbs_end,
	.setup = verbs_setup,
	.send = verbs_send,
	.push = verbs_push,
	.poll = verbs_poll,
	.gpu = &df_verbs_readback_ops,
};
