/*
 * Makes a communicator's shared memory (shared.h). All ranks enter it together, when the lane is
 * made; no locks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/file_size.h"
#include "runtime/base/log.h"
#include "runtime/comm/comm.h"
#include "runtime/ctl/ctl.h"
#include "runtime/exec/nccl/lane.h"
#include "runtime/exec/nccl/shared.h"

#define MAGIC 0x646673686c616e65ull
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* The data that a rank sends to the others. */
struct row {
	uint64_t token; /* 0 if the rank has no memory to offer */
	uint32_t pid;
	int32_t fd;
};

static uint64_t size_for(uint64_t nr)
{
	return sizeof(struct df_lane_shared) + DF_LANE_PLACES * nr * 8 +
	       nr * nr * 2 * DF_LANE_PAIRS * 8 + nr * sizeof(struct df_lane_area);
}

static void view_free(struct df_lane_view *v)
{
	if (!v)
		return;
	if (v->s)
		munmap(v->s, v->bytes);
	free(v->slots);
	free(v->ranks);
	free(v->messages);
	free(v);
}

static int same_node(const struct df_member *a, const struct df_member *b)
{
	return a->host == b->host && a->node == b->node;
}

/*
 * Returns a view without its memory: only the ranks of this node. Returns NULL if memory is
 * short.
 */
static struct df_lane_view *view_new(const struct df_comm *comm)
{
	struct df_lane_view *v = calloc(1, sizeof(*v));
	int i;

	if (!v)
		return NULL;
	v->slots = calloc((size_t)comm->nranks, sizeof(*v->slots));
	v->ranks = calloc((size_t)comm->nranks, sizeof(*v->ranks));
	v->messages = calloc(2 * (size_t)comm->nranks, sizeof(*v->messages));
	if (!v->slots || !v->ranks || !v->messages) {
		view_free(v);
		return NULL;
	}
	for (i = 0; i < comm->nranks; i++) {
		v->slots[i] = -1;
		if (!same_node(&comm->members[i], &comm->members[comm->rank]))
			continue;
		if (i == comm->rank)
			v->slot = v->nr;
		v->ranks[v->nr] = (uint32_t)i;
		v->slots[i] = (int)v->nr++;
	}
	v->bytes = size_for(v->nr);
	return v;
}

static void view_at(struct df_lane_view *v, void *base)
{
	v->s = base;
	v->words = (uint64_t *)(v->s + 1);
	v->pairs = v->words + DF_LANE_PLACES * (uint64_t)v->nr;
	v->areas = (struct df_lane_area *)(v->pairs + (uint64_t)v->nr * v->nr * 2 * DF_LANE_PAIRS);
}

static int map(struct df_lane_view *v, int fd)
{
	void *base = mmap(NULL, v->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (base == MAP_FAILED)
		return -ENOMEM;
	view_at(v, base);
	return 0;
}

/* Creates the memory. Returns its descriptor, or -errno. */
static int make(struct df_lane_view *v, uint64_t hash, uint64_t token)
{
	int fd = memfd_create("dfshim", MFD_CLOEXEC | MFD_ALLOW_SEALING), ret;

	if (fd < 0)
		return -errno;
	if (df_file_fits(v->bytes, "shared memory") || fchmod(fd, 0600) ||
	    ftruncate(fd, (off_t)v->bytes) || fcntl(fd, F_ADD_SEALS, SEALS))
		ret = -ENOMEM;
	else
		ret = map(v, fd);
	if (ret) {
		close(fd);
		return ret;
	}
	v->s->magic = MAGIC;
	v->s->hash = hash;
	v->s->nr = v->nr;
	v->s->token = token;
	return fd;
}

/*
 * Maps the memory that another rank has made, after checking that it is this memory and that it can
 * no longer shrink. Returns 0 or -errno.
 */
static int take(struct df_lane_view *v, uint64_t hash, const struct row *of)
{
	char path[64];
	struct stat st;
	int fd, ret;

	snprintf(path, sizeof(path), "/proc/%u/fd/%d", of->pid, of->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != v->bytes ||
	    fcntl(fd, F_GET_SEALS) != SEALS)
		ret = -EPROTO;
	else
		ret = map(v, fd);
	close(fd);
	if (!ret && (v->s->magic != MAGIC || v->s->token != of->token || v->s->hash != hash ||
		     v->s->nr != v->nr))
		ret = -EPROTO;
	return ret;
}

/* Whether all ranks of this rank's node could map the memory, according to their answers. */
static int all_have(const struct df_lane_view *v, const int32_t *answers, int *error)
{
	uint32_t i;

	for (i = 0; i < v->nr; i++)
		if (answers[v->ranks[i]]) {
			*error = answers[v->ranks[i]];
			return 0;
		}
	return 1;
}

int df_lane_share(struct df_lane *lane)
{
	struct df_comm *comm = lane->comm;
	struct row *rows = calloc((size_t)comm->nranks, sizeof(*rows)),
		   mine = {.pid = comm->members[comm->rank].pid, .fd = -1};
	int32_t *answers = calloc((size_t)comm->nranks, sizeof(*answers)), answer;
	struct df_lane_view *v = view_new(comm);
	int ret, made = -1, error = 0;

	/* A rank that is alone on its node only takes part in the exchange. */
	if (v && v->nr > 1 && !v->slot &&
	    getrandom(&mine.token, sizeof(mine.token), 0) == sizeof(mine.token)) {
		mine.token |= 1;
		made = make(v, comm->hash, mine.token);
		mine.fd = made;
	}
	ret = rows && answers ? df_comm_allgather(comm, &mine, sizeof(mine), rows) : -ENOMEM;
	answer = v ? 0 : -ENOMEM;
	if (!ret && v && v->nr > 1 && rows[v->ranks[0]].fd < 0)
		answer = rows[v->ranks[0]].fd;
	else if (!ret && v && v->nr > 1 && v->slot)
		answer = take(v, comm->hash, &rows[v->ranks[0]]);
	if (!ret)
		ret = df_comm_allgather(comm, &answer, sizeof(answer), answers);
	/*
	 * All ranks have mapped the memory. After the descriptor is closed, no process can open
	 * it.
	 */
	if (made >= 0)
		close(made);
	if (!ret && v && v->nr > 1 && all_have(v, answers, &error)) {
		lane->view = v;
		v = NULL;
	} else if (error) {
		df_warn_once(
			"the ranks of a communicator cannot share memory (%s): their calls are "
			"not compared before they are launched",
			strerror(-error));
	}
	view_free(v);
	free(rows);
	free(answers);
	return ret;
}

void df_lane_unshare(struct df_lane *lane)
{
	view_free(lane->view);
	lane->view = NULL;
}
