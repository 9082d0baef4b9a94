/* Completions and asynchronous events of RDMA devices; see rdma.c. */
#include "runtime/transport/net/verbs/readback.h"

#include <errno.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"

/* Only acknowledges the notification; the pass polls every link afterwards. */
static void completions_wait(struct df_net_ep *ep, struct df_net_source *s, uint32_t events)
{
	struct ibv_cq *cq;
	void *context;

	(void)ep, (void)events;
	while (!df_ibv.get_cq_event(df_container_of(s, struct device, completions)->channel, &cq,
				    &context))
		df_ibv.ack_cq_events(cq, 1);
}

/*
 * The objects that an event concerns: a device, or one port of it (port > 0). qp, cq: the one
 * concerned; both NULL: all.
 */
struct whom {
	const struct device *device;
	int port;
	const struct ibv_qp *qp;
	const struct ibv_cq *cq;
};

static int concerns(const struct df_net_link *l, const struct pair *q, const struct whom *w)
{
	const struct rail *r = df_verbs_pair_rail(l, q);

	if (r->device != w->device || (w->port && r->port.port != w->port))
		return 0;
	return (!w->qp && !w->cq) || (w->qp && q->qp == w->qp) || (w->cq && q->cq == w->cq);
}

/* Whether another pair of the link is usable. */
static int has_another(const struct path *p, int k)
{
	int i;

	for (i = 0; i < p->nr; i++)
		if (i != k && p->pair[i] && p->pair[i]->usable)
			return 1;
	return 0;
}

static void fail_those(struct df_net_ep *ep, const struct whom *w, int why, const char *text)
{
	int k, dead = 1; /* whether every device has failed */
	struct verbs *v = df_verbs(ep);
	struct df_net_link *l;

	for (k = 0; k < v->nr; k++)
		dead &= v->rail[k].device->dead;
	for (k = 0; k < v->nr && !w->port; k++)
		if (v->rail[k].device == w->device &&
		    ((!w->qp && !w->cq) || v->rail[k].readback.self.qp == w->qp ||
		     v->rail[k].readback.self.cq == w->cq))
			df_verbs_readback_fail(ep, &v->rail[k], text);
	for (l = df_net_links(ep); l; l = l->next) {
		struct path *p = df_verbs_path(l);

		if (dead && df_verbs_has_others(l))
			l->avoid |= DF_NET_BIT_VERBS;
		for (k = 0; p && l->ops == &df_net_verbs && k < p->nr; k++) {
			if (!p->pair[k] || !p->pair[k]->qp || !concerns(l, p->pair[k], w))
				continue;
			/*
			 * A port that is down may recover, and the queue pair repeats what was
			 * lost.
			 */
			if (w->port && !has_another(p, k))
				continue;
			if (df_verbs_fail(l, k, why, text))
				break;
		}
	}
}

static void port_is_back(struct df_net_ep *ep, const struct whom *w)
{
	struct df_net_link *l;
	int k;

	for (l = df_net_links(ep); l; l = l->next) {
		struct path *p = df_verbs_path(l);

		for (k = 0; p && l->ops == &df_net_verbs && k < p->nr; k++)
			if (p->pair[k] && concerns(l, p->pair[k], w))
				df_verbs_again(l, k);
	}
}

static void port_is_down(struct df_net_ep *ep, const struct whom *w)
{
	struct verbs *v = df_verbs(ep);
	int i;

	for (i = 0; i < v->nr; i++)
		if (v->rail[i].device == w->device && v->rail[i].port.port == w->port)
			df_verbs_readback_down(&v->rail[i]);
}

static void told(struct df_net_ep *ep, struct device *d, const struct ibv_async_event *e,
		 const char *text)
{
	struct whom w = {.device = d};

	switch (e->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_PATH_MIG_ERR:
		w.qp = e->element.qp;
		break;
	case IBV_EVENT_CQ_ERR:
		w.cq = e->element.cq;
		break;
	case IBV_EVENT_DEVICE_FATAL:
		d->dead = 1;
		break;
	case IBV_EVENT_PORT_ERR:
		w.port = e->element.port_num;
		port_is_down(ep, &w);
		break;
	case IBV_EVENT_PORT_ACTIVE:
		w.port = e->element.port_num;
		port_is_back(ep, &w);
		return;
	default:
		return;
	}
	fail_those(ep, &w, w.port ? -ENETDOWN : -EIO, w.port ? "the port is down" : text);
}

static void log_event(const struct df_net_ep *ep, const struct device *d,
		      const struct ibv_async_event *e, const char *text)
{
	const struct verbs *v = df_verbs(ep);
	const char *name = "";
	int i;

	for (i = 0; i < v->nr; i++)
		if (v->rail[i].device == d)
			name = v->rail[i].port.device;
	switch (e->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		df_warn("the RDMA device %s has failed", name);
		break;
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_SM_CHANGE:
		df_info("%s:%d: %s", name, e->element.port_num, text);
		break;
	default:
		break;
	}
}

static void events_wait(struct df_net_ep *ep, struct df_net_source *s, uint32_t events)
{
	struct device *d = df_container_of(s, struct device, events);
	struct ibv_async_event e;

	(void)events;
	while (!df_ibv.get_async_event(d->context, &e)) {
		const char *text = df_ibv.event_type_str(e.event_type);

		log_event(ep, d, &e, text);
		/* Acknowledge first: the object that it names cannot be destroyed before. */
		df_ibv.ack_async_event(&e);
		if (df_env()->nccl_ib_async_events || e.event_type == IBV_EVENT_PORT_ACTIVE)
			told(ep, d, &e, text);
	}
}

int df_verbs_watch(struct df_net_ep *ep, struct device *d)
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
