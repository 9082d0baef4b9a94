/* Names and properties of collectives, types and opcodes: constant tables, no locks. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/ascii.h"
#include "runtime/base/err.h"
#include "runtime/program/plan.h"
#include "runtime/program/program_names.h"

static const char *const kind_names[DF_COLL_NR] = {
	[DF_COLL_ALLREDUCE] = "AllReduce",
	[DF_COLL_BROADCAST] = "Broadcast",
	[DF_COLL_REDUCE] = "Reduce",
	[DF_COLL_ALLGATHER] = "AllGather",
	[DF_COLL_REDUCESCATTER] = "ReduceScatter",
	[DF_COLL_ALLTOALL] = "AlltoAll",
	[DF_COLL_GATHER] = "Gather",
	[DF_COLL_SCATTER] = "Scatter",
	[DF_COLL_SEND] = "Send",
	[DF_COLL_RECV] = "Recv",
	[DF_COLL_SENDRECV_SELF] = "SendRecvSelf",
	[DF_COLL_CUSTOM] = "Custom",
};

static const struct {
	const char *name;
	uint32_t bytes;
} types[DF_NR_TYPES] = {
	[DF_INT8] = {"int8", 1},	 [DF_UINT8] = {"uint8", 1},
	[DF_INT32] = {"int32", 4},	 [DF_UINT32] = {"uint32", 4},
	[DF_INT64] = {"int64", 8},	 [DF_UINT64] = {"uint64", 8},
	[DF_FLOAT16] = {"float16", 2},	 [DF_FLOAT32] = {"float32", 4},
	[DF_FLOAT64] = {"float64", 8},	 [DF_BFLOAT16] = {"bfloat16", 2},
	[DF_FLOAT8E4M3] = {"f8e4m3", 1}, [DF_FLOAT8E5M2] = {"f8e5m2", 1},
};

const struct df_op_info df_op_info[DF_OP_NR] = {
#define DF_OP(id, text, xml, recvs, sends, src, dst, reduces)                                      \
	[DF_OP_##id] = {text, xml, recvs, sends, src, dst, reduces},
#include "kernels/opcodes.def"
#undef DF_OP
};

const char *df_coll_kind_name(enum df_coll_kind kind)
{
	return (unsigned)kind < DF_COLL_NR ? kind_names[kind] : "?";
}

/* Ignores case and underscores: reduce_scatter, ReduceScatter. */
int df_coll_kind_parse(const char *name)
{
	char flat[32];
	size_t n = 0;

	for (; *name; name++) {
		if (*name == '_')
			continue;
		if (n == sizeof(flat) - 1)
			return -1;
		flat[n++] = *name;
	}
	flat[n] = 0;
	for (int k = 0; k < DF_COLL_NR; k++) {
		if (!df_strcasecmp(flat, kind_names[k]))
			return k;
	}
	return -1;
}

static const char *const algo_names[DF_ALGO_NR] = {
	[DF_ALGO_AUTO] = "auto",	 [DF_ALGO_RING] = "ring", [DF_ALGO_TREE] = "tree",
	[DF_ALGO_ALLPAIRS] = "allpairs", [DF_ALGO_HIER] = "hier",
};

const char *df_algo_name(enum df_algo algo)
{
	return (unsigned)algo < DF_ALGO_NR ? algo_names[algo] : "?";
}

int df_algo_find_name(const char *name, size_t len)
{
	for (int a = 0; a < DF_ALGO_NR; a++) {
		if (strlen(algo_names[a]) == len && !df_strncasecmp(algo_names[a], name, len))
			return a;
	}
	return -1;
}

int df_algo_has(const struct df_prog_req *q, enum df_algo algo)
{
	switch (algo) {
	case DF_ALGO_RING:
		return q->kind <= DF_COLL_REDUCESCATTER;
	case DF_ALGO_TREE:
		return q->kind <= DF_COLL_REDUCE;
	case DF_ALGO_ALLPAIRS:
		return q->kind <= DF_COLL_SCATTER;
	case DF_ALGO_HIER:
		return q->kind <= DF_COLL_ALLTOALL && q->nodes > 1 && q->nranks > 1 &&
		       (q->layout || q->nranks % q->nodes == 0);
	default:
		return 0;
	}
}

uint64_t df_coll_bytes(const struct df_prog_req *q)
{
	return q->count * q->elem_bytes * df_coll_counts(q->kind, q->nranks);
}

