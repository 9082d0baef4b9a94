/*
 * A connector over several queue pairs (runtime/transport/net/verbs). Writes of slices on different
 * pairs land in any order, and whether the receiver looks at them or not. Pairs fail. The owner of
 * the slots closes the connector at any time, and frees its memory when the close is acknowledged.
 *
 * Checked: the block takes the slices in order, each with its own bytes, and all of them unless the
 * owner closes. Freed memory is never written.
 *
 * The controls, each of which must fail:
 *
 * -DACK_EARLY: the sender acknowledges at once, and not when its writes on the other pair are done.
 *
 * -DACK_ANY: a slice on the other pair carries the acknowledgement too, after the lead has carried
 * it.
 *
 * -DOLD_PAIR: when a pair fails its slices go over the other pair, while the receiver's old pair
 * still works.
 *
 * -DNO_RESEND: nothing is sent again.
 *
 * -DKEEP_GAPS: slices that arrived before a gap was filled count when it is filled, although they
 * are sent again.
 *
 * -DUNTOLD: slices are sent again before the receiver has announced what it has.
 */
#define N    4 /* slices */
#define S    2 /* slots */
#define CUTS 2
#define OTHERS 2    /* frames of other connectors */
#define OTHER  255

/* slice, bytes, whether it acknowledges; pair 0 is the lead */
chan pair[2] = [3] of { byte, byte, bit };
chan credits = [2] of { byte, byte };

byte sent, consumed, received;	 /* state of the sender */
byte rslot[S], have[S];		 /* state of the receiver; `have` is the slice in a slot, plus 1 */
byte rtail, head, told, told_tail;
bit closing, acked, freed;
bit untold; /* credits of this session have not arrived */
byte cuts, gap, others;

#ifdef ACK_EARLY
#define MAY_ACK closing
#else
#define MAY_ACK (closing && (acked || empty(pair[1])))
#endif
#ifdef ACK_ANY
#define ACK_ON_OTHER acked
#else
#define ACK_ON_OTHER 0
#endif

active proctype sender()
{
	byte h, r;

end:	do
	:: atomic { !closing && !untold && sent < N && sent - consumed < S && nfull(pair[0]) ->
		pair[0] ! sent, sent, 0; sent++ }
	:: atomic { !closing && !untold && sent < N && sent - consumed < S && nfull(pair[1]) ->
		pair[1] ! sent, sent, 0; sent++ }
	:: atomic { credits ? h, r ->
		untold = 0;
		if
		:: h > consumed -> consumed = h
		:: else -> skip
		fi;
		if
		:: r > received -> received = r
		:: else -> skip
		fi;
		if
		:: sent < received -> sent = received
		:: else -> skip
		fi }
	:: atomic { MAY_ACK && !acked && nfull(pair[0]) -> pair[0] ! OTHER, 0, 1; acked = 1 }
	/* Slices of other connectors go on. */
	:: atomic { others < OTHERS && nfull(pair[0]) ->
		others++;
		if
		:: MAY_ACK -> acked = 1
		:: else -> skip
		fi;
		pair[0] ! OTHER, 0, acked }
	:: atomic { others < OTHERS && nfull(pair[1]) -> others++; pair[1] ! OTHER, 0, ACK_ON_OTHER }
	od
}

inline lands()
{
	if
	:: n == OTHER -> skip
	:: else ->
		assert(!freed);
		rslot[n % S] = v;
		if
		:: n >= rtail ->
			have[n % S] = n + 1;
			do
			:: have[rtail % S] == rtail + 1 -> rtail++
			:: else -> break
			od
		:: else -> skip
		fi
	fi;
	/* The memory is freed when the frame's predecessors have arrived. */
	freed = freed || ack;
	n = 0; v = 0; ack = 0
}

active proctype receiver()
{
	byte n, v;
	bit ack;

end:	do
	:: atomic { pair[0] ? n, v, ack -> lands() }
	:: atomic { pair[1] ? n, v, ack -> lands() }
	:: atomic { (told != head || told_tail != rtail) && nfull(credits) ->
		credits ! head, rtail; told = head; told_tail = rtail }
	od
}

active proctype block()
{
end:	do
	:: atomic { !closing && head < rtail -> assert(rslot[head % S] == head); head++ }
	od
}

active proctype owner()
{
	if
	:: closing = 1
	:: skip
	fi
}

/* Frames under way are lost. */
inline lose()
{
	do
	:: nempty(pair[0]) -> pair[0] ? _, _, _
	:: nempty(pair[1]) -> pair[1] ? _, _, _
	:: nempty(credits) -> credits ? _, _
	:: empty(pair[0]) && empty(pair[1]) && empty(credits) -> break
	od
}

inline again()
{
#ifndef NO_RESEND
	sent = received;
#endif
#ifndef UNTOLD
	untold = 1;
#endif
#ifndef KEEP_GAPS
	gap = 0;
	do
	:: gap < S ->
		if
		:: have[gap] > rtail -> have[gap] = 0
		:: else -> skip
		fi;
		gap++
	:: else -> break
	od;
	gap = 0;
#endif
	told = 255;
	told_tail = 255
}

active proctype fault()
{
end:	do
	:: atomic { cuts < CUTS && sent > 0 && !freed ->
		cuts++;
#ifdef OLD_PAIR
		again();
#else
		/* All pairs of both sides are destroyed before new ones exist. */
		lose();
		acked = 0;
		again();
#endif
	}
	od
}

init
{
	timeout -> assert(freed || (!closing && head == N))
}
