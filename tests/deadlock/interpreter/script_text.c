/* Reads scripts (script.h) from text, builds them in memory, and prints them as text. */
#include "script.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define SC_FAIL(s, ...) (snprintf((s)->error, sizeof((s)->error), __VA_ARGS__), -1)

/*
 * `args` has a letter for each word that follows the step's name: c and C a communicator, s and S a
 * stream, p a peer, e an event, f a flag, b a barrier and its ranks, g a graph, B a buffer, T a
 * buffer that the step writes, D up to two buffers (source and destination), n a number, v options.
 */
static const struct sc_word {
	const char *name;
	enum sc_kind kind;
	int coll;
	const char *args;
} sc_words[] = {
	{"AR", SC_COLL, SC_AR, "csv"},
	{"BC", SC_COLL, SC_BC, "csv"},
	{"RED", SC_COLL, SC_RED, "csv"},
	{"AG", SC_COLL, SC_AG, "csv"},
	{"RS", SC_COLL, SC_RS, "csv"},
	{"A2A", SC_COLL, SC_A2A, "csv"},
	{"send", SC_SEND, 0, "cpsv"},
	{"recv", SC_RECV, 0, "cpsv"},
	{"{", SC_OPEN, 0, ""},
	{"}", SC_CLOSE, 0, ""},
	{"K", SC_WORK, 0, "sD"},
	{"fn", SC_FN, 0, "s"},
	{"stuck", SC_STUCK, 0, "s"},
	{"leg", SC_LEGACY, 0, ""},
	{"rec", SC_REC, 0, "es"},
	{"wait", SC_WAIT, 0, "es"},
	{"esync", SC_ESYNC, 0, "e"},
	{"epoll", SC_EPOLL, 0, "e"},
	{"ssync", SC_SSYNC, 0, "s"},
	{"spoll", SC_SPOLL, 0, "s"},
	{"anypoll", SC_ANYPOLL, 0, "sS"},
	{"dsync", SC_DSYNC, 0, ""},
	{"isync", SC_FREE, 0, ""},
	{"halloc", SC_HALLOC, 0, ""},
	{"hreg", SC_HREG, 0, ""},
	{"hcopy", SC_HCOPY, 0, ""},
	{"hs", SC_HS, 0, "f"},
	{"hw", SC_HW, 0, "f"},
	{"lock", SC_LOCK, 0, "f"},
	{"unlock", SC_UNLOCK, 0, "f"},
	{"glock", SC_GLOCK, 0, "f"},
	{"gunlock", SC_GUNLOCK, 0, "f"},
	{"cwait", SC_CWAIT, 0, "f"},
	{"csig", SC_CSIG, 0, "f"},
	{"get", SC_GET, 0, "f"},
	{"put", SC_PUT, 0, "f"},
	{"start", SC_START, 0, "n"},
	{"hbar", SC_HBAR, 0, "b"},
	{"name", SC_NAME, 0, "f"},
	{"init", SC_INIT, 0, "c"},
	{"ninit", SC_NINIT, 0, "c"},
	{"apoll", SC_APOLL, 0, "c"},
	{"awatch", SC_AWATCH, 0, "c"},
	{"split", SC_SPLIT, 0, "cC"},
	{"shrink", SC_SHRINK, 0, "cC"},
	{"fin", SC_FIN, 0, "c"},
	{"destroy", SC_DESTROY, 0, "c"},
	{"exit", SC_EXIT, 0, ""},
	{"fail", SC_EXIT, 1, ""},
	{"quit", SC_QUIT, 0, ""},
	{"return", SC_RETURN, 0, ""},
	{"kill", SC_KILL, 0, ""},
	{"spin", SC_SPIN, 0, ""},
	{"fork", SC_FORK, 0, ""},
	{"sleep", SC_SLEEP, 0, "n"},
	{"cap", SC_CAP, 0, "sg"},
	{"endcap", SC_ENDCAP, 0, "sg"},
	{"launch", SC_LAUNCH, 0, "gs"},
	{"read", SC_READ, 0, "Bv"},
	{"tread", SC_TREAD, 0, "Bv"},
	{"peek", SC_PEEK, 0, "Bv"},
	{"poke", SC_POKE, 0, "Bv"},
	{"far", SC_FAR, 0, "BTv"},
};

