/*
 * A stack machine for the data part of Python's pickle protocols 2 to 5. It has no opcode that runs
 * anything, and refuses opcodes that it does not have.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "trace/cli/fr/pickle.h"
#include "runtime/base/vec.h"

#define MAX_VALUES (16u << 20)

struct machine {
	struct df_pickle *p;
	const unsigned char *at, *end, *begin;
	struct df_pvalue **stack; /* NULL stands for a mark */
	size_t nr, cap;
	struct df_pvalue **memo;
	size_t nr_memo, cap_memo;
};

static int refuse(struct machine *m, const char *what)
{
	snprintf(m->p->error, sizeof(m->p->error), "%s at byte %zu", what,
		 (size_t)(m->at - m->begin));
	return -EPROTO;
}

static struct df_pvalue *value(struct machine *m, enum df_pkind kind)
{
	struct df_pvalue *v, **slot;

	if (m->p->nr_all >= MAX_VALUES)
		return NULL;
	slot = DF_VEC_PUSH(m->p->all, m->p->nr_all, m->p->cap_all);
	v = slot ? calloc(1, sizeof(*v)) : NULL;
	if (!v) {
		m->p->nr_all -= slot != NULL;
		return NULL;
	}
	v->kind = kind;
	*slot = v;
	return v;
}

static int push(struct machine *m, struct df_pvalue *v)
{
	struct df_pvalue **slot = DF_VEC_PUSH(m->stack, m->nr, m->cap);

	if (!slot)
		return -ENOMEM;
	*slot = v;
	return 0;
}

static int push_new(struct machine *m, enum df_pkind kind, int64_t number, double real,
		    const unsigned char *text, size_t bytes)
{
	struct df_pvalue *v = value(m, kind);

	if (!v)
		return -ENOMEM;
	v->number = number;
	v->real = real;
	v->text = (const char *)text;
	v->bytes = bytes;
	return push(m, v);
}

/* Reads a little-endian number of n bytes. Returns 0 if they are there. */
static int number(struct machine *m, int n, uint64_t *out)
{
	*out = 0;
	if (m->end - m->at < n)
		return refuse(m, "cut off");
	for (int i = 0; i < n; i++)
		*out |= (uint64_t)m->at[i] << (8 * i);
	m->at += n;
	return 0;
}

static int text(struct machine *m, int width)
{
	uint64_t n;
	int rc = number(m, width, &n);

	if (rc)
		return rc;
	if (n > (uint64_t)(m->end - m->at))
		return refuse(m, "cut off");
	m->at += n;
	return push_new(m, DF_P_STRING, 0, 0, m->at - n, (size_t)n);
}

static int add_item(struct df_pvalue *to, struct df_pvalue *v)
{
	struct df_pvalue **slot = DF_VEC_PUSH(to->items, to->nr, to->cap);

	if (!slot)
		return -ENOMEM;
	*slot = v;
	return 0;
}

/*
 * Moves the values after the last mark into a container: a new one if `make`, else the value before
 * the mark. Returns 0 or an error.
 */
static int collect(struct machine *m, enum df_pkind kind, int make)
{
	size_t mark = m->nr;
	struct df_pvalue *to;

	while (mark && m->stack[mark - 1])
		mark--;
	if (!mark)
		return refuse(m, "no mark");
	if (make) {
		to = value(m, kind);
		if (!to)
			return -ENOMEM;
	} else {
		to = mark > 1 ? m->stack[mark - 2] : NULL;
		if (!to || to->kind != kind)
			return refuse(m, "wrong container");
	}
	if (kind == DF_P_DICT && (m->nr - mark) % 2)
		return refuse(m, "a key without a value");
	for (size_t i = mark; i < m->nr; i++)
		if (m->stack[i] == to || add_item(to, m->stack[i]))
			return m->stack[i] == to ? refuse(m, "a container in itself") : -ENOMEM;
	m->nr = mark - 1;
	return make ? push(m, to) : 0;
}

/*
 * Moves the last n values into a container: a new one if `make`, else the value before them.
 * Returns 0 or an error.
 */
static int last_n(struct machine *m, size_t n, enum df_pkind kind, int make)
{
	struct df_pvalue *to;
	int rc;

	if (m->nr < n + !make)
		return refuse(m, "empty stack");
	to = make ? value(m, kind) : m->stack[m->nr - n - 1];
	if (!to)
		return make ? -ENOMEM : refuse(m, "a mark");
	if (to->kind != kind)
		return refuse(m, "wrong container");
	for (size_t i = m->nr - n; i < m->nr; i++) {
		if (!m->stack[i] || m->stack[i] == to)
			return refuse(m, "not a value");
		rc = add_item(to, m->stack[i]);
		if (rc)
			return rc;
	}
	m->nr -= n;
	return make ? push(m, to) : 0;
}

