/*
 * `dfshim predict`: finds deadlocks that other executions of the recorded program can reach. The
 * recorded order of calls of each thread becomes a program of the model. The model executes it by
 * NCCL's rules or on lanes (runtime/exec/nccl): with unbuffered messages, with the given slots and
 * queues, and in many interleavings of a rank's threads.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/cli/cmd_predict_budget.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/common/input.h"
#include "trace/cli/cmd_predict_program.h"
#include "trace/record/names.h"
#include "trace/read/load.h"
#include "trace/say/json.h"
#include "runtime/base/vec.h"
#include "trace/cli/cmd.h"

#define WINDOW 64 /* number of operations */

/* ---- findings ---------------------------------------------------------------------------- */

/* One search: the program, the options, and the findings. */
struct search {
	struct df_predict_program w;
	struct df_predict_opts opts;
	struct df_predict_finding f;
	struct df_budget budget; /* only for opts.mode LANES */
	/* only for opts.mode LANES: whether operations run in an agreed order */
	int agree;
};

static int is_device_wait(enum df_mop_kind kind)
{
	return kind == DF_MOP_SSYNC || kind == DF_MOP_ESYNC || kind == DF_MOP_DSYNC ||
	       kind == DF_MOP_ISYNC;
}

#define ASSUMED_SAID 8 /* ranks that an assumption names */

/*
 * Returns the assumption of a finding that needs another order of threads than the recorded one.
 * The records allow the order, but a lock could exclude it. Returns NULL if the records alone show
 * the deadlock. The caller frees the text.
 */
