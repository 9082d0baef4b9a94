/*
 * The JSON writer. It owns the invariant that what df_json_fini() accepts is one well-formed JSON
 * text. A writer belongs to one thread; no locks.
 */
#include "runtime/base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void put(struct df_json *j, const char *s, size_t n)
{
	if (j->len + n < j->size)
		memcpy(j->buf + j->len, s, n);
	j->len += n;
}

static void put_str(struct df_json *j, const char *s)
{
	put(j, s, strlen(s));
}

/* Length of the UTF-8 sequence at s, 0 if it is none (overlong forms and surrogates included). */
static size_t utf8_len(const unsigned char *s, size_t n)
{
	size_t len, i;
	uint32_t c;

	if (s[0] < 0x80)
		return 1;
	if (s[0] >= 0xc2 && s[0] <= 0xdf)
		len = 2;
	else if ((s[0] & 0xf0) == 0xe0)
		len = 3;
	else if (s[0] >= 0xf0 && s[0] <= 0xf4)
		len = 4;
	else
		return 0;
	if (len > n)
		return 0;
	c = s[0] & (0xff >> (len + 1));
	for (i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if ((len == 3 && (c < 0x800 || (c >= 0xd800 && c <= 0xdfff))) ||
	    (len == 4 && (c < 0x10000 || c > 0x10ffff)))
		return 0;
	return len;
}

static void put_quoted(struct df_json *j, const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;
	char esc[8];
	size_t len;

	put(j, "\"", 1);
	while (n) {
		len = utf8_len(p, n);
		if (!len) {
			put(j, "\\ufffd", 6);
			len = 1;
		} else if (*p == '"' || *p == '\\') {
			esc[0] = '\\';
			esc[1] = (char)*p;
			put(j, esc, 2);
		} else if (*p == '\n') {
			put(j, "\\n", 2);
		} else if (*p == '\t') {
			put(j, "\\t", 2);
		} else if (*p < 0x20 || *p == 0x7f) {
			snprintf(esc, sizeof(esc), "\\u%04x", *p);
			put(j, esc, 6);
		} else {
			put(j, (const char *)p, len);
		}
		p += len;
		n -= len;
	}
	put(j, "\"", 1);
}

/* What stands before every value: the comma and the key. */
static void begin(struct df_json *j, const char *key)
{
	int in_object = j->depth > 0 && j->close[j->depth - 1] == '}';

	if ((key != NULL) != in_object || (!j->depth && j->len)) {
		j->error = -EINVAL;
		return;
	}
	if (j->depth && j->nr_in[j->depth - 1])
		put(j, ",", 1);
	if (j->depth)
		j->nr_in[j->depth - 1] = 1;
	if (key) {
		put_quoted(j, key, strlen(key));
		put(j, ":", 1);
	}
}

static void open_level(struct df_json *j, const char *key, const char *open, unsigned char close)
{
	begin(j, key);
	if (j->depth == DF_JSON_DEPTH) {
		j->error = -EINVAL;
		return;
	}
	put_str(j, open);
	j->close[j->depth] = close;
	j->nr_in[j->depth] = 0;
	j->depth++;
}

void df_json_init(struct df_json *j, char *buf, size_t size)
{
	memset(j, 0, sizeof(*j));
	j->buf = buf;
	j->size = size;
}

long df_json_fini(struct df_json *j)
{
	if (j->size)
		j->buf[j->len < j->size ? j->len : 0] = '\0';
	if (j->error || j->depth || !j->len)
		return -EINVAL;
	return j->len < j->size ? (long)j->len : -ENOSPC;
}

void df_json_object(struct df_json *j, const char *key)
{
	open_level(j, key, "{", '}');
}

void df_json_array(struct df_json *j, const char *key)
{
	open_level(j, key, "[", ']');
}

void df_json_end(struct df_json *j)
{
	if (!j->depth) {
		j->error = -EINVAL;
		return;
	}
	j->depth--;
	put(j, (const char *)&j->close[j->depth], 1);
}

void df_json_strn(struct df_json *j, const char *key, const char *value, size_t len)
{
	begin(j, key);
	if (value)
		put_quoted(j, value, len);
	else
		put_str(j, "null");
}

void df_json_str(struct df_json *j, const char *key, const char *value)
{
	df_json_strn(j, key, value, value ? strlen(value) : 0);
}

void df_json_i64(struct df_json *j, const char *key, int64_t value)
{
	char num[32];

	begin(j, key);
	snprintf(num, sizeof(num), "%lld", (long long)value);
	put_str(j, num);
}

void df_json_u64(struct df_json *j, const char *key, uint64_t value)
{
	char num[32];

	begin(j, key);
	snprintf(num, sizeof(num), "%llu", (unsigned long long)value);
	put_str(j, num);
}

void df_json_double(struct df_json *j, const char *key, double value)
{
	char num[64], *p;

	begin(j, key);
	if (!isfinite(value)) {
		put_str(j, "null");
		return;
	}
	snprintf(num, sizeof(num), "%.17g", value);
	for (p = num; *p; p++)
		if (*p == ',')
			*p = '.'; /* the application's locale */
	if (!strpbrk(num, ".e"))
		strcat(num, ".0"); /* so that readers keep it a real number */
	put_str(j, num);
}

void df_json_bool(struct df_json *j, const char *key, int value)
{
	begin(j, key);
	put_str(j, value ? "true" : "false");
}

void df_json_null(struct df_json *j, const char *key)
{
	begin(j, key);
	put_str(j, "null");
}
