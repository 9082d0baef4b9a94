/*
 * Description: an outsider knows all names and all earlier messages, but not the key. It changes
 * nothing of a link, and causes one line a minute in the log.
 */
#define _GNU_SOURCE
#include "tests/lib/test.h"
#include "tests/transport/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define FLOOD 300
#define CROWD 1000

static struct df_net_ep ep;
static struct df_net_link *their;
static char log_file[] = "/tmp/t_greeting.XXXXXX";
static struct timespec frozen; /* what clock_gettime() returns after the clock has been stopped */

int clock_gettime(clockid_t clock, struct timespec *out)
{
	if (!frozen.tv_sec)
		return (int)syscall(SYS_clock_gettime, clock, out);
	*out = frozen;
	return 0;
}

/* Redirects the log into a file. */
static void open_log(void)
{
	int fd = mkstemp(log_file);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	close(fd);
}

/* Returns the number of lines in the log that contain this text. */
static int lines(const char *text)
{
	FILE *f = fopen(log_file, "re");
	char line[1024];
	int n = 0;

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	fclose(f);
	return n;
}

static void passes(int n)
{
	while (n--)
		df_net_pass(&ep);
}

/* ---- attacks on a running session ------------------------------------------------------------ */

static struct {
	struct hello hello;
	struct answer answer;
	struct df_key proof;
} recorded;

/*
 * Connects as wire_join() does, as stream `index` of two, and records the greeting. Returns the
 * socket.
 */
static int join(int index, uint64_t session)
{
	int fd = wire_connect(&ep);
	struct outcome o;

	ck_assert_int_ge(fd, 0);
	recorded.hello = wire_hello();
	recorded.hello.nr = 2;
	recorded.hello.index = (uint16_t)index;
	recorded.hello.session = session;
	ck_assert_int_eq(df_key_make(&recorded.hello.challenge), 0);
	ck_assert_int_eq(send(fd, &recorded.hello, sizeof(recorded.hello), 0),
			 sizeof(recorded.hello));
	ck_assert_int_eq(wire_get(&ep, fd, &recorded.answer, sizeof(recorded.answer)), 1);
	recorded.proof = df_auth_proof(&ep.key, DF_PROOF_CONNECTS, &recorded.hello,
				       sizeof(recorded.hello), &recorded.answer.challenge);
	ck_assert_int_eq(send(fd, &recorded.proof, sizeof(recorded.proof), 0),
			 sizeof(recorded.proof));
	ck_assert_int_eq(wire_get(&ep, fd, &o, sizeof(o)), 1);
	ck_assert_uint_eq(o.word, WELCOME);
	return fd;
}

enum attack {
	TAKE_OVER,    /* a hello with a higher session number, followed by frames */
	WRONG_KEY,    /* a proof with a wrong key */
	OTHER_PROOF,  /* the proof that the accepting end has just sent */
	REPLAY,	      /* all that the other side sent in its greeting */
	REPLAY_PROOF, /* a new hello, with a proof that was valid for another one */
	PROBES,
	OVERS,	/* words that are valid only in other messages */
	HALVES, /* hellos and proofs that are cut off */
	OTHER_LINK,
	ATTACKS
};

