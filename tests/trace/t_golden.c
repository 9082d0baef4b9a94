/*
 * Golden reports. For every verdict word this program makes a small set of traces, writes them to
 * files, and lets the library and `dfshim check` judge them. Text and JSON must equal the files in
 * tests/trace/golden. After an intended change UPDATE=1 build/tests/trace/t_golden rewrites these
 * files; review the difference.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/record/names.h"

static void net_stall(struct tb_image im[2])
{
	for (int i = 0; i < 2; i++)
		tb_rec(&im[i], DF_REC_OP_START, tb_issue(&im[i], 1, i, DF_KIND_ALLREDUCE, 8, -1, 0),
		       0, 0, 0)
			->comm = 1;
}

/*
 * Both ranks record a message of their machine's driver. Rank 1 also records a port that is down.
 */
static void net_fault(struct tb_image im[2])
{
	net_stall(im);
	for (int i = 0; i < 2; i++)
		tb_rec(&im[i], DF_REC_HARDWARE, 0, 0, 0,
		       tb_string(&im[i], "the kernel's log: NVRM: Xid (PCI:0000:3b:00): 79"));
	tb_rec(&im[1], DF_REC_HARDWARE, 0, 0, 0,
	       tb_string(&im[1], "mlx5_3 port 1: link_downed +1, its state is 1: DOWN"));
}

static void put_launch(struct tb_image *im, uint64_t op, uint64_t at, const char *name, uint64_t nr)
{
	tb_rec(im, DF_REC_LAUNCH, op, name ? tb_string(im, name) : 0, at << 8 | nr << 32, 7);
}

/*
 * The ranks have executed both signatures before, so a release could help. By NCCL's rules the
 * operations do not match.
 */
static void opaque(struct tb_image im[2])
{
	const char *name = "vllm::cross_device_reduce_1stage<>";
	uint64_t op;

	tb_rec(&im[0], DF_REC_STREAM_WORK, 98, 0, 1ULL << 32, 7);
	op = tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 8, -1, 0);
	put_launch(&im[0], op, 0, "before", 1);
	put_launch(&im[0], op, 0, name, 12);
	put_launch(&im[0], op, 1, "\033[31mred\nORDER: no", 1);
	put_launch(&im[0], op, 2, NULL, 3);
	tb_op(&im[1], 1, DF_REC_OP_START, tb_issue(&im[1], 1, 1, DF_KIND_ALLREDUCE, 8, -1, 0));
}

static void missing(struct tb_image im[2])
{
	tb_issue(&im[0], 1, 0, DF_KIND_BROADCAST, 8, 0, 0);
}

static void left(struct tb_image im[2])
{
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 8, -1, 0);
	im[1].h->closed = 1;
}

static void destroyed(struct tb_image im[2])
{
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	tb_rec(&im[1], DF_REC_COMM_DESTROY, 0, 0, 0, 0)->comm = 1;
}

static void init(struct tb_image im[2])
{
	tb_rec(&im[0], DF_REC_CALL_ENTER, 77, DF_CALL_COMM_INIT, 0x9f3a, 2);
}

static void internal(struct tb_image im[2])
{
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	tb_rec(&im[1], DF_REC_CALL_ENTER, 78, DF_CALL_GROUP_END, 0, 0);
}

static void counts(struct tb_image im[2])
{
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	tb_issue(&im[1], 1, 1, DF_KIND_ALLREDUCE, 20, -1, 0);
}

static void finished(struct tb_image *im, int rank, uint64_t count, uint64_t index)
{
	uint64_t s = tb_issue(im, 1, rank, DF_KIND_ALLREDUCE, count, -1, index);

	tb_op(im, 1, DF_REC_OP_START, s);
	tb_op(im, 1, DF_REC_OP_DONE, s);
}

