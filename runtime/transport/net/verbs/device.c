/* The RDMA port of an endpoint: found by NCCL's rules (base/net/verbs.h), opened; rdma.c has the whole. */
#define _GNU_SOURCE
#include "runtime/transport/net/verbs/rdma.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"

#define OPEN_S 10 /* a driver may take so long */

struct df_ibv df_ibv;

/*
 * Finding is done by one endpoint after the other: what has been loaded is in tables, here and in base/net/verbs.c. No lock
 * that anybody else takes, and nobody waits for it but threads that may be left behind.
 */
static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;
static int loaded;

struct opening {
	int index; /* of the endpoint's device */
	struct device *device;
	int ret;
	char why[256];
	uint32_t refs; /* who has been left behind frees it; atomic */
};

static int open_library(struct opening *o)
{
#define X(name) {"ibv_" #name, offsetof(struct df_ibv, name)},
	static const struct {
		const char *name;
		size_t at;
	} wanted[] = {DF_IBV_FUNCTIONS(X)};
#undef X
	const char *lib =
		df_env()->nccl_ibverbs_lib ? df_env()->nccl_ibverbs_lib : "libibverbs.so.1";
	void *handle = dlopen(lib, RTLD_NOW), *at;
	size_t i;

	if (loaded)
		return 0;
	if (!handle) {
		snprintf(o->why, sizeof(o->why), "%s", dlerror());
		return -ENOENT;
	}
	for (i = 0; i < DF_ARRAY_LEN(wanted); i++) {
		at = dlsym(handle, wanted[i].name);
		if (!at) {
			snprintf(o->why, sizeof(o->why), "%s has no %s", lib, wanted[i].name);
			return -ENOENT;
		}
		*(void **)(void *)((char *)&df_ibv + wanted[i].at) = at;
	}
	loaded = 1;
	return 0;
}

/* Endpoints share the usable ports evenly. */
static int choose(struct opening *o, struct df_verbs_port *out)
{
	struct df_verbs *found = malloc(sizeof(*found));
	int i, nr = 0, len = 0;

	if (!found)
		return -ENOMEM;
	df_verbs_find(found);
	for (i = 0; i < found->nr; i++)
		nr += found->v[i].order > 0;
	for (i = 0; nr && i < found->nr; i++)
		if (found->v[i].order == 1 + o->index % nr)
			*out = found->v[i];
	if (!nr && found->error[0])
		snprintf(o->why, sizeof(o->why), "%s", found->error);
	for (i = 0; !nr && i < found->nr && len < (int)sizeof(o->why); i++)
		len += snprintf(o->why + len, sizeof(o->why) - (size_t)len, "%s%s:%d %s",
				i ? ", " : "", found->v[i].device, found->v[i].port,
				found->v[i].reason);
	free(found);
	return nr ? 0 : -ENODEV;
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_context *context = NULL;
	int nr = 0, i;
	struct ibv_device **list = df_ibv.get_device_list(&nr);

	for (i = 0; list && i < nr && !context; i++)
		if (!strcmp(df_ibv.get_device_name(list[i]), name))
			context = df_ibv.open_device(list[i]);
	if (list)
		df_ibv.free_device_list(list);
	return context;
}

static int no_wait(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;
}

/* Can memory be registered at all? */
static int try_memory(struct opening *o, struct device *d)
{
	struct rlimit limit = {0};
	struct ibv_mr *mr;
	void *page = aligned_alloc(4096, 1u << 16);

	if (!page)
		return -ENOMEM;
	mr = df_ibv.reg_mr(d->pd, page, 1u << 16, IBV_ACCESS_LOCAL_WRITE);
	if (mr) {
		df_ibv.dereg_mr(mr);
	} else {
		getrlimit(RLIMIT_MEMLOCK, &limit);
		snprintf(o->why, sizeof(o->why),
			 "%s cannot register memory: %s; RLIMIT_MEMLOCK is %llu KiB (`ulimit -l "
			 "unlimited`, in a container `--ulimit memlock=-1`)",
			 d->port.device, strerror(errno), (unsigned long long)limit.rlim_cur >> 10);
	}
	free(page);
	return mr ? 0 : -ENOMEM;
}

static int open_port(struct opening *o, struct device *d)
{
	int ret;

	d->context = open_device(d->port.device);
	if (!d->context) {
		snprintf(o->why, sizeof(o->why), "%s cannot be opened: %s", d->port.device,
			 strerror(errno));
		return -ENODEV;
	}
	d->pd = df_ibv.alloc_pd(d->context);
	d->channel = df_ibv.create_comp_channel(d->context);
	if (!d->pd || !d->channel) {
		snprintf(o->why, sizeof(o->why), "%s has no room for us: %s", d->port.device,
			 strerror(errno));
		ret = -ENOMEM;
		goto err_close;
	}
	ret = no_wait(d->channel->fd);
	if (!ret)
		ret = no_wait(d->context->async_fd);
	if (!ret)
		ret = try_memory(o, d);
	if (!ret)
		return 0;

err_close:
	if (d->channel)
		df_ibv.destroy_comp_channel(d->channel);
	if (d->pd)
		df_ibv.dealloc_pd(d->pd);
	df_ibv.close_device(d->context);
	return ret;
}

static void put(struct opening *o)
{
	/* ACQ_REL: the last one to let go sees what the other one has written. Pairs with itself. */
	if (__atomic_sub_fetch(&o->refs, 1, __ATOMIC_ACQ_REL))
		return;
	free(o->device);
	free(o);
}

static void *opener(void *arg)
{
	struct opening *o = arg;

	pthread_mutex_lock(&finding);
	o->ret = open_library(o);
	if (!o->ret)
		o->ret = choose(o, &o->device->port);
	pthread_mutex_unlock(&finding);
	if (!o->ret)
		o->ret = open_port(o, o->device);
	put(o);
	return NULL;
}

/* What somebody has asked for is missed aloud. */
static void say_missed(const char *why)
{
	const struct df_env *env = df_env();

	if (env->net == DF_NET_VERBS)
		df_warn_once("DFSHIM_NET=verbs, but no RDMA port can be used: %s", why);
	else if (!env->nccl_ib_disable &&
		 (env->set[DF_ENV_ROW_nccl_ib_hca] || env->set[DF_ENV_ROW_nccl_ib_gid_index] ||
		  env->set[DF_ENV_ROW_nccl_ibverbs_lib]))
		df_warn_once("no RDMA port can be used, sockets are: %s", why);
	else
		df_info("no RDMA port can be used, sockets are: %s", why);
}

int df_verbs_open(struct df_net_ep *ep, struct device **out)
{
	struct opening *o = calloc(1, sizeof(*o));
	struct timespec until;
	pthread_t t;
	int ret;

	if (!o)
		return -ENOMEM;
	o->device = calloc(1, sizeof(*o->device));
	o->index = ep->device;
	o->refs = 2;
	/* Drivers may hang, and whoever waits for them with them. */
	if (!o->device || pthread_create(&t, NULL, opener, o)) {
		o->refs = 1;
		put(o);
		return -ENOMEM;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += OPEN_S;
	if (pthread_timedjoin_np(t, NULL, &until)) {
		pthread_detach(t);
		say_missed("libibverbs or a driver did not come back within 10 s");
		put(o);
		return -ETIMEDOUT;
	}
	ret = o->ret;
	if (ret) {
		say_missed(o->why[0] ? o->why : strerror(-ret));
	} else {
		*out = o->device;
		o->device = NULL;
	}
	put(o);
	return ret;
}
