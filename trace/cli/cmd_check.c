/*
 * `dfshim check DIR|FILE...`: the verdict over all ranks' traces. The exit status is the verdict's.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "trace/check.h"
#include "trace/cli/cli.h"
#include "trace/cli/input.h"
#include "trace/record/trace_hash.h"

static const char help[] =
	"Usage: dfshim check [--json] [--live] [--stale SECONDS] DIR|FILE...\n"
	"\n"
	"Reads the traces of all ranks and says who waits for whom and why. The first line is the\n"
	"verdict: a word, a colon, one sentence.\n"
	"\n"
	"  --json          the whole report as one JSON object\n"
	"  --live          the job still runs: a rank that is merely late is SLOW, not MISSING\n"
	"  --stale SECONDS silence after which waiting is suspicious (default 5)\n"
	"\n"
	"Exit: 0 OK or SLOW, 10 ORDER, 11 RESOURCE, 12 SYNC, 13 DATA, 20 MISSING, 21 MISMATCH, 22 INIT,\n"
	"30 CRASH, 31 GPU_STUCK, 32 NET_STALL, 33 NCCL_INTERNAL, 40 HOST, 50 UNKNOWN; 1 unreadable input,\n"
	"2 wrong usage.\n";

int df_cmd_check(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"json", no_argument, NULL, 'j'},
						{"live", no_argument, NULL, 'l'},
						{"stale", required_argument, NULL, 's'},
						{NULL, 0, NULL, 0}};
	struct df_check_opts opts = {.alive = df_check_alive};
	struct df_check_set *set;
	struct df_check_result *r;
	int json = 0, c, rc;
	double s;
	char *end;

	opterr = 0;
	optind = 1;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'h':
			fputs(help, stdout);
			return 0;
		case 'j':
			json = 1;
			break;
		case 'l':
			opts.live = 1;
			break;
		case 's':
			s = strtod(optarg, &end);
			if (*end || !(s > 0) || s > 1e9)
				return df_cli_usage_error(
					"check", "--stale %s: not a number of seconds", optarg);
			opts.stale_ns = (uint64_t)(s * 1e9);
			break;
		default:
			return df_cli_usage_error("check", "unknown or incomplete option '%s'",
						  argv[optind - 1]);
		}
	}
	if (optind == argc)
		return df_cli_usage_error("check", "no trace folder given");
	set = df_cli_load("check", argc - optind, argv + optind);
	if (!set)
		return 1;
	if (opts.live) {
		struct timespec ts;

		clock_gettime(CLOCK_MONOTONIC, &ts);
		opts.now_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
	}
	rc = df_check_run(set, &opts, &r);
	if (rc) {
		df_check_set_free(set);
		return df_cli_input_error("check", argv[optind], "%s", strerror(-rc));
	}
	if (json)
		df_check_print_json(r, stdout);
	else
		df_check_print(r, stdout);
	rc = df_verdict_exit(df_check_verdict(r));
	df_check_result_free(r);
	df_check_set_free(set);
	return rc;
}
