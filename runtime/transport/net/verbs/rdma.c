/*
 * RDMA verbs as a medium of the network (../net.h). A link has one reliable queue pair. Frames are sends of their 72 bytes
 * into receives that are always posted; the payload of a slice is written before its frame, by RDMA, from the sender's
 * slot into the receiver's slot of the same number. A queue pair keeps its order, so when the frame has come the payload
 * is there, and what was posted before a frame has arrived before it.
 *
 * How two sides find each other is the session's: over its first stream each says what its queue pair is (INFO), then
 * that it can be sent to (READY); each then sends a frame through the queue pair, and the link is up when the other
 * one's has come. So a path that lets nothing through is seen before it is used. If that fails again and again for some
 * seconds, and sockets may be used, they are.
 *
 * Slots are registered connector by connector, when they are announced, and only until they are given back: an arena gives
 * pages back to the system, which registered memory must not. Where registration fails, that connector's slices
 * travel over the session's streams; so do they if the other side's registration failed.
 *
 * What ends a session: a completion with an error, an event that names its queue pair or device, a post that fails, no
 * completion for a third of the time-out though something is posted, and the end of its streams. A port that goes down does
 * not: it may come back, and the queue pair repeats what was lost. The next session has a new queue pair, so nothing of
 * the old one can arrive any more when it begins.
 *
 * A receiver that finds a queue empty makes the sender wait and try again, without end: a process that is stopped is not dead.
 *
 * All on the endpoint's thread, no locks. After a fork the child touches none of it.
 */
#define _GNU_SOURCE
#include "runtime/transport/net/verbs/rdma.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"

enum word { INFO = 1, READY };

#define RECEIVE	    (1ull << 32) /* of a work request's id */
#define RNR_FOREVER 7
#define RNR_TIMER   12 /* 0.64 ms */
#define AT_ONCE	    32 /* completions */

static struct path *path_of(const struct df_net_link *l)
{
	return l->path;
}

/* ---- faults ------------------------------------------------------------------------------------------------ */

static void fail(struct df_net_link *l, int why, const char *text)
{
	const struct device *d = df_verbs_device(l->ep);

	snprintf(l->what, sizeof(l->what), "%s:%d: %s", d->port.device, d->port.port, text);
	df_session_fail(l, why);
}

/* May another medium take over? */
static int has_others(const struct df_net_link *l)
{
	return (l->ep->media & ~l->avoid & ~DF_NET_BIT_VERBS) != 0;
}

/* The session's streams are there, the queue pair is not: try again, but not for ever. */
static void not_set_up(struct df_net_link *l)
{
	struct path *p = path_of(l);
	const struct device *d = df_verbs_device(l->ep);
	uint64_t now = df_now_ns(), bound = (uint64_t)df_env()->net_timeout_ms * DF_NS_PER_MS;

	if (!p->fails++)
		p->failing = now;
	/* A port that flaps is no reason yet. */
	if (has_others(l) && p->fails >= SETUP_FAILS &&
	    now - p->failing >= DF_MIN(SETUP_NS, bound / 4)) {
		l->avoid |= DF_NET_BIT_VERBS;
		df_warn("verbs do not lead from %s:%d (GID %s) to device %d of %s (GID %s): %s; sockets are used",
			d->port.device, d->port.port, d->port.gid, l->member.device,
			l->member.hostname, p->peer_gid[0] ? p->peer_gid : "unknown",
			l->what[0] ? l->what : "nothing arrives");
	} else if (now - p->failing > bound) {
		df_net_lost(l);
	}
}

static void set_up_failed(struct df_net_link *l, int why, const char *text)
{
	fail(l, why, text);
	not_set_up(l);
}

static int errno_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return -ETIMEDOUT;
	case IBV_WC_LOC_ACCESS_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_LOC_PROT_ERR:
		return -EACCES;
	case IBV_WC_WR_FLUSH_ERR:
		return -ECONNABORTED;
	default:
		return -EIO;
	}
}

/* ---- memory ------------------------------------------------------------------------------------------------- */

