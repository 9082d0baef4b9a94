/*
 * Threads that make passes over a network endpoint (df_net_run(), df_tl_progress(), df_tl_begun()
 * and df_tl_leave() of runtime/transport/progress.c): the endpoint's thread, a helping thread that
 * waits for an operation, and a sender that makes a single pass to send something. The endpoint's
 * thread sleeps until an event arrives, its bell rings, or the time of its next known duty. While
 * other threads help it dozes, and no bell rings.
 *
 * `due` is a later duty of the endpoint (to announce a credit, to check a link again). The thread
 * that caused the duty may be gone then. A helper may leave without a signal, so the doze has a
 * time-out.
 *
 * Checked: one thread at a time makes a pass. When nothing can happen any more, everything that was
 * published or has arrived has been taken, and nothing is due.
 *
 * The controls, each of which must fail:
 *
 * -DNO_RING: a helper does not ring for the sleeping thread, so no thread knows of a later duty.
 *
 * -DSILENT: a thread that makes a single pass does not ring.
 *
 * -DTAKEN: a helper consumes the event that woke the thread before the thread runs (it reads the
 * bell's descriptor).
 *
 * -DNO_LOOK: the thread does not look again after it has armed its bell.
 *
 * -DFOR_EVER: the doze has no time-out.
 *
 * -DTWO: a thread makes a pass without having the right to it.
 */
#define WORK 3

byte published, taken;
byte due; /* 1 at a later time, 2 now */
byte helps, left, owners;
bool held, armed, asleep, rung, event;
bool clock; /* the thread's sleep or doze has a time-out */

inline make_pass()
{
	moved = false;
	if
	:: due == 2 -> due = 0; moved = true
	:: else -> skip
	fi;
	if
	:: atomic { taken < published ->
		taken = published; event = false; moved = true;
		if
		:: taken == WORK -> due = 1
		:: else -> skip
		fi }
	:: else -> skip
	fi
}

inline get()
{
#ifdef TWO
	got = true;
#else
	atomic { got = !held; held = true };
#endif
	if
	:: got -> owners++; assert(owners == 1)
	:: else -> skip
	fi
}

inline give()
{
	owners--;
	held = false
}

inline doze()
{
#ifndef FOR_EVER
	clock = true;
#endif
	do
	:: true ->
		h = helps;
enddoze:	if
		:: left != was -> break
		:: clock && timeout ->
			if
			:: left != was || helps == h -> break
			:: else -> skip
			fi
		fi
	od;
	clock = false
}

active proctype thread()
{
	bool got, moved;
	byte seen, was, h;

	do
	:: true ->
		got = false;
		if
		:: helps == seen -> get()
		:: else -> skip
		fi;
		if
		:: !got ->
			doze();
			seen = helps;
			was = left
		:: else ->
			asleep = false;
			make_pass();
			if
			:: moved -> give()
			:: else ->
				armed = true;
#ifndef NO_LOOK
				make_pass();
#endif
				asleep = !moved;
				clock = due == 1 && !moved;
				give();
				if
				:: moved -> skip
				:: else ->
endsleep:				if
					:: rung || event -> rung = false
					:: clock && timeout -> due = 2
					fi
				fi;
				clock = false;
				armed = false
			fi
		fi
	od
}

active proctype helper()
{
	bool got, moved;
	byte n;

	do
	:: n < 2 ->
		n++;
		get();
		if
		:: got ->
			helps++;
#ifndef NO_RING
			if
			:: asleep -> asleep = false; rung = true
			:: else -> skip
			fi;
#endif
			make_pass();
#ifdef TAKEN
			rung = false;
#endif
			give()
		:: else -> skip
		fi
	:: break
	od;
	if
	:: left++
	:: skip
	fi
}

/* It has checked whether there is work, and helps no longer. */
active proctype sender()
{
	bool got, moved;

	get();
	if
	:: got ->
		if
		:: taken < published ->
#ifndef SILENT
			if
			:: asleep -> asleep = false; rung = true
			:: else -> skip
			fi;
#endif
			make_pass()
		:: else -> skip
		fi;
		give()
	:: else -> skip
	fi
}

/* A block commits a slice and rings, or an event arrives over the wire. */
active proctype world()
{
	do
	:: published < WORK ->
		if
		:: published++;
			if
			:: armed -> rung = true
			:: else -> skip
			fi
		:: atomic { event = true; published++ }
		fi
	:: else -> break
	od
}

init
{
	do
	:: timeout -> assert(clock || (taken == published && due == 0)); break
	od
}
