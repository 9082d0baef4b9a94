/*
 * `dfshim predict`: deadlocks that other executions of the recorded program can run into. The recorded
 * host order of each thread is turned into programs of the model and executed by NCCL's rules: with
 * rendezvous messages, with the given slots and queues, and in many interleavings of a rank's threads.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trace/cli/cli.h"
#include "trace/cli/input.h"
#include "trace/cli/program.h"
#include "trace/hash.h"
#include "trace/json.h"
#include "trace/model.h"
#include "trace/names.h"
#include "trace/load.h"
#include "trace/vec.h"

static const char help[] =
	"Usage: dfshim predict [OPTIONS] DIR|FILE...\n"
	"\n"
	"Executes the recorded program in a model of NCCL's rules and looks for deadlocks that the recorded\n"
	"run was spared: because dfshim prevented them, because messages were buffered, because there were\n"
	"enough slots, or because its threads happened to run in a good order.\n"
	"\n"
	"  --slots N       resident collectives a device (default: as recorded, else unlimited)\n"
	"  --queues N      1: all streams share one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1)\n"
	"  --tries N       interleavings of threads to try (default 100)\n"
	"  --window N      operations of a rank that are looked at together (default 64)\n"
	"  --witness FILE  writes the program and the schedule that deadlock\n"
	"  --json          the result as JSON\n"
	"\n"
	"Exit: 0 nothing found, 14 found; 1 unreadable input, 2 wrong usage.\n";

/* ---- windows ----------------------------------------------------------------------------------------- */

/* How often each thing that needs partners occurs in the window, per rank. */
struct tally {
	uint64_t key;
	uint32_t nr[DF_MODEL_RANKS];
};

static struct tally *tally_of(struct tally **list, size_t *nr, size_t *cap, uint64_t key)
{
	struct tally *t;

	for (size_t i = 0; i < *nr; i++)
		if ((*list)[i].key == key)
			return &(*list)[i];
	t = df_vec_grow((void **)list, *nr, cap, sizeof(**list)) ? NULL : &(*list)[(*nr)++];
	if (t) {
		memset(t, 0, sizeof(*t));
		t->key = key;
	}
	return t;
}

/*
 * A window is closed when each operation in it has all its partners in it; what has not is left out on
 * all ranks, from the end. Returns how many operations are in it.
 */
static size_t close_window(struct df_program_steps *p, size_t from[][DF_MODEL_THREADS],
			   size_t to[][DF_MODEL_THREADS])
{
	size_t nr_ops = 0;
	int changed = 1;

	for (int round = 0; changed && round < 64; round++) {
		struct tally *list = NULL;
		size_t nr = 0, cap = 0;

		changed = 0;
		nr_ops = 0;
		for (int r = 0; r < p->nr_ranks; r++) {
			for (int t = 0; t < p->ranks[r].nr_threads; t++) {
				for (size_t i = from[r][t]; i < to[r][t]; i++) {
					const struct df_step_of *s = &p->ranks[r].steps[t][i];
					struct tally *y;

					if (s->dropped || s->op.kind != DF_MOP_COLL)
						continue;
					nr_ops++;
					y = tally_of(&list, &nr, &cap,
						     (uint64_t)s->comm << 40 | s->index);
					if (y)
						y->nr[r]++;
				}
			}
		}
		for (int r = 0; r < p->nr_ranks; r++) {
			for (int t = 0; t < p->ranks[r].nr_threads; t++) {
				for (size_t i = from[r][t]; i < to[r][t]; i++) {
					struct df_step_of *s = &p->ranks[r].steps[t][i];
					struct tally *y;

					if (s->dropped)
						continue;
					if (s->op.kind == DF_MOP_P2P) {
						for (int k = 0; k < s->op.nr_p2p; k++)
							if (df_steps_peer(p, s->op.p2p[k].comm,
									  s->op.p2p[k].peer) < 0)
								s->dropped = 1;
						nr_ops += !s->dropped;
						continue;
					}
					if (s->op.kind != DF_MOP_COLL)
						continue;
					y = tally_of(&list, &nr, &cap,
						     (uint64_t)s->comm << 40 | s->index);
					for (int q = 0; y && q < p->nr_ranks; q++) {
						if (p->comms[s->comm].members >> q & 1 &&
						    !y->nr[q]) {
							s->dropped = changed = 1;
							break;
						}
					}
				}
			}
		}
		free(list);
	}
	return nr_ops;
}

