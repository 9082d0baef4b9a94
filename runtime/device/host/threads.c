/*
 * Executes the blocks on CPU threads. A block is a state machine (one turn at a time, no turn
 * blocks), so any thread that owns it can execute it: worker threads, and every thread of the
 * application that waits for our operations (it "helps"). A turn that cannot move data returns, and
 * the thread continues with another block. So eight ranks can share two cores without spinning
 * against each other.
 *
 * Under priority order (df_policy.let), several threads execute one block. A large slice moves
 * without the block's lock. Meanwhile a thread that waits for a more urgent operation executes that
 * operation itself, on its own processor: a wake-up across processors may take longer than the
 * operation.
 *
 * Where threads sleep:
 *   - A thread that waits while another moves large slices sleeps on end_seq if nothing else could
 *     move (rest()), or on the bell if something urgent waits for a peer (stand_by()).
 *   - A helper, or the only active worker, that finds nothing to move for a while sleeps on the
 *     process's bell. Peers ring it when they publish a slice, and our own threads when they
 *     complete an operation.
 *   - A worker that is not needed (a helper drives, or nothing is in flight) sleeps on work_seq.
 *     For a few milliseconds after the last work it does so with a time-out ("dozing"), so that a
 *     job that computes between short collectives pays for no wake-up; then without one ("deep"),
 *     so that an idle job costs nothing.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "kernels/daemon.h"
#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/futex.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/device/host/threads.h"
#include "kernels/bell.h"
#include "runtime/transport/transport.h"
#include "trace/record/writer.h"

#define BURST 64 /* turns of one block after which the thread continues with another block */
#define SPIN_PASSES                                                                                \
	800 /* passes without progress before yielding the core, if every thread has one */
/*
 * passes without progress before yielding if threads outnumber the cores; 1 if a processor was
 * lost
 */
#define CROWD_PASSES 4
/* passes per reading of the clock: most passes take as long as reading it */
#define CLOCK_PASSES  8
#define URGENT_PASSES 50 /* passes without progress while another thread moves large slices */
#define SHORT_PASSES  32 /* passes of a waiting thread before it counts as a helper */
#define FIRST_TURNS   2	 /* turns of a small operation by the thread that submits it */
#define YIELD_PASSES  64 /* passes before sleeping */
/* minimum time before sleeping, for passes that take long, as on an emulated processor */
#define AWAKE_NS     (500 * DF_NS_PER_US)
#define DOZE_NS	     200000
#define LINGER_NS    5000000 /* time that a worker dozes after the last work */
#define SLEEP_MIN_NS 50000
/*
 * A gap in the clock that means a lost processor: no pass takes this long, nor do our other threads
 * when they wake up. A program that spins takes the processor for longer.
 */
#define LOST_NS (100 * DF_NS_PER_US)
#define LOST_MIN_NS                                                                                \
	(100 * DF_NS_PER_MS) /* time that a lost processor counts; doubled if it is lost again */
#define LOST_MAX_NS (10 * DF_NS_PER_S)
/* the processor is lost again if that happens within this multiple of the time */
#define LOST_AGAIN	4
#define WORKER_SLICE_NS 10000000 /* several times the kernel's own slice */
#define SLEEP_MAX_NS	10000000

/* Before df_threads_start() there are no devices. */
static const struct df_execs none = {.nr_cores = 1, .nr_procs = 1};

static struct {
	struct df_mutex lock;
	uint32_t nr_workers;
	uint32_t helpers;  /* application threads that wait and help */
	uint32_t deep;	   /* workers that sleep without a time-out */
	uint32_t dozing;   /* workers that sleep with a time-out */
	uint32_t work_seq; /* futex word of dozing and sleeping workers */
	uint32_t resting;  /* waiting threads that leave the driving to others */
	uint32_t end_seq;  /* futex word of resting threads; changes when an operation has ended */
	uint64_t quit_ns;  /* idle time that counts as a quit */
	uint64_t launches;
	uint64_t lost_until, lost_ns; /* guarded by no lock, RELAXED: see look_at_clock() */
	uint32_t lost;		      /* whether lost_until is in the future */
	const struct df_execs *execs; /* atomic */
	uint32_t nr_blocks;	      /* number of blocks of all devices in use */
} eng = {.lock = DF_MUTEX_INIT(DF_RANK_LEAF, "engine"), .execs = &none};

