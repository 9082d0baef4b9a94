/*
 * The hook's reports of calls of the CUDA driver. A front notes the reports, over the fake libcuda.
 * For copies, the reported ranges are compared with a byte-by-byte count.
 */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#if __has_include(<cuda.h>)
#include <cuda.h>
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"

#ifdef CUDA_VERSION
#include "runtime/device/cuda/front/cuda_front.h"
#include "tests/cuda/load.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static struct {
	const char *call; /* the front's function that was called last */
	int nr;
	void *object, *context;
	enum df_work kind;
	struct df_touch touch;
	int touched;
} told;

static void tell(const char *call, void *object)
{
	told.call = call;
	told.nr++;
	told.object = object;
}

static void work(void *stream, int ptds, enum df_work kind)
{
	(void)ptds;
	tell("work", stream);
	told.kind = kind;
}

static void kernel(void *stream, int ptds, const void *fn)
{
	(void)fn;
	work(stream, ptds, DF_WORK_KERNEL);
}

static void work_range(void *stream, struct df_touch touch, int ptds, enum df_work kind)
{
	(void)ptds;
	tell("work_range", stream);
	told.kind = kind;
	told.touch = touch;
	told.touched = 1;
}

static void sync_copy(const struct df_touch *t, int ptds)
{
	(void)ptds;
	tell("sync_copy", NULL);
	told.touched = t != NULL;
	if (t)
		told.touch = *t;
}

static void nothing(void) {}

static int event_record(void *event, void *stream, int ptds)
{
	(void)ptds;
	tell("event_record", event);
	told.context = stream;
	return 0;
}

static void record_ctx(void *event, void *ctx)
{
	tell("event_record_ctx", event);
	told.context = ctx;
}

static void wait_ctx(void *event, void *ctx)
{
	tell("event_wait_ctx", event);
	told.context = ctx;
}

static void *green_ctx(void *green)
{
	return (char *)green + 1;
}

static int issued;
static int graph_launch(void *exec, void *stream, int ptds)
{
	(void)exec, (void)ptds;
	tell("graph_launch", stream);
	return issued;
}

static void graph_launched(void *exec, void *stream, int ptds, int launched)
{
	(void)exec, (void)ptds, (void)launched;
	tell("graph_launched", stream);
}

static void unmap(uintptr_t at, size_t bytes)
{
	tell("unmap", (void *)at);
	told.context = (void *)bytes;
}

static void peer_context(void *ctx)
{
	tell("peer_context", ctx);
}

static void peer_memory(uintptr_t at, const void *descs, size_t nr)
{
	(void)descs;
	tell("peer_memory", (void *)at);
	told.context = (void *)nr;
}

static int locks;

static void before_lock(void)
{
	locks++;
}

static int quiet_enter(enum df_sync_kind kind)
{
	(void)kind;
	return -1;
}

static void quiet_leave(int token)
{
	(void)token;
}

static int graph_set(void *node, const struct df_node_set *to)
{
	tell("graph_set", node);
	told.context = to->child;
	return to->child == (void *)0x88;
}

static void graph_keeps(void)
{
	tell("graph_keeps", NULL);
}

static struct {
	void *fn;
	int left;
} entered; /* the last launch */
static int launch_enter(const struct df_cuda_launch *l)
{
	entered.fn = l->fn;
	entered.left = 0;
	return 7;
}
static void launch_leave(const struct df_cuda_launch *l, int token, int launched)
{
	(void)launched;
	entered.left = l->fn == entered.fn && token == 7;
}

static const struct df_cuda_front front = {
	.work = work,
	.kernel = kernel,
	.work_range = work_range,
	.sync_copy = sync_copy,
	.sync_done = nothing,
	.unmap = unmap,
	.peer_context = peer_context,
	.peer_memory = peer_memory,
	.before_lock = before_lock,
	.quiet_enter = quiet_enter,
	.quiet_leave = quiet_leave,
	.launch_enter = launch_enter,
	.launch_leave = launch_leave,
	.graph_set = graph_set,
	.event_record = event_record,
	.event_record_ctx = record_ctx,
	.event_wait_ctx = wait_ctx,
	.green_ctx = green_ctx,
	.graph_launch = graph_launch,
	.graph_launched = graph_launched,
	.graph_keeps = graph_keeps,
};

