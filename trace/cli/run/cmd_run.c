/*
 * `dfshim run`: sets the environment, starts the processes of a job, and stays their parent: forwards
 * signals, ends the rest when one has failed, says what the trace says. One thread; all events come
 * through one poll() over a signalfd and, with --tag, the processes' outputs.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/time.h"
#include "trace/check.h"
#include "trace/cli/cli.h"
#include "trace/cli/run/cmd_run.h"
#include "trace/cli/run/jobdir.h"
#include "trace/read/reader.h"

#define TERM_NS (5 * DF_NS_PER_S) /* between SIGTERM and SIGKILL */

struct proc {
	pid_t pid;  /* 0: ended */
	int out[2]; /* --tag: our ends of its standard output and error, -1 closed */
	char line[2][4096];
	size_t len[2];
};

struct df_run_opts df_run = {.grace = 10};

static struct proc *procs;
static int own_trace; /* the traces are ours, and go with the job */
static sigset_t old_mask;

/* ---- options -------------------------------------------------------------------------------- */

static int make_trace_dir(const char *path)
{
	char part[PATH_MAX], *p;

	if (!path)
		return 0;
	if (!*path)
		return df_cli_usage_error("run", "--trace needs a folder");
	/* A pattern (%h %p %r) belongs to the library; it makes the folders. */
	if (strchr(path, '%')) {
		snprintf(df_run.trace, sizeof(df_run.trace), "%s", path);
		return 0;
	}
	if (strlen(path) >= sizeof(part))
		return df_cli_input_error("run", path, "%s", strerror(ENAMETOOLONG));
	strcpy(part, path);
	for (p = part + 1; *p; p++)
		if (*p == '/') {
			*p = '\0';
			mkdir(part, 0777);
			*p = '/';
		}
	if (mkdir(part, 0777) && errno != EEXIST)
		return df_cli_input_error("run", path, "%s", strerror(errno));
	if (!realpath(path, df_run.trace))
		return df_cli_input_error("run", path, "%s", strerror(errno));
	return 0;
}

/* 0, or the status to exit with, which has been explained. */
static int parse(int argc, char **argv)
{
	const char *trace = NULL;
	const struct df_opt options[] = {
		DF_OPT_MAYBE(
			HOST, df_run.devices,
			"devices are CPU threads instead of GPUs (the default where there is no GPU)"),
		DF_OPT(PROCS, df_run.nr_procs,
		       "start so many copies, with RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, "
		       "MASTER_ADDR and MASTER_PORT as torchrun sets them"),
		DF_WORD("mode", "prevent|trace|off", df_run.mode, "as DFSHIM_MODE"),
		DF_OPT(RULES, df_run.rules,
		       "on CPU threads: by NCCL's rules, which may deadlock (libdfnccl.so executes, in mode "
		       "trace), or by dfshim's (default)"),
		DF_OPT(TRACE, trace,
		       "write traces there; after a failure the verdict is printed, once"),
		DF_OPT(TIMEOUT, df_run.timeout, NULL),
		DF_REAL("limit", "SECONDS", df_run.limit, 0.001, 1e6,
			"end the job after so long, with status 124"),
		DF_REAL("grace", "SECONDS", df_run.grace, 0, 86400,
			"how long the others may go on when one has failed, and all after "
			"Ctrl-C, with -n (10)"),
		DF_FLAG("tag", df_run.tag, "prefix every line of output with the rank"),
		DF_FLAG("dry-run", df_run.dry_run, "print the environment instead of running"),
	};

	df_run.devices = -1;
	DF_CLI_PARSE(
		"run", &argc, &argv, .args = "-- APP [ARG...]", .missing = "no program to run",
		.in_order = 1,
		.doc = "Runs an unmodified NCCL program with libdfshim.so in front of it.\v"
		       "Exit status: 0 when all processes return 0, else the first failing status (128 + "
		       "signal), 124 after --limit; if all return 0 although the job was stopped for a hang, the "
		       "status of its verdict (see dfshim check), with --trace or --rules nccl; 2 wrong usage.");
	df_run.host = df_run.devices >= 0;
	df_run.devices = df_run.devices > 0 ? df_run.devices : 0;
	df_run.set_ranks = df_run.nr_procs > 0;
	df_run.nr_procs = df_run.nr_procs ?: 1;
	df_run.app = argv;
	return make_trace_dir(trace);
}

/* ---- processes -------------------------------------------------------------------------------------- */

static void child(int rank, int pipes[2][2])
{
	int k;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (df_run.nr_procs > 1)
		setpgid(0, 0);
	if (df_run.set_ranks) {
		df_run_set("RANK", rank);
		df_run_set("LOCAL_RANK", rank);
	}
	for (k = 0; k < 2 && df_run.tag; k++)
		dup2(pipes[k][1], k ? STDERR_FILENO : STDOUT_FILENO);
	sigprocmask(SIG_SETMASK, &old_mask, NULL);
	execvp(df_run.app[0], df_run.app);
	k = errno;
	fprintf(stderr, "dfshim run: %s: %s\n", df_run.app[0], strerror(k));
	_exit(k == ENOENT ? 127 : 126);
}

