/*
 * The process: its devices and communicators, and the settings that all modules share. Filled by df_start(); then only
 * what is said to be guarded changes.
 */
#ifndef DF_RUNTIME_COMM_PROCESS_H
#define DF_RUNTIME_COMM_PROCESS_H

#include <stdint.h>
#include "runtime/blocks.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/ctl/ctl.h"
#include "runtime/daemon/dev.h"

struct df_algo_table;
struct df_comm;
struct df_tuner;

struct df_rt {
	int started; /* 0 no, 1 yes, -errno */
	int unable;  /* df_start_unable() has been called and did it */
	char reason[256];
	struct df_member self;
	int nr_devs;
	struct df_dev *devs;
	struct df_mutex lock; /* comms */
	struct df_list comms;
	int strict;    /* stream order */
	int host_work; /* host functions, or graphs that may hold some, were put on streams */
	struct df_execs execs;	     /* the devices as the machine sees them */
	uint32_t blocked;	     /* host threads inside a blocking call of ours */
	struct df_algo_table *algos; /* DFSHIM_ALGO; NULL none */
	struct df_tuner *tuner;	     /* DFSHIM_TUNER, NCCL_ALGO; NULL: the built-in choice */
	int measures_far;	     /* how fast nodes are joined is measured: DFSHIM_NET_SPEED */
	uint64_t settings;	     /* hash of what all ranks must have alike */
	uint32_t slots, slot_bytes;  /* of a connector */
	uint32_t far_slots, far_slot_bytes; /* the same for collectives over several nodes */
	uint64_t conn_budget;		    /* DFSHIM_CONNECTOR_MB in bytes */
};

extern struct df_rt df_rt;

/*
 * Blocking host calls, for trace and watchdog: enter returns the serial that exit takes. site: where the application makes
 * the call; 0: what df_call_about() has told.
 */
uint64_t df_call_enter(uint32_t call, int device, uint64_t object, uint64_t detail, uint32_t site);
/* As df_call_enter(), for a call that is collective over a communicator. */
uint64_t df_call_enter_comm(uint32_t call, const struct df_comm *comm, uint64_t detail,
			    uint32_t site);
void df_call_exit(uint64_t serial, uint32_t call, int device, uint64_t result);

#endif
