/*
 * The language and its compiler. Every program of the library, in many shapes, is proved and
 * executed, compiles to the same program every time, and remains the same after writing and reading
 * its text form and (with one peer per block) MSCCL's form. Mistakes in a program text are errors
 * at their line.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/rng.h"
#include "runtime/program/file/canon.h"
#include "runtime/program/verify/exec.h"
#include "runtime/program/lang/library/library.h"
#include "runtime/program/file/msccl.h"
#include "runtime/program/file/text.h"
#include "runtime/program/program_names.h"
#include "tests/lib/test.h"

/* Fewer ranks with a sanitizer, because the time grows with the square. */
#define MAX_RANKS (df_test_slow() > 1 ? 8 : 16)

static uint64_t seed;

static void execute(const char *what, const struct df_plan *plan, struct df_program **p,
		    const struct df_expects *x, const struct df_verify_out *v, struct df_rng *rng)
{
	struct df_exec_check c = {.progs = p,
				  .kind = plan->kind,
				  .nranks = plan->nranks,
				  .root = plan->root,
				  .expect = x,
				  .count = df_rng_below(rng, 4 * plan->chunks + 2),
				  .tile_elems = 1 + df_rng_below(rng, 4),
				  .in_place = v->in_place ? df_rng_u64(rng) : 0,
				  .seed = df_rng_u64(rng),
				  .type = DF_UINT32,
				  .redop = df_coll_reduces(plan->kind)
						   ? (uint32_t)df_rng_below(rng, DF_NR_REDOPS)
						   : DF_SUM,
				  .slots = v->min_slots,
				  .instances = 1 + (uint32_t)df_rng_below(rng, 3)};
	struct df_perr err;
	char text[512];
	int rc;

	if (v->whole_chunks)
		c.count = c.count / plan->chunks * plan->chunks;
	df_perr_clear(&err);
	rc = df_exec_check(&c, &err);
	ck_assert_msg(!rc, "%s: %d %s (SEED=%llu)", what, rc, df_perr_str(&err, text, sizeof(text)),
		      (unsigned long long)seed);
}

static uint64_t reread(const char *what, const struct df_plan *plan, const struct df_expects *x,
		       int xml)
{
	struct df_plan *again = NULL;
	struct df_program **p;
	struct df_expects y = {0};
	struct df_perr err;
	char *text = NULL, why[512];
	size_t size;
	uint64_t hash;
	FILE *f = open_memstream(&text, &size);
	int rc;

	df_perr_clear(&err);
	rc = xml ? df_msccl_write(f, plan, 1, plan->in_place == 2, &err)
		 : df_text_write(f, plan, x);
	fclose(f);
	ck_assert_msg(!rc, "%s: %s", what, df_perr_str(&err, why, sizeof(why)));
	rc = xml ? df_msccl_parse(text, size, &again, &y, NULL, &err)
		 : df_text_parse(text, size, &again, &y, &err);
	ck_assert_msg(!rc, "%s: %s\n%s", what, df_perr_str(&err, why, sizeof(why)), text);
	if (xml) {
		/* Fences are not written. The proof restores them. */
		struct df_verify_out v;

		rc = df_plan_prove(again, x && x->nr ? x : NULL, &p, &v);
		ck_assert_msg(!rc, "%s: %s", what, df_perr_str(&v.err, why, sizeof(why)));
		df_programs_free(p, again->nranks);
	} else {
		ck_assert_uint_eq(y.nr, x->nr);
		ck_assert_uint_eq(y.nr_c, x->nr_c);
	}
	ck_assert_int_eq(df_plan_finish(again, 0, &p), 0);
	hash = p[0]->hash;
	df_programs_free(p, again->nranks);
	df_plan_destroy(again);
	df_expects_fini(&y);
	free(text);
	return hash;
}

