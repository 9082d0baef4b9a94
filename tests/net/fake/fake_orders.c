/* See fake_orders.h. */
#define _GNU_SOURCE
#include "fake_orders.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t nr_failures;

int told(const char *word)
{
	const char *list = getenv("FAKE_PLUGIN"), *at = list;
	size_t len = strlen(word);

	while (at && (at = strstr(at, word))) {
		if ((at == list || at[-1] == ',') && (!at[len] || at[len] == ','))
			return 1;
		at += len;
	}
	return 0;
}

int is_turn(const char *variable, uint64_t *times)
{
	const char *n = getenv(variable);

	return n && __atomic_add_fetch(times, 1, __ATOMIC_RELAXED) % strtoull(n, NULL, 10) == 0;
}

/* Returns 1 in the first process that creates the file. */
static int is_first(const char *file)
{
	int fd = open(file, O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	return fd >= 0 && close(fd) == 0;
}

/* FAKE_PLUGIN_HOLD: if this is the chosen call, does not return, or returns late. */
static void hold(const char *call)
{
	static uint64_t calls;
	const char *want = getenv("FAKE_PLUGIN_HOLD"), *once = getenv("FAKE_PLUGIN_HELD");
	size_t len = strlen(call);
	char *end;

	if (!want || strncmp(want, call, len) || want[len] != ':' ||
	    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != strtoull(want + len + 1, &end, 10) ||
	    (once && !is_first(once)))
		return;
	if (*end)
		usleep((useconds_t)strtoul(end + 1, NULL, 10) * 1000);
	else
		for (;;)
			pause();
}

int fails(const char *call)
{
	static uint64_t calls;
	const char *want = getenv("FAKE_PLUGIN_FAIL");
	size_t len = strlen(call);
	uint64_t n, most;
	char *end;

	hold(call);
	if (!want || strncmp(want, call, len) || want[len] != ':')
		return 0;
	n = strtoull(want + len + 1, &end, 10);
	most = *end ? strtoull(end + 1, NULL, 10) : UINT64_MAX;
	if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % n ||
	    __atomic_load_n(&nr_failures, __ATOMIC_RELAXED) >= most)
		return 0;
	__atomic_add_fetch(&nr_failures, 1, __ATOMIC_RELAXED);
	return 1;
}

unsigned chance(void)
{
	static __thread uint64_t x;

	if (!x)
		x = (uint64_t)(uintptr_t)&x ^ 0x66616b65706c7567ull;
	x = x * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(x >> 33);
}

uint64_t nr_failed(void)
{
	return __atomic_load_n(&nr_failures, __ATOMIC_RELAXED);
}
