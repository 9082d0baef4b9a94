/*
 * The writer. Appended records can be read back, with any number of writers, after any number of
 * wraps of the ring, and if the process is killed at any time. Records carry a checksum, so a torn
 * one is found.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "tests/lib/test.h"
#include "trace/check.h"
#include "trace/record/trace_hash.h"
#include "trace/read/reader.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

static char dir[64];

static void make_dir(void)
{
	snprintf(dir, sizeof(dir), "/tmp/dfshim-t-writer-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void drop_dir(void)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	ck_assert_int_eq(system(cmd), 0);
}

/* Appends a record whose fields a, b, c and op follow from x. */
static void append(uint64_t x, uint32_t comm)
{
	df_trace(DF_REC_OP_ISSUE, (int)(x & 7), comm, (int)(x & 1023), x, df_mix64(x),
		 df_mix64(x + 1), df_mix64(x + 2), (uint32_t)df_mix64(x + 3));
}

static int whole(const struct df_rec *r)
{
	uint64_t x = r->op;

	return r->a == df_mix64(x) && r->b == df_mix64(x + 1) && r->c == df_mix64(x + 2) &&
	       r->site == (uint32_t)df_mix64(x + 3) && r->device == (x & 7) &&
	       r->rank == (int32_t)(x & 1023);
}

/* Appends an operation, which fills two slots. All its fields follow from x. */
static void append_op(uint64_t x, uint32_t comm)
{
	df_trace_op(&(struct df_trace_op){
		.op = x,
		.count = df_mix64(x + 1),
		.stream = df_mix64(x + 2),
		.send = (void *)(uintptr_t)df_mix64(x + 4),
		.recv = (void *)(uintptr_t)df_mix64(x + 5),
		.comm = comm,
		.group = (uint32_t)df_mix64(x + 6),
		.site = (uint32_t)df_mix64(x + 3),
		.proto = (uint8_t)(df_mix64(x) >> 32),
		.program = (uint32_t)(df_mix64(x) >> 40),
		.device = (int)(x & 7),
		.rank = (int)(x & 1023),
		.peer = (int32_t)(x & 0xff) - 1,
		.kind = (uint8_t)df_mix64(x),
		.type = (uint8_t)(df_mix64(x) >> 8),
		.redop = (uint8_t)(df_mix64(x) >> 16),
		.flags = (uint8_t)(df_mix64(x) >> 24),
		.matched = x % 4 != 1,
		.sig = df_mix64(x + 7),
		.inst = df_mix64(x + 8),
		.index = x,
		.after = x % 4 == 2 ? x - 1 : 0,
	});
}

static int reduced;

/* Whether a record that the reader made from an operation's second slot is whole. */
static int rest_whole(const struct df_rec *r)
{
	uint64_t x = r->op;

	if (r->site != (uint32_t)df_mix64(x + 3) || r->device != (x & 7) ||
	    r->rank != (int32_t)(x & 1023))
		return 0;
	if (r->type == DF_REC_OP_ARGS)
		return r->a == df_mix64(x + 4) && r->b == df_mix64(x + 5) &&
		       r->c == ((x & 0xff) | df_mix64(x + 6) << 32);
	/* In a reduced ring this record also has the index of an operation that NCCL executes. */
	if (r->type == DF_REC_OP_MATCH && x % 4 == 1)
		return reduced && df_mix64(x) >> 24 & DF_OP_BY_NCCL && r->b == r->c;
	if (r->type == DF_REC_OP_MATCH)
		return r->a == df_mix64(x + 7) && r->b == df_mix64(x + 8) &&
		       (reduced || r->c == x); /* a reduced ring has counted again */
	return x % 4 == 2 && r->a == x - 1;
}

static uint64_t check_reader(struct df_reader *r)
{
	const struct df_rec *rec;
	uint64_t index, nr = 0;

	while ((rec = df_reader_next(r, &index))) {
		/* Records that a test wrote itself have no site. */
		if (rec->site && (rec->type == DF_REC_OP_ARGS || rec->type == DF_REC_OP_MATCH ||
				  rec->type == DF_REC_OP_DEP))
			ck_assert_msg(rest_whole(rec),
				      "record %llu: the rest of operation %llx is torn: type %u, "
				      "%llx %llx %llx",
				      (unsigned long long)index, (unsigned long long)rec->op,
				      rec->type, (unsigned long long)rec->a,
				      (unsigned long long)rec->b, (unsigned long long)rec->c);
		ck_assert_uint_ne(rec->type, DF_REC_OP_REST);
		if (rec->type != DF_REC_OP_ISSUE)
			continue;
		ck_assert_msg(whole(rec), "record %llu is torn", (unsigned long long)index);
		nr++;
	}
	return nr;
}

