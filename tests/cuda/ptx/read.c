/* Reads words of PTX, and declarations: registers, variables, parameters. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/cuda/ptx/read.h"

void rd_wrong(struct reader *r, const char *fmt, ...)
{
	va_list ap;

	if (r->bad)
		return;
	r->bad = 1;
	va_start(ap, fmt);
	fprintf(stderr, "ptx: %s:%u: ", r->m->name, r->line);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
}

void *rd_more(void *p, uint32_t nr, size_t size)
{
	/* The array grows when its length reaches a power of two. */
	if (nr & (nr - 1))
		return p;
	p = realloc(p, (nr ? 2 * (size_t)nr : 1) * size);
	if (!p)
		abort();
	return p;
}

/* ---- characters and words -------------------------------------------------------------------- */

static void blank(struct reader *r)
{
	while (r->p < r->end) {
		if (*r->p == '\n') {
			r->line++;
			r->p++;
		} else if (isspace((unsigned char)*r->p)) {
			r->p++;
		} else if (r->end - r->p > 1 && r->p[0] == '/' && r->p[1] == '/') {
			while (r->p < r->end && *r->p != '\n')
				r->p++;
		} else if (r->end - r->p > 1 && r->p[0] == '/' && r->p[1] == '*') {
			for (r->p += 2; r->end - r->p > 1 && (r->p[0] != '*' || r->p[1] != '/');
			     r->p++)
				r->line += *r->p == '\n';
			r->p = r->end - r->p > 1 ? r->p + 2 : r->end;
		} else {
			return;
		}
	}
}

int rd_peek(struct reader *r)
{
	blank(r);
	return r->p < r->end ? (unsigned char)*r->p : 0;
}

int rd_take(struct reader *r, int c)
{
	if (rd_peek(r) != c)
		return 0;
	r->p++;
	return 1;
}

void rd_need(struct reader *r, int c)
{
	if (!rd_take(r, c))
		rd_wrong(r, "expected '%c'", c);
}

static int of_word(int c)
{
	return isalnum(c) || c == '_' || c == '$' || c == '%' || c == '.';
}

const char *rd_word(struct reader *r, char *buf, size_t room)
{
	size_t n = 0;

	blank(r);
	while (r->p < r->end && of_word((unsigned char)*r->p)) {
		if (n + 1 < room)
			buf[n++] = *r->p;
		else
			rd_wrong(r, "a word of more than %zu characters", room - 1);
		r->p++;
	}
	buf[n] = 0;
	return buf;
}

void rd_skip_to(struct reader *r, int c)
{
	while (rd_peek(r) && *r->p != c) {
		if (*r->p == '"')
			for (r->p++; r->p < r->end && *r->p != '"'; r->p++)
				;
		if (r->p < r->end)
			r->p++;
	}
	rd_need(r, c);
}

uint64_t rd_number(const char *s, int *ok)
{
	char *end;
	uint64_t v;

	*ok = 0;
	if (s[0] == '0' && (s[1] == 'f' || s[1] == 'F' || s[1] == 'd' || s[1] == 'D'))
		v = strtoull(s + 2, &end, 16);
	else
		v = strtoull(s, &end, 0);
	if (*end == 'U')
		end++;
	*ok = end != s && !*end;
	return v;
}

int64_t rd_integer(struct reader *r)
{
	char buf[64];
	int minus = rd_take(r, '-'), ok;
	uint64_t v = rd_number(rd_word(r, buf, sizeof(buf)), &ok);

	if (!ok)
		rd_wrong(r, "'%s' is no number", buf);
	return (int64_t)(minus ? 0 - v : v);
}

/* ---- names ----------------------------------------------------------------------------------- */

slot rd_constant(struct reader *r, uint64_t value)
{
	struct constant *c;

	HASH_FIND(hh, r->consts, &value, sizeof(value), c);
	if (!c) {
		c = calloc(1, sizeof(*c));
		c->value = value;
		c->s = -(slot)++r->k->nr_consts;
		HASH_ADD(hh, r->consts, value, sizeof(c->value), c);
	}
	return c->s;
}

