/* One stream of a session: sending and receiving frames; see socket.c. */
#define _GNU_SOURCE
#include "runtime/transport/net/socket/socket.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"

/* Older headers do not define it; older kernels refuse it. */
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

/* ---- streams --------------------------------------------------------------------------------- */

static void set_congestion(int fd, const char *name)
{
	char allowed[128] = "?";
	FILE *f;

	if (!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)))
		return;
	f = fopen("/proc/sys/net/ipv4/tcp_allowed_congestion_control", "re");
	if (f && fgets(allowed, sizeof(allowed), f))
		allowed[strcspn(allowed, "\n")] = '\0';
	if (f)
		fclose(f);
	df_warn_once(
		"DFSHIM_NET_CONGESTION=%s: this process may not use it here (allowed are: %s): the "
		"system's is used",
		name, allowed);
}

void df_tcp_congestion(struct sessions *m, int fd)
{
	char name[sizeof(m->congestion)] = "";
	socklen_t len = sizeof(name) - 1;

	if (df_env()->net_congestion)
		set_congestion(fd, df_env()->net_congestion);
	else if (!getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) &&
		 !strncmp(name, "bbr", 3) &&
		 !setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4))
		strcpy(m->congestion, name);
}

void df_tcp_opened(const struct sessions *m, struct stream *s)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	s->state = OPEN;
	memset(&info, 0, sizeof(info));
	if (!m->congestion[0] || getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return;
	if (info.tcpi_min_rtt > NEAR_US)
		setsockopt(s->fd, IPPROTO_TCP, TCP_CONGESTION, m->congestion,
			   (socklen_t)strlen(m->congestion));
	else
		df_info("the connection with %s uses Reno, not %s, for congestion control: its "
			"round-trip time is below 1 ms (DFSHIM_NET_CONGESTION=%s: the system's)",
			s->who, m->congestion, m->congestion);
}

static void tune(int fd)
{
	int one = 1, ms = (int)DF_MIN(df_env()->net_timeout_ms, 3600000) / 3;
	/*
	 * A link that was cut for long is then noticed within a second of its repair; Linux's
	 * intervals would grow to two minutes.
	 */
	int rto_max_ms = 1000;
	int idle = DF_MIN(DF_MAX(ms / 2000, 1), 10), interval = DF_MAX(idle / 3, 1), count = 3;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
	setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &rto_max_ms, sizeof(rto_max_ms));
}

struct stream *df_tcp_new(struct df_net_ep *ep, struct df_net_link *l, int fd, enum state state)
{
	struct stream *s = malloc(sizeof(*s));
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = s};

	if (!s)
		return NULL;
	memset(s, 0, offsetof(struct stream, out));
	s->have = 0;
	memset(&s->reader, 0, sizeof(s->reader));
	s->source.ready = df_tcp_ready;
	s->state = state;
	s->fd = fd;
	s->link = l;
	if (state == CONNECTING || state == KNOCKING)
		e.events = EPOLLOUT;
	s->events = e.events;
	df_list_init(&s->node);
	if (epoll_ctl(df_sessions(ep)->epoll_fd, EPOLL_CTL_ADD, fd, &e)) {
		free(s);
		return NULL;
	}
	tune(fd);
	return s;
}

void df_tcp_events(const struct df_net_ep *ep, struct stream *s, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = s};

	if (s->events == events)
		return;
	s->events = events;
	epoll_ctl(df_sessions(ep)->epoll_fd, EPOLL_CTL_MOD, s->fd, &e);
}

