/*
 * The CUDA runtime of this process: its start, its device objects, fork, and the table for
 * libdfshim.so. A device's object is made at its first use, under the process lock, and is never
 * freed. After a fork the child cannot use CUDA if the parent did, as with real CUDA: it gets
 * cudaErrorInitializationError, because the threads do not exist there.
 */
#include "interpose/hostcuda/code.h"
#include "interpose/hostcuda/internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STUB_DEVICE_BYTES (80ull << 30) /* a large GPU's memory */

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_HOSTCUDA_TABLE, "host CUDA process");

/* Returns the memory of all devices together: three quarters of what this process may use. */
static uint64_t machine_bytes(void)
{
	uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
	unsigned long long limit;
	FILE *f = fopen("/sys/fs/cgroup/memory.max", "re");

	if (f) {
		if (fscanf(f, "%llu", &limit) == 1 && limit && limit < bytes)
			bytes = limit;
		fclose(f);
	}
	return bytes / 4 * 3;
}

static void in_child(void)
{
	/* RELAXED: the child has one thread. */
	if (__atomic_load_n(&df_h.state, __ATOMIC_RELAXED) == DF_H_READY)
		__atomic_store_n(&df_h.state, DF_H_FORKED, __ATOMIC_RELAXED);
}

static int start(void)
{
	const struct df_env *env = df_env();
	int err;

	df_h.nr_devices = (int)DF_MIN(env->host_devices, DF_H_MAX_DEVICES);
	df_h.nccl_rules = dlsym(RTLD_DEFAULT, "df_hostnccl") != NULL;
	df_h.stub = env->host_stub;
	df_h.device_bytes = DF_MAX(machine_bytes() / (uint64_t)df_h.nr_devices, 64ull << 20);
	if (df_h.stub && !df_hcode) /* most of it is never touched */
		df_h.device_bytes = DF_MAX(df_h.device_bytes, STUB_DEVICE_BYTES);
	df_h.device_bytes &= ~((2ull << 20) - 1);
	df_h.dev = calloc((size_t)df_h.nr_devices, sizeof(*df_h.dev));
	if (!df_h.dev)
		return -ENOMEM;
	err = df_hslab_init(&df_h.streams, "streams", sizeof(struct df_hstream), 1 << 16);
	if (!err)
		err = df_hslab_init(&df_h.events, "events", sizeof(struct df_hevent), 1 << 20);
	if (!err)
		err = df_hgraph_init();
	if (!err)
		err = df_hpool_init();
	if (!err)
		err = df_hmem_init();
	if (!err)
		err = -pthread_atfork(NULL, NULL, in_child);
	return err;
}

cudaError_t df_hinit(void)
{
	int err;

	df_mutex_lock(&lock);
	/* RELAXED: the lock is held. */
	if (__atomic_load_n(&df_h.state, __ATOMIC_RELAXED) == DF_H_NEW) {
		err = start();
		if (err)
			df_warn("host CUDA: cannot start: %s", strerror(-err));
		/*
		 * RELEASE pairs with the ACQUIRE in df_henter(): without it the state could be seen
		 * before the tables.
		 */
		__atomic_store_n(&df_h.state, err ? DF_H_FAILED : DF_H_READY, __ATOMIC_RELEASE);
	}
	df_mutex_unlock(&lock);
	if (__atomic_load_n(&df_h.state, __ATOMIC_RELAXED) == DF_H_READY)
		return cudaSuccess;
	return cudaErrorInitializationError;
}

static struct df_hdev *dev_create(int index)
{
	struct df_hdev *dev = calloc(1, sizeof(*dev));

	if (!dev)
		return NULL;
	dev->index = index;
	df_mutex_init(&dev->lock, DF_RANK_HOSTCUDA, "host CUDA device");
	df_list_init(&dev->streams);
	df_list_init(&dev->active);
	if (df_h.nccl_rules)
		dev->queues = calloc((size_t)df_env()->host_queues, sizeof(*dev->queues));
	/* The legacy stream is the first stream of the device. */
	if ((df_h.nccl_rules && !dev->queues) || df_hstream_new(dev, 0, 0, 0, &dev->legacy)) {
		free(dev->queues);
		free(dev);
		return NULL;
	}
	dev->legacy->legacy = 1;
	return dev;
}

struct df_hdev *df_hdev_get(int index)
{
	struct df_hdev *dev = df_hdev(index);

	if (df_likely(dev != NULL))
		return dev;
	df_mutex_lock(&lock);
	dev = df_hdev(index);
	if (!dev) {
		dev = dev_create(index);
		/*
		 * RELEASE pairs with the ACQUIRE in df_hdev(): without it the pointer could be seen
		 * before the members.
		 */
		__atomic_store_n(&df_h.dev[index], dev, __ATOMIC_RELEASE);
	}
	df_mutex_unlock(&lock);
	return dev;
}

struct df_hdev *df_hdev_current(void)
{
	df_htls.bound = 1;
	return df_hdev_get(df_htls.device);
}
