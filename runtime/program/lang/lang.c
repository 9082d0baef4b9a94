/*
 * The tracer: executes a program text over versions of places and records what it moved where.
 * Enforces that only the latest reference to a place is used.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/vec.h"
#include "runtime/program/file/canon.h"
#include "runtime/program/lang/lang_int.h"
#include "runtime/program/program_names.h"

#define MAX_INDEX (1u << 20)

static uint64_t *version(struct df_lang *l, int rank, int buf, uint32_t index)
{
	struct df_lang_places *p;

	df_lang_place(l, rank, &buf, &index);
	p = &l->places[rank * DF_LANG_BUFS + buf];
	if (DF_VEC_ROOM(p->version, p->cap, index + 1ull)) {
		l->rc = -ENOMEM;
		return NULL;
	}
	for (; p->nr <= index; p->nr++)
		p->version[p->nr] = 0;
	return &p->version[index];
}

struct df_lang *df_lang_create(const struct df_lang_opts *o)
{
	struct df_lang *l;
	uint32_t n = (uint32_t)o->nranks;

	if (o->nranks < 1 || o->nranks > 4096 || !o->chunks || o->chunks > MAX_INDEX ||
	    o->root < 0 || o->root >= o->nranks || (uint64_t)n * o->chunks > DF_LANG_CHUNKS)
		return NULL;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->o = *o;
	snprintf(l->name, sizeof(l->name), "%s", o->name ? o->name : "program");
	l->nr_bufs = 2;
	df_perr_clear(&l->err);
	l->places = calloc((size_t)n * DF_LANG_BUFS, sizeof(*l->places));
	if (!l->places) {
		free(l);
		return NULL;
	}
	for (int r = 0; r < o->nranks && !l->rc; r++) {
		uint32_t in = df_coll_chunks(o->kind, o->nranks, o->root, r, o->chunks, 0);

		for (uint32_t c = 0; c < in; c++) {
			uint64_t *v = version(l, r, DF_IN, c);

			if (!v) {
				df_lang_destroy(l);
				return NULL;
			}
			*v = 1;
		}
	}
	return l;
}

void df_lang_destroy(struct df_lang *l)
{
	if (!l)
		return;
	for (int i = 0; i < l->o.nranks * DF_LANG_BUFS; i++)
		free(l->places[i].version);
	free(l->places);
	free(l->op);
	df_expects_fini(&l->expect);
	free(l);
}

void df_lang_place(const struct df_lang *l, int rank, int *buf, uint32_t *index)
{
	if (!l->o.in_place || *buf > DF_OUT || l->o.kind == DF_COLL_CUSTOM)
		return;
	*index = df_canon_unify(l->o.kind, l->o.chunks, rank, *buf, *index);
	*buf = DF_OUT;
}

static void fail(struct df_lang *l, const char *file, int line, int rank, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

static void fail(struct df_lang *l, const char *file, int line, int rank, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	if (l->rc)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(l->err.file, sizeof(l->err.file), "%s", file);
	l->rc = df_perr_set(&l->err, line, rank, -1, -1, "%s", text);
}

void df_lang_refuse(struct df_lang *l, const char *file, int line, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fail(l, file, line, -1, "%s", text);
}

int df_lang_buffer(struct df_lang *l, const char *name)
{
	for (int b = 2; b < l->nr_bufs; b++) {
		if (!strcmp(l->buf_name[b], name))
			return b;
	}
	if (l->nr_bufs == DF_LANG_BUFS) {
		fail(l, "", -1, -1, "more than %d named buffers", DF_LANG_BUFS - 2);
		return DF_OUT;
	}
	snprintf(l->buf_name[l->nr_bufs], sizeof(l->buf_name[0]), "%s", name);
	return l->nr_bufs++;
}

void df_lang_channel(struct df_lang *l, int channel)
{
	if (channel < 0 || channel > 4095)
		fail(l, "", -1, -1, "channel %d is outside 0..4095", channel);
	else
		l->channel = channel;
}

void df_lang_expect(struct df_lang *l, int rank, uint32_t chunk, int from, uint32_t from_chunk)
{
	if (!l->rc && df_expects_add(&l->expect, rank, chunk, from, from_chunk))
		l->rc = -ENOMEM;
}

static const char *buf_label(const struct df_lang *l, int buf)
{
	return buf == DF_IN ? "input" : buf == DF_OUT ? "output" : l->buf_name[buf];
}

/* Whether the place exists. Scratch grows as needed. */
static int in_range(struct df_lang *l, int rank, int buf, uint32_t index, uint32_t cnt,
		    const char *file, int line)
{
	uint64_t end = (uint64_t)index + cnt, size = MAX_INDEX;

	if (l->rc)
		return 0;
	if (rank < 0 || rank >= l->o.nranks)
		fail(l, file, line, -1, "rank %d of %d", rank, l->o.nranks);
	else if (buf < 0 || buf >= l->nr_bufs)
		fail(l, file, line, -1, "buffer %d of %d", buf, l->nr_bufs);
	else if (!cnt || cnt > UINT16_MAX)
		fail(l, file, line, rank, "a reference to %u chunks", cnt);
	if (l->rc)
		return 0;
	/* In place, both names can reach all of the one buffer. */
	if (buf <= DF_OUT) {
		uint32_t in =
			df_coll_chunks(l->o.kind, l->o.nranks, l->o.root, rank, l->o.chunks, 0);
		uint32_t out =
			df_coll_chunks(l->o.kind, l->o.nranks, l->o.root, rank, l->o.chunks, 1);

		size = buf == DF_IN ? in : out;
		if (l->o.in_place && l->o.kind != DF_COLL_CUSTOM && size < l->o.chunks)
			size = l->o.chunks;
	}
	if (end > size) {
		fail(l, file, line, rank, "%s has no chunk %llu: it has %llu", buf_label(l, buf),
		     (unsigned long long)(end - 1), (unsigned long long)size);
		return 0;
	}
	return 1;
}

