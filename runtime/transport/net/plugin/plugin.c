/*
 * NCCL's network plugins as a medium of the network (../net.h); docs/network.md has the reasons. A
 * link has two connections of the plugin, one in each direction. Frames and payloads form one
 * sequence of bytes, cut into messages of at most 64 KiB, which both sides copy.
 *
 * A plugin delivers a message to the receive that was posted first. So receives belong to no
 * connector: IN_MAX buffers are always posted, and credits guarantee room for each arriving slice.
 *
 * The session's first stream carries the address of each side's listener (HANDLE). Each side
 * connects, accepts, and sends a frame; the link is up when the other side's frame has arrived.
 *
 * A plugin has no wake-ups, so pending requests are tested, less and less often if nothing moves.
 * An idle side sends SLEEP, with the number of messages received; a sender wakes it with RING.
 *
 * Only the endpoint's thread runs this code, so there are no locks.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include "runtime/backend.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/transport/net/net.h"
#include "runtime/transport/net/plugin/ncclnet.h"

#define MESSAGE	    (64u << 10) /* bytes of a buffer */
#define OUT_MAX	    8
#define IN_MAX	    16
#define BUFFERS	    ((size_t)(OUT_MAX + IN_MAX) * MESSAGE)
#define QUEUE	    64
#define SETUP_NS    (10 * DF_NS_PER_S)
#define SETUP_FAILS 2
#define SETS	    16 /* sets of buffers: a set is reused only after as many sessions */
#define USEFUL	    16 /* messages received until a session counts as a success */
#define SPIN_NS	    (50 * DF_NS_PER_US) /* after progress, test without a pause for this time */
#define PAUSE_MAX   DF_NS_PER_MS
#define AWAKE_NS    (2 * DF_NS_PER_MS) /* without a message for this time, send SLEEP */
/* A plugin may count the requests of both directions together. */
_Static_assert(OUT_MAX + IN_MAX < DF_NCCLNET_REQUESTS, "as many as a plugin accepts");

enum word { HANDLE = 1, SLEEP, RING };

#define PART	 32 /* bytes of a handle in a frame */
#define PARTS	 (DF_NCCLNET_HANDLE / PART)
#define ALL_HERE ((1u << PARTS) - 1)

/* The header of a message. */
struct head {
	uint32_t bytes, number;
	/* key_of(): some plugins misdeliver messages, and other processes can connect. */
	struct df_key key;
};

struct queued {
	struct df_net_frame f;
	const void *payload;
	struct df_net_conn *from;
};

/* Address of the other side's listener, in which the plugin keeps its state of a connection. */
struct handle {
	struct handle *next;
	uint8_t bytes[DF_NCCLNET_HANDLE];
};

/* The state of a link. */
struct path {
	uint8_t *sets[SETS]; /* sets of buffers; NULL: not allocated */
	uint64_t sessions;
	unsigned fails;	  /* consecutive failed sessions */
	uint64_t failing; /* time of the first of them */
	struct handle *given_up;
	/* The state of the present session; plugin_end() clears it. */
	int begun;
	uint8_t *buffers;	       /* OUT_MAX buffers, then IN_MAX */
	struct df_key key_in, key_out; /* keys of arriving and of sent messages */
	void *listener, *to, *from;    /* listener and connections */
	void *to_mr, *from_mr;
	int connecting; /* whether connect() has been called */
	struct handle *handle;
	uint32_t parts;	  /* bits of the parts of the handle that have arrived */
	uint32_t limit;	  /* bytes of a message, at most */
	int greeted;	  /* whether our first message is filled */
	int heard;	  /* whether the other side's first message has arrived */
	char failed[192]; /* an error that was found where the session could not be ended, or "" */
	uint64_t deadline;
	/* Messages, by number: */
	uint64_t filled, posted, done; /* sent */
	uint64_t asked, taken;	       /* receives posted, messages handled */
	void *out[OUT_MAX], *in[IN_MAX];
	uint64_t moved, moved_out; /* times of the last progress */
	int sleeps,
		peer_sleeps; /* SLEEP was sent, and RING has not arrived; the same of the peer */
	int ring_due;	     /* whether RING has to be sent */
	/* A message that was sent and has not arrived, and since when; 0: none. */
	uint64_t missing, missing_since;
	/* Frames that are not in a message yet; `off` bytes of the first one are. */
	uint32_t head, tail;
	size_t off;
	struct queued queue[QUEUE];
	struct df_net_reader reader;
};

