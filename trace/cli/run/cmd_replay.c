/*
 * `dfshim replay`: runs the recorded communication again, from the traces alone, on mock buffers,
 * with one process for each rank (replay_worker.c) under `dfshim run`; then prints the verdict over
 * the new traces.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "runtime/base/env.h"
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/common/input.h"
#include "trace/cli/run/jobdir.h"
#include "trace/cli/run/cmd_replay.h"
#include "trace/cli/run/replay_worker.h"
#include "trace/cli/run/run.h"
#include "trace/record/names.h"

/*
 * Counts operations. A thread has none if it still waited in its first call for other ranks to
 * connect.
 */
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

/*
 * Whether a thread of each rank still waited at the end of its trace. If these waits end in the
 * replay, the ranks' next operations are unknown.
 */
static int all_waited(const struct df_program_steps *p)
{
	int r;

	for (r = 0; r < p->nr_ranks && p->ranks[r].waits; r++)
		;
	return r == p->nr_ranks;
}

static void into_log(void *fd)
{
	dup2(*(const int *)fd, STDOUT_FILENO);
	dup2(*(const int *)fd, STDERR_FILENO);
}

/* Prints what the job printed. */
static void show_log(int fd)
{
	char text[4096];
	ssize_t n;

	for (off_t at = 0; (n = pread(fd, text, sizeof(text), at)) > 0; at += n)
		fwrite(text, 1, (size_t)n, stderr);
}

static int replay(const char *rules, const char *executor, int host, double timeout,
		  const char *keep, int json, int argc, char **argv)
{
	int lanes = executor && !strcmp(executor, "nccl");
	char traces[PATH_MAX], ranks[16], devices[32], seconds[32], self[PATH_MAX];
	char *judged = (char *)(keep ? keep : traces), pattern[2 * PATH_MAX], log_path[PATH_MAX];
	struct df_jobdir dir;
	struct df_program_steps p;
	struct df_check_opts opts = {0};
	size_t n = 0;
	char **args;
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int rc, status, log;

	if (df_replay_steps(&p, argc, argv, DF_STEPS_MEMBERS))
		return 1;
	if (p.procs_left_out)
		return df_cli_input_error("replay", argv[0],
					  "%zu ranks; at most %d can be replayed",
					  DF_MODEL_RANKS + p.procs_left_out, DF_MODEL_RANKS);
	if (!p.nr_ranks || p.left_out || len <= 0 || !nr_operations(&p))
		return df_cli_input_error("replay", argv[0],
					  p.left_out ? "more threads in a rank than can be replayed"
						     : "no operations in it");
	/*
	 * Threads that waited in their first call continue under our rules. The traces do not have
	 * their next operations, so no rank counts as missing in the rest.
	 */
	if (p.nr_intents && !(rules && !strcmp(rules, "nccl"))) {
		fprintf(stderr,
			"dfshim replay: threads were waiting for others to connect; the operations "
			"after that are not in the trace and are not replayed\n");
		setenv("REPLAY_PREFIX", "1", 1);
	}
	opts.open_end = all_waited(&p);
	self[len] = 0;
	snprintf(ranks, sizeof(ranks), "%d", p.nr_ranks);
	snprintf(devices, sizeof(devices), "--host=%d", p.nr_ranks);
	snprintf(seconds, sizeof(seconds), "%g", timeout);
	df_steps_free(&p);
	args = calloc((size_t)argc + 24, sizeof(*args));
	if (!args)
		return df_cli_input_error("replay", argv[0], "out of memory");
	if (df_jobdir_create(&dir, "replay")) {
		free(args);
		return 1;
	}
	snprintf(traces, sizeof(traces), "%s/traces", dir.path);
	if (df_env_literal(pattern, sizeof(pattern), judged)) {
		df_jobdir_remove(&dir);
		free(args);
		return df_cli_input_error("replay", keep, "%s", strerror(ENAMETOOLONG));
	}
	args[n++] = self;
	args[n++] = (char *)"run";
	args[n++] = (char *)"-n";
	args[n++] = ranks;
	if (host || rules || lanes)
		args[n++] = devices;
	if (rules) {
		args[n++] = (char *)"--rules";
		args[n++] = (char *)rules;
	}
	if (executor) {
		args[n++] = (char *)"--executor";
		args[n++] = (char *)executor;
	}
	args[n++] = (char *)"--timeout";
	args[n++] = seconds;
	args[n++] = (char *)"--trace";
	args[n++] = pattern;
	args[n++] = (char *)"--";
	args[n++] = self;
	args[n++] = (char *)"replay";
	args[n++] = (char *)"--worker";
	for (int i = 0; i < argc; i++)
		args[n++] = realpath(argv[i], NULL) ?: argv[i];
	setenv("REPLAY_IDS", dir.path, 1);
	snprintf(log_path, sizeof(log_path), "%s/log", dir.path);
	log = open(log_path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	/* The verdict on the new traces is the only report of a hang: the job's own is left out. */
	status = df_jobdir_run(&dir, args, log < 0 ? NULL : into_log, &log);
	for (int i = argc - 1; i >= 0; i--)
		if (args[--n] != argv[i])
			free(args[n]);
	free(args);
	rc = status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) != 127
		     ? df_cli_verdict(df_cli_judge("replay", 1, &judged, &opts), json)
		     : df_cli_input_error("replay", self, "cannot be started");
	if (!rc && opts.open_end && WEXITSTATUS(status) >= df_verdict_exit(DF_V_ORDER))
		fprintf(stderr, "dfshim replay: the recorded job hung; the operations after that "
				"point, which the replay has passed, are not in the trace\n");
	else if (!rc && WEXITSTATUS(status))
		rc = 1;
	if (log >= 0) {
		if (rc == 1)
			show_log(log);
		close(log);
	}
	df_jobdir_remove(&dir);
	return rc;
}

