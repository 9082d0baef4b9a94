/*
 * The verifier must find mistakes. Programs are damaged at random (a step is dropped, moved or
 * changed, a dependency is lost). Accepted programs must compute the right result under every
 * schedule that is tried, and every kind of damage must be found in some program. Also tests single
 * errors with their places.
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
#include "runtime/program/file/text.h"
#include "runtime/program/program_names.h"
#include "tests/lib/test.h"

static uint64_t seed;

enum damage {
	DROP_STEP,
	SWAP_STEPS,
	CHANGE_SRC,
	CHANGE_DST,
	DROP_DEP,
	CHANGE_PEER,
	CHANGE_OP,
	NR_DAMAGES
};
static const char *const damages[] = {"step dropped",	     "steps swapped",	   "source changed",
				      "destination changed", "dependency dropped", "peer changed",
				      "operation changed"};

static int damage(struct df_plan *p, enum damage what, struct df_rng *rng)
{
	struct df_prank *r = &p->rank[df_rng_below(rng, (uint64_t)p->nranks)];
	struct df_pblock *b;
	uint32_t i;

	if (!r->nr_blocks)
		return 0;
	b = &r->block[df_rng_below(rng, r->nr_blocks)];
	if (!b->nr)
		return 0;
	i = (uint32_t)df_rng_below(rng, b->nr);
	switch (what) {
	case DROP_STEP:
		/* Replaced by a nop, so that dependencies on the step remain valid. */
		b->inst[i] = (struct df_pinst){
			.op = DF_OP_NOP, .deps = b->inst[i].deps, .send_peer = -1, .recv_peer = -1};
		return 1;
	case SWAP_STEPS: {
		uint32_t j = (uint32_t)df_rng_below(rng, b->nr);
		struct df_pinst t = b->inst[i];

		b->inst[i] = b->inst[j];
		b->inst[j] = t;
		return i != j;
	}
	case CHANGE_SRC:
		b->inst[i].src += (uint32_t)df_rng_below(rng, 3) - 1;
		return df_op_info[b->inst[i].op].reads;
	case CHANGE_DST:
		b->inst[i].dst += (uint32_t)df_rng_below(rng, 3) - 1;
		return df_op_info[b->inst[i].op].writes;
	case DROP_DEP:
		if (!b->inst[i].deps)
			return 0;
		b->inst[i].deps = r->dep[b->inst[i].deps - 1].next;
		return 1;
	case CHANGE_PEER: {
		int32_t *peer =
			df_rng_below(rng, 2) ? &b->inst[i].send_peer : &b->inst[i].recv_peer;

		if (*peer < 0)
			return 0;
		*peer = (int32_t)df_rng_below(rng, (uint64_t)p->nranks);
		return 1;
	}
	default:
		if (b->inst[i].op == DF_OP_RECV_REDUCE_SEND)
			b->inst[i].op = DF_OP_RECV_REDUCE_COPY_SEND;
		else if (b->inst[i].op == DF_OP_RECV_REDUCE_COPY)
			b->inst[i].op = DF_OP_RECV;
		else if (b->inst[i].op == DF_OP_REDUCE)
			b->inst[i].op = DF_OP_COPY;
		else
			return 0;
		return 1;
	}
}

START_TEST(t_mutations)
{
	const struct df_lib *lib = &df_library[_i];
	unsigned caught[NR_DAMAGES] = {0}, survived[NR_DAMAGES] = {0};
	struct df_rng rng;

	df_rng_init(&rng, seed + (uint64_t)_i);
	for (int round = 0; round < 400; round++) {
		struct df_shape s = {
			.nodes = 2, .gpus = 2, .nranks = 4, .instances = round & 1 ? 2 : 1};
		enum damage what = (enum damage)(round % NR_DAMAGES);
		struct df_plan *plan;
		struct df_program **p;
		struct df_expects x = {0};
		struct df_verify_out v;
		struct df_perr err;
		char why[512];
		int rc;

		df_perr_clear(&err);
		ck_assert_int_eq(df_library_compile(lib, &s, &plan, &x, &err), 0);
		if (!damage(plan, what, &rng)) {
			df_plan_destroy(plan);
			df_expects_fini(&x);
			continue;
		}
		rc = df_plan_prove(plan, &x, &p, &v);
		if (rc) {
			ck_assert_msg(rc == -EPROTO && v.err.text[0], "%s %s: %d", lib->name,
				      damages[what], rc);
			caught[what]++;
		} else {
			survived[what]++;
			for (int k = 0; k < 12; k++) {
				struct df_exec_check c = {
					.progs = p,
					.kind = plan->kind,
					.nranks = 4,
					.expect = &x,
					.count = plan->chunks * 3,
					.tile_elems = 1 + (uint64_t)k % 2,
					.in_place = v.in_place ? df_rng_u64(&rng) : 0,
					.seed = df_rng_u64(&rng),
					.type = DF_UINT32,
					.redop = df_coll_reduces(plan->kind) && k % 2 ? DF_PREMULSUM
										      : DF_SUM,
					.slots = v.min_slots,
					.instances = 2};

				rc = df_exec_check(&c, &err);
				ck_assert_msg(
					!rc,
					"%s with %s (round %d) was accepted, but: %s (SEED=%llu)",
					lib->name, damages[what], round,
					df_perr_str(&err, why, sizeof(why)),
					(unsigned long long)seed);
			}
			df_programs_free(p, 4);
		}
		df_plan_destroy(plan);
		df_expects_fini(&x);
	}
	/* Most of these changes are wrong. Some exchange equal things. */
	ck_assert_uint_gt(caught[DROP_STEP] + caught[CHANGE_PEER], 0);
	ck_assert_uint_le(survived[CHANGE_PEER], 2 * caught[CHANGE_PEER]);
}
END_TEST

