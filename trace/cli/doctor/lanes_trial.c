/*
 * The self-test for NCCL's kernels on lanes (runtime/exec/nccl). It has two parts. Part "lanes"
 * tests each GPU, with the driver alone: are kernels of as many streams as there are lanes on the
 * GPU at the same time, besides streams that wait? CUDA does not guarantee this. Part "nccl" tests
 * the job's NCCL, on two GPUs if two are visible, with libdfshim.so preloaded and
 * DFSHIM_EXECUTOR=nccl. The parent ends a part that does not end.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "runtime/base/connections.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/time.h"
#include "trace/cli/doctor/doctor.h"

/* Result of a check that cannot be made on this machine. */
#define NOT_SHOWN 1

static void report(const char *name, int (*run)(void))
{
	int ret;

	df_doctor_tell("begin\t%s", name);
	ret = run();
	df_doctor_tell("check\t%s\t%s\t%s", name,
		       ret == NOT_SHOWN ? "not shown"
		       : ret		? "failed"
					: "ok",
		       df_doctor_seen);
}

/* ---- kernels at the same time ---------------------------------------------------------------- */

/*
 * As in runtime/exec/nccl/budget.h: lanes, each with a second stream for NCCL, and other streams of
 * the device, which may wait.
 */
#define LANES	12
#define WAITING (DF_CONNECTIONS - 2 * LANES)
#define THREADS 128
#define FILL	64 /* CTAs of the filling kernel for each multiprocessor, twice as many as fit */

/*
 * Two kernels. `meet`: each CTA adds itself to `here`, and ends when `all` CTAs have done so, or
 * when the CPU has set `stop`. In the first case it adds itself to `met`. `fill`: a kernel of the
 * application, which ends by itself.
 */
static const char ptx[] =
	".version 7.0\n.target sm_80\n.address_size 64\n"
	".visible .entry meet(.param .u64 here, .param .u32 all, .param .u64 stop,\n"
	"	.param .u64 met)\n"
	"{\n"
	"	.reg .pred %p<4>;\n"
	"	.reg .u32 %r<8>;\n"
	"	.reg .u64 %rd<4>;\n"
	"	ld.param.u64 %rd1, [here];\n"
	"	ld.param.u32 %r1, [all];\n"
	"	ld.param.u64 %rd2, [stop];\n"
	"	ld.param.u64 %rd3, [met];\n"
	"	mov.u32 %r2, %tid.x;\n"
	"	setp.ne.u32 %p1, %r2, 0;\n"
	"	@%p1 bra OTHERS;\n"
	"	atom.global.add.u32 %r3, [%rd1], 1;\n"
	"AGAIN:\n"
	"	ld.relaxed.sys.b32 %r4, [%rd1];\n"
	"	setp.ge.u32 %p2, %r4, %r1;\n"
	"	@%p2 bra MET;\n"
	"	ld.relaxed.sys.b32 %r5, [%rd2];\n"
	"	setp.eq.u32 %p3, %r5, 0;\n"
	"	@%p3 bra AGAIN;\n"
	"	bra OTHERS;\n"
	"MET:\n"
	"	atom.global.add.u32 %r6, [%rd3], 1;\n"
	"OTHERS:\n"
	"	bar.sync 0;\n"
	"	ret;\n"
	"}\n"
	".visible .entry fill(.param .u64 word, .param .u32 times)\n"
	"{\n"
	"	.reg .pred %p<2>;\n"
	"	.reg .u32 %r<4>;\n"
	"	.reg .u64 %rd<2>;\n"
	"	ld.param.u64 %rd1, [word];\n"
	"	ld.param.u32 %r1, [times];\n"
	"MORE:\n"
	"	ld.relaxed.sys.b32 %r2, [%rd1];\n"
	"	sub.u32 %r1, %r1, 1;\n"
	"	setp.ne.u32 %p1, %r1, 0;\n"
	"	@%p1 bra MORE;\n"
	"	ret;\n"
	"}\n";

static int gpu;
static double bound_s;

struct meeting {
	void *meet, *fill;
	void *streams[2 * LANES], *waiting[WAITING];
	int nr_lanes, sms;
	unsigned ctas, all; /* number of CTAs: of a lane's kernel, and of all kernels together */
	uint32_t *words;    /* the counters `here` and `met`, in memory of the CPU */
	uint32_t *stop;
	uint64_t *word; /* the word for which streams wait */
	/* The kernels' parameters. */
	uint64_t here, met, stop_at;
	uint32_t times;
	void *meeting[4], *filling[2];
};

