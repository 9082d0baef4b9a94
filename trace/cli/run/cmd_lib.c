/* `dfshim lib`: the path of the library to preload or of NCCL's plugin, for command lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/run/run.h"

int df_cmd_lib(int argc, char **argv)
{
	const char *name = "shim";
	const struct df_opt options[] = {
		DF_WORD("name", "shim|host|profiler", name,
			"another library than the one to preload"),
	};
	char file[32], path[PATH_MAX], *whole;
	int rc;

	DF_CLI_PARSE("lib", &argc, &argv,
		     .doc = "Prints the path of libdfshim.so, for LD_PRELOAD where `dfshim run` "
			    "does not start the job: mpirun -x LD_PRELOAD=$(dfshim lib) ./app. "
			    "With --name profiler: of NCCL's profiler plugin, for "
			    "NCCL_PROFILER_PLUGIN where nothing can be preloaded");
	/* NCCL makes the plugin's name from "dfshim". */
	if (!strcmp(name, "profiler"))
		snprintf(file, sizeof(file), "libnccl-profiler-dfshim.so");
	else
		snprintf(file, sizeof(file), "libdf%s.so", name);
	rc = df_run_library("lib", file, path, sizeof(path));
	if (rc)
		return rc;
	whole = realpath(path, NULL);
	puts(whole && !df_run_is_split(whole) ? whole : path);
	free(whole);
	return 0;
}
