/*
 * Verdicts on a part of the data. In traces of random programs and of the scenarios a rank's trace
 * is missing, is cut off, or has lost its oldest records. The checker must give the verdict of the
 * whole traces, or say that it is not sure.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/judge/result.h"
#include "trace/judge/say.h"
#include "trace/record/names.h"

#define PROGRAMS 500

enum damage { DROPPED, CUT, OVERWRITTEN, NR_DAMAGES };
static const char *const damages[] = {"not there", "cut off", "overwritten"};

static uint64_t state;
static unsigned long nr_judged[NR_DAMAGES], nr_unsure[NR_DAMAGES], nr_refused, nr_wrong;

static size_t below(size_t n)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (size_t)((state >> 33) % n);
}

/* Copies a trace as a ring with room for at most `keep` records would contain it. */
static void overwrite(struct tb_image *out, const struct tb_image *in, size_t keep)
{
	struct df_trace_header h = *in->h;
	size_t cap = 1;

	while (cap * 2 <= keep)
		cap *= 2;
	tb_image_init(out, h.rank, (int)h.world, cap);
	h.nr_recs = cap;
	h.off_recs = out->h->off_recs;
	*out->h = h;
	memcpy((char *)out->h + h.off_comms, (char *)in->h + h.off_comms, h.off_recs - h.off_comms);
	for (uint64_t i = 0; i < h.next; i++) {
		const struct df_rec *r = tb_at(in, i), *old = tb_at(out, i);

		if (i >= cap && old->comm) {
			struct df_trace_comm *c = tb_comm_at(out, old->comm);

			c->drops++;
			if (old->type == DF_REC_OP_MATCH && old->c > c->last_dropped)
				c->last_dropped = old->c;
		}
		if (r->comm) {
			tb_comm_at(out, r->comm)->issued += r->type == DF_REC_OP_ISSUE;
			tb_comm_at(out, r->comm)->done += r->type == DF_REC_OP_DONE;
		}
		*tb_at(out, i) = *r;
	}
}

/* The whole job's number of an operation, or DF_NONE. */
static uint32_t op_in(const struct df_check_set *set, const struct df_check_set *part, uint32_t op)
{
	const struct df_uop *u = &part->ops[op];

	for (uint32_t i = 0; i < set->nr_ops; i++)
		if (set->traces[set->ops[i].trace].h.rank == part->traces[u->trace].h.rank &&
		    set->ops[i].l.serial == u->l.serial)
			return i;
	return DF_NONE;
}

/*
 * Whether the cycle that the part shows is in the whole job, too: all its operations are stuck
 * there. The whole may have another fault beside it, which its verdict prefers.
 */
static int is_cycle_of(const struct df_check_result *r, const struct df_check_result *whole)
{
	int nr = 0;

	for (size_t i = 0; i < r->nr_steps; i++) {
		const struct df_node *n = &r->g.nodes[r->steps[i].from];
		uint32_t op;

		if (n->kind != DF_N_START && n->kind != DF_N_DONE)
			continue;
		op = op_in(whole->set, r->set, n->ref);
		if (op == DF_NONE || !whole->g.stuck[whole->set->ops[op].done])
			return 0;
		nr++;
	}
	return r->is_cycle && nr;
}

static const char *judge_damaged(const struct tb_image *im, int nr, const char *name,
				 const struct df_check_result *whole, enum damage damage)
{
	int which = (int)below((size_t)nr), rc = 0, sure;
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r = NULL;
	struct tb_image ring = {0};
	static char text[1000];

	for (int i = 0; i < nr; i++) {
		const struct tb_image *x = &im[i];
		size_t bytes = x->bytes;

		if (i == which && damage == DROPPED)
			continue;
		if (i == which && damage == OVERWRITTEN) {
			overwrite(&ring, x, 1 + below((size_t)x->h->next));
			x = &ring;
			bytes = x->bytes;
		}
		if (i == which && damage == CUT) {
			/*
			 * Cut off anywhere in the records. A file that ends in its tables is
			 * refused.
			 */
			bytes = x->h->off_recs +
				below((size_t)x->h->next * sizeof(struct df_rec) + 1);
			if (!below(20))
				bytes = below(x->h->off_recs);
		}
		rc = df_check_add_image(set, x->h, bytes, "t");
		if (rc) {
			ck_assert_ptr_nonnull(df_check_error(set));
			ck_assert_int_eq((int)damage, (int)CUT);
			nr_refused++;
			break;
		}
	}
	if (!rc)
		rc = df_check_run(set, NULL, &r);
	tb_image_fini(&ring);
	if (rc) {
		df_check_set_free(set);
		return NULL;
	}
	nr_judged[damage]++;
	sure = r->confidence == DF_C_PROVED && r->verdict != DF_V_UNKNOWN &&
	       r->verdict != whole->verdict && !is_cycle_of(r, whole);
	nr_unsure[damage] += r->verdict != whole->verdict;
	if (sure)
		snprintf(text, sizeof(text),
			 "%s, the trace of rank %d %s: \"%s\"; of the whole \"%s\"", name, which,
			 damages[damage], df_check_line(r), df_check_line(whole));
	nr_wrong += (unsigned long)sure;
	df_check_result_free(r);
	df_check_set_free(set);
	return sure ? text : NULL;
}

