/* `dfshim lib`: the path of the library to preload, for the command lines of launchers. */
#include <stdio.h>
#include <stdlib.h>
#include "trace/cli/cli.h"
#include "trace/cli/run/cmd_run.h"

int df_cmd_lib(int argc, char **argv)
{
	const char *name = "shim";
	const struct df_opt options[] = {
		DF_WORD("name", "shim|host", name, "another library than the one to preload"),
	};
	char file[32], path[PATH_MAX], *whole;
	int rc;

	DF_CLI_PARSE(
		"lib", &argc, &argv,
		.doc = "Prints the path of libdfshim.so, for LD_PRELOAD where `dfshim run` does not start the "
		       "job: mpirun -x LD_PRELOAD=$(dfshim lib) ./app");
	snprintf(file, sizeof(file), "libdf%s.so", name);
	rc = df_run_library("lib", file, path, sizeof(path));
	if (rc)
		return rc;
	whole = realpath(path, NULL);
	puts(whole && !df_run_is_split(whole) ? whole : path);
	free(whole);
	return 0;
}
