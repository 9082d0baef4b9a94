/*
 * `dfshim import-fr`: Flight Recorder dumps as traces, so that graph, timeline and report can show
 * a hang that was recorded without dfshim. `dfshim check` reads dumps directly.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/fr/import_fr.h"

int df_cmd_import_fr(int argc, char **argv)
{
	const char *dir = "imported";
	struct stat st;
	size_t nr_ops;
	int failed;
	const struct df_opt options[] = {
		DF_OPT_AS(OUTPUT, "DIR", dir, "the folder for the traces (./imported)")};

	DF_CLI_PARSE("import-fr", &argc, &argv, .args = "FILE...", .missing = "no dump given",
		     .most = -1,
		     .doc = "Reads PyTorch Flight Recorder dumps (pickle or JSON, one file a rank, "
			    "the rank at the end of the name) and writes traces. Nothing in a dump "
			    "is executed. Call stacks, where a dump has them, are kept: the "
			    "verdict names lines of the program.");
	if (mkdir(dir, 0777) && errno != EEXIST)
		return df_cli_input_error("import-fr", dir, "%s", strerror(errno));
	if (!stat(dir, &st) && !S_ISDIR(st.st_mode))
		return df_cli_input_error("import-fr", dir,
					  "is a file; the traces need a folder (-o)");
	failed = df_fr_import("import-fr", dir, (size_t)argc, argv, &nr_ops);
	if (failed < argc)
		printf("%d traces in %s\n", argc - failed, dir);
	return failed != 0;
}
