/*
 * The steps of each thread of each rank, from traces, for the subcommands that execute the recorded
 * program again, in a model or for real.
 */
#ifndef DF_TRACE_CLI_RUN_RECORDED_H
#define DF_TRACE_CLI_RUN_RECORDED_H

#include "runtime/base/map.h"
#include "trace/read/load.h"
#include "trace/read/stacks.h"
#include "trace/predict/model.h"

/* One step of one thread of one rank, and its origin. */
struct df_step_of {
	struct df_mop op;
	uint64_t rec;
	uint32_t comm; /* number in comms[], for COLL and P2P */
	uint64_t index;
	int dropped;
	uint64_t send, recv, count;
	uint8_t kind, type, redop;
	int32_t peer;
	uint32_t group;
	uint8_t sends; /* as in struct df_lop */
	uint32_t site; /* call site; 0 if unknown */
};

struct df_rank_of {
	struct df_step_of *steps[DF_MODEL_THREADS];
	size_t nr[DF_MODEL_THREADS], cap[DF_MODEL_THREADS];
	uint32_t tid[DF_MODEL_THREADS];
	int nr_threads;
	/* If has_backward, two threads that take turns: the caller of backward(), and PyTorch's. */
	int backward[2], has_backward;
	uint32_t trace;
	int32_t device;
	int waits; /* a thread still waited at the end of the trace */
	char name[32];
};

struct df_comm_of {
	uint64_t hash;
	struct df_ranks members; /* the members that have a trace */
	int32_t nranks;
	char name[32]; /* "" if it has none */
	/* By rank in the communicator: our number of the rank, plus 1; 0 if unknown. */
	int member[DF_MODEL_RANKS];
};

struct df_program_steps {
	struct df_rank_of ranks[DF_MODEL_RANKS];
	int nr_ranks;
	struct df_comm_of *comms;
	size_t nr_comms, cap_comms;
	struct df_map numbers; /* by hash: number of the communicator, plus 1 */
	struct df_map ids[2];  /* streams and events: small numbers, from 1 on */
	size_t nr_ids[2];
	uint32_t slots;
	/* the smallest number of multiprocessors of a device; 0 if unknown */
	uint32_t sms;
	size_t left_out;	/* number of calls of threads beyond DF_MODEL_THREADS */
	size_t procs_left_out;	/* number of traces of ranks beyond DF_MODEL_RANKS */
	uint32_t next_left_out; /* the number after that of the last such trace */
	int flags;		/* bits of enum df_steps */
	size_t nr_intents;	/* number of operations before which their thread still waited */
	/*
	 * number of flags of DF_MOP_HSIGNAL and DF_MOP_HWAIT, which are assumed waits between
	 * threads
	 */
	int nr_flags;
	struct df_stacks stacks;
};

enum df_steps {
	DF_STEPS_MERGE = 1,   /* messages of one group become one step */
	DF_STEPS_MEMBERS = 2, /* ranks that issue nothing on a communicator are members, too */
};

/* Reads traces in the order of df_cli_trace_paths(). Returns 0, or 1 after a message. */
int df_steps_load(struct df_program_steps *p, const char *sub, char **paths, size_t nr, int flags);
void df_steps_free(struct df_program_steps *p);
/* Returns the innermost frames of a call site of a rank, or "" if unknown. */
const char *df_steps_stack(const struct df_program_steps *p, int rank, const struct df_step_of *s);
/*
 * Converts a peer's number in its communicator to our number of the rank, or -1 if the rank has no
 * trace.
 */
int df_steps_peer(const struct df_program_steps *p, int comm, int peer);

#endif
