/*
 * Protocols (enum df_proto): how each divides a program into slices, and the contents of its slots.
 * These are pure functions of values that are equal on all ranks, so both ends of a connector agree
 * without communication.
 */
#ifndef DF_PROGRAM_PROTO_H
#define DF_PROGRAM_PROTO_H

#include "runtime/program/program.h"

extern const char *const df_proto_names[DF_PROTO_NR];

/* Returns the name of the protocol, or "?" for an unknown one. */
const char *df_proto_name(enum df_proto proto);

/* Whether each word carries data and a flag. Such protocols carry small slices only. */
static inline int df_proto_words(enum df_proto proto)
{
	return proto >= DF_PROTO_LL;
}

/*
 * Elements of a chunk that one slice moves, the same on every rank: as many as fit, in whole
 * vectors. slot_bytes: the largest slot of Simple. Returns 0 if slices of this program do not fit
 * the protocol.
 */
uint64_t df_proto_tile(enum df_proto proto, const struct df_program *prog, uint64_t chunk_elems,
		       uint32_t elem_bytes, uint64_t slot_bytes);

/* The slots of a connector, for slices of up to slice_bytes. */
struct df_slots {
	uint32_t nr, bytes;
	uint32_t credit; /* slices after which the receiver acknowledges them */
};

/*
 * want: slots requested. least: slots that the program needs. each: the sender must know exactly
 * what was received. line: words in a line of LL128 on the device (DFK_LINE).
 */
struct df_slots df_proto_slots(enum df_proto proto, uint64_t slice_bytes, uint32_t want,
			       uint32_t least, int each, uint32_t line);

#endif