/* The second instance of its signature. */
static void places(struct tb_image im[2])
{
	for (int i = 0; i < 2; i++) {
		finished(&im[i], i, 10, 0);
		finished(&im[i], i, 20, 1);
		tb_issue(&im[i], 1, i, DF_KIND_ALLREDUCE, i ? 20 : 10, -1, 2);
		/* Rank 1 has left out the first operation, and has exited after the second. */
		tb_at(&im[i], im[i].h->next - 1)->b = 1;
		tb_rec(&im[i], DF_REC_CALL_ENTER, 79, DF_CALL_DEVICE_SYNC, 0, 0);
	}
}

/*
 * Rank 1 may send before its AllReduce, but may not receive, because the receive would overwrite
 * the AllReduce's input.
 */
static void left_out(struct tb_image im[2])
{
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	finished(&im[0], 0, 20, 1);
	finished(&im[1], 1, 20, 0);
	im[1].h->closed = 1;
}

static void sizes(struct tb_image im[2])
{
	uint64_t s = tb_issue(&im[0], 1, 0, DF_KIND_SEND, 1, 1, 0);

	tb_rec(&im[0], DF_REC_OP_START, s, 0, 0, 0)->comm = 1;
	tb_rec(&im[0], DF_REC_OP_DONE, s, 0, 0, 0)->comm = 1;
	tb_issue(&im[1], 1, 1, DF_KIND_RECV, 3, 0, 0);
}

static void silent(struct tb_image im[2])
{
	for (int i = 0; i < 2; i++) {
		uint64_t s = tb_issue(&im[i], 1, i, DF_KIND_ALLREDUCE, i ? 20 : 10, -1, 0);

		tb_rec(&im[i], DF_REC_OP_START, s, 0, 0, 0)->comm = 1;
		tb_rec(&im[i], DF_REC_OP_DONE, s, 0, 0, 0)->comm = 1;
	}
}

static void part(struct tb_image *im, int rank, int kind, uint64_t send, uint64_t recv,
		 uint32_t group)
{
	uint64_t s = tb_issue(im, group ? 1 : 2, rank, kind, 8, group ? 1 - rank : -1, 0),
		 n = im->h->next;
	struct df_rec *args = tb_at(im, n - 2);

	args->a = send;
	args->b = recv;
	args->c |= (uint64_t)group << 32;
	if (!rank == (group != 0))
		tb_op(im, group ? 1 : 2, DF_REC_OP_START, s);
}

/*
 * Rank 1 waits for an operation that rank 0 has issued after another one, which rank 1 has not
 * issued yet.
 */
static void groups(struct tb_image im[2])
{
	for (int i = 0; i < 2; i++) {
		tb_comm(&im[i], 0xdef, 2, i, 0);
		if (i)
			part(&im[i], i, DF_KIND_ALLREDUCE, 0x1000, 0x1000, 0);
		part(&im[i], i, DF_KIND_SEND, 0x2000, 0, 1);
		part(&im[i], i, DF_KIND_RECV, 0, 0x1000, 1);
		if (i)
			continue;
		tb_rec(&im[i], DF_REC_STREAM_WORK, 99, 0, 1ULL << 32, 1);
		part(&im[i], i, DF_KIND_ALLREDUCE, 0x3000, 0x3000, 0);
	}
}

/*
 * Rank 1's thread waits in a socket. Rank 0's thread waits for an operation that rank 1 has not
 * issued.
 */
static void pending(struct tb_image im[2])
{
	for (int i = 0; i < 2; i++)
		tb_comm(&im[i], 0xdef, 2, i, 0);
	tb_op(&im[0], 2, DF_REC_OP_START, tb_issue(&im[0], 2, 0, DF_KIND_ALLREDUCE, 8, -1, 0));
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 8, -1, 0);
	tb_op(&im[1], 1, DF_REC_OP_START, tb_issue(&im[1], 1, 1, DF_KIND_ALLREDUCE, 8, -1, 0));
	tb_rec(&im[1], DF_REC_CALL_ENTER, 79, DF_CALL_STREAM_SYNC, 1, 0);
}

