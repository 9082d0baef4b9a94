/*
 * Reads the environment once, through the table env.def. Invariant: the values that df_env()
 * returns never change; they are copies, so the application may edit its environment later.
 *
 * Threads: any; the first one parses under pthread_once(). Parsing writes warnings, so the log must
 * not call df_env(): it reads its own variables through df_env_text().
 */
#include "runtime/base/env.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/ascii.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/near.h"
#include "runtime/base/rules.h"

extern char **environ;

static const char *const names[DF_ENV_NR_ROWS] = {
#define DF_ENV_ENUM(id, name, def, values, help)	[DF_ENV_ROW_##id] = #name,
#define DF_ENV_INT(id, name, def, min, max, unit, help) [DF_ENV_ROW_##id] = #name,
#define DF_ENV_STR(id, name, def, help)			[DF_ENV_ROW_##id] = #name,
#define DF_ENV_RULES(id, name, def, keys, words, help)	[DF_ENV_ROW_##id] = #name,
#include "runtime/base/env.def"
#undef DF_ENV_ENUM
#undef DF_ENV_INT
#undef DF_ENV_STR
#undef DF_ENV_RULES
};

_Static_assert(DF_ENV_NR_ROWS <= DF_ARRAY_LEN(((struct df_env *)0)->set),
	       "df_env.set is too small");

static struct df_env settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int quiet; /* another library of this process prints the warnings */

/*
 * Returns NULL if the variable is unset or empty: people write `export X=` to switch something off.
 */
static const char *lookup(char *const *env, const char *name)
{
	size_t len = strlen(name);

	for (; env && *env; env++)
		if (!strncmp(*env, name, len) && (*env)[len] == '=')
			return (*env)[len + 1] ? *env + len + 1 : NULL;
	return NULL;
}

const char *df_env_text(enum df_env_row row)
{
	return lookup(environ, names[row]);
}

const char *df_env_name(enum df_env_row row)
{
	return names[row];
}

int df_env_enum_index(const char *values, const char *value)
{
	return df_words_index(values, value, strlen(value));
}

static void parse_enum(struct df_env *env, enum df_env_row row, const char *text,
		       const char *values, int *out)
{
	int i;

	if (!text)
		return;
	i = df_env_enum_index(values, text);
	if (i < 0) {
		if (!quiet)
			df_warn("%s=%s cannot be used: allowed is one of %s", names[row], text,
				values);
		env->nr_errors++;
		return;
	}
	*out = i;
	env->set[row] = 1;
}

static void parse_int(struct df_env *env, enum df_env_row row, const char *text, long min, long max,
		      const char *unit, int has_auto, long *out)
{
	char *end;
	long v;

	if (!text)
		return;
	if (has_auto && !df_strcasecmp(text, "auto")) {
		env->set[row] = 1;
		return;
	}
	errno = 0;
	v = strtol(text, &end, 10);
	if (errno || end == text || *end || v < min || v > max) {
		if (!quiet)
			df_warn("%s=%s cannot be used: allowed is %s%ld to %ld (%s)", names[row],
				text, has_auto ? "auto or " : "", min, max, unit);
		env->nr_errors++;
		return;
	}
	*out = v;
	env->set[row] = 1;
}

static void parse_rules(struct df_env *env, enum df_env_row row, const char *text, const char *keys,
			const char *words, const char **out)
{
	const char *bad;

	if (!text)
		return;
	if (df_rules_check(text, keys, words, &bad)) {
		if (!quiet)
			df_warn("%s=%s cannot be used: allowed is %s%sKEY=NAME:%s, separated by "
				"commas, KEY one of %s; \"%.*s\" is not",
				names[row], text, words ? words : "", words ? " for all, and " : "",
				words ? "one of these" : "NUMBER", keys, (int)strcspn(bad, ","),
				bad);
		env->nr_errors++;
		return;
	}
	*out = text;
	env->set[row] = 1;
}

