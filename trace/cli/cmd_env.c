/*
 * `dfshim env`: prints the table of variables, for people and programs, with the values of this
 * environment, and the manual page's rows.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/clean_text.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/say/json.h"

enum kind { KIND_ENUM, KIND_INT, KIND_STR, KIND_RULES };

static const struct row {
	enum kind kind;
	const char *name, *values, *unit, *help, *keys;
	long def, min, max;
} rows[DF_ENV_NR_ROWS] = {
#define DF_ENV_ENUM(id, name, def, values, help)                                                   \
	{KIND_ENUM, #name, values, NULL, help, NULL, def, 0, 0},
#define DF_ENV_INT(id, name, def, min, max, unit, help)                                            \
	{KIND_INT, #name, NULL, unit, help, NULL, def, min, max},
#define DF_ENV_STR(id, name, def, help) {KIND_STR, #name, NULL, NULL, help, NULL, 0, 0, 0},
#define DF_ENV_RULES(id, name, def, keys, words, help)                                             \
	{KIND_RULES, #name, words, NULL, help, keys, 0, 0, 0},
#include "runtime/base/env.def"
#undef DF_ENV_ENUM
#undef DF_ENV_INT
#undef DF_ENV_STR
#undef DF_ENV_RULES
};

/* Returns the value of row i in env as text, or NULL if it has none. */
static const char *value_text(const struct df_env *env, int row, char *buf, size_t size)
{
	const char *values;
	long v = 0;
	int i;

	switch (row) {
#define DF_ENV_ENUM(id, name, def, values, help)                                                   \
	case DF_ENV_ROW_##id:                                                                      \
		v = env->id;                                                                       \
		break;
#define DF_ENV_INT(id, name, def, min, max, unit, help)                                            \
	case DF_ENV_ROW_##id:                                                                      \
		v = env->id;                                                                       \
		break;
#define DF_ENV_STR(id, name, def, help)                                                            \
	case DF_ENV_ROW_##id:                                                                      \
		return env->id;
#define DF_ENV_RULES(id, name, def, keys, words, help) DF_ENV_STR(id, name, def, help)
#include "runtime/base/env.def"
#undef DF_ENV_ENUM
#undef DF_ENV_INT
#undef DF_ENV_STR
#undef DF_ENV_RULES
	}
	if (rows[row].kind == KIND_ENUM) {
		values = rows[row].values;
		for (i = 0; i < v; i++)
			values += strcspn(values, "|") + 1;
		snprintf(buf, size, "%.*s", (int)strcspn(values, "|"), values);
	} else if (v == DF_AUTO) {
		snprintf(buf, size, "auto");
	} else {
		snprintf(buf, size, "%ld", v);
	}
	return buf;
}

static void allowed_text(const struct row *r, char *buf, size_t size)
{
	if (r->kind == KIND_ENUM)
		snprintf(buf, size, "%s", r->values);
	else if (r->kind == KIND_INT)
		snprintf(buf, size, "%s%ld..%ld %s", r->def == DF_AUTO ? "auto, " : "", r->min,
			 r->max, r->unit);
	else if (r->kind == KIND_RULES)
		snprintf(buf, size, "%s%sKEY=NAME:%s, separated by commas; KEY: %s",
			 r->values ? r->values : "", r->values ? " for all, " : "",
			 r->values ? "one of these" : "NUMBER", r->keys);
	else
		snprintf(buf, size, "text");
}

static json_t *row_json(const struct df_env *now, const struct df_env *def, int i)
{
	static const char *const kinds[] = {"enum", "integer", "string", "rules"};
	const struct row *r = &rows[i];
	json_t *o = json_pack("{s:s, s:s}", "name", r->name, "type", kinds[r->kind]), *list;
	char buf[2][64];

	if (r->values) {
		list = json_array();
		for (const char *v = r->values; *v; v += strcspn(v, "|"), v += *v == '|')
			json_array_append_new(list, json_stringn(v, strcspn(v, "|")));
		json_object_set_new(o, "values", list);
	} else if (r->kind == KIND_INT) {
		df_json_add(o, json_pack("{s:I, s:I, s:s}", "min", (json_int_t)r->min, "max",
					 (json_int_t)r->max, "unit", r->unit));
	}
	df_json_add(o, json_pack("{s:o, s:o, s:b, s:s}", "default",
				 df_json_text(value_text(def, i, buf[0], sizeof(buf[0]))), "value",
				 df_json_text(value_text(now, i, buf[1], sizeof(buf[1]))), "set",
				 now->set[i], "help", r->help));
	return o;
}

