/*
 * A connector in GPU memory (runtime/transport/p2p.c). The owner's host allocates memory, writes a
 * description to shared memory, and opens the gate. The owner's block sets the counters, which the
 * host cannot access, and then sets `ready` beside the description. The other side reads the
 * description while it holds the gate, opens the memory, releases the gate, and takes the gate
 * again to use the memory. Then the owner closes the gate, and another connector gets both
 * memories.
 *
 * Checked: the opened memory is the one that the found generation describes. Counters are read only
 * after they were set for that generation. The block writes only to memory of its connector.
 *
 * -DNO_READY: the other side does not wait for the block, and reads counters that were not set.
 *
 * -DREADY_FIRST: the block sets `ready` before the counters: the same.
 *
 * -DNO_GATE: the description is read without the gate, so it must be another connector's.
 *
 * -DCLOSE_EARLY: the owner closes before its block has started, so the block writes to another
 * connector's memory.
 */
#define FREE 0
#define OPEN 1
#define USED 2
#define ROUNDS 3

byte state = FREE, gen = 0;	/* the gate word */
byte described = 0;		/* the connector whose description is in shared memory */
bool ready = false;		/* beside the description */
byte memory_of = 0;		/* the connector that has the GPU's memory */
/* the connector for which the counters are set; 0 for old contents */
byte counters = 0;
chan sq = [ROUNDS] of { byte };	/* messages from the host to the block */
byte begun = 0;			/* the last connector that the block has taken from sq */
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
		/*
		 * The ring references the contexts, so nothing is destroyed before the block has
		 * drained the ring.
		 */
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
	/* The entry may be stale for any time. */
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
