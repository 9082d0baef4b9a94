/*
 * Description: the PTX emulator with a clock. Others see a stored word only after its latency;
 * independent loads wait together; a fence waits for all earlier stores; %globaltimer is the
 * virtual clock; dependent reads of host memory on the path to a word are counted, and the path can
 * be printed; the same run takes the same time.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include "tests/cuda/ptx_test.h"

enum {
#define DF_TIME(name, value, source) T_##name = (value),
#include "tests/cuda/ptx/times.def"
#undef DF_TIME
};

/* The memory of a test: `mine` is on the first GPU, `its` on the second, `host` on neither. */
static struct memory {
	uint64_t mine[8], its[8], host[16];
} mem;

static struct seen {
	double at_ns;
	unsigned int reads;
	int calls;
} seen;

static enum ptx_place place_of(void *arg, uintptr_t at)
{
	const int first = arg == &mem.mine;

	if (at - (uintptr_t)mem.mine < sizeof(mem.mine))
		return first ? PTX_L2 : PTX_PEER;
	if (at - (uintptr_t)mem.its < sizeof(mem.its))
		return first ? PTX_PEER : PTX_L2;
	return PTX_HOST;
}

static char **path_text; /* if not NULL, receives the path to the word since 5,000 ns */

static void saw(void *arg, double now_ns, unsigned int reads)
{
	FILE *f = path_text ? open_memstream(path_text, &(size_t){0}) : NULL;

	seen = (struct seen){now_ns, reads, seen.calls + 1};
	if (!f)
		return;
	ptx_time_chain(arg, f, 5000);
	fclose(f);
}

static void *parameter = &mem;

/* Starts a kernel. `gpu` is mem.mine for the first GPU or mem.its for the second. */
static struct ptx_module *start(struct ptx_time *t, const char *body, void *gpu,
				unsigned int threads, double at_ns)
{
	struct ptx_module *m = load_kernel("", body);
	struct ptx_launch l = {.grid = {1, 1, 1},
			       .block = {threads, 1, 1},
			       .params = &parameter,
			       .fault = fault,
			       .place = place_of,
			       .arg = gpu};

	ck_assert_msg(m != NULL, "not read: %s", body);
	l.kernel = ptx_kernel(m, "k");
	ptx_time_launch(t, &l, at_ns);
	return m;
}

static void reset(void)
{
	memset(&mem, 0, sizeof(mem));
	memset(&seen, 0, sizeof(seen));
	faults[0] = 0;
	nr_faults = 0;
}

/*
 * Runs one kernel on the first GPU until it stores to mem.host[0]. Returns the ns from its launch
 * until the store arrives.
 */
static double alone(const char *body)
{
	struct ptx_time *t = ptx_time_new();
	struct ptx_module *m;

	reset();
	ptx_time_watch(t, &mem.host[0], 1, saw, NULL);
	/* Three dependent loads follow these pointers. */
	mem.host[4] = (uint64_t)(uintptr_t)&mem.host[5];
	mem.host[5] = (uint64_t)(uintptr_t)&mem.host[6];
	mem.host[6] = 1;
	m = start(t, body, mem.mine, 32, 1000);
	ck_assert_msg(ptx_time_run(t) == 0, "%s", faults);
	ck_assert_int_eq(seen.calls, 1);
	ptx_time_free(t);
	ptx_unload(m);
	return seen.at_ns - 1000;
}

/* Offsets in struct memory: `mine` 0, `its` 64, `host` 128. */
#define TELL "st.relaxed.sys.b64 [%rd1+128], 1;\n"
#define LEAST(ns, least)                                                                           \
	ck_assert_msg((ns) >= (least) && (ns) < (least) + 400, "%.0f ns, not %d to %d", (ns),      \
		      (int)(least), (int)(least) + 400)

START_TEST(a_store_takes_its_way)
{
	LEAST(alone(TELL), T_host_store);
	ck_assert_uint_eq(seen.reads, 0);
}
END_TEST

START_TEST(dependent_loads)
{
	double ns = alone("ld.u64 %rd2, [%rd1+160];\nld.u64 %rd3, [%rd2];\nld.u64 %rd4, [%rd3];\n"
			  "st.relaxed.sys.b64 [%rd1+128], %rd4;\n");

	LEAST(ns, 3 * T_host_load + T_host_store);
	ck_assert_uint_eq(seen.reads, 3);
	/* Independent loads wait together. */
	ns = alone(
		"ld.u64 %rd2, [%rd1+160];\nld.u64 %rd3, [%rd1+168];\nld.u64 %rd4, [%rd1+176];\n"
		"sub.u64 %rd5, %rd2, %rd2;\nsub.u64 %rd6, %rd3, %rd3;\nadd.u64 %rd5, %rd5, %rd6;\n"
		"add.u64 %rd4, %rd5, %rd4;\nst.relaxed.sys.b64 [%rd1+128], %rd4;\n");
	LEAST(ns, T_host_load + T_host_store);
	ck_assert_uint_eq(seen.reads, 1);
}
END_TEST

