/*
 * The end of an AllReduce whose slices all go by reference (dfk_ref() and dfk_has_moved() in
 * kernels/task.inl, DF_INST_KNOWN): a ring of R ranks, OPS times. Each rank sends its contribution,
 * receives 2R-2 slices, and sends all but the last one on. A rank has its result with its last
 * slice. It gives the credit for that slice, and waits until the next rank has received everything
 * that it sent. Then the user may write to the buffer, and calls the next operation.
 *
 * Checked: no slice is read from a buffer that the user may write to. No process waits for ever
 * (invalid end states).
 *
 * -DNO_WAIT: an operation ends with its last slice.
 *
 * -DWAIT_FIRST: an operation waits before it gives the credit for its last slice.
 */
#ifndef R
#define R 2
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#define OPS  2
#define LAST (2 * R - 2)

byte tail[R], head[R]; /* indices of the connector from r to the next rank */
bool users[R];

proctype rank(byte r)
{
	byte before = (r + R - 1) % R, op, i;

	for (op : 1 .. OPS) {
		users[r] = false;
		for (i : 0 .. LAST) {
			(i == 0 || tail[before] > head[before]);
			(i == LAST || tail[r] - head[r] < SLOTS);
			/* The read takes a while. */
			assert(i == 0 || !users[before]);
			assert(i == 0 || !users[before]);
#ifdef WAIT_FIRST
			(i < LAST || head[r] == tail[r]);
#endif
			if
			:: i > 0 -> head[before]++
			:: else -> skip
			fi;
			if
			:: i < LAST -> tail[r]++
			:: else -> skip
			fi
		}
#ifndef NO_WAIT
		(head[r] == tail[r]);
#endif
		users[r] = true
	}
}

init
{
	byte r;

	atomic {
		for (r : 0 .. R - 1) {
			users[r] = true;
			run rank(r)
		}
	}
}