int sc_name(struct sc_names *t, const char *name)
{
	int i;

	for (i = 0; i < t->nr; i++)
		if (!strcmp(t->v[i], name))
			return i;
	if (!(t->nr & (t->nr - 1))) /* `v` grows when `nr` is a power of two */
		t->v = realloc(t->v, (size_t)(t->nr ? 2 * t->nr : 1) * sizeof(*t->v));
	snprintf(t->v[t->nr], sizeof(*t->v), "%s", name);
	return t->nr++;
}

int sc_buf(struct script *s, const char *name, int rank)
{
	char own[24];
	int nr = s->buf.nr, id;

	if (!name) {
		snprintf(own, sizeof(own), ".%d.%d", rank, nr);
		name = own;
		/* No step refers to an unnamed buffer by name, so do not search for the name. */
		if (!(nr & (nr - 1)))
			s->buf.v = realloc(s->buf.v, (size_t)(nr ? 2 * nr : 1) * sizeof(*s->buf.v));
		snprintf(s->buf.v[nr], sizeof(*s->buf.v), "%s", own);
		id = s->buf.nr++;
	} else {
		id = sc_name(&s->buf, name);
	}
	if (id == nr) {
		s->kinds = realloc(s->kinds, (size_t)s->buf.nr);
		s->kinds[id] = 0;
	}
	return id;
}

static struct sc_step *sc_add(struct script *s, int rank, int thread)
{
	struct sc_thread *t = &s->threads[rank][thread];

	if (!(t->nr & (t->nr - 1)))
		t->v = realloc(t->v, (size_t)(t->nr ? 2 * t->nr : 1) * sizeof(*t->v));
	memset(&t->v[t->nr], 0, sizeof(*t->v));
	if (s->nr_threads[rank] <= thread)
		s->nr_threads[rank] = thread + 1;
	return &t->v[t->nr++];
}

int sc_comm_add(struct script *s, const char *name, int late)
{
	int id = sc_name(&s->comm, name);

	s->comms = realloc(s->comms, (size_t)s->comm.nr * sizeof(*s->comms));
	memset(&s->comms[id], 0, sizeof(s->comms[id]));
	s->comms[id].late = late;
	return id;
}

void sc_comm_member(struct sc_comm *c, int rank)
{
	c->ranks = realloc(c->ranks, (size_t)(c->nr + 1) * sizeof(int));
	c->ranks[c->nr++] = rank;
	c->members |= 1ULL << rank;
}

int sc_comm_rank(const struct sc_comm *c, int rank)
{
	int i;

	for (i = 0; i < c->nr; i++)
		if (c->ranks[i] == rank)
			return i;
	return -1;
}

static int sc_find_comm(struct script *s, const char *w)
{
	int i;

	for (i = 0; i < s->comm.nr; i++)
		if (!strcmp(s->comm.v[i], w))
			return i;
	return SC_FAIL(s, "no communicator %s", w);
}

static int sc_option(struct script *s, struct sc_step *st, const char *w)
{
	static const char *const types[] = {"i32", "f32", "bf16", "i8"}, *const ops[] = {"sum",
											 "max",
											 "avg"};
	int i;

	if (!strncmp(w, "n=", 2)) {
		st->count = strtoull(w + 2, NULL, 10);
	} else if (!strncmp(w, "in=", 3)) {
		st->in = sc_buf(s, w + 3, 0);
	} else if (!strncmp(w, "out=", 4)) {
		st->out = sc_buf(s, w + 4, 0);
	} else if (!strncmp(w, "buf=", 4)) {
		st->in = st->out = sc_buf(s, w + 4, 0);
	} else if (!strncmp(w, "t=", 2)) {
		for (i = 0; i < 4 && strcmp(w + 2, types[i]); i++)
			;
		st->type = i;
		return i < 4 ? 0 : SC_FAIL(s, "unknown type %s", w);
	} else if (!strncmp(w, "op=", 3)) {
		for (i = 0; i < 3 && strcmp(w + 3, ops[i]); i++)
			;
		st->redop = i;
		return i < 3 ? 0 : SC_FAIL(s, "unknown operator %s", w);
	} else {
		return SC_FAIL(s, "unknown option %s", w);
	}
	return 0;
}

