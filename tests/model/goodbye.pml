/*
 * Processes that exit normally (df_ctl_goodbye(), runtime/ctl/flood.c; df_tree_death(),
 * runtime/ctl/tree.c). A is the root of the overlay, B and P are its children, and C is a child of
 * B. The processes in LEAVE exit at any time and at once. The others stay.
 *
 * A process that exits floods a goodbye. It leaves when all its neighbours have answered and it has
 * read everything that has arrived. Until then its links carry floods as before. An orphan looks
 * for a new parent at once. It answers when it has one, or knows that there is none. An orphan that
 * exits itself answers when all its other neighbours have answered. A process that refuses a child
 * because it exits says so.
 *
 * Checked: when nothing can happen any more, the remaining processes know of all exits. The exiting
 * processes have left by then; or some of them wait in a cycle, each for the next one's answer, and
 * leave after a time-out.
 *
 * -DNO_ANSWER: an exiting process does not wait for its neighbours.
 *
 * -DUNREAD_TOO: an exiting process leaves although it has not read everything.
 *
 * -DAT_ONCE: an orphan answers at once.
 *
 * -DFINISH: a process that has received the goodbye neither reads nor sends on that link any more.
 *
 * -DALONE: an orphan that exits itself answers at once.
 *
 * -DMUTE: an exiting process refuses without saying why.
 */
#define A 0
#define B 1
#define C 2
#define P 3
#define N 4
#define NONE 4
#ifndef LEAVE
#define LEAVE 7 /* a set: A is 1, B is 2, P is 4 */
#endif

mtype = { EXIT, PONG, EXITED };
#define AT(x, y) ((x) * N + (y))

chan q[16] = [6] of { mtype, byte };
bool tree[16], knows[16], seen[16], heard[16], owes[16], asked[16], left[16];
bool wants[N], leaving[N], gone[N], looking[N];
byte up[N], was[N]; /* present and previous parents */

/* Whether `low` is `top` or one of its descendants. */
inline below(low, top, yes)
{
	yes = low == top || up[low] == top || (up[low] != NONE && up[up[low]] == top) ||
	      (up[low] != NONE && up[up[low]] != NONE && up[up[up[low]]] == top)
}

inline send_all(me, except, kind, what)
{
	for (j : 0 .. N - 1) {
		if
		:: tree[AT(me, j)] && j != except && !gone[j] -> q[AT(me, j)]!kind(what)
		:: else
		fi
	}
}

/*
 * An older child of the same parent. Orphans choose by age. The oldest child of the root becomes
 * the root.
 */
#define ELDER(x, parent, y) (y < x && was[y] == parent && !knows[AT(x, y)])

/* Process `here` learns that `other` has exited. */
inline exited(here, other)
{
	knows[AT(here, other)] = true;
	if
	:: up[here] == other ->
		up[here] = NONE;
		left[AT(here, other)] = true;
		looking[here] = up[other] != NONE || ELDER(here, other, A) || ELDER(here, other, B) ||
				ELDER(here, other, C) || ELDER(here, other, P)
	:: else
	fi
}

inline take(self, from)
{
	q[AT(from, self)]?type(o);
	if
	:: type == PONG -> heard[AT(self, from)] = true
	:: type == EXIT ->
		if
		:: o == from -> owes[AT(self, from)] = true
		:: else
		fi;
		if
		:: !seen[AT(self, o)] && o != self ->
			seen[AT(self, o)] = true;
			send_all(self, from, EXIT, o);
			if
			:: !leaving[self] && !knows[AT(self, o)] -> exited(self, o)
			:: else
			fi
		:: else
		fi;
#ifdef FINISH
		if
		:: o == from && !leaving[self] -> tree[AT(self, from)] = false
		:: else
		fi
#endif
	:: type == EXITED ->
		if
		:: !leaving[self] && o != self && !knows[AT(self, o)] ->
			send_all(self, from, EXITED, o);
			exited(self, o)
		:: else
		fi
	fi;
	type = 0;
	o = 0
}

inline attach(child, parent)
{
	up[child] = parent;
	was[child] = parent;
	looking[child] = false;
	tree[AT(child, parent)] = true;
	tree[AT(parent, child)] = true;
	heard[AT(child, parent)] = false;
	heard[AT(parent, child)] = false
}

/* Finds a possible parent of an orphan, or NONE. */
inline candidate(orphan, found)
{
	found = NONE;
	for (j : 0 .. N - 1) {
		below(j, orphan, is);
		if
		:: found == NONE && !is && !gone[j] && !knows[AT(orphan, j)] && !asked[AT(orphan, j)] -> found = j
		:: else
		fi
	}
}

