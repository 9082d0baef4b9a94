/*
 * Description: dfshim waits for a peer whose first bytes arrive late. Connections that send nothing
 * take neither its place nor all descriptors.
 */
#include "tests/transport/sides.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "runtime/base/net/sockaddr.h"
#include "runtime/transport/net/socket/socket.h"

#define TIMEOUT_MS (2000 * df_test_slow())
#define CROWD	   300
#define FILES	   200

/*
 * Delays of the network thread, as if it got no processor: before it sends or answers a hello, and
 * when it waits for descriptors after both. Counters of its hellos and waits. Atomic.
 */
static unsigned int before_hello_ms, asleep_ms, hellos, looks;
static int accepts; /* this side's first bytes are answers; set before the network starts */

ssize_t send(int fd, const void *at, size_t n, int flags)
{
	if (n == (accepts ? sizeof(struct answer) : sizeof(struct hello))) {
		__atomic_add_fetch(&hellos, 1, __ATOMIC_RELAXED);
		usleep(__atomic_exchange_n(&before_hello_ms, 0, __ATOMIC_RELAXED) * 1000);
	}
	return syscall(SYS_sendto, fd, at, n, flags, NULL, 0);
}

int ppoll(struct pollfd *v, nfds_t n, const struct timespec *timeout, const sigset_t *mask)
{
	struct timespec left = timeout ? *timeout : (struct timespec){0};

	if (__atomic_load_n(&hellos, __ATOMIC_RELAXED) == 2)
		usleep(__atomic_exchange_n(&asleep_ms, 0, __ATOMIC_RELAXED) * 1000);
	return (int)syscall(SYS_ppoll, v, n, timeout ? &left : NULL, mask, sizeof(*mask));
}

int epoll_wait(int fd, struct epoll_event *e, int n, int timeout_ms)
{
	__atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED);
	return (int)syscall(SYS_epoll_pwait, fd, e, n, timeout_ms, NULL, 0);
}

static int connects(const struct df_member *peer)
{
	return self.proc < peer->proc;
}

/*
 * Uses a connector of the side that connects, at step `at`. That side does not look for a
 * connector, because it would then help its network thread.
 */
static void meet(struct world *w, const struct df_member *peer, int at)
{
	struct df_net_counts n;
	struct df_conn *c;
	struct df_kconn k;
	struct df_peer *p;

	ck_assert_int_eq(peer_get(w->tl, peer, &p), 0);
	if (!connects(peer)) {
		c = find(w->tl, p, 7);
		ck_assert_int_eq(w->tl->use(c), 0);
	} else {
		ck_assert_int_eq(make(w->tl, p, 7, 2, 64, 0, &c, &k), 0);
	}
	step(w, at);
	df_net_counts(&n);
	ck_assert_uint_eq(n.faults, 0);
	ck_assert_uint_eq(n.lost, 0);
	if (!connects(peer))
		w->tl->forget(c);
	else
		ck_assert_int_eq(w->tl->close(c), 0);
	w->tl->peer_put(p);
}

/* The hello arrives after 6 s. */
static int late(struct world *w, int side, const struct df_member *peer)
{
	(void)side;
	if (connects(peer))
		before_hello_ms = 6000;
	meet(w, peer, 2);
	/* One stream is for small frames, one for slices. */
	if (connects(peer))
		ck_assert_uint_eq(__atomic_load_n(&hellos, __ATOMIC_RELAXED), 2);
	return 0;
}

START_TEST(t_late)
{
	play(late);
}
END_TEST

/*
 * The answer arrives while the connecting side gets no processor for longer than the time-out. It
 * must be found afterwards.
 */
static int away(struct world *w, int side, const struct df_member *peer)
{
	(void)side;
	accepts = !connects(peer);
	if (connects(peer))
		asleep_ms = 3 * (unsigned int)TIMEOUT_MS / 2;
	else
		before_hello_ms = 500;
	meet(w, peer, 2);
	ck_assert_uint_eq(__atomic_load_n(&asleep_ms, __ATOMIC_RELAXED), 0);
	return 0;
}

START_TEST(t_away)
{
	play(away);
}
END_TEST

/* Opens `n` connections to the other side and sends nothing on them. */
static void crowd(const struct df_member *peer, int fd[CROWD], int n)
{
	union df_sockaddr to;
	int i;

	ck_assert_int_eq(df_addr_parse(peer->net, &to, 1), 0);
	for (i = 0; i < n; i++) {
		fd[i] = socket(to.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ck_assert_int_ge(fd[i], 0);
		ck_assert_int_eq(connect(fd[i], &to.sa, df_addr_len(&to)), 0);
	}
}

static int nr_kept(const int fd[CROWD])
{
	int i, n = 0;
	char c;

	for (i = 0; i < CROWD; i++)
		n += recv(fd[i], &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
	return n;
}

static int behind(struct world *w, const struct df_member *peer, int most)
{
	int fd[CROWD], i;

	if (connects(peer))
		crowd(peer, fd, CROWD);
	step(w, 1);
	meet(w, peer, 2);
	if (!connects(peer))
		return 0;
	ck_assert_int_le(nr_kept(fd), most);
	ck_assert_int_gt(nr_kept(fd), 0);
	for (i = 0; i < CROWD; i++)
		close(fd[i]);
	return 0;
}

/* A few more connections than the bound may be in the listener's queue. */
static int strangers(struct world *w, int side, const struct df_member *peer)
{
	(void)side;
	return behind(w, peer, 256);
}

START_TEST(t_strangers)
{
	play(strangers);
}
END_TEST

static int files(struct world *w, int side, const struct df_member *peer)
{
	struct rlimit r = {FILES, FILES};

	(void)side;
	if (!connects(peer))
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &r), 0);
	return behind(w, peer, FILES / 4);
}

START_TEST(t_files)
{
	play(files);
}
END_TEST

/*
 * The listening side has no descriptors and no silent connections to close. A new connection waits
 * until there is a descriptor. Meanwhile the thread that accepts checks from time to time only.
 */
static int full(struct world *w, int side, const struct df_member *peer)
{
	struct rlimit r = {FILES, FILES};
	int fd[CROWD], own[FILES], nr = 0;
	unsigned int before;
	struct df_peer *p;

	(void)side;
	if (connects(peer)) {
		step(w, 1);
		crowd(peer, fd, 1);
		step(w, 2);
		step(w, 3);
		meet(w, peer, 4);
		close(fd[0]);
		return 0;
	}
	ck_assert_int_eq(peer_get(w->tl, peer, &p), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &r), 0);
	while ((own[nr] = dup(0)) >= 0)
		nr++;
	ck_assert_int_eq(errno, EMFILE);
	step(w, 1);
	step(w, 2);
	before = __atomic_load_n(&looks, __ATOMIC_RELAXED);
	usleep(1000000);
	ck_assert_uint_le(__atomic_load_n(&looks, __ATOMIC_RELAXED) - before, 100);
	while (nr)
		close(own[--nr]);
	step(w, 3);
	meet(w, peer, 4);
	w->tl->peer_put(p);
	return 0;
}

START_TEST(t_full)
{
	play(full);
}
END_TEST

int main(void)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", TIMEOUT_MS);
	setenv("DFSHIM_NET_TIMEOUT_MS", text, 1);
	return DF_TESTS("connections whose first words are late", {.before = choose_network},
			{t_late}, {t_away}, {t_strangers}, {t_files}, {t_full});
}
