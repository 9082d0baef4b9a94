/*
 * The text form: one instruction a line. The reader is strict: an unknown word is an error that
 * names the line. One pass, bounded by its input.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/program/file/text.h"
#include "runtime/program/program_names.h"
#include "runtime/program/proto.h"

#define MAX_RANKS  4096
#define MAX_CHUNKS (1 << 20)
#define MAX_BLOCKS 4096

static const char *const places[] = {"no", "only", "both"};

/* ---- writing ----------------------------------------------------------------------------- */

static void write_inst(FILE *f, const struct df_prank *r, const struct df_pinst *in)
{
	const struct df_op_info *op = &df_op_info[in->op];

	fprintf(f, "  %s", op->text);
	if (op->reads)
		fprintf(f, " %c%u", "ios"[in->src_buf], in -> src);
	if (op->writes)
		fprintf(f, " %c%u", "ios"[in->dst_buf], in -> dst);
	if (op->recvs)
		fprintf(f, in->recv_chan ? " from %d@%u" : " from %d", in->recv_peer,
			in->recv_chan);
	if (op->sends)
		fprintf(f, in->send_chan ? " to %d@%u" : " to %d", in->send_peer, in->send_chan);
	if (in->cnt > 1)
		fprintf(f, " x%u", in->cnt);
	for (uint32_t d = in->deps; d; d = r->dep[d - 1].next)
		fprintf(f, "%s %u.%u", d == in->deps ? " after" : "", r->dep[d - 1].block,
			r->dep[d - 1].inst);
	fputc('\n', f);
}

int df_text_write(FILE *f, const struct df_plan *plan, const struct df_expects *x)
{
	fprintf(f, "dfprog %d\nname %s\nkind %s\nranks %d\n", DF_TEXT_VERSION, plan->name,
		df_coll_kind_name(plan->kind), plan->nranks);
	if (plan->root)
		fprintf(f, "root %d\n", plan->root);
	fprintf(f, "chunks %u\nin_place %s\nproto %s\n", plan->chunks, places[plan->in_place],
		df_proto_name(plan->proto));
	if (plan->min_bytes || plan->max_bytes)
		fprintf(f, "bytes %llu %llu\n", (unsigned long long)plan->min_bytes,
			(unsigned long long)plan->max_bytes);
	for (uint32_t i = 0; x && i < x->nr; i++) {
		fprintf(f, "expect %d.%u =", x->e[i].rank, x->e[i].chunk);
		for (uint32_t j = 0; j < x->e[i].nr; j++)
			fprintf(f, "%s %d.%u", j ? " +" : "", x->c[x->e[i].first + j].rank,
				x->c[x->e[i].first + j].chunk);
		fputc('\n', f);
	}
	for (int k = 0; k < plan->nranks; k++) {
		const struct df_prank *r = &plan->rank[k];

		fprintf(f, "\nrank %d in %u out %u scratch %u\n", k, r->in_chunks, r->out_chunks,
			r->scratch_chunks);
		for (uint32_t b = 0; b < r->nr_blocks; b++) {
			fprintf(f, " block %u\n", b);
			for (uint32_t i = 0; i < r->block[b].nr; i++)
				write_inst(f, r, &r->block[b].inst[i]);
		}
	}
	return ferror(f) ? -EIO : 0;
}

/* ---- reading ----------------------------------------------------------------------------- */

struct reader {
	const char *p, *end; /* of the current line: p moves */
	int line;
	struct df_perr *err;
	struct df_plan *plan;
	struct df_expects *expect;
	/* from the head, before the first rank */
	char name[64];
	int kind, nranks, root, in_place, proto, chunks;
	uint64_t min_bytes, max_bytes;
	int rank, block, version;
};

