/* Description: numbers in settings and files have a decimal point, although the application has chosen a locale with a comma. */
#include "tests/lib/test.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/number.h"
#include "runtime/coll/far.h"
#include "runtime/program/build/cost.h"

START_TEST(t_comma)
{
	struct df_cost cost = {.far_inst_ns = 7000};
	char *end;

	/* The application's own numbers have one. */
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

int main(void)
{
	char command[600];
	const char *t = getenv("T");

	snprintf(command, sizeof(command),
		 "localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8' 2>/dev/null", t ? t : "/tmp");
	if (system(command) || setenv("LOCPATH", t ? t : "/tmp", 1) ||
	    !setlocale(LC_ALL, "de_DE.UTF-8")) {
		puts("no locale with a comma can be made here");
		return 77;
	}
	return DF_TESTS("locale", {t_comma});
}
