/*
 * Finds the RDMA ports of an endpoint by NCCL's rules (base/net/verbs.h) and opens them; see
 * rdma.c.
 */
#define _GNU_SOURCE
#include "runtime/transport/net/verbs/readback.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/backend.h"
#include "runtime/blocks.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/join.h"
#include "runtime/base/log.h"
#include "runtime/transport/net/verbs/verbs_int.h"

#define OPEN_S 10 /* bound on the time of a driver */

struct df_ibv df_ibv;

/*
 * Serialises the search of several endpoints, which fills tables here and in base/net/verbs.c. No
 * other code takes this lock, and only threads that may be abandoned wait for it.
 */
static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;
static int loaded;

struct opening {
	int index;	 /* of the endpoint's device */
	const char *gpu; /* its PCI address, or "" for none */
	struct verbs *verbs;
	int ret;
	char why[512];
	uint32_t refs; /* the opening thread and its waiter; the last one frees it; atomic */
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
	*(void **)&df_ibv.reg_mr_iova2 = dlsym(handle, "ibv_reg_mr_iova2");
	*(void **)&df_ibv.reg_dmabuf_mr = dlsym(handle, "ibv_reg_dmabuf_mr");
	*(void **)&df_ibv.query_ece = dlsym(handle, "ibv_query_ece");
	*(void **)&df_ibv.set_ece = dlsym(handle, "ibv_set_ece");
	loaded = 1;
	return 0;
}

/* Most ports that are used: more are not faster, and all slots are registered for each. */
#define ENOUGH 4

/*
 * Appends the ports whose `spare` matches, beginning with the index-th, while there is room. Each
 * endpoint begins with a different port. With NCCL_CROSS_NIC=0 two endpoints need ports at the same
 * places, so each takes as many as it can.
 */
static void take(struct verbs *v, const struct rail *all, int nr, int spare, int index)
{
	const int most = df_env()->nccl_cross_nic ? ENOUGH : DF_NET_RAILS;
	int of[DF_VERBS_MAX], i, n = 0;

	for (i = 0; i < nr; i++)
		if (all[i].spare == spare)
			of[n++] = i;
	for (i = 0; i < n && v->nr < most; i++)
		v->rail[v->nr++] = all[of[(index + i) % n]];
}

/*
 * Chooses usable ports while there is room, the nearest to the GPU first; ports that are farther
 * are spare.
 */
