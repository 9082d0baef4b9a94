/*
 * Slices in GPU memory. A GPU need not see what an RDMA device wrote to its memory when the device
 * reports completion. A read of that memory by the same device stays behind its writes on the bus,
 * so when the read has completed, the writes are visible. The frame of a slice therefore waits here
 * for a read of one byte that was posted after the frame arrived, over a queue pair that connects
 * the port to itself. Each port has one read outstanding, for all frames that arrived before it;
 * later frames wait for the next read (tests/model/readback.pml).
 *
 * The rest of the transport treats a waiting slice as not yet arrived: no credit counts it, and if
 * the session ends it is dropped and sent again. If a read fails or does not complete, all pairs of
 * the port fail.
 *
 * A write that is not yet visible could become visible too late, when the slot holds a later slice
 * or its memory belongs to another connector. So after a session ends, the other side may send
 * again (DF_NET_TOLD) only after a readback of every port that may have written, and slots are
 * freed only after one. A port needs a readback as long as it has queue pairs, and for its writes
 * until the last one ended.
 *
 * A port that is down or a device that has failed cannot be read. A wait of SETTLED_NS then
 * replaces the read. A write that the device has put on the bus no longer needs the port and
 * reaches the GPU within microseconds; a bus that held it back for PCIe's longest usual completion
 * time-out (50 ms) would itself fail. During the wait the port is queried, and read if it has
 * recovered, with or without an event.
 *
 * Called by the thread that makes a pass.
 */
#include "runtime/transport/net/verbs/readback.h"
#include "runtime/transport/net/verbs/pair.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/base/vec.h"
#include "runtime/transport/net/verbs/verbs_int.h"

#define AGAIN_NS   (10 * DF_NS_PER_MS)	/* pause before a queue pair is created again */
#define SETTLED_NS (250 * DF_NS_PER_MS) /* after this time a write is visible without a read */

struct df_late {
	struct df_net_link *link;
	struct df_net_frame frame;
};

static int make(struct df_net_ep *ep, struct rail *r)
{
	struct readback *b = &r->readback;
	int ret;

	if (b->self.qp)
		return 0;
	if (!b->mr)
		b->mr = df_verbs_register(r->device->pd, &b->byte, sizeof(b->byte),
					  IBV_ACCESS_LOCAL_WRITE);
	if (!b->mr)
		return errno ? -errno : -ENOMEM;
	ret = df_verbs_watch(ep, r->device);
	if (!ret)
		ret = df_verbs_self_make(r, &b->self);
	if (!ret)
		b->posted = 0;
	return ret;
}

/* Whether writes of the port that `asked` covers may not be visible yet. */
static int owes(const struct rail *r, uint64_t asked)
{
	return r->readback.done < DF_MIN(asked, r->readback.want);
}

void df_verbs_readback_opened(struct rail *r)
{
	r->readback.pairs++;
}

void df_verbs_readback_closed(struct df_net_ep *ep, struct rail *r, int joined)
{
	struct verbs *v = df_verbs(ep);

	r->readback.pairs--;
	if (v->reads_back && joined)
		r->readback.want = ++v->asked;
}

int df_verbs_readback_make(struct df_net_ep *ep, struct rail *r)
{
	return df_verbs(ep)->reads_back ? make(ep, r) : 0;
}

static int begin(struct df_net_ep *ep, const struct df_far_rdma *at, const struct df_net_mem *mem,
		 char *why, size_t size)
{
	struct verbs *v = df_verbs(ep);
	int i, ret = 0;

	if (v->reads_back)
		return 0;
	for (i = 0; i < v->nr && !ret; i++) {
		if (v->rail[i].device->dead)
			continue;
		ret = make(ep, &v->rail[i]);
		/* A port that is down now gets its queue pair together with its links' pairs. */
		ret = ret == -ENETDOWN ? 0 : ret;
		if (ret)
			snprintf(why, size, "%s:%d has no queue pair for reading back: %s",
				 v->rail[i].port.device, v->rail[i].port.port, strerror(-ret));
	}
	v->read_at = at->addr;
	memcpy(v->read_rkey, mem->rkey, sizeof(v->read_rkey));
	v->reads_back = !ret;
	return ret;
}

static enum df_pci_path gpu_nearest(const struct df_net_ep *ep)
{
	const struct verbs *v = df_verbs(ep);

	/* The nearest ports are first. */
	return v && v->nr ? v->rail[0].path : DF_PCI_UNKNOWN;
}

