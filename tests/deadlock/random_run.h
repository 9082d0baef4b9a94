/*
 * Batches of programs, executed by the plain client (script.c) under the preload in a process of its own, and what
 * came of each. What is to complete gets all the time it wants, what is to hang is soon seen to: the two never share a
 * process.
 */
#ifndef DEADLOCK_RANDOM_RUN_H
#define DEADLOCK_RANDOM_RUN_H

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "make.h"
#include "tests/lib/test.h"
#include "trace/check.h"

#define FINISH_MS 60000
#define HANG_MS	  40 /* without progress, times df_test_slow() */
#define SILENT_MS                                                                                  \
	300 /* the same where only hosts wait for hosts, for verdicts that nothing calls for */
#define PATIENT_MS 3000 /* the same, for a second look at what was looked at too soon */

#define NR_BATCH   32
#define AT_RANKS   4
#define AT_THREADS 2

struct outcome {
	int ran, done, wrong, silent,
		at_known; /* silent: nothing in flight that could be told about */
	int last; /* the process ended with it: those that were to follow have not been tried */
	enum df_verdict word;	   /* DF_V_OK and no line: none was given */
	char text[300], line[800]; /* the verdict's first line */
	int at[AT_RANKS]
	      [AT_THREADS]; /* of a program that was broken off: the step at which each thread stood */
};

static char build[400], scratch[400];
static const char *release_policy = "safe";

struct batch {
	struct script *s[NR_BATCH];
	struct outcome *out[NR_BATCH];
	int nr, nccl, slots, queues, ms;
	int silent_ms; /* after that the client ends a program by itself whose hosts wait for one another; 0: never */
	pid_t pid;
	char file[500], log[520];
};

/* Starts the client on a batch of programs. The environment is this process's: nothing of ours runs in it. */
static void batch_start(struct batch *b)
{
	static int number;
	char client[500], quiet[16];
	char *argv[] = {client, "--timeout", "60", "--still", quiet, b->file, NULL};
	posix_spawn_file_actions_t files;
	int i, err;
	FILE *f;

	snprintf(b->file, sizeof(b->file), "%s/batch.%d.%d", scratch, (int)getpid(), number++);
	snprintf(b->log, sizeof(b->log), "%s.log", b->file);
	snprintf(client, sizeof(client), "%s/tests/deadlock/script", build);
	f = fopen(b->file, "w");
	if (!f) {
		perror(b->file);
		exit(1);
	}
	for (i = 0; i < b->nr; i++)
		print_script(b->s[i], f);
	fclose(f);
	unsetenv("DFSHIM_TRACE");
	set("DFSHIM_BACKEND", "host");
	set("DFSHIM_HOST_DEVICES", "4");
	set("DFSHIM_TIMEOUT_MS", "%d", b->ms);
	set("DFSHIM_TIMEOUT_ACTION", "abort");
	set("DFSHIM_RELEASE", "%s", release_policy);
	set("DFSHIM_RULES", "%s", b->nccl ? "nccl" : "dfshim");
	set("DFSHIM_HOST_SLOTS", "%d", b->slots);
	set("DFSHIM_HOST_QUEUES", "%d", b->queues);
	/* Memory that a few short programs do not need takes as long to make as they run. */
	set("DFSHIM_TRACE_MB", "1");
	set("DFSHIM_SLOT_KB", "%d", SLOT_KB);
	set("LD_PRELOAD", "%s/libdfshim.so %s/libdfhost.so", build, build);
	set("CLIENT", "%s", client);
	/* Only hosts that wait for one another, with nothing in flight, are not broken off by a verdict. */
	snprintf(quiet, sizeof(quiet), "%.2f", b->silent_ms * 1e-3);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 1, b->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	posix_spawn_file_actions_adddup2(&files, 1, 2);
	err = posix_spawn(&b->pid, client, &files, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	if (err) {
		fprintf(stderr, "%s: %s\n", client, strerror(err));
		exit(1);
	}
}

static int word_at(const char *p, enum df_verdict *word)
{
	for (int v = DF_V_OK; v <= DF_V_UNKNOWN; v++) {
		const char *w = df_verdict_word((enum df_verdict)v);
		size_t len = strlen(w);

		if (strncmp(w, p, len) || (p[len] && p[len] != ':'))
			continue;
		*word = (enum df_verdict)v;
		return 1;
	}
	return 0;
}

/* The verdict's first line. Who is missing may only be late while the job lives: what it is otherwise counts. */
static void read_verdict(struct outcome *o, const char *line)
{
	const char *otherwise = strstr(line, "; it may only be slow, or else it is ");

	if (!strchr(line, ':') || !word_at(line, &o->word))
		return;
	snprintf(o->line, sizeof(o->line), "%s", line);
	if (o->word == DF_V_SLOW && otherwise)
		word_at(strrchr(otherwise, ' ') + 1, &o->word);
}

static void read_end(struct outcome *o, const char *text)
{
	o->ran = 1;
	o->done = !strncmp(text, "completes", 9);
	o->wrong = !strncmp(text, "wrong", 5) || !strncmp(text, "error", 5);
	o->silent = !strncmp(text, "stands", 6);
	/* An error of ours that no verdict explains is looked at by the caller. */
	snprintf(o->text, sizeof(o->text), "%s", text);
}

/* The process has ended. */
static void batch_end(struct batch *b, int status)
{
	struct outcome *o = NULL;
	int r, t, at, i;
	char line[800], *p;
	FILE *f = fopen(b->log, "r");

	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "=== ", 4)) {
			for (i = 0, o = NULL; i < b->nr; i++)
				if (!strcmp(b->s[i]->name, line + 4))
					o = b->out[i];
		} else if (o && !strncmp(line, "--- ", 4)) {
			p = strchr(line + 4, ' ');
			read_end(o, p ? p + 1 : "");
			o = NULL;
		} else if (o && sscanf(line, "@ %d %d %d", &r, &t, &at) == 3) {
			o->at_known = 1;
			if (r >= 0 && r < AT_RANKS && t >= 0 && t < AT_THREADS)
				o->at[r][t] = at;
		} else if (o && !*o->line) {
			read_verdict(o, line);
		}
	}
	if (f)
		fclose(f);
	for (i = 0; i < b->nr && b->out[i]->ran; i++)
		;
	if (i < b->nr) {
		o = b->out[i];
		o->last = 1;
		snprintf(o->text, sizeof(o->text), "the client ended with status %#x", status);
	}
	unlink(b->file);
	if (!getenv("KEEP"))
		unlink(b->log);
}

#endif