static int choose(struct opening *o)
{
	struct df_verbs *found = malloc(sizeof(*found));
	struct rail *all = calloc(DF_VERBS_MAX, sizeof(*all));
	enum df_pci_path nearest = DF_PCI_UNKNOWN;
	int i, nr = 0, len = 0;

	if (!found || !all) {
		free(found);
		free(all);
		return -ENOMEM;
	}
	df_verbs_find(found, 0);
	for (i = 0; i < found->nr; i++) {
		if (!found->v[i].order)
			continue;
		all[nr].port = found->v[i];
		all[nr].path = df_pci_to_verbs(o->gpu, found->v[i].device);
		nearest = DF_MIN(nearest, all[nr].path);
		nr++;
	}
	for (i = 0; i < nr; i++)
		all[i].spare = all[i].path > nearest;
	take(o->verbs, all, nr, 0, o->index);
	take(o->verbs, all, nr, 1, o->index);
	free(all);
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

#define RELAXED_ORDERING (1u << 20) /* of enum ibv_access_flags, for headers that do not have it */

/* Whether a device has refused relaxed ordering; it would refuse every endpoint. */
static int refuses_relaxed;

struct ibv_mr *df_verbs_register(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
	struct ibv_mr *mr = NULL;

	/* Relaxed: a stale read only causes one more attempt. */
	if (df_env()->nccl_ib_relaxed && df_ibv.reg_mr_iova2 &&
	    !__atomic_load_n(&refuses_relaxed, __ATOMIC_RELAXED)) {
		mr = df_ibv.reg_mr_iova2(pd, at, bytes, (uintptr_t)at,
					 (unsigned)access | RELAXED_ORDERING);
		if (!mr && (errno == EOPNOTSUPP || errno == EINVAL))
			/* Relaxed: as above. */
			__atomic_store_n(&refuses_relaxed, 1, __ATOMIC_RELAXED);
		else
			return mr;
	}
	return df_ibv.reg_mr(pd, at, bytes, access);
}

static struct ibv_mr *register_dmabuf(const struct device *d, const struct df_far_rdma *at,
				      int access)
{
	struct ibv_mr *mr = NULL;

	if (df_env()->nccl_ib_relaxed)
		mr = df_ibv.reg_dmabuf_mr(d->pd, 0, at->bytes, at->addr, at->dmabuf,
					  access | (int)RELAXED_ORDERING);
	if (!mr)
		mr = df_ibv.reg_dmabuf_mr(d->pd, 0, at->bytes, at->addr, at->dmabuf, access);
	return mr;
}

struct ibv_mr *df_verbs_register_gpu(const struct device *d, const struct df_far_rdma *at,
				     const char **by, char *why, size_t size)
{
	const int access =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	const char *no = at->why;
	struct ibv_mr *mr = NULL;

	*by = "dma-buf";
	errno = 0;
	if (at->dmabuf >= 0 && !df_ibv.reg_dmabuf_mr)
		no = "libibverbs has no ibv_reg_dmabuf_mr (rdma-core 34)";
	else if (at->dmabuf >= 0)
		mr = register_dmabuf(d, at, access);
	if (!mr && !no)
		no = errno == EOPNOTSUPP || errno == EPROTONOSUPPORT
			     ? "the kernel or the RDMA device takes no dma-buf"
			     : strerror(errno);
	if (mr)
		return mr;
	*by = "nvidia_peermem";
	if (df_verbs_peermem())
		mr = df_verbs_register(d->pd, (void *)(uintptr_t)at->addr, at->bytes, access);
	if (!mr)
		snprintf(why, size, "%s, and the module nvidia_peermem %s", no,
			 df_verbs_peermem() ? "does not help" : "is not loaded");
	return mr;
}

static void say_why(struct opening *o, const struct rail *r, const char *what)
{
	size_t len = strlen(o->why);

	snprintf(o->why + len, sizeof(o->why) - len, "%s%s %s", len ? ", " : "", r->port.device,
		 what);
}

/* Checks that memory can be registered. */
static int try_memory(struct opening *o, const struct rail *r)
{
	struct rlimit limit = {0};
	struct ibv_mr *mr;
	void *page = aligned_alloc(4096, 1u << 16);
	char text[200];

	if (!page)
		return -ENOMEM;
	mr = df_verbs_register(r->device->pd, page, 1u << 16, IBV_ACCESS_LOCAL_WRITE);
	if (mr) {
		df_ibv.dereg_mr(mr);
	} else {
		getrlimit(RLIMIT_MEMLOCK, &limit);
		snprintf(text, sizeof(text),
			 "cannot register memory: %s; RLIMIT_MEMLOCK is %llu KiB (`ulimit -l "
			 "unlimited`, in a container `--ulimit memlock=-1`)",
			 strerror(errno), (unsigned long long)limit.rlim_cur >> 10);
		say_why(o, r, text);
	}
	free(page);
	return mr ? 0 : -ENOMEM;
}

static int open_rail(struct opening *o, struct rail *r)
{
	struct verbs *v = o->verbs;
	struct device *d = &v->device[v->nr_devices];
	char text[128];
	int i, ret;

	/* Ports of one device share it. */
	for (i = 0; &v->rail[i] != r; i++) {
		if (strcmp(v->rail[i].port.device, r->port.device) || !v->rail[i].device)
			continue;
		r->device = v->rail[i].device;
		return 0;
	}
	d->context = open_device(r->port.device);
	if (!d->context) {
		snprintf(text, sizeof(text), "cannot be opened: %s", strerror(errno));
		say_why(o, r, text);
		return -ENODEV;
	}
	r->device = d;
	d->pd = df_ibv.alloc_pd(d->context);
	d->channel = df_ibv.create_comp_channel(d->context);
	if (!d->pd || !d->channel) {
		snprintf(text, sizeof(text), "has no room for us: %s", strerror(errno));
		say_why(o, r, text);
		ret = -ENOMEM;
		goto err_close;
	}
	ret = no_wait(d->channel->fd);
	if (!ret)
		ret = no_wait(d->context->async_fd);
	if (!ret)
		ret = try_memory(o, r);
	if (ret)
		goto err_close;
	v->nr_devices++;
	return 0;

err_close:
	if (d->channel)
		df_ibv.destroy_comp_channel(d->channel);
	if (d->pd)
		df_ibv.dealloc_pd(d->pd);
	df_ibv.close_device(d->context);
	memset(d, 0, sizeof(*d));
	r->device = NULL;
	return ret;
}

/* Opens the ports and keeps those that opened. Returns the last -errno if none did. */
static int open_rails(struct opening *o)
{
	struct verbs *v = o->verbs;
	int k, nr = 0, ret = 0;

	for (k = 0; k < v->nr; k++) {
		int failed = open_rail(o, &v->rail[k]);

		ret = failed ? failed : ret;
	}
	for (k = 0; k < v->nr; k++)
		if (v->rail[k].device)
			v->rail[nr++] = v->rail[k];
	v->nr = nr;
	return nr ? 0 : ret;
}

static void put(struct opening *o)
{
	/* ACQ_REL: the last user sees the other's writes. Pairs with itself. */
	if (__atomic_sub_fetch(&o->refs, 1, __ATOMIC_ACQ_REL))
		return;
	free(o->verbs);
	free(o);
}

static void *opener(void *arg)
{
	struct opening *o = arg;

	pthread_mutex_lock(&finding);
	o->ret = open_library(o);
	if (!o->ret)
		o->ret = choose(o);
	pthread_mutex_unlock(&finding);
	if (!o->ret)
		o->ret = open_rails(o);
	put(o);
	return NULL;
}

/* Warns if verbs were requested; else logs at level info. */
static void say_missed(const char *why)
{
	const struct df_env *env = df_env();

	if (df_env_net_has(DF_NET_VERBS))
		df_warn_once("DFSHIM_NET=%s, but no RDMA port can be used: %s", env->net, why);
	else if (!env->nccl_ib_disable &&
		 (env->set[DF_ENV_ROW_nccl_ib_hca] || env->set[DF_ENV_ROW_nccl_ib_gid_index] ||
		  env->set[DF_ENV_ROW_nccl_ibverbs_lib]))
		df_warn_once("dfshim uses sockets, because no RDMA port can be used: %s", why);
	else
		df_info("dfshim uses sockets, because no RDMA port can be used: %s", why);
}

int df_verbs_open(struct df_net_ep *ep, struct verbs **out)
{
	struct opening *o = calloc(1, sizeof(*o));
	pthread_t t;
	int ret;

	if (!o)
		return -ENOMEM;
	o->verbs = calloc(1, sizeof(*o->verbs));
	o->index = ep->device;
	o->gpu = df_backend->pci ? df_backend->pci(ep->device) : "";
	o->refs = 2;
	/* A driver may hang, and its caller with it, so open on a thread. */
	if (!o->verbs || pthread_create(&t, NULL, opener, o)) {
		o->refs = 1;
		put(o);
		return -ENOMEM;
	}
	if (df_join_within(t, OPEN_S * DF_NS_PER_S)) {
		say_missed("libibverbs or a driver did not return within 10 s");
		put(o);
		return -ETIMEDOUT;
	}
	ret = o->ret;
	if (ret) {
		say_missed(o->why[0] ? o->why : strerror(-ret));
	} else {
		if (o->why[0])
			df_warn_once("not all RDMA ports can be used: %s", o->why);
		*out = o->verbs;
		o->verbs = NULL;
	}
	put(o);
	return ret;
}