#define ROOM 1024 /* slots and queues that never run out */

int df_cmd_replay(int argc, char **argv)
{
	const char *rules = NULL, *executor = NULL, *keep = NULL, *witness = NULL;
	int host = 0, json = 0, worker = 0;
	double timeout = 5;
	struct df_replay_witness x;
	char *path;
	const struct df_opt options[] = {
		DF_OPT(RULES, rules,
		       "on CPU threads: by NCCL's rules, which may deadlock, or by dfshim's "
		       "(default)"),
		DF_WORD("executor", "auto|daemon|nccl", executor,
			"by dfshim's rules, as DFSHIM_EXECUTOR; nccl: on CPU threads, with "
			"libdfnccl.so on lanes"),
		DF_FLAG("host", host, "on CPU threads even where there is a GPU"),
		DF_OPT(TIMEOUT, timeout, "end the run after this time without progress (5)"),
		DF_OPT(TRACE, keep, "keep the new traces there"),
		DF_OPT(WITNESS, witness,
		       "run the execution that `dfshim predict` found: by NCCL's rules, with its "
		       "slots, queues and order of threads, and with unbuffered messages if its "
		       "deadlock needs them"),
		DF_OPT(JSON, json, NULL),
		DF_FLAG("worker", worker, NULL),
	};

	DF_CLI_PARSE("replay", &argc, &argv, DF_CLI_TRACES,
		     .doc = "Runs the recorded communication again: the same calls in the same "
			    "order in each thread, on buffers of the same sizes, then judges the "
			    "traces of the new run.\vExit status: as dfshim check; 1 unreadable "
			    "input or a rank that cannot be replayed, 2 wrong usage.");
	if (worker)
		return df_replay_worker(argc, argv);
	if (executor && !strcmp(executor, "nccl") && rules && !strcmp(rules, "nccl"))
		return df_cli_usage_error("replay", "--executor nccl is by dfshim's rules, not "
						    "--rules nccl");
	if (witness) {
		path = realpath(witness, NULL);
		if (!path)
			return df_cli_input_error("replay", witness, "%s", strerror(errno));
		if (df_replay_witness(path, -1, &x))
			return df_cli_input_error("replay", witness,
						  "not a witness of dfshim predict");
		setenv("REPLAY_WITNESS", path, 1);
		free(path);
		df_run_set("DFSHIM_HOST_SLOTS", x.slots ? x.slots : ROOM);
		df_run_set("DFSHIM_HOST_QUEUES", x.queues ? x.queues : ROOM);
		if (!executor)
			rules = rules ?: "nccl";
	}
	return replay(rules, executor, host, timeout, keep, json, argc, argv);
}