static int verbs_start(struct df_net_ep *ep)
{
	struct device *d;
	int ret = df_verbs_open(ep, &d);

	if (ret)
		return ret;
	ep->medium[__builtin_ctz(DF_NET_BIT_VERBS)] = d;
	df_info("device %d can use verbs: %s:%d, %s, GID %d %s", ep->device, d->port.device,
		d->port.port, d->port.infiniband ? "InfiniBand" : "RoCE", d->port.gid_index,
		d->port.gid);
	return 0;
}

static void verbs_allow(struct df_net_ep *ep, void *at, size_t bytes, struct df_net_mem *out)
{
	struct ibv_mr *mr = df_ibv.reg_mr(df_verbs_device(ep)->pd, at, bytes,
					  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	if (mr)
		*out = (struct df_net_mem){mr, mr->lkey, mr->rkey};
	else
		df_warn_once(
			"%s cannot register %zu bytes: %s (see `ulimit -l`); what they hold goes "
			"over sockets",
			df_verbs_device(ep)->port.device, bytes, strerror(errno));
}

static void verbs_forbid(struct df_net_ep *ep, struct df_net_mem *mem)
{
	(void)ep;
	df_ibv.dereg_mr(mem->mr);
	mem->mr = NULL;
}

/* Once a link. Not in the memory of a child: its pages must stay these. */
static struct path *path_new(struct df_net_link *l)
{
	struct path *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->rings = mmap(NULL, sizeof(*p->rings), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (p->rings == MAP_FAILED)
		goto err_free;
	p->mr = df_ibv.reg_mr(df_verbs_device(l->ep)->pd, p->rings, sizeof(*p->rings),
			      IBV_ACCESS_LOCAL_WRITE);
	if (!p->mr)
		goto err_unmap;
	l->path = p;
	return p;

err_unmap:
	munmap(p->rings, sizeof(*p->rings));
err_free:
	free(p);
	return NULL;
}

/* How long a frame may be on its way. */
static uint64_t patience(void)
{
	return (uint64_t)df_env()->net_timeout_ms * DF_NS_PER_MS / 3;
}

/* ---- posting ------------------------------------------------------------------------------------------------- */

static int post_receive(struct path *p, uint32_t i)
{
	struct ibv_sge sge = {.addr = (uintptr_t)&p->rings->in[i],
			      .length = sizeof(p->rings->in[i]),
			      .lkey = p->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = RECEIVE | i, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(p->qp, &wr, &bad);
}

static int verbs_send(struct df_net_link *l, const struct df_net_frame *f, const void *payload,
		      struct df_net_conn *from)
{
	struct path *p = path_of(l);
	struct ibv_sge slot, head;
	struct ibv_send_wr write, send, *bad;
	uint32_t i = p->tail % OUT_MAX;
	int ret;

	if (payload && (!f->rkey || !from->mem.mr))
		return df_session_send(l, f, payload, from);
	if (p->tail - p->head == OUT_MAX || p->broken)
		return -EAGAIN;
	p->rings->out[i] = *f;
	p->rings->out[i].ack = l->heard;
	p->from[i] = from;
	head = (struct ibv_sge){.addr = (uintptr_t)&p->rings->out[i],
				.length = sizeof(p->rings->out[i]),
				.lkey = p->mr->lkey};
	send = (struct ibv_send_wr){.wr_id = i,
				    .sg_list = &head,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED};
	if (payload) {
		slot = (struct ibv_sge){
			.addr = (uintptr_t)payload, .length = f->bytes, .lkey = from->mem.lkey};
		write = (struct ibv_send_wr){.wr_id = i,
					     .next = &send,
					     .sg_list = &slot,
					     .num_sge = 1,
					     .opcode = IBV_WR_RDMA_WRITE};
		write.wr.rdma.remote_addr = f->at;
		write.wr.rdma.rkey = f->rkey;
	}
	ret = ibv_post_send(p->qp, payload ? &write : &send, &bad);
	if (ret) {
		/* Not from here: who sends is in the middle of the link's connectors. */
		p->broken = -abs(ret);
		l->look_at = 1;
		return -EAGAIN;
	}
	if (p->head == p->tail) {
		p->moved = df_now_ns();
		if (l->up)
			l->look_at = p->moved + patience();
	}
	p->tail++;
	l->acked = l->heard;
	df_net_count(&l->ep->n.frames_sent, 1);
	return 0;
}

static int verbs_push(struct df_net_link *l)
{
	(void)l;
	return 0;
}

/* ---- queue pairs ---------------------------------------------------------------------------------------------- */

static void gid_text(const union ibv_gid *gid, char *text, socklen_t size)
{
	const struct in6_addr *a = (const void *)gid->raw;

	if (IN6_IS_ADDR_V4MAPPED(a))
		inet_ntop(AF_INET, gid->raw + 12, text, size);
	else
		inet_ntop(AF_INET6, gid->raw, text, size);
}

/* Anew each time: a port that was down may have other addresses. */
static int look_at_port(struct device *d, struct path *p)
{
	static const union ibv_gid none;
	struct ibv_port_attr attr;

	memset(&attr, 0, sizeof(attr));
	if (df_ibv.query_port(d->context, (uint8_t)d->port.port, (void *)&attr) ||
	    df_ibv.query_gid(d->context, (uint8_t)d->port.port, d->port.gid_index, &p->gid))
		return -EIO;
	p->lid = attr.lid;
	p->mtu = (uint8_t)attr.active_mtu;
	if (attr.state != IBV_PORT_ACTIVE)
		return -ENETDOWN;
	if (!d->port.infiniband && !memcmp(&p->gid, &none, sizeof(none)))
		return -EADDRNOTAVAIL;
	return 0;
}

static int to_init(struct device *d, struct path *p)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .pkey_index = (uint16_t)df_env()->nccl_ib_pkey,
				   .port_num = (uint8_t)d->port.port,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	return -abs(df_ibv.modify_qp(p->qp, &attr,
				     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					     IBV_QP_ACCESS_FLAGS));
}

/* What the other side has said of itself: INFO. */
static int to_receive(struct device *d, struct path *p, const struct df_net_frame *f)
{
	const struct df_env *env = df_env();
	union ibv_gid gid;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = (enum ibv_mtu)DF_MIN(p->mtu, f->b & 0xff),
				   .dest_qp_num = (uint32_t)f->aux & 0xffffff,
				   .rq_psn = (uint32_t)(f->aux >> 32) & 0xffffff,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = RNR_TIMER};

	memcpy(gid.raw, &f->to, 8);
	memcpy(gid.raw + 8, &f->pos, 8);
	gid_text(&gid, p->peer_gid, sizeof(p->peer_gid));
	attr.ah_attr.port_num = (uint8_t)d->port.port;
	attr.ah_attr.sl = (uint8_t)DF_MAX(env->nccl_ib_sl, 0);
	attr.ah_attr.dlid = (uint16_t)(f->b >> 16);
	/* On InfiniBand a global route only leads out of the subnet. */
	attr.ah_attr.is_global =
		!d->port.infiniband || gid.global.subnet_prefix != p->gid.global.subnet_prefix;
	attr.ah_attr.grh.dgid = gid;
	attr.ah_attr.grh.sgid_index = (uint8_t)d->port.gid_index;
	attr.ah_attr.grh.hop_limit = 255;
	attr.ah_attr.grh.traffic_class = (uint8_t)DF_MAX(env->nccl_ib_tc, 0);
	return -abs(df_ibv.modify_qp(p->qp, &attr,
				     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					     IBV_QP_MIN_RNR_TIMER));
}

static int to_send(struct path *p)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
				   .timeout = (uint8_t)df_env()->nccl_ib_timeout,
				   .retry_cnt = (uint8_t)df_env()->nccl_ib_retry_cnt,
				   .rnr_retry = RNR_FOREVER,
				   .sq_psn = p->psn,
				   .max_rd_atomic = 1};

	return -abs(df_ibv.modify_qp(p->qp, &attr,
				     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					     IBV_QP_MAX_QP_RD_ATOMIC));
}

