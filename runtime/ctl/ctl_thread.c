/*
 * The control thread: one per process, started on first need. It sleeps in epoll while nothing
 * happens, and has a time-out only while something is pending. This file also holds the state of
 * the process and its lock, lets other threads wait, and handles fork: the child owns none of the
 * parent's sockets, and starts afresh when it needs the control plane.
 */
#define _GNU_SOURCE
#include "runtime/ctl/ctl_int.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kernels/abi.h"
#include "runtime/base/clean_text.h"
#include "runtime/base/futex.h"
#include "runtime/base/log.h"
#include "runtime/base/net/ifaces.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/ctl/accept.h"
#include "runtime/ctl/attach.h"
#include "runtime/ctl/flood.h"
#include "runtime/ctl/link.h"
#include "runtime/ctl/probe.h"
#include "runtime/ctl/rdv.h"
#include "runtime/ctl/tree.h"

#define WAIT_BOUND_NS ((int64_t)DF_NS_PER_S)

struct df_ctl df_ctl = {
	.lock = DF_MUTEX_INIT(DF_RANK_CTL, "control plane"),
	.epoll_fd = -1,
	.event_fd = -1,
	.unix_fd = -1,
	.tcp_fd = -1,
	.spare_fd = -1,
};

/* Separate from df_ctl, because df_ctl_poke() reads it in signal handlers. */
static int poke_fd = -1;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

void df_ctl_lock(void)
{
	df_mutex_lock(&df_ctl.lock);
}

void df_ctl_unlock(void)
{
	char notes[DF_ARRAY_LEN(df_ctl.notes)][sizeof(df_ctl.notes[0])];
	int i, nr = df_ctl.nr_notes, warns = df_ctl.warns;

	memcpy(notes, df_ctl.notes, (size_t)nr * sizeof(notes[0]));
	df_ctl.nr_notes = df_ctl.warns = 0;
	df_mutex_unlock(&df_ctl.lock);
	for (i = 0; i < nr; i++) {
		if (warns & 1 << i)
			df_warn("%s", notes[i]);
		else
			df_info("%s", notes[i]);
	}
}

static void note(int warn, const char *fmt, va_list ap)
{
	if (df_ctl.nr_notes == (int)DF_ARRAY_LEN(df_ctl.notes))
		return;
	df_ctl.warns |= warn << df_ctl.nr_notes;
	vsnprintf(df_ctl.notes[df_ctl.nr_notes++], sizeof(df_ctl.notes[0]), fmt, ap);
}

void df_ctl_note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	note(0, fmt, ap);
	va_end(ap);
}

