/* Description: lists, locks with ranks, futexes, random numbers, hashes. */
#include "tests/lib/test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/futex.h"
#include "runtime/base/hash.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/once.h"
#include "runtime/base/rng.h"
#include "runtime/base/time.h"
#include "runtime/base/xml_text.h"

struct item {
	int value;
	struct df_list link;
};

/* Compares a list under random operations with an array under the same operations. */
START_TEST(t_list)
{
	struct item items[64], *it, *tmp;
	struct df_list head = DF_LIST_INIT(head), other;
	int model[64], n = 0, step, i, k, in[64] = {0};
	struct df_rng r;

	df_rng_init(&r, df_test_seed());
	df_list_init(&other);
	for (i = 0; i < 64; i++)
		items[i].value = i;
	for (step = 0; step < 20000; step++) {
		i = (int)df_rng_below(&r, 64);
		if (in[i]) {
			df_list_del(&items[i].link);
			for (k = 0; model[k] != i; k++)
				;
			memmove(&model[k], &model[k + 1], (size_t)(n - k - 1) * sizeof(int));
			n--;
		} else if (df_rng_below(&r, 2)) {
			df_list_add(&head, &items[i].link);
			memmove(&model[1], &model[0], (size_t)n * sizeof(int));
			model[0] = i;
			n++;
		} else {
			df_list_add_tail(&head, &items[i].link);
			model[n++] = i;
		}
		in[i] = !in[i];
		if (df_rng_below(&r, 50) == 0) {
			df_list_splice_tail(&other, &head);
			ck_assert(df_list_empty(&head));
			df_list_splice_tail(&head, &other);
		}
		k = 0;
		df_list_each(it, &head, link)
			ck_assert_msg(k < n && it->value == model[k++], "seed %llu step %d",
				      (unsigned long long)df_test_seed(), step);
		ck_assert_int_eq(k, n);
		ck_assert(df_list_empty(&head) == !n);
		if (n) {
			ck_assert_int_eq(df_list_first(&head, struct item, link)->value, model[0]);
			ck_assert_int_eq(df_list_last(&head, struct item, link)->value,
					 model[n - 1]);
		} else {
			ck_assert_ptr_null(df_list_first(&head, struct item, link));
		}
	}
	df_list_each_safe(it, tmp, &head, link) df_list_del(&it->link);
	ck_assert(df_list_empty(&head));
}
END_TEST

static struct df_mutex outer = DF_MUTEX_INIT(DF_RANK_COMM, "outer");
static struct df_mutex inner = DF_MUTEX_INIT(DF_RANK_LEAF, "inner");
static pthread_cond_t cond;
static int counter, turn;

static void *count(void *arg)
{
	int i;

	for (i = 0; i < 10000; i++) {
		df_mutex_lock(&outer);
		df_mutex_lock(&inner);
		counter++;
		df_mutex_unlock(&outer);
		df_mutex_unlock(&inner);
	}
	return arg;
}

static void *ping(void *arg)
{
	int me = (int)(long)arg, i;

	for (i = 0; i < 500; i++) {
		df_mutex_lock(&inner);
		while (turn != me)
			df_cond_wait(&cond, &inner, -1);
		turn = !me;
		pthread_cond_broadcast(&cond);
		df_mutex_unlock(&inner);
	}
	return NULL;
}

