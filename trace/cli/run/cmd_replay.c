/*
 * `dfshim replay`: runs the recorded communication again, from the traces alone, on mock buffers: one
 * process a rank (replay_worker.c), started by `dfshim run`; then the verdict over the new traces.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "trace/cli/cli.h"
#include "trace/cli/input.h"
#include "trace/cli/run/jobdir.h"
#include "trace/cli/run/cmd_replay.h"
#include "trace/record/names.h"

static const char help[] =
	"Usage: dfshim replay [OPTIONS] DIR|FILE...\n"
	"\n"
	"Runs the recorded communication again: the same calls in the same order in each thread, on buffers\n"
	"of the same sizes, then judges the traces of the new run.\n"
	"\n"
	"  --rules nccl|dfshim  on CPU threads: by NCCL's rules, which may deadlock, or ours (default)\n"
	"  --host               on CPU threads even where there is a GPU\n"
	"  --timeout S          no progress for S seconds ends it (default 5)\n"
	"  --trace DIR          keep the new traces there\n"
	"  --witness FILE       the execution that `predict` found: by NCCL's rules, with its slots and queues, its\n"
	"                       threads issuing in its order, and messages too large for buffers if that is its point\n"
	"\n"
	"Exit: as dfshim check; 1 unreadable input or a rank that can't be replayed, 2 wrong usage.\n";

static int judge(const char *dir, int json)
{
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r;
	int rc = set ? df_check_add_dir(set, dir) : -ENOMEM;

	if (rc) {
		df_cli_input_error("replay", dir, "the replay left no trace: %s",
				   set ? df_check_error(set) : "no memory");
		df_check_set_free(set);
		return 1;
	}
	rc = df_check_run(set, NULL, &r);
	df_check_set_free(set);
	if (rc)
		return df_cli_input_error("replay", dir, "%s", strerror(-rc));
	if (json)
		df_check_print_json(r, stdout);
	else
		df_check_print(r, stdout);
	rc = df_verdict_exit(df_check_verdict(r));
	df_check_result_free(r);
	return rc;
}

/* A host that still waited in its first call, for others to connect, has issued nothing yet. */
static size_t nr_operations(const struct df_program_steps *p)
{
	size_t n = 0, i;
	int r, t;

	for (r = 0; r < p->nr_ranks; r++)
		for (t = 0; t < p->ranks[r].nr_threads; t++)
			for (i = 0; i < p->ranks[r].nr[t]; i++)
				n += p->ranks[r].steps[t][i].op.kind == DF_MOP_COLL ||
				     p->ranks[r].steps[t][i].op.kind == DF_MOP_P2P;
	return n;
}

