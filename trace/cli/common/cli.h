/*
 * Shared by the subcommands: the table of their options, from which parsing, help, completion and
 * the manual are made, and messages that look the same everywhere. Results are printed to standard
 * output, all else to standard error. One thread.
 */
#ifndef DF_TRACE_CLI_COMMON_CLI_H
#define DF_TRACE_CLI_COMMON_CLI_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- options ----------------------------------------------------------------------------- */

enum df_opt_kind {
	DF_OPT_HEADING, /* of the following rows, in the help */
	DF_OPT_FLAG,	/* int: 1 */
	DF_OPT_TEXT,	/* const char * */
	DF_OPT_WORD,	/* const char *: one of the words in `arg`, "a|b" */
	DF_OPT_INDEX,	/* int: the index of one of the words in `arg` */
	DF_OPT_NUMBER,	/* an integer type, not below 0; K, M and G multiply by 1024 and so on */
	DF_OPT_REAL,	/* double */
	DF_OPT_TAKE,	/* the result of take() */
};

enum df_opt_id {
	DF_OPTION_OWN, /* not a common option */
#define DF_OPTION(id, ...) DF_OPTION_##id,
#include "trace/cli/common/options.def"
#undef DF_OPTION
};

/* A row of a subcommand's table. A row without help is not shown to users. */
struct df_opt {
	enum df_opt_id id;
	const char *name; /* NULL: a letter only */
	int letter;
	enum df_opt_kind kind;
	const char *arg;
	double min, max;
	const char *help;
	void *to;
	size_t size;  /* of the variable at `to` */
	int optional; /* without an argument, 0 is stored */
	/* Returns what is wrong with arg, or NULL. */
	const char *(*take)(void *to, const char *arg);
};

/*
 * Rows: DF_OPT(JSON, json, NULL) uses a common option, DF_OPT_AS() uses one with another argument.
 * The other macros declare a subcommand's own options.
 */
#define DF_OPT_TO(var) .to = &(var), .size = sizeof(var)
#define DF_OPT(common, var, text)                                                                  \
	{                                                                                          \
		.id = DF_OPTION_##common, .help = (text), DF_OPT_TO(var)                           \
	}
/* The argument is optional. */
#define DF_OPT_MAYBE(common, var, text)                                                            \
	{                                                                                          \
		.id = DF_OPTION_##common, .help = (text), DF_OPT_TO(var), .optional = 1            \
	}
#define DF_OPT_AS(common, a, var, text)                                                            \
	{                                                                                          \
		.id = DF_OPTION_##common, .arg = (a), .help = (text), DF_OPT_TO(var)               \
	}
#define DF_OPT_OWN(k, n, a, var, lo, hi, text)                                                     \
	{                                                                                          \
		.kind = DF_OPT_##k, .name = (n), .arg = (a), .min = (lo), .max = (hi),             \
		.help = (text), DF_OPT_TO(var)                                                     \
	}
#define DF_FLAG(n, var, text)		   DF_OPT_OWN(FLAG, n, NULL, var, 0, 0, text)
#define DF_TEXT(n, a, var, text)	   DF_OPT_OWN(TEXT, n, a, var, 0, 0, text)
#define DF_WORD(n, words, var, text)	   DF_OPT_OWN(WORD, n, words, var, 0, 0, text)
#define DF_INDEX(n, words, var, text)	   DF_OPT_OWN(INDEX, n, words, var, 0, 0, text)
#define DF_NUMBER(n, a, var, lo, hi, text) DF_OPT_OWN(NUMBER, n, a, var, lo, hi, text)
#define DF_REAL(n, a, var, lo, hi, text)   DF_OPT_OWN(REAL, n, a, var, lo, hi, text)
#define DF_TAKE(n, a, fn, var, text)                                                               \
	{                                                                                          \
		.kind = DF_OPT_TAKE, .name = (n), .arg = (a), .take = (fn), .help = (text),        \
		DF_OPT_TO(var)                                                                     \
	}
#define DF_HEADING(text)                                                                           \
	{                                                                                          \
		.kind = DF_OPT_HEADING, .help = (text)                                             \
	}

struct df_cli {
	const char *sub;  /* "" for dfshim itself */
	const char *args; /* operands in the usage; one line for each form of the call */
	/* Text before the options; after a \v, text below them: the exit status. */
	const char *doc;
	const struct df_opt *options;
	size_t nr_options;
	const char *missing; /* message if there are no operands; NULL: none are needed */
	int most;	     /* most operands; 0: none, -1: any number */
	int in_order;	     /* the first operand, another program, ends the options */
};

/*
 * Removes the options from the command line, which leaves the operands. Ends the process for
 * --help, --usage, wrong usage (2, after a message), and the hidden --list, which prints each
 * option on a line, for completion and for checking the manual.
 */
void df_cli_parse(const struct df_cli *cli, int *argc, char ***argv);
#define DF_CLI_PARSE(command, argc, argv, ...)                                                     \
	df_cli_parse(&(struct df_cli){.sub = (command),                                            \
				      .options = options,                                          \
				      .nr_options = sizeof(options) / sizeof(options[0]),          \
				      __VA_ARGS__},                                                \
		     argc, argv)
/* Operands of subcommands that read traces. */
#define DF_CLI_TRACES .args = "DIR|FILE...", .missing = "no trace folder given", .most = -1

/* ---- messages ---------------------------------------------------------------------------- */

/* Prints "dfshim SUB: text", then where to find help. Returns 2. */
int df_cli_usage_error(const char *sub, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints "dfshim SUB: path: text". Returns 1. */
int df_cli_input_error(const char *sub, const char *path, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * A file for results; standard output if path is NULL. create: returns NULL after a message. close:
 * rc is -errno of the writing and is reported too; returns the exit status.
 */
FILE *df_cli_create(const char *sub, const char *path);
int df_cli_close(const char *sub, const char *path, FILE *f, int rc);

/*
 * A progress bar on standard error if that is a terminal, else nothing. Draws at most ten times a
 * second, however often it is called. done == total erases it. total 0: unknown.
 */
void df_cli_progress(const char *what, uint64_t done, uint64_t total);

#endif
