/* Communicators whose ranks are not all there yet, for the report of a hang. Any thread. */
#ifndef DF_RUNTIME_COMM_JOINING_H
#define DF_RUNTIME_COMM_JOINING_H

#include <stddef.h>
#include <stdint.h>

struct df_comm;

/* Notes that the communicator's rendezvous with this id has begun, or (id 0) has ended. */
void df_joining(struct df_comm *comm, uint64_t id, int nranks, int rank);
/*
 * A number that stands for all ranks that are missing, 0 if none is. Changes when a rank arrives or
 * a rendezvous ends.
 */
uint64_t df_joining_missing(void);
/*
 * Reports which ranks are missing in the first communicator that lacks some: INIT and a sentence.
 * Every process of the communicator arrives at the same text, but only the one with the lowest rank
 * present prints it, unless `anyhow` is set. Returns 0 if no rank is missing, 1 if it printed (the
 * first line is in `line`), -EAGAIN if another process prints.
 */
int df_joining_explain(int anyhow, char *line, size_t size);

/*
 * The report for a communicator of nranks ranks, by the id with this hash, that has waited for
 * these ranks for `ms` in this call of NCCL. note: lines to add, or "". Returns its length; the
 * first line is the verdict.
 */
int df_joining_say(char *text, size_t size, const char *call, uint64_t id, int nranks,
		   const int *missing, int nr, uint64_t ms, const char *note);

#endif