static int sc_parse_step(struct script *s, int rank, int thread, char *text)
{
	char *save, *w = strtok_r(text, " \t\n", &save);
	const struct sc_word *d = NULL;
	struct sc_step st = {.in = -1, .out = -1, .count = 4, .comm2 = -1};
	const char *a;
	size_t i;

	if (!w)
		return 0;
	for (i = 0; i < sizeof(sc_words) / sizeof(*sc_words); i++)
		if (!strcmp(sc_words[i].name, w))
			d = &sc_words[i];
	if (!d)
		return SC_FAIL(s, "unknown step %s", w);
	st.kind = d->kind;
	st.coll = d->coll;
	for (a = d->args; *a; a++) {
		w = strtok_r(NULL, " \t\n", &save);
		if (*a == 'v') {
			for (; w; w = strtok_r(NULL, " \t\n", &save))
				if (sc_option(s, &st, w))
					return -1;
			break;
		}
		if (*a == 'D') {
			if (w)
				st.in = sc_buf(s, w, rank);
			w = strtok_r(NULL, " \t\n", &save);
			if (w)
				st.out = sc_buf(s, w, rank);
			break;
		}
		if (!w)
			return SC_FAIL(s, "%s: too few words", d->name);
		switch (*a) {
		case 'c':
			st.comm = sc_find_comm(s, w);
			break;
		case 'C':
			st.comm2 = sc_find_comm(s, w);
			break;
		case 's':
			st.stream = sc_name(&s->stream, w);
			break;
		case 'S':
			st.object = sc_name(&s->stream, w);
			break;
		case 'p':
			st.peer = atoi(w);
			break;
		case 'e':
			st.object = sc_name(&s->event, w);
			break;
		case 'f':
			st.object = sc_name(&s->flag, w);
			break;
		case 'g':
			st.object = sc_name(&s->graph, w);
			break;
		case 'n':
			st.count = strtoull(w, NULL, 10);
			break;
		case 'B':
			st.in = sc_buf(s, w, rank);
			break;
		case 'T':
			st.out = sc_buf(s, w, rank);
			break;
		default:
			st.object = sc_name(&s->bar, w);
			while ((w = strtok_r(NULL, " \t\n", &save)))
				st.members |= 1ULL << atoi(w);
		}
		if (*s->error)
			return -1;
	}
	if (st.kind == SC_COLL && st.in < 0)
		st.in = sc_buf(s, NULL, rank);
	if (st.kind == SC_COLL && st.out < 0)
		st.out = sc_buf(s, NULL, rank);
	if (st.kind == SC_POKE) {
		st.out = st.in;
		st.in = -1;
	}
	if ((st.kind == SC_SEND || st.kind == SC_RECV) && st.in < 0)
		st.in = st.out = sc_buf(s, NULL, rank);
	if ((st.kind == SC_COLL || st.kind == SC_SEND || st.kind == SC_RECV) &&
	    sc_comm_rank(&s->comms[st.comm], rank) < 0)
		return SC_FAIL(s, "rank %d is not in communicator %s", rank, s->comm.v[st.comm]);
	if (st.kind == SC_START && (st.count < 1 || st.count >= SC_THREADS))
		return SC_FAIL(s, "start: no thread %llu", (unsigned long long)st.count);
	if (st.kind == SC_START)
		s->started[rank] |= (uint8_t)(1 << (st.count & 7));
	*sc_add(s, rank, thread) = st;
	return 0;
}

