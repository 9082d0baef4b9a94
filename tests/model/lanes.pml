/*
 * The CTA budget of an executor that launches NCCL's own kernels. A kernel holds its SMs until all
 * ranks have launched theirs. So a GPU has room for B communicators with unfinished operations, and
 * for one more: the reserve. All G GPUs are members of all C communicators and issue N operations
 * on each, in any order. An operation without room is held, and so are those that the GPU issues
 * after it. It is launched when its communicator gets room, in the order of issue, or on the
 * reserve: when all ranks have issued the operation, rank 0 requests the reserve from each GPU that
 * holds the operation, in ascending order of the GPUs, and then says go. It may request it for two
 * operations at once. A GPU takes the reserve back when they have ended there.
 *
 * Checked: every operation ends. No GPU launches more than fits. Only the communicator that has the
 * reserve returns it.
 *
 * -DSAME: all GPUs issue in one order, any. Then all operations end with -DNO_RESERVE, too.
 *
 * -DNO_TURN: communicators get room in any order, as when many reserves are requested: deadlock
 * with -DSAME -DNO_RESERVE.
 *
 * -DWAITS: only communicator 0 has N operations, the others have one. GPU 0 issues that of
 * communicator 1 when those of communicator 0 have ended there.
 *
 * -DNO_LET: an operation of a communicator that has room waits for its turn even if the reserve is
 * requested for it: deadlock with -DWAITS.
 *
 * -DNO_RESERVE: no reserve is requested: deadlock.
 *
 * -DORDER: odd communicators ask the GPUs in descending order: deadlock.
 *
 * -DBEYOND: an operation is launched on a free reserve before all ranks have issued it: deadlock.
 *
 * -DKEEP: the communicator's next operation is launched on the reserve too, without a request:
 * deadlock.
 *
 * -DANY: the reserve is given to the communicator's next operation if the requested one has got
 * room: never returned.
 *
 * -DNO_ANSWER: rank 0 gets no answer if the operation has got room meanwhile: deadlock.
 */
#ifndef G
#define G 2
#endif
#ifndef C
#define C 3
#endif
#ifndef N
#define N 1
#endif
#ifndef B
#define B 1
#endif
#define NONE 255
#ifdef WAITS
#define LAST(c) (c == 0 -> N : 1)
#define MAY_ISSUE (g != 0 || c != 1 || ended[AT(0, 0)] == N)
#else
#define LAST(c) N
#define MAY_ISSUE true
#endif

#define AT(g, c) ((g) * C + (c))
#if G == 2
#define ALL(v, c, k) (v[AT(0, c)] >= k && v[AT(1, c)] >= k)
#else
#define ALL(v, c, k) (v[AT(0, c)] >= k && v[AT(1, c)] >= k && v[AT(2, c)] >= k)
#endif

byte issued[G * C], launched[G * C], ended[G * C]; /* number of operations */
bool has_room[G * C];
byte room[G];	 /* number of communicators that have room */
byte reserve[G]; /* the communicator that has the reserve, or NONE */
byte asked[G * C]; /* the operation for which the reserve is requested, or 0 */
bool granted[G * C];
byte upto[G * C]; /* the reserve is given for operations up to this one */
byte go[C]; /* operations that may be launched on the reserve */
byte next[G]; /* number of operations that the GPU has issued */
byte place[G * C * N]; /* place of an operation in the GPU's order of issue, until it is launched */
#ifdef SAME
byte order[C * N]; /* the communicator of the operation in this place, + 1 */
#define IN_ORDER (!order[next[g]] || order[next[g]] == c + 1)
#else
#define IN_ORDER true
#endif

#define HELD (launched[AT(g, c)] < issued[AT(g, c)])
#ifdef ANY
#define ASKED asked[AT(g, c)]
#else
#define ASKED (asked[AT(g, c)] > launched[AT(g, c)])
#endif
#define PLACE(c) place[AT(g, c) * N + launched[AT(g, c)]]
#define BEFORE(d) (d < C && d != c && launched[AT(g, d % C)] < issued[AT(g, d % C)] && \
	reserve[g] != d && PLACE(d % C) < PLACE(c))
