/*
 * Measures the critical path of an AllReduce of two ranks on GPUs, without a GPU: the daemon's
 * kernel as nvcc compiles it runs on the PTX emulator with a clock (tests/cuda/ptx/time.c,
 * times.def). Each case prints the microseconds from the stream's mark, which says that the input
 * is there, until the stream goes on. It also prints the number of dependent reads of host memory
 * on that path in the kernel. Both are those of the slower rank in the median call.
 *
 *   warm   each call follows the end of the last one
 *   cold   the kernel has left for lack of work, and is launched again
 *   late   the mark is written half a millisecond after the call, behind other work of the stream
 *
 * The first lines are for information: the present kernel in the loop that was measured on an H200
 * on 2026-11-26 with the kernel of that day (call, stream synchronization, two ranks on one GPU, a
 * daemon of 16 blocks). They have no target: a difference shows a change of the kernel as well as
 * an error in the table of times.
 *
 * `ptx/slice` is the fixed cost of a slice: the same bytes are sent in more and smaller slices, and
 * the difference of the times is divided by the difference of the slices of a block. The line after
 * it has the parts of the critical path that this time consists of.
 *
 *   b_ptx [BYTES...]      only these sizes
 *   b_ptx -s              only the cost of a slice
 *   b_ptx -c BYTES        the path, step by step: two GPUs, warm, the slower rank's last call
 */
#define _GNU_SOURCE
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "kernels/abi.h"
#include "kernels/slot.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/time.h"
#include "runtime/daemon/sched.h"
#include "runtime/program/build/cost.h"
#include "runtime/program/build/tuner.h"
#include "runtime/program/file/algofile.h"
#include "runtime/program/proto.h"
#include "tests/cuda/ptx/ptx.h"

#define RANKS	    2
#define MAX_BLOCKS  32
#define OLD_BLOCKS  16 /* at the time at which the table was measured */
#define SLOTS	    4  /* DFSHIM_SLOTS and DFSHIM_SLOT_KB on GPUs */
#define SLOT_BYTES  (512 << 10)
#define SLICE_BYTES (4 << 20) /* for the cost of a slice: sent in slots of SLOT_BYTES and of */
#define SMALL_SLOT  (64 << 10)
#define THREADS	    512
#define SQ_SLOTS    64u
#define CQ_SLOTS    256u
#define L2_BYTES    (50u << 20)
#define ARENA	    (1ull << 30)

/* Times of the host in a call and after it, in ns. The kernel's times are in times.def. */
#define SUBMIT_NS 3300	/* measured: docs/gpu-results/2026-11-26.md */
#define RETURN_NS 2000	/* assumed: from the stream's end until the waiting thread goes on */
#define NAP_NS	  10000 /* every 20 us the poller looks whether to launch */
#define LATE_NS	  500000
#define PAUSE_NS  1500000

enum {
#define DF_TIME(name, value, source) T_##name = (value),
#include "tests/cuda/ptx/times.def"
#undef DF_TIME
};

enum place { ONE_GPU, TWO_GPUS, TWO_PROCESSES };
enum when_called { WARM, COLD, LATE };
/*
 * OLD: world.old. CACHED: the instruction cache costs no time. CHAIN: the path is printed. PARTS:
 * figures.part is set.
 */
enum how { NEW, OLD, CACHED, CHAIN, PARTS };
static const char *const place_names[] = {"1gpu", "2gpus-1process", "2gpus-2processes"};
static const char *const when_names[] = {"warm", "cold", "late"};

struct rank {
	struct world *w;
	struct gpu *gpu;
	int index;
	struct df_kcoll k;
	struct df_program *prog;
	uint32_t first_block; /* like df_coll.first_block */
	struct df_kconn *conns;
	struct df_kinst *inst; /* one element for each call, linked as a list */
	float *buf;
	uint64_t *ready, done; /* `ready` is on the GPU */
	double marked, path_ns[64], period_ns[64];
	unsigned int reads[64];
};

