/*
 * The versions of NCCL's profiler interface: each translates its descriptions into those of
 * profiler.h. NCCL takes the newest table that it knows. No function fails, because NCCL up to 2.27
 * would then end the job's profiler for all communicators.
 *
 * Any thread of the application and of NCCL.
 */
#include <string.h>
#include "interpose/profiler/nccl_profiler.h"
#include "interpose/profiler/profiler.h"
#include "runtime/base/ascii.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "trace/record/names.h"

static uint64_t number(const void *handle)
{
	return (uint64_t)(uintptr_t)handle;
}

static void *handle(uint64_t number)
{
	return (void *)(uintptr_t)number;
}

/* Returns the kind, or -1 for an operation that dfshim does not know. */
static int kind_of(const char *func)
{
	for (uint32_t k = 0; func && k < DF_KIND_NR; k++)
		if (!df_strcasecmp(func, df_kind_name(k)))
			return (int)k;
	return -1;
}

/* Returns the type. NCCL up to 2.30 has no text for one type, ncclUint8. */
static int type_of(const char *name)
{
	for (uint32_t t = 0; name && df_dtype_bytes(t); t++)
		if (!strncmp(name, "nccl", 4) && !df_strcasecmp(name + 4, df_dtype_name(t)))
			return (int)t;
	return 1;
}

static int root_of(int kind, int root)
{
	return kind == DF_KIND_BROADCAST || kind == DF_KIND_REDUCE || kind == DF_KIND_GATHER ||
			       kind == DF_KIND_SCATTER
		       ? root
		       : -1;
}

/* Copies the members that all versions have. Without an event, the caller returns. */
#define BEGIN(out, e, is)                                                                          \
	do {                                                                                       \
		if (!(out))                                                                        \
			return 0;                                                                  \
		*(out) = NULL;                                                                     \
		if (!(e))                                                                          \
			return 0;                                                                  \
		is = (struct df_profiler_event){.type = (uint32_t)(e)->type,                       \
						.parent = number((e)->parent),                     \
						.rank = (e)->rank,                                 \
						.peer = -1};                                       \
	} while (0)

/* Cases of events that are alike in all versions. For an unknown event, the caller returns. */
#define OTHERS(e, is)                                                                              \
	case DF_PROFILER_GROUP:                                                                    \
		break;                                                                             \
	case DF_PROFILER_PROXY_OP:                                                                 \
		is.pid = (e)->proxy_op.pid;                                                        \
		is.channel = (e)->proxy_op.channel;                                                \
		is.peer = (e)->proxy_op.peer;                                                      \
		is.steps = (e)->proxy_op.steps;                                                    \
		is.is_send = (e)->proxy_op.is_send;                                                \
		break;                                                                             \
	case DF_PROFILER_PROXY_STEP:                                                               \
		is.step = (e)->proxy_step.step;                                                    \
		break;                                                                             \
	default:                                                                                   \
		return 0

/* Copies the members of a collective or of a message that have the same names in all versions. */
#define COLL(from, is, k, t)                                                                       \
	do {                                                                                       \
		is.kind = k;                                                                       \
		is.datatype = t;                                                                   \
		is.count = (from).count;                                                           \
		is.send = (from).send;                                                             \
		is.recv = (from).recv;                                                             \
		is.peer = root_of(is.kind, (from).root);                                           \
	} while (0)

#define P2P(from, is, k, t)                                                                        \
	do {                                                                                       \
		is.kind = k;                                                                       \
		is.datatype = t;                                                                   \
		is.count = (from).count;                                                           \
		is.peer = (from).peer;                                                             \
		is.send = is.kind == DF_KIND_SEND ? (from).buffer : NULL;                          \
		is.recv = is.kind == DF_KIND_RECV ? (from).buffer : NULL;                          \
	} while (0)

/*
 * Copies the description of the communicator, which only versions 1 to 3 have here. The plan is the
 * group.
 */
#define NAMED(from, is)                                                                            \
	do {                                                                                       \
		is.name = (from).name;                                                             \
		is.hash = (from).hash;                                                             \
		is.group = (uint32_t)is.parent;                                                    \
	} while (0)

static int begin(void *context, void **out, const struct df_profiler_event *e)
{
	int is_op = e->type & (DF_PROFILER_COLL | DF_PROFILER_P2P | DF_PROFILER_COLL_API |
			       DF_PROFILER_P2P_API);

	if (!is_op || e->kind >= 0)
		*out = handle(df_profiler_begin(number(context), e));
	return 0;
}

/* Converts the numbers of NCCL 2.23. */
static int v1_kind(uint8_t func)
{
	static const int kinds[] = {DF_KIND_BROADCAST,	   DF_KIND_REDUCE,    DF_KIND_ALLGATHER,
				    DF_KIND_REDUCESCATTER, DF_KIND_ALLREDUCE, -1,
				    DF_KIND_SEND,	   DF_KIND_RECV};

	return func < DF_ARRAY_LEN(kinds) ? kinds[func] : -1;
}

static int start_v1(void *context, void **out, struct df_profiler_v1_event *e)
{
	struct df_profiler_event is;

	BEGIN(out, e, is);
	switch (is.type) {
	case DF_PROFILER_COLL:
		COLL(e->coll, is, v1_kind(e->coll.func), e->coll.type);
		NAMED(e->coll, is);
		is.redop = (int)e->coll.redop;
		break;
	case DF_PROFILER_P2P:
		P2P(e->p2p, is, v1_kind(e->p2p.func), e->p2p.type);
		NAMED(e->p2p, is);
		break;
		OTHERS(e, is);
	}
	return begin(context, out, &is);
}

