/*
 * Sessions (../net.h), and sockets as a medium. The session of a link is a set of TCP streams, made
 * by the side with the lower name (process, device). The two sides use it to find each other, to
 * agree on a medium, and to see whether the other process lives. With medium "tcp", small frames go
 * over the first stream and slices over the others in turn. Numbered frames use the first stream
 * only, which keeps them in order. A frame is a header and then its payload; a payload longer than
 * what arrived with the header is read into its slot without a copy. Other media begin when all
 * streams are open.
 *
 * The streams and the medium of a session begin and end together. When one breaks, all are closed,
 * and the connecting side begins the next session. A hello with a higher session number than ours
 * shows that the other side has ended our session, even if we saw no error. The listening side
 * cannot begin a session, so it opens a probe connection: as long as the other side's kernel
 * accepts it, that process lives, even if it is stopped.
 *
 * The kernel detects a path that drops everything: by keepalive on an idle stream, else by
 * TCP_USER_TIMEOUT.
 *
 * A connection begins with a greeting in which both ends prove that they belong to the job
 * (greeting.c). There is no time limit, because a process may be slow or stopped. An unproved
 * connection is kept until its place is needed: at 256 such connections, or without a free
 * descriptor, the oldest is dropped. If it belonged to the job, it connects again.
 *
 * The thread that makes a pass over the endpoint calls all functions except listen() and sleep();
 * no locks.
 */
#define _GNU_SOURCE
#include "runtime/transport/net/socket/socket.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/base/net/ifaces.h"

int df_session_connects(const struct df_net_link *l)
{
	return l->ep->proc != l->proc ? l->ep->proc < l->proc : l->ep->device < l->device;
}

void df_session_fail(struct df_net_link *l, int why)
{
	struct session *p = df_session(l);
	uint32_t i;

	l->why = why;
	df_net_down(l, why);
	if (l->ops)
		l->ops->end(l);
	l->ops = NULL;
	l->look_at = 0;
	for (i = 0; i < p->nr; i++) {
		if (p->v[i])
			df_tcp_close(l->ep, p->v[i]);
		p->v[i] = NULL;
	}
	p->nr = p->nr_open = 0;
	if (p->pause)
		p->try_at = df_now_ns() + p->pause;
}

void df_tcp_fail(struct df_net_ep *ep, struct stream *s, int why)
{
	struct session *p = s->link ? df_session(s->link) : NULL;

	if (p && p->knock == s)
		p->knock = NULL;
	else if (p && s->index < p->nr && p->v[s->index] == s) {
		s->link->what[0] = '\0';
		df_session_fail(s->link, why);
		return;
	}
	df_tcp_close(ep, s);
}

int df_session_send(struct df_net_link *l, const struct df_net_frame *f, const void *payload,
		    struct df_net_conn *from)
{
	struct session *p = df_session(l);
	struct stream *s = p->v[0];

	if (f->bytes >= BULK_BYTES && p->nr > 1)
		s = p->v[1 + p->turn++ % (p->nr - 1)];
	if (s->tail - s->head == OUT_MAX)
		return -EAGAIN;
	s->out[s->tail++ % OUT_MAX] = (struct out){*f, payload, from};
	return 0;
}

int df_session_push(struct df_net_link *l)
{
	struct session *p = df_session(l);
	int moved = 0;
	uint32_t i;

	for (i = 0; p && i < p->nr; i++)
		if (p->v[i] && p->v[i]->state == OPEN && p->v[i]->head != p->v[i]->tail &&
		    !(p->v[i]->events & EPOLLOUT))
			moved |= df_tcp_flush(l, p->v[i]);
	return moved;
}

/* ---- the medium "tcp" ------------------------------------------------------------------------ */

static int tcp_start(struct df_net_ep *ep)
{
	(void)ep;
	return 0;
}

static int tcp_begin(struct df_net_link *l)
{
	df_net_up(l);
	return 0;
}

static void tcp_end(struct df_net_link *l)
{
	(void)l;
}

static int tcp_setup(struct df_net_link *l, const struct df_net_frame *f)
{
	(void)l, (void)f;
	return -EPROTO;
}

static int tcp_send(struct df_net_link *l, const struct df_net_frame *f, const void *payload,
		    struct df_net_conn *from)
{
	struct df_net_frame with = *f;

	with.ack = l->heard;
	if (df_session_send(l, &with, payload, from))
		return -EAGAIN;
	l->acked = l->heard;
	return 0;
}

static int tcp_poll(struct df_net_link *l, uint64_t now, int arm)
{
	(void)l, (void)now, (void)arm;
	return 0;
}

