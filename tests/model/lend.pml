/*
 * Inheritance of priorities across ranks (runtime/coll/lend.c). Three ranks in a line, 0 - 1 - 2.
 * Collective A has all ranks, B has ranks 1 and 2. Each rank issues OPS instances of each, in its
 * own time. Urgent operations of rank 0 wait for A: the first, of the highest priority, for
 * instance 0, the second, less urgent, for instance 1. On rank 2 an instance of A waits for that of
 * B. A priority that is noted under the lock of a device (one step here) is sent after the lock is
 * released, by the thread that submits or receives.
 *
 * Checked: the program ends. Then every instance for which an urgent operation waits, on any rank,
 * is as urgent as that operation.
 *
 * The controls, each of which must fail:
 *
 * -DFORGET: a priority for instances that are not issued yet is forgotten.
 *
 * -DKEEP: of two priorities for instances that are not issued yet, the lower one is forgotten,
 * although it is for more instances.
 *
 * -DHOLD: a rank that has not issued the instance does not inform its other peers.
 *
 * -DMUTE: a rank that receives a priority does not send what follows from it.
 *
 * -DLOCAL: the operation for which a raised instance waits is not raised.
 *
 * -DEARLY: a submitter checks for priorities to send before it has submitted.
 *
 * -DAGAIN: a priority that an instance already has is sent again.
 */
#define A    0
#define B    1
#ifndef OPS
#define OPS 2
#endif
#define ROOM 6

typedef collective { byte issued, lent_count, lent_urgency, urgency[OPS] };
typedef rank { collective c[2] };
rank r[3];
byte busy;
#ifdef COUNT
byte told;
#endif

/* Notes for a rank's peers, and messages on the way to a rank: collective, count, priority. */
chan notes[3] = [ROOM] of { byte, byte, byte };
chan wire[3] = [ROOM] of { byte, byte, byte };

/* Notes a priority for the peers in the line that have the collective. */
inline note(me, k, count, p) { assert(nfull(notes[me])); notes[me] ! k, count, p }

/*
 * Raises the first `count` instances of collective `k` that are issued to at least this priority.
 */
inline raise(me, k, count, p)
{
	i = 0; raised = 0;
	do
	:: i < count && i < r[me].c[k].issued ->
		if
#ifdef AGAIN
		:: r[me].c[k].urgency[i] <= p ->
#else
		:: r[me].c[k].urgency[i] < p ->
#endif
			r[me].c[k].urgency[i] = p; raised = i + 1
		:: else
		fi;
		i++
	:: else -> break
	od;
	if
	:: raised -> note(me, k, raised, p)
	:: else
	fi
}

/* Instances of A on rank 2 wait for those of B. */
inline raise_waits(me, k, count, p)
{
	if
#ifndef LOCAL
	:: me == 2 && k == A -> raise(me, B, count, p)
#endif
	:: else
	fi
}

inline lend(me, k, count, p)
{
	raise(me, k, count, p);
	if
	:: raised -> also = raised; raise_waits(me, k, also, p)
	:: else
	fi
}

inline hear(me, k, count, p)
{
	lend(me, k, count, p);
#ifndef FORGET
	if
	:: count <= r[me].c[k].issued
	:: count > r[me].c[k].issued && r[me].c[k].lent_count <= r[me].c[k].issued ->
		r[me].c[k].lent_count = count; r[me].c[k].lent_urgency = p;
#ifndef HOLD
		note(me, k, count, p)
#endif
	:: else ->
#ifdef KEEP
		if
		:: p >= r[me].c[k].lent_urgency -> r[me].c[k].lent_count = count; r[me].c[k].lent_urgency = p
		:: else
		fi
#else
		if
		:: count > r[me].c[k].lent_count || p > r[me].c[k].lent_urgency ->
			if
			:: count > r[me].c[k].lent_count -> r[me].c[k].lent_count = count
			:: else
			fi;
			if
			:: p > r[me].c[k].lent_urgency -> r[me].c[k].lent_urgency = p
			:: else
			fi;
#ifndef HOLD
			note(me, k, r[me].c[k].lent_count, r[me].c[k].lent_urgency)
#endif
		:: else
		fi
#endif
	fi
#endif
}

inline issue(me, k)
{
	r[me].c[k].issued++;
	i = r[me].c[k].issued - 1;
	if
	:: i < r[me].c[k].lent_count ->
		r[me].c[k].urgency[i] = r[me].c[k].lent_urgency;
		upto = r[me].c[k].issued; raise_waits(me, k, upto, r[me].c[k].urgency[upto - 1])
	:: else
	fi
}

/* Clears variables, so that their old values do not multiply the states. */
inline forget() { i = 0; raised = 0; upto = 0; also = 0; k = 0; n = 0; p = 0 }

inline tell(me)
{
	atomic {
		do
		:: notes[me] ? k, n, p ->
#ifdef COUNT
			told++; assert(told <= COUNT);
#endif
			/* B has ranks 1 and 2, A has all. */
			if
			:: me > k -> assert(nfull(wire[me - 1])); wire[me - 1] ! k, n, p
			:: else
			fi;
			if
			:: me < 2 -> assert(nfull(wire[me + 1])); wire[me + 1] ! k, n, p
			:: else
			fi;
		:: empty(notes[me]) -> break
		od;
		forget()
	}
}

/* Called after a submission, when the device's lock is released. */
inline submitted(me)
{
#ifdef EARLY
	if
	:: look -> tell(me)
	:: else
	fi
#else
	tell(me)
#endif
}

proctype application(byte me)
{
	byte i, raised, upto, also, k, n, p;
	bool look;

	do
	:: atomic { me == 0 && r[me].c[A].issued < OPS ->
		look = nempty(notes[me]); issue(me, A);
		upto = r[me].c[A].issued; lend(me, A, upto, OPS + 1 - upto); forget() }; submitted(me)
	:: atomic { me == 1 && r[me].c[A].issued < OPS ->
		look = nempty(notes[me]); issue(me, A); issue(me, B); forget() }; submitted(me)
	:: atomic { me == 2 && r[me].c[A].issued < OPS ->
		look = nempty(notes[me]); issue(me, B); issue(me, A); forget() }; submitted(me)
	:: r[me].c[A].issued == OPS -> look = false; break
	od;
	busy--
}

proctype control(byte me)
{
	byte i, raised, upto, also, k, n, p;

end:	do
	:: atomic { wire[me] ? k, n, p -> hear(me, k, n, p); forget() }
#ifndef MUTE
		tell(me)
#endif
	od
}

init
{
	byte i, k;

	atomic {
		busy = 3;
		for (i : 0 .. 2) { run application(i); run control(i) }
	};
	do
	:: timeout ->
		assert(!busy);
		for (i : 0 .. 2) {
			for (k : A .. B) {
				if
				:: i >= k -> assert(r[i].c[k].urgency[0] >= OPS && r[i].c[k].urgency[OPS - 1] >= 1)
				:: else
				fi
			}
		}
		break
	od
}
