/*
 * How fast the nodes of a communicator are joined, measured when it is made. Any thread, under no lock.
 */
#ifndef DF_RUNTIME_COLL_FAR_H
#define DF_RUNTIME_COLL_FAR_H

struct df_comm;
struct df_cost;

/*
 * DFSHIM_NET_SPEED. 1: it is to be measured; 0: not, and what the text says stands in *c; -EINVAL: nobody can read it, and it is
 * to be measured.
 */
int df_far_parse(const char *text, struct df_cost *c);

/*
 * Sets the figures of comm->choice.cost for what goes to another node, the same on all ranks, which all call this. Takes some
 * milliseconds for nodes that have not met in a communicator before, and a third of a second where they can't be joined;
 * what can't be measured stays as it is. -ECONNRESET: a rank has gone; -ECANCELED, -ENOMEM.
 */
int df_far_members(struct df_comm *comm);

#endif
