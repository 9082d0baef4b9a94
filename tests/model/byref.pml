/*
 * Slices by reference (dfk_ref() in kernels/task.inl, runtime/coll/byref.c). A sends N slices to B
 * over a connector of SLOTS slots. A names the first slices where they lie in the user's buffer,
 * and copies the last SLOTS slices. When the operation has ended, the user may write to the buffer.
 * A's host may abort the operation at any time: it takes the operation from A's block, marks the
 * header, then marks B's end if that is connected, and then waits until B's block is between two
 * turns. B connects at any time, or never, and its block may have no further turn.
 *
 * Checked: no slice is read from a buffer that the user may write to. No process waits for ever
 * (invalid end states), whatever B does.
 *
 * -DKNOWN: an operation that waits for a result to which B contributes names the last slices too.
 * It ends when they have been received. B always connects here, because otherwise the operation
 * could not end.
 *
 * -DALL: the last slices are named, and the operation does not wait.
 *
 * -DNO_WAIT: the host does not wait for the turn.
 *
 * -DNO_HEADER: only B's end is marked.
 *
 * -DEND_FIRST: B's end is marked before the header.
 */
#ifndef N
#define N 4
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#define OPEN	  0
#define CONNECTED 1
#define WITHDRAWN 3

byte tail, head, state = OPEN;
bool ref[SLOTS], marked = false;
bool aborted = false, done = false, users = false;
/* turns of the blocks; the lock of B's device */
bool turn_a = false, turn_b = false, lock_b = false;

active proctype block_a()
{
	byte i = 0;

end:	do
	:: atomic { !turn_a -> turn_a = true };
		if
		:: aborted -> turn_a = false; break
		:: else ->
			if
			:: i - head < SLOTS ->
#if defined(ALL) || defined(KNOWN)
				ref[i % SLOTS] = true;
#else
				ref[i % SLOTS] = i + SLOTS < N;
#endif
				i++;
				tail = i;
				if
#ifdef KNOWN
				:: i == N -> turn_a = false;
					(aborted || head == N);
					atomic { !turn_a -> turn_a = true };
					if
					:: aborted -> skip
					:: else -> done = true
					fi;
					turn_a = false;
					break
#else
				:: i == N -> done = true; turn_a = false; break
#endif
				:: else -> turn_a = false
				fi
			:: else -> turn_a = false;
				/*
				 * Wait until something may have changed, because a busy loop would
				 * never end.
				 */
				(aborted || i - head < SLOTS)
			fi
		fi
	od
}

active proctype host_b()
{
	if
	:: atomic { !lock_b -> lock_b = true };
		if
		:: marked -> state = WITHDRAWN
		:: else -> state = CONNECTED
		fi;
		lock_b = false
#ifndef KNOWN
	:: skip
#endif
	fi
}

active proctype block_b()
{
	do
	:: head == N -> break
	:: atomic { head < N && !turn_b && state != OPEN && tail > head -> turn_b = true };
		if
		:: ref[head % SLOTS] && state == WITHDRAWN -> turn_b = false; break
		:: ref[head % SLOTS] && state != WITHDRAWN ->
			/* The read takes a while. */
			assert(!users);
			assert(!users);
			head++;
			turn_b = false
		:: else -> head++; turn_b = false
		fi
#ifdef KNOWN
	:: aborted -> break
#else
	:: break /* B does not use the connector any more */
#endif
	od
}

active proctype host_a()
{
	bool found = false;

end:	if
	:: done -> skip
	:: aborted = true;
		atomic { !turn_a -> turn_a = true };
		turn_a = false;
#if !defined(NO_HEADER) && !defined(END_FIRST)
		marked = true;
#endif
		atomic { !lock_b -> lock_b = true };
		if
		:: state == CONNECTED -> state = WITHDRAWN; found = true
		:: else -> skip
		fi;
		lock_b = false;
#ifdef END_FIRST
		marked = true;
#endif
#ifndef NO_WAIT
		if
		:: found ->
			atomic { !turn_b -> turn_b = true };
			turn_b = false
		:: else -> skip
		fi
#endif
	fi;
	users = true
}
