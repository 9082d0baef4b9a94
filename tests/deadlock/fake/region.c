/*
 * The memory that all ranks of one communicator of the stand-in for NCCL share, and how they wait for one another.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "fake.h"

void fake_nap(void)
{
	struct timespec t = {0, 50000};

	nanosleep(&t, NULL);
}

int fake_aborted(const struct comm *c)
{
	return __atomic_load_n(&c->aborted, __ATOMIC_ACQUIRE);
}

static void file_of(const char *name, char path[PATH_MAX])
{
	const char *dir = getenv("T");

	snprintf(path, PATH_MAX, "%s/%s", dir ? dir : "/tmp", name);
}

struct comm *fake_open(const char *name, int nranks, int rank)
{
	struct comm *c = calloc(1, sizeof(*c));
	char path[PATH_MAX];
	int fd;

	file_of(name, path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(struct region)))
		abort();
	c->r = mmap(NULL, sizeof(struct region), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	c->magic = DF_NCCL_COMM_MAGIC;
	c->nranks = nranks;
	c->rank = rank;
	snprintf(c->name, sizeof(c->name), "%s", name);
	cudaGetDevice(&c->device);
	__atomic_fetch_add(&c->r->arrived, 1, __ATOMIC_ACQ_REL);
	return c;
}

void fake_wait_all(struct comm *c)
{
	char path[PATH_MAX];

	while (GET(&c->r->arrived) < (uint32_t)c->nranks && !fake_aborted(c))
		fake_nap();
	file_of(c->name, path);
	unlink(path);
}