/* The model's program of a window, and the record of each of its steps. */
struct window {
	struct df_mprog prog;
	uint64_t *rec[DF_MODEL_RANKS][DF_MODEL_THREADS];
};

static void window_fini(struct window *w)
{
	for (int r = 0; r < w->prog.nr_ranks; r++)
		for (int t = 0; t < w->prog.nr_threads[r]; t++)
			free(w->rec[r][t]);
	df_mprog_fini(&w->prog);
}

/* Is there somebody in the window who signals? What was signalled before it needs no wait. */
static int is_signalled(const struct df_program_steps *p, int r, int flag,
			size_t from[][DF_MODEL_THREADS], size_t to[][DF_MODEL_THREADS])
{
	for (int t = 0; t < p->ranks[r].nr_threads; t++)
		for (size_t i = from[r][t]; i < to[r][t]; i++)
			if (p->ranks[r].steps[t][i].op.kind == DF_MOP_HSIGNAL &&
			    p->ranks[r].steps[t][i].op.object == flag)
				return 1;
	return 0;
}

static int make_program(struct df_program_steps *p, size_t from[][DF_MODEL_THREADS],
			size_t to[][DF_MODEL_THREADS], struct window *w)
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
			w->rec[r][t] = calloc(to[r][t] - from[r][t] + 1, sizeof(uint64_t));
			if (!w->rec[r][t])
				return -ENOMEM;
			for (size_t i = from[r][t]; i < to[r][t]; i++) {
				const struct df_step_of *s = &p->ranks[r].steps[t][i];
				struct df_mop op = s->op;

				if (s->dropped || (op.kind == DF_MOP_HWAIT &&
						   !is_signalled(p, r, op.object, from, to)))
					continue;
				for (int k = 0; op.kind == DF_MOP_P2P && k < op.nr_p2p; k++)
					op.p2p[k].peer =
						df_steps_peer(p, op.p2p[k].comm, op.p2p[k].peer);
				w->rec[r][t][out->threads[r][t].nr_ops] = s->rec;
				if (df_mprog_add(out, r, t, &op))
					return -ENOMEM;
			}
		}
	}
	return 0;
}

/* ---- the search ---------------------------------------------------------------------------------------- */

struct choice {
	uint64_t seed;
};

static size_t pick(void *arg, size_t nr)
{
	struct choice *c = arg;

	c->seed = c->seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (size_t)(c->seed >> 33) % nr;
}

struct finding {
	const char *what;
	uint64_t seed;
	size_t window;
	int unbuffered, slots, queues; /* what it takes; 0: nothing */
	struct df_model_result res;
};

