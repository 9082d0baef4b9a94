/*
 * The hardware of the tests' libibverbs, and its queue pairs. fake_verbs.c describes the whole
 * library. The thread nic() moves packets. Everything is protected by fake_lock.
 */
#define _GNU_SOURCE
#include "fake_verbs.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

struct qp *fake_qps[QPS_MAX];
int fake_nic_fd = -1;

/* ---- queue pairs: the hardware; callers hold fake_lock --------------------------------------- */

/* Puts the queue pair into error and flushes all work requests that wait. */
static void in_error(struct qp *q)
{
	if (q->state == IBV_QPS_ERR)
		return;
	q->state = IBV_QPS_ERR;
	for (; q->done != q->posted; q->done++)
		fake_complete(q->qp.send_cq, q, q->sends[q->done % WRS_MAX].wr_id,
			      IBV_WC_WR_FLUSH_ERR, 0, 0);
	for (; q->taken != q->ready; q->taken++)
		fake_complete(q->qp.recv_cq, q, q->recvs[q->taken % WRS_MAX].wr_id,
			      IBV_WC_WR_FLUSH_ERR, 0, 0);
}

static void tell_qp(struct qp *q, enum ibv_event_type type)
{
	q->unacked++;
	fake_tell_async(q->qp.context,
			(struct ibv_async_event){.element.qp = &q->qp, .event_type = type});
}

static void send_fails(struct qp *q, enum ibv_wc_status status)
{
	if (q->done != q->posted) {
		fake_complete(q->qp.send_cq, q, q->sends[q->done % WRS_MAX].wr_id, status, 0, 0);
		q->done++;
	}
	in_error(q);
}

enum packet_type { WRITE = 1, SEND, ACK, REFUSED, READ, ANSWER };

struct packet {
	uint32_t type, rkey, bytes, psn;
	uint64_t at;
	uint8_t payload[PIECE];
};

#define HEAD offsetof(struct packet, payload)

/*
 * Sends a packet. Returns 0, -EAGAIN, or -ECONNREFUSED if no queue pair has the peer's number any
 * more.
 */
