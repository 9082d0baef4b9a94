/* Tables of options, on top of argp (cli.h). One thread; the parser's state is on the stack. */
#include <argp.h>
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clean_text.h"
#include "trace/cli/common/cli.h"

#define FIRST_KEY 256 /* first key of options without a letter: the number of the row is added */
#define WORDS	  20  /* a longer list of words is not shown in place of the argument */

static const struct df_opt common[] = {
	[DF_OPTION_OWN] = {0},
#define DF_OPTION(i, n, l, k, a, lo, hi, text)                                                     \
	[DF_OPTION_##i] = {.name = n,                                                              \
			   .letter = l,                                                            \
			   .kind = DF_OPT_##k,                                                     \
			   .arg = a,                                                               \
			   .min = lo,                                                              \
			   .max = hi,                                                              \
			   .help = text},
#include "trace/cli/common/options.def"
#undef DF_OPTION
};

/*
 * Returns row i of the table, completed from its common option. Every subcommand has the last two
 * rows.
 */
static struct df_opt row(const struct df_cli *cli, size_t i)
{
	struct df_opt own = {0}, o;

	if (i < cli->nr_options)
		own = cli->options[i];
	else
		own.id = i == cli->nr_options ? DF_OPTION_HELP : DF_OPTION_USAGE;
	if (own.id == DF_OPTION_OWN)
		return own;
	o = common[own.id];
	o.id = own.id;
	o.to = own.to;
	o.size = own.size;
	o.help = own.help ?: o.help;
	o.arg = own.arg ?: o.arg;
	o.optional = own.optional;
	return o;
}

static const char *integer(const struct df_opt *o, const char *text)
{
	static const char units[] = "KMG";
	static char wrong[80];
	unsigned long long v;
	const char *unit;
	char *end;

	errno = 0;
	v = strtoull(text, &end, strncmp(text, "0x", 2) ? 10 : 16);
	unit = *end ? strchr(units, *end) : NULL;
	for (; unit && unit >= units; unit--) {
		errno = v > UINT64_MAX >> 10 ? ERANGE : errno;
		v <<= 10;
	}
	end += *end && strchr(units, *end);
	if (errno || end == text || *end || *text < '0' || *text > '9' || (double)v < o->min ||
	    (double)v > o->max) {
		snprintf(wrong, sizeof(wrong),
			 o->max < 1e16 ? "a whole number from %.0f to %.0f is needed"
				       : "a whole number, at least %.0f, is needed",
			 o->min, o->max);
		return wrong;
	}
	if (o->size == sizeof(uint32_t))
		*(uint32_t *)o->to = (uint32_t)v;
	else
		*(uint64_t *)o->to = v;
	return NULL;
}

static const char *real(const struct df_opt *o, const char *text)
{
	static char wrong[80];
	char *end;
	double v = strtod(text, &end);

	if (end == text || *end || !(v >= o->min && v <= o->max)) {
		snprintf(wrong, sizeof(wrong), "a number from %g to %g is needed", o->min, o->max);
		return wrong;
	}
	*(double *)o->to = v;
	return NULL;
}

/*
 * Finds the text among the words "a|b" and stores its index. Returns NULL, or a text about the
 * fault.
 */
static const char *word(const struct df_opt *o, const char *text)
{
	static char wrong[160];
	const char *at = o->arg;

	for (int i = 0; *at; i++) {
		size_t n = strcspn(at, "|");

		if (strlen(text) == n && !strncmp(at, text, n)) {
			if (o->kind == DF_OPT_INDEX)
				*(int *)o->to = i;
			else
				*(const char **)o->to = text;
			return NULL;
		}
		at += n + (at[n] == '|');
	}
	snprintf(wrong, sizeof(wrong), "one of %s is needed", o->arg);
	return wrong;
}

