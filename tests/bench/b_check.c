/*
 * Measures how fast the judge is: the records a second on one core, whether the time is linear, and
 * the time and memory for a job of 1,024 ranks with 10,000 operations each. The traces of that job
 * are files of their own in memory, as they would be on a disk whose pages are still cached: one
 * file for all ranks would stay in the processor's cache. Where only the number of ranks matters,
 * one file is rewritten for each rank. `b_check [GLOB]` runs the figures whose names match.
 */
#define _GNU_SOURCE /* memfd_create */
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "trace/check.h"

#define COMMS 3

static const char *glob = "*";

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int wanted(const char *name)
{
	return !fnmatch(glob, name, 0);
}

static struct df_rec *append(struct df_trace_header *h, uint16_t type, unsigned comm, uint64_t op)
{
	struct df_rec *r = (struct df_rec *)((char *)h + 8192) + h->next;

	memset(r, 0, sizeof(*r));
	r->time_ns = 1000 + h->next * 100;
	r->type = type;
	r->thread = 1;
	r->comm = comm;
	r->op = op;
	r->commit = (uint32_t)++h->next;
	return r;
}

/*
 * Writes one rank's trace: the members of its communicators if there are `ranks`, and nr_ops
 * operations of five records each. The last `open` operations are unfinished.
 */
static void fill(struct df_trace_header *h, size_t nr_ops, size_t open, int ranks)
{
	uint64_t nr = 1, index[COMMS] = {0};

	while (nr < nr_ops * 5 + (uint64_t)ranks * 3)
		nr *= 2;
	memset(h, 0, 4096);
	h->magic = DF_TRACE_MAGIC;
	h->version = DF_TRACE_VERSION;
	h->header_bytes = 4096;
	h->rec_bytes = sizeof(struct df_rec);
	h->comm_bytes = sizeof(struct df_trace_comm);
	h->nr_recs = nr;
	h->nr_comms = h->comms_used = COMMS;
	h->off_comms = 4096;
	h->off_strings = h->off_recs = 8192;
	h->rules = 1;
	h->world = 1;
	for (unsigned c = 0; c < COMMS && ranks; c++)
		for (int k = 0; k < (c == 0 ? ranks : c == 1 ? 8 : ranks / 8); k++)
			append(h, DF_REC_COMM_MEMBER, c + 1, (uint64_t)k);
	for (size_t i = 0; i < nr_ops; i++) {
		static const uint16_t types[5] = {DF_REC_OP_ISSUE, DF_REC_OP_ARGS, DF_REC_OP_MATCH,
						  DF_REC_OP_START, DF_REC_OP_DONE};
		unsigned c = (unsigned)(i % COMMS);

		for (int k = 0; k < (i + open < nr_ops ? 5 : 4); k++) {
			struct df_rec *r = append(h, types[k], c + 1, i + 1);

			r->a = k == 0 ? 7 << 8 : k == 4 ? 0 : i;
			r->b = k == 0 ? 1024 + i : 0;
			r->c = k == 2 ? index[c] : k == 0 ? 1 + c : 0;
		}
		index[c]++;
	}
}

/* Returns the job's rank that is member `k` of communicator `c`. */
static int member(unsigned c, int rank, int k)
{
	return c == 0 ? k : c == 1 ? rank / 8 * 8 + k : k * 8 + rank % 8;
}

static size_t bytes_of(const struct df_trace_header *h)
{
	return 8192 + h->next * sizeof(struct df_rec);
}

static void set_rank(struct df_trace_header *h, int rank, int ranks)
{
	struct df_trace_comm *c = (struct df_trace_comm *)((char *)h + 4096);

	h->rank = rank;
	h->world = (uint32_t)ranks;
	h->pid = 100 + (uint32_t)rank;
	h->host_hash = (uint64_t)rank / 8;
	memset(c, 0, COMMS * sizeof(*c));
	c[0] = (struct df_trace_comm){.hash = 1, .nranks = ranks, .rank = rank, .used = 1};
	c[1] = (struct df_trace_comm){
		.hash = 1000 + (uint64_t)rank / 8, .nranks = 8, .rank = rank % 8, .used = 1};
	c[2] = (struct df_trace_comm){.hash = 5000 + (uint64_t)rank % 8,
				      .nranks = ranks / 8,
				      .rank = rank / 8,
				      .used = 1};
	for (struct df_rec *r = (struct df_rec *)((char *)h + 8192); r->type == DF_REC_COMM_MEMBER;
	     r++) {
		int k = member(r->comm - 1, rank, (int)r->op);

		r->a = (uint64_t)k / 8;
		r->b = 100 + (uint64_t)k;
	}
}

static void add(struct df_check_set *set, const char *path)
{
	if (df_check_add_file(set, path)) {
		fprintf(stderr, "b_check: %s\n", df_check_error(set));
		exit(1);
	}
}

/* Judges `quiet_ns` after the last record and prints the verdict's text. Frees the set. */
static void judge(struct df_check_set *set, uint64_t quiet_ns, enum df_verdict want)
{
	struct df_check_opts opts = {.now_ns = quiet_ns};
	struct df_check_result *r;
	char *text = NULL;
	size_t bytes;
	FILE *f = open_memstream(&text, &bytes);

	if (!f || df_check_run(set, quiet_ns ? &opts : NULL, &r) || df_check_verdict(r) != want) {
		fprintf(stderr, "b_check: wrong verdict\n");
		exit(1);
	}
	df_check_print(r, f);
	fclose(f);
	free(text);
	df_check_result_free(r);
	df_check_set_free(set);
}