/*
 * Returns the CTAs of the kernel on a stream. The first nr_lanes streams are those of lanes, the
 * others the lanes' second streams, on which NCCL sometimes has a kernel.
 */
static unsigned width(const struct meeting *m, int stream)
{
	return stream % 2 ? 1 : m->ctas;
}

/*
 * The shapes of the lanes that the budget allows on the device: as many of the widest lanes as fit,
 * or the largest number of lanes, whose communicators then have fewer CTAs.
 */
enum shape { WIDEST, MOST };

static void shape(struct meeting *m, enum shape s)
{
	long least, most = DF_MIN(df_env_lane_ctas(&least), m->sms / 2);

	m->ctas = (unsigned)DF_MAX(s == MOST ? DF_MIN(m->sms / LANES, most) : most, 1);
	m->nr_lanes = DF_MAX(DF_MIN(m->sms / (int)m->ctas, LANES), 2);
	/* The lanes' kernels fill the device; the small ones still fit. */
	m->all = (unsigned)m->nr_lanes * m->ctas + (unsigned)m->nr_lanes;
}

static int prepare(struct meeting *m)
{
	/* ATTRIBUTE_MULTIPROCESSORS, as in runtime/evidence. */
	const int multiprocessors = 16;
	void *module;
	int i, device;

	DF_CU(device_get, &device, gpu);
	DF_CU(attribute, &m->sms, multiprocessors, device);
	DF_CU(module_load, &module, ptx);
	DF_CU(module_function, &m->meet, module, "meet");
	DF_CU(module_function, &m->fill, module, "fill");
	DF_CU(host_alloc, (void **)&m->words, 2 * sizeof(*m->words), 0);
	DF_CU(host_alloc, (void **)&m->stop, sizeof(*m->stop), 0);
	DF_CU(host_alloc, (void **)&m->word, sizeof(*m->word), 0);
	m->here = (uintptr_t)&m->words[0];
	m->met = (uintptr_t)&m->words[1];
	m->stop_at = (uintptr_t)m->stop;
	m->times = 100;
	m->meeting[0] = &m->here;
	m->meeting[1] = &m->all;
	m->meeting[2] = &m->stop_at;
	m->meeting[3] = &m->met;
	m->filling[0] = &m->stop_at;
	m->filling[1] = &m->times;
	*m->stop = 0;
	*m->word = 0;
	/*
	 * This is beyond the highest priority of any device, so the driver takes the highest
	 * one.
	 */
	for (i = 0; i < 2 * LANES; i++)
		DF_CU(stream_priority, &m->streams[i], 1, i % 2 ? 0 : -100);
	for (i = 0; i < WAITING; i++)
		DF_CU(stream_create, &m->waiting[i], 1);
	/* The driver loads a kernel at its first launch, for which it may wait for the device. */
	m->all = 1;
	DF_CU(launch, m->meet, 1, 1, 1, THREADS, 1, 1, 0, m->waiting[0], m->meeting, NULL);
	DF_CU(launch, m->fill, 1, 1, 1, 32, 1, 1, 0, m->waiting[0], m->filling, NULL);
	if (df_doctor_wait(m->waiting[0]))
		return df_doctor_failed("a kernel cannot be launched");
	return 0;
}

/*
 * Launches all kernels, the first one last if `back`, and waits until they have met. Returns 0 or
 * an error.
 */
