/*
 * The process: its devices and communicators, and the settings that all modules share. df_start()
 * fills it; later only fields with a stated guard change.
 */
#ifndef DF_RUNTIME_COMM_PROCESS_H
#define DF_RUNTIME_COMM_PROCESS_H

#include <stdint.h>
#include "runtime/blocks.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/ctl/ctl.h"
#include "runtime/devs.h"

struct df_algo_table;
struct df_comm;
struct df_tuner;

struct df_rt {
	int started; /* 1 once started, -errno if that failed */
	int unable;  /* df_start_unable() has succeeded */
	char reason[512];
	struct df_member self;
	int nr_devs;
	struct df_dev *devs;
	struct df_mutex lock; /* guards comms */
	struct df_list comms;
	int strict; /* DFSHIM_STREAM_ORDER=strict */
	/* host functions, or graphs that may contain some, have been put on streams */
	int host_work;
	struct df_execs execs;	     /* the devices as the backend sees them */
	uint32_t blocked;	     /* threads inside a blocking call of ours */
	struct df_algo_table *algos; /* DFSHIM_ALGO; NULL: none */
	struct df_tuner *tuner;	     /* DFSHIM_TUNER, NCCL_ALGO; NULL: the built-in choice */
	/* whether the speed between nodes is measured: DFSHIM_NET_SPEED */
	int measures_far;
	uint64_t settings;	    /* hash of the settings that must be equal on all ranks */
	uint32_t slots, slot_bytes; /* of a connector */
	uint32_t far_slots, far_slot_bytes; /* the same, for collectives over several nodes */
	uint64_t conn_budget;		    /* DFSHIM_CONNECTOR_MB in bytes */
};

extern struct df_rt df_rt;

/*
 * Blocking calls of the application, for trace and watchdog. df_call_enter() returns the serial
 * that df_call_exit() takes. site: the call site; 0: the one set by df_call_about().
 */
uint64_t df_call_enter(uint32_t call, int device, uint64_t object, uint64_t detail, uint32_t site);
/* As df_call_enter(), for a call that is collective over a communicator. */
uint64_t df_call_enter_comm(uint32_t call, const struct df_comm *comm, uint64_t detail,
			    uint32_t site);
void df_call_exit(uint64_t serial, uint32_t call, int device, uint64_t result);

#endif
