/*
 * A submission to a block on a GPU (df_sq_put() in kernels/slot.h, dfk_sq_get() in
 * kernels/gpu/take.inl). The host stores the words of a slot, each with the bit of this lap, the
 * first word last and as a release, after what the submission refers to. The block loads the words
 * in any order. It takes the submission if all words have the bit of this lap. Its load of the
 * first word is an acquire: what the submission refers to is read after it. The host overwrites a
 * slot only after the head, which the block releases, is past it.
 *
 * Checked: every submission arrives once, in order and complete, and what it refers to is complete.
 *
 * Controls:
 *
 * -DNO_LAP: the block looks at the lap of the first word alone, so it takes an old second word.
 *
 * -DNO_CHECK: the host does not wait until a slot is free, so a submission is lost.
 *
 * -DFIRST_FIRST: the host stores the first word before what it refers to.
 */
#ifndef SLOTS
#define SLOTS 2
#endif
#define ITEMS  5
#define LAP(i) (1 - ((i) / SLOTS) % 2)

byte first[SLOTS], second[SLOTS]; /* contents: an item, from 1; 0 at first */
bit lap1[SLOTS], lap2[SLOTS];
byte made; /* the items to which submissions refer and that are complete */
byte head, got;

active proctype host()
{
	byte i, s;

	for (i : 0 .. ITEMS - 1) {
#ifndef NO_CHECK
		i - head < SLOTS;
#endif
		s = i % SLOTS;
#ifndef FIRST_FIRST
		made = i + 1;
#endif
		d_step { second[s] = i + 1; lap2[s] = LAP(i) }
		d_step { first[s] = i + 1; lap1[s] = LAP(i) }
#ifdef FIRST_FIRST
		made = i + 1;
#endif
	}
}

active proctype block()
{
	byte s, one, two;
	bit l1, l2;

	do
	:: got == ITEMS -> break
	:: got < ITEMS ->
		s = got % SLOTS;
		/* Waits for the first word, so that a look that finds nothing makes no state. */
		if
		:: d_step { two = second[s]; l2 = lap2[s] }
		   d_step { lap1[s] == LAP(got) -> one = first[s]; l1 = lap1[s] }
		:: d_step { lap1[s] == LAP(got) -> one = first[s]; l1 = lap1[s] }
		   d_step { two = second[s]; l2 = lap2[s] }
		fi;
		if
#ifdef NO_LAP
		:: true ->
#else
		:: l2 != LAP(got)
		:: l2 == LAP(got) ->
#endif
			assert(one == got + 1 && two == got + 1 && made >= one);
			head = got + 1;
			got++
		fi
	od
}
