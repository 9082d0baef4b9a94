/*
 * `dfshim ci`, for a step of a workflow. Runs a job by NCCL's rules (`dfshim run`), bounded. If it
 * hangs, the result is its verdict, else what `dfshim predict` finds in its traces. A summary in
 * Markdown and the HTML report are for people who read the result elsewhere. One thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/common/input.h"
#include "trace/cli/run/jobdir.h"

#define PREDICTED    14 /* exit status of `dfshim predict` */
#define VERDICTS     10 /* exit statuses of verdicts: from VERDICTS on, below VERDICTS_END */
#define VERDICTS_END 64
#define REPLAY_QUIET 5.0 /* seconds without progress that end a replay */

struct ci {
	struct df_jobdir dir;
	char self[PATH_MAX], traces[PATH_MAX];
	char text[PATH_MAX]; /* file with the details of the summary */
	char loaded
		[PATH_MAX]; /* file to which each process with libdfshim.so appends its program */
	/* a prediction's witness; the output of its replay */
	char witness[PATH_MAX], replayed[PATH_MAX];
	/* seconds without progress that count as a hang */
	char quiet[32];
	const char *summary, *report;
};

/*
 * Writes a sentence as Markdown: escapes characters of markup, addresses, and entities. The
 * sentence begins with a word of ours, so nothing in it begins a line.
 */
static void put_markdown(FILE *out, const char *s)
{
	for (const char *at = s; *at; at++) {
		if (strchr("\\`*_[]<>&|~#!$@", *at) || (*at == ':' && at[1] == '/') ||
		    (*at == '.' && at > s && at[-1] == 'w'))
			fputc('\\', out);
		fputc(*at, out);
	}
}

/*
 * Returns the length of a tilde fence that the file's text cannot end: longer than its longest run
 * of tildes, at least four.
 */
static int fence_of(const char *path)
{
	FILE *in = fopen(path, "r");
	int c, run = 0, most = 3;

	while (in && (c = getc(in)) != EOF) {
		run = c == '~' ? run + 1 : 0;
		most = DF_MAX(most, run);
	}
	if (in)
		fclose(in);
	return most + 1;
}

static void put_fence(FILE *out, int tildes, const char *text)
{
	while (tildes--)
		fputc('~', out);
	fputs(text, out);
}

static void copy_text(const char *from, FILE *to)
{
	FILE *in = fopen(from, "r");
	char buf[4096];
	size_t n;

	while (in && (n = fread(buf, 1, sizeof(buf), in)))
		fwrite(buf, 1, n, to);
	if (in)
		fclose(in);
}

static void first_line(const char *path, char *line, size_t size)
{
	FILE *in = fopen(path, "r");

	*line = '\0';
	if (in && fgets(line, (int)size, in))
		line[strcspn(line, "\n")] = '\0';
	if (in)
		fclose(in);
}

/* In the child: redirects its standard output to the file. */
static void to_file(void *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (fd < 0)
		_exit(127);
	dup2(fd, STDOUT_FILENO);
}

/* As to_file(), and drops the standard error, to which the child's job writes. */
static void to_file_alone(void *path)
{
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	to_file(path);
	if (fd >= 0)
		dup2(fd, STDERR_FILENO);
}

