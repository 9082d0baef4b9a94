/* Seed and runner of Check programs (test.h). */
#include "tests/lib/test.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/time.h"

uint64_t df_test_seed(void)
{
	static uint64_t seed;
	static int known;
	const char *text = getenv("SEED");

	if (!known) {
		seed = text ? strtoull(text, NULL, 0) : df_wall_ns() ^ (uint64_t)getpid() << 40;
		known = 1;
		printf("SEED=%llu\n", (unsigned long long)seed);
		fflush(stdout);
	}
	return seed;
}

int df_test_slow(void)
{
	const char *text = getenv("SLOW");
	int slow = text ? atoi(text) : 1;

	return slow > 1 ? slow : 1;
}

int df_tests(const char *name, const struct df_test *tests, unsigned nr)
{
	const char *limit = getenv("LIMIT");
	void (*before)(void) = NULL, (*after)(void) = NULL;
	Suite *suite = suite_create(name);
	SRunner *runner = srunner_create(suite);
	int failed;

	for (const struct df_test *t = tests; t < tests + nr; t++) {
		TCase *tc;

		if (!t->test) {
			before = t->before;
			after = t->after;
			continue;
		}
		tc = tcase_create(name);
		tcase_set_timeout(tc, limit ? atof(limit) : 100);
		tcase_add_checked_fixture(tc, before, after);
		tcase_add_loop_test_raise_signal(tc, t->test, t->signal, t->from,
						 t->times ? t->times : 1);
		suite_add_tcase(suite, tc);
	}
	df_test_seed();
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}

int df_test_locale(const char *name)
{
	const char *t = getenv("T") ? getenv("T") : "/tmp";
	char command[600], whole[32];

	snprintf(command, sizeof(command), "localedef -i %s -f UTF-8 '%s/%s.UTF-8' 2>/dev/null",
		 name, t, name);
	snprintf(whole, sizeof(whole), "%s.UTF-8", name);
	return system(command) || setenv("LOCPATH", t, 1) || !setlocale(LC_ALL, whole) ? -1 : 0;
}
