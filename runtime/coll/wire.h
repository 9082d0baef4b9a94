/*
 * Links between the emulated nodes of a machine of CPU threads. Any thread.
 */
#ifndef DF_RUNTIME_COLL_WIRE_H
#define DF_RUNTIME_COLL_WIRE_H

#include <stdint.h>

struct df_cend;

uint64_t df_wire_node(uint64_t host, int device); /* which node a device belongs to */
/* device: whose link out; slice_bytes: of a slice on average */
int df_wire_splice(struct df_cend *end, int device, uint64_t slice_bytes);
void df_wire_unsplice(struct df_cend *end); /* delivers what is under way; no-op without a wire */
int df_wire_pass(void);	  /* 1 something arrived, 0 there are some, -1 there are none */
int df_wire_busy(void);	  /* something is under way */
void df_wire_flush(void); /* delivers everything now */

#endif
