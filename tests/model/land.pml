/*
 * Slices from another node that the network's thread reads to where they go (dfk_land() in kernels/task.inl, landing() in
 * runtime/transport/net/slots.c). A block receives N slices over a connector of SLOTS slots, in order. While it waits for one it may ask
 * for it at its place in the user's buffer. The reader decides when a slice's header has come: to that place or to its slot;
 * its bytes come in two parts, maybe in two passes, and after a break it comes again. When the operation has ended, the buffer is the
 * user's. The host may also end it from outside, at any moment: it takes the operation from the block, marks the connector, takes the
 * right to a pass, and has what has come in part go on to its slot.
 *
 * Checked: nothing is written where it is the user's; the block finds each slice whole where it takes it to be; it ends or is ended.
 *
 * The controls, each of which must fail:
 * -DNO_MARK      the host does not mark the connector
 * -DNO_PASS      the host does not take the right to a pass
 * -DGOES_ON      what has come in part goes on to where it was
 * -DNOT_CLEARED  the block leaves in the word what it has taken
 * -DASKED        the block takes what it has asked for to have been put there
 */
#ifndef N
#define N 4
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef CUTS
#define CUTS 1
#endif
#define AT(n) ((n) % SLOTS)

mtype = { none, asked, placed };
mtype word[SLOTS] = none;
byte tail, head;
byte wanted[SLOTS];	/* which slice's place the word names */
byte slot[SLOTS];	/* the slice in it, plus 1 */
bool there[N];		/* it is whole in the user's buffer */
bool turn, pass;	/* the block's lock; the right to a pass */
bool aborted, marked, done, users;
bool part, direct;	/* the reader has had the first part of slice `tail`; it goes to the user's buffer */

active proctype block()
{
end:	do
	:: atomic { !turn -> turn = true };
		if
		:: aborted -> turn = false; break
		:: !aborted && tail > head ->
			if
#ifdef ASKED
			:: word[AT(head)] != none -> assert(there[head])
			:: word[AT(head)] == none -> assert(slot[AT(head)] == head + 1)
#else
			:: word[AT(head)] == placed -> assert(there[head])
			:: word[AT(head)] != placed -> assert(slot[AT(head)] == head + 1)
#endif
			fi;
#ifndef NOT_CLEARED
			word[AT(head)] = none;
#endif
			head++;
			if
			:: head == N -> done = true; users = true; turn = false; break
			:: else -> turn = false
			fi
		:: !aborted && tail <= head ->
			if
			:: word[AT(head)] == none -> wanted[AT(head)] = head; word[AT(head)] = asked
			:: true /* it is to be reduced, or is in the middle of something */
			fi;
			turn = false;
			(aborted || tail > head)
		fi
	od
}

active proctype reader()
{
	byte cuts = 0;

end:	do
	:: atomic { !pass && tail < N && (part || tail - head < SLOTS) -> pass = true };
		if
		:: !part ->
			/* The header. */
			if
			:: word[AT(tail)] != none && !marked -> word[AT(tail)] = placed; direct = true
			:: word[AT(tail)] == none || marked -> direct = false
			fi;
			part = true
		:: part ->
			if
			:: direct -> assert(!users); there[wanted[AT(tail)]] = true
			:: !direct -> slot[AT(tail)] = tail + 1
			fi;
			part = false;
			tail++
		:: part && cuts < CUTS -> cuts++; part = false
		fi;
		pass = false
	:: tail == N -> break
	od
}

active proctype host()
{
end:	if
	:: done -> skip
	:: aborted = true;
		atomic { !turn -> turn = true };
		turn = false;
		if
		:: done -> skip
		:: else ->
#ifndef NO_MARK
			marked = true;
#endif
#ifndef NO_PASS
			atomic { !pass -> pass = true };
#endif
#ifndef GOES_ON
			direct = false;
#endif
#ifndef NO_PASS
			pass = false;
#endif
			users = true
		fi
	fi
}
