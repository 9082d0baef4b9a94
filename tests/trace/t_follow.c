/*
 * Follows a ring while it is written. Durations of operations, and the age of unfinished ones, are
 * right whenever the reader looks, even if the ring has overtaken it.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/read/live/follow.h"
#include "trace/record/names.h"
#include "trace/record/writer.h"

#define MS 1000000u

static void follow_fini(struct df_follow *f)
{
	df_map_fini(&f->places);
	df_map_fini(&f->took);
	df_map_fini(&f->ended);
	df_map_fini(&f->oldest);
	free(f->ops);
}

static uint64_t value(const struct df_map *m, uint64_t a, uint64_t b)
{
	const uint64_t *v = df_map_find(m, a, b);

	return v ? *v : 0;
}

/* Records an operation with these times. A time of 0 means that the record does not exist. */
static void run_op(struct tb_image *im, uint32_t comm, int kind, uint64_t issue, uint64_t start,
		   uint64_t done)
{
	uint64_t serial;

	im->clock = issue;
	serial = tb_issue(im, comm, 0, kind, 4, -1, 0);
	tb_comm_at(im, comm)->issued++;
	if (start)
		tb_op(im, comm, DF_REC_OP_START, serial)->time_ns = start;
	if (!done)
		return;
	tb_op(im, comm, DF_REC_OP_DONE, serial)->time_ns = done;
	tb_comm_at(im, comm)->done++;
}

START_TEST(t_times)
{
	struct df_follow f = {0};
	struct tb_image im;
	uint32_t a, b;

	tb_image_init(&im, 0, 2, 1024);
	a = tb_comm(&im, 1, 2, 0, 0);
	b = tb_comm(&im, 2, 2, 0, 0);
	run_op(&im, a, DF_KIND_ALLREDUCE, 10 * MS, 20 * MS, 25 * MS);
	ck_assert_int_eq(df_follow_step(&f, im.h), 0);
	ck_assert_uint_eq(value(&f.took, a, DF_KIND_ALLREDUCE), 5 * MS);
	ck_assert_uint_eq(value(&f.oldest, a, 0), 0);
	/*
	 * An operation without a start counts from its issue. Unfinished ones, and another
	 * communicator and kind.
	 */
	run_op(&im, a, DF_KIND_ALLREDUCE, 30 * MS, 0, 37 * MS);
	run_op(&im, a, DF_KIND_BROADCAST, 40 * MS, 41 * MS, 0);
	run_op(&im, a, DF_KIND_ALLREDUCE, 50 * MS, 0, 0);
	run_op(&im, b, DF_KIND_SEND, 60 * MS, 61 * MS, 64 * MS);
	ck_assert_int_eq(df_follow_step(&f, im.h), 0);
	ck_assert_uint_eq(value(&f.took, a, DF_KIND_ALLREDUCE), 12 * MS);
	ck_assert_uint_eq(value(&f.ended, a, DF_KIND_ALLREDUCE), 2);
	ck_assert_uint_eq(value(&f.took, a, DF_KIND_BROADCAST), 0);
	ck_assert_uint_eq(value(&f.oldest, a, 0), 40 * MS);
	ck_assert_uint_eq(value(&f.took, b, DF_KIND_SEND), 3 * MS);
	ck_assert_uint_eq(value(&f.oldest, b, 0), 0);
	ck_assert_uint_eq(f.nr_ops, 2);
	follow_fini(&f);
	tb_image_fini(&im);
}
END_TEST

