/*
 * The engine of the host backend: who executes the blocks. A block is a state machine (one turn at a time, no
 * turn blocks), so any thread that owns it can execute it: worker threads, and every host thread that waits for
 * something of ours ("helps"). A turn that can't move returns, and the thread goes on with another block:
 * that is how eight ranks share two cores without spinning against each other.
 *
 * Who sleeps where:
 *   - a helper, or the only worker at work, that finds nothing to move for a while sleeps on the process's
 *     bell: peers ring it when they publish a slice, our own threads when they complete an operation;
 *   - workers that are not needed (a helper drives, or nothing is in flight) sleep on work_seq. For a few
 *     milliseconds after the last work with a time-out ("doze"), so that a job that computes between short
 *     collectives pays for no wake-up; then without ("deep"): an idle job costs nothing.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "kernels/daemon.h"
#include "runtime/base/futex.h"
#include "runtime/rt.h"
#include "trace/record/writer.h"

#define BURST 64 /* turns of one block before the thread looks elsewhere */
#define SPIN_PASSES                                                                                \
	800 /* passes without progress before yielding the core, when each thread has one */
#define CROWD_PASSES 4	/* the same when threads outnumber the cores */
#define SHORT_PASSES 32 /* passes of a waiting thread before it counts as a helper */
#define FIRST_TURNS  2	/* of a small operation, by the thread that submits it */
#define YIELD_PASSES 64 /* before sleeping */
#define DOZE_NS	     200000
#define LINGER_NS    5000000 /* how long a worker dozes after the last work */
#define SLEEP_MIN_NS 50000
#define SLEEP_MAX_NS 10000000

static struct {
	struct df_mutex lock;
	uint32_t nr_workers;
	uint32_t helpers;  /* host threads that wait and help */
	uint32_t deep;	   /* workers that sleep without a time-out */
	uint32_t work_seq; /* futex word of dozing and sleeping workers */
	uint64_t quit_ns;  /* idle time that counts as a quit */
	uint64_t launches;
	uint32_t nr_blocks;   /* of all devices in use */
	struct df_bell *bell; /* of this process */
} eng = {.lock = DF_MUTEX_INIT(DF_RANK_LEAF, "engine")};

/* Operations are in flight on some device. */
static int outstanding(void)
{
	int i;

	for (i = 0; i < df_rt.nr_devs; i++) {
		struct df_dev *dev = &df_rt.devs[i];

		/* SEQ_CST pairs with df_engine_submitted(): not before our being asleep is visible. */
		if (__atomic_load_n(&dev->issued, __ATOMIC_SEQ_CST) !=
		    __atomic_load_n(&dev->retired, __ATOMIC_RELAXED))
			return 1;
	}
	return df_wire_busy();
}

/* Peers have asked for connectors since the device last looked. */
static int asked(const struct df_dev *dev)
{
	/* ACQUIRE pairs with the RELEASE in df_engine_start(): the bell has been set up. */
	const struct df_bell *bell = __atomic_load_n(&eng.bell, __ATOMIC_ACQUIRE);

	return bell && __atomic_load_n(&bell->asked, __ATOMIC_RELAXED) !=
			       __atomic_load_n(&dev->asked, __ATOMIC_RELAXED);
}

/* Everything about a device that is not a block's turn, when somebody asked for it. */
int df_engine_chores(struct df_dev *dev)
{
	uint64_t retired = __atomic_load_n(&dev->retired, __ATOMIC_RELAXED);

	if (!df_dev_cq_pending(dev) && !__atomic_load_n(&dev->nr_connecting, __ATOMIC_RELAXED) &&
	    !__atomic_load_n(&dev->nr_overflow, __ATOMIC_RELAXED) && !asked(dev) &&
	    !__atomic_load_n(&dev->nr_held, __ATOMIC_RELAXED))
		return 0;
	if (!df_mutex_trylock(&dev->lock))
		return 0;
	df_dev_retire(dev);
	if (dev->nr_connecting)
		df_dev_connect(dev);
	if (dev->nr_held)
		df_rules_progress(dev);
	if (asked(dev))
		df_dev_asked(dev);
	retired = __atomic_load_n(&dev->retired, __ATOMIC_RELAXED) - retired;
	df_mutex_unlock(&dev->lock);
	if (retired) {
		/* Streams of this device may wait for what has just completed, and host threads too. */
		df_rt.cu->kick(dev->index);
		df_bell_ring(df_tl_bell());
		df_frees_look();
	}
	return retired != 0;
}