static void refuse(const char *text, int line, int rank, int block, int step, const char *reason)
{
	struct df_plan *plan = NULL;
	struct df_program **p = NULL;
	struct df_expects x = {0};
	struct df_verify_out v;
	struct df_perr err;
	char why[512];

	df_perr_clear(&err);
	ck_assert_msg(df_text_parse(text, strlen(text), &plan, &x, &err) == 0, "%s", err.text);
	ck_assert_int_eq(df_plan_prove(plan, &x, &p, &v), -EPROTO);
	df_perr_str(&v.err, why, sizeof(why));
	ck_assert_msg(v.err.line == line && v.err.rank == rank && v.err.block == block &&
			      v.err.step == step,
		      "expected %d %d %d %d: %s", line, rank, block, step, why);
	ck_assert_msg(strstr(v.err.text, reason) != NULL, "expected \"%s\": %s", reason, why);
	df_plan_destroy(plan);
	df_expects_fini(&x);
}

#define HEAD2 "dfprog 1\nname t\nkind AllReduce\nranks 2\nchunks 1\n"
#define RANK0 "rank 0 in 1 out 1 scratch 1\nblock 0\n"
#define RANK1 "rank 1 in 1 out 1 scratch 1\nblock 0\n"

START_TEST(t_places)
{
	refuse(HEAD2 RANK0 "send i0 to 1\nrecvReduceCopy i0 o0 from 1\n" RANK1 "send i0 to 0\n", 8,
	       0, 0, 0, "is sent on, but no block receives");
	refuse(HEAD2 RANK0 "send i0 to 1\nsend i0 to 1\nrecvReduceCopy i0 o0 from 1\n" RANK1
			   "send i0 to 0\nrecvReduceCopy i0 o0 from 0\n",
	       8, 0, 0, 0, "carries 2 slices, but 1 are received");
	refuse(HEAD2 RANK0 "recvReduceCopy i0 o0 from 1\nsend i0 to 1\n" RANK1
			   "recvReduceCopy i0 o0 from 0\nsend i0 to 0\n",
	       8, 0, 0, 0, "rank 1 block 0 step 0, which waits for rank 0 block 0 step 0");
	refuse(HEAD2 RANK0 "send i0 to 1\nrecvReduceCopy i0 o0 from 1\n" RANK1
			   "send s0 to 0\nrecvReduceCopy i0 o0 from 0\n",
	       12, 1, 0, 0, "reads scratch chunk 0, which holds nothing yet");
	refuse(HEAD2 RANK0 "send i0 to 1\nrecvReduceCopy i0 i0 from 1\n" RANK1
			   "send i0 to 0\nrecvReduceCopy i0 o0 from 0\n",
	       9, 0, 0, 1, "writes to the input");
	refuse(HEAD2 RANK0 "send i0 to 1\nrecv o0 from 1\n" RANK1
			   "send i0 to 0\nrecvReduceCopy i0 o0 from 0\n",
	       9, 0, 0, 1, "output chunk 0 ends as 1:0, must be 0:0 + 1:0");
	refuse(HEAD2 RANK0 "send i0 to 1\nrecvReduceCopy i0 o0 from 1\nreduce i0 o0\n" RANK1
			   "send i0 to 0\nrecvReduceCopy i0 o0 from 0\n",
	       10, 0, 0, 2, "counts a contribution twice: 0:0 + 0:0 + 1:0");
	refuse(HEAD2 RANK0 "send i0 to 1\nrecv s0 from 1\nblock 1\ncopy i0 o0\nreduce s0 o0\n" RANK1
			   "send i0 to 0\nrecvReduceCopy i0 o0 from 0\n",
	       12, 0, 1, 1, "scratch chunk 0, which");
	refuse(HEAD2 RANK0 "send i0 to 1\nrecvReduceCopy i0 o1 from 1\n" RANK1
			   "send i0 to 0\nrecvReduceCopy i0 o0 from 0\n",
	       9, 0, 0, 1, "writes output chunks 1..1, the buffer has 1");
	refuse(HEAD2 RANK0 "send i0 to 1\nrecvReduceCopy i0 o0 from 1 after 0.3\n" RANK1
			   "send i0 to 0\nrecvReduceCopy i0 o0 from 0\n",
	       9, 0, 0, 1, "depends on block 0 step 3, which does not exist");
	refuse("dfprog 1\nkind AllReduce\nranks 2\nchunks 1\nrank 0 in 1 out 1 scratch 0\nblock 0\n"
	       "send i0 to 1\n"
	       "rank 1 in 1 out 1 scratch 0\nblock 0\nrecvReduceCopy i0 o0 from 0\n",
	       5, 0, -1, -1, "nothing writes it");
}
END_TEST