/* An operation of NCCL whose end is not recorded is never the oldest unfinished one. */
START_TEST(t_unseen)
{
	struct df_follow f = {0};
	struct tb_image im;
	struct df_rec *r;
	uint64_t serial;
	uint32_t a;

	tb_image_init(&im, 0, 2, 64);
	a = tb_comm(&im, 1, 2, 0, 0);
	serial = tb_issue(&im, a, 0, DF_KIND_ALLREDUCE, 4, -1, 0);
	for (uint64_t i = 0; i < im.h->next; i++) {
		r = tb_at(&im, i);
		if (r->type == DF_REC_OP_ISSUE)
			r->a |= (uint64_t)DF_OP_BY_NCCL << 24;
	}
	ck_assert_int_eq(df_follow_step(&f, im.h), 0);
	ck_assert_uint_eq(f.nr_ops, 0);
	/* its end should have been recorded, but will not be */
	serial = tb_issue(&im, a, 0, DF_KIND_ALLREDUCE, 4, -1, 1);
	tb_op(&im, a, DF_REC_OP_DONE, serial)->a = 2;
	ck_assert_int_eq(df_follow_step(&f, im.h), 0);
	ck_assert_uint_eq(f.nr_ops, 0);
	ck_assert_uint_eq(value(&f.ended, a, DF_KIND_ALLREDUCE), 0);
	follow_fini(&f);
	tb_image_fini(&im);
}
END_TEST

static uint64_t serial;

static void issue_one(uint32_t comm)
{
	serial = df_trace_serial();
	df_trace_op(&(struct df_trace_op){.op = serial,
					  .count = 4,
					  .comm = comm,
					  .device = 0,
					  .peer = -1,
					  .kind = DF_KIND_ALLREDUCE,
					  .type = 7});
}

/* The writer's ring of 1 MiB is overwritten twice between two steps while one operation hangs. */
START_TEST(t_lapped)
{
	const struct df_trace_config config = {.mb = 1, .rank = 0};
	struct df_follow f = {0};
	struct df_trace_count count;
	uint64_t hung;
	uint32_t a, b;

	ck_assert_int_eq(df_trace_open(&config), 0);
	a = df_trace_comm(1, 2, 0, 0, 0, "first");
	b = df_trace_comm(2, 2, 0, 0, 0, "second");
	issue_one(a);
	hung = df_trace_time();
	/*
	 * unfinished at the first step; the record of its end is overwritten before the next step
	 */
	issue_one(b);
	ck_assert_int_eq(df_follow_step(&f, df_trace_ring()), 0);
	ck_assert_uint_eq(f.nr_ops, 2);
	for (int i = 0; i < 20000; i++) {
		df_trace(DF_REC_OP_DONE, 0, b, 0, serial, 0, 0, 0, 0);
		df_trace_comm_done(b);
		issue_one(b);
	}
	ck_assert_int_eq(df_follow_step(&f, df_trace_ring()), 0);
	ck_assert_uint_gt(value(&f.oldest, a, 0), 0);
	ck_assert_uint_le(value(&f.oldest, a, 0), hung + MS);
	ck_assert_uint_gt(value(&f.oldest, b, 0), hung);
	ck_assert_uint_eq(f.nr_ops, 2);
	ck_assert_uint_gt(value(&f.ended, b, DF_KIND_ALLREDUCE), 1000);
	/* the counters are exact nevertheless */
	ck_assert_int_eq(df_trace_comm_count(b, DF_KIND_ALLREDUCE, &count), 1);
	ck_assert_uint_eq(count.issued, 20001);
	ck_assert_uint_eq(count.done, 20000);
	ck_assert_uint_eq(count.bytes, 20001 * 4 * 4);
	ck_assert_str_eq(count.name, "second");
	ck_assert_int_eq(df_trace_comm_count(b + 1, DF_KIND_ALLREDUCE, &count), 0);
	/* everything unfinished ends */
	df_trace(DF_REC_OP_DONE, 0, b, 0, serial, 0, 0, 0, 0);
	ck_assert_int_eq(df_follow_step(&f, df_trace_ring()), 0);
	ck_assert_uint_eq(f.nr_ops, 1);
	ck_assert_uint_eq(value(&f.oldest, b, 0), 0);
	ck_assert_uint_lt(f.places.cap, 32768);
	follow_fini(&f);
	df_trace_close();
}
END_TEST

int main(void)
{
	return DF_TESTS("follow", {t_times}, {t_unseen}, {t_lapped});
}