static int round_of(struct meeting *m, uint64_t value, int back)
{
	uint64_t until = df_now_ns() + (uint64_t)(bound_s * 1e9 / 8);
	uint32_t met_at_once, begun = 0;
	int i, k, nr = 2 * m->nr_lanes, r = 0;

	m->words[0] = m->words[1] = *m->stop = 0;
	/* One of the other streams has work of the application, and the rest wait. */
	DF_CU(launch, m->fill, (unsigned)(m->sms * FILL), 1, 1, 32, 1, 1, 0, m->waiting[0],
	      m->filling, NULL);
	for (i = 1; i < WAITING; i++)
		DF_CU(stream_wait, m->waiting[i], (uintptr_t)m->word, value, 0);
	for (i = 0; i < nr && !r; i++) {
		k = back ? nr - 1 - i : i;
		r = df_api.launch(m->meet, width(m, k), 1, 1, THREADS, 1, 1, 0, m->streams[k],
				  m->meeting, NULL);
	}
	for (i = 0; i < nr && !r;) {
		r = df_api.stream_query(m->streams[i]);
		if (!r) {
			i++;
		} else if (r == DF_NOT_READY) {
			r = 0;
			/*
			 * RELEASE pairs with the kernels' loads, which see it and end without a
			 * count.
			 */
			if (!*m->stop && df_now_ns() > until) {
				/* RELAXED: only a number; CTAs that begin later do not count. */
				begun = __atomic_load_n(&m->words[0], __ATOMIC_RELAXED);
				__atomic_store_n(m->stop, 1, __ATOMIC_RELEASE);
			}
			df_sleep_ns(20 * DF_NS_PER_US);
		}
	}
	/* RELEASE pairs with the streams' waits. */
	__atomic_store_n(m->word, value, __ATOMIC_RELEASE);
	for (i = 0; i < WAITING && !r;) {
		r = df_api.stream_query(m->waiting[i]);
		i += !r;
		r = r == DF_NOT_READY ? 0 : r;
	}
	if (r)
		return df_doctor_failed("a call returned %d", r);
	/* ACQUIRE pairs with the ends of the kernels, which have added to it. */
	met_at_once = __atomic_load_n(&m->words[1], __ATOMIC_ACQUIRE);
	if (met_at_once == m->all)
		return 0;
	return df_doctor_failed("of %u CTAs of %d kernels only %u ran together after %.1f s%s",
				m->all, nr, begun, bound_s / 8,
				back ? ", launched in the opposite order" : "");
}

static int check_together(void)
{
	static struct meeting m, wide;
	uint64_t turn;

	if (prepare(&m))
		return -1;
	shape(&m, WIDEST);
	wide = m;
	for (turn = 1; turn <= 4; turn++) {
		if (turn == 3)
			shape(&m, MOST);
		if (round_of(&m, turn, !(turn & 1)))
			return -1;
	}
	if (m.nr_lanes == wide.nr_lanes)
		df_doctor_failed("%d lanes of %u CTAs", m.nr_lanes, m.ctas);
	else
		df_doctor_failed("%d lanes of %u CTAs, %d of %u", wide.nr_lanes, wide.ctas,
				 m.nr_lanes, m.ctas);
	return 0;
}

int df_doctor_lanes(const struct df_doctor_opts *o)
{
	void *context;

	if (df_doctor_load(o->nccl))
		return 1;
	gpu = o->gpu;
	bound_s = o->timeout;
	/* As for a job, and never undone. */
	df_connections_begin();
	if (df_doctor_enter(o->gpu, &context))
		return 1;
	report("together", check_together);
	_exit(0);
}

/* ---- NCCL's kernels -------------------------------------------------------------------------- */

#define NR_COMMS 2
#define ELEMENTS 1024
#define ROUNDS	 20
#define U32	 3 /* NCCL's numbers */
#define SUM	 0

static int nr_ranks;
static struct df_nccl_id ids[NR_COMMS];
static struct rank {
	void *context, *stream, *comms[NR_COMMS];
	uint64_t send, recv[NR_COMMS];
	uint32_t *host;
	int ret, wrong;
} ranks[2];

static int begin_rank(struct rank *k, int r)
{
	int device, c, ret;

	ret = df_api.device_get(&device, r) ?:
		      df_api.retain(&k->context, device) ?:
			      df_api.ctx_set(k->context) ?:
				      df_api.stream_create(&k->stream, 1) ?:
					      df_api.mem_alloc(&k->send, ELEMENTS * 4) ?:
						      df_api.host_alloc((void **)&k->host,
									ELEMENTS * 4, 0);
	for (c = 0; c < NR_COMMS && !ret; c++)
		ret = df_api.mem_alloc(&k->recv[c], ELEMENTS * 4)
			      ?: df_api.comm_init(&k->comms[c], nr_ranks, ids[c], r);
	return ret;
}