/* The watchdog's thread writes this record. */
static void outside(struct tb_image im[2])
{
	tb_issue(&im[0], 1, 0, DF_KIND_ALLREDUCE, 8, -1, 0);
	tb_rec(&im[0], DF_REC_CALL_ENTER, 79, DF_CALL_STREAM_SYNC, 1, 0);
	tb_rec(&im[1], DF_REC_THREAD, 0, im[1].h->pid, 0, 0);
	im[1].clock += 1000000;
	/* name in scenarios.txt; if NULL, `make` makes the traces */
	tb_rec(&im[1], DF_REC_HOST_AT, 0, im[1].h->pid, DF_AT_IO, 45)->thread = 1;
}

static const struct golden {
	const char *name;
	enum df_verdict word;
	/* 1 the last rank's trace is missing, 2 the first rank's trace is cut off */
	const char *scenario;
	void (*make)(struct tb_image im[2]);
	uint32_t rules;
	int nr, live;
	uint64_t quiet_ms;
	/*
	 * `dfshim check` must print the same and exit with the word's status. It never judges a
	 * living job.
	 */
	int partial;
} goldens[] = {
	{"OK", DF_V_OK, "GS-08", NULL, 1, 0, 0, 0, 0},
	{"ORDER", DF_V_ORDER, "SQ-01", NULL, 1, 0, 0, 0, 0},
	{"ORDER-missing-trace", DF_V_ORDER, "SQ-04", NULL, 1, 0, 0, 0, 1},
	{"ORDER-cut-trace", DF_V_ORDER, "SQ-04", NULL, 1, 0, 0, 0, 2},
	{"ORDER-hazard", DF_V_ORDER, "SQ-02", NULL, 1, 0, 0, 0, 0},
	{"ORDER-buffers", DF_V_ORDER, NULL, groups, 1, 2, 0, 60000, 0},
	{"ORDER-pending", DF_V_ORDER, NULL, pending, 1, 2, 0, 60000, 0},
	{"DATA-square", DF_V_DATA, "EX-01", NULL, 1, 0, 0, 0, 0},
	{"ORDER-exchanges", DF_V_ORDER, "EX-02", NULL, 1, 0, 0, 0, 0},
	{"RESOURCE", DF_V_RESOURCE, "PD-03", NULL, 1, 0, 0, 0, 0},
	{"SYNC", DF_V_SYNC, "GS-01", NULL, 1, 0, 0, 0, 0},
	{"DATA", DF_V_DATA, "GS-02", NULL, 1, 0, 0, 0, 0},
	{"CRASH", DF_V_CRASH, "CR-01", NULL, 1, 0, 0, 0, 0},
	{"GPU_STUCK", DF_V_GPU_STUCK, "OL-04", NULL, 1, 0, 0, 0, 0},
	{"GPU_STUCK-named", DF_V_GPU_STUCK, NULL, opaque, 1, 2, 0, 60000, 0},
	{"MISMATCH", DF_V_MISMATCH, "CB-02", NULL, 1, 0, 0, 0, 0},
	{"MISMATCH-signatures", DF_V_MISMATCH, NULL, counts, 0, 2, 0, 60000, 0},
	{"MISMATCH-places", DF_V_MISMATCH, NULL, places, 0, 2, 0, 60000, 0},
	{"MISMATCH-left-out", DF_V_MISMATCH, NULL, left_out, 0, 2, 0, 60000, 0},
	{"MISMATCH-sizes", DF_V_MISMATCH, NULL, sizes, 1, 2, 0, 60000, 0},
	{"MISMATCH-completed", DF_V_MISMATCH, NULL, silent, 1, 2, 0, 0, 0},
	{"MISSING", DF_V_MISSING, NULL, missing, 1, 2, 0, 60000, 0},
	{"MISSING-destroyed", DF_V_MISSING, NULL, destroyed, 1, 2, 0, 60000, 0},
	{"MISSING-exited", DF_V_MISSING, NULL, left, 1, 2, 0, 60000, 0},
	{"SLOW", DF_V_SLOW, NULL, missing, 1, 2, 1, 40000, 0},
	{"INIT", DF_V_INIT, NULL, init, 1, 2, 0, 60000, 0},
	{"HOST", DF_V_HOST, "CB-04", NULL, 1, 0, 0, 0, 0},
	{"HOST-outside", DF_V_HOST, NULL, outside, 1, 2, 0, 60000, 0},
	{"NET_STALL", DF_V_NET_STALL, NULL, net_stall, 1, 2, 0, 60000, 0},
	{"NET_STALL-hardware", DF_V_NET_STALL, NULL, net_fault, 1, 2, 0, 60000, 0},
	{"NCCL_INTERNAL", DF_V_NCCL_INTERNAL, NULL, internal, 1, 2, 0, 60000, 0},
	{"UNKNOWN", DF_V_UNKNOWN, NULL, missing, 1, 1, 0, 60000, 0},
};

