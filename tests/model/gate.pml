/*
 * The gate of a connector (runtime/transport/arena/arena_directory.c): a user finds an entry, remembers its generation,
 * takes the gate, writes into the memory, lets go, and keeps the stale find for later. The owner closes what is
 * open and gives the memory to somebody else.
 *
 * Checked: memory is written only while it belongs to the connector the user believes in.
 *
 * -DNO_GENERATION: the gate word does not change with the use of the entry: a stale find must write into
 * memory that is somebody else's.
 * -DNO_GATE: the user does not take the gate: the same.
 * -DCLOSE_USED: the owner closes what is in use: the same.
 */
#define FREE 0
#define OPEN 1
#define USED 2
#define ROUNDS 3

byte state = FREE, gen = 0;	/* the gate word: changed in one step (compare and exchange) */
byte memory_of = 0;		/* whose the memory is: the generation; 0 nobody's */
bool over = false;

active proctype owner()
{
	byte round = 0;

	do
	:: round < ROUNDS ->
		round++;
		/* Create: the memory first, the gate last. */
		memory_of = round;
#ifndef NO_GENERATION
		atomic { gen = round; state = OPEN };
#else
		atomic { gen = 1; state = OPEN };
#endif
		/* Close. */
#ifdef CLOSE_USED
		atomic { state != FREE -> state = FREE };
#else
		atomic { state == OPEN -> state = FREE };
#endif
		/* Somebody else's. */
		memory_of = 0
	:: else -> break
	od;
	over = true
}

active [2] proctype user()
{
	byte found, whose;

again:
	if
	:: over -> goto done
	:: atomic { state != FREE -> found = gen; whose = memory_of };
	fi;
look:
	/* Stale for as long as it likes. */
	if
	:: over -> goto done
	:: true
	fi;
#ifndef NO_GATE
	if
	:: atomic { state == OPEN && gen == found -> state = USED }
	:: atomic { else -> goto again }
	fi;
#endif
	assert(memory_of == whose); /* a write */
	assert(memory_of == whose);
#ifndef NO_GATE
	atomic {
		if
		:: state == USED && gen == found -> state = OPEN
		:: else
		fi
	};
#endif
	if
	:: goto look
	:: goto again
	fi;
done:
	skip
}