/* Are there more threads that wait for each other on this node than cores to run them? */
static int crowded(void)
{
	uint32_t here = __atomic_load_n(&eng.helpers, __ATOMIC_RELAXED);

	return DF_MAX(here, 1) * __atomic_load_n(&df_rt.nr_local_procs, __ATOMIC_RELAXED) >
	       (uint32_t)df_rt.nr_cores;
}

/* With one block, and a core for each process, nothing in this process can be what its task waits for. */
static int alone(void)
{
	return __atomic_load_n(&eng.nr_blocks, __ATOMIC_RELAXED) == 1 && !crowded();
}

/* What a look at one or all blocks came to; the larger wins. */
enum look {
	LOOK_STUCK, /* every task of every block has been tried since anything moved */
	LOOK_SPINS, /* nothing moved, but there are tasks whose turn has not come yet */
	LOOK_MOVED,
};

static enum look block_work(struct df_dev *dev, struct df_kblock *blk)
{
	struct df_trylock *lock = (struct df_trylock *)&blk->lock;
	enum look look = LOOK_STUCK;
	int only = alone(), i;

	/* Whoever owns it drives it. */
	if (!df_trylock_try(lock))
		return LOOK_STUCK;
	for (i = 0; i < BURST; i++) {
		const struct df_kctx *task = blk->task;
		enum df_turn turn = df_block_turn(&dev->d, blk);

		if (turn == DF_TURN_PROGRESS)
			look = LOOK_MOVED;
		else if (turn == DF_TURN_EMPTY || (blk->task == task && !only))
			break; /* waits below its threshold: other blocks may be what it waits for */
	}
	if (look == LOOK_STUCK && blk->first && blk->idle < 2)
		look = LOOK_SPINS;
	df_trylock_release(lock);
	return look;
}

void df_engine_first_turns(struct df_dev *dev)
{
	uint32_t b;

	/* Ranks of one process drift into one order sooner if none runs ahead. */
	if (df_rt.machine || __atomic_load_n(&eng.nr_blocks, __ATOMIC_RELAXED) != 1)
		return;
	for (b = 0; b < dev->d.nr_blocks; b++) {
		struct df_kblock *blk = &dev->blocks[b];
		struct df_trylock *lock = (struct df_trylock *)&blk->lock;
		int i;

		if (!df_trylock_try(lock))
			continue;
		/* Only what has just been submitted: other tasks may have much to move. */
		for (i = blk->first ? FIRST_TURNS : 0; i < FIRST_TURNS; i++)
			if (df_block_turn(&dev->d, blk) != DF_TURN_PROGRESS)
				break;
		df_trylock_release(lock);
	}
	/* What went onto an emulated link is seen to be outstanding by whoever looks next. */
	df_wire_pass();
}

static enum look pass(const struct df_dev *first)
{
	int i, at = first ? first->index : 0;
	enum look look = LOOK_STUCK;

	for (i = 0; i < df_rt.nr_devs; i++) {
		struct df_dev *dev = &df_rt.devs[(at + i) % df_rt.nr_devs];
		uint32_t b;

		if (!__atomic_load_n(&dev->used, __ATOMIC_RELAXED) ||
		    (__atomic_load_n(&dev->issued, __ATOMIC_RELAXED) ==
			     __atomic_load_n(&dev->retired, __ATOMIC_RELAXED) &&
		     !asked(dev)))
			continue;
		for (b = 0; b < dev->d.nr_blocks; b++) {
			enum look l = block_work(dev, &dev->blocks[b]);

			look = DF_MAX(look, l);
		}
		if (df_engine_chores(dev))
			look = LOOK_MOVED;
	}
	/* With emulated links nobody sleeps: what they time would be the waking. */
	if (df_wire_pass())
		look = LOOK_MOVED;
	else if (look == LOOK_STUCK && df_wire_any())
		look = LOOK_SPINS;
	return look;
}

int df_engine_pass(const struct df_dev *first)
{
	if (df_unlikely(df_rt.machine != NULL))
		return df_rt.machine->pass();
	return pass(first) == LOOK_MOVED;
}

uint64_t df_dev_progress(const struct df_dev *dev)
{
	uint64_t sum = __atomic_load_n(&dev->issued, __ATOMIC_RELAXED) +
		       __atomic_load_n(&dev->retired, __ATOMIC_RELAXED);
	uint32_t b;

	for (b = 0; b < dev->d.nr_blocks; b++)
		sum += __atomic_load_n(&dev->blocks[b].stats.slices, __ATOMIC_RELAXED);
	return sum;
}

