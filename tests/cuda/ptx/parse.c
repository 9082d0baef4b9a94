/*
 * Reads the text of a module: its kernels, variables and statements. Skips what an emulator does
 * not need (.pragma, .section, declarations of functions of other modules).
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/cuda/ptx/read.h"

#define MAX_OPERANDS 8

/* ---- statements ------------------------------------------------------------------------------ */

static void operand(struct reader *r, struct operand *o);

/* Reads a word that stands for a value: a register, a number, a variable. */
static void value(struct reader *r, struct operand *o)
{
	int minus = rd_take(r, '-'), ok;
	uint64_t v;

	rd_word(r, o->word, sizeof(o->word));
	o->kind = O_WORD;
	if (isdigit((unsigned char)o->word[0])) {
		v = rd_number(o->word, &ok);
		if (!ok)
			return rd_wrong(r, "'%s' is no number", o->word);
		o->kind = O_SLOT;
		o->s = rd_constant(r, minus ? 0 - v : v);
		return;
	}
	o->s = rd_register(r, o->word);
	if (o->s != NOWHERE) {
		o->kind = O_SLOT;
		return;
	}
	if (o->word[0] == '%') {
		o->special = rd_special(o->word);
		o->kind = o->special < 0 ? O_WORD : O_SPECIAL;
		return;
	}
	if (strcmp(o->word, "_") == 0) {
		o->kind = O_SLOT;
		return;
	}
	o->var = rd_variable(r, o->word);
	if (o->var && o->var->space != S_SHARED && o->var->space != S_LOCAL) {
		o->kind = O_SLOT;
		o->s = rd_constant(r, (uint64_t)(uintptr_t)(r->m->memory + o->var->offset));
	} else if (o->var) {
		o->kind = O_VARIABLE;
		o->offset =
			(int64_t)(o->var->dynamic ? rd_up(r->k->shared_bytes, 16) : o->var->offset);
	}
	for (uint32_t i = 0; i < r->k->nr_params; i++)
		if (strcmp(r->k->params[i].name, o->word) == 0) {
			o->kind = O_VARIABLE;
			o->param = &r->k->params[i];
			o->offset = (int64_t)o->param->offset;
		}
}

static void address(struct reader *r, struct operand *o)
{
	rd_need(r, '[');
	value(r, o);
	if (rd_take(r, '+'))
		o->offset += rd_integer(r);
	else if (rd_peek(r) == '-')
		o->offset += rd_integer(r);
	if (o->kind == O_SLOT || o->kind == O_VARIABLE)
		o->kind = O_ADDRESS;
	else
		rd_wrong(r, "an address of '%s'", o->word);
	rd_need(r, ']');
}

static void operand(struct reader *r, struct operand *o)
{
	memset(o, 0, sizeof(*o));
	o->s = NOWHERE;
	if (rd_peek(r) == '[')
		return address(r, o);
	if (rd_take(r, '{')) {
		o->kind = O_VECTOR;
		while (!r->bad && rd_peek(r) != '}') {
			struct operand one = {.s = NOWHERE};

			value(r, &one);
			if (one.kind != O_SLOT || o->nr == 4)
				return rd_wrong(r, "a vector of what is no register");
			o->v[o->nr++] = one.s;
			rd_take(r, ',');
		}
		return rd_need(r, '}');
	}
	value(r, o);
	/* setp may have two predicates: %p|%q */
	if (o->kind == O_SLOT && rd_take(r, '|')) {
		struct operand q = {.s = NOWHERE};

		value(r, &q);
		o->v[0] = q.s;
		o->nr = 1;
	}
}