static int memo_put(struct machine *m, uint64_t at)
{
	if (!m->nr || !m->stack[m->nr - 1] || at > m->nr_memo + 65536 || at >= MAX_VALUES)
		return refuse(m, "bad memo");
	while (m->nr_memo <= at) {
		struct df_pvalue **slot = DF_VEC_PUSH(m->memo, m->nr_memo, m->cap_memo);

		if (!slot)
			return -ENOMEM;
		*slot = NULL;
	}
	m->memo[at] = m->stack[m->nr - 1];
	return 0;
}

static int memo_get(struct machine *m, uint64_t at)
{
	if (at >= m->nr_memo || !m->memo[at])
		return refuse(m, "unknown memo");
	return push(m, m->memo[at]);
}

static int long_int(struct machine *m, int width)
{
	uint64_t n, v = 0;
	int rc = number(m, width, &n);

	if (rc)
		return rc;
	if (n > 9 || n > (uint64_t)(m->end - m->at))
		return refuse(m, "a number too long");
	for (uint64_t i = 0; i < n && i < 8; i++)
		v |= (uint64_t)m->at[i] << (8 * i);
	if (n && n < 8 && m->at[n - 1] & 0x80)
		v |= ~0ULL << (8 * n);
	m->at += n;
	return push_new(m, DF_P_INT, (int64_t)v, 0, NULL, 0);
}

static int big_endian_double(struct machine *m)
{
	uint64_t n;
	double d;
	int rc = number(m, 8, &n);

	if (rc)
		return rc;
	n = __builtin_bswap64(n);
	memcpy(&d, &n, sizeof(d));
	return push_new(m, DF_P_FLOAT, 0, d, NULL, 0);
}

static int step(struct machine *m, unsigned char op, int *stop)
{
	uint64_t n;
	int rc;

	switch (op) {
	case 0x80: /* PROTO */
		return number(m, 1, &n);
	case 0x95: /* FRAME */
		return number(m, 8, &n);
	case '.': /* STOP */
		*stop = 1;
		return 0;
	case 'N':
		return push_new(m, DF_P_NONE, 0, 0, NULL, 0);
	case 0x88:
		return push_new(m, DF_P_BOOL, 1, 0, NULL, 0);
	case 0x89:
		return push_new(m, DF_P_BOOL, 0, 0, NULL, 0);
	case 'J':
		rc = number(m, 4, &n);
		return rc ? rc : push_new(m, DF_P_INT, (int32_t)n, 0, NULL, 0);
	case 'K':
		rc = number(m, 1, &n);
		return rc ? rc : push_new(m, DF_P_INT, (int64_t)n, 0, NULL, 0);
	case 'M':
		rc = number(m, 2, &n);
		return rc ? rc : push_new(m, DF_P_INT, (int64_t)n, 0, NULL, 0);
	case 0x8a:
		return long_int(m, 1);
	case 0x8b:
		return long_int(m, 4);
	case 'G':
		return big_endian_double(m);
	case 0x8c: /* SHORT_BINUNICODE */
	case 'U':  /* SHORT_BINSTRING */
	case 'C':  /* SHORT_BINBYTES */
		return text(m, 1);
	case 'X': /* BINUNICODE */
	case 'T': /* BINSTRING */
	case 'B': /* BINBYTES */
		return text(m, 4);
	case 0x8d: /* BINUNICODE8 */
		return text(m, 8);
	case '(':
		return push(m, NULL);
	case ']':
	case ')':
		return push_new(m, DF_P_LIST, 0, 0, NULL, 0);
	case '}':
		return push_new(m, DF_P_DICT, 0, 0, NULL, 0);
	case 'l':
	case 't':
		return collect(m, DF_P_LIST, 1);
	case 'd':
		return collect(m, DF_P_DICT, 1);
	case 'e':
		return collect(m, DF_P_LIST, 0);
	case 'u':
		return collect(m, DF_P_DICT, 0);
	case 'a':
		return last_n(m, 1, DF_P_LIST, 0);
	case 's':
		return last_n(m, 2, DF_P_DICT, 0);
	case 0x85:
		return last_n(m, 1, DF_P_LIST, 1);
	case 0x86:
		return last_n(m, 2, DF_P_LIST, 1);
	case 0x87:
		return last_n(m, 3, DF_P_LIST, 1);
	case 0x94: /* MEMOIZE */
		return memo_put(m, m->nr_memo);
	case 'q':
		rc = number(m, 1, &n);
		return rc ? rc : memo_put(m, n);
	case 'r':
		rc = number(m, 4, &n);
		return rc ? rc : memo_put(m, n);
	case 'h':
		rc = number(m, 1, &n);
		return rc ? rc : memo_get(m, n);
	case 'j':
		rc = number(m, 4, &n);
		return rc ? rc : memo_get(m, n);
	case '0': /* POP */
		if (!m->nr)
			return refuse(m, "empty stack");
		m->nr--;
		return 0;
	case 'c':  /* GLOBAL */
	case 'i':  /* INST */
	case 'o':  /* OBJ */
	case 'R':  /* REDUCE */
	case 'b':  /* BUILD */
	case 0x81: /* NEWOBJ */
	case 0x92: /* NEWOBJ_EX */
	case 0x93: /* STACK_GLOBAL */
	case 'P':  /* PERSID */
	case 'Q':  /* BINPERSID */
	case 0x82: /* EXT1 */
	case 0x83: /* EXT2 */
	case 0x84: /* EXT4 */
		return refuse(m, "the pickle wants to run code; refused");
	default:
		return refuse(m, "unknown pickle opcode");
	}
}

