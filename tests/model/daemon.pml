/*
 * Two ranks, two collectives, any order of issue: the daemon's task queue with preemption.
 *
 * A collective is a program of L loops of (send a slice, receive a slice). The counter k is the
 * whole state of a task. A connector belongs to one collective and direction, has S slots, and has
 * two free-running indices. The daemon polls the task at its position at most SPIN times, and then
 * goes on to the next task. When a whole traversal made no progress, the daemon may leave. The
 * poller starts it again while work is outstanding.
 *
 * Checked: no deadlock (invalid end states). No slice is sent or consumed twice (assertions). No
 * endless run without progress under weak fairness (pan -l -f).
 *
 * -DNCCL: the control. In order, without preemption: must deadlock.
 *
 * -DSHARED: both collectives share a connector: must deadlock too, although the daemon preempts.
 */
#define R 2
#define C 2
#ifndef L
#define L 2
#endif
#ifndef S
#define S 1
#endif
#define SPIN 1
#define AT(r, c) ((r) * C + (c))

byte tail[R * C], head[R * C]; /* connector of (sender, collective) */
byte k[R * C];		       /* slices moved by (rank, collective) */
byte queue[R * C], nr_issued[R];
bool running[R];

#ifdef SHARED
/*
 * One connector for all collectives. A receiver can take the slice in front only if it belongs to
 * its collective.
 */
byte owner[R]; /* 1 + the collective of the slice in the connector; 0 if it is empty */
#define CAN_SEND(r, c) (owner[r] == 0)
#define CAN_RECV(r, c) (owner[1 - (r)] == 1 + (c))
#else
#define CAN_SEND(r, c) (tail[AT(r, c)] - head[AT(r, c)] < S)
#define CAN_RECV(r, c) (tail[AT(1 - (r), c)] > head[AT(1 - (r), c)])
#endif
#define DONE(r, c) (k[AT(r, c)] == 2 * L)
#define CAN(r, c)  (!DONE(r, c) && (k[AT(r, c)] % 2 == 0 -> CAN_SEND(r, c) : CAN_RECV(r, c)))
#define ALL_DONE(r) (DONE(r, 0) && DONE(r, 1))

inline move(r, c)
{
	if
	:: k[AT(r, c)] % 2 == 0 ->
		assert(tail[AT(r, c)] == k[AT(r, c)] / 2); /* sent once */
		tail[AT(r, c)]++;
#ifdef SHARED
		owner[r] = 1 + c;
#endif
	:: else ->
		assert(head[AT(1 - r, c)] == k[AT(r, c)] / 2); /* consumed once */
		head[AT(1 - r, c)]++;
#ifdef SHARED
		owner[1 - r] = 0;
#endif
	fi;
	k[AT(r, c)]++
}

/* Issues both collectives in some order. Anything may happen between the two calls. */
proctype host(byte r)
{
	byte first;

	if
	:: first = 0
	:: first = 1
	fi;
	atomic { queue[AT(r, 0)] = first; nr_issued[r] = 1 };
	atomic { queue[AT(r, 1)] = 1 - first; nr_issued[r] = 2 }
}

proctype daemon(byte r)
{
	byte pos = 0, polls = 0, c, idle = 0;

	do
	:: ALL_DONE(r) -> break
	:: !ALL_DONE(r) && running[r] && nr_issued[r] > 0 ->
		atomic {
			c = queue[AT(r, pos)];
			if
			:: CAN(r, c) ->
progress_moved:		move(r, c);
				polls = 0;
				idle = 0
			:: else ->
#ifdef NCCL
				/* The first task runs to its end, then the next one starts. */
				if
				:: DONE(r, c) && pos + 1 < nr_issued[r] -> pos++
				:: !(DONE(r, c) && pos + 1 < nr_issued[r]) -> (CAN(r, c) || DONE(r, c) && pos + 1 < nr_issued[r])
				fi
#else
				polls++;
				if
				:: polls > SPIN || DONE(r, c) ->
					polls = 0;
					pos = (pos + 1 < nr_issued[r] -> pos + 1 : 0);
					if
					:: pos == 0 && idle < 2 -> idle++
					:: else -> skip
					fi
				:: else -> skip
				fi;
				if
				/* voluntary quit: there is nothing to save */
				:: idle == 2 -> running[r] = false; idle = 0
				:: else -> skip
				fi;
				c = 0
#endif
			fi
		}
#ifndef NCCL
		/* While nothing can move, all polls are alike, so merge these states. */
		;
		(ALL_DONE(r) || !running[r] || nr_issued[r] < C || CAN(r, 0) || CAN(r, 1))
#endif
	od
}

proctype poller(byte r)
{
end_poller:
	do
	:: ALL_DONE(r) -> break
	:: !running[r] && !ALL_DONE(r) && nr_issued[r] > 0 -> running[r] = true;
		(ALL_DONE(r) || !running[r])
	od
}

init
{
	byte r;

	atomic {
		for (r : 0 .. R - 1) {
			running[r] = true;
			run host(r);
			run daemon(r);
			run poller(r)
		}
	};
	/* Everything ends. Without this line the search could not recognise a deadlock. */
	(ALL_DONE(0) && ALL_DONE(1))
}
