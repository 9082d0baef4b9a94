/*
 * Description: words that streams write, each with a copy in a GPU's memory, with threads. Streams
 * mark their positions, a block polls the copies, and a poller reads the sum of all words. More
 * marks are made than there are places for copies. A stream's earlier writes are read without any
 * other synchronisation, so ThreadSanitizer reports accesses that the words do not order.
 */
#include <pthread.h>
#include <sched.h>
#include "runtime/backend.h"
#include "runtime/blocks.h"
#include "runtime/coll/words.h"
#include "tests/lib/test.h"

#define STREAMS 4 /* alternately on two devices */
#define ROUNDS	2000
#define LINE	8 /* number of words in a line */
#define MARKS	1200

struct df_mstream {
	int device;
};

static _Alignas(64) uint64_t near[2][DF_NEAR_BYTES / sizeof(uint64_t)];
static struct df_backend api;
static struct df_blocks blocks;
static struct df_mstream streams[STREAMS];
static struct df_mutex lock[STREAMS];
static struct df_mark mark[STREAMS];
static uint64_t before[STREAMS][ROUNDS + 1]; /* what a stream wrote before each mark; not atomic */
static uint32_t over;

static uint64_t *near_words(const struct df_mstream *s)
{
	return s ? near[s->device] : NULL;
}

/* Performs the write at once: the stream has reached it. */
static int stream_write(struct df_mstream *s, uint64_t *addr, uint64_t *at, uint64_t value)
{
	(void)s;
	if (at)
		/* RELEASE pairs with the ACQUIRE in block(). */
		__atomic_store_n(at, value, __ATOMIC_RELEASE);
	/* RELEASE pairs with the ACQUIRE in poller(). */
	__atomic_store_n(addr, value, __ATOMIC_RELEASE);
	return 0;
}

static void *stream(void *arg)
{
	int i = (int)(intptr_t)arg, k;
	uint64_t value;

	for (k = 1; k <= ROUNDS; k++) {
		before[i][k] = (uint64_t)k * 3;
		df_mutex_lock(&lock[i]);
		ck_assert_int_eq(df_word_mark(&lock[i], &mark[i], &streams[i], &value), 0);
		df_mutex_unlock(&lock[i]);
		ck_assert_uint_eq(value, (uint64_t)k);
	}
	return NULL;
}

static void *block(void *arg)
{
	int i, k;

	for (k = 1; k <= ROUNDS; k++)
		for (i = 0; i < STREAMS; i++) {
			/* ACQUIRE pairs with the RELEASE in stream_write(). */
			while (__atomic_load_n(df_word_near(mark[i].word), __ATOMIC_ACQUIRE) <
			       (uint64_t)k)
				sched_yield();
			ck_assert_uint_eq(before[i][k], (uint64_t)k * 3);
		}
	return arg;
}

/* When the sum has changed, the copies in GPU memory are at least as new as the words. */
static void *poller(void *arg)
{
	uint64_t sum = 0, now, value;
	int i;

	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		now = df_words_sum();
		if (now == sum) {
			sched_yield();
			continue;
		}
		sum = now;
		for (i = 0; i < STREAMS; i++) {
			/* ACQUIRE pairs with the RELEASE in stream_write(). */
			value = __atomic_load_n(mark[i].word, __ATOMIC_ACQUIRE);
			ck_assert_uint_ge(
				__atomic_load_n(df_word_near(mark[i].word), __ATOMIC_RELAXED),
				value);
			ck_assert_ptr_eq(df_word_here(df_word_near(mark[i].word)), mark[i].word);
		}
	}
	return arg;
}

START_TEST(marks)
{
	pthread_t t[STREAMS + 2];
	struct df_mark more;
	int i, room = 0;

	api = *df_backend;
	blocks = *df_blocks;
	blocks.near_words = near_words;
	api.stream_write = stream_write;
	df_backend = &api;
	df_blocks = &blocks;
	for (i = 0; i < STREAMS; i++) {
		streams[i].device = i % 2;
		df_mutex_init(&lock[i], DF_RANK_DEVICE, "stream");
		mark[i] = (struct df_mark){0};
		ck_assert_int_eq(df_mark_init(&mark[i], &streams[i]), 0);
		ck_assert_ptr_nonnull(df_word_near(mark[i].word));
	}
	for (i = 0; i < STREAMS; i++)
		pthread_create(&t[i], NULL, stream, (void *)(intptr_t)i);
	pthread_create(&t[STREAMS], NULL, block, NULL);
	pthread_create(&t[STREAMS + 1], NULL, poller, NULL);
	for (i = 0; i < MARKS; i++) {
		const uint64_t *at;

		more = (struct df_mark){0};
		ck_assert_int_eq(df_mark_init(&more, &streams[0]), 0);
		at = df_word_near(more.word);
		room += at != NULL;
		ck_assert_ptr_eq(df_word_here(more.word), more.word);
		ck_assert(!at || (at > near[0] && at < near[0] + DF_NEAR_BYTES / sizeof(*at) &&
				  (at - near[0]) % LINE == 0));
		ck_assert_int_eq(df_mark_init(&more, NULL), 0);
		ck_assert_ptr_null(df_word_near(more.word));
	}
	/* The first line names no word, and half of the streams have a word on this device. */
	ck_assert_int_eq(room, DF_NEAR_BYTES / (LINE * (int)sizeof(uint64_t)) - 1 - STREAMS / 2);
	for (i = 0; i <= STREAMS; i++)
		pthread_join(t[i], NULL);
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	pthread_join(t[STREAMS + 1], NULL);
}
END_TEST

int main(void)
{
	return DF_TESTS("marks", {marks});
}