slot rd_register(struct reader *r, const char *name)
{
	size_t len = strlen(name), stem = len;
	uint32_t i, nr;

	while (stem && isdigit((unsigned char)name[stem - 1]))
		stem--;
	nr = stem < len ? (uint32_t)strtoul(name + stem, NULL, 10) : 0;
	for (i = r->nr_ranges; i-- > 0;) {
		const struct range *g = &r->ranges[i];

		if (!g->nr && strcmp(g->name, name) == 0)
			return (slot)g->first;
		if (g->nr && stem < len && strlen(g->name) == stem &&
		    strncmp(g->name, name, stem) == 0 && nr < g->nr)
			return (slot)(g->first + nr);
	}
	return NOWHERE;
}

const struct variable *rd_variable(struct reader *r, const char *name)
{
	struct variable *v;

	HASH_FIND_STR(r->locals, name, v);
	if (!v)
		HASH_FIND_STR(r->m->variables, name, v);
	return v;
}

int rd_special(const char *name)
{
	static const struct {
		const char *name;
		int x;
	} all[] = {
		{"%laneid", X_LANEID},
		{"%warpid", X_WARPID},
		{"%nwarpid", X_NWARPID},
		{"%smid", X_SMID},
		{"%nsmid", X_NSMID},
		{"%clock", X_CLOCK},
		{"%clock64", X_CLOCK},
		{"%globaltimer", X_GLOBALTIMER},
		{"%lanemask_lt", X_LANEMASK_LT},
		{"%lanemask_le", X_LANEMASK_LE},
		{"%lanemask_eq", X_LANEMASK_EQ},
		{"%lanemask_ge", X_LANEMASK_GE},
		{"%lanemask_gt", X_LANEMASK_GT},
		{"%tid", X_TID},
		{"%ntid", X_NTID},
		{"%ctaid", X_CTAID},
		{"%nctaid", X_NCTAID},
	};
	const char *dot = strchr(name, '.');
	size_t stem = dot ? (size_t)(dot - name) : strlen(name);

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (strlen(all[i].name) == stem && strncmp(all[i].name, name, stem) == 0)
			return all[i].x + (dot && dot[1] > 'x' ? dot[1] - 'x' : 0);
	return -1;
}

struct label *rd_label(struct reader *r, const char *name)
{
	struct label *l;

	HASH_FIND_STR(r->labels, name, l);
	if (!l) {
		l = calloc(1, sizeof(*l));
		l->name = strdup(name);
		l->at = -1;
		HASH_ADD_KEYPTR(hh, r->labels, l->name, strlen(l->name), l);
	}
	return l;
}

/* ---- declarations ---------------------------------------------------------------------------- */

static unsigned int type_bytes(const char *t)
{
	const char *digits = t + strcspn(t, "0123456789");
	unsigned int bits = (unsigned int)atoi(digits);

	return strcmp(t, ".pred") == 0 ? 1 : bits / 8;
}

/*
 * Reads .align N, .v2, .v4, .ptr ... and the type, up to the name. Returns the size of an element
 * in bytes.
 */
static unsigned int attributes(struct reader *r, size_t *align, char *first)
{
	char w[64];
	unsigned int bytes = 0, vec = 1;
	const char *t = first;

	*align = 0;
	for (;;) {
		if (strcmp(t, ".align") == 0)
			*align = (size_t)rd_integer(r);
		else if (strcmp(t, ".v2") == 0 || strcmp(t, ".v4") == 0)
			vec = (unsigned int)(t[2] - '0');
		else if (t[0] == '.' && strchr("bufsp", t[1]) && type_bytes(t) &&
			 strcmp(t, ".ptr") != 0)
			bytes = type_bytes(t);
		if (rd_peek(r) != '.')
			break;
		t = rd_word(r, w, sizeof(w));
	}
	if (!*align)
		*align = (size_t)bytes * vec;
	return bytes * vec;
}

size_t rd_up(size_t n, size_t align)
{
	return align ? (n + align - 1) / align * align : n;
}

/*
 * Reads a name with its dimensions, as in name[N][M]. Returns the number of elements; 0 for name[].
 */