static void check_programs(FILE *f, int draws)
{
	struct tb_image im[DF_MODEL_RANKS];
	struct tb_prog p;

	while (tb_read(f, &p)) {
		struct tb_opts opts = {.crash = !strcmp(p.verdict, "CRASH")};
		struct df_check_set *set;
		struct df_check_result *whole;

		tb_run(&p.p, &opts, im);
		whole = tb_check(im, p.p.nr_ranks, &set);
		for (int i = 0; i < draws * NR_DAMAGES; i++) {
			const char *bad = judge_damaged(im, p.p.nr_ranks, p.name, whole,
							(enum damage)(i % NR_DAMAGES));

			if (bad && nr_wrong <= 20)
				printf("%s\n", bad);
		}
		df_check_result_free(whole);
		df_check_set_free(set);
		tb_images_fini(im, p.p.nr_ranks);
		df_mprog_fini(&p.p);
	}
}

static void report(void)
{
	for (int d = 0; d < NR_DAMAGES; d++)
		printf("%s: %lu judged, %lu of them otherwise than the whole\n", damages[d],
		       nr_judged[d], nr_unsure[d]);
	printf("%lu refused\n", nr_refused);
	ck_assert_msg(!nr_wrong, "%lu verdicts that are sure and wrong (SEED=%llu)", nr_wrong,
		      (unsigned long long)df_test_seed());
	ck_assert_uint_gt(nr_unsure[DROPPED], 0);
	ck_assert_uint_gt(nr_unsure[OVERWRITTEN], 0);
}

START_TEST(test_scenarios)
{
	FILE *f = tb_open("scenarios.txt");

	state = df_test_seed();
	check_programs(f, 8);
	fclose(f);
	report();
}
END_TEST

START_TEST(test_random)
{
	FILE *f = tb_random(df_test_seed(), PROGRAMS);

	state = df_test_seed();
	check_programs(f, 3);
	ck_assert_int_eq(pclose(f), 0);
	report();
}
END_TEST

/*
 * Ranks of a communicator that the odd ranks of a larger one have made, in the same or the opposite
 * order. The ranks `lost` have no trace. If they are known to have died, the same must be known in
 * the new communicator.
 */
#define RANKS 8

static const struct {
	unsigned lost, dead; /* bits: ranks of the larger one */
	int turned, divides; /* divides: rank 6 is still in ncclCommSplit */
	int rank, known;     /* of the new one; whether it is known to have died */
	const char *name;
} splits[] = {
	{0x80, 0x80, 0, 0, 3, 1, "r7"},		 {0x80, 0x80, 1, 0, 0, 1, "r7"},
	{0xa0, 0x80, 0, 0, 3, 1, "r7"},		 {0xa0, 0x80, 0, 0, 2, 0, "r5"},
	{0xa0, 0x80, 1, 0, 0, 1, "r7"},		 {0xa0, 0x80, 1, 0, 1, 0, "r5"},
	{0xc0, 0xc0, 0, 0, 3, 1, "rank 3 of B"}, {0xc0, 0x40, 0, 0, 3, 0, "rank 3 of B"},
	{0x80, 0x80, 0, 1, 3, 0, "rank 3 of B"},
};

START_TEST(test_split)
{
	int turned = splits[_i].turned, nr = 0;
	struct tb_image im[RANKS];
	struct df_check_result *r;
	struct df_check_set *set;
	char name[64];

	for (int i = 0; i < RANKS; i++) {
		if (splits[_i].lost >> i & 1)
			continue;
		tb_image_init(&im[nr], i, RANKS, 64);
		tb_comm(&im[nr], 0xa, RANKS, i, 0);
		if (i % 2)
			tb_comm_at(&im[nr], tb_comm(&im[nr], 0xb, RANKS / 2,
						    turned ? (RANKS - 1 - i) / 2 : i / 2, 0))
				->parent = 0xa;
		if (i == 6 && splits[_i].divides)
			tb_rec(&im[nr], DF_REC_CALL_ENTER, 1, DF_CALL_COMM_SPLIT, 0xa, 0)->comm = 1;
		for (int k = 0; k < RANKS; k++)
			if (splits[_i].dead >> k & 1)
				tb_rec(&im[nr], DF_REC_PEER_DEAD, (uint64_t)k, 1,
				       1000 + (uint64_t)k, 0)
					->comm = 1;
		nr++;
	}
	r = tb_check(im, nr, &set);
	ck_assert_int_eq(df_set_dead(set, 1, splits[_i].rank) != NULL, splits[_i].known);
	ck_assert_str_eq(df_say_member(set, 1, splits[_i].rank, name, sizeof(name)),
			 splits[_i].name);
	df_check_result_free(r);
	df_check_set_free(set);
	tb_images_fini(im, nr);
}
END_TEST

int main(void)
{
	int python = !system("python3 -c 1 2>/dev/null");

	if (!python)
		printf("no python3 to make random programs: the scenarios alone\n");
	return DF_TESTS("partial", {test_scenarios}, {python ? test_random : NULL},
			{test_split, sizeof(splits) / sizeof(*splits)});
}