static void one(const struct df_lib *lib, const struct df_shape *s, struct df_rng *rng)
{
	struct df_plan *plan = NULL, *twin = NULL;
	struct df_program **p = NULL, **q = NULL;
	struct df_expects x = {0}, y = {0};
	struct df_verify_out v, w;
	struct df_perr err;
	char what[160], why[512];
	int rc;

	snprintf(what, sizeof(what), "%s %dx%d root %d channels %d instances %u policy %d fuse %d",
		 lib->name, s->nodes, s->gpus, s->root, s->channels, s->instances, s->blocks,
		 !s->no_fuse);
	df_perr_clear(&err);
	rc = df_library_compile(lib, s, &plan, &x, &err);
	if (strstr(lib->name, "recursive") && (s->nranks & (s->nranks - 1))) {
		ck_assert_msg(rc == -EPROTO && strstr(err.text, "power of two") && err.line > 0,
			      "%s", what);
		return;
	}
	ck_assert_msg(!rc, "%s: %d %s", what, rc, df_perr_str(&err, why, sizeof(why)));
	rc = df_plan_prove(plan, &x, &p, &v);
	ck_assert_msg(!rc, "%s: %s", what, df_perr_str(&v.err, why, sizeof(why)));
	ck_assert_msg((v.has_post || !x.nr) && v.back_to_back && v.same_order, "%s: %s", what,
		      df_perr_str(&v.note, why, sizeof(why)));
	ck_assert_msg(v.in_place == lib->in_place, "%s: %s", what,
		      df_perr_str(&v.note, why, sizeof(why)));
	/* Geometry that the runtime derives must be equal on all ranks. */
	for (int r = 1; r < s->nranks; r++)
		ck_assert_msg(p[r]->max_cnt == p[0]->max_cnt && p[r]->chunks == p[0]->chunks &&
				      p[r]->min_slots == p[0]->min_slots &&
				      p[r]->hash == p[0]->hash,
			      "%s", what);
	ck_assert_int_eq(df_library_compile(lib, s, &twin, &y, &err), 0);
	ck_assert_int_eq(df_plan_prove(twin, &y, &q, &w), 0);
	ck_assert_msg(p[0]->hash == q[0]->hash, "%s: compiles to different programs", what);
	execute(what, plan, p, &x, &v, rng);
	execute(what, plan, p, &x, &v, rng);
	ck_assert_msg(reread(what, plan, &x, 0) == p[0]->hash, "%s: text form", what);
	if (s->blocks == DF_BLOCKS_PEER)
		ck_assert_msg(reread(what, plan, &x, 1) == p[0]->hash, "%s: MSCCL form", what);
	/*
	 * Copying the input first changes no result, whatever the program does with its input
	 * later.
	 */
	df_programs_free(q, plan->nranks);
	ck_assert_int_eq(df_canon_stage(twin), 0);
	rc = df_plan_prove(twin, &y, &q, &w);
	ck_assert_msg(!rc, "%s staged: %s", what, df_perr_str(&w.err, why, sizeof(why)));
	ck_assert_msg(w.in_place >= v.in_place && w.same_order && w.min_slots == v.min_slots &&
			      q[0]->max_cnt == p[0]->max_cnt,
		      "%s staged: %s", what, df_perr_str(&w.note, why, sizeof(why)));
	execute(what, twin, q, &y, &w, rng);
	df_programs_free(p, plan->nranks);
	df_programs_free(q, plan->nranks);
	df_plan_destroy(plan);
	df_plan_destroy(twin);
	df_expects_fini(&x);
	df_expects_fini(&y);
}

START_TEST(t_library)
{
	const struct df_lib *lib = &df_library[_i];
	struct df_rng rng;

	df_rng_init(&rng, seed + (uint64_t)_i);
	for (int nodes = 1; nodes <= 4; nodes++) {
		for (int gpus = 1; gpus <= 8; gpus++) {
			for (int v = 0; v < 8; v++) {
				struct df_shape s = {.nodes = nodes,
						     .gpus = gpus,
						     .nranks = nodes * gpus,
						     .channels = v & 1 ? 2 : 1,
						     .instances = v & 2 ? 3 : 1,
						     .blocks = v & 4 ? DF_BLOCKS_PEER
								     : DF_BLOCKS_CHANNEL,
						     .no_fuse = df_rng_below(&rng, 4) == 0};

				if (lib->kind == DF_COLL_BROADCAST || lib->kind == DF_COLL_REDUCE)
					s.root = (int)df_rng_below(&rng, (uint64_t)s.nranks);
				if (s.nranks <= MAX_RANKS || (v == 0 && MAX_RANKS == 16))
					one(lib, &s, &rng);
			}
		}
	}
}
END_TEST

/*
 * The compiled ring is as good as one written by hand: 2n - 1 fused instructions a rank, two slots.
 */
START_TEST(t_ring_is_tight)
{
	struct df_shape s = {.nranks = 8, .nodes = 1, .gpus = 8};
	struct df_plan *plan;
	struct df_program **p;
	struct df_expects x = {0};
	struct df_verify_out v;
	struct df_perr err;

	ck_assert_int_eq(df_library_compile(df_library_find("allreduce-ring"), &s, &plan, &x, &err),
			 0);
	ck_assert_int_eq(df_plan_prove(plan, &x, &p, &v), 0);
	for (int r = 0; r < 8; r++) {
		ck_assert_uint_eq(p[r]->nr_inst, 15);
		ck_assert_uint_eq(p[r]->nr_blocks, 1);
	}
	ck_assert_uint_eq(v.min_slots, 2);
	df_programs_free(p, 8);
	df_plan_destroy(plan);
}
END_TEST

static struct df_lang *begin(void)
{
	struct df_lang_opts o = {
		.name = "bad", .kind = DF_COLL_ALLREDUCE, .nranks = 4, .chunks = 4};

	return df_lang_create(&o);
}

static void expect_error(struct df_lang *l, int line, int rank, const char *text)
{
	struct df_plan *plan = NULL;
	struct df_expects x = {0};
	struct df_perr err;

	df_perr_clear(&err);
	ck_assert_int_eq(df_lang_compile(l, &plan, &x, &err), -EPROTO);
	ck_assert_int_eq(err.line, line);
	ck_assert_int_eq(err.rank, rank);
	ck_assert_msg(strstr(err.file, "t_lang.c") != NULL, "%s", err.file);
	ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
	df_lang_destroy(l);
}

