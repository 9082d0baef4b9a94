/*
 * `dfshim run`: sets the environment, starts the processes of a job, and stays their parent. It
 * forwards signals, ends the other processes when one has failed, and prints the verdict of the
 * traces. One thread; all events arrive through one poll() over a signalfd and, with --tag, the
 * processes' outputs.
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
#include "runtime/base/net/sockaddr.h"
#include "runtime/base/time.h"
#include "trace/check.h"
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/common/input.h"
#include "trace/cli/run/run.h"
#include "trace/cli/run/jobdir.h"
#include "trace/cli/run/run_fork.h"
#include "trace/cli/run/run_memory.h"
#include "trace/cli/run/run_program.h"
#include "trace/judge/result.h"
#include "trace/read/reader.h"
#include "trace/record/writer.h"

#define TERM_NS (5 * DF_NS_PER_S) /* time between SIGTERM and SIGKILL */
/* Maximum time that the other processes continue after a verdict has ended one. */
#define STOP_S 3.0

struct proc {
	pid_t pid;  /* 0 if it has ended */
	int out[2]; /* with --tag: our ends of its standard output and error, -1 if closed */
	char line[2][4096];
	size_t len[2];
};

struct df_run_opts df_run = {.grace = 10};

static struct proc *procs;
static int own_trace;	  /* whether the traces are ours, and are removed with the job */
static uint64_t begun_ns; /* start of the job, by CLOCK_REALTIME */

/*
 * The first process that did not return 0. `signal` is the signal that killed it, or 0 if there is
 * none or we forwarded it.
 */
static struct {
	int rank, signal;
	pid_t pid;
	uint64_t at_ns; /* when, by CLOCK_REALTIME */
} failed = {.at_ns = UINT64_MAX};

static sigset_t old_mask, passed_on; /* `passed_on` are the signals that we sent to the job */

/* ---- options -------------------------------------------------------------------------------- */