/* Arbitrary handles: the fake functions do not use them. */
static const struct fake_cuda *fake;
#define a_stream  ((CUstream)0x1000)
#define a_kernel  ((CUfunction)0x1010)
#define an_event  ((CUevent)0x1020)
#define a_context ((CUcontext)0x1030)
#define a_graph	  ((CUgraph)0x1040)
#define an_object ((CUuserObject)0x1050)

static void start(void)
{
	setenv("FAKE_CUDA_SILENT", "1", 1);
	fake = fake_load(NULL);
	df_cuda_hook->set(&front);
}

static uint64_t seed;

static size_t below(size_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (size_t)((seed >> 33) % n);
}

/* Finds the range of bytes that one side of a copy accesses, byte by byte. */
struct side {
	uintptr_t lo, hi;
};

static void touch_byte(struct side *s, uintptr_t at)
{
	if (s->lo == s->hi) {
		s->lo = at;
		s->hi = at + 1;
	}
	s->lo = at < s->lo ? at : s->lo;
	s->hi = at + 1 > s->hi ? at + 1 : s->hi;
}

static void rows(struct side *s, uintptr_t base, size_t pitch, size_t height, const size_t at[3],
		 const size_t n[3])
{
	for (size_t z = 0; z < n[2]; z++)
		for (size_t y = 0; y < n[1]; y++)
			for (size_t x = 0; x < n[0]; x++)
				touch_byte(s, base + ((at[2] + z) * height + at[1] + y) * pitch +
						      at[0] + x);
}

static void expect(const char *call, const struct side *in, const struct side *out)
{
	ck_assert_str_eq(told.call, call);
	ck_assert_msg(told.touched, "the bytes are not known");
	ck_assert_uint_eq(told.touch.in_end - told.touch.in, in->hi - in->lo);
	ck_assert_uint_eq(told.touch.out_end - told.touch.out, out->hi - out->lo);
	if (in->hi != in->lo)
		ck_assert_uint_eq(told.touch.in, in->lo);
	if (out->hi != out->lo)
		ck_assert_uint_eq(told.touch.out, out->lo);
	told.touched = 0;
}

struct shape {
	uintptr_t from, to;
	size_t at[2][3], n[3], pitch[2], height[2];
	struct side in, out;
};

static void any_shape(struct shape *s, int layers)
{
	memset(s, 0, sizeof(*s));
	s->from = 0x1000000 + below(1000);
	s->to = 0x2000000 + below(1000);
	for (int i = 0; i < 3; i++)
		s->n[i] = i < 2 || layers ? below(6) : 1;
	for (int k = 0; k < 2; k++) {
		for (int i = 0; i < 3; i++)
			s->at[k][i] = i < 2 || layers ? below(4) : 0;
		s->pitch[k] = s->n[0] + s->at[k][0] + below(9);
		s->height[k] = s->n[1] + s->at[k][1] + below(3);
	}
	rows(&s->in, s->from, s->pitch[0], s->height[0], s->at[0], s->n);
	rows(&s->out, s->to, s->pitch[1], s->height[1], s->at[1], s->n);
}

#define FILL2(c, s)                                                                                \
	do {                                                                                       \
		(c).srcXInBytes = (s).at[0][0], (c).srcY = (s).at[0][1];                           \
		(c).dstXInBytes = (s).at[1][0], (c).dstY = (s).at[1][1];                           \
		(c).srcPitch = (s).pitch[0], (c).dstPitch = (s).pitch[1];                          \
		(c).WidthInBytes = (s).n[0], (c).Height = (s).n[1];                                \
		(c).srcMemoryType = below(2) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;       \
		(c).srcDevice = (s).from;                                                          \
		(c).dstMemoryType = CU_MEMORYTYPE_HOST, (c).dstHost = (void *)(s).to;              \
		(c).dstDevice = 77, (c).srcHost = (void *)78; /* not used */                       \
	} while (0)