static int from_scenario(const char *name, struct tb_image *im)
{
	struct tb_opts opts = {.crash = !strncmp(name, "CR-", 3)};
	FILE *f = tb_open("scenarios.txt");
	struct tb_prog p;
	int nr = 0;

	while (tb_read(f, &p)) {
		if (!nr && !strcmp(p.name, name)) {
			tb_run(&p.p, &opts, im);
			nr = p.p.nr_ranks;
		}
		df_mprog_fini(&p.p);
	}
	fclose(f);
	ck_assert_msg(nr > 0, "%s is not in scenarios.txt", name);
	return nr;
}

static int by_hand(const struct golden *g, struct tb_image *im)
{
	for (int i = 0; i < 2; i++) {
		tb_image_init(&im[i], i, 2, 64);
		im[i].h->rules = g->rules;
		tb_rec(&im[i], DF_REC_PROC_START, 0, 0, 0, 0);
		tb_comm(&im[i], 0xabc, 2, i, 0);
	}
	g->make(im);
	for (int i = 0; i < 2 && g->quiet_ms; i++)
		if (!im[i].h->closed)
			tb_quiet(&im[i], g->quiet_ms);
	if (g->nr < 2)
		tb_image_fini(&im[1]);
	return g->nr;
}

static void put_file(const char *path, const void *data, size_t bytes)
{
	FILE *f = fopen(path, "w");

	ck_assert_msg(f && fwrite(data, 1, bytes, f) == bytes && !fclose(f), "%s: %s", path,
		      strerror(errno));
}

static char *get_file(const char *path)
{
	FILE *f = fopen(path, "r");
	char *text = calloc(1, 1 << 18);
	size_t n;

	ck_assert_msg(f != NULL, "%s: %s", path, strerror(errno));
	n = fread(text, 1, (1 << 18) - 1, f);
	text[n] = 0;
	fclose(f);
	return text;
}

static void compare(const struct golden *g, const char *ending, const char *text)
{
	char path[512], *want;

	snprintf(path, sizeof(path), "%s/tests/trace/golden/%s.%s",
		 getenv("SRC") ? getenv("SRC") : ".", g->name, ending);
	if (getenv("UPDATE"))
		put_file(path, text, strlen(text));
	want = get_file(path);
	ck_assert_msg(!strcmp(want, text), "%s differs; wanted:\n%s\ngot:\n%s", path, want, text);
	free(want);
}

/* Checks that no two labels of arrows cover one another: a character is 5 to 6 pixels wide. */
static void are_apart(const char *name, const char *svg)
{
	static struct {
		int x, y, half;
		const char *text;
	} v[256];
	size_t nr = 0;

	for (const char *p = svg; (p = strstr(p, "class=\"why\"")) && nr < 256; p++) {
		const char *line = p, *end;

		while (line > svg && line[-1] != '\n')
			line--;
		ck_assert_int_eq(sscanf(line, "<text x=\"%d\" y=\"%d\"", &v[nr].x, &v[nr].y), 2);
		v[nr].text = strchr(p, '>') + 1;
		end = strchr(v[nr].text, '<');
		v[nr].half = (int)(end - v[nr].text) * 5 / 2;
		for (size_t i = 0; i < nr; i++)
			ck_assert_msg(abs(v[i].x - v[nr].x) >= v[i].half + v[nr].half ||
					      abs(v[i].y - v[nr].y) >= 11,
				      "%s: labels at %d, %d and %d, %d: %.20s, %.20s", name, v[i].x,
				      v[i].y, v[nr].x, v[nr].y, v[i].text, v[nr].text);
		nr++;
	}
}

