/*
 * A link between nodes as a trace leaves it, from NET records: what trace/judge/broken_link.c judges by. Plain data.
 */
#ifndef DF_TRACE_READ_BROKEN_LINK_H
#define DF_TRACE_READ_BROKEN_LINK_H

#include <stdint.h>

/* A way to another node that was broken when the trace ended: the last NET record of it. */
struct df_broken_link {
	uint64_t host_hash, time_ns, rec;
	uint32_t pid, trace; /* of the peer; whose record it is */
	uint32_t device;     /* the peer's */
	int local;	     /* our device */
	int gone;	     /* given up */
	int held;	     /* not broken: a function of the network's library does not return */
	int unmapped;	     /* no network's: the peer's memory could not be mapped; gone, too */
	int error;	     /* errno */
	uint32_t ms;	     /* since a sign of life (gone), the call (held), or the break */
	uint32_t attempts;   /* to restore it */
	char text[256];	     /* its ends, or (held) what is said of it; "": not known */
};

#endif