/* A link is closed when its other end has left and everything that it sent has been read. */
#define WAITS(x, y, but) \
	(y != but && tree[AT(x, y)] && !heard[AT(x, y)] && !(gone[y] && len(q[AT(y, x)]) == 0))
#define UNHEARD(x, but) (WAITS(x, A, but) || WAITS(x, B, but) || WAITS(x, C, but) || WAITS(x, P, but))

#define UNREAD(x)   (len(q[AT(A, x)]) + len(q[AT(B, x)]) + len(q[AT(C, x)]) + len(q[AT(P, x)]) > 0)

#ifdef NO_ANSWER
#define MAY_GO(x) !UNREAD(x)
#elif defined(UNREAD_TOO)
#define MAY_GO(x) !UNHEARD(x, NONE)
#else
#define MAY_GO(x) (!UNHEARD(x, NONE) && !UNREAD(x))
#endif
#ifdef ALONE
#define ANSWERS(x, y) (leaving[x] || !looking[x])
#elif defined(AT_ONCE)
#define ANSWERS(x, y) true
#else
#define ANSWERS(x, y) (leaving[x] -> !UNHEARD(x, y) : !looking[x])
#endif
#ifdef FINISH
#define READS(x, y) tree[AT(x, y)]
#else
#define READS(x, y) true
#endif

#define OWES(x) (owes[AT(x, A)] || owes[AT(x, B)] || owes[AT(x, C)] || owes[AT(x, P)])

inline answer(server, client)
{
	owes[AT(server, client)] = false;
	/* The client can reach all others in another way. */
	heard[AT(server, client)] = heard[AT(server, client)] ||
				    (!leaving[server] && left[AT(server, client)] && up[server] != NONE);
	if
	:: !gone[client] -> q[AT(server, client)]!PONG(0)
	:: else
	fi
}

proctype process(byte x)
{
	mtype type;
	byte o, j, y;
	bool is;

end:	do
	:: atomic { READS(x, A) && len(q[AT(A, x)]) > 0 -> take(x, A) }
	:: atomic { READS(x, B) && len(q[AT(B, x)]) > 0 -> take(x, B) }
	:: atomic { READS(x, C) && len(q[AT(C, x)]) > 0 -> take(x, C) }
	:: atomic { READS(x, P) && len(q[AT(P, x)]) > 0 -> take(x, P) }
	:: atomic { owes[AT(x, A)] && ANSWERS(x, A) -> answer(x, A) }
	:: atomic { owes[AT(x, B)] && ANSWERS(x, B) -> answer(x, B) }
	:: atomic { owes[AT(x, C)] && ANSWERS(x, C) -> answer(x, C) }
	:: atomic { owes[AT(x, P)] && ANSWERS(x, P) -> answer(x, P) }
	:: atomic { looking[x] && !leaving[x] ->
		candidate(x, y);
		if
		:: y == NONE -> looking[x] = false
		:: y != NONE && leaving[y] ->
#ifdef MUTE
			asked[AT(x, y)] = true
#else
			send_all(x, NONE, EXITED, y);
			exited(x, y)
#endif
		:: else -> attach(x, y)
		fi;
		y = 0; j = 0; is = false }
	/* An orphan has a parent, or knows that there is none, and has answered. */
	:: atomic { wants[x] && !leaving[x] && !looking[x] && !OWES(x) ->
		send_all(x, NONE, EXIT, x);
		leaving[x] = true;
		j = 0 }
	:: atomic { leaving[x] && MAY_GO(x) -> gone[x] = true; break }
	od
}

active proctype watch()
{
	byte x, y;

	atomic {
		wants[A] = LEAVE & 1;
		wants[B] = LEAVE >> 1 & 1;
		wants[P] = LEAVE >> 2;
		up[A] = NONE; up[B] = A; up[C] = B; up[P] = A;
		was[A] = NONE; was[B] = A; was[C] = B; was[P] = A;
		tree[AT(A, B)] = true; tree[AT(B, A)] = true;
		tree[AT(B, C)] = true; tree[AT(C, B)] = true;
		tree[AT(A, P)] = true; tree[AT(P, A)] = true;
		run process(A); run process(B); run process(C); run process(P)
	}
	timeout;
	for (x : 0 .. N - 1) {
		for (y : 0 .. N - 1) {
			assert(wants[x] || !wants[y] || knows[AT(x, y)])
		}
	}
}
