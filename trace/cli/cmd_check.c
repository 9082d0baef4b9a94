/*
 * `dfshim check DIR|FILE...`: the verdict over all ranks' traces. The exit status is the verdict's.
 */
#include <stdio.h>

#include "runtime/base/time.h"
#include "trace/check.h"
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/fr/dumps.h"
#include "trace/cli/common/input.h"

int df_cmd_check(int argc, char **argv)
{
	struct df_check_opts opts = {.alive = df_check_alive};
	struct df_jobdir dir;
	char *traces = dir.path;
	int json = 0, dumps, status;
	double stale = 0;
	const struct df_opt options[] = {
		DF_OPT(JSON, json,
		       "the whole report as one JSON object; each record that is evidence has its "
		       "call stack"),
		DF_FLAG("live", opts.live,
			"the job still runs: a rank that is merely late is SLOW, not MISSING"),
		DF_REAL("stale", "SECONDS", stale, 1e-9, 1e9,
			"silence after which waiting is suspicious (5)"),
	};

	DF_CLI_PARSE(
		"check", &argc, &argv, DF_CLI_TRACES,
		.doc = "Reads the traces of all ranks and says who waits for whom and why. The "
		       "first line is the verdict: a word, a colon, one sentence. PyTorch's Flight "
		       "Recorder dumps (pickle or JSON) are read, too.\vExit status: 0 OK or SLOW, "
		       "10 ORDER, 11 RESOURCE, 12 SYNC, 13 DATA, 20 MISSING, 21 MISMATCH, 22 INIT, "
		       "30 CRASH, 31 GPU_STUCK, 32 NET_STALL, 33 NCCL_INTERNAL, 40 HOST, 50 "
		       "UNKNOWN; 1 unreadable input, 2 wrong usage.");
	opts.stale_ns = (uint64_t)(stale * 1e9);
	if (opts.live)
		opts.now_ns = df_now_ns();
	dumps = df_fr_traces(&dir, "check", argc, argv);
	if (dumps < 0)
		return 1;
	if (!dumps)
		return df_cli_verdict(df_cli_judge("check", argc, argv, &opts), json);
	status = df_cli_verdict(df_cli_judge("check", 1, &traces, &opts), json);
	df_jobdir_remove(&dir);
	return status;
}