static double run(struct df_trace_header *h, const char *path, int ranks, enum df_verdict want)
{
	struct df_check_set *set = df_check_set_new();
	double t = now_s();

	for (int k = 0; k < ranks; k++) {
		set_rank(h, k, ranks);
		add(set, path);
	}
	judge(set, 0, want);
	return now_s() - t;
}

enum end { ENDS, WORKS, IS_MISSING, IS_GONE };

/* Records that all others have seen rank `who` end, in each communicator with it. */
static void saw_end(struct df_trace_header *h, int rank, int who, int ranks)
{
	for (unsigned c = 0; c < COMMS; c++)
		for (int k = 0; k < (c == 0 ? ranks : c == 1 ? 8 : ranks / 8); k++)
			if (member(c, rank, k) == who) {
				struct df_rec *r = append(h, DF_REC_PEER_DEAD, c + 1, (uint64_t)k);

				r->a = (uint64_t)who / 8;
				r->b = 100 + (uint64_t)who;
			}
}

static void make_file(const struct df_trace_header *h, int *fd)
{
	size_t bytes = bytes_of(h), done = 0;

	*fd = memfd_create("b_check", MFD_CLOEXEC);
	for (ssize_t n = *fd < 0 ? -1 : 1; done < bytes; done += (size_t)n) {
		n = n < 0 ? n : pwrite(*fd, (const char *)h + done, bytes - done, (off_t)done);
		if (n <= 0) {
			perror("b_check: a trace in memory");
			exit(1);
		}
	}
}

/*
 * Judges 1,024 ranks with a file each and 10,000 operations, of which the last 64 are in flight.
 * Either all works, or rank 5 lacks its last operation of each communicator, or rank 5 has died and
 * its trace is missing.
 */
static double run_files(struct df_trace_header *h, enum end end, enum df_verdict want)
{
	enum { RANKS = 1024, OPS = 10000, LATE = 5 };
	static int fds[RANKS];
	char path[64];
	double best = 0;

	for (int k = 0; k < RANKS; k++) {
		fill(h, OPS, end == ENDS ? 0 : 64, RANKS);
		set_rank(h, k, RANKS);
		if (k == LATE && end == IS_MISSING)
			h->next -= COMMS * 4ULL;
		if (end == IS_GONE)
			saw_end(h, k, LATE, RANKS);
		make_file(h, &fds[k]);
	}
	/* Other load of the machine can only make a run longer. */
	for (int i = 0; i < 3; i++) {
		struct df_check_set *set = df_check_set_new();
		double t = now_s();

		for (int k = 0; k < RANKS; k++) {
			snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[k]);
			if (k != LATE || end != IS_GONE)
				add(set, path);
		}
		judge(set, end == IS_MISSING ? 60000000000ULL : 0, want);
		t = now_s() - t;
		best = i && best < t ? best : t;
	}
	for (int k = 0; k < RANKS; k++)
		close(fds[k]);
	return best;
}

static void say_seconds(const char *name, double s, double limit)
{
	printf("BENCH check_%s %.2f s target <=%g %s\n", name, s, limit,
	       s <= limit ? "ok" : "MISS");
}

static void say_memory(const char *name, double limit)
{
	struct rusage ru;
	double mb;

	getrusage(RUSAGE_SELF, &ru);
	/* The sum includes the data that was read from the traces, and the traces themselves. */
	mb = (double)ru.ru_maxrss / 1024;
	printf("BENCH check_%s %.0f MiB target <=%g %s\n", name, mb, limit,
	       mb <= limit ? "ok" : "MISS");
}

int main(int argc, char **argv)
{
	const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	struct df_trace_header *h;
	struct rlimit lim;
	char path[4096];
	double small, large;
	int fd;

	if (argc > 1)
		glob = argv[1];
	snprintf(path, sizeof(path), "%s/b_check.%ld.dft", dir, (long)getpid());
	getrlimit(RLIMIT_NOFILE, &lim);
	lim.rlim_cur = lim.rlim_max;
	setrlimit(RLIMIT_NOFILE, &lim);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || ftruncate(fd, 1 << 28)) {
		perror(path);
		return 1;
	}
	h = mmap(NULL, 1 << 28, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	unlink(path);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (h == MAP_FAILED)
		return 1;
	if (wanted("check_records_per_second") || wanted("check_linear")) {
		fill(h, 20000, 0, 0);
		run(h, path, 8, DF_V_OK);
		small = run(h, path, 8, DF_V_OK);
		fill(h, 320000, 0, 0);
		large = run(h, path, 8, DF_V_OK);
		if (wanted("check_records_per_second"))
			printf("BENCH check_records_per_second %.3g records/s target >=5e6 %s\n",
			       8 * 320000 * 5 / large,
			       8 * 320000 * 5 / large >= 5e6 ? "ok" : "MISS");
		if (wanted("check_linear"))
			printf("BENCH check_linear %.2f x target <=1.6 %s\n", large / small / 16,
			       large / small / 16 <= 1.6 ? "ok" : "MISS");
	}
	if (wanted("check_1024x10000*")) {
		say_seconds("1024x10000_seconds", run_files(h, ENDS, DF_V_OK), 3);
		say_seconds("1024x10000_in_flight", run_files(h, WORKS, DF_V_OK), 3);
		say_seconds("1024x10000_missing", run_files(h, IS_MISSING, DF_V_MISSING), 3);
		say_seconds("1024x10000_crash", run_files(h, IS_GONE, DF_V_CRASH), 3);
		say_memory("1024x10000_memory", 2048);
	}
	if (wanted("check_16384x1000*")) {
		fill(h, 1000, 0, 0);
		say_seconds("16384x1000_seconds", run(h, path, 16384, DF_V_OK), 20);
		say_memory("16384x1000_memory", 4096);
	}
	return 0;
}