static size_t elements(struct reader *r, char *name, size_t room)
{
	size_t n = 1;
	int open = 0;

	rd_word(r, name, room);
	if (!*name)
		rd_wrong(r, "expected a name");
	while (rd_take(r, '[')) {
		open |= rd_peek(r) == ']';
		n *= rd_peek(r) == ']' ? 0 : (size_t)rd_integer(r);
		rd_need(r, ']');
	}
	return open ? 0 : n;
}

static void initial(struct reader *r, uint8_t *to, unsigned int each, size_t nr)
{
	size_t i;

	if (!rd_take(r, '=')) {
		rd_need(r, ';');
		return;
	}
	if (rd_peek(r) != '{') {
		int64_t v = rd_integer(r);

		memcpy(to, &v, each < 8 ? each : 8);
		rd_need(r, ';');
		return;
	}
	rd_need(r, '{');
	for (i = 0; i < nr && rd_peek(r) != '}'; i++) {
		int64_t v = rd_integer(r);

		memcpy(to + i * each, &v, each < 8 ? each : 8);
		rd_take(r, ',');
	}
	rd_need(r, '}');
	rd_need(r, ';');
}

void rd_declare(struct reader *r, enum space space, int dynamic)
{
	struct variable *v = calloc(1, sizeof(*v));
	char w[64], name[512];
	unsigned int each;
	size_t align, nr, *where;

	each = attributes(r, &align, strcpy(w, ""));
	nr = elements(r, name, sizeof(name));
	v->name = strdup(name);
	v->space = space;
	v->bytes = each * nr;
	v->dynamic = dynamic;
	where = space == S_SHARED	   ? r->k ? &r->k->shared_bytes : &r->m->shared_bytes
		: space == S_LOCAL && r->k ? &r->k->local_bytes
					   : &r->m->bytes;
	*where = rd_up(*where, align > 16 ? align : 16);
	v->offset = *where;
	*where += v->bytes;
	if (where == &r->m->bytes) {
		/*
		 * Addresses are taken while the module is read, so its memory has a fixed size and
		 * does not move.
		 */
		if (r->m->bytes > 16u << 20) {
			rd_wrong(r, "more than 16 MiB of variables");
			r->m->bytes = 0;
		} else {
			initial(r, r->m->memory + v->offset, each, nr);
		}
		HASH_ADD_KEYPTR(hh, r->m->variables, v->name, strlen(v->name), v);
		return;
	}
	rd_need(r, ';');
	if (r->k)
		HASH_ADD_KEYPTR(hh, r->locals, v->name, strlen(v->name), v);
	else
		HASH_ADD_KEYPTR(hh, r->m->variables, v->name, strlen(v->name), v);
}

void rd_declare_regs(struct reader *r)
{
	char w[64];

	rd_word(r, w, sizeof(w));
	do {
		struct range g = {.first = r->k->nr_regs};

		rd_word(r, g.name, sizeof(g.name));
		if (rd_take(r, '<')) {
			g.nr = (uint32_t)rd_integer(r);
			rd_need(r, '>');
		}
		r->k->nr_regs += g.nr ? g.nr : 1;
		r->ranges = rd_more(r->ranges, r->nr_ranges, sizeof(g));
		r->ranges[r->nr_ranges++] = g;
	} while (rd_take(r, ','));
	rd_need(r, ';');
}

void rd_parameters(struct reader *r, struct ptx_kernel *k)
{
	char w[64], name[512];

	rd_need(r, '(');
	while (!r->bad && rd_peek(r) != ')') {
		struct param p = {0};
		size_t align;
		unsigned int each;

		if (strcmp(rd_word(r, w, sizeof(w)), ".param") != 0)
			return rd_wrong(r, "expected .param");
		each = attributes(r, &align, strcpy(w, ""));
		p.bytes = each * elements(r, name, sizeof(name));
		p.name = strdup(name);
		p.offset = rd_up(k->param_bytes, align);
		k->param_bytes = p.offset + p.bytes;
		k->params = rd_more(k->params, k->nr_params, sizeof(p));
		k->params[k->nr_params++] = p;
		rd_take(r, ',');
	}
	rd_need(r, ')');
}