static const char *store(const struct df_opt *o, const char *text)
{
	switch (o->kind) {
	case DF_OPT_TEXT:
		*(const char **)o->to = text;
		return NULL;
	case DF_OPT_WORD:
	case DF_OPT_INDEX:
		return word(o, text);
	case DF_OPT_NUMBER:
		if (text)
			return integer(o, text);
		memset(o->to, 0, o->size);
		return NULL;
	case DF_OPT_REAL:
		return real(o, text);
	case DF_OPT_TAKE:
		return o->take(o->to, text);
	default:
		*(int *)o->to = 1;
		return NULL;
	}
}

/* The input of parse() */
struct parsing {
	const struct df_cli *cli;
	int next; /* index of the argument after the last option that is known */
};

/*
 * Says what is wrong with the option that getopt has refused, and exits. getopt's own messages are
 * off, because they would print the argument as it is, with a terminal's escapes.
 */
static void refuse(const struct df_cli *cli, const char *arg)
{
	size_t len = strcspn(arg, "=");
	char found[256] = "";
	int nr = 0, letter;

	for (size_t i = 0; i < cli->nr_options + 2; i++) {
		struct df_opt o = row(cli, i);
		size_t used = strlen(found);

		if (o.kind == DF_OPT_HEADING || !o.name || len < 3 || arg[1] != '-' ||
		    strncmp(arg + 2, o.name, len - 2))
			continue;
		nr++;
		snprintf(found + used, sizeof(found) - used, " --%s", o.name);
		if (strlen(o.name) != len - 2)
			continue;
		nr = 1;
		snprintf(found, sizeof(found), " --%s", o.name);
		break;
	}
	if (nr > 1)
		exit(df_cli_usage_error(cli->sub, "option '%.*s' is ambiguous:%s", (int)len, arg,
					found));
	if (nr)
		exit(df_cli_usage_error(cli->sub, "option '%s' %s", found + 1,
					arg[len] ? "takes no argument" : "requires an argument"));
	if (arg[1] == '-')
		exit(df_cli_usage_error(cli->sub, "unknown option '%.*s'", (int)len, arg));
	do {
		letter = *++arg;
		for (size_t i = 0; letter && i < cli->nr_options + 2; i++) {
			struct df_opt o = row(cli, i);

			if (o.kind == DF_OPT_HEADING || o.letter != letter)
				continue;
			if (o.arg && !o.optional)
				exit(df_cli_usage_error(
					cli->sub, "option '-%c' requires an argument", letter));
			letter = 0;
		}
	} while (!letter && *arg);
	exit(df_cli_usage_error(cli->sub, "unknown option '-%c'", letter));
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct parsing *p = state->input;
	const struct df_cli *cli = p->cli;

	if (key == ARGP_KEY_ERROR) {
		const char *before = state->argv[state->next - 1];

		/* getopt stays at an argument of several letters until it has read the last one. */
		if (state->next == p->next || before[0] != '-' || !before[1])
			before = state->argv[state->next];
		refuse(cli, before);
	}
	for (size_t i = 0; i < cli->nr_options + 2; i++) {
		struct df_opt o = row(cli, i);
		const char *wrong;

		if (o.kind == DF_OPT_HEADING || key != (o.letter ?: FIRST_KEY + (int)i))
			continue;
		p->next = state->next;
		if (o.id == DF_OPTION_HELP || o.id == DF_OPTION_USAGE) {
			state->flags &= ~(unsigned)ARGP_NO_ERRS; /* it would silence the help */
			argp_state_help(state, stdout,
					o.id == DF_OPTION_HELP
						? ARGP_HELP_STD_HELP
						: ARGP_HELP_USAGE | ARGP_HELP_EXIT_OK);
		}
		wrong = store(&o, arg);
		if (wrong && o.name)
			exit(df_cli_usage_error(cli->sub, "--%s %s: %s", o.name, arg, wrong));
		else if (wrong)
			exit(df_cli_usage_error(cli->sub, "-%c %s: %s", o.letter, arg, wrong));
		return 0;
	}
	return ARGP_ERR_UNKNOWN; /* also for operands: they remain */
}

