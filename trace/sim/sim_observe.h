/*
 * Reduces a recorded job to a workload: which GPUs communicated, how often, how often out of order,
 * and how often the whole device was synchronised. Reads traces only; one thread.
 */
#ifndef DF_TRACE_SIM_SIM_OBSERVE_H
#define DF_TRACE_SIM_SIM_OBSERVE_H

#include "trace/sim/sim.h"

struct df_sim_observed {
	/* GPUs sorted by rank and device, communicators by first use */
	struct df_sim_workload load;
	int nr_traces;
	int nr_incomplete; /* communicators without a trace of every rank */
	int64_t nr_issued; /* collectives, over all GPUs */
	/* of these, issued while an earlier one of the reference order was not issued yet */
	int64_t nr_disorder;
	int64_t nr_sync;    /* calls that waited for a whole device, explicitly or implicitly */
	int64_t nr_dropped; /* records that the rings had overwritten */
};

/*
 * Reads all traces in and below dir. Fails with -EIO (unreadable), -EPROTO (no trace), -EINVAL (no
 * collectives, or too many), -ENOMEM; err gives the reason and the file. On success the caller
 * releases out->load with df_sim_workload_fini().
 */
int df_sim_observe(struct df_sim_observed *out, const char *dir, char *err, size_t err_size);

#endif
