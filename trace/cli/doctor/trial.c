/*
 * The self-test of one GPU, in a process of its own with libdfshim.so preloaded and
 * DFSHIM_BACKEND=cuda. Two ranks that share the GPU run collectives in the situations in which
 * drivers have failed. Results are compared exactly; times are only reported.
 *
 * One thread has both ranks, because no call of ours waits for a peer; other threads are used for
 * calls that block. A watching thread ends the process if a check does not end, because a blocked
 * call cannot be cancelled.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "runtime/base/connections.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/base/time.h"
#include "trace/cli/doctor/doctor.h"

#define NR_RANKS 2
#define NR_COMMS 2

/* NCCL's numbers. */
enum { I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16, NR_TYPES };
enum { SUM, PROD, MAX, MIN, NR_OPS };

static struct rank {
	void *comm, *stream;
	uint64_t send, recv; /* WORK_BYTES each */
	char *host;	     /* pinned, WORK_BYTES */
} ranks[NR_RANKS];

#define WORK_BYTES (4u << 20)

static void *context;
static int gpu; /* number of the GPU */
/* The current check and its deadline; the watching thread reads them. */
static const char *check_name = "start";
static uint64_t deadline_ns, bound_ns;

static void at(const char *what)
{
	/*
	 * RELEASE pairs with the ACQUIRE in watch(): without it the text could be seen unfinished.
	 */
	__atomic_store_n(&df_doctor_step, what, __ATOMIC_RELEASE);
}

static void *watch(void *arg)
{
	(void)arg;
	for (;;) {
		/* ACQUIRE pairs with the RELEASEs of at() and of the loop over the checks. */
		if (df_now_ns() > __atomic_load_n(&deadline_ns, __ATOMIC_ACQUIRE)) {
			df_doctor_tell("check\t%s\tfailed\tno end within %.1f s: %s", check_name,
				       (double)bound_ns / 1e9,
				       __atomic_load_n(&df_doctor_step, __ATOMIC_ACQUIRE));
			_exit(0);
		}
		df_sleep_ns(20 * DF_NS_PER_MS);
	}
	return NULL;
}

/* Waits until the work on the stream has ended. */
static int ended(void *stream)
{
	int r = df_doctor_wait(stream);

	return r ? df_doctor_failed("%s: the stream's work ended with %d", df_doctor_step, r) : 0;
}

static int all_ended(void)
{
	for (int r = 0; r < NR_RANKS; r++)
		if (ended(ranks[r].stream))
			return -1;
	return 0;
}

static int reduce(int r, size_t nr, int type, int op)
{
	struct rank *k = &ranks[r];
	int ret = df_api.all_reduce(k->send, k->recv, nr, type, op, k->comm, k->stream);

	return ret ? df_doctor_failed("%s: ncclAllReduce returned %d: %.150s", df_doctor_step, ret,
				      df_doctor_nccl_error())
		   : 0;
}

/* ---- start ------------------------------------------------------------------------------- */

static int check_start(void)
{
	struct df_nccl_id id;
	int r, ret;

	at("streams and memory");
	for (r = 0; r < NR_RANKS; r++) {
		DF_CU(stream_create, &ranks[r].stream, 1);
		DF_CU(mem_alloc, &ranks[r].send, WORK_BYTES);
		DF_CU(mem_alloc, &ranks[r].recv, WORK_BYTES);
		DF_CU(host_alloc, (void **)&ranks[r].host, WORK_BYTES, 0);
	}
	at("a communicator of two ranks");
	ret = df_api.get_id(&id) ?: df_api.group_start();
	for (r = 0; r < NR_RANKS && !ret; r++)
		ret = df_api.comm_init(&ranks[r].comm, NR_RANKS, id, r);
	ret = ret ?: df_api.group_end();
	if (ret)
		return df_doctor_failed("%.200s", df_doctor_nccl_error());
	at("the first collective");
	for (r = 0; r < NR_RANKS; r++)
		if (reduce(r, 1, U32, SUM))
			return -1;
	return all_ended() ?: (df_doctor_failed("an all-reduce of two ranks"), 0);
}