static void say(int fd, const void *at, size_t bytes)
{
	ck_assert_int_eq(send(fd, at, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

/* Checks that the endpoint sends nothing more and closes the connection. */
static void hangs_up(int fd)
{
	char c;

	ck_assert_int_eq(wire_get(&ep, fd, &c, 1), 0);
	close(fd);
}

static struct df_key proof_with(const struct df_key *key, const struct hello *h,
				const struct answer *a)
{
	return df_auth_proof(key, DF_PROOF_CONNECTS, h, sizeof(*h), &a->challenge);
}

static void attack(enum attack what)
{
	const struct df_net_frame bye = {.type = DF_NET_BYE};
	struct df_key other = {{1}}, proof;
	struct hello h = recorded.hello;
	int fd = wire_connect(&ep);
	struct answer a;

	ck_assert_int_ge(fd, 0);
	h.session = what == REPLAY ? h.session : UINT64_MAX;
	if (what == PROBES)
		h.word = KNOCK;
	if (what == OTHER_LINK)
		h.from_proc++;
	if (what == OVERS) {
		h.word = OVER;
		say(fd, &h, sizeof(h));
		hangs_up(fd);
		return;
	}
	if (what == HALVES) {
		say(fd, &h, sizeof(h) - 1);
		passes(3);
		close(fd);
		fd = wire_connect(&ep);
	}
	say(fd, &h, sizeof(h));
	if (what == REPLAY)
		say(fd, &recorded.proof, sizeof(recorded.proof));
	ck_assert_int_eq(wire_get(&ep, fd, &a, sizeof(a)), 1);
	switch (what) {
	case WRONG_KEY:
	case OTHER_LINK:
		proof = proof_with(&other, &h, &a);
		break;
	case OTHER_PROOF:
		proof = a.proof;
		break;
	case REPLAY_PROOF:
		proof = recorded.proof;
		break;
	case HALVES:
		proof = proof_with(&ep.key, &h, &a);
		say(fd, &proof, sizeof(proof) - 1);
		passes(3);
		close(fd);
		passes(3);
		return;
	case REPLAY:
		hangs_up(fd);
		return;
	default:
		/* If the hello were enough, these bytes would be frames. */
		say(fd, &bye, sizeof(bye));
		hangs_up(fd);
		return;
	}
	say(fd, &proof, sizeof(proof));
	say(fd, &bye, sizeof(bye));
	hangs_up(fd);
}

static const char *const reasons[ATTACKS] = {
	[OVERS] = "is refused: it is not of this job",
};

/* Checks that each attack caused exactly one line in the log. */
static void is_told(enum attack what)
{
	const char *reason =
		reasons[what] ?: "is refused: it does not prove that it is of this job";

	ck_assert_int_eq(lines(reason), what != HALVES);
	ck_assert_int_eq(lines("refused"), what != HALVES);
	unlink(log_file);
}

START_TEST(t_attack)
{
	struct session *p;
	int fd[2];

	open_log();
	ck_assert_int_eq(wire_start(&ep), 0);
	their = df_net_link_of(&ep, THEIRS, 0, 0);
	fd[1] = join(1, 1);
	fd[0] = join(0, 1);
	ck_assert_int_eq(wire_until(&ep, their, 1), 0);
	attack((enum attack)_i);
	passes(10);
	p = their->session;
	ck_assert_int_eq(their->up, 1);
	ck_assert_int_eq(their->bye, 0);
	ck_assert_uint_eq(ep.n.faults, 0);
	ck_assert_uint_eq(p->session, 1);
	ck_assert_uint_eq(p->nr_open, 2);
	ck_assert_uint_eq(df_sessions(&ep)->nr_strangers, 0);
	ck_assert_ptr_eq(df_net_links(&ep), their);
	ck_assert_ptr_null(their->next);
	is_told((enum attack)_i);
	/* The real peer can start its next session. */
	close(join(0, 2));
	ck_assert_uint_eq(p->session, 2);
	ck_assert_uint_eq(ep.n.faults, 1);
	close(fd[0]);
	close(fd[1]);
}
END_TEST

/* ---- attacks on the side that connects ------------------------------------------------------- */

enum lie { LIE_OVER, LIE_WELCOME, LIE_KEY, LIE_HELLO, LIE_REPLAY, LIE_END, LIES };

/* Accepts a connection of the endpoint for this session or a later one, and reads its hello. */
static int taken(int listener, uint64_t session, struct hello *h)
{
	int fd, i;

	for (i = 0; i < 5000; i++) {
		df_net_pass(&ep);
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		/* Connections of failed attempts are already closed. */
		if (fd >= 0 && wire_get(&ep, fd, h, sizeof(*h)) == 1 && h->session >= session)
			return fd;
		if (fd >= 0)
			close(fd);
		else
			usleep(1000);
	}
	ck_abort_msg("no connection arrives");
}

/*
 * Answers as another process at the real peer's address, which has recorded an answer to another
 * hello.
 */
static void lie(int fd, enum lie what, const struct hello *h)
{
	struct outcome o = {.word = what == LIE_OVER ? OVER : WELCOME, .carries = DF_NET_BIT_TCP};
	struct df_key other = {{1}}, proof;
	static struct answer heard;
	struct hello another = *h;
	struct answer a = {.challenge = {{7}}};

	another.session++;
	heard.challenge = a.challenge;
	heard.proof = df_auth_proof(&their->member.key, DF_PROOF_ACCEPTS, &another, sizeof(another),
				    &a.challenge);
	switch (what) {
	case LIE_KEY:
		a.proof = df_auth_proof(&other, DF_PROOF_ACCEPTS, h, sizeof(*h), &a.challenge);
		break;
	case LIE_HELLO:
		say(fd, h, sizeof(a));
		break;
	case LIE_REPLAY:
		a = heard;
		break;
	case LIE_END:
		shutdown(fd, SHUT_RDWR);
		return;
	default:
		break;
	}
	if (what != LIE_HELLO)
		say(fd, &a, sizeof(a));
	/* An answer of another protocol would have this word in its first message. */
	(void)!send(fd, &o, sizeof(o), MSG_NOSIGNAL);
	ck_assert_int_eq(wire_get(&ep, fd, &proof, sizeof(proof)), 0);
}

/* Answers as the real peer. Returns the session's key as the peer computes it. */
static struct df_key answers(int fd, const struct hello *h)
{
	struct outcome o = {.word = WELCOME, .carries = DF_NET_BIT_TCP};
	struct answer a;
	struct df_key proof, right;

	ck_assert_int_eq(df_key_make(&a.challenge), 0);
	a.proof = df_auth_proof(&their->member.key, DF_PROOF_ACCEPTS, h, sizeof(*h), &a.challenge);
	say(fd, &a, sizeof(a));
	ck_assert_int_eq(wire_get(&ep, fd, &proof, sizeof(proof)), 1);
	right = proof_with(&their->member.key, h, &a);
	ck_assert(df_key_equal(&proof, &right));
	say(fd, &o, sizeof(o));
	return df_auth_proof(&their->member.key, DF_PROOF_SESSION, h, sizeof(*h), &a.challenge);
}

START_TEST(t_lie)
{
	struct df_key key[2], ours;
	union df_sockaddr at;
	struct hello h;
	int listener, i, fd;

	ck_assert_int_eq(wire_start(&ep), 0);
	their = df_net_link_of(&ep, THEIRS, 0, 0);
	ck_assert_int_eq(df_session_connects(their), 1);
	ck_assert_int_eq(df_key_make(&their->member.key), 0);
	ck_assert_int_eq(df_addr_parse(ep.address, &at, 1), 0);
	df_addr_set_port(&at, 0);
	listener = df_addr_listen(&at, 16);
	ck_assert_int_ge(listener, 0);
	df_addr_format(&at, their->member.net, sizeof(their->member.net));
	__atomic_store_n(&their->wanted, 1, __ATOMIC_RELEASE); /* pairs with df_net_wanted() */
	fd = taken(listener, 1, &h);
	lie(fd, (enum lie)_i, &h);
	close(fd);
	ck_assert_int_eq(their->up, 0);
	ck_assert_int_eq(df_net_dead(their), 0);
	/*
	 * The endpoint tries again until the real peer answers. Then both ends have the same key.
	 */
	for (i = 0; i < 2; i++) {
		fd = taken(listener, 2, &h);
		key[h.index] = answers(fd, &h);
	}
	ck_assert_int_eq(wire_until(&ep, their, 1), 0);
	ours = df_session_key(their);
	ck_assert(df_key_equal(&ours, &key[0]));
	ck_assert(!df_key_equal(&key[0], &key[1]));
}
END_TEST

/* ---- many connections ------------------------------------------------------------------------ */

/* Hundreds of refusals make one line in the log, and after a minute one more with their number. */
START_TEST(t_log)
{
	struct hello h = wire_hello();
	int i, fd;

	open_log();
	clock_gettime(CLOCK_MONOTONIC, &frozen);
	ck_assert_int_eq(wire_start(&ep), 0);
	h.to_proc++;
	for (i = 0; i < FLOOD; i++) {
		fd = wire_connect(&ep);
		say(fd, &h, sizeof(h));
		hangs_up(fd);
	}
	ck_assert_int_eq(lines("refused"), 1);
	ck_assert_int_eq(lines("is refused: it is not of this job"), 1);
	frozen.tv_sec += 59;
	passes(3);
	ck_assert_int_eq(lines("refused"), 1);
	ck_assert_uint_lt(df_session_timer(&ep), df_now_ns() + 2 * DF_NS_PER_S);
	frozen.tv_sec += 2;
	passes(3);
	ck_assert_int_eq(lines("refused"), 2);
	ck_assert_int_eq(lines("299 more connections to where dfshim takes data were refused"), 1);
	/* The number was reported, so no timer is set any more. */
	ck_assert_uint_eq(df_session_timer(&ep), UINT64_MAX);
	frozen.tv_sec += 200;
	passes(3);
	ck_assert_int_eq(lines("refused"), 2);
	unlink(log_file);
}
END_TEST

/*
 * Many connections send nothing, or only a hello. The real peer can connect, and the number of kept
 * connections is bounded.
 */
START_TEST(t_crowd)
{
	struct hello h = wire_hello();
	struct rlimit files;
	int i, fd, kept = 0;

	/* This process has both ends of each connection. */
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = DF_MIN(files.rlim_max, (rlim_t)2 * CROWD);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	ck_assert_int_eq(wire_start(&ep), 0);
	their = df_net_link_of(&ep, THEIRS, 0, 0);
	for (i = 0; i < CROWD; i++) {
		fd = wire_connect(&ep);
		ck_assert_int_ge(fd, 0);
		if (_i)
			say(fd, &h, sizeof(h));
		df_net_pass(&ep);
		kept = DF_MAX(kept, (int)df_sessions(&ep)->nr_strangers);
		if (i == CROWD / 2)
			join(0, 1);
	}
	passes(10);
	ck_assert_int_le(kept, STRANGERS);
	ck_assert_int_gt(kept, STRANGERS / 2);
	join(1, 1);
	ck_assert_int_eq(wire_until(&ep, their, 1), 0);
}
END_TEST

int main(void)
{
	return DF_TESTS("outsiders that know all names", {t_attack, ATTACKS}, {t_lie, LIES},
			{t_log}, {t_crowd, 2});
}