static int sc_line(struct script *s, char *line)
{
	char *save, *w, *p, *colon, word[24];
	int rank, thread = 0, id;

	line[strcspn(line, "#\n")] = 0;
	while (isspace((unsigned char)*line))
		line++;
	if (!*line)
		return 0;
	if (isdigit((unsigned char)*line)) {
		rank = (int)strtol(line, &colon, 10);
		if (*colon == '.')
			thread = (int)strtol(colon + 1, &colon, 10);
		if (*colon != ':' || rank >= s->nr_ranks || thread >= SC_THREADS)
			return SC_FAIL(s, "bad rank: %s", line);
		for (p = strtok_r(colon + 1, ";", &save); p; p = strtok_r(NULL, ";", &save))
			if (sc_parse_step(s, rank, thread, p))
				return -1;
		return 0;
	}
	w = strtok_r(line, " \t", &save);
	snprintf(word, sizeof(word), "%s", w);
	w = strtok_r(NULL, " \t", &save);
	if (!strcmp(word, "prog") && w)
		snprintf(s->name, sizeof(s->name), "%s", w);
	else if (!strcmp(word, "class") && w)
		snprintf(s->cls, sizeof(s->cls), "%s", w);
	else if (!strcmp(word, "nccl") && w)
		snprintf(s->nccl, sizeof(s->nccl), "%s", w);
	else if (!strcmp(word, "ours") && w)
		snprintf(s->ours, sizeof(s->ours), "%s", w);
	else if (!strcmp(word, "strict") && w)
		snprintf(s->strict, sizeof(s->strict), "%s", w);
	else if (!strcmp(word, "release") && w)
		snprintf(s->release, sizeof(s->release), "%s", w);
	else if ((!strcmp(word, "differs") || !strcmp(word, "sure") || !strcmp(word, "says") ||
		  !strcmp(word, "lanes") || !strcmp(word, "agree")) &&
		 w)
		;
	else if (!strcmp(word, "slots") && w)
		s->slots = atoi(w);
	else if (!strcmp(word, "queues") && w)
		s->queues = atoi(w);
	else if (!strcmp(word, "procs"))
		s->procs = w ? atoi(w) : -1;
	else if (!strcmp(word, "shared"))
		s->shared = 1;
	else if (!strcmp(word, "after"))
		for (; w && (id = sc_find_comm(s, w)) >= 0; w = strtok_r(NULL, " \t", &save))
			s->after |= 1ULL << id;
	else if (!strcmp(word, "cold"))
		s->cold = 1;
	else if ((!strcmp(word, "pin") || !strcmp(word, "managed")) && w) {
		id = sc_buf(s, w, 0);
		s->kinds[id] = *word == 'p' ? SC_PINNED : SC_MANAGED;
	} else if (!strcmp(word, "ranks") && w && atoi(w) > 0 && atoi(w) <= SC_RANKS)
		s->nr_ranks = atoi(w);
	else if ((!strcmp(word, "comm") || !strcmp(word, "late")) && w) {
		id = sc_comm_add(s, w, *word == 'l');
		while ((w = strtok_r(NULL, " \t", &save)))
			sc_comm_member(&s->comms[id], atoi(w));
	} else {
		return SC_FAIL(s, "bad line: %s %s", word, w ? w : "");
	}
	return 0;
}

int sc_read(FILE *f, struct script *s)
{
	char *line = NULL;
	size_t cap = 0;
	int any = 0;

	memset(s, 0, sizeof(*s));
	while (getline(&line, &cap, f) > 0) {
		if (!strncmp(line, "end", 3) && isspace((unsigned char)line[3]))
			break;
		any |= *line != '#' && *line != '\n';
		if (sc_line(s, line)) {
			any = -1;
			break;
		}
	}
	free(line);
	return any;
}

