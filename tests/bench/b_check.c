/*
 * How fast the judge is: records a second on one core, whether that is linear, and a job of 1,024 ranks
 * with 10,000 operations each (time and memory). The traces are one file that is rewritten for each
 * rank. `b_check [GLOB]` runs the figures whose names match.
 */
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

/* One rank's trace: nr_ops operations of five records each, the last `open` of them unfinished. */
static size_t fill(struct df_trace_header *h, size_t nr_ops, size_t open)
{
	uint64_t nr = 1, index[COMMS] = {0};
	struct df_rec *rec;
	size_t at = 0;

	while (nr < nr_ops * 5)
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
	rec = (struct df_rec *)((char *)h + 8192);
	for (size_t i = 0; i < nr_ops; i++) {
		static const uint16_t types[5] = {DF_REC_OP_ISSUE, DF_REC_OP_ARGS, DF_REC_OP_MATCH,
						  DF_REC_OP_START, DF_REC_OP_DONE};
		unsigned c = (unsigned)(i % COMMS);

		for (int k = 0; k < (i + open < nr_ops ? 5 : 4); k++, at++) {
			struct df_rec *r = &rec[at];

			memset(r, 0, sizeof(*r));
			r->time_ns = 1000 + at * 100;
			r->type = types[k];
			r->thread = 1;
			r->comm = c + 1;
			r->op = i + 1;
			r->a = k == 0 ? 7 << 8 : k == 4 ? 0 : i;
			r->b = k == 0 ? 1024 + i : 0;
			r->c = k == 2 ? index[c] : k == 0 ? 1 + c : 0;
			r->commit = (uint32_t)(at + 1);
		}
		index[c]++;
	}
	h->next = at;
	return 8192 + at * sizeof(struct df_rec);
}

static void set_rank(struct df_trace_header *h, int rank, int ranks)
{
	struct df_trace_comm *c = (struct df_trace_comm *)((char *)h + 4096);

	h->rank = rank;
	h->world = (uint32_t)ranks;
	h->pid = 100 + (uint32_t)rank;
	memset(c, 0, COMMS * sizeof(*c));
	c[0] = (struct df_trace_comm){.hash = 1, .nranks = ranks, .rank = rank, .used = 1};
	c[1] = (struct df_trace_comm){
		.hash = 1000 + (uint64_t)rank / 8, .nranks = 8, .rank = rank % 8, .used = 1};
	c[2] = (struct df_trace_comm){.hash = 5000 + (uint64_t)rank % 8,
				      .nranks = ranks / 8,
				      .rank = rank / 8,
				      .used = 1};
}

static double run(struct df_trace_header *h, const char *path, int ranks, enum df_verdict want)
{
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r;
	double t = now_s();

	for (int k = 0; k < ranks; k++) {
		set_rank(h, k, ranks);
		if (df_check_add_file(set, path)) {
			fprintf(stderr, "b_check: %s\n", df_check_error(set));
			exit(1);
		}
	}
	if (df_check_run(set, NULL, &r) || df_check_verdict(r) != want) {
		fprintf(stderr, "b_check: wrong verdict\n");
		exit(1);
	}
	t = now_s() - t;
	df_check_result_free(r);
	df_check_set_free(set);
	return t;
}

int main(int argc, char **argv)
{
	const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	struct df_trace_header *h;
	struct rusage ru;
	char path[4096];
	double small, large, mb;
	int fd;

	if (argc > 1)
		glob = argv[1];
	snprintf(path, sizeof(path), "%s/b_check.%ld.dft", dir, (long)getpid());
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
		fill(h, 20000, 0);
		run(h, path, 8, DF_V_OK);
		small = run(h, path, 8, DF_V_OK);
		fill(h, 320000, 0);
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
		fill(h, 10000, 0);
		large = run(h, path, 1024, DF_V_OK);
		getrusage(RUSAGE_SELF, &ru);
		/* The mapping of the traces themselves is not the judge's memory. */
		mb = (double)ru.ru_maxrss / 1024;
		printf("BENCH check_1024x10000_seconds %.2f s target <=3 %s\n", large,
		       large <= 3 ? "ok" : "MISS");
		printf("BENCH check_1024x10000_memory %.0f MiB target <=2048 %s\n", mb,
		       mb <= 2048 ? "ok" : "MISS");
		fill(h, 10000, 64);
		large = run(h, path, 1024, DF_V_OK);
		printf("BENCH check_1024x10000_in_flight %.2f s target <=6 %s\n", large,
		       large <= 6 ? "ok" : "MISS");
	}
	if (wanted("check_16384x1000*")) {
		fill(h, 1000, 0);
		large = run(h, path, 16384, DF_V_OK);
		getrusage(RUSAGE_SELF, &ru);
		printf("BENCH check_16384x1000_seconds %.2f s target <=20 %s\n", large,
		       large <= 20 ? "ok" : "MISS");
		printf("BENCH check_16384x1000_memory %.0f MiB target <=4096 %s\n",
		       (double)ru.ru_maxrss / 1024, ru.ru_maxrss / 1024 <= 4096 ? "ok" : "MISS");
	}
	return 0;
}