static void open_trace(const char *where, long mb)
{
	struct df_trace_config cfg = {
		.dir = where, .mb = mb, .rank = 3, .world = 8, .rules = 1, .slots = 4, .queues = 8};

	ck_assert_int_eq(df_trace_open(&cfg), 0);
}

START_TEST(test_round_trip)
{
	struct df_reader r;
	struct df_rec rec;
	const char *why;
	char path[4096];
	uint32_t comm;

	make_dir();
	open_trace(dir, 1);
	snprintf(path, sizeof(path), "%s", df_trace_path());
	comm = df_trace_comm(0x1234, 8, 3, 1, 0x99, "world");
	ck_assert_uint_ne(comm, 0);
	for (uint64_t i = 0; i < 1000; i++)
		append_op(i, comm);
	df_trace_comm_done(comm);
	ck_assert_uint_eq(df_trace_text("hello"), df_trace_text("hello"));
	ck_assert_uint_ne(df_trace_text("hello"), df_trace_text("world"));
	df_trace_close();
	append(1, comm); /* not recorded, because the trace is closed */
	ck_assert_int_eq(df_reader_open(&r, path, &why), 0);
	ck_assert_uint_eq(check_reader(&r), 1000);
	ck_assert_uint_eq(r.nr_torn, 0);
	ck_assert_int_eq(r.h.rank, 3);
	ck_assert_uint_eq(r.h.closed, 1);
	ck_assert_uint_eq(r.h.slots, 4);
	ck_assert_str_eq(df_reader_comm(&r, comm)->name, "world");
	ck_assert_uint_eq(df_reader_comm(&r, comm)->issued, 1000);
	ck_assert_uint_eq(df_reader_comm(&r, comm)->done, 1);
	ck_assert_ptr_null(df_reader_comm(&r, comm + 1));
	ck_assert_int_eq(df_reader_get(&r, 5, &rec), 0);
	ck_assert_int_lt(df_reader_get(&r, 1u << 20, &rec), 0);
	df_reader_close(&r);
	drop_dir();
}
END_TEST

/*
 * The records of one operation are in order and in two slots. If the first slot is overwritten, no
 * record of the operation remains.
 */
START_TEST(test_operations)
{
	static const uint32_t types[4][4] = {
		{DF_REC_OP_ISSUE, DF_REC_OP_ARGS, DF_REC_OP_MATCH},
		{DF_REC_OP_ISSUE, DF_REC_OP_ARGS},
		{DF_REC_OP_ISSUE, DF_REC_OP_ARGS, DF_REC_OP_MATCH, DF_REC_OP_DEP},
		{DF_REC_OP_ISSUE, DF_REC_OP_ARGS, DF_REC_OP_MATCH}};
	const uint64_t far = (1ull << 33) + 1;
	struct df_reader r;
	const struct df_rec *rec;
	const char *why;
	uint64_t index, before, far_after = 0;
	uint32_t comm;

	open_trace(NULL, 1);
	comm = df_trace_comm(1, 2, 0, 0, 0, NULL);
	before = df_trace_ring()->next;
	for (uint64_t x = 0; x < 8000; x++)
		append_op(x, comm);
	ck_assert_uint_eq(df_trace_ring()->next, before + 2 * 8000);
	ck_assert_int_eq(df_reader_open_image(&r, df_trace_ring(), df_trace_ring_bytes(), &why), 0);
	while ((rec = df_reader_next(&r, &index)) && index < before)
		;
	for (uint64_t x = 0; x < 8000; x++)
		for (int k = 0; k < 4 && types[x % 4][k]; k++) {
			ck_assert_ptr_nonnull(rec);
			ck_assert_uint_eq(rec->type, types[x % 4][k]);
			ck_assert_uint_eq(rec->op, x);
			ck_assert_uint_eq(index, before + 2 * x + (k > 0));
			ck_assert(rec->type == DF_REC_OP_ISSUE ? whole(rec) : rest_whole(rec));
			rec = df_reader_next(&r, &index);
		}
	ck_assert_ptr_null(rec);
	ck_assert_uint_eq(df_reader_comm(&r, comm)->issued, 8000);
	df_reader_close(&r);

	/*
	 * One record more than fits overwrites the oldest operation's first slot, so its second
	 * slot gives no record.
	 */
	df_trace(DF_REC_MARK, -1, 0, -1, 0, 0, 0, 0, 0);
	while (df_trace_ring()->next < df_trace_ring()->nr_recs + before + 1)
		df_trace(DF_REC_MARK, -1, 0, -1, 0, 0, 0, 0, 0);
	ck_assert_int_eq(df_reader_open_image(&r, df_trace_ring(), df_trace_ring_bytes(), &why), 0);
	rec = df_reader_next(&r, &index);
	ck_assert_uint_eq(index, before + 2);
	ck_assert_uint_eq(rec->op, 1);
	check_reader(&r);
	df_reader_close(&r);

	/* A dependency that is too far away for its field in the slot has a record of its own. */
	df_trace_op(&(struct df_trace_op){.op = far, .comm = comm, .after = 1});
	ck_assert_int_eq(df_reader_open_image(&r, df_trace_ring(), df_trace_ring_bytes(), &why), 0);
	while ((rec = df_reader_next(&r, &index)))
		if (rec->op == far && rec->type == DF_REC_OP_DEP)
			far_after = rec->a;
	ck_assert_uint_eq(far_after, 1);
	df_reader_close(&r);
	df_trace_close();
}
END_TEST

