/*
 * MSCCL files. Every program of a data set beside the checkout (DIR) must get the verdict of the
 * manifest: valid or refused, and the same number of slots by MSCCL's rules. Valid programs are
 * executed on random data, in place and out of place, with the fewest slots, and are the same after
 * writing and reading.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/rng.h"
#include "runtime/program/file/canon.h"
#include "runtime/program/verify/exec.h"
#include "runtime/program/file/msccl.h"
#include "runtime/program/program_names.h"
#include "tests/lib/test.h"

#define DIR "../shared/data/msccl/"

static uint64_t seed;

static char *slurp(const char *path, size_t *size)
{
	FILE *f = fopen(path, "r");
	char *text;
	long n;

	if (!f)
		return NULL;
	fseek(f, 0, SEEK_END);
	n = ftell(f);
	rewind(f);
	text = malloc((size_t)n + 1);
	*size = fread(text, 1, (size_t)n, f);
	text[*size] = 0;
	fclose(f);
	return text;
}

struct row {
	char file[80], check[80], step[16], chunk[16];
};

/* Reads a row of the manifest's table. Returns 1 if it is one. */
static int read_row(char *line, struct row *row)
{
	char *cell[20], *p = line;
	int n = 0;

	if (strncmp(line, "| ", 2) || !strstr(line, ".xml |"))
		return 0;
	for (p++; n < 20 && *p; n++) {
		char *end = strchr(p, '|');

		if (!end)
			break;
		*end = 0;
		while (*p == ' ')
			p++;
		cell[n] = p;
		for (char *q = end - 1; q >= p && *q == ' '; q--)
			*q = 0;
		p = end + 1;
	}
	if (n < 15)
		return 0;
	snprintf(row->file, sizeof(row->file), "%s", cell[0]);
	snprintf(row->check, sizeof(row->check), "%s", cell[12]);
	snprintf(row->step, sizeof(row->step), "%s", cell[13]);
	snprintf(row->chunk, sizeof(row->chunk), "%s", cell[14]);
	return 1;
}

/* The manifest lists results for 1, 2, 3, 4 and 8 slots only. */
static void same_slots(const char *file, const char *want, int64_t have)
{
	static const int tried[] = {1, 2, 3, 4, 8};
	int64_t shown = 0;

	for (int i = 4; i >= 0; i--) {
		if (have && have <= tried[i])
			shown = tried[i];
	}
	ck_assert_msg(shown == (strcmp(want, "None") ? atoi(want) : 0),
		      "%s: %lld slots, manifest says %s", file, (long long)have, want);
}

static void execute(const char *file, const struct df_plan *plan, struct df_program **p,
		    const struct df_expects *x, const struct df_verify_out *v, struct df_rng *rng)
{
	for (int round = 0; round < 4; round++) {
		struct df_exec_check c = {.progs = p,
					  .kind = plan->kind,
					  .nranks = plan->nranks,
					  .root = plan->root,
					  .expect = x,
					  .count = df_rng_below(rng, 3 * plan->chunks + 2),
					  .tile_elems = 1 + df_rng_below(rng, 4),
					  .in_place = v->in_place ? df_rng_u64(rng) : 0,
					  .seed = df_rng_u64(rng),
					  .type = v->same_order && round % 2 ? DF_FLOAT32
									     : DF_UINT32,
					  .redop = round < 2	? DF_SUM
						   : round == 2 ? DF_SUMPOSTDIV
								: DF_PREMULSUM,
					  .slots = v->min_slots,
					  .instances = 1 + (uint32_t)df_rng_below(rng, 3)};
		struct df_perr err;
		char text[512];
		int rc;

		if (v->whole_chunks)
			c.count = plan->chunks * df_rng_below(rng, 4);
		if (plan->kind == DF_COLL_CUSTOM)
			c.redop = DF_SUM;
		df_perr_clear(&err);
		rc = df_exec_check(&c, &err);
		ck_assert_msg(!rc, "%s: %d %s (SEED=%llu)", file, rc,
			      df_perr_str(&err, text, sizeof(text)), (unsigned long long)seed);
	}
}

