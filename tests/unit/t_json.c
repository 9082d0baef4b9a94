/* Description: random documents written by df_json are read back by jansson as the same. */
#include "tests/lib/test.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/json.h"
#include "runtime/base/rng.h"

static char buf[1 << 20];

static void random_text(struct df_rng *r, char *out, size_t size, int utf8)
{
	static const char *const pieces[] = {
		"a", "\"", "\\", "\n", "\t", "\x01", "\x7f", "/", "é", "€", "\xf0\x9f\x98\x80",
		" "};
	size_t len = 0, n = df_rng_below(r, 12);

	*out = '\0';
	while (n--) {
		const char *p = pieces[df_rng_below(r, DF_ARRAY_LEN(pieces))];

		if (!utf8) {
			out[len++] = (char)(1 + df_rng_below(r, 255));
			out[len] = '\0';
		} else if (len + strlen(p) + 1 < size) {
			strcpy(out + len, p);
			len += strlen(p);
		}
	}
}

/* Writes a random value and builds the same in jansson. */
static json_t *random_value(struct df_json *j, struct df_rng *r, const char *key, int depth)
{
	int kind = (int)df_rng_below(r, depth < 6 ? 9 : 7), n, i;
	char text[128], name[64];
	json_t *v, *child;
	double d;

	switch (kind) {
	case 0:
		random_text(r, text, sizeof(text), 1);
		df_json_str(j, key, text);
		return json_string(text);
	case 1:
		n = (int)df_rng_u64(r);
		df_json_i64(j, key, n);
		return json_integer(n);
	case 2:
		df_json_u64(j, key, 1ull << 62);
		return json_integer(1ll << 62);
	case 3:
		d = (df_rng_double(r) - 0.5) * pow(10, (double)df_rng_range(r, -200, 200)) + 0.1;
		df_json_double(j, key, d);
		return json_real(d);
	case 4:
		n = (int)df_rng_below(r, 2);
		df_json_bool(j, key, n);
		return json_boolean(n);
	case 5:
		df_json_null(j, key);
		return json_null();
	case 6:
		df_json_double(j, key, NAN);
		return json_null();
	case 7:
		df_json_array(j, key);
		v = json_array();
		for (n = (int)df_rng_below(r, 5); n; n--)
			json_array_append_new(v, random_value(j, r, NULL, depth + 1));
		df_json_end(j);
		return v;
	default:
		df_json_object(j, key);
		v = json_object();
		n = (int)df_rng_below(r, 5);
		for (i = 0; i < n; i++) {
			random_text(r, text, sizeof(text), 1);
			snprintf(name, sizeof(name), "%d%.40s", i, "key");
			child = random_value(j, r, name, depth + 1);
			json_object_set_new(v, name, child);
		}
		df_json_end(j);
		return v;
	}
}

START_TEST(t_random)
{
	struct df_rng r;
	struct df_json j;
	json_error_t err;
	json_t *want, *got;
	long len;
	int i;

	df_rng_init(&r, df_test_seed() + (uint64_t)_i);
	for (i = 0; i < 200; i++) {
		df_json_init(&j, buf, sizeof(buf));
		want = random_value(&j, &r, NULL, 0);
		len = df_json_fini(&j);
		ck_assert_msg(len > 0 && (size_t)len == strlen(buf), "%ld", len);
		got = json_loads(buf, JSON_DECODE_ANY, &err);
		ck_assert_msg(got != NULL, "seed %llu: %s in %s",
			      (unsigned long long)df_test_seed(), err.text, buf);
		ck_assert_msg(json_is_real(want) || json_equal(want, got), "seed %llu: %s",
			      (unsigned long long)df_test_seed(), buf);
		if (json_is_real(want) && json_is_real(got))
			ck_assert(json_real_value(want) == json_real_value(got));
		json_decref(want);
		json_decref(got);
	}
}
END_TEST

/* Any bytes give valid JSON. */
START_TEST(t_any_bytes)
{
	struct df_rng r;
	struct df_json j;
	char text[64];
	json_t *got;
	int i;

	df_rng_init(&r, df_test_seed());
	for (i = 0; i < 5000; i++) {
		random_text(&r, text, sizeof(text), 0);
		df_json_init(&j, buf, sizeof(buf));
		df_json_str(&j, NULL, text);
		ck_assert_int_gt(df_json_fini(&j), 0);
		got = json_loads(buf, JSON_DECODE_ANY, NULL);
		ck_assert_msg(json_is_string(got), "%s", buf);
		json_decref(got);
	}
}
END_TEST

START_TEST(t_sizes)
{
	char small[8];
	struct df_json j;
	size_t size;

	/* "[1,22]" needs 7 bytes with its NUL. */
	for (size = 0; size <= sizeof(small); size++) {
		memset(small, '#', sizeof(small));
		df_json_init(&j, small, size);
		df_json_array(&j, NULL);
		df_json_u64(&j, NULL, 1);
		df_json_i64(&j, NULL, 22);
		df_json_end(&j);
		ck_assert_int_eq(df_json_fini(&j), size >= 7 ? 6 : -ENOSPC);
		if (size < sizeof(small))
			ck_assert_int_eq(small[size], '#');
	}
	ck_assert_str_eq(small, "[1,22]");
}
END_TEST

START_TEST(t_mistakes)
{
	struct df_json j;
	int i;

	df_json_init(&j, buf, sizeof(buf));
	ck_assert_int_eq(df_json_fini(&j), -EINVAL); /* nothing */
	df_json_init(&j, buf, sizeof(buf));
	df_json_object(&j, NULL);
	ck_assert_int_eq(df_json_fini(&j), -EINVAL); /* open */
	df_json_init(&j, buf, sizeof(buf));
	df_json_end(&j);
	ck_assert_int_eq(df_json_fini(&j), -EINVAL); /* end of nothing */
	df_json_init(&j, buf, sizeof(buf));
	df_json_object(&j, NULL);
	df_json_null(&j, NULL);
	df_json_end(&j);
	ck_assert_int_eq(df_json_fini(&j), -EINVAL); /* no key in an object */
	df_json_init(&j, buf, sizeof(buf));
	df_json_array(&j, NULL);
	df_json_null(&j, "key");
	df_json_end(&j);
	ck_assert_int_eq(df_json_fini(&j), -EINVAL); /* a key in an array */
	df_json_init(&j, buf, sizeof(buf));
	df_json_null(&j, NULL);
	df_json_null(&j, NULL);
	ck_assert_int_eq(df_json_fini(&j), -EINVAL); /* two texts */
	df_json_init(&j, buf, sizeof(buf));
	for (i = 0; i <= DF_JSON_DEPTH; i++)
		df_json_array(&j, NULL);
	for (i = 0; i <= DF_JSON_DEPTH; i++)
		df_json_end(&j);
	ck_assert_int_eq(df_json_fini(&j), -EINVAL); /* too deep */
}
END_TEST

int main(void)
{
	Suite *s = suite_create("json");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, t_random, 0, 10);
	tcase_add_test(tc, t_any_bytes);
	tcase_add_test(tc, t_sizes);
	tcase_add_test(tc, t_mistakes);
	suite_add_tcase(s, tc);
	return df_test_run(s);
}
