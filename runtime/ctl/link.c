/*
 * Sockets and frames. All sockets are non-blocking. Input is trusted only as far as it has been
 * checked: magic, version, length, and the proof of the greeting. The control thread frees a closed
 * link at the end of its turn, so that events already taken from epoll never refer to freed memory.
 */
#define _GNU_SOURCE
#include "runtime/ctl/link.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/time.h"
#include "runtime/base/vec.h"
#include "runtime/ctl/accept.h"
#include "runtime/ctl/greet.h"
#include "runtime/ctl/rdv.h"

#define IN_FIRST 4096
#define PAD8(n)	 (((n) + 7) & ~(size_t)7)

const struct df_link_ops df_finish_ops = {.name = "finishing"};

void df_link_arm(struct df_link *l)
{
	struct epoll_event e = {.data.ptr = l};

	if (l->fd < 0)
		return;
	e.events = EPOLLIN | (l->connecting || l->out_bytes ? EPOLLOUT : 0);
	if (e.events == l->armed)
		return;
	epoll_ctl(df_ctl.epoll_fd, l->armed ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, l->fd, &e);
	l->armed = e.events;
}

struct df_link *df_link_new(int fd, const struct df_link_ops *ops, void *owner)
{
	struct df_link *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->fd = fd;
	l->ops = ops;
	l->owner = owner;
	l->frame_max = DF_FRAME_MAX;
	l->greeting = DF_GREET_DONE; /* until it sends a greeting, or waits for one */
	df_list_add_tail(&df_ctl.links, &l->node);
	return l;
}

void df_link_close(struct df_link *l)
{
	if (l->dead)
		return;
	l->dead = 1;
	if (l->ops == &df_stranger_ops)
		df_ctl.nr_strangers--;
	l->ops = NULL;
	l->owner = NULL;
	if (l->fd >= 0) {
		/*
		 * A child that is being forked may hold the socket, so closing it does not end its
		 * events.
		 */
		if (l->armed)
			epoll_ctl(df_ctl.epoll_fd, EPOLL_CTL_DEL, l->fd, NULL);
		close(l->fd);
	}
	l->fd = -1;
	while (l->nr_fds)
		close(l->fds[--l->nr_fds]);
	df_list_del(&l->node);
	df_list_add_tail(&df_ctl.dead_links, &l->node);
	df_ctl_poke(); /* the loop frees it */
}

void df_link_finish(struct df_link *l)
{
	if (l->dead)
		return;
	if (l->ops == &df_stranger_ops)
		df_ctl.nr_strangers--;
	l->ops = &df_finish_ops;
	l->owner = NULL;
	l->deadline_ns = df_now_ns() + DF_LINK_HELLO_NS;
	df_ctl_timer(l->deadline_ns);
	if (!l->out_bytes && !l->held_bytes && !l->connecting)
		shutdown(l->fd, SHUT_WR);
}

/*
 * Closing a socket with unread input would destroy data on its way to the other side. So after the
 * last byte we only shut down sending, and read until the other side has closed.
 */
static void finish_events(struct df_link *l)
{
	char sink[4096];
	ssize_t n;

	do {
		n = recv(l->fd, sink, sizeof(sink), MSG_DONTWAIT);
	} while (n > 0 || (n < 0 && errno == EINTR));
	if (!n || (errno != EAGAIN && errno != EWOULDBLOCK))
		df_link_close(l);
}

void df_link_dropped(const char *from, const char *why)
{
	static uint64_t again_at;
	static unsigned long nr;
	uint64_t now = df_now_ns();

	nr++;
	if (now < again_at)
		return;
	df_ctl_note("dropped a connection from %s: %s (%lu so far)", from, why, nr);
	again_at = now + 60 * DF_NS_PER_S;
}

void df_link_end(struct df_link *l, int error)
{
	const struct df_link_ops *ops = l->ops;

	if (l->dead)
		return;
	if (ops == &df_stranger_ops)
		df_link_dropped(l->who, error == -ETIMEDOUT ? "it said nothing in time"
					: error ? "it does not know what a rank of this job knows"
						: "it closed without a word");
	/* The callback may still read `who`, but must not send. */
	l->out_bytes = 0;
	if (ops && ops->closed)
		ops->closed(l, error);
	df_link_close(l);
}

/* ---- sending --------------------------------------------------------------------------------- */

