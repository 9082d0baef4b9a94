/*
 * Slices by reference to another node, and the ends of the connector
 * (runtime/transport/net/slots.c, runtime/coll/byref.c). A's block sends N slices over a connector
 * of SLOTS slots. It names the first slices where they lie in the user's buffer, and copies the
 * last SLOTS slices. A's thread queues the slices, and reads them from their place when the wire
 * has room. The wire may break. Then the queue and the slices on the wire are lost, and slices that
 * were not received are sent again. When A's operation has ended, the user may write to its buffer.
 * When A's end of the connector is given up and none of its slices is under way, its slots are
 * freed. A's host may abort the operation at any time: it takes the operation from the block, marks
 * the header, takes the right to a pass, and lets the thread read queued slices from the slots. B's
 * side takes all slices. Then B closes its end, and repeats this until A acknowledges it, or B's
 * process exits.
 *
 * Checked: no slice is read from a buffer that the user may write to, or from freed slots. B's
 * block takes the slices in order, each with its own bytes. B gets all slices, and A's operation
 * and its end of the connector come to their ends, whatever breaks.
 *
 * -DKNOWN: the last slices are named too, and the operation ends when they have been consumed.
 *
 * The controls, each of which must fail:
 *
 * -DALL: the last slices are named, and the operation does not wait for their consumption.
 *
 * -DUNTOLD: slices are sent again before the receiver has announced what it has.
 *
 * -DNO_MARK: the host does not mark the header.
 *
 * -DNO_PASS: the host does not take the right to a pass.
 *
 * -DQUEUED: queued slices are read from their old place.
 *
 * -DLEAVES: A's end is given up before all slices have been received.
 *
 * -DIN_HAND: A's slots are freed while slices are queued.
 *
 * -DKNOWN -DTOLD_FIRST: B announces "all told" before it closes its end.
 *
 * -DKNOWN -DMUTE: a side that closes does not announce what it has consumed.
 *
 * -DKNOWN -DEXIT: a process that exits does not announce what it has not yet announced.
 */
#ifndef N
#define N 3
#endif
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef CUTS
#define CUTS 1
#endif
#define AT(n)  ((n) % SLOTS)
#define ACK    254
#define NEVER  255
#define OTHERS 100 /* bytes without a meaning */

#ifdef UNTOLD
#define MAY_SEND true
#else
#define MAY_SEND heard_told
#endif
#ifdef TOLD_FIRST
#define ALL_TOLD (left || told_got == got)
#else
#define ALL_TOLD (left && (close_sent || acked) || !left && told_got == got)
#endif
#ifdef LEAVES
#define HAS_COME true
#else
#define HAS_COME (tail == received || peer_closed)
#endif
#ifdef IN_HAND
#define NONE_IN_HAND true
#else
#define NONE_IN_HAND empty(queue)
#endif
#ifdef EXIT
#define IS_TOLD true
#else
#define IS_TOLD (told_head == head && told_got == got)
#endif

mtype = { credit, told, close };

chan queue = [2] of { byte, bool };	  /* slice, whether it is named */
chan wire = [2] of { byte, byte };	  /* slice, bytes; or ACK */
chan back = [2] of { mtype, byte, byte }; /* consumed, received */

/* State of A. */
byte tail, consumed, received, next;
byte slot[SLOTS];
bool ref[SLOTS], marked, will_abort, aborted, done, users, gone;
bool turn, pass; /* the block's lock; the right to a pass */
bool heard_told = true, peer_closed, answers;
/* State of B. */
byte got, head, told_head, told_got;
byte rslot[SLOTS];
bool session_told = true, left, close_sent, acked, exits;
byte cuts;

active proctype block_a()
{
end:	do
	:: atomic { !turn && (aborted || tail == N || tail - consumed < SLOTS) -> turn = true };
		if
		:: aborted -> turn = false; break
		:: !aborted && tail < N ->
#if defined(ALL) || defined(KNOWN)
			ref[AT(tail)] = true;
#else
			ref[AT(tail)] = tail + SLOTS < N;
#endif
			slot[AT(tail)] = (ref[AT(tail)] -> OTHERS : tail);
			tail++;
			turn = false
		:: !aborted && tail == N ->
#ifdef KNOWN
			if
			:: consumed == N -> done = true; turn = false; break
			:: else -> turn = false; (aborted || consumed == N)
			fi
#else
			done = true; turn = false; break
#endif
		fi
	od
}