static int start(int rank)
{
	struct proc *p = &procs[rank];
	int pipes[2][2] = {{-1, -1}, {-1, -1}}, k;

	p->out[0] = p->out[1] = -1;
	for (k = 0; k < 2 && df_run.tag; k++)
		if (pipe2(pipes[k], O_CLOEXEC))
			return -errno;
	p->pid = fork();
	if (p->pid < 0) {
		p->pid = 0;
		return -errno;
	}
	if (!p->pid)
		child(rank, pipes);
	if (df_run.nr_procs > 1)
		setpgid(p->pid, p->pid);
	for (k = 0; k < 2 && df_run.tag; k++) {
		close(pipes[k][1]);
		p->out[k] = pipes[k][0];
	}
	return 0;
}

static void signal_all(int sig)
{
	int i;

	for (i = 0; i < df_run.nr_procs; i++)
		if (procs[i].pid)
			kill(df_run.nr_procs > 1 ? -procs[i].pid : procs[i].pid, sig);
}

static void put_line(int rank, int k)
{
	struct proc *p = &procs[rank];
	FILE *out = k ? stderr : stdout;

	if (!p->len[k])
		return;
	fprintf(out, "[%d] %.*s", rank, (int)p->len[k], p->line[k]);
	if (p->line[k][p->len[k] - 1] != '\n')
		fputc('\n', out);
	fflush(out);
	p->len[k] = 0;
}

static void read_output(int rank, int k)
{
	struct proc *p = &procs[rank];
	char buf[4096];
	ssize_t n = read(p->out[k], buf, sizeof(buf)), i;

	if (n <= 0) {
		put_line(rank, k);
		close(p->out[k]);
		p->out[k] = -1;
		return;
	}
	for (i = 0; i < n; i++) {
		p->line[k][p->len[k]++] = buf[i];
		if (buf[i] == '\n' || p->len[k] == sizeof(p->line[k]))
			put_line(rank, k);
	}
}

/* Reaps what has ended; returns how many are left and notes the first failure. */
static int reap(int *code)
{
	int i, status, left = 0;

	for (i = 0; i < df_run.nr_procs; i++) {
		if (!procs[i].pid)
			continue;
		if (waitpid(procs[i].pid, &status, WNOHANG) != procs[i].pid) {
			left++;
			continue;
		}
		procs[i].pid = 0;
		if (WIFEXITED(status) && !WEXITSTATUS(status))
			continue;
		if (!*code && !WIFEXITED(status))
			fprintf(stderr, "dfshim run: rank %d ended by signal %d (%s)\n", i,
				WTERMSIG(status), strsignal(WTERMSIG(status)));
		else if (!*code && df_run.nr_procs > 1)
			fprintf(stderr, "dfshim run: rank %d ended with status %d\n", i,
				WEXITSTATUS(status));
		if (!*code)
			*code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	}
	return left;
}

