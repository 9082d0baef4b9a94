/* The life of a link's queue pair: created, connected, destroyed; see rdma.c. */
#define _GNU_SOURCE
#include "runtime/transport/net/verbs/pair.h"
#include "runtime/transport/net/verbs/readback.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"

#define RNR_FOREVER 7
#define RNR_TIMER   12 /* encodes 0.64 ms */

int df_verbs_rail(const struct df_net_link *l, int k)
{
	const struct verbs *v = df_verbs(l->ep);
	int i;

	for (i = 0; i < v->nr; i++)
		if (!v->rail[(k + i) % v->nr].device->dead)
			return (k + i) % v->nr;
	return k % v->nr;
}

int df_verbs_rail_with(const struct df_net_link *l, int k, const struct df_net_frame *f)
{
	const struct verbs *v = df_verbs(l->ep);
	const struct path *p = df_verbs_path(l);
	int i, n, used[DF_NET_RAILS] = {0}, least = 0, same = !df_env()->nccl_cross_nic;
	int order = (int)(f->rkey[2] & 0xff), spare = (int)(f->rkey[2] >> 8 & 1);

	for (i = 0; i < v->nr && (same || k < (int)(f->a >> 16 & 0xff)); i++)
		if (v->rail[i].port.order == order && !v->rail[i].device->dead &&
		    (same || v->rail[i].spare == spare))
			return i;
	if (same)
		return -1;
	for (n = 0; n < p->nr; n++)
		if (n != k && p->pair[n])
			used[p->pair[n]->rail]++;
	for (i = 0; i < v->nr; i++)
		used[i] += v->rail[i].device->dead     ? 2 * PAIRS_MAX
			   : v->rail[i].spare != spare ? PAIRS_MAX
						       : 0;
	for (i = 0; i < v->nr; i++)
		least = used[i] < used[least] ? i : least;
	return least;
}

static struct ibv_mr *register_rings(const struct df_net_link *l, const struct pair *q, int rail)
{
	return df_verbs_register(df_verbs(l->ep)->rail[rail].device->pd, q->rings,
				 sizeof(*q->rings), IBV_ACCESS_LOCAL_WRITE);
}

struct pair *df_verbs_pair_new(struct df_net_link *l, int rail)
{
	struct pair *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->rail = (uint8_t)rail;
	/* Shared memory, so that a fork does not move its pages. */
	q->rings = mmap(NULL, sizeof(*q->rings), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (q->rings == MAP_FAILED)
		goto err_free;
	q->mr = register_rings(l, q, rail);
	if (!q->mr)
		goto err_unmap;
	return q;

err_unmap:
	munmap(q->rings, sizeof(*q->rings));
err_free:
	free(q);
	return NULL;
}

int df_verbs_pair_move(struct df_net_link *l, struct pair *q, int rail)
{
	struct ibv_mr *mr = q->mr;

	if (df_verbs(l->ep)->rail[rail].device != df_verbs_pair_rail(l, q)->device) {
		mr = register_rings(l, q, rail);
		if (!mr)
			return -ENOMEM;
		df_ibv.dereg_mr(q->mr);
	}
	q->mr = mr;
	q->rail = (uint8_t)rail;
	return 0;
}

int df_verbs_pair_receive(struct pair *q, uint32_t i)
{
	struct ibv_sge sge = {.addr = (uintptr_t)&q->rings->in[i],
			      .length = sizeof(q->rings->in[i]),
			      .lkey = q->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = DF_VERBS_RECEIVE | i, .sg_list = &sge, .num_sge = 1},
			   *bad;

	return ibv_post_recv(q->qp, &wr, &bad);
}

static void gid_text(const union ibv_gid *gid, char *text, socklen_t size)
{
	const struct in6_addr *a = (const void *)gid->raw;

	if (IN6_IS_ADDR_V4MAPPED(a))
		inet_ntop(AF_INET, gid->raw + 12, text, size);
	else
		inet_ntop(AF_INET6, gid->raw, text, size);
}

/* Queries the port's addresses, which may change while it is down. Returns 0 if it is up. */
static int look_at_port(const struct rail *r, struct pair *q)
{
	static const union ibv_gid none;
	struct ibv_port_attr attr;

	memset(&attr, 0, sizeof(attr));
	if (df_ibv.query_port(r->device->context, (uint8_t)r->port.port, (void *)&attr) ||
	    df_ibv.query_gid(r->device->context, (uint8_t)r->port.port, r->port.gid_index, &q->gid))
		return -EIO;
	q->lid = attr.lid;
	q->mtu = (uint8_t)attr.active_mtu;
	if (attr.state != IBV_PORT_ACTIVE)
		return -ENETDOWN;
	if (!r->port.infiniband && !memcmp(&q->gid, &none, sizeof(none)))
		return -EADDRNOTAVAIL;
	return 0;
}

static int to_init(const struct rail *r, struct pair *q, unsigned access)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .pkey_index = (uint16_t)df_env()->nccl_ib_pkey,
				   .port_num = (uint8_t)r->port.port,
				   .qp_access_flags = access};

	return -abs(df_ibv.modify_qp(q->qp, &attr,
				     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					     IBV_QP_ACCESS_FLAGS));
}

