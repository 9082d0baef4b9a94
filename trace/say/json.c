/* JSON of the tools: see json.h. A value belongs to one thread. */
#include "trace/say/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clean_text.h"
#include "trace/read/stacks.h"

json_t *df_json_text(const char *s)
{
	json_t *o = s ? json_string(s) : json_null();
	char *copy = o ? NULL : strdup(s);

	if (copy) {
		df_text_clean(copy, strlen(copy));
		o = json_string(copy);
	}
	free(copy);
	return o;
}

json_t *df_json_u64(uint64_t v)
{
	return v > INT64_MAX ? json_real((double)v) : json_integer((json_int_t)v);
}

json_t *df_json_hex(uint64_t v)
{
	return json_sprintf("0x%" PRIx64, v);
}

json_t *df_json_milli(double v)
{
	return json_real(round(v * 1e3) / 1e3);
}

void df_json_add(json_t *o, json_t *more)
{
	json_object_update(o, more);
	json_decref(more);
}

json_t *df_json_frames(const char *stack)
{
	json_t *list = json_array();
	char frame[512];

	for (const char *at = stack, *end; *at; at = *end ? end + strlen(DF_STACK_SEP) : end) {
		end = strstr(at, DF_STACK_SEP);
		if (!end)
			end = at + strlen(at);
		snprintf(frame, sizeof(frame), "%.*s", (int)(end - at), at);
		json_array_append_new(list, df_json_text(frame));
	}
	return list;
}

static int put(const char *text, size_t size, void *out)
{
	for (size_t n; size; text += n, size -= n) {
		const char *lt = memchr(text, '<', size);

		n = lt ? (size_t)(lt - text) : size;
		fwrite(text, 1, n, out);
		if (lt)
			fputs("\\u003c", out);
		n += lt != NULL;
	}
	return ferror((FILE *)out) ? -1 : 0;
}

int df_json_write(json_t *o, FILE *out, int indent)
{
	size_t flags = JSON_REAL_PRECISION(15) | JSON_ENCODE_ANY;
	int rc = !o ? -ENOMEM : 0;

	if (o && json_dump_callback(o, put, out, flags | (indent ? JSON_INDENT(2) : JSON_COMPACT)))
		rc = ferror(out) ? -errno : -ENOMEM;
	json_decref(o);
	return rc;
}

int df_json_line(json_t *o, FILE *out)
{
	int rc = df_json_write(o, out, 0);

	fputc('\n', out);
	return rc;
}