START_TEST(test_golden)
{
	const struct golden *g = &goldens[_i];
	const struct df_check_opts opts = {.live = g->live};
	struct tb_image im[DF_MODEL_RANKS];
	struct df_check_set *set = df_check_set_new();
	char dir[256], path[400], command[2000], *text = NULL;
	struct df_check_result *r;
	size_t n;
	int nr, rc;
	FILE *f;

	snprintf(dir, sizeof(dir), "%s/golden-%s", getenv("T") ? getenv("T") : "/tmp", g->name);
	ck_assert(!mkdir(dir, 0777) || errno == EEXIST);
	nr = g->scenario ? from_scenario(g->scenario, im) : by_hand(g, im);
	for (int i = 0; i < nr; i++) {
		snprintf(path, sizeof(path), "%s/r%d.dft", dir, i);
		if (g->partial != 1 || i + 1 < nr)
			put_file(path, im[i].h,
				 g->partial == 2 && !i
					 ? im[i].h->off_recs + 20 * sizeof(struct df_rec) + 7
					 : im[i].bytes);
		tb_image_fini(&im[i]);
	}
	ck_assert_int_eq(df_check_add_dir(set, dir), 0);
	ck_assert_int_eq(df_check_run(set, &opts, &r), 0);
	ck_assert_msg(df_check_verdict(r) == g->word, "%s: %s", g->name, df_check_line(r));
	for (int json = 0; json < 2; json++) {
		f = open_memstream(&text, &n);
		if (json)
			df_check_print_json(r, f);
		else
			df_check_print(r, f);
		fclose(f);
		compare(g, json ? "json" : "txt", text);
		free(text);
	}
	/* Every verdict word has a golden report. */
	if (getenv("B") && !g->live) {
		snprintf(command, sizeof(command),
			 "%s/dfshim check '%s' >'%s/out' 2>&1; rc=$?; cmp -s '%s/out' "
			 "'%s/tests/trace/golden/%s.txt' || exit 99; exit $rc",
			 getenv("B"), dir, dir, dir, getenv("SRC") ? getenv("SRC") : ".", g->name);
		rc = system(command);
		ck_assert_msg(WIFEXITED(rc) && WEXITSTATUS(rc) == df_verdict_exit(g->word),
			      "%s: dfshim check ends with %d", g->name, WEXITSTATUS(rc));
		snprintf(command, sizeof(command),
			 "{ %s/dfshim graph '%s' -o '%s/x.svg' && %s/dfshim report '%s' -o "
			 "'%s/x.html' && grep -q '^</svg>' '%s/x.svg'; } >'%s/out' 2>&1",
			 getenv("B"), dir, dir, getenv("B"), dir, dir, dir, dir);
		rc = system(command);
		snprintf(path, sizeof(path), "%s/out", dir);
		text = get_file(path);
		ck_assert_msg(!rc, "%s: no picture or report: %s", g->name, text);
		free(text);
		snprintf(path, sizeof(path), "%s/x.svg", dir);
		text = get_file(path);
		are_apart(g->name, text);
		free(text);
	}
	df_check_result_free(r);
	df_check_set_free(set);
}
END_TEST

/* Each word that there is has its report. */
START_TEST(test_all_words)
{
	for (int v = 0; v <= DF_V_UNKNOWN; v++) {
		size_t i = 0;

		while (i < sizeof(goldens) / sizeof(*goldens) && (int)goldens[i].word != v)
			i++;
		ck_assert_msg(i < sizeof(goldens) / sizeof(*goldens) ||
				      !strcmp(df_verdict_word((enum df_verdict)v), "?") ||
				      (v != DF_V_UNKNOWN &&
				       !strcmp(df_verdict_word((enum df_verdict)v), "UNKNOWN")),
			      "%s has no golden report", df_verdict_word((enum df_verdict)v));
	}
}
END_TEST

int main(void)
{
	return DF_TESTS("golden", {test_golden, sizeof(goldens) / sizeof(*goldens)},
			{test_all_words});
}
