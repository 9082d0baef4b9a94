/*
 * DFSHIM_NCCL_ORDER=agree. R ranks issue N operations of one communicator, each rank in its own
 * order. On a rank an operation may wait for the end of an operation with a lower number, which the
 * rank has issued before. A rank's operations are launched on its lane, which executes one after
 * the other. An operation ends when all ranks execute it. A rank publishes an operation when the
 * operation for which it waits has ended. Rank 0 appends the operations that all ranks have
 * published to the sequence. Each rank launches the sequence.
 *
 * Checked: every operation ends.
 *
 * -DEACH: each rank appends the operations that all ranks have published to a sequence of its own:
 * deadlock.
 *
 * -DISSUE: a rank publishes an operation when it issues it: deadlock.
 *
 * -DONE_RANK: rank 0 appends what it has published itself: deadlock.
 */
#ifndef R
#define R 2
#endif
#ifndef N
#define N 3
#endif
#define NONE N
#define AT(r, i) ((r) * N + (i))

byte dep[R * N]; /* the operation for which it waits, or NONE */
bool issued[R * N], published[R * N], running[R * N], ended[R * N];
byte sequence[R * N], decisions[R]; /* of rank 0; with EACH, of each rank */

#ifdef EACH
#define SEQ(r) r
#define DECIDERS R
#else
#define SEQ(r) 0
#define DECIDERS 1
#endif
#if R == 2
#define ALL(v, i) (v[AT(0, i)] && v[AT(1, i)])
#else
#define ALL(v, i) (v[AT(0, i)] && v[AT(1, i)] && v[AT(2, i)])
#endif

#define READY(r, i) (dep[AT(r, i)] == NONE || ended[AT(r, dep[AT(r, i)])])

proctype operation(byte r; byte i)
{
	atomic { dep[AT(r, i)] == NONE || issued[AT(r, dep[AT(r, i)])] -> issued[AT(r, i)] = true }
#ifdef ISSUE
	published[AT(r, i)] = true
#else
	atomic { READY(r, i) -> published[AT(r, i)] = true }
#endif
}

/* Appends operation i to the sequence. */
proctype decide(byte r; byte i)
{
#ifdef ONE_RANK
	atomic { published[AT(r, i)];
#else
	atomic { ALL(published, i);
#endif
		sequence[AT(r, decisions[r])] = i;
		decisions[r]++
	}
}

#define FIRST sequence[AT(SEQ(r), k)]

proctype lane(byte r)
{
	byte k;

	for (k : 0 .. N - 1) {
		atomic { decisions[SEQ(r)] > k && issued[AT(r, FIRST)] && READY(r, FIRST) -> running[AT(r, FIRST)] = true }
		atomic { ALL(running, FIRST) -> ended[AT(r, FIRST)] = true }
	}
}

init
{
	byte r, i;

	for (r : 0 .. R - 1) {
		for (i : 0 .. N - 1) {
			if
			:: dep[AT(r, i)] = NONE
			:: i > 0 -> dep[AT(r, i)] = i - 1
			:: i > 1 -> dep[AT(r, i)] = i - 2
			fi
		}
	}
	atomic {
		for (r : 0 .. R - 1) {
			run lane(r);
			for (i : 0 .. N - 1) {
				run operation(r, i);
				if
				:: r < DECIDERS -> run decide(r, i)
				:: else
				fi
			}
		}
	}
}
