/*
 * Slices from another node that the network's thread reads directly to their destination
 * (dfk_land() in kernels/task.inl, landing() in runtime/transport/net/slots.c). A block receives N
 * slices in order over a connector of SLOTS slots. While it waits for a slice it may request it at
 * its place in the user's buffer. The reader decides when the slice's header has arrived: to that
 * place or to the slot. The slice's bytes arrive in two parts, maybe in two passes, and again after
 * a break. When the operation has ended, the user may write to the buffer. The host may abort the
 * operation at any time: it takes the operation from the block, marks the connector, takes the
 * right to a pass, and lets a partly received slice go on to its slot.
 *
 * Checked: nothing is written to a buffer that the user may write to. The block finds each slice
 * complete where it expects it. The operation ends or is aborted.
 *
 * The controls, each of which must fail:
 *
 * -DNO_MARK: the host does not mark the connector.
 *
 * -DNO_PASS: the host does not take the right to a pass.
 *
 * -DGOES_ON: a partly received slice goes on to its old destination.
 *
 * -DNOT_CLEARED: the block does not clear the word of a slice that it has taken.
 *
 * -DASKED: the block assumes that a requested slice was written to the requested place.
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
byte wanted[SLOTS];	/* the slice whose place the word names */
byte slot[SLOTS];	/* the slice in the slot, plus 1 */
bool there[N];		/* whether the slice is complete in the user's buffer */
bool turn, pass;	/* the block's lock; the right to a pass */
bool aborted, marked, done, users;
/* the reader has the first part of slice `tail`; the slice goes to the user's buffer */
bool part, direct;

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
			:: true /* the slice must be reduced, or the block is busy */
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
			/* The header arrives. */
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
