/*
 * Who makes passes over an endpoint of the network (df_net_run(), df_tl_progress(), df_tl_begun() and df_tl_leave() of
 * runtime/transport/progress.c): its thread, a thread that waits for an operation and helps, or one that makes a single pass because it
 * has something to send (sender). The thread sleeps until something comes or its bell rings, or until the time of the next thing that it
 * knows it has to do; while others help it dozes, and no bell rings.
 *
 * What an endpoint has to do later (tell a credit, look at a link again) is `due`: whoever makes it so may not be there then. A
 * helper may go without a word; so the doze has a time-out.
 *
 * Checked: one at a time makes a pass; whenever nothing can happen any more, all that was published or has come has been taken, by
 * whomever, and nothing is due.
 *
 * The controls, each of which must fail:
 * -DNO_RING   a helper does not ring for the thread that sleeps: what becomes due then nobody knows of
 * -DSILENT    who makes a single pass does not
 * -DTAKEN     what has woken the thread is taken by the helper, before the thread runs (the descriptor of a bell is read)
 * -DNO_LOOK   the thread does not look again after it has armed its bell
 * -DFOR_EVER  the doze has no time-out
 * -DTWO       who does not get the right to a pass makes one all the same
 */
#define WORK 3

byte published, taken;
byte due; /* 1: at a later time; 2: it has come */
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

/* It has looked whether there is something, and helps no further. */
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

/* A block commits a slice and rings, or something comes over the wire. */
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
