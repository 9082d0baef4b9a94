/*
 * Builds traces for tests (trace_build.h). Writes the format without the product's writer, so that
 * a mistake there does not appear here too.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/lib/trace_build.h"
#include "trace/record/names.h"
#include "trace/record/trace_hash.h"

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), abort())

#define NR_COMMS      64
#define LEGACY_STREAM 99

/* ---- images ---------------------------------------------------------------------------------- */

void tb_image_init(struct tb_image *im, int rank, int world, size_t nr_recs)
{
	struct df_trace_header *h;
	size_t cap = 1;

	while (cap < nr_recs)
		cap *= 2;
	im->bytes =
		4096 + NR_COMMS * sizeof(struct df_trace_comm) + 4096 + cap * sizeof(struct df_rec);
	h = im->h = calloc(1, im->bytes);
	if (!h)
		DIE("no memory");
	im->cap_recs = cap;
	im->serial = 0;
	im->clock = 1000000000;
	h->magic = DF_TRACE_MAGIC;
	h->version = DF_TRACE_VERSION;
	h->header_bytes = 4096;
	h->rec_bytes = sizeof(struct df_rec);
	h->comm_bytes = sizeof(struct df_trace_comm);
	h->nr_recs = cap;
	h->nr_comms = NR_COMMS;
	h->nr_string_bytes = 4096;
	h->off_comms = 4096;
	h->off_strings = 4096 + NR_COMMS * sizeof(struct df_trace_comm);
	h->off_recs = h->off_strings + 4096;
	h->pid = 1000 + (uint32_t)rank;
	h->rank = rank;
	h->world = (uint32_t)world;
	h->host_hash = 7;
	h->boot_hash = 11;
	snprintf(h->host, sizeof(h->host), "node0");
}

void tb_image_fini(struct tb_image *im)
{
	free(im->h);
	memset(im, 0, sizeof(*im));
}

void tb_images_fini(struct tb_image *im, int nr)
{
	for (int i = 0; i < nr; i++)
		tb_image_fini(&im[i]);
}

struct df_rec *tb_at(const struct tb_image *im, uint64_t i)
{
	return (struct df_rec *)((char *)im->h + im->h->off_recs) + (i & (im->h->nr_recs - 1));
}

struct df_trace_comm *tb_comm_at(const struct tb_image *im, uint32_t comm)
{
	return (struct df_trace_comm *)((char *)im->h + im->h->off_comms) + (comm - 1);
}

struct df_rec *tb_rec(struct tb_image *im, enum df_rec_type type, uint64_t op, uint64_t a,
		      uint64_t b, uint64_t c)
{
	struct df_trace_header *h = im->h;
	uint64_t at = h->next++;
	struct df_rec *r = tb_at(im, at);

	memset(r, 0, sizeof(*r));
	r->time_ns = im->clock++;
	r->type = (uint16_t)type;
	r->device = 0;
	r->thread = h->pid;
	r->rank = -1;
	r->op = op;
	r->a = a;
	r->b = b;
	r->c = c;
	r->commit = (uint32_t)(at + 1);
	return r;
}

uint32_t tb_comm(struct tb_image *im, uint64_t hash, int nranks, int rank, int device)
{
	struct df_trace_comm *c = tb_comm_at(im, im->h->comms_used + 1);

	c->hash = hash;
	c->nranks = nranks;
	c->rank = rank;
	c->device = device;
	c->used = 1;
	return ++im->h->comms_used;
}

uint64_t tb_issue(struct tb_image *im, uint32_t comm, int rank, int kind, uint64_t count, int peer,
		  uint64_t index)
{
	static const enum df_rec_type types[] = {DF_REC_OP_ISSUE, DF_REC_OP_ARGS, DF_REC_OP_MATCH};
	const uint64_t fields[][3] = {{(uint64_t)kind | 7 << 8, count, 1},
				      {0, 0, (uint64_t)(uint32_t)(peer + 1)},
				      {(uint64_t)kind * 31 + count, 0, index}};

	im->serial++;
	for (int i = 0; i < 3; i++) {
		struct df_rec *r =
			tb_rec(im, types[i], im->serial, fields[i][0], fields[i][1], fields[i][2]);

		r->comm = comm;
		r->rank = rank;
	}
	return im->serial;
}

