/*
 * Copies of contexts (kernels/hot.inl): a block on its device with one way of its own and one line
 * that all contexts share, the poller that launches it, and a host that ends a collective and frees
 * its context.
 *
 * A context is a counter of slices. `truth` counts what was really executed. The block sees only
 * its copies.
 *
 * Checked: no slice is executed twice or left out, with any order of fetches, evictions, quits and
 * launches. After the block has left, the originals contain the truth. Nothing is written back to
 * freed memory.
 *
 * Controls, each of which must fail:
 *
 * -DNO_SAVE: a block leaves without saving its way.
 *
 * -DTWO: a line that has been fetched still counts as one.
 *
 * -DLIVE: the host does not wait until the block has left.
 */
#define C 3
#ifndef L
#define L 2
#endif
#define NONE C

byte orig[C], truth[C];
byte way = NONE, way_k, line = NONE, line_k;
/* context 0 has been freed; the block is on the device; the block must leave; no more launches */
bool freed, on, quit, stop;

#define LEFT(c) (truth[c] < L && !(c == 0 && freed))
#define DONE	(!LEFT(0) && !LEFT(1) && !LEFT(2))

inline save(c, k)
{
	assert(!(c == 0 && freed));
	orig[c] = k
}

inline fetch(c)
{
	if
	:: way != NONE && line == c -> save(way, way_k)
	:: way != NONE && line != c ->
		if
		:: line != NONE -> save(line, line_k)
		:: else -> skip
		fi;
		line_k = way_k;
		line = way
	:: else -> skip
	fi;
	if
	:: line == c ->
		way_k = line_k;
		way = c;
#ifndef TWO
		line = NONE
#endif
	:: else ->
		way_k = orig[c];
		way = c
	fi
}

proctype block()
{
	byte c;

	do
	:: on ->
		way = NONE;
		line = NONE;
		do
		:: quit -> break
		:: skip -> break /* voluntarily */
		:: !quit && !DONE ->
			if
			:: LEFT(0) -> c = 0
			:: LEFT(1) -> c = 1
			:: LEFT(2) -> c = 2
			:: else -> goto next
			fi;
			if
			:: way != c -> fetch(c)
			:: else -> skip
			fi;
			atomic {
				assert(way_k == truth[c]);
				way_k++;
				truth[c]++
			}
next:			skip
		od;
#ifndef NO_SAVE
		if
		:: way != NONE -> save(way, way_k)
		:: else -> skip
		fi;
#endif
		if
		:: line != NONE -> save(line, line_k)
		:: else -> skip
		fi;
		on = false
	:: DONE && !on -> break
	od
}

proctype poller()
{
	do
	:: atomic { !on && !stop && !DONE -> quit = false; on = true }
	:: atomic { on && stop -> quit = true; (!on || !stop) }
	:: DONE && !on && !stop -> break
	od
}

/* Ends the collective of context 0 at any time. */
proctype host()
{
	stop = true;
#ifndef LIVE
	!on;
#endif
	atomic {
		assert(orig[0] == truth[0]);
		freed = true
	}
	stop = false
}

init
{
	atomic {
		run block();
		run poller();
		run host()
	}
	(DONE && !on && freed);
	assert(orig[1] == L && orig[2] == L)
}