static int gpu_allow(struct df_net_ep *ep, const struct df_far_rdma *at, struct df_net_mem *out,
		     char *why, size_t size)
{
	struct verbs *v = df_verbs(ep);
	int reads = !at->ordered && !df_env()->nccl_gdr_flush_disable, i, d, ret = 0;
	const char *by = "";

	for (d = 0; d < v->nr_devices && !ret; d++) {
		out->mr[d] = df_verbs_register_gpu(&v->device[d], at, &by, why, size);
		ret = out->mr[d] ? 0 : -EOPNOTSUPP;
	}
	for (i = 0; i < v->nr && !ret; i++) {
		const struct ibv_mr *mr = out->mr[v->rail[i].device - v->device];

		out->lkey[i] = mr->lkey;
		out->rkey[i] = mr->rkey;
	}
	if (reads && !ret)
		ret = begin(ep, at, out, why, size);
	if (ret) {
		df_net_verbs.forbid(ep, out);
		return ret;
	}
	snprintf(why, size, "%s, %s", by,
		 reads	       ? "arriving data are read back"
		 : at->ordered ? "the GPU orders writes"
			       : "NCCL_GDR_FLUSH_DISABLE=1");
	return 0;
}

void df_verbs_late(struct df_net_link *l, struct pair *q, const struct df_net_frame *f)
{
	struct readback *b = &df_verbs_pair_rail(l, q)->readback;
	struct df_late *late = DF_VEC_PUSH(b->late, b->nr, b->cap);

	if (!late) {
		df_warn_once(
			"no memory for the network transport: the connection to %s is given up",
			df_net_member(l)->hostname);
		df_net_dropped(l, f);
		df_net_mark_dead(l);
		return;
	}
	*late = (struct df_late){l, *f};
}

/*
 * Posts a read after all arrivals. It may read any byte, because all writes of the port to the GPU
 * take the same route.
 */
