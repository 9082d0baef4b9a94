/*
 * Evaluates the checker with 640 jobs of five kinds of training and 320 collectives that consist of
 * smaller ones (eval_jobs.c). Four fifths of the jobs have a random change. Each job is executed by
 * NCCL's rules on the CPU backend, with a trace. A job without progress for --quiet milliseconds is
 * ended and counts as hanging. Then the checker judges the trace alone.
 *
 * The right classes of a job follow from its program, not from its trace (eval_label.c). With
 * --truth one right class follows from further executions of each job that hangs (eval_label.c),
 * and is reported in addition.
 *
 *   eval [--every N] [--only SHAPE.NUMBER] [--seed N] [--jobs N] [--quiet MS] [--truth]
 *        [--markdown FILE] [--keep] [-v]
 *
 * Exits with status 1 if precision or recall is below 100 %, if fewer than 95 % of the classes are
 * right, if a job could not be judged, or (--truth) if a remedy is wrong.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "eval.h"
#include "tests/lib/test.h"
#include "trace/check.h"
#include "trace/judge/result.h"

#define NR_SHAPES   (EV_MODELS + EV_COLLECTIVES)
#define MAX_RUNNING 32

struct run {
	pid_t pid;
	int shape, number, ranks, nr_steps;
	enum ev_change change;
	uint64_t want; /* set of right verdicts */
	char dir[500], name[40];
	/* --truth, for a job that hangs: the number of the further execution, or 0. */
	int phase;
	enum df_verdict told;
	enum df_world remedy;
	int conditional; /* whether the remedy holds only under a condition that the report names */
	struct et_truth truth;
};

static struct tally {
	unsigned long total, tp, tn, fp, fn, class_right, live_right, truth_right;
} tallies[NR_SHAPES];

static struct {
	unsigned long hangs, right;
	unsigned long told[DF_V_UNKNOWN + 1];
} classes[DF_V_UNKNOWN + 1];

/* --truth: verdicts of the checker for each class that follows from executions. */
static struct {
	unsigned long hangs;
	unsigned long told[DF_V_UNKNOWN + 1];
} truths[DF_V_UNKNOWN + 1];

static struct {
	unsigned long total, hangs;
} changes[EV_NR];

static long quiet_ms = 1500;
static int verbose, keep, truth;
static unsigned long nr_broken, nr_model_differs, nr_operations, most_records, nr_judged;
static double check_seconds, slowest_check;
/* --truth: remedies of programs that lack no operation, and the wrong ones. */
static unsigned long nr_remedies, nr_remedies_wrong;

/* ---- execution ------------------------------------------------------------------------------- */

static void launch(struct run *x)
{
	static const struct drive circumstances[ET_NR] = {
		[ET_STAND] = {.by_nccl = 1, .slots = 4, .queues = 8, .release = "none"},
		[ET_ROOMY] = {.by_nccl = 1, .slots = 1024, .queues = 1024, .release = "none"},
		[ET_OURS] = {.slots = 4, .queues = 8, .release = "none"},
		[ET_RELEASED] = {.slots = 4, .queues = 8, .release = "device"},
	};
	struct drive d = circumstances[x->phase ? x->phase - 1 : ET_STAND];
	long patience = quiet_ms * df_test_slow();
	char file[540], log[540];

	snprintf(file, sizeof(file), "%s/script", x->dir);
	snprintf(log, sizeof(log), "%s/%s", x->dir, x->phase ? "truth" : "log");
	d.devices = EV_RANKS;
	d.timeout_ms = x->phase ? 600000 : patience;
	d.timeout = x->phase ? 2e-3 * (double)patience : 60;
	d.trace_mb = 4;
	if (!x->phase) {
		d.trace = x->dir;
		d.release = NULL;
	}
	d.script = file;
	d.log = log;
	x->pid = drive_start(&d);
}

