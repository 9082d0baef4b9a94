/*
 * A collective in a graph, on a lane (runtime/exec/nccl/put.c, lane.c; turn_over() in
 * runtime/device/cuda/cuda_graph.c). REPLAYS replays of the graph, one after the other, write
 * `arrived`, wait for `open` and clear it. A thread puts as many operations on the lane, which
 * executes their commands in order: it waits for the end of the previous replay and for `arrived`,
 * writes `begun`, clears `arrived`, and after NCCL's kernel writes `open`, `opened` and the
 * operation's word. When the communicator is aborted, at any time, its kernels return. The host
 * then writes the words of all operations, and writes to `lane` the last replay whose gate the lane
 * still opens. A call that puts an operation may not return then, and the lane writes no end for
 * this operation. A host thread checks which turns are over, and opens the gates that the lane does
 * not open.
 *
 * Checked: no kernel starts before its replay has arrived. No replay continues before its instance
 * is done. After a turn is over, the lane writes to its gate no more, because the gate's memory may
 * be used again. df_lane_is_ready() is right, and remains so. All replays end (no invalid end
 * state).
 *
 * Controls:
 *
 * -DNO_LANE: the host thread does not know which gates the lane opens, and ends a turn too early.
 *
 * -DWORD_FIRST: the word is written before the gate is opened: the same, without an abort.
 *
 * -DCLEAR_FIRST: `arrived` is cleared before `begun` is written, so an operation that was ready is
 * not ready for a moment.
 *
 * -DNO_BEGUN: it is unknown that an operation has begun, so it is ready and later is not.
 *
 * -DNO_PREVIOUS: an operation does not wait for the end of the previous replay, whose arrival makes
 * it ready.
 *
 * -DNO_POLL: no thread opens gates after the abort, so a replay waits for ever.
 */
#ifndef REPLAYS
#define REPLAYS 3
#endif

bit arrived, open;
byte opened, begun, lane, reached; /* replays, counted from 1 */
byte nr_put;			   /* operations on the lane */
bit ends[REPLAYS + 1];		   /* the lane writes the operation's end */
bit done[REPLAYS + 2], finished[REPLAYS + 1];
bool ended, putting, over;

proctype graph()
{
	byte i;

	for (i : 1 .. REPLAYS) {
		d_step { reached = i; arrived = 1 };
		open == 1 ->
		assert(finished[i] || ended);
		open = 0
	}
}

/* put_group(): a call of NCCL between the waits and the ends. */
proctype putter()
{
	byte i;

	for (i : 1 .. REPLAYS) {
		atomic {
			if
			:: ended -> break
			:: else -> putting = true
			fi
		}
		nr_put = i;
		atomic {
			/* may_end(): otherwise df_lane_end() has given up the call. */
			if
			:: putting -> ends[i] = 1
			:: else -> break
			fi
		}
		putting = false
	}
}

/*
 * The lane. The commands of an operation are known when its turn comes, or no further operation is
 * put.
 */
proctype stream()
{
	byte i;

	for (i : 1 .. REPLAYS) {
		if
		:: nr_put >= i
		:: over && nr_put < i -> break
		fi;
#ifndef NO_PREVIOUS
		i == 1 || done[i - 1];
#endif
		arrived == 1;
#ifdef CLEAR_FIRST
		arrived = 0;
		begun = i;
#else
		begun = i;
		arrived = 0;
#endif
		assert(reached >= i);
		/* A kernel ends with its peers' kernels, or because of the abort. */
		finished[i] = 1;
		if
		:: ends[i]
		:: over && !ends[i] -> break
		fi;
#ifdef WORD_FIRST
		done[i] = 1;
#endif
		open = 1;
		opened = i;
		done[i] = 1
	}
}

/* df_lane_end() */
proctype ending()
{
	byte i;

	if
	:: ended = true;
		/* The call returns, or is given up. */
		atomic {
			if
			:: !putting
			:: putting -> putting = false
			fi;
			over = true
		}
		for (i : 1 .. REPLAYS) {
			if
			:: done[i]
			:: else ->
				if
				:: ends[i] -> lane = i
				:: else
				fi;
				done[i] = 1
			fi
		}
	:: true
	fi
}

/* df_cuda_graph_poll(): one turn after the other. */
proctype poller()
{
	byte i;

	for (i : 1 .. REPLAYS) {
		done[i] == 1;
		if
		:: opened >= i
#ifndef NO_POLL
#ifdef NO_LANE
		:: opened < i && open == 0 -> open = 1
#else
		:: opened < i && i > lane && open == 0 -> open = 1
#endif
#endif
		fi;
		assert(!ends[i] || opened >= i)
	}
}

#ifdef NO_BEGUN
#define HAS_BEGUN(i) false
#else
#define HAS_BEGUN(i) (begun >= i)
#endif
#ifdef NO_PREVIOUS
#define PREVIOUS(i) true
#else
#define PREVIOUS(i) (i == 1 || done[i - 1])
#endif
#define READY(i) (PREVIOUS(i) && (arrived == 1 || HAS_BEGUN(i)))

/*
 * The lanes' thread, which checks an operation twice (hold.c). It does not check after the
 * communicator's end.
 */
proctype asking()
{
	byte i;

	select (i : 1 .. REPLAYS);
	if
	:: READY(i) && !ended ->
		assert(reached >= i);
		assert(READY(i) || ended)
	:: ended
	:: done[REPLAYS]
	fi
}

init {
	atomic {
		run graph();
		run putter();
		run stream();
		run ending();
		run poller();
		run asking()
	}
}