static void verbs_end(struct df_net_link *l)
{
	struct path *p = path_of(l);

	if (!p || !p->qp)
		return;
	/* From here on nobody reads our slots or writes into them. */
	df_ibv.destroy_qp(p->qp);
	if (p->cq)
		df_ibv.destroy_cq(p->cq);
	p->qp = NULL;
	p->cq = NULL;
	for (; p->head != p->tail; p->head++)
		df_net_sent(l, p->from[p->head % OUT_MAX]);
	p->head = p->tail = 0;
	p->sends = p->peer_sends = p->heard = 0;
	p->broken = 0;
	l->look_at = 0;
}

static void completions_wait(struct df_net_ep *ep, struct df_net_source *s, uint32_t events);
static void events_wait(struct df_net_ep *ep, struct df_net_source *s, uint32_t events);

static int watch(struct df_net_ep *ep, struct device *d)
{
	int ret;

	if (d->watched)
		return 0;
	d->completions.ready = completions_wait;
	d->events.ready = events_wait;
	ret = df_session_watch(ep, d->channel->fd, &d->completions);
	if (!ret)
		ret = df_session_watch(ep, d->context->async_fd, &d->events);
	d->watched = !ret;
	return ret;
}

static int make_pair(struct device *d, struct path *p)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 2 * OUT_MAX,
						.max_recv_wr = IN_MAX,
						.max_send_sge = 1,
						.max_recv_sge = 1}};
	uint32_t i;
	int ret = look_at_port(d, p);

	if (ret)
		return ret;
	p->cq = df_ibv.create_cq(d->context, 2 * OUT_MAX + IN_MAX, NULL, d->channel, 0);
	if (!p->cq)
		return -ENOMEM;
	attr.send_cq = attr.recv_cq = p->cq;
	p->qp = df_ibv.create_qp(d->pd, &attr);
	if (!p->qp) {
		ret = errno ? -errno : -ENOMEM;
		df_ibv.destroy_cq(p->cq);
		p->cq = NULL;
		return ret;
	}
	ret = to_init(d, p);
	for (i = 0; !ret && i < IN_MAX; i++)
		ret = -abs(post_receive(p, i));
	if (!ret)
		ret = -abs(ibv_req_notify_cq(p->cq, 0));
	return ret;
}

