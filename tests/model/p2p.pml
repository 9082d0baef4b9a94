/*
 * A connector in GPU memory (runtime/transport/p2p.c): the owner's host takes memory, writes a description into shared
 * memory and opens the gate; the owner's block sets the counters, which the host can't reach, and says so beside
 * the description; the other side reads the description with the gate in its hand, opens the memory, lets go, and takes
 * the gate again to use it. Then the owner closes, and both memories are another connector's.
 *
 * Checked: what is opened is what the finder's generation describes; counters are read only when they have been set for
 * it; the block writes only into memory that is its connector's.
 *
 * -DNO_READY: the other side does not wait for the block: it reads counters that nobody has set.
 * -DREADY_FIRST: the block says so before it has set them: the same.
 * -DNO_GATE: the description is read without the gate: it must be another connector's.
 * -DCLOSE_EARLY: the owner closes before its block has begun: the block writes into another connector's memory.
 */
#define FREE 0
#define OPEN 1
#define USED 2
#define ROUNDS 3

byte state = FREE, gen = 0;	/* the gate word */
byte described = 0;		/* whose description lies in shared memory */
bool ready = false;		/* beside it */
byte memory_of = 0;		/* whose the GPU's memory is */
byte counters = 0;		/* for whom they have been set; 0: whatever was there */
chan sq = [ROUNDS] of { byte };	/* what the host tells the block */
byte begun = 0;			/* the last connector the block has taken from sq */
bool over = false;

active proctype owner()
{
	byte round = 0;

	do
	:: round < ROUNDS ->
		round++;
		memory_of = round;
		counters = 0;
		ready = false;
		described = round;
		atomic { gen = round; state = OPEN };
		sq ! round;
#ifndef CLOSE_EARLY
		/* The ring holds on to the contexts: nothing is destroyed before the block has drained it. */
		begun >= round;
#endif
		atomic { state == OPEN -> state = FREE };
		described = 0;
		memory_of = 0
	:: else -> break
	od;
	over = true
}

active proctype block()
{
	byte c;

	do
	:: atomic { sq ? c };
		assert(memory_of == c); /* a write */
#ifdef READY_FIRST
		ready = true;
		counters = c;
#else
		counters = c;
		ready = true;
#endif
		begun = c
	:: over && empty(sq) -> break
	od
}

active proctype other()
{
	byte found;

again:
	if
	:: over -> goto done
	:: atomic { state != FREE -> found = gen }
	fi;
#ifndef NO_GATE
	if
	:: atomic { state == OPEN && gen == found -> state = USED }
	:: atomic { else -> goto again }
	fi;
#endif
#ifndef NO_READY
	if
	:: ready
	:: else -> goto let_go
	fi;
#endif
	assert(described == found); /* the handle that is opened */
	goto opened;
let_go:
#ifndef NO_GATE
	atomic {
		assert(state == USED && gen == found);
		state = OPEN
	};
#endif
	goto again;
opened:
#ifndef NO_GATE
	atomic {
		assert(state == USED && gen == found);
		state = OPEN
	};
#endif
use:
	/* Stale for as long as it likes. */
	if
	:: over -> goto done
	:: atomic { state == OPEN && gen == found -> state = USED }
	:: atomic { !over && !(state == OPEN && gen == found) -> goto again }
	fi;
	assert(memory_of == found && counters == found);
	atomic { state == USED && gen == found -> state = OPEN };
	if
	:: goto use
	:: goto again
	fi;
done:
	skip
}
