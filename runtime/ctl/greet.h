/* The greeting of a connection. The control plane's lock is held. */
#ifndef DF_RUNTIME_CTL_GREET_H
#define DF_RUNTIME_CTL_GREET_H

#include <stddef.h>
#include <stdint.h>

struct df_key;
struct df_link;

/* Sends the first frame of the greeting. Returns 0 or -errno. */
int df_greet_begin(struct df_link *link, uint64_t name, const struct df_key *secret);
/* Handles a frame of the greeting. A result below 0: the other end does not know the secret. */
int df_greet_input(struct df_link *link, unsigned type, const void *data, size_t bytes);
/* Masks bytes, or unmasks them; advances *at. */
void df_greet_mask(const struct df_key *session, uint64_t *at, void *data, size_t bytes);

#endif
