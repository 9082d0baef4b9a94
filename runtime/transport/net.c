/* Connectors over a network, for every medium; see net.h. */
#define _GNU_SOURCE
#include "runtime/transport/net/net.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/blocks.h"
#include "runtime/base/ascii.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/net/sockaddr.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "kernels/bell.h"
#include "runtime/transport/net/plugin/ncclnet.h"
#include "runtime/transport/progress.h"
#include "runtime/transport/transport_int.h"

const struct df_net_ops *const df_net_media[DF_NET_MEDIA] = {&df_net_plugin, &df_net_verbs,
							     &df_net_tcp};

static struct df_mutex eps_lock = DF_MUTEX_INIT(DF_RANK_TRANSPORT, "network endpoints");
static struct df_net_ep **eps; /* indexed by device */
static int nr_eps;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static struct df_net_link *link_of_peer(struct df_peer *p)
{
	return (struct df_net_link *)(void *)p;
}

/* ---- endpoints ------------------------------------------------------------------------------- */

static void death(uint64_t proc)
{
	struct df_net_link *l;
	int i;

	df_mutex_lock(&eps_lock);
	for (i = 0; i < nr_eps; i++) {
		if (!eps[i])
			continue;
		df_mutex_lock(&eps[i]->lock);
		for (l = df_net_links(eps[i]); l; l = l->next)
			if (l->proc == proc)
				df_net_mark_dead(l);
		df_mutex_unlock(&eps[i]->lock);
	}
	df_mutex_unlock(&eps_lock);
}

static void after_fork_child(void)
{
	/*
	 * Keeps the parent's endpoints reachable for leak checkers. The threads that owned them do
	 * not exist in the child.
	 */
	static __attribute__((unused)) struct df_net_ep **of_parent;
	int i;

	for (i = 0; i < nr_eps; i++)
		if (eps[i])
			df_session_forked(eps[i]);
	df_mutex_init(&eps_lock, DF_RANK_TRANSPORT, "network endpoints");
	if (eps)
		of_parent = eps;
	eps = NULL;
	df_net_pass_forked();
	df_net_links_forked();
	nr_eps = 0;
}

static void install(void)
{
	pthread_atfork(NULL, NULL, after_fork_child);
	df_ctl_on_death(death);
}

/* Returns the medium that NCCL's name means, or NULL for any. */
static const struct df_net_ops *named(const char *name)
{
	if (!name || !name[0])
		return NULL;
	if (!df_strcasecmp(name, "Socket"))
		return &df_net_tcp;
	return !df_strcasecmp(name, "IB") ? &df_net_verbs : &df_net_plugin;
}

/* Returns the medium of a setting (DF_NET_*), or NULL for any. */
static const struct df_net_ops *set_to(int net)
{
	switch (net) {
	case DF_NET_TCP:
		return &df_net_tcp;
	case DF_NET_VERBS:
		return &df_net_verbs;
	case DF_NET_PLUGIN:
		return &df_net_plugin;
	default:
		return named(df_env()->nccl_net);
	}
}

static int wants(int net, const struct df_net_ops *ops)
{
	const struct df_net_ops *one = set_to(net);

	return net != DF_NET_OFF && (!one || one == ops);
}

/* Whether any communicator wants this medium. */
static int is_wanted(const struct df_net_ops *ops)
{
	int net, is = wants(df_env_net(""), ops);

	for (net = DF_NET_AUTO; net <= DF_NET_PLUGIN && !is; net++)
		is = df_env_net_has(net) && wants(net, ops);
	return is;
}

/* Under eps_lock. */
static struct df_net_ep *ep_new(int device, const struct df_member *self)
{
	struct df_net_ep *ep, **v;
	int i;

	if (device >= nr_eps) {
		v = realloc(eps, ((size_t)device + 1) * sizeof(struct df_net_ep *));
		if (!v)
			return NULL;
		memset(v + nr_eps, 0, (size_t)(device + 1 - nr_eps) * sizeof(struct df_net_ep *));
		eps = v;
		nr_eps = device + 1;
	}
	ep = aligned_alloc(64, sizeof(*ep));
	if (!ep)
		return NULL;
	memset(ep, 0, sizeof(*ep));
	df_mutex_init(&ep->lock, DF_RANK_CONNECTOR, "network connectors");
	df_list_init(&ep->inbox);
	ep->device = device;
	ep->proc = self->proc;
	ep->key = self->key;
	ep->ops = df_net_media;
	for (i = 0; i < DF_NET_MEDIA; i++)
		ep->wants |= (uint32_t)is_wanted(df_net_media[i]) << i;
	eps[device] = ep;
	return ep;
}

