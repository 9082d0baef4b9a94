/*
 * Completions of a block on a GPU without a fence and without an index (struct df_cqe,
 * kernels/abi.h; dfk_cq_push(); cqe_get() in runtime/coll/dev.c). For each of N operations the
 * block stores the collective's word `done`, and the two words of the next place of the ring.
 * Stores to different addresses arrive in any order, stores to one address in the order in which
 * they were made. The host takes a completion when both words have the bit of this lap and `done`
 * has the completion's value.
 *
 * Checked: the host takes the completion of the next operation, and `done` has the same value
 * (assertions). The host takes all completions (no invalid end state).
 *
 * Controls:
 *
 * -DNO_LAP: the host ignores the lap of the second word, and reads the previous contents of the
 * place.
 *
 * -DNO_WORD: the host ignores `done`. A thread that is woken then finds an old value there, and
 * sleeps.
 *
 * -DNO_ROOM: the block does not wait until a place has been read.
 */
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef N
#define N 5
#endif
#define LAP(i) (1 - ((i) / SLOTS) % 2)
#define NONE   255

/*
 * Values that have arrived, and values that are under way. Values start at 1. The bits of laps are
 * separate.
 */
byte coll[SLOTS], value[SLOTS], value_lap[SLOTS], done;
byte coll_way[SLOTS] = NONE, value_way[SLOTS] = NONE, value_lap_way[SLOTS], given;
byte head;

active proctype block()
{
	byte i, s;

	for (i : 0 .. N - 1) {
#ifndef NO_ROOM
		i - head < SLOTS;
#endif
		s = i % SLOTS;
		/* Stores to one address arrive in order. */
		coll_way[s] == NONE && value_way[s] == NONE;
		d_step {
			given = i + 1;
			value_way[s] = i + 1;
			value_lap_way[s] = LAP(i);
			coll_way[s] = LAP(i)
		}
	}
}

#define ARRIVES(s)                                                             \
	:: d_step { coll_way[s] != NONE -> coll[s] = coll_way[s]; coll_way[s] = NONE } \
	:: d_step { value_way[s] != NONE -> value[s] = value_way[s]; value_lap[s] = value_lap_way[s]; value_way[s] = NONE }

active proctype bus()
{
end_way:
	do
	:: d_step { done < given -> done++ }
	ARRIVES(0)
	ARRIVES(SLOTS - 1)
	od
}

active proctype host()
{
	byte s, v;

	do
	:: head == N -> break
	:: head < N ->
		s = head % SLOTS;
		coll[s] == LAP(head);
#ifndef NO_LAP
		value_lap[s] == LAP(head);
#endif
		v = value[s];
#ifndef NO_WORD
		done >= v;
#endif
		assert(v == head + 1 && done >= v);
		head++
	od
}