const struct df_net_ops df_net_tcp = {
	.name = "tcp",
	.helped = 1,
	.gathers = 1,
	.start = tcp_start,
	.begin = tcp_begin,
	.end = tcp_end,
	.setup = tcp_setup,
	.send = tcp_send,
	.push = df_session_push,
	.poll = tcp_poll,
};

/* ---- accepting ------------------------------------------------------------------------------- */

/* Unproved connections of all endpoints of this process. Relaxed atomic. */
static uint32_t nr_unproved;

void df_strangers_add(struct df_net_ep *ep, int by)
{
	df_sessions(ep)->nr_strangers += (uint32_t)by;
	__atomic_add_fetch(&nr_unproved, (uint32_t)by, __ATOMIC_RELAXED);
}

static int is_full(const struct sessions *m)
{
	return m->nr_strangers >= STRANGERS ||
	       __atomic_load_n(&nr_unproved, __ATOMIC_RELAXED) >= df_addr_unproved_max();
}

/* Drops the oldest unproved connection. Returns 1 if there was one. */
static int drop_oldest(struct df_net_ep *ep)
{
	struct sessions *m = df_sessions(ep);
	uint32_t nr = m->nr_strangers;
	struct stream *s;

	if (!nr)
		return 0;
	/*
	 * Its next message may have arrived by now. A message moves it to the end of the list, so
	 * this loop ends.
	 */
	do {
		s = df_list_first(&m->strangers, struct stream, node);
		df_greeting_look(ep, s);
		if (m->nr_strangers < nr)
			return 1;
	} while (s != df_list_first(&m->strangers, struct stream, node));
	df_warn_once("%u connections to %s, where dfshim takes data, have not said who they are, "
		     "one from %s: the oldest are dropped when others arrive",
		     m->nr_strangers, ep->address, s->who);
	df_tcp_close(ep, s);
	return 1;
}

/*
 * The listener is edge-triggered: without a free descriptor, a level-triggered one would keep this
 * thread busy.
 */
static void accept_all(struct df_net_ep *ep, struct df_net_source *source, uint32_t events)
{
	struct sessions *m = df_sessions(ep);
	char why[DF_NO_FILE_TEXT];
	union df_sockaddr from;
	struct stream *s;
	socklen_t len;
	int fd, i;

	(void)source, (void)events;
	for (i = 0; i < TURNS; i++) {
		memset(&from, 0, sizeof(from));
		len = sizeof(from.storage);
		fd = accept4(m->listen_fd, &from.sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			m->accept_at = 0;
			return;
		}
		if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
			if (drop_oldest(ep))
				continue;
			df_addr_no_file(why, sizeof(why));
			df_warn_once("this process has %s: connections of other nodes wait until "
				     "it has one",
				     why);
			m->accept_at = df_now_ns() + AGAIN_MAX;
			return;
		}
		/* Any other error concerns only this connection; try the next. */
		if (fd < 0)
			continue;
		if (is_full(m))
			drop_oldest(ep);
		s = df_tcp_new(ep, NULL, fd, STRANGER);
		if (!s) {
			close(fd);
			continue;
		}
		df_addr_format(&from, s->who, sizeof(s->who));
		df_list_add_tail(&m->strangers, &s->node);
		df_strangers_add(ep, 1);
	}
	m->accept_at = df_now_ns() + AGAIN_MIN;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* On failure stores -errno in *why. */
static struct stream *dial(struct df_net_link *l, enum state state, int *why)
{
	struct sessions *m = df_sessions(l->ep);
	union df_sockaddr to, from = m->local;
	struct stream *s;
	int fd;

	*why = -EADDRNOTAVAIL;
	if (df_addr_parse(df_net_member(l)->net, &to, 1))
		return NULL;
	fd = socket(to.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		*why = -errno;
		return NULL;
	}
	df_tcp_congestion(m, fd);
	/* Otherwise routing could choose another interface. */
	if (from.sa.sa_family == to.sa.sa_family && bind(fd, &from.sa, df_addr_len(&from)))
		goto err;
	if (connect(fd, &to.sa, df_addr_len(&to)) && errno != EINPROGRESS)
		goto err;
	s = df_tcp_new(l->ep, l, fd, state);
	if (s) {
		strcpy(s->who, df_net_member(l)->net);
		return s;
	}
err:
	*why = -errno;
	close(fd);
	return NULL;
}

static uint32_t nr_streams(void)
{
	const struct df_env *env = df_env();
	long threads = env->nccl_socket_nthreads, each = env->nccl_nsocks_perthread;

	/* Two by default: one for large slices, and the first for all other frames. */
	if (threads == DF_AUTO && each == DF_AUTO)
		return 2;
	threads = threads == DF_AUTO ? 1 : threads;
	each = each == DF_AUTO ? 1 : each;
	return (uint32_t)DF_MIN(DF_MAX(threads * each, 1), STREAMS_MAX);
}

