/*
 * Reads the real clock at least every SPAN ticks. In between, a thread counts ticks of the
 * time-stamp counter. So an error of the rate (the kernel changes its clock by up to 500 ppm while
 * it follows a time server) cannot exceed some tens of nanoseconds, and neither suspending nor
 * migrating the machine shows in the trace.
 *
 * The counter is used only if the kernel's own clock is derived from it and the process may read
 * it.
 */
#define _GNU_SOURCE
#include "trace/record/clock.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t real_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#if defined(__x86_64__)

#define SPAN (1u << 18) /* number of ticks, about a tenth of a millisecond */
/* maximum number of ticks between the middle and the end of a reading of both clocks */
#define TOGETHER     512u
#define CALIBRATE_NS 10000000u /* minimum time over which the rate is measured */

static _Atomic(uint64_t) rate;	       /* nanoseconds per tick, << 32; 0 if unknown */
static uint64_t first_ticks, first_ns; /* first_ns is 0 if the counter must not be used */
static __thread struct {
	uint64_t ticks, ns, last;
} anchor __attribute__((tls_model("initial-exec")));

static inline uint64_t ticks(void)
{
	return __builtin_ia32_rdtsc();
}

/*
 * Reads both clocks at one moment. Returns 0 if the thread lost its core in between, so that the
 * ticks are useless.
 */
static int both(uint64_t *t, uint64_t *ns)
{
	uint64_t after;

	*t = ticks();
	*ns = real_clock();
	after = ticks();
	*t += (after - *t) / 2;
	return after - *t < TOGETHER;
}

void df_trace_clock_start(void)
{
	char name[8] = "";
	int fd, mode = 0;

	if (prctl(PR_GET_TSC, &mode) || mode != PR_TSC_ENABLE)
		return;
	fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
		  O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (read(fd, name, sizeof(name)) >= 4 && memcmp(name, "tsc\n", 4) == 0 &&
	    !both(&first_ticks, &first_ns))
		first_ns = 0;
	close(fd);
}

/* Reads the real clock and makes this the point from which ticks are counted. */
static uint64_t look(uint64_t r)
{
	uint64_t t, ns;
	int good = both(&t, &ns);

	if (good && !r && ns - first_ns > CALIBRATE_NS && t > first_ticks)
		/*
		 * RELAXED: nothing else depends on the rate; a thread that does not see it yet
		 * reads the clock.
		 */
		atomic_store_explicit(
			&rate,
			(uint64_t)(((unsigned __int128)(ns - first_ns) << 32) / (t - first_ticks)),
			memory_order_relaxed);
	/* After a bad reading, the next call reads the real clock again. */
	anchor.ticks = good ? t : t - 2 * SPAN;
	anchor.ns = ns;
	return ns;
}

uint64_t df_trace_clock(void)
{
	/* RELAXED for the reason given in look(). */
	uint64_t r = atomic_load_explicit(&rate, memory_order_relaxed), now;
	int64_t since;

	if (!r) {
		now = first_ns ? look(0) : real_clock();
	} else {
		/*
		 * The difference may be slightly negative: the counter may be read out of order,
		 * and the counters of the cores differ.
		 */
		since = (int64_t)(ticks() - anchor.ticks);
		if (since < -(int64_t)SPAN || since >= (int64_t)SPAN)
			now = look(r);
		else
			now = anchor.ns + (uint64_t)(since * (int64_t)r >> 32);
	}
	/* Time must not decrease: the ticks may have been slightly ahead of the clock. */
	if (now < anchor.last)
		now = anchor.last;
	anchor.last = now;
	return now;
}

#else

void df_trace_clock_start(void) {}

uint64_t df_trace_clock(void)
{
	return real_clock();
}

#endif