uint64_t df_engine_progress(void)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < df_rt.nr_devs; i++)
		if (__atomic_load_n(&df_rt.devs[i].used, __ATOMIC_RELAXED))
			sum += df_dev_progress(&df_rt.devs[i]);
	return sum;
}

/* ---- waiting --------------------------------------------------------------------------------------------- */

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

struct backoff {
	uint32_t idle; /* passes without progress */
	uint32_t quit; /* the idle time has become a voluntary quit */
	int64_t sleep_ns;
	uint64_t since;
};

/* A thread that drives has moved nothing for so long that its blocks count as having left the device. */
static void note_quit(struct backoff *b)
{
	uint64_t now = df_now_ns();
	int i;

	if (!b->since)
		b->since = now;
	if (b->quit || now - b->since < eng.quit_ns)
		return;
	b->quit = 1;
	for (i = 0; i < df_rt.nr_devs; i++) {
		struct df_dev *dev = &df_rt.devs[i];

		if (__atomic_load_n(&dev->issued, __ATOMIC_RELAXED) ==
		    __atomic_load_n(&dev->retired, __ATOMIC_RELAXED))
			continue;
		__atomic_add_fetch(&dev->quits, 1, __ATOMIC_RELAXED);
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
 * After a pass without progress: pause, yield, or sleep on the bell. ready: what the caller waits for;
 * looked at once more after the bell is armed.
 */
static void back_off(struct backoff *b, enum look look, struct df_dev *dev, int (*ready)(void *arg),
		     void *arg)
{
	struct df_bell *bell = df_tl_bell();
	uint32_t seen;

	uint32_t spins = crowded() ? CROWD_PASSES : SPIN_PASSES;

	if (++b->idle < spins) {
		relax();
		return;
	}
	if (b->idle < spins + YIELD_PASSES || look == LOOK_SPINS) {
		sched_yield();
		return;
	}
	note_quit(b);
	if (!b->sleep_ns)
		b->sleep_ns = SLEEP_MIN_NS;
	seen = df_bell_arm(bell);
	if (!(ready && ready(arg)) && pass(dev) == LOOK_STUCK)
		df_bell_sleep(bell, seen, b->sleep_ns);
	df_bell_disarm(bell);
	b->sleep_ns = DF_MIN(b->sleep_ns * 2, (int64_t)SLEEP_MAX_NS);
}

void df_engine_wait(struct df_dev *dev, int (*ready)(void *arg), void *arg)
{
	struct backoff b = {0};
	int i;

	if (ready(arg))
		return;
	if (df_unlikely(df_rt.machine != NULL)) {
		df_rt.machine->wait(ready, arg);
		return;
	}
	/* Most waits of small operations are over before it would pay to tell the workers to stay away. */
	for (i = alone() ? SHORT_PASSES : 0; i; i--) {
		pass(dev);
		if (ready(arg))
			return;
	}
	__atomic_add_fetch(&eng.helpers, 1, __ATOMIC_RELAXED);
	do {
		enum look look = pass(dev);

		if (look == LOOK_MOVED)
			note_progress(&b);
		else
			back_off(&b, look, dev, ready, arg);
	} while (!ready(arg));
	if (__atomic_sub_fetch(&eng.helpers, 1, __ATOMIC_RELAXED) == 0)
		df_engine_submitted();
}

/* ---- workers ---------------------------------------------------------------------------------------------- */

/* Sleeps until there may be work. linger: when the last work was. */
static void worker_rest(uint64_t last)
{
	uint32_t seen = __atomic_load_n(&eng.work_seq, __ATOMIC_RELAXED);

	if (df_now_ns() - last < LINGER_NS || __atomic_load_n(&eng.helpers, __ATOMIC_RELAXED)) {
		df_futex_wait(
			&eng.work_seq, seen,
			__atomic_load_n(&eng.helpers, __ATOMIC_RELAXED) ? 5 * DOZE_NS : DOZE_NS, 0);
		return;
	}
	/*
	 * SEQ_CST pairs with df_engine_submitted(): either the submitter sees that we sleep deep, or we
	 * see what it submitted. Without it an operation could lie in its ring with nobody awake.
	 */
	__atomic_add_fetch(&eng.deep, 1, __ATOMIC_SEQ_CST);
	if (!outstanding())
		df_futex_wait(&eng.work_seq, seen, -1, 0);
	__atomic_sub_fetch(&eng.deep, 1, __ATOMIC_RELAXED);
}

static void *worker(void *arg)
{
	struct df_dev *home = arg;
	struct backoff b = {0};
	uint64_t last = df_now_ns();

	for (;;) {
		enum look look;

		if (!outstanding()) {
			worker_rest(last);
			continue;
		}
		last = df_now_ns();
		/*
		 * Helpers enough for every block: stay away. A worker that loses its core while it owns a
		 * block would only keep them from it.
		 */
		if (__atomic_load_n(&eng.helpers, __ATOMIC_RELAXED) >=
		    __atomic_load_n(&eng.nr_blocks, __ATOMIC_RELAXED)) {
			worker_rest(last);
			continue;
		}
		look = pass(home);
		if (look == LOOK_MOVED) {
			note_progress(&b);
			continue;
		}
		/* A helper that finds nothing to move either needs no company. */
		if (__atomic_load_n(&eng.helpers, __ATOMIC_RELAXED))
			worker_rest(last);
		else
			back_off(&b, look, home, NULL, NULL);
	}
	return NULL;
}

static void worker_start(struct df_dev *home)
{
	sigset_t all, old;
	pthread_t t;

	/* The application's signals are none of our threads' business. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	if (pthread_create(&t, NULL, worker, home) == 0) {
		pthread_detach(t);
		pthread_setname_np(t, "dfshim-daemon");
		eng.nr_workers++;
	} else {
		df_warn_once(
			"no thread could be started for the daemon: host threads that wait drive it");
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

uint64_t df_engine_launches(void)
{
	if (df_rt.machine)
		return df_rt.machine->launches();
	return __atomic_load_n(&eng.launches, __ATOMIC_RELAXED);
}

void df_engine_start(void)
{
	int i;
	uint32_t active = 0;

	/* RELEASE pairs with the ACQUIRE in asked(). */
	__atomic_store_n(&eng.bell, df_tl_bell(), __ATOMIC_RELEASE);
	if (df_rt.machine) {
		if (df_rt.machine->start())
			df_warn_once("no thread could be started to look after the daemon");
		return;
	}
	df_mutex_lock(&eng.lock);
	if (!eng.quit_ns)
		eng.quit_ns = (df_env()->quit_us == DF_AUTO ? 1000 : (uint64_t)df_env()->quit_us) *
			      DF_NS_PER_US;
	for (i = 0; i < df_rt.nr_devs; i++)
		active += __atomic_load_n(&df_rt.devs[i].used, __ATOMIC_RELAXED) != 0;
	__atomic_store_n(&eng.nr_blocks, active * df_rt.devs[0].d.nr_blocks, __ATOMIC_RELAXED);
	for (i = 0; i < df_rt.nr_devs && eng.nr_workers < active &&
		    eng.nr_workers < (uint32_t)df_rt.nr_cores;
	     i++)
		if (__atomic_load_n(&df_rt.devs[i].used, __ATOMIC_RELAXED))
			worker_start(&df_rt.devs[i]);
	df_mutex_unlock(&eng.lock);
}

void df_engine_submitted(void)
{
	if (df_unlikely(df_rt.machine != NULL)) {
		df_rt.machine->submitted();
		return;
	}
	/* SEQ_CST pairs with worker_rest(): our submission is ordered before the look at the sleepers. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&eng.deep, __ATOMIC_RELAXED) && outstanding()) {
		__atomic_add_fetch(&eng.work_seq, 1, __ATOMIC_RELAXED);
		df_futex_wake(&eng.work_seq, 1, 0);
	}
}

void df_engine_purge(struct df_dev *dev)
{
	int lost = 0;
	uint32_t b;

	/* No communicator has been ready on it: there is no daemon that could answer. */
	if (!__atomic_load_n(&dev->used, __ATOMIC_RELAXED))
		return;
	if (df_rt.machine)
		lost = df_rt.machine->stop(dev);
	for (b = 0; b < dev->d.nr_blocks; b++) {
		struct df_kblock *blk = &dev->blocks[b];
		struct df_trylock *lock = (struct df_trylock *)&blk->lock;

		/* Bounded: whoever owns the block gives it back after a burst of turns, none of which waits. */
		while (!df_trylock_try(lock))
			sched_yield();
		if (lost)
			df_block_reset(blk);
		else
			df_block_purge(&dev->d, blk);
		df_trylock_release(lock);
	}
	if (df_rt.machine)
		df_rt.machine->resume(dev);
}