#define FILL3(c, s)                                                                                \
	do {                                                                                       \
		FILL2(c, s);                                                                       \
		(c).srcZ = (s).at[0][2], (c).dstZ = (s).at[1][2], (c).Depth = (s).n[2];            \
		(c).srcHeight = (s).height[0], (c).dstHeight = (s).height[1];                      \
	} while (0)

START_TEST(pitched)
{
	for (int i = 0; i < 3000; i++) {
		CUDA_MEMCPY3D_PEER peer = {0};
		CUDA_MEMCPY3D three = {0};
		CUDA_MEMCPY2D two = {0};
		struct shape s;

		any_shape(&s, 0);
		FILL2(two, s);
		cuMemcpy2DUnaligned_v2(&two);
		expect("sync_copy", &s.in, &s.out);
		cuMemcpy2D_v2_ptds(&two);
		expect("sync_copy", &s.in, &s.out);
		any_shape(&s, 1);
		FILL3(three, s);
		FILL3(peer, s);
		cuMemcpy3DAsync_v2_ptsz(&three, a_stream);
		expect("work_range", &s.in, &s.out);
		ck_assert_ptr_eq(told.object, a_stream);
		ck_assert_int_eq(told.kind, DF_WORK_MEMCPY);
		cuMemcpy3D_v2(&three);
		expect("sync_copy", &s.in, &s.out);
		cuMemcpy3DPeerAsync(&peer, a_stream);
		expect("work_range", &s.in, &s.out);
		cuMemcpy3DPeer(&peer);
		expect("sync_copy", &s.in, &s.out);
	}
}
END_TEST

/* The bytes of an array are unknown, so a copy from or to one waits for all other work. */
START_TEST(arrays)
{
	CUDA_MEMCPY2D two = {.srcMemoryType = CU_MEMORYTYPE_ARRAY, .WidthInBytes = 8, .Height = 1};
	CUDA_MEMCPY3D three = {
		.dstMemoryType = CU_MEMORYTYPE_ARRAY, .WidthInBytes = 8, .Height = 1, .Depth = 1};

	told.touched = 1;
	cuMemcpy2D_v2(&two);
	ck_assert_str_eq(told.call, "sync_copy");
	ck_assert_int_eq(told.touched, 0);
	cuMemcpy3DAsync_v2(&three, a_stream);
	ck_assert_str_eq(told.call, "work");
	ck_assert_ptr_eq(told.object, a_stream);
}
END_TEST

#if CUDA_VERSION >= 13000
START_TEST(batches)
{
	for (int i = 0; i < 2000; i++) {
		CUDA_MEMCPY3D_BATCH_OP ops[4];
		CUdeviceptr to[4], from[4];
		struct side in = {0}, out = {0};
		size_t bytes[4], nr = 1 + below(4);

		for (size_t k = 0; k < nr; k++) {
			const size_t zero[3] = {0}, n[3] = {1 + below(9), 1, 1};

			to[k] = 0x1000000 + below(5000);
			from[k] = 0x2000000 + below(5000);
			bytes[k] = n[0];
			rows(&in, from[k], 0, 0, zero, n);
			rows(&out, to[k], 0, 0, zero, n);
		}
		cuMemcpyBatchAsync_v2(to, from, bytes, nr, NULL, NULL, 0, a_stream);
		expect("work_range", &in, &out);
		memset(&in, 0, sizeof(in));
		memset(&out, 0, sizeof(out));
		memset(ops, 0, sizeof(ops));
		for (size_t k = 0; k < nr; k++) {
			const size_t zero[3] = {0};
			CUmemcpy3DOperand *side[2] = {&ops[k].src, &ops[k].dst};
			size_t n[3] = {1 + below(5), 1 + below(5), 1 + below(5)};

			ops[k].extent = (CUextent3D){n[0], n[1], n[2]};
			for (int j = 0; j < 2; j++) {
				size_t row = below(2) * (n[0] + below(3));
				size_t layer = below(2) * (n[1] + below(3));

				side[j]->type = CU_MEMCPY_OPERAND_TYPE_POINTER;
				side[j]->op.ptr.ptr = (j ? 0x1000000 : 0x2000000) + below(5000);
				side[j]->op.ptr.rowLength = row;
				side[j]->op.ptr.layerHeight = layer;
				rows(j ? &out : &in, side[j]->op.ptr.ptr, row ? row : n[0],
				     layer ? layer : n[1], zero, n);
			}
		}
		cuMemcpy3DBatchAsync_v2(nr, ops, 0, a_stream);
		expect("work_range", &in, &out);
		ops[nr - 1].src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
		cuMemcpy3DBatchAsync_v2(nr, ops, 0, a_stream);
		ck_assert_str_eq(told.call, "work");
		cuMemcpyBatchAsync_v2(to, from, bytes, nr, NULL, NULL, 0, CU_STREAM_LEGACY);
		ck_assert_str_eq(told.call, "work");
	}
}
END_TEST
#endif