int df_pickle_read(struct df_pickle *p, const void *data, size_t bytes)
{
	struct machine m = {
		.p = p, .at = data, .begin = data, .end = (const unsigned char *)data + bytes};
	int stop = 0, rc = 0;

	memset(p, 0, sizeof(*p));
	while (!rc && !stop) {
		if (m.at == m.end)
			rc = refuse(&m, "cut off");
		else
			rc = step(&m, *m.at++, &stop);
	}
	if (!rc && (m.nr != 1 || !m.stack[0]))
		rc = refuse(&m, "not one value");
	if (!rc)
		p->root = m.stack[0];
	if (rc == -ENOMEM)
		snprintf(p->error, sizeof(p->error), "out of memory, or too many values");
	free(m.stack);
	free(m.memo);
	return rc;
}

void df_pickle_free(struct df_pickle *p)
{
	for (size_t i = 0; i < p->nr_all; i++) {
		free(p->all[i]->items);
		free(p->all[i]);
	}
	free(p->all);
	memset(p, 0, sizeof(*p));
}

const struct df_pvalue *df_pickle_get(const struct df_pvalue *dict, const char *key)
{
	size_t n = strlen(key);

	if (!dict || dict->kind != DF_P_DICT)
		return NULL;
	for (size_t i = 0; i + 1 < dict->nr; i += 2)
		if (dict->items[i]->kind == DF_P_STRING && dict->items[i]->bytes == n &&
		    !memcmp(dict->items[i]->text, key, n))
			return dict->items[i + 1];
	return NULL;
}

const char *df_pickle_text(const struct df_pvalue *v, char *buf, size_t size)
{
	size_t n = v && v->kind == DF_P_STRING ? v->bytes : 0;

	if (n >= size)
		n = size - 1;
	if (n)
		memcpy(buf, v->text, n);
	buf[n] = 0;
	return buf;
}

int64_t df_pickle_int(const struct df_pvalue *v, int64_t otherwise)
{
	return v && (v->kind == DF_P_INT || v->kind == DF_P_BOOL) ? v->number : otherwise;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void put_le(FILE *out, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		fputc((int)(v >> (8 * i) & 255), out);
}

void df_pickle_begin(FILE *out)
{
	fputc(0x80, out);
	fputc(2, out);
}

void df_pickle_end(FILE *out)
{
	fputc('.', out);
}

void df_pickle_put_none(FILE *out)
{
	fputc('N', out);
}

void df_pickle_put_bool(FILE *out, int v)
{
	fputc(v ? 0x88 : 0x89, out);
}

void df_pickle_put_int(FILE *out, int64_t v)
{
	if (v >= INT32_MIN && v <= INT32_MAX) {
		fputc('J', out);
		put_le(out, (uint64_t)v, 4);
	} else {
		fputc(0x8a, out);
		fputc(8, out);
		put_le(out, (uint64_t)v, 8);
	}
}

void df_pickle_put_float(FILE *out, double v)
{
	uint64_t n;

	memcpy(&n, &v, sizeof(n));
	fputc('G', out);
	put_le(out, __builtin_bswap64(n), 8);
}

void df_pickle_put_string(FILE *out, const char *s)
{
	size_t n = strlen(s);

	fputc('X', out);
	put_le(out, n, 4);
	fwrite(s, 1, n, out);
}

void df_pickle_dict(FILE *out)
{
	fputs("}(", out);
}

void df_pickle_dict_end(FILE *out)
{
	fputc('u', out);
}

void df_pickle_list(FILE *out)
{
	fputs("](", out);
}

void df_pickle_list_end(FILE *out)
{
	fputc('e', out);
}

void df_pickle_tuple(FILE *out)
{
	fputc('(', out);
}

void df_pickle_tuple_end(FILE *out)
{
	fputc('t', out);
}