static int search(struct df_mprog *prog, const struct df_program_steps *p, long tries, long slots,
		  int queues, struct finding *f, size_t *need_slots)
{
	struct df_model_result res;
	int threads = 0, rc;

	rc = df_model_run(prog, DF_MODEL_BASE, NULL, NULL, NULL, &res);
	if (rc)
		return rc;
	if (res.max_resident > *need_slots)
		*need_slots = res.max_resident;
	f->res = res;
	if (res.hung) {
		/* The recorded order itself: what made the difference in the recorded run? */
		prog->buffered = 1;
		rc = df_model_run(prog, DF_MODEL_BASE, NULL, NULL, NULL, &res);
		prog->buffered = 0;
		f->unbuffered = !rc && !res.hung;
		f->what = !rc && !res.hung
				  ? "the recorded order deadlocks when messages are not buffered"
				  : "the recorded order deadlocks by NCCL's rules";
		return rc ? rc : 1;
	}
	prog->one_queue = queues == 1;
	prog->cap = (int)slots;
	f->slots = (int)slots;
	f->queues = queues == 1;
	if (slots || prog->one_queue) {
		rc = df_model_run(prog, DF_MODEL_BASE, NULL, NULL, NULL, &f->res);
		if (rc)
			return rc;
		if (f->res.hung) {
			f->what = slots ? "deadlocks with the given slots"
					: "deadlocks when all streams share one hardware queue";
			return 1;
		}
	}
	for (int r = 0; r < p->nr_ranks; r++)
		threads |= p->ranks[r].nr_threads > 1;
	for (long i = 0; (threads || slots) && i < tries; i++) {
		struct choice c = {.seed = (uint64_t)i + 1};
		struct df_model_schedule s = {pick, &c, NULL};

		rc = df_model_run(prog, DF_MODEL_BASE, &s, NULL, NULL, &f->res);
		if (rc)
			return rc;
		if (f->res.hung) {
			f->what = "an interleaving of the threads deadlocks";
			f->seed = (uint64_t)i + 1;
			return 1;
		}
	}
	return 0;
}

struct order {
	FILE *out;
	const struct window *w;
};

static void print_step(void *arg, enum df_model_event ev, int rank, int thread, size_t op,
		       const struct df_mop *mop, int task)
{
	struct order *o = arg;

	(void)mop, (void)task;
	if (ev == DF_ME_ISSUE && o->w->prog.nr_threads[rank] > 1)
		fprintf(o->out, "@ %d %" PRIu64 "\n", rank, o->w->rec[rank][thread][op]);
}

/*
 * What `dfshim replay --witness` needs: the circumstances, and for ranks with several threads the order in which
 * they issue: rank and record.
 */
static void print_order(FILE *out, const struct window *w, const struct finding *f)
{
	struct choice c = {.seed = f->seed};
	struct df_model_schedule s = {.pick = pick, .arg = &c};
	struct df_model_result res;
	struct order o = {out, w};

	fprintf(out, "@slots %d\n@queues %d\n@unbuffered %d\n", f->slots, f->queues, f->unbuffered);
	if (!df_model_run(&w->prog, DF_MODEL_BASE, f->seed ? &s : NULL, print_step, &o, &res))
		fflush(out);
}