/* A launch with attributes is reported as work on the stream that its structure names. */
START_TEST(launches)
{
	CUlaunchAttribute a[] = {
		{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -1},
		{.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1},
		{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {2, 1, 1}},
		{.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		 .value.programmaticStreamSerializationAllowed = 1},
	};
	CUlaunchConfig c = {.gridDimX = 1, .hStream = a_stream, .attrs = a, .numAttrs = 4};
	CUDA_LAUNCH_PARAMS many[3] = {{.hStream = (CUstream)0x10},
				      {.hStream = (CUstream)0x20},
				      {.hStream = (CUstream)0x30}};
	int before;

	cuLaunchKernelEx(&c, a_kernel, NULL, NULL);
	ck_assert_str_eq(told.call, "work");
	ck_assert_ptr_eq(told.object, a_stream);
	ck_assert_int_eq(told.kind, DF_WORK_KERNEL);
	ck_assert_ptr_eq(entered.fn, a_kernel);
	ck_assert_int_eq(entered.left, 1);
	/* An event that the launch records is reported after the work. */
	a[1].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
	a[1].value.programmaticEvent.event = (CUevent)0x99;
	before = told.nr;
	cuLaunchKernelEx_ptsz(&c, a_kernel, NULL, NULL);
	ck_assert_int_eq(told.nr, before + 2);
	ck_assert_str_eq(told.call, "event_record");
	ck_assert_ptr_eq(told.object, (void *)0x99);
	ck_assert_ptr_eq(told.context, a_stream);
	a[1].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
	a[1].value.launchCompletionEvent.event = an_event;
	cuLaunchKernelEx(&c, a_kernel, NULL, NULL);
	ck_assert_ptr_eq(told.object, an_event);
	ck_assert_uint_eq(fake->calls("cuLaunchKernelEx"), 2);
	cuLaunchCooperativeKernel(NULL, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x40, NULL);
	ck_assert_ptr_eq(told.object, (void *)0x40);
	before = told.nr;
	cuLaunchCooperativeKernelMultiDevice(many, 3, 0);
	ck_assert_int_eq(told.nr, before + 3);
	ck_assert_ptr_eq(told.object, (void *)0x30);
}
END_TEST

START_TEST(green)
{
	char green[8];

	cuGreenCtxRecordEvent((CUgreenCtx)green, (CUevent)0x50);
	ck_assert_str_eq(told.call, "event_record_ctx");
	ck_assert_ptr_eq(told.object, (void *)0x50);
	ck_assert_ptr_eq(told.context, green + 1);
	cuGreenCtxWaitEvent((CUgreenCtx)green, (CUevent)0x60);
	ck_assert_str_eq(told.call, "event_wait_ctx");
	ck_assert_ptr_eq(told.object, (void *)0x60);
	ck_assert_ptr_eq(told.context, green + 1);
	cuCtxRecordEvent((CUcontext)green, (CUevent)0x50);
	ck_assert_ptr_eq(told.context, green);
}
END_TEST

