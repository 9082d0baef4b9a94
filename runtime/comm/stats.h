/* Counters, and sampled costs whose median is reported. Any thread. */
#ifndef DF_RUNTIME_COMM_STATS_H
#define DF_RUNTIME_COMM_STATS_H

#include <stdint.h>
#include "runtime/transport/transport.h"

enum df_sample { DF_SAMPLE_SQE, DF_SAMPLE_CQE, DF_SAMPLE_NR };
void df_stats_sample(enum df_sample what, uint64_t ns);

/* Those counters of the process that may be read while its threads run. */
struct df_stats_live {
	uint64_t released, preemptions;
	struct df_net_counts net;
};
void df_stats_live(struct df_stats_live *out);
/* Writes all counters as one line to where DFSHIM_STATS says. */
void df_stats_write(void);

#endif
