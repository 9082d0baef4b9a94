/*
 * A libibverbs of its own, through NCCL_IBVERBS_LIB: three devices that are found (rocex with an active Ethernet port and one
 * that is down; ibx with an InfiniBand port that has a FLID; badx, which cannot be opened), and reliable queue pairs
 * between processes of this machine. A thread is the hardware: it moves packets over Unix sockets, a socket a queue
 * pair, whose name is its number. It keeps what RC promises, and no more: pieces of a write land in any order and some twice,
 * all before the send after it; completions come when the other side has acknowledged.
 *
 * What is not allowed ends the process: states and masks out of order, a full queue, an unknown key of one's own memory, a
 * queue pair destroyed before its events are acknowledged, two posts more than there is room for.
 *
 *   FAKE_VERBS=none       no device               hang       opening does not return
 *              blackhole  packets are lost        memlock    nothing can be registered
 *   FAKE_VERBS_MEMLOCK=N  bytes that can be registered
 *   FAKE_VERBS_FAULTS=N   after N sends the next fault of the list: each completion status, on a send or a receive, before the
 *                         other side has got it or after; each asynchronous event; a queue pair in error without
 *                         a word; a pause; last the device. FAKE_VERBS_LOG=FILE: what was done, a line each
 */
#define _GNU_SOURCE
#include "fake_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* What `dfshim net` reads without the header. */
_Static_assert(offsetof(struct ibv_port_attr, gid_tbl_len) == 12, "");
_Static_assert(offsetof(struct ibv_port_attr, active_width) == 43, "");
_Static_assert(offsetof(struct ibv_port_attr, link_layer) == 46, "");
_Static_assert(IBV_PORT_ACTIVE == 4 && IBV_LINK_LAYER_ETHERNET == 2 && IBV_MTU_4096 == 5, "");

enum { ROCE, IB, BAD, NR };
static const char *const names[NR] = {"rocex", "ibx", "badx"};
static struct ibv_device devices[NR];

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

int fake_is_mode(const char *mode)
{
	const char *is = getenv("FAKE_VERBS");

	return is && !strcmp(is, mode);
}

long fake_number(const char *name)
{
	const char *text = getenv(name);

	return text ? atol(text) : 0;
}

uint64_t fake_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Under the lock. */
uint32_t fake_dice(uint32_t below)
{
	static uint64_t state;

	if (!state)
		state = ((uint64_t)fake_number("SEED") + 1) * 0x9e3779b97f4a7c15u ^
			(uint64_t)getpid() << 32;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 33) % below;
}

/* ---- devices ------------------------------------------------------------------------------------------------ */

struct ibv_device **ibv_get_device_list(int *nr)
{
	struct ibv_device **list = calloc(NR + 1, sizeof(*list));
	int i;

	*nr = fake_is_mode("none") ? 0 : NR;
	for (i = 0; i < *nr; i++)
		list[i] = &devices[i];
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return names[device - devices];
}

static int poll_cq(struct ibv_cq *cq, int nr, struct ibv_wc *wc);
static int notify_cq(struct ibv_cq *cq, int solicited);

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct context *c;

	while (fake_is_mode("hang"))
		pause();
	errno = EACCES;
	if (device == &devices[BAD])
		return NULL;
	c = calloc(1, sizeof(*c));
	c->c.device = device;
	c->c.ops.poll_cq = poll_cq;
	c->c.ops.req_notify_cq = notify_cq;
	c->c.ops.post_send = fake_post_send;
	c->c.ops.post_recv = fake_post_recv;
	c->events.fd = c->c.async_fd = eventfd(0, EFD_CLOEXEC);
	return &c->c;
}

