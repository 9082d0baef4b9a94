/*
 * Description: numbers in settings and files have a decimal point even in a locale with a comma.
 * Words compare equal even in a locale where I is not the capital of i.
 */
#include "tests/lib/test.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/ascii.h"
#include "runtime/base/number.h"
#include "runtime/base/rules.h"
#include "runtime/coll/far.h"
#include "runtime/program/build/cost.h"
#include "runtime/program/build/tuner.h"

START_TEST(t_comma)
{
	struct df_cost cost = {.far_inst_ns = 7000};
	char *end;

	/* The application's own numbers have a comma. */
	ck_assert(strtod("2,5", &end) == 2.5 && !*end);
	ck_assert(df_strtod("2.5", &end) == 2.5 && !*end);
	ck_assert(!df_far_parse("1.5:100.5", &cost));
	ck_assert(cost.far_ns == 1500 && cost.far_inst_ns == 7000);
	ck_assert(cost.far_byte_ns == 1e3 / 100.5);
	ck_assert(!df_far_parse("1.5:100.5:2.25", &cost) && cost.far_inst_ns == 2250);
	ck_assert(df_far_parse("1.5", &cost) && df_far_parse("1.5:", &cost) &&
		  df_far_parse("1.5:2:", &cost) && df_far_parse("1.5:2:3x", &cost) &&
		  df_far_parse(":2", &cost) && df_far_parse("1,5:2", &cost));
}
END_TEST

/* Another process reads the file in its own locale. */
START_TEST(t_written)
{
	static const struct df_cost cost = {.inst_ns = 1.5, .byte_ns = 0.25, .cores = 2};
	struct df_tuner t = {.has_cost = 1, .cost = cost};
	char text[1024] = "", own[8];
	FILE *f = fmemopen(text, sizeof(text), "w");

	ck_assert(f && !df_tuner_write(&t, f) && !fclose(f));
	ck_assert_msg(strstr(text, " inst_ns 1.5 ") && strstr(text, " byte_ns 0.25 ") &&
			      !strchr(text, ','),
		      "%s", text);
	{
		DF_DECIMAL_POINT;
		snprintf(own, sizeof(own), "%.1f", 2.5);
		ck_assert_str_eq(own, "2.5");
	}
	snprintf(own, sizeof(own), "%.1f", 2.5);
	ck_assert_str_eq(own, "2,5");
}
END_TEST

/* Runs in children of main(), which has selected another locale. */
START_TEST(t_dotless)
{
	const char *rules = "op=BROADCAST_I:PRIORITY";

	if (df_test_locale("tr_TR"))
		return;
	/* A sanitizer's strcasecmp() ignores the locale, so check tolower(). */
	ck_assert_int_ne(tolower('I'), 'i');
	ck_assert_int_eq(df_strcasecmp("INIT", "init"), 0);
	ck_assert_int_lt(df_strcasecmp("INI", "init"), 0);
	ck_assert_int_gt(df_strcasecmp("z", "Aa"), 0);
	ck_assert_int_eq(df_strncasecmp("INIT,net", "init|net", 4), 0);
	ck_assert_int_ne(df_strncasecmp("INIT,net", "init|net", 5), 0);
	ck_assert_int_eq(df_rules_word(rules, "op", "broadcast_i", "fifo|priority"), 1);
}
END_TEST

int main(void)
{
	if (df_test_locale("de_DE")) {
		puts("no locale with a comma can be made here");
		return 77;
	}
	return DF_TESTS("locale", {t_comma}, {t_written}, {t_dotless});
}
