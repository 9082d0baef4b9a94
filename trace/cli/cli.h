/*
 * What the subcommands of `dfshim` share: one function each, in a file of its own; the table of its options, from
 * which parsing, help, completion and the manual come; and a few words to the user that look the same everywhere.
 *
 * A subcommand gets argv[0] = its own name and returns the exit status: 2 for wrong usage, 1 for input
 * that can't be read, otherwise what the manual says. Results go to standard output, everything else
 * to standard error. One thread.
 */
#ifndef DF_CLI_H
#define DF_CLI_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Weak: a subcommand exists if a file that defines it is linked. */
#define DF_CMD(id, name, args, summary)                                                            \
	int df_cmd_##id(int argc, char **argv) __attribute__((weak));
#include "trace/cli/subcommands.def"
#undef DF_CMD

/* ---- options ---------------------------------------------------------------------------------------- */

enum df_opt_kind {
	DF_OPT_HEADING, /* of those that follow, in the help */
	DF_OPT_FLAG,	/* int: 1 */
	DF_OPT_TEXT,	/* const char * */
	DF_OPT_WORD,	/* const char *: one of the argument's words, "a|b" */
	DF_OPT_INDEX,	/* int: which of them */
	DF_OPT_NUMBER,	/* an integer type, not below 0; K, M and G multiply by 1024 and so on */
	DF_OPT_REAL,	/* double */
	DF_OPT_TAKE,	/* whatever take() makes of it */
};

enum df_opt_id {
	DF_OPTION_OWN, /* no common one */
#define DF_OPTION(id, ...) DF_OPTION_##id,
#include "trace/cli/options.def"
#undef DF_OPTION
};

/*
 * A row of a subcommand's table. One without help is not shown to users.
 */
struct df_opt {
	enum df_opt_id id;
	const char *name; /* NULL: a letter only */
	int letter;
	enum df_opt_kind kind;
	const char *arg;
	double min, max;
	const char *help;
	void *to;
	size_t size;					/* of what `to` points to */
	int optional;					/* without an argument, 0 is stored */
	const char *(*take)(void *to, const char *arg); /* what is wrong with arg, or NULL */
};

/*
 * The same in the tables: DF_OPT(JSON, json, NULL) takes a common one, DF_OPT_AS() with another argument, the others declare
 * one of the subcommand's own.
 */
#define DF_OPT_TO(var) .to = &(var), .size = sizeof(var)
#define DF_OPT(common, var, text)                                                                  \
	{                                                                                          \
		.id = DF_OPTION_##common, .help = (text), DF_OPT_TO(var)                           \
	}
/* Its argument may be left out. */
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
	const char *sub;  /* "" of dfshim itself */
	const char *args; /* operands in the usage; several ways to call it are lines */
	const char
		*doc; /* before the options; after a \v, what comes below them: the exit status */
	const struct df_opt *options;
	size_t nr_options;
	const char *missing; /* what is said without operands; NULL: none are needed */
	int most;	     /* operands; 0: none, -1: any number */
	int in_order;	     /* the first operand ends the options: it is another program */
};

/*
 * Takes the options from the command line; what is left are the operands. Ends the process for --help, --usage, for
 * wrong usage (2, with a line that says what is wrong), and for the hidden --list: every option on a line of its own, for
 * completion and for the manual's check.
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

/* ---- words ---------------------------------------------------------------------------------------------- */

/* "dfshim SUB: text", then where to find help. Returns 2. */
int df_cli_usage_error(const char *sub, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "dfshim SUB: path: text". Returns 1. */
int df_cli_input_error(const char *sub, const char *path, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * A file for results; standard output where path is NULL. create: NULL after an error was said. close: the exit
 * status; rc is -errno of what was written so far, and is said too.
 */
FILE *df_cli_create(const char *sub, const char *path);
int df_cli_close(const char *sub, const char *path, FILE *f, int rc);

/*
 * A progress bar on standard error where that is a terminal, nothing elsewhere. Call it as often as
 * convenient; it draws at most ten times a second. done == total erases it. total 0: unknown.
 */
void df_cli_progress(const char *what, uint64_t done, uint64_t total);

#endif