struct df_rec *tb_op(struct tb_image *im, uint32_t comm, enum df_rec_type type, uint64_t serial)
{
	struct df_rec *r = tb_rec(im, type, serial, 0, 0, 0);

	r->comm = comm;
	return r;
}

uint64_t tb_string(struct tb_image *im, const char *text)
{
	struct df_trace_string *s = (struct df_trace_string *)((char *)im->h + im->h->off_strings +
							       im->h->strings_used);

	s->bytes = (uint32_t)strlen(text);
	s->hash = df_hash64(text, s->bytes);
	s->used = 1;
	memcpy(s + 1, text, s->bytes);
	im->h->strings_used += (uint32_t)sizeof(*s) + ((s->bytes + 7) & ~7u);
	return s->hash;
}

void tb_site(struct tb_image *im, uint32_t site, const char *frame)
{
	tb_rec(im, DF_REC_SITE, site, 0, 0, tb_string(im, frame));
}

void tb_quiet(struct tb_image *im, uint64_t ms)
{
	im->clock += ms * 1000000;
	tb_rec(im, DF_REC_STALL, 0, ms, 1, 0)->thread = 1;
}

/* ---- a program, recorded --------------------------------------------------------------------- */

struct recorder {
	const struct df_mprog *p;
	struct tb_image *images;
	uint64_t serial, clock;
	/* number of each communicator in the rank's image */
	uint32_t comm[DF_MODEL_RANKS][NR_COMMS];
	uint64_t index[DF_MODEL_RANKS][NR_COMMS];
	uint64_t *ops; /* first serial of each task */
	size_t nr_ops;
	uint64_t calls[DF_MODEL_RANKS][DF_MODEL_THREADS];
	uint64_t records[DF_MODEL_RANKS][64];
	uint64_t address;
	struct tb_opts opts;
	struct df_ranks crashed;
};

static struct df_rec *put(struct recorder *w, int rank, int thread, enum df_rec_type type,
			  uint64_t op, uint64_t a, uint64_t b, uint64_t c)
{
	struct df_rec *r;

	w->images[rank].clock = w->clock += 1000;
	r = tb_rec(&w->images[rank], type, op, a, b, c);
	r->thread = (uint32_t)(1000 + rank + 100 * thread);
	return r;
}

static uint64_t address(struct recorder *w, uint64_t set)
{
	return (set ? (uint64_t)__builtin_ctzll(set) + 1 : 1000 + w->address++) << 32;
}

static void put_op(struct recorder *w, int rank, int thread, uint64_t serial, int comm, int kind,
		   uint64_t count, int stream, uint64_t reads, uint64_t writes, int peer,
		   uint64_t group)
{
	struct df_rec *r;
	uint64_t args = (uint64_t)(uint32_t)(peer + 1) | group << 32;
	enum df_rec_type types[3] = {DF_REC_OP_ISSUE, DF_REC_OP_ARGS, DF_REC_OP_MATCH};
	uint64_t a[3] = {(uint64_t)kind | 7 << 8, address(w, reads),
			 (uint64_t)kind * 1000003 + count};
	uint64_t b[3] = {count, address(w, writes), 0};
	uint64_t c[3] = {(uint64_t)stream + 1, args, w->index[rank][comm]++};

	for (int i = 0; i < 3; i++) {
		r = put(w, rank, thread, types[i], serial, a[i], b[i], c[i]);
		r->comm = w->comm[rank][comm];
		r->rank = df_ranks_below(&w->p->comms[comm], rank);
		r->device = 0;
		r->site = 0;
	}
}