/* Keeps git from listing the output of a run in a user's repository. Errors do not matter. */
static void hide_from_git(const char *dir)
{
	char path[PATH_MAX + 16];
	int fd;

	snprintf(path, sizeof(path), "%s/.gitignore", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return;
	dprintf(fd, "*\n");
	close(fd);
}

static int make_trace_dir(const char *path)
{
	char part[PATH_MAX], whole[PATH_MAX], *p;

	if (!path)
		return 0;
	if (!*path)
		return df_cli_usage_error("run", "--trace needs a folder");
	/* A pattern (%h %p %r) is expanded by the library, which makes the folders. */
	if (df_env_is_pattern(path)) {
		snprintf(df_run.trace, sizeof(df_run.trace), "%s", path);
		return 0;
	}
	if (df_env_expand(part, sizeof(part), path, -1))
		return df_cli_input_error("run", path, "%s", strerror(ENAMETOOLONG));
	for (p = part + 1; *p; p++)
		if (*p == '/') {
			*p = '\0';
			mkdir(part, 0777);
			*p = '/';
		}
	if (!mkdir(part, 0777))
		hide_from_git(part);
	else if (errno != EEXIST)
		return df_cli_input_error("run", path, "%s", strerror(errno));
	if (!realpath(part, whole))
		return df_cli_input_error("run", path, "%s", strerror(errno));
	if (df_env_literal(df_run.trace, sizeof(df_run.trace), whole))
		return df_cli_input_error("run", path, "%s", strerror(ENAMETOOLONG));
	return 0;
}

/* Whether the program is torchrun, which starts the ranks itself, for a job on one node. */
static int is_torchrun(char **app)
{
	char **arg = df_run_torchrun(app);
	int is = arg != NULL;

	for (; is && *arg; arg++)
		is = strncmp(*arg, "--nnodes", 8) != 0;
	return is;
}

/* Parses the command line. Returns 0, or the exit status after a message. */
static int parse(int argc, char **argv)
{
	const char *trace = NULL;
	const struct df_opt options[] = {
		DF_OPT_MAYBE(HOST, df_run.devices,
			     "devices are CPU threads instead of GPUs (the default where there is "
			     "no GPU)"),
		DF_OPT(PROCS, df_run.nr_procs,
		       "start this number of copies, with RANK, LOCAL_RANK, WORLD_SIZE, "
		       "LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them; "
		       "torchrun itself is started once, and starts this number unless it has "
		       "--nproc-per-node"),
		DF_WORD("mode", "prevent|trace|off", df_run.mode, "as DFSHIM_MODE"),
		DF_WORD("executor", "auto|daemon|nccl", df_run.executor,
			"as DFSHIM_EXECUTOR; nccl: libdfnccl.so stands for NCCL (needs --host)"),
		DF_OPT(RULES, df_run.rules,
		       "on CPU threads: by NCCL's rules, which may deadlock (libdfnccl.so "
		       "executes, in mode trace), or by dfshim's (default)"),
		DF_OPT(TRACE, trace,
		       "write traces there; after a failure the verdict is printed, once"),
		DF_OPT(TIMEOUT, df_run.timeout, NULL),
		DF_REAL("limit", "SECONDS", df_run.limit, 0.001, 1e6,
			"end the job after this time, with status 124"),
		DF_REAL("grace", "SECONDS", df_run.grace, 0, 86400,
			"how long the others may go on when one has failed, and all after "
			"Ctrl-C, with -n (10)"),
		DF_FLAG("tag", df_run.tag, "prefix every line of output with the rank"),
		DF_FLAG("no-fork", df_run.no_fork,
			"an interpreter for each rank of a Python program, also where one could "
			"import torch and be forked (as DFSHIM_HOST_FORK=0)"),
		DF_OPT(STUB, df_run.stub, NULL),
		DF_FLAG("dry-run", df_run.dry_run, "print the environment instead of running"),
	};

	df_run.devices = -1;
	DF_CLI_PARSE("run", &argc, &argv, .args = "-- APP [ARG...]", .missing = "no program to run",
		     .in_order = 1,
		     .doc = "Runs an unmodified NCCL program with libdfshim.so in front of "
			    "it.\vExit status: 0 when all processes return 0, else the first "
			    "failing status (128 + signal), 124 after --limit; if the job was "
			    "stopped for a hang, the status of its verdict (see dfshim check), "
			    "whatever the processes returned; 2 wrong usage.");
	df_run.host = df_run.devices >= 0;
	df_run.devices = df_run.devices > 0 ? df_run.devices : 0;
	df_run.set_ranks = df_run.nr_procs > 0;
	df_run.nr_procs = df_run.nr_procs ?: 1;
	df_run.app = argv;
	if (df_run.set_ranks && is_torchrun(argv)) {
		df_run.workers = df_run.nr_procs;
		df_run.nr_procs = 1;
		df_run.set_ranks = 0;
	}
	return make_trace_dir(trace);
}

/* ---- the verdict ----------------------------------------------------------------------------- */

/* Folder that contains the job's traces; "" if there are none. */
static char traces[PATH_MAX];

/*
 * The first verdict that a process of the job has printed, or DF_V_OK if there is none. SLOW counts
 * only if no process has printed another one.
 */
struct told {
	enum df_verdict verdict;
	uint64_t at_ns; /* when, by CLOCK_REALTIME */
	char line[512];
};

static void told_in(const char *path, struct told *first)
{
	enum df_verdict verdict;
	struct df_reader r;
	int better;

	if (!strstr(path, ".dft") || df_reader_open(&r, path, NULL))
		return;
	verdict = (enum df_verdict)(r.h.told - 1);
	better = first->verdict == DF_V_OK ||
		 (first->verdict == DF_V_SLOW) > (verdict == DF_V_SLOW) ||
		 ((first->verdict == DF_V_SLOW) == (verdict == DF_V_SLOW) &&
		  r.h.told_ns < first->at_ns);
	if (r.h.told && r.h.told_ns >= begun_ns && better) {
		first->verdict = verdict;
		first->at_ns = r.h.told_ns;
		snprintf(first->line, sizeof(first->line), "%s", r.h.told_line);
	}
	df_reader_close(&r);
}

static void told_below(const char *path, int depth, struct told *first)
{
	DIR *dir = opendir(path);
	struct dirent *d;
	char name[PATH_MAX];

	while (dir && (d = readdir(dir))) {
		if (d->d_name[0] == '.' ||
		    snprintf(name, sizeof(name), "%s/%s", path, d->d_name) >= (int)sizeof(name))
			continue;
		if (d->d_type == DT_DIR && depth)
			told_below(name, depth - 1, first);
		else
			told_in(name, first);
	}
	if (dir)
		closedir(dir);
}

static struct told what_is_told(void)
{
	struct told first = {.verdict = DF_V_OK, .at_ns = UINT64_MAX};

	if (*traces)
		told_below(traces, 3, &first);
	return first;
}

/* Whether a verdict stops the job. */
static int verdict_stops(void)
{
	const char *action = getenv(df_env_name(DF_ENV_ROW_timeout_action));

	return action && strcmp(action, "report");
}

/* ---- processes ------------------------------------------------------------------------------- */

/* In a process that becomes a rank: sets its variables, outputs, and signals. */
static void become(int rank, int pipes[2][2])
{
	int k;

	if (df_run.set_ranks) {
		df_run_set("RANK", rank);
		df_run_set("LOCAL_RANK", rank);
	}
	for (k = 0; k < 2 && df_run.tag; k++)
		dup2(pipes[k][1], k ? STDERR_FILENO : STDOUT_FILENO);
	sigprocmask(SIG_SETMASK, &old_mask, NULL);
}

static void child(int rank, int pipes[2][2])
{
	int k;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (df_run.nr_procs > 1)
		setpgid(0, 0);
	become(rank, pipes);
	execvp(df_run.app[0], df_run.app);
	k = errno;
	df_cli_input_error("run", df_run.app[0], "%s", strerror(k));
	_exit(k == ENOENT ? 127 : 126);
}

static int start(int rank)
{
	struct proc *p = &procs[rank];
	int pipes[2][2] = {{-1, -1}, {-1, -1}}, k;
	pid_t pid;

	p->out[0] = p->out[1] = -1;
	for (k = 0; k < 2 && df_run.tag; k++)
		if (pipe2(pipes[k], O_CLOEXEC))
			return -errno;
	if (df_run_fork_is_open()) {
		int out[2] = {pipes[0][1], pipes[1][1]};

		pid = df_run_fork_rank(rank, df_run.tag ? out : NULL);
	} else {
		pid = fork();
		if (pid < 0)
			pid = -errno;
	}
	if (pid < 0)
		return (int)pid;
	if (!pid)
		child(rank, pipes);
	p->pid = pid;
	if (df_run.nr_procs > 1)
		setpgid(p->pid, p->pid);
	for (k = 0; k < 2 && df_run.tag; k++) {
		close(pipes[k][1]);
		p->out[k] = pipes[k][0];
	}
	return 0;
}

/* Prepares the interpreter that forks the ranks: it has the same kind of outputs as the ranks. */
static void become_first(void *arg)
{
	int pipes[2][2], k;

	(void)arg;
	for (k = 0; k < 2 && df_run.tag; k++)
		if (pipe2(pipes[k], O_CLOEXEC))
			_exit(1);
	become(0, pipes);
}

/*
 * Returns 0 if ranks are forked or have separate interpreters; else the exit status after a
 * message.
 */
static int open_fork(int signals)
{
	const char *fork = getenv(df_env_name(DF_ENV_ROW_host_fork));
	uint64_t until_ns = df_run.limit > 0 ? df_now_ns() + (uint64_t)(df_run.limit * 1e9) : 0;
	int ret;

	if (!df_run.host || df_run.nr_procs == 1 || (fork && !strcmp(fork, "0")))
		return 0;
	ret = df_run_fork_open(signals, until_ns, become_first, NULL);
	return ret < 0 ? -ret : 0;
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

/* Reaps ended processes and notes the first failure. Returns the number of the others. */
static int reap(int *code)
{
	int i, status, left = 0;
	pid_t pid;

	for (i = 0; i < df_run.nr_procs; i++) {
		if (!procs[i].pid)
			continue;
		if (waitpid(procs[i].pid, &status, WNOHANG) != procs[i].pid) {
			left++;
			continue;
		}
		pid = procs[i].pid;
		procs[i].pid = 0;
		if (WIFEXITED(status) && !WEXITSTATUS(status))
			continue;
		if (!*code && !WIFEXITED(status))
			fprintf(stderr, "dfshim run: rank %d ended by signal %d (%s)\n", i,
				WTERMSIG(status), strsignal(WTERMSIG(status)));
		else if (!*code && df_run.nr_procs > 1)
			fprintf(stderr, "dfshim run: rank %d ended with status %d\n", i,
				WEXITSTATUS(status));
		if (*code)
			continue;
		*code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		failed.rank = i;
		failed.pid = pid;
		failed.at_ns = df_wall_ns();
		if (WIFSIGNALED(status) && !sigismember(&passed_on, WTERMSIG(status)))
			failed.signal = WTERMSIG(status);
	}
	return left;
}

/*
 * Forwards signals to the job. Returns 1 after Ctrl-C if the job has several processes, which then
 * have to end within --grace. A single process may be a launcher with time limits of its own.
 */
static int forward(int signals)
{
	struct signalfd_siginfo si;
	int interrupted = 0;

	while (read(signals, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
		if (si.ssi_signo == SIGCHLD)
			continue;
		sigaddset(&passed_on, (int)si.ssi_signo);
		/* A signal from the terminal reaches a process of our own group directly. */
		if (df_run.nr_procs == 1 && si.ssi_code == SI_KERNEL)
			continue;
		interrupted |= df_run.nr_procs > 1 && si.ssi_signo == SIGINT;
		signal_all((int)si.ssi_signo);
	}
	return interrupted;
}

/* Reports the memory that the processes use, once, when little memory is left. */
static void watch_memory(uint64_t now)
{
	static uint64_t looked_ns;
	static int said;
	uint64_t free_bytes, own, sum = 0;
	int i, nr = 0;

	if (said || now - looked_ns < DF_NS_PER_S)
		return;
	looked_ns = now;
	if (!df_run_memory_is_short(&free_bytes))
		return;
	for (i = 0; i < df_run.nr_procs; i++) {
		own = procs[i].pid ? df_run_memory_own(procs[i].pid) : 0;
		nr += own > 0;
		sum += own;
	}
	if (!nr)
		return;
	fprintf(stderr,
		"dfshim run: memory runs out: %d processes have %.0f MB each of their own, and "
		"%.0f MB are free; the kernel may kill one (SIGKILL)\n",
		nr, (double)sum / nr / 1e6, (double)free_bytes / 1e6);
	said = 1;
}

/* Waits until all processes have ended. Returns the job's exit status. */
static int wait_all(int signals)
{
	struct pollfd *fds = calloc((size_t)df_run.nr_procs * 2 + 1, sizeof(*fds));
	uint64_t failed_ns = 0, start_ns = df_now_ns(), now;
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
		/* A grandchild may hold an output open: after the end only read what is there. */
		if (!left && (nr == 1 || poll(fds + 1, (nfds_t)nr - 1, 0) <= 0))
			break;
		now = df_now_ns();
		watch_memory(now);
		if (df_run.limit > 0 && !code && now - start_ns >= (uint64_t)(df_run.limit * 1e9)) {
			fprintf(stderr, "dfshim run: not finished after %g s\n", df_run.limit);
			df_run.grace = 0;
			code = 124;
		}
		if ((code || interrupted) && !failed_ns) {
			failed_ns = now;
			/*
			 * After a verdict the processes with dfshim end themselves; end the others
			 * soon.
			 */
			if (what_is_told().verdict != DF_V_OK && verdict_stops())
				df_run.grace = DF_MIN(df_run.grace, STOP_S);
		}
		if (left && failed_ns && stage == 0 &&
		    now - failed_ns >= (uint64_t)(df_run.grace * 1e9)) {
			if (left == 1)
				fprintf(stderr, "dfshim run: ending the %sprocess\n",
					df_run.nr_procs > 1 ? "other " : "");
			else
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

/* ---- the end --------------------------------------------------------------------------------- */

/*
 * Whether a verdict stopped the job, whatever its processes returned then: the verdict was there
 * before the first of them failed. (A crash precedes its verdict.)
 */
static int was_stopped(const struct told *told, int code)
{
	return told->verdict != DF_V_OK && verdict_stops() &&
	       (!code || (told->verdict != DF_V_CRASH && told->at_ns <= failed.at_ns));
}

/* Prints the verdict as the last line, after all that the processes printed since. */
static void say_again(const char *line, int code, int stopped)
{
	fprintf(stderr, "dfshim run: %s, status %d: %s (the report is above%s%s)\n",
		stopped ? "stopped for a hang" : "the job failed", code, line,
		*traces && !own_trace ? "; the traces are in " : "", own_trace ? "" : traces);
}

/*
 * Whether a process that was killed by a signal explains the job's end better than this verdict. A
 * CRASH may belong to an earlier job in the same folder.
 */
static int is_explained(enum df_verdict v)
{
	return v == DF_V_OK || v == DF_V_SLOW || v == DF_V_INIT || v == DF_V_UNKNOWN ||
	       v == DF_V_CRASH;
}

/*
 * Records the death in the folder for later readers, because a process that dies at its start
 * leaves no trace.
 */
static int record_death(void)
{
	struct df_trace_config config = {
		.dir = df_run.trace, .mb = 1, .rank = -1, .host = df_addr_host_hash()};
	int ret = df_trace_open(&config);

	if (ret)
		return df_cli_input_error("run", df_run.trace, "%s", strerror(-ret));
	df_trace(DF_REC_PEER_DEAD, -1, 0, -1, (uint64_t)failed.rank, config.host,
		 (uint64_t)failed.pid, 0 - (uint64_t)failed.signal, 0);
	df_trace_close();
	return 0;
}

/*
 * Judges in a process of its own. Returns the job's exit status. A job that failed before it used
 * NCCL has no traces.
 */
static int judge(int code, int stopped)
{
	const struct df_check_opts opts = {.alive = df_check_alive};
	char *path = traces;
	struct df_check_result *r =
		df_cli_has_traces(path) ? df_cli_judge("run", 1, &path, &opts) : NULL;

	if (!stopped && failed.signal && (!r || is_explained(df_check_verdict(r)))) {
		df_check_result_free(r);
		r = record_death() ? NULL : df_cli_judge("run", 1, &path, &opts);
	}
	if (r)
		df_check_print(r, stderr);
	if (!stopped)
		return code;
	code = df_verdict_stop_exit(r ? df_check_verdict(r) : DF_V_SLOW);
	if (r)
		say_again(df_check_line(r), code, 1);
	return code;
}

/*
 * The job has printed the verdict. Adds what only a reader of the program's source can say. Returns
 * the status.
 */
static int say_decided(int code, int stopped)
{
	const struct df_check_opts opts = {.alive = df_check_alive};
	char *path = traces;
	struct df_check_result *r = df_cli_judge("run", 1, &path, &opts);

	(void)stopped;
	if (r && r->decided)
		fprintf(stderr, "dfshim run: which call a rank makes is decided by %s\n",
			r->decided);
	df_check_result_free(r);
	return code;
}

/*
 * Judges the traces of a job that failed, or was too slow. A bad trace ends only the process that
 * reads it.
 */
static int in_child(int (*look)(int code, int stopped), int code, int stopped)
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		alarm(60);
		code = look(code, stopped);
		fflush(NULL);
		_exit(code);
	}
	if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status))
		return WEXITSTATUS(status);
	return code;
}

/*
 * Returns the job's status. If the verdict was only SLOW, it is checked again, because the rank may
 * never have arrived.
 */
static int conclude(int code)
{
	struct told told = what_is_told();
	int stopped = was_stopped(&told, code);

	if (stopped)
		code = df_verdict_stop_exit(told.verdict);
	if (code && told.verdict != DF_V_OK && told.verdict != DF_V_SLOW) {
		code = in_child(say_decided, code, stopped);
		say_again(told.line, code, stopped);
	} else if (code && *df_run.trace && (stopped || !own_trace || df_run.nccl)) {
		code = in_child(judge, code, stopped);
	}
	return code;
}

/*
 * Finds the folder of the traces, once the environment is set. Returns 0, or the exit status after
 * a message.
 */
static int find_traces(struct df_jobdir *dir)
{
	const char *set = getenv(df_env_name(DF_ENV_ROW_trace));
	const char *mode = getenv(df_env_name(DF_ENV_ROW_mode));

	if (set && *set) {
		if (df_env_expand_shared(traces, sizeof(traces), set))
			*traces = '\0';
		return 0;
	}
	/*
	 * The job needs traces: by NCCL's rules its processes find one another only by them, and
	 * they record in them which verdict stopped the job.
	 */
	if ((mode && !strcmp(mode, "off")) || !(df_run.nccl || verdict_stops()))
		return 0;
	if (df_jobdir_create(dir, "run"))
		return df_run.nccl;
	own_trace = 1;
	if (df_env_literal(df_run.trace, sizeof(df_run.trace), dir->path)) {
		df_jobdir_remove(dir);
		return df_cli_input_error("run", dir->path, "%s", strerror(ENAMETOOLONG));
	}
	snprintf(traces, sizeof(traces), "%s", dir->path);
	setenv(df_env_name(DF_ENV_ROW_trace), df_run.trace, 1);
	return 0;
}

int df_cmd_run(int argc, char **argv)
{
	static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};
	int ret, i, signals, code;
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
	ret = df_run_missing(df_run.app);
	if (ret)
		return ret;
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
	if (find_traces(&dir))
		return 1;
	fflush(NULL);
	begun_ns = df_wall_ns();
	code = open_fork(signals);
	for (i = 0; i < df_run.nr_procs && !code; i++) {
		ret = start(i);
		if (!ret)
			continue;
		signal_all(SIGKILL);
		code = df_cli_input_error("run", df_run.app[0], "process %d: %s", i,
					  ret == -ECHILD ? "the interpreter that forks has ended"
							 : strerror(-ret));
	}
	df_run_fork_close();
	if (!code)
		code = conclude(wait_all(signals));
	if (own_trace)
		df_jobdir_remove(&dir);
	return code;
}
