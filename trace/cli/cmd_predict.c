/*
 * `dfshim predict`: deadlocks that other executions of the recorded program can run into. The recorded
 * host order of each thread is turned into programs of the model and executed by NCCL's rules: with
 * rendezvous messages, with the given slots and queues, and in many interleavings of a rank's threads.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/cli/cli.h"
#include "trace/cli/input.h"
#include "trace/cli/run/recorded.h"
#include "trace/record/trace_hash.h"
#include "trace/record/names.h"
#include "trace/read/load.h"
#include "trace/predict/predict.h"
#include "trace/say/json.h"
#include "runtime/base/vec.h"

/* ---- windows ----------------------------------------------------------------------------------------- */

/* How often each thing that needs partners occurs in the window: a collective per rank, a message by its side. */
struct tally {
	uint64_t key, peers;
	uint32_t nr[DF_MODEL_RANKS], seen[2];
};

struct tallies {
	struct tally *list;
	size_t nr, cap;
};

static struct tally *tally_of(struct tallies *y, uint64_t key, uint64_t peers)
{
	struct tally *t;

	for (size_t i = 0; i < y->nr; i++)
		if (y->list[i].key == key && y->list[i].peers == peers)
			return &y->list[i];
	t = DF_VEC_PUSH(y->list, y->nr, y->cap);
	if (t) {
		memset(t, 0, sizeof(*t));
		t->key = key;
		t->peers = peers;
	}
	return t;
}

static struct tally *tally_message(struct tallies *y, const struct df_program_steps *p, int rank,
				   const struct df_mp2p *m)
{
	uint64_t me = (uint64_t)rank + 1, peer = (uint64_t)df_steps_peer(p, m->comm, m->peer) + 1;

	return tally_of(y, (uint64_t)m->comm, m->send ? me << 32 | peer : peer << 32 | me);
}

static void count_step(struct tallies *y, const struct df_program_steps *p, int rank,
		       const struct df_step_of *s)
{
	struct tally *t;

	if (s->op.kind == DF_MOP_COLL) {
		t = tally_of(y, (uint64_t)s->comm << 40 | s->index, 0);
		if (t)
			t->nr[rank]++;
	}
	for (int k = 0; s->op.kind == DF_MOP_P2P && k < s->op.nr_p2p; k++) {
		t = tally_message(y, p, rank, &s->op.p2p[k]);
		if (t)
			t->nr[s->op.p2p[k].send]++;
	}
}

/* Are all partners of a step in the window? Asked in order. */
static int has_partners(struct tallies *y, const struct df_program_steps *p, int rank,
			const struct df_step_of *s)
{
	struct tally *t;
	int ok = 1;

	if (s->op.kind == DF_MOP_COLL) {
		t = tally_of(y, (uint64_t)s->comm << 40 | s->index, 0);
		for (int q = 0; t && q < p->nr_ranks; q++)
			ok &= !(p->comms[s->comm].members >> q & 1) || t->nr[q];
	}
	for (int k = 0; s->op.kind == DF_MOP_P2P && k < s->op.nr_p2p; k++) {
		const struct df_mp2p *m = &s->op.p2p[k];

		t = tally_message(y, p, rank, m);
		ok &= t && t->seen[m->send]++ < t->nr[!m->send];
	}
	return ok;
}

typedef size_t ends[DF_MODEL_RANKS][DF_MODEL_THREADS];

/* A rank's window ends before a record, in all its threads. */
static void end_before(const struct df_program_steps *p, int r, uint64_t rec, ends from, ends to)
{
	for (int t = 0; t < p->ranks[r].nr_threads; t++)
		while (to[r][t] > from[r][t] && p->ranks[r].steps[t][to[r][t] - 1].rec >= rec)
			to[r][t]--;
}

/*
 * A window is closed when each operation in it has all its partners in it. It ends before the first that has not;
 * with `drop` those are left out instead. Returns how many operations are in it.
 */