void df_ctl_warn(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	note(1, fmt, ap);
	va_end(ap);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void waiter_wake(struct df_waiter *w)
{
	/* RELAXED: the lock orders the data that the waiter reads; the word only ends its sleep. */
	__atomic_fetch_add(&w->word, 1, __ATOMIC_RELAXED);
	df_futex_wake(&w->word, 1, 0);
}

void df_waiters_wake(struct df_list *on)
{
	struct df_waiter *w;

	df_list_each(w, on, on) waiter_wake(w);
}

static int stopped(const uint32_t *stop)
{
	/*
	 * ACQUIRE pairs with the RELEASE of the thread that stops us (runtime/comm/comm.c): without
	 * it we could return -ECANCELED and then miss what was written before the stop.
	 */
	return stop && __atomic_load_n(stop, __ATOMIC_ACQUIRE);
}

int df_wait_for(struct df_list *on, int (*done)(void *arg), void *arg, const uint32_t *stop)
{
	struct df_waiter w = {.word = 0};
	uint32_t word;
	int ret = 0;

	df_list_add_tail(&df_ctl.waiters, &w.all);
	df_list_add_tail(on, &w.on);
	while (!done(arg)) {
		if (stopped(stop)) {
			ret = -ECANCELED;
			break;
		}
		word = __atomic_load_n(&w.word, __ATOMIC_RELAXED);
		df_ctl_unlock();
		/* Bounded, so that a stop without a poke is noticed too. */
		df_futex_wait(&w.word, word, WAIT_BOUND_NS, 0);
		df_ctl_lock();
	}
	df_list_del(&w.all);
	df_list_del(&w.on);
	return ret;
}

void df_ctl_poke(void)
{
	int fd = __atomic_load_n(&poke_fd, __ATOMIC_RELAXED), saved = errno;
	uint64_t one = 1;

	if (fd >= 0 && write(fd, &one, sizeof(one)) < 0) {
		/* The counter is full, so a wake-up is already pending. */
	}
	errno = saved;
}

/* ---- the loop -------------------------------------------------------------------------------- */

void df_ctl_timer(uint64_t when_ns)
{
	if (df_ctl.timer_ns && df_ctl.timer_ns <= when_ns)
		return;
	df_ctl.timer_ns = when_ns;
	df_ctl_poke();
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return !a ? b : !b ? a : DF_MIN(a, b);
}

static void run_timers(uint64_t now)
{
	uint64_t next;

	df_ctl.timer_ns = 0;
	next = df_link_timers(now);
	next = sooner(next, df_accept_timers(now));
	next = sooner(next, df_rdv_timers(now));
	next = sooner(next, df_join_timers(now));
	next = sooner(next, df_tree_timers(now));
	next = sooner(next, df_probe_timers(now));
	next = sooner(next, df_gather_ask(now, 0));
	df_ctl.timer_ns = sooner(df_ctl.timer_ns, next);
}

static void handle(const struct epoll_event *e)
{
	struct df_waiter *w;
	uint64_t count;

	if (e->data.ptr == &df_ctl.event_fd) {
		if (read(df_ctl.event_fd, &count, sizeof(count)) < 0)
			return;
		df_list_each(w, &df_ctl.waiters, all) waiter_wake(w);
	} else if (e->data.ptr == &df_ctl.unix_fd) {
		df_link_accept(df_ctl.unix_fd, 1, e->data.ptr);
	} else if (e->data.ptr == &df_ctl.tcp_fd) {
		df_link_accept(df_ctl.tcp_fd, 0, e->data.ptr);
	} else if (!df_rdv_accept(e->data.ptr)) {
		df_link_events(e->data.ptr, e->events);
	}
}

static void *loop(void *arg)
{
	struct epoll_event events[64];
	uint64_t now, timer = 0;
	int i, nr, ms;

	(void)arg;
	for (;;) {
		ms = -1;
		if (timer) {
			now = df_now_ns();
			ms = timer <= now ? 0
					  : (int)DF_MIN((timer - now) / DF_NS_PER_MS + 1, 3600000);
		}
		nr = epoll_wait(df_ctl.epoll_fd, events, DF_ARRAY_LEN(events), ms);
		df_ctl_lock();
		for (i = 0; i < nr; i++)
			handle(&events[i]);
		now = df_now_ns();
		if (df_ctl.timer_ns && df_ctl.timer_ns <= now)
			run_timers(now);
		df_link_reap();
		timer = df_ctl.timer_ns;
		df_ctl_unlock();
		df_flood_deliver();
	}
	return NULL;
}

/* ---- start and fork -------------------------------------------------------------------------- */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void before_fork(void)
{
	df_mutex_lock(&df_ctl.lock);
}

static void after_fork_parent(void)
{
	df_mutex_unlock(&df_ctl.lock);
}

/*
 * The parent's objects stay allocated: handles of its communicators may still be read (their
 * members are constant), but are no longer used otherwise.
 */
static void after_fork_child(void)
{
	if (df_ctl.started) {
		__atomic_store_n(&poke_fd, -1, __ATOMIC_RELAXED);
		df_link_forget_all();
		df_accept_forget_all();
		df_rdv_forget_all();
		df_tree_forget_all();
		df_probe_forget_all();
		close_fd(&df_ctl.epoll_fd);
		close_fd(&df_ctl.event_fd);
		close_fd(&df_ctl.unix_fd);
		close_fd(&df_ctl.tcp_fd);
		close_fd(&df_ctl.spare_fd);
		df_ctl.groups = NULL;
		df_ctl.timer_ns = 0;
		df_ctl.nr_notes = df_ctl.warns = 0;
		df_ctl.no_file_since = 0;
		df_ctl.leaving = 0;
		df_ctl.started = 0;
	}
	df_mutex_unlock(&df_ctl.lock);
}

static void install_fork(void)
{
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static int watch(int fd, void *ptr)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = ptr};

	return epoll_ctl(df_ctl.epoll_fd, EPOLL_CTL_ADD, fd, &e) ? -EIO : 0;
}

/*
 * Makes the listening sockets. local: our address for other nodes, or NULL. Returns -EMFILE if one
 * of them lacks a descriptor. Without any socket, a job of one process still runs.
 */
