/*
 * Connectors over a network (runtime/transport/net): two of them share two streams that may break, and then lose what is
 * on them. Nobody takes what comes on connector 1; connector 0 must not notice.
 *
 * Checked: a block takes the slices of its connector in order, each with its own bytes; whatever breaks, all slices of
 * connector 0 are taken.
 *
 * The controls, each of which must fail:
 * -DNO_RESEND   after a break nothing is sent again
 * -DNO_DROP     the receiver puts what it has already into the slot again
 * -DFREE_EARLY  a slot is written again when its slice has been sent, not when it has been consumed
 * -DEARLY       credits are given for what was received, not for what was consumed
 * -DUNTOLD      after a break credits are not told again
 * -DNO_CREDITS  the sender asks for no credit, and the receiver leaves on the wire what finds no slot
 */
#define N     3 /* slices of a connector */
#ifndef SLOTS
#define SLOTS 1
#endif
#define CUTS  2
#define AT(c, n) ((c) * SLOTS + (n) % SLOTS)

/* A frame: connector, slice, bytes; a credit: connector, consumed, received. */
chan data[2] = [2] of { bit, byte, byte };
chan credits = [2] of { bit, byte, byte };

byte sslot[2 * SLOTS], rslot[2 * SLOTS];
byte tail[2], next[2], consumed[2], received[2]; /* the sender's */
byte rtail[2], head[2], told[2], told_tail[2];	 /* the receiver's */
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
	n < head[c] + SLOTS; /* holds up the wire until then */
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

/* Of connector 0 alone. */
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
