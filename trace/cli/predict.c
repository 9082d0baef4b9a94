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

/* One host step of one thread of one rank, and where it comes from. */
struct step {
	struct df_mop op;
	uint64_t rec;
	uint32_t comm; /* global, of COLL and P2P */
	uint64_t index;
	int dropped;
};

struct rank {
	struct step *steps[DF_MODEL_THREADS];
	size_t nr[DF_MODEL_THREADS], cap[DF_MODEL_THREADS];
	uint32_t tid[DF_MODEL_THREADS];
	int nr_threads;
	uint32_t trace;
	int32_t device;
	char name[32];
};

struct gcomm {
	uint64_t hash;
	uint64_t members; /* set of ranks here */
	int32_t nranks;
	int rank_of[DF_MODEL_RANKS]; /* by rank here */
};

struct predict {
	struct rank ranks[DF_MODEL_RANKS];
	int nr_ranks;
	struct gcomm *comms;
	size_t nr_comms, cap_comms;
	uint64_t *ids[2]; /* streams and events seen, to small numbers */
	size_t nr_ids[2], cap_ids[2];
	uint32_t slots;
	size_t left_out;
};

static int small(struct predict *p, int what, uint64_t id)
{
	uint64_t *slot;

	for (size_t i = 0; i < p->nr_ids[what]; i++)
		if (p->ids[what][i] == id)
			return (int)i;
	slot = DF_VEC_PUSH(p->ids[what], p->nr_ids[what], p->cap_ids[what]);
	if (!slot)
		return 0;
	*slot = id;
	return (int)p->nr_ids[what] - 1;
}

static int comm_of(struct predict *p, const struct df_trace_comm *c)
{
	struct gcomm *g;

	for (size_t i = 0; i < p->nr_comms; i++)
		if (p->comms[i].hash == c->hash)
			return (int)i;
	g = DF_VEC_PUSH(p->comms, p->nr_comms, p->cap_comms);
	if (!g)
		return -1;
	memset(g, 0, sizeof(*g));
	g->hash = c->hash;
	g->nranks = c->nranks;
	return (int)p->nr_comms - 1;
}

static int rank_of(struct predict *p, uint32_t trace, int32_t device,
		   const struct df_trace_header *h)
{
	struct rank *r;

	for (int i = 0; i < p->nr_ranks; i++)
		if (p->ranks[i].trace == trace && p->ranks[i].device == device)
			return i;
	if (p->nr_ranks == DF_MODEL_RANKS)
		return -1;
	r = &p->ranks[p->nr_ranks];
	r->trace = trace;
	r->device = device;
	if (h->rank >= 0 && h->world > 1)
		snprintf(r->name, sizeof(r->name), "r%d", h->rank);
	else
		snprintf(r->name, sizeof(r->name), "pid %u device %d", h->pid, device);
	return p->nr_ranks++;
}

static int push_step(struct predict *p, int rank, uint32_t tid, const struct step *s)
{
	struct rank *r = &p->ranks[rank];
	struct step *slot;
	int t = 0;

	while (t < r->nr_threads && r->tid[t] != tid)
		t++;
	if (t == r->nr_threads) {
		if (t == DF_MODEL_THREADS) {
			p->left_out++;
			return 0;
		}
		r->tid[r->nr_threads++] = tid;
	}
	slot = DF_VEC_PUSH(r->steps[t], r->nr[t], r->cap[t]);
	if (!slot)
		return -ENOMEM;
	*slot = *s;
	return 0;
}

/* Buffers become sets: two operations that share a bit overlap. */
static uint64_t buffer_bit(uint64_t address)
{
	return address ? 1ULL << (df_mix64(address) & 63) : 0;
}