static size_t close_window(struct df_program_steps *p, ends from, ends to, int drop)
{
	size_t nr_ops = 0;

	for (int changed = 1; changed;) {
		struct tallies y = {0};

		changed = 0;
		nr_ops = 0;
		for (int r = 0; r < p->nr_ranks; r++)
			for (int t = 0; t < p->ranks[r].nr_threads; t++)
				for (size_t i = from[r][t]; i < to[r][t]; i++)
					if (!p->ranks[r].steps[t][i].dropped)
						count_step(&y, p, r, &p->ranks[r].steps[t][i]);
		for (int r = 0; r < p->nr_ranks; r++) {
			uint64_t end = DF_NO_REC;

			for (int t = 0; t < p->ranks[r].nr_threads; t++) {
				for (size_t i = from[r][t]; i < to[r][t]; i++) {
					struct df_step_of *s = &p->ranks[r].steps[t][i];

					if (s->dropped)
						continue;
					if (has_partners(&y, p, r, s)) {
						nr_ops += s->op.kind == DF_MOP_COLL ||
							  s->op.kind == DF_MOP_P2P;
						continue;
					}
					changed = 1;
					s->dropped = drop;
					end = s->rec < end ? s->rec : end;
				}
			}
			if (end != DF_NO_REC && !drop)
				end_before(p, r, end, from, to);
		}
		free(y.list);
	}
	return nr_ops;
}

/* The next steps of a rank, as they were recorded, until there are so many operations. 1: more are left. */
static int extend(const struct df_rank_of *r, size_t *to, size_t window)
{
	for (size_t ops = 0;;) {
		uint64_t first = DF_NO_REC;
		int next = -1;

		for (int t = 0; t < r->nr_threads; t++) {
			/* What stands for a wait of one thread for another has no record. */
			while (to[t] < r->nr[t] && r->steps[t][to[t]].rec == DF_NO_REC)
				to[t]++;
			if (to[t] == r->nr[t] || r->steps[t][to[t]].rec >= first)
				continue;
			first = r->steps[t][to[t]].rec;
			next = t;
		}
		if (next < 0)
			return 0;
		if (ops == window)
			return 1;
		ops += r->steps[next][to[next]].op.kind == DF_MOP_COLL ||
		       r->steps[next][to[next]].op.kind == DF_MOP_P2P;
		to[next]++;
	}
}

#define WIDER 8 /* times as wide as asked for, if operations have their partners far away */

/* The next window, from where the last ended. 0: there is none; else how many operations are in it, plus one. */
static size_t next_window(struct df_program_steps *p, size_t window, ends from, ends to)
{
	size_t nr_ops = 0;
	int more = 0, steps = 0;

	memcpy(from, to, sizeof(ends));
	for (int r = 0; r < p->nr_ranks; r++)
		for (int t = 0; t < p->ranks[r].nr_threads; t++)
			steps |= from[r][t] < p->ranks[r].nr[t];
	if (!steps)
		return 0;
	for (size_t wide = 1; wide <= WIDER && !nr_ops; wide *= 2) {
		memcpy(to, from, sizeof(ends));
		more = 0;
		for (int r = 0; r < p->nr_ranks; r++)
			more |= extend(&p->ranks[r], to[r], wide * window);
		nr_ops = close_window(p, from, to, !more || (wide == WIDER));
		if (!more)
			break;
	}
	return nr_ops + 1;
}

/* The model's program of a window, the record of each of its steps, and in which order they were recorded. */
struct window {
	struct df_mprog prog;
	struct df_predict_order order;
	uint64_t *rec[DF_MODEL_RANKS][DF_MODEL_THREADS];
};

static void window_fini(struct window *w)
{
	for (int r = 0; r < w->prog.nr_ranks; r++)
		for (int t = 0; t < w->prog.nr_threads[r]; t++)
			free(w->rec[r][t]);
	df_predict_order_fini(&w->order);
	df_mprog_fini(&w->prog);
}

/* Whose turn it was: the thread with the earliest record. */
static int recorded_order(struct window *w, int r)
{
	size_t at[DF_MODEL_THREADS] = {0};

	for (int next = 0; next >= 0 && w->prog.nr_threads[r] > 1;) {
		uint64_t first = DF_NO_REC;

		next = -1;
		for (int t = 0; t < w->prog.nr_threads[r]; t++) {
			const struct df_mthread *th = &w->prog.threads[r][t];

			while (at[t] < th->nr_ops && !df_predict_takes_turn(th->ops[at[t]].kind))
				at[t]++;
			if (at[t] == th->nr_ops || w->rec[r][t][at[t]] >= first)
				continue;
			first = w->rec[r][t][at[t]];
			next = t;
		}
		if (next >= 0 && df_predict_add(&w->order, r, next))
			return -ENOMEM;
		if (next >= 0)
			at[next]++;
	}
	return 0;
}

