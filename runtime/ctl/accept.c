/*
 * Makes connections to other processes and accepts theirs. An accepted connection is unidentified
 * until it has proved that it knows a secret of ours (greet.c) and its first frame says what it is
 * for. It gets a few seconds and little memory for that; when there are too many such connections,
 * the oldest is dropped. Guarded by the control plane's lock.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/time.h"
#include "runtime/ctl/accept.h"
#include "runtime/ctl/ctl_int.h"
#include "runtime/ctl/greet.h"
#include "runtime/ctl/link.h"
#include "runtime/ctl/rdv.h"
#include "runtime/ctl/tree_int.h"

#define CONNECT_NS (10 * DF_NS_PER_S)
#define YOUNG_NS   DF_NS_PER_S
#define RESUME_NS  (5 * DF_NS_PER_MS)
#define NR_PAUSED  8

static struct {
	void *tag; /* the pointer that is registered with epoll */
	int fd;
} paused[NR_PAUSED];
static uint64_t resume_at;

static int stranger_input(struct df_link *l, unsigned type, const void *data, size_t bytes)
{
	int ret;

	switch (type) {
	case DF_FRAME_RDV_HELLO:
		ret = df_rdv_introduce(l, data, bytes);
		break;
	case DF_FRAME_TREE_HELLO:
		ret = l->greet.name == df_ctl.self.proc ? df_tree_introduce(l, data, bytes)
							: -EPROTO;
		break;
	case DF_FRAME_FETCH:
		ret = l->greet.name == df_ctl.self.proc && l->is_unix
			      ? df_fetch_introduce(l, data, bytes)
			      : -EPROTO;
		break;
	case DF_FRAME_PING:
		if (l->greet.name != df_ctl.self.proc || bytes)
			return -EPROTO;
		df_link_send(l, DF_FRAME_PONG, NULL, 0, NULL, 0);
		df_link_finish(l);
		ret = 0;
		break;
	default:
		ret = -EPROTO;
	}
	/* If it has been identified, other callbacks have been set. */
	if (!ret && !l->dead && l->ops != &df_stranger_ops && l->ops != &df_finish_ops) {
		l->deadline_ns = 0;
		l->frame_max = DF_FRAME_MAX;
	}
	return ret;
}

const struct df_link_ops df_stranger_ops = {.name = "unidentified", .input = stranger_input};

static void tune_tcp(int fd)
{
	/*
	 * The data connections notice the same silence earlier, and report it as silence: the
	 * process may be alive.
	 */
	unsigned silent_ms = (unsigned)DF_MAX(40000, df_env()->net_timeout_ms / 2 * 3 + 10000);
	int one = 1, idle = 10, interval = 5, count = (int)(silent_ms / 1000 - 10) / interval;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/* A node that loses power sends nothing. Keep-alive detects that. */
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	/*
	 * With unacknowledged bytes, the kernel would keep sending them for a quarter of an hour.
	 */
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof(silent_ms));
}

int df_link_no_file(void)
{
	char why[DF_NO_FILE_TEXT];
	static int said;

	if (errno != EMFILE && errno != ENFILE)
		return 0;
	if (errno == EMFILE && df_addr_raise_files(RLIM_INFINITY))
		return 1;
	if (!df_ctl.no_file_since) {
		df_ctl.no_file_since = df_now_ns();
		df_ctl_timer(df_ctl.no_file_since + DF_NO_FILE_NS);
	}
	if (!said++) {
		int was = errno;

		df_addr_no_file(why, sizeof(why));
		df_ctl_warn("this process has %s: ranks of other processes cannot be reached, and "
			    "cannot reach it",
			    why);
		errno = was;
	}
	return 0;
}

/*
 * Abstract sockets have no permissions: any user of the machine can bind a name that has become
 * free. A socket belongs to the user that its process had when it began to listen; a job may change
 * its user later.
 */
static int trusted(int fd, int is_unix)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (!is_unix)
		return 1;
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) &&
	       (cred.uid == geteuid() || cred.uid == getuid() || cred.uid == df_ctl.began_as);
}

/*
 * Connects; bytes may be sent at once. Returns NULL and *error if out of memory or descriptors, or
 * if the connection was refused at once.
 */
static struct df_link *open_link(const union df_sockaddr *addr, socklen_t len,
				 const struct df_link_ops *ops, void *owner, int *error)
{
	struct df_link *l;
	int fd, ret = 0;

	do {
		fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	} while (fd < 0 && df_link_no_file());
	if (fd < 0) {
		*error = -errno;
		return NULL;
	}
	df_ctl.no_file_since = 0;
	if (addr->sa.sa_family != AF_UNIX)
		tune_tcp(fd);
	if (connect(fd, &addr->sa, len))
		ret = -errno;
	else if (!trusted(fd, addr->sa.sa_family == AF_UNIX))
		ret = -ECONNREFUSED;
	if (ret && ret != -EINPROGRESS) {
		close(fd);
		*error = ret;
		return NULL;
	}
	l = df_link_new(fd, ops, owner);
	if (!l) {
		close(fd);
		*error = -ENOMEM;
		return NULL;
	}
	l->is_unix = addr->sa.sa_family == AF_UNIX;
	if (!l->is_unix)
		df_addr_format(addr, l->who, sizeof(l->who));
	l->connecting = ret == -EINPROGRESS;
	if (l->connecting) {
		l->deadline_ns = df_now_ns() + CONNECT_NS;
		df_ctl_timer(l->deadline_ns);
	}
	df_link_arm(l);
	return l;
}