static struct df_net_ep *ep_get(int device)
{
	struct df_member self;
	struct df_net_ep *ep;

	pthread_once(&once, install);
	/* The control plane's lock has the lower rank, so take it first. */
	if (df_ctl_self(&self))
		return NULL;
	df_mutex_lock(&eps_lock);
	ep = device < nr_eps && eps[device] ? eps[device] : ep_new(device, &self);
	df_mutex_unlock(&eps_lock);
	return ep;
}

static int nr_wanted(void)
{
	int i, nr = 0;

	for (i = 0; i < DF_NET_MEDIA; i++)
		nr += is_wanted(df_net_media[i]);
	return nr;
}

/*
 * Finds the media that are wanted and can carry frames here. Called with no lock: it calls a driver
 * or a plugin.
 */
static void find_media(struct df_net_ep *ep)
{
	int i;

	/* A thread that waits for the one that searches must hold no lock either. */
	df_lock_none_held("the start of a network");
	if (!df_once_begin(&ep->found, "The search for networks"))
		return;
	for (i = 0; i < DF_NET_MEDIA; i++)
		if (is_wanted(df_net_media[i]) && !df_net_media[i]->start(ep))
			ep->media |= 1u << i;
	df_once_end(&ep->found);
}

uint32_t df_net_avoid(int device, const char *comm, const char *name)
{
	int net = df_env_net(comm), i;
	const struct df_net_ops *ops = set_to(net);
	const struct df_ncclnet *plugin = NULL;
	const char *by = net != DF_NET_AUTO ? "DFSHIM_NET" : ops ? "NCCL_NET" : "netName";
	uint32_t avoid = DF_NET_NONE;
	struct df_net_ep *ep;

	if (net == DF_NET_OFF)
		return DF_NET_NONE;
	/* Only one medium is wanted, so there is no choice to make. */
	if (nr_wanted() == 1)
		return 0;
	if (ops)
		name = ops->name;
	else
		ops = named(name);
	ep = ops ? ep_get(device) : NULL;
	if (!ep)
		return 0;
	find_media(ep);
	for (i = 0; i < DF_NET_MEDIA; i++)
		if (df_net_media[i] == ops && ep->media & 1u << i)
			avoid &= ~(1u << i);
	if (ops == &df_net_plugin && name != ops->name && avoid != DF_NET_NONE)
		plugin = df_ncclnet_get();
	if (plugin && df_strcasecmp(plugin->name, name))
		avoid = DF_NET_NONE;
	if (avoid == DF_NET_NONE)
		df_warn("the communicator asks for network %s (%s), which device %d does not have: "
			"ranks on other nodes cannot be reached; `dfshim net` lists networks",
			name, by, device);
	return avoid;
}

int df_net_address(int device, char *text, size_t bytes)
{
	struct df_net_ep *ep;
	int ret = 0;

	*text = '\0';
	if (!nr_wanted())
		return 0;
	ep = ep_get(device);
	if (!ep)
		return -ENOMEM;
	/* Without sockets, search now: the caller has to know if there is no medium at all. */
	if (!is_wanted(&df_net_tcp))
		find_media(ep);
	df_mutex_lock(&eps_lock);
	if (df_once_is_done(&ep->found) && !ep->media)
		ret = -ENODEV;
	else if (!ep->address[0])
		ret = df_session_listen(ep);
	df_mutex_unlock(&eps_lock);
	if (!ret && strlen(ep->address) < bytes)
		strcpy(text, ep->address);
	return ret;
}

static void *endpoint(void *arg)
{
	struct df_net_ep *ep = arg;

	df_log_set_device(ep->device);
	find_media(ep);
	df_net_run(ep);
	return NULL;
}