START_TEST(a_fence_waits)
{
	LEAST(alone("fence.acq_rel.sys;\n" TELL), T_fence_sys + T_host_store);
	LEAST(alone("st.u64 [%rd1+64], 7;\nfence.acq_rel.gpu;\n" TELL), T_peer_ack + T_host_store);
	ck_assert_uint_eq(mem.its[0], 7);
}
END_TEST

START_TEST(the_clock)
{
	/* The kernel waits 2,000 ns by %globaltimer. */
	double ns = alone("mov.u64 %rd2, %globaltimer;\n$L_wait:\nmov.u64 %rd3, %globaltimer;\n"
			  "sub.u64 %rd4, %rd3, %rd2;\nsetp.lt.u64 %p1, %rd4, 2000;\n"
			  "@%p1 bra $L_wait;\n" TELL);

	LEAST(ns, 2000 + T_host_store);
}
END_TEST

/*
 * The second GPU polls a word of its own, which the first GPU stores, and then stores a word in
 * host memory. Returns the ns from the first kernel's launch to that store's arrival.
 */
static double pair(void)
{
	struct ptx_time *t = ptx_time_new();
	struct ptx_module *m[2];

	reset();
	ptx_time_watch(t, &mem.host[0], 1, saw, t);
	if (path_text)
		ptx_time_chains(t);
	m[0] = start(t,
		     "$L_wait:\nld.acquire.sys.b64 %rd2, [%rd1+64];\nsetp.eq.u64 %p1, %rd2, 0;\n"
		     "@%p1 bra $L_wait;\n" TELL,
		     mem.its, 64, 1000);
	m[1] = start(
		t,
		"setp.ne.s32 %p1, %r1, 0;\n@%p1 bra $L_end;\nst.relaxed.sys.b64 [%rd1+64], 1;\n"
		"$L_end:\n",
		mem.mine, 32, 5000);
	ck_assert_msg(ptx_time_run(t) == 0, "%s", faults);
	ptx_time_free(t);
	ptx_unload(m[0]);
	ptx_unload(m[1]);
	return seen.at_ns - 5000;
}

START_TEST(a_pair)
{
	double ns = pair();

	/* Two latencies of stores, and at most two loads of the poller between them. */
	ck_assert_msg(ns > T_peer_store + T_l2_load + T_host_store &&
			      ns < T_peer_store + 2 * T_l2_load + T_host_store + 400,
		      "%.0f ns", ns);
	ck_assert_uint_eq(seen.reads, 0);
	ck_assert_msg(pair() == ns, "%.3f, then %.3f", ns, seen.at_ns - 5000);
}
END_TEST

/*
 * The path leads from the poller to the warp that stored the word, without gaps between its items.
 */
START_TEST(a_path)
{
	char *text = NULL, *line, *rest;
	double from, length, end = 0;
	int others = 0;

	path_text = &text;
	pair();
	path_text = NULL;
	ck_assert_ptr_nonnull(text);
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		ck_assert_int_eq(sscanf(line, "# %lf us, %lf:", &from, &length), 2);
		ck_assert_msg(from > end - 0.002 && from < end + 0.002, "%s, after %.3f", line,
			      end);
		end = from + length;
		if (strstr(line, "sees what another stored")) {
			others++;
			ck_assert_msg(length * 1000 >= T_peer_store + T_l2_load, "%s", line);
		}
	}
	ck_assert_int_eq(others, 1);
	/* The path ends when the store is executed, before its latency. */
	ck_assert_msg(end * 1000 > seen.at_ns - 5000 - T_host_store - 5 &&
			      end * 1000 < seen.at_ns - 5000 - T_host_store + 5,
		      "%.3f us of %.3f", end, (seen.at_ns - 5000) / 1000);
	free(text);
}
END_TEST

START_TEST(old_until_then)
{
	static const char look[] = "ld.relaxed.sys.b64 %rd2, [%rd1+64];\nadd.u64 %rd2, %rd2, 1;\n"
				   "st.relaxed.sys.b64 [%rd1+128], %rd2;\n";
	int late;

	for (late = 0; late < 2; late++) {
		struct ptx_time *t = ptx_time_new();
		struct ptx_module *m[2];

		reset();
		/* The block that stores sees its store at once. */
		m[0] = start(
			t,
			"st.relaxed.sys.b64 [%rd1+64], 1;\nld.relaxed.sys.b64 %rd2, [%rd1+64];\n"
			"st.u64 [%rd1], %rd2;\n",
			mem.mine, 1, 1000);
		m[1] = start(t, look, mem.its, 1, late ? 1000 + T_peer_store + 500 : 1200);
		ck_assert_msg(ptx_time_run(t) == 0, "%s", faults);
		ck_assert_uint_eq(mem.mine[0], 1);
		ck_assert_uint_eq(mem.host[0], late ? 2 : 1);
		ptx_time_free(t);
		ptx_unload(m[0]);
		ptx_unload(m[1]);
	}
}
END_TEST

int main(void)
{
	return DF_TESTS("clock", {a_store_takes_its_way, 1}, {dependent_loads, 1},
			{a_fence_waits, 1}, {the_clock, 1}, {a_pair, 1}, {a_path, 1},
			{old_until_then, 1});
}
