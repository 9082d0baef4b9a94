/*
 * Decides the daemon's launches: see launch.h. Pure functions of their arguments; one thread per
 * object.
 */
#include "runtime/base/err.h"
#include "runtime/device/cuda/launch.h"

static void gone(struct df_launch *l, const struct df_launch_in *in)
{
	/*
	 * A kernel that made no progress is launched again after a growing delay. A kernel that
	 * made progress is launched again at once.
	 */
	if (l->state == DF_LAUNCH_LEAVING || in->progress != l->progress) {
		l->backoff_ns = 0;
	} else {
		l->backoff_ns = l->backoff_ns ? DF_MIN(l->backoff_ns * 2, DF_LAUNCH_BACKOFF_MAX)
					      : DF_LAUNCH_BACKOFF_MIN;
		l->narrow = in->outstanding && !l->narrow;
	}
	l->next_ns = in->now_ns + l->backoff_ns;
	l->state = DF_LAUNCH_GONE;
}

/* Whether the quiet time still prevents a launch. */
static int held(const struct df_launch *l, const struct df_launch_in *in)
{
	return in->quiet && (!in->outstanding || in->now_ns - l->quiet_since < DF_LAUNCH_QUIET_NS);
}

/* Detects whether the kernel only waits for peers. */
static void moves(struct df_launch *l, const struct df_launch_in *in)
{
	if (in->slices != l->slices || !in->outstanding || in->stay) {
		l->slices = in->slices;
		l->still_since = 0;
		l->narrow = 0;
	} else if (l->state == DF_LAUNCH_RUNNING && !l->still_since) {
		l->still_since = DF_MAX(in->now_ns, 1);
	} else if (l->state == DF_LAUNCH_RUNNING && l->width > 1 &&
		   in->now_ns - l->still_since >= DF_LAUNCH_NARROW_NS) {
		l->narrow = 1;
	} else if (l->state == DF_LAUNCH_RUNNING && l->narrow &&
		   in->now_ns - l->still_since >= DF_LAUNCH_WIDEN_NS) {
		l->narrow = 0;
	}
}

/* Whether the kernel has the wrong number of blocks. */
static int misfits(struct df_launch *l, const struct df_launch_in *in)
{
	if (in->stay != l->stays)
		return 1;
	/* Between two operations the number is unknown. */
	if (!in->width || l->stays)
		return 0;
	if (l->narrow)
		return l->width > 1;
	if (in->width >= l->width)
		l->wide_since = 0;
	else if (!l->wide_since)
		l->wide_since = DF_MAX(in->now_ns, 1);
	return in->width > l->width ||
	       (l->wide_since && in->now_ns - l->wide_since >= DF_LAUNCH_NARROW_NS);
}

enum df_launch_act df_launch_step(struct df_launch *l, const struct df_launch_in *in,
				  uint64_t *sleep_ns)
{
	*sleep_ns = DF_LAUNCH_BACKOFF_MAX;
	if (l->state == DF_LAUNCH_DEAD)
		return DF_LAUNCH_NOTHING;
	if (!in->quiet)
		l->quiet_since = 0;
	else if (!l->quiet_since)
		l->quiet_since = DF_MAX(in->now_ns, 1);
	if (l->state != DF_LAUNCH_GONE)
		l->failures = 0; /* the last launch has succeeded */
	moves(l, in);
	if (l->state != DF_LAUNCH_GONE && in->exited)
		gone(l, in);
	switch (l->state) {
	case DF_LAUNCH_GONE:
		if (!in->outstanding)
			return DF_LAUNCH_NOTHING;
		if (held(l, in)) {
			*sleep_ns = l->quiet_since + DF_LAUNCH_QUIET_NS - in->now_ns;
			return DF_LAUNCH_NOTHING;
		}
		/*
		 * Progress since then (of a peer or a stream) ends the delay, unless it is due to a
		 * failure.
		 */
		if (in->now_ns < l->next_ns && (l->failures || in->progress == l->progress)) {
			*sleep_ns = l->next_ns - in->now_ns;
			return DF_LAUNCH_NOTHING;
		}
		l->state = DF_LAUNCH_RUNNING;
		l->width = l->narrow ? 1 : DF_MAX(in->width, 1);
		l->stays = in->stay;
		l->wide_since = l->still_since = 0;
		l->progress = in->progress;
		l->launches++;
		*sleep_ns = 0;
		return DF_LAUNCH_LAUNCH;
	case DF_LAUNCH_RUNNING:
		if (!held(l, in) && !misfits(l, in))
			return DF_LAUNCH_NOTHING;
		l->state = DF_LAUNCH_LEAVING;
		*sleep_ns = 0;
		return DF_LAUNCH_ASK;
	case DF_LAUNCH_LEAVING:
		/*
		 * The request remains after the end of the quiet time: some blocks may have left
		 * already, and the work of those would wait for the others.
		 */
	default:
		return DF_LAUNCH_NOTHING;
	}
}

void df_launch_failed(struct df_launch *l, uint64_t now_ns, int fatal)
{
	l->launches--;
	l->failures++;
	l->state = fatal || l->failures >= DF_LAUNCH_FAILURES ? DF_LAUNCH_DEAD : DF_LAUNCH_GONE;
	l->backoff_ns = l->backoff_ns ? DF_MIN(l->backoff_ns * 2, DF_LAUNCH_BACKOFF_MAX)
				      : DF_LAUNCH_BACKOFF_MIN;
	l->next_ns = now_ns + l->backoff_ns;
}