static int verbs_begin(struct df_net_link *l)
{
	struct df_net_ep *ep = l->ep;
	struct device *d = df_verbs_device(ep);
	struct path *p = path_of(l) ? path_of(l) : path_new(l);
	struct df_net_frame f = {.type = DF_NET_SETUP, .a = INFO};
	int ret;

	if (!p) {
		df_warn_once("%s cannot register memory for another link: %s (see `ulimit -l`)",
			     d->port.device, strerror(errno));
		if (has_others(l))
			l->avoid |= DF_NET_BIT_VERBS;
		return -ENOMEM;
	}
	if (p->qp)
		return 0;
	ret = watch(ep, d);
	if (!ret)
		ret = make_pair(d, p);
	if (ret) {
		snprintf(l->what, sizeof(l->what), "%s:%d: no queue pair: %s", d->port.device,
			 d->port.port, strerror(-ret));
		not_set_up(l);
		return ret;
	}
	p->psn = (uint32_t)df_now_ns() & 0xffffff;
	memcpy(&f.to, p->gid.raw, 8);
	memcpy(&f.pos, p->gid.raw + 8, 8);
	f.aux = p->qp->qp_num | (uint64_t)p->psn << 32;
	f.b = p->mtu | (uint32_t)d->port.infiniband << 8 | (uint32_t)p->lid << 16;
	p->deadline = df_now_ns() +
		      DF_MIN(SETUP_NS, (uint64_t)df_env()->net_timeout_ms * DF_NS_PER_MS / 2);
	l->look_at = p->deadline;
	return df_session_send(l, &f, NULL, NULL);
}