static int put(struct qp *q, uint32_t type, uint32_t psn, const void *payload, uint32_t bytes,
	       uint64_t at, uint32_t rkey)
{
	struct packet head = {.type = type, .rkey = rkey, .bytes = bytes, .psn = psn, .at = at};
	struct iovec v[2] = {{&head, HEAD}, {(void *)(uintptr_t)payload, bytes}};
	struct msghdr m = {.msg_name = &q->peer,
			   .msg_namelen = q->peer_len,
			   .msg_iov = v,
			   .msg_iovlen = bytes ? 2 : 1};

	if (fake_is_mode("blackhole") || fake_wire(q->qp.context) == FAKE_MUTE)
		return 0;
	if (sendmsg(q->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	return errno == EAGAIN || errno == ENOBUFS ? -EAGAIN : -ECONNREFUSED;
}

/*
 * If it is time (FAKE_VERBS_FAULTS), injects the next fault of the list. Returns 1 if the present
 * send must not be sent.
 */
static int fault(struct qp *q)
{
	static const enum ibv_event_type events[] = {
		IBV_EVENT_CQ_ERR,
		IBV_EVENT_QP_FATAL,
		IBV_EVENT_QP_REQ_ERR,
		IBV_EVENT_QP_ACCESS_ERR,
		IBV_EVENT_COMM_EST,
		IBV_EVENT_SQ_DRAINED,
		IBV_EVENT_PATH_MIG,
		IBV_EVENT_PATH_MIG_ERR,
		IBV_EVENT_PORT_ACTIVE,
		IBV_EVENT_PORT_ERR,
		IBV_EVENT_LID_CHANGE,
		IBV_EVENT_PKEY_CHANGE,
		IBV_EVENT_SM_CHANGE,
		IBV_EVENT_SRQ_ERR,
		IBV_EVENT_SRQ_LIMIT_REACHED,
		IBV_EVENT_QP_LAST_WQE_REACHED,
		IBV_EVENT_CLIENT_REREGISTER,
		IBV_EVENT_GID_CHANGE,
	};
	enum { STATUSES = IBV_WC_TM_RNDV_INCOMPLETE, EVENTS = sizeof(events) / sizeof(*events) };
	static long left, which;
	long every = fake_number("FAKE_VERBS_FAULTS"), n;
	const char *log = getenv("FAKE_VERBS_LOG");
	FILE *f;

	if (!every || which >= 3 * STATUSES + EVENTS + 3 || (left++ % every) != every - 1)
		return 0;
	n = which++;
	f = log ? fopen(log, "ae") : NULL;
	if (f) {
		fprintf(f, "%ld of %d\n", n, 3 * STATUSES + EVENTS + 3);
		fclose(f);
	}
	if (n < STATUSES) { /* the send fails before the other side has received it */
		send_fails(q, (enum ibv_wc_status)(n + 1));
		return 1;
	}
	n -= STATUSES;
	if (n < STATUSES) { /* the other side has received it, but the acknowledgement is lost */
		if (q->parts[q->sent % WRS_MAX].length <= PIECE)
			put(q, SEND, q->psn, (void *)(uintptr_t)q->parts[q->sent % WRS_MAX].addr,
			    q->parts[q->sent % WRS_MAX].length, 0, 0);
		send_fails(q, (enum ibv_wc_status)(n + 1));
		return 1;
	}
	n -= STATUSES;
	if (n < STATUSES) { /* a receive fails */
		if (q->taken != q->ready)
			fake_complete(q->qp.recv_cq, q, q->recvs[q->taken++ % WRS_MAX].wr_id,
				      (enum ibv_wc_status)(n + 1), 0, 0);
		in_error(q);
		return 1;
	}
	n -= STATUSES;
	if (n < EVENTS && fake_names_qp(events[n])) {
		tell_qp(q, events[n]);
		if (events[n] != IBV_EVENT_COMM_EST && events[n] != IBV_EVENT_PATH_MIG &&
		    fake_dice(2))
			in_error(q);
		return 0;
	}
	if (n < EVENTS) {
		struct ibv_async_event e = {.event_type = events[n]};

		if (events[n] == IBV_EVENT_CQ_ERR)
			e.element.cq = q->qp.send_cq;
		else
			e.element.port_num = 1;
		fake_tell_async(q->qp.context, e);
		return 0;
	}
	if (n == EVENTS) {
		in_error(q);
		return 1;
	}
	if (n == EVENTS + 1) {
		q->pause = fake_now_ns() + 1000000000u;
		return 1;
	}
	if (n == EVENTS + 2) {
		fake_tell_async(q->qp.context,
				(struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL});
		in_error(q);
		return 1;
	}
	return 0;
}

/* Starts a new write: draws the order of its pieces, and sometimes repeats one. */
static void cut(struct qp *q)
{
	uint32_t bytes = q->parts[q->sent % WRS_MAX].length, n = (bytes + PIECE - 1) / PIECE, i, j,
		 t;

	must(n < PIECES_MAX - 1);
	for (i = 0; i < n; i++)
		q->order[i] = i;
	for (i = n; i > 1; i--) {
		j = fake_dice(i);
		t = q->order[i - 1];
		q->order[i - 1] = q->order[j];
		q->order[j] = t;
	}
	if (n && !fake_dice(8)) {
		t = fake_dice(n);
		q->order[n++] = t;
	}
	q->nr_pieces = n;
	q->piece = 0;
}

/*
 * Holds the queue pair back at random. Reliable connections keep the order within a queue pair, but
 * not between two.
 */
static int is_held(struct qp *q)
{
	long ms = fake_number("FAKE_VERBS_HOLD");

	if (!ms || fake_dice(HOLD_EVERY))
		return 0;
	q->pause = fake_now_ns() + (uint64_t)ms * 1000000u;
	fake_seen("a queue pair was held back");
	return 1;
}

static int read_fails(void)
{
	static long nr;
	long every = fake_number("FAKE_VERBS_READ");

	return every && ++nr % every == 0;
}

/* Sends as much as possible. Returns 1 if the hardware must try again later. */
static int send_some(struct qp *q)
{
	while (q->state == IBV_QPS_RTS && q->sent != q->posted) {
		const struct ibv_send_wr *wr = &q->sends[q->sent % WRS_MAX];
		const struct ibv_sge *part = &q->parts[q->sent % WRS_MAX];
		int ret = 0;

		const uint8_t *from;

		if (q->pause > fake_now_ns() || (!q->piece && is_held(q)))
			return 1;
		from = fake_memory(part->lkey, part->addr, part->length, 0);
		if (!from) {
			send_fails(q, IBV_WC_LOC_PROT_ERR);
			return 0;
		}
		if (wr->opcode == IBV_WR_RDMA_READ) {
			if (read_fails()) {
				send_fails(q, IBV_WC_RETRY_EXC_ERR);
				return 0;
			}
			/*
			 * A read puts the number of bytes that it asks for into the field for the
			 * packet number.
			 */
			ret = put(q, READ, part->length, NULL, 0, wr->wr.rdma.remote_addr,
				  wr->wr.rdma.rkey);
		} else if (wr->opcode == IBV_WR_SEND) {
			must(part->length <= PIECE);
			if (fault(q) || fake_send_counts(q->qp.context) == FAKE_DOWN)
				return 1;
			if (q->state != IBV_QPS_RTS)
				return 0;
			ret = put(q, SEND, q->psn + 1, from, part->length, 0, 0);
			if (!ret)
				q->psn++;
		} else {
			if (!q->piece)
				cut(q);
			for (; !ret && q->piece < q->nr_pieces; q->piece++) {
				uint64_t off = (uint64_t)q->order[q->piece] * PIECE;
				uint64_t n =
					part->length - off < PIECE ? part->length - off : PIECE;

				ret = put(q, WRITE, 0, from + off, (uint32_t)n,
					  wr->wr.rdma.remote_addr + off, wr->wr.rdma.rkey);
				if (ret)
					break;
			}
			if (!ret) {
				uint64_t ns = fake_wrote(q->qp.context, q->port, part->length);

				q->piece = 0;
				q->pause = ns ? fake_now_ns() + ns : 0;
			}
		}
		if (ret == -EAGAIN)
			return 1;
		if (ret) {
			send_fails(q, IBV_WC_RETRY_EXC_ERR);
			return 0;
		}
		q->sent++;
	}
	return 0;
}

/* The other side has received `nr` further sends: completes them and the writes before them. */
static void acknowledged(struct qp *q, uint32_t nr)
{
	for (; nr && q->done != q->sent; q->done++) {
		const struct ibv_send_wr *wr = &q->sends[q->done % WRS_MAX];

		if (wr->opcode == IBV_WR_SEND)
			nr--;
		if (wr->send_flags & IBV_SEND_SIGNALED)
			fake_complete(q->qp.send_cq, q, wr->wr_id, IBV_WC_SUCCESS, IBV_WC_SEND, 0);
	}
}

static void acknowledge(struct qp *q)
{
	q->owes = q->ack && put(q, ACK, q->ack, NULL, 0, 0, 0) == -EAGAIN;
	if (!q->owes)
		q->ack = 0;
}

static void take(struct qp *q, const struct packet *k)
{
	const struct ibv_sge *to = &q->into[q->taken % WRS_MAX];
	uint8_t *into;

	switch (k->type) {
	case WRITE:
		if (q->access & IBV_ACCESS_REMOTE_WRITE &&
		    !fake_lands(q->qp.context, k->rkey, k->at, k->payload, k->bytes))
			return;
		fprintf(stderr, "fake_verbs: a write to memory that is not open\n");
		tell_qp(q, IBV_EVENT_QP_ACCESS_ERR);
		put(q, REFUSED, 0, NULL, 0, 0, 0);
		in_error(q);
		return;
	case SEND:
		must(q->taken != q->ready && k->bytes <= to->length);
		into = fake_memory(to->lkey, to->addr, to->length, IBV_ACCESS_LOCAL_WRITE);
		must(into);
		memcpy(into, k->payload, k->bytes);
		fake_complete(q->qp.recv_cq, q, q->recvs[q->taken % WRS_MAX].wr_id, IBV_WC_SUCCESS,
			      IBV_WC_RECV, k->bytes);
		q->taken++;
		q->ack++;
		return;
	case ACK:
		acknowledged(q, k->psn);
		return;
	case READ:
		fake_settle(q->qp.context);
		into = fake_memory(k->rkey, k->at, k->psn, IBV_ACCESS_REMOTE_READ);
		must(into && q->access & IBV_ACCESS_REMOTE_READ);
		fake_seen("a read");
		must(put(q, ANSWER, 0, into, k->psn, 0, 0) == 0);
		return;
	case ANSWER:
		to = &q->parts[q->done % WRS_MAX];
		into = fake_memory(to->lkey, to->addr, to->length, IBV_ACCESS_LOCAL_WRITE);
		must(q->done != q->sent && into && k->bytes == to->length);
		memcpy(into, k->payload, k->bytes);
		fake_complete(q->qp.send_cq, q, q->sends[q->done % WRS_MAX].wr_id, IBV_WC_SUCCESS,
			      IBV_WC_RDMA_READ, k->bytes);
		q->done++;
		return;
	default:
		send_fails(q, IBV_WC_REM_ACCESS_ERR);
	}
}

static void receive_some(struct qp *q)
{
	static struct packet k;
	int turns;

	for (turns = 0; turns < 64; turns++) {
		/* If no receive is posted, packets stay in the socket and the other side waits. */
		if (q->taken == q->ready && q->state == IBV_QPS_RTS && !q->self)
			break;
		if (recv(q->fd, &k, sizeof(k), MSG_DONTWAIT) < (ssize_t)HEAD)
			break;
		if (q->state == IBV_QPS_RTR || q->state == IBV_QPS_RTS)
			take(q, &k);
	}
	if (q->ack && q->state != IBV_QPS_ERR)
		acknowledge(q);
}

static void *nic(void *arg)
{
	struct pollfd p[QPS_MAX + 1];
	eventfd_t count;
	int i, n, again;

	for (;;) {
		p[0] = (struct pollfd){.fd = fake_nic_fd, .events = POLLIN};
		n = 1;
		pthread_mutex_lock(&fake_lock);
		again = fake_wires_look() | fake_bus_looks();
		for (i = 0; i < QPS_MAX; i++) {
			struct qp *q = fake_qps[i];

			if (!q)
				continue;
			if (fake_wire(q->qp.context) == FAKE_DOWN)
				continue;
			receive_some(q);
			again |= send_some(q) | q->owes;
			if (q->taken != q->ready || q->state != IBV_QPS_RTS || q->self)
				p[n++] = (struct pollfd){.fd = q->fd, .events = POLLIN};
		}
		pthread_mutex_unlock(&fake_lock);
		poll(p, (nfds_t)n, again ? 1 : 100);
		if (p[0].revents)
			eventfd_read(fake_nic_fd, &count);
	}
	return arg;
}

/* ---- queue pairs: functions of the library --------------------------------------------------- */

static socklen_t name_of(uint32_t nr, struct sockaddr_un *out)
{
	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1,
					    "fake_verbs-%06x", nr));
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct qp *q = calloc(1, sizeof(*q));
	struct sockaddr_un at;
	socklen_t len;
	pthread_t t;
	int i;

	must(attr->qp_type == IBV_QPT_RC && attr->cap.max_send_wr <= WRS_MAX &&
	     attr->cap.max_recv_wr <= WRS_MAX && attr->cap.max_send_sge == 1);
	pthread_mutex_lock(&fake_lock);
	if (fake_nic_fd < 0) {
		fake_nic_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		must(pthread_create(&t, NULL, nic, NULL) == 0);
		pthread_detach(t);
	}
	for (i = 0; i < QPS_MAX && fake_qps[i]; i++)
		;
	must(i < QPS_MAX);
	q->qp.context = pd->context;
	q->qp.pd = pd;
	q->qp.send_cq = attr->send_cq;
	q->qp.recv_cq = attr->recv_cq;
	q->qp.qp_type = attr->qp_type;
	q->cap = attr->cap;
	q->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	must(q->fd >= 0);
	do {
		q->qp.qp_num = 1 + fake_dice(0xfffffe);
		len = name_of(q->qp.qp_num, &at);
	} while (bind(q->fd, (struct sockaddr *)&at, len));
	fake_qps[i] = q;
	pthread_mutex_unlock(&fake_lock);
	return &q->qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	const int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
	struct qp *q = (struct qp *)qp;
	char text[32];

	pthread_mutex_lock(&fake_lock);
	must(mask & IBV_QP_STATE);
	switch (attr->qp_state) {
	case IBV_QPS_INIT:
		must(q->state == IBV_QPS_RESET && mask == init && attr->port_num <= 2);
		q->port = attr->port_num;
		q->access = (int)attr->qp_access_flags;
		break;
	case IBV_QPS_RTR:
		must(q->state == IBV_QPS_INIT && mask == rtr && attr->path_mtu >= IBV_MTU_256);
		must(attr->ah_attr.is_global || attr->ah_attr.dlid);
		q->peer_len = name_of(attr->dest_qp_num, &q->peer);
		q->self = attr->dest_qp_num == q->qp.qp_num;
		q->ece.options |= q->ece.vendor_id ? 0x100 : 0; /* marks the options as agreed */
		break;
	case IBV_QPS_RTS:
		must(q->state == IBV_QPS_RTR && mask == rts);
		snprintf(text, sizeof(text), "ECE %x %x", q->ece.vendor_id, q->ece.options);
		fake_seen(text);
		break;
	default:
		must(attr->qp_state == IBV_QPS_ERR && mask == IBV_QP_STATE);
		in_error(q);
	}
	q->state = attr->qp_state;
	pthread_mutex_unlock(&fake_lock);
	fake_wake(fake_nic_fd);
	return 0;
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	struct qp *q = (struct qp *)qp;

	*ece = q->ece;
	/* Before ibv_set_ece() this returns what the device supports. */
	if (q->state == IBV_QPS_RESET)
		*ece = (struct ibv_ece){.vendor_id = 0x15b3, .options = 0x7};
	return 0;
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	struct qp *q = (struct qp *)qp;

	must(q->state == IBV_QPS_RESET || q->state == IBV_QPS_INIT);
	must(ece->vendor_id == 0x15b3 && !ece->comp_mask);
	q->ece = *ece;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct qp *q = (struct qp *)qp;
	struct events *v = &((struct context *)qp->context)->events;
	uint32_t i, to;

	pthread_mutex_lock(&fake_lock);
	/* Unread events of a queue pair disappear with it. */
	for (i = to = v->head; i != v->tail; i++) {
		if (fake_names_qp(v->async[i % QUEUE_MAX].event_type) &&
		    v->async[i % QUEUE_MAX].element.qp == qp)
			q->unacked--;
		else
			v->async[to++ % QUEUE_MAX] = v->async[i % QUEUE_MAX];
	}
	v->tail = to;
	must(!q->unacked);
	for (i = 0; fake_qps[i] != q; i++)
		;
	fake_qps[i] = NULL;
	close(q->fd);
	pthread_mutex_unlock(&fake_lock);
	fake_wake(fake_nic_fd);
	free(q);
	return 0;
}