static int name_sockets(struct df_member *m, const union df_sockaddr *local)
{
	union df_sockaddr addr;

	m->sock = df_addr_random();
	df_ctl.began_as = geteuid();
	df_ctl.unix_fd = df_link_listen_unix(m->sock);
	if (df_ctl.unix_fd < 0)
		m->sock = 0;
	if (df_ctl.unix_fd == -EMFILE)
		return -EMFILE;

	if (!local)
		return 0;
	addr = *local;
	df_ctl.tcp_fd = df_addr_listen(&addr, DF_LINK_BACKLOG);
	if (df_ctl.tcp_fd < 0)
		return df_ctl.tcp_fd == -EMFILE ? -EMFILE : 0;
	df_addr_format(&addr, m->tcp, sizeof(m->tcp));
	df_ctl.scope = addr.sa.sa_family == AF_INET6 ? addr.in6.sin6_scope_id : 0;
	return 0;
}

/*
 * last: the limit of open files has been raised already, so start even if some sockets are
 * missing.
 */
static int try_start(const union df_sockaddr *local, int last)
{
	struct df_member *m = &df_ctl.self;
	int ret;

	memset(m, 0, sizeof(*m));
	m->proc = df_addr_random();
	ret = df_key_make(&m->key);
	if (ret)
		return ret;
	m->host = df_addr_host_hash();
	m->pid = (uint32_t)getpid();
	m->version = DF_CTL_WIRE_VERSION;
	gethostname(m->hostname, sizeof(m->hostname) - 1);
	df_text_clean(m->hostname, strlen(m->hostname));
	df_list_init(&df_ctl.waiters);
	df_list_init(&df_ctl.links);
	df_list_init(&df_ctl.dead_links);
	df_tree_init();
	df_ctl.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	df_ctl.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	df_ctl.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (df_ctl.epoll_fd < 0 || df_ctl.event_fd < 0) {
		ret = -errno;
		goto err_close;
	}
	ret = name_sockets(m, local);
	if (ret && !last)
		goto err_close;
	ret = watch(df_ctl.event_fd, &df_ctl.event_fd);
	if (!ret && df_ctl.unix_fd >= 0)
		ret = watch(df_ctl.unix_fd, &df_ctl.unix_fd);
	if (!ret && df_ctl.tcp_fd >= 0)
		ret = watch(df_ctl.tcp_fd, &df_ctl.tcp_fd);
	if (ret)
		goto err_close;
	ret = df_thread_start("dfshim-ctl", 1 << 20, loop, NULL);
	if (ret)
		goto err_close;
	__atomic_store_n(&poke_fd, df_ctl.event_fd, __ATOMIC_RELAXED);
	df_ctl.started = 1;
	return 0;

err_close:
	close_fd(&df_ctl.epoll_fd);
	close_fd(&df_ctl.event_fd);
	close_fd(&df_ctl.unix_fd);
	close_fd(&df_ctl.tcp_fd);
	close_fd(&df_ctl.spare_fd);
	return ret;
}

#define COMMON_LIMIT 1024 /* the soft limit of open files that most systems set */

static int start_locked(const union df_sockaddr *local)
{
	int ret;

	/*
	 * A higher limit is raised only when it is reached, because some programs close every
	 * number below the limit.
	 */
	df_addr_raise_files(COMMON_LIMIT);
	ret = try_start(local, 0);
	if (ret == -EMFILE) {
		df_addr_raise_files(RLIM_INFINITY);
		ret = try_start(local, 1);
	}
	return ret;
}

static int is_started(void)
{
	int started;

	df_ctl_lock();
	started = df_ctl.started;
	df_ctl_unlock();
	return started;
}

int df_ctl_start(void)
{
	struct df_iface local;
	int ret = 0, nr;

	pthread_once(&fork_once, install_fork);
	if (is_started())
		return 0;
	/* Called without the lock, because it may ask the resolver. */
	nr = df_ifaces_chosen(&local, 1);
	df_ifaces_log();
	df_ctl_lock();
	if (!df_ctl.started) {
		ret = start_locked(nr > 0 ? &local.addr : NULL);
		if (ret)
			df_ctl_note("cannot start the control plane: %s", strerror(-ret));
	}
	df_ctl_unlock();
	return ret;
}

int df_ctl_self(struct df_member *out)
{
	int ret = df_ctl_start();

	if (ret)
		return ret;
	df_ctl_lock();
	*out = df_ctl.self;
	df_ctl_unlock();
	return 0;
}
