/*
 * Gives the texts for the numbers in a trace, and the verdict words. They are generated from
 * records.def, calls.def and kinds.def. No state; any thread.
 */
#include <stdio.h>
#include <string.h>
#include "trace/record/names.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static const struct {
	const char *name, *abbr, *fr;
} kinds[] = {
#define DF_KIND(id, name, abbr, fr) {name, abbr, fr},
#include "trace/record/kinds.def"
};

static const struct {
	const char *name, *torch;
	uint32_t bytes;
} dtypes[] = {
#define DF_DTYPE(id, name, bytes, torch) {name, torch, bytes},
#include "trace/record/kinds.def"
};

static const char *const redops[] = {
#define DF_REDOP(id, name) name,
#include "trace/record/kinds.def"
};

static const char *const protos[] = {
#define DF_PROTO(id, name) name,
#include "trace/record/kinds.def"
};

static const char *const works[] = {
#define DF_WORKKIND(id, name) name,
#include "trace/record/kinds.def"
};

static const struct {
	const char *name;
	enum df_call_class class;
} calls[] = {
	{"none", DF_CLASS_NCCL},
#define DF_CALL(id, name, class) {name, (enum df_call_class) class},
#include "trace/record/calls.def"
#undef DF_CALL
};

static const struct {
	const char *name;
	int comm;
	const char *field[4];
} recs[] = {
	{"none", 0, {"0", "0", "0", "0"}},
#define DF_REC(id, name, comm, op, a, b, c) {name, comm, {op, a, b, c}},
#include "trace/record/records.def"
#undef DF_REC
};

static const struct {
	enum df_verdict verdict;
	const char *word;
} words[] = {
	{DF_V_OK, "OK"},
	{DF_V_SLOW, "SLOW"},
	{DF_V_ORDER, "ORDER"},
	{DF_V_RESOURCE, "RESOURCE"},
	{DF_V_SYNC, "SYNC"},
	{DF_V_DATA, "DATA"},
	{DF_V_MISSING, "MISSING"},
	{DF_V_MISMATCH, "MISMATCH"},
	{DF_V_INIT, "INIT"},
	{DF_V_CRASH, "CRASH"},
	{DF_V_GPU_STUCK, "GPU_STUCK"},
	{DF_V_NET_STALL, "NET_STALL"},
	{DF_V_NCCL_INTERNAL, "NCCL_INTERNAL"},
	{DF_V_HOST, "HOST"},
	{DF_V_UNKNOWN, "UNKNOWN"},
};

const char *df_verdict_word(enum df_verdict v)
{
	for (size_t i = 0; i < LEN(words); i++)
		if (words[i].verdict == v)
			return words[i].word;
	return "UNKNOWN";
}

int df_verdict_exit(enum df_verdict v)
{
	return v == DF_V_SLOW ? 0 : (int)v;
}

int df_verdict_stop_exit(enum df_verdict v)
{
	return v == DF_V_SLOW ? DF_V_MISSING : v == DF_V_OK ? DF_V_UNKNOWN : (int)v;
}

const char *df_kind_name(uint32_t k)
{
	return k < LEN(kinds) ? kinds[k].name : "?";
}

int df_kind_reduces(uint32_t kind)
{
	return kind == DF_KIND_ALLREDUCE || kind == DF_KIND_REDUCE || kind == DF_KIND_REDUCESCATTER;
}

int df_kind_rooted(uint32_t kind)
{
	return kind == DF_KIND_BROADCAST || kind == DF_KIND_REDUCE || kind == DF_KIND_GATHER ||
	       kind == DF_KIND_SCATTER;
}

int df_kind_is_p2p(uint32_t kind)
{
	return kind == DF_KIND_SEND || kind == DF_KIND_RECV;
}

const char *df_kind_fr(uint32_t k)
{
	return k < LEN(kinds) ? kinds[k].fr : "all_reduce";
}

const char *df_dtype_name(uint32_t t)
{
	return t < LEN(dtypes) ? dtypes[t].name : "?";
}

const char *df_dtype_torch(uint32_t t)
{
	return t < LEN(dtypes) ? dtypes[t].torch : "Byte";
}