/* Was the event recorded in the window before this step? What was recorded before the window is over. */
static int is_recorded(const struct df_program_steps *p, int r, const struct df_step_of *s,
		       ends from, ends to)
{
	for (int t = 0; t < p->ranks[r].nr_threads; t++)
		for (size_t i = from[r][t]; i < to[r][t]; i++)
			if (p->ranks[r].steps[t][i].op.kind == DF_MOP_RECORD &&
			    p->ranks[r].steps[t][i].op.object == s->op.object &&
			    p->ranks[r].steps[t][i].rec < s->rec)
				return 1;
	return 0;
}

/* Is there somebody in the window who signals? What was signalled before it needs no wait. */
static int is_signalled(const struct df_program_steps *p, int r, int flag, ends from, ends to)
{
	for (int t = 0; t < p->ranks[r].nr_threads; t++)
		for (size_t i = from[r][t]; i < to[r][t]; i++)
			if (p->ranks[r].steps[t][i].op.kind == DF_MOP_HSIGNAL &&
			    p->ranks[r].steps[t][i].op.object == flag)
				return 1;
	return 0;
}

static int make_program(struct df_program_steps *p, ends from, ends to, struct window *w)
{
	struct df_mprog *out = &w->prog;

	memset(w, 0, sizeof(*w));
	for (size_t c = 0; c < p->nr_comms; c++)
		if (df_mprog_comm(out, p->comms[c].members) < 0)
			return -ENOMEM;
	out->nr_ranks = p->nr_ranks;
	for (int r = 0; r < p->nr_ranks; r++) {
		out->nr_threads[r] = p->ranks[r].nr_threads;
		for (int t = 0; t < p->ranks[r].nr_threads; t++) {
			const struct df_mthread *m = &out->threads[r][t];
			uint32_t group = 0;

			w->rec[r][t] = calloc(to[r][t] - from[r][t] + 1, sizeof(uint64_t));
			if (!w->rec[r][t])
				return -ENOMEM;
			for (size_t i = from[r][t]; i < to[r][t]; i++) {
				const struct df_step_of *s = &p->ranks[r].steps[t][i];
				int issues = s->op.kind == DF_MOP_COLL || s->op.kind == DF_MOP_P2P;
				struct df_mop op = s->op;

				if (s->dropped ||
				    (op.kind == DF_MOP_HWAIT &&
				     !is_signalled(p, r, op.object, from, to)) ||
				    (op.kind == DF_MOP_ESYNC && !is_recorded(p, r, s, from, to)))
					continue;
				for (int k = 0; op.kind == DF_MOP_P2P && k < op.nr_p2p; k++)
					op.p2p[k].peer =
						df_steps_peer(p, op.p2p[k].comm, op.p2p[k].peer);
				w->rec[r][t][m->nr_ops] = s->rec;
				if (issues && s->group && s->group == group)
					m->ops[m->nr_ops - 1].goes_on = 1;
				group = issues ? s->group : 0;
				if (df_mprog_add(out, r, t, &op))
					return -ENOMEM;
			}
		}
		if (recorded_order(w, r))
			return -ENOMEM;
	}
	return 0;
}

/* ---- what is found -------------------------------------------------------------------------------------- */

struct order {
	FILE *out;
	const struct window *w;
};

static int is_device_wait(enum df_mop_kind kind)
{
	return kind == DF_MOP_SSYNC || kind == DF_MOP_ESYNC || kind == DF_MOP_DSYNC ||
	       kind == DF_MOP_ISYNC;
}

static void print_step(void *arg, enum df_model_event ev, int rank, int thread, size_t op,
		       const struct df_mop *mop, int task)
{
	struct order *o = arg;

	(void)task;
	if ((ev == DF_ME_ISSUE || (ev == DF_ME_ENTER && is_device_wait(mop->kind))) &&
	    o->w->prog.nr_threads[rank] > 1)
		fprintf(o->out, "@ %d %" PRIu64 "\n", rank, o->w->rec[rank][thread][op]);
}

