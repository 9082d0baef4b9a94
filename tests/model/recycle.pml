/*
 * Recycling of a connector that both sides will need again (runtime/coll/recycle.c,
 * df_node_recycle()). The owner receives and the user sends one slice for each of ROUNDS instances.
 * The owner requests the connector back when it is idle. The user releases the gate when it is
 * idle, and takes it again for its next instance. The owner closes a connector that is free and
 * empty. At its next instance it makes the successor, which continues at the old position.
 *
 * Checked: every slice arrives once, in order. Nothing is written to another connector's memory. No
 * process waits for ever (invalid end states).
 *
 * -DNO_DRAIN: the owner does not check whether the connector is empty.
 *
 * -DLOOK_FIRST: the owner checks before it takes the gate.
 *
 * -DFROM_ZERO: the successor starts at zero.
 *
 * -DIN_FLIGHT: the user releases the gate inside an instance, and goes on writing.
 *
 * -DNOTED: the connector is in GPU memory, and the deciding thread cannot read tail and head. Each
 * side notes its own index when it is idle; the user does so before it releases the gate. -DNOTED
 * -DNOTE_LATE: after that.
 */
#define FREE 0
#define OPEN 1
#define USED 2
#define OWNED 3		/* as USED, by the owner itself */
#ifndef ROUNDS
#define ROUNDS 4
#endif
#define SLOTS 2

byte state = FREE, gen = 0;	/* the gate word; changed in one step */
byte tail, head, slot[SLOTS];	/* the connector's memory */
byte sent, taken;		/* indices that were noted in the header */

#ifdef NOTED
#define DRAINED (sent == taken)
#define STANDS	taken
#else
#define DRAINED (tail == head)
#define STANDS	tail
#endif
bool wanted = false;

active proctype owner()
{
	byte i = 0, base = 0;
	bool have = false, drained;

	do
	:: i < ROUNDS ->
		/* Issue: make the connector if it is missing. */
		if
		:: !have ->
			atomic {
				tail = base;
				head = base;
				sent = base;
				taken = base;
				slot[0] = 255;
				slot[1] = 255;
				wanted = false;
				gen++;
				state = OPEN;
				have = true
			}
		:: else
		fi;
		/* Run. */
		tail > i;
		assert(slot[i % SLOTS] == i);
		head = i + 1;
		i++;
		/* Idle, with memory pressure or without it. */
		if
		:: true
		:: wanted = true
		:: true ->
#ifdef LOOK_FIRST
			drained = DRAINED;
#endif
			taken = i;
			if
			:: atomic { state == OPEN -> state = OWNED };
#ifdef NO_DRAIN
				drained = true;
#else
#ifndef LOOK_FIRST
				drained = DRAINED;
#endif
#endif
				if
				:: drained ->
#ifdef FROM_ZERO
					base = 0;
#else
					base = STANDS;
#endif
					have = false;
					atomic {
						state = FREE;
						/* The memory belongs to another connector now. */
						tail = 0;
						head = 0;
						sent = 0;
						taken = 0;
						slot[0] = 254;
						slot[1] = 254
					}
				:: else -> state = OPEN
				fi
			:: atomic { state != OPEN -> wanted = true }
			fi
		fi
	:: else -> break
	od
}

active proctype user()
{
	byte i = 0, found = 0;
	bool using = false;

	do
	:: i < ROUNDS ->
		/* Issue: find the connector if it is missing, and take the gate. */
		do
		:: using -> break
		:: !using && found == 0 -> atomic { state != FREE -> found = gen }
		:: !using && found != 0 ->
			if
			:: atomic { state == OPEN && gen == found -> state = USED; using = true }
			:: atomic { gen != found || state == FREE -> found = 0 }
			/* The owner is checking the connector. */
			:: atomic { gen == found && state == OWNED -> found = 0 }
			fi
		od;
		/* Run. */
		tail - head < SLOTS;
#ifdef IN_FLIGHT
		if
		:: wanted -> atomic { state = OPEN; using = false }
		:: true
		fi;
#endif
		assert(gen == found && state != FREE);
		assert(tail == i);
		slot[i % SLOTS] = i;
		assert(gen == found && state != FREE);
		tail = i + 1;
		i++;
		/* Idle: the user may see the request now or later. */
		if
		:: wanted && using ->
#ifdef NOTE_LATE
			atomic { state = OPEN; using = false };
			atomic { sent = i }
#else
			sent = i;
			atomic { state = OPEN; using = false }
#endif
		:: true
		fi
	:: else -> break
	od
}