struct df_link *df_link_open_member(const struct df_member *m, const struct df_link_ops *ops,
				    void *owner, int *error)
{
	char tcp[sizeof(m->tcp) + 1];
	union df_sockaddr addr;
	struct df_link *l;
	socklen_t len;

	/* Text from another process may lack its terminator. */
	snprintf(tcp, sizeof(tcp), "%.*s", (int)sizeof(m->tcp), m->tcp);
	if (m->host == df_ctl.self.host && m->sock) {
		len = df_addr_unix(m->sock, &addr);
	} else if (tcp[0] && !df_addr_parse(tcp, &addr, 1)) {
		len = df_addr_len(&addr);
		/*
		 * The scope id belongs to an interface of the other machine and means nothing
		 * here.
		 */
		if (addr.sa.sa_family == AF_INET6 && df_addr_is_link_local(&addr))
			addr.in6.sin6_scope_id = df_ctl.scope;
	} else {
		*error = -EADDRNOTAVAIL;
		return NULL;
	}
	l = open_link(&addr, len, ops, owner, error);
	if (l && df_greet_begin(l, m->proc, &m->key)) {
		df_link_close(l);
		*error = -ENOMEM;
		return NULL;
	}
	return l;
}

void df_link_why(const char *to, int error, char *text, size_t size)
{
	const char *why = strerror(-error);

	if (error == -ETIMEDOUT)
		why = "no answer arrives: a firewall may drop it";
	else if (error == -ECONNREFUSED)
		why = "refused: nothing listens there, or a firewall rejects it";
	else if (error == -EADDRNOTAVAIL)
		why = "it has no address for other nodes";
	snprintf(text, size, "%.63s (pid %u%s%.63s) cannot reach %s: %s", df_ctl.self.hostname,
		 df_ctl.self.pid, df_ctl.self.tcp[0] ? " at " : "", df_ctl.self.tcp, to, why);
}

int df_link_listen_unix(uint64_t sock)
{
	union df_sockaddr addr;
	socklen_t len = df_addr_unix(sock, &addr);
	int fd, ret;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, &addr.sa, len) || listen(fd, DF_LINK_BACKLOG)) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd;
}

/*
 * Called when there are too many unidentified connections. Returns the oldest, to be dropped, if it
 * has had time to send something. Otherwise all of them are young, because a job is starting:
 * returns NULL. Then the listener pauses, and the kernel keeps new connections in its queue.
 */
static struct df_link *oldest_stranger(void)
{
	uint64_t now = df_now_ns();
	struct df_link *l;

	df_list_each(l, &df_ctl.links, node)
	{
		if (l->ops == &df_stranger_ops)
			return l->deadline_ns > now + DF_LINK_HELLO_NS - YOUNG_NS ? NULL : l;
	}
	return NULL;
}

static void listen_for(int listener, void *tag, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = tag};

	epoll_ctl(df_ctl.epoll_fd, EPOLL_CTL_MOD, listener, &e);
}

static void pause_listener(int listener, void *tag)
{
	int i;

	for (i = 0; i < NR_PAUSED; i++) {
		if (paused[i].tag)
			continue;
		paused[i].tag = tag;
		paused[i].fd = listener;
		listen_for(listener, tag, 0);
		resume_at = df_now_ns() + RESUME_NS;
		df_ctl_timer(resume_at);
		return;
	}
}

void df_accept_forget_all(void)
{
	memset(paused, 0, sizeof(paused));
	resume_at = 0;
}

uint64_t df_accept_timers(uint64_t now)
{
	int i;

	if (resume_at && resume_at <= now) {
		resume_at = 0;
		for (i = 0; i < NR_PAUSED; i++) {
			if (paused[i].tag)
				listen_for(paused[i].fd, paused[i].tag, EPOLLIN);
			paused[i].tag = NULL;
		}
	}
	return resume_at;
}

void df_link_accept(int listener, int is_unix, void *tag)
{
	struct df_link *l, *oldest;
	union df_sockaddr addr;
	int fd, turns, full;
	socklen_t len;

	for (turns = 0; turns < 64; turns++) {
		full = (uint32_t)df_ctl.nr_strangers >=
		       DF_MIN(DF_LINK_STRANGERS, df_addr_unproved_max());
		oldest = full ? oldest_stranger() : NULL;
		if (full && !oldest) {
			pause_listener(listener, tag);
			return;
		}
		len = sizeof(addr.storage);
		memset(&addr, 0, sizeof(addr));
		do {
			fd = accept4(listener, &addr.sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
		} while (fd < 0 && df_link_no_file());
		if (fd < 0 && (errno == EMFILE || errno == ENFILE) && df_ctl.spare_fd >= 0) {
			/*
			 * Out of descriptors: close the connection, so that the other end does not
			 * wait.
			 */
			close(df_ctl.spare_fd);
			fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
			if (fd >= 0)
				close(fd);
			df_ctl.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
			return;
		}
		if (fd < 0)
			return;
		df_ctl.no_file_since = 0;
		if (oldest)
			df_link_end(oldest, -ETIMEDOUT);
		if (!trusted(fd, is_unix)) {
			close(fd);
			df_link_dropped("another user", "only this user may connect");
			continue;
		}
		l = df_link_new(fd, &df_stranger_ops, NULL);
		if (!l) {
			close(fd);
			return;
		}
		l->is_unix = is_unix;
		l->frame_max = DF_FRAME_STRANGER;
		l->greeting = DF_GREET_WAIT;
		l->deadline_ns = df_now_ns() + DF_LINK_HELLO_NS;
		if (is_unix) {
			snprintf(l->who, sizeof(l->who), "this node");
		} else {
			tune_tcp(fd);
			df_addr_format(&addr, l->who, sizeof(l->who));
		}
		df_ctl.nr_strangers++;
		df_ctl_timer(l->deadline_ns);
		df_link_arm(l);
	}
}