/* Chooses a random first packet number of 24 bits. Returns 0 or -errno. */
static int draw_psn(struct pair *q)
{
	struct df_key random = {0};
	int ret = df_key_make(&random);

	memcpy(&q->psn, &random, sizeof(q->psn));
	q->psn &= 0xffffff;
	return ret;
}

static int may_ece(void)
{
	return df_env()->nccl_ib_ece && df_ibv.query_ece && df_ibv.set_ece;
}

int df_verbs_pair_make(struct df_net_link *l, struct pair *q)
{
	struct rail *r = df_verbs_pair_rail(l, q);
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 2 * OUT_MAX,
						.max_recv_wr = IN_MAX,
						.max_send_sge = 1,
						.max_recv_sge = 1}};
	uint32_t i;
	int ret;

	/*
	 * A dead device is chosen only if all RDMA devices are dead. Then another medium takes
	 * over, if there is one; else the device is tried again.
	 */
	if (r->device->dead && df_verbs_has_others(l))
		return -ENODEV;
	ret = look_at_port(r, q);
	if (!ret)
		ret = df_verbs_watch(l->ep, r->device);
	if (!ret)
		ret = df_verbs_readback_make(l->ep, r);
	if (ret)
		return ret;
	q->cq = df_ibv.create_cq(r->device->context, 2 * OUT_MAX + IN_MAX, NULL, r->device->channel,
				 0);
	if (!q->cq)
		return -ENOMEM;
	attr.send_cq = attr.recv_cq = q->cq;
	errno = 0;
	q->qp = df_ibv.create_qp(r->device->pd, &attr);
	if (!q->qp) {
		ret = errno ? -errno : -ENOMEM;
		df_ibv.destroy_cq(q->cq);
		q->cq = NULL;
		return ret;
	}
	df_verbs_readback_opened(r);
	memset(&q->ece, 0, sizeof(q->ece));
	if (may_ece() && df_ibv.query_ece(q->qp, &q->ece))
		memset(&q->ece, 0, sizeof(q->ece));
	ret = to_init(r, q, IBV_ACCESS_REMOTE_WRITE);
	for (i = 0; !ret && i < IN_MAX; i++)
		ret = -abs(df_verbs_pair_receive(q, i));
	if (!ret)
		ret = -abs(ibv_req_notify_cq(q->cq, 0));
	if (!ret)
		ret = draw_psn(q);
	q->deadline = df_now_ns() +
		      DF_MIN(SETUP_NS, (uint64_t)df_env()->net_timeout_ms * DF_NS_PER_MS / 2);
	if (ret)
		df_verbs_pair_end(l, q);
	return ret;
}

static void info_of(const struct rail *r, const struct pair *q, struct df_net_frame *out)
{
	memcpy(&out->to, q->gid.raw, 8);
	memcpy(&out->pos, q->gid.raw + 8, 8);
	out->aux = q->qp->qp_num | (uint64_t)q->psn << 32;
	out->b = q->mtu | (uint32_t)r->port.infiniband << 8 | (uint32_t)q->lid << 16;
	out->at = q->ece.vendor_id | (uint64_t)q->ece.options << 32;
}

