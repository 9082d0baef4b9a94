/*
 * The live verdict of mode trace (runtime/record/record_live.c, docs/control-plane.md).
 *
 * Without LEAD: the two looks. N processes. Each is free, or waits for a call of another one. A
 * free process may start to wait, or make the call for which another process waits. This increments
 * the number of its moves, and that of the process that goes on. A free process that does nothing
 * is slow. The leader reads the processes one after the other, twice, while they go on. It reports
 * a cycle of the second look if the numbers of the processes on it are the same in both looks. The
 * other processes may move.
 *
 * Checked: when the leader reports, there is a cycle.
 *
 * -DONCE: one look, which shows a cycle that never existed at one time.
 *
 * -DNUMBERS: the numbers do not count. Two looks show two cycles, neither of which exists.
 *
 * -DOWN: only the leader's own number counts: the same.
 *
 * With LEAD: the process that reports. All processes hang. Each sends its suspicion to the leader,
 * the living process with the lowest number. One process may die, and one may be stopped, at any
 * time, also between two messages of a verdict.
 *
 * Checked: each living process that is not stopped learns of the verdict. Without a death and a
 * stop there is one report.
 *
 * -DSTAYS: no process takes over from a stopped leader, so no process learns of the hang.
 *
 * -DDEAF: a process that knows the verdict does not repeat it when asked, so processes that the
 * dead leader had not informed do not learn of it.
 *
 * -DEAGER: a process takes over although the leader works: two reports.
 */
#ifndef LEAD

#define N     3
#define FREE  N
#ifndef MOVES
#define MOVES 5
#endif

byte waits[N] = FREE;
byte moves[N];
byte left = MOVES;

typedef look {
	byte waits[N], moves[N]
};
look l[2];

/* Whether p is on a cycle of two or three. */
#define AT(w, p)       ((p) == FREE -> FREE : (w[p]))
#define ON_CYCLE(w, p) (w[p] != FREE && (AT(w, w[p]) == (p) || AT(w, AT(w, w[p])) == (p)))
#define CYCLE(w)       (ON_CYCLE(w, 0) || ON_CYCLE(w, 1) || ON_CYCLE(w, 2))

proctype job()
{
	byte p, q;

end:
	do
	:: left > 0 ->
		select (p : 0 .. 2);
		select (q : 0 .. 2);
		if
		:: atomic {
			p != q && waits[p] == FREE -> waits[p] = q;
			moves[p]++;
			left--
		}
		:: atomic {
			p != q && waits[p] == q && waits[q] == FREE -> waits[p] = FREE;
			moves[p]++;
			moves[q]++;
			left--
		}
		:: else
		fi
	od
}

inline take(k)
{
	i = 0;
	do
	:: i == N -> break
	:: i < N -> d_step {
		l[k].waits[i] = waits[i];
		l[k].moves[i] = moves[i];
		i++
	}
	od
}

#define KEPT(p) (l[0].moves[p] == l[1].moves[p])
#define HELD(p) (!ON_CYCLE(l[1].waits, p) || KEPT(p))
#ifdef NUMBERS
#define SAME 1
#else
#ifdef OWN
#define SAME KEPT(0)
#else
#define SAME (HELD(0) && HELD(1) && HELD(2))
#endif
#endif
#ifdef ONCE
#define LAST 0
#else
#define LAST 1
#endif

proctype leader()
{
	byte i;

	take(0);
#ifndef ONCE
	take(1);
#endif
	atomic {
		if
		:: CYCLE(l[0].waits) && CYCLE(l[LAST].waits) && (LAST == 0 || SAME) ->
			assert(CYCLE(waits))
		:: else
		fi
	}
}

init
{
	atomic {
		run job();
		run leader()
	}
}

#else

#define N 3
mtype = { SUSPICION, VERDICT };

chan inbox[N] = [8] of { mtype };
bool dead[N], stopped[N], told[N], asked[N], suspects[N], sends[N];
byte asked_whom[N];
byte reports;
bool faults; /* a process has died or was stopped */

#define LEADER (!dead[0] -> 0 : (!dead[1] -> 1 : 2))
#define RUNS(p) (!dead[p] && !stopped[p])
/*
 * The leader has not answered for longer than any other process before this one would have needed
 * to take over.
 */
#define OVER(q)	   (dead[q] || stopped[q] || (told[q] && !sends[q]))
#define LATE(p)	   (stopped[LEADER] && ((p) == 0 || (OVER(0) && ((p) == 1 || OVER(1)))))

inline send_verdict(p)
{
	i = 0;
	sends[p] = true;
	do
	:: i == N -> break
	:: i < N && RUNS(p) ->
		if
		:: i != p && !dead[i] -> inbox[i]!VERDICT
		:: else
		fi;
		i++
	:: i < N && !RUNS(p) -> break
	od;
	sends[p] = false
}

proctype process(byte p)
{
	byte i;

end:
	do
	:: dead[p] -> break
	:: atomic { RUNS(p) && inbox[p]?[VERDICT] -> inbox[p]?VERDICT };
		if
#ifndef DEAF
		:: atomic { suspects[p] && !told[p] -> told[p] = true; sends[p] = true }; send_verdict(p)
		:: else -> told[p] = true
#else
		:: told[p] = true
#endif
		fi
	:: atomic { RUNS(p) && inbox[p]?[SUSPICION] -> inbox[p]?SUSPICION };
		if
#ifdef DEAF
		:: told[p]
#else
		:: told[p] -> send_verdict(p)
#endif
		:: !told[p] -> suspects[p] = true
		fi
	:: atomic { RUNS(p) && !told[p] && LEADER == p && !suspects[p] -> suspects[p] = true }
	:: atomic {
		RUNS(p) && !told[p] && LEADER != p && (!asked[p] || asked_whom[p] != LEADER) ->
		asked[p] = true;
		asked_whom[p] = LEADER;
		inbox[LEADER]!SUSPICION
	}
#ifndef STAYS
#ifdef EAGER
	:: atomic { RUNS(p) && !told[p] && asked[p] && !suspects[p] -> suspects[p] = true }
#else
	:: atomic {
		RUNS(p) && !told[p] && asked[p] && !suspects[p] && LATE(p) && empty(inbox[p]) ->
		suspects[p] = true
	}
#endif
#endif
	:: RUNS(p) && suspects[p] && !told[p] && empty(inbox[p]) ->
		atomic {
			if
			:: RUNS(p) && !told[p] -> told[p] = true; sends[p] = true; reports++
			:: else
			fi
		};
		send_verdict(p)
	od
}

proctype fate()
{
	byte p;

	if
	:: skip
	:: select (p : 0 .. 1);
		atomic { dead[p] = true; faults = true }
	:: select (p : 0 .. 1);
		atomic { stopped[p] = true; faults = true }
	fi
}

proctype check()
{
	timeout ->
	assert(reports == 1 || (faults && reports <= 2));
	assert((told[0] || !RUNS(0)) && (told[1] || !RUNS(1)) && (told[2] || !RUNS(2)))
}

init
{
	atomic {
		run process(0);
		run process(1);
		run process(2);
		run fate();
		run check()
	}
}
#endif
