/* Counters, and sampled costs whose median is reported. Any thread. */
#ifndef DF_RUNTIME_COMM_STATS_H
#define DF_RUNTIME_COMM_STATS_H

#include <stdint.h>

enum df_sample { DF_SAMPLE_SQE, DF_SAMPLE_CQE, DF_SAMPLE_NR };
void df_stats_sample(enum df_sample what, uint64_t ns);
void df_stats_write(void);

#endif