void sc_free(struct script *s)
{
	int r, t;

	for (r = 0; r < SC_RANKS; r++)
		for (t = 0; t < SC_THREADS; t++)
			free(s->threads[r][t].v);
	for (r = 0; r < s->comm.nr; r++)
		free(s->comms[r].ranks);
	free(s->comms);
	free(s->kinds);
	free(s->comm.v);
	free(s->stream.v);
	free(s->event.v);
	free(s->flag.v);
	free(s->bar.v);
	free(s->graph.v);
	free(s->buf.v);
}

struct sc_step *sc_put(struct script *s, int r, int t, enum sc_kind kind, int stream)
{
	struct sc_step *st = sc_add(s, r, t);

	st->kind = kind;
	st->stream = stream;
	st->in = st->out = -1;
	st->comm2 = -1;
	st->count = 4;
	return st;
}

static void print_step(const struct script *s, const struct sc_step *st, FILE *f)
{
	const struct sc_word *w = NULL;
	size_t i;

	for (i = 0; i < sizeof(sc_words) / sizeof(*sc_words); i++)
		if (sc_words[i].kind == st->kind && sc_words[i].coll == st->coll)
			w = &sc_words[i];
	fprintf(f, "%s", w->name);
	switch (st->kind) {
	case SC_COLL:
		fprintf(f, " %s %s n=%llu", s->comm.v[st->comm], s->stream.v[st->stream],
			(unsigned long long)st->count);
		if (s->buf.v[st->in][0] != '.')
			fprintf(f, " in=%s", s->buf.v[st->in]);
		if (s->buf.v[st->out][0] != '.')
			fprintf(f, " out=%s", s->buf.v[st->out]);
		break;
	case SC_SEND:
	case SC_RECV:
		fprintf(f, " %s %d %s n=%llu", s->comm.v[st->comm], st->peer,
			s->stream.v[st->stream], (unsigned long long)st->count);
		if (s->buf.v[st->in][0] != '.')
			fprintf(f, " buf=%s", s->buf.v[st->in]);
		break;
	case SC_WORK:
	case SC_FN:
	case SC_SSYNC:
		fprintf(f, " %s", s->stream.v[st->stream]);
		break;
	case SC_REC:
	case SC_WAIT:
		fprintf(f, " %s %s", s->event.v[st->object], s->stream.v[st->stream]);
		break;
	case SC_ESYNC:
		fprintf(f, " %s", s->event.v[st->object]);
		break;
	case SC_HS:
	case SC_HW:
	case SC_LOCK:
	case SC_UNLOCK:
	case SC_GLOCK:
	case SC_GUNLOCK:
	case SC_CWAIT:
	case SC_CSIG:
	case SC_GET:
	case SC_PUT:
		fprintf(f, " %s", s->flag.v[st->object]);
		break;
	case SC_READ:
		fprintf(f, " %s", s->buf.v[st->in]);
		break;
	default:
		break;
	}
}

void sc_print(const struct script *s, FILE *f)
{
	int i, r, t;

	fprintf(f, "prog %s\nranks %d\nslots %d\nqueues %d\n", s->name, s->nr_ranks, s->slots,
		s->queues);
	for (i = 0; i < s->comm.nr; i++) {
		fprintf(f, "comm %s", s->comm.v[i]);
		for (r = 0; r < s->comms[i].nr; r++)
			fprintf(f, " %d", s->comms[i].ranks[r]);
		fputc('\n', f);
	}
	for (r = 0; r < s->nr_ranks; r++)
		for (t = 0; t < s->nr_threads[r]; t++) {
			fprintf(f, "%d.%d:", r, t);
			for (i = 0; i < s->threads[r][t].nr; i++) {
				fputs(i ? "; " : " ", f);
				print_step(s, &s->threads[r][t].v[i], f);
			}
			fputc('\n', f);
		}
	fprintf(f, "end\n");
}

void sc_copy(struct script *to, const struct script *from)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	sc_print(from, f);
	fclose(f);
	f = fmemopen(text, len, "r");
	if (sc_read(f, to) != 1) {
		fprintf(stderr, "%s\n%s", to->error, text);
		abort();
	}
	fclose(f);
	free(text);
}