static void statement(struct reader *r, const char *first)
{
	struct ptx_kernel *k = r->k;
	struct operand o[MAX_OPERANDS];
	struct insn in = {.pred = NOWHERE, .file = r->file, .src_line = r->src_line};
	char name[128], *go = NULL;
	int nr = 0;

	if (first) {
		snprintf(name, sizeof(name), "%s", first);
	} else {
		rd_need(r, '@');
		in.not_if = (uint8_t)rd_take(r, '!');
		in.pred = rd_register(r, rd_word(r, name, sizeof(name)));
		if (in.pred == NOWHERE)
			rd_wrong(r, "no register '%s'", name);
		rd_word(r, name, sizeof(name));
	}
	in.line = r->line;
	/*
	 * A call has operands of its own form. It is not decoded, and is a fault when it is
	 * executed.
	 */
	if (strncmp(name, "call", 4) == 0) {
		rd_skip_to(r, ';');
	} else {
		while (!r->bad && rd_peek(r) != ';') {
			if (nr == MAX_OPERANDS)
				return rd_wrong(r, "too many operands of '%s'", name);
			operand(r, &o[nr++]);
			if (!rd_take(r, ','))
				break;
		}
		rd_need(r, ';');
	}
	if (r->bad)
		return;
	ptx_decode(&in, name, o, nr);
	if (in.base == P_BRA || in.base == P_BRX)
		go = strdup(o[nr - 1].word);
	k->code = rd_more(k->code, k->nr, sizeof(in));
	r->goes = rd_more(r->goes, k->nr, sizeof(go));
	r->goes[k->nr] = go;
	k->code[k->nr++] = in;
}

/* Reads .file N "name" [, N, N]. */
static void file(struct reader *r)
{
	uint32_t nr = (uint32_t)rd_integer(r);
	const char *from;

	if (rd_peek(r) != '"' || nr > 10000)
		return rd_wrong(r, ".file without a name");
	from = ++r->p;
	while (r->p < r->end && *r->p != '"')
		r->p++;
	while (r->m->nr_files <= nr) {
		r->m->files = rd_more(r->m->files, r->m->nr_files, sizeof(char *));
		r->m->files[r->m->nr_files++] = NULL;
	}
	free(r->m->files[nr]);
	r->m->files[nr] = strndup(from, (size_t)(r->p - from));
	r->p += r->p < r->end;
	while (rd_take(r, ','))
		rd_integer(r);
}

/* Reads .loc FILE LINE COLUMN [, function_name W [+ N], inlined_at ...] to the end of the line. */
static void location(struct reader *r)
{
	r->file = (uint32_t)rd_integer(r);
	r->src_line = (uint32_t)rd_integer(r);
	while (r->p < r->end && *r->p != '\n')
		r->p++;
}

static void branch_targets(struct reader *r, struct label *l)
{
	char w[256];

	do {
		l->list.names = rd_more(l->list.names, l->list.nr, sizeof(char *));
		l->list.names[l->list.nr++] = strdup(rd_word(r, w, sizeof(w)));
	} while (rd_take(r, ','));
	rd_need(r, ';');
}

static int64_t target(struct reader *r, const char *name)
{
	struct label *l = rd_label(r, name);

	if (l->at < 0)
		rd_wrong(r, "no label '%s'", name);
	return l->at;
}

static void resolve(struct reader *r)
{
	struct ptx_kernel *k = r->k;

	for (uint32_t i = 0; i < k->nr && !r->bad; i++) {
		struct insn *in = &k->code[i];
		const char *go = r->goes[i];

		r->line = in->line;
		if (in->base == P_BRA)
			in->offset = target(r, go);
		if (in->base != P_BRX)
			continue;
		{
			struct label *l = rd_label(r, go);

			in->nr_targets = l->list.nr;
			in->targets = calloc(l->list.nr + 1, sizeof(*in->targets));
			for (uint32_t t = 0; t < l->list.nr; t++)
				in->targets[t] = (int32_t)target(r, l->list.names[t]);
		}
	}
}