void df_tcp_close(struct df_net_ep *ep, struct stream *s)
{
	if (s->state == STRANGER || s->state == CHALLENGED)
		df_strangers_add(ep, -1);
	if (df_sessions(ep)->last == s)
		df_sessions(ep)->last = NULL;
	if (s->link)
		df_net_read_end(s->link, &s->reader);
	for (; s->head != s->tail; s->head++)
		df_net_sent(s->out[s->head % OUT_MAX].from);
	s->state = SHUT;
	close(s->fd);
	df_list_del(&s->node);
	df_list_add_tail(&df_sessions(ep)->shut, &s->node);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* A send or receive failed: reports a buffer that was freed early, and ends the session. */
static void broken(struct df_net_link *l, struct stream *s, int why)
{
	if (why == -EFAULT)
		df_warn_once(
			"the application has freed the buffer of a collective that has not ended");
	df_tcp_fail(l->ep, s, why);
}

int df_tcp_flush(struct df_net_link *l, struct stream *s)
{
	struct iovec v[2 * GATHER_MAX];
	struct msghdr m = {.msg_iov = v};
	int moved = 0;
	uint32_t i;
	ssize_t n;

	while (s->head != s->tail) {
		size_t want = 0;

		m.msg_iovlen = 0;
		for (i = s->head; i != s->tail && i - s->head < GATHER_MAX; i++) {
			struct out *o = &s->out[i % OUT_MAX];
			size_t off = i == s->head ? s->off : 0;

			if (off < sizeof(o->f))
				v[m.msg_iovlen++] =
					(struct iovec){(char *)&o->f + off, sizeof(o->f) - off};
			off = off < sizeof(o->f) ? 0 : off - sizeof(o->f);
			if (o->f.bytes)
				v[m.msg_iovlen++] =
					(struct iovec){(char *)o->payload + off, o->f.bytes - off};
		}
		for (i = 0; i < m.msg_iovlen; i++)
			want += v[i].iov_len;
		n = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			int why = -errno;

			/*
			 * Read what the other side sent last: its BYE means that this is not a
			 * fault.
			 */
			df_tcp_receive(l, s);
			if (s->state == OPEN)
				broken(l, s, why);
			return 1;
		}
		if (n < 0)
			break;
		moved = 1;
		s->off += (size_t)n;
		while (s->head != s->tail) {
			const struct out *o = &s->out[s->head % OUT_MAX];
			size_t all = sizeof(o->f) + o->f.bytes;

			if (s->off < all)
				break;
			s->off -= all;
			s->head++;
			df_net_count(&l->ep->n.frames_sent, 1);
			df_net_sent(o->from);
		}
		if ((size_t)n < want)
			break;
	}
	df_tcp_events(l->ep, s, EPOLLIN | (s->head != s->tail ? EPOLLOUT : 0));
	return moved;
}

void df_session_withdrawn(struct df_net_link *l)
{
	struct session *p = df_session(l);
	uint32_t i, k;

	for (i = 0; p && i < p->nr; i++) {
		struct stream *s = p->v[i];

		for (k = s ? s->head : 0; s && k != s->tail; k++) {
			struct out *o = &s->out[k % OUT_MAX];

			if (o->from && o->payload)
				o->payload = df_net_payload(o->from, o->f.pos);
		}
		if (s)
			df_net_read_withdrawn(l, &s->reader);
	}
}

/* ---- receiving ------------------------------------------------------------------------------- */

int df_tcp_receive(struct df_net_link *l, struct stream *s)
{
	int turns, ret;

	for (turns = 0; turns < TURNS; turns++) {
		/*
		 * Read the payload directly into its slot, and the next header behind it; read
		 * small frames in bulk. Read a large slice alone: the block that it wakes may want
		 * the next one at an address outside its slot.
		 */
		size_t direct = s->reader.to ? s->reader.left : 0;
		int large = direct && s->reader.f.bytes >= LARGE_BYTES;
		size_t header = sizeof(s->reader.f) - (direct ? 0 : s->reader.have);
		size_t behind = large					   ? 0
				: !s->index || (s->reader.left && !direct) ? IN_BYTES
									   : header;
		struct iovec v[2] = {{s->reader.to, direct}, {s->in, behind}};
		size_t room = direct + v[1].iov_len;
		ssize_t n = readv(s->fd, direct ? v : v + 1, direct ? 2 : 1);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			broken(l, s, n ? -errno : -ECONNRESET);
			return 1;
		}
		if (!turns)
			df_net_alive(l, df_now_ns());
		ret = 0;
		if (direct)
			ret = df_net_read_on(l, &s->reader, DF_MIN((size_t)n, direct));
		if (!ret && (size_t)n > direct)
			ret = df_net_read(l, &s->reader, s->in, (size_t)n - direct);
		if (ret > 0)
			return 1;
		if (ret) {
			df_warn("%s sent data that breaks dfshim's protocol: connecting again",
				s->who);
			df_tcp_fail(l->ep, s, ret);
			return 1;
		}
		if ((size_t)n < room)
			return 1;
		if (large && !s->reader.left)
			return 1;
	}
	return turns > 0;
}