static int flush(struct df_link *l)
{
	ssize_t n;

	while (l->out_bytes && !l->connecting && l->fd >= 0) {
		n = send(l->fd, l->out + l->out_at, l->out_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
		l->out_at += (size_t)n;
		l->out_bytes -= (size_t)n;
	}
	if (!l->out_bytes)
		l->out_at = 0;
	return 0;
}

static int reserve(struct df_link *l, size_t bytes)
{
	if (l->out_at && l->out_at + l->out_bytes + bytes > l->out_size) {
		memmove(l->out, l->out + l->out_at, l->out_bytes);
		l->out_at = 0;
	}
	return DF_VEC_ROOM(l->out, l->out_size, l->out_bytes + bytes);
}

static void append(struct df_link *l, const void *data, size_t bytes)
{
	if (bytes)
		memcpy(l->out + l->out_at + l->out_bytes, data, bytes);
	l->out_bytes += bytes;
}

size_t df_frame_masked(unsigned type, size_t a_bytes, size_t b_bytes)
{
	switch (type) {
	case DF_FRAME_RDV_CHECKIN:
	case DF_FRAME_TREE_HELLO:
	case DF_FRAME_TREE_REPLY:
	case DF_FRAME_TREE_PATH:
	case DF_FRAME_TREE_MERGE:
		return a_bytes + b_bytes;
	case DF_FRAME_RDV_TABLE:
	case DF_FRAME_FLOOD: /* may be a DF_MSG_GROWN, which has a key */
		return a_bytes;
	default:
		return 0;
	}
}

static struct df_frame header(unsigned type, size_t a_bytes, size_t b_bytes)
{
	return (struct df_frame){.magic = DF_FRAME_MAGIC,
				 .version = DF_CTL_VERSION,
				 .type = (uint16_t)type,
				 .bytes = (uint32_t)(a_bytes + b_bytes),
				 .masked = (uint32_t)df_frame_masked(type, a_bytes, b_bytes)};
}

static int put(struct df_link *l, unsigned type, const void *a, size_t a_bytes, const void *b,
	       size_t b_bytes)
{
	struct df_frame f = header(type, a_bytes, b_bytes);
	static const uint8_t zero[8];

	if (reserve(l, sizeof(f) + PAD8(a_bytes + b_bytes)))
		return -ENOMEM;
	append(l, &f, sizeof(f));
	append(l, a, a_bytes);
	append(l, b, b_bytes);
	if (f.masked)
		df_greet_mask(&l->session, &l->tx_at, l->out + l->out_at + l->out_bytes - f.bytes,
			      f.masked);
	append(l, zero, PAD8(a_bytes + b_bytes) - (a_bytes + b_bytes));
	/*
	 * A failure also shows as an event. The thread that handles the event handles the
	 * failure.
	 */
	if (flush(l))
		shutdown(l->fd, SHUT_RDWR);
	df_link_arm(l);
	return 0;
}

/* Before the other end has proved itself, only the greeting is sent. Keeps the frame until then. */
static int hold(struct df_link *l, unsigned type, const void *a, size_t a_bytes, const void *b,
		size_t b_bytes)
{
	struct df_frame f = header(type, a_bytes, b_bytes);
	size_t whole = sizeof(f) + PAD8(a_bytes + b_bytes);
	uint8_t *to;

	if (DF_VEC_ROOM(l->held, l->held_size, l->held_bytes + whole))
		return -ENOMEM;
	to = l->held + l->held_bytes;
	memset(to, 0, whole);
	memcpy(to, &f, sizeof(f));
	if (a_bytes)
		memcpy(to + sizeof(f), a, a_bytes);
	if (b_bytes)
		memcpy(to + sizeof(f) + a_bytes, b, b_bytes);
	l->held_bytes += whole;
	return 0;
}

int df_link_release(struct df_link *l, unsigned type, const void *data, size_t bytes)
{
	struct df_frame f;
	size_t at = 0;
	int ret;

	ret = put(l, type, data, bytes, NULL, 0);
	while (!ret && at < l->held_bytes) {
		const uint8_t *body = l->held + at + sizeof(f);

		memcpy(&f, l->held + at, sizeof(f));
		/*
		 * The masked part is passed as `a`, so that df_frame_masked() returns the same
		 * number again.
		 */
		ret = put(l, f.type, body, f.masked, body + f.masked, f.bytes - f.masked);
		at += sizeof(f) + PAD8((size_t)f.bytes);
	}
	free(l->held);
	l->held = NULL;
	l->held_bytes = l->held_size = 0;
	return ret;
}

int df_link_send(struct df_link *l, unsigned type, const void *a, size_t a_bytes, const void *b,
		 size_t b_bytes)
{
	if (l->dead || l->ops == &df_finish_ops)
		return -ECONNRESET;
	if (a_bytes + b_bytes > DF_FRAME_MAX)
		return -EINVAL;
	return (l->greeting == DF_GREET_SENT ? hold : put)(l, type, a, a_bytes, b, b_bytes);
}

int df_link_send_fds(struct df_link *l, unsigned type, const void *a, size_t a_bytes,
		     const int *fds, int nr_fds)
{
	struct df_frame f = {.magic = DF_FRAME_MAGIC,
			     .version = DF_CTL_VERSION,
			     .type = (uint16_t)type,
			     .bytes = (uint32_t)a_bytes};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(l->fds))];
	} control;
	uint8_t pad[8] = {0};
	struct iovec iov[3] = {
		{&f, sizeof(f)}, {(void *)(uintptr_t)a, a_bytes}, {pad, PAD8(a_bytes) - a_bytes}};
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = 3};
	struct cmsghdr *c;
	ssize_t n;

	if (l->dead || l->out_bytes || nr_fds > (int)DF_ARRAY_LEN(l->fds))
		return -EINVAL;
	if (nr_fds) {
		memset(&control, 0, sizeof(control));
		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE((size_t)nr_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)nr_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)nr_fds * sizeof(int));
	}
	n = sendmsg(l->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0)
		return -errno;
	return n == (ssize_t)(sizeof(f) + PAD8(a_bytes)) ? 0 : -EIO;
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void take_fds(struct df_link *l, struct msghdr *m)
{
	struct cmsghdr *c;
	int *fds, i, nr;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		fds = (int *)(void *)CMSG_DATA(c);
		nr = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		for (i = 0; i < nr; i++) {
			if (l->nr_fds < (int)DF_ARRAY_LEN(l->fds))
				l->fds[l->nr_fds++] = fds[i];
			else
				close(fds[i]);
		}
	}
}