/* Returns the exit status of a subcommand, or 128 + signal if it was killed. */
static int status_of(int status)
{
	return status < 0 ? 1 : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int write_summary(const struct ci *ci, const char *title, const char *line,
			 const char *about)
{
	FILE *out = df_cli_create("ci", ci->summary);
	struct stat st;

	if (!out)
		return 1;
	fprintf(out, "### dfshim: %s\n\n", title);
	put_markdown(out, line);
	fputc('\n', out);
	if (!stat(ci->text, &st) && st.st_size) {
		int tildes = fence_of(ci->text);

		fprintf(out, "\n<details><summary>%s</summary>\n\n", about);
		put_fence(out, tildes, "text\n");
		copy_text(ci->text, out);
		put_fence(out, tildes, "\n\n</details>\n");
	}
	return df_cli_close("ci", ci->summary, out, 0);
}

/*
 * Judges the traces and writes the report to ci->text. Returns the verdict's exit status, with its
 * line, or -1 if the traces cannot be read.
 */
static int judge(struct ci *ci, char *line, size_t size, char *word, size_t word_size)
{
	const struct df_check_opts opts = {.alive = df_check_alive};
	char *path = ci->traces;
	struct df_check_result *r = df_cli_judge("ci", 1, &path, &opts);
	FILE *out = r ? fopen(ci->text, "w") : NULL;
	int rc = -1;

	if (out) {
		rc = df_verdict_exit(df_check_verdict(r));
		snprintf(line, size, "%s", df_check_line(r));
		snprintf(word, word_size, "%s", df_verdict_word(df_check_verdict(r)));
		df_check_print(r, out);
		fclose(out);
	}
	df_check_result_free(r);
	return rc;
}

/*
 * Searches deadlocks of other executions, writes them to ci->text, and writes one witness to
 * ci->witness. Returns the exit status of `dfshim predict`.
 */
static int predict(struct ci *ci, char *line, size_t size)
{
	char *args[] = {ci->self,    (char *)"predict", (char *)"--witness",
			ci->witness, ci->traces,	NULL};
	int rc = status_of(df_jobdir_run(&ci->dir, args, to_file, ci->text));

	first_line(ci->text, line, size);
	return rc;
}

/*
 * Runs the predicted execution by NCCL's rules. Returns 1 if it hangs too, with its verdict's line;
 * 0 if it does not; -1 if it cannot be run.
 */
static int confirm(struct ci *ci, char *line, size_t size)
{
	char *args[] = {ci->self,
			(char *)"replay",
			(char *)"--rules",
			(char *)"nccl",
			(char *)"--witness",
			ci->witness,
			(char *)"--timeout",
			ci->quiet,
			ci->traces,
			NULL};
	int rc = status_of(df_jobdir_run(&ci->dir, args, to_file_alone, ci->replayed));

	first_line(ci->replayed, line, size);
	return !rc ? 0 : rc >= VERDICTS && rc < VERDICTS_END ? 1 : -1;
}

/* Writes the HTML report. The command's output is dropped, because the result has been printed. */
static int write_report(struct ci *ci, int with_witness)
{
	char *args[] = {ci->self,	    (char *)"report",
			ci->traces,	    (char *)"-o",
			(char *)ci->report, with_witness ? (char *)"--witness" : NULL,
			ci->witness,	    NULL};

	return ci->report ? status_of(df_jobdir_run(&ci->dir, args, to_file, (char *)"/dev/null"))
			  : 0;
}

/* Concludes for a job that has ended well: searches its records. Returns the exit status. */
static int conclude_predicted(struct ci *ci)
{
	char line[4096], said[4096] = "", text[8400];
	int rc = predict(ci, line, sizeof(line)), confirmed = 0, written;

	if (rc == PREDICTED) {
		confirmed = confirm(ci, said, sizeof(said));
		if (!confirmed) {
			rc = 0;
			snprintf(text, sizeof(text),
				 "no potential deadlock: one that seemed possible (%s) was not "
				 "confirmed: replayed by NCCL's rules it finishes",
				 strchr(line, ':') ? strchr(line, ':') + 2 : line);
			printf("%s\n", text);
		} else {
			copy_text(ci->text, stdout);
			printf("\n%s%s\n",
			       confirmed > 0 ? "Replayed from the start by NCCL's rules it hangs: "
					     : "This is the model's result: a replay for "
					       "confirmation cannot be run.",
			       confirmed > 0 ? said : "");
			snprintf(text, sizeof(text), "%s", line);
		}
	} else {
		copy_text(ci->text, stdout);
		snprintf(text, sizeof(text), "%s", line);
	}
	fflush(stdout);
	written = ci->summary && write_summary(ci,
					       rc == PREDICTED ? "potential deadlock"
					       : rc	       ? "no prediction"
							       : "no deadlock",
					       text,
					       rc == PREDICTED ? "An execution that deadlocks"
							       : "What was looked at");
	written |= write_report(ci, rc == PREDICTED) != 0;
	return rc ? rc : written;
}

/*
 * Whether a file contains NCCL's code, as a program does that is linked with libnccl_static.a.
 * Looks for the name of a variable that only NCCL reads.
 */
static int contains_nccl(const char *path)
{
	static const char mark[] = "NCCL_CROSS_NIC";
	int fd = open(path, O_RDONLY | O_CLOEXEC), found = 0;
	struct stat st;
	void *at;

	if (fd < 0)
		return 0;
	if (!fstat(fd, &st) && st.st_size > 0) {
		at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (at != MAP_FAILED) {
			found = memmem(at, (size_t)st.st_size, mark, sizeof(mark)) != NULL;
			munmap(at, (size_t)st.st_size);
		}
	}
	close(fd);
	return found;
}

/*
 * Says in one line why a job left no trace, as far as its processes noted, and what to do. `names`:
 * the programs that loaded libdfshim.so.
 */
static void explain_no_trace(const struct ci *ci, int job, char *text, size_t size)
{
	char path[PATH_MAX + 1], names[512] = "", carrier[NAME_MAX + 1] = "";
	FILE *in = fopen(ci->loaded, "r");
	int torch = 0;

	while (in && fgets(path, sizeof(path), in)) {
		const char *base;
		size_t n = strlen(names);
		char *p;

		path[strcspn(path, "\n")] = '\0';
		base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
		if (contains_nccl(path))
			snprintf(carrier, sizeof(carrier), "%.*s", NAME_MAX, base);
		if (!strncmp(base, "libtorch_", 9)) {
			torch = 1;
			continue;
		}
		/* Each name once. */
		for (p = strstr(names, base); p; p = strstr(p + 1, base))
			if ((p == names || p[-1] == ' ') && strchr(",", p[strlen(base)]))
				break;
		if (!p)
			snprintf(names + n, sizeof(names) - n, "%s%s", n ? ", " : "", base);
	}
	if (in)
		fclose(in);
	if (!*names && (job == 126 || job == 127))
		snprintf(text, size, "the program did not start");
	else if (!*names)
		snprintf(text, size,
			 "no program of the job loaded libdfshim.so: pass LD_PRELOAD on to them, "
			 "and link none of them with -static");
	else if (*carrier)
		snprintf(text, size,
			 "%s contains NCCL itself, so its calls do not reach libdfshim.so: link it "
			 "with libnccl.so, or record it with NCCL's profiler plugin",
			 carrier);
	else if (torch)
		snprintf(text, size,
			 "no NCCL call reached libdfshim.so, although PyTorch was loaded with it "
			 "(%s): init_process_group() needs the backend nccl, other backends such "
			 "as gloo are not checked",
			 names);
	else
		snprintf(text, size,
			 "no NCCL call reached libdfshim.so, which was loaded by %s: if your "
			 "program is not among them, pass LD_PRELOAD on to it; if it is, let it "
			 "call NCCL",
			 names);
}

/* Concludes for a job that has ended with status `job`. Returns the status of `dfshim ci`. */
static int conclude(struct ci *ci, int job)
{
	char line[4096], word[32], text[4200];
	int rc, written = 0;

	if (!df_cli_has_traces(ci->traces)) {
		rc = snprintf(text, sizeof(text),
			      "nothing was checked (the job's status is %d%s): ", job,
			      job ? ", see its own error first" : "");
		explain_no_trace(ci, job, text + rc, sizeof(text) - (size_t)rc);
		fprintf(stderr, "dfshim ci: %s\n", text);
		if (ci->summary)
			write_summary(ci, "nothing checked", text, "");
		return job ? job : 1;
	}
	rc = judge(ci, line, sizeof(line), word, sizeof(word));
	if (rc < 0)
		return 1;
	if (!rc && !job)
		return conclude_predicted(ci);
	if (rc) {
		/* `dfshim run` has just printed the same report, when it stopped the job. */
		if (rc == job)
			printf("%s\n", line);
		else
			copy_text(ci->text, stdout);
		if (ci->summary && write_summary(ci, word, line, "The waits and their call sites"))
			written = 1;
	} else {
		snprintf(text, sizeof(text),
			 "the job failed by itself, with status %d; its communication shows no "
			 "deadlock",
			 job);
		printf("%s\n%s\n", text, line);
		if (ci->summary)
			write_summary(ci, "the job failed", text, "Its communication");
	}
	fflush(stdout);
	written |= write_report(ci, 0) != 0;
	return rc ? rc : job ? job : written;
}

int df_cmd_ci(int argc, char **argv)
{
	const char *keep = NULL;
	int devices = -1, procs = 0, stub = 0, rc, fd;
	double timeout = 30, limit = 0;
	struct ci ci = {0};
	char host[32], ranks[16], seconds[32], bound[32], pattern[2 * PATH_MAX];
	char **args;
	size_t n = 0;
	ssize_t len = readlink("/proc/self/exe", ci.self, sizeof(ci.self) - 1);
	const struct df_opt options[] = {
		DF_OPT_MAYBE(HOST, devices, "devices, which are CPU threads (8, or one a process)"),
		DF_OPT(PROCS, procs, "start this number of copies, as dfshim run does"),
		DF_TEXT("summary", "FILE", ci.summary, "write a summary in Markdown"),
		DF_TEXT("report", "FILE", ci.report, "write the HTML report"),
		DF_OPT(TIMEOUT, timeout, "report a hang after this time without progress (30)"),
		DF_REAL("limit", "SECONDS", limit, 0.001, 1e6,
			"end the job after this time, also if it still makes progress"),
		DF_OPT(STUB, stub, NULL),
		DF_OPT(TRACE, keep, "keep the traces there"),
	};

	DF_CLI_PARSE("ci", &argc, &argv, .args = "-- APP [ARG...]", .missing = "no program to run",
		     .in_order = 1,
		     .doc = "Runs a job on CPU threads by NCCL's rules, and says whether it "
			    "deadlocks: in this run, or in other executions that its records "
			    "allow. Its output goes to standard error.\vExit status: 0 no deadlock "
			    "was found, neither in this run nor in others; 14 other executions can "
			    "deadlock; if the run hangs, the status of its verdict (see dfshim "
			    "check); if the job fails without a hang, its own status; 1 nothing "
			    "was recorded, or a file cannot be written; 2 wrong usage.");
	if (len <= 0)
		return df_cli_input_error("ci", "/proc/self/exe", "%s", strerror(errno));
	args = calloc((size_t)argc + 20, sizeof(*args));
	if (!args)
		return df_cli_input_error("ci", argv[0], "%s", strerror(ENOMEM));
	if (df_jobdir_create(&ci.dir, "ci")) {
		free(args);
		return 1;
	}
	snprintf(ci.text, sizeof(ci.text), "%s/text", ci.dir.path);
	snprintf(ci.witness, sizeof(ci.witness), "%s/witness", ci.dir.path);
	snprintf(ci.replayed, sizeof(ci.replayed), "%s/replayed", ci.dir.path);
	snprintf(ci.quiet, sizeof(ci.quiet), "%g", timeout < REPLAY_QUIET ? timeout : REPLAY_QUIET);
	if (keep)
		snprintf(ci.traces, sizeof(ci.traces), "%s", keep);
	else
		snprintf(ci.traces, sizeof(ci.traces), "%s/traces", ci.dir.path);
	snprintf(ci.loaded, sizeof(ci.loaded), "%s/loaded", ci.dir.path);
	fd = open(ci.loaded, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	setenv(df_env_name(DF_ENV_ROW_loaded_file), ci.loaded, 1);
	df_env_literal(pattern, sizeof(pattern), ci.traces);
	if (stub) /* a replay does not compute either */
		setenv(df_env_name(DF_ENV_ROW_host_stub), "1", 1);
	snprintf(host, sizeof(host), devices > 0 ? "--host=%d" : "--host", devices);
	snprintf(seconds, sizeof(seconds), "%g", timeout);
	args[n++] = ci.self;
	args[n++] = (char *)"run";
	args[n++] = host;
	if (procs) {
		snprintf(ranks, sizeof(ranks), "%d", procs);
		args[n++] = (char *)"-n";
		args[n++] = ranks;
	}
	args[n++] = (char *)"--rules";
	args[n++] = (char *)"nccl";
	args[n++] = (char *)"--timeout";
	args[n++] = seconds;
	if (limit > 0) {
		snprintf(bound, sizeof(bound), "%g", limit);
		args[n++] = (char *)"--limit";
		args[n++] = bound;
	}
	args[n++] = (char *)"--trace";
	args[n++] = pattern;
	args[n++] = (char *)"--";
	memcpy(args + n, argv, (size_t)argc * sizeof(*args));
	rc = conclude(&ci, status_of(df_jobdir_run(&ci.dir, args, NULL, NULL)));
	free(args);
	df_jobdir_remove(&ci.dir);
	return rc;
}