uint32_t df_dtype_bytes(uint32_t t)
{
	return t < LEN(dtypes) ? dtypes[t].bytes : 0;
}

const char *df_redop_name(uint32_t r)
{
	return r < LEN(redops) ? redops[r] : "?";
}

const char *df_trace_proto(uint32_t p)
{
	return p < LEN(protos) ? protos[p] : "?";
}

const char *df_work_name(uint32_t w)
{
	return w < LEN(works) ? works[w] : "work";
}

const char *df_call_text(uint32_t c)
{
	return c < LEN(calls) ? calls[c].name : "?";
}

int df_call_is_poll(uint32_t call)
{
	return call == DF_CALL_POLL_STREAM || call == DF_CALL_POLL_EVENT ||
	       call == DF_CALL_POLL_CALL;
}

enum df_call df_polled_call(uint32_t kind)
{
	static const enum df_call polls[DF_POLLED_NR] = {
		[DF_POLLED_STREAM] = DF_CALL_POLL_STREAM,
		[DF_POLLED_EVENT] = DF_CALL_POLL_EVENT,
		[DF_POLLED_CALL] = DF_CALL_POLL_CALL,
	};

	return kind < DF_POLLED_NR ? polls[kind] : DF_CALL_NONE;
}

int df_call_is_seen(uint32_t call)
{
	return call == DF_CALL_OUTSIDE || df_call_is_poll(call);
}

enum df_call_class df_call_class(uint32_t c)
{
	return c < LEN(calls) ? calls[c].class : DF_CLASS_NCCL;
}

const char *df_rec_name(uint32_t t)
{
	return t < LEN(recs) ? recs[t].name : "?";
}

/* Begins the description of a field that is an identity or bits. */
#define HEX_MARK "0x "

static const char *marked_field(uint32_t t, int which)
{
	return t < LEN(recs) && which >= 0 && which < 4 ? recs[t].field[which] : "0";
}

int df_rec_is_hex(uint32_t t, int which)
{
	return !strncmp(marked_field(t, which), HEX_MARK, strlen(HEX_MARK));
}

const char *df_rec_field(uint32_t t, int which)
{
	return marked_field(t, which) + (df_rec_is_hex(t, which) ? strlen(HEX_MARK) : 0);
}

int df_rec_has_comm(uint32_t t)
{
	return t < LEN(recs) && recs[t].comm;
}

void df_comm_label(const char *name, char *label, size_t size)
{
	int number = *name && !name[strspn(name, "0123456789")];

	snprintf(label, size, "%s%s", number ? "pg" : "", name);
}

int df_kind_parse_fr(const char *name)
{
	static const struct {
		const char *name;
		int kind;
	} also[] = {
		{"all_gather", DF_KIND_ALLGATHER},
		{"all_gather_base", DF_KIND_ALLGATHER},
		{"all_gather_into_tensor_coalesced", DF_KIND_ALLGATHER},
		{"reduce_scatter", DF_KIND_REDUCESCATTER},
		{"reduce_scatter_tensor_coalesced", DF_KIND_REDUCESCATTER},
		{"all_reduce_coalesced", DF_KIND_ALLREDUCE},
		{"barrier", DF_KIND_ALLREDUCE},
		{"all_to_all_base", DF_KIND_ALLTOALL},
		{"all_to_allv", DF_KIND_ALLTOALL},
	};

	for (size_t i = 0; i < LEN(kinds); i++)
		if (!strcmp(kinds[i].fr, name))
			return (int)i;
	for (size_t i = 0; i < LEN(also); i++)
		if (!strcmp(also[i].name, name))
			return also[i].kind;
	return -1;
}

int df_dtype_parse_torch(const char *name)
{
	for (size_t i = 0; i < LEN(dtypes); i++)
		if (!strcmp(dtypes[i].torch, name))
			return (int)i;
	return -1;
}

int df_rec_parse(const char *name)
{
	for (size_t i = 1; i < LEN(recs); i++)
		if (!strcmp(recs[i].name, name))
			return (int)i;
	return -1;
}
