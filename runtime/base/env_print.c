/*
 * The table of variables for people and programs: `dfshim env`, the manual page. Apart from env.c so
 * that libdfshim.so does not carry it.
 */
#include "runtime/base/env.h"

#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/json.h"

#define BUF_BYTES 65536

enum kind { KIND_ENUM, KIND_INT, KIND_STR };

static const struct row {
	enum kind kind;
	const char *name, *values, *unit, *help, *def_text;
	long def, min, max;
} rows[DF_ENV_NR_ROWS] = {
#define DF_ENV_ENUM(id, name, def, values, help)                                                   \
	{KIND_ENUM, #name, values, NULL, help, NULL, def, 0, 0},
#define DF_ENV_INT(id, name, def, min, max, unit, help)                                            \
	{KIND_INT, #name, NULL, unit, help, NULL, def, min, max},
#define DF_ENV_STR(id, name, def, help) {KIND_STR, #name, NULL, NULL, help, def, 0, 0, 0},
#include "runtime/base/env.def"
#undef DF_ENV_ENUM
#undef DF_ENV_INT
#undef DF_ENV_STR
};

/* The value of row i in env as text; NULL: none. */
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
#include "runtime/base/env.def"
#undef DF_ENV_ENUM
#undef DF_ENV_INT
#undef DF_ENV_STR
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
	else
		snprintf(buf, size, "text");
}

static void print_json(FILE *out, const struct df_env *now, const struct df_env *def)
{
	static const char *const kinds[] = {"enum", "integer", "string"};
	static char text[BUF_BYTES];
	char buf[64];
	struct df_json j;
	int i;

	df_json_init(&j, text, sizeof(text));
	df_json_array(&j, NULL);
	for (i = 0; i < DF_ENV_NR_ROWS; i++) {
		const struct row *r = &rows[i];

		df_json_object(&j, NULL);
		df_json_str(&j, "name", r->name);
		df_json_str(&j, "type", kinds[r->kind]);
		if (r->kind == KIND_ENUM) {
			const char *v = r->values;

			df_json_array(&j, "values");
			while (*v) {
				df_json_strn(&j, NULL, v, strcspn(v, "|"));
				v += strcspn(v, "|");
				v += *v == '|';
			}
			df_json_end(&j);
		} else if (r->kind == KIND_INT) {
			df_json_i64(&j, "min", r->min);
			df_json_i64(&j, "max", r->max);
			df_json_str(&j, "unit", r->unit);
		}
		df_json_str(&j, "default", value_text(def, i, buf, sizeof(buf)));
		df_json_str(&j, "value", value_text(now, i, buf, sizeof(buf)));
		df_json_bool(&j, "set", now->set[i]);
		df_json_str(&j, "help", r->help);
		df_json_end(&j);
	}
	df_json_end(&j);
	if (df_json_fini(&j) < 0)
		fprintf(stderr, "dfshim: env: the table does not fit %d bytes\n", BUF_BYTES);
	else
		fprintf(out, "%s\n", text);
}

static void print_text(FILE *out, const struct df_env *now, const struct df_env *def)
{
	char allowed[256], d[64], v[64];
	int i;

	fprintf(out, "%-22s %-26s %-10s %s\n", "VARIABLE", "VALUE (* = set by you)", "DEFAULT",
		"ALLOWED");
	for (i = 0; i < DF_ENV_NR_ROWS; i++) {
		const char *dt = value_text(def, i, d, sizeof(d));
		const char *vt = value_text(now, i, v, sizeof(v));

		allowed_text(&rows[i], allowed, sizeof(allowed));
		fprintf(out, "%-22s %c %-24s %-10s %s\n", rows[i].name, now->set[i] ? '*' : ' ',
			vt ? vt : "-", dt ? dt : "-", allowed);
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

void df_env_print(FILE *out, enum df_env_format format)
{
	static char *const nothing[] = {NULL};
	struct df_env def;

	df_env_parse(&def, nothing);
	switch (format) {
	case DF_ENV_TEXT:
		print_text(out, df_env(), &def);
		break;
	case DF_ENV_JSON:
		print_json(out, df_env(), &def);
		break;
	case DF_ENV_MAN:
		print_man(out, &def);
		break;
	}
}
