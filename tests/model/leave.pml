/*
 * A GPU's daemon of B blocks that leaves and is launched again (kernels/daemon.inl, dfk_leaves();
 * runtime/device/cuda/launch.c).
 *
 * R blocks of a launch are on the device at a time; the next ones come when one has left. A block that has had nothing
 * to do says so (stays), and who sees that of all of them tells them to leave. Each follows that when it has been there
 * for some time itself. The host asks for leave in Q quiet times, and launches when no kernel is there and there is
 * work. N pieces of it are submitted, one by one, each for some block. Where all blocks have room, block 0 may be busy
 * with something else that never ends: it never leaves by itself.
 *
 * Checked: where nothing moves any more no work is left (assertion), and no endless run without any being done (pan -l).
 *
 * Controls: -DALONE: each block leaves for itself: the work of one that has left waits for one that is busy.
 * -DWITHDRAW: the host takes its request back when the quiet time is over; some may have followed it. -DAT_ONCE, with
 * -DR=1: who comes late leaves as the others did, without having done anything.
 */
#define B 2
#ifndef R
#define R B
#endif
#define N 3
#define Q 2

bool quit, leave, busy;
bool launched[B], stays[B];
byte work[B];
byte here, left; /* blocks on the device; those of this launch that have left it */
bool kernel;

#ifdef AT_ONCE
#define FOLLOWS leave
#else
#define FOLLOWS (leave && turns)
#endif
#define BUSY (busy && b == 0)

proctype block(byte b)
{
	bool turns; /* it has had some: time to do what there was to be done */
	byte i;

end_away:
	do
	:: atomic { launched[b] && here < R -> launched[b] = false; here++ };
		turns = false;
		stays[b] = true;
end_here:	do
		:: atomic { work[b] > 0 ->
progress_done:		work[b]-- };
			turns = true;
			stays[b] = true
		:: quit || FOLLOWS -> break
		:: work[b] == 0 && !BUSY && stays[b] ->
			turns = true;
			stays[b] = false
		:: work[b] == 0 && BUSY && !turns -> turns = true
#ifdef ALONE
		:: work[b] == 0 && !BUSY -> break
#else
		/* Looks at the others one after the other: they may change their minds meanwhile. */
		:: !stays[b] && !stays[1 - b] ->
			i = 0;
			do
			:: i < B && !stays[i] -> i++
			:: i < B && stays[i] -> break
			:: i == B -> leave = true; break
			od;
			if
			:: i == B -> break
			:: else
			fi
#endif
		od;
		atomic {
			stays[b] = false;
			here--;
			left++;
			kernel = left < B
		}
	od
}

proctype poller()
{
	byte asked;

end_idle:
	do
	:: atomic { !kernel && (work[0] > 0 || work[1] > 0) ->
		quit = false;
		leave = false;
		left = 0;
		launched[0] = true;
		launched[1] = true;
		kernel = true
	}
	:: atomic { kernel && !quit && asked < Q -> quit = true; asked++ }
#ifdef WITHDRAW
	:: kernel && quit -> quit = false
#endif
	od
}

proctype application()
{
	byte n;

	do
	:: n < N -> n++; work[0]++
	:: n < N -> n++; work[1]++
	:: n == N -> break
	od
}

proctype judge()
{
	timeout -> assert(work[0] == 0 && work[1] == 0)
}

init {
	atomic {
		if
		:: R == B -> busy = true
		:: true
		fi;
		run block(0);
		run block(1);
		run poller();
		run application();
		run judge()
	}
}