/* ---- sums -------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	size_t bytes;
} types[NR_TYPES] = {{"int8", 1},    {"uint8", 1},   {"int32", 4},   {"uint32", 4},
		     {"int64", 8},   {"uint64", 8},  {"float16", 2}, {"float32", 4},
		     {"float64", 8}, {"bfloat16", 2}};
static const char *const ops[NR_OPS] = {"sum", "prod", "max", "min"};

/* Returns a whole number up to 64 as a half. */
static uint16_t half_of(unsigned v)
{
	unsigned e = 0;

	if (!v)
		return 0;
	while (v >> (e + 1))
		e++;
	return (uint16_t)((e + 15) << 10 | (v << (10 - e) & 0x3ff));
}

/* Stores the number in the given type. It is small, so that each result is exact. */
static void put(void *to, int type, unsigned v)
{
	uint64_t whole = v;
	double d = v;
	float f = (float)v;
	uint32_t bits;
	uint16_t half;

	switch (type) {
	case F16:
		half = half_of(v);
		memcpy(to, &half, 2);
		break;
	case BF16:
		memcpy(&bits, &f, 4);
		half = (uint16_t)(bits >> 16);
		memcpy(to, &half, 2);
		break;
	case F32:
		memcpy(to, &f, 4);
		break;
	case F64:
		memcpy(to, &d, 8);
		break;
	default:
		memcpy(to, &whole, types[type].bytes);
	}
}

static unsigned value(unsigned i, int r)
{
	return (unsigned)df_hash_u64(i, (uint64_t)r) % 8 + 1;
}

static unsigned result(int op, unsigned a, unsigned b)
{
	return op == SUM ? a + b : op == PROD ? a * b : op == MAX ? DF_MAX(a, b) : DF_MIN(a, b);
}

static int sums_of(int type, int op, size_t nr)
{
	size_t width = types[type].bytes, i;
	char want[8];
	int r;

	for (r = 0; r < NR_RANKS; r++) {
		for (i = 0; i < nr; i++)
			put(ranks[r].host + i * width, type, value((unsigned)i, r));
		DF_CU(to_device, ranks[r].send, ranks[r].host, nr * width, ranks[r].stream);
		if (reduce(r, nr, type, op))
			return -1;
	}
	for (r = 0; r < NR_RANKS; r++)
		DF_CU(to_host, ranks[r].host, ranks[r].recv, nr * width, ranks[r].stream);
	if (all_ended())
		return -1;
	for (r = 0; r < NR_RANKS; r++)
		for (i = 0; i < nr; i++) {
			put(want, type, result(op, value((unsigned)i, 0), value((unsigned)i, 1)));
			if (memcmp(want, ranks[r].host + i * width, width))
				return df_doctor_failed(
					"%s of %s, %zu elements: element %zu is wrong on rank %d",
					ops[op], types[type].name, nr, i, r);
		}
	return 0;
}

static int check_sums(void)
{
	static char text[NR_TYPES][NR_OPS][40];
	int type, op;

	for (type = 0; type < NR_TYPES; type++)
		for (op = 0; op < NR_OPS; op++) {
			snprintf(text[type][op], sizeof(text[0][0]), "%s of %s", ops[op],
				 types[type].name);
			at(text[type][op]);
			if (sums_of(type, op, 1031))
				return -1;
		}
	at("a large one");
	return sums_of(F32, SUM, WORK_BYTES / 4)
		       ?: (df_doctor_failed("%d types, %d operations, up to %u MiB", NR_TYPES,
					    NR_OPS, WORK_BYTES >> 20),
			   0);
}

/* ---- words ------------------------------------------------------------------------------- */

#define BATCH 16

/*
 * Runs BATCH rounds on the streams without a wait between them. Adds to *old the elements that do
 * not have their round's value.
 */
static int words_batch(unsigned turn, size_t nr, uint64_t *old)
{
	unsigned k, r, base = turn * BATCH;
	const uint32_t *got;

	for (k = 0; k < BATCH; k++) {
		for (r = 0; r < NR_RANKS; r++) {
			DF_CU(set32, ranks[r].send, 2 * (base + k) + r, nr, ranks[r].stream);
			if (reduce((int)r, nr, U32, SUM))
				return -1;
		}
		for (r = 0; r < NR_RANKS; r++)
			DF_CU(to_host, ranks[r].host + k * nr * 4, ranks[r].recv, nr * 4,
			      ranks[r].stream);
	}
	if (all_ended())
		return -1;
	for (r = 0; r < NR_RANKS; r++)
		for (k = 0; k < BATCH; k++) {
			got = (const uint32_t *)(ranks[r].host + k * nr * 4);
			for (size_t i = 0; i < nr; i++)
				*old += got[i] != 4 * (base + k) + 1;
		}
	return 0;
}

