/* The search for cycles whose waits have to be released. For the watchdog's thread. */
#ifndef DF_RUNTIME_WATCH_PROOF_H
#define DF_RUNTIME_WATCH_PROOF_H

#include <stddef.h>
#include <stdint.h>

/* The result of one search for cycles. */
struct df_proof_found {
	size_t nr;	   /* number of released waits */
	uint64_t mismatch; /* commHash of ranks whose operations never meet; 0: none */
	int settled;	   /* newly proved: operations wait for one another */
	uint64_t again;	   /* when a likely cycle has lasted long enough; or UINT64_MAX */
};

/*
 * Looks for cycles and releases the waits that must be released. hosts: where it matters,
 * also find out where threads wait outside of our calls. Returns 0, -EAGAIN if something progressed
 * or another process is looking, or another -errno.
 */
int df_prove_and_release(int hosts, struct df_proof_found *out);

#endif