static const struct df_execs *execs(void)
{
	/*
	 * ACQUIRE pairs with the RELEASE in df_threads_start(): without it the devices might not be
	 * initialised.
	 */
	return __atomic_load_n(&eng.execs, __ATOMIC_ACQUIRE);
}

/* Whether operations of the device are in flight. */
static int busy(const struct df_exec *x)
{
	/*
	 * SEQ_CST pairs with df_threads_submitted(): this load must not precede the store that
	 * shows that we sleep.
	 */
	return __atomic_load_n(&x->issued, __ATOMIC_SEQ_CST) !=
	       __atomic_load_n(&x->retired, __ATOMIC_RELAXED);
}

/* Whether operations of any device are in flight. */
static int outstanding(void)
{
	const struct df_execs *all = execs();
	int i;

	for (i = 0; i < all->nr; i++)
		if (busy(all->v[i]))
			return 1;
	return 0;
}

/* Whether more threads wait for each other on this node than there are cores. */
static int crowded(void)
{
	uint32_t here = __atomic_load_n(&eng.helpers, __ATOMIC_RELAXED);

	return DF_MAX(here, 1) * __atomic_load_n(&execs()->nr_procs, __ATOMIC_RELAXED) >
	       (uint32_t)execs()->nr_cores;
}

/*
 * Whether a waiting thread has recently lost its processor to other threads (look_at_clock()). Then
 * waiting threads yield early. Turns of a block do not change: ending them earlier would cost a job
 * of many collectives more than yielding gains.
 */
static int lost(void)
{
	return __atomic_load_n(&eng.lost, __ATOMIC_RELAXED) != 0;
}

/*
 * With one block, and a core for each process, the block's task cannot be waiting for this process.
 */
static int alone(void)
{
	return __atomic_load_n(&eng.nr_blocks, __ATOMIC_RELAXED) == 1 && !crowded();
}

/* The outcome of a pass over one or all blocks. The highest value wins. */
enum look {
	LOOK_STUCK, /* every task of every block has been tried since the last progress */
	/* priority order: other threads move large slices, and no operation is more urgent */
	LOOK_TAKEN,
	LOOK_URGENT, /* as LOOK_TAKEN, but a more urgent operation cannot move yet */
	LOOK_SPINS,  /* nothing moved, but some tasks have not had their turn */
	LOOK_BESIDE, /* a more urgent operation moved while other threads move large slices */
	LOOK_MOVED,
};

/*
 * Releases a block. Only under priority order may threads sleep until it is released;
 * df_block_let() looks for them, which takes longer.
 */
static void give_back(const struct df_exec *x, struct df_kblock *blk)
{
	if (x->d.policy.order)
		df_block_let(blk);
	else
		df_trylock_release((struct df_trylock *)&blk->lock);
}

static enum look block_work(struct df_exec *x, struct df_kblock *blk)
{
	enum df_turn turn = DF_TURN_EMPTY;
	enum look look = LOOK_STUCK;
	int only = alone(), order = x->d.policy.order != 0, i;
	uint64_t ended;

	/* The owner drives the block; under priority order it is soon released. */
	if (order)
		df_block_take(blk);
	else if (!df_trylock_try((struct df_trylock *)&blk->lock))
		return LOOK_STUCK;
	ended = blk->stats.operations;
	/* Under priority order, an operation's end ends the burst: it is published at once. */
	for (i = 0; i < BURST && (!order || blk->stats.operations == ended); i++) {
		const struct df_kctx *task = blk->task;

		turn = df_block_turn(&x->d, blk);
		if (turn == DF_TURN_PROGRESS)
			look = LOOK_MOVED;
		/* The task still spins, maybe for another block or for the network. */
		else if (turn == DF_TURN_EMPTY || blk->moving ||
			 (blk->task == task && (!only || blk->nr_tasks == 1)))
			break;
	}
	if (blk->moving)
		look = look == LOOK_MOVED      ? LOOK_BESIDE
		       : turn == DF_TURN_TAKEN ? LOOK_TAKEN
					       : LOOK_URGENT;
	else if (look == LOOK_STUCK && blk->first && blk->idle < 2)
		look = LOOK_SPINS;
	give_back(x, blk);
	return look;
}

