/*
 * Making scripts (script.h) in memory and writing them as text: what the generators of programs share.
 */
#ifndef DEADLOCK_MAKE_H
#define DEADLOCK_MAKE_H

#include <stdarg.h>
#include <time.h>
#include "script.h"

#define SLOT_KB	   64	      /* DFSHIM_SLOT_KB for all programs */
#define LARGE	   UNBUFFERED /* elements: more than the eight slots of a connector buffer */
#define UNBUFFERED 140000     /* as much as that is not */

static inline struct sc_step *put(struct script *s, int r, int t, enum sc_kind kind, int stream)
{
	struct sc_step *st = sc_add(s, r, t);

	st->kind = kind;
	st->stream = stream;
	st->in = st->out = -1;
	st->comm2 = -1;
	st->count = 4;
	return st;
}

static inline void print_step(const struct script *s, const struct sc_step *st, FILE *f)
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
		fprintf(f, " %s", s->flag.v[st->object]);
		break;
	case SC_READ:
		fprintf(f, " %s", s->buf.v[st->in]);
		break;
	default:
		break;
	}
}

static inline void print_script(const struct script *s, FILE *f)
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

static inline void copy(struct script *to, const struct script *from)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	print_script(from, f);
	fclose(f);
	f = fmemopen(text, len, "r");
	if (sc_read(f, to) != 1) {
		fprintf(stderr, "%s\n%s", to->error, text);
		abort();
	}
	fclose(f);
	free(text);
}

static inline void set(const char *name, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* An environment variable for the client. */
static inline void set(const char *name, const char *fmt, ...)
{
	char text[1000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	setenv(name, text, 1);
}

static inline double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

#endif
