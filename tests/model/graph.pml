/*
 * A collective in a graph (kernels/task.inl, dfk_finish(); runtime/device/cuda/cuda_graph.c).
 * REPLAYS replays of the graph, one after the other, write `arrived`, wait for `open` and clear it.
 * BLOCKS blocks execute as many instances in order. The last block to finish an instance opens the
 * gate. A host thread checks which turns are over, and opens the gates of turns that an abort has
 * ended. All instances are submitted at the beginning. Stores of a block without a release between
 * them may arrive in any order. So the stores of `arrived`, `open` and `done` are steps in any
 * order, except across a release.
 *
 * Checked: no instance starts before its replay has arrived. No replay continues before its
 * instance is done. All replays end (no invalid end state), with an abort at any time or without
 * one.
 *
 * Controls:
 *
 * -DCLEAR_FIRST: with two blocks, the first one that sees `arrived` clears it, and the other waits
 * for ever.
 *
 * -DNO_ORDER: an instance does not wait until the previous one is done, and takes its arrival for
 * its own.
 *
 * -DARRIVED_FIRST: an instance checks the arrival first and the previous instance then: the same.
 *
 * -DLATE: the block's note that it has opened the gate follows the fence too. The host thread takes
 * the gate for one that was never opened, and lets two replays go on.
 *
 * -DNO_RELEASE: no release orders the clearing before the opening, so the next replay's arrival is
 * lost.
 *
 * -DNO_TURNS: no thread checks turns after an abort, so a replay waits for ever.
 */
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef REPLAYS
#define REPLAYS 3
#endif

bit arrived, open;
byte opened, done, reached; /* replays, counted from 1 */
byte left[REPLAYS + 1];
bool aborted;

proctype graph()
{
	byte i;

	for (i : 1 .. REPLAYS) {
		d_step { reached = i; arrived = 1 };
		open == 1 ->
		assert(done >= i || opened >= i || aborted);
		open = 0
	}
}

proctype block()
{
	bool last;
	byte i;

	for (i : 1 .. REPLAYS) {
		/* dfk_instance_ready() */
		if
		:: aborted -> break
#ifdef ARRIVED_FIRST
		:: arrived == 1
#elif defined(NO_ORDER)
		:: true
#else
		:: BLOCKS == 1 || done >= i - 1
#endif
		fi;
		if
		:: aborted -> break
#ifdef ARRIVED_FIRST
		:: done >= i - 1
#else
		:: arrived == 1
#endif
		fi;
		assert(aborted || reached >= i);
#ifdef CLEAR_FIRST
		arrived = 0;
#else
		if
		:: BLOCKS == 1 -> arrived = 0
		:: else
		fi;
#endif
		/* Between two slices a block checks whether it must drop the task. */
		if
		:: aborted -> break
		:: true
		fi;
		/* dfk_finish() */
		d_step { left[i]++; last = left[i] == BLOCKS };
		if
		:: last ->
#ifdef NO_RELEASE
			opened = i;
			if
			:: true -> arrived = 0; open = 1
			:: true -> open = 1; arrived = 0
			fi;
			done = i
#else
			if
			:: BLOCKS > 1 -> arrived = 0
			:: else
			fi;
#ifdef LATE
			if
			:: true -> done = i; opened = i; open = 1
			:: true -> done = i; open = 1; opened = i
			:: true -> open = 1; done = i; opened = i
			fi
#else
			opened = i;
			/* After the fence the two stores arrive in any order. */
			if
			:: true -> open = 1; done = i
			:: true -> done = i; open = 1
			fi
#endif
#endif
		:: else
		fi
	}
	left[0]++
}

/* Aborts the communicator: takes the task from the blocks, then marks everything as done. */
proctype ending()
{
	if
	:: aborted = true;
		/* df_engine_purge() */
		left[0] == BLOCKS;
		done = REPLAYS
	:: true
	fi
}

/* df_cuda_graph_poll(): one turn after the other. */
proctype poller()
{
	byte i;

	for (i : 1 .. REPLAYS) {
		done >= i;
		if
		:: opened >= i
#ifndef NO_TURNS
		/* The graph has cleared the previous opening. */
		:: opened < i && open == 0 -> open = 1
#else
		:: opened < i
#endif
		fi
	}
}

init {
	byte b;

	atomic {
		for (b : 1 .. BLOCKS) {
			run block()
		}
		run graph();
		run ending();
		run poller()
	}
}
