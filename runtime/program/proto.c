/* Names, tiles and slots of the protocols. */
#include "runtime/base/err.h"
#include "runtime/program/proto.h"

#define WORDS_SLOTS 8u /* minimum number of slots of a low-latency protocol */

const char *const df_proto_names[DF_PROTO_NR] = {"any", "Simple", "LL", "LL128"};

const char *df_proto_name(enum df_proto proto)
{
	return (unsigned)proto < DF_PROTO_NR ? df_proto_names[proto] : "?";
}

uint64_t df_proto_tile(enum df_proto proto, const struct df_program *prog, uint64_t chunk_elems,
		       uint32_t elem_bytes, uint64_t slot_bytes)
{
	uint64_t most = (uint64_t)prog->max_cnt * elem_bytes, fit;

	if (df_proto_words(proto)) {
		fit = DF_WORDS_BYTES / most;
		if (fit < 16 && fit < chunk_elems)
			return 0;
		fit = fit < 16 ? chunk_elems : fit & ~15ull;
	} else {
		fit = slot_bytes / most;
		fit = DF_MAX(fit, 16u) & ~15ull;
	}
	return DF_MAX(DF_MIN(fit, chunk_elems), 1u);
}

static uint64_t up(uint64_t v, uint64_t to)
{
	return (v + to - 1) / to * to;
}

struct df_slots df_proto_slots(enum df_proto proto, uint64_t slice_bytes, uint32_t want,
			       uint32_t least, int each, uint32_t line)
{
	struct df_slots s = {.nr = DF_MAX(want, least), .credit = 1};
	uint64_t data = (line - 1) * 8ull;

	if (!df_proto_words(proto)) {
		s.bytes = (uint32_t)up(slice_bytes, 64);
		return s;
	}
	/*
	 * Up to credit - 1 of the slots are free before the sender knows it. The others must
	 * suffice.
	 */
	s.nr = DF_MAX(2 * s.nr, WORDS_SLOTS);
	if (!each)
		s.credit = s.nr / 2;
	slice_bytes = DF_MAX(slice_bytes, 1u);
	s.bytes = (uint32_t)up(proto == DF_PROTO_LL ? up(slice_bytes, 4) * 2
						    : up(slice_bytes, data) / data * line * 8,
			       64);
	return s;
}
