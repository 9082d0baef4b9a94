/*
 * The order of the daemon's task queue (kernels/queue.inl): two ranks, C collectives of I instances each, any orders of
 * issue. A task is queued when it has an instance and leaves when it has none; while a block is in the common order
 * it is put before those of larger names, and if that is before the task whose turn it is, the turn goes to the front.
 * A block may go over to the common order whenever it turns from one unfinished task to another, rightly or by a
 * wrong guess, and back whenever an instance ends: when it does so decides about speed, and here it does either.
 *
 * Checked: a task that has instances is in the queue, once; every instance is executed on both ranks (invalid end
 * states), and under weak fairness in finite time (pan -l -f).
 *
 * -DFORGET: the control. A task leaves the queue with its first instance: what was announced meanwhile is lost.
 * -DFRONT: the same for time. After a miss the turn goes to the front again: what stands behind it may starve.
 */
#ifndef C
#define C 2
#endif
#ifndef I
#define I 2
#endif
#define R	  2
#define AT(r, c)  ((r) * C + (c))
#define TASK(r)	  queue[AT(r, pos[r])]
#define SENT(r, c) ((k[AT(r, c)] + 1) / 2) /* slices: an instance sends one, then receives one */
/* One slot: send when the last slice has been taken, receive when there is one. */
#define CAN(r, c)                                                                                  \
	(k[AT(r, c)] % 2 == 0 -> SENT(r, c) - k[AT(1 - (r), c)] / 2 < 1 : SENT(1 - (r), c) > k[AT(r, c)] / 2)
#define HAS(r, c)   (k[AT(r, c)] < 2 * announced[AT(r, c)])
#define FINISHED(r, c) (k[AT(r, c)] == 2 * I)

byte k[R * C], announced[R * C];
byte queue[R * C], nr[R], pos[R];
byte running[R]; /* 1 + the unfinished task that moved last, 0 none */
bool queued[R * C], gang[R];

/* dfk_queue_add() */
inline add(r, c)
{
	assert(!queued[AT(r, c)] && nr[r] < C);
	i = nr[r];
	do
	:: i > 0 && gang[r] && c < queue[AT(r, i - 1)] ->
		queue[AT(r, i)] = queue[AT(r, i - 1)];
		i--
	:: else -> break
	od;
	queue[AT(r, i)] = c;
	nr[r]++;
	queued[AT(r, c)] = true;
	if
	:: i <= pos[r] -> pos[r] = 0
	:: else -> skip
	fi;
	i = 0
}

/* dfk_queue_remove() of the task whose turn it is: the position is then that of the next one. */
inline remove(r)
{
	queued[AT(r, TASK(r))] = false;
	i = pos[r];
	nr[r]--;
	do
	:: i < nr[r] ->
		queue[AT(r, i)] = queue[AT(r, i + 1)];
		i++
	:: else -> break
	od;
	queue[AT(r, nr[r])] = 0;
	if
	:: pos[r] >= nr[r] -> pos[r] = 0
	:: else -> skip
	fi;
	i = 0
}

/* The host announces all instances in some order; the block takes them from its ring when it looks. */
proctype host(byte r)
{
	byte c, i;

	do
	:: atomic {
		(announced[AT(r, 0)] < I || announced[AT(r, 1)] < I || announced[AT(r, C - 1)] < I) ->
		if
		:: announced[AT(r, 0)] < I -> c = 0
		:: announced[AT(r, 1)] < I -> c = 1
		:: announced[AT(r, C - 1)] < I -> c = C - 1
		fi;
		announced[AT(r, c)]++;
		if
		:: !queued[AT(r, c)] -> add(r, c)
		:: else -> skip
		fi;
		c = 0
	   }
	:: (announced[AT(r, 0)] == I && announced[AT(r, 1)] == I && announced[AT(r, C - 1)] == I) -> break
	od
}

proctype block(byte r)
{
	byte c, i;

	do
	:: atomic {
		nr[r] > 0 && CAN(r, TASK(r)) ->
		c = TASK(r);
		if
		:: running[r] && running[r] != 1 + c -> /* dfk_switch() */
			if
			:: gang[r] = true
			:: skip
			fi
		:: else -> skip
		fi;
		running[r] = 1 + c;
		k[AT(r, c)]++;
		if
		:: k[AT(r, c)] % 2 == 0 -> /* dfk_finish() */
			running[r] = 0;
			if
			:: gang[r] = false
			:: skip
			fi;
#ifdef FORGET
			remove(r)
#else
			if
			:: HAS(r, c) -> skip
			:: else -> remove(r)
			fi
#endif
		:: else -> skip
		fi;
		c = 0
	   };
progress_moved:
	   skip
	:: atomic {
		/* A miss: the next one. Where nothing can move there is no need to tell one poll from the next. */
		nr[r] > 1 && !CAN(r, TASK(r)) && (CAN(r, queue[AT(r, 0)]) || CAN(r, queue[AT(r, 1)]) || CAN(r, queue[AT(r, nr[r] - 1)])) ->
#ifdef FRONT
		pos[r] = 0
#else
		pos[r] = (pos[r] + 1 < nr[r] -> pos[r] + 1 : 0)
#endif
	   }
	:: (FINISHED(r, 0) && FINISHED(r, 1) && FINISHED(r, C - 1)) -> break
	od
}

init
{
	byte r;

	atomic {
		for (r : 0 .. R - 1) {
			run host(r);
			run block(r)
		}
	};
	/* Everything ends: this is the deadlock check's anchor. */
	(FINISHED(0, 0) && FINISHED(0, 1) && FINISHED(0, C - 1) && FINISHED(1, 0) && FINISHED(1, 1) && FINISHED(1, C - 1))
}