/*
 * Programs that are right although ranks add in different orders, that are right only for whole
 * chunks, or that need two slots.
 */
START_TEST(t_properties)
{
	static const char order[] =
		"dfprog 1\nkind AllReduce\nranks 3\nchunks 1\n"
		"rank 0 in 1 out 1 scratch 0\nblock 0\nsend i0 to 1\nsend i0 to 2\n"
		"recvReduceCopy i0 o0 from 1\nrecvReduceCopy o0 o0 from 2\n"
		"rank 1 in 1 out 1 scratch 0\nblock 0\nsend i0 to 0\nsend i0 to 2\n"
		"recvReduceCopy i0 o0 from 0\nrecvReduceCopy o0 o0 from 2\n"
		"rank 2 in 1 out 1 scratch 0\nblock 0\nsend i0 to 0\nsend i0 to 1\n"
		"recvReduceCopy i0 o0 from 0\nrecvReduceCopy o0 o0 from 1\n";
	static const char whole[] =
		"dfprog 1\nkind Custom\nranks 2\nchunks 2\nexpect 1.0 = 0.0\n"
		"rank 0 in 2 out 2 scratch 0\nblock 0\nsend i0 to 1\n"
		"rank 1 in 2 out 2 scratch 0\nblock 0\nrecv o1 from 0\ncopy o1 o0\n";
	struct df_plan *plan;
	struct df_program **p;
	struct df_expects x = {0};
	struct df_verify_out v;
	struct df_perr err;

	df_perr_clear(&err);
	ck_assert_int_eq(df_text_parse(order, strlen(order), &plan, &x, &err), 0);
	ck_assert_int_eq(df_plan_prove(plan, &x, &p, &v), 0);
	ck_assert_int_eq(v.same_order, 0);
	ck_assert_int_eq(v.in_place, 1);
	ck_assert_int_eq(v.whole_chunks, 0);
	df_programs_free(p, 3);
	df_plan_destroy(plan);

	ck_assert_int_eq(df_text_parse(whole, strlen(whole), &plan, &x, &err), 0);
	ck_assert_int_eq(df_plan_prove(plan, &x, &p, &v), 0);
	ck_assert_int_eq(v.whole_chunks, 1);
	df_programs_free(p, 2);
	df_plan_destroy(plan);
	df_expects_fini(&x);
}
END_TEST

/* Flags that a program contains are checked too. */
START_TEST(t_flags)
{
	struct df_prog_req q = {.kind = DF_COLL_ALLREDUCE,
				.algo = DF_ALGO_RING,
				.nranks = 4,
				.count = 1000,
				.elem_bytes = 4,
				.max_blocks = 1};
	struct df_program *p[4];
	struct df_verify_in in = {.kind = DF_COLL_ALLREDUCE, .nranks = 4, .progs = p};
	struct df_verify_out v;
	unsigned bad = 0, all = 0;

	for (q.rank = 0; q.rank < 4; q.rank++)
		ck_assert_int_eq(df_program_build(&q, &p[q.rank]), 0);
	ck_assert_int_eq(df_verify(&in, &v), 0);
	for (int r = 0; r < 4; r++) {
		for (uint32_t i = 0; i < p[r]->nr_inst; i++) {
			struct df_inst *k = (struct df_inst *)df_prog_inst(p[r], i);

			for (int f = DF_INST_RAW_SRC; f <= DF_INST_FINAL; f *= 2) {
				k->flags ^= (uint8_t)f;
				bad += df_verify(&in, &v) == -EPROTO && v.err.rank == r &&
				       v.err.step == (int)i;
				all++;
				k->flags ^= (uint8_t)f;
			}
		}
		p[r]->min_slots++;
		ck_assert_int_eq(df_verify(&in, &v), -EPROTO);
		p[r]->min_slots--;
	}
	ck_assert_uint_eq(bad, all);
	for (int r = 0; r < 4; r++)
		df_program_free(p[r]);
}
END_TEST

int main(void)
{
	seed = df_test_seed();
	return DF_TESTS("verifier", {t_mutations, (int)df_library_size}, {t_places}, {t_properties},
			{t_flags});
}
