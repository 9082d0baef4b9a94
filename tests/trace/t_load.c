/*
 * Loading of threads. A thread's device is the one for which the thread itself made a call, because
 * it may also record the end of any rank's operation, and because the checker of a living job gets
 * only the last few of the old records. Also what the end of a device synchronisation says about
 * NCCL's operations.
 */
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/read/load.h"
#include "trace/record/names.h"

START_TEST(test_device_of_thread)
{
	static const enum df_rec_type passed_on[] = {DF_REC_OP_SLOT, DF_REC_OP_START,
						     DF_REC_OP_DONE, DF_REC_COMM_ABORT,
						     DF_REC_DAEMON_QUIT};
	struct df_lthread *t;
	struct df_reader r;
	struct tb_image im;
	struct df_rec *rec;
	struct df_load l;
	uint64_t serial;

	df_load_init(&l);
	tb_image_init(&im, 0, 2, 64);
	tb_comm(&im, 0xabc, 2, 0, 0);
	tb_comm(&im, 0xabc, 2, 1, 1);
	serial = tb_issue(&im, 2, 1, DF_KIND_ALLREDUCE, 10, -1, 0);
	for (uint64_t i = im.h->next - 3; i < im.h->next; i++) {
		tb_at(&im, i)->thread = 71;
		tb_at(&im, i)->device = 1;
	}
	tb_issue(&im, 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	for (uint64_t i = im.h->next - 3; i < im.h->next; i++)
		tb_at(&im, i)->thread = 70;
	rec = tb_op(&im, 2, passed_on[_i], serial);
	rec->thread = 70;
	rec->device = 1;
	ck_assert_int_eq(df_reader_open_image(&r, im.h, im.bytes, NULL), 0);
	ck_assert_int_eq(df_load_trace(&l, &r), 0);
	t = df_load_thread(&l, 70);
	ck_assert_ptr_nonnull(t);
	ck_assert_int_eq(t->device, 0);
	t = df_load_thread(&l, 71);
	ck_assert_ptr_nonnull(t);
	ck_assert_int_eq(t->device, 1);
	df_reader_close(&r);
	df_load_fini(&l);
	tb_image_fini(&im);
}
END_TEST

#define BY_NCCL	 ((uint64_t)DF_OP_BY_NCCL << 24)
#define END_SEEN ((uint64_t)DF_OP_END_SEEN << 24)

/*
 * Mode trace. Thread 71 records an operation and puts it on a stream a little later. Meanwhile
 * thread 70 synchronises the device, and returns. This shows the operation's end only if thread 70
 * has issued the operation, or if nothing else can show the end.
 */
START_TEST(test_end_by_synchronisation)
{
	static const struct {
		uint32_t thread;
		uint64_t flags;
		enum df_op_state state;
	} ways[] = {{70, BY_NCCL | END_SEEN, DF_OP_FINISHED},
		    {71, BY_NCCL | END_SEEN, DF_OP_ISSUED},
		    {71, BY_NCCL, DF_OP_FINISHED}};
	struct df_reader r;
	struct tb_image im;
	struct df_load l;

	df_load_init(&l);
	tb_image_init(&im, 0, 2, 64);
	im.h->mode = im.h->rules = 1;
	tb_comm(&im, 0xabc, 2, 0, 0);
	tb_issue(&im, 1, 0, DF_KIND_ALLREDUCE, 10, -1, 0);
	for (uint64_t i = im.h->next - 3; i < im.h->next; i++)
		tb_at(&im, i)->thread = ways[_i].thread;
	tb_at(&im, im.h->next - 3)->a |= ways[_i].flags;
	tb_rec(&im, DF_REC_CALL_ENTER, 500, DF_CALL_DEVICE_SYNC, 0, 0)->thread = 70;
	tb_rec(&im, DF_REC_CALL_EXIT, 500, DF_CALL_DEVICE_SYNC, 0, 0)->thread = 70;
	ck_assert_int_eq(df_reader_open_image(&r, im.h, im.bytes, NULL), 0);
	ck_assert_int_eq(df_load_trace(&l, &r), 0);
	ck_assert_uint_eq(l.nr_ops, 1);
	ck_assert_int_eq(l.ops[0].state, ways[_i].state);
	df_reader_close(&r);
	df_load_fini(&l);
	tb_image_fini(&im);
}
END_TEST

int main(void)
{
	return DF_TESTS("load", {test_device_of_thread, 5}, {test_end_by_synchronisation, 3});
}