START_TEST(t_mistakes)
{
	struct df_lang *l;
	struct df_ref a, b;
	int line, tmp;

	l = begin();
	CHUNK(l, 1, DF_OUT, 2, 1), line = __LINE__;
	expect_error(l, line, 1, "output chunk 2 holds nothing");

	l = begin();
	a = CHUNK(l, 0, DF_IN, 0, 1);
	a = COPY(a, 1, DF_OUT, 0);
	b = a;
	COPY(CHUNK(l, 2, DF_IN, 0, 1), 1, DF_OUT, 0);
	COPY(b, 3, DF_OUT, 0), line = __LINE__;
	expect_error(l, line, 1, "stale reference");

	l = begin();
	a = CHUNK(l, 0, DF_IN, 0, 2);
	COPY(a, 1, DF_OUT, 3), line = __LINE__;
	expect_error(l, line, 1, "output has no chunk 4");

	l = begin();
	CHUNK(l, 4, DF_IN, 0, 1), line = __LINE__;
	expect_error(l, line, -1, "rank 4 of 4");

	l = begin();
	tmp = df_lang_buffer(l, "tmp");
	CHUNK(l, 2, tmp, 0, 1), line = __LINE__;
	expect_error(l, line, 2, "tmp chunk 0 holds nothing");

	l = begin();
	a = COPY(CHUNK(l, 0, DF_IN, 0, 2), 1, DF_OUT, 0);
	REDUCE(a, CHUNK(l, 2, DF_IN, 0, 1)), line = __LINE__;
	expect_error(l, line, 1, "reduces 2 chunks with 1");

	l = begin();
	a = COPY(CHUNK(l, 0, DF_IN, 0, 2), 0, DF_OUT, 0);
	COPY(a, 0, DF_OUT, 1), line = __LINE__;
	expect_error(l, line, 0, "over themselves");
}
END_TEST

/* An incomplete text compiles but is not proved. The reason names rank and chunk. */
START_TEST(t_wrong_text)
{
	struct df_lang *l = begin();
	struct df_plan *plan = NULL;
	struct df_program **p;
	struct df_expects x = {0};
	struct df_verify_out v;
	struct df_perr err;

	for (int r = 0; r < 4; r++)
		COPY(CHUNK(l, r, DF_IN, 0, 4), r, DF_OUT, 0);
	ck_assert_int_eq(df_lang_compile(l, &plan, &x, &err), 0);
	ck_assert_int_eq(df_plan_prove(plan, &x, &p, &v), -EPROTO);
	ck_assert_int_eq(v.err.rank, 0);
	ck_assert_msg(strstr(v.err.text, "must be 0:0 + 1:0 + 2:0 + 3:0") != NULL, "%s",
		      v.err.text);
	df_plan_destroy(plan);
	df_lang_destroy(l);
}
END_TEST

/* A transfer that must overtake another one on the same pair of ranks gets a channel of its own. */
START_TEST(t_overtaking)
{
	struct df_lang_opts o = {
		.name = "overtake", .kind = DF_COLL_CUSTOM, .nranks = 3, .chunks = 2};
	struct df_lang *l = df_lang_create(&o);
	struct df_plan *plan = NULL;
	struct df_program **p;
	struct df_expects x = {0};
	struct df_verify_out v;
	struct df_perr err;
	struct df_rng rng;
	struct df_ref c;
	int tmp = df_lang_buffer(l, "tmp");

	/*
	 * The transfer from 0 to 1 is issued early, but its place at rank 1 is occupied until data
	 * that rank 0 sends later has left it.
	 */
	c = COPY(CHUNK(l, 0, DF_IN, 0, 1), 2, tmp, 0);
	c = COPY(c, 0, tmp, 1);
	c = COPY(c, 1, tmp, 0);
	COPY(c, 2, DF_OUT, 0);
	COPY(CHUNK(l, 0, DF_IN, 1, 1), 1, tmp, 0);
	COPY(CHUNK(l, 1, tmp, 0, 1), 2, DF_OUT, 1);
	df_lang_expect(l, 2, 0, 0, 0);
	df_lang_expect(l, 2, 1, 0, 1);
	ck_assert_int_eq(df_lang_compile(l, &plan, &x, &err), 0);
	ck_assert_int_eq(df_plan_prove(plan, &x, &p, &v), 0);
	df_rng_init(&rng, seed);
	execute("overtake", plan, p, &x, &v, &rng);
	df_programs_free(p, 3);
	df_plan_destroy(plan);
	df_expects_fini(&x);
	df_lang_destroy(l);
}
END_TEST

int main(void)
{
	seed = df_test_seed();
	return DF_TESTS("language", {t_library, (int)df_library_size}, {t_ring_is_tight},
			{t_mistakes}, {t_wrong_text}, {t_overtaking});
}