static struct path *path_of(const struct df_net_link *l)
{
	return l->path;
}

static const struct df_ncclnet_device *device_of(const struct df_net_link *l)
{
	return l->ep->medium[__builtin_ctz(DF_NET_BIT_PLUGIN)];
}

static const struct df_ncclnet *plugin_of(const struct df_net_link *l)
{
	return device_of(l)->net;
}

static struct head *out_buffer(const struct path *p, uint64_t number)
{
	return (struct head *)(void *)(p->buffers + number % OUT_MAX * MESSAGE);
}

static uint8_t *in_buffers(const struct path *p)
{
	return p->buffers + OUT_MAX * MESSAGE;
}

static struct head *in_buffer(const struct path *p, uint64_t number)
{
	return (struct head *)(void *)(in_buffers(p) + number % IN_MAX * MESSAGE);
}

/* Wraps each call of the plugin, so that the watchdog can report one that does not return. */
#define CALL(l, function, call)                                                                    \
	(df_net_enter(&(l)->ep->inside, l, plugin_of(l)->name, function),                          \
	 df_net_left(&(l)->ep->inside, call))

/* ---- faults ---------------------------------------------------------------------------------- */

/* Counts a session without progress; after too many, changes the medium or gives up. */
static void count_failure(struct df_net_link *l)
{
	struct path *p = path_of(l);
	uint32_t others = l->ep->media & ~l->avoid & ~(uint32_t)DF_NET_BIT_PLUGIN;
	uint64_t now = df_now_ns(), bound = (uint64_t)df_env()->net_timeout_ms * DF_NS_PER_MS;

	if (!p->fails++)
		p->failing = now;
	if (!(others && p->fails >= SETUP_FAILS) && now - p->failing <= bound)
		return;
	df_warn("network plugin %s does not connect to device %d of %s: %s; %s (NCCL_NET_PLUGIN "
		"names other plugins, or none)",
		plugin_of(l)->name, l->device, df_net_member(l)->hostname, l->what,
		!others			    ? "no other network may be used"
		: others & DF_NET_BIT_VERBS ? "dfshim uses verbs"
					    : "dfshim uses sockets");
	if (others)
		l->avoid |= DF_NET_BIT_PLUGIN;
	else
		df_net_lost(l);
}

static void fail(struct df_net_link *l, int why, const char *text)
{
	int useful = path_of(l)->taken >= USEFUL;

	snprintf(l->what, sizeof(l->what), "%s", text);
	df_session_fail(l, why);
	if (!useful && !l->bye)
		count_failure(l);
}

/* After an error of the plugin, let poll() end the session: a BYE may still arrive. */
static void broke(struct df_net_link *l, const char *function, int result)
{
	const char *complaint = df_ncclnet_complaint();
	struct path *p = path_of(l);

	snprintf(p->failed, sizeof(p->failed), "%s of the network plugin %s returned %d, %s%s%s",
		 function, plugin_of(l)->name, result, df_ncclnet_result(result),
		 *complaint ? ": " : "", complaint);
	l->look_at = 1;
}