/* Prints "--name=ARG<tab>help" or "-x ARG<tab>help"; a heading has no tab. */
static void list(const struct df_cli *cli)
{
	for (size_t i = 0; i < cli->nr_options + 2; i++) {
		struct df_opt o = row(cli, i);

		if (o.kind == DF_OPT_HEADING)
			puts(o.help);
		if (o.kind == DF_OPT_HEADING || !o.help)
			continue;
		if (o.letter)
			printf("-%c%s%s\t%s\n", o.letter, o.arg ? " " : "", o.arg ?: "", o.help);
		if (o.name)
			printf("--%s%s%s%s%s\t%s\n", o.name, o.optional ? "[" : "",
			       o.arg ? "=" : "", o.arg ?: "", o.optional ? "]" : "", o.help);
	}
	exit(0);
}

static int is_word(enum df_opt_kind kind)
{
	return kind == DF_OPT_WORD || kind == DF_OPT_INDEX;
}

/* Removes argp's lines about letters from the help. */
static char *filter(int key, const char *text, void *input)
{
	(void)input;
	return key == ARGP_KEY_HELP_DUP_ARGS_NOTE ? NULL : (char *)text;
}

/* Returns the size that store() writes. */
static size_t size_of(enum df_opt_kind kind)
{
	return kind == DF_OPT_FLAG || kind == DF_OPT_INDEX ? sizeof(int) : sizeof(uint64_t);
}

void df_cli_parse(const struct df_cli *cli, int *argc, char ***argv)
{
	struct argp_option *options = calloc(cli->nr_options + 3, sizeof(*options));
	struct argp argp = {options, parse, cli->args, cli->doc, NULL, filter, NULL};
	struct parsing p = {cli, 1};
	char name[64], *own = (*argv)[0];
	int nr, left = *argc;

	argp_err_exit_status = 2;
	if (!options)
		exit(df_cli_input_error(cli->sub, "options", "out of memory"));
	if (*argc == 2 && *cli->sub && !strcmp((*argv)[1], "--list"))
		list(cli);
	for (size_t i = 0; i < cli->nr_options + 2; i++) {
		struct df_opt o = row(cli, i);

		options[i] = (struct argp_option){.name = o.name, .doc = o.help};
		if (o.kind == DF_OPT_HEADING)
			continue;
		assert(!o.to || o.kind == DF_OPT_TAKE || o.size == size_of(o.kind) ||
		       (o.kind == DF_OPT_NUMBER && o.size == sizeof(uint32_t)));
		options[i].key = o.letter ?: FIRST_KEY + (int)i;
		options[i].arg = is_word(o.kind) && strlen(o.arg) > WORDS ? "WORD" : o.arg;
		options[i].group = i < cli->nr_options ? 0 : -1;
		options[i].flags =
			(o.help ? 0 : OPTION_HIDDEN) | (o.optional ? OPTION_ARG_OPTIONAL : 0);
	}
	snprintf(name, sizeof(name), "dfshim%s%s", *cli->sub ? " " : "", cli->sub);
	(*argv)[0] = name;
	argp_parse(&argp, *argc, *argv,
		   ARGP_NO_HELP | ARGP_NO_ERRS | (cli->in_order ? ARGP_NO_ARGS : 0), &left, &p);
	/* The loader keeps this string as the program's own path, by which call sites are named. */
	(*argv)[0] = own;
	free(options);
	nr = *argc - left;
	if (!nr && cli->missing)
		exit(df_cli_usage_error(cli->sub, "%s", cli->missing));
	if (cli->most >= 0 && nr > cli->most && !cli->in_order)
		exit(df_cli_usage_error(cli->sub, "unexpected argument '%s'",
					(*argv)[left + cli->most]));
	*argc = nr;
	*argv += left;
}