/*
 * Begins an event of v2 or v3. v3 has the largest number of channels that a collective may use, not
 * the number that it uses. So the collective's end is found as that of a message, whose channels
 * are not known either.
 */
static int start_v3(void *context, void **out, struct df_profiler_v3_event *e)
{
	struct df_profiler_event is;

	BEGIN(out, e, is);
	switch (is.type) {
	case DF_PROFILER_COLL:
		COLL(e->coll, is, kind_of(e->coll.func), type_of(e->coll.type));
		NAMED(e->coll, is);
		break;
	case DF_PROFILER_P2P:
		P2P(e->p2p, is, kind_of(e->p2p.func), type_of(e->p2p.type));
		NAMED(e->p2p, is);
		break;
	case DF_PROFILER_KERNEL_CH:
		is.channel = e->kernel_ch.channel;
		break;
		OTHERS(e, is);
	}
	return begin(context, out, &is);
}

static int start_v4(void *context, void **out, struct df_profiler_v4_event *e)
{
	struct df_profiler_event is;

	BEGIN(out, e, is);
	switch (is.type) {
	case DF_PROFILER_COLL:
		COLL(e->coll, is, kind_of(e->coll.func), type_of(e->coll.type));
		is.channels = e->coll.channels;
		is.group = (uint32_t)is.parent;
		break;
	case DF_PROFILER_P2P:
		P2P(e->p2p, is, kind_of(e->p2p.func), type_of(e->p2p.type));
		is.group = (uint32_t)is.parent;
		break;
	case DF_PROFILER_KERNEL_CH:
		is.channel = e->kernel_ch.channel;
		break;
		OTHERS(e, is);
	}
	return begin(context, out, &is);
}

static int start_v5(void *context, void **out, struct df_profiler_v5_event *e)
{
	struct df_profiler_event is;

	BEGIN(out, e, is);
	switch (e->type) {
	case DF_PROFILER_GROUP_API:
		is.captured = e->group_api.captured;
		is.depth = e->group_api.depth;
		break;
	case DF_PROFILER_COLL_API:
		is.kind = kind_of(e->coll_api.func);
		is.datatype = type_of(e->coll_api.type);
		is.count = e->coll_api.count;
		is.peer = root_of(is.kind, e->coll_api.root);
		is.stream = number(e->coll_api.stream);
		is.captured = e->coll_api.captured;
		break;
	case DF_PROFILER_P2P_API:
		is.kind = kind_of(e->p2p_api.func);
		is.datatype = type_of(e->p2p_api.type);
		is.count = e->p2p_api.count;
		is.stream = number(e->p2p_api.stream);
		is.captured = e->p2p_api.captured;
		break;
	case DF_PROFILER_COLL:
		COLL(e->coll.is, is, kind_of(e->coll.is.func), type_of(e->coll.is.type));
		is.channels = e->coll.is.channels;
		is.group = (uint32_t)number(e->coll.group);
		break;
	case DF_PROFILER_P2P:
		P2P(e->p2p.is, is, kind_of(e->p2p.is.func), type_of(e->p2p.is.type));
		is.group = (uint32_t)number(e->p2p.group);
		break;
	case DF_PROFILER_KERNEL_CH:
		is.channel = e->kernel_ch.channel;
		break;
		OTHERS(e, is);
	}
	return begin(context, out, &is);
}

static int stop(void *h)
{
	df_profiler_end(number(h));
	return 0;
}

static int state(void *h, int to, void *args)
{
	(void)args;
	df_profiler_state(number(h), to);
	return 0;
}

static int finalize(void *context)
{
	df_profiler_close(number(context));
	return 0;
}

static int init(void **context, int *mask, const struct df_profiler_about *about)
{
	int none = 0;

	if (!context) {
		df_warn("NCCL's profiler interface, version %d: no room for a context: NCCL's "
			"events are not recorded",
			about->version);
		return 0;
	}
	*context = handle(df_profiler_open(about, mask ? mask : &none));
	return 0;
}

/* Up to v3, init() does not describe the communicator. */
#define INIT_UNNAMED(v)                                                                            \
	static int init_v##v(void **context, int *mask)                                            \
	{                                                                                          \
		return init(context, mask, &(struct df_profiler_about){.version = v});             \
	}

INIT_UNNAMED(1)
INIT_UNNAMED(2)
INIT_UNNAMED(3)

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes,
		   int nranks, int rank, void *log)
{
	(void)nodes;
	(void)log;
	return init(context, mask, &(struct df_profiler_about){4, hash, name, nranks, rank});
}

static int init_v5(void **context, uint64_t hash, int *mask, const char *name, int nodes,
		   int nranks, int rank, void *log)
{
	(void)nodes;
	(void)log;
	return init(context, mask, &(struct df_profiler_about){5, hash, name, nranks, rank});
}

#define EXPORTED __attribute__((visibility("default")))
#define TABLE(v, init_fn, start_fn)                                                                \
	EXPORTED const struct df_profiler_v##v ncclProfiler_v##v = {                               \
		.name = "dfshim",                                                                  \
		.init = init_fn,                                                                   \
		.start = start_fn,                                                                 \
		.stop = stop,                                                                      \
		.state = state,                                                                    \
		.finalize = finalize,                                                              \
	}

TABLE(1, init_v1, start_v1);
TABLE(2, init_v2, start_v3);
TABLE(3, init_v3, start_v3);
TABLE(4, init_v4, start_v4);
TABLE(5, init_v5, start_v5);
TABLE(6, init_v5, start_v5);
