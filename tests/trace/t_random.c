/*
 * Random programs. Compares the model's label with the checker's verdict on the trace of the run
 * and, if python3 exists, with the independent model in tests/model/model.py.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"

#define PROGRAMS 1500

static int plausible(const char *label, enum df_verdict v)
{
	if (!strcmp(label, "OK"))
		return v == DF_V_OK;
	if (!strcmp(label, "P"))
		return v == DF_V_ORDER || v == DF_V_RESOURCE;
	if (label[0] == 'S')
		return v == DF_V_SYNC;
	/* The whole program is not preventable, but the first cycle that is found may be. */
	return v != DF_V_OK;
}

static int severity(const char *label)
{
	static const char *const order[] = {"OK", "P", "Si", "Se", "D"};
	int i = 0;

	while (i < 4 && strcmp(order[i], label))
		i++;
	return i;
}

static int has_exit(const struct df_mprog *p)
{
	for (int r = 0; r < p->nr_ranks; r++)
		for (int t = 0; t < p->nr_threads[r]; t++)
			for (size_t i = 0; i < p->threads[r][t].nr_ops; i++)
				if (p->threads[r][t].ops[i].kind == DF_MOP_EXIT)
					return 1;
	return 0;
}

START_TEST(test_random)
{
	struct tb_image im[DF_MODEL_RANKS];
	struct tb_prog p;
	char label[8];
	FILE *f = tb_random(df_test_seed(), PROGRAMS);
	int nr = 0, off = 0;

	for (; tb_read(f, &p); nr++) {
		struct df_check_set *set;
		struct df_check_result *r;
		int hung;

		p.p.as_reference = 1;
		ck_assert_msg(!strcmp(df_model_classify(&p.p), p.label),
			      "%s: model %s, expected %s", p.name, df_model_classify(&p.p),
			      p.label);
		/*
		 * The model may only be stricter (t_model.c), and by NCCL's rules there is no
		 * difference.
		 */
		p.p.as_reference = 0;
		snprintf(label, sizeof(label), "%s", df_model_classify(&p.p));
		ck_assert_msg(severity(label) >= severity(p.label) &&
				      (severity(label) == 0) == (severity(p.label) == 0),
			      "%s: %s, by the reference %s", p.name, label, p.label);
		hung = tb_run(&p.p, NULL, im);
		r = tb_check(im, p.p.nr_ranks, &set);
		/*
		 * No false alarm, and no hang without a verdict. If a rank exits first, the model
		 * cannot be compared.
		 */
		if (!has_exit(&p.p)) {
			ck_assert_msg((df_check_verdict(r) == DF_V_OK) == !hung ||
					      df_check_verdict(r) == DF_V_MISMATCH,
				      "%s (%s): %s", p.name, label, df_check_line(r));
			off += !plausible(label, df_check_verdict(r));
		}
		df_check_result_free(r);
		df_check_set_free(set);
		tb_images_fini(im, p.p.nr_ranks);
		df_mprog_fini(&p.p);
	}
	pclose(f);
	ck_assert_int_eq(nr, PROGRAMS);
	/* The checker may report the other one of two cycles of different kinds. */
	ck_assert_int_le(off, PROGRAMS / 100);
}
END_TEST

int main(void)
{
	if (system("python3 -c 1 2>/dev/null")) {
		printf("no python3 to make random programs and label them\n");
		return 77;
	}
	return DF_TESTS("random", {test_random});
}
