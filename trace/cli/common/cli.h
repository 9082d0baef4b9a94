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
	DF_OPT_HEADING, /* heading of the following rows in the help */
	DF_OPT_FLAG,	/* int: 1 */
	DF_OPT_TEXT,	/* const char * */
	DF_OPT_WORD,	/* const char *: one of the words in `arg`, "a|b" */
	DF_OPT_INDEX,	/* int: the index of one of the words in `arg` */
	/*
	 * an integer type; values below 0 are refused; K, M and G multiply by 1024, 1024^2,
	 * 1024^3
	 */
	DF_OPT_NUMBER,
	DF_OPT_REAL, /* double */
	DF_OPT_TAKE, /* the result of take() */
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
	const char *name; /* NULL if the option has only a letter */
	int letter;
	enum df_opt_kind kind;
	const char *arg;
	double min, max;
	const char *help;
	void *to;
	size_t size;  /* size of the variable at `to` */
	int optional; /* the argument may be missing; then 0 is stored */
	/* Stores arg in *to. Returns a text about the fault of arg, or NULL if it has none. */
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
	const char *sub;  /* name of the subcommand; "" for dfshim itself */
	const char *args; /* operands in the usage; one line for each form of the call */
	/* Text before the options and, after a \v, text after them (the exit status). */
	const char *doc;
	const struct df_opt *options;
	size_t nr_options;
	const char *missing; /* message if there are no operands; NULL if none are needed */
	int most;	     /* maximum number of operands; -1 means any number */
	int in_order;	     /* whether the first operand, another program, ends the options */
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
 * Open and close a file for results; if path is NULL, standard output. df_cli_create() returns NULL
 * after a message. df_cli_close() also reports rc, which is 0 or -errno of the writing, and returns
 * the exit status.
 */
FILE *df_cli_create(const char *sub, const char *path);
int df_cli_close(const char *sub, const char *path, FILE *f, int rc);

/*
 * Shows a progress bar on standard error if that is a terminal. Draws at most ten times a second,
 * however often it is called. done == total erases the bar. `total` is 0 if it is not known.
 */
void df_cli_progress(const char *what, uint64_t done, uint64_t total);

#endif