struct gpu {
	struct world *w;
	uint8_t *arena;
	size_t used;
	struct df_kdaemon d;
	const struct df_kdaemon *params;
	struct df_kblock blocks[MAX_BLOCKS];
	int on;
	size_t touched; /* bytes of buffers and slots that a call touches */
};

struct world {
	enum place place;
	enum when_called when_called;
	size_t bytes;
	/* the conditions of the measured table: fewer blocks, and both ranks begin at block 0 */
	int old;
	uint32_t blocks;
	int calls, call, left; /* `left`: the ranks in the current call */
	double called;
	struct gpu gpus[2];
	struct rank ranks[RANKS];
	struct ptx_time *time;
	const struct ptx_kernel *kernel;
	struct df_slots slots;
	enum df_proto proto;
	FILE *chain; /* where to print the path of the last call's last end, or NULL */
	char fault[1500];
};

static struct ptx_module *module;
static uint32_t slot_bytes = SLOT_BYTES;

static void *on_gpu(struct gpu *g, size_t bytes)
{
	void *p = g->arena + g->used;

	g->used += (bytes + 255) / 256 * 256;
	if (g->used > ARENA)
		abort();
	return p;
}

static enum ptx_place place_of(void *arg, uintptr_t at)
{
	const struct gpu *g = arg, *other = &g->w->gpus[g == &g->w->gpus[0]];

	if (at - (uintptr_t)g->arena < ARENA)
		return g->touched > L2_BYTES ? PTX_HBM : PTX_L2;
	return other->arena && at - (uintptr_t)other->arena < ARENA ? PTX_PEER : PTX_HOST;
}

static void fault(void *arg, const char *text)
{
	struct gpu *g = arg;

	if (!*g->w->fault)
		snprintf(g->w->fault, sizeof(g->w->fault), "%s", text);
	ptx_time_stop(g->w->time);
}

/* ---- the host and its streams ---------------------------------------------------------------- */

static void call(void *arg, double now_ns);

static void ended(void *arg, double now_ns)
{
	struct gpu *g = arg;

	(void)now_ns;
	g->on = 0;
}

static void launch(void *arg, double now_ns)
{
	struct gpu *g = arg;
	struct ptx_launch l = {.kernel = g->w->kernel,
			       .grid = {g->w->blocks, 1, 1},
			       .block = {THREADS, 1, 1},
			       .params = &g->params,
			       .fault = fault,
			       .place = place_of,
			       .ended = ended,
			       .arg = g};

	if (g->on)
		return;
	g->params = &g->d;
	g->on = 1;
	g->d.leave = 0;
	ptx_time_launch(g->w->time, &l, now_ns + T_launch);
}

static void next(void *arg, double now_ns)
{
	struct world *w = arg;
	int i;

	if (w->call < w->calls) {
		call(w, now_ns);
		return;
	}
	for (i = 0; i < 2; i++) {
		w->gpus[i].d.quit = 1;
		ptx_time_told(w->time, (uintptr_t)&w->gpus[i].d.quit);
	}
}

static void stream_goes_on(void *arg, double now_ns, unsigned int reads)
{
	struct rank *r = arg;
	struct world *w = r->w;
	double then = now_ns + T_stream_poll;

	r->path_ns[w->call - 1] = then - r->marked;
	r->reads[w->call - 1] = reads;
	r->period_ns[w->call - 1] = then + RETURN_NS - w->called;
	if (--w->left)
		return;
	if (w->chain && w->call == w->calls)
		ptx_time_chain(w->time, w->chain, r->marked);
	ptx_time_call(w->time, then + RETURN_NS + (w->when_called == WARM ? 0 : PAUSE_NS), next, w);
}

static void mark(void *arg, double now_ns)
{
	struct rank *r = arg;

	r->marked = now_ns;
	__atomic_store_n(r->ready, (uint64_t)r->w->call, __ATOMIC_RELEASE);
	ptx_time_told(r->w->time, (uintptr_t)r->ready);
}

