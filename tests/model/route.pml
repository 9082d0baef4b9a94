/*
 * Messages to one process (runtime/ctl/flood.c). Each message takes the way from which the latest
 * flood of its target arrived, or floods where no way is known. After a change of the overlay it is
 * sent again as a flood. Three processes: S sends to D, and C is between them. At first D floods a
 * message, from which the others learn the way.
 *
 * By default all three are linked, which is a cycle, and C cuts its link to D (df_tree_cut()). With
 * -DMOVE, D is a child of C, loses that link, and attaches to S. The contents of the link may be
 * lost.
 *
 * Checked: when nothing can happen any more, D has each message once. No message circulates for
 * ever.
 *
 * -DUNTOLD: the processes do not learn that the overlay has changed.
 *
 * -DKEEP_WAYS: a process that learns it sends its messages again, but keeps the learned ways.
 *
 * -DNO_REPEAT: a process that learns it learns the ways anew, but repeats nothing.
 *
 * -DANY_FLOOD: an older flood that arrives late on the previous way teaches a way too.
 *
 * -DNO_NUMBERS: D takes every copy of a message.
 */
#define S 0
#define C 1
#define D 2
#define NONE 3
#define N 3
#ifndef MESSAGES
#define MESSAGES 2
#endif

mtype = { SHARE, REPAIR, MSG };
#define Q(from, to) q[(from) * N + (to)]
#define UP(a, b) up[(a) * N + (b)]

#ifdef ANY_FLOOD
#define LATEST(who, n) true
#else
#define LATEST(who, n) ((n) > newest[(who) % 2])
#endif

/* type, origin, number, to D alone, message */
chan q[9] = [5] of { mtype, byte, byte, bool, byte };
bool up[9];
byte via[2] = NONE; /* of S and C: the way from which D's latest flood arrived */
byte newest[2];	     /* number of that flood */
byte number[3];
byte seen[9];	     /* [who * N + origin]: set of numbers */
byte sent, got[MESSAGES];
bool shared, changed;

inline put(pm, pe, pt, po, pn, pd, pi)
{
	if
	:: pt == MSG && pd && pm != D && via[pm % 2] != NONE && via[pm % 2] != pe && UP(pm, via[pm % 2]) ->
		Q(pm, via[pm % 2])!pt, po, pn, pd, pi
	:: pt == MSG && pd && pm == D -> skip
	:: else ->
		k = 0;
		do
		:: k < N ->
			if
			:: UP(pm, k) && k != pe -> Q(pm, k)!pt, po, pn, pd, pi
			:: else -> skip
			fi;
			k++
		:: else -> break
		od
	fi
}

inline flood(fm, ft, fd, fi_)
{
	number[fm]++;
	put(fm, NONE, ft, fm, number[fm], fd, fi_)
}

/* Reaction of a process that learns of a change. */
inline repair(rm)
{
#ifndef KEEP_WAYS
	if
	:: rm != D -> via[rm % 2] = NONE
	:: else -> skip
	fi;
#endif
#ifndef NO_REPEAT
	if
	:: rm == S ->
		j = 0;
		do
		:: j < sent -> flood(rm, MSG, false, j); j++
		:: else -> break
		od
	:: else -> skip
	fi
#else
	skip
#endif
}

inline input(im, ifrom)
{
	Q(ifrom, im)?t, o, nr, toD, mid;
	if
	:: o != im && !(seen[im * N + o] & (1 << nr)) ->
		seen[im * N + o] = seen[im * N + o] | (1 << nr);
		if
		:: o == D && im != D && LATEST(im, nr) -> via[im % 2] = ifrom; newest[im % 2] = nr
		:: else -> skip
		fi;
		put(im, ifrom, t, o, nr, toD, mid);
		if
		:: t == MSG && im == D ->
#ifdef NO_NUMBERS
			got[mid]++
#else
			got[mid] = 1
#endif
		:: t == REPAIR -> repair(im)
		:: else -> skip
		fi
	:: else -> skip
	fi;
	t = SHARE; o = 0; nr = 0; toD = false; mid = 0; k = 0; j = 0
}

inline lose(a, b)
{
	UP(a, b) = false;
	do
	:: Q(a, b)?_, _, _, _, _
	:: empty(Q(a, b)) -> break
	od
}

proctype process(byte me)
{
	mtype t = SHARE;
	byte o, nr, mid, k, j;
	bool toD;

end:	do
	:: atomic { nempty(Q(S, me)) -> input(me, S) }
	:: atomic { nempty(Q(C, me)) -> input(me, C) }
	:: atomic { nempty(Q(D, me)) -> input(me, D) }
	:: atomic { me == S && sent < MESSAGES -> sent++; flood(S, MSG, true, sent - 1); k = 0 }
	:: atomic { me == D && !shared -> shared = true; flood(D, SHARE, false, 0); k = 0 }
#ifdef MOVE
	:: atomic { me == D && !changed ->
		changed = true;
		lose(D, C); lose(C, D);
		UP(D, S) = true; UP(S, D) = true;
#ifndef UNTOLD
		flood(D, REPAIR, false, 0);
#endif
		k = 0 }
#else
	/*
	 * Messages that C sent before may still arrive. Messages that D sends on that link do not.
	 */
	:: atomic { me == C && !changed ->
		changed = true;
		lose(D, C);
		if
		:: lose(C, D)
		:: UP(C, D) = false
		fi;
#ifndef UNTOLD
		flood(C, REPAIR, false, 0);
#endif
		k = 0 }
#endif
	od
}

init
{
	byte i;

	atomic {
		UP(S, C) = true; UP(C, S) = true;
		UP(C, D) = true; UP(D, C) = true;
#ifndef MOVE
		UP(S, D) = true; UP(D, S) = true;
#endif
		run process(S); run process(C); run process(D)
	}
	timeout;
	i = 0;
	do
	:: i < MESSAGES -> assert(got[i] == 1); i++
	:: else -> break
	od
}
