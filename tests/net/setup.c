/*
 * An outsider at the socket over which queue pairs are set up. It knows all names, and has recorded
 * the greeting and the set-up of another session. For t_verbs_stranger.sh, which provides a
 * libibverbs.
 */
#define _GNU_SOURCE
#include "tests/lib/test.h"
#include "tests/transport/wire.h"

#include <string.h>
#include <sys/syscall.h>

static struct df_net_ep ep;
static struct timespec frozen; /* what clock_gettime() returns after the clock has been stopped */

int clock_gettime(clockid_t clock, struct timespec *out)
{
	if (!frozen.tv_sec)
		return (int)syscall(SYS_clock_gettime, clock, out);
	*out = frozen;
	return 0;
}

static void say(int fd, const void *at, size_t bytes)
{
	ck_assert_int_eq(send(fd, at, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

/* A process that has proved the key receives the numbers of queue pairs. */
static void set_up_by(int fd, struct df_net_frame *f)
{
	ck_assert_int_eq(wire_get(&ep, fd, f, sizeof(*f)), 1);
	ck_assert_uint_eq(f->type, DF_NET_SETUP);
	/* the number of a queue pair */
	ck_assert_uint_ne((uint32_t)f->aux, 0);
}

/*
 * Connects as the real peer does. Returns the socket, its hello in *h, and the proof that it sent
 * in *proof.
 */
static int join(uint64_t proc, struct hello *h, struct df_key *proof)
{
	int fd = wire_connect(&ep);
	struct outcome o;
	struct answer a;

	ck_assert_int_ge(fd, 0);
	*h = wire_hello();
	h->from_proc = proc;
	h->carries = DF_NET_BIT_VERBS;
	ck_assert_int_eq(df_key_make(&h->challenge), 0);
	say(fd, h, sizeof(*h));
	ck_assert_int_eq(wire_get(&ep, fd, &a, sizeof(a)), 1);
	*proof = df_auth_proof(&ep.key, DF_PROOF_CONNECTS, h, sizeof(*h), &a.challenge);
	say(fd, proof, sizeof(*proof));
	ck_assert_int_eq(wire_get(&ep, fd, &o, sizeof(o)), 1);
	ck_assert_uint_eq(o.word, WELCOME);
	ck_assert_uint_eq(o.carries, DF_NET_BIT_VERBS);
	return fd;
}

enum attack { NO_PROOF, WRONG_PROOF, ANSWER_AS_PROOF, REPLAY, ATTACKS };

/*
 * Connects as process `proc` without a valid proof. It must receive nothing but the greeting's
 * answer, and its set-up must not be read.
 */
static void attack(enum attack what, uint64_t proc, const struct hello *heard,
		   const struct df_key *heard_proof, const struct df_net_frame *set_up)
{
	struct df_net_link *l = df_net_link_of(&ep, proc, 0, 0);
	struct df_key proof = {{1}};
	struct hello h = *heard;
	int fd = wire_connect(&ep);
	struct answer a;
	char more;

	ck_assert_int_ge(fd, 0);
	h.from_proc = proc;
	h.session = UINT64_MAX;
	if (what == REPLAY)
		h = *heard;
	say(fd, &h, sizeof(h));
	ck_assert_int_eq(wire_get(&ep, fd, &a, sizeof(a)), 1);
	if (what == ANSWER_AS_PROOF)
		proof = a.proof;
	else if (what == REPLAY)
		proof = *heard_proof;
	if (what != NO_PROOF)
		say(fd, &proof, sizeof(proof));
	say(fd, set_up, sizeof(*set_up));
	ck_assert_int_eq(wire_get(&ep, fd, &more, 1), 0);
	close(fd);
	/* No queue pair was made for it. */
	if (what != REPLAY)
		ck_assert_ptr_null(l->path);
}

START_TEST(t_setup)
{
	const uint64_t below = OURS - 1,
		       above[ATTACKS] = {THEIRS + 1, THEIRS + 2, THEIRS + 3, THEIRS};
	struct df_net_frame f[2], answer;
	struct df_key proof, other;
	struct hello h, again;
	int fd, i;

	ck_assert_int_eq(wire_start(&ep), 0);
	ck_assert_int_eq(df_net_verbs.start(&ep), 0);
	ep.media = DF_NET_BIT_VERBS;
	clock_gettime(CLOCK_MONOTONIC, &frozen);
	fd = join(THEIRS, &h, &proof);
	/* The end with the lower name sends the numbers of its queue pairs first. */
	set_up_by(fd, &f[0]);
	set_up_by(fd, &f[1]);
	/* First packet numbers are random, not derived from the clock, which stands still. */
	ck_assert_uint_ne(f[0].aux >> 32, f[1].aux >> 32);
	for (i = 0; i < ATTACKS; i++) {
		attack((enum attack)i, above[i], &h, &proof, &f[0]);
		if (i != REPLAY)
			attack((enum attack)i, below, &h, &proof, &f[0]);
	}
	ck_assert_ptr_nonnull(df_net_link_of(&ep, THEIRS, 0, 0)->path);
	/* The other end receives nothing before it has sent its own numbers. */
	close(fd);
	fd = join(below, &again, &other);
	say(fd, &f[0], sizeof(f[0]));
	set_up_by(fd, &answer);
	close(fd);
}
END_TEST

int main(void)
{
	return DF_TESTS("outsiders where queue pairs are set up", {t_setup});
}