static void submit(struct rank *r, int nr)
{
	struct df_kinst *in = &r->inst[nr];
	uint32_t b;

	*in = (struct df_kinst){.in = r->buf,
				.out = r->buf,
				.seq = (uint64_t)nr,
				.done_value = (uint64_t)nr + 1,
				.blocks_left = r->k.nr_blocks,
				.op = (uint64_t)nr,
				.shown = 3,
				.nr_waits = 1};
	in->waits = in->own_waits;
	in->waits[0] = (struct df_kwait){r->ready, (uint64_t)nr + 1};
	if (nr)
		r->inst[nr - 1].next = in;
	for (b = 0; b < r->prog->nr_blocks; b++) {
		struct df_kblock *blk = &r->gpu->blocks[(r->first_block + b) % r->w->blocks];
		const struct df_sq_slot *slot =
			(struct df_sq_slot *)blk->sq.slots + (blk->sq.tail & blk->sq.mask);
		size_t word;

		if (!r->k.ctx[b].nr_inst)
			continue;
		df_sq_put(&blk->sq, &(struct df_sqe){&r->k.ctx[b], in}, 1);
		for (word = 0; word < DF_SQ_WORDS; word++)
			ptx_time_told(r->w->time, (uintptr_t)slot + 8 * word);
		ptx_time_told(r->w->time, (uintptr_t)&blk->sq.tail);
	}
	ptx_time_watch(r->w->time, &r->done, (uint64_t)nr + 1, stream_goes_on, r);
}

static void submits(void *arg, double now_ns)
{
	struct world *w = arg;
	int i;

	(void)now_ns;
	for (i = 0; i < RANKS; i++)
		submit(&w->ranks[i], w->call - 1);
	for (i = 0; i < RANKS; i++)
		if (!w->ranks[i].gpu->on)
			ptx_time_call(w->time, ptx_time_now(w->time) + NAP_NS, launch,
				      w->ranks[i].gpu);
}

static void call(void *arg, double now_ns)
{
	struct world *w = arg;
	int i;

	w->call++;
	w->left = RANKS;
	w->called = now_ns;
	ptx_time_call(w->time, now_ns + SUBMIT_NS / 2, submits, w);
	for (i = 0; i < RANKS; i++)
		ptx_time_call(w->time,
			      now_ns + SUBMIT_NS +
				      (w->when_called == LATE ? LATE_NS : T_stream_write),
			      mark, &w->ranks[i]);
}

/* ---- the world ------------------------------------------------------------------------------- */

static void gpu_init(struct gpu *g, struct world *w)
{
	int i;

	g->w = w;
	g->arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (g->arena == MAP_FAILED)
		abort();
	g->d.abi = DF_ABI_VERSION;
	g->d.nr_blocks = w->blocks;
	g->d.blocks = g->blocks;
	g->d.self = (uint64_t)(g - w->gpus) + 1;
	g->d.nr_lines = DF_LINES;
	g->d.lines = on_gpu(g, (size_t)MAX_BLOCKS * DF_LINES * DF_LINE_BYTES);
	df_policy_init(&g->d.policy, df_env(), 1);
	for (i = 0; i < MAX_BLOCKS; i++) {
		g->blocks[i].index = (uint32_t)i;
		g->blocks[i].sq.mask = SQ_SLOTS - 1;
		g->blocks[i].sq.slots = calloc(SQ_SLOTS, sizeof(struct df_sq_slot));
		g->blocks[i].cq.mask = CQ_SLOTS - 1;
		g->blocks[i].cq.slots = calloc(CQ_SLOTS, sizeof(struct df_cqe));
	}
}

