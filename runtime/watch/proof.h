/* Searches for cycles whose waits have to be released. For the watchdog's thread. */
#ifndef DF_RUNTIME_WATCH_PROOF_H
#define DF_RUNTIME_WATCH_PROOF_H

#include <stddef.h>
#include <stdint.h>

/* The result of one search for cycles. */
struct df_proof_found {
	size_t nr; /* number of released waits */
	/* commHash of a communicator whose ranks' operations never meet; 0 if there is none */
	uint64_t mismatch;
	int settled; /* whether it is newly proved that operations wait for one another */
	/* when a likely cycle will have lasted long enough; UINT64_MAX if there is none */
	uint64_t again;
};

/*
 * Looks for cycles and releases the waits that must be released. `hosts`: where it matters, also
 * find out where threads wait outside of our calls. Returns 0, -EAGAIN if something progressed or
 * another process is looking, or another -errno.
 */
int df_prove_and_release(int hosts, struct df_proof_found *out);

#endif
