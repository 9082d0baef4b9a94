/*
 * The gate of a connector (runtime/transport/arena/arena_directory.c). A user finds an entry,
 * remembers its generation, takes the gate, writes to the memory, and releases the gate. It keeps
 * the found entry for later, when it may be stale. The owner closes open gates and gives the memory
 * to another connector.
 *
 * Checked: memory is written only while it belongs to the connector that the user found.
 *
 * -DNO_GENERATION: the gate word has no generation, so a stale entry must lead to a write to
 * another connector's memory.
 *
 * -DNO_GATE: the user does not take the gate: the same.
 *
 * -DCLOSE_USED: the owner closes gates that are in use: the same.
 */
#define FREE 0
#define OPEN 1
#define USED 2
#define ROUNDS 3

byte state = FREE, gen = 0;	/* the gate word; changed in one step (compare and exchange) */
byte memory_of = 0;		/* generation of the connector that has the memory, or 0 */
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
		/* The memory belongs to another connector. */
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
	/* The entry may be stale for any time. */
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