static void issue(struct recorder *w, int rank, int thread, const struct df_mop *op, int task)
{
	uint64_t group = 0;

	w->ops = realloc(w->ops, ((size_t)task + 1) * sizeof(*w->ops));
	w->ops[task] = w->serial + 1;
	switch (op->kind) {
	case DF_MOP_COLL:
		put_op(w, rank, thread, ++w->serial, op->comm, (int)(op->sig & 255), op->sig >> 8,
		       op->stream, op->reads, op->writes, -1, 0);
		break;
	case DF_MOP_P2P:
		if (op->nr_p2p > 1)
			group = ++w->serial;
		w->ops[task] = w->serial + 1;
		for (int i = 0; i < op->nr_p2p; i++) {
			const struct df_mp2p *m = &op->p2p[i];

			put_op(w, rank, thread, ++w->serial, m->comm,
			       m->send ? DF_KIND_SEND : DF_KIND_RECV, m->count, op->stream, 0, 0,
			       df_ranks_below(&w->p->comms[m->comm], m->peer), group);
		}
		break;
	case DF_MOP_KERNEL:
	case DF_MOP_STUCK:
		put(w, rank, thread, DF_REC_STREAM_WORK, ++w->serial, 0, 1ULL << 32,
		    (uint64_t)op->stream + 1);
		break;
	case DF_MOP_LEGACY:
		put(w, rank, thread, DF_REC_STREAM_WORK, ++w->serial, 0, 2ULL << 32, LEGACY_STREAM);
		break;
	case DF_MOP_RECORD:
		w->records[rank][op->object] = ++w->serial;
		put(w, rank, thread, DF_REC_EVENT_RECORD, 0, (uint64_t)op->object + 1, w->serial,
		    (uint64_t)op->stream + 1);
		break;
	case DF_MOP_WAIT:
		/* As in CUDA, waiting for an event that was never recorded does nothing. */
		if (w->records[rank][op->object])
			put(w, rank, thread, DF_REC_EVENT_WAIT, 0, (uint64_t)op->object + 1,
			    w->records[rank][op->object], (uint64_t)op->stream + 1);
		break;
	default:
		break;
	}
}

static void enter(struct recorder *w, int rank, int thread, const struct df_mop *op)
{
	enum df_call call = DF_CALL_NONE;
	uint64_t object = 0, detail = 0;

	switch (op->kind) {
	case DF_MOP_SSYNC:
		call = DF_CALL_STREAM_SYNC;
		object = (uint64_t)op->stream + 1;
		break;
	case DF_MOP_ESYNC:
		call = DF_CALL_EVENT_SYNC;
		object = (uint64_t)op->object + 1;
		break;
	case DF_MOP_DSYNC:
		call = DF_CALL_DEVICE_SYNC;
		break;
	case DF_MOP_ISYNC:
		call = DF_CALL_FREE;
		object = 0x7f0000000000;
		break;
	case DF_MOP_HBAR:
		call = DF_CALL_HOST_BARRIER;
		object = (uint64_t)op->object + 1;
		detail = (uint64_t)df_ranks_count(&op->members);
		break;
	case DF_MOP_INIT:
	case DF_MOP_CONN:
		call = DF_CALL_COMM_INIT;
		object = 0x9f3a000000000000 + (uint64_t)op->object;
		detail = (uint64_t)df_ranks_count(&op->members);
		break;
	case DF_MOP_HWAIT:
		call = DF_CALL_HOST_WAIT;
		object = (uint64_t)op->object + 1;
		break;
	case DF_MOP_HSIGNAL:
		call = DF_CALL_HOST_SIGNAL;
		object = (uint64_t)op->object + 1;
		break;
	default:
		return;
	}
	w->calls[rank][thread] = ++w->serial;
	put(w, rank, thread, DF_REC_CALL_ENTER, w->serial, call, object, detail);
}