static void start(struct run *x, uint64_t seed)
{
	char file[540];
	struct ev_job *j = calloc(1, sizeof(*j));
	FILE *f;

	ev_make(j, x->shape, x->number, seed);
	snprintf(x->name, sizeof(x->name), "%.39s", j->s.name);
	x->change = j->change;
	x->ranks = j->ranks;
	x->want = ec_class(&j->s);
	snprintf(x->dir, sizeof(x->dir), "%s/eval.%d.%s", scratch, (int)getpid(), x->name);
	mkdir(x->dir, 0700);
	snprintf(file, sizeof(file), "%s/script", x->dir);
	f = fopen(file, "w");
	if (!f) {
		perror(file);
		exit(2);
	}
	sc_print(&j->s, f);
	fclose(f);
	ev_free(j);
	free(j);
	launch(x);
}

static void remove_tree(const char *dir)
{
	pid_t pid = fork();

	if (!pid) {
		execlp("rm", "rm", "-rf", "--", dir, (char *)NULL);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

/* Returns the verdict with which a line begins, or DF_V_OK. */
static enum df_verdict word(const char *line)
{
	size_t n = strcspn(line, ":");

	for (int v = 1; v <= DF_V_UNKNOWN; v++) {
		const char *w = df_verdict_word((enum df_verdict)v);

		if (w && strlen(w) == n && !strncmp(line, w, n))
			return (enum df_verdict)v;
	}
	return DF_V_OK;
}

/* Reads the first verdict in the job's own log, or "". */
static void live_line(const struct run *x, char *line, size_t size)
{
	char path[540];
	FILE *f;

	snprintf(path, sizeof(path), "%s/log", x->dir);
	f = fopen(path, "r");
	*line = 0;
	while (f && fgets(line, (int)size, f) && word(line) == DF_V_OK)
		*line = 0;
	if (f)
		fclose(f);
}

/*
 * Lets the checker judge a job that has ended. Returns 1 if the job hangs and --truth is set, so
 * that it must be executed again.
 */
static int judge(struct run *x, int status)
{
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r = NULL;
	struct tally *t = &tallies[x->shape];
	char live[400];
	double begin = now();
	enum df_verdict v;
	int right, model_ok = x->want == ec_bit(DF_V_OK);
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1, hung = code == 3 || code == 4,
	    told, rc;

	if (!hung && code) {
		printf("%s: the client ended with status %#x: %s/log\n", x->name, status, x->dir);
		nr_broken++;
		keep = 1;
		return 0;
	}
	rc = df_check_add_dir(set, x->dir);
	if (!rc)
		rc = df_check_run(set, NULL, &r);
	if (rc) {
		printf("%s: no verdict: %s\n", x->name, df_check_error(set));
		nr_broken++;
		df_check_set_free(set);
		return 0;
	}
	begin = now() - begin;
	nr_judged++;
	check_seconds += begin;
	slowest_check = begin > slowest_check ? begin : slowest_check;
	nr_operations += set->nr_issued;
	most_records = set->nr_recs > most_records ? set->nr_recs : most_records;
	v = df_check_verdict(r);
	/* A mismatch of operations that completed is no deadlock. */
	told = v != DF_V_OK && v != DF_V_SLOW && strcmp(r->qualifier, "completed") != 0;
	right = (int)(x->want >> v & 1);
	live_line(x, live, sizeof(live));
	t->total++;
	t->tp += hung && told;
	t->tn += !hung && !told;
	t->fp += !hung && told;
	t->fn += hung && !told;
	changes[x->change].total++;
	changes[x->change].hangs += (unsigned long)hung;
	if (hung) {
		enum df_verdict want = DF_V_OK;

		while (!(x->want >> want & 1))
			want++;
		t->class_right += right;
		t->live_right += x->want >> word(live) & 1;
		classes[want].hangs++;
		classes[want].right += right;
		classes[want].told[v]++;
	}
	nr_model_differs += (unsigned long)(hung == model_ok);
	if (verbose || hung != told || (hung && !right)) {
		printf("%-18s %d ranks, %s: %s, by the model", x->name, x->ranks,
		       ev_changes[x->change], hung ? "hangs" : "completes");
		for (int w = 0; w <= DF_V_UNKNOWN; w++)
			if (x->want >> w & 1)
				printf(" %s", df_verdict_word((enum df_verdict)w));
		printf("; %s\n", df_check_line(r));
	}
	x->told = v;
	x->remedy = r->remedy;
	x->conditional = r->if_buffered || r->to_come != DF_NONE;
	df_check_result_free(r);
	df_check_set_free(set);
	if (hung && truth)
		return 1;
	if (!keep)
		remove_tree(x->dir);
	return 0;
}

/*
 * Compares the remedy with the results of dfshim's executions. Only for programs whose ranks all
 * have the same operations, and only if all operations of the cycle have been issued: an operation
 * that is not issued yet may wait for others first.
 */
static void judge_remedy(const struct run *x)
{
	const int *completes = x->truth.completes;
	int by_ours = x->remedy == DF_W_P || x->remedy == DF_W_SI, released = x->remedy == DF_W_SE;

	if ((x->change != EV_SWAP && x->change != EV_SWAP_SYNC && x->change != EV_UNGROUP) ||
	    x->conditional)
		return;
	nr_remedies++;
	if (released ? completes[ET_RELEASED] : completes[ET_OURS] == by_ours)
		return;
	nr_remedies_wrong++;
	printf("%-18s remedy: %s; the job %s by our rules, and %s if its waits are released\n",
	       x->name,
	       by_ours	  ? "preventable"
	       : released ? "a release"
			  : "not preventable",
	       completes[ET_OURS] ? "completes" : "hangs",
	       completes[ET_RELEASED] ? "completes" : "hangs");
}

/* Evaluates a further execution of a job that hangs. Returns 1 if another one must follow. */
static int judge_truth(struct run *x, int status)
{
	char file[540];
	enum df_verdict v;
	struct script s;
	FILE *f;

	x->truth.completes[x->phase - 1] = WIFEXITED(status) && !WEXITSTATUS(status);
	if (x->phase - 1 == ET_STAND) {
		snprintf(file, sizeof(file), "%s/truth", x->dir);
		et_read(&x->truth, file);
		if (!x->truth.known) {
			printf("%s: does not hang again: %s\n", x->name, file);
			nr_broken++;
			keep = 1;
			return 0;
		}
	}
	snprintf(file, sizeof(file), "%s/script", x->dir);
	f = fopen(file, "r");
	if (!f || sc_read(f, &s) != 1) {
		fprintf(stderr, "%s: can't be read again\n", file);
		exit(2);
	}
	fclose(f);
	if (x->phase < ET_NR && !et_is_decided(&s, &x->truth)) {
		sc_free(&s);
		return 1;
	}
	if (x->phase == ET_NR)
		judge_remedy(x);
	v = et_label(&s, &x->truth);
	sc_free(&s);
	truths[v].hangs++;
	truths[v].told[x->told]++;
	tallies[x->shape].truth_right += v == x->told;
	if (verbose || v != x->told)
		printf("%-18s reported as %s, by executions %s (%s%s%s)\n", x->name,
		       df_verdict_word(x->told), df_verdict_word(v),
		       x->truth.completes[ET_ROOMY] ? " with room" : "",
		       x->truth.completes[ET_OURS] ? " by our rules" : "",
		       x->truth.completes[ET_RELEASED] ? " released" : "");
	if (!keep)
		remove_tree(x->dir);
	return 0;
}

/* ---- the result ------------------------------------------------------------------------------ */

static void percent(FILE *f, unsigned long a, unsigned long b)
{
	if (b)
		fprintf(f, " %.1f %% |", 100.0 * (double)a / (double)b);
	else
		fprintf(f, " - |");
}

static void table(FILE *f, int from, int nr)
{
	static const struct {
		const char *name;
		size_t at;
	} rows[] = {{"jobs", offsetof(struct tally, total)},
		    {"hang, and are reported as hanging", offsetof(struct tally, tp)},
		    {"complete, and are reported as complete", offsetof(struct tally, tn)},
		    {"complete, reported as hanging", offsetof(struct tally, fp)},
		    {"hang, reported as complete", offsetof(struct tally, fn)},
		    {"class right", offsetof(struct tally, class_right)},
		    {"class right in the job's log", offsetof(struct tally, live_right)}};

	fprintf(f, "|  |");
	for (int k = from; k < from + nr; k++)
		fprintf(f, " %s |", ev_shapes[k]);
	fprintf(f, " all |\n|---|");
	for (int k = 0; k <= nr; k++)
		fprintf(f, "---|");
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		unsigned long sum = 0;

		fprintf(f, "\n| %s |", rows[i].name);
		for (int k = from; k < from + nr; k++) {
			unsigned long v;

			memcpy(&v, (const char *)&tallies[k] + rows[i].at, sizeof(v));
			sum += v;
			fprintf(f, " %lu |", v);
		}
		fprintf(f, " %lu |", sum);
	}
	for (int what = 0; what < 3 + truth; what++) {
		static const char *const names[] = {"precision", "recall", "class right",
						    "class right, by executions"};
		unsigned long a = 0, b = 0;

		fprintf(f, "\n| %s |", names[what]);
		for (int k = from; k < from + nr; k++) {
			const struct tally *t = &tallies[k];
			unsigned long part = what == 2	 ? t->class_right
					     : what == 3 ? t->truth_right
							 : t->tp,
				      of = what ? t->tp + t->fn : t->tp + t->fp;

			percent(f, part, of);
			a += part;
			b += of;
		}
		percent(f, a, b);
	}
	fprintf(f, "\n\n");
}

static void told_as(FILE *f, const unsigned long *told)
{
	for (int k = 0; k <= DF_V_UNKNOWN; k++)
		if (told[k])
			fprintf(f, " %s %lu", df_verdict_word((enum df_verdict)k), told[k]);
	fprintf(f, " |\n");
}

static void result(FILE *f)
{
	fprintf(f, "Jobs of training:\n\n");
	table(f, 0, EV_MODELS);
	fprintf(f, "Collectives that are put together from smaller ones:\n\n");
	table(f, EV_MODELS, EV_COLLECTIVES);
	fprintf(f, "The changes in them, and the verdicts:\n\n"
		   "| change | jobs | hang |\n|---|---|---|\n");
	for (int c = 0; c < EV_NR; c++)
		fprintf(f, "| %s | %lu | %lu |\n", ev_changes[c], changes[c].total,
			changes[c].hangs);
	fprintf(f, "\n| class, the first if more are right | hang | class right | reported as |\n"
		   "|---|---|---|---|\n");
	for (int v = 0; v <= DF_V_UNKNOWN; v++) {
		if (!classes[v].hangs)
			continue;
		fprintf(f, "| %s | %lu | %lu |", df_verdict_word((enum df_verdict)v),
			classes[v].hangs, classes[v].right);
		told_as(f, classes[v].told);
	}
	if (truth)
		fprintf(f, "\n| class by executions | hang | reported as |\n|---|---|---|\n");
	for (int v = 0; v <= DF_V_UNKNOWN && truth; v++) {
		if (!truths[v].hangs)
			continue;
		fprintf(f, "| %s | %lu |", df_verdict_word((enum df_verdict)v), truths[v].hangs);
		told_as(f, truths[v].told);
	}
	if (truth)
		fprintf(f,
			"\nAmong %lu jobs whose ranks all have the same operations, and have "
			"issued those of the cycle, %lu do not end as the remedy says.\n",
			nr_remedies, nr_remedies_wrong);
	fprintf(f,
		"\nThe model expected another end in %lu jobs. %lu operations in all; the judge "
		"took %.1f ms a job, %.1f ms at most (%lu records at most).\n",
		nr_model_differs, nr_operations, 1e3 * check_seconds / (double)nr_judged,
		1e3 * slowest_check, most_records);
}

static int wait_for_one(struct run *runs, int nr)
{
	int status, i;
	pid_t pid = waitpid(-1, &status, 0);

	for (i = 0; i < nr && runs[i].pid != pid; i++)
		;
	if (i == nr)
		return nr;
	if (runs[i].phase ? judge_truth(&runs[i], status) : judge(&runs[i], status)) {
		runs[i].phase++;
		launch(&runs[i]);
		return nr;
	}
	runs[i] = runs[nr - 1];
	return nr - 1;
}

int main(int argc, char **argv)
{
	const char *only = NULL, *markdown = NULL;
	int every = 1, jobs = 10, nr = 0, number, per;
	static struct run runs[MAX_RUNNING];
	uint64_t seed = 1;
	struct tally all = {0};
	double begin = now();
	FILE *f;

	for (int i = 1; i < argc; i++) {
		if (i + 1 < argc && !strcmp(argv[i], "--every"))
			every = atoi(argv[++i]);
		else if (i + 1 < argc && !strcmp(argv[i], "--only"))
			only = argv[++i];
		else if (i + 1 < argc && !strcmp(argv[i], "--seed"))
			seed = strtoull(argv[++i], NULL, 0);
		else if (i + 1 < argc && !strcmp(argv[i], "--jobs"))
			jobs = atoi(argv[++i]);
		else if (i + 1 < argc && !strcmp(argv[i], "--quiet"))
			quiet_ms = atol(argv[++i]);
		else if (i + 1 < argc && !strcmp(argv[i], "--markdown"))
			markdown = argv[++i];
		else if (!strcmp(argv[i], "--truth"))
			truth = 1;
		else if (!strcmp(argv[i], "--keep"))
			keep = 1;
		else if (!strcmp(argv[i], "-v"))
			verbose = 1;
		else {
			fprintf(stderr, "usage: eval [--every N] [--only SHAPE.NUMBER] [--seed N] "
					"[--jobs N] [--quiet MS]\n"
					"            [--truth] [--markdown FILE] [--keep] [-v]\n");
			return 2;
		}
	}
	if (every < 1 || jobs < 1 || jobs > MAX_RUNNING || quiet_ms < 1) {
		fprintf(stderr, "eval: a number that can't be used\n");
		return 2;
	}
	drive_init();
	printf("SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	for (int shape = 0, at = 0; shape < NR_SHAPES; shape++) {
		per = shape < EV_MODELS ? 128 : 64;
		for (number = 0; number < per; number++, at++) {
			struct run *x;
			char name[40];

			snprintf(name, sizeof(name), "%s.%d", ev_shapes[shape], number);
			if (only ? strcmp(only, name) : at % every != 0)
				continue;
			while (nr >= jobs)
				nr = wait_for_one(runs, nr);
			x = &runs[nr++];
			memset(x, 0, sizeof(*x));
			x->shape = shape;
			x->number = number;
			start(x, seed);
		}
	}
	while (nr)
		nr = wait_for_one(runs, nr);
	f = markdown ? fopen(markdown, "w") : stdout;
	if (!f) {
		perror(markdown);
		return 2;
	}
	result(f);
	if (markdown && fclose(f)) {
		perror(markdown);
		return 2;
	}
	for (int k = 0; k < NR_SHAPES; k++) {
		all.total += tallies[k].total;
		all.tp += tallies[k].tp;
		all.fp += tallies[k].fp;
		all.fn += tallies[k].fn;
		all.class_right += tallies[k].class_right;
	}
	printf("%lu jobs in %.0f s: %lu hang; %lu reported as hanging that complete, %lu reported "
	       "as complete that hang, class right %lu; %lu could not be judged\n",
	       all.total, now() - begin, all.tp + all.fn, all.fp, all.fn, all.class_right,
	       nr_broken);
	return all.fp || all.fn || nr_broken || nr_remedies_wrong || !all.total ||
	       100 * all.class_right < 95 * (all.tp + all.fn);
}
