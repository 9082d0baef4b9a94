/*
 * Sleeping on a 32-bit word. shared: the word lies in memory that several processes map.
 *
 * A futex does not order memory: callers read and write the word with their own acquire and
 * release. Callers bound every wait; -1 (no bound) is for idle threads only.
 */
#ifndef DF_BASE_FUTEX_H
#define DF_BASE_FUTEX_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * Sleeps while *word == expected, for at most timeout_ns (negative: no bound). Returns 0 if it was
 * woken, if the word already differed, or if a signal arrived, so the caller must check again.
 * Returns -ETIMEDOUT at the bound. Preserves errno.
 */
static inline int df_futex_wait(const uint32_t *word, uint32_t expected, int64_t timeout_ns,
				int shared)
{
	struct timespec ts = {(time_t)(timeout_ns / 1000000000), (long)(timeout_ns % 1000000000)};
	int op = FUTEX_WAIT | (shared ? 0 : FUTEX_PRIVATE_FLAG);
	int saved = errno, ret = 0;

	if (syscall(SYS_futex, word, op, expected, timeout_ns < 0 ? (void *)0 : (void *)&ts,
		    (void *)0, 0) < 0 &&
	    errno == ETIMEDOUT)
		ret = -ETIMEDOUT;
	errno = saved;
	return ret;
}

/* Wakes at most nr threads that sleep on the word (INT_MAX: all). Preserves errno. */
static inline void df_futex_wake(const uint32_t *word, int nr, int shared)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), nr, (void *)0,
		(void *)0, 0);
	errno = saved;
}

#endif
