/*
 * What things cost here, measured and learnt. Any thread.
 */
#ifndef DF_RUNTIME_COLL_CALIBRATE_H
#define DF_RUNTIME_COLL_CALIBRATE_H

#include <stdint.h>

struct df_cal;
struct df_comm;

/* What this process knows, to be told to the others; measures at first. */
void df_cal_mine(struct df_cal *out, int nranks);
/* An operation by this algorithm took so many times what had been expected. */
void df_cal_note(uint32_t algo, double ratio);
/* Sets comm->cost from all ranks' rows; NULL: those of the member table. -ENOMEM. */
int df_cal_members(struct df_comm *comm, const struct df_cal *rows);

#endif
