/*
 * Description: several processes request the port of RAS at the same time, and the kernel refuses
 * all of them. One of them soon has it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <netinet/in.h>
#include <unistd.h>
#include "runtime/watch/ras_server.h"

#define NR_REFUSED 3

static int nr_listens, paused_ms;

/* Replaces libc's listen(). The first calls are refused, as in a race. */
int listen(int fd, int backlog)
{
	if (__atomic_fetch_add(&nr_listens, 1, __ATOMIC_RELAXED) >= NR_REFUSED)
		return (int)syscall(SYS_listen, fd, backlog);
	errno = EADDRINUSE;
	return -1;
}

/* Replaces libc's poll(). Adds up the requested pauses. */
int poll(struct pollfd *fds, nfds_t nr, int ms)
{
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000L};

	for (nfds_t i = 0; i < nr; i++)
		if (fds[i].fd >= 0)
			ms = -1;
	if (nr && ms >= 0)
		__atomic_fetch_add(&paused_ms, ms, __ATOMIC_RELAXED);
	return (int)syscall(SYS_ppoll, fds, nr, ms < 0 ? NULL : &ts, NULL, 0);
}

static int try_connect(const struct sockaddr_in *addr)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), ret;

	ret = connect(fd, (const struct sockaddr *)addr, sizeof(*addr));
	close(fd);
	return ret;
}

int main(void)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0), ms;
	char text[64];

	/* A free port, which probably remains free for a moment. */
	if (bind(fd, (struct sockaddr *)&addr, len) ||
	    getsockname(fd, (struct sockaddr *)&addr, &len)) {
		perror("a free port");
		return 1;
	}
	close(fd);
	snprintf(text, sizeof(text), "127.0.0.1:%d", ntohs(addr.sin_port));
	setenv("NCCL_RAS_ADDR", text, 1);
	df_ras_start(1);
	while (try_connect(&addr))
		usleep(1000);
	ms = __atomic_load_n(&paused_ms, __ATOMIC_RELAXED);
	printf("%d refused, then it listens, after pauses of %d ms\n", NR_REFUSED, ms);
	if (ms > 0 && ms < 1000)
		return 0;
	printf("FAILED: such a pause is for a port that another process has\n");
	return 1;
}