static void forget(struct reader *r)
{
	struct label *l, *lt;
	struct constant *c, *ct;
	struct variable *v, *vt;

	HASH_ITER(hh, r->labels, l, lt)
	{
		HASH_DEL(r->labels, l);
		for (uint32_t i = 0; i < l->list.nr; i++)
			free(l->list.names[i]);
		free(l->list.names);
		free(l->name);
		free(l);
	}
	r->k->consts = calloc((size_t)r->k->nr_consts * LANES + 1, sizeof(uint64_t));
	HASH_ITER(hh, r->consts, c, ct)
	{
		for (int i = 0; i < LANES; i++)
			r->k->consts[(size_t)(-(int64_t)c->s - 1) * LANES + (size_t)i] = c->value;
		HASH_DEL(r->consts, c);
		free(c);
	}
	HASH_ITER(hh, r->locals, v, vt)
	{
		HASH_DEL(r->locals, v);
		free(v->name);
		free(v);
	}
	for (uint32_t i = 0; i < r->k->nr; i++)
		free(r->goes[i]);
	free(r->goes);
	r->goes = NULL;
	free(r->ranges);
	r->ranges = NULL;
	r->nr_ranges = 0;
}

static void body(struct reader *r)
{
	char w[512];

	rd_need(r, '{');
	r->depth = 0;
	while (!r->bad) {
		int c = rd_peek(r);

		if (!c)
			return rd_wrong(r, "the text ends in a kernel");
		if (rd_take(r, '{')) {
			if (r->depth == 64)
				return rd_wrong(r, "too many blocks in one another");
			r->open[r->depth++] = r->nr_ranges;
		} else if (rd_take(r, '}')) {
			if (!r->depth)
				break;
			r->nr_ranges = r->open[--r->depth];
		} else if (c == '@') {
			statement(r, NULL);
		} else if (rd_take(r, ';')) {
			continue;
		} else {
			rd_word(r, w, sizeof(w));
			if (rd_take(r, ':')) {
				struct label *l = rd_label(r, w);

				l->at = r->k->nr;
				if (rd_peek(r) == '.' && r->end - r->p > 14 &&
				    strncmp(r->p, ".branchtargets", 14) == 0) {
					r->p += 14;
					branch_targets(r, l);
				}
			} else if (strcmp(w, ".reg") == 0) {
				rd_declare_regs(r);
			} else if (strcmp(w, ".shared") == 0) {
				rd_declare(r, S_SHARED, 0);
			} else if (strcmp(w, ".local") == 0) {
				rd_declare(r, S_LOCAL, 0);
			} else if (strcmp(w, ".loc") == 0) {
				location(r);
			} else if (w[0] == '.') {
				rd_skip_to(r, ';');
			} else if (w[0]) {
				statement(r, w);
			} else {
				rd_wrong(r, "'%c' where a statement is expected", c);
			}
		}
	}
	resolve(r);
}

static void kernel(struct reader *r)
{
	struct ptx_kernel *k = calloc(1, sizeof(*k));
	char w[512];

	r->k = k;
	k->module = r->m;
	k->max_threads = 1024;
	k->shared_bytes = r->m->shared_bytes;
	k->name = strdup(rd_word(r, w, sizeof(w)));
	HASH_ADD_KEYPTR(hh, r->m->kernels, k->name, strlen(k->name), k);
	if (rd_peek(r) == '(')
		rd_parameters(r, k);
	while (!r->bad && rd_peek(r) == '.') {
		rd_word(r, w, sizeof(w));
		if (strcmp(w, ".maxntid") == 0 || strcmp(w, ".reqntid") == 0) {
			k->max_threads = (unsigned int)rd_integer(r);
			while (rd_take(r, ','))
				k->max_threads *= (unsigned int)rd_integer(r);
		} else if (isdigit(rd_peek(r))) {
			rd_integer(r);
			while (rd_take(r, ','))
				rd_integer(r);
		}
	}
	if (!r->bad)
		body(r);
	forget(r);
	r->k = NULL;
}

/* Skips a function that is not a kernel. Calls of functions are not executed. */
static void function(struct reader *r)
{
	int depth = 0;

	while (rd_peek(r) && *r->p != '{' && *r->p != ';')
		r->p++;
	if (rd_take(r, ';'))
		return;
	do {
		int c = rd_peek(r);

		depth += c == '{';
		depth -= c == '}';
		r->p += c != 0;
		if (!c)
			return rd_wrong(r, "the text ends in a function");
	} while (depth);
}