START_TEST(test_wraps_and_counts_drops)
{
	const struct df_trace_comm *c;
	struct df_reader r;
	const char *why;
	uint32_t comm;

	open_trace(NULL, 1); /* 16,384 records */
	comm = df_trace_comm(1, 2, 0, 0, 0, NULL);
	for (uint64_t i = 0; i < 50000; i++)
		append(i, comm);
	for (uint64_t i = 0; i < 20000; i++)
		df_trace(DF_REC_OP_MATCH, 0, comm, 0, i, 0, 0, i, 0);
	ck_assert_int_eq(df_reader_open_image(&r, df_trace_ring(), df_trace_ring_bytes(), &why), 0);
	c = df_reader_comm(&r, comm);
	check_reader(&r);
	ck_assert_uint_eq(r.nr_valid, 16384);
	ck_assert_uint_eq(r.nr_torn, 0);
	ck_assert_uint_eq(c->drops, 50000 + 20000 - 16384);
	ck_assert_uint_eq(c->last_dropped, 20000 - 16384 - 1);
	df_reader_close(&r);
	for (uint64_t i = 0; i < 30000; i++)
		append_op(i * 4, comm);
	ck_assert_int_eq(df_reader_open_image(&r, df_trace_ring(), df_trace_ring_bytes(), &why), 0);
	check_reader(&r);
	ck_assert_uint_eq(r.nr_torn, 0);
	ck_assert_uint_eq(df_reader_comm(&r, comm)->last_dropped, 4 * (30000 - 8192 - 1));
	df_reader_close(&r);
	df_trace_close();
}
END_TEST

static _Atomic int go_on;

static void *writer_main(void *arg)
{
	uint64_t x = (uint64_t)(uintptr_t)arg << 40, nr = 0;

	do {
		if (df_mix64(x) % 3)
			append_op(x, 1);
		else
			append(x, 1);
		nr += 1 + (df_mix64(x++) % 3 != 0);
	} while (atomic_load(&go_on));
	return (void *)(uintptr_t)nr;
}

/* Four writers overtake each other in a small ring while a reader copies it. */
START_TEST(test_many_writers)
{
	pthread_t id[4];
	uint64_t total = 0;

	open_trace(NULL, 1);
	df_trace_comm(1, 2, 0, 0, 0, NULL);
	reduced = 1;
	atomic_store(&go_on, 1);
	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&id[i], NULL, writer_main, (void *)(i + 1)), 0);
	/* Until the ring has wrapped. On a busy machine the writers may be late. */
	for (int i = 0; i < 20 || __atomic_load_n(&df_trace_ring()->next, __ATOMIC_RELAXED) < 50000;
	     i++) {
		struct df_reader r;
		const char *why;
		void *image;
		size_t bytes;

		ck_assert_int_eq(df_trace_compact(df_trace_ring(), &image, &bytes), 0);
		ck_assert_int_eq(df_reader_open_image(&r, image, bytes, &why), 0);
		check_reader(&r);
		df_reader_close(&r);
		free(image);
	}
	atomic_store(&go_on, 0);
	for (int i = 0; i < 4; i++) {
		void *n;

		pthread_join(id[i], &n);
		total += (uint64_t)(uintptr_t)n;
	}
	ck_assert_uint_eq(df_trace_ring()->next,
			  total + 4 + 2 + 1); /* a THREAD record of each writer, start, clock */
	df_trace_close();
}
END_TEST

