/* Description: connections from outside the job, on both sockets, disturb no process. */
#define _GNU_SOURCE
#include "runtime/ctl/accept.h"
#include "runtime/ctl/greet.h"
#include "tests/ctl/ctl_test.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "runtime/ctl/link.h"
#include "runtime/ctl/rdv.h"
#include "runtime/ctl/tree_int.h"
#include "tests/ctl/greet.h"

#define NR_RANKS 3

static unsigned char ids[1][128];
static uint32_t stop_outsiders;

static int open_socket(const struct df_member *m, int tcp)
{
	union df_sockaddr addr;
	socklen_t len;
	int fd;

	if (tcp) {
		ck_assert_int_eq(df_addr_parse(m->tcp, &addr, 1), 0);
		len = df_addr_len(&addr);
	} else {
		len = df_addr_unix(m->sock, &addr);
	}
	fd = socket(addr.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	if (connect(fd, &addr.sa, len)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void say(int fd, const void *data, size_t bytes)
{
	(void)!send(fd, data, bytes, MSG_NOSIGNAL);
}

/* Waits until the other end hangs up. Returns the number of bytes that it sent before. */
static size_t hung_up(int fd)
{
	size_t said = 0;
	char c[256];
	ssize_t n;

	while ((n = recv(fd, c, sizeof(c), 0)) > 0)
		said += (size_t)n;
	return said;
}

static int still_open(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

/* Sends a frame that announces another length than its body has. */
static void frame(int fd, unsigned type, const void *body, size_t bytes, size_t said_bytes)
{
	struct df_frame f = gr_frame(type, said_bytes);

	say(fd, &f, sizeof(f));
	if (bytes)
		say(fd, body, bytes);
}

#define NR_KINDS 20

/*
 * Makes one wrong connection. The process must hang up, and reveal nothing unless the outsider
 * already knows a secret.
 */
static void one_outsider(const struct df_member *m, struct df_rng *r, int kind, int tcp)
{
	struct df_greet g = {.name = m->proc};
	struct df_key wrong, session;
	size_t i, said, answer = 0;
	struct df_id_tail tail;
	struct gr_answer a;
	uint64_t body[64];
	char junk[512];
	int fd = open_socket(m, tcp), knows = 0;

	if (fd < 0)
		return;
	for (i = 0; i < sizeof(junk); i++)
		junk[i] = (char)df_rng_u64(r);
	for (i = 0; i < 64; i++)
		body[i] = df_rng_u64(r);
	memcpy(&wrong, junk, sizeof(wrong));
	memcpy(&g.challenge, junk + 16, sizeof(g.challenge));
	ck_assert_int_eq(df_id_open(ids[0], &tail), 0);
	/* Kinds from 12 on know the secret, and make another mistake. */
	if (kind >= 12) {
		if (kind < 15 ? gr_greet(fd, tail.nonce, &tail.secret, &session)
			      : gr_greet(fd, m->proc, &m->key, &session)) {
			close(fd);
			return;
		}
		knows = 1;
	}
	switch (kind) {
	case 0: /* sends nothing */
		close(fd);
		return;
	case 1: /* random bytes */
		say(fd, junk, sizeof(junk));
		break;
	case 2: /* half a header, then the end */
		say(fd, &(uint32_t){DF_FRAME_MAGIC}, 4);
		close(fd);
		return;
	case 3: /* a frame that is too long */
		frame(fd, DF_FRAME_GREET, NULL, 0, 1u << 30);
		break;
	case 4: /* a name that belongs to no process and no id */
		g.name = body[0];
		gr_say(fd, DF_FRAME_GREET, &g, sizeof(g));
		break;
	case 5: /* unknown first frames */
		gr_say(fd, (unsigned)df_rng_below(r, 65536), body, 64);
		break;
	case 6: /* frames of a member without a greeting */
		gr_say(fd, DF_FRAME_TREE_HELLO, body, sizeof(struct hop));
		break;
	case 7:
		gr_say(fd, DF_FRAME_PING, NULL, 0);
		break;
	case 8: /* another version */
		junk[0] = 0;
		say(fd, &(struct df_frame){.magic = DF_FRAME_MAGIC, .version = 99},
		    sizeof(struct df_frame));
		break;
	case 9: /* a greeting that is too short */
		gr_say(fd, DF_FRAME_GREET, &g, 8);
		break;
	case 10: /* the public name of a process, and a wrong secret */
	case 11: /* the public name of an id, and a wrong secret */
		if (kind == 11)
			g.name = tail.nonce;
		gr_say(fd, DF_FRAME_GREET, &g, sizeof(g));
		answer = sizeof(a);
		if (recv(fd, &a, sizeof(a), MSG_WAITALL) != (ssize_t)sizeof(a))
			break;
		answer = 0;
		wrong = df_auth_proof(&wrong, DF_PROOF_CONNECTS, &g, sizeof(g), &a.body.challenge);
		/* The process's own proof, sent back, is not accepted. */
		gr_say(fd, DF_FRAME_PROOF, df_rng_below(r, 2) ? &wrong : &a.body.proof,
		       sizeof(wrong));
		gr_say(fd, kind == 11 ? DF_FRAME_RDV_HELLO : DF_FRAME_PING, &m->proc, 8);
		break;
	case 12: /* the right id, then random bytes */
		gr_say(fd, DF_FRAME_RDV_HELLO, body, 8);
		gr_say(fd, DF_FRAME_RDV_TABLE, junk, sizeof(junk));
		break;
	case 13: /* everything is right except the length */
		gr_say(fd, DF_FRAME_RDV_HELLO, body, 16);
		break;
	case 14: /* the id's secret is not the process's secret */
		gr_say(fd, DF_FRAME_PING, NULL, 0);
		break;
	case 15:
		gr_say(fd, DF_FRAME_TREE_HELLO, body, sizeof(struct hop) + 8);
		break;
	case 16:
		gr_say(fd, DF_FRAME_FETCH, body, 32);
		break;
	case 17:
		gr_say(fd, DF_FRAME_PING, body, 16);
		break;
	case 18: /* a second greeting */
		gr_say(fd, DF_FRAME_GREET, &g, sizeof(g));
		break;
	default: /* more masked bytes than bytes */
		say(fd,
		    &(struct df_frame){.magic = DF_FRAME_MAGIC,
				       .version = DF_CTL_VERSION,
				       .type = DF_FRAME_PING,
				       .masked = 1},
		    sizeof(struct df_frame));
		break;
	}
	said = hung_up(fd);
	ck_assert_msg(said <= answer || knows, "an outsider of kind %d received %zu bytes", kind,
		      said);
	close(fd);
}

static void *outsiders(void *arg)
{
	const struct df_member *m = arg;
	struct df_rng r;
	int n;

	df_rng_init(&r, df_test_seed());
	for (n = 0; !__atomic_load_n(&stop_outsiders, __ATOMIC_ACQUIRE);
	     n++) /* pairs with t_noise() and member() */
		one_outsider(m, &r, (int)df_rng_below(&r, NR_KINDS), m->tcp[0] && n % 2);
	return NULL;
}

/*
 * A wrong connection is closed because of its bytes and not because of its age: a silent connection
 * that is older is still open.
 */
START_TEST(t_at_once)
{
	struct df_member self;
	struct df_rng r;
	int tcp, kind, turn, before, silent;

	df_rng_init(&r, df_test_seed());
	ck_assert_int_eq(df_ctl_self(&self), 0);
	ck_assert_int_eq(df_id_create(ids[0]), 0);
	for (tcp = 0; tcp < (self.tcp[0] ? 2 : 1); tcp++) {
		for (kind = 0; kind < NR_KINDS; kind++) {
			/* On a slow machine both may be closed before the check. */
			for (turn = 0, before = 0; turn < 5 && !before; turn++) {
				silent = open_socket(&self, tcp);
				ck_assert_int_ge(silent, 0);
				one_outsider(&self, &r, kind, tcp);
				before = still_open(silent);
				close(silent);
			}
			ck_assert_msg(before, "an outsider of kind %d stays", kind);
		}
	}
}
END_TEST

/* Ranks arrive one by one and gather while outsiders connect all the time. */
START_TEST(t_noise)
{
	struct ct_rank r[NR_RANKS];
	struct df_member self;
	pthread_t thread;
	int i, turn;

	ck_assert_int_eq(df_ctl_self(&self), 0);
	ck_assert_int_eq(df_id_create(ids[0]), 0);
	pthread_create(&thread, NULL, outsiders, &self);
	for (i = 0; i < NR_RANKS; i++) {
		r[i] = (struct ct_rank){
			.ids = (const unsigned char(*)[128])ids, .nranks = NR_RANKS, .rank = i};
		usleep(100000);
		pthread_create(&r[i].thread, NULL, ct_join_thread, &r[i]);
	}
	for (i = 0; i < NR_RANKS; i++) {
		pthread_join(r[i].thread, NULL);
		ck_assert_int_eq(r[i].ret, 0);
	}
	usleep(200000);
	__atomic_store_n(&stop_outsiders, 1, __ATOMIC_RELEASE); /* pairs with outsiders() */
	pthread_join(thread, NULL);
	for (turn = 0; turn < NR_RANKS; turn++)
		df_ctl_leave(r[turn].comm);
}
END_TEST

/*
 * The same with members in processes of their own. The process to which the outsiders connect is a
 * relay.
 */
static struct ct_share *share;

static int member(int index, void *arg)
{
	struct ct_rank r;
	struct df_member self;
	pthread_t thread;
	int i;

	(void)arg;
	ck_assert_int_eq(df_ctl_self(&self), 0);
	if (index == 0)
		ck_assert_int_eq(df_id_create(share->ids[0]), 0);
	ct_arrive(share, 0, NR_RANKS);
	memcpy(ids[0], share->ids[0], 128);
	pthread_create(&thread, NULL, outsiders, &self);
	r = (struct ct_rank){
		.ids = (const unsigned char(*)[128])ids, .nranks = NR_RANKS, .rank = index};
	ck_assert_int_eq(ct_join(&r), 0);
	for (i = 0; i < 300; i++)
		ck_assert_int_eq(ct_gather(r.comm, index, NR_RANKS, (uint64_t)i, 3, NULL), 0);
	__atomic_store_n(&stop_outsiders, 1, __ATOMIC_RELEASE); /* pairs with outsiders() */
	pthread_join(thread, NULL);
	ct_arrive(share, 1, NR_RANKS);
	return 0;
}

START_TEST(t_noise_processes)
{
	pid_t pid[NR_RANKS];
	int i;

	share = ct_shared(sizeof(*share));
	for (i = 0; i < NR_RANKS; i++)
		pid[i] = ct_fork(member, i, NULL);
	for (i = 0; i < NR_RANKS; i++)
		ck_assert_int_eq(ct_wait(pid[i]), 0);
}
END_TEST

/* More silent connections than a process keeps. The oldest are closed, and ranks can still join. */
START_TEST(t_silent)
{
	struct ct_rank r[2];
	struct df_member self;
	int fd[DF_LINK_STRANGERS + 150], i, n = 0, most = _i ? 60 : DF_LINK_STRANGERS;
	struct rlimit files;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	/* Both limits, because the control plane raises the soft limit to the hard one. */
	files.rlim_cur = files.rlim_max = 8 * (rlim_t)most;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	ck_assert_int_eq(df_ctl_self(&self), 0);
	for (i = 0; i < DF_LINK_STRANGERS + 150; i++)
		fd[i] = open_socket(&self, self.tcp[0] && i % 2);
	for (i = 0; i < 20000; i++) {
		df_ctl_lock();
		n = df_ctl.nr_strangers;
		df_ctl_unlock();
		if (n >= most)
			break;
		usleep(500);
	}
	ck_assert_int_eq(n, most);
	ck_assert_uint_eq(hung_up(fd[0]), 0);
	ck_assert_int_eq(df_id_create(ids[0]), 0);
	ct_join_all(r, (const unsigned char(*)[128])ids, 1, 2, 0, 1);
	ck_assert_int_eq(r[0].ret | r[1].ret, 0);
	df_ctl_leave(r[0].comm);
	df_ctl_leave(r[1].comm);
	for (i = 0; i < DF_LINK_STRANGERS + 150; i++)
		close(fd[i]);
	for (i = 0; i < 20000 && n; i++) {
		df_ctl_lock();
		n = df_ctl.nr_strangers;
		df_ctl_unlock();
		usleep(500);
	}
	ck_assert_int_eq(n, 0);
}
END_TEST

/*
 * Silent connections take all places, for long enough. A connection that sends a greeting gets the
 * place of the oldest at once, and the others stay open. Otherwise it would have to wait until all
 * of them expire.
 */
START_TEST(t_room)
{
	int fd[DF_LINK_STRANGERS], knock, i, turn, n, stayed;
	struct df_member self;
	struct df_key session;
	char c;

	ck_assert_int_eq(df_ctl_self(&self), 0);
	/* On a slow machine the silent connections may expire. */
	for (turn = 0, stayed = 0; turn < 5 && !stayed; turn++) {
		for (i = 0; i < DF_LINK_STRANGERS; i++)
			fd[i] = open_socket(&self, 0);
		do {
			usleep(1000);
			df_ctl_lock();
			n = df_ctl.nr_strangers;
			df_ctl_unlock();
		} while (n != DF_LINK_STRANGERS);
		/* While an outsider's connection is young, others wait. */
		usleep(1100000);
		knock = open_socket(&self, 0);
		ck_assert_int_eq(gr_greet(knock, self.proc, &self.key, &session), 0);
		gr_say(knock, DF_FRAME_PING, NULL, 0);
		ck_assert_int_eq(recv(knock, &c, 1, 0), 1);
		ck_assert_msg(!still_open(fd[0]), "no connection ended");
		for (i = 1, stayed = 1; i < DF_LINK_STRANGERS; i++)
			stayed &= still_open(fd[i]);
		close(knock);
		for (i = 0; i < DF_LINK_STRANGERS; i++)
			close(fd[i]);
		do {
			usleep(1000);
			df_ctl_lock();
			n = df_ctl.nr_strangers;
			df_ctl_unlock();
		} while (n);
	}
	ck_assert_msg(stayed, "no place was made for the new connection");
}
END_TEST

/*
 * Everything that a member sent in a greeting was recorded. An outsider cannot use it in the next
 * greeting.
 */
START_TEST(t_replay)
{
	struct df_greet g = {0};
	struct df_member self;
	struct gr_answer a;
	struct df_key proof = {0};
	int fd, turn;

	ck_assert_int_eq(df_ctl_self(&self), 0);
	g.name = self.proc;
	ck_assert_int_eq(df_key_make(&g.challenge), 0);
	for (turn = 0; turn < 2; turn++) {
		fd = open_socket(&self, 0);
		gr_say(fd, DF_FRAME_GREET, &g, sizeof(g));
		ck_assert_int_eq(recv(fd, &a, sizeof(a), MSG_WAITALL), sizeof(a));
		if (!turn)
			proof = df_auth_proof(&self.key, DF_PROOF_CONNECTS, &g, sizeof(g),
					      &a.body.challenge);
		gr_say(fd, DF_FRAME_PROOF, &proof, sizeof(proof));
		gr_say(fd, DF_FRAME_PING, NULL, 0);
		/* In the first turn the answer is a PONG. */
		ck_assert_uint_eq(hung_up(fd), turn ? 0 : sizeof(struct df_frame));
		close(fd);
	}
}
END_TEST

static void fetched(void *arg, int error, const int *fds, const uint64_t *bytes, int nr)
{
	(void)fds, (void)bytes;
	/* Not -ECONNRESET, which would mean that the process has died. */
	*(int *)arg = nr ? 1 : error;
}

/* Answers a greeting at m's socket with a false proof, in a frame that announces `bytes` bytes. */
static void impostor(struct df_member m, uint32_t bytes)
{
	struct gr_answer a = {.frame = gr_frame(DF_FRAME_ANSWER, bytes)};
	union df_sockaddr addr;
	int listener, fd, error = 0;
	socklen_t len;
	struct {
		struct df_frame frame;
		struct df_greet body;
	} g;

	m.proc = df_addr_random();
	m.sock = df_addr_random();
	len = df_addr_unix(m.sock, &addr);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, &addr.sa, len), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(df_fetch_start(&m, 0, fetched, &error), 0);
	fd = accept(listener, NULL, NULL);
	ck_assert_int_eq(recv(fd, &g, sizeof(g), MSG_WAITALL), sizeof(g));
	ck_assert_uint_eq(g.body.name, m.proc);
	ck_assert_int_eq(df_key_make(&a.body.challenge), 0);
	ck_assert_int_eq(df_key_make(&a.body.proof), 0);
	say(fd, &a, sizeof(a));
	ck_assert_uint_eq(hung_up(fd), 0);
	df_ctl_lock();
	ck_assert_int_eq(error, -EAGAIN);
	df_ctl_unlock();
	close(fd);
	close(listener);
}

/*
 * If the other end does not know the secret, the connecting end proves nothing, sends nothing, and
 * does not wait for a long frame.
 */
START_TEST(t_impostor)
{
	struct df_member self;

	ck_assert_int_eq(df_ctl_self(&self), 0);
	impostor(self, sizeof(struct df_greet_answer));
	impostor(self, 1 << 20);
}
END_TEST

static int nr_finished_closed;

static void finished_closed(struct df_link *link, int error)
{
	(void)link, (void)error;
	nr_finished_closed++;
}

/*
 * A connection that is to be closed after its last frame ends even if the other end never answers
 * the greeting.
 */
START_TEST(t_finish_unanswered)
{
	static const struct df_link_ops ops = {.name = "test", .closed = finished_closed};
	union df_sockaddr addr;
	struct df_member self, m;
	struct df_link *link;
	int listener, fd, error = 0;

	ck_assert_int_eq(df_ctl_self(&self), 0);
	memset(&addr, 0, sizeof(addr));
	addr.in.sin_family = AF_INET;
	addr.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = df_addr_listen(&addr, 1);
	ck_assert_int_ge(listener, 0);
	m = self;
	m.proc = df_addr_random();
	m.host = ~self.host;
	df_addr_format(&addr, m.tcp, sizeof(m.tcp));
	df_ctl_lock();
	link = df_link_open_member(&m, &ops, NULL, &error);
	ck_assert_ptr_ne(link, NULL);
	df_link_send(link, DF_FRAME_PING, NULL, 0, NULL, 0);
	df_link_finish(link);
	df_ctl_unlock();
	do {
		fd = accept(listener, NULL, NULL);
	} while (fd < 0 && (errno == EAGAIN || errno == EINTR) && !usleep(1000));
	ck_assert_int_ge(fd, 0);
	/* Only the greeting, then the end. */
	ck_assert_uint_eq(hung_up(fd), sizeof(struct df_frame) + sizeof(struct df_greet));
	df_ctl_lock();
	ck_assert_int_eq(nr_finished_closed, 0);
	df_ctl_unlock();
	close(fd);
	close(listener);
}
END_TEST

/*
 * Runs `fn` in a process of another user that knows all secrets. Its exit status says how the
 * connection went.
 */
static pid_t as_other_user(int (*fn)(const struct df_member *m), const struct df_member *m)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(99);
		/* A change of the user clears this setting. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(fn(m));
	}
	return pid;
}

static int connects(const struct df_member *m)
{
	struct df_key session;
	int fd = open_socket(m, 0);

	return fd < 0 || !gr_greet(fd, m->proc, &m->key, &session);
}

static int accepts(const struct df_member *m)
{
	union df_sockaddr addr;
	socklen_t len = df_addr_unix(m->sock, &addr);
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;

	if (bind(listener, &addr.sa, len) || listen(listener, 1))
		return 98;
	fd = accept(listener, NULL, NULL);
	return !gr_accept(fd, m->proc, &m->key);
}

/* Another user gets no connection over a unix socket at either end, even if it knows the secret. */
START_TEST(t_other_user)
{
	struct df_member self, m;
	union df_sockaddr addr;
	socklen_t len;
	int error = 0, fd;
	pid_t pid;

	if (geteuid()) {
		printf("not root: no process of another user can be made\n");
		return;
	}
	ck_assert_int_eq(df_ctl_self(&self), 0);
	ck_assert_int_eq(ct_wait(as_other_user(connects, &self)), 0);
	m = self;
	m.proc = df_addr_random();
	m.sock = df_addr_random();
	pid = as_other_user(accepts, &m);
	len = df_addr_unix(m.sock, &addr);
	/*
	 * Wait until the process listens. This connection sends nothing and is the first in the
	 * queue.
	 */
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	while (connect(fd, &addr.sa, len)) {
		ck_assert_int_eq(errno, ECONNREFUSED);
		ck_assert_int_eq(waitpid(pid, NULL, WNOHANG), 0);
		usleep(1000);
	}
	/* The result is as if nothing listened there. */
	ck_assert_int_eq(df_fetch_start(&m, 0, fetched, &error), -ECONNRESET);
	close(fd);
	ck_assert_int_eq(ct_wait(pid), 0);
}
END_TEST

static int changes_user(int index, void *arg)
{
	struct df_member self;
	int error = 1, left = 1;

	(void)index, (void)arg;
	if (df_ctl_self(&self) || setresuid(65534, 65534, 65534) ||
	    df_fetch_start(&self, 0, fetched, &error))
		return 1;
	while (left) {
		usleep(1000);
		df_ctl_lock();
		left = error > 0;
		df_ctl_unlock();
	}
	return error != 0;
}

/* A job may change its user after its sockets were made. */
START_TEST(t_changed_user)
{
	if (geteuid()) {
		printf("not root: no process can change its user\n");
		return;
	}
	ck_assert_int_eq(ct_wait(ct_fork(changes_user, 0, NULL)), 0);
}
END_TEST

/* A process that knows an id but no process's key may only join by the id. */
START_TEST(t_id_only)
{
	struct hop hop = {.proc = df_addr_random()};
	struct df_frame f = gr_frame(DF_FRAME_TREE_HELLO, sizeof(hop));
	uint64_t first = 0, at = 0;
	struct df_key session;
	struct df_member self;
	struct df_id_tail tail;
	int fd, kind;

	ck_assert_int_eq(df_ctl_self(&self), 0);
	ck_assert_int_eq(df_id_create(ids[0]), 0);
	ck_assert_int_eq(df_id_open(ids[0], &tail), 0);
	hop.host = self.host;
	for (kind = 0; kind < 3; kind++) {
		fd = open_socket(&self, 0);
		ck_assert_int_eq(gr_greet(fd, tail.nonce, &tail.secret, &session), 0);
		if (kind == 0) {
			df_greet_mask(&session, &at, &hop, sizeof(hop));
			f.masked = f.bytes;
			say(fd, &f, sizeof(f));
			say(fd, &hop, sizeof(hop));
		} else if (kind == 1) {
			gr_say(fd, DF_FRAME_FETCH, &first, sizeof(first));
		} else {
			gr_say(fd, DF_FRAME_PING, NULL, 0);
		}
		ck_assert_msg(!hung_up(fd), "kind %d was answered", kind);
		close(fd);
	}
}
END_TEST

/*
 * When a rank joins, the bytes on its connection do not contain a process's key in the clear. After
 * unmasking they do.
 */
START_TEST(t_masked)
{
	static uint8_t got[4096];
	struct df_checkin ci = {.nranks = 1, .nr_ids = 1};
	struct df_frame f = gr_frame(DF_FRAME_RDV_CHECKIN, sizeof(ci));
	struct df_key session, key;
	struct df_member self;
	struct df_id_tail tail;
	uint64_t at = 0;
	size_t n;
	int fd;

	ck_assert_int_eq(df_ctl_self(&self), 0);
	ck_assert_int_eq(df_id_create(ids[0]), 0);
	ck_assert_int_eq(df_id_open(ids[0], &tail), 0);
	ck_assert_int_eq(df_key_make(&key), 0);
	fd = open_socket(&self, 0);
	ck_assert_int_eq(gr_greet(fd, tail.nonce, &tail.secret, &session), 0);
	memcpy(ci.id0, ids[0], sizeof(ci.id0));
	ci.member = self;
	ci.member.key = key;
	ci.member.proc = ci.part = df_addr_random();
	gr_say(fd, DF_FRAME_RDV_HELLO, &ci.member.proc, 8);
	df_greet_mask(&session, &at, &ci, sizeof(ci));
	f.masked = f.bytes;
	say(fd, &f, sizeof(f));
	say(fd, &ci, sizeof(ci));
	n = sizeof(f) + df_rdv_table_secret(1) + sizeof(struct df_member) + 8;
	ck_assert_int_eq(recv(fd, got, n, MSG_WAITALL), n);
	memcpy(&f, got, sizeof(f));
	ck_assert_int_eq(f.type, DF_FRAME_RDV_TABLE);
	ck_assert_ptr_eq(memmem(got, n, &key, sizeof(key)), NULL);
	/* The accepting end uses its own positions in the key stream. */
	at = 1ull << 63;
	df_greet_mask(&session, &at, got + sizeof(f), f.masked);
	ck_assert_ptr_ne(memmem(got, n, &key, sizeof(key)), NULL);
	close(fd);
}
END_TEST

/*
 * A rank without dfshim speaks NCCL's bootstrap protocol to the address in the id. All ranks fail
 * with the reason.
 */
START_TEST(t_unshimmed)
{
	struct ct_rank r = {.ids = (const unsigned char(*)[128])ids, .nranks = 2};
	struct df_member self;
	int fd;

	ck_assert_int_eq(df_ctl_self(&self), 0);
	ck_assert_int_eq(df_id_create(ids[0]), 0);
	pthread_create(&r.thread, NULL, ct_join_thread, &r);
	fd = open_socket(&self, self.tcp[0] != 0);
	ck_assert_int_ge(fd, 0);
	/* NCCL's magic number and type, then the rank's data. */
	say(fd, ids[0], 8);
	say(fd, &(uint32_t){1}, 4);
	say(fd, ids, 128);
	pthread_join(r.thread, NULL);
	ck_assert_int_eq(r.ret, -EPROTO);
	close(fd);
}
END_TEST

int main(void)
{
	return DF_TESTS("ctl outsiders", {t_at_once}, {t_noise}, {t_noise_processes},
			{t_silent, .times = 2}, {t_room}, {t_replay}, {t_impostor},
			{t_finish_unanswered}, {t_other_user}, {t_changed_user}, {t_id_only},
			{t_masked}, {t_unshimmed});
}
