/*
 * A connector over several queue pairs (runtime/transport/net/verbs): writes of slices land in any order between two pairs, and
 * land whether the receiver looks at them or not. Pairs fail; the owner of the slots closes the connector at any time, and gives
 * its memory back when that is acknowledged.
 *
 * Checked: the block takes the slices in order, each with its own bytes; all of them, unless the owner closes; nothing is
 * ever written into memory that was given back.
 *
 * The controls, each of which must fail:
 * -DACK_EARLY  the sender acknowledges at once, not when what it had posted on the other pair is done
 * -DOLD_PAIR   when a pair fails its slices go over the other one, while the old pair of the receiver lives on
 * -DNO_RESEND  nothing is sent again
 * -DKEEP_GAPS  what came in front of a gap counts when the gap is filled, though it is sent again as well
 * -DUNTOLD     it is sent again before the receiver has told what it has
 */
#define N    4 /* slices */
#define S    2 /* slots */
#define CUTS 2
#define ACK  255

chan pair[2] = [3] of { byte, byte }; /* slice, bytes; the lead, 0, also carries the acknowledgement */
chan credits = [2] of { byte, byte };

byte sent, consumed, received;	 /* the sender's */
byte rslot[S], have[S];		 /* the receiver's; have: the slice in a slot, plus 1 */
byte rtail, head, told, told_tail;
bit closing, acked, freed;
bit untold; /* credits of this session have not come */
byte cuts, gap;

active proctype sender()
{
	byte h, r;

end:	do
	:: atomic { !closing && !untold && sent < N && sent - consumed < S && nfull(pair[0]) ->
		pair[0] ! sent, sent; sent++ }
	:: atomic { !closing && !untold && sent < N && sent - consumed < S && nfull(pair[1]) ->
		pair[1] ! sent, sent; sent++ }
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
#ifdef ACK_EARLY
	:: atomic { closing && !acked && nfull(pair[0]) -> pair[0] ! ACK, 0; acked = 1 }
#else
	:: atomic { closing && !acked && empty(pair[1]) && nfull(pair[0]) ->
		pair[0] ! ACK, 0; acked = 1 }
#endif
	od
}

inline lands()
{
	if
	:: n == ACK -> freed = 1
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
	n = 0; v = 0
}

active proctype receiver()
{
	byte n, v;

end:	do
	:: atomic { pair[0] ? n, v -> lands() }
	:: atomic { pair[1] ? n, v -> lands() }
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

inline lose(ch)
{
	do
	:: nempty(ch) -> ch ? _, _
	:: empty(ch) -> break
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
		/* All pairs of both sides are gone before the next ones are there. */
		lose(pair[0]);
		lose(pair[1]);
		lose(credits);
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