#ifdef NO_TURN
#define TURN true
#else
#define TURN !(BEFORE(0) || BEFORE(1) || BEFORE(2))
#endif
#ifdef NO_LET
#define LET TURN
#else
#define LET (TURN || asked[AT(g, c)] > launched[AT(g, c)])
#endif
#define LAUNCH PLACE(c) = 0; launched[AT(g, c)]++
#define BUSY (ended[AT(g, c)] < launched[AT(g, c)])

/* Rank 0 of a communicator, for each operation in turn. */
proctype lead(byte c)
{
	byte k = 0, i, g;

	do
	:: k == LAST(c) -> break
	:: k < LAST(c) ->
		k++;
		ALL(issued, c, k);
		if
		:: atomic { k < LAST(c) && ALL(issued, c, k + 1) -> k++ }
		:: true
		fi;
		for (i : 0 .. G - 1) {
			g = i;
#ifdef ORDER
			g = (c % 2 -> G - 1 - i : i);
#endif
			if
			:: launched[AT(g, c)] >= k
			:: else ->
				asked[AT(g, c)] = k;
				atomic { granted[AT(g, c)] -> granted[AT(g, c)] = false }
			fi
		};
		go[c] = k
	od
}

/* A communicator on a GPU. */
proctype lane(byte g; byte c)
{
	do
	:: atomic { issued[AT(g, c)] < LAST(c) && IN_ORDER && MAY_ISSUE ->
#ifdef SAME
		order[next[g]] = c + 1;
#endif
		place[AT(g, c) * N + issued[AT(g, c)]] = next[g];
		next[g]++;
		issued[AT(g, c)]++ }
	/* The operation follows one of the same communicator. */
	:: atomic { HELD && has_room[AT(g, c)] && LET -> LAUNCH }
	:: atomic { HELD && !has_room[AT(g, c)] && reserve[g] != c && room[g] < B && TURN ->
		has_room[AT(g, c)] = true;
		room[g]++;
		LAUNCH }
#ifdef BEYOND
	:: atomic { HELD && !has_room[AT(g, c)] && room[g] >= B && reserve[g] == NONE ->
		reserve[g] = c;
		LAUNCH }
#endif
#ifdef KEEP
	:: atomic { HELD && BUSY && reserve[g] == c -> LAUNCH }
#endif
#ifndef NO_RESERVE
	:: atomic { ASKED && HELD && !has_room[AT(g, c)] && reserve[g] == NONE ->
		reserve[g] = c;
		upto[AT(g, c)] = asked[AT(g, c)];
		asked[AT(g, c)] = 0;
		granted[AT(g, c)] = true }
#endif
#ifndef NO_ANSWER
	/* The operation was launched meanwhile. */
	:: atomic { asked[AT(g, c)] && !ASKED ->
		asked[AT(g, c)] = 0;
		granted[AT(g, c)] = true }
#endif
	:: atomic { reserve[g] == c && HELD && go[c] > launched[AT(g, c)] && upto[AT(g, c)] > launched[AT(g, c)] ->
		LAUNCH }
	/* A kernel ends when the other ranks' kernels run too. */
	:: atomic { BUSY && ALL(launched, c, ended[AT(g, c)] + 1) && ALL(ended, c, ended[AT(g, c)]) ->
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
		assert(room[g] <= B) }
	:: ended[AT(g, c)] == LAST(c) && go[c] == LAST(c) -> break
	od
}

init
{
	byte i, j;

	atomic {
		for (i : 0 .. G - 1) {
			reserve[i] = NONE;
			for (j : 0 .. C - 1) {
				run lane(i, j)
			}
		};
		for (i : 0 .. C - 1) {
#ifdef NO_RESERVE
			go[i] = LAST(i)
#else
			run lead(i)
#endif
		}
	}
}