uint32_t df_type_bytes(uint32_t type)
{
	return type < DF_NR_TYPES ? types[type].bytes : 0;
}

uint32_t df_coll_chunks(enum df_coll_kind kind, int nranks, int root, int rank, uint32_t chunks,
			int which)
{
	uint32_t all = chunks * (uint32_t)nranks;

	switch (kind) {
	case DF_COLL_ALLREDUCE:
	case DF_COLL_SENDRECV_SELF:
	case DF_COLL_CUSTOM:
		return chunks;
	case DF_COLL_BROADCAST:
		return which || rank == root ? chunks : 0;
	case DF_COLL_REDUCE:
		return !which || rank == root ? chunks : 0;
	case DF_COLL_ALLGATHER:
		return which ? all : chunks;
	case DF_COLL_REDUCESCATTER:
		return which ? chunks : all;
	case DF_COLL_ALLTOALL:
		return all;
	case DF_COLL_GATHER:
		return !which ? chunks : rank == root ? all : 0;
	case DF_COLL_SCATTER:
		return which ? chunks : rank == root ? all : 0;
	case DF_COLL_SEND:
		return which ? 0 : chunks;
	case DF_COLL_RECV:
		return which ? chunks : 0;
	case DF_COLL_NR:
		break;
	}
	return 0;
}

int df_coll_reduces(enum df_coll_kind kind)
{
	return kind == DF_COLL_ALLREDUCE || kind == DF_COLL_REDUCE || kind == DF_COLL_REDUCESCATTER;
}

int df_coll_rooted(enum df_coll_kind kind)
{
	return kind == DF_COLL_BROADCAST || kind == DF_COLL_REDUCE || kind == DF_COLL_GATHER ||
	       kind == DF_COLL_SCATTER;
}

uint32_t df_coll_counts(enum df_coll_kind kind, int nranks)
{
	switch (kind) {
	case DF_COLL_ALLGATHER:
	case DF_COLL_REDUCESCATTER:
	case DF_COLL_ALLTOALL:
	case DF_COLL_GATHER:
	case DF_COLL_SCATTER:
		return (uint32_t)nranks;
	default:
		return 1;
	}
}

int64_t df_coll_alias(enum df_coll_kind kind, int root, int rank, uint32_t chunks, uint32_t out)
{
	uint32_t own = (uint32_t)rank * chunks;

	switch (kind) {
	case DF_COLL_ALLREDUCE:
		return out;
	case DF_COLL_BROADCAST:
	case DF_COLL_REDUCE:
		return rank == root ? (int64_t)out : -1;
	case DF_COLL_ALLGATHER:
		return out >= own && out < own + chunks ? (int64_t)(out - own) : -1;
	case DF_COLL_GATHER:
		return rank == root && out >= own && out < own + chunks ? (int64_t)(out - own) : -1;
	case DF_COLL_REDUCESCATTER:
		return (int64_t)own + out;
	case DF_COLL_SCATTER:
		return rank == root ? (int64_t)own + out : -1;
	default:
		return -1;
	}
}

void df_perr_clear(struct df_perr *e)
{
	*e = (struct df_perr){.line = -1, .rank = -1, .block = -1, .step = -1};
}

int df_perr_set(struct df_perr *e, int line, int rank, int block, int step, const char *fmt, ...)
{
	va_list ap;

	if (!e || e->text[0])
		return -EPROTO;
	e->line = line;
	e->rank = rank;
	e->block = block;
	e->step = step;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	return -EPROTO;
}

const char *df_perr_str(const struct df_perr *e, char *buf, size_t size)
{
	static const char *const what[] = {"rank", "block", "step"};
	const int at[] = {e->rank, e->block, e->step};
	char where[80] = "", line[160] = "";
	size_t n = 0;

	if (e->file[0] && e->line >= 0)
		snprintf(line, sizeof(line), "%s:%d: ", e->file, e->line);
	else if (e->file[0])
		snprintf(line, sizeof(line), "%s: ", e->file);
	else if (e->line >= 0)
		snprintf(line, sizeof(line), "line %d: ", e->line);
	for (int k = 0; k < 3; k++) {
		if (at[k] >= 0)
			n += (size_t)snprintf(where + n, sizeof(where) - n, "%s%s %d", n ? " " : "",
					      what[k], at[k]);
	}
	snprintf(buf, size, "%s%s%s%s", line, where, n ? ": " : "", e->text);
	return buf;
}