/* Writes and reads the plan, and compares the hashes. */
static void round_trip(const char *file, const struct df_plan *plan, const struct df_verify_out *v)
{
	struct df_program **a, **b;
	struct df_plan *again = NULL;
	struct df_verify_out out;
	struct df_expects x = {0};
	struct df_perr err;
	char *text = NULL, why[512];
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	int rc;

	df_perr_clear(&err);
	rc = df_msccl_write(f, plan, 1, v->in_place, &err);
	fclose(f);
	ck_assert_msg(!rc, "%s: %s", file, err.text);
	rc = df_msccl_parse(text, size, &again, &x, NULL, &err);
	ck_assert_msg(!rc, "%s: %s", file, df_perr_str(&err, why, sizeof(why)));
	ck_assert_int_eq(df_plan_finish(plan, 0, &a), 0);
	rc = df_plan_prove(again, &x, &b, &out);
	ck_assert_msg(!rc, "%s: %s", file, df_perr_str(&out.err, why, sizeof(why)));
	ck_assert_msg(a[0]->hash == b[0]->hash, "%s: written and read, it is another program",
		      file);
	df_programs_free(a, plan->nranks);
	df_programs_free(b, plan->nranks);
	df_plan_destroy(again);
	df_expects_fini(&x);
	free(text);
}

static void one(const struct row *row, struct df_rng *rng)
{
	struct df_expects x = {0};
	struct df_msccl_facts facts;
	struct df_verify_out v;
	struct df_plan *plan = NULL;
	struct df_program **p = NULL;
	struct df_perr err;
	char path[200], why[512];
	size_t size = 0;
	char *text;
	int rc, ok = !strncmp(row->check, "OK", 2) || !strncmp(row->check, "RAN", 3);

	snprintf(path, sizeof(path), DIR "%s", row->file);
	text = slurp(path, &size);
	ck_assert_msg(text != NULL, "%s is missing", path);
	df_perr_clear(&err);
	rc = df_msccl_parse(text, size, &plan, &x, &facts, &err);
	ck_assert_msg(!rc, "%s: %s", path, df_perr_str(&err, why, sizeof(why)));
	same_slots(row->file, row->step, facts.slots_step);
	same_slots(row->file, row->chunk, facts.slots_chunk);
	rc = df_plan_prove(plan, &x, &p, &v);
	if (ok) {
		ck_assert_msg(!rc, "%s: %s", row->file, df_perr_str(&v.err, why, sizeof(why)));
		ck_assert_msg(v.out_of_place && v.back_to_back, "%s: %s", row->file,
			      df_perr_str(&v.note, why, sizeof(why)));
		ck_assert_msg(v.in_place || plan->kind == DF_COLL_ALLTOALL ||
				      plan->kind == DF_COLL_CUSTOM,
			      "%s in place: %s", row->file, df_perr_str(&v.note, why, sizeof(why)));
		if (getenv("SHOW"))
			printf("%-44s slots %u msccl %d %d max %llu order %d whole %d split %u\n",
			       row->file, v.min_slots, (int)facts.slots_step,
			       (int)facts.slots_chunk, (unsigned long long)facts.max_bytes,
			       v.same_order, v.whole_chunks, facts.split);
		execute(row->file, plan, p, &x, &v, rng);
		round_trip(row->file, plan, &v);
		df_programs_free(p, plan->nranks);
	} else {
		ck_assert_msg(rc == -EPROTO, "%s is accepted", row->file);
		/* The refusal names the place. */
		ck_assert_msg(v.err.rank >= 0 && v.err.text[0], "%s: %s", row->file,
			      df_perr_str(&v.err, why, sizeof(why)));
		if (getenv("SHOW"))
			printf("%-44s refused: %s\n", row->file,
			       df_perr_str(&v.err, why, sizeof(why)));
	}
	df_plan_destroy(plan);
	df_expects_fini(&x);
	free(text);
}

START_TEST(t_manifest)
{
	struct df_rng rng;
	size_t size;
	char *text = slurp(DIR "MANIFEST.md", &size), *line, *save = NULL;
	int rows = 0;

	df_rng_init(&rng, seed);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		struct row row;

		if (read_row(line, &row)) {
			one(&row, &rng);
			rows++;
		}
	}
	ck_assert_int_ge(rows, 80);
	free(text);
}
END_TEST

int main(void)
{
	if (access(DIR "MANIFEST.md", R_OK)) {
		printf("skipped: no " DIR "\n");
		return 77;
	}
	seed = df_test_seed();
	return DF_TESTS("msccl files", {t_manifest});
}
