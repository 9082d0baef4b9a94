/*
 * Several threads execute one block, by priority (dfk_let() and dfk_retake() in kernels/task.inl; df_block_take() and
 * df_block_let() in kernels/daemon_cpu.c, df_engine_purge() in runtime/daemon/engine.c). The lock is a futex word: 0 free, 1 held, 2 held while others may sleep. A large slice
 * moves without it, and the task it is of is marked; whoever comes by meanwhile executes what is more urgent. Who ends an operation from
 * outside says that no more slices are to be let go, and takes the lock when none is: what they read may go then.
 *
 * Sleeping has no time-out. Checked: one thread at a time is in the block, and no two move a slice of one task; nothing moves when the
 * purge is done; whenever nothing can happen any more, all slices have moved and all threads have ended.
 *
 * The controls, each of which must fail:
 * -DAS_ONE   who has slept holds the lock with 1: others that sleep are forgotten
 * -DSILENT   who gives the lock back wakes nobody
 * -DSWAP     who tries to take the lock writes a 1 whatever is there: of a holder with 2 the others that sleep are forgotten
 * -DNO_MARK  a task of which a slice moves is not marked
 * -DNO_WAIT  the purge takes the lock without a look at what moves
 */
#define THREADS 3
#define LARGE	2 /* slices of the large operation */

byte lock, inside, purging;
byte slices;	/* of the large operation that have moved */
bool marked;	/* df_kctx.moving */
byte movers;	/* threads that move a slice of it */
bool urgent;	/* the urgent operation is done */
bool gone;	/* what slices read */
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
		:: else /* once more */
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
				/* futex: sleeps only if the word is still what is expected */
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
		:: !urgent -> urgent = true	/* a small slice moves under the lock */
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
			/* Others move what is left: the next look is when something has changed. */
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