static void for_task(struct recorder *w, int rank, const struct df_mop *op, int task,
		     enum df_rec_type type, uint64_t a)
{
	int nr = op->kind == DF_MOP_P2P ? op->nr_p2p : op->kind == DF_MOP_COLL;

	for (int i = 0; i < nr; i++) {
		struct df_rec *r = put(w, rank, 9, type, w->ops[task] + (uint64_t)i, a, 0, 0);
		int comm = op->kind == DF_MOP_COLL ? op->comm : op->p2p[i].comm;

		r->comm = w->comm[rank][comm];
		r->rank = df_ranks_below(&w->p->comms[comm], rank);
	}
}

static void on_event(void *arg, enum df_model_event ev, int rank, int thread, size_t step,
		     const struct df_mop *op, int task)
{
	struct recorder *w = arg;

	(void)step;
	switch (ev) {
	case DF_ME_ENTER:
		enter(w, rank, thread, op);
		break;
	case DF_ME_LEAVE:
		if (op->kind == DF_MOP_EXIT && !w->opts.crash) {
			put(w, rank, thread, DF_REC_PROC_EXIT, 0, 0, 0, 0);
			w->images[rank].h->closed = 1;
		}
		if (op->kind == DF_MOP_EXIT)
			df_ranks_add(&w->crashed, rank);
		if (w->calls[rank][thread])
			put(w, rank, thread, DF_REC_CALL_EXIT, w->calls[rank][thread], 0, 0, 0);
		w->calls[rank][thread] = 0;
		break;
	case DF_ME_ISSUE:
		issue(w, rank, thread, op, task);
		break;
	case DF_ME_NO_SLOT:
		for_task(w, rank, op, task, DF_REC_OP_SLOT, 0);
		break;
	case DF_ME_START:
		if (w->p->cap)
			for_task(w, rank, op, task, DF_REC_OP_SLOT, 1);
		for_task(w, rank, op, task, DF_REC_OP_START, 0);
		break;
	case DF_ME_DONE:
		for_task(w, rank, op, task, DF_REC_OP_DONE, 0);
		break;
	}
}

int tb_run(const struct df_mprog *p, const struct tb_opts *opts, struct tb_image *images)
{
	struct recorder w = {.p = p, .images = images};
	struct df_model_result res;

	if (opts)
		w.opts = *opts;
	w.clock = 1000000000;
	for (int k = 0; k < p->nr_ranks; k++) {
		size_t nr = 1024;

		for (int t = 0; t < p->nr_threads[k]; t++)
			nr += 32 * p->threads[k][t].nr_ops;
		tb_image_init(&images[k], k, p->nr_ranks, nr);
		images[k].h->rules = w.opts.rules ? w.opts.rules : 1;
		images[k].h->slots = (uint32_t)p->cap;
		images[k].h->queues = p->one_queue ? 1 : 0;
		put(&w, k, 0, DF_REC_PROC_START, 0, images[k].h->pid, 1, 0);
		for (uint64_t s = 1; s <= 16; s++)
			put(&w, k, 0, DF_REC_STREAM_CREATE, 0, s, 1ULL << 32, 0);
		put(&w, k, 0, DF_REC_STREAM_CREATE, 0, LEGACY_STREAM, 2ULL << 32, 0);
		for (int c = 0; c < p->nr_comms && c < NR_COMMS; c++) {
			struct df_rec *r;

			if (!df_ranks_has(&p->comms[c], k))
				continue;
			w.comm[k][c] = tb_comm(&images[k], 0xc0ffee00 + (uint64_t)c,
					       df_ranks_count(&p->comms[c]),
					       df_ranks_below(&p->comms[c], k), 0);
			r = put(&w, k, 0, DF_REC_COMM_READY, 0, 0xc0ffee00 + (uint64_t)c,
				(uint64_t)df_ranks_count(&p->comms[c]), 0);
			r->comm = w.comm[k][c];
			r->rank = df_ranks_below(&p->comms[c], k);
		}
	}
	if (df_model_run(p, DF_MODEL_BASE, NULL, on_event, &w, &res))
		DIE("no memory");
	w.clock += 1000000;
	for (int k = 0; k < p->nr_ranks; k++) {
		if (df_ranks_has(&w.crashed, k))
			continue;
		for (int d = 0; d < p->nr_ranks && w.opts.crash; d++) {
			if (!(df_ranks_has(&w.crashed, d)))
				continue;
			for (int c = 0; c < p->nr_comms; c++) {
				struct df_rec *r;

				if (!w.comm[k][c] || !w.comm[d][c])
					continue;
				r = put(&w, k, 0, DF_REC_PEER_DEAD,
					(uint64_t)df_ranks_below(&p->comms[c], d), 7,
					images[d].h->pid, 0);
				r->comm = w.comm[k][c];
				r->rank = df_ranks_below(&p->comms[c], k);
			}
		}
	}
	for (int k = 0; k < p->nr_ranks && w.opts.quiet_ms >= 0; k++) {
		uint64_t ms = w.opts.quiet_ms ? (uint64_t)w.opts.quiet_ms : 60000;

		if (df_ranks_has(&w.crashed, k))
			continue;
		images[k].clock = w.clock + ms * 1000000;
		if (res.hung)
			tb_rec(&images[k], DF_REC_STALL, 0, ms, res.nr_unfinished, 0);
	}
	free(w.ops);
	return res.hung;
}

