/*
 * Imports MSCCL's XML in three stages: reads the elements into the file's own terms, checks what
 * can be checked without executing, translates into a plan. Every refusal names line and reason.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/vec.h"
#include "runtime/program/file/canon.h"
#include "runtime/program/file/msccl.h"
#include "runtime/program/file/xml.h"
#include "runtime/program/program_names.h"

#define MAX_RANKS  4096
#define MAX_CHUNKS (1 << 20)
#define MAX_CHANS  (1 << 16)
#define MAX_TBS	   4096
#define MAX_STEPS  (1 << 20)

struct step {
	int line, op;
	int sb, db;
	int64_t so, dn, cnt, depid, deps, hasdep;
};

struct tb {
	int line;
	int64_t id, send, recv, chan;
	struct step *step;
	uint32_t nr, cap;
};

struct gpu {
	int line;
	int64_t id, chunks[3];
	struct tb *tb;
	uint32_t nr, cap;
};

struct file {
	struct df_perr *err;
	int line, kind, proto, rccl;
	char name[64];
	int64_t n, nchan, total, in_place, oop, min_bytes, max_bytes, root;
	struct gpu *gpu;
	uint32_t nr, cap;
};

static void file_fini(struct file *f)
{
	for (uint32_t g = 0; g < f->nr; g++) {
		for (uint32_t t = 0; t < f->gpu[g].nr; t++)
			free(f->gpu[g].tb[t].step);
		free(f->gpu[g].tb);
	}
	free(f->gpu);
}

/* ---- reading ----------------------------------------------------------------------------- */

static int bad(const struct file *f, int line, const char *text, const char *what)
{
	return df_perr_set(f->err, line, -1, -1, -1, text, what);
}

#define ATTR(name, min, max, def, out)                                                             \
	do {                                                                                       \
		int rc_ = df_xml_int(x, name, min, max, def, out);                                 \
		if (rc_)                                                                           \
			return rc_;                                                                \
	} while (0)
#define MUST INT64_MIN

static int read_algo(struct file *f, struct df_xml *x)
{
	const char *s;

	f->line = x->at_line;
	if (strcmp(x->name, "algo"))
		return bad(f, x->at_line, "top element is <%s>, not <algo>", x->name);
	s = df_xml_get(x, "name");
	if (!s)
		return bad(f, f->line, "<%s>: attribute name is missing", "algo");
	if (strlen(s) >= sizeof(f->name))
		return bad(f, f->line, "name \"%.80s\" is longer than 63 characters", s);
	strcpy(f->name, s);
	s = df_xml_get(x, "proto");
	if (!s)
		return bad(f, f->line, "<%s>: attribute proto is missing", "algo");
	for (f->proto = DF_PROTO_SIMPLE; f->proto < DF_PROTO_NR; f->proto++) {
		if (!strcmp(s, df_proto_name((enum df_proto)f->proto)))
			break;
	}
	if (f->proto == DF_PROTO_NR)
		return bad(f, f->line, "proto \"%.40s\" is none of Simple, LL, LL128", s);
	s = df_xml_get(x, "coll");
	if (!s)
		return bad(f, f->line, "<%s>: attribute coll is missing", "algo");
	f->kind = df_coll_kind_parse(s);
	if (f->kind < 0 || (f->kind >= DF_COLL_SEND && f->kind != DF_COLL_CUSTOM))
		return bad(f, f->line, "coll \"%.40s\" is not a collective that a file can define",
			   s);
	f->rccl = df_xml_get(x, "outofplace") != NULL;
	ATTR("ngpus", 1, MAX_RANKS, MUST, &f->n);
	ATTR("nchannels", 1, MAX_CHANS, MUST, &f->nchan);
	ATTR("nchunksperloop", 1, MAX_CHUNKS, MUST, &f->total);
	ATTR("inplace", 0, 1, MUST, &f->in_place);
	ATTR("outofplace", 0, 1, !f->in_place, &f->oop);
	ATTR("minBytes", 0, INT64_MAX, 0, &f->min_bytes);
	ATTR("maxBytes", 0, INT64_MAX, -1, &f->max_bytes);
	ATTR("root", 0, f->n - 1, 0, &f->root);
	if (!f->in_place && !f->oop)
		return bad(f, f->line, "%s", "is for neither in-place nor out-of-place calls");
	/* RCCL's range is closed and 0 means no limit; MSCCL's is half open. */
	if (f->max_bytes == 0 && !f->rccl)
		return bad(f, f->line, "%s", "maxBytes=0 excludes every size");
	if (f->max_bytes == -1)
		f->max_bytes = 0;
	else if (!f->rccl)
		f->max_bytes--;
	if (f->max_bytes && f->max_bytes < f->min_bytes)
		return bad(f, f->line, "%s", "maxBytes is below minBytes");
	return 0;
}

