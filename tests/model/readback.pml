/*
 * Slices that RDMA devices write to a GPU's memory (runtime/transport/net/verbs/readback.c). There
 * are two ports. A write of a port becomes visible some time later, and at the latest when a read
 * on the same port that was posted after it returns. A session fails at any time, also because a
 * read fails. Then queued slices are lost, but writes remain. A port may be out of order from then
 * on, so it cannot be read. Then the receiver waits until everything that the port wrote is
 * visible, or the port works again and is read.
 *
 * Checked: the block takes the slices in order, each with its own bytes, and all of them.
 *
 * The controls, each of which must fail:
 *
 * -DNO_READ: a slice counts when its frame has arrived.
 *
 * -DREAD_EARLY: a slice counts with a read that was under way when its frame arrived.
 *
 * -DOTHER_PORT: a slice counts when the other port has been read back.
 *
 * -DUNTOLD: slices are sent again before the writes of the last session are visible.
 *
 * -DFAILED: a port whose read has failed counts as read back.
 *
 * -DGONE: a port that is out of order counts as read back at once.
 */
#define N 4 /* slices */
#define S 2 /* slots */
#define NONE 7

#define BIT(i) (1 << (i))

chan way[2] = [2] of { byte }; /* by port: slices on their way */

byte sent, told, received, head; /* told: what the sender knows to be consumed */
byte slot[S] = NONE;
byte have; /* set of slices that count; the variables below are sets of slices too */
/*
 * By port: `late` written and not visible; `before` those of them before the posted read; `waits`
 * slices whose frames wait for a read; `covered` those that wait for the posted read.
 */
byte late[2], before[2], waits[2], covered[2];
bit posted[2], stale[2]; /* stale: written by a session that is over, and not read back */
bit allowed = 1, cut;
bit out[2];

/* Slices of `which` that are late at port p become visible. */
inline seen(p, which)
{
	i = 0;
	do
	:: i < N ->
		if
		:: late[p] & which & BIT(i) -> slot[i % S] = i; late[p] = late[p] & ~BIT(i)
		:: else -> skip
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

inline counts(which)
{
	have = have | which;
	do
	:: have & BIT(received) -> received++
	:: else -> break
	od
}

active proctype sender()
{
end:	do
	:: atomic { allowed && sent < N && sent - told < S && !out[0] && nfull(way[0]) -> way[0] ! sent; sent++ }
	:: atomic { allowed && sent < N && sent - told < S && !out[1] && nfull(way[1]) -> way[1] ! sent; sent++ }
	:: atomic { told < head -> told = head }
	od
}

inline arrives(p)
{
	way[p] ? n;
	late[p] = late[p] | BIT(n);
#ifdef NO_READ
	counts(BIT(n));
#else
	waits[p] = waits[p] | BIT(n);
#ifdef READ_EARLY
	if
	:: posted[p] -> covered[p] = covered[p] | BIT(n)
	:: else -> skip
	fi;
#endif
#endif
	n = 0
}

/* Posts a read after all frames that have arrived. */
inline post(p)
{
	posted[p] = 1;
	before[p] = late[p];
	covered[p] = waits[p];
	stale[p] = 0;
	reading[p] = 1
}

inline back(p)
{
	posted[p] = 0;
	seen(p, before[p]);
	before[p] = 0;
	reading[p] = 0;
#ifdef OTHER_PORT
	counts(waits[1 - p]);
	waits[1 - p] = 0;
#else
	counts(covered[p]);
	waits[p] = waits[p] & ~covered[p];
#endif
	covered[p] = 0
}

#ifdef OTHER_PORT
#define WANTS(p) (!posted[p] && !out[p] && (waits[1 - p] || stale[p]))
#else
#define WANTS(p) (!posted[p] && !out[p] && (waits[p] || stale[p]))
#endif

/* After some time all writes of a port that is out of order are visible. */
#ifdef GONE
#define WAITED(p) (out[p] && stale[p])
#else
#define WAITED(p) (out[p] && stale[p] && !late[p])
#endif

/* A read that was posted after the session's end. */
bit reading[2];

active proctype receiver()
{
	byte n, i;

end:	do
	:: atomic { nempty(way[0]) -> arrives(0) }
	:: atomic { nempty(way[1]) -> arrives(1) }
	:: atomic { WANTS(0) -> post(0) }
	:: atomic { WANTS(1) -> post(1) }
	:: atomic { posted[0] -> back(0) }
	:: atomic { posted[1] -> back(1) }
	:: atomic { WAITED(0) -> stale[0] = 0 }
	:: atomic { WAITED(1) -> stale[1] = 0 }
#ifdef UNTOLD
	:: atomic { !allowed -> allowed = 1 }
#else
	:: atomic { !allowed && !stale[0] && !stale[1] && !reading[0] && !reading[1] -> allowed = 1 }
#endif
	od
}

/* The bus makes writes visible at any time. */
active proctype bus()
{
	byte i;

end:	do
	:: atomic { late[0] -> seen(0, 255) }
	:: atomic { late[1] -> seen(1, 255) }
	od
}

active proctype block()
{
end:	do
	:: atomic { head < received -> assert(slot[head % S] == head); head++ }
	od
}

/* The posted read of port p does not return. */
inline lost(p)
{
	posted[p] = 0;
	before[p] = 0;
	reading[p] = 0
}

active proctype fault()
{
	byte failed = 2;

end:	do
	:: atomic { !cut && sent > 0 ->
		cut = 1;
		if
		:: posted[0] -> lost(0); failed = 0
		:: posted[1] -> lost(1); failed = 1
		:: skip
		fi;
		do
		:: nempty(way[0]) -> way[0] ? _
		:: nempty(way[1]) -> way[1] ? _
		:: empty(way[0]) && empty(way[1]) -> break
		od;
		waits[0] = 0;
		waits[1] = 0;
		covered[0] = 0;
		covered[1] = 0;
		stale[0] = 1;
		stale[1] = 1;
		if
		:: out[0] = 1; lost(0)
		:: out[1] = 1; lost(1)
		:: skip
		fi;
#ifdef FAILED
		if
		:: failed < 2 -> stale[failed] = 0
		:: else -> skip
		fi;
#endif
		/* Slices that arrived before a gap was filled are sent again (rails.pml). */
		have = have & (BIT(received) - 1);
		sent = received;
		allowed = 0
	}
	:: atomic { out[0] -> out[0] = 0 }
	:: atomic { out[1] -> out[1] = 0 }
	od
}

init
{
	timeout -> assert(head == N)
}
