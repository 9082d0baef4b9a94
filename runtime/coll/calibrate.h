/* Costs of instructions, copies and hops on this machine, measured and learned. Any thread. */
#ifndef DF_RUNTIME_COLL_CALIBRATE_H
#define DF_RUNTIME_COLL_CALIBRATE_H

#include <stdint.h>

struct df_cal;
struct df_comm;

/* Returns the costs that this process knows, for the other ranks; measures them at first. */
void df_cal_mine(struct df_cal *out, int nranks);
/* An operation by this algorithm took `ratio` times as long as predicted. */
void df_cal_note(uint32_t algo, double ratio);
/*
 * Sets the communicator's costs from all ranks' rows; NULL: those of the member table. Returns 0 or
 * -ENOMEM.
 */
int df_cal_members(struct df_comm *comm, const struct df_cal *rows);

#endif