int ibv_close_device(struct ibv_context *context)
{
	close(context->async_fd);
	free(context);
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	int device = (int)(context->device - devices);
	uint8_t *a = (void *)attr;

	if (port < 1 || port > (device == ROCE ? 2 : 1))
		return EINVAL;
	memset(a, 0, 48); /* no byte more: the exported function's structure ends there */
	memcpy(a, &(uint32_t){device == ROCE && port == 2 ? 1 : 4}, 4); /* down, active */
	memcpy(a + 8, &(uint32_t){device == ROCE ? 3 : 5}, 4);		/* MTU 1024, 4096 */
	memcpy(a + 12, &(int32_t){device == ROCE ? 5 : 2}, 4);
	memcpy(a + 34, &(uint16_t){device == IB ? 77 : 0}, 2);
	a[43] = 2;			   /* four lanes */
	a[44] = device == ROCE ? 32 : 128; /* EDR, NDR */
	a[46] = device == ROCE ? 2 : 1;
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	static const char *const roce[] = {"fe80::1", "::", "2001:db8::5", "::ffff:10.1.0.5",
					   "::ffff:10.2.0.5"};
	static const char *const ib[] = {"fe80::2", "fec0:0:9::2"};
	int is_roce = context->device == &devices[ROCE];

	(void)port;
	if (index < 0 || index >= (is_roce ? 5 : 2))
		return EINVAL;
	return inet_pton(AF_INET6, is_roce ? roce[index] : ib[index], gid) == 1 ? 0 : EINVAL;
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

static struct ibv_mr *mrs[MRS_MAX]; /* by key, but for its lowest byte */
static long registered;

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = context;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
	static uint32_t next;
	long most = fake_number("FAKE_VERBS_MEMLOCK");
	struct ibv_mr *mr = NULL;
	uint32_t i;

	(void)access;
	pthread_mutex_lock(&fake_lock);
	if (fake_is_mode("memlock") || (most && registered + (long)bytes > most)) {
		errno = ENOMEM;
		goto out;
	}
	do {
		i = ++next % MRS_MAX;
	} while (!i || mrs[i]);
	mr = calloc(1, sizeof(*mr));
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = at;
	mr->length = bytes;
	mr->lkey = mr->rkey = i << 8 | (next / MRS_MAX & 0xff);
	mrs[i] = mr;
	registered += (long)bytes;
out:
	pthread_mutex_unlock(&fake_lock);
	return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	pthread_mutex_lock(&fake_lock);
	must(mrs[mr->lkey >> 8] == mr);
	mrs[mr->lkey >> 8] = NULL;
	registered -= (long)mr->length;
	pthread_mutex_unlock(&fake_lock);
	free(mr);
	return 0;
}

int fake_is_open(uint32_t key, uint64_t at, uint64_t bytes)
{
	const struct ibv_mr *mr = key >> 8 < MRS_MAX ? mrs[key >> 8] : NULL;
	uint64_t from = mr ? (uintptr_t)mr->addr : 0;

	return mr && mr->lkey == key && at >= from && at + bytes <= from + mr->length;
}

/* ---- events and completions -------------------------------------------------------------------------------- */

void fake_wake(int fd)
{
	must(eventfd_write(fd, 1) == 0);
}

void fake_tell_async(struct ibv_context *context, struct ibv_async_event e)
{
	struct events *v = &((struct context *)context)->events;

	must(v->tail - v->head < QUEUE_MAX);
	v->async[v->tail++ % QUEUE_MAX] = e;
	fake_wake(v->fd);
}

/* -1: there is none; who may wait reads the descriptor. Returns with the lock. */
static int next_event(struct events *v)
{
	eventfd_t count;

	for (;;) {
		pthread_mutex_lock(&fake_lock);
		if (v->head != v->tail)
			return 0;
		pthread_mutex_unlock(&fake_lock);
		if (eventfd_read(v->fd, &count)) {
			pthread_mutex_lock(&fake_lock);
			return -1;
		}
	}
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *e)
{
	struct events *v = &((struct context *)context)->events;
	int ret = next_event(v);

	if (!ret)
		*e = v->async[v->head++ % QUEUE_MAX];
	pthread_mutex_unlock(&fake_lock);
	return ret;
}