static int replay(const char *rules, int host, const char *timeout, const char *keep, int json,
		  int argc, char **argv)
{
	char traces[PATH_MAX], ranks[16], devices[32], self[PATH_MAX];
	struct df_jobdir dir;
	struct df_program_steps p;
	size_t n = 0;
	char **args;
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int rc, status;

	if (df_replay_steps(&p, argc, argv, DF_STEPS_MEMBERS))
		return 1;
	if (!p.nr_ranks || p.left_out || len <= 0 || !nr_operations(&p))
		return df_cli_input_error("replay", argv[0],
					  p.left_out ? "more threads in a rank than can be replayed"
						     : "no operations in it");
	/*
	 * Hosts that waited in their first call go on by our rules, but what they would have issued next is in no
	 * trace: nobody can be missing in what is left.
	 */
	if (p.nr_intents && !(rules && !strcmp(rules, "nccl"))) {
		fprintf(stderr,
			"dfshim replay: hosts were waiting for others to connect: what they would "
			"have issued after that is not in the trace, nor replayed\n");
		setenv("REPLAY_PREFIX", "1", 1);
	}
	self[len] = 0;
	snprintf(ranks, sizeof(ranks), "%d", p.nr_ranks);
	snprintf(devices, sizeof(devices), "--host=%d", p.nr_ranks);
	df_steps_free(&p);
	args = calloc((size_t)argc + 24, sizeof(*args));
	if (!args)
		return df_cli_input_error("replay", argv[0], "out of memory");
	if (df_jobdir_create(&dir, "replay")) {
		free(args);
		return 1;
	}
	snprintf(traces, sizeof(traces), "%s/traces", dir.path);
	args[n++] = self;
	args[n++] = (char *)"run";
	args[n++] = (char *)"-n";
	args[n++] = ranks;
	if (host || rules)
		args[n++] = devices;
	if (rules) {
		args[n++] = (char *)"--rules";
		args[n++] = (char *)rules;
	}
	args[n++] = (char *)"--timeout";
	args[n++] = (char *)timeout;
	args[n++] = (char *)"--trace";
	args[n++] = (char *)(keep ? keep : traces);
	args[n++] = (char *)"--";
	args[n++] = self;
	args[n++] = (char *)"replay";
	args[n++] = (char *)"--worker";
	for (int i = 0; i < argc; i++)
		args[n++] = realpath(argv[i], NULL) ?: argv[i];
	setenv("REPLAY_IDS", dir.path, 1);
	status = df_jobdir_run(&dir, args, NULL, NULL);
	for (int i = argc - 1; i >= 0; i--)
		if (args[--n] != argv[i])
			free(args[n]);
	free(args);
	rc = status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) != 127
		     ? judge(keep ? keep : traces, json)
		     : df_cli_input_error("replay", self, "can't be started");
	if (!rc && WEXITSTATUS(status))
		rc = 1;
	df_jobdir_remove(&dir);
	return rc;
}

#define ROOM 1024 /* slots and queues enough for all */

static void set_number(const char *name, int v)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", v);
	setenv(name, text, 1);
}

int df_cmd_replay(int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"json", no_argument, NULL, 'j'},
						{"rules", required_argument, NULL, 'r'},
						{"host", no_argument, NULL, 'o'},
						{"timeout", required_argument, NULL, 't'},
						{"trace", required_argument, NULL, 'd'},
						{"witness", required_argument, NULL, 'w'},
						{"worker", no_argument, NULL, 'W'},
						{NULL, 0, NULL, 0}};
	const char *rules = NULL, *timeout = "5", *keep = NULL;
	int c, host = 0, json = 0;
	char *end, *witness;
	struct df_replay_witness x;

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
		case 'r':
			rules = optarg;
			if (strcmp(rules, "nccl") && strcmp(rules, "dfshim"))
				return df_cli_usage_error("replay", "--rules %s: nccl or dfshim",
							  rules);
			break;
		case 'o':
			host = 1;
			break;
		case 't':
			timeout = optarg;
			if (!(strtod(optarg, &end) > 0) || *end)
				return df_cli_usage_error(
					"replay", "--timeout %s: not a number of seconds", optarg);
			break;
		case 'd':
			keep = optarg;
			break;
		case 'w':
			witness = realpath(optarg, NULL);
			if (!witness)
				return df_cli_input_error("replay", optarg, "%s", strerror(errno));
			if (df_replay_witness(witness, -1, &x))
				return df_cli_input_error("replay", optarg,
							  "not a witness of dfshim predict");
			setenv("REPLAY_WITNESS", witness, 1);
			free(witness);
			set_number("DFSHIM_HOST_SLOTS", x.slots ? x.slots : ROOM);
			set_number("DFSHIM_HOST_QUEUES", x.queues ? x.queues : ROOM);
			if (!rules)
				rules = "nccl";
			break;
		case 'W':
			return df_replay_worker(argc - optind, argv + optind);
		default:
			return df_cli_usage_error("replay", "unknown or incomplete option '%s'",
						  argv[optind - 1]);
		}
	}
	if (optind == argc)
		return df_cli_usage_error("replay", "no trace folder given");
	return replay(rules, host, timeout, keep, json, argc - optind, argv + optind);
}