static int read_gpu(struct file *f, struct df_xml *x)
{
	struct gpu *g;

	if (f->nr >= f->n)
		return bad(f, x->at_line, "%s", "more <gpu> elements than ngpus");
	g = DF_VEC_PUSH(f->gpu, f->nr, f->cap);
	if (!g)
		return -ENOMEM;
	*g = (struct gpu){.line = x->at_line};
	ATTR("id", 0, f->n - 1, MUST, &g->id);
	ATTR("i_chunks", 0, MAX_CHUNKS, MUST, &g->chunks[DF_BUF_IN]);
	ATTR("o_chunks", 0, MAX_CHUNKS, MUST, &g->chunks[DF_BUF_OUT]);
	ATTR("s_chunks", 0, MAX_CHUNKS, MUST, &g->chunks[DF_BUF_SCRATCH]);
	for (uint32_t i = 0; i + 1 < f->nr; i++) {
		if (f->gpu[i].id == g->id)
			return df_perr_set(f->err, g->line, (int)g->id, -1, -1, "is defined twice");
	}
	return 0;
}

static int read_tb(struct file *f, struct df_xml *x)
{
	struct gpu *g = &f->gpu[f->nr - 1];
	struct tb *t;

	if (g->nr >= MAX_TBS)
		return df_perr_set(f->err, x->at_line, (int)g->id, -1, -1, "more than %d blocks",
				   MAX_TBS);
	t = DF_VEC_PUSH(g->tb, g->nr, g->cap);
	if (!t)
		return -ENOMEM;
	*t = (struct tb){.line = x->at_line};
	ATTR("id", 0, MAX_TBS - 1, MUST, &t->id);
	ATTR("send", -1, f->n - 1, MUST, &t->send);
	ATTR("recv", -1, f->n - 1, MUST, &t->recv);
	ATTR("chan", 0, MAX_CHANS, MUST, &t->chan);
	if (t->chan >= f->nchan)
		return df_perr_set(f->err, t->line, (int)g->id, (int)t->id, -1,
				   "chan %d is outside 0..%d (nchannels)", (int)t->chan,
				   (int)f->nchan - 1);
	if (t->send == g->id || t->recv == g->id)
		return df_perr_set(f->err, t->line, (int)g->id, (int)t->id, -1,
				   "has itself as peer");
	return 0;
}

static int read_buf(const struct file *f, const struct df_xml *x, const char *name, int *out)
{
	const char *s = df_xml_get(x, name);

	if (!s)
		return bad(f, x->at_line, "<step>: attribute %s is missing", name);
	*out = !strcmp(s, "i")	 ? DF_BUF_IN
	       : !strcmp(s, "o") ? DF_BUF_OUT
	       : !strcmp(s, "s") ? DF_BUF_SCRATCH
				 : -1;
	return *out < 0 ? bad(f, x->at_line, "<step>: %s is none of i, o, s", name) : 0;
}

static int read_step(struct file *f, struct df_xml *x)
{
	struct gpu *g = &f->gpu[f->nr - 1];
	struct tb *t = &g->tb[g->nr - 1];
	const char *type = df_xml_get(x, "type");
	struct step *s;
	int64_t pos;
	int rc;

	if (t->nr >= MAX_STEPS)
		return bad(f, x->at_line, "%s", "too many steps in a block");
	s = DF_VEC_PUSH(t->step, t->nr, t->cap);
	if (!s)
		return -ENOMEM;
	*s = (struct step){.line = x->at_line};
	ATTR("s", 0, MAX_STEPS, MUST, &pos);
	if (pos != t->nr - 1)
		return df_perr_set(f->err, s->line, (int)g->id, (int)t->id, (int)pos,
				   "step number is not its position, %u", t->nr - 1);
	if (!type)
		return bad(f, x->at_line, "<%s>: attribute type is missing", "step");
	for (s->op = 0; s->op < DF_OP_NR && strcmp(type, df_op_info[s->op].xml); s->op++)
		;
	if (s->op == DF_OP_NR)
		return df_perr_set(f->err, s->line, (int)g->id, (int)t->id, (int)pos,
				   "unknown type \"%.30s\"", type);
	rc = read_buf(f, x, "srcbuf", &s->sb);
	if (!rc)
		rc = read_buf(f, x, "dstbuf", &s->db);
	if (rc)
		return rc;
	ATTR("srcoff", -1, MAX_CHUNKS, MUST, &s->so);
	ATTR("dstoff", -1, MAX_CHUNKS, MUST, &s->dn);
	ATTR("cnt", 0, UINT16_MAX, MUST, &s->cnt);
	ATTR("depid", -1, MAX_TBS, MUST, &s->depid);
	ATTR("deps", -1, MAX_STEPS, MUST, &s->deps);
	ATTR("hasdep", 0, 1, MUST, &s->hasdep);
	return 0;
}

