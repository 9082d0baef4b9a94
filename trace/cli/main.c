/*
 * `dfshim`: finds the subcommand and calls it. It knows only the table subcommands.def.
 * Single-threaded; subcommands may start threads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/version.h"
#include "trace/cli/build.h"
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/record/format.h"

static const struct command {
	const char *name, *args, *summary;
	int (*run)(int argc, char **argv);
} commands[] = {
#define DF_CMD(id, name, args, summary) {name, args, summary, df_cmd_##id},
#include "trace/cli/subcommands.def"
#undef DF_CMD
};

/* Prints the lines of the help. For completion and the documents' checks, prints only the names. */
static void print_commands(FILE *out, int names)
{
	for (size_t i = 0; i < DF_ARRAY_LEN(commands); i++)
		if (commands[i].run)
			fprintf(out, names ? "%s\n" : "  %-10s %s\n", commands[i].name,
				commands[i].summary);
}

#ifdef __clang__
/* __clang_version__ may end with a blank. */
#define TEXT(x)	      #x
#define DOTS(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)
#define COMPILER      "clang " DOTS(__clang_major__, __clang_minor__, __clang_patchlevel__)
#else
#define COMPILER "gcc " __VERSION__
#endif

static void print_version(void)
{
	printf("dfshim %s\n", DF_VERSION);
	printf("built from commit %s by %s, for glibc %d.%d or newer\n", DF_BUILD_COMMIT, COMPILER,
	       __GLIBC__, __GLIBC_MINOR__);
	printf("with %s\n", DF_BUILD_PARTS);
	printf("trace format %d\n", DF_TRACE_VERSION);
}

static char *help_text(void)
{
	char *text = NULL;
	size_t n;
	FILE *out = open_memstream(&text, &n);

	if (!out)
		return NULL;
	fputs("Runs NCCL jobs so that their collectives cannot deadlock, and explains those that "
	      "hang anyway. Every subcommand has --help.\n\nSubcommands:\n",
	      out);
	print_commands(out, 0);
	fclose(out);
	return text;
}

int main(int argc, char **argv)
{
	int version = 0, list = 0;
	char *help = help_text();
	static char as_option[] = "--help";
	const struct df_opt options[] = {
		DF_FLAG("version", version, "print the version, and what is in this build"),
		DF_FLAG("list", list, NULL),
	};

	/* `dfshim help run` is `dfshim run --help`. */
	if (argc > 1 && !strcmp(argv[1], "help")) {
		if (argc > 2)
			argv[1] = argv[2];
		argv[argc > 2 ? 2 : 1] = as_option;
		argc = argc > 2 ? 3 : 2;
	}
	df_cli_parse(&(struct df_cli){.sub = "",
				      .args = "SUBCOMMAND [ARGUMENT...]",
				      .doc = help,
				      .options = options,
				      .nr_options = DF_ARRAY_LEN(options),
				      .in_order = 1},
		     &argc, &argv);
	free(help);
	if (version)
		print_version();
	else if (list)
		print_commands(stdout, 1);
	else if (!argc)
		return df_cli_usage_error("", "no subcommand");
	for (size_t i = 0; i < DF_ARRAY_LEN(commands) && argc; i++)
		if (commands[i].run && !strcmp(argv[0], commands[i].name))
			return commands[i].run(argc, argv);
	return argc ? df_cli_usage_error("", "no subcommand '%s'", argv[0]) : 0;
}
