/*
 * Slices that RDMA devices write into a GPU's memory (runtime/transport/net/verbs/readback.c). Two ports; what a port has written
 * is seen some time after it, and at the latest when a read of that port which was posted behind it is back. A session fails at
 * any time, also because a read does: what is in queues is lost, what has been written is not taken back. A port may be out from
 * then on: it cannot be read. Then the receiver waits for so long that all that the port wrote is seen; or the port is back, and is read.
 *
 * Checked: the block takes the slices in order, each with its own bytes, and all of them.
 *
 * The controls, each of which must fail:
 * -DNO_READ     a slice counts when its frame has come
 * -DREAD_EARLY  it counts with a read that was under way when it came
 * -DOTHER_PORT  it counts when the other port has been read back
 * -DUNTOLD      slices are sent again before what the last session has written is seen
 * -DFAILED      a port whose read has failed counts as read back
 * -DGONE        a port that is out counts as read back at once
 */
#define N 4 /* slices */
#define S 2 /* slots */
#define NONE 7

#define BIT(i) (1 << (i))

chan way[2] = [2] of { byte }; /* by port: slices on their way */

byte sent, told, received, head; /* told: what the sender knows to be consumed */
byte slot[S] = NONE;
byte have; /* slices that count; sets of slices, here and below */
/* By port: written and not seen; of these, before the read that is under way; frames that wait; those that wait for it. */
byte late[2], before[2], waits[2], covered[2];
bit posted[2], stale[2]; /* stale: written by a session that is over, and not read back */
bit allowed = 1, cut;
bit out[2];

/* What of `which` is late at port p is seen. */
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

/* Behind all that has come. */
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

/* A port that is out owes nothing after some time. */
#ifdef GONE
#define WAITED(p) (out[p] && stale[p])
#else
#define WAITED(p) (out[p] && stale[p] && !late[p])
#endif

/* A read that was posted since the session's end. */
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

/* The bus takes its time. */
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

/* The read that is under way at port p does not come back. */
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
		/* What came in front of a gap is sent again (rails.pml). */
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
