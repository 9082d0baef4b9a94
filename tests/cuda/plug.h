/*
 * The daemon's kernel for libdfhost.so's driver: CPU threads, one a block, brought by the program (interpose/hostcuda/code.h).
 */
#ifndef DF_TESTS_CUDA_PLUG_H
#define DF_TESTS_CUDA_PLUG_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "interpose/hostcuda/code.h"
#include "tests/cuda/daemon_kernel.h"

struct plug_launch {
	void *param;
	unsigned int blocks;
	struct plug_launch *next;
};
/* A graph may repeat a launch: they stay. */
static struct plug_launch *plug_launches;
static uint64_t plug_nr; /* atomic: launches executed */

struct plug_block {
	struct plug_launch *of;
	unsigned int index;
	pthread_t thread;
};

static void *plug_block(void *arg)
{
	struct plug_block *b = arg;

	daemon_kernel(&b->of->param, b->index);
	return NULL;
}

static void plug_run(void *arg)
{
	struct plug_launch *l = arg;
	struct plug_block *b = calloc(l->blocks, sizeof(*b));
	unsigned int i;

	for (i = 0; i < l->blocks; i++) {
		b[i].of = l;
		b[i].index = i;
		pthread_create(&b[i].thread, NULL, plug_block, &b[i]);
	}
	for (i = 0; i < l->blocks; i++)
		pthread_join(b[i].thread, NULL);
	free(b);
	__atomic_add_fetch(&plug_nr, 1, __ATOMIC_RELAXED);
}

static void *plug_take(void *kernel, const struct df_hkernel_shape *shape, void **params,
		       void **extra)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct plug_launch *l = calloc(1, sizeof(*l));

	(void)kernel, (void)extra;
	memcpy(&l->param, params[0], sizeof(l->param));
	l->blocks = shape->grid[0];
	pthread_mutex_lock(&lock);
	l->next = plug_launches;
	plug_launches = l;
	pthread_mutex_unlock(&lock);
	return l;
}

static void *plug_find(const char *name)
{
	return strcmp(name, "dfk_daemon") == 0 ? (void *)(uintptr_t)daemon_kernel : NULL;
}

static const struct df_hcode plug_code = {plug_find, plug_take, plug_run};

#endif