active proctype host_a()
{
	byte n, i;
	bool named;

	if
	:: done -> skip
	:: will_abort -> aborted = true;
		atomic { !turn -> turn = true };
		turn = false;
#ifndef NO_MARK
		marked = true;
#endif
#ifndef NO_PASS
		atomic { !pass -> pass = true };
#endif
#ifndef QUEUED
		atomic {
			for (i : 1 .. len(queue)) {
				queue ? n, named;
				queue ! n, named && !marked
			}
			n = 0; named = false; i = 0
		};
#endif
		pass = false
	fi;
	users = true
}

/* A's thread. Each step is a pass or a part of one. */
active proctype thread_a()
{
	byte n, h;
	bool named;

end:	do
	:: atomic { !pass && !gone && next < tail && nfull(queue) && !peer_closed && MAY_SEND -> pass = true };
		named = ref[AT(next)];
		named = named && !marked;
		queue ! next, named;
		next++;
		atomic { named = false; pass = false }
	:: atomic { !pass && nempty(queue) && nfull(wire) -> pass = true; queue ? n, named };
		if
		:: named -> assert(!users); h = n
		:: else -> assert(!gone); h = slot[AT(n)]
		fi;
		wire ! n, h;
		atomic { n = 0; h = 0; named = false; pass = false }
	:: atomic { !pass && answers && nfull(wire) -> wire ! ACK, 0; answers = false }
	:: atomic { !pass && back ? [credit, _, _] -> back ? credit, h, n;
		assert(n <= tail && h <= n);
		received = (n > received -> n : received);
		next = (received > next -> received : next);
		consumed = (h > consumed -> h : consumed);
		h = 0; n = 0 }
	:: atomic { !pass && back ? [told, _, _] -> back ? told, _, _; heard_told = true }
	:: atomic { !pass && back ? [close, _, _] -> back ? close, h, _;
#ifndef MUTE
		if
		:: h > consumed -> consumed = h; received = h
		:: else -> skip
		fi;
#endif
		peer_closed = true;
		answers = true;
		h = 0 }
	:: atomic { !pass && users && !gone && HAS_COME && NONE_IN_HAND -> gone = true }
	od
}

active proctype thread_b()
{
	byte n, v;

end:	do
	:: atomic { !exits && nempty(wire) -> wire ? n, v;
		if
		:: n == ACK -> acked = true
		:: n == got && !left -> rslot[AT(n)] = v; got++
		:: else -> assert(left || n < got)
		fi;
		n = 0; v = 0 }
	:: atomic { !exits && !left && (told_head != head || told_got != got) && nfull(back) ->
		back ! credit, head, got; told_head = head; told_got = got }
	:: atomic { !exits && !session_told && ALL_TOLD && nfull(back) ->
		back ! told, 0, 0; session_told = true }
	:: atomic { left && !acked && !close_sent && nfull(back) ->
		back ! close, head, 0; close_sent = true }
	od
}

active proctype block_b()
{
	do
	:: head == N -> break
	:: atomic { head < got -> assert(marked || rslot[AT(head)] == head); head++ }
	:: will_abort -> break /* its operation is aborted */
	od;
	if
	:: left = true
	:: atomic { head == N && IS_TOLD -> exits = true }
	fi
}

/*
 * The wire does not break after a process has exited. Lost messages then become an error after a
 * time-out.
 */
active proctype breaks()
{
end:	do
	:: atomic { !pass && cuts < CUTS && !exits ->
		cuts++;
		do
		:: queue ? _, _
		:: wire ? _, _
		:: back ? _, _, _
		:: empty(queue) && empty(wire) && empty(back) -> break
		od;
		next = received;
		heard_told = false;
		session_told = false;
		answers = false;
		told_head = NEVER;
		told_got = NEVER;
		close_sent = false }
	od
}

init
{
	if
	:: will_abort = true
	:: skip
	fi;
	timeout -> assert(users && gone && (will_abort || head == N))
}