/* Returns the result of the sum in round i, in which rank r sends 2 * i + r. */
static uint32_t sum_of(unsigned i)
{
	return nr_ranks == 2 ? 4 * i + 1 : 2 * i;
}

static int count_wrong(struct rank *k, int c, uint32_t want)
{
	int ret = df_api.to_host(k->host, k->recv[c], ELEMENTS * 4, k->stream)
			  ?: df_doctor_wait(k->stream);

	for (int e = 0; e < ELEMENTS && !ret; e++)
		k->wrong += k->host[e] != want;
	return ret;
}

/* Each rank uses the communicators in its own order, with a device synchronisation after each. */
static void *run_rank(void *arg)
{
	int r = (int)(intptr_t)arg, i, c, ret;
	struct rank *k = &ranks[r];

	ret = begin_rank(k, r);
	for (i = 0; i < ROUNDS * NR_COMMS && !ret; i++) {
		c = (i + r) % NR_COMMS;
		if (i % NR_COMMS == 0)
			ret = df_api.set32(k->send, (unsigned)(2 * (i / NR_COMMS) + r), ELEMENTS,
					   k->stream);
		ret = ret ?: df_api.all_reduce(k->send, k->recv[c], ELEMENTS, U32, SUM, k->comms[c],
					       k->stream)
				    ?: df_api.ctx_sync();
		if (i % NR_COMMS == NR_COMMS - 1)
			for (c = 0; c < NR_COMMS && !ret; c++)
				ret = count_wrong(k, c, sum_of((unsigned)(i / NR_COMMS)));
	}
	k->ret = ret;
	return NULL;
}

static int check_opposite(void)
{
	pthread_t threads[2];
	int r, c, wrong = 0;

	for (c = 0; c < NR_COMMS; c++)
		if (df_api.get_id(&ids[c]))
			return df_doctor_failed("%.200s", df_doctor_nccl_error());
	for (r = 0; r < nr_ranks; r++)
		if (pthread_create(&threads[r], NULL, run_rank, (void *)(intptr_t)r))
			return df_doctor_failed("a thread cannot be started");
	for (r = 0; r < nr_ranks; r++)
		pthread_join(threads[r], NULL);
	for (r = 0; r < nr_ranks; r++) {
		wrong += ranks[r].wrong;
		if (ranks[r].ret)
			return df_doctor_failed("a call of rank %d returned %d: %.150s", r,
						ranks[r].ret, df_doctor_nccl_error());
	}
	if (wrong)
		return df_doctor_failed("%d elements are wrong", wrong);
	if (nr_ranks == 1) {
		df_doctor_failed("one GPU is visible, so no two ranks of NCCL");
		return NOT_SHOWN;
	}
	df_doctor_failed("%d rounds on 2 GPUs", ROUNDS);
	return 0;
}

static int check_capture(void)
{
	struct rank *k = &ranks[0];
	void *graph, *exec;

	/* With two ranks, both would have to capture. A communicator of one rank shows the same. */
	DF_CU(ctx_set, k->context);
	DF_CU(get_id, &ids[0]);
	DF_CU(comm_init, &k->comms[0], 1, ids[0], 0);
	DF_CU(set32, k->send, 7, ELEMENTS, k->stream);
	DF_CU(capture_begin, k->stream, 2);
	if (df_api.all_reduce(k->send, k->recv[0], ELEMENTS, U32, SUM, k->comms[0], k->stream))
		return df_doctor_failed("a collective cannot be captured: %.150s",
					df_doctor_nccl_error());
	DF_CU(capture_end, k->stream, &graph);
	DF_CU(instantiate, &exec, graph, 0);
	DF_CU(graph_launch, exec, k->stream);
	k->wrong = 0;
	if (count_wrong(k, 0, 7) || k->wrong)
		return df_doctor_failed("%d elements of a replay are wrong", k->wrong);
	df_doctor_failed("a replay");
	return 0;
}

int df_doctor_nccl(const struct df_doctor_opts *o)
{
	(void)o;
	if (df_doctor_load(NULL))
		return 1;
	if (df_api.init(0) || df_api.device_count(&nr_ranks) || nr_ranks < 1) {
		df_doctor_tell("unable\tno GPU");
		return 1;
	}
	nr_ranks = DF_MIN(nr_ranks, 2);
	report("opposite", check_opposite);
	report("capture", check_capture);
	_exit(0);
}