/* 1: Ctrl-C came for several processes. One of them may be a launcher, with a patience of its own. */
static int forward(int signals)
{
	struct signalfd_siginfo si;
	int interrupted = 0;

	while (read(signals, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		if (si.ssi_signo == SIGCHLD)
			continue;
		/* What the terminal sends reaches a process of our own group by itself. */
		if (df_run.nr_procs == 1 && si.ssi_code == SI_KERNEL)
			continue;
		interrupted |= df_run.nr_procs > 1 && si.ssi_signo == SIGINT;
		signal_all((int)si.ssi_signo);
	}
	return interrupted;
}

/* Until all processes have ended: the job's exit status. */
static int wait_all(int signals)
{
	struct pollfd *fds = calloc((size_t)df_run.nr_procs * 2 + 1, sizeof(*fds));
	uint64_t failed_ns = 0, begun_ns = df_now_ns(), now;
	int code = 0, interrupted = 0, i, k, nr, left, stage = 0;

	if (!fds) {
		signal_all(SIGKILL);
		return 1;
	}
	for (;;) {
		left = reap(&code);
		nr = 0;
		fds[nr++] = (struct pollfd){signals, POLLIN, 0};
		for (i = 0; i < df_run.nr_procs; i++)
			for (k = 0; k < 2; k++)
				if (procs[i].out[k] >= 0)
					fds[nr++] = (struct pollfd){procs[i].out[k], POLLIN, 0};
		/* A grandchild may hold an output open: after the end we only take what is there. */
		if (!left && (nr == 1 || poll(fds + 1, (nfds_t)nr - 1, 0) <= 0))
			break;
		now = df_now_ns();
		if (df_run.limit > 0 && !code && now - begun_ns >= (uint64_t)(df_run.limit * 1e9)) {
			fprintf(stderr, "dfshim run: not finished after %g s\n", df_run.limit);
			df_run.grace = 0;
			code = 124;
		}
		if ((code || interrupted) && !failed_ns)
			failed_ns = now;
		if (left && failed_ns && stage == 0 &&
		    now - failed_ns >= (uint64_t)(df_run.grace * 1e9)) {
			fprintf(stderr, "dfshim run: ending %s%d processes\n",
				left < df_run.nr_procs ? "the other " : "all ", left);
			signal_all(SIGTERM);
			failed_ns = now;
			stage = 1;
		} else if (left && stage == 1 && now - failed_ns >= TERM_NS) {
			signal_all(SIGKILL);
			stage = 2;
		}
		if (poll(fds, (nfds_t)nr,
			 left && (failed_ns || df_run.limit > 0) ? 100
			 : left					 ? 1000
								 : 0) > 0) {
			if (fds[0].revents)
				interrupted |= forward(signals);
			nr = 1;
			for (i = 0; i < df_run.nr_procs; i++)
				for (k = 0; k < 2; k++)
					if (procs[i].out[k] >= 0 && fds[nr++].revents)
						read_output(i, k);
		}
	}
	for (i = 0; i < df_run.nr_procs; i++)
		for (k = 0; k < 2; k++)
			put_line(i, k);
	free(fds);
	return code;
}

/* The verdict that a process of the job has printed first since then, in real time, but for SLOW; DF_V_OK: none. */
static enum df_verdict told_since(uint64_t begun_ns)
{
	enum df_verdict verdict = DF_V_OK;
	uint64_t first_ns = UINT64_MAX;
	struct df_reader r;
	struct dirent *d;
	char path[2 * PATH_MAX];
	DIR *dir = opendir(df_run.trace);

	while (dir && (d = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s", df_run.trace, d->d_name);
		if (!strstr(d->d_name, ".dft") || df_reader_open(&r, path, NULL))
			continue;
		if (r.h.told && r.h.told - 1 != DF_V_SLOW && r.h.told_ns >= begun_ns &&
		    r.h.told_ns < first_ns) {
			verdict = (enum df_verdict)(r.h.told - 1);
			first_ns = r.h.told_ns;
		}
		df_reader_close(&r);
	}
	if (dir)
		closedir(dir);
	return verdict;
}

/* A verdict ends the communicators, not the processes: a program may go on with what it has, and return 0. */
static int status_of_stopped(enum df_verdict told)
{
	const char *action = getenv(df_env_name(DF_ENV_ROW_timeout_action));

	if (told == DF_V_OK || !action || strcmp(action, "abort"))
		return 0;
	fprintf(stderr,
		"dfshim run: the job was stopped as %s, although its processes returned 0\n",
		df_verdict_word(told));
	return df_verdict_exit(told);
}

/* What the traces say about a job that failed. In a process of its own: a bad trace ends only that. */
static void print_verdict(enum df_verdict told)
{
	char *args[] = {"check", df_run.trace, NULL};
	pid_t pid;

	if (!df_cmd_check || strchr(df_run.trace, '%'))
		return;
	if (told != DF_V_OK) {
		if (!own_trace)
			fprintf(stderr, "dfshim run: the verdict is above; the traces are in %s\n",
				df_run.trace);
		return;
	}
	fflush(NULL);
	pid = fork();
	if (!pid) {
		dup2(STDERR_FILENO, STDOUT_FILENO);
		alarm(60);
		exit(df_cmd_check(2, args));
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

int df_cmd_run(int argc, char **argv)
{
	static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
	int ret, i, signals, code;
	uint64_t begun_ns;
	enum df_verdict told;
	struct df_jobdir dir;
	sigset_t mask;
	size_t k;

	ret = parse(argc, argv);
	if (!ret)
		ret = df_run_environment();
	if (ret)
		return ret;
	if (df_run.dry_run) {
		df_run_print_environment();
		return 0;
	}
	procs = calloc((size_t)df_run.nr_procs, sizeof(*procs));
	if (!procs)
		return df_cli_input_error("run", df_run.app[0], "%s", strerror(ENOMEM));
	sigemptyset(&mask);
	for (k = 0; k < DF_ARRAY_LEN(handled); k++)
		sigaddset(&mask, handled[k]);
	sigprocmask(SIG_BLOCK, &mask, &old_mask);
	signals = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
	if (signals < 0)
		return df_cli_input_error("run", "signalfd", "%s", strerror(errno));
	/* Processes that NCCL has joined know of one another by their traces only. One may be the launcher of several. */
	own_trace = df_run.nccl && !*df_run.trace && !getenv(df_env_name(DF_ENV_ROW_trace));
	if (own_trace) {
		if (df_jobdir_create(&dir, "run"))
			return 1;
		snprintf(df_run.trace, sizeof(df_run.trace), "%s", dir.path);
		setenv(df_env_name(DF_ENV_ROW_trace), dir.path, 1);
	}
	fflush(NULL);
	begun_ns = df_wall_ns();
	for (i = 0; i < df_run.nr_procs; i++) {
		ret = start(i);
		if (!ret)
			continue;
		signal_all(SIGKILL);
		return df_cli_input_error("run", df_run.app[0], "process %d: %s", i,
					  strerror(-ret));
	}
	code = wait_all(signals);
	told = *df_run.trace ? told_since(begun_ns) : DF_V_OK;
	if (!code)
		code = status_of_stopped(told);
	if (code && *df_run.trace)
		print_verdict(told);
	if (own_trace)
		df_jobdir_remove(&dir);
	return code;
}