static void attempt(struct df_net_link *l, uint64_t now)
{
	struct session *p = df_session(l);
	uint32_t i, nr = nr_streams();
	int why;

	p->pause = DF_MIN(DF_MAX(2 * p->pause, AGAIN_MIN), AGAIN_MAX);
	p->try_at = now + p->pause;
	l->attempts++;
	if (!df_session_connects(l)) {
		if (!p->knock)
			p->knock = dial(l, KNOCKING, &why);
		return;
	}
	/* One attempt at a time; the kernel's time-out ends it. */
	if (p->nr)
		return;
	p->session++;
	p->nr = nr;
	p->nr_open = 0;
	for (i = 0; i < nr; i++) {
		p->v[i] = dial(l, CONNECTING, &why);
		if (!p->v[i]) {
			df_session_fail(l, why);
			return;
		}
		p->v[i]->index = i;
	}
}

struct session *df_session_new(struct df_net_link *l)
{
	if (!l->session)
		l->session = calloc(1, sizeof(struct session));
	return l->session;
}

void df_session_open(struct df_net_link *l)
{
	struct session *p = df_session_new(l);

	if (!p || l->up)
		return;
	p->pause = AGAIN_MIN;
	attempt(l, df_now_ns());
}

void df_session_close(struct df_net_link *l)
{
	struct session *p = df_session(l);

	if (!p)
		return;
	df_session_fail(l, -ECONNRESET);
	if (p->knock)
		df_tcp_close(l->ep, p->knock);
	p->knock = NULL;
	p->try_at = p->pause = 0;
}

/* ---- the endpoint ---------------------------------------------------------------------------- */

static void session_port(const struct df_net_ep *ep, char *text, size_t bytes)
{
	const char *name = df_sessions(ep)->iface;

	snprintf(text, bytes, "%s, %s", name, df_ifaces_state(name));
}

int df_session_listen(struct df_net_ep *ep)
{
	struct sessions *m = calloc(1, sizeof(*m));
	struct df_iface iface;
	union df_sockaddr at;
	int nr;

	if (!m)
		return -ENOMEM;
	df_list_init(&m->strangers);
	df_list_init(&m->shut);
	m->listener.ready = accept_all;
	m->epoll_fd = m->event_fd = -1;
	nr = df_ifaces_chosen(&iface, 1);
	if (nr < 1) {
		free(m);
		return nr ? nr : -EADDRNOTAVAIL;
	}
	at = m->local = iface.addr;
	strcpy(m->iface, iface.name);
	m->listen_fd = df_addr_listen(&at, 4096);
	if (m->listen_fd < 0) {
		int ret = m->listen_fd;

		free(m);
		return ret;
	}
	df_tcp_congestion(m, m->listen_fd);
	ep->sessions = m;
	ep->port = session_port;
	df_addr_format(&at, ep->address, sizeof(ep->address));
	return 0;
}

int df_session_start(struct df_net_ep *ep)
{
	struct sessions *m = df_sessions(ep);
	struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.ptr = &m->listener};
	int epoll_fd, event_fd, ret;

	if (m->epoll_fd >= 0)
		return 0;
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (epoll_fd < 0 || event_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, m->listen_fd, &e))
		goto err_close;
	m->epoll_fd = epoll_fd;
	m->event_fd = event_fd;
	ep->bell.fd = event_fd;
	return 0;

err_close:
	ret = -errno;
	if (epoll_fd >= 0)
		close(epoll_fd);
	if (event_fd >= 0)
		close(event_fd);
	return ret;
}

