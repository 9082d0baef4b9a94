/*
 * The release of a cycle that is only likely (runtime/watch/proof.c). Rank 0 has a second thread,
 * which may issue the operation for which rank 1 waits at any time, or never. Each rank issues one
 * of two collectives, synchronises, issues the other one, and then reads the result of its first
 * one. The judge sees both ranks wait. It releases rank 0 if a second look shows the same calls in
 * progress and no call of the second thread. No proof excludes a later call: the second thread may
 * issue its collective between the look and the release, or after it.
 *
 * Checked: no deadlock. Each rank issues each collective once. A read after a released
 * synchronisation returns the result, because the read follows the operations that the
 * synchronisation left pending (the debt).
 *
 * -DNO_DEBT: the read does not wait for the operations that the released synchronisation left
 * pending: error.
 *
 * -DPROVED: only proved cycles are released, and the thread counts as one that may issue: deadlock.
 */
bool issued[4], done[4]; /* by (rank, collective) */
bool waits[2], released[2];
byte calls;	      /* calls of the second thread */
byte serial[2];	      /* number of the synchronisation in which a rank is */
bool mine;	      /* the second thread issues collective 1 of rank 0 */
byte nr_done;

#define AT(r, c)   ((r) * 2 + (c))
#define PENDING(r) ((issued[AT(r, 0)] && !done[AT(r, 0)]) || (issued[AT(r, 1)] && !done[AT(r, 1)]))
#define READY(c)   (issued[AT(0, c)] && issued[AT(1, c)] && !done[AT(0, c)])

inline issue(me, what)
{
	atomic {
		assert(!issued[AT(me, what)]);
		issued[AT(me, what)] = true
	}
}

inline sync(me)
{
	atomic { serial[me]++; waits[me] = true };
	atomic {
		(!PENDING(me) || released[me]);
		waits[me] = false;
		released[me] = false
	}
}

/* Copies the result to the host, on the stream after the pending operations. */
inline read(me, what)
{
#ifndef NO_DEBT
	(done[AT(me, what)]);
#endif
	assert(done[AT(me, what)])
}

proctype host(byte r)
{
	issue(r, r);
	sync(r);
	if
	:: r == 0 && mine -> skip
	:: else -> issue(r, 1 - r)
	fi;
	read(r, r);
	sync(r);
	nr_done++
}

/* The second thread sleeps until it issues its collective, or ends without it. */
proctype second()
{
	if
	:: mine -> atomic { calls++; assert(!issued[AT(0, 1)]); issued[AT(0, 1)] = true }
	:: else -> skip
	fi
}

proctype daemon()
{
end_daemon:
	do
	:: atomic { READY(0) -> done[AT(0, 0)] = true; done[AT(1, 0)] = true }
	:: atomic { READY(1) -> done[AT(0, 1)] = true; done[AT(1, 1)] = true }
	od
}

proctype judge()
{
	byte was[2], acts;

end_judge:
	do
	:: nr_done == 2 -> break
	:: atomic {
			waits[0] && waits[1] && PENDING(0) && PENDING(1) && !READY(0) && !READY(1) ->
			was[0] = serial[0];
			was[1] = serial[1];
			acts = calls
	   };
		/* The bound has passed: the second look. */
		if
		:: atomic {
				waits[0] && waits[1] && was[0] == serial[0] && was[1] == serial[1] &&
				acts == calls && !READY(0) && !READY(1) ->
				skip
		   };
			/*
			 * The release reaches the process, which checks that the wait still exists.
			 */
			atomic {
				if
				:: waits[0] && was[0] == serial[0] -> released[0] = true
				:: else -> skip
				fi
			}
		:: else -> skip
		fi
	od
}

init
{
	atomic {
		if
		:: mine = true
		:: mine = false
		fi;
		run host(0);
		run host(1);
		run second();
		run daemon();
#ifndef PROVED
		run judge()
#endif
	};
	(nr_done == 2)
}