/* Killed at any time. Every remaining record is whole, and almost none is lost. */
START_TEST(test_killed)
{
	uint64_t x = df_test_seed() + (uint64_t)_i * 12345;
	struct timespec ts = {0, (long)(df_mix64(x) % 20000000)};
	struct df_reader r;
	const char *why = "";
	char path[4096];
	int to_parent[2], status;
	pid_t pid;
	ssize_t n;

	make_dir();
	ck_assert_int_eq(pipe(to_parent), 0);
	pid = fork();
	if (!pid) {
		pthread_t id;

		open_trace(dir, 1);
		df_trace_comm(1, 2, 0, 0, 0, NULL);
		n = write(to_parent[1], df_trace_path(), strlen(df_trace_path()) + 1);
		atomic_store(&go_on, n > 0);
		pthread_create(&id, NULL, writer_main, (void *)1);
		writer_main((void *)2);
		_exit(0);
	}
	close(to_parent[1]);
	n = read(to_parent[0], path, sizeof(path));
	ck_assert_int_gt(n, 0);
	close(to_parent[0]);
	nanosleep(&ts, NULL);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	ck_assert(WIFSIGNALED(status));
	ck_assert_msg(!df_reader_open(&r, path, &why), "%s", why);
	check_reader(&r);
	/*
	 * Each writer may be inside two slots. Slots given up because of a slow writer are counted.
	 */
	ck_assert_uint_le(r.nr_torn, 4 + r.h.lost);
	ck_assert_uint_eq(r.h.closed, 0);
	df_reader_close(&r);
	drop_dir();
}
END_TEST

START_TEST(test_child_is_silent)
{
	uint64_t before;
	int status;
	pid_t pid;

	open_trace(NULL, 1);
	append(1, 0);
	before = df_trace_ring()->next;
	pid = fork();
	if (!pid) {
		append(2, 0);
		_exit(df_trace_ring() ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(df_trace_ring()->next, before);
	df_trace_close();
}
END_TEST

START_TEST(test_site)
{
	uint32_t a, b;
	struct df_reader r;
	const struct df_rec *rec;
	const char *why;
	uint64_t index;
	int frames = 0;
	uint32_t bytes;

	open_trace(NULL, 1);
	a = df_trace_site(__builtin_return_address(0));
	b = df_trace_site(__builtin_return_address(0));
	ck_assert_uint_ne(a, 0);
	ck_assert_uint_eq(a, b);
	ck_assert_uint_ne(a, df_trace_site((void *)(uintptr_t)printf));
	ck_assert_int_eq(df_reader_open_image(&r, df_trace_ring(), df_trace_ring_bytes(), &why), 0);
	while ((rec = df_reader_next(&r, &index))) {
		if (rec->type != DF_REC_SITE || rec->op != a)
			continue;
		ck_assert_ptr_nonnull(df_reader_string(&r, rec->c, &bytes));
		frames++;
	}
	ck_assert_int_ge(frames, 1);
	df_reader_close(&r);
	df_trace_close();
}
END_TEST

START_TEST(test_bad_folder)
{
	struct df_trace_config cfg = {.dir = "/proc/nowhere", .mb = 1, .rank = -1};

	ck_assert_int_lt(df_trace_open(&cfg), 0);
	append(1, 0);
	ck_assert_ptr_null(df_trace_ring());
	ck_assert_str_eq(df_trace_path(), "");
	ck_assert_uint_eq(df_trace_comm(1, 2, 0, 0, 0, NULL), 0);
	df_trace_close();
}
END_TEST

/* A limit on file sizes causes no signal. The job goes on without a file. */
START_TEST(test_limited_files)
{
	struct rlimit small = {64 << 10, 64 << 10};
	struct df_trace_config cfg = {.dir = getenv("DFSHIM_TRACE"), .mb = 1, .rank = -1};

	ck_assert_ptr_nonnull(cfg.dir);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	ck_assert_int_eq(df_trace_open(&cfg), -EFBIG);
	ck_assert_ptr_null(df_trace_ring());
	df_trace_close();
}
END_TEST

/*
 * In another pid namespace, such as a container's, the trace's pid names another process or none.
 */
START_TEST(test_other_namespace)
{
	struct df_trace_header h;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	open_trace(NULL, 1);
	h = *df_trace_ring();
	ck_assert_int_eq(df_check_alive(&h), 1);
	h.pid = (uint32_t)pid;
	ck_assert_int_eq(df_check_alive(&h), 0);
	h.pid_ns++;
	ck_assert_int_eq(df_check_alive(&h), -1);
	df_trace_close();
}
END_TEST

int main(void)
{
	return DF_TESTS("writer", {test_round_trip}, {test_operations},
			{test_wraps_and_counts_drops}, {test_many_writers}, {test_killed, 25},
			{test_child_is_silent}, {test_site}, {test_bad_folder},
			{test_limited_files}, {test_other_namespace});
}
