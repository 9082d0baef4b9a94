/*
 * Makes the files of hanging jobs of 64 and 1,024 ranks, fewer where SLOW is set. The output of
 * `dfshim check` fits on one or two screens, and `dfshim report` makes a page of bounded size.
 * Ranks that do the same are one line, and one group in the JSON. The ranks that differ are above,
 * with machine, process and GPU. `dfshim predict` ends even if two threads of each rank have many
 * orders.
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

#define PER_NODE   8
#define THREAD_OPS 24	     /* operations of each of two threads */
#define ROUNDS	   3	     /* operations that have finished */
#define LINES	   70	     /* one or two screens */
#define PAGE	   (1 << 20) /* in bytes */

enum { WORLD = 1, NODE, ACROSS }; /* communicators of each rank */

/* A job of 64 or 1,024 ranks on nodes of eight. */
struct shape {
	const char *name;
	void (*end)(struct tb_image *im, int k, int nr); /* records the last steps of rank k */
	int status;					 /* exit status of dfshim check */
	const char *lines[4]; /* lines of its output; with both numbers of ranks */
};

/*
 * Records that the main thread is at this line of a script, in `call` or (DF_CALL_NONE) in a wait
 * that is not recorded.
 */
static void wait_at(struct tb_image *im, const char *line, enum df_call call)
{
	uint32_t site = (uint32_t)strlen(line);
	struct df_rec *rec;

	tb_site(im, site, line);
	if (call != DF_CALL_NONE) {
		rec = tb_rec(im, DF_REC_CALL_ENTER, 77, call, 1, 0);
		rec->site = site;
		rec->device = (uint16_t)tb_comm_at(im, WORLD)->device;
	}
	/* The watchdog's thread records where the other threads are. */
	rec = tb_rec(im, DF_REC_HOST_AT, 0, im->h->pid, DF_AT_IO, 0);
	rec->site = site;
	rec->thread = 1;
}

static uint64_t issue(struct tb_image *im, uint32_t comm, int rank, int kind, int peer,
		      uint64_t index)
{
	return tb_issue(im, comm, rank, kind, 1 << 20, peer, index);
}

static void finish(struct tb_image *im, uint32_t comm, uint64_t serial)
{
	tb_op(im, comm, DF_REC_OP_START, serial);
	tb_op(im, comm, DF_REC_OP_DONE, serial);
}

static void begin(struct tb_image *im, uint32_t comm, int rank, int kind, int peer, uint64_t index)
{
	tb_op(im, comm, DF_REC_OP_START, issue(im, comm, rank, kind, peer, index));
}

/* One node loads data. The other ranks wait for it in the AllReduce of the gradients. */
static void loads(struct tb_image *im, int k, int nr)
{
	(void)nr;
	if (k / PER_NODE == 5) {
		wait_at(im, "/job/data.py:41 load", DF_CALL_NONE);
		return;
	}
	issue(im, WORLD, k, DF_KIND_ALLREDUCE, -1, ROUNDS);
	wait_at(im, "/job/step.py:88 train", DF_CALL_STREAM_SYNC);
}

/* Each rank of a ring receives before it sends. */
static void ring(struct tb_image *im, int k, int nr)
{
	begin(im, WORLD, k, DF_KIND_RECV, (k + nr - 1) % nr, 0);
	issue(im, WORLD, k, DF_KIND_SEND, (k + 1) % nr, 0);
	wait_at(im, "/job/ring.py:7 exchange", DF_CALL_STREAM_SYNC);
}

/* Odd nodes use their node's communicator first, even nodes the one across nodes. */
static void orders(struct tb_image *im, int k, int nr)
{
	int odd = k / PER_NODE % 2;

	(void)nr;
	begin(im, odd ? WORLD : ACROSS, odd ? k : k / PER_NODE, DF_KIND_ALLREDUCE, -1, ROUNDS);
	issue(im, odd ? ACROSS : WORLD, odd ? k / PER_NODE : k, DF_KIND_ALLREDUCE, -1, ROUNDS);
	wait_at(im, odd ? "/job/a.py:3 odd" : "/job/b.py:14 even", DF_CALL_STREAM_SYNC);
}

/* On every node an operation runs on all ranks and does not end. */
static void network(struct tb_image *im, int k, int nr)
{
	(void)nr;
	begin(im, NODE, k % PER_NODE, DF_KIND_REDUCESCATTER, -1, ROUNDS);
	wait_at(im, "/job/step.py:90 reduce", DF_CALL_STREAM_SYNC);
}

