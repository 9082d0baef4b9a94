/*
 * The planner: the time of an iteration of data-parallel training for different orders of sending
 * gradients, and the schedule of DeFT itself. Pure computation: no CUDA, no NCCL, no clock, no
 * thread of its own. With equal input every rank gets an equal schedule.
 *
 * A network is a list of buckets, input side first. Its forward pass computes them first to last,
 * its backward pass last to first. The gradient of a bucket can be sent after its backward time
 * (its release). Times are in nanoseconds. A bucket's comm_ns is its time on the first link,
 * including one start-up; other links are slower by a factor.
 *
 * DeFT holds two sets of gradients. CURRENT: of one or several (k) merged iterations, partly sent.
 * FUTURE: complete, of the iterations since. In each iteration:
 *
 *   case 1  forward: the part of CURRENT that fits is sent during the forward pass
 *   case 2  backward, CURRENT does not fit: the part that fits is sent; the new gradient is merged
 *           into FUTURE
 *   case 3  backward, CURRENT fits: it is sent, then the items of FUTURE with the new gradient that
 *           are released in time; the rest becomes CURRENT; the parameters are updated with the
 *           previous CURRENT
 *   case 4  backward, CURRENT was sent in the forward pass: as 3, with the whole stage for FUTURE
 *
 * So computation never waits, and updates are late and sometimes cover several iterations
 * (docs/scheduling.md).
 *
 * Functions return 0 or -errno; objects belong to one thread at a time.
 */
#ifndef DF_TRACE_PLAN_INT_H
#define DF_TRACE_PLAN_INT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define DF_PLAN_BUCKETS 512 /* of a network; also the most items of a partition */
#define DF_PLAN_LINKS	4

struct df_plan_bucket {
	int64_t forward_ns, backward_ns, comm_ns;
	int64_t params;
};

struct df_plan_link {
	char name[24];
	double slowdown; /* 1 for the first */
	int64_t startup_ns;
};

struct df_plan_profile {
	char name[96];
	struct df_plan_bucket buckets[DF_PLAN_BUCKETS];
	int nr_buckets;
	struct df_plan_link links[DF_PLAN_LINKS];
	int nr_links;
	int64_t partition; /* parameters of a block of ByteScheduler; 0: the best of some sizes */
	/*
	 * The communication that fits a stage, as a multiple of its computation. Above 1,
	 * computation waits. 0 means 1.
	 */
	double capacity;
};