/*
 * What `dfshim replay --witness` needs: the circumstances, and for ranks with several threads the order in which
 * they take their steps (begin, where they wait): rank and record.
 */
static void print_order(FILE *out, struct window *w, const struct df_predict_finding *f)
{
	struct order o = {out, w};

	fprintf(out, "@slots %d\n@queues %d\n@unbuffered %d\n", f->slots, f->one_queue,
		f->unbuffered);
	if (!df_predict_again(&w->prog, &w->order, f, print_step, &o))
		fflush(out);
}

/*
 * What the finding rests on, where it is an order of threads that was not recorded: nothing that is in a trace forbids it,
 * but a lock would. NULL: it rests on the records alone.
 */
static char *assumption(const struct df_mprog *prog, const struct df_program_steps *p,
			const struct df_predict_finding *f)
{
	char *text = NULL;
	size_t len = 0;
	int nr = 0;
	FILE *out;

	for (int r = 0; r < prog->nr_ranks; r++)
		nr += prog->nr_threads[r] > 1;
	out = f->schedule && nr ? open_memstream(&text, &len) : NULL;
	if (!out)
		return NULL;
	fputs("this order of the threads of ", out);
	for (int r = 0, said = 0; r < prog->nr_ranks; r++)
		if (prog->nr_threads[r] > 1)
			fprintf(out, "%s%s", said++ ? ", " : "", p->ranks[r].name);
	fputs(" was not recorded; locks and queues between threads are not recorded either, and where one orders "
	      "these calls this cannot happen",
	      out);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

/* Where the threads stand in the deadlock, in words. */
static void print_witness(FILE *out, const struct df_mprog *prog, const struct df_program_steps *p,
			  const struct df_predict_finding *f, size_t window)
{
	char *assumed = assumption(prog, p, f);
	static const char *const names[] = {
		"kernel",  "stuck kernel", "legacy work", "collective",	 "message",	  "record",
		"wait",	   "stream sync",  "event sync",  "device sync", "implicit sync", "barrier",
		"connect", "init",	   "host wait",	  "host signal", "exit",	  "spin"};

	fprintf(out, "# %s (window %zu, schedule %" PRIu64 ")\n", f->what, window, f->schedule);
	if (assumed)
		fprintf(out, "# Assumed: %s.\n", assumed);
	free(assumed);
	for (int r = 0; r < prog->nr_ranks; r++) {
		for (int t = 0; t < prog->nr_threads[r]; t++) {
			const struct df_mthread *th = &prog->threads[r][t];

			fprintf(out, "%s thread %u%s\n", p->ranks[r].name, p->ranks[r].tid[t],
				f->res.pc[r][t] < th->nr_ops ? " (blocked at >)"
							     : " (issued everything)");
			for (size_t i = 0; i < th->nr_ops; i++) {
				const struct df_mop *m = &th->ops[i];

				fprintf(out, "  %c %s", i == f->res.pc[r][t] ? '>' : ' ',
					names[m->kind]);
				if (m->kind == DF_MOP_COLL)
					fprintf(out, " %s comm 0x%" PRIx64 " count %" PRIu64,
						df_kind_name((uint8_t)m->sig),
						p->comms[m->comm].hash, m->sig >> 8);
				for (int k = 0; m->kind == DF_MOP_P2P && k < m->nr_p2p; k++)
					fprintf(out, " %s %s", m->p2p[k].send ? "to" : "from",
						p->ranks[m->p2p[k].peer].name);
				fprintf(out, " stream %d\n", m->stream);
			}
		}
	}
}

static int run(struct df_program_steps *p, long slots, int queues, long tries, size_t window,
	       const char *witness, int json)
{
	ends from, to;
	size_t need = 0, nr_windows = 0, nr_ops;
	struct df_predict_opts opts = {(size_t)tries, (int)slots, queues == 1};
	struct df_predict_finding f = {0};
	int found = 0, rc = 0;
	char *assumed = NULL;

	memset(to, 0, sizeof(to));
	while (!found && !rc && (nr_ops = next_window(p, window, from, to)) > 0) {
		struct window w;

		nr_windows++;
		if (nr_ops == 1)
			continue;
		rc = make_program(p, from, to, &w);
		if (!rc) {
			found = df_predict_search(&w.prog, &w.order, &opts, &f);
			if (found < 0)
				rc = found;
			if (f.need_slots > need)
				need = f.need_slots;
		}
		if (found > 0 && !json)
			printf("POTENTIAL DEADLOCK: %s\n\n", f.what);
		if (found > 0 && !json)
			print_witness(stdout, &w.prog, p, &f, nr_windows - 1);
		if (found > 0 && witness) {
			FILE *out = fopen(witness, "w");

			if (out) {
				print_witness(out, &w.prog, p, &f, nr_windows - 1);
				print_order(out, &w, &f);
			}
			if (!out || fclose(out))
				df_cli_input_error("predict", witness, "%s", strerror(errno));
		}
		if (found > 0 && json)
			assumed = assumption(&w.prog, p, &f);
		window_fini(&w);
		df_cli_progress("searching", nr_windows, 0);
	}
	df_cli_progress("searching", 1, 1);
	if (rc)
		return df_cli_input_error("predict", "the program", "%s", strerror(-rc));
	if (json) {
		rc = df_json_line(json_pack("{s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "found", found,
					    "what", df_json_text(found ? f.what : ""), "assumed",
					    df_json_text(assumed), "window",
					    json_integer((json_int_t)nr_windows - 1), "schedule",
					    df_json_u64(found ? f.schedule : 0), "windows",
					    df_json_u64(nr_windows), "concurrent_collectives",
					    df_json_u64(need)),
				  stdout);
		free(assumed);
	} else if (!found) {
		printf("no potential deadlock found in %zu windows\n", nr_windows);
		if (need > 1)
			printf("legal, but up to %zu collectives of one rank run at once: with fewer slots it may deadlock "
			       "(try --slots)\n",
			       need);
	}
	return found ? 14 : 0;
}

/* A run that did not finish is no prediction: it is said, so that nobody takes "none found" for "fine". */
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
	int64_t slots = -1, queues = 0, tries = 100, window = 64;
	struct df_program_steps *p;
	const char *witness = NULL;
	char **paths;
	size_t nr;
	int json = 0, rc = 0;
	const struct df_opt options[] = {
		DF_NUMBER("slots", "N", slots, 0, 1e6,
			  "resident collectives a device (as recorded, else unlimited)"),
		DF_NUMBER(
			"queues", "N", queues, 0, 1e6,
			"1: all streams share one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1)"),
		DF_NUMBER("tries", "N", tries, 0, 1e6, "interleavings of threads to try (100)"),
		DF_NUMBER("window", "N", window, 0, 1e6,
			  "operations of a rank that are looked at together (64)"),
		DF_OPT(WITNESS, witness,
		       "write the program and the schedule that deadlock to FILE"),
		DF_OPT(JSON, json, NULL),
	};

	DF_CLI_PARSE(
		"predict", &argc, &argv, DF_CLI_TRACES,
		.doc = "Executes the recorded program in a model of NCCL's rules and looks for deadlocks that did "
		       "not happen in the recorded run: because dfshim prevented them, messages were buffered, "
		       "there were enough slots, or the threads ran in an order without a deadlock.\v"
		       "Locks and queues between threads are not recorded. A deadlock that is found in another "
		       "order of threads cannot happen if a lock or a queue orders their calls; the result says "
		       "where it assumes that none does.\n\n"
		       "Exit status: 0 nothing found, 14 found; 1 unreadable input, 2 wrong usage.");
	paths = df_cli_trace_paths("predict", argc, argv, &nr);
	if (!paths)
		return 1;
	p = calloc(1, sizeof(*p));
	rc = p ? df_steps_load(p, "predict", paths, nr, DF_STEPS_MERGE) : 1;
	df_cli_paths_free(paths, nr);
	if (!rc)
		say_recorded(argc, argv);
	if (!rc)
		rc = run(p, slots >= 0 ? slots : (long)p->slots, (int)queues, tries,
			 window ? (size_t)window : 64, witness, json);
	if (p)
		df_steps_free(p);
	free(p);
	return rc;
}
