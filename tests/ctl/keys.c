/*
 * Preloaded into a job by t_leaks.sh. Writes all 128-bit random numbers that the job's processes
 * draw, and so all keys, to the file $KEYS.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t getrandom(void *to, size_t bytes, unsigned flags)
{
	ssize_t n = syscall(SYS_getrandom, to, bytes, flags);
	const char *path = getenv("KEYS");
	int fd;

	if (n != 16 || !path)
		return n;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, to, 16) != 16)
		abort();
	close(fd);
	return n;
}