/* Mirrors divide() in runtime/coll/coll.c. */
static void coll_init(struct rank *r, const struct df_tuner *tuner)
{
	struct df_prog_req req = {.kind = DF_COLL_ALLREDUCE,
				  .nranks = RANKS,
				  .rank = r->index,
				  .count = r->w->bytes / sizeof(float),
				  .elem_bytes = sizeof(float),
				  .max_blocks = r->w->blocks,
				  .in_place = 1};
	const struct df_algo_query query = {
		.req = &req, .type = DF_FLOAT32, .redop = DF_SUM, .cost = &df_cost_gpu};
	struct df_algo_pick pick;
	struct df_kcoll *k = &r->k;
	size_t i;

	if (df_program_select(NULL, tuner, &query, &r->prog, &pick))
		abort();
	if (r->w->place == ONE_GPU && !r->w->old)
		r->first_block = (uint32_t)r->index * r->prog->nr_blocks;
	df_kcoll_program(k, r->prog);
	k->type = DF_FLOAT32;
	k->redop = DF_SUM;
	k->elem_bytes = sizeof(float);
	k->count = req.count;
	k->id = 1;
	k->chunk_elems = (k->count + r->prog->chunks - 1) / r->prog->chunks;
	k->tile_elems =
		df_proto_tile(pick.proto, r->prog, k->chunk_elems, k->elem_bytes, slot_bytes);
	if (!k->tile_elems) {
		pick.proto = DF_PROTO_SIMPLE;
		k->tile_elems = df_proto_tile(pick.proto, r->prog, k->chunk_elems, k->elem_bytes,
					      slot_bytes);
	}
	k->loops = (k->chunk_elems + k->tile_elems - 1) / k->tile_elems;
	k->loops += !k->loops;
	r->w->proto = pick.proto;
	r->w->slots = df_proto_slots(pick.proto, k->tile_elems * k->elem_bytes * r->prog->max_cnt,
				     SLOTS, r->prog->min_slots, 0, 16);
	k->scratch = on_gpu(r->gpu, r->prog->scratch_chunks * k->chunk_elems * k->elem_bytes + 64);
	k->done = &r->done;
	k->ctx = calloc(r->prog->nr_blocks, sizeof(*k->ctx));
	r->conns = calloc(r->prog->nr_conns + 1, sizeof(*r->conns));
	r->inst = calloc((size_t)r->w->calls + 1, sizeof(*r->inst));
	r->buf = on_gpu(r->gpu, r->w->bytes);
	r->gpu->touched += r->w->bytes;
	r->ready = on_gpu(r->gpu, sizeof(*r->ready));
	for (i = 0; i < k->count; i++)
		r->buf[i] = (float)(i % 13 + (size_t)r->index);
	for (i = 0; i < r->prog->nr_blocks; i++) {
		df_kctx_init(&k->ctx[i], k, r->conns, (uint32_t)i);
		k->nr_blocks += k->ctx[i].nr_inst != 0;
		k->ctx[i].lead = i == 0;
	}
}

static struct df_kconn *conn_of(struct rank *r, int sends, int peer, uint32_t channel,
				uint32_t *per_loop)
{
	uint32_t b, i;

	for (b = 0; b < r->prog->nr_blocks; b++) {
		const struct df_prog_block *pb = df_prog_block(r->prog, b);
		uint32_t from = sends ? pb->first_send : pb->first_recv,
			 nr = sends ? pb->nr_send : pb->nr_recv;

		for (i = from; i < from + nr; i++) {
			const struct df_conn_spec *s = df_prog_conn(r->prog, i);

			if (s->peer == peer && s->channel == channel) {
				*per_loop = s->per_loop;
				return &r->conns[i];
			}
		}
	}
	abort();
}

