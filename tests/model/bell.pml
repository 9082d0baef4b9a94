/*
 * A worker that sleeps when there is no work, and a submitter that wakes it (df_engine_submitted()
 * and worker_rest(); df_bell_arm() and df_bell_ring() work in the same way).
 *
 * Checked: when nothing can happen any more, all submitted work has been done.
 *
 * The controls, each of which must fail:
 *
 * -DNO_LOOK: the worker does not look for work again after it has announced that it sleeps.
 *
 * -DEARLY: the submitter looks for sleepers before it has published the work.
 *
 * -DLATE_SEEN: the worker reads the futex word after its last look instead of before.
 */
#define N 3

byte issued, done, seq, sleepers;
bool asleep;

proctype submitter()
{
	byte i, seen_sleepers;

	for (i : 1 .. N) {
#ifdef EARLY
		seen_sleepers = sleepers;
		issued++;
#else
		issued++;
		seen_sleepers = sleepers;
#endif
		if
		:: seen_sleepers > 0 -> seq++; asleep = false
		:: else -> skip
		fi
	}
}

proctype worker()
{
	byte seen;

	do
	:: issued != done -> done++
	:: issued == done ->
		seen = seq;
		sleepers++;
#ifndef NO_LOOK
		if
		:: issued != done -> sleepers--; goto again
		:: issued == done -> skip
		fi;
#endif
#ifdef LATE_SEEN
		seen = seq;
#endif
		/* futex: sleeps only if the word still has the value that was read */
		atomic {
			if
			:: seq == seen -> asleep = true
			:: else -> skip
			fi
		};
end_sleep:	!asleep;
		sleepers--;
again:		skip
	od
}

init
{
	atomic { run submitter(); run worker() };
	do
	:: timeout -> assert(issued == N && done == N); break
	od
}
