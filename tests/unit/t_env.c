/* Description: the table of variables. Every row parses, refuses and prints values as declared. */
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/rules.h"

enum kind { KIND_ENUM, KIND_INT, KIND_STR, KIND_RULES };

static const struct row {
	enum kind kind;
	const char *name, *values;
	long def, min, max;
	size_t offset;
} rows[] = {
#define DF_ENV_ENUM(id, name, def, values, help)                                                   \
	{KIND_ENUM, #name, values, def, 0, 0, offsetof(struct df_env, id)},
#define DF_ENV_INT(id, name, def, min, max, unit, help)                                            \
	{KIND_INT, #name, NULL, def, min, max, offsetof(struct df_env, id)},
#define DF_ENV_STR(id, name, def, help)                                                            \
	{KIND_STR, #name, NULL, 0, 0, 0, offsetof(struct df_env, id)},
#define DF_ENV_RULES(id, name, def, keys, words, help)                                             \
	{KIND_RULES, #name, words, 0, 0, 0, offsetof(struct df_env, id)},
#include "runtime/base/env.def"
#undef DF_ENV_ENUM
#undef DF_ENV_INT
#undef DF_ENV_STR
#undef DF_ENV_RULES
};

static struct df_env parse_one(const char *name, const char *value)
{
	static char text[256]; /* strings of the result point into this array */
	char *env[] = {"PATH=/bin", text, NULL};
	static struct df_env e;

	snprintf(text, sizeof(text), "%s=%s", name, value);
	df_env_parse(&e, env);
	return e;
}

static long number(const struct df_env *e, const struct row *r)
{
	const char *p = (const char *)e + r->offset;

	return r->kind == KIND_ENUM ? *(const int *)p : *(const long *)p;
}

START_TEST(t_defaults)
{
	char *nothing[] = {NULL};
	struct df_env e;
	size_t i;

	df_env_parse(&e, nothing);
	ck_assert_int_eq(e.nr_errors, 0);
	for (i = 0; i < DF_ARRAY_LEN(rows); i++) {
		ck_assert_int_eq(e.set[i], 0);
		if (rows[i].kind == KIND_ENUM || rows[i].kind == KIND_INT)
			ck_assert_msg(number(&e, &rows[i]) == rows[i].def, "%s", rows[i].name);
	}
	ck_assert_int_eq(e.timeout_ms, 30000);
	ck_assert_ptr_null(e.trace);
	ck_assert_str_eq(e.stats, "0");
}
END_TEST

/*
 * Accepts every value of every enum, in upper and lower case, and both ends of every range. Refuses
 * everything else.
 */
START_TEST(t_rows)
{
	const struct row *r = &rows[_i];
	char text[64], *copy, *word, *save = NULL;
	struct df_env e;
	int k = 0;

	if (r->kind == KIND_ENUM) {
		copy = strdup(r->values);
		for (word = strtok_r(copy, "|", &save); word; word = strtok_r(NULL, "|", &save)) {
			e = parse_one(r->name, word);
			ck_assert_msg(number(&e, r) == k && e.set[_i] && !e.nr_errors, "%s=%s",
				      r->name, word);
			k++;
		}
		free(copy);
		e = parse_one(r->name, "nonsense");
		ck_assert_msg(e.nr_errors == 1 && number(&e, r) == r->def && !e.set[_i], "%s",
			      r->name);
		e = parse_one(r->name, r->values);
		ck_assert_msg(e.nr_errors == 1, "%s=%s", r->name, r->values);
	} else if (r->kind == KIND_INT) {
		const long good[] = {r->min, r->max, r->min + (r->max - r->min) / 2};
		const char *bad[] = {"x", "1x", "1 ", "0x10", "1e3", "99999999999999999999", "-"};
		size_t i;

		for (i = 0; i < DF_ARRAY_LEN(good); i++) {
			snprintf(text, sizeof(text), "%ld", good[i]);
			e = parse_one(r->name, text);
			ck_assert_msg(number(&e, r) == good[i] && e.set[_i] && !e.nr_errors,
				      "%s=%s", r->name, text);
		}
		for (i = 0; i < DF_ARRAY_LEN(bad); i++) {
			e = parse_one(r->name, bad[i]);
			ck_assert_msg(e.nr_errors == 1 && number(&e, r) == r->def, "%s=%s", r->name,
				      bad[i]);
		}
		snprintf(text, sizeof(text), "%ld", r->min - 1);
		e = parse_one(r->name, text);
		ck_assert_msg(e.nr_errors == 1 && number(&e, r) == r->def, "%s=%s", r->name, text);
		snprintf(text, sizeof(text), "%ld", r->max + 1);
		e = parse_one(r->name, text);
		ck_assert_msg(e.nr_errors == 1 && number(&e, r) == r->def, "%s=%s", r->name, text);
		e = parse_one(r->name, "auto");
		ck_assert_msg(e.nr_errors == (r->def != DF_AUTO), "%s=auto", r->name);
	} else if (r->kind == KIND_RULES) {
		const char *bad[] = {"nonsense",
				     "comm=a",
				     "comm=:1",
				     "=a:tcp",
				     "comm=a:",
				     "comm:a=tcp:",
				     "net=a:tcp",
				     "net=a:1",
				     "op=a:tcp",
				     "comm=a:tcp x",
				     "comm=a:1x",
				     "17",
				     "comm=a:9999999999999999999999"};
		const char *good =
			r->values ? "comm=a:b:TCP, auto,,comm=x:off" : "op=a:b:-7, comm=b:3";
		size_t i;

		for (i = 0; i < DF_ARRAY_LEN(bad); i++) {
			e = parse_one(r->name, bad[i]);
			ck_assert_msg(e.nr_errors == 1 && !e.set[_i], "%s=%s", r->name, bad[i]);
		}
		e = parse_one(r->name, good);
		ck_assert_msg(!e.nr_errors && e.set[_i], "%s=%s", r->name, good);
		ck_assert_str_eq(*(const char **)((char *)&e + r->offset), good);
	} else {
		e = parse_one(r->name, "some text");
		ck_assert_str_eq(*(const char **)((char *)&e + r->offset), "some text");
	}
	/* An empty value counts as unset. */
	e = parse_one(r->name, "");
	ck_assert_int_eq(e.nr_errors, 0);
	ck_assert_int_eq(e.set[_i], 0);
}
END_TEST

START_TEST(t_names_of_others)
{
	struct df_env e = parse_one("DFSHIM_MODES", "off");

	ck_assert_int_eq(e.mode, DF_MODE_PREVENT);
	e = parse_one("XDFSHIM_MODE", "off");
	ck_assert_int_eq(e.mode, DF_MODE_PREVENT);
}
END_TEST

/*
 * The process's own settings. A bad one causes one warning with its name. Later changes of the
 * environment have no effect.
 */
START_TEST(t_process)
{
	char out[2048];
	int fds[2], saved;
	ssize_t n;

	setenv("DFSHIM_ORDER", "sideways", 1);
	setenv("DFSHIM_TRCE", "x", 1);
	setenv("DFSHIM_ALGO", "first", 1);
	ck_assert_int_eq(pipe(fds), 0);
	saved = dup(STDERR_FILENO);
	dup2(fds[1], STDERR_FILENO);
	ck_assert_int_eq(df_env()->order, DF_ORDER_FIFO);
	dup2(saved, STDERR_FILENO);
	close(fds[1]);
	n = read(fds[0], out, sizeof(out) - 1);
	ck_assert_int_gt(n, 0);
	out[n] = '\0';
	ck_assert_msg(strstr(out, "DFSHIM_ORDER=sideways") && strstr(out, "fifo|priority"), "%s",
		      out);
	ck_assert_msg(strstr(out, "DFSHIM_TRCE") != NULL, "%s", out);
	ck_assert_int_eq(df_env()->nr_errors, 1);
	setenv("DFSHIM_ALGO", "second", 1);
	ck_assert_str_eq(df_env()->algo, "first");
}
END_TEST

START_TEST(t_expand)
{
	char buf[128], want[128], host[64];

	ck_assert_int_eq(df_env_expand(buf, sizeof(buf), "a/%r-%p%%", 3), 0);
	snprintf(want, sizeof(want), "a/3-%d%%", (int)getpid());
	ck_assert_str_eq(buf, want);
	ck_assert_int_eq(df_env_expand(buf, sizeof(buf), "%r", -1), 0);
	ck_assert_str_eq(buf, "x");
	gethostname(host, sizeof(host));
	host[strcspn(host, ".")] = '\0';
	ck_assert_int_eq(df_env_expand(buf, sizeof(buf), "%h", 0), 0);
	ck_assert_str_eq(buf, host);
	ck_assert_int_eq(df_env_expand(buf, 4, "abcd", 0), -ENAMETOOLONG);
	ck_assert_int_eq(df_env_expand(buf, 5, "abcd", 0), 0);
	ck_assert_int_eq(df_env_expand(buf, 0, "", 0), -ENAMETOOLONG);
}
END_TEST

/* The folder that all processes share, and a % that starts no pattern. */
START_TEST(t_expand_shared)
{
	static const char *const paths[][2] = {
		{"/x/%r", "/x"},
		{"/x/%h/a-%p", "/x"},
		{"/x/y", "/x/y"},
		{"a%r", "."},
		{"/%r", "/"},
		{"x/100%%/%h/r", "x/100%"},
		{"x/100%d/r", "x/100%d/r"},
		{"x/%%h/%r", "x/%h"},
	};
	char buf[16], again[16];

	for (size_t i = 0; i < DF_ARRAY_LEN(paths); i++) {
		ck_assert_int_eq(df_env_expand_shared(buf, sizeof(buf), paths[i][0]), 0);
		ck_assert_str_eq(buf, paths[i][1]);
		ck_assert_int_eq(df_env_literal(buf, sizeof(buf), paths[i][1]), 0);
		ck_assert_int_eq(df_env_is_pattern(buf), 0);
		ck_assert_int_eq(df_env_expand(again, sizeof(again), buf, 3), 0);
		ck_assert_str_eq(again, paths[i][1]);
	}
	ck_assert_int_eq(df_env_is_pattern("x/%%h/%r"), 1);
	ck_assert_int_eq(df_env_is_pattern("x/%%h/100%d%"), 0);
	ck_assert_int_eq(df_env_expand_shared(buf, 2, "/x/%r"), -ENAMETOOLONG);
	ck_assert_int_eq(df_env_literal(buf, 3, "a%"), -ENAMETOOLONG);
	ck_assert_int_eq(df_env_literal(buf, 4, "a%"), 0);
}
END_TEST

/*
 * df_rules_word() takes the first rule for this name. If there is none, it takes the word that
 * stands without a name, and without such a word the first allowed one.
 */
START_TEST(t_rules)
{
	const char *words = "auto|tcp|verbs", *rules = "comm=a:tcp,verbs,comm=A:auto,comm=b:c:auto";
	struct df_rule r;

	ck_assert_int_eq(df_rules_word(rules, "comm", "A", words), 1);
	ck_assert_int_eq(df_rules_word(rules, "comm", "b:c", words), 0);
	ck_assert_int_eq(df_rules_word(rules, "comm", "", words), 2);
	ck_assert_int_eq(df_rules_word(rules, "comm", "ab", words), 2);
	ck_assert_int_eq(df_rules_word("comm=a:tcp", "comm", "b", words), 0);
	ck_assert_int_eq(df_rules_word(NULL, "comm", "b", words), 0);
	ck_assert(df_rules_have(rules, words, 0) && !df_rules_have("comm=a:tcp", words, 0));
	rules = "op=x:-3";
	ck_assert_int_eq(df_rule_next(&rules, &r), 1);
	ck_assert(r.is_number && r.number == -3 && df_rule_is_for(&r, "op", "X") &&
		  !df_rule_is_for(&r, "comm", "x"));
	ck_assert_int_eq(df_rule_next(&rules, &r), 0);
}
END_TEST

int main(void)
{
	return DF_TESTS("environment", {t_defaults}, {t_rows, DF_ENV_NR_ROWS}, {t_names_of_others},
			{t_process}, {t_expand}, {t_expand_shared}, {t_rules});
}
