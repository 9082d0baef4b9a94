/*
 * A communicator's local rank, and how it ends. Its fields belong to its owner's thread until `open`; later to who is named
 * beside them.
 */
#ifndef DF_RUNTIME_COMM_COMM_H
#define DF_RUNTIME_COMM_COMM_H

#include <stdint.h>
#include "kernels/abi.h"
#include "runtime/base/list.h"
#include "runtime/coll/coll.h"
#include "runtime/coll/connector.h"
#include "runtime/dfshim.h"
#include "runtime/order/order.h"
#include "runtime/watch/watchdog.h"

struct df_ctl_comm;
struct df_dev;
struct df_member;

struct df_comm {
	struct df_list node; /* rt.comms */
	struct df_dev *dev;
	struct df_comm_config config;
	struct df_ctl_comm *ctl;
	const struct df_member *members;
	int nranks, rank;
	struct df_coll_choice choice; /* calibrate.c, comm.c */
	uint64_t hash;
	uint32_t open; /* all the above is set for good: for threads that are not the owner's */
	struct {
		uint64_t id, since; /* hash of the id; when this rank came */
		int nranks, rank;
	} join;	       /* while it joins by an id; under df_rt.lock */
	uint32_t stop; /* ends blocking calls */
	/* It was ended with operations unfinished, and the program has not shown that it knows; atomic. */
	int unheard;
	int condemned;	/* to be ended with others: between the halves; guarded by df_rt.lock */
	uint32_t state; /* enum df_comm_state */
	int error;
	uint32_t trace; /* number in the trace's table */
	uint32_t blocks;
	uint32_t splits; /* children made of it */
	uint64_t family; /* of config.share: those with the same number end together; 0 none */
	uint64_t issued, retired; /* operations; under dev->lock, read without */
	uint64_t index;		  /* issue index of the next operation */
	uint32_t
		refs; /* its owner, and operations in graphs, which may be there longer: keep the memory */
	/* What the modules keep of it: each touches its own. */
	struct df_coll_registry registry;
	struct df_conn_comm conn;
	struct df_order_comm order;
	struct df_watch_comm watch;
};

void df_comm_end(struct df_comm *comm, int error, int why); /* abort with a reason */
/*
 * The program may not notice that its operations have ended without a result: unless it aborts, revokes or shrinks the
 * communicator, the process does not end with 0 but with this.
 */
void df_comm_unheard(struct df_comm *comm, int status);
/* Its two halves: everybody can see it (0: it has ended before); then what waits for it goes on. */
int df_comm_condemn(struct df_comm *comm, int error, int why);
void df_comm_end_operations(struct df_comm *comm);
void df_comm_get(struct df_comm *comm);
void df_comm_put(struct df_comm *comm); /* the last one frees its memory */
/* Its members and its way to them may be looked at, from any thread. */
int df_comm_is_open(const struct df_comm *comm);
/* Bytes of the largest slot of its collectives; equal on all ranks. From agree() on, any thread. */
uint32_t df_comm_slot_bytes(const struct df_comm *comm);

/* death.c: df_rt.lock not held. */
void df_comm_death(uint64_t proc, int in_order);
void df_comm_lost(const struct df_member *who);
struct df_net_event;
/* What happened to the way to another node. Returns before communicators that it ends have ended. */
void df_comm_net_event(const struct df_net_event *e);
/* This process has no descriptor left to map the memory of that one: the communicators with it end, soon. */
void df_comm_no_file(uint64_t proc);
/* That one has said the same of this process: the communicators with it have ended. */
void df_comm_unmapped(uint64_t proc);
/* A device can't be used any more: its communicators end, soon. */
void df_comm_device_lost(int device);
/* The lowest rank of a process in an open communicator; -1: none. df_rt.lock held. */
int df_comm_rank_of(const struct df_comm *comm, uint64_t proc);

#endif
