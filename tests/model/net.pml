/*
 * Connectors over a network (runtime/transport/net). Two connectors share two streams, which may
 * break and then lose their contents. No block takes the slices that arrive on connector 1, and
 * connector 0 must not notice this.
 *
 * Checked: a block takes its connector's slices in order, each with its own bytes. All slices of
 * connector 0 are taken, whatever breaks.
 *
 * The controls, each of which must fail:
 *
 * -DNO_RESEND: nothing is sent again after a break.
 *
 * -DNO_DROP: the receiver writes a slice that it already has into the slot again.
 *
 * -DFREE_EARLY: a slot is reused when its slice has been sent, not when it has been consumed.
 *
 * -DEARLY: credits are given for received slices, not for consumed ones.
 *
 * -DUNTOLD: credits are not repeated after a break.
 *
 * -DNO_CREDITS: the sender needs no credit, and the receiver leaves slices without a slot on the
 * wire.
 */
#define N     3 /* slices of a connector */
#ifndef SLOTS
#define SLOTS 1
#endif
#define CUTS  2
#define AT(c, n) ((c) * SLOTS + (n) % SLOTS)

/* A frame: connector, slice, bytes. A credit: connector, consumed, received. */
chan data[2] = [2] of { bit, byte, byte };
chan credits = [2] of { bit, byte, byte };

byte sslot[2 * SLOTS], rslot[2 * SLOTS];
byte tail[2], next[2], consumed[2], received[2]; /* State of the sender. */
byte rtail[2], head[2], told[2], told_tail[2];	 /* State of the receiver. */
byte have[2 * SLOTS]; /* the slice in a slot, plus 1 */
byte cuts;

#ifdef FREE_EARLY
#define ROOM(c) (tail[c] - next[c] < SLOTS)
#elif defined(NO_CREDITS)
#define ROOM(c) (tail[c] - next[c] < SLOTS)
#else
#define ROOM(c) (tail[c] - consumed[c] < SLOTS)
#endif

#ifdef EARLY
#define CREDIT(c) rtail[c]
#else
#define CREDIT(c) head[c]
#endif

proctype sender_block(bit c)
{
end:	do
	:: tail[c] < N && ROOM(c) ->
		sslot[AT(c, tail[c])] = tail[c];
		tail[c]++
	od
}

active proctype sender_thread()
{
	bit c;
	byte h, r;

end:	do
	:: atomic { next[0] < tail[0] && nfull(data[next[0] % 2]) ->
		data[next[0] % 2] ! 0, next[0], sslot[AT(0, next[0])]; next[0]++ }
	:: atomic { next[1] < tail[1] && nfull(data[next[1] % 2]) ->
		data[next[1] % 2] ! 1, next[1], sslot[AT(1, next[1])]; next[1]++ }
	:: atomic { credits ? c, h, r ->
		if
		:: h > consumed[c] -> consumed[c] = h
		:: else -> skip
		fi;
		if
		:: r > received[c] -> received[c] = r
		:: else -> skip
		fi;
		if
		:: next[c] < received[c] -> next[c] = received[c]
		:: else -> skip
		fi }
	od
}

inline arrived()
{
#ifdef NO_CREDITS
	n < head[c] + SLOTS; /* blocks the wire until then */
#endif
	if
#ifndef NO_DROP
	:: n < rtail[c] -> skip
	:: n >= rtail[c] ->
#else
	:: true ->
#endif
		rslot[AT(c, n)] = v;
		have[AT(c, n)] = n + 1;
		do
		:: have[AT(c, rtail[c])] == rtail[c] + 1 -> rtail[c]++
		:: else -> break
		od
	fi;
	c = 0; n = 0; v = 0
}

active proctype receiver_thread()
{
	bit c;
	byte n, v;

end:	do
	:: atomic { data[0] ? c, n, v -> arrived() }
	:: atomic { data[1] ? c, n, v -> arrived() }
	:: atomic { (told[0] != CREDIT(0) || told_tail[0] != rtail[0]) && nfull(credits) ->
		credits ! 0, CREDIT(0), rtail[0]; told[0] = CREDIT(0); told_tail[0] = rtail[0] }
	:: atomic { (told[1] != CREDIT(1) || told_tail[1] != rtail[1]) && nfull(credits) ->
		credits ! 1, CREDIT(1), rtail[1]; told[1] = CREDIT(1); told_tail[1] = rtail[1] }
	od
}

/* Takes the slices of connector 0 only. */
active proctype receiver_block()
{
	byte v;

end:	do
	:: head[0] < rtail[0] ->
		v = rslot[AT(0, head[0])];
		assert(v == head[0]);
		head[0]++
	od
}

inline lose(ch)
{
	do
	:: nempty(ch) -> ch ? _, _, _
	:: empty(ch) -> break
	od
}

active proctype wire()
{
end:	do
	:: atomic { cuts < CUTS && tail[0] > 0 ->
		cuts++;
		lose(data[0]);
		lose(data[1]);
		lose(credits);
#ifndef NO_RESEND
		next[0] = received[0];
		next[1] = received[1];
#endif
#ifndef UNTOLD
		told[0] = 255;
		told[1] = 255;
#endif
	}
	od
}

init
{
	atomic { run sender_block(0); run sender_block(1) };
	timeout -> assert(head[0] == N)
}