int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *q = (struct qp *)qp;

	pthread_mutex_lock(&fake_lock);
	*bad = NULL;
	must(q->state == IBV_QPS_RTS || q->state == IBV_QPS_ERR);
	for (; wr; wr = wr->next) {
		must(q->posted - q->done < q->cap.max_send_wr && wr->num_sge == 1);
		must(q->self ? wr->opcode == IBV_WR_RDMA_READ
			     : wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_RDMA_WRITE);
		if (q->state == IBV_QPS_ERR) {
			fake_complete(q->qp.send_cq, q, wr->wr_id, IBV_WC_WR_FLUSH_ERR, 0, 0);
			continue;
		}
		q->sends[q->posted % WRS_MAX] = *wr;
		q->parts[q->posted % WRS_MAX] = wr->sg_list[0];
		q->posted++;
	}
	pthread_mutex_unlock(&fake_lock);
	fake_wake(fake_nic_fd);
	return 0;
}

int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *q = (struct qp *)qp;

	pthread_mutex_lock(&fake_lock);
	*bad = NULL;
	must(q->state != IBV_QPS_RESET);
	for (; wr; wr = wr->next) {
		must(q->ready - q->taken < q->cap.max_recv_wr && wr->num_sge == 1);
		if (q->state == IBV_QPS_ERR) {
			fake_complete(q->qp.recv_cq, q, wr->wr_id, IBV_WC_WR_FLUSH_ERR, 0, 0);
			continue;
		}
		q->recvs[q->ready % WRS_MAX] = *wr;
		q->into[q->ready % WRS_MAX] = wr->sg_list[0];
		q->ready++;
	}
	pthread_mutex_unlock(&fake_lock);
	fake_wake(fake_nic_fd);
	return 0;
}
