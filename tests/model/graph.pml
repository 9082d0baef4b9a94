/*
 * A collective in a graph (kernels/task.inl, dfk_finish(); runtime/device/cuda/cuda_graph.c). REPLAYS replays of the graph write
 * `arrived`, wait for `open` and close it, one after the other; BLOCKS blocks execute as many instances in order, the last one to
 * finish an instance opens the gate; a host thread looks whether turns are over, and opens the gate of those that an abort has
 * ended. All instances are submitted at the beginning. What a block stores without a release in between may arrive in any
 * order: the stores of `arrived`, `open` and `done` are steps, taken in any order, unless a release is between them.
 *
 * Checked: no instance begins before its replay has arrived, no replay goes on before its instance is done, and all replays end
 * (no invalid end state), with the communicator aborted at any moment or not.
 *
 * Controls: -DCLEAR_FIRST: where there are two blocks, the first that sees `arrived` clears it: the other waits for ever.
 * -DNO_ORDER: the next instance does not wait for the one before it to be done: it takes the arrival for its own.
 * -DARRIVED_FIRST: it looks at the arrival, and at the one before it then: likewise.
 * -DLATE: the block's note that it has opened the gate is behind the fence, too: the host thread takes the gate for one that nobody
 * opens, and lets two replays go on.
 * -DNO_RELEASE: nothing orders the clearing before the opening: the arrival of the next replay is lost.
 * -DNO_TURNS: nobody looks after an abort: a replay waits for ever.
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
		/* Between two slices a block looks whether it is to drop the task. */
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
			/* The fence. */
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

/* Ends the communicator: takes the task from the blocks, then says that all is done. */
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
		/* The graph has closed what was opened before. */
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