static int bad(struct reader *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int bad(struct reader *r, const char *fmt, ...)
{
	char text[200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return df_perr_set(r->err, r->line, r->rank, r->block, -1, "%s", text);
}

/* Reads the next word of the line into w (empty at the end of the line). */
static int word(struct reader *r, char *w, size_t size)
{
	size_t n = 0;

	while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\r'))
		r->p++;
	if (r->p < r->end && *r->p == '#')
		r->p = r->end;
	while (r->p < r->end && !isspace((unsigned char)*r->p)) {
		if (n == size - 1)
			return bad(r, "word is too long");
		w[n++] = *r->p++;
	}
	w[n] = 0;
	return 0;
}

/* Reads a decimal number at *s, at most max, and moves *s past it. */
static int number(struct reader *r, const char **s, uint64_t max, uint64_t *out)
{
	uint64_t v = 0;
	const char *p = *s;

	for (; isdigit((unsigned char)*p); p++) {
		if (v > (UINT64_MAX - 9) / 10)
			return bad(r, "number is too large: %.40s", *s);
		v = v * 10 + (uint64_t)(*p - '0');
	}
	if (p == *s)
		return bad(r, "expected a number: \"%.40s\"", *s);
	if (v > max)
		return bad(r, "%llu is more than %llu", (unsigned long long)v,
			   (unsigned long long)max);
	*s = p;
	*out = v;
	return 0;
}

static int number_word(struct reader *r, uint64_t max, uint64_t *out)
{
	char w[64];
	const char *s = w;
	int rc = word(r, w, sizeof(w));

	if (!rc)
		rc = number(r, &s, max, out);
	return rc ? rc : *s ? bad(r, "expected a number: \"%.40s\"", w) : 0;
}

static int int_word(struct reader *r, uint64_t min, uint64_t max, int *out)
{
	uint64_t v;
	int rc = number_word(r, max, &v);

	if (rc)
		return rc;
	if (v < min)
		return bad(r, "%llu is less than %llu", (unsigned long long)v,
			   (unsigned long long)min);
	*out = (int)v;
	return 0;
}

/* Reads "3.7" or, with sep '@', "3" or "3@7". */
static int two(struct reader *r, const char *s, char sep, uint64_t max_a, uint64_t max_b,
	       uint32_t *a, uint32_t *b)
{
	uint64_t x, y = 0;
	int rc = number(r, &s, max_a, &x);

	if (rc)
		return rc;
	if (*s == sep) {
		s++;
		rc = number(r, &s, max_b, &y);
		if (rc)
			return rc;
	} else if (sep == '.') {
		return bad(r, "expected two numbers with a point between");
	}
	if (*s)
		return bad(r, "\"%.20s\" after a number", s);
	*a = (uint32_t)x;
	*b = (uint32_t)y;
	return 0;
}

static int need_plan(struct reader *r)
{
	if (r->plan)
		return 0;
	if (r->kind < 0 || r->nranks < 1 || r->chunks < 1)
		return bad(r, "%s is missing before the first rank",
			   r->kind < 0	   ? "kind"
			   : r->nranks < 1 ? "ranks"
					   : "chunks");
	if (r->root >= r->nranks)
		return bad(r, "root %d of %d ranks", r->root, r->nranks);
	if ((uint64_t)r->nranks * (uint64_t)r->chunks > 1u << 24)
		return bad(r, "%d ranks of %d chunks are too many", r->nranks, r->chunks);
	r->plan =
		df_plan_create((enum df_coll_kind)r->kind, r->nranks, r->root, (uint32_t)r->chunks);
	if (!r->plan)
		return -ENOMEM;
	memcpy(r->plan->name, r->name, sizeof(r->name));
	r->plan->in_place = r->in_place;
	r->plan->proto = (enum df_proto)r->proto;
	r->plan->min_bytes = r->min_bytes;
	r->plan->max_bytes = r->max_bytes;
	return 0;
}

static int read_expect(struct reader *r)
{
	uint32_t rank, chunk, from, from_chunk;
	char w[64], sep[8];
	int rc = word(r, w, sizeof(w));

	if (!rc)
		rc = two(r, w, '.', MAX_RANKS, MAX_CHUNKS, &rank, &chunk);
	if (!rc)
		rc = word(r, sep, sizeof(sep));
	if (rc)
		return rc;
	if (strcmp(sep, "="))
		return bad(r, "expected '='");
	do {
		rc = word(r, w, sizeof(w));
		if (!rc)
			rc = two(r, w, '.', MAX_RANKS, MAX_CHUNKS, &from, &from_chunk);
		if (!rc)
			rc = df_expects_add(r->expect, (int)rank, chunk, (int)from, from_chunk);
		if (!rc)
			rc = word(r, sep, sizeof(sep));
		if (rc)
			return rc;
	} while (!strcmp(sep, "+"));
	return *sep ? bad(r, "expected '+' or the end of the line, not \"%s\"", sep) : 0;
}

static int read_rank(struct reader *r)
{
	static const char *const keys[] = {"in", "out", "scratch"};
	struct df_prank *k;
	char w[64];
	int rc = need_plan(r), v;

	r->block = -1;
	if (!rc)
		rc = int_word(r, 0, (uint64_t)r->nranks - 1, &v);
	if (rc)
		return rc;
	r->rank = v;
	k = &r->plan->rank[v];
	if (k->line)
		return bad(r, "is defined twice");
	k->line = (uint32_t)r->line;
	for (int i = 0; i < 3; i++) {
		rc = word(r, w, sizeof(w));
		if (!rc && strcmp(w, keys[i]))
			return bad(r, "expected \"%s\", not \"%s\"", keys[i], w);
		if (!rc)
			rc = int_word(r, 0, MAX_CHUNKS, &v);
		if (rc)
			return rc;
		*(i == 0   ? &k->in_chunks
		  : i == 1 ? &k->out_chunks
			   : &k->scratch_chunks) = (uint32_t)v;
	}
	return 0;
}

static int read_block(struct reader *r)
{
	int rc, v;

	if (r->rank < 0)
		return bad(r, "block outside of a rank");
	rc = int_word(r, 0, MAX_BLOCKS, &v);
	if (rc)
		return rc;
	if ((uint32_t)v != r->plan->rank[r->rank].nr_blocks)
		return bad(r, "block %d where %u is next", v, r->plan->rank[r->rank].nr_blocks);
	r->block = v;
	return df_prank_block(&r->plan->rank[r->rank], (uint32_t)v) ? 0 : -ENOMEM;
}

static int read_loc(struct reader *r, uint8_t *buf, uint32_t *chunk)
{
	char w[64];
	const char *s = w + 1, *b;
	uint64_t v;
	int rc = word(r, w, sizeof(w));

	if (rc)
		return rc;
	b = w[0] ? strchr("ios", w[0]) : NULL;
	if (!b)
		return bad(r, "expected i, o or s with a chunk number, not \"%s\"", w);
	rc = number(r, &s, MAX_CHUNKS, &v);
	if (rc)
		return rc;
	if (*s)
		return bad(r, "\"%.20s\" after a chunk number", s);
	*buf = w[0] == 'i' ? DF_BUF_IN : w[0] == 'o' ? DF_BUF_OUT : DF_BUF_SCRATCH;
	*chunk = (uint32_t)v;
	return 0;
}

static int read_inst(struct reader *r, int opcode)
{
	const struct df_op_info *op = &df_op_info[opcode];
	struct df_pinst in = {.op = (uint8_t)opcode,
			      .cnt = opcode != DF_OP_NOP,
			      .send_peer = -1,
			      .recv_peer = -1,
			      .line = (uint32_t)r->line};
	struct df_prank *k;
	uint32_t step, a, b;
	char w[64];
	int rc = 0, deps = 0;

	if (r->rank < 0 || r->block < 0)
		return bad(r, "%s outside of a block", op->text);
	k = &r->plan->rank[r->rank];
	if (op->reads)
		rc = read_loc(r, &in.src_buf, &in.src);
	if (!rc && op->writes)
		rc = read_loc(r, &in.dst_buf, &in.dst);
	if (rc)
		return rc;
	step = k->block[r->block].nr;
	if (!df_prank_add(k, (uint32_t)r->block, &in))
		return -ENOMEM;
	while (!(rc = word(r, w, sizeof(w))) && *w) {
		struct df_pinst *pi = &k->block[r->block].inst[step];

		if (deps) {
			rc = two(r, w, '.', MAX_BLOCKS, UINT32_MAX, &a, &b);
			if (rc)
				return rc;
			df_prank_dep(k, (uint32_t)r->block, step, a, b);
			deps++;
		} else if (!strcmp(w, "from") || !strcmp(w, "to")) {
			int to = *w == 't';

			rc = word(r, w, sizeof(w));
			if (!rc)
				rc = two(r, w, '@', (uint64_t)r->nranks - 1, UINT32_MAX, &a, &b);
			if (rc)
				return rc;
			if (to ? !op->sends : !op->recvs)
				return bad(r, "%s has no \"%s\"", op->text, to ? "to" : "from");
			*(to ? &pi->send_peer : &pi->recv_peer) = (int32_t)a;
			*(to ? &pi->send_chan : &pi->recv_chan) = b;
		} else if (*w == 'x') {
			const char *s = w + 1;
			uint64_t v;

			rc = number(r, &s, UINT16_MAX, &v);
			if (rc)
				return rc;
			if (*s || !v)
				return bad(r, "bad number of chunks \"%s\"", w);
			pi->cnt = (uint16_t)v;
		} else if (!strcmp(w, "after")) {
			deps = 1;
		} else {
			return bad(r, "unknown word \"%s\"", w);
		}
	}
	if (!rc && deps == 1)
		return bad(r, "\"after\" names no step");
	if (!rc && op->sends && k->block[r->block].inst[step].send_peer < 0)
		return bad(r, "%s without \"to\"", op->text);
	if (!rc && op->recvs && k->block[r->block].inst[step].recv_peer < 0)
		return bad(r, "%s without \"from\"", op->text);
	return rc ? rc : k->err;
}

static int choose(struct reader *r, const char *what, const char *const *names, int nr, int *out)
{
	char w[64];
	int rc = word(r, w, sizeof(w));

	for (*out = 0; !rc && *out < nr; ++*out) {
		if (!strcmp(w, names[*out]))
			return 0;
	}
	return rc ? rc : bad(r, "unknown %s \"%s\"", what, w);
}

static int read_line(struct reader *r)
{
	char w[64];
	int rc = word(r, w, sizeof(w));

	if (rc || !*w)
		return rc;
	if (!r->version) {
		if (strcmp(w, "dfprog"))
			return bad(r, "does not begin with \"dfprog %d\"", DF_TEXT_VERSION);
		rc = int_word(r, 1, UINT16_MAX, &r->version);
		if (!rc && r->version != DF_TEXT_VERSION)
			return bad(r, "version %d; this dfshim reads %d", r->version,
				   DF_TEXT_VERSION);
	} else if (!strcmp(w, "rank")) {
		rc = read_rank(r);
	} else if (!strcmp(w, "block")) {
		rc = read_block(r);
	} else if (!strcmp(w, "expect")) {
		rc = read_expect(r);
	} else if (r->plan) {
		int op;

		for (op = 0; op < DF_OP_NR && strcmp(w, df_op_info[op].text); op++)
			;
		if (op == DF_OP_NR)
			return bad(r, "unknown instruction \"%s\"", w);
		rc = read_inst(r, op);
	} else if (!strcmp(w, "name")) {
		size_t n;

		while (r->p < r->end && *r->p == ' ')
			r->p++;
		n = (size_t)(r->end - r->p);
		while (n && isspace((unsigned char)r->p[n - 1]))
			n--;
		if (n >= sizeof(r->name))
			return bad(r, "name is longer than %zu characters", sizeof(r->name) - 1);
		memset(r->name, 0, sizeof(r->name));
		memcpy(r->name, r->p, n);
		if (strlen(r->name) != n)
			return bad(r, "name holds a zero byte");
		r->p = r->end;
	} else if (!strcmp(w, "kind")) {
		rc = word(r, w, sizeof(w));
		if (!rc)
			r->kind = df_coll_kind_parse(w);
		if (!rc &&
		    (r->kind < 0 || (r->kind >= DF_COLL_SEND && r->kind != DF_COLL_CUSTOM))) {
			r->kind = -1;
			return bad(r, "unknown kind \"%s\"", w);
		}
	} else if (!strcmp(w, "ranks")) {
		rc = int_word(r, 1, MAX_RANKS, &r->nranks);
	} else if (!strcmp(w, "root")) {
		rc = int_word(r, 0, MAX_RANKS - 1, &r->root);
	} else if (!strcmp(w, "chunks")) {
		rc = int_word(r, 1, MAX_CHUNKS, &r->chunks);
	} else if (!strcmp(w, "in_place")) {
		rc = choose(r, "in_place", places, 3, &r->in_place);
	} else if (!strcmp(w, "proto")) {
		rc = choose(r, "proto", df_proto_names, DF_PROTO_NR, &r->proto);
	} else if (!strcmp(w, "bytes")) {
		rc = number_word(r, INT64_MAX, &r->min_bytes);
		if (!rc)
			rc = number_word(r, INT64_MAX, &r->max_bytes);
		if (!rc && r->max_bytes && r->max_bytes < r->min_bytes)
			return bad(r, "the range of bytes is empty");
	} else {
		return bad(r, "unknown word \"%s\"", w);
	}
	if (rc)
		return rc;
	rc = word(r, w, sizeof(w));
	return rc ? rc : *w ? bad(r, "\"%s\" at the end of the line", w) : 0;
}

int df_text_parse(const char *text, size_t size, struct df_plan **out, struct df_expects *expect,
		  struct df_perr *err)
{
	struct reader r = {
		.err = err, .expect = expect, .kind = -1, .in_place = 2, .rank = -1, .block = -1};
	const char *end = text + size;
	int rc = 0;

	while (!rc && text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text));

		r.line++;
		r.p = text;
		r.end = nl ? nl : end;
		rc = read_line(&r);
		text = nl ? nl + 1 : end;
	}
	if (!rc && !r.version)
		rc = bad(&r, "is empty");
	if (!rc)
		rc = need_plan(&r);
	if (rc) {
		df_plan_destroy(r.plan);
		return rc;
	}
	*out = r.plan;
	return 0;
}