/* The rows that are requested by name. If there are none, all rows are. */
struct names {
	char **names;
	int nr;
};

static int is_wanted(const struct names *w, int row)
{
	for (int i = 0; i < w->nr; i++)
		if (!strcmp(w->names[i], rows[row].name))
			return 1;
	return !w->nr;
}

/* Returns the first name that has no row, or NULL if all have one. */
static const char *unknown_name(const struct names *w)
{
	for (int i = 0; i < w->nr; i++) {
		int row = 0;

		while (row < DF_ENV_NR_ROWS && strcmp(w->names[i], rows[row].name) != 0)
			row++;
		if (row == DF_ENV_NR_ROWS)
			return w->names[i];
	}
	return NULL;
}

static int print_json(const struct names *w, const struct df_env *now, const struct df_env *def)
{
	json_t *list = json_array();

	for (int i = 0; i < DF_ENV_NR_ROWS; i++)
		if (is_wanted(w, i))
			json_array_append_new(list, row_json(now, def, i));
	return df_json_line(list, stdout) ? 1 : 0;
}

static void print_text(FILE *out, const struct names *w, const struct df_env *now,
		       const struct df_env *def)
{
	char allowed[256], d[64], v[64], clean[4096];
	int i;

	fprintf(out, "%-22s %-26s %-10s %s\n", "VARIABLE", "VALUE (* = set by you)", "DEFAULT",
		"ALLOWED");
	for (i = 0; i < DF_ENV_NR_ROWS; i++) {
		const char *dt = value_text(def, i, d, sizeof(d));
		const char *vt = value_text(now, i, v, sizeof(v));

		if (!is_wanted(w, i))
			continue;
		allowed_text(&rows[i], allowed, sizeof(allowed));
		fprintf(out, "%-22s %c %-24s %-10s %s\n", rows[i].name, now->set[i] ? '*' : ' ',
			vt ? df_text_cleaned(vt, clean, sizeof(clean)) : "-", dt ? dt : "-",
			allowed);
		fprintf(out, "    %s\n", rows[i].help);
	}
}

static void put_roff(FILE *out, const char *s)
{
	int start = 1;

	for (; *s; s++) {
		if (start && (*s == '.' || *s == '\''))
			fputs("\\&", out);
		if (*s == '\\')
			fputs("\\e", out);
		else if (*s == '-')
			fputs("\\-", out);
		else
			fputc(*s, out);
		start = 0;
	}
}

static void print_man(FILE *out, const struct df_env *def)
{
	char allowed[256], d[64];
	int i;

	for (i = 0; i < DF_ENV_NR_ROWS; i++) {
		const char *dt = value_text(def, i, d, sizeof(d));

		allowed_text(&rows[i], allowed, sizeof(allowed));
		fprintf(out, ".TP\n.B %s\n", rows[i].name);
		put_roff(out, rows[i].help);
		fprintf(out, ".\nAllowed: ");
		put_roff(out, allowed);
		fprintf(out, ".\nDefault: ");
		put_roff(out, dt ? dt : "unset");
		fprintf(out, ".\n");
	}
}

int df_cmd_env(int argc, char **argv)
{
	static char *const nothing[] = {NULL};
	int json = 0, man = 0, rc = 0;
	const char *unknown, *near;
	struct df_env def;
	struct names w;
	const struct df_opt options[] = {
		DF_OPT(JSON, json, "one JSON array"),
		DF_FLAG("man", man, "rows of a manual page"),
	};

	DF_CLI_PARSE("env", &argc, &argv, .args = "[NAME...]", .most = -1,
		     .doc = "All variables of the environment that dfshim reads, or those named: "
			    "allowed values, default, current value, meaning. Values that cannot "
			    "be used are named on standard error; under DFSHIM_STRICT=1 the exit "
			    "status is then 1.");
	w = (struct names){argv, argc};
	unknown = unknown_name(&w);
	near = unknown ? df_env_near(unknown) : NULL;
	if (unknown)
		return df_cli_usage_error("env", "no variable '%s'%s%s", unknown,
					  near ? "; the nearest is " : "", near ?: "");
	df_env_parse(&def, nothing);
	if (json)
		rc = print_json(&w, df_env(), &def);
	else if (man)
		print_man(stdout, &def);
	else
		print_text(stdout, &w, df_env(), &def);
	return df_env()->nr_errors && df_env()->strict ? 1 : rc;
}