struct ptx_module *ptx_load(const char *text, size_t len, const char *name)
{
	struct ptx_module *m = calloc(1, sizeof(*m));
	struct reader r = {.m = m, .line = 1};
	char w[512];

	m->name = strdup(name);
	m->text = strndup(text, len);
	m->len = strlen(m->text);
	m->memory = calloc(1, 16u << 20);
	r.p = m->text;
	r.end = m->text + m->len;
	while (!r.bad && rd_peek(&r)) {
		rd_word(&r, w, sizeof(w));
		if (strcmp(w, ".visible") == 0 || strcmp(w, ".weak") == 0)
			continue;
		if (strcmp(w, ".extern") == 0) {
			if (strcmp(rd_word(&r, w, sizeof(w)), ".shared") == 0)
				rd_declare(&r, S_SHARED, 1);
			else
				function(&r); /* skips any declaration to its ';' */
		} else if (strcmp(w, ".version") == 0 || strcmp(w, ".target") == 0 ||
			   strcmp(w, ".address_size") == 0)
			while (r.p < r.end && *r.p != '\n')
				r.p++;
		else if (strcmp(w, ".entry") == 0)
			kernel(&r);
		else if (strcmp(w, ".func") == 0)
			function(&r);
		else if (strcmp(w, ".global") == 0 || strcmp(w, ".const") == 0)
			rd_declare(&r, strcmp(w, ".const") == 0 ? S_CONST : S_GLOBAL, 0);
		else if (strcmp(w, ".shared") == 0)
			rd_declare(&r, S_SHARED, 0);
		else if (strcmp(w, ".file") == 0)
			file(&r);
		else if (strcmp(w, ".section") == 0)
			function(&r);
		else if (strcmp(w, ".pragma") == 0)
			rd_skip_to(&r, ';');
		else
			rd_wrong(&r, "'%s' is not known", *w ? w : "this");
	}
	if (r.bad) {
		ptx_unload(m);
		return NULL;
	}
	return m;
}

void ptx_unload(struct ptx_module *m)
{
	struct ptx_kernel *k, *kt;
	struct variable *v, *vt;

	HASH_ITER(hh, m->kernels, k, kt)
	{
		HASH_DEL(m->kernels, k);
		for (uint32_t i = 0; i < k->nr; i++)
			free(k->code[i].targets);
		for (uint32_t i = 0; i < k->nr_params; i++)
			free(k->params[i].name);
		free(k->params);
		free(k->code);
		free(k->consts);
		free(k->name);
		free(k);
	}
	HASH_ITER(hh, m->variables, v, vt)
	{
		HASH_DEL(m->variables, v);
		free(v->name);
		free(v);
	}
	for (uint32_t i = 0; i < m->nr_files; i++)
		free(m->files[i]);
	free(m->files);
	free(m->memory);
	free(m->text);
	free(m->name);
	free(m);
}

const struct ptx_kernel *ptx_kernel(const struct ptx_module *m, const char *name)
{
	struct ptx_kernel *k;

	HASH_FIND_STR(m->kernels, name, k);
	return k;
}

void *ptx_variable(const struct ptx_module *m, const char *name, size_t *bytes)
{
	struct variable *v;

	HASH_FIND_STR(m->variables, name, v);
	if (!v || v->space == S_SHARED)
		return NULL;
	if (bytes)
		*bytes = v->bytes;
	return m->memory + v->offset;
}

unsigned int ptx_nr_params(const struct ptx_kernel *k)
{
	return k->nr_params;
}

void ptx_param(const struct ptx_kernel *k, unsigned int i, size_t *offset, size_t *bytes)
{
	*offset = k->params[i].offset;
	*bytes = k->params[i].bytes;
}

size_t ptx_param_bytes(const struct ptx_kernel *k)
{
	return k->param_bytes;
}

unsigned int ptx_max_threads(const struct ptx_kernel *k)
{
	return k->max_threads;
}