static int post(struct df_net_ep *ep, struct rail *r)
{
	struct verbs *v = df_verbs(ep);
	struct readback *b = &r->readback;
	struct ibv_sge to = {
		.addr = (uintptr_t)&b->byte, .length = sizeof(b->byte), .lkey = b->mr->lkey};
	struct ibv_send_wr read = {.sg_list = &to,
				   .num_sge = 1,
				   .opcode = IBV_WR_RDMA_READ,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	int ret;

	read.wr.rdma.remote_addr = v->read_at;
	read.wr.rdma.rkey = v->read_rkey[r - v->rail];
	ret = ibv_post_send(b->self.qp, &read, &bad);
	if (ret)
		return -abs(ret);
	if (b->nr)
		memmove(b->late, b->late + b->first, (b->nr - b->first) * sizeof(*b->late));
	b->nr -= b->first;
	b->first = 0;
	b->covered = b->nr;
	b->behind = b->want;
	b->posted = df_now_ns();
	df_net_count(&ep->n.reads_back, 1);
	return 0;
}

/* ---- requests for visibility ----------------------------------------------------------------- */

static uint64_t readback_ask(struct df_net_ep *ep)
{
	struct verbs *v = df_verbs(ep);
	int i;

	if (!v->reads_back)
		return 0;
	v->asked++;
	/*
	 * A port without queue pairs writes nothing. Its earlier writes were requested when its
	 * last pair ended.
	 */
	for (i = 0; i < v->nr; i++)
		if (v->rail[i].readback.pairs)
			v->rail[i].readback.want = v->asked;
	return v->asked;
}

int df_verbs_readback_done(const struct df_net_ep *ep, uint64_t asked)
{
	const struct verbs *v = df_verbs(ep);
	int i;

	for (i = 0; v->reads_back && i < v->nr; i++)
		if (owes(&v->rail[i], asked))
			return 0;
	return 1;
}

/* ---- failure and completion ------------------------------------------------------------------ */

static void failed(struct df_net_ep *ep, struct rail *r, int why, const char *text)
{
	struct df_net_link *l;
	int k;

	df_verbs_self_end(&r->readback.self);
	r->readback.posted = 0;
	for (l = df_net_links(ep); l; l = l->next) {
		struct path *p = df_verbs_path(l);

		for (k = 0; p && l->ops == &df_net_verbs && k < p->nr; k++)
			if (p->pair[k] && p->pair[k]->qp &&
			    df_verbs_pair_rail(l, p->pair[k]) == r &&
			    df_verbs_fail(l, k, why, text))
				break;
	}
}

void df_verbs_readback_fail(struct df_net_ep *ep, struct rail *r, const char *text)
{
	if (r->readback.self.qp)
		failed(ep, r, -EIO, text);
}

void df_verbs_readback_down(struct rail *r)
{
	struct readback *b = &r->readback;

	df_verbs_self_end(&b->self);
	b->posted = 0;
	b->covered = 0;
}

/* Creates the queue pair for reads if there is none. Returns -errno if that is not possible now. */
static int make_again(struct df_net_ep *ep, struct rail *r, uint64_t now)
{
	struct readback *b = &r->readback;
	int ret;

	if (b->self.qp)
		return 0;
	if (now < b->try_at)
		return -EAGAIN;
	ret = r->device->dead && !b->pairs ? -ENODEV : make(ep, r);
	if (ret)
		b->try_at = now + AGAIN_NS;
	return ret;
}

/*
 * The read has completed: delivers its slices. Delivering one may end a session, which removes
 * others from the list (df_verbs_readback_end()).
 */
static void arrive(struct readback *b)
{
	struct df_late late;

	while (b->covered) {
		late = b->late[b->first++];
		b->covered--;
		if (df_net_arrived(late.link, &late.frame))
			df_session_fail(late.link, -EPROTO);
	}
}

/* Whether the posted read has ended. *why: 0, or -errno with the text. */
static int is_back(struct readback *b, uint64_t now, int arm, char *text, size_t size, int *why)
{
	struct ibv_wc wc;
	int n = arm && ibv_req_notify_cq(b->self.cq, 0) ? -1 : ibv_poll_cq(b->self.cq, 1, &wc);

	*why = 0;
	if (n < 0 || (n && wc.status != IBV_WC_SUCCESS)) {
		*why = -EIO;
		snprintf(text, size, "reading back from the GPU: %s",
			 n < 0 ? "the completion queue cannot be read"
			       : df_ibv.wc_status_str(wc.status));
	} else if (!n && now >= b->posted + df_verbs_patience()) {
		*why = -ETIMEDOUT;
		snprintf(text, size, "reading back from the GPU does not end");
	}
	return n || *why;
}

static int look(struct df_net_ep *ep, struct rail *r, uint64_t now, int arm)
{
	struct readback *b = &r->readback;
	char text[96];
	int ret, moved = 0;

	if (b->posted && b->self.qp) {
		if (!is_back(b, now, arm, text, sizeof(text), &ret))
			return 0;
		if (ret) {
			failed(ep, r, ret, text);
			return 1;
		}
		b->posted = 0;
		b->done = b->behind;
		arrive(b);
		moved = 1;
	} else if (b->posted && now >= b->posted + SETTLED_NS) {
		b->posted = 0;
		b->done = b->behind;
		moved = 1;
	}
	if (b->nr == b->first && !owes(r, b->want))
		return moved;
	ret = make_again(ep, r, now);
	if (ret && !b->posted && owes(r, b->want)) {
		b->behind = b->want;
		b->posted = df_now_ns(); /* `now` may be earlier than the request */
	}
	/* While the port is down its slices wait, like its pairs. */
	if (ret == -EAGAIN || ret == -ENETDOWN || (ret && b->nr == b->first))
		return moved;
	ret = ret ? ret : post(ep, r);
	if (ret)
		failed(ep, r, ret, "the queue pair for reading back takes no work");
	return 1;
}

static int readback_look(struct df_net_ep *ep, uint64_t now, int arm)
{
	struct verbs *v = df_verbs(ep);
	int i, moved = 0;

	for (i = 0; v->reads_back && i < v->nr; i++)
		moved |= look(ep, &v->rail[i], now, arm);
	return moved;
}

static uint64_t readback_due(const struct df_net_ep *ep)
{
	const struct verbs *v = df_verbs(ep);
	uint64_t due = UINT64_MAX;
	int i;

	for (i = 0; v->reads_back && i < v->nr; i++) {
		const struct readback *b = &v->rail[i].readback;

		if (b->posted)
			due = DF_MIN(due,
				     b->posted + (b->self.qp ? df_verbs_patience() : SETTLED_NS));
		if (!b->self.qp && (b->nr != b->first || owes(&v->rail[i], b->want)))
			due = DF_MIN(due, b->try_at);
	}
	return due;
}

void df_verbs_readback_end(struct df_net_link *l)
{
	struct verbs *v = df_verbs(l->ep);
	uint32_t at, to, covered;
	int i;

	for (i = 0; i < v->nr; i++) {
		struct readback *b = &v->rail[i].readback;

		for (at = b->first, to = covered = 0; at < b->nr; at++) {
			if (b->late[at].link == l) {
				df_net_dropped(l, &b->late[at].frame);
				continue;
			}
			covered += at - b->first < b->covered;
			b->late[to++] = b->late[at];
		}
		b->first = 0;
		b->nr = to;
		b->covered = covered;
	}
}

const struct df_net_gpu_ops df_verbs_readback_ops = {
	.nearest = gpu_nearest,
	.allow = gpu_allow,
	.ask = readback_ask,
	.done = df_verbs_readback_done,
	.look = readback_look,
	.due = readback_due,
};