static int ep_start(struct df_net_ep *ep)
{
	char why[DF_NO_FILE_TEXT];
	int ret = 0;

	df_mutex_lock(&eps_lock);
	if (!ep->started)
		ret = df_session_start(ep);
	if (ret == -EMFILE)
		df_addr_no_file(why, sizeof(why));
	else
		snprintf(why, sizeof(why), "%s", strerror(-ret));
	if (ret)
		df_warn_once("the network transport cannot start: %s", why);
	if (!ep->started && !ret) {
		ret = df_thread_start("dfshim-net", 0, endpoint, ep);
		ep->started = !ret;
	}
	df_mutex_unlock(&eps_lock);
	return ret ? -ENOMEM : 0;
}

/* ---- the transport --------------------------------------------------------------------------- */

static int net_reachable(const struct df_member *self, const struct df_member *peer)
{
	return self->node != peer->node && self->net[0] && peer->net[0] &&
	       (self->avoid | peer->avoid) != DF_NET_NONE;
}

static int net_peer_get(const struct df_member *self, const struct df_member *m,
			struct df_peer **out)
{
	struct df_net_ep *ep = ep_get(self->device);
	struct df_net_link *l;
	int ret, gone = df_ctl_is_dead(m->proc);

	ret = ep ? df_arena_start() : -ENOMEM;
	if (!ret)
		ret = ep_start(ep);
	if (ret)
		return ret;
	l = df_net_link_of(ep, m->proc, m->device, self->avoid | m->avoid);
	if (!l)
		return -ENOMEM;
	df_mutex_lock(&ep->lock);
	if (!l->wanted) {
		l->member = *m;
		/* RELEASE pairs with the ACQUIRE in df_net_wanted(): the address is complete. */
		__atomic_store_n(&l->wanted, 1, __ATOMIC_RELEASE);
	}
	df_mutex_unlock(&ep->lock);
	if (gone)
		df_net_mark_dead(l);
	df_bell_ring(&ep->bell);
	*out = (struct df_peer *)(void *)l;
	return 0;
}

/* Links stay, because another communicator may need them. */
static void net_peer_put(struct df_peer *peer)
{
	(void)peer;
}

static int conn_new(struct df_net_link *l, uint64_t key, uint32_t nr_slots, uint32_t slot_bytes,
		    uint32_t says, uint64_t base, struct df_net_conn **out)
{
	struct df_net_conn *c = calloc(1, sizeof(*c));
	uint64_t bytes = (uint64_t)nr_slots * slot_bytes;
	struct df_conn_hdr *h;
	int ret;

	if (!c)
		return -ENOMEM;
	c->link = l;
	c->says = says;
	ret = df_net_gpu_slots(c, bytes);
	if (!ret)
		ret = df_arena_alloc(DF_CONN_SLOTS + (c->gpu ? 0 : bytes), &c->block);
	if (ret) {
		if (c->gpu)
			df_blocks->far_free(&c->far);
		free(c);
		return ret;
	}
	h = c->block.ptr;
	memset(h, 0, sizeof(*h));
	h->key = key;
	h->nr_slots = nr_slots;
	h->slot_bytes = slot_bytes;
	h->tail = h->head = base;
	c->conn = (struct df_conn){.hdr = h,
				   .peer = (struct df_peer *)(void *)l,
				   .tl = &df_tl_net_ops,
				   .key = key,
				   .bytes = DF_CONN_SLOTS + (uint64_t)nr_slots * slot_bytes};
	c->nr_slots = nr_slots;
	c->slot_bytes = slot_bytes;
	c->base = c->next = c->consumed = c->received = c->told_head = c->told_received = base;
	*out = c;
	return 0;
}

static uint64_t owned(const struct df_net_conn *c)
{
	return c->block.bytes + c->far.bytes;
}

static void conn_free(struct df_net_conn *c)
{
	if (c->gpu)
		df_blocks->far_free(&c->far);
	df_arena_free(&c->block);
	free(c);
}

