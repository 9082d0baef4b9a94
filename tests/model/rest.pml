/*
 * Two threads wait for an operation each, and one block executes both. A thread that finds that
 * another thread moves everything that can move rests until an operation ends (rest() and
 * tell_resting() of runtime/device/host/threads.c). A worker dozes meanwhile, and goes on with the
 * rest of the work when no thread waits any more (help_end()).
 *
 * In dfshim resting has a time-out, which only a missed wake-up would need, so the model has none.
 * The worker's time-out remains, because help_end() may miss the worker.
 *
 * Checked: when nothing can happen any more, both operations are done and both threads have gone
 * on.
 *
 * The controls, each of which must fail:
 *
 * -DNO_LOOK: the thread does not look again after it has announced that it rests.
 *
 * -DEARLY: a thread that ends an operation looks for resting threads before the end is visible.
 *
 * -DLATE_SEEN: the thread reads the futex word after its last look instead of before.
 *
 * -DSILENT: the thread that ends an operation wakes no other.
 *
 * -DALONE: there is no worker that goes on (its time-out is for that).
 */
#define OPS 2

bool done[OPS], asleep[OPS], over[OPS];
bool taken;	/* a thread has the block */
byte ended;	/* operations whose end was not announced yet */
byte end_seq, resting, helpers;

inline tell()
{
#ifdef SILENT
	skip
#else
	if
	:: resting > 0 -> atomic { end_seq++; asleep[0] = false; asleep[1] = false }
	:: else -> skip
	fi
#endif
}

/*
 * One pass. `look` becomes 0 if nothing moved, 1 if another thread has the block, 2 if something
 * moved.
 */
inline pass()
{
	look = 0;
	if
	:: atomic { !taken -> taken = true };
		if
		:: !done[0] ->
#ifdef EARLY
			tell();
#endif
			done[0] = true; ended++; look = 2
		:: !done[1] ->
#ifdef EARLY
			tell();
#endif
			done[1] = true; ended++; look = 2
		:: skip	/* the operation waits for a peer */
		fi;
		taken = false
	:: atomic { taken -> look = 1 }
	fi;
	/* Other duties: announcing ends. */
	if
	:: atomic { ended > 0 -> ended = 0 };
		look = 2;
#ifndef EARLY
		tell()
#endif
	:: else -> skip
	fi
}

proctype waiter(byte me)
{
	byte look, seen;
	bool helps = false;

	do
	:: done[me] -> break
	:: else ->
		pass();
		if
		:: look == 1 ->
			if
			:: helps -> helps = false; helpers--
			:: else -> skip
			fi;
			seen = end_seq;
			resting++;
#ifndef NO_LOOK
			if
			:: done[me] -> resting--; goto again
			:: else -> skip
			fi;
#endif
#ifdef LATE_SEEN
			seen = end_seq;
#endif
			/* futex: sleeps only if the word still has the value that was read */
			atomic {
				if
				:: end_seq == seen -> asleep[me] = true
				:: else -> skip
				fi
			};
			!asleep[me];
			resting--
		:: look != 1 && !helps -> helps = true; helpers++
		:: else -> skip
		fi;
again:		skip
	od;
	if
	:: helps -> helpers--
	:: else -> skip
	fi;
	over[me] = true
}

#ifndef ALONE
/* The worker wakes up by itself. While a thread helps, it does not work. */
proctype worker()
{
	byte look;

	do
	:: done[0] && done[1] && ended == 0 -> break
	:: atomic { (!done[0] || !done[1] || ended > 0) && helpers == 0 }; pass()
	od
}
#endif

init
{
	atomic {
		run waiter(0);
		run waiter(1);
#ifndef ALONE
		run worker()
#endif
	};
	do
	:: timeout -> assert(done[0] && done[1] && over[0] && over[1]); break
	od
}