/* Where the threads stand in the deadlock, in words. */
static void print_witness(FILE *out, const struct df_mprog *prog, const struct df_program_steps *p,
			  const struct finding *f)
{
	static const char *const names[] = {
		"kernel",  "stuck kernel", "legacy work", "collective",	 "message",	  "record",
		"wait",	   "stream sync",  "event sync",  "device sync", "implicit sync", "barrier",
		"connect", "init",	   "host wait",	  "host signal", "exit",	  "spin"};

	fprintf(out, "# %s (window %zu, schedule %" PRIu64 ")\n", f->what, f->window, f->seed);
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
	size_t from[DF_MODEL_RANKS][DF_MODEL_THREADS], to[DF_MODEL_RANKS][DF_MODEL_THREADS],
		need = 0, nr_windows = 0;
	struct finding f = {0};
	int found = 0, rc = 0, more = 1;

	memset(to, 0, sizeof(to));
	while (more && !found && !rc) {
		struct window w;

		more = 0;
		memcpy(from, to, sizeof(from));
		for (int r = 0; r < p->nr_ranks; r++) {
			for (int t = 0; t < p->ranks[r].nr_threads; t++) {
				size_t ops = 0;

				while (to[r][t] < p->ranks[r].nr[t] && ops < window) {
					enum df_mop_kind k =
						p->ranks[r].steps[t][to[r][t]++].op.kind;

					ops += k == DF_MOP_COLL || k == DF_MOP_P2P;
				}
				more |= to[r][t] < p->ranks[r].nr[t];
			}
		}
		f.window = nr_windows++;
		if (!close_window(p, from, to))
			continue;
		rc = make_program(p, from, to, &w);
		if (!rc) {
			found = search(&w.prog, p, tries, slots, queues, &f, &need);
			if (found < 0)
				rc = found;
		}
		if (found > 0 && !json)
			printf("POTENTIAL DEADLOCK: %s\n\n", f.what);
		if (found > 0 && !json)
			print_witness(stdout, &w.prog, p, &f);
		if (found > 0 && witness) {
			FILE *out = fopen(witness, "w");

			if (out) {
				print_witness(out, &w.prog, p, &f);
				print_order(out, &w, &f);
			}
			if (!out || fclose(out))
				df_cli_input_error("predict", witness, "%s", strerror(errno));
		}
		window_fini(&w);
		df_cli_progress("searching", nr_windows, 0);
	}
	df_cli_progress("searching", 1, 1);
	if (rc)
		return df_cli_input_error("predict", "the program", "%s", strerror(-rc));
	if (json) {
		printf("{\"found\":%s,\"what\":", found ? "true" : "false");
		df_json_string(stdout, found ? f.what : "");
		printf(",\"window\":%zu,\"schedule\":%" PRIu64
		       ",\"windows\":%zu,\"concurrent_collectives\":%zu}\n",
		       f.window, f.seed, nr_windows, need);
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
	struct df_check_set *set = df_cli_load("predict", argc, argv);
	struct df_check_result *r;

	if (!set)
		return;
	if (!df_check_run(set, &opts, &r)) {
		if (df_verdict_exit(df_check_verdict(r)))
			fprintf(stderr,
				"the recorded run itself did not finish (dfshim check): %s\n",
				df_check_line(r));
		df_check_result_free(r);
	}
	df_check_set_free(set);
}

int df_cmd_predict(int argc, char **argv)
{
	static const struct option options[] = {
		{"help", no_argument, NULL, 'h'},	   {"json", no_argument, NULL, 'j'},
		{"slots", required_argument, NULL, 's'},   {"queues", required_argument, NULL, 'q'},
		{"tries", required_argument, NULL, 't'},   {"window", required_argument, NULL, 'w'},
		{"witness", required_argument, NULL, 'f'}, {NULL, 0, NULL, 0}};
	long slots = -1, queues = 0, tries = 100, window = 64, *number;
	struct df_program_steps *p;
	const char *witness = NULL;
	char **paths, *end;
	size_t nr;
	int c, json = 0, rc = 0;

	opterr = 0;
	optind = 1;
	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		number = NULL;
		switch (c) {
		case 'h':
			fputs(help, stdout);
			return 0;
		case 'j':
			json = 1;
			break;
		case 's':
			number = &slots;
			break;
		case 'q':
			number = &queues;
			break;
		case 't':
			number = &tries;
			break;
		case 'w':
			number = &window;
			break;
		case 'f':
			witness = optarg;
			break;
		default:
			return df_cli_usage_error("predict", "unknown or incomplete option '%s'",
						  argv[optind - 1]);
		}
		if (number) {
			*number = strtol(optarg, &end, 10);
			if (*end || *number < 0 || *number > 1000000)
				return df_cli_usage_error("predict", "'%s': not a usable number",
							  optarg);
		}
	}
	if (optind == argc)
		return df_cli_usage_error("predict", "no trace folder given");
	if (!window)
		window = 64;
	paths = df_cli_trace_paths("predict", argc - optind, argv + optind, &nr);
	if (!paths)
		return 1;
	p = calloc(1, sizeof(*p));
	rc = p ? df_steps_load(p, "predict", paths, nr, 1) : 1;
	for (size_t i = 0; i < nr; i++)
		free(paths[i]);
	free(paths);
	if (!rc)
		say_recorded(argc - optind, argv + optind);
	if (!rc)
		rc = run(p, slots >= 0 ? slots : (long)p->slots, (int)queues, tries, (size_t)window,
			 witness, json);
	if (p)
		df_steps_free(p);
	free(p);
	return rc;
}