void df_env_parse(struct df_env *env, char *const *from)
{
	const char *text;

	memset(env, 0, sizeof(*env));
#define DF_ENV_ENUM(id, name, def, values, help)                                                   \
	env->id = (def);                                                                           \
	parse_enum(env, DF_ENV_ROW_##id, lookup(from, #name), values, &env->id);
#define DF_ENV_INT(id, name, def, min, max, unit, help)                                            \
	env->id = (def);                                                                           \
	parse_int(env, DF_ENV_ROW_##id, lookup(from, #name), min, max, unit, (def) == DF_AUTO,     \
		  &env->id);
#define DF_ENV_STR(id, name, def, help)                                                            \
	text = lookup(from, #name);                                                                \
	env->id = text ? text : (def);                                                             \
	env->set[DF_ENV_ROW_##id] = text != NULL;
#define DF_ENV_RULES(id, name, def, keys, words, help)                                             \
	env->id = (def);                                                                           \
	parse_rules(env, DF_ENV_ROW_##id, lookup(from, #name), keys, words, &env->id);
#include "runtime/base/env.def"
#undef DF_ENV_ENUM
#undef DF_ENV_INT
#undef DF_ENV_STR
#undef DF_ENV_RULES
}

const char *df_env_near(const char *name)
{
	static const char prefix[] = "DFSHIM_";
	const char *best = NULL, *rest = name;
	char whole[64];
	int limit;

	if (!df_strncasecmp(name, prefix, sizeof(prefix) - 1))
		rest += sizeof(prefix) - 1;
	limit = DF_MIN((int)strlen(rest) / 2, 3);
	snprintf(whole, sizeof(whole), "%s%s", prefix, rest);
	for (char *c = whole; *c; c++)
		*c = (char)df_ascii_upper((unsigned char)*c);
	for (int i = 0; i < DF_ENV_NR_ROWS; i++) {
		int edits = df_near_edits(whole, names[i]);

		if (edits < limit || (edits == limit && !best)) {
			limit = edits;
			best = names[i];
		}
	}
	return best;
}

/* Warns of a misspelt name, which would have no effect and no message otherwise. */
static void warn_unknown(char *const *env)
{
	const char *near;
	char name[64];
	size_t len;
	int i;

	for (; env && *env; env++) {
		if (strncmp(*env, "DFSHIM_", 7))
			continue;
		len = strcspn(*env, "=");
		for (i = 0; i < DF_ENV_NR_ROWS; i++)
			if (strlen(names[i]) == len && !strncmp(*env, names[i], len))
				break;
		if (i < DF_ENV_NR_ROWS)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)len, *env);
		near = df_env_near(name);
		df_warn("%.*s is not a variable of dfshim; %s%s`dfshim env` lists them", (int)len,
			*env, near ? near : "", near ? " is; " : "");
	}
}

static void keep(const char **s)
{
	char *copy = *s ? strdup(*s) : NULL;

	if (copy)
		*s = copy; /* without memory, keep the pointer into the environment */
}

static void parse_once(void)
{
	df_env_parse(&settings, environ);
#define DF_ENV_ENUM(id, name, def, values, help)
#define DF_ENV_INT(id, name, def, min, max, unit, help)
#define DF_ENV_STR(id, name, def, help)                                                            \
	if (settings.set[DF_ENV_ROW_##id])                                                         \
		keep(&settings.id);
#define DF_ENV_RULES(id, name, def, keys, words, help) DF_ENV_STR(id, name, def, help)
#include "runtime/base/env.def"
#undef DF_ENV_ENUM
#undef DF_ENV_INT
#undef DF_ENV_STR
#undef DF_ENV_RULES
	if (!quiet)
		warn_unknown(environ);
}

void df_env_quiet(void)
{
	quiet = 1;
}

const struct df_env *df_env(void)
{
	pthread_once(&once, parse_once);
	return &settings;
}

int df_env_net(const char *comm_name)
{
	return df_rules_word(df_env()->net, "comm", comm_name, DF_NET_WORDS);
}

int df_env_net_has(int net)
{
	return df_rules_have(df_env()->net, DF_NET_WORDS, net);
}

long df_env_lane_ctas(long *least)
{
	const struct df_env *e = df_env();

	*least = DF_MAX(DF_MAX(e->nccl_min_ctas, e->nccl_max_ctas),
			DF_MAX(e->nccl_min_nchannels, e->nccl_min_nrings));
	*least = DF_MAX(*least, 0);
	return DF_MAX(e->nccl_ctas, *least);
}

static int expand(char *buf, size_t size, const char *pattern, const char *end, int rank)
{
	char part[256];
	size_t len = 0, n;

	for (; pattern < end; pattern++) {
		part[0] = *pattern;
		part[1] = '\0';
		if (*pattern == '%' && pattern + 1 < end) {
			pattern++;
			if (*pattern == 'h') {
				if (gethostname(part, sizeof(part)))
					strcpy(part, "unknown");
				part[sizeof(part) - 1] = '\0';
				part[strcspn(part, ".")] = '\0';
			} else if (*pattern == 'p') {
				snprintf(part, sizeof(part), "%d", (int)getpid());
			} else if (*pattern == 'r') {
				if (rank < 0)
					strcpy(part, "x");
				else
					snprintf(part, sizeof(part), "%d", rank);
			} else if (*pattern != '%') {
				part[1] = *pattern;
				part[2] = '\0';
			}
		}
		n = strlen(part);
		if (len + n + 1 > size)
			return -ENAMETOOLONG;
		memcpy(buf + len, part, n);
		len += n;
	}
	if (!size)
		return -ENAMETOOLONG;
	buf[len] = '\0';
	return 0;
}

int df_env_expand(char *buf, size_t size, const char *pattern, int rank)
{
	return expand(buf, size, pattern, pattern + strlen(pattern), rank);
}

/* Returns the first %h, %p or %r, or the end. slash: the last '/' before it, or NULL. */
static const char *first_to_expand(const char *pattern, const char **slash)
{
	const char *p = pattern;

	*slash = NULL;
	for (; *p && !(*p == '%' && p[1] && strchr("hpr", p[1])); p++) {
		if (*p == '/')
			*slash = p;
		else if (*p == '%' && p[1] == '%')
			p++;
	}
	return p;
}

int df_env_is_pattern(const char *text)
{
	const char *slash;

	return *first_to_expand(text, &slash) != 0;
}

int df_env_expand_shared(char *buf, size_t size, const char *pattern)
{
	const char *slash, *p = first_to_expand(pattern, &slash);

	if (!*p)
		return expand(buf, size, pattern, p, -1);
	if (!slash)
		return df_env_expand(buf, size, ".", -1);
	return expand(buf, size, pattern, slash == pattern ? slash + 1 : slash, -1);
}

int df_env_literal(char *buf, size_t size, const char *text)
{
	size_t len = 0;

	for (; *text; text++) {
		if (len + 2 >= size)
			return -ENAMETOOLONG;
		if (*text == '%')
			buf[len++] = '%';
		buf[len++] = *text;
	}
	if (len >= size)
		return -ENAMETOOLONG;
	buf[len] = '\0';
	return 0;
}