void df_verbs_pair_info(const struct df_net_link *l, const struct pair *q, struct df_net_frame *out)
{
	const struct rail *r = df_verbs_pair_rail(l, q);

	info_of(r, q, out);
	out->rkey[2] = (uint32_t)(r->port.order | r->spare << 8);
}

static int to_receive(const struct rail *r, struct pair *q, const struct df_net_frame *f)
{
	const struct df_env *env = df_env();
	union ibv_gid gid;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = (enum ibv_mtu)DF_MIN(q->mtu, f->b & 0xff),
				   .dest_qp_num = (uint32_t)f->aux & 0xffffff,
				   .rq_psn = (uint32_t)(f->aux >> 32) & 0xffffff,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = RNR_TIMER};

	memcpy(gid.raw, &f->to, 8);
	memcpy(gid.raw + 8, &f->pos, 8);
	gid_text(&gid, q->peer_gid, sizeof(q->peer_gid));
	attr.ah_attr.port_num = (uint8_t)r->port.port;
	attr.ah_attr.sl = (uint8_t)DF_MAX(env->nccl_ib_sl, 0);
	attr.ah_attr.dlid = (uint16_t)(f->b >> 16);
	/* Within an InfiniBand subnet no global route is needed. */
	attr.ah_attr.is_global =
		!r->port.infiniband || gid.global.subnet_prefix != q->gid.global.subnet_prefix;
	attr.ah_attr.grh.dgid = gid;
	attr.ah_attr.grh.sgid_index = (uint8_t)r->port.gid_index;
	attr.ah_attr.grh.hop_limit = 255;
	attr.ah_attr.grh.traffic_class = (uint8_t)DF_MAX(env->nccl_ib_tc, 0);
	return -abs(df_ibv.modify_qp(q->qp, &attr,
				     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					     IBV_QP_MIN_RNR_TIMER));
}

static int to_send(struct pair *q)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
				   .timeout = (uint8_t)df_env()->nccl_ib_timeout,
				   .retry_cnt = (uint8_t)df_env()->nccl_ib_retry_cnt,
				   .rnr_retry = RNR_FOREVER,
				   .sq_psn = q->psn,
				   .max_rd_atomic = 1};

	return -abs(df_ibv.modify_qp(q->qp, &attr,
				     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					     IBV_QP_MAX_QP_RD_ATOMIC));
}

/*
 * Agrees on extensions (InfiniBand's enhanced connection establishment): the accepting side takes
 * what the connecting side offers.
 */
static void agree(struct pair *q, const struct df_net_frame *f)
{
	struct ece theirs = {.vendor_id = (uint32_t)f->at, .options = (uint32_t)(f->at >> 32)};

	/* If one device cannot, both use the standard. */
	if (!q->ece.vendor_id || !theirs.vendor_id || df_ibv.set_ece(q->qp, &theirs))
		memset(&q->ece, 0, sizeof(q->ece));
}

int df_verbs_pair_join(struct df_net_link *l, struct pair *q, const struct df_net_frame *info)
{
	const struct rail *r = df_verbs_pair_rail(l, q);
	int ret;

	q->peer_rail = (uint8_t)(info->a >> 24);
	q->far = (uint8_t)(r->spare + (int)(info->rkey[2] >> 8 & 1));
	if ((info->b >> 8 & 1) != (uint32_t)r->port.infiniband)
		return -EPROTONOSUPPORT;
	agree(q, info);
	ret = to_receive(r, q, info);
	/* Read back the options as this device applied them. */
	if (!ret && q->ece.vendor_id && df_ibv.query_ece(q->qp, &q->ece))
		memset(&q->ece, 0, sizeof(q->ece));
	if (!ret)
		ret = to_send(q);
	q->sends = !ret;
	return ret;
}

int df_verbs_self_make(const struct rail *r, struct pair *q)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 2, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct df_net_frame self = {.type = DF_NET_SETUP};
	int ret = look_at_port(r, q);

	if (ret)
		return ret;
	errno = 0;
	q->cq = df_ibv.create_cq(r->device->context, 4, NULL, r->device->channel, 0);
	attr.send_cq = attr.recv_cq = q->cq;
	q->qp = q->cq ? df_ibv.create_qp(r->device->pd, &attr) : NULL;
	ret = q->qp ? to_init(r, q, IBV_ACCESS_REMOTE_READ) : errno ? -errno : -ENOMEM;
	if (!ret)
		ret = draw_psn(q);
	if (!ret) {
		info_of(r, q, &self);
		ret = to_receive(r, q, &self);
	}
	if (!ret)
		ret = to_send(q);
	if (ret)
		df_verbs_self_end(q);
	return ret;
}

