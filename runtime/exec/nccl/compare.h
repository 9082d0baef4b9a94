/* Compares the calls of a node's ranks before NCCL launches them. */
#ifndef DF_RUNTIME_EXEC_NCCL_COMPARE_H
#define DF_RUNTIME_EXEC_NCCL_COMPARE_H

#include <stddef.h>
#include <stdint.h>

struct df_lane;
struct df_lane_call;
struct df_lane_op;
struct df_op;
struct df_sig;

/* Returns the compared part of a signature as a number other than 0. */
uint64_t df_lane_match(const struct df_sig *sig);
/*
 * df_lane_call() returns the call as it is stored for the report. df_lane_say() writes it as text
 * into buf and returns buf.
 */
struct df_lane_call df_lane_call(const struct df_op *op);
const char *df_lane_say(const struct df_lane_call *c, char *buf, size_t size);

/*
 * Publishes the operations of a group, and compares them with those that the other ranks of the
 * node have published in the same places. Returns 1 if one differs, which is then logged and
 * reported, else 0. Only the thread that puts operations calls it.
 */
int df_lane_differs(struct df_lane *lane, struct df_lane_op *const *group, size_t nr);

#endif
