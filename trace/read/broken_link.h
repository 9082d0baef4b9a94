/*
 * A link between nodes in its last recorded state (NET records): the input of
 * trace/judge/broken_link.c. Plain data.
 */
#ifndef DF_TRACE_READ_BROKEN_LINK_H
#define DF_TRACE_READ_BROKEN_LINK_H

#include <stdint.h>

/* A link to another node that was broken when the trace ended, from its last NET record. */
struct df_broken_link {
	uint64_t host_hash, time_ns, rec;
	uint32_t pid, trace; /* the peer's pid; the trace that has the record */
	uint32_t device;     /* the peer's device */
	int local;	     /* this process's device */
	int gone;	     /* whether it was given up */
	int held;	     /* not broken, but a function of the network library does not return */
	int unmapped;	     /* no network link: the peer's memory could not be mapped; also gone */
	int error;	     /* errno */
	/* milliseconds since a sign of life (gone), the call (held), or the break */
	uint32_t ms;
	uint32_t attempts; /* attempts to restore it */
	char text[256];	   /* its ends, or (held) a description; "": unknown */
};

#endif
