/*
 * Decides when the daemon's kernel is launched and asked to leave. Makes no driver calls, so the
 * decisions can be tested alone. There is one object per device. The poller thread examines the
 * device, calls df_launch_step(), and executes its decision.
 *
 * An idle kernel leaves by itself. It is asked to leave while a thread is in a driver call that may
 * wait for the device (a quiet time). A quiet time delays a launch for a bounded time only, because
 * the call may wait for a stream that waits for us.
 *
 * The kernel has only as many blocks as it needs, because each takes a multiprocessor from the
 * application. When more are needed, it is asked to leave and launched again with more. It is
 * launched with fewer when fewer have been needed for some time. While nothing makes progress, it
 * only waits for peers, and one block is enough for that. So it then has one block, and all of them
 * again when something makes progress. But the first block does not see the progress that only
 * concerns other blocks. So a launch of one block without progress is followed by a launch of all:
 * when it has left, or after DF_LAUNCH_WIDEN_NS if DFSHIM_QUIT_US makes it stay longer.
 *
 * While streams that wait take all hardware queues, no kernel can be launched. So before that a
 * kernel of all blocks is launched that stays until none of them waits.
 */
#ifndef DF_RUNTIME_DAEMON_LAUNCH_H
#define DF_RUNTIME_DAEMON_LAUNCH_H

#include <stdint.h>

enum df_launch_state {
	DF_LAUNCH_GONE,	   /* no kernel on the device */
	DF_LAUNCH_RUNNING, /* launched; may have left unnoticed */
	DF_LAUNCH_LEAVING, /* asked to leave */
	DF_LAUNCH_DEAD,	   /* launching always fails */
};

enum df_launch_act {
	DF_LAUNCH_NOTHING,
	/* Clear the request to leave, then launch; df_launch_failed() if that fails. */
	DF_LAUNCH_LAUNCH,
	DF_LAUNCH_ASK, /* set the request to leave */
};

#define DF_LAUNCH_QUIET_NS    2000000  /* maximum time that a quiet time delays work in flight */
#define DF_LAUNCH_NARROW_NS   10000000 /* time that blocks without work stay */
#define DF_LAUNCH_WIDEN_NS    50000000 /* time that one block waits without the others */
#define DF_LAUNCH_BACKOFF_MIN 20000
#define DF_LAUNCH_BACKOFF_MAX 10000000
/* number of failures in a row after which the device is given up */
#define DF_LAUNCH_FAILURES 50

struct df_launch {
	enum df_launch_state state;
	uint64_t quiet_since; /* 0 if there is no quiet time */
	uint64_t next_ns;     /* earliest next launch */
	uint64_t backoff_ns;
	uint64_t wide_since; /* since when there are more blocks than needed; 0 if there are not */
	uint32_t width;	     /* number of blocks of the launch */
	uint32_t narrow;     /* whether there should be only one block */
	int stays;	     /* whether the launch does not leave by itself */
	/* value at the last check, and since when it has not changed */
	uint64_t slices, still_since;
	uint64_t progress; /* value at the last launch */
	uint64_t launches;
	uint32_t failures; /* number of failures in a row */
};

/* The state that the poller observes. */
struct df_launch_in {
	uint64_t now_ns;
	uint64_t progress; /* a number that changes with any progress */
	int outstanding;   /* operations are in flight */
	uint32_t width;	   /* number of blocks with work; 0 if none has, or if unknown */
	uint64_t slices;   /* a number that changes when a block moves data */
	int exited;	   /* the kernel's stream is idle */
	int quiet;	   /* a thread is in a call that may wait for the device */
	int stay;	   /* soon nothing can be launched: a kernel with all blocks is to stay */
};

/*
 * Makes one decision. *sleep_ns is the time in which nothing can change by itself; 0 means to call
 * again at once.
 */
enum df_launch_act df_launch_step(struct df_launch *l, const struct df_launch_in *in,
				  uint64_t *sleep_ns);
/* Counts the launch that was just decided as failed; delays the next. `fatal`: there is none. */
void df_launch_failed(struct df_launch *l, uint64_t now_ns, int fatal);

#endif