/*
 * Everything has finished. The ranks of the last node sent to a neighbour before they received;
 * NCCL's buffers had room for these messages.
 */
static void finishes(struct tb_image *im, int k, int nr)
{
	for (int recv = 0; k >= nr - PER_NODE && recv < 2; recv++)
		finish(im, WORLD,
		       issue(im, WORLD, k, recv ? DF_KIND_RECV : DF_KIND_SEND, k ^ 1, 0));
	im->h->closed = 1;
}

/*
 * Each of two threads uses its own communicator and synchronises its stream after each operation.
 */
static void use_threads(struct tb_image *im, int k, int shared)
{
	for (uint64_t i = 0; i < 2 * THREAD_OPS; i++) {
		uint32_t comm = i % 2 ? NODE : ACROSS, thread = im->h->pid + (i % 2 ? 5000 : 0);
		uint64_t at = im->h->next, stream = shared ? 1 : 1 + i % 2, call = 1000 + i;

		finish(im, comm,
		       issue(im, comm, i % 2 ? k % PER_NODE : k / PER_NODE, DF_KIND_ALLREDUCE, -1,
			     ROUNDS + i / 2));
		tb_at(im, at)->c = stream;
		tb_rec(im, DF_REC_CALL_ENTER, call, DF_CALL_STREAM_SYNC, stream, 0);
		tb_rec(im, DF_REC_CALL_EXIT, call, DF_CALL_STREAM_SYNC, 0, 0);
		for (; at < im->h->next; at++)
			tb_at(im, at)->thread = thread;
	}
	im->h->closed = 1;
}

/* Everything has finished, and would finish in any order of the threads. */
static void threads(struct tb_image *im, int k, int nr)
{
	(void)nr;
	use_threads(im, k, 0);
}

/* Everything has finished, but the threads share a stream, so another order would hang. */
static void stream(struct tb_image *im, int k, int nr)
{
	(void)nr;
	use_threads(im, k, 1);
}

static const struct shape shapes[] = {
	{"loads",
	 loads,
	 40,
	 {"Ranks that do the same, the fewest first:\n"
	  "  8 ranks, r40-r47: in a wait outside NCCL and CUDA; at data.py:41 load; nothing "
	  "unfinished\n"
	  "    node5: r40 pid 1040 GPU 0, r41 pid 1041 GPU 1, ",
	  "  %d ranks, r0-r39, r48-r%d: in cudaStreamSynchronize at step.py:88 train; first "
	  "unfinished: #4 AllReduce(1048576 x float32, sum), not started\n"}},
	{"ring", ring, 10, {"r%d -> ", "more) -> r0 over ", "more waits\n"}},
	{"orders", orders, 10, {"  %d ranks, r8-r15, r24-r31", " at a.py:3 odd"}},
	{"network", network, 32, {" more of 8 ranks, 8 with a trace\n"}},
	{"finishes", finishes, 0, {"OK: "}},
	{"threads", threads, 0, {"OK: "}},
	{"stream", stream, 0, {"OK: "}},
};

static void make(const struct shape *s, int nr, const char *dir)
{
	for (int k = 0; k < nr; k++) {
		const int ranks[] = {0, k, k % PER_NODE, k / PER_NODE};
		struct tb_image im;
		char path[400];
		FILE *f;

		tb_image_init(&im, k, nr, s->status ? 128 : 512);
		im.h->rules = 1;
		im.h->host_hash = 100 + (uint64_t)k / PER_NODE;
		snprintf(im.h->host, sizeof(im.h->host), "node%d", k / PER_NODE);
		tb_rec(&im, DF_REC_PROC_START, 0, 0, 0, 0);
		tb_comm(&im, 0x1, nr, k, k % PER_NODE);
		tb_comm(&im, 0x1000 + (uint64_t)k / PER_NODE, PER_NODE, k % PER_NODE, k % PER_NODE);
		tb_comm(&im, 0x2000 + (uint64_t)k % PER_NODE, nr / PER_NODE, k / PER_NODE,
			k % PER_NODE);
		for (uint64_t i = 0; i < ROUNDS; i++)
			for (uint32_t c = WORLD; c <= ACROSS; c++)
				finish(&im, c, issue(&im, c, ranks[c], DF_KIND_ALLREDUCE, -1, i));
		s->end(&im, k, nr);
		tb_quiet(&im, 60000);
		snprintf(path, sizeof(path), "%s/r%d.dft", dir, k);
		f = fopen(path, "w");
		ck_assert_msg(f && fwrite(im.h, 1, im.bytes, f) == im.bytes && !fclose(f), "%s: %s",
			      path, strerror(errno));
		tb_image_fini(&im);
	}
}

