/*
 * Preloaded: holds back TCP connections at random. FAKE_STREAMS_HOLD=MS: a held connection accepts
 * no data for MS ms, as if its send buffer were full. Data of a connection stay in order.
 * FAKE_STREAMS_SEEN=FILE: gets a line when the first connection of a process is held.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVERY	32 /* one in this number of calls starts a hold */
#define FDS_MAX 4096

static uint64_t until[FDS_MAX]; /* end of the hold of each descriptor, in ns; atomic */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t dice(uint32_t below)
{
	static __thread uint64_t x;
	const char *seed = getenv("SEED");

	if (!x)
		x = (seed ? strtoull(seed, NULL, 10) : 0) ^ (uint64_t)(uintptr_t)&x ^
		    (uint64_t)getpid() << 32;
	x = x * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(x >> 33) % below;
}

static int is_tcp(int fd)
{
	int domain = 0, type = 0;
	socklen_t len = sizeof(int);

	return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) &&
	       !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_STREAM &&
	       (domain == AF_INET || domain == AF_INET6);
}

static void say_held(void)
{
	static int said;
	const char *file = getenv("FAKE_STREAMS_SEEN");
	FILE *f =
		file && !__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED) ? fopen(file, "ae") : NULL;

	if (f) {
		fprintf(f, "a connection was held back\n");
		fclose(f);
	}
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	static ssize_t (*next)(int, const struct msghdr *, int);
	const char *ms = getenv("FAKE_STREAMS_HOLD");
	uint64_t now;

	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "sendmsg");
	if (!ms || fd < 0 || fd >= FDS_MAX || !(flags & MSG_DONTWAIT) || !is_tcp(fd))
		return next(fd, m, flags);
	now = now_ns();
	if (__atomic_load_n(&until[fd], __ATOMIC_RELAXED) <= now && !dice(EVERY)) {
		__atomic_store_n(&until[fd], now + strtoull(ms, NULL, 10) * 1000000u,
				 __ATOMIC_RELAXED);
		say_held();
	}
	if (__atomic_load_n(&until[fd], __ATOMIC_RELAXED) <= now)
		return next(fd, m, flags);
	errno = EAGAIN;
	return -1;
}