static void connect_one(struct rank *from, struct rank *to, uint32_t channel)
{
	struct world *w = from->w;
	uint32_t per_loop;
	struct df_kconn *tx = conn_of(from, 1, to->index, channel, &per_loop);
	struct df_conn_hdr *h =
		on_gpu(to->gpu, DF_CONN_SLOTS + (size_t)w->slots.nr * w->slots.bytes);
	int named = w->place != TWO_PROCESSES && w->proto == DF_PROTO_SIMPLE &&
		    w->slots.nr <= DF_CONN_REFS && from->k.loops * per_loop > w->slots.nr;

	uint64_t used = from->k.loops * per_loop;

	to->gpu->touched += (size_t)w->slots.bytes * (used < w->slots.nr ? used : w->slots.nr);
	*tx = (struct df_kconn){.state = DF_KCONN_CONNECTED,
				.nr_slots = w->slots.nr,
				.slot_bytes = w->slots.bytes,
				.per_loop = per_loop,
				.proto = (uint16_t)w->proto,
				.credit = w->slots.credit,
				.tail = &h->tail,
				.head = &h->head,
				.slots = (uint8_t *)h + DF_CONN_SLOTS,
				.refs = named ? h->refs : NULL,
				.peer = to->gpu->d.self};
	*conn_of(to, 0, from->index, channel, &per_loop) = *tx;
	conn_of(to, 0, from->index, channel, &per_loop)->peer = from->gpu->d.self;
}

static void connect_all(struct rank *from, struct rank *to)
{
	uint32_t b, i;

	for (b = 0; b < from->prog->nr_blocks; b++) {
		const struct df_prog_block *pb = df_prog_block(from->prog, b);

		for (i = 0; i < pb->nr_send; i++)
			connect_one(from, to,
				    df_prog_conn(from->prog, pb->first_send + i)->channel);
	}
}

static int results_right(const struct world *w)
{
	size_t i;
	int r;

	/* Each call adds the values of both ranks, which are equal after the first call. */
	for (r = 0; r < RANKS; r++)
		for (i = 0; i < w->bytes / sizeof(float); i++)
			if (w->ranks[r].buf[i] !=
			    (float)(2 * (i % 13) + 1) * (float)(1 << (w->calls - 1)))
				return 0;
	return 1;
}

static void world_free(struct world *w)
{
	int i, b;

	for (i = 0; i < RANKS; i++) {
		df_program_free(w->ranks[i].prog);
		free(w->ranks[i].k.ctx);
		free(w->ranks[i].conns);
		free(w->ranks[i].inst);
	}
	for (i = 0; i < 2; i++) {
		munmap(w->gpus[i].arena, ARENA);
		for (b = 0; b < MAX_BLOCKS; b++) {
			free(w->gpus[i].blocks[b].sq.slots);
			free(w->gpus[i].blocks[b].cq.slots);
		}
	}
	free(w);
}

/* As tests/cuda/ptx/chain.c names them. "waits for" without more: the code, the host. */
static const char *const parts[] = {"executes",	      "waits for L2",	   "waits for peer",
				    "waits at fence", "sees what another", "barrier",
				    "waits for"};

struct figures {
	double path_us, period_us;
	unsigned int reads;
	uint64_t slices;		     /* of block 0 of a rank in a call */
	double part_us[DF_ARRAY_LEN(parts)]; /* of the last call's path */
};

/* Adds up the steps of a path as ptx_time_chain() prints them. */
static void parts_of(char *text, double *part_us)
{
	char *line, *rest = text, *at;
	size_t i;

	while ((line = strsep(&rest, "\n")) != NULL && (at = strstr(line, " us, ")) != NULL)
		for (i = 0; i < DF_ARRAY_LEN(parts); i++)
			if (strstr(at, parts[i])) {
				part_us[i] += strtod(at + 5, NULL);
				break;
			}
}

static int by_path(const void *a, const void *b)
{
	const struct figures *x = a, *y = b;

	return (x->path_us > y->path_us) - (x->path_us < y->path_us);
}

/*
 * Returns the median of all calls except the first, which finds no kernel and no contexts. A median
 * is taken because a call takes longer if it arrives while the kernel reads across the bus.
 */
static struct figures middle(const struct world *w)
{
	struct figures each[64] = {0};
	int i, c;

	for (c = 1; c < w->calls; c++)
		for (i = 0; i < RANKS; i++) {
			const struct rank *r = &w->ranks[i];
			struct figures *f = &each[c - 1];

			if (r->path_ns[c] / 1000 > f->path_us) {
				f->path_us = r->path_ns[c] / 1000;
				f->reads = r->reads[c];
			}
			if (r->period_ns[c] / 1000 > f->period_us)
				f->period_us = r->period_ns[c] / 1000;
		}
	qsort(each, (size_t)w->calls - 1, sizeof(*each), by_path);
	return each[(w->calls - 1) / 2];
}

