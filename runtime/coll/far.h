/*
 * Measures latency and bandwidth between the nodes of a communicator when it is made. Any thread,
 * under no lock.
 */
#ifndef DF_RUNTIME_COLL_FAR_H
#define DF_RUNTIME_COLL_FAR_H

struct df_comm;
struct df_cost;

/*
 * Parses DFSHIM_NET_SPEED. Returns 1 if the speed is to be measured; 0 if *c has the figures: those
 * of the text, or its defaults unchanged; -EINVAL if the text is invalid.
 */
int df_far_parse(const char *text, struct df_cost *c);

/*
 * Sets the figures of comm->choice.cost for data to other nodes, equal on all ranks; all ranks call
 * it. Takes some milliseconds for nodes that have not been in one communicator before, and a
 * quarter of a second if they cannot be connected. Figures that cannot be measured stay
 * unchanged. Returns 0, -ECONNRESET if a rank has ended, -ECANCELED or -ENOMEM.
 */
int df_far_members(struct df_comm *comm);

#endif