static int read_file(struct file *f, struct df_xml *x)
{
	static const char *const level[] = {"algo", "gpu", "tb", "step"};
	int ev, rc;

	for (;;) {
		ev = df_xml_next(x);
		if (ev < 0)
			return ev;
		if (ev == DF_XML_END)
			return 0;
		if (ev == DF_XML_CLOSE)
			continue;
		if (x->depth > 4 || strcmp(x->name, level[x->depth - 1])) {
			if (x->depth == 1)
				return bad(f, x->at_line, "top element is <%s>, not <algo>",
					   x->name);
			return bad(f, x->at_line, "<%s> does not belong here", x->name);
		}
		rc = x->depth == 1   ? read_algo(f, x)
		     : x->depth == 2 ? read_gpu(f, x)
		     : x->depth == 3 ? read_tb(f, x)
				     : read_step(f, x);
		if (rc)
			return rc;
	}
}

/* ---- static checks ----------------------------------------------------------------------- */

static int gpu_cmp(const void *a, const void *b)
{
	const struct gpu *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int tb_cmp(const void *a, const void *b)
{
	const struct tb *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int check_step(const struct file *f, const struct gpu *g, const struct tb *t, uint32_t i)
{
	static const char *const buf[] = {"i", "o", "s"};
	const struct step *s = &t->step[i];
	const struct df_op_info *op = &df_op_info[s->op];

#define REFUSE(...) return df_perr_set(f->err, s->line, (int)g->id, (int)t->id, (int)i, __VA_ARGS__)
	if (op->sends && t->send < 0)
		REFUSE("%s in a block without a send peer", op->xml);
	if (op->recvs && t->recv < 0)
		REFUSE("%s in a block without a receive peer", op->xml);
	if (s->op != DF_OP_NOP && s->cnt < 1)
		REFUSE("cnt is 0");
	if (op->reads && (s->so < 0 || s->so + s->cnt > g->chunks[s->sb]))
		REFUSE("source %s[%d..%d] is outside the %d chunks of the buffer", buf[s->sb],
		       (int)s->so, (int)(s->so + s->cnt - 1), (int)g->chunks[s->sb]);
	if (op->writes && (s->dn < 0 || s->dn + s->cnt > g->chunks[s->db]))
		REFUSE("destination %s[%d..%d] is outside the %d chunks of the buffer", buf[s->db],
		       (int)s->dn, (int)(s->dn + s->cnt - 1), (int)g->chunks[s->db]);
	if (s->op == DF_OP_NOP && s->depid < 0)
		REFUSE("nop that waits for nothing");
	if (s->op == DF_OP_NOP && (i + 1 == t->nr || t->step[i + 1].depid < 0))
		REFUSE("nop is not followed by a step with a dependency");
	if ((s->depid < 0) != (s->deps < 0))
		REFUSE("depid %d with deps %d", (int)s->depid, (int)s->deps);
	if (s->depid >= 0) {
		const struct tb *d = s->depid < g->nr ? &g->tb[s->depid] : NULL;

		if (!d || s->deps >= d->nr)
			REFUSE("depends on block %d step %d, which does not exist", (int)s->depid,
			       (int)s->deps);
		if (d == t && s->deps >= i)
			REFUSE("depends on step %d of its own block, which is later", (int)s->deps);
		if (!d->step[s->deps].hasdep)
			REFUSE("depends on block %d step %d (line %d), which has hasdep=0",
			       (int)s->depid, (int)s->deps, d->step[s->deps].line);
	}
#undef REFUSE
	return 0;
}

/* Chunks of one count, from the chunks of the whole buffer. */
static int per_count(const struct file *f, uint32_t *out)
{
	uint32_t counts = df_coll_counts((enum df_coll_kind)f->kind, (int)f->n);

	if (f->total % counts)
		return df_perr_set(f->err, f->line, -1, -1, -1,
				   "nchunksperloop %d is not a multiple of ngpus %d", (int)f->total,
				   (int)f->n);
	*out = (uint32_t)f->total / counts;
	return 0;
}

static int check_file(struct file *f, uint32_t chunks)
{
	static const char *const names[] = {"i_chunks", "o_chunks"};
	int rc;

	if (f->nr != f->n)
		return df_perr_set(f->err, f->line, -1, -1, -1,
				   "%u <gpu> elements, but ngpus is %d", f->nr, (int)f->n);
	qsort(f->gpu, f->nr, sizeof(*f->gpu), gpu_cmp);
	for (uint32_t r = 0; r < f->nr; r++) {
		struct gpu *g = &f->gpu[r];

		for (int b = 0; b < 2 && f->kind != DF_COLL_CUSTOM; b++) {
			/*
			 * In-place files omit some chunks or count them twice; the larger buffer
			 * has the true length.
			 */
			uint32_t want = df_coll_chunks((enum df_coll_kind)f->kind, (int)f->n,
						       (int)f->root, (int)r, chunks, b);

			if (g->chunks[b] && want && g->chunks[b] != want && !f->in_place)
				return df_perr_set(f->err, g->line, (int)r, -1, -1,
						   "%s is %d, but %s over %d chunks has %u",
						   names[b], (int)g->chunks[b],
						   df_coll_kind_name((enum df_coll_kind)f->kind),
						   (int)f->total, want);
			if (g->chunks[b] > f->total)
				return df_perr_set(f->err, g->line, (int)r, -1, -1,
						   "%s is %d, more than nchunksperloop", names[b],
						   (int)g->chunks[b]);
		}
		if (g->nr)
			qsort(g->tb, g->nr, sizeof(*g->tb), tb_cmp);
		for (uint32_t t = 0; t < g->nr; t++) {
			if (g->tb[t].id != t)
				return df_perr_set(f->err, g->tb[t].line, (int)r, (int)g->tb[t].id,
						   -1, "block numbers are not 0..%u", g->nr - 1);
		}
		for (uint32_t t = 0; t < g->nr; t++) {
			for (uint32_t i = 0; i < g->tb[t].nr; i++) {
				rc = check_step(f, g, &g->tb[t], i);
				if (rc)
					return rc;
			}
		}
	}
	return 0;
}

/* ---- translation ------------------------------------------------------------------------- */

static int translate_gpu(const struct gpu *g, struct df_prank *r)
{
	/* By block: step of the file -> step of the plan. */
	uint32_t **to = calloc(g->nr + 1ull, sizeof(*to));
	int rc = -ENOMEM;

	if (!to)
		return rc;
	for (uint32_t t = 0; t < g->nr; t++) {
		uint32_t nr = 0;

		to[t] = calloc(g->tb[t].nr + 1ull, sizeof(**to));
		if (!to[t] || !df_prank_block(r, t))
			goto out;
		for (uint32_t i = 0; i < g->tb[t].nr; i++) {
			to[t][i] = nr;
			nr += g->tb[t].step[i].op != DF_OP_NOP;
		}
	}
	for (uint32_t t = 0; t < g->nr; t++) {
		const struct tb *tb = &g->tb[t];

		for (uint32_t i = 0; i < tb->nr; i++) {
			const struct step *s = &tb->step[i];
			const struct df_op_info *op = &df_op_info[s->op];
			struct df_pinst in = {.op = (uint8_t)s->op,
					      .cnt = (uint16_t)s->cnt,
					      .line = (uint32_t)s->line,
					      .send_peer = op->sends ? (int32_t)tb->send : -1,
					      .recv_peer = op->recvs ? (int32_t)tb->recv : -1,
					      .send_chan = op->sends ? (uint32_t)tb->chan : 0,
					      .recv_chan = op->recvs ? (uint32_t)tb->chan : 0};

			if (op->reads) {
				in.src_buf = (uint8_t)s->sb;
				in.src = (uint32_t)s->so;
			}
			if (op->writes) {
				in.dst_buf = (uint8_t)s->db;
				in.dst = (uint32_t)s->dn;
			}
			if (s->op != DF_OP_NOP && !df_prank_add(r, t, &in))
				goto out;
		}
	}
	for (uint32_t t = 0; t < g->nr; t++) {
		for (uint32_t i = 0; i < g->tb[t].nr; i++) {
			const struct step *s = &g->tb[t].step[i];

			if (s->depid < 0 || s->depid == t)
				continue;
			/* A nop's wait belongs to the step after it, which has the nop's number. */
			df_prank_dep(r, t, to[t][i], (uint32_t)s->depid, to[s->depid][s->deps]);
		}
	}
	rc = r->err;
out:
	for (uint32_t t = 0; t < g->nr; t++)
		free(to[t]);
	free(to);
	return rc;
}

/* Custom collectives whose name gives their meaning: AllToNext of the GC3 paper. */
static int known_custom(const struct file *f, struct df_expects *x)
{
	int forward = strstr(f->name, "forward") != NULL;

	if (f->kind != DF_COLL_CUSTOM || !strstr(f->name, "alltonext") || !x ||
	    (!forward && !strstr(f->name, "backward")))
		return 0;
	for (int r = 0; r < f->n; r++) {
		int from = forward ? r - 1 : r + 1;

		for (uint32_t c = 0; from >= 0 && from < f->n && c < f->gpu[r].chunks[DF_BUF_OUT];
		     c++) {
			if (df_expects_add(x, r, c, from, c))
				return -ENOMEM;
		}
	}
	return 0;
}

int df_msccl_parse(const char *text, size_t size, struct df_plan **out, struct df_expects *expect,
		   struct df_msccl_facts *facts, struct df_perr *err)
{
	struct file f = {.err = err};
	struct df_xml *x = malloc(sizeof(*x));
	struct df_plan *plan = NULL;
	struct df_program **progs = NULL;
	uint64_t scale;
	uint32_t chunks = 0;
	int rc;

	if (!x)
		return -ENOMEM;
	df_xml_init(x, text, size, err);
	rc = read_file(&f, x);
	free(x);
	if (!rc)
		rc = per_count(&f, &chunks);
	if (!rc)
		rc = check_file(&f, chunks);
	if (rc)
		goto out;
	rc = -ENOMEM;
	plan = df_plan_create((enum df_coll_kind)f.kind, (int)f.n, (int)f.root, chunks);
	if (!plan)
		goto out;
	memcpy(plan->name, f.name, sizeof(plan->name));
	plan->proto = (enum df_proto)f.proto;
	plan->in_place = f.in_place ? (f.oop ? 2 : 1) : 0;
	scale = df_coll_counts(plan->kind, plan->nranks);
	plan->min_bytes = ((uint64_t)f.min_bytes + scale - 1) / scale;
	plan->max_bytes = (uint64_t)f.max_bytes / scale;
	for (uint32_t r = 0; r < f.nr; r++) {
		struct gpu *g = &f.gpu[r];

		plan->rank[r].line = (uint32_t)g->line;
		plan->rank[r].in_chunks = (uint32_t)g->chunks[DF_BUF_IN];
		plan->rank[r].out_chunks = (uint32_t)g->chunks[DF_BUF_OUT];
		plan->rank[r].scratch_chunks = (uint32_t)g->chunks[DF_BUF_SCRATCH];
		rc = translate_gpu(g, &plan->rank[r]);
		if (rc)
			goto out;
	}
	rc = known_custom(&f, expect);
	if (!rc)
		rc = df_plan_finish(plan, 0, &progs);
	if (rc)
		goto out;
	if (facts) {
		*facts = (struct df_msccl_facts){.rccl = f.rccl, .total_chunks = (uint32_t)f.total};
		facts->slots_step = df_flow_min_slots(progs, plan->nranks, 0);
		facts->slots_chunk = df_flow_min_slots(progs, plan->nranks, 1);
		facts->max_bytes = df_flow_msccl_max_bytes(progs, plan->nranks, facts->total_chunks,
							   plan->proto);
	}
	rc = df_canon(plan, progs, facts ? &facts->split : NULL, err);
out:
	df_programs_free(progs, (int)f.n);
	file_fini(&f);
	if (rc) {
		df_plan_destroy(plan);
		return rc;
	}
	*out = plan;
	return 0;
}