/*
 * Combines the versions of the places into a stamp. Returns 0 if one of them holds nothing (*hole).
 */
static uint64_t stamp(struct df_lang *l, int rank, int buf, uint32_t index, uint32_t cnt,
		      uint32_t *hole)
{
	uint64_t h = 1;

	for (uint32_t i = 0; i < cnt; i++) {
		const uint64_t *v = version(l, rank, buf, index + i);

		if (!v)
			return 0;
		if (!*v) {
			*hole = index + i;
			return 0;
		}
		h = df_hash_u64(h, *v);
	}
	return h | 1;
}

struct df_ref df_lang_chunk(struct df_lang *l, int rank, int buf, uint32_t index, uint32_t cnt,
			    const char *file, int line)
{
	struct df_ref c = {l, rank, buf, index, cnt, 0};
	uint32_t hole = 0;

	if (!in_range(l, rank, buf, index, cnt, file, line))
		return c;
	c.stamp = stamp(l, rank, buf, index, cnt, &hole);
	if (!c.stamp)
		fail(l, file, line, rank, "%s chunk %u holds nothing yet", buf_label(l, buf), hole);
	return c;
}

static int fresh(struct df_ref c, const char *file, int line)
{
	uint32_t hole = 0;

	if (c.l->rc)
		return 0;
	if (c.stamp && stamp(c.l, c.rank, c.buf, c.index, c.cnt, &hole) == c.stamp)
		return 1;
	fail(c.l, file, line, c.rank,
	     "stale reference: %s chunk %u has been written since it was made",
	     buf_label(c.l, c.buf), c.index);
	return 0;
}

struct df_ref df_lang_part(struct df_ref c, uint32_t first, uint32_t cnt, const char *file,
			   int line)
{
	if (!fresh(c, file, line))
		return c;
	if (first > c.cnt || cnt > c.cnt - first) {
		fail(c.l, file, line, c.rank, "part %u..%u of a reference to %u chunks", first,
		     first + cnt - 1, c.cnt);
		return c;
	}
	return df_lang_chunk(c.l, c.rank, c.buf, c.index + first, cnt, file, line);
}

static struct df_ref record(int reduce, struct df_ref src, struct df_ref dst, const char *file,
			    int line)
{
	struct df_lang *l = src.l;
	uint32_t hole = 0;

	if (df_verify_too_large((uint64_t)(l->nr_ops + 1) * DF_MAX(l->o.instances, 1u), l->o.nranks,
				0)) {
		fail(l, file, line, -1,
		     "more than %u copies and reductions for %d ranks are too many to be verified: "
		     "take fewer ranks, channels or instances",
		     l->nr_ops, l->o.nranks);
		return dst;
	}
	if (DF_VEC_ROOM(l->op, l->cap_ops, l->nr_ops + 1)) {
		l->rc = -ENOMEM;
		return dst;
	}
	l->op[l->nr_ops++] =
		(struct df_lang_op){reduce,    src.rank, dst.rank,   src.buf, dst.buf, src.index,
				    dst.index, src.cnt,	 l->channel, file,    line};
	for (uint32_t i = 0; i < dst.cnt; i++) {
		uint64_t *v = version(l, dst.rank, dst.buf, dst.index + i);

		if (!v)
			return dst;
		*v += 1;
	}
	dst.stamp = stamp(l, dst.rank, dst.buf, dst.index, dst.cnt, &hole);
	return dst;
}

static int overlap(const struct df_lang *l, struct df_ref a, struct df_ref b)
{
	if (a.rank != b.rank)
		return 0;
	df_lang_place(l, a.rank, &a.buf, &a.index);
	df_lang_place(l, b.rank, &b.buf, &b.index);
	return a.buf == b.buf && a.index < b.index + b.cnt && b.index < a.index + a.cnt;
}

struct df_ref df_lang_copy(struct df_ref src, int rank, int buf, uint32_t index, const char *file,
			   int line)
{
	struct df_ref dst = {src.l, rank, buf, index, src.cnt, 0};

	if (!fresh(src, file, line) || !in_range(src.l, rank, buf, index, src.cnt, file, line))
		return dst;
	if (overlap(src.l, src, dst)) {
		int b = src.buf;
		uint32_t i = src.index, j = index;

		df_lang_place(src.l, rank, &b, &i);
		df_lang_place(src.l, rank, &buf, &j);
		if (i == j)
			return df_lang_chunk(src.l, rank, dst.buf, index, src.cnt, file, line);
		fail(src.l, file, line, rank, "copies chunks over themselves");
		return dst;
	}
	return record(0, src, dst, file, line);
}

struct df_ref df_lang_reduce(struct df_ref dst, struct df_ref src, const char *file, int line)
{
	if (!fresh(src, file, line) || !fresh(dst, file, line))
		return dst;
	if (src.cnt != dst.cnt) {
		fail(src.l, file, line, dst.rank, "reduces %u chunks with %u", dst.cnt, src.cnt);
		return dst;
	}
	if (overlap(src.l, src, dst)) {
		fail(src.l, file, line, dst.rank, "reduces a chunk with itself");
		return dst;
	}
	return record(1, src, dst, file, line);
}