struct df_check_result *tb_check(const struct tb_image *images, int nr, struct df_check_set **set)
{
	struct df_check_result *r;
	char name[32];
	int rc;

	*set = df_check_set_new();
	for (int i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "rank%d", i);
		rc = df_check_add_image(*set, images[i].h, images[i].bytes, name);
		if (rc)
			DIE("%s", df_check_error(*set));
	}
	rc = df_check_run(*set, NULL, &r);
	if (rc)
		DIE("df_check_run: %d", rc);
	return r;
}

char *tb_printed(const struct df_check_result *r, int json)
{
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);

	if (!f)
		DIE("no memory");
	if (json)
		df_check_print_json(r, f);
	else
		df_check_print(r, f);
	fclose(f);
	return text;
}

/* ---- text ------------------------------------------------------------------------------------ */

static const char *source(void)
{
	return getenv("SRC") ? getenv("SRC") : ".";
}

FILE *tb_open(const char *name)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/tests/trace/%s", source(), name);
	f = fopen(path, "r");
	if (!f)
		DIE("%s: not found; run from the root of the source, or set SRC", path);
	return f;
}

FILE *tb_random(uint64_t seed, int nr)
{
	char cmd[600];
	FILE *f;

	snprintf(cmd, sizeof(cmd),
		 "cd '%s' && python3 tests/trace/programs.py random tests/model %llu %d", source(),
		 (unsigned long long)(seed % 1000000007), nr);
	f = popen(cmd, "r");
	if (!f)
		DIE("no shell");
	return f;
}

static struct df_ranks parse_set(const char *s)
{
	struct df_ranks m = {0};

	for (char *end; *s; s = *end ? end + 1 : end)
		df_ranks_add(&m, (int)strtol(s, &end, 10));
	return m;
}