START_TEST(graphs)
{
	/* If dfshim has already executed the graph on the stream, the driver does not launch it. */
	issued = 1;
	ck_assert_int_eq(cuGraphLaunch((CUgraphExec)0x70, a_stream), CUDA_SUCCESS);
	ck_assert_uint_eq(fake->calls("cuGraphLaunch"), 0);
	ck_assert_str_eq(told.call, "graph_launch");
	ck_assert_ptr_eq(told.object, a_stream);
	issued = -5;
	ck_assert_int_ne(cuGraphLaunch((CUgraphExec)0x70, a_stream), CUDA_SUCCESS);
	ck_assert_uint_eq(fake->calls("cuGraphLaunch"), 0);
	ck_assert_str_eq(told.call, "graph_launched");
	cuGraphRetainUserObject(a_graph, an_object, 1, 0);
	ck_assert_str_eq(told.call, "graph_keeps");
}
END_TEST

/* Memory that is unmapped, and access that is granted to devices. */
START_TEST(reach)
{
	CUmemAccessDesc descs[2] = {0};
	int before;

	cuMemUnmap(0x10000, 0x2000);
	ck_assert_str_eq(told.call, "unmap");
	ck_assert_ptr_eq(told.object, (void *)0x10000);
	ck_assert_ptr_eq(told.context, (void *)0x2000);
	ck_assert_uint_eq(fake->calls("cuMemUnmap"), 1);
	/* Frees keep other threads out of the driver; allocations do not. */
	ck_assert_int_eq(locks, 1);
	cuMemHostUnregister((void *)0x10000);
	ck_assert_int_eq(locks, 2);
	cuMemMap(0x10000, 0x2000, 0, 1, 0);
	ck_assert_int_eq(locks, 2);
	cuCtxEnablePeerAccess(a_context, 0);
	ck_assert_str_eq(told.call, "peer_context");
	ck_assert_ptr_eq(told.object, a_context);
	cuMemSetAccess(0x40000, 0x1000, descs, 2);
	ck_assert_str_eq(told.call, "peer_memory");
	ck_assert_ptr_eq(told.object, (void *)0x40000);
	ck_assert_ptr_eq(told.context, (void *)2);
	/* These functions grant access that cannot be attributed to a device. */
	before = told.nr;
	ck_assert_int_eq(df_cuda_hook->peers_any(), 0);
	if (_i == 0)
		cuMemPoolSetAccess((CUmemoryPool)0x50, descs, 1);
	else if (_i == 1)
		cuMulticastBindAddr(0, 0, 0x40000, 0x1000, 0);
	else
		cuMulticastBindMem(0, 0, 0, 0, 0x1000, 0);
	ck_assert_int_eq(df_cuda_hook->peers_any(), 1);
	ck_assert_int_eq(told.nr, before);
}
END_TEST

/* Calls before the backend is set. */
START_TEST(early)
{
	df_cuda_hook->set(NULL);
	cuCtxEnablePeerAccess(a_context, 0);
	ck_assert_int_eq(df_cuda_hook->peers_any(), 1);
}
END_TEST

/* A change of a node that dfshim refuses. */
START_TEST(nodes)
{
	ck_assert_int_eq(cuGraphExecChildGraphNodeSetParams(NULL, (CUgraphNode)0x77, (CUgraph)0x88),
			 CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_str_eq(told.call, "graph_set");
	ck_assert_ptr_eq(told.object, (void *)0x77);
	ck_assert_uint_eq(fake->calls("cuGraphExecChildGraphNodeSetParams"), 0);
}
END_TEST
#else
START_TEST(none)
{
	printf("no cuda.h: nothing to be hooked\n");
}
END_TEST
#endif

int main(void)
{
	const struct df_test tests[] = {
#ifdef CUDA_VERSION
		/* runs in the child, where the hook starts anew */
		{.before = start},
		{pitched},
		{arrays},
#if CUDA_VERSION >= 13000
		{batches},
#endif
		{launches},
		{green},
		{graphs},
		{reach, 3},
		{early},
		{nodes},
#else
		{none},
#endif
	};

#ifdef CUDA_VERSION
	seed = df_test_seed();
#endif
	return df_tests("driver", tests, DF_ARRAY_LEN(tests));
}