/* Returns 0 if the run has ended with right results. */
static int run(enum place place, enum when_called when_called, size_t bytes, enum how how,
	       struct figures *f)
{
	struct world *w = calloc(1, sizeof(*w));
	struct df_tuner *tuner;
	char *text = NULL;
	size_t len;
	int i, ret = 0;

	*f = (struct figures){0};
	w->place = place;
	w->when_called = when_called;
	w->bytes = bytes;
	w->calls = bytes > 4 << 20 ? 2 : bytes > 4096 || when_called != WARM ? 5 : 22;
	w->kernel = ptx_kernel(module, "dfk_daemon");
	w->time = ptx_time_new();
	w->old = how == OLD;
	w->blocks = w->old ? OLD_BLOCKS : MAX_BLOCKS;
	if (how == CACHED)
		ptx_time_all_code_cached(w->time);
	if (how == CHAIN) {
		ptx_time_chains(w->time);
		w->chain = stdout;
	}
	if (how == PARTS) {
		ptx_time_chains(w->time);
		w->chain = open_memstream(&text, &len);
	}
	if (df_tuner_create(&df_cost_gpu, &tuner))
		abort();
	for (i = 0; i < 2; i++)
		gpu_init(&w->gpus[i], w);
	for (i = 0; i < RANKS; i++) {
		w->ranks[i].w = w;
		w->ranks[i].index = i;
		w->ranks[i].gpu = &w->gpus[place == ONE_GPU ? 0 : i];
		coll_init(&w->ranks[i], tuner);
	}
	connect_all(&w->ranks[0], &w->ranks[1]);
	connect_all(&w->ranks[1], &w->ranks[0]);
	ptx_time_call(w->time, 1000, next, w);
	if (ptx_time_run(w->time) || w->call < w->calls || w->left || !results_right(w)) {
		printf("# %s %s %zu bytes: %s\n", place_names[place], when_names[when_called],
		       bytes,
		       *w->fault ? w->fault
		       : w->left ? "not ended"
				 : "wrong result");
		ret = -1;
	}
	*f = middle(w);
	f->slices = w->ranks[0].k.loops * w->ranks[0].k.ctx[0].nr_inst;
	if (how == PARTS) {
		fclose(w->chain);
		parts_of(text, f->part_us);
		free(text);
	}
	ptx_time_free(w->time);
	df_tuner_free(tuner);
	world_free(w);
	return ret;
}

/*
 * h200_us: from docs/gpu-results/2026-11-26.md, "later", or 0 if it was not measured. The goals are
 * limits of the path's time, or 0 for none.
 */
static const struct {
	size_t bytes;
	double h200_us, goal_1_us, goal_2_us;
} sizes[] = {
	{8, 43, 10, 7},	       {64 << 10, 0, 0, 0},	{1 << 20, 131, 0, 0},
	{16 << 20, 222, 0, 0}, {64 << 20, 706, 250, 0},
};

static int wanted(int argc, char **argv, size_t bytes)
{
	int i;

	for (i = 1; i < argc; i++)
		if (strtoull(argv[i], NULL, 0) == bytes)
			return 1;
	return argc < 2;
}

/* Prints a line of figures. */
static int figure(enum place place, enum when_called when_called, int i)
{
	double goal = when_called != WARM ? 0
		      : place == ONE_GPU  ? sizes[i].goal_1_us
					  : sizes[i].goal_2_us;
	struct figures f, cached;
	int ret = run(place, when_called, sizes[i].bytes, NEW, &f);
	printf("BENCH ptx/%s/%s/%zu %.1f us", place_names[place], when_names[when_called],
	       sizes[i].bytes, f.path_us);
	if (goal > 0)
		printf(" target <%g %s", goal, f.path_us < goal ? "ok" : "MISS");
	printf(" # %u dependent reads of host memory", f.reads);
	if (sizes[i].bytes == 8) {
		ret |= run(place, when_called, sizes[i].bytes, CACHED, &cached);
		printf(", %.1f us with all code cached", cached.path_us);
	}
	puts("");
	return ret;
}

