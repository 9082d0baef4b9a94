/*
 * Description: memory of the CPU backend's daemon is zeroed, even if it was used before. Unused
 * pages are not touched, so visible devices without work need no memory.
 */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/blocks.h"
#include "runtime/device/device.h"
#include "tests/lib/test.h"

#define NR    24
#define BYTES (300000u) /* size of a device's rings */

/* Returns the number of resident pages that are completely inside the range. */
static size_t touched(char *p, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), nr, i, n = 0;
	char *from = (char *)(((uintptr_t)p + page - 1) / page * page);
	unsigned char in[BYTES / 4096];

	nr = (size_t)(p + bytes - from) / page;
	ck_assert_int_eq(mincore(from, nr * page, in), 0);
	for (i = 0; i < nr; i++)
		n += in[i] & 1;
	return n;
}

static void all_zero(const char *p, size_t bytes)
{
	ck_assert(p[0] == 0 && !memcmp(p, p + 1, bytes - 1));
}

START_TEST(t_untouched)
{
	char *p[NR];
	size_t i;

	for (i = 0; i < NR; i++) {
		p[i] = df_threads.shared_alloc(BYTES, 1);
		ck_assert(p[i] && (uintptr_t)p[i] % 64 == 0);
	}
	for (i = 0; i < NR; i++) {
		ck_assert_uint_eq(touched(p[i], BYTES), 0);
		all_zero(p[i], BYTES);
		df_threads.shared_free(p[i]);
	}
}
END_TEST

/* Any size, in memory that was used before. */
START_TEST(t_zeroed)
{
	static const size_t sizes[] = {1, 64, 4095, 65535, 65536, 70000, 131072, BYTES};
	size_t i, round;

	for (round = 0; round < 100; round++) {
		for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			char *p = df_threads.shared_alloc(sizes[i], 0), *q;

			ck_assert_ptr_nonnull(p);
			memset(p, 0xa5, sizes[i]);
			df_threads.shared_free(p);
			q = df_threads.shared_alloc(sizes[i], 1);
			ck_assert_ptr_nonnull(q);
			all_zero(q, sizes[i]);
			memset(q, 0x5a, sizes[i]);
			df_threads.shared_free(q);
		}
	}
}
END_TEST

int main(void)
{
	return DF_TESTS("memory", {t_untouched}, {t_zeroed});
}