START_TEST(t_lock)
{
	pthread_t t[4];
	uint64_t start;
	int i;

	for (i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, count, NULL);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	ck_assert_int_eq(counter, 40000);
	df_cond_init(&cond);
	for (i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, ping, (void *)(long)i);
	for (i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	df_mutex_lock(&inner);
	start = df_now_ns();
	ck_assert_int_eq(df_cond_wait(&cond, &inner, 20 * (int64_t)DF_NS_PER_MS), -ETIMEDOUT);
	ck_assert_uint_ge(df_now_ns() - start, 20 * DF_NS_PER_MS);
	ck_assert_int_eq(df_mutex_trylock(&outer), 1); /* exempt from the lock order */
	df_mutex_unlock(&outer);
	df_mutex_unlock(&inner);
}
END_TEST

#define ONCE_THREADS 8

static struct df_once once;
static int once_work, once_seen;

static void *need_once(void *arg)
{
	if (df_once_begin(&once, "The test")) {
		df_lock_none_held("the work");
		df_sleep_ns(5 * DF_NS_PER_MS);
		once_work++; /* not atomic, because df_once orders it */
		df_once_end(&once);
	}
	__atomic_add_fetch(&once_seen, once_work, __ATOMIC_RELAXED);
	return arg;
}

START_TEST(t_once)
{
	pthread_t t[ONCE_THREADS];
	int i;

	for (i = 0; i < ONCE_THREADS; i++)
		pthread_create(&t[i], NULL, need_once, NULL);
	for (i = 0; i < ONCE_THREADS; i++)
		pthread_join(t[i], NULL);
	ck_assert_int_eq(once_work, 1);
	ck_assert_int_eq(once_seen, ONCE_THREADS);
	ck_assert_int_eq(df_once_begin(&once, "The test"), 0);
}
END_TEST

#ifdef DF_DEBUG
START_TEST(t_lock_order)
{
	df_mutex_lock(&inner);
	df_mutex_lock(&outer);
}
END_TEST

START_TEST(t_lock_not_held)
{
	df_mutex_unlock(&outer);
}
END_TEST

START_TEST(t_lock_across)
{
	df_lock_none_held("this");
	df_mutex_lock(&outer);
	df_lock_none_held("this");
}
END_TEST
#endif

static struct df_trylock try_word;
static long guarded;

static void *try_count(void *arg)
{
	int *taken = arg, i;

	for (i = 0; i < 20000; i++) {
		if (!df_trylock_try(&try_word))
			continue;
		guarded++;
		++*taken;
		df_trylock_release(&try_word);
	}
	return NULL;
}

START_TEST(t_trylock)
{
	int taken[2] = {0, 0};
	pthread_t t;

	pthread_create(&t, NULL, try_count, &taken[0]);
	try_count(&taken[1]);
	pthread_join(t, NULL);
	ck_assert_int_eq(guarded, taken[0] + taken[1]);
	ck_assert_int_gt(guarded, 0);
	ck_assert_int_eq(df_trylock_try(&try_word), 1);
	ck_assert_int_eq(df_trylock_try(&try_word), 0);
}
END_TEST

static uint32_t word;

static void *waker(void *arg)
{
	int shared = *(int *)arg;

	df_sleep_ns(5 * DF_NS_PER_MS);
	/* RELEASE pairs with the ACQUIRE in t_futex(): a published word. */
	__atomic_store_n(&word, 1, __ATOMIC_RELEASE);
	df_futex_wake(&word, 1, shared);
	return NULL;
}

START_TEST(t_futex)
{
	int shared = _i;
	uint64_t start = df_now_ns();
	pthread_t t;

	errno = E2BIG;
	/* the word differs, so it returns at once */
	ck_assert_int_eq(df_futex_wait(&word, 1, -1, shared), 0);
	ck_assert_int_eq(df_futex_wait(&word, 0, 10 * (int64_t)DF_NS_PER_MS, shared), -ETIMEDOUT);
	ck_assert_int_eq(errno, E2BIG);
	ck_assert_uint_ge(df_now_ns() - start, 10 * DF_NS_PER_MS);
	pthread_create(&t, NULL, waker, &shared);
	/* ACQUIRE pairs with the RELEASE in waker(). */
	while (!__atomic_load_n(&word, __ATOMIC_ACQUIRE))
		df_futex_wait(&word, 0, -1, shared);
	pthread_join(t, NULL);
}
END_TEST

START_TEST(t_rng)
{
	struct df_rng a, b;
	int counts[7] = {0}, i;

	df_rng_init(&a, df_test_seed());
	df_rng_init(&b, df_test_seed());
	for (i = 0; i < 1000; i++)
		ck_assert_uint_eq(df_rng_u64(&a), df_rng_u64(&b));
	for (i = 0; i < 70000; i++)
		counts[df_rng_below(&a, 7)]++;
	for (i = 0; i < 7; i++) /* within 10 standard deviations */
		ck_assert_msg(counts[i] > 9074 && counts[i] < 10926, "seed %llu: %d",
			      (unsigned long long)df_test_seed(), counts[i]);
	ck_assert_uint_eq(df_rng_below(&a, 0), 0);
	ck_assert_uint_eq(df_rng_below(&a, 1), 0);
	for (i = 0; i < 1000; i++) {
		ck_assert_int_ge(df_rng_range(&a, -3, 3), -3);
		ck_assert_int_le(df_rng_range(&a, -3, 3), 3);
	}
	df_rng_range(&a, INT64_MIN, INT64_MAX);
	/* Ranks on different machines compute the same values. */
	df_rng_init(&a, 42);
	ck_assert_uint_eq(df_rng_u64(&a), 0x15780b2e0c2ec716ull);
}
END_TEST

/*
 * Ranks exchange hashes, so their values must not change. A flipped bit changes about half of the
 * bits.
 */
START_TEST(t_hash)
{
	unsigned char data[64];
	uint64_t h, total = 0;
	struct df_rng r;
	int i, bit;

	ck_assert_uint_eq(df_mix64(0), 0);
	ck_assert_uint_eq(df_hash_bytes("", 0, 0), df_mix64(0xcbf29ce484222325ull));
	ck_assert_uint_ne(df_hash_bytes("a", 1, 0), df_hash_bytes("a", 1, 1));
	ck_assert_uint_ne(df_hash_u64(1, 2), df_hash_u64(2, 1));
	df_rng_init(&r, df_test_seed());
	for (i = 0; i < 64; i++)
		data[i] = (unsigned char)df_rng_u64(&r);
	h = df_hash_bytes(data, sizeof(data), 0);
	for (bit = 0; bit < 512; bit++) {
		data[bit / 8] ^= (unsigned char)(1 << bit % 8);
		total += (uint64_t)__builtin_popcountll(h ^ df_hash_bytes(data, sizeof(data), 0));
		data[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
	ck_assert_msg(total > 512 * 28 && total < 512 * 36, "seed %llu: %llu",
		      (unsigned long long)df_test_seed(), (unsigned long long)total);
}
END_TEST

/* A reader of XML gets the original text. Lengths count characters and not bytes. */
START_TEST(t_xml_text)
{
	static const struct {
		const char *text, *want;
		size_t max;
	} rows[] = {{"a<b> & \"c\"", "a&lt;b&gt; &amp; &quot;c&quot;", 0},
		    {"\x01\n\t\x7f", "?\n\t?", 0},
		    {"\xc3\xa9\xe2\x82\xac", "\xc3\xa9\xe2\x82\xac", 0},
		    {"\xff\xc3x\xe2\x82", "??x??", 0},
		    {"\xc3\xa9\xc3\xa9z", "\xc3\xa9\xc3\xa9...", 2},
		    {"abc", "abc", 3}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *text = NULL;
		size_t n;
		FILE *f = open_memstream(&text, &n);

		df_xml_text(f, rows[i].text, rows[i].max);
		fclose(f);
		ck_assert_str_eq(text, rows[i].want);
		free(text);
	}
}
END_TEST

int main(void)
{
	const struct df_test tests[] = {
		{t_list},
		{t_lock},
#ifdef DF_DEBUG
		{t_lock_order, .signal = SIGABRT},
		{t_lock_not_held, .signal = SIGABRT},
		{t_lock_across, .signal = SIGABRT},
#endif
		{t_trylock},
		{t_once},
		{t_futex, 2},
		{t_rng},
		{t_hash},
		{t_xml_text},
	};

	return df_tests("base", tests, DF_ARRAY_LEN(tests));
}
