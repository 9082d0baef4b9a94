/*
 * Executes batches of programs and reads their results. A batch is a process of the plain client
 * (script.c) with dfshim preloaded. Programs that should complete have a long time-out and programs
 * that should hang a short one, so they never share a process.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "random.h"

const char *release_policy = "safe";

void batch_start(struct batch *b)
{
	static int number;
	FILE *f;
	int i;

	snprintf(b->file, sizeof(b->file), "%s/batch.%d.%d", scratch, (int)getpid(), number++);
	snprintf(b->log, sizeof(b->log), "%s.log", b->file);
	f = fopen(b->file, "w");
	if (!f) {
		perror(b->file);
		exit(1);
	}
	for (i = 0; i < b->nr; i++)
		sc_print(b->s[i], f);
	fclose(f);
	/*
	 * No verdict ends a program whose threads wait for one another with nothing in flight, so
	 * the client ends it (--still).
	 */
	b->pid = drive_start(&(struct drive){.by_nccl = b->nccl,
					     .devices = AT_RANKS,
					     .slots = b->slots,
					     .queues = b->queues,
					     .timeout_ms = b->ms,
					     .trace_mb = 1,
					     .release = release_policy,
					     .timeout = 60,
					     .still = b->silent_ms * 1e-3,
					     .script = b->file,
					     .log = b->log});
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

/*
 * Reads the verdict's first line. While the job lives, a missing rank may only be late (SLOW). The
 * word after "otherwise" counts then.
 */
static void read_verdict(struct outcome *o, const char *line)
{
	const char *otherwise = strstr(line, "; the rank may only be slow, otherwise this is ");

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
	/* The caller decides about errors that no verdict explains. */
	snprintf(o->text, sizeof(o->text), "%s", text);
}

void batch_end(struct batch *b, int status)
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
		} else if (o && !strncmp(line, "Remedy: ", 8)) {
			snprintf(o->remedy, sizeof(o->remedy), "%.390s", line + 8);
		} else if (o && strstr(line, " independent causes were found")) {
			*o->remedy = 0;
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
