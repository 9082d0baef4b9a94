/*
 * A GPU's daemon of B blocks that leaves and is launched again (kernels/daemon.inl, dfk_leaves();
 * runtime/device/cuda/launch.c).
 *
 * R blocks of a launch are on the device at a time. A further block starts when one has left. A
 * block without work announces this (`stays`). A block that sees this of all blocks lets them
 * leave. Each block obeys after it has been on the device for some time itself. The host requests
 * the leave in Q quiet times, and launches when no kernel runs and there is work. N pieces of work
 * are submitted one by one, each for one block. If all blocks have room, block 0 may be busy with
 * other work that never ends, and never leaves by itself.
 *
 * Checked: when nothing can happen any more, no work is left (assertion). There is no endless run
 * without work being done (pan -l).
 *
 * Controls:
 *
 * -DALONE: each block leaves for itself, so the work of a block that has left waits for a busy
 * block.
 *
 * -DWITHDRAW: the host withdraws its request when the quiet time is over, but some blocks may have
 * obeyed.
 *
 * -DAT_ONCE with -DR=1: a block that starts late leaves like the others, without having done
 * anything.
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
byte here, left; /* blocks on the device; blocks of this launch that have left it */
bool kernel;

#ifdef AT_ONCE
#define FOLLOWS leave
#else
#define FOLLOWS (leave && turns)
#endif
#define BUSY (busy && b == 0)

proctype block(byte b)
{
	bool turns; /* it has had time to do its work */
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
		/* Checks the other blocks one after the other. Meanwhile they may get work. */
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