/* Returns the longest time for a message to be sent or to arrive. */
static uint64_t patience(void)
{
	return (uint64_t)df_env()->net_timeout_ms * DF_NS_PER_MS / 3;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Chooses among the devices nearest to the GPU; the endpoints of a process take them in turn. */
static const struct df_ncclnet_device *choose(const struct df_ncclnet *n, int device)
{
	const char *gpu = df_backend->pci ? df_backend->pci(device) : "";
	enum df_pci_path path[DF_NCCLNET_DEVICES], nearest = DF_PCI_UNKNOWN;
	const struct df_ncclnet_device *near[DF_NCCLNET_DEVICES];
	int i, nr = 0;

	for (i = 0; i < n->nr_devices; i++) {
		path[i] = df_pci_to(gpu, n->devices[i].pci);
		nearest = DF_MIN(nearest, path[i]);
	}
	for (i = 0; i < n->nr_devices; i++)
		if (path[i] == nearest)
			near[nr++] = &n->devices[i];
	df_info("device %d can use the network plugin's %s%s%s", device, near[device % nr]->name,
		nearest == DF_PCI_UNKNOWN ? "" : ", path from the GPU ",
		nearest == DF_PCI_UNKNOWN ? "" : df_pci_name(nearest));
	return near[device % nr];
}

static int plugin_start(struct df_net_ep *ep)
{
	const struct df_ncclnet *n = df_ncclnet_get();

	if (!n)
		return -ENODEV;
	ep->medium[__builtin_ctz(DF_NET_BIT_PLUGIN)] = (void *)(uintptr_t)choose(n, ep->device);
	return 0;
}

/* Called once per session. Shared memory, so that a fork does not move its pages. */
static uint8_t *next_buffers(struct path *p)
{
	uint8_t **set = &p->sets[p->sessions % SETS];
	void *at;

	if (!*set) {
		at = mmap(NULL, BUFFERS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		*set = at == MAP_FAILED ? NULL : at;
	}
	return *set;
}

/* Hashes the plugin's name, which must be the same on both sides. */
static uint32_t name_sum(const struct df_net_link *l)
{
	uint32_t sum = 2166136261u;
	const char *c;

	for (c = plugin_of(l)->name; *c; c++)
		sum = (sum ^ ((uint8_t)*c | 0x20u)) * 16777619u;
	return sum;
}

static int send_handle(struct df_net_link *l, const uint8_t *handle)
{
	struct df_net_frame f = {
		.type = DF_NET_SETUP,
		.a = HANDLE,
		.rkey = {name_sum(l), (uint32_t)DF_MIN(device_of(l)->max_bytes, MESSAGE)}};
	int ret;

	for (f.b = 0; f.b < PARTS; f.b++) {
		memcpy(&f.to, handle + f.b * PART, 8);
		memcpy(&f.pos, handle + f.b * PART + 8, 8);
		memcpy(&f.aux, handle + f.b * PART + 16, 8);
		memcpy(&f.at, handle + f.b * PART + 24, 8);
		ret = df_session_send(l, &f, NULL, NULL);
		if (ret)
			return ret;
	}
	return 0;
}

/* Returns the key in all messages of one direction. Both sides derive it from the session's key. */
static struct df_key key_of(const struct df_net_link *l, uint64_t connects)
{
	struct df_key session = df_session_key(l);

	return df_siphash(&session, &connects, sizeof(connects));
}

static int plugin_begin(struct df_net_link *l)
{
	struct path *p = l->path ? l->path : calloc(1, sizeof(*p));
	uint8_t handle[DF_NCCLNET_HANDLE] = {0};
	uint64_t now = df_now_ns();
	int ret;

	l->path = p;
	if (p && !p->buffers)
		p->buffers = next_buffers(p);
	if (!p || !p->buffers) {
		l->avoid |= DF_NET_BIT_PLUGIN;
		return -ENOMEM;
	}
	if (p->begun || df_ncclnet_ended())
		return 0;
	if (!p->handle)
		p->handle = calloc(1, sizeof(*p->handle));
	if (!p->handle)
		return -ENOMEM;
	p->begun = 1;
	p->sessions++;
	p->key_in = key_of(l, !df_session_connects(l));
	p->key_out = key_of(l, !!df_session_connects(l));
	p->moved = now;
	p->deadline = now + DF_MIN(SETUP_NS, (uint64_t)df_env()->net_timeout_ms * DF_NS_PER_MS / 2);
	ret = CALL(l, "listen()",
		   df_ncclnet_listen(plugin_of(l), device_of(l)->dev, handle, &p->listener));
	l->look_at = 1;
	if (!ret && p->listener)
		return send_handle(l, handle);
	/* poll() handles the error, because the caller cannot. */
	broke(l, "listen()", ret);
	return 0;
}

static void plugin_end(struct df_net_link *l)
{
	const struct df_ncclnet *n = plugin_of(l);
	struct path *p = path_of(l);
	struct handle *handle = NULL;

	if (!p || !p->begun || df_ncclnet_ended())
		return;
	/* Ignore their results: requests may be pending, and the connection may have failed. */
	if (p->to && p->to_mr)
		CALL(l, "deregMr()", df_ncclnet_deregister(n, p->to, p->to_mr));
	if (p->from && p->from_mr)
		CALL(l, "deregMr()", df_ncclnet_deregister(n, p->from, p->from_mr));
	if (p->to)
		CALL(l, "closeSend()", df_ncclnet_close_send(n, p->to));
	if (p->from)
		CALL(l, "closeRecv()", df_ncclnet_close_receive(n, p->from));
	if (p->listener)
		CALL(l, "closeListen()", df_ncclnet_close_listen(n, p->listener));
	/* A pending connect() may still use its handle, so never reuse it. */
	if (p->connecting && !p->to) {
		p->handle->next = p->given_up;
		p->given_up = p->handle;
	} else {
		handle = p->handle;
		memset(handle, 0, sizeof(*handle));
	}
	for (; p->head != p->tail; p->head++)
		df_net_sent(p->queue[p->head % QUEUE].from);
	df_net_read_end(l, &p->reader);
	/* Returns the pages to the system; late writes of the plugin still find a mapping. */
	madvise(p->buffers, BUFFERS, MADV_REMOVE);
	memset((char *)p + offsetof(struct path, begun), 0,
	       sizeof(*p) - offsetof(struct path, begun));
	p->handle = handle;
	l->look_at = 0;
}

static int plugin_send(struct df_net_link *l, const struct df_net_frame *f, const void *payload,
		       struct df_net_conn *from)
{
	struct path *p = path_of(l);
	struct queued *q = &p->queue[p->tail % QUEUE];

	if (p->tail - p->head == QUEUE)
		return -EAGAIN;
	*q = (struct queued){*f, payload, from};
	q->f.ack = l->acked = l->heard;
	p->tail++;
	return 0;
}

/* ---- sending messages ------------------------------------------------------------------------ */

/* Fills one message from the queue. */
static void fill(struct df_net_link *l)
{
	struct path *p = path_of(l);
	struct head *m = out_buffer(p, p->filled);
	uint8_t *at = (uint8_t *)(m + 1);
	size_t room = p->limit - sizeof(*m), n, off, all;

	while (p->head != p->tail && room) {
		const struct queued *q = &p->queue[p->head % QUEUE];

		all = sizeof(q->f) + q->f.bytes;
		if (p->off < sizeof(q->f)) {
			n = DF_MIN(sizeof(q->f) - p->off, room);
			memcpy(at, (const uint8_t *)&q->f + p->off, n);
		} else {
			off = p->off - sizeof(q->f);
			n = DF_MIN(q->f.bytes - off, room);
			memcpy(at, (const uint8_t *)q->payload + off, n);
		}
		at += n;
		room -= n;
		p->off += n;
		if (p->off < all)
			continue;
		p->off = 0;
		p->head++;
		df_net_count(&l->ep->n.frames_sent, 1);
		df_net_sent(q->from);
	}
	*m = (struct head){(uint32_t)(at - (uint8_t *)m), (uint32_t)p->filled, p->key_out};
	p->moved = df_now_ns();
	if (p->filled == p->done)
		p->moved_out = p->moved;
	p->filled++;
	/* Ring first: a plugin may accept nothing while the other side does not test. */
	p->ring_due |= p->peer_sleeps;
}

static int ring(struct df_net_link *l)
{
	const struct df_net_frame f = {.type = DF_NET_SETUP, .a = RING};
	struct path *p = path_of(l);

	if (!p->ring_due || df_session_send(l, &f, NULL, NULL))
		return 0;
	p->ring_due = p->peer_sleeps = 0;
	return df_session_push(l);
}

static int plugin_push(struct df_net_link *l)
{
	struct path *p = path_of(l);
	int moved = 0, ret;

	if (!p->to || p->failed[0] || df_ncclnet_ended())
		return 0;
	for (;;) {
		if (p->filled == p->posted && p->filled - p->done < OUT_MAX && p->head != p->tail)
			fill(l);
		if (p->filled == p->posted)
			break;
		ret = CALL(l, "isend()",
			   df_ncclnet_send(plugin_of(l), p->to, out_buffer(p, p->posted),
					   out_buffer(p, p->posted)->bytes, p->to_mr,
					   &p->out[p->posted % OUT_MAX]));
		if (ret)
			broke(l, "isend()", ret);
		if (ret || !p->out[p->posted % OUT_MAX])
			break;
		p->posted++;
		moved = 1;
	}
	/* Pending requests have to be tested. */
	if (moved || p->failed[0] || (p->filled != p->done && !l->look_at))
		l->look_at = 1;
	return moved | ring(l);
}

/* Returns 1 if a message was sent. */
static int test_out(struct df_net_link *l, uint64_t now)
{
	struct path *p = path_of(l);
	int done, bytes, ret, moved = 0;

	while (p->done != p->posted) {
		ret = CALL(l, "test()",
			   df_ncclnet_test(plugin_of(l), p->out[p->done % OUT_MAX], &done, &bytes));
		if (ret) {
			broke(l, "test()", ret);
			break;
		}
		if (!done)
			break;
		p->done++;
		p->moved = p->moved_out = now;
		moved = 1;
	}
	if (p->filled == p->done)
		p->moved_out = 0;
	return moved;
}

/* ---- receiving messages ---------------------------------------------------------------------- */

static void try_up(struct df_net_link *l)
{
	struct path *p = path_of(l);

	if (l->up || !p->heard || !p->greeted)
		return;
	df_info("device %d to device %d of %s: network plugin %s, device %s", l->ep->device,
		l->device, df_net_member(l)->hostname, plugin_of(l)->name, device_of(l)->name);
	df_net_up(l);
}

/* Returns -1 if the session is over. */
static int take(struct df_net_link *l, const struct head *m, int bytes)
{
	struct path *p = path_of(l);
	int ours = bytes >= (int)sizeof(*m) && df_key_equal(&m->key, &p->key_in);
	char text[192];
	int ret;

	if (bytes < (int)sizeof(*m) || bytes > (int)MESSAGE || m->bytes != (uint32_t)bytes ||
	    m->number != (uint32_t)p->taken || !ours) {
		snprintf(text, sizeof(text),
			 "the network plugin %s reports %d bytes as message %u; "
			 "they are message %u%s, of %u bytes",
			 plugin_of(l)->name, bytes, (uint32_t)p->taken, m->number,
			 !ours ? " of another connection" : "", m->bytes);
		df_warn("%s: connecting again", text);
		fail(l, -EPROTO, text);
		return -1;
	}
	p->taken++;
	if (p->taken == USEFUL)
		p->fails = 0;
	ret = df_net_read(l, &p->reader, (const uint8_t *)(m + 1), m->bytes - sizeof(*m));
	if (ret > 0)
		return -1;
	if (!ret && !p->heard && (p->reader.f.type != DF_NET_ACK || p->reader.have))
		ret = -EPROTO;
	if (ret) {
		df_warn("device %d of %s sent data that breaks dfshim's protocol: connecting again",
			l->device, df_net_member(l)->hostname);
		fail(l, -EPROTO, "the received data break dfshim's protocol");
		return -1;
	}
	p->heard = 1;
	try_up(l);
	return 0;
}

/* Posts receives for all free buffers. */
static void post_receives(struct df_net_link *l)
{
	struct path *p = path_of(l);
	int ret;

	for (; p->asked - p->taken < IN_MAX; p->asked++) {
		ret = CALL(l, "irecv()",
			   df_ncclnet_receive(plugin_of(l), p->from, in_buffer(p, p->asked),
					      DF_MIN(device_of(l)->max_bytes, MESSAGE), p->from_mr,
					      &p->in[p->asked % IN_MAX]));
		if (ret) {
			broke(l, "irecv()", ret);
			return;
		}
		if (!p->in[p->asked % IN_MAX])
			return;
	}
}

/* Returns 1 if a message arrived, or -1 if the session is over. */
static int test_in(struct df_net_link *l, uint64_t now)
{
	struct path *p = path_of(l);
	int done, bytes, ret, moved = 0;

	while (p->taken != p->asked) {
		ret = CALL(l, "test()",
			   df_ncclnet_test(plugin_of(l), p->in[p->taken % IN_MAX], &done, &bytes));
		if (ret) {
			broke(l, "test()", ret);
			return moved;
		}
		if (!done)
			break;
		p->moved = now;
		moved = 1;
		if (take(l, in_buffer(p, p->taken), bytes))
			return -1;
	}
	post_receives(l);
	return moved;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* Handles the peer's count of messages. Returns 1 if one is lost and the session is over. */
static int is_lost(struct df_net_link *l, uint64_t got)
{
	struct path *p = path_of(l);
	uint64_t now = df_now_ns();
	char text[160];

	if (got == p->filled || p->filled != p->done) {
		p->missing_since = 0;
		return 0;
	}
	if (!p->missing_since || p->missing != got) {
		p->missing = got;
		p->missing_since = now;
	}
	if (now - p->missing_since <= patience())
		return 0;
	snprintf(text, sizeof(text),
		 "the network plugin %s says that message %llu is sent, but it has not arrived for "
		 "%.0f s",
		 plugin_of(l)->name, (unsigned long long)got,
		 (double)(now - p->missing_since) / 1e9);
	fail(l, -ETIMEDOUT, text);
	return 1;
}

static int plugin_setup(struct df_net_link *l, const struct df_net_frame *f)
{
	struct path *p;
	int ret = plugin_begin(l);
	char text[160];

	p = path_of(l);
	if (ret) {
		df_session_fail(l, ret);
		return 1;
	}
	if (!p->begun)
		return 0;
	l->look_at = 1;
	switch (f->a) {
	case HANDLE:
		if (f->b >= PARTS || f->rkey[1] < sizeof(struct head) + 1 || p->connecting)
			return -EPROTO;
		if (f->rkey[0] != name_sum(l)) {
			snprintf(text, sizeof(text), "it has another plugin than %s",
				 plugin_of(l)->name);
			l->avoid |= DF_NET_BIT_PLUGIN;
			df_warn("no network plugin joins this process with device %d of %s: %s",
				l->device, df_net_member(l)->hostname, text);
			fail(l, -EPROTONOSUPPORT, text);
			return 1;
		}
		memcpy(p->handle->bytes + f->b * PART, &f->to, 8);
		memcpy(p->handle->bytes + f->b * PART + 8, &f->pos, 8);
		memcpy(p->handle->bytes + f->b * PART + 16, &f->aux, 8);
		memcpy(p->handle->bytes + f->b * PART + 24, &f->at, 8);
		p->parts |= 1u << f->b;
		p->limit = (uint32_t)DF_MIN(DF_MIN(device_of(l)->max_bytes, f->rkey[1]), MESSAGE);
		return 0;
	case SLEEP:
		p->peer_sleeps = 1;
		p->ring_due = p->filled != f->pos || p->filled != p->done;
		return is_lost(l, f->pos);
	case RING:
		p->sleeps = 0;
		p->moved = df_now_ns();
		return 0;
	default:
		return -EPROTO;
	}
}

static void connect_and_accept(struct df_net_link *l)
{
	const struct df_net_frame greeting = {.type = DF_NET_ACK};
	const struct df_ncclnet *n = plugin_of(l);
	struct path *p = path_of(l);
	const char *what = "connect()";
	int ret = 0;

	if (!p->to && p->parts == ALL_HERE) {
		p->connecting = 1;
		ret = CALL(l, "connect()",
			   df_ncclnet_connect(n, device_of(l)->dev, p->handle->bytes, &p->to));
		if (!ret && p->to) {
			what = "regMr()";
			ret = CALL(l, "regMr()",
				   df_ncclnet_register(n, p->to, p->buffers, OUT_MAX * MESSAGE,
						       &p->to_mr));
		}
	}
	if (!ret && !p->from) {
		what = "accept()";
		ret = CALL(l, "accept()", df_ncclnet_accept(n, p->listener, &p->from));
		if (!ret && p->from) {
			what = "regMr()";
			ret = CALL(l, "regMr()",
				   df_ncclnet_register(n, p->from, in_buffers(p), IN_MAX * MESSAGE,
						       &p->from_mr));
		}
		if (!ret && p->from) {
			CALL(l, "closeListen()", df_ncclnet_close_listen(n, p->listener));
			p->listener = NULL;
		}
	}
	if (ret) {
		broke(l, what, ret);
		return;
	}
	if (p->to && p->from && !p->greeted) {
		p->greeted = 1;
		/* A message of its own: later frames need a link that is up. */
		plugin_send(l, &greeting, NULL, NULL);
		fill(l);
		try_up(l);
	}
}

/* ---- time ------------------------------------------------------------------------------------ */

static int overdue(struct df_net_link *l, uint64_t now)
{
	struct path *p = path_of(l);
	char text[160];

	if (!l->up && now >= p->deadline) {
		snprintf(text, sizeof(text), "the network plugin %s: %s", plugin_of(l)->name,
			 !p->to	    ? "no connection to the other side"
			 : !p->from ? "no connection from the other side"
				    : "nothing arrives through its connections");
		fail(l, -ETIMEDOUT, text);
		return 1;
	}
	if (l->up && p->moved_out && now > p->moved_out + patience()) {
		snprintf(text, sizeof(text),
			 "the network plugin %s has not sent a message for %.0f s, and reports no "
			 "error",
			 plugin_of(l)->name, (double)(now - p->moved_out) / 1e9);
		fail(l, -ETIMEDOUT, text);
		return 1;
	}
	return 0;
}

/* Plans the next test: at once after progress, then less often, or never while idle. */
static void rest(struct df_net_link *l, uint64_t now)
{
	struct df_net_frame f = {.type = DF_NET_SETUP, .a = SLEEP};
	struct path *p = path_of(l);
	uint64_t age = now - DF_MIN(p->moved, now);

	if (l->up && p->filled == p->done && p->head == p->tail && age > AWAKE_NS && !p->sleeps) {
		f.pos = p->taken;
		p->sleeps = df_session_send(l, &f, NULL, NULL) == 0;
		df_session_push(l);
		if (!p->begun)
			return; /* the stream broke */
	}
	if (p->sleeps && p->filled == p->done && p->head == p->tail && !p->ring_due)
		l->look_at = 0;
	else
		l->look_at = now + (age < SPIN_NS ? 0 : DF_MIN(age / 4, PAUSE_MAX));
}

static int plugin_poll(struct df_net_link *l, uint64_t now, int arm)
{
	struct path *p = path_of(l);
	int moved = 0, ret = 0;

	(void)arm;
	if (!p || !p->begun || df_ncclnet_ended())
		return 0;
	if (p->failed[0]) {
		fail(l, -EIO, p->failed);
		return 1;
	}
	if (!l->up)
		connect_and_accept(l);
	if (p->to && !p->failed[0])
		moved = test_out(l, now);
	moved |= plugin_push(l);
	if (!p->begun)
		return 1;
	if (p->from && !p->failed[0])
		ret = test_in(l, now);
	if (ret < 0 || overdue(l, now))
		return 1;
	if (!p->failed[0])
		rest(l, now);
	return moved | ret;
}

const struct df_net_ops df_net_plugin = {
	.name = "plugin",
	.start = plugin_start,
	.begin = plugin_begin,
	.end = plugin_end,
	.setup = plugin_setup,
	.send = plugin_send,
	.push = plugin_push,
	.poll = plugin_poll,
};
