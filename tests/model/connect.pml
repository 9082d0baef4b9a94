/*
 * Threads that connect two ranks for an executor that launches NCCL's own kernels. NCCL connects
 * two ranks at their first message, and blocks the caller until both have made their call. Two
 * ranks issue N groups on each of C communicators, in any order of the communicators. The first
 * group on each is such a message. A thread launches a lane's groups one after the other. With
 * ABORTS a rank may leave out groups that it has not issued, and may abort a communicator at any
 * time: it marks the lane as ended, raises NCCL's flags, so that calls return, and frees the
 * communicator when no thread launches groups.
 *
 * Checked: all groups are launched or dropped, in their order. No thread is in a call on a freed
 * communicator.
 *
 * -DCALLER: the thread that issues a group launches it: deadlock.
 *
 * -DBESIDE: a group does not wait for the thread that launches the previous group: wrong order.
 *
 * -DFREE: an abort frees at once, while a thread is in its call.
 *
 * -DIN_CALL: an abort waits for threads in a call, but not for threads that are about to make one.
 *
 * -DNO_FLAGS: an abort waits without raising the flags: deadlock.
 */
#ifndef C
#define C 2
#endif
#ifndef N
#define N 2
#endif

#define AT(r, c) ((r) * C + (c))
#define LANE AT(r, c)
#define PEER AT(1 - r, c)

bool connected[2 * C]; /* this end */
bool putting[2 * C], in_call[2 * C];
bool ended[2 * C], flags[2 * C], freed[2 * C];
byte issued[2 * C], taken[2 * C], done[2 * C];

/* A thread takes the lane's next group and launches it. `more` becomes 0 if there was none. */
inline put(k, more)
{
	atomic {
		if
		:: !ended[LANE] && taken[LANE] < issued[LANE] ->
			k = taken[LANE];
			taken[LANE]++;
			more = 1
		:: else ->
			putting[LANE] = false;
			k = 0;
			more = 0
		fi
	}
	if
	:: more ->
		atomic {
			in_call[LANE] = true;
			assert(!freed[LANE]);
			if
			:: k == 0 -> connected[LANE] = true
			:: else
			fi
		}
		atomic {
			k > 0 || connected[PEER] || flags[LANE];
			assert(!freed[LANE]);
			/* Without the flags the groups are launched in their order. */
			assert(done[LANE] == k || flags[LANE]);
			done[LANE]++;
			in_call[LANE] = false
		}
	:: else
	fi
}

/* A thread of the lane. */
proctype thread(byte r, c)
{
	byte k, more;

end:	do
	:: atomic { putting[LANE] -> more = 1 }
		do
		:: more -> put(k, more)
		:: else -> break
		od
	od
}

proctype rank(byte r)
{
	byte c, i, k, more, most, first;

	if
	:: first = 0
	:: r == 1 -> first = 1 /* the opposite order */
	fi;
	for (i : 0 .. C - 1) {
		c = (first -> C - 1 - i : i);
		most = N;
#ifdef ABORTS
		if
		:: true
		:: most = 0
		:: most = 1
		fi;
#endif
		do
		:: issued[LANE] == most -> break
		:: issued[LANE] < most ->
			atomic { issued[LANE]++; putting[LANE] = true };
#ifdef CALLER
			put(k, more)
#endif
		od
	}
	for (c : 0 .. C - 1) {
		if
		:: done[LANE] == N
#ifdef ABORTS
		:: true ->
			ended[LANE] = true;
#ifndef NO_FLAGS
			flags[LANE] = true;
#endif
#ifdef IN_CALL
			!in_call[LANE];
#else
#ifndef FREE
			!putting[LANE];
#endif
#endif
			freed[LANE] = true
#endif
		fi
	}
}

init
{
#ifndef CALLER
	byte c;
#endif

	atomic {
#ifndef CALLER
		for (c : 0 .. C - 1) {
			run thread(0, c);
			run thread(1, c);
#ifdef BESIDE
			run thread(0, c);
			run thread(1, c);
#endif
		}
#endif
		run rank(0);
		run rank(1)
	}
}