static ssize_t receive(struct df_link *l, void *to, size_t bytes)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(l->fds))];
	} control;
	struct iovec iov = {to, bytes};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (!l->wants_fds)
		return recv(l->fd, to, bytes, MSG_DONTWAIT);
	m.msg_control = control.bytes;
	m.msg_controllen = sizeof(control.bytes);
	n = recvmsg(l->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n >= 0)
		take_fds(l, &m);
	/* The kernel drops descriptors that exceed this process's limit. */
	if (n >= 0 && m.msg_flags & MSG_CTRUNC)
		l->lost_fds = 1;
	return n;
}

/*
 * Handles all complete frames in the buffer. Returns the size of the next frame as far as known, or
 * -errno.
 */
static long frames(struct df_link *l)
{
	struct df_frame f;
	uint64_t magic;
	size_t at = 0, whole;
	long ret = sizeof(f);
	uint8_t *body;

	while (!l->dead && l->in_bytes - at >= sizeof(f)) {
		memcpy(&f, l->in + at, sizeof(f));
		if (f.magic != DF_FRAME_MAGIC) {
			/* NCCL's sockets begin with the magic of the id. */
			memcpy(&magic, l->in + at, sizeof(magic));
			if (l->ops == &df_stranger_ops)
				df_rdv_unshimmed(magic);
			return -EPROTO;
		}
		if (f.version != DF_CTL_VERSION || f.masked > f.bytes ||
		    f.bytes > (l->greeting == DF_GREET_DONE ? l->frame_max : DF_FRAME_STRANGER))
			return -EPROTO;
		whole = sizeof(f) + PAD8((size_t)f.bytes);
		if (l->in_bytes - at < whole) {
			ret = (long)whole;
			break;
		}
		body = l->in + at + sizeof(f);
		at += whole;
		if (l->greeting != DF_GREET_DONE) {
			if (df_greet_input(l, f.type, body, f.bytes) < 0)
				return -EPROTO;
			continue;
		}
		if (f.masked)
			df_greet_mask(&l->session, &l->rx_at, body, f.masked);
		if (!l->ops || !l->ops->input || l->ops->input(l, f.type, body, f.bytes) < 0)
			return -EPROTO;
	}
	if (l->dead)
		return 0;
	l->in_bytes -= at;
	if (at && l->in_bytes)
		memmove(l->in, l->in + at, l->in_bytes);
	return ret;
}