int df_session_watch(struct df_net_ep *ep, int fd, struct df_net_source *s)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};

	return epoll_ctl(df_sessions(ep)->epoll_fd, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

void df_tcp_ready(struct df_net_ep *ep, struct df_net_source *source, uint32_t events)
{
	struct stream *s = df_container_of(source, struct stream, source);

	switch (s->state) {
	case KNOCKING:
	case CONNECTING:
		df_greeting_connected(ep, s);
		break;
	case STRANGER:
	case CHALLENGED:
	case GREETING:
	case PROVED:
		df_greeting_look(ep, s);
		break;
	case OPEN:
		if (events & EPOLLOUT && s->head != s->tail)
			df_tcp_flush(s->link, s);
		if (s->state == OPEN && events & ~(uint32_t)EPOLLOUT) {
			struct sessions *m = df_sessions(ep);

			m->in_a_row = m->last == s ? m->in_a_row + 1 : 0;
			m->last = s;
			df_tcp_receive(s->link, s);
		}
		break;
	case SHUT:
		break;
	}
}

/*
 * Whether the other side's kernel has accepted our connection, so that its process lives and will
 * answer.
 */
static int waits_there(const struct session *p)
{
	uint32_t i;

	if (p->knock && p->knock->state != KNOCKING)
		return 1;
	for (i = 0; i < p->nr; i++)
		if (!p->v[i] || p->v[i]->state == CONNECTING)
			return 0;
	return p->nr > 0;
}

static void timers(struct df_net_ep *ep, uint64_t now)
{
	const struct sessions *m = df_sessions(ep);
	struct df_net_link *l;

	if (m->accept_at && m->accept_at <= now)
		accept_all(ep, NULL, 0);
	df_greeting_report(now);
	for (l = df_net_links(ep); l; l = l->next) {
		struct session *p = df_session(l);

		if (!p || l->up || l->opened != 1 || l->bye || (p->nr && p->nr_open == p->nr))
			continue;
		if (waits_there(p))
			df_net_alive(l, now);
		/* The session broke, or was up before we had the peer's address. */
		if (!p->pause)
			p->pause = AGAIN_MIN;
		if (p->try_at <= now)
			attempt(l, now);
	}
}

uint64_t df_session_timer(struct df_net_ep *ep)
{
	uint64_t until = DF_MIN(df_sessions(ep)->accept_at ?: UINT64_MAX, df_greeting_report_at());
	const struct session *p;
	struct df_net_link *l;

	for (l = df_net_links(ep); l; l = l->next) {
		p = df_session(l);
		if (p && !l->up && l->opened == 1 && !l->bye && (!p->nr || p->nr_open < p->nr))
			until = DF_MIN(until, p->try_at);
	}
	return until;
}

void df_session_sleep(struct df_net_ep *ep, int64_t timeout_ns)
{
	const struct sessions *m = df_sessions(ep);
	struct pollfd p[2] = {{.fd = m->epoll_fd, .events = POLLIN},
			      {.fd = m->event_fd, .events = POLLIN}};
	struct timespec ts = {(time_t)(timeout_ns / (int64_t)DF_NS_PER_S),
			      (long)(timeout_ns % (int64_t)DF_NS_PER_S)};
	uint64_t count;

	/*
	 * Read only the bell: descriptors are for the owner of the endpoint, because a stream may
	 * be closed by then. No other thread reads the bell, or this one would sleep through it.
	 */
	if (ppoll(p, 2, timeout_ns < 0 ? NULL : &ts, NULL) > 0 && p[1].revents)
		(void)!read(m->event_fd, &count, sizeof(count));
}

int df_session_unsent(const struct df_net_link *l)
{
	const struct session *p = df_session(l);
	uint32_t i;

	for (i = 0; p && i < p->nr; i++)
		if (p->v[i] && p->v[i]->head != p->v[i]->tail)
			return 1;
	return 0;
}

/*
 * If one stream had all recent events, reads it without polling the others, which saves a system
 * call per arrival for a thread that waits for one peer. Returns 1 if data arrived, 0 if not, or -1
 * if all streams have to be polled.
 */
static int guess(struct sessions *m)
{
	if (!m->last || m->in_a_row < GUESS_AFTER || ++m->guesses % GUESSES == 0)
		return -1;
	return df_tcp_receive(m->last->link, m->last);
}

int df_session_poll(struct df_net_ep *ep)
{
	struct sessions *m = df_sessions(ep);
	struct epoll_event e[64];
	struct stream *s;
	int i, n = guess(m);

	if (n >= 0)
		return n;
	n = epoll_wait(m->epoll_fd, e, DF_ARRAY_LEN(e), 0);
	for (i = 0; i < n; i++) {
		struct df_net_source *source = e[i].data.ptr;

		source->ready(ep, source, e[i].events);
	}
	timers(ep, ep->passed);
	while ((s = df_list_first(&m->shut, struct stream, node))) {
		df_list_del(&s->node);
		free(s);
	}
	return n > 0;
}

void df_session_forked(struct df_net_ep *ep)
{
	struct sessions *m = df_sessions(ep);
	struct df_net_link *l;
	uint32_t i;

	if (!m)
		return;
	for (l = df_net_links(ep); l; l = l->next)
		for (i = 0; df_session(l) && i < df_session(l)->nr; i++)
			if (df_session(l)->v[i])
				close(df_session(l)->v[i]->fd);
	close(m->listen_fd);
	if (m->epoll_fd < 0)
		return;
	close(m->event_fd);
	close(m->epoll_fd);
}
