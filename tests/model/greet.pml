/*
 * The greeting of a connection (runtime/ctl/greet.c, base/net/auth.h), and an intruder that
 * controls the network. The intruder reads every message, drops it, and sends any message to each
 * end, but does not know the secret. Two connections are started and two are accepted. A challenge
 * is a number; 0 is the intruder's own. A proof consists of what it covers: the end that made it
 * and both challenges. The intruder can send the proofs that it has read, and no others.
 *
 * Checked: if an end accepts the other one as proved, a partner has proved itself in this greeting,
 * with both challenges.
 *
 * -DONE_ROLE: a proof does not say which end made it.
 *
 * -DOWN_ONLY: a proof does not cover the accepting end's challenge, so a recorded proof remains
 * valid for ever.
 *
 * -DNO_HELLO: a proof does not cover the connecting end's challenge.
 */
#define N 3 /* number of challenges: 0, and one for each connection at this end */

#ifdef ONE_ROLE
#define ROLE(r) 0
#else
#define ROLE(r) (r)
#endif
#ifdef NO_HELLO
#define HELLO(c) 0
#else
#define HELLO(c) (c)
#endif
#ifdef OWN_ONLY
#define OTHER(a) 0
#else
#define OTHER(a) (a)
#endif
#define ACCEPTS 0
#define CONNECTS 1
#define PROOF(r, c, a) (ROLE(r) * N * N + HELLO(c) * N + OTHER(a))
#define BOTH(c, a) ((c) * N + (a))

bool known[2 * N * N];			/* proofs that the intruder has read */
bool greeted[N], challenged[N];		/* challenges that the intruder has read */
bool answered[N * N], connected[N * N]; /* proofs that the ends have really made */

/* Chooses a challenge that the intruder has: 0, or one that was on the wire. */
#define CHOOSE(v, ready)                                                                           \
	if                                                                                         \
	:: v = 0                                                                                   \
	:: ready[1] -> v = 1                                                                       \
	:: ready[2] -> v = 2                                                                       \
	fi

proctype Connects(byte c)
{
	byte a;

	greeted[c] = true;
	CHOOSE(a, challenged);
	atomic {
		known[PROOF(ACCEPTS, c, a)] ->
			assert(answered[BOTH(c, a)]);
			connected[BOTH(c, a)] = true;
			known[PROOF(CONNECTS, c, a)] = true
	}
}

proctype Accepts(byte a)
{
	byte c;

	CHOOSE(c, greeted);
	atomic {
		challenged[a] = true;
		answered[BOTH(c, a)] = true;
		known[PROOF(ACCEPTS, c, a)] = true
	}
	atomic {
		known[PROOF(CONNECTS, c, a)] ->
			assert(connected[BOTH(c, a)])
	}
}

init
{
	atomic {
		run Connects(1);
		run Connects(2);
		run Accepts(1);
		run Accepts(2)
	}
}