static int check_words(void)
{
	static const size_t sizes[] = {2, 1024, 1 << 16};
	uint64_t until = df_now_ns() + bound_ns / 5, old = 0;
	unsigned turn, r;

	for (turn = 0; turn < 16 || df_now_ns() < until; turn++) {
		at("fresh data and small words");
		/* Use memory that is newer than the daemon's launch. */
		for (r = 0; r < NR_RANKS && turn % 4 == 3; r++) {
			DF_CU(mem_free, ranks[r].send);
			DF_CU(mem_free, ranks[r].recv);
			DF_CU(mem_alloc, &ranks[r].send, WORK_BYTES);
			DF_CU(mem_alloc, &ranks[r].recv, WORK_BYTES);
		}
		if (words_batch(turn, sizes[turn % DF_ARRAY_LEN(sizes)], &old))
			return -1;
	}
	if (old)
		return df_doctor_failed("%llu elements of %u rounds are of an earlier one",
					(unsigned long long)old, turn * BATCH);
	df_doctor_failed("%u rounds, none stale", turn * BATCH);
	return 0;
}

/* ---- queues ------------------------------------------------------------------------------ */

static int check_queues(void)
{
	/*
	 * A stream uses a connection while it has work. Leave some unused, or nothing can be
	 * launched.
	 */
	int nr = DF_CONNECTIONS * 3 / 4, i, r;
	void *streams[DF_CONNECTIONS];
	uint64_t *word;

	at("streams that wait");
	DF_CU(host_alloc, (void **)&word, sizeof(*word), 0);
	*word = 0;
	for (i = 0; i < nr; i++) {
		DF_CU(stream_create, &streams[i], 1);
		DF_CU(stream_wait, streams[i], (uintptr_t)word, 1, 0);
	}
	/* The daemon has left by itself, or will soon, so it must be launched again. */
	df_sleep_ns(50 * DF_NS_PER_MS);
	at("the daemon's launch behind streams that wait");
	for (r = 0; r < NR_RANKS; r++)
		if (reduce(r, 1024, F32, SUM))
			return -1;
	if (all_ended())
		return -1;
	at("streams that may go on");
	/* RELEASE pairs with the streams' waits. */
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	for (i = 0; i < nr; i++) {
		if (ended(streams[i]))
			return -1;
		DF_CU(stream_destroy, streams[i]);
	}
	DF_CU(host_free, word);
	df_doctor_failed("%d waiting streams, %d connections", nr, DF_CONNECTIONS);
	return 0;
}

/* ---- relaunch ---------------------------------------------------------------------------- */

static const char ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
			  ".visible .entry nothing()\n{\n\tret;\n}\n"
			  ".visible .entry unseen()\n{\n\tret;\n}\n";

static void *nothing, *unseen, *beside;