static int add_op(struct predict *p, const struct df_load *l, struct df_reader *rd, size_t at,
		  int rank, struct step *open)
{
	const struct df_lop *op = &l->ops[at];
	const struct df_trace_comm *c = df_reader_comm(rd, op->comm);
	int comm = c ? comm_of(p, c) : -1,
	    p2p = op->kind == DF_KIND_SEND || op->kind == DF_KIND_RECV;
	struct step s = {.rec = op->rec, .comm = (uint32_t)comm, .index = op->index};

	if (comm < 0)
		return 0;
	p->comms[comm].members |= 1ULL << rank;
	p->comms[comm].rank_of[rank] = c->rank;
	s.op.stream = small(p, 0, op->stream);
	if (!p2p) {
		s.op.kind = DF_MOP_COLL;
		s.op.comm = comm;
		s.op.sig = op->kind | op->count << 8;
		s.op.reads = buffer_bit(op->send);
		s.op.writes = buffer_bit(op->recv);
		return push_step(p, rank, op->thread, &s);
	}
	s.op.kind = DF_MOP_P2P;
	s.op.nr_p2p = 1;
	s.op.p2p[0] = (struct df_mp2p){op->kind == DF_KIND_SEND, comm, op->peer, op->count};
	/* Messages of one group are one step. */
	if (op->group && open->op.nr_p2p && open->rec == op->group &&
	    open->op.nr_p2p < DF_MOP_MAX_P2P) {
		struct rank *r = &p->ranks[rank];

		for (int t = 0; t < r->nr_threads; t++) {
			if (r->tid[t] == op->thread && r->nr[t]) {
				struct df_mop *m = &r->steps[t][r->nr[t] - 1].op;

				if (m->kind == DF_MOP_P2P && m->nr_p2p < DF_MOP_MAX_P2P) {
					m->p2p[m->nr_p2p++] = s.op.p2p[0];
					return 0;
				}
			}
		}
	}
	*open = s;
	open->rec = op->group;
	return push_step(p, rank, op->thread, &s);
}

static int add_trace(struct predict *p, const struct df_load *l, struct df_reader *rd,
		     uint32_t trace)
{
	struct step open[DF_MODEL_RANKS];
	size_t call = 0;
	int rc = 0;

	memset(open, 0, sizeof(open));
	if (l->h.slots && (!p->slots || l->h.slots < p->slots))
		p->slots = l->h.slots;
	for (size_t i = 0; i <= l->nr_items && !rc; i++) {
		const struct df_litem *it = &l->items[i];
		struct step s = {0};
		int rank;

		/* Host calls between the items, in their place. */
		for (; call < l->nr_calls && (i == l->nr_items || l->calls[call].rec < it->rec) &&
		       !rc;
		     call++) {
			const struct df_lcall *c = &l->calls[call];
			struct step y = {.rec = c->rec};

			rank = rank_of(p, trace, c->device, &l->h);
			switch (df_call_class(c->call)) {
			case DF_CLASS_STREAM:
				y.op.kind = c->call == DF_CALL_STREAM_SYNC ? DF_MOP_SSYNC
									   : DF_MOP_ESYNC;
				if (c->call == DF_CALL_STREAM_SYNC)
					y.op.stream = small(p, 0, c->object);
				else
					y.op.object = small(p, 1, c->object);
				break;
			case DF_CLASS_DEVICE:
				y.op.kind = DF_MOP_DSYNC;
				break;
			case DF_CLASS_IMPLICIT:
				y.op.kind = DF_MOP_ISYNC;
				break;
			default:
				continue;
			}
			if (rank >= 0 && c->device >= 0)
				rc = push_step(p, rank, c->thread, &y);
		}
		if (i == l->nr_items || rc)
			break;
		if (it->type == DF_ITEM_OP) {
			rank = rank_of(p, trace, l->ops[it->a].device, &l->h);
			if (rank >= 0)
				rc = add_op(p, l, rd, it->a, rank, &open[rank]);
			continue;
		}
		rank = rank_of(p, trace, it->device, &l->h);
		if (rank < 0 || it->device < 0)
			continue;
		s.rec = it->rec;
		s.op.stream = small(p, 0, it->stream);
		if (it->type == DF_ITEM_WORK)
			s.op.kind = DF_MOP_KERNEL;
		else if (it->type == DF_ITEM_RECORD)
			s.op.kind = DF_MOP_RECORD;
		else if (it->type == DF_ITEM_WAIT)
			s.op.kind = DF_MOP_WAIT;
		else
			continue;
		if (it->type != DF_ITEM_WORK)
			s.op.object = small(p, 1, it->a);
		rc = push_step(p, rank, it->thread, &s);
	}
	return rc;
}

/* ---- windows ----------------------------------------------------------------------------------------- */