static int net_create(struct df_peer *peer, uint64_t key, uint32_t nr_slots, uint32_t slot_bytes,
		      int how, uint64_t base, struct df_conn **out)
{
	struct df_net_link *l = link_of_peer(peer);
	struct df_net_conn *c, *other;
	uint32_t says = how & DF_CONN_SENDS ? DF_NET_SENDS : 0;
	int ret;

	if (how & DF_CONN_ZERO)
		says |= DF_NET_AT_HOST;
	if (!nr_slots || df_net_too_large(nr_slots, slot_bytes))
		return -EINVAL;
	if (df_net_dead(l))
		return -ECONNRESET;
	ret = conn_new(l, key, nr_slots, slot_bytes, says, base, &c);
	if (ret)
		return ret;
	if (how & DF_CONN_ZERO)
		memset((char *)c->conn.hdr + DF_CONN_SLOTS, 0, (size_t)nr_slots * slot_bytes);
	c->conn.owner = 1;
	df_mutex_lock(&l->ep->lock);
	HASH_FIND(hh, l->owned, &key, sizeof(key), other);
	if (!other) {
		HASH_ADD(hh, l->owned, conn.key, sizeof(key), c);
		df_list_add_tail(&l->ep->inbox, &c->node);
	}
	df_mutex_unlock(&l->ep->lock);
	if (other) {
		conn_free(c);
		return -EEXIST;
	}
	df_arena_count(owned(c));
	df_bell_ring(&l->ep->bell);
	*out = &c->conn;
	return 0;
}

static int net_find(struct df_peer *peer, uint64_t key, struct df_conn **out)
{
	struct df_net_link *l = link_of_peer(peer);
	struct df_net_offer *o, seen;
	struct df_net_conn *c;
	int ret;

	if (df_net_dead(l))
		return -ECONNRESET;
	df_mutex_lock(&l->ep->lock);
	HASH_FIND(hh, l->offers, &key, sizeof(key), o);
	if (o)
		seen = *o;
	df_mutex_unlock(&l->ep->lock);
	if (!o)
		return -EAGAIN;
	/* Not under the lock: the arena may have to grow. */
	ret = conn_new(l, key, seen.nr_slots, seen.slot_bytes,
		       (seen.says ^ DF_NET_SENDS) & (DF_NET_AT_HOST | DF_NET_SENDS), seen.base, &c);
	if (ret)
		return ret == -ENOMEM ? -EAGAIN : ret;
	c->peer_gpu = (seen.says & DF_NET_AT_GPU) != 0;
	c->peer_id = seen.id;
	c->peer_at = seen.at;
	memcpy(c->peer_rkey, seen.rkey, sizeof(c->peer_rkey));
	df_mutex_lock(&l->ep->lock);
	HASH_FIND(hh, l->offers, &key, sizeof(key), o);
	if (o && o->id == seen.id) {
		HASH_DEL(l->offers, o);
		df_list_add_tail(&l->ep->inbox, &c->node);
	} else {
		o = NULL;
	}
	df_mutex_unlock(&l->ep->lock);
	if (!o) {
		conn_free(c);
		return -EAGAIN;
	}
	free(o);
	df_bell_ring(&l->ep->bell);
	*out = &c->conn;
	return 0;
}

static int net_use(struct df_conn *conn)
{
	struct df_net_conn *c = (struct df_net_conn *)conn;

	if (df_net_dead(c->link))
		return -ECONNRESET;
	if (__atomic_load_n(&c->closed, __ATOMIC_RELAXED))
		return -EAGAIN;
	conn->used = 1;
	return 0;
}

static void net_unuse(struct df_conn *conn)
{
	conn->used = 0;
}

/* The endpoint's thread does the rest. */
static void give_up(struct df_net_conn *c)
{
	/* read before the thread may free the connector */
	struct df_bell *bell = &c->link->ep->bell;

	/*
	 * RELEASE pairs with the ACQUIRE in df_net_look(): our last use of the connector is before
	 * the flag.
	 */
	__atomic_store_n(&c->gone, 1, __ATOMIC_RELEASE);
	df_bell_ring(bell);
}

static int net_close(struct df_conn *conn)
{
	struct df_net_conn *c = (struct df_net_conn *)conn;

	df_mutex_lock(&c->link->ep->lock);
	HASH_DEL(c->link->owned, c);
	df_mutex_unlock(&c->link->ep->lock);
	__atomic_sub_fetch(&df_arena_bytes, owned(c), __ATOMIC_RELAXED);
	give_up(c);
	return 0;
}