static int launch(void *fn, void *stream)
{
	return df_api.launch(fn, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static int do_launches(void)
{
	int i, ret = 0;

	/* More than a launch queue holds. */
	for (i = 0; i < 2000 && !ret; i++)
		ret = launch(nothing, ranks[0].stream);
	return ret;
}

static int do_first_launch(void)
{
	return launch(unseen, beside);
}

static int do_load(void)
{
	void *module;

	return df_api.module_load(&module, ptx);
}

static int do_alloc(void)
{
	uint64_t p;

	return df_api.mem_alloc(&p, 64u << 20) ?: df_api.mem_free(p);
}

/* Unmaps memory that was mapped by hand, like PyTorch's expandable segments. */
static int do_unmap(void)
{
	const struct df_vm_prop prop = {.type = 1, .place = {1, gpu}};
	const struct df_vm_access access = {{1, gpu}, 3};
	uint64_t at, handle;
	size_t bytes;
	int ret = df_api.vm_granularity(&bytes, &prop, 0);

	ret = ret ?: df_api.vm_reserve(&at, bytes, 0, 0, 0);
	if (ret)
		return ret;
	ret = df_api.vm_create(&handle, bytes, &prop, 0);
	if (!ret) {
		ret = df_api.vm_map(at, bytes, 0, handle, 0) ?:
			      df_api.vm_access(at, bytes, &access, 1) ?:
				      df_api.vm_unmap(at, bytes);
		ret = df_api.vm_release(handle) ?: ret;
	}
	return df_api.vm_free(at, bytes) ?: ret;
}

static int do_pin(void)
{
	void *p;

	return df_api.host_alloc(&p, 4u << 20, 0) ?: df_api.host_free(p);
}

static int do_stream(void)
{
	void *s;

	return df_api.stream_create(&s, 1) ?: df_api.stream_destroy(s);
}

static const struct blocker {
	const char *name;
	int (*call)(void);
} blockers[] = {
	{"2,000 launches on a stream that waits", do_launches},
	{"a kernel's first launch", do_first_launch},
	{"cuModuleLoadData", do_load},
	{"cuMemAlloc and cuMemFree", do_alloc},
	{"cuMemMap and cuMemUnmap", do_unmap},
	{"cuMemHostAlloc and cuMemFreeHost", do_pin},
	{"cuStreamCreate", do_stream},
};

static void *run_blocker(void *arg)
{
	const struct blocker *b = arg;

	if (df_api.ctx_set(context))
		return (void *)1;
	return (void *)(intptr_t)b->call();
}

/*
 * Runs a collective whose peer is missing, with a stream that waits for it, while a thread is
 * inside a blocking call. Then the peer joins. Returns 0 or an error.
 */
static int relaunched(const struct blocker *b, uint64_t *ns)
{
	pthread_t thread;
	uint64_t since;
	void *ret;

	at(b->name);
	if (reduce(0, 1024, F32, SUM))
		return -1;
	DF_CU(set32, ranks[0].recv, 0, 1024, ranks[0].stream);
	/* The peer is late, so the daemon leaves. */
	df_sleep_ns(30 * DF_NS_PER_MS);
	if (pthread_create(&thread, NULL, run_blocker, (void *)(uintptr_t)b))
		return df_doctor_failed("a thread cannot be started");
	df_sleep_ns(10 * DF_NS_PER_MS);
	since = df_now_ns();
	if (reduce(1, 1024, F32, SUM) || ended(ranks[1].stream))
		return -1;
	*ns = df_now_ns() - since;
	if (pthread_join(thread, &ret) || ret)
		return df_doctor_failed("%s: the call beside returned %d", b->name,
					(int)(intptr_t)ret);
	return all_ended();
}

static int check_relaunch(void)
{
	const char *slowest = "";
	uint64_t ns = 0, most = 0;
	void *module;

	at("a kernel that does nothing");
	DF_CU(module_load, &module, ptx);
	DF_CU(module_function, &nothing, module, "nothing");
	DF_CU(module_function, &unseen, module, "unseen");
	DF_CU(stream_create, &beside, 1);
	if (launch(nothing, beside) || ended(beside))
		return df_doctor_failed("a kernel that does nothing cannot be launched");
	for (size_t i = 0; i < DF_ARRAY_LEN(blockers); i++) {
		if (relaunched(&blockers[i], &ns))
			return -1;
		if (ns > most) {
			most = ns;
			slowest = blockers[i].name;
		}
	}
	df_doctor_failed("slowest %.1f ms, beside %s", (double)most / 1e6, slowest);
	return 0;
}

/* ---- graph ------------------------------------------------------------------------------- */

static int check_graph(void)
{
	enum { REPLAYS = 100, ELEMENTS = 256 };
	void *graph, *exec[NR_RANKS];
	const uint32_t *got;
	int i, r, e;

	at("capture");
	for (r = 0; r < NR_RANKS; r++) {
		DF_CU(capture_begin, ranks[r].stream, 2);
		if (reduce(r, ELEMENTS, U32, SUM))
			return -1;
		DF_CU(capture_end, ranks[r].stream, &graph);
		DF_CU(instantiate, &exec[r], graph, 0);
	}
	for (i = 0; i < REPLAYS; i++) {
		at("replay");
		for (r = 0; r < NR_RANKS; r++) {
			DF_CU(set32, ranks[r].send, (unsigned)(3 * i + r), ELEMENTS,
			      ranks[r].stream);
			DF_CU(graph_launch, exec[r], ranks[r].stream);
			DF_CU(to_host, ranks[r].host, ranks[r].recv, ELEMENTS * 4, ranks[r].stream);
		}
		if (all_ended())
			return -1;
		for (r = 0; r < NR_RANKS; r++) {
			got = (const uint32_t *)ranks[r].host;
			for (e = 0; e < ELEMENTS; e++)
				if (got[e] != (uint32_t)(6 * i + 1))
					return df_doctor_failed(
						"replay %d: element %d is wrong on rank %d", i, e,
						r);
		}
	}
	df_doctor_failed("%d replays", REPLAYS);
	return 0;
}

/* ---- disorder ---------------------------------------------------------------------------- */

#define DISORDERED 20

static struct df_nccl_id disorder_ids[NR_COMMS];

/* One thread for each rank: only then can the cycle be proved. */
static void *run_rank(void *arg)
{
	int r = (int)(intptr_t)arg, i, k, c, ret = df_api.ctx_set(context);
	void *comms[NR_COMMS];

	for (c = 0; c < NR_COMMS && !ret; c++)
		ret = df_api.comm_init(&comms[c], NR_RANKS, disorder_ids[c], r);
	for (i = 0; i < DISORDERED * NR_COMMS && !ret; i++) {
		k = i % NR_COMMS;
		c = (k + r) % NR_COMMS;
		/*
		 * Each communicator has its own receive buffer, because a common one would order
		 * them.
		 */
		ret = df_api.all_reduce(ranks[r].send,
					ranks[r].recv + (uint64_t)c * (WORK_BYTES / 2), 1024, F32,
					SUM, comms[c], ranks[r].stream)
			      ?: df_api.ctx_sync();
	}
	return (void *)(intptr_t)ret;
}

static int check_disorder(void)
{
	pthread_t threads[NR_RANKS];
	void *ret;
	int r, bad = 0;

	at("two communicators in opposite orders, with a device synchronisation after each");
	for (r = 0; r < NR_COMMS; r++)
		if (df_api.get_id(&disorder_ids[r]))
			return df_doctor_failed("%.200s", df_doctor_nccl_error());
	for (r = 0; r < NR_RANKS; r++)
		if (pthread_create(&threads[r], NULL, run_rank, (void *)(intptr_t)r))
			return df_doctor_failed("a thread cannot be started");
	for (r = 0; r < NR_RANKS; r++)
		if (pthread_join(threads[r], &ret) || ret)
			bad = (int)(intptr_t)ret;
	if (bad)
		return df_doctor_failed("a call returned %d", bad);
	df_doctor_failed("%d rounds", DISORDERED);
	return 0;
}

/* ---- all --------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int (*run)(void);
} checks[] = {
#define DF_CHECK(name, what, else_) {#name, check_##name},
	DF_DOCTOR_CHECKS(DF_CHECK)
#undef DF_CHECK
};

int df_doctor_trial(const struct df_doctor_opts *o)
{
	pthread_t watching;
	int ret;

	if (df_doctor_load(NULL))
		return 1;
	gpu = o->gpu;
	if (df_doctor_enter(o->gpu, &context))
		return 1;
	bound_ns = (uint64_t)(o->timeout * 1e9 / 4);
	deadline_ns = df_now_ns() + 2 * bound_ns;
	if (pthread_create(&watching, NULL, watch, NULL))
		return 1;
	for (size_t i = 0; i < DF_ARRAY_LEN(checks); i++) {
		check_name = checks[i].name;
		/*
		 * RELEASE pairs with the ACQUIRE in watch(): without it watch() could see another
		 * check's name with this deadline.
		 */
		__atomic_store_n(&deadline_ns, df_now_ns() + (i ? 1 : 2) * bound_ns,
				 __ATOMIC_RELEASE);
		df_doctor_tell("begin\t%s", checks[i].name);
		ret = checks[i].run();
		df_doctor_tell("check\t%s\t%s\t%s", checks[i].name, ret ? "failed" : "ok",
			       df_doctor_seen);
		/*
		 * A failed operation may still be in flight, and later checks would see its
		 * effects.
		 */
		if (ret)
			break;
	}
	/* All operations in flight, and all that the driver holds, end with the process. */
	_exit(0);
}
