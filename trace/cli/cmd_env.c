/* `dfshim env`: the table of variables, with what the environment says now. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/env.h"
#include "trace/cli/cli.h"

static const char help[] =
	"usage: dfshim env [--json|--man]\n\n"
	"All variables of the environment that dfshim reads, with allowed values,\n"
	"default, current value and meaning. Values that can't be used are named on\n"
	"standard error; under DFSHIM_STRICT=1 the exit status is then 1.\n\n"
	"  --json   as one JSON array\n"
	"  --man    as rows of a manual page\n";

int df_cmd_env(int argc, char **argv)
{
	enum df_env_format format = DF_ENV_TEXT;
	int i;

	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--json")) {
			format = DF_ENV_JSON;
		} else if (!strcmp(argv[i], "--man")) {
			format = DF_ENV_MAN;
		} else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			fputs(help, stdout);
			return 0;
		} else {
			return df_cli_usage_error("env", "unknown argument '%s'", argv[i]);
		}
	}
	df_env_print(stdout, format);
	return df_env()->nr_errors && df_env()->strict ? 1 : 0;
}