static int net_recycle(struct df_conn *conn, uint64_t *base)
{
	(void)conn, (void)base;
	return -EOPNOTSUPP;
}

static void net_forget(struct df_conn *conn)
{
	give_up((struct df_net_conn *)conn);
}

/* Whether sockets are the only medium that this endpoint will ever have. */
static int sockets_alone(const struct df_net_ep *ep)
{
	return df_once_is_done(&ep->found) && ep->media == DF_NET_BIT_TCP;
}

static void net_end(const struct df_conn *conn, struct df_kconn *out)
{
	const struct df_net_conn *c = (const struct df_net_conn *)conn;

	out->nr_slots = c->nr_slots;
	out->slot_bytes = c->slot_bytes;
	out->tail = &conn->hdr->tail;
	out->head = &conn->hdr->head;
	out->slots =
		c->gpu ? (uint8_t *)(uintptr_t)c->far.addr : (uint8_t *)conn->hdr + DF_CONN_SLOTS;
	/* Only sockets can send memory that is not registered. */
	out->refs = sockets_alone(c->link->ep) ? conn->hdr->refs : NULL;
	out->bell = &c->link->ep->bell;
	out->fresh = NULL;
}

const struct df_tl_ops df_tl_net_ops = {
	.name = "net",
	.caps = DF_TL_NETWORK | DF_TL_BELL,
	.reachable = net_reachable,
	.peer_get = net_peer_get,
	.peer_put = net_peer_put,
	.create = net_create,
	.find = net_find,
	.use = net_use,
	.unuse = net_unuse,
	.close = net_close,
	.recycle = net_recycle,
	.forget = net_forget,
	.end = net_end,
};

void df_net_counts(struct df_net_counts *out)
{
	uint64_t *sum = (uint64_t *)out;

	memset(out, 0, sizeof(*out));
	df_mutex_lock(&eps_lock);
	for (int i = 0; i < nr_eps; i++)
		for (size_t k = 0; eps[i] && k < sizeof(*out) / sizeof(*sum); k++)
			sum[k] += __atomic_load_n((uint64_t *)&eps[i]->n + k, __ATOMIC_RELAXED);
	df_mutex_unlock(&eps_lock);
}

/* Returns the first endpoint from *i on that has a thread, or NULL. */
static struct df_net_ep *next_started(int *i)
{
	struct df_net_ep *ep;

	df_mutex_lock(&eps_lock);
	while (*i < nr_eps && !(eps[*i] && eps[*i]->started))
		++*i;
	ep = *i < nr_eps ? eps[(*i)++] : NULL;
	df_mutex_unlock(&eps_lock);
	return ep;
}

void df_net_look_held(uint64_t now, uint64_t pause)
{
	struct df_net_ep *ep;
	int i = 0;

	while ((ep = next_started(&i)))
		df_net_look_inside(ep, now, pause);
}

void df_tl_flush(uint64_t bound_ns)
{
	uint64_t end = df_now_ns() + bound_ns;
	struct df_net_ep *ep;
	uint32_t want;
	int i = 0;

	while ((ep = next_started(&i))) {
		want = __atomic_add_fetch(&ep->flush, 1, __ATOMIC_RELAXED);
		do {
			df_bell_ring(&ep->bell);
			df_sleep_ns(DF_NS_PER_MS / 4);
			/*
			 * ACQUIRE pairs with the RELEASE in flush_pass(): by then all slices are
			 * sent, and all that arrived are acknowledged.
			 */
		} while (__atomic_load_n(&ep->flushed, __ATOMIC_ACQUIRE) != want &&
			 df_now_ns() < end);
	}
}

void df_tl_end(void)
{
	uint64_t end = df_now_ns() + DF_NS_PER_S;
	struct df_net_ep *ep;
	int i = 0;

	if (!df_ncclnet_end())
		return;
	/* Wait, with a bound, for threads inside a function of the plugin. */
	while ((ep = next_started(&i))) {
		while (!df_trylock_try(&ep->help.passing)) {
			if (df_now_ns() > end)
				return;
			df_sleep_ns(DF_NS_PER_MS / 4);
		}
		df_trylock_release(&ep->help.passing);
	}
}