void df_threads_first_turns(int device)
{
	struct df_exec *x;
	uint32_t b;
	int moved = 0;

	/* With several blocks, ranks of one process reach the same order sooner without this. */
	if (__atomic_load_n(&eng.nr_blocks, __ATOMIC_RELAXED) != 1)
		return;
	x = execs()->v[device];
	for (b = 0; b < x->d.nr_blocks; b++) {
		struct df_kblock *blk = &x->blocks[b];
		int i;

		if (!df_trylock_try((struct df_trylock *)&blk->lock))
			continue;
		/* Only the new operation: other tasks may have much to move. */
		for (i = blk->first ? FIRST_TURNS : 0; i < FIRST_TURNS; i++)
			if (df_block_turn(&x->d, blk) == DF_TURN_PROGRESS)
				moved = 1;
			else
				break;
		give_back(x, blk);
	}
	if (moved)
		df_tl_begun(device, df_trace_time());
}

/*
 * Operations have ended: wakes resting threads, which may have waited for them, and lets them run
 * first on a shared processor.
 */
static void tell_resting(void)
{
	/*
	 * SEQ_CST pairs with rest(): either this thread sees that one rests, or that one sees the
	 * ended operation.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&eng.resting, __ATOMIC_RELAXED))
		return;
	__atomic_add_fetch(&eng.end_seq, 1, __ATOMIC_RELAXED);
	df_futex_wake(&eng.end_seq, INT_MAX, 0);
	sched_yield();
}

/* Makes a pass over all blocks, beginning with those of device `first`. */
static enum look pass(int first)
{
	const struct df_execs *all = execs();
	enum look look = LOOK_STUCK;
	uint32_t b;
	int i;

	for (i = 0; i < all->nr; i++) {
		int device = (DF_MAX(first, 0) + i) % all->nr;
		struct df_exec *x = all->v[device];

		if (!__atomic_load_n(&x->used, __ATOMIC_RELAXED) ||
		    (__atomic_load_n(&x->issued, __ATOMIC_RELAXED) ==
			     __atomic_load_n(&x->retired, __ATOMIC_RELAXED) &&
		     !execs()->hooks->asked(device)))
			continue;
		for (b = 0; b < x->d.nr_blocks; b++) {
			enum look l = block_work(x, &x->blocks[b]);

			look = DF_MAX(look, l);
		}
		if (execs()->hooks->chores(device)) {
			look = LOOK_MOVED;
			tell_resting();
		}
	}
	return look;
}

/*
 * Makes a pass and drives the network, for a thread that only waits. Skips the network if ready()
 * is true after the pass. `ready` may be NULL.
 */
static enum look pass_on(int device, int (*ready)(void *arg), void *arg)
{
	enum look look = pass(device);

	if (look == LOOK_TAKEN || (ready && ready(arg)) || !df_tl_progress(device))
		return look;
	return look == LOOK_URGENT || look == LOOK_BESIDE ? LOOK_BESIDE : LOOK_MOVED;
}

int df_threads_pass(int device)
{
	return pass(device) >= LOOK_BESIDE;
}

/* ---- waiting --------------------------------------------------------------------------------- */

struct backoff {
	uint32_t idle;	 /* number of passes without progress */
	uint32_t quit;	 /* whether the idle time has become a voluntary quit */
	uint64_t since;	 /* the first reading of the clock */
	uint64_t looked; /* the last reading, or the last wake-up */
};

/* Counts a quit, once, when a driving thread has moved nothing for quit_ns (DFSHIM_QUIT_US). */
static void note_quit(struct backoff *b)
{
	int i;

	if (b->quit || b->looked - b->since < eng.quit_ns)
		return;
	b->quit = 1;
	for (i = 0; i < execs()->nr; i++) {
		struct df_exec *x = execs()->v[i];

		if (__atomic_load_n(&x->issued, __ATOMIC_RELAXED) ==
		    __atomic_load_n(&x->retired, __ATOMIC_RELAXED))
			continue;
		__atomic_add_fetch(&x->quits, 1, __ATOMIC_RELAXED);
		df_trace(DF_REC_DAEMON_QUIT, i, 0, -1, 0, (uint64_t)i, 1, 0, 0);
	}
}

static void note_progress(struct backoff *b)
{
	if (b->quit)
		__atomic_add_fetch(&eng.launches, 1, __ATOMIC_RELAXED);
	memset(b, 0, sizeof(*b));
}

/*
 * Sleeps on the bell for at most ns. Does not sleep if ready() is true, or a pass moves something,
 * after the bell is armed.
 */
static void sleep_on_bell(int64_t ns, int device, int (*ready)(void *arg), void *arg)
{
	struct df_bell *bell = df_tl_bell();
	uint32_t seen = df_bell_arm(bell);

	if (!(ready && ready(arg)) && pass_on(device, NULL, NULL) <= LOOK_URGENT) {
		df_tl_leave(device, 1);
		df_bell_sleep(bell, seen, ns);
	}
	df_bell_disarm(bell);
}

/*
 * A thread that spins or yields and sees the clock leap has lost its processor: to another program,
 * to a node emulated on this machine, or to a quota. The operation that it waits for may need that
 * processor too, so for some time all waiting threads yield early. `since` is the previous reading,
 * or 0. Returns the time.
 */
static uint64_t look_at_clock(uint64_t since)
{
	uint64_t now = df_now_ns(), until = __atomic_load_n(&eng.lost_until, __ATOMIC_RELAXED),
		 hold = __atomic_load_n(&eng.lost_ns, __ATOMIC_RELAXED);

	if (since && now - since > LOST_NS) {
		if (!hold)
			df_info("other threads use this process's processors: while they do, "
				"threads that wait for collectives yield at once");
		if (now > until) {
			hold = now - until < LOST_AGAIN * hold ? DF_MIN(2 * hold, LOST_MAX_NS)
							       : LOST_MIN_NS;
			__atomic_store_n(&eng.lost_ns, hold, __ATOMIC_RELAXED);
		}
		until = now + hold;
		__atomic_store_n(&eng.lost_until, until, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&eng.lost, now < until, __ATOMIC_RELAXED);
	return now;
}

/*
 * After a pass without progress: pauses, yields, or sleeps on the bell. A sleep is at most as long
 * as the wait before it. So an event that rings no bell takes at most twice its time to notice; and
 * useless wake-ups, each of which takes the processor from the threads that it waits for, become
 * rare.
 */
static void back_off(struct backoff *b, enum look look, int device, int (*ready)(void *arg),
		     void *arg)
{
	uint32_t spins = crowded() ? CROWD_PASSES : SPIN_PASSES, most = spins + YIELD_PASSES;
	uint64_t waited;

	/* Yields at once, but sleeps no sooner: a wake-up costs more than yielding for as long. */
	if (lost())
		spins = 1;
	if (++b->idle >= spins || b->idle % CLOCK_PASSES == 0) {
		b->looked = look_at_clock(b->looked);
		if (!b->since)
			b->since = b->looked;
	}
	waited = b->looked - b->since;
	if (look != LOOK_SPINS && (b->idle >= most || waited >= AWAKE_NS)) {
		note_quit(b);
		sleep_on_bell((int64_t)DF_MIN(DF_MAX(waited, SLEEP_MIN_NS), SLEEP_MAX_NS), device,
			      ready, arg);
		b->looked = df_now_ns();
	} else if (b->idle < spins) {
		df_relax();
	} else {
		sched_yield();
	}
}

/*
 * Sleeps until an operation ends. Another thread, maybe on this very processor, moves everything
 * that could move. Spinning would take the processor from both a bulky operation and an urgent one.
 * tests/model/rest.pml is the model.
 */
static void rest(int (*ready)(void *arg), void *arg)
{
	uint32_t seen = __atomic_load_n(&eng.end_seq, __ATOMIC_RELAXED);

	/* SEQ_CST pairs with tell_resting(), which says why. */
	__atomic_add_fetch(&eng.resting, 1, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	/*
	 * The time-out is needed only if a wake-up is missed. It is not shorter, because the kernel
	 * programs its timer for a time-out before the next tick: in a virtual machine that takes
	 * as long as the operation.
	 */
	if (!ready(arg))
		df_futex_wait(&eng.end_seq, seen, SLEEP_MAX_NS, 0);
	__atomic_sub_fetch(&eng.resting, 1, __ATOMIC_RELAXED);
}

/*
 * Waits for a peer of an urgent operation while another thread moves large slices. The peer may
 * arrive at any moment unless it is late. Then this thread sleeps until the peer rings. It does not
 * yield: that would give the processor to a thread that moves slices, for as long as the kernel
 * likes.
 */
static void stand_by(uint32_t passes, enum look look, int device, int (*ready)(void *arg),
		     void *arg)
{
	if (passes < (crowded() ? URGENT_PASSES : SPIN_PASSES))
		df_relax();
	else if (look == LOOK_TAKEN)
		rest(ready, arg);
	else
		sleep_on_bell(SLEEP_MAX_NS, device, ready, arg);
}

static void help_begin(void)
{
	__atomic_add_fetch(&eng.helpers, 1, __ATOMIC_RELAXED);
}

static void help_end(void)
{
	/*
	 * No thread waits any more, but operations are left. A worker continues with them now
	 * instead of when it would wake up.
	 */
	if (__atomic_sub_fetch(&eng.helpers, 1, __ATOMIC_RELAXED) == 0 &&
	    __atomic_load_n(&eng.dozing, __ATOMIC_RELAXED) && outstanding()) {
		__atomic_add_fetch(&eng.work_seq, 1, __ATOMIC_RELAXED);
		df_futex_wake(&eng.work_seq, 1, 0);
	} else {
		df_threads_submitted();
	}
}

void df_threads_wait(int device, int (*ready)(void *arg), void *arg)
{
	struct backoff b = {0};
	uint32_t passes = 0;
	int i, helps = 0;

	/* Most waits for small operations are too short for registering as a helper to pay. */
	for (i = alone() && !lost() ? SHORT_PASSES : 0; i; i--) {
		enum look look = pass_on(device, ready, arg);

		if (ready(arg)) {
			df_tl_leave(device, 0);
			return;
		}
		if (look == LOOK_TAKEN || look == LOOK_URGENT)
			break;
	}
	do {
		enum look look = pass_on(device, ready, arg);

		/* Do not count this thread as a helper: workers would stay away. */
		if (look == LOOK_TAKEN || look == LOOK_URGENT || look == LOOK_BESIDE) {
			if (helps)
				help_end();
			helps = 0;
			passes = look == LOOK_BESIDE ? 0 : passes + 1;
			if (passes)
				stand_by(passes, look, device, ready, arg);
			continue;
		}
		if (!helps)
			help_begin();
		helps = 1;
		if (look == LOOK_MOVED)
			note_progress(&b);
		else
			back_off(&b, look, device, ready, arg);
	} while (!ready(arg));
	df_tl_leave(device, 0);
	if (helps)
		help_end();
}

/* ---- workers --------------------------------------------------------------------------------- */

/*
 * Sleeps until there may be work. `last` is the time of the last work. *doze is the last time-out
 * if helpers drove then, else 0.
 */
static void worker_rest(uint64_t last, int64_t *doze)
{
	uint32_t seen = __atomic_load_n(&eng.work_seq, __ATOMIC_RELAXED);

	if (!__atomic_load_n(&eng.helpers, __ATOMIC_RELAXED))
		*doze = 0;
	else
		*doze = DF_MIN(DF_MAX(2 * *doze, 5 * DOZE_NS), SLEEP_MAX_NS);
	if (*doze || df_now_ns() - last < LINGER_NS) {
		/* RELAXED: if help_end() misses it, the worker wakes by itself. */
		__atomic_add_fetch(&eng.dozing, 1, __ATOMIC_RELAXED);
		df_futex_wait(&eng.work_seq, seen, *doze ? *doze : DOZE_NS, 0);
		__atomic_sub_fetch(&eng.dozing, 1, __ATOMIC_RELAXED);
		return;
	}
	/*
	 * SEQ_CST pairs with df_threads_submitted(): either the submitter sees that this worker
	 * sleeps deep, or the worker sees what was submitted. Without it an operation could stay in
	 * its ring with no thread awake.
	 */
	__atomic_add_fetch(&eng.deep, 1, __ATOMIC_SEQ_CST);
	if (!outstanding())
		df_futex_wait(&eng.work_seq, seen, -1, 0);
	__atomic_sub_fetch(&eng.deep, 1, __ATOMIC_RELAXED);
}

/*
 * For priority order: a thread that wakes on this processor to wait for something urgent gets the
 * processor at once. Since Linux 6.12 a thread is preempted by one whose time slice is shorter. The
 * worker's share of the processor does not change. Older kernels and other scheduling policies
 * ignore this.
 */
static void take_long_slices(void)
{
	/* struct sched_attr, in its first version: not every C library has it. */
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = {.size = sizeof(attr)};

	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) || attr.policy != SCHED_OTHER)
		return;
	attr.runtime = WORKER_SLICE_NS;
	(void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

static void *worker(void *arg)
{
	int home = (int)(intptr_t)arg;
	struct backoff b = {0};
	uint64_t last = df_now_ns();
	int64_t doze = 0;

	if (execs()->v[home]->d.policy.let)
		take_long_slices();

	for (;;) {
		enum look look;

		if (!outstanding()) {
			worker_rest(last, &doze);
			continue;
		}
		last = df_now_ns();
		/*
		 * If there is a helper for every block, this worker does not help: if it lost its
		 * core while it owned a block, the helpers would have to wait.
		 */
		if (__atomic_load_n(&eng.helpers, __ATOMIC_RELAXED) >=
		    __atomic_load_n(&eng.nr_blocks, __ATOMIC_RELAXED)) {
			worker_rest(last, &doze);
			continue;
		}
		look = pass_on(home, NULL, NULL);
		if (look >= LOOK_BESIDE) {
			note_progress(&b);
			continue;
		}
		/* If a helper drives and also finds nothing to move, a worker does not help. */
		if (__atomic_load_n(&eng.helpers, __ATOMIC_RELAXED))
			worker_rest(last, &doze);
		else
			back_off(&b, look, home, NULL, NULL);
	}
	return NULL;
}

static void worker_start(int home)
{
	if (!df_thread_start("dfshim-daemon", 0, worker, (void *)(intptr_t)home))
		eng.nr_workers++;
	else
		df_warn_once("cannot start a thread for the daemon: threads that wait for "
			     "operations drive it");
}

uint64_t df_threads_launches(void)
{
	return __atomic_load_n(&eng.launches, __ATOMIC_RELAXED);
}

int df_threads_start(const struct df_execs *all)
{
	uint32_t active = 0;
	int i;

	df_mutex_lock(&eng.lock);
	if (!eng.quit_ns)
		eng.quit_ns = (df_env()->quit_us == DF_AUTO ? 1000 : (uint64_t)df_env()->quit_us) *
			      DF_NS_PER_US;
	/* Stored only once, because running workers read it without the lock. */
	if (__atomic_load_n(&eng.execs, __ATOMIC_RELAXED) != all)
		/* RELEASE pairs with the ACQUIRE in execs(). */
		__atomic_store_n(&eng.execs, all, __ATOMIC_RELEASE);
	for (i = 0; i < all->nr; i++)
		active += __atomic_load_n(&all->v[i]->used, __ATOMIC_RELAXED) != 0;
	__atomic_store_n(&eng.nr_blocks, active * all->v[0]->d.nr_blocks, __ATOMIC_RELAXED);
	for (i = 0;
	     i < all->nr && eng.nr_workers < active && eng.nr_workers < (uint32_t)all->nr_cores;
	     i++)
		if (__atomic_load_n(&all->v[i]->used, __ATOMIC_RELAXED))
			worker_start(i);
	df_mutex_unlock(&eng.lock);
	return 0;
}

void df_threads_stop(int device)
{
	/* RELAXED: the caller takes the blocks' locks until no slice moves without one. */
	if (device < execs()->nr)
		__atomic_add_fetch(&execs()->v[device]->d.quit, 1, __ATOMIC_RELAXED);
}

void df_threads_resume(int device)
{
	if (device < execs()->nr)
		__atomic_sub_fetch(&execs()->v[device]->d.quit, 1, __ATOMIC_RELAXED);
}

void df_threads_submitted(void)
{
	/* SEQ_CST pairs with worker_rest(), which says why. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&eng.deep, __ATOMIC_RELAXED) && outstanding()) {
		__atomic_add_fetch(&eng.work_seq, 1, __ATOMIC_RELAXED);
		df_futex_wake(&eng.work_seq, 1, 0);
	}
}
