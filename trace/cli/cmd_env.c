/* `dfshim env`: the table of variables, with what the environment says now. */
#include <stdio.h>

#include "runtime/base/env.h"
#include "trace/cli/cli.h"

int df_cmd_env(int argc, char **argv)
{
	int json = 0, man = 0;
	const struct df_opt options[] = {
		DF_OPT(JSON, json, "one JSON array"),
		DF_FLAG("man", man, "rows of a manual page"),
	};

	DF_CLI_PARSE(
		"env", &argc, &argv,
		.doc = "All variables of the environment that dfshim reads: allowed values, default, "
		       "current value, meaning. Values that cannot be used are named on standard error; "
		       "under DFSHIM_STRICT=1 the exit status is then 1.");
	df_env_print(stdout, json ? DF_ENV_JSON : man ? DF_ENV_MAN : DF_ENV_TEXT);
	return df_env()->nr_errors && df_env()->strict ? 1 : 0;
}
