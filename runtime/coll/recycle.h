/* Connectors of idle collectives, under a budget. All under dev->lock. */
#ifndef DF_RUNTIME_COLL_RECYCLE_H
#define DF_RUNTIME_COLL_RECYCLE_H

#include <stdint.h>

struct df_cend;
struct df_coll;
struct df_dev;

/* Whether the end has a connector that can be recycled. */
int df_conn_movable(const struct df_cend *end);
/* Call before a connector of that size is made: recycles others if the budget requires it. */
void df_conn_make_room(const struct df_coll *coll, uint64_t bytes);
void df_recycle_look(struct df_dev *dev);  /* lets go of connectors that peers have asked for */
void df_coll_let_go(struct df_coll *coll); /* lets go of its wanted connectors if it is idle */

#endif