void df_verbs_self_end(struct pair *q)
{
	if (q->qp)
		df_ibv.destroy_qp(q->qp);
	if (q->cq)
		df_ibv.destroy_cq(q->cq);
	q->qp = NULL;
	q->cq = NULL;
}

void df_verbs_pair_end(struct df_net_link *l, struct pair *q)
{
	if (!q->qp)
		return;
	/* From here on the other side can no longer access our slots. */
	df_ibv.destroy_qp(q->qp);
	df_verbs_readback_closed(l->ep, df_verbs_pair_rail(l, q), q->sends);
	if (q->cq)
		df_ibv.destroy_cq(q->cq);
	q->qp = NULL;
	q->cq = NULL;
	for (; q->head != q->tail; q->head++)
		df_net_sent(q->from[q->head % OUT_MAX]);
	q->head = q->tail = 0;
	q->queued = 0;
	q->sends = q->usable = 0;
	q->broken = 0;
}

int df_verbs_status_errno(enum ibv_wc_status status)
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

/* ---- the choice of a pair for a slice -------------------------------------------------------- */

#define ALIKE 3 /* a pair counts as slow if it takes more than this times as long as the fastest */
/* Largest delay between a completion and its poll; a small slice itself takes no longer. */
#define LATE_NS (200 * DF_NS_PER_US)
#define TIMED	8 /* slices after which a pair's speed is known */

/*
 * Records the completion of a frame in the pair's speed, in which recent slices weigh most. Slices
 * complete in order, so this one took the time since the last progress.
 */
void df_verbs_pair_done(struct pair *q, const struct df_net_frame *f, uint64_t now)
{
	uint64_t weight = df_verbs_weight(f->bytes);

	if (f->type == DF_NET_DATA && f->bytes) {
		q->queued -= DF_MIN(weight, q->queued);
		q->took += (double)(now - q->moved) - q->took / 8;
		q->carried += (double)weight - q->carried / 8;
		q->timed += q->timed < TIMED;
	}
	q->moved = now;
}

static int takes(const struct pair *q)
{
	return q && q->usable && !q->broken;
}

static double pace(const struct pair *q)
{
	return q->timed == TIMED ? q->took / q->carried : 0;
}

/*
 * Whether the pair is slow. The constant term is for a pair that had little work: it waited for
 * single slices, or had small ones, and is not slow because of that.
 */
static int is_slow(const struct pair *q, double fastest)
{
	return q->timed == TIMED &&
	       q->took > ALIKE * fastest * q->carried + (double)(TIMED * LATE_NS);
}

struct pair *df_verbs_pair_choose(const struct path *p, uint32_t bytes)
{
	struct pair *best = p->pair[p->lead], *q;
	double least = 0, fastest = 0, at;
	int i, found = 0;

	for (i = 0; i < p->nr; i++)
		if (takes(p->pair[i]) && pace(p->pair[i]) > 0 &&
		    (!(fastest > 0) || pace(p->pair[i]) < fastest))
			fastest = pace(p->pair[i]);
	for (i = 0; i < p->nr; i++) {
		q = p->pair[(p->lead + i) % p->nr];
		if (!takes(q))
			continue;
		at = is_slow(q, fastest) ? pace(q) : fastest > 0 ? fastest : 1;
		at *= (double)(q->queued + df_verbs_weight(bytes));
		at += 1e12 * q->far;
		/*
		 * Choose among equal pairs the one with less recent work; otherwise idle pairs
		 * would leave everything to the lead.
		 */
		if (!found++ || at < least || (!(at > least) && q->given < best->given)) {
			least = at;
			best = q;
		}
	}
	for (i = 0; i < p->nr; i++) {
		q = p->pair[i];
		if (!takes(q))
			continue;
		/* Decay the record, so that a pair that was slow is tried again. */
		q->took -= q->took / 64;
		q->given -= q->given / 64;
	}
	best->given += (double)df_verbs_weight(bytes);
	return best;
}
