/*
 * Several threads execute one block, by priority (dfk_let() and dfk_retake() in kernels/task.inl;
 * df_block_take() and df_block_let() in kernels/daemon_cpu.c, df_engine_purge() in
 * runtime/daemon/engine.c). The lock is a futex word: 0 free, 1 held, 2 held while other threads
 * may sleep. A large slice moves without the lock, and its task is marked. Another thread may
 * execute more urgent work meanwhile. A thread that aborts an operation forbids further moves
 * without the lock, and takes the lock when none is in progress. Then the memory that the slices
 * read may be freed.
 *
 * Sleeping has no time-out. Checked: one thread at a time is in the block, and no two threads move
 * a slice of one task. Nothing moves after the purge. When nothing can happen any more, all slices
 * have moved and all threads have ended.
 *
 * The controls, each of which must fail:
 *
 * -DAS_ONE: a thread that has slept takes the lock with 1, so other sleeping threads are forgotten.
 *
 * -DSILENT: a thread that releases the lock wakes no other.
 *
 * -DSWAP: a thread that tries to take the lock writes 1 over any value, so sleeping threads are
 * forgotten.
 *
 * -DNO_MARK: a task with a moving slice is not marked.
 *
 * -DNO_WAIT: the purge takes the lock without checking for moving slices.
 */
#define THREADS 3
#define LARGE	2 /* slices of the large operation */

byte lock, inside, purging;
byte slices;	/* slices of the large operation that have moved */
bool marked;	/* df_kctx.moving */
byte movers;	/* threads that move a slice of the task */
bool urgent;	/* the urgent operation is done */
bool gone;	/* the memory that slices read was freed */
byte ended;
bool asleep[THREADS + 1];

inline take(me)
{
	got = false;
#ifdef SWAP
	do
	:: lock == 0 ->
		atomic { got = (lock == 0); lock = 1 };
		if
		:: got -> break
		:: else /* try again */
		fi
	:: lock != 0 -> break
	od;
#else
	atomic {
		if
		:: lock == 0 -> lock = 1; got = true
		:: else
		fi
	};
#endif
	if
	:: got
	:: else ->
		do
		:: atomic {
#ifdef AS_ONE
			got = (lock == 0); lock = (got -> 1 : 2);
#else
			got = (lock == 0); lock = 2;
#endif
			}
			if
			:: got -> break
			:: else ->
				/* futex: sleeps only if the word still has the expected value */
				atomic {
					if
					:: lock == 2 -> asleep[me] = true
					:: else -> skip
					fi
				};
				!asleep[me]
			fi
		od
	fi;
	inside++;
	assert(inside == 1)
}

inline let()
{
	inside--;
	atomic { was = lock; lock = 0 };
#ifndef SILENT
	if
	:: was == 2 ->
		atomic {
			if
			:: asleep[0] -> asleep[0] = false
			:: asleep[1] -> asleep[1] = false
			:: asleep[2] -> asleep[2] = false
			:: asleep[THREADS] -> asleep[THREADS] = false
			:: else -> skip
			fi
		}
	:: else -> skip
	fi
#endif
}

proctype executor(byte me)
{
	byte was;
	bool got, over;

	do
	:: take(me);
		if
		:: !urgent -> urgent = true	/* a small slice moves while holding the lock */
		:: else ->
			if
			:: slices < LARGE && !marked && !gone ->
#ifndef NO_MARK
				marked = true;
#endif
				if
				:: purging == 0 ->
					let();
					movers++;
					assert(movers == 1 && !gone);
					movers--;
					take(me)
				:: else -> skip
				fi;
				marked = false;
				slices++
			:: else -> skip
			fi
		fi;
		over = urgent && (slices >= LARGE || gone);
		let();
		if
		:: over -> break
		:: else ->
			/* Other threads move the rest. Look again when something has changed. */
			(!marked || !urgent)
		fi
	od;
	ended++
}

proctype purge(byte me)
{
	byte was;
	bool got, clean;

	purging++;
	do
	:: take(me);
#ifdef NO_WAIT
		clean = true;
#else
		clean = !marked;
#endif
		if
		:: clean -> assert(movers == 0); gone = true
		:: else -> skip
		fi;
		let();
		if
		:: clean -> break
		:: else -> !marked
		fi
	od;
	purging--;
	ended++
}

init
{
	atomic {
		run executor(0);
		run executor(1);
		run executor(2);
		run purge(THREADS)
	};
	do
	:: timeout -> assert(ended == THREADS + 1 && urgent && lock == 0); break
	od
}
