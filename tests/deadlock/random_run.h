/*
 * Batches of programs, executed by the plain client (script.c) under the preload in a process of its own, and what
 * came of each.
 */
#ifndef DEADLOCK_RANDOM_RUN_H
#define DEADLOCK_RANDOM_RUN_H

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "make.h"
#include "tests/lib/test.h"

#define FINISH_MS 60000
#define HANG_MS	  300 /* without progress, times df_test_slow() */

#define NR_BATCH 40

struct outcome {
	int ran, done, wrong, silent;
	char word[16], text[300], line[304]; /* the verdict's first line */
};

static char build[400], scratch[400];
static const char *release_policy = "safe";

static const char *const verdicts[] = {
	"OK",	"SLOW",	 "ORDER",     "RESOURCE",  "SYNC",	    "DATA", "MISSING", "MISMATCH",
	"INIT", "CRASH", "GPU_STUCK", "NET_STALL", "NCCL_INTERNAL", "HOST", "UNKNOWN"};

struct batch {
	struct script *s[NR_BATCH];
	struct outcome *out[NR_BATCH];
	int nr, nccl, slots, queues, ms;
	pid_t pid;
	char file[500], log[520];
};

/* Starts the client on a batch of programs. */
static void batch_start(struct batch *b, int number)
{
	char quiet[16];
	FILE *f;
	int i, fd;

	snprintf(b->file, sizeof(b->file), "%s/batch.%d.%d", scratch, (int)getpid(), number);
	snprintf(b->log, sizeof(b->log), "%s.log", b->file);
	f = fopen(b->file, "w");
	if (!f) {
		perror(b->file);
		exit(1);
	}
	for (i = 0; i < b->nr; i++)
		print_script(b->s[i], f);
	fclose(f);
	b->pid = fork();
	if (b->pid)
		return;
	fd = open(b->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	dup2(fd, 1);
	dup2(fd, 2);
	unsetenv("DFSHIM_TRACE");
	set("DFSHIM_BACKEND", "host");
	set("DFSHIM_HOST_DEVICES", "4");
	set("DFSHIM_TIMEOUT_MS", "%d", b->ms);
	set("DFSHIM_TIMEOUT_ACTION", "abort");
	set("DFSHIM_RELEASE", "%s", release_policy);
	set("DFSHIM_RULES", "%s", b->nccl ? "nccl" : "dfshim");
	set("DFSHIM_HOST_SLOTS", "%d", b->slots);
	set("DFSHIM_HOST_QUEUES", "%d", b->queues);
	set("LD_PRELOAD", "%s/libdfshim.so %s/libdfhost.so", build, build);
	set("CLIENT", "%s/tests/deadlock/script", build);
	/* Only hosts that wait for one another are not broken off by a verdict. */
	for (i = 0; i < b->nr && !b->s[i]->flag.nr; i++)
		;
	snprintf(quiet, sizeof(quiet), "%d",
		 b->ms == FINISH_MS || i == b->nr ? 60 : 5 * df_test_slow());
	execl(getenv("CLIENT"), "script", "--timeout", quiet, b->file, NULL);
	_exit(127);
}

static void batch_end(struct batch *b)
{
	char line[300], *p;
	struct outcome *o = NULL;
	int status, i;
	size_t k;
	FILE *f;

	waitpid(b->pid, &status, 0);
	f = fopen(b->log, "r");
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "=== ", 4)) {
			for (i = 0, o = NULL; i < b->nr; i++)
				if (!strcmp(b->s[i]->name, line + 4))
					o = b->out[i];
			continue;
		}
		if (!o)
			continue;
		if (!strncmp(line, "--- ", 4)) {
			o->ran = 1;
			p = strchr(line + 4, ' ');
			o->done = p && !strncmp(p, " completes", 10);
			o->wrong = p && (!strncmp(p, " wrong", 6) || !strncmp(p, " error", 6));
			/* An error of ours that no verdict explains is looked at by the caller. */
			snprintf(o->text, sizeof(o->text), "%s", p ? p + 1 : "");
			o = NULL;
			continue;
		}
		p = strchr(line, ':');
		if (!p || *o->word)
			continue;
		for (k = 0; k < sizeof(verdicts) / sizeof(*verdicts); k++)
			if (!strncmp(line, verdicts[k], (size_t)(p - line)) &&
			    strlen(verdicts[k]) == (size_t)(p - line))
				snprintf(o->word, sizeof(o->word), "%s", verdicts[k]),
					snprintf(o->line, sizeof(o->line), "%s", line);
	}
	if (f)
		fclose(f);
	for (i = 0; i < b->nr; i++)
		if (!b->out[i]->ran && b->nr == 1 && WIFEXITED(status) &&
		    WEXITSTATUS(status) == 4) {
			/* Hosts that wait for one another, and nothing in flight that could be told about. */
			b->out[i]->ran = b->out[i]->silent = 1;
			snprintf(b->out[i]->text, sizeof(b->out[i]->text), "no progress");
		} else if (!b->out[i]->ran && (!i || b->out[i - 1]->ran))
			snprintf(b->out[i]->text, sizeof(b->out[i]->text),
				 "the client ended with status %#x", status);
	unlink(b->file);
	if (!getenv("KEEP"))
		unlink(b->log);
}

#endif