/* From a peer's number in its communicator to our number of the rank; -1 not here. */
static int peer_here(const struct predict *p, int comm, int peer)
{
	for (int r = 0; r < p->nr_ranks; r++)
		if (p->comms[comm].members >> r & 1 && p->comms[comm].rank_of[r] == peer)
			return r;
	return -1;
}

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
static size_t close_window(struct predict *p, size_t from[][DF_MODEL_THREADS],
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
					const struct step *s = &p->ranks[r].steps[t][i];
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
					struct step *s = &p->ranks[r].steps[t][i];
					struct tally *y;

					if (s->dropped)
						continue;
					if (s->op.kind == DF_MOP_P2P) {
						for (int k = 0; k < s->op.nr_p2p; k++)
							if (peer_here(p, s->op.p2p[k].comm,
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

static int make_program(struct predict *p, size_t from[][DF_MODEL_THREADS],
			size_t to[][DF_MODEL_THREADS], struct df_mprog *out)
{
	memset(out, 0, sizeof(*out));
	for (size_t c = 0; c < p->nr_comms; c++)
		if (df_mprog_comm(out, p->comms[c].members) < 0)
			return -ENOMEM;
	out->nr_ranks = p->nr_ranks;
	for (int r = 0; r < p->nr_ranks; r++) {
		out->nr_threads[r] = p->ranks[r].nr_threads;
		for (int t = 0; t < p->ranks[r].nr_threads; t++) {
			for (size_t i = from[r][t]; i < to[r][t]; i++) {
				const struct step *s = &p->ranks[r].steps[t][i];
				struct df_mop op = s->op;

				if (s->dropped)
					continue;
				for (int k = 0; op.kind == DF_MOP_P2P && k < op.nr_p2p; k++)
					op.p2p[k].peer =
						peer_here(p, op.p2p[k].comm, op.p2p[k].peer);
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
	struct df_model_result res;
};

static int search(struct df_mprog *prog, const struct predict *p, long tries, long slots,
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
		f->what = !rc && !res.hung
				  ? "the recorded order deadlocks when messages are not buffered"
				  : "the recorded order deadlocks by NCCL's rules";
		return rc ? rc : 1;
	}
	prog->one_queue = queues == 1;
	prog->cap = (int)slots;
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
		struct df_model_schedule s = {pick, &c};

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

/* Where the threads stand in the deadlock, in words. */
static void print_witness(FILE *out, const struct df_mprog *prog, const struct predict *p,
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

static int run(struct predict *p, long slots, int queues, long tries, size_t window,
	       const char *witness, int json)
{
	size_t from[DF_MODEL_RANKS][DF_MODEL_THREADS], to[DF_MODEL_RANKS][DF_MODEL_THREADS],
		need = 0, nr_windows = 0;
	struct finding f = {0};
	int found = 0, rc = 0, more = 1;

	memset(to, 0, sizeof(to));
	while (more && !found && !rc) {
		struct df_mprog prog;

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
		rc = make_program(p, from, to, &prog);
		if (!rc) {
			found = search(&prog, p, tries, slots, queues, &f, &need);
			if (found < 0)
				rc = found;
		}
		if (found > 0 && !json)
			printf("POTENTIAL DEADLOCK: %s\n\n", f.what);
		if (found > 0 && !json)
			print_witness(stdout, &prog, p, &f);
		if (found > 0 && witness) {
			FILE *out = fopen(witness, "w");

			if (out)
				print_witness(out, &prog, p, &f);
			if (!out || fclose(out))
				df_cli_input_error("predict", witness, "%s", strerror(errno));
		}
		df_mprog_fini(&prog);
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

int df_cmd_predict(int argc, char **argv)
{
	static const struct option options[] = {
		{"help", no_argument, NULL, 'h'},	   {"json", no_argument, NULL, 'j'},
		{"slots", required_argument, NULL, 's'},   {"queues", required_argument, NULL, 'q'},
		{"tries", required_argument, NULL, 't'},   {"window", required_argument, NULL, 'w'},
		{"witness", required_argument, NULL, 'f'}, {NULL, 0, NULL, 0}};
	long slots = -1, queues = 0, tries = 100, window = 64, *number;
	struct predict *p;
	struct df_load l;
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
	df_load_init(&l);
	for (size_t i = 0; i < nr; i++) {
		const char *why = "out of memory";
		struct df_reader rd;

		if (!p || df_reader_open(&rd, paths[i], &why)) {
			rc = df_cli_input_error("predict", paths[i], "%s", why);
		} else {
			if (df_load_trace(&l, &rd) || add_trace(p, &l, &rd, (uint32_t)i))
				rc = df_cli_input_error("predict", paths[i], "out of memory");
			df_reader_close(&rd);
		}
		free(paths[i]);
	}
	free(paths);
	df_load_fini(&l);
	if (!rc)
		rc = run(p, slots >= 0 ? slots : (long)p->slots, (int)queues, tries, (size_t)window,
			 witness, json);
	for (int r = 0; p && r < p->nr_ranks; r++)
		for (int t = 0; t < DF_MODEL_THREADS; t++)
			free(p->ranks[r].steps[t]);
	if (p) {
		free(p->ids[0]);
		free(p->ids[1]);
		free(p->comms);
	}
	free(p);
	return rc;
}
