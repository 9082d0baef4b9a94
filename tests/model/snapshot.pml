/*
 * Why the checker takes snapshots twice. Processes pass a token on. It stands for data in
 * connectors, which the receiver sees as soon as it is published. A process without the token
 * waits. A collector looks at one process after the other. A token that moves behind the collector
 * looks like a deadlock in one round. Two rounds with equal progress counters prove that nothing
 * moved from the first look to the last.
 *
 * Checked: "stuck" is never reported while a process can go on, and is reported after the token was
 * lost.
 *
 * -DONCE: one round is believed: a false verdict must be found.
 *
 * -DNO_COUNTERS: two rounds without a comparison of progress: the same.
 *
 * -DCOUNT_LATE: progress is counted after it was published: the same. So counters are incremented
 * first; otherwise a process between the two steps must not be taken for waiting.
 */
#define N     3
#define MOVES 7

byte at = 0; /* the process that has the token; N if it is lost */
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
		/*
		 * The token is lost and no process is inside a step, so the next two rounds report
		 * it.
		 */
		if
		:: round < 2 -> goto again
		:: else
		fi
	fi
}