int fake_names_qp(enum ibv_event_type type)
{
	return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
	       type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_COMM_EST ||
	       type == IBV_EVENT_SQ_DRAINED || type == IBV_EVENT_PATH_MIG ||
	       type == IBV_EVENT_PATH_MIG_ERR || type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

void ibv_ack_async_event(struct ibv_async_event *e)
{
	pthread_mutex_lock(&fake_lock);
	if (fake_names_qp(e->event_type))
		((struct qp *)e->element.qp)->unacked--;
	pthread_mutex_unlock(&fake_lock);
}

const char *ibv_event_type_str(enum ibv_event_type type)
{
	static _Thread_local char text[32];

	snprintf(text, sizeof(text), "event %d", (int)type);
	return text;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static _Thread_local char text[32];

	snprintf(text, sizeof(text), "status %d", (int)status);
	return text;
}

struct channel {
	struct ibv_comp_channel c; /* first */
	struct events events;
};

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *c = calloc(1, sizeof(*c));

	c->c.context = context;
	c->events.fd = c->c.fd = eventfd(0, EFD_CLOEXEC);
	return &c->c;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	close(channel->fd);
	free(channel);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	struct cq *q = calloc(1, sizeof(*q));

	(void)vector;
	must(cqe > 0 && cqe <= WRS_MAX * 3);
	q->cq.context = context;
	q->cq.channel = channel;
	q->cq.cq_context = cq_context;
	q->cq.cqe = cqe;
	return &q->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct events *v = &((struct channel *)cq->channel)->events;
	uint32_t i, to;

	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < QPS_MAX; i++)
		must(!fake_qps[i] ||
		     (fake_qps[i]->qp.send_cq != cq && fake_qps[i]->qp.recv_cq != cq));
	for (i = to = v->head; i != v->tail; i++)
		if (v->cq[i % QUEUE_MAX] != cq)
			v->cq[to++ % QUEUE_MAX] = v->cq[i % QUEUE_MAX];
	v->tail = to;
	pthread_mutex_unlock(&fake_lock);
	free(cq);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	struct events *v = &((struct channel *)channel)->events;
	int ret = next_event(v);

	if (!ret) {
		*cq = v->cq[v->head++ % QUEUE_MAX];
		*context = (*cq)->cq_context;
	}
	pthread_mutex_unlock(&fake_lock);
	return ret;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nr)
{
	(void)cq, (void)nr;
}

/* Under the lock, all from here to the functions of the library. */
void fake_complete(struct ibv_cq *to, struct qp *qp, uint64_t id, enum ibv_wc_status status,
		   enum ibv_wc_opcode opcode, uint32_t bytes)
{
	struct cq *q = (struct cq *)to;
	struct ibv_wc wc = {.wr_id = id, .status = status, .qp_num = qp->qp.qp_num};

	must(q->tail - q->head < (uint32_t)q->cq.cqe);
	if (status == IBV_WC_SUCCESS) {
		wc.opcode = opcode;
		wc.byte_len = bytes;
	} else {
		/* What else is in a failed one means nothing. */
		wc.opcode = (enum ibv_wc_opcode)fake_dice(200);
		wc.byte_len = fake_dice(100000);
		wc.vendor_err = 129;
	}
	q->wc[q->tail++ % (WRS_MAX * 3)] = wc;
	if (q->armed) {
		struct events *v = &((struct channel *)q->cq.channel)->events;

		q->armed = 0;
		must(v->tail - v->head < QUEUE_MAX);
		v->cq[v->tail++ % QUEUE_MAX] = to;
		fake_wake(v->fd);
	}
}

static int poll_cq(struct ibv_cq *cq, int nr, struct ibv_wc *wc)
{
	struct cq *q = (struct cq *)cq;
	int n = 0;

	pthread_mutex_lock(&fake_lock);
	while (n < nr && q->head != q->tail)
		wc[n++] = q->wc[q->head++ % (WRS_MAX * 3)];
	pthread_mutex_unlock(&fake_lock);
	return n;
}

static int notify_cq(struct ibv_cq *cq, int solicited)
{
	(void)solicited;
	pthread_mutex_lock(&fake_lock);
	((struct cq *)cq)->armed = 1;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}