/* ---- from programs ----------------------------------------------------------------------- */

struct df_plan *df_plan_from_programs(struct df_program *const *progs, int nranks,
				      enum df_coll_kind kind, int root)
{
	struct df_plan *plan = df_plan_create(kind, nranks, root, progs[0]->chunks);

	if (!plan)
		return NULL;
	snprintf(plan->name, sizeof(plan->name), "%s", progs[0]->name);
	plan->in_place = 2;
	plan->max_bytes = progs[0]->max_bytes;
	for (int k = 0; k < nranks; k++) {
		const struct df_program *p = progs[k];
		struct df_prank *r = &plan->rank[k];

		r->in_chunks = p->in_chunks;
		r->out_chunks = p->out_chunks;
		r->scratch_chunks = p->scratch_chunks;
		for (uint32_t b = 0; b < p->nr_blocks; b++) {
			const struct df_prog_block *blk = df_prog_block(p, b);

			if (!df_prank_block(r, b))
				break;
			for (uint32_t i = 0; i < blk->nr_inst; i++) {
				const struct df_inst *in = df_prog_inst(p, blk->first_inst + i);
				struct df_pinst pi = {.op = in->op,
						      .src_buf = in->src_buf,
						      .dst_buf = in->dst_buf,
						      .cnt = in->cnt,
						      .src = in->src,
						      .dst = in->dst,
						      .send_peer = -1,
						      .recv_peer = -1};

				if (in->send_conn != DF_NO_CONN) {
					const struct df_conn_spec *c =
						df_prog_conn(p, blk->first_send + in->send_conn);

					pi.send_peer = c->peer;
					pi.send_chan = c->channel;
				}
				if (in->recv_conn != DF_NO_CONN) {
					const struct df_conn_spec *c =
						df_prog_conn(p, blk->first_recv + in->recv_conn);

					pi.recv_peer = c->peer;
					pi.recv_chan = c->channel;
				}
				if (!df_prank_add(r, b, &pi))
					break;
				for (uint32_t d = 0; d < in->nr_deps; d++) {
					const struct df_dep *dep =
						df_prog_dep(p, in->first_dep + d);

					df_prank_dep(r, b, r->block[b].nr - 1, dep->block,
						     dep->inst);
				}
			}
		}
		if (r->err) {
			df_plan_destroy(plan);
			return NULL;
		}
	}
	return plan;
}