static void parse_op(struct tb_prog *out, char *line)
{
	static const struct {
		const char *word;
		enum df_mop_kind kind;
		const char *args; /* s stream, o object, m members */
	} steps[] = {
		{"kernel", DF_MOP_KERNEL, "s"}, {"stuck", DF_MOP_STUCK, "s"},
		{"legacy", DF_MOP_LEGACY, ""},	{"record", DF_MOP_RECORD, "os"},
		{"wait", DF_MOP_WAIT, "os"},	{"ssync", DF_MOP_SSYNC, "s"},
		{"esync", DF_MOP_ESYNC, "o"},	{"dsync", DF_MOP_DSYNC, ""},
		{"isync", DF_MOP_ISYNC, ""},	{"hbar", DF_MOP_HBAR, "om"},
		{"conn", DF_MOP_CONN, "om"},	{"init", DF_MOP_INIT, "om"},
		{"hwait", DF_MOP_HWAIT, "o"},	{"hsignal", DF_MOP_HSIGNAL, "o"},
		{"exit", DF_MOP_EXIT, ""},	{"spin", DF_MOP_SPIN, ""},
	};
	struct df_mop op = {0};
	char *save, *word;
	int rank, thread;

	strtok_r(line, " \n", &save);
	rank = atoi(strtok_r(NULL, " \n", &save));
	thread = atoi(strtok_r(NULL, " \n", &save));
	word = strtok_r(NULL, " \n", &save);
#define NEXT() strtok_r(NULL, " \n", &save)
	if (!strcmp(word, "coll")) {
		uint64_t kind, count;

		op.kind = DF_MOP_COLL;
		op.comm = atoi(NEXT());
		op.stream = atoi(NEXT());
		kind = strtoull(NEXT(), NULL, 10);
		count = strtoull(NEXT(), NULL, 10);
		op.sig = kind | count << 8;
		op.reads = strtoull(NEXT(), NULL, 16);
		op.writes = strtoull(NEXT(), NULL, 16);
	} else if (!strcmp(word, "p2p")) {
		op.kind = DF_MOP_P2P;
		op.stream = atoi(NEXT());
		op.nr_p2p = atoi(NEXT());
		for (int i = 0; i < op.nr_p2p && i < DF_MOP_MAX_P2P; i++) {
			op.p2p[i].send = !strcmp(NEXT(), "send");
			op.p2p[i].comm = atoi(NEXT());
			op.p2p[i].peer = atoi(NEXT());
			op.p2p[i].count = strtoull(NEXT(), NULL, 10);
		}
	} else {
		size_t i = 0;

		while (i < sizeof(steps) / sizeof(steps[0]) && strcmp(steps[i].word, word))
			i++;
		if (i == sizeof(steps) / sizeof(steps[0]))
			DIE("unknown step %s", word);
		op.kind = steps[i].kind;
		for (const char *a = steps[i].args; *a; a++) {
			if (*a == 's')
				op.stream = atoi(NEXT());
			else if (*a == 'o')
				op.object = atoi(NEXT());
			else
				op.members = parse_set(NEXT());
		}
	}
	if (df_mprog_add(&out->p, rank, thread, &op))
		DIE("bad step");
}

int tb_read(FILE *in, struct tb_prog *out)
{
	char line[1024], *save, *w;

	memset(out, 0, sizeof(*out));
	while (fgets(line, sizeof(line), in)) {
		if (!strncmp(line, "prog ", 5)) {
			strtok_r(line, " \n", &save);
			snprintf(out->name, sizeof(out->name), "%s", NEXT());
			snprintf(out->label, sizeof(out->label), "%s", NEXT());
			while ((w = NEXT())) {
				if (!strncmp(w, "cap=", 4))
					out->p.cap = atoi(w + 4);
				else if (!strncmp(w, "launchq=", 8))
					out->p.launch_queue = atoi(w + 8);
				else if (!strcmp(w, "one_queue"))
					out->p.one_queue = 1;
				else if (!strcmp(w, "buffered"))
					out->p.buffered = 1;
				else
					snprintf(out->verdict, sizeof(out->verdict), "%s", w);
			}
		} else if (!strncmp(line, "comm ", 5)) {
			struct df_ranks members;

			line[strcspn(line, "\n")] = 0;
			members = parse_set(line + 5);
			df_mprog_comm(&out->p, &members);
		} else if (!strncmp(line, "op ", 3)) {
			parse_op(out, line);
		} else if (!strncmp(line, "end", 3)) {
			return 1;
		}
	}
	return 0;
}
