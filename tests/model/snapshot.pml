/*
 * Why the checker collects snapshots twice. Processes hand a token on (it stands for data in connectors:
 * visible to the receiver as soon as it is published); each waits while it does not have it. A collector
 * looks at one after the other. A token that travels behind the collector looks like a deadlock in one round;
 * two rounds with equal progress counters prove that nothing moved from the first look to the last.
 *
 * Checked: "stuck" is never said while somebody can go on, and it is said once the token is lost.
 *
 * -DONCE: one round is believed: a false verdict must be found.
 * -DNO_COUNTERS: two rounds, progress not compared: the same.
 * -DCOUNT_LATE: progress is counted after it was published: the same. Counters are bumped first, or a
 * process between the two must not be taken for waiting.
 */
#define N     3
#define MOVES 7

byte at = 0; /* who has the token; N: lost */
byte count[N];
byte moves = 0;

#define END (at == N || moves >= MOVES)

active [N] proctype process()
{
	byte me = _pid;

	do
	:: at == me && moves < MOVES ->
		if
		:: at = N
		:: true ->
#ifdef COUNT_LATE
			atomic { at = (me + 1) % N; moves++ };
			count[me]++
#else
			count[me]++;
			atomic { at = (me + 1) % N; moves++ }
#endif
		fi
	:: END -> break
	od
}

active proctype collector()
{
	bool stuck, same;
	byte seen[N], i, round = 0;

again:
	stuck = true;
	same = true;
	i = 0;
	do
	:: i < N ->
		atomic { seen[i] = count[i]; stuck = stuck && at != i };
		i++
	:: else -> break
	od;
#ifndef ONCE
	i = 0;
	do
	:: i < N ->
#ifdef NO_COUNTERS
		atomic { stuck = stuck && at != i };
#else
		atomic { stuck = stuck && at != i; same = same && seen[i] == count[i] };
#endif
		i++
	:: else -> break
	od;
#endif
	round++;
	if
	:: stuck && same -> assert(at == N)
	:: else ->
		/* Lost for good and nobody in the middle of a step: the next two rounds say so. */
		if
		:: round < 2 -> goto again
		:: else
		fi
	fi
}
