/* See bounded.h. One thread: fork() is safe. */
#include "trace/cli/net/bounded.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/time.h"

static void child(int fd, void (*fill)(void *out), const void *out, size_t size)
{
	const char *p = out;
	ssize_t n;

	fill((void *)(uintptr_t)out);
	while (size) {
		n = write(fd, p, size);
		if (n <= 0)
			break;
		p += n;
		size -= (size_t)n;
	}
	/* Skip the destructors of loaded libraries: they may hang, too. */
	_exit(size != 0);
}

/* Returns how many bytes arrived in time. */
static size_t collect(int fd, char *to, size_t size, double seconds)
{
	uint64_t end = df_now_ns() + (uint64_t)(seconds * 1e9), now;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	size_t got = 0;
	ssize_t n;

	while (got < size && (now = df_now_ns()) < end) {
		if (poll(&p, 1, (int)((end - now) / DF_NS_PER_MS) + 1) <= 0)
			continue;
		n = read(fd, to + got, size - got);
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	return got;
}

int df_bounded(void (*fill)(void *out), void *out, size_t size, double seconds, int *signal)
{
	uint64_t end = df_now_ns() + (uint64_t)(seconds * 1e9);
	int fd[2], status = 0, ret = 0;
	char *copy = malloc(size);
	pid_t pid;

	*signal = 0;
	if (!copy || pipe(fd)) {
		free(copy);
		return -errno;
	}
	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		ret = -errno;
		goto out;
	}
	if (!pid) {
		close(fd[0]);
		child(fd[1], fill, out, size);
	}
	close(fd[1]);
	fd[1] = -1;
	if (collect(fd[0], copy, size, seconds) == size) {
		__builtin_memcpy(out, copy, size);
	} else if (df_now_ns() >= end) {
		ret = -ETIMEDOUT;
	} else {
		ret = -EFAULT;
	}
	/* The child has finished. If it died, it is already a zombie and keeps its status. */
	if (ret != -EFAULT)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (ret == -EFAULT)
		*signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
out:
	close(fd[0]);
	if (fd[1] >= 0)
		close(fd[1]);
	free(copy);
	return ret;
}
