/*
 * DFSHIM_NCCL_ORDER=agree with few CTAs: agree.pml before lanes.pml. Two GPUs are members of all C
 * communicators and execute N operations on each. On a GPU an operation may wait for the end of the
 * previous one, even one of another communicator. It is published when that operation has ended.
 * Rank 0 of its communicator appends the operations that both GPUs have published to the sequence,
 * and informs each GPU. The GPU's lane launches the next operation if there is room, and otherwise
 * holds it, as in lanes.pml. The reserve is given for places in the sequence.
 *
 * Checked: every operation ends. No GPU launches more than fits.
 *
 * -DNO_HOLD: an operation takes free SMs, even those of the reserve: deadlock.
 *
 * -DROOM_FIRST: an operation is published when its communicator has room: deadlock.
 *
 * -DBY_ISSUE: the reserve is given for operations up to a number in the order in which the GPU
 * published them: deadlock.
 */
#ifndef C
#define C 2
#endif
#ifndef N
#define N 2
#endif
#ifndef B
#define B 0
#endif
#define G    2
#define NONE 255

#define OPS	     (C * N)
#define AT(g, c)     ((g) * C + (c))
#define OP(g, n)     ((g) * OPS + (n))
#define ALL(v, c, k) (v[AT(0, c)] >= k && v[AT(1, c)] >= k)

bool dep[G * OPS]; /* it waits for the previous operation */
bool published[G * OPS], over[G * OPS];
byte sequence[OPS], decided[C]; /* operations of communicator c start at c * N */
byte told[G * C], launched[G * C], ended[G * C];
bool has_room[G * C];
/* number of communicators that have room; the communicator that has the reserve, or NONE */
byte room[G], reserve[G];
byte asked[G * C], upto[G * C], go[C];
bool granted[G * C];

#define HELD (launched[AT(g, c)] < told[AT(g, c)])
#define BUSY (ended[AT(g, c)] < launched[AT(g, c)])
#ifdef BY_ISSUE
/* published operations of a communicator; the number of each, from 1 on */
byte turns[G * C], turn[G * OPS];
#define PLACE turn[OP(g, sequence[c * N + launched[AT(g, c)]])]
#define READY(c, k) (turns[AT(0, c)] >= k && turns[AT(1, c)] >= k)
#else
#define PLACE (launched[AT(g, c)] + 1)
#define READY(c, k) ALL(told, c, k)
#endif
#define ASKED (asked[AT(g, c)] && HELD && PLACE <= asked[AT(g, c)])

proctype operation(byte g; byte c; byte n)
{
	atomic {
		!dep[OP(g, n)] || over[OP(g, n - 1)];
#ifdef ROOM_FIRST
		has_room[AT(g, c)] || room[g] < B + 1;
		room[g] = room[g] + (has_room[AT(g, c)] -> 0 : 1);
		has_room[AT(g, c)] = true;
#endif
#ifdef BY_ISSUE
		turns[AT(g, c)]++;
		turn[OP(g, n)] = turns[AT(g, c)];
#endif
		published[OP(g, n)] = true
	}
}

/* Rank 0 appends the operation. */
proctype decide(byte c; byte n)
{
	atomic {
		published[OP(0, n)] && published[OP(1, n)];
		sequence[c * N + decided[c]] = n;
		decided[c]++
	}
}

/* Rank 0 of a communicator, for each operation in turn. */
proctype lead(byte c)
{
	byte k, g;

	for (k : 1 .. N) {
		READY(c, k);
		for (g : 0 .. G - 1) {
			if
			:: launched[AT(g, c)] >= k
			:: else ->
				asked[AT(g, c)] = k;
				atomic { granted[AT(g, c)] -> granted[AT(g, c)] = false }
			fi
		};
		go[c] = k
	}
}

/* A communicator on a GPU. */
proctype lane(byte g; byte c)
{
	do
	:: atomic { told[AT(g, c)] < decided[c] -> told[AT(g, c)]++ }
	/* The operation follows one of the same communicator. */
	:: atomic { HELD && has_room[AT(g, c)] -> launched[AT(g, c)]++ }
#ifdef NO_HOLD
	:: atomic { HELD && !has_room[AT(g, c)] && room[g] < B + 1 ->
#else
	:: atomic { HELD && !has_room[AT(g, c)] && reserve[g] != c && room[g] < B ->
#endif
		has_room[AT(g, c)] = true;
		room[g]++;
		launched[AT(g, c)]++ }
#if !defined(NO_HOLD) && !defined(ROOM_FIRST)
	:: atomic { ASKED && !has_room[AT(g, c)] && reserve[g] == NONE ->
		reserve[g] = c;
		upto[AT(g, c)] = asked[AT(g, c)];
		asked[AT(g, c)] = 0;
		granted[AT(g, c)] = true }
#endif
	/* The operation was launched meanwhile. */
	:: atomic { asked[AT(g, c)] && launched[AT(g, c)] >= asked[AT(g, c)] ->
		asked[AT(g, c)] = 0;
		granted[AT(g, c)] = true }
	:: atomic { reserve[g] == c && HELD && go[c] >= PLACE && upto[AT(g, c)] >= PLACE -> launched[AT(g, c)]++ }
	/* A kernel ends when the other GPU's kernel runs too. */
	:: atomic { BUSY && ALL(launched, c, ended[AT(g, c)] + 1) && ALL(ended, c, ended[AT(g, c)]) ->
		over[OP(g, sequence[c * N + ended[AT(g, c)]])] = true;
		ended[AT(g, c)]++;
		if
		:: BUSY
		:: else ->
			if
			:: has_room[AT(g, c)] ->
				has_room[AT(g, c)] = false;
				room[g]--
			:: else ->
				assert(reserve[g] == c);
				if
				:: ended[AT(g, c)] >= upto[AT(g, c)] -> reserve[g] = NONE
				:: else
				fi
			fi
		fi;
		assert(room[g] <= B + 1) }
	:: ended[AT(g, c)] == N && go[c] == N -> break
	od
}

init
{
	byte g, n;

	for (g : 0 .. G - 1) {
		for (n : 1 .. OPS - 1) {
			if
			:: dep[OP(g, n)] = true
			:: true
			fi
		}
	}
	atomic {
		for (g : 0 .. G - 1) {
			reserve[g] = NONE;
			for (n : 0 .. OPS - 1) {
				run operation(g, n / N, n);
				if
				:: g == 0 -> run decide(n / N, n)
				:: else
				fi
			}
			for (n : 0 .. C - 1) {
				run lane(g, n)
			}
		}
		for (n : 0 .. C - 1) {
			run lead(n)
		}
	}
}