static void input(struct df_link *l)
{
	size_t want = IN_FIRST, size;
	uint8_t *p;
	ssize_t n;
	long ret;
	int turns;

	/* Bounded, so that other links get their turn. */
	for (turns = 0; turns < 64; turns++) {
		size = DF_MAX(want, (size_t)IN_FIRST);
		if (size > l->in_size) {
			p = realloc(l->in, size);
			if (!p) {
				df_link_end(l, -ENOMEM);
				return;
			}
			l->in = p;
			l->in_size = size;
		}
		n = receive(l, l->in + l->in_bytes, l->in_size - l->in_bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (n <= 0) {
			df_link_end(l, n ? -errno : 0);
			return;
		}
		l->in_bytes += (size_t)n;
		ret = frames(l);
		if (l->dead)
			return;
		if (ret < 0) {
			df_link_end(l, (int)ret);
			return;
		}
		want = (size_t)ret;
	}
}

void df_link_adopt(struct df_link *l, const struct df_link_ops *ops, void *owner)
{
	if (l->ops == &df_stranger_ops)
		df_ctl.nr_strangers--;
	l->ops = ops;
	l->owner = owner;
	l->deadline_ns = 0;
}

/* ---- the loop -------------------------------------------------------------------------------- */

void df_link_events(struct df_link *l, uint32_t events)
{
	int error = 0, ret;
	socklen_t len = sizeof(error);

	if (l->dead)
		return;
	if (l->connecting && events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
		getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &len);
		if (error) {
			df_link_end(l, -error);
			return;
		}
		l->connecting = 0;
		/*
		 * A link that is only being flushed keeps its deadline, because the other end may
		 * never answer the greeting.
		 */
		if (l->ops != &df_finish_ops)
			l->deadline_ns = 0;
		if (l->ops && l->ops->connected)
			l->ops->connected(l);
		if (l->dead)
			return;
	}
	/*
	 * Held frames are sent before the link ends. So a link that is only being flushed still
	 * completes its greeting.
	 */
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP) && !l->connecting &&
	    (l->ops != &df_finish_ops || l->held_bytes))
		input(l);
	if (l->dead)
		return;
	ret = flush(l);
	if (ret) {
		df_link_end(l, ret);
		return;
	}
	if (l->ops == &df_finish_ops && !l->held_bytes) {
		if (!l->out_bytes)
			shutdown(l->fd, SHUT_WR);
		finish_events(l);
	}
	df_link_arm(l);
}

static void link_free(struct df_link *l)
{
	df_list_del(&l->node);
	free(l->in);
	free(l->out);
	free(l->held);
	free(l);
}

void df_link_reap(void)
{
	struct df_link *l, *tmp;

	df_list_each_safe(l, tmp, &df_ctl.dead_links, node) link_free(l);
}

uint64_t df_link_timers(uint64_t now)
{
	struct df_link *l, *tmp;
	uint64_t next = 0;
	int again;

	/* A callback may close other links: start over after each. */
	do {
		again = 0;
		df_list_each_safe(l, tmp, &df_ctl.links, node)
		{
			if (!l->deadline_ns || l->deadline_ns > now)
				continue;
			l->deadline_ns = 0;
			if (l->ops == &df_finish_ops)
				df_link_close(l);
			else
				df_link_end(l, -ETIMEDOUT);
			again = 1;
			break;
		}
	} while (again);
	df_list_each(l, &df_ctl.links, node) if (l->deadline_ns) next =
		next ? DF_MIN(next, l->deadline_ns) : l->deadline_ns;
	return next;
}

void df_link_drain(uint64_t bound_ns)
{
	uint64_t end = df_now_ns() + bound_ns, now;
	struct df_link *l;
	struct pollfd p;

	df_list_each(l, &df_ctl.links, node)
	{
		while (l->out_bytes && !l->connecting && l->fd >= 0 && !flush(l) && l->out_bytes) {
			now = df_now_ns();
			if (now >= end)
				return;
			p = (struct pollfd){.fd = l->fd, .events = POLLOUT};
			poll(&p, 1, (int)((end - now) / DF_NS_PER_MS) + 1);
		}
	}
}

int df_link_peer_runs(const struct df_link *link)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	char path[64], text[512], *state;
	ssize_t n;
	int fd;

	if (!link->is_unix || link->fd < 0 ||
	    getsockopt(link->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) || cred.pid <= 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)cred.pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	/* "PID (NAME) STATE"; the name may contain parentheses. */
	state = strrchr(text, ')');
	return state && state[1] && state[2] && !strchr("TtZX", state[2]);
}

void df_link_forget_all(void)
{
	struct df_link *l, *tmp;

	df_list_each_safe(l, tmp, &df_ctl.links, node)
	{
		if (l->fd >= 0)
			close(l->fd);
		link_free(l);
	}
	df_link_reap();
	df_ctl.nr_strangers = 0;
}
