/*
 * The settings of this process, read once from the environment through the table env.def.
 *
 * Any thread may call df_env() at any time; the first call parses. A value that cannot be used
 * gives one warning, which names the variable, the value and the allowed values; the default is
 * used instead. With DFSHIM_STRICT=1, nr_errors > 0 makes the start of the library fail.
 */
#ifndef DF_BASE_ENV_H
#define DF_BASE_ENV_H

#include <limits.h>
#include <stdio.h>

#define DF_AUTO LONG_MIN

struct df_env {
#define DF_ENV_ENUM(id, name, def, values, help)	int id;
#define DF_ENV_INT(id, name, def, min, max, unit, help) long id;
#define DF_ENV_STR(id, name, def, help)			const char *id;
#define DF_ENV_RULES(id, name, def, keys, words, help)	const char *id;
#include "runtime/base/env.def"
#undef DF_ENV_ENUM
#undef DF_ENV_INT
#undef DF_ENV_STR
#undef DF_ENV_RULES
	int nr_errors;		/* values that could not be used */
	unsigned char set[128]; /* by row: 1 if the user set a usable value */
};

/* Row numbers, for df_env()->set[]. */
enum df_env_row {
#define DF_ENV_ENUM(id, name, def, values, help)	DF_ENV_ROW_##id,
#define DF_ENV_INT(id, name, def, min, max, unit, help) DF_ENV_ROW_##id,
#define DF_ENV_STR(id, name, def, help)			DF_ENV_ROW_##id,
#define DF_ENV_RULES(id, name, def, keys, words, help)	DF_ENV_ROW_##id,
#include "runtime/base/env.def"
#undef DF_ENV_ENUM
#undef DF_ENV_INT
#undef DF_ENV_STR
#undef DF_ENV_RULES
	DF_ENV_NR_ROWS
};

enum { DF_MODE_PREVENT, DF_MODE_TRACE, DF_MODE_OFF };
enum { DF_EXECUTOR_AUTO, DF_EXECUTOR_DAEMON, DF_EXECUTOR_NCCL };
enum { DF_NCCL_ORDER_ISSUE, DF_NCCL_ORDER_AGREE };
enum { DF_HANDOVER_DEVICE, DF_HANDOVER_WINDOW, DF_HANDOVER_OFF };
enum { DF_BACKEND_AUTO, DF_BACKEND_CUDA, DF_BACKEND_HOST };
enum { DF_NET_AUTO, DF_NET_TCP, DF_NET_VERBS, DF_NET_PLUGIN, DF_NET_OFF };
#define DF_NET_WORDS "auto|tcp|verbs|plugin|off"
enum { DF_ORDER_FIFO, DF_ORDER_PRIORITY };
enum { DF_STREAM_RELAXED, DF_STREAM_STRICT };
enum { DF_RELEASE_SAFE, DF_RELEASE_NONE, DF_RELEASE_DEVICE, DF_RELEASE_ALL };
enum { DF_TIMEOUT_REPORT, DF_TIMEOUT_ABORT, DF_TIMEOUT_EXIT };

/* Returns the settings. Never NULL; constant after the first call. */
const struct df_env *df_env(void);
/*
 * The CTAs that a communicator on a lane may have: DFSHIM_NCCL_CTAS, or more where a variable of
 * NCCL asks for more. *least: the number that those variables give to every communicator, or 0.
 */
long df_env_lane_ctas(long *least);

/*
 * Returns DF_NET_*: what DFSHIM_NET sets for the communicator of that name. "" asks for
 * communicators that no rule names.
 */
int df_env_net(const char *comm_name);
/* Whether DFSHIM_NET selects this network for any communicator. */
int df_env_net_has(int net);

/* Call before the first df_env() if another library of this process prints the same warnings. */
void df_env_quiet(void);

/*
 * Parses one environment into *env by the same rules, warnings included, for tests and `dfshim
 * env`. Strings in *env point into the environment.
 */
void df_env_parse(struct df_env *env, char *const *from);

/*
 * Returns the variable that a misspelt name, with or without DFSHIM_, may stand for, or NULL if
 * none is similar.
 */
const char *df_env_near(const char *name);

/*
 * Returns the present text of one variable, or NULL if it is unset or empty. For the log, which
 * must not depend on df_env().
 */
const char *df_env_text(enum df_env_row row);
const char *df_env_name(enum df_env_row row);

/* Returns the index of value in a list "a|b|c", or -1. */
int df_env_enum_index(const char *values, const char *value);

/*
 * Expands %h, %p and %r (rank, or "x" when negative) into buf. Returns -ENAMETOOLONG if the result
 * does not fit.
 */
int df_env_expand(char *buf, size_t size, const char *pattern, int rank);
/* Whether the text has a %h, %p or %r. */
int df_env_is_pattern(const char *text);
/*
 * Writes the folder below which the folders of all processes are: "/x" for "/x/%r". Returns 0 or
 * -ENAMETOOLONG.
 */
int df_env_expand_shared(char *buf, size_t size, const char *pattern);
/* Writes the pattern that expands to this text. Returns 0 or -ENAMETOOLONG. */
int df_env_literal(char *buf, size_t size, const char *text);

#endif
