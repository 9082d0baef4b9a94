/*
 * Slices that a receiver reads from the sender's buffer. All under dev->lock, unless said
 * otherwise.
 */
#ifndef DF_RUNTIME_COLL_BYREF_H
#define DF_RUNTIME_COLL_BYREF_H

#include <stdint.h>

struct df_cend;
struct df_coll;
struct df_comm;
struct df_dev;

/* Whether the end may send or receive slices by reference. */
int df_refs_reach(const struct df_coll *coll, const struct df_cend *end);

/*
 * Whether a slice that the end receives from another node may be stored in the receive buffer
 * itself, without a copy.
 */
int df_refs_land(const struct df_cend *end);

uint32_t df_refs_state(const struct df_cend *end); /* enum df_kconn_state of a connected end */
int df_refs_far(const struct df_comm *comm);	   /* the value of df_conn_comm.far; no lock */

/*
 * Returns df_kinst.shown: the buffers of an operation, as bits by enum df_buf, that receivers in
 * this process may read. Call without a lock: it may ask the driver.
 */
uint32_t df_refs_shown(const struct df_comm *comm, const void *in, const void *out, uint64_t bytes);

/*
 * Withdraws the slices that unfinished operations of the communicator have named. Returns the
 * number of connectors concerned.
 */
uint32_t df_refs_withdraw(struct df_comm *comm);

/*
 * Marks the receiving ends of this device whose slices were withdrawn; its blocks see the mark from
 * their next turn on. Returns their number.
 */
uint32_t df_refs_withdrawn(struct df_dev *dev);

#endif
