/*
 * `dfshim`: finds the subcommand and hands over. The table subcommands.def is all it knows about
 * them. Single-threaded; subcommands may start threads.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/version.h"
#include "trace/cli/cli.h"

static const struct command {
	const char *name, *args, *summary;
	int (*run)(int argc, char **argv);
} commands[] = {
#define DF_CMD(id, name, args, summary) {name, args, summary, df_cmd_##id},
#include "trace/cli/subcommands.def"
#undef DF_CMD
};

static void usage(FILE *out)
{
	size_t i;

	fprintf(out,
		"usage: dfshim SUBCOMMAND [ARGUMENTS]\n\n"
		"Runs NCCL jobs so that their collectives can't deadlock, and explains those that\n"
		"hang anyway. Every subcommand has --help.\n\n");
	for (i = 0; i < DF_ARRAY_LEN(commands); i++)
		if (commands[i].run)
			fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
	fprintf(out, "\n  dfshim --version\n");
}

int main(int argc, char **argv)
{
	size_t i;

	if (argc < 2) {
		usage(stderr);
		return 2;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return 0;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("dfshim %s\n", DF_VERSION);
		return 0;
	}
	/* For completions and the documents' checks: the names only. */
	if (!strcmp(argv[1], "--list")) {
		for (i = 0; i < DF_ARRAY_LEN(commands); i++)
			if (commands[i].run)
				printf("%s\n", commands[i].name);
		return 0;
	}
	for (i = 0; i < DF_ARRAY_LEN(commands); i++)
		if (commands[i].run && !strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	fprintf(stderr, "dfshim: no subcommand '%s'\n", argv[1]);
	usage(stderr);
	return 2;
}