/* Prints what a slice costs. Between two processes no slice goes by reference. */
static int slice_figure(void)
{
	struct figures few, many;
	double slices, us;
	size_t i;
	int ret = run(TWO_PROCESSES, WARM, SLICE_BYTES, PARTS, &few);

	slot_bytes = SMALL_SLOT;
	ret |= run(TWO_PROCESSES, WARM, SLICE_BYTES, PARTS, &many);
	slot_bytes = SLOT_BYTES;
	slices = (double)(many.slices - few.slices);
	us = (many.path_us - few.path_us) / slices;
	printf("BENCH ptx/slice %.1f us target <3 %s # %d bytes, two GPUs: %.1f us in %lu slices a "
	       "block, %.1f us in %lu\n#",
	       us, us < 3 ? "ok" : "MISS", SLICE_BYTES, few.path_us, (unsigned long)few.slices,
	       many.path_us, (unsigned long)many.slices);
	for (i = 0; i < DF_ARRAY_LEN(parts); i++)
		printf("%s %s %.2f", i ? "," : "",
		       i + 1 == DF_ARRAY_LEN(parts) ? "other" : parts[i],
		       (many.part_us[i] - few.part_us[i]) / slices);
	puts(" us");
	return ret;
}

static int read_module(void)
{
	const char *b = getenv("B");
	char pattern[4096], *text;
	glob_t files;
	size_t len;
	FILE *f;

	snprintf(pattern, sizeof(pattern), "%s/kernels/daemon.90.ptx", b ? b : "build");
	if (glob(pattern, 0, NULL, &files))
		return 77;
	f = fopen(files.gl_pathv[0], "r");
	globfree(&files);
	if (!f || fseek(f, 0, SEEK_END))
		return 1;
	len = (size_t)ftell(f);
	rewind(f);
	text = malloc(len + 1);
	if (fread(text, 1, len, f) != len)
		return 1;
	fclose(f);
	module = ptx_load(text, len, "daemon.90.ptx");
	free(text);
	return !module;
}

int main(int argc, char **argv)
{
	int rc = read_module(), bad = 0;
	size_t i, p, c;
	struct figures f;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (rc == 77)
		puts("# no daemon.90.ptx: built without nvcc");
	if (rc)
		return rc;
	if (argc == 3 && !strcmp(argv[1], "-c"))
		return run(TWO_GPUS, WARM, strtoull(argv[2], NULL, 0), CHAIN, &f) != 0;
	if (argc < 2 || !strcmp(argv[1], "-s"))
		bad |= slice_figure();
	if (argc == 2 && !strcmp(argv[1], "-s"))
		return bad != 0;
	for (i = 0; i < DF_ARRAY_LEN(sizes); i++) {
		if (!sizes[i].h200_us || !wanted(argc, argv, sizes[i].bytes))
			continue;
		bad |= run(ONE_GPU, WARM, sizes[i].bytes, OLD, &f);
		printf("BENCH ptx/table/%zu %.1f us peer H200 %.0f ratio %.2f # the H200 ran the "
		       "kernel of 2026-11-26\n",
		       sizes[i].bytes, f.period_us, sizes[i].h200_us,
		       f.period_us / sizes[i].h200_us);
	}
	for (p = ONE_GPU; p <= TWO_PROCESSES; p++)
		for (c = WARM; c <= LATE; c++)
			for (i = 0; i < DF_ARRAY_LEN(sizes); i++)
				if (wanted(argc, argv, sizes[i].bytes) &&
				    (c == WARM || sizes[i].bytes <= 16 << 20))
					bad |= figure((enum place)p, (enum when_called)c, (int)i);
	ptx_unload(module);
	return bad != 0;
}