static char *run(const char *what, const char *dir, int want)
{
	char command[1000], *text = calloc(1, PAGE + 1);
	size_t nr;
	FILE *f;
	int rc;

	snprintf(command, sizeof(command), what, getenv("B") ? getenv("B") : "build", dir, dir,
		 dir);
	f = popen(command, "r");
	ck_assert_msg(f && text, "%s", command);
	nr = fread(text, 1, PAGE, f);
	ck_assert_msg(fgetc(f) == EOF, "%s: more than %d bytes", command, PAGE);
	rc = pclose(f);
	ck_assert_msg(nr && WIFEXITED(rc) && WEXITSTATUS(rc) == want, "%s: status %d", command, rc);
	return text;
}

START_TEST(test_shape)
{
	const struct shape *s = &shapes[_i / 2];
	int nr = _i % 2 ? 1024 / df_test_slow() : 64, lines = 0;
	char dir[256], line[400], *text;

	snprintf(dir, sizeof(dir), "%s/%s-%d", getenv("T") ? getenv("T") : "/tmp", s->name, nr);
	ck_assert(!mkdir(dir, 0777) || errno == EEXIST);
	make(s, nr, dir);
	text = run("%s/dfshim check %s", dir, s->status);
	for (const char *at = text; (at = strchr(at, '\n')); at++)
		lines++;
	ck_assert_msg(lines <= LINES, "%d lines:\n%s", lines, text);
	for (int i = 0; i < 4 && s->lines[i]; i++) {
		/* In "loads" all nodes but one are alike, in "orders" half of them. */
		int first = s->end == loads ? nr - PER_NODE : s->end == orders ? nr / 2 : nr - 1;

		snprintf(line, sizeof(line), s->lines[i], first, nr - 1);
		ck_assert_msg(strstr(text, line) != NULL, "no \"%s\" in\n%s", line, text);
	}
	free(text);
	if (s->end == loads) {
		text = run("%s/dfshim check --json %s", dir, s->status);
		ck_assert_msg(strstr(text, "\"alike\":[{\"ranks\":[40,41,42,43,44,45,46,47],"
					   "\"state\":\"in a wait outside NCCL and CUDA; "
					   "at data.py:41 load; nothing unfinished\",\"processes\":"
					   "[{\"rank\":\"r40\",\"host\":\"node5\",\"pid\":1040,"
					   "\"device\":0},"),
			      "no group r40-r47");
		free(text);
	}
	text = run("%s/dfshim report %s -o %s/html >&2 && cat %s/html", dir, 0);
	for (int i = 0; i < nr; i += nr - 1) {
		snprintf(line, sizeof(line), "<td>%d<td>node%d<td>%d<td>", 1000 + i, i / PER_NODE,
			 i % PER_NODE);
		ck_assert_msg(strstr(text, line) != NULL, "no process \"%s\"", line);
	}
	/* The timeline draws only as many processes as a browser's canvas can hold. */
	lines = 0;
	for (const char *at = strstr(text, "\"procs\""); at && (at = strstr(at, "\"rank ")); at++)
		lines++;
	ck_assert_msg(lines == 32, "%d processes in the timeline", lines);
	free(text);
	if (s->status)
		return;
	text = run("%s/dfshim predict %s", dir, s->end == threads ? 0 : 14);
	snprintf(line, sizeof(line), "\nr%d runs Send to r%d", nr - PER_NODE, nr - PER_NODE + 1);
	ck_assert_msg(strstr(text, s->end == threads  ? "no potential deadlock"
				   : s->end == stream ? "an interleaving of the threads deadlocks"
						      : line) != NULL,
		      "no \"%s\" in\n%s", line, text);
	ck_assert_msg(s->end != finishes || strstr(text, "when messages are not buffered"), "%s",
		      text);
	if (s->end == threads && nr == 64) /* With slots any rank may be ahead. */
		free(run("%s/dfshim predict --slots 4 %s", dir, 0));
	snprintf(line, sizeof(line), "r7 and %d more ranks was not recorded", nr - 8);
	ck_assert_msg(s->end != stream || strstr(text, line), "no \"%s\" in\n%s", line, text);
	free(text);
}
END_TEST

int main(void)
{
	return DF_TESTS("many", {test_shape, 2 * sizeof(shapes) / sizeof(*shapes)});
}
