/*
 * When the daemon's kernel is launched and asked to leave: the decisions, without a driver call, so that they can
 * be tested alone. One object per device, driven by the poller thread: it looks at the device, calls
 * df_launch_step(), and does what it says.
 *
 * The kernel leaves by itself when it has been idle; it is asked to leave while somebody is inside a driver
 * call that may wait for the device (a quiet time). A quiet time holds a launch back for a bounded time only:
 * the call may be waiting for a stream that waits for us.
 *
 * It has as many blocks as are needed, because each takes a multiprocessor from the application. When more are needed it
 * is asked to leave, to come back at once with them; when fewer have been for some time, too. While nothing moves it only waits
 * for peers, which one block sees as well: so it has one then, and all of them again when something moves. What the first
 * block has no part in the others have to see, so a launch of one block that moved nothing is followed by one of all: when it has
 * left, or after DF_LAUNCH_WIDEN_NS if DFSHIM_QUIT_US makes it stay longer than that.
 */
#ifndef DF_RUNTIME_DAEMON_LAUNCH_H
#define DF_RUNTIME_DAEMON_LAUNCH_H

#include <stdint.h>

enum df_launch_state {
	DF_LAUNCH_GONE,	   /* no kernel on the device */
	DF_LAUNCH_RUNNING, /* launched; may have left without our knowing */
	DF_LAUNCH_LEAVING, /* asked to leave */
	DF_LAUNCH_DEAD,	   /* launching fails for good */
};

enum df_launch_act {
	DF_LAUNCH_NOTHING,
	DF_LAUNCH_LAUNCH, /* clear the request to leave, then launch; df_launch_failed() if that fails */
	DF_LAUNCH_ASK, /* set the request to leave */
};

#define DF_LAUNCH_QUIET_NS    2000000 /* how long a quiet time may hold back work that is in flight */
#define DF_LAUNCH_NARROW_NS   10000000 /* how long blocks stay that nothing needs */
#define DF_LAUNCH_WIDEN_NS    50000000 /* how long one block waits without the others */
#define DF_LAUNCH_BACKOFF_MIN 20000
#define DF_LAUNCH_BACKOFF_MAX 10000000
#define DF_LAUNCH_FAILURES    50 /* in a row, and the device is given up */

struct df_launch {
	enum df_launch_state state;
	uint64_t quiet_since; /* 0: no quiet time */
	uint64_t next_ns;     /* no launch before */
	uint64_t backoff_ns;
	uint64_t wide_since;	      /* more blocks than needed; 0: not */
	uint32_t width;		      /* blocks of the launch */
	uint32_t narrow;	      /* one block is to be there */
	uint64_t slices, still_since; /* of the last look, and since when they are the same */
	uint64_t progress;	      /* at the last launch */
	uint64_t launches, quits;
	uint32_t failures; /* in a row */
};

/* What the poller sees. */
struct df_launch_in {
	uint64_t now_ns;
	uint64_t progress; /* a number that changes when anything has moved */
	int outstanding;   /* operations are in flight */
	uint32_t width;	   /* so many blocks have some to do; 0: none, or not known yet */
	uint64_t slices;   /* a number that changes when a block moves */
	int exited;	   /* the kernel's stream is idle */
	int quiet;	   /* somebody is inside a call that may wait for the device */
};

/* One decision. sleep_ns: how long nothing can change by itself; 0: look again at once. */
enum df_launch_act df_launch_step(struct df_launch *l, const struct df_launch_in *in,
				  uint64_t *sleep_ns);
/* The launch that was just decided did not happen. fatal: it never will. */
void df_launch_failed(struct df_launch *l, uint64_t now_ns, int fatal);

#endif
