/*
 * The order of the daemon's task queue (kernels/queue.inl): two ranks, C collectives of I instances
 * each, any order of issue. A task is queued when it has an instance, and leaves the queue when it
 * has none. While a block uses the common order, a task is put before those with larger names. If
 * that place is before the task whose turn it is, the turn goes to the front. A block may change to
 * the common order whenever it turns from one unfinished task to another, whether its guess is
 * right or wrong, and change back whenever an instance ends. When it does so affects only the
 * speed, so the model does either.
 *
 * Checked: a task with instances is in the queue once. Every instance is executed on both ranks
 * (invalid end states), and under weak fairness in finite time (pan -l -f).
 *
 * -DFORGET: the control. A task leaves the queue after its first instance, so instances announced
 * meanwhile are lost.
 *
 * -DFRONT: the control for time. After a miss the turn goes to the front, so tasks behind it may
 * starve.
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
/* slices sent; an instance sends one and then receives one */
#define SENT(r, c) ((k[AT(r, c)] + 1) / 2)
/* One slot. Sending needs that the last slice has been taken, receiving that there is a slice. */
#define CAN(r, c)                                                                                  \
	(k[AT(r, c)] % 2 == 0 -> SENT(r, c) - k[AT(1 - (r), c)] / 2 < 1 : SENT(1 - (r), c) > k[AT(r, c)] / 2)
#define HAS(r, c)   (k[AT(r, c)] < 2 * announced[AT(r, c)])
#define FINISHED(r, c) (k[AT(r, c)] == 2 * I)

byte k[R * C], announced[R * C];
byte queue[R * C], nr[R], pos[R];
byte running[R]; /* 1 + the unfinished task that moved last; 0 if there is none */
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

/* dfk_queue_remove() of the task whose turn it is. The position then refers to the next task. */
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

/*
 * The host announces all instances in some order. The block takes them from its ring when it looks.
 */
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
		/*
		 * A miss: take the next task. While nothing can move, all polls are alike, so merge
		 * these states.
		 */
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
	/* Everything ends. Without this line the search could not recognise a deadlock. */
	(FINISHED(0, 0) && FINISHED(0, 1) && FINISHED(0, C - 1) && FINISHED(1, 0) && FINISHED(1, 1) && FINISHED(1, C - 1))
}
