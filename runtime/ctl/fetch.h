/*
 * Descriptors of shared memory, handed from process to process on one node: the owner's control thread
 * sends those of its segments to whoever asks and knows its nonce.
 */
#ifndef DF_CTL_FETCH_H
#define DF_CTL_FETCH_H

#include <stdint.h>

#include "runtime/ctl/ctl.h"

#define DF_FETCH_MAX 60

/*
 * Segments from number `first` on: fills at most max descriptors and sizes, returns how many. Called on
 * the control thread with its lock held: must not block.
 */
typedef int (*df_fetch_serve_fn)(uint32_t first, int *fds, uint64_t *bytes, int max);
void df_fetch_set_server(df_fetch_serve_fn fn);

/*
 * Asks the process for its segments from `first` on; never blocks. done is called once, on the control
 * thread with its lock held; it owns the descriptors. error: -ECONNRESET the process is gone.
 */
typedef void (*df_fetch_done_fn)(void *arg, int error, const int *fds, const uint64_t *bytes,
				 int nr);
int df_fetch_start(const struct df_member *peer, uint32_t first, df_fetch_done_fn done, void *arg);

#endif
