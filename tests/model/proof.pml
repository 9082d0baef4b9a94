/*
 * Two processes that both look for cycles, as in runtime/watch/proof.c. Each holds every process
 * and reads for what it waits, asks each process again, releases one wait of the cycle if nothing
 * was recorded since, and ends the hold. The job is that of release.pml: two ranks, two collectives
 * in orders of their own, and a synchronisation after each. The two judges choose different waits
 * of the same cycle.
 *
 * Checked: no deadlock. At each release the job was really stuck, so no cycle is cut twice.
 *
 * -DNO_HOLD: processes answer any judge, so the second judge's proof is outdated when it releases.
 *
 * -DNO_JUDGE: no process judges: deadlock.
 */
bool issued[4], done[4]; /* by (rank, collective) */
bool waits[2];		 /* the rank's thread is in a synchronisation */
bool released[2];
byte rec[2];  /* number of records of a rank: counts every step of its thread and daemon */
byte hold[2]; /* judge + 1; 0 if no judge holds the process */
byte nr_done;

#define AT(r, c)   ((r) * 2 + (c))
#define PENDING(r) ((issued[AT(r, 0)] && !done[AT(r, 0)]) || (issued[AT(r, 1)] && !done[AT(r, 1)]))
#define READY(c)   (issued[AT(0, c)] && issued[AT(1, c)] && !done[AT(0, c)])
#define STUCK                                                                                      \
	(waits[0] && waits[1] && PENDING(0) && PENDING(1) && !READY(0) && !READY(1) &&             \
	 !released[0] && !released[1])

inline sync(r)
{
	atomic { waits[r] = true; rec[r]++ };
	atomic {
		(!PENDING(r) || released[r]);
		waits[r] = false;
		released[r] = false;
		rec[r]++
	}
}

proctype host(byte r)
{
	byte first;

	if
	:: first = 0 /* the names of the collectives do not matter */
	:: r == 1 -> first = 1
	fi;
	atomic { issued[AT(r, first)] = true; rec[r]++ };
	sync(r);
	atomic { issued[AT(r, 1 - first)] = true; rec[r]++ };
	sync(r);
	nr_done++
}

proctype daemon()
{
end_daemon:
	do
	:: atomic { READY(0) -> done[AT(0, 0)] = true; done[AT(1, 0)] = true; rec[0]++; rec[1]++ }
	:: atomic { READY(1) -> done[AT(0, 1)] = true; done[AT(1, 1)] = true; rec[0]++; rec[1]++ }
	od
}

#define MINE(p) (hold[p] == me + 1)

proctype judge(byte me)
{
	bool waiting[2], pending[2], has[4], over[4], busy, same;
	byte mark[2], p;

end_judge:
	do
	:: nr_done == 2 -> break
	:: waits[0] && waits[1] ->
		busy = false;
		p = 0;
		do
		:: p < 2 && !busy ->
			atomic {
				if
#ifndef NO_HOLD
				:: hold[p] && !MINE(p) -> busy = true
				:: else -> hold[p] = me + 1;
#else
				:: true ->
#endif
					mark[p] = rec[p];
					waiting[p] = waits[p] && !released[p];
					pending[p] = PENDING(p);
					has[AT(p, 0)] = issued[AT(p, 0)];
					has[AT(p, 1)] = issued[AT(p, 1)];
					over[AT(p, 0)] = done[AT(p, 0)];
					over[AT(p, 1)] = done[AT(p, 1)]
				fi;
				p++
			}
		:: else -> break
		od;
		atomic { same = !busy; p = 0 };
		do
		:: p < 2 && same -> atomic { same = mark[p] == rec[p]; mark[p] = 0; p++ }
		:: else -> break
		od;
		if
		:: same && waiting[0] && waiting[1] && pending[0] && pending[1] &&
		   !(has[0] && has[2] && !(over[0] && over[2])) &&
		   !(has[1] && has[3] && !(over[1] && over[3])) ->
			/* Judge 0 releases rank 0, judge 1 rank 1. */
			atomic {
				assert(STUCK);
				released[me] = true;
				rec[me]++
			}
		:: else -> skip
		fi;
		p = 0;
		do
		:: p < 2 ->
			atomic {
				if
				:: MINE(p) -> hold[p] = 0
				:: else -> skip
				fi;
				p++
			}
		:: else -> break
		od;
		/*
		 * Clear values that are not used again, because they would only multiply the
		 * states.
		 */
		atomic {
			p = 0;
			do
			:: p < 2 ->
				waiting[p] = false;
				pending[p] = false;
				mark[p] = 0;
				has[AT(p, 0)] = false;
				has[AT(p, 1)] = false;
				over[AT(p, 0)] = false;
				over[AT(p, 1)] = false;
				p++
			:: else -> break
			od;
			p = 0;
			busy = false;
			same = false
		}
	od
}

init
{
	atomic {
		run host(0);
		run host(1);
		run daemon();
#ifndef NO_JUDGE
		run judge(0);
		run judge(1)
#endif
	};
	(nr_done == 2)
}
