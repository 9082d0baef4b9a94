/*
 * NCCL's rules. A unit is what NCCL launches as one kernel: a group's part on one communicator.
 */
#ifndef DF_RUNTIME_COLL_RULES_H
#define DF_RUNTIME_COLL_RULES_H

#include <stddef.h>

struct df_comm;
struct df_dev;
struct df_flight;
struct df_kinst;
struct df_kwait;
struct df_op;

int df_rules_connect(const struct df_op *ops, size_t nr_ops); /* blocks */
/* Adds an operation to its communicator's open unit; it starts when gate is 1. dev->lock */
int df_rules_hold(struct df_comm *comm, struct df_kinst *inst, const struct df_kwait *ready,
		  const struct df_flight *f);
void df_rules_close(struct df_comm *comm);  /* the group is complete; dev->lock */
void df_rules_progress(struct df_dev *dev); /* dev->lock */
void df_rules_drop(struct df_comm *comm);   /* dev->lock */

#endif
