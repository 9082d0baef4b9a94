/*
 * The strict XML reader. It ends on any input: every loop advances `p` or stops. All state is in
 * struct df_xml, which one thread uses.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/program/file/xml.h"
#include "runtime/program/program_names.h"

#define BAD(x, ...) df_perr_set((x)->err, (x)->line, -1, -1, -1, __VA_ARGS__)

void df_xml_init(struct df_xml *x, const char *text, size_t size, struct df_perr *err)
{
	memset(x, 0, sizeof(*x));
	x->p = text;
	x->end = text + size;
	x->line = 1;
	x->err = err;
	if (size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		x->p += 3;
}

static int peek(const struct df_xml *x)
{
	return x->p < x->end ? (unsigned char)*x->p : -1;
}

static int starts(const struct df_xml *x, const char *s)
{
	size_t n = strlen(s);

	return (size_t)(x->end - x->p) >= n && !memcmp(x->p, s, n);
}

static void advance(struct df_xml *x, size_t n)
{
	for (; n && x->p < x->end; n--, x->p++)
		x->line += *x->p == '\n';
}

static int is_space(int c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(struct df_xml *x)
{
	while (is_space(peek(x)))
		advance(x, 1);
}

static int skip_until(struct df_xml *x, const char *close, const char *what)
{
	int line = x->line;

	while (x->p < x->end && !starts(x, close))
		advance(x, 1);
	if (x->p == x->end)
		return df_perr_set(x->err, line, -1, -1, -1, "%s does not end", what);
	advance(x, strlen(close));
	return 0;
}

static int read_name(struct df_xml *x, char *name, const char *what)
{
	size_t n = 0;
	int c;

	for (; (c = peek(x)) >= 0; advance(x, 1)) {
		if (!isalpha(c) && c != '_' &&
		    (!n || (!isdigit(c) && c != '-' && c != '.' && c != ':')))
			break;
		if (n == DF_XML_NAME - 1)
			return BAD(x, "name of %s is longer than %d characters", what,
				   DF_XML_NAME - 1);
		name[n++] = (char)c;
	}
	name[n] = 0;
	return n ? 0 : BAD(x, "expected the name of %s", what);
}

static int read_value(struct df_xml *x, struct df_xml_attr *a)
{
	static const struct {
		const char *name;
		char c;
	} entity[] = {
		{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
	int quote = peek(x), c;
	size_t n = 0;

	if (quote != '"' && quote != '\'')
		return BAD(x, "value of attribute %s is not in quotes", a->name);
	advance(x, 1);
	while ((c = peek(x)) != quote) {
		size_t skip = 1;

		if (c < 0)
			return BAD(x, "value of attribute %s does not end", a->name);
		if (c == '<' || c == '\n' || c == 0)
			return BAD(x, "value of attribute %s holds a character that is not allowed",
				   a->name);
		if (c == '&') {
			unsigned k;

			for (k = 0; k < DF_ARRAY_LEN(entity) && !starts(x, entity[k].name); k++)
				;
			if (k == DF_ARRAY_LEN(entity))
				return BAD(x, "unknown entity in attribute %s", a->name);
			c = entity[k].c;
			skip = strlen(entity[k].name);
		}
		if (n == DF_XML_VALUE - 1)
			return BAD(x, "value of attribute %s is longer than %d characters", a->name,
				   DF_XML_VALUE - 1);
		a->value[n++] = (char)c;
		advance(x, skip);
	}
	advance(x, 1);
	a->value[n] = 0;
	return 0;
}

static int read_attrs(struct df_xml *x)
{
	for (x->nr_attrs = 0;; x->nr_attrs++) {
		struct df_xml_attr *a;
		int spaced = is_space(peek(x)), rc;

		skip_space(x);
		if (peek(x) == '>' || peek(x) == '/')
			return 0;
		if (!spaced)
			return BAD(x, "expected a space, '>' or '/>' in <%s>", x->name);
		if (x->nr_attrs == DF_XML_ATTRS)
			return BAD(x, "<%s> has more than %d attributes", x->name, DF_XML_ATTRS);
		a = &x->attr[x->nr_attrs];
		rc = read_name(x, a->name, "an attribute");
		if (rc)
			return rc;
		if (df_xml_get(x, a->name))
			return BAD(x, "attribute %s is given twice", a->name);
		skip_space(x);
		if (peek(x) != '=')
			return BAD(x, "attribute %s has no value", a->name);
		advance(x, 1);
		skip_space(x);
		rc = read_value(x, a);
		if (rc)
			return rc;
	}
}

static int close_element(struct df_xml *x)
{
	int rc;

	advance(x, 2);
	rc = read_name(x, x->name, "an element");
	if (rc)
		return rc;
	skip_space(x);
	if (peek(x) != '>')
		return BAD(x, "expected '>' after </%s", x->name);
	if (!x->depth || strcmp(x->stack[x->depth - 1], x->name))
		return BAD(x, "</%s> closes <%s>", x->name,
			   x->depth ? x->stack[x->depth - 1] : "nothing");
	advance(x, 1);
	x->depth--;
	return DF_XML_CLOSE;
}

int df_xml_next(struct df_xml *x)
{
	int rc;

	if (x->pending_close) {
		x->pending_close = 0;
		x->depth--;
		return DF_XML_CLOSE;
	}
	for (;;) {
		skip_space(x);
		if (peek(x) < 0) {
			if (x->depth)
				return BAD(x, "<%s> is not closed", x->stack[x->depth - 1]);
			return x->seen_root ? DF_XML_END : BAD(x, "holds no element");
		}
		if (starts(x, "<!--"))
			rc = skip_until(x, "-->", "comment");
		else if (starts(x, "<?xml") && !x->seen_root && !x->depth)
			rc = skip_until(x, "?>", "declaration");
		else
			break;
		if (rc)
			return rc;
	}
	if (peek(x) != '<')
		return BAD(x, "text where an element is expected");
	if (starts(x, "</"))
		return close_element(x);
	if (!x->depth && x->seen_root)
		return BAD(x, "more than one top element");
	x->at_line = x->line;
	advance(x, 1);
	rc = read_name(x, x->name, "an element");
	if (!rc)
		rc = read_attrs(x);
	if (rc)
		return rc;
	if (x->depth == DF_XML_DEPTH)
		return BAD(x, "elements are nested deeper than %d", DF_XML_DEPTH);
	strcpy(x->stack[x->depth++], x->name);
	x->seen_root = 1;
	if (peek(x) == '/') {
		advance(x, 1);
		x->pending_close = 1;
	}
	if (peek(x) != '>')
		return BAD(x, "expected '>' at the end of <%s>", x->name);
	advance(x, 1);
	return DF_XML_OPEN;
}

const char *df_xml_get(const struct df_xml *x, const char *name)
{
	for (int i = 0; i < x->nr_attrs; i++) {
		if (!strcmp(x->attr[i].name, name))
			return x->attr[i].value;
	}
	return NULL;
}

int df_xml_int(struct df_xml *x, const char *name, int64_t min, int64_t max, int64_t def,
	       int64_t *out)
{
	const char *s = df_xml_get(x, name), *d;
	char *end;
	long long v;

	if (!s) {
		if (def == INT64_MIN)
			return df_perr_set(x->err, x->at_line, -1, -1, -1,
					   "<%s>: attribute %s is missing", x->name, name);
		*out = def;
		return 0;
	}
	d = *s == '-' ? s + 1 : s;
	errno = 0;
	v = strtoll(s, &end, 0);
	if (!isdigit((unsigned char)*d) || *end || errno)
		return df_perr_set(x->err, x->at_line, -1, -1, -1,
				   "<%s>: %s=\"%.60s\" is not a number", x->name, name, s);
	if (v < min || v > max)
		return df_perr_set(x->err, x->at_line, -1, -1, -1,
				   "<%s>: %s=%lld is outside %lld..%lld", x->name, name, v,
				   (long long)min, (long long)max);
	*out = v;
	return 0;
}