/* Both can send: what comes through shows that the path is good. */
static void greet(struct df_net_link *l)
{
	const struct df_net_frame f = {.type = DF_NET_ACK};

	if (path_of(l)->sends && path_of(l)->peer_sends)
		verbs_send(l, &f, NULL, NULL);
}

static void try_up(struct df_net_link *l)
{
	struct path *p = path_of(l);
	const struct device *d = df_verbs_device(l->ep);

	if (l->up || !p->heard || !p->sends || !p->peer_sends)
		return;
	p->fails = 0;
	l->look_at = 0;
	df_info("device %d to device %d of %s: verbs, %s:%d, GID %s to %s", l->ep->device,
		l->member.device, l->member.hostname, d->port.device, d->port.port, d->port.gid,
		p->peer_gid);
	df_net_up(l);
}

static int verbs_setup(struct df_net_link *l, const struct df_net_frame *f)
{
	const struct df_net_frame ready = {.type = DF_NET_SETUP, .a = READY};
	struct device *d = df_verbs_device(l->ep);
	int ret = verbs_begin(l);
	struct path *p = path_of(l);

	if (ret) {
		df_session_fail(l, ret);
		return 1;
	}
	if (f->a == READY && !p->peer_sends) {
		p->peer_sends = 1;
	} else if (f->a == INFO && !p->sends && (f->b >> 8 & 1) == (uint32_t)d->port.infiniband) {
		ret = to_receive(d, p, f);
		if (!ret)
			ret = to_send(p);
		if (ret) {
			snprintf(l->what, sizeof(l->what), "%s:%d: no way to GID %s: %s",
				 d->port.device, d->port.port, p->peer_gid, strerror(-ret));
			df_session_fail(l, ret);
			not_set_up(l);
			return 1;
		}
		p->sends = 1;
		ret = df_session_send(l, &ready, NULL, NULL);
	} else {
		return -EPROTO;
	}
	greet(l);
	try_up(l);
	return ret;
}

/* ---- what comes ----------------------------------------------------------------------------------------------- */

static int arrived(struct df_net_link *l, const struct df_net_frame *f)
{
	if (!l->up) {
		path_of(l)->heard = 1;
		try_up(l);
		return f->type == DF_NET_ACK ? 0 : -EPROTO;
	}
	if (!f->type || f->type >= DF_NET_NR || f->type == DF_NET_SETUP ||
	    (f->bytes && f->type != DF_NET_DATA))
		return -EPROTO;
	if (f->type == DF_NET_DATA && !df_net_place(l, f))
		return 0;
	return df_net_arrived(l, f);
}

/* -errno: the session is over. */
static int complete(struct df_net_link *l, const struct ibv_wc *wc)
{
	struct path *p = path_of(l);
	uint32_t i = (uint32_t)wc->wr_id;
	struct df_net_frame f;
	char text[64];
	int ret;

	/* Of one that has failed only these are valid: id, status, queue pair, the vendor's word. */
	if (wc->status != IBV_WC_SUCCESS) {
		snprintf(text, sizeof(text), "%s (vendor error %u)",
			 df_ibv.wc_status_str(wc->status), wc->vendor_err);
		if (l->up)
			fail(l, errno_of(wc->status), text);
		else
			set_up_failed(l, errno_of(wc->status), text);
		return -EIO;
	}
	if (!(wc->wr_id & RECEIVE)) {
		p->moved = df_now_ns();
		df_net_sent(l, p->from[i]);
		p->head++;
		return 0;
	}
	f = p->rings->in[i];
	ret = wc->byte_len == sizeof(f) ? post_receive(p, i) : EPROTO;
	if (!ret)
		ret = arrived(l, &f);
	if (ret) {
		df_warn("device %d of %s sent what the network transport cannot have sent: connected again",
			l->member.device, l->member.hostname);
		fail(l, -EPROTO, "what came makes no sense");
		return -EPROTO;
	}
	return 0;
}

