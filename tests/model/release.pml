/*
 * Two ranks issue two collectives in orders of their own, with a device synchronisation between
 * them and one at the end. A synchronisation returns when all operations that its rank has issued
 * are done, or when it is released.
 *
 * The checker (one process here; in dfshim one on each rank) takes snapshots rank by rank, not at
 * one instant, and twice. It believes the snapshots only if nothing changed between them, and
 * releases a wait if they contain a cycle.
 *
 * Checked: no deadlock. At each release the job was really stuck (assertion).
 *
 * -DNONE: no releases (DFSHIM_RELEASE=none): must deadlock for some orders.
 */
bool issued[4], done[4]; /* by (rank, collective) */
bool waits[2];		 /* the rank's thread is in a synchronisation */
bool released[2];
byte progress[2];	 /* counts every step of a rank's thread and daemon */
byte nr_done;

#define AT(r, c) ((r) * 2 + (c))
#define PENDING(r) ((issued[AT(r, 0)] && !done[AT(r, 0)]) || (issued[AT(r, 1)] && !done[AT(r, 1)]))
#define READY(c)   (issued[AT(0, c)] && issued[AT(1, c)] && !done[AT(0, c)])

/* Nothing will ever move: both threads wait, and no collective has been issued by both ranks. */
#define STUCK (waits[0] && waits[1] && PENDING(0) && PENDING(1) && !READY(0) && !READY(1) && \
	       !released[0] && !released[1])

inline sync(r)
{
	atomic { waits[r] = true; progress[r]++ };
	atomic {
		(!PENDING(r) || released[r]);
		waits[r] = false;
		released[r] = false;
		progress[r]++
	}
}

proctype host(byte r)
{
	byte first;

	if
	:: first = 0
	:: first = 1
	fi;
	atomic { issued[AT(r, first)] = true; progress[r]++ };
	sync(r);
	atomic { issued[AT(r, 1 - first)] = true; progress[r]++ };
	sync(r);
	nr_done++
}

/* A collective moves when both ranks have issued it. */
proctype daemon()
{
end_daemon:
	do
	:: atomic { READY(0) -> done[AT(0, 0)] = true; done[AT(1, 0)] = true; progress[0]++; progress[1]++ }
	:: atomic { READY(1) -> done[AT(0, 1)] = true; done[AT(1, 1)] = true; progress[0]++; progress[1]++ }
	od
}

typedef shot {
	bool issued[2], done[2], waits, released;
	byte progress
};

shot seen[2];

inline look(r)
{
	d_step {
		seen[r].issued[0] = issued[AT(r, 0)];
		seen[r].issued[1] = issued[AT(r, 1)];
		seen[r].done[0] = done[AT(r, 0)];
		seen[r].done[1] = done[AT(r, 1)];
		seen[r].waits = waits[r];
		seen[r].released = released[r];
		seen[r].progress = progress[r]
	}
}

#define SEEN_PENDING(r) ((seen[r].issued[0] && !seen[r].done[0]) || (seen[r].issued[1] && !seen[r].done[1]))
#define SEEN_READY(c)	(seen[0].issued[c] && seen[1].issued[c] && !(seen[0].done[c] && seen[1].done[c]))
#define SEEN_STUCK                                                                                 \
	(seen[0].waits && seen[1].waits && SEEN_PENDING(0) && SEEN_PENDING(1) && !SEEN_READY(0) && \
	 !SEEN_READY(1) && !seen[0].released && !seen[1].released)

#define BELIEVED (SEEN_STUCK && before[0] == seen[0].progress && before[1] == seen[1].progress)

proctype checker()
{
	byte before[2];

end_checker:
	do
	:: look(0);
		look(1);
		before[0] = seen[0].progress;
		before[1] = seen[1].progress;
		look(0);
		look(1);
		if
		:: BELIEVED ->
			assert(STUCK);
			/*
			 * Releasing one wait of the cycle suffices. Then the other rank finds its
			 * peer.
			 */
			atomic { released[0] = true; progress[0]++ }
		:: else -> skip
		fi;
		/* A timer. It fires only when something may be stuck, so that the model ends. */
		(nr_done == 2 || (waits[0] && waits[1]));
		if
		:: nr_done == 2 -> break
		:: else -> skip
		fi
	od
}

init
{
	atomic {
		run host(0);
		run host(1);
		run daemon();
#ifndef NONE
		run checker()
#endif
	};
	(nr_done == 2)
}
