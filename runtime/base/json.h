/*
 * A JSON writer into a buffer of the caller: no allocation, no stdio, so that the library may use it
 * at exit and on every hooked path. Commas, escapes and nesting are its business; what does not fit
 * is noticed once, at the end.
 *
 *	df_json_init(&j, buf, sizeof(buf));
 *	df_json_object(&j, NULL);
 *	df_json_u64(&j, "operations", 5);
 *	df_json_end(&j);
 *	ret = df_json_fini(&j);
 *
 * key is NULL at the top and inside arrays. Strings need not be valid UTF-8: bytes that are not are
 * written as U+FFFD. Doubles that JSON can't say become null.
 */
#ifndef DF_BASE_JSON_H
#define DF_BASE_JSON_H

#include <stddef.h>
#include <stdint.h>

#define DF_JSON_DEPTH 32

struct df_json {
	char *buf;
	size_t size, len; /* len counts on past size, so it says what would have been needed */
	unsigned depth;
	int error; /* 0 or -errno */
	unsigned char close[DF_JSON_DEPTH];
	unsigned char nr_in[DF_JSON_DEPTH]; /* 0: the next element is the first */
};

void df_json_init(struct df_json *j, char *buf, size_t size);

/*
 * The length, the NUL not counted. -ENOSPC: too long, nothing usable in buf. -EINVAL: unbalanced,
 * nested too deep, or a key where none belongs (a mistake of the caller).
 */
long df_json_fini(struct df_json *j);

void df_json_object(struct df_json *j, const char *key);
void df_json_array(struct df_json *j, const char *key);
void df_json_end(struct df_json *j); /* of the innermost object or array */

void df_json_str(struct df_json *j, const char *key, const char *value); /* NULL: null */
void df_json_strn(struct df_json *j, const char *key, const char *value, size_t len);
void df_json_i64(struct df_json *j, const char *key, int64_t value);
void df_json_u64(struct df_json *j, const char *key, uint64_t value);
void df_json_double(struct df_json *j, const char *key, double value);
void df_json_bool(struct df_json *j, const char *key, int value);
void df_json_null(struct df_json *j, const char *key);

#endif