/* Returns 0, or -EINVAL with the reason. All other functions need a profile that passed. */
int df_plan_check(const struct df_plan_profile *p, char *err, size_t size);
/* Fills err; returns -EINVAL. For all readers of profiles. */
int df_plan_refuse(char *err, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

int64_t df_plan_forward_ns(const struct df_plan_profile *p);
int64_t df_plan_backward_ns(const struct df_plan_profile *p);
int64_t df_plan_comm_ns(const struct df_plan_profile *p);
/* When the gradient of each bucket is complete, from the start of the backward pass. */
void df_plan_release(const struct df_plan_profile *p, int64_t *release);

/* -- partition -------------------------------------------------------------------------------- */

/* A unit of sending: a bucket or an equal part of one. */
struct df_plan_item {
	int bucket, part, parts;
	int64_t ns[DF_PLAN_LINKS];
};

/*
 * Cuts buckets that do not fit into the smallest stage (the forward pass, on the slowest link) into
 * parts that do. Returns the number of items, or -ERANGE: there would be more than DF_PLAN_BUCKETS,
 * or start-up alone takes longer than the stage.
 */
int df_plan_partition(const struct df_plan_profile *p, struct df_plan_item *items);

/* -- solve ------------------------------------------------------------------------------------ */

struct df_plan_job {
	int64_t release, ns;
};

struct df_plan_solver; /* scratch memory */
struct df_plan_solver *df_plan_solver_create(int max_jobs);
void df_plan_solver_destroy(struct df_plan_solver *s);

/*
 * Picks the jobs that keep one link busy longest: each begins at or after its release, one at a
 * time, and all end by the deadline. Jobs are given in the order of release, which is also the best
 * order for sending any set of them. Sets picked[] to 1 for the picked jobs, and returns their sum.
 * For up to nine jobs, and for deadlines below 256 units, it is the maximum to within a 1,024th.
 * For more jobs, it is at least the maximum for a deadline that is a 256th earlier per job.
 */
int64_t df_plan_pick(struct df_plan_solver *s, const struct df_plan_job *jobs, int nr,
		     int64_t deadline, unsigned char *picked);

/* -- DeFT's state machine --------------------------------------------------------------------- */

/*
 * When an item is sent. FORWARD: an item of CURRENT, in the forward pass. OLD, NEW: an item of
 * CURRENT, of FUTURE, in the backward pass.
 */
enum df_plan_stage { DF_PLAN_FORWARD, DF_PLAN_OLD, DF_PLAN_NEW };

struct df_plan_send {
	uint16_t item;
	uint8_t link, stage;	  /* stage: enum df_plan_stage */
	int64_t begin_ns, end_ns; /* from the start of the pass */
};

/* One iteration. */
struct df_plan_step {
	/* An item at most once as CURRENT and once as FUTURE. */
	struct df_plan_send sends[2 * DF_PLAN_BUCKETS];
	int nr_sends;
	int which; /* case 2, 3 or 4 */
	int k;	   /* merged iterations of the update at its end; 0: no update */
	int late;  /* of an update: iterations since its oldest gradient */
	int64_t forward_ns, backward_ns; /* of the passes, with waits */
};

struct df_plan_deft {
	const struct df_plan_profile *profile;
	struct df_plan_item items[DF_PLAN_BUCKETS];
	int nr_items;
	/* State: CURRENT by item; merged iterations of CURRENT (0: never filled) and of FUTURE. */
	unsigned char current[DF_PLAN_BUCKETS];
	int nr_current, current_k, future_k;
	int64_t iteration, current_at; /* current_at: when it was formed */
	/* private */
	int64_t release[DF_PLAN_BUCKETS];
	struct df_plan_solver *solver;
};

/* Keeps the profile. Returns 0, -ENOMEM, or an error of df_plan_partition(). */
int df_plan_deft_init(struct df_plan_deft *d, const struct df_plan_profile *p);
void df_plan_deft_fini(struct df_plan_deft *d);
/* Restores the state after df_plan_deft_init(). */
void df_plan_deft_restart(struct df_plan_deft *d);
/* The next iteration. It depends only on profile and state. */
void df_plan_deft_step(struct df_plan_deft *d, struct df_plan_step *step);

/* -- replay ----------------------------------------------------------------------------------- */

enum df_plan_what { DF_PLAN_F, DF_PLAN_B, DF_PLAN_C };

struct df_plan_span {
	int64_t begin_ns, end_ns;
	int bucket;
	uint8_t what; /* enum df_plan_what */
	uint8_t link; /* of C */
	uint8_t old;  /* a gradient of an earlier iteration */
};

struct df_plan_outcome {
	const char *name; /* static */
	double iteration_ns, bubble_ns;
	double updates; /* per iteration */
	double link_use[DF_PLAN_LINKS];
	double late; /* iterations from a gradient to its update: mean, maximum */
	int late_most;
	int *k;		  /* of the updates in a period, or in all iterations if there is none */
	int nr_k, period; /* iterations; 0: none found */
	/* Two iterations: from window[0] to window[1]; spans may extend beyond. */
	struct df_plan_span *spans;
	size_t nr_spans, cap_spans;
	int64_t window[2];
};

int df_plan_ddp(const struct df_plan_profile *p, struct df_plan_outcome *out);
/* The best of some credits, and of some block sizes if none is given: ByteScheduler tunes both. */
int df_plan_bytescheduler(const struct df_plan_profile *p, struct df_plan_outcome *out);
/*
 * ByteScheduler with whole buckets, one at a time. Each bucket is reduced by the same all-reduce as
 * under DDP, so the results are equal bit for bit. order[]: the order in which buckets are sent.
 * Returns 0 or -ENOMEM.
 */
int df_plan_whole(const struct df_plan_profile *p, int *order, double *iteration_ns);
/* The best of some sizes of sub-blocks. */
int df_plan_usbyte(const struct df_plan_profile *p, struct df_plan_outcome *out);
/* Runs this many iterations (at least 1) of the state machine, on the first `links` links. */
int df_plan_deft_replay(const struct df_plan_profile *p, int links, int64_t iterations,
			struct df_plan_outcome *out);
void df_plan_outcome_fini(struct df_plan_outcome *out);

/* Draws all schemes in one SVG. Returns 0 or -EIO. */
int df_plan_plot(FILE *f, const struct df_plan_profile *p, const struct df_plan_outcome *all,
		 int nr);

/* -- preserver -------------------------------------------------------------------------------- */

/*
 * Training as a Gaussian walk with rebound at `target`: a step is N(mu, sigma^2/batch) times the
 * learning rate.
 */
struct df_plan_walk {
	double loss, target, rate, mu, sigma, batch, epsilon;
};

/* Expected loss after one update with k batches. */
double df_plan_expected(const struct df_plan_walk *w, double loss, int k);
/*
 * Expected loss after sum(k) updates of one batch, divided by that after the updates of k[]: 1 is
 * no difference.
 */
double df_plan_preserve(const struct df_plan_walk *w, const int *k, int nr);
/*
 * Replays, and raises p->capacity by a tenth until the ratio is within epsilon of 1. *rounds: how
 * often it was raised, at most 10 times; continues from the caller's value. *ratio: the final
 * ratio.
 */
int df_plan_feedback(struct df_plan_profile *p, const struct df_plan_walk *w, int64_t iterations,
		     struct df_plan_outcome *out, double *ratio, int *rounds);

#endif