static int overdue(struct df_net_link *l, uint64_t now)
{
	struct path *p = path_of(l);

	if (!l->up && now >= p->deadline) {
		set_up_failed(l, -ETIMEDOUT, "nothing comes through the queue pair");
		return 1;
	}
	if (!l->up)
		return 0;
	l->look_at = p->head != p->tail ? p->moved + patience() : 0;
	if (!l->look_at || now < l->look_at)
		return 0;
	fail(l, -ETIMEDOUT, "no completion, though the port reports no error");
	return 1;
}

static int verbs_poll(struct df_net_link *l, uint64_t now, int arm)
{
	struct path *p = path_of(l);
	struct ibv_wc wc[AT_ONCE];
	int n, i, moved = 0;

	if (!p || !p->qp)
		return 0;
	if (p->broken) {
		fail(l, p->broken, "the queue pair takes no more work");
		return 1;
	}
	if (arm && ibv_req_notify_cq(p->cq, 0)) {
		fail(l, -EIO, "the completion queue gives no notice");
		return 1;
	}
	do {
		n = ibv_poll_cq(p->cq, AT_ONCE, wc);
		if (n < 0) {
			fail(l, -EIO, "the completion queue cannot be read");
			return 1;
		}
		for (i = 0; i < n; i++)
			if (complete(l, &wc[i]))
				return 1;
		moved |= n > 0;
	} while (n == AT_ONCE);
	return moved | overdue(l, now);
}

/* That something is there is all it says: every link is looked at after it. */
static void completions_wait(struct df_net_ep *ep, struct df_net_source *s, uint32_t events)
{
	struct ibv_cq *cq;
	void *context;

	(void)s, (void)events;
	while (!df_ibv.get_cq_event(df_verbs_device(ep)->channel, &cq, &context))
		df_ibv.ack_cq_events(cq, 1);
}

/* qp, cq: whom it concerns; both NULL: everybody. */
static void fail_those(struct df_net_ep *ep, const struct ibv_qp *qp, const struct ibv_cq *cq,
		       int for_good, const char *text)
{
	struct df_net_link *l;

	for (l = df_net_links(ep); l; l = l->next) {
		struct path *p = path_of(l);

		if (for_good && has_others(l))
			l->avoid |= DF_NET_BIT_VERBS;
		if (p && p->qp && l->ops == &df_net_verbs &&
		    ((!qp && !cq) || (qp && p->qp == qp) || (cq && p->cq == cq)))
			fail(l, -EIO, text);
	}
}

static void events_wait(struct df_net_ep *ep, struct df_net_source *s, uint32_t events)
{
	struct device *d = df_verbs_device(ep);
	struct ibv_async_event e;

	(void)s, (void)events;
	while (!df_ibv.get_async_event(d->context, &e)) {
		const struct ibv_qp *qp = NULL;
		const struct ibv_cq *cq = NULL;
		const char *text = df_ibv.event_type_str(e.event_type);
		int ends = 1;

		switch (e.event_type) {
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
		case IBV_EVENT_PATH_MIG_ERR:
			qp = e.element.qp;
			break;
		case IBV_EVENT_CQ_ERR:
			cq = e.element.cq;
			break;
		case IBV_EVENT_DEVICE_FATAL:
			df_warn("the RDMA device %s has failed", d->port.device);
			break;
		case IBV_EVENT_PORT_ERR:
		case IBV_EVENT_PORT_ACTIVE:
		case IBV_EVENT_LID_CHANGE:
		case IBV_EVENT_PKEY_CHANGE:
		case IBV_EVENT_GID_CHANGE:
		case IBV_EVENT_SM_CHANGE:
			df_info("%s:%d: %s", d->port.device, e.element.port_num, text);
			ends = 0;
			break;
		default:
			ends = 0;
		}
		/* First: what it names can't be destroyed before. */
		df_ibv.ack_async_event(&e);
		if (ends)
			fail_those(ep, qp, cq, e.event_type == IBV_EVENT_DEVICE_FATAL, text);
	}
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
};