static char *assumption(const struct search *x)
{
	const struct df_mprog *prog = &x->w.prog;
	char *text = NULL;
	size_t len = 0;
	int nr = 0;
	FILE *out;

	for (int r = 0; r < prog->nr_ranks; r++)
		nr += prog->nr_threads[r] > 1;
	out = x->f.schedule && nr ? open_memstream(&text, &len) : NULL;
	if (!out)
		return NULL;
	fputs("this order of the threads of ", out);
	for (int r = 0, said = 0; r < prog->nr_ranks && said < ASSUMED_SAID; r++)
		if (prog->nr_threads[r] > 1)
			fprintf(out, "%s%s", said++ ? ", " : "", x->w.steps->ranks[r].name);
	if (nr > ASSUMED_SAID)
		fprintf(out, " and %d more ranks", nr - ASSUMED_SAID);
	fputs(" was not recorded; locks and queues between threads are not recorded either, and "
	      "where one orders these calls this cannot happen",
	      out);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

static const char *step_name(enum df_mop_kind kind)
{
	static const char *const names[] = {
		"kernel",  "stuck kernel", "legacy work", "collective",	 "message",	  "record",
		"wait",	   "stream sync",  "event sync",  "device sync", "implicit sync", "barrier",
		"connect", "init",	   "host wait",	  "host signal", "exit",	  "spin"};

	return names[kind];
}

/* Prints an operation, such as "AllReduce of 17 on 0x94c7" or "Send to r1". */
static void print_operation(FILE *out, const struct df_program_steps *p, const struct df_mop *m)
{
	if (m->kind == DF_MOP_COLL)
		fprintf(out, "%s of %" PRIu64 " on communicator 0x%" PRIx64,
			df_kind_name((uint8_t)m->sig), m->sig >> 8, p->comms[m->comm].hash);
	else
		for (int k = 0; k < m->nr_p2p; k++)
			fprintf(out, "%s%s %s", k ? ", " : "",
				m->p2p[k].send ? "Send to" : "Recv from",
				p->ranks[m->p2p[k].peer].name);
}

/*
 * Prints the innermost `max` frames of a step's call site, after `before`; nothing if they are
 * unknown.
 */
static void print_place(FILE *out, const char *before, const struct df_predict_program *w, int r,
			int t, size_t op, int max)
{
	const char *at = df_steps_stack(w->steps, r, df_predict_program_step(w, r, t, op)),
		   *end = at;

	for (int i = 0; i < max && *end; i++) {
		const char *next = strstr(i ? end + strlen(DF_STACK_SEP) : end, DF_STACK_SEP);

		end = next ? next : end + strlen(end);
	}
	if (*at)
		fprintf(out, "%s%.*s", before, (int)(end - at), at);
}

/* An operation that is unfinished when nothing can proceed any more. */
struct stand {
	int thread, started;
	size_t op;
	struct df_ranks here;
};

/* By rank: its unfinished operations, the running ones first. */
struct stands {
	struct stand *list[DF_MODEL_RANKS];
	size_t nr[DF_MODEL_RANKS], cap[DF_MODEL_RANKS];
};

static void add_stand(void *arg, int rank, int thread, size_t op, int started,
		      const struct df_ranks *here)
{
	struct stands *s = arg;
	struct stand *slot = DF_VEC_PUSH(s->list[rank], s->nr[rank], s->cap[rank]);
	size_t at = s->nr[rank];

	if (!slot)
		return;
	while (started && --at > 0 && !s->list[rank][at - 1].started)
		s->list[rank][at] = s->list[rank][at - 1];
	s->list[rank][started ? at : s->nr[rank] - 1] =
		(struct stand){.thread = thread, .started = started, .op = op};
	if (here)
		s->list[rank][started ? at : s->nr[rank] - 1].here = *here;
}

static int find_stands(struct search *x, struct stands *s)
{
	memset(s, 0, sizeof(*s));
	return df_predict_again(&x->w.prog, &x->w.order, &x->opts, &x->f, NULL, add_stand, s);
}

static void stands_fini(struct stands *s)
{
	for (int r = 0; r < DF_MODEL_RANKS; r++)
		free(s->list[r]);
}

/* Maximum numbers of ranks, threads and operations that are printed. */
#define RANKS_SAID   6
#define THREADS_SAID 3
#define OPS_SAID     2
#define FRAMES_SAID  3

static void print_missing(FILE *out, const struct df_predict_program *w, const struct df_mop *m,
			  const struct stand *s)
{
	int said = 0;

	for (int r = 0; m->kind == DF_MOP_COLL && s->started && r < w->prog.nr_ranks; r++)
		if (df_ranks_has(&w->prog.comms[m->comm], r) && !df_ranks_has(&s->here, r) &&
		    said++ < 4)
			fprintf(out, "%s%s", said > 1 ? ", " : "; it waits for ",
				w->steps->ranks[r].name);
	if (said > 4)
		fprintf(out, " and %d more", said - 4);
	if (!s->started)
		fputs("; not started", out);
}

/*
 * Prints a rank's state: the calls in which its threads wait, and its device's unfinished
 * operations.
 */
static void print_rank(FILE *out, const struct search *x, const struct stands *stands, int r)
{
	const struct df_predict_program *w = &x->w;
	const struct df_rank_of *rank = &w->steps->ranks[r];
	int waits = 0;

	for (int t = 0; t < w->prog.nr_threads[r]; t++) {
		const struct df_mthread *th = &w->prog.threads[r][t];
		size_t pc = x->f.res.pc[r][t];

		if (pc == th->nr_ops || th->ops[pc].kind == DF_MOP_HWAIT || waits++ >= THREADS_SAID)
			continue;
		fprintf(out, "%s thread %u waits in %s", rank->name, rank->tid[t],
			step_name(th->ops[pc].kind));
		print_place(out, ", called at ", w, r, t, pc, FRAMES_SAID);
		fputc('\n', out);
	}
	for (size_t i = 0; i < stands->nr[r] && i < OPS_SAID; i++) {
		const struct stand *s = &stands->list[r][i];
		const struct df_mop *m = &w->prog.threads[r][s->thread].ops[s->op];

		fprintf(out, "%s %s", rank->name, s->started ? "runs " : "has issued ");
		print_operation(out, w->steps, m);
		print_place(out, ", called at ", w, r, s->thread, s->op, FRAMES_SAID);
		print_missing(out, w, m, s);
		fputc('\n', out);
	}
	if (stands->nr[r] > OPS_SAID)
		fprintf(out, "%s: %zu more unfinished operations\n", rank->name,
			stands->nr[r] - OPS_SAID);
}

static void print_finding(FILE *out, struct search *x)
{
	char *assumed = assumption(x);
	int nr = 0, left = 0;
	struct stands s;

	fprintf(out, "POTENTIAL DEADLOCK: %s\n", x->f.what);
	if (assumed)
		fprintf(out, "Assumed: %s.\n", assumed);
	free(assumed);
	fputs("\nNothing moves any more where:\n", out);
	find_stands(x, &s);
	for (int r = 0; r < x->w.prog.nr_ranks; r++) {
		int stuck = s.nr[r] > 0;

		for (int t = 0; t < x->w.prog.nr_threads[r]; t++)
			stuck |= x->f.res.pc[r][t] < x->w.prog.threads[r][t].nr_ops;
		if (stuck && nr++ < RANKS_SAID)
			print_rank(out, x, &s, r);
		else
			left += stuck;
	}
	stands_fini(&s);
	if (left)
		fprintf(out, "and %d more ranks\n", left);
}

/* ---- the witness ------------------------------------------------------------------------- */

/*
 * Number of steps of a thread that the witness shows, before and after the step at which the thread
 * waits.
 */
#define STEPS_BEFORE 40
#define STEPS_BEHIND 8

/* Prints the last steps of each thread, and where it is. */
static void print_witness(FILE *out, const struct search *x)
{
	const struct df_mprog *prog = &x->w.prog;
	const struct df_program_steps *p = x->w.steps;
	char *assumed = assumption(x);

	fprintf(out, "# %s (window %zu, schedule %" PRIu64 ")\n", x->f.what, x->f.window,
		x->f.schedule);
	if (assumed)
		fprintf(out, "# Assumed: %s.\n", assumed);
	free(assumed);
	for (int r = 0; r < prog->nr_ranks; r++) {
		for (int t = 0; t < prog->nr_threads[r]; t++) {
			const struct df_mthread *th = &prog->threads[r][t];
			size_t pc = x->f.res.pc[r][t],
			       i = pc > STEPS_BEFORE ? pc - STEPS_BEFORE : 0;

			fprintf(out, "%s thread %u%s\n", p->ranks[r].name, p->ranks[r].tid[t],
				pc < th->nr_ops ? " (blocked at >)" : " (issued everything)");
			if (i)
				fprintf(out, "    %zu steps before\n", i);
			for (; i < th->nr_ops && i < pc + STEPS_BEHIND; i++) {
				const struct df_mop *m = &th->ops[i];

				fprintf(out, "  %c ", i == pc ? '>' : ' ');
				if (m->kind == DF_MOP_COLL || m->kind == DF_MOP_P2P)
					print_operation(out, p, m);
				else
					fputs(step_name(m->kind), out);
				fprintf(out, " stream %d", m->stream);
				if (!df_predict_takes_turn(m->kind)) {
					fputc('\n', out);
					continue;
				}
				print_place(out, " at ", &x->w, r, t, i, 1);
				fputc('\n', out);
			}
		}
	}
}

struct told_order {
	FILE *out;
	const struct df_predict_program *w;
};

static void print_step(void *arg, enum df_model_event ev, int rank, int thread, size_t op,
		       const struct df_mop *mop, int task)
{
	struct told_order *o = arg;

	(void)task;
	if ((ev == DF_ME_ISSUE || (ev == DF_ME_ENTER && is_device_wait(mop->kind))) &&
	    o->w->prog.nr_threads[rank] > 1)
		fprintf(o->out, "@ %d %" PRIu64 "\n", rank,
			df_predict_program_step(o->w, rank, thread, op)->rec);
}

/*
 * Writes the input of `dfshim replay --witness`: slots, queues, whether messages are unbuffered,
 * and for ranks with several threads the order of their steps, each as rank and record. Returns an
 * exit status.
 */
static int write_witness(const char *path, struct search *x)
{
	FILE *out = df_cli_create("predict", path);
	struct told_order o = {out, &x->w};
	int rc;

	if (!out)
		return 1;
	print_witness(out, x);
	fprintf(out, "@slots %d\n@queues %d\n@unbuffered %d\n", x->f.slots, x->f.one_queue,
		x->f.unbuffered);
	rc = df_predict_again(&x->w.prog, &x->w.order, &x->opts, &x->f, print_step, NULL, &o);
	return df_cli_close("predict", path, out, rc);
}

/* ---- the command ------------------------------------------------------------------------- */

static json_t *stands_json(struct search *x)
{
	json_t *all = json_array();
	struct stands s;

	find_stands(x, &s);
	for (int r = 0; r < x->w.prog.nr_ranks; r++) {
		for (size_t i = 0; i < s.nr[r]; i++) {
			const struct stand *at = &s.list[r][i];
			const struct df_step_of *step =
				df_predict_program_step(&x->w, r, at->thread, at->op);
			char *text = NULL;
			size_t len;
			FILE *out = open_memstream(&text, &len);

			if (!out)
				continue;
			print_operation(out, x->w.steps,
					&x->w.prog.threads[r][at->thread].ops[at->op]);
			fclose(out);
			json_array_append_new(
				all,
				json_pack("{s:o, s:o, s:b, s:o, s:o}", "rank",
					  df_json_text(x->w.steps->ranks[r].name), "operation",
					  df_json_text(text), "started", at->started, "record",
					  df_json_u64(step->rec), "stack",
					  df_json_frames(df_steps_stack(x->w.steps, r, step))));
			free(text);
		}
	}
	stands_fini(&s);
	return all;
}

static void progress(size_t windows)
{
	df_cli_progress("searching", windows, 0);
}

static int run(struct df_program_steps *p, struct search *x, const char *witness, int json)
{
	int lanes = x->opts.mode == DF_MODEL_LANES;
	int found, rc = df_predict_program_make(&x->w, p);
	char *assumed;

	if (rc)
		return df_cli_input_error("predict", "the program", "%s", strerror(-rc));
	x->w.prog.agreed = lanes && x->agree;
	x->w.prog.in_order = !x->w.prog.agreed;
	if (lanes && df_predict_budget(&x->w, &x->budget))
		rc = df_cli_input_error("predict", "the program", "out of memory");
	found = x->w.nr_ops && !rc ? df_predict_search(&x->w.prog, &x->w.order, &x->opts, &x->f)
				   : 0;
	df_cli_progress("searching", 1, 1);
	if (found < 0)
		rc = df_cli_input_error("predict", "the program", "%s", strerror(-found));
	if (found > 0 && witness)
		rc = write_witness(witness, x);
	assumed = found > 0 && json ? assumption(x) : NULL;
	if (!rc && json) {
		rc = df_json_line(
			json_pack("{s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "found", found,
				  "what", df_json_text(found ? x->f.what : ""), "assumed",
				  df_json_text(assumed), "window", df_json_u64(x->f.window),
				  "schedule", df_json_u64(found ? x->f.schedule : 0), "windows",
				  df_json_u64(x->f.nr_windows), "concurrent_collectives",
				  df_json_u64(x->f.need_slots), "unfinished",
				  found ? stands_json(x) : json_array(), "budget",
				  lanes ? df_predict_budget_json(&x->w, &x->budget) : json_null()),
			stdout);
	} else if (!rc && found) {
		print_finding(stdout, x);
	} else if (!rc) {
		printf("no potential deadlock found in %zu windows\n", x->f.nr_windows);
		if (x->f.need_slots > 1 && !lanes)
			printf("legal, but up to %zu collectives of one rank run at once: with "
			       "fewer slots it may deadlock (try --slots)\n",
			       x->f.need_slots);
	}
	if (!rc && lanes && !json)
		df_predict_budget_print(stdout, &x->w, &x->budget);
	if (lanes)
		df_predict_budget_fini(&x->budget);
	free(assumed);
	df_predict_program_fini(&x->w);
	return rc ? 1 : found ? 14 : 0;
}

/* Reports that the recorded run did not finish, so that "none found" is not taken for "fine". */
static void say_recorded(int argc, char **argv)
{
	struct df_check_opts opts = {.alive = df_check_alive};
	struct df_check_result *r = df_cli_judge("predict", argc, argv, &opts);

	if (r && df_verdict_exit(df_check_verdict(r)))
		fprintf(stderr, "the recorded run itself did not finish (dfshim check): %s\n",
			df_check_line(r));
	df_check_result_free(r);
}

int df_cmd_predict(int argc, char **argv)
{
	int64_t slots = -1, queues = -1, tries = 100, window = WINDOW;
	struct search x = {0};
	struct df_program_steps *p;
	const char *witness = NULL, *executor = NULL;
	int64_t ctas = 16, sms = -1;
	char **paths;
	size_t nr;
	int json = 0, rc = 0, agree = 0;
	const struct df_opt options[] = {
		DF_WORD("executor", "nccl", executor,
			"nccl: by the rules of DFSHIM_EXECUTOR=nccl, and whether CTAs and queues "
			"suffice"),
		DF_INDEX("order", "issue|agree", agree,
			 "with --executor nccl: DFSHIM_NCCL_ORDER (issue)"),
		DF_NUMBER("ctas", "N", ctas, 1, 64,
			  "with --executor nccl: CTAs of a communicator (16)"),
		DF_NUMBER("sms", "N", sms, 1, 1e6,
			  "with --executor nccl: multiprocessors of a device (as recorded)"),
		DF_NUMBER("slots", "N", slots, 0, 1e6,
			  "resident collectives a device (as recorded, else unlimited)"),
		DF_NUMBER("queues", "N", queues, 0, 1e6,
			  "1: all streams share one hardware queue "
			  "(CUDA_DEVICE_MAX_CONNECTIONS=1); with --executor nccl: queues of a "
			  "device (32; 0: none are shared, as on CPU threads)"),
		DF_NUMBER("tries", "N", tries, 0, 1e6, "interleavings of threads to try (100)"),
		DF_NUMBER("window", "N", window, 0, 1e6,
			  "operations of a rank whose order is changed together (64)"),
		DF_OPT(WITNESS, witness,
		       "write the program and the schedule that deadlock to FILE"),
		DF_OPT(JSON, json, NULL),
	};

	DF_CLI_PARSE("predict", &argc, &argv, DF_CLI_TRACES,
		     .doc = "Executes the recorded program in a model of NCCL's rules and looks "
			    "for deadlocks that did not happen in the recorded run: because dfshim "
			    "prevented them, messages were buffered, there were enough slots, or "
			    "the threads ran in an order without a deadlock.\vLocks and queues "
			    "between threads are not recorded. A deadlock that is found in another "
			    "order of threads cannot happen if a lock or a queue orders their "
			    "calls; the result says where it assumes that none does.\n\n"
			    "Exit status: 0 nothing found, 14 found; 1 unreadable input, 2 wrong "
			    "usage.");
	paths = df_cli_trace_paths("predict", argc, argv, &nr);
	if (!paths)
		return 1;
	p = calloc(1, sizeof(*p));
	rc = p ? df_steps_load(p, "predict", paths, nr, DF_STEPS_MERGE) : 1;
	df_cli_paths_free(paths, nr);
	if (!rc)
		say_recorded(argc, argv);
	if (!rc && p->left_out)
		fprintf(stderr,
			"dfshim predict: more than %d threads in a rank: %zu calls of the others "
			"are left out\n",
			DF_MODEL_THREADS, p->left_out);
	if (!rc && p->procs_left_out)
		fprintf(stderr,
			"dfshim predict: more than %d ranks: %zu of %zu processes are left out, "
			"with the operations that only they share\n",
			DF_MODEL_RANKS, p->procs_left_out, nr);
	x.opts.mode = executor ? DF_MODEL_LANES : DF_MODEL_BASE;
	x.budget.ctas = (long)ctas;
	x.budget.sms = p && sms < 0 ? (long)p->sms : (long)sms;
	x.budget.queues = queues < 0 ? 32 : (long)queues;
	x.agree = agree;
	x.opts.slots = executor ? 0 : slots >= 0 ? (int)slots : (int)p->slots;
	x.opts.one_queue = queues == 1 && !executor;
	x.opts.tries = (size_t)tries;
	x.opts.window = window ? (size_t)window : WINDOW;
	x.opts.progress = progress;
	if (!rc)
		rc = run(p, &x, witness, json);
	if (p)
		df_steps_free(p);
	free(p);
	return rc;
}
