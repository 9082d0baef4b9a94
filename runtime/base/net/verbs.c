/*
 * RDMA ports as libibverbs lists them, and NCCL's choice of ports and GIDs. Devices are opened,
 * read and closed; the library stays loaded, because driver libraries do not survive dlclose().
 */
#define _GNU_SOURCE
#include "runtime/base/net/verbs.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/first_line.h"
#include "runtime/base/net/ifaces.h"

/*
 * The part of the library's ABI that is used here: handles are opaque, a GID has 16 bytes, and the
 * first 48 bytes of a port's attributes have never changed. The exported ibv_query_port() fills
 * only those.
 */
struct port_attr {
	uint32_t state, max_mtu, active_mtu;
	int32_t gid_tbl_len;
	uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
	uint16_t pkey_tbl_len, lid, sm_lid;
	uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed,
		phys_state, link_layer;
	uint8_t rest[81];
};

_Static_assert(offsetof(struct port_attr, link_layer) == 46, "libibverbs' layout");

enum { PORT_ACTIVE = 4, LINK_ETHERNET = 2, PORTS_MAX = 8, GIDS_MAX = 1024 };

static struct {
	void **(*get_device_list)(int *nr);
	void (*free_device_list)(void **list);
	const char *(*get_device_name)(void *device);
	void *(*open_device)(void *device);
	int (*close_device)(void *context);
	int (*query_port)(void *context, uint8_t port, void *attr);
	int (*query_gid)(void *context, uint8_t port, int index, void *gid);
	/* NULL if the library does not have these three. */
	void *(*alloc_pd)(void *context);
	int (*dealloc_pd)(void *pd);
	void *(*reg_dmabuf_mr)(void *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd,
			       int access);
} ibv;

static int open_library(struct df_verbs *out)
{
	static const char *const names[] = {
		"get_device_list", "free_device_list", "get_device_name", "open_device",
		"close_device",	   "query_port",       "query_gid"};
	void **to[] = {(void **)&ibv.get_device_list, (void **)&ibv.free_device_list,
		       (void **)&ibv.get_device_name, (void **)&ibv.open_device,
		       (void **)&ibv.close_device,    (void **)&ibv.query_port,
		       (void **)&ibv.query_gid};
	const char *lib =
		df_env()->nccl_ibverbs_lib ? df_env()->nccl_ibverbs_lib : "libibverbs.so.1";
	void *handle = dlopen(lib, RTLD_NOW);
	char name[64];
	size_t i;

	snprintf(out->library, sizeof(out->library), "%s", lib);
	if (!handle) {
		snprintf(out->error, sizeof(out->error), "%s", dlerror());
		return -ENOENT;
	}
	for (i = 0; i < DF_ARRAY_LEN(names); i++) {
		snprintf(name, sizeof(name), "ibv_%s", names[i]);
		*to[i] = dlsym(handle, name);
		if (!*to[i]) {
			snprintf(out->error, sizeof(out->error), "%s has no %s", out->library,
				 name);
			return -ENOENT;
		}
	}
	*(void **)&ibv.alloc_pd = dlsym(handle, "ibv_alloc_pd");
	*(void **)&ibv.dealloc_pd = dlsym(handle, "ibv_dealloc_pd");
	*(void **)&ibv.reg_dmabuf_mr = dlsym(handle, "ibv_reg_dmabuf_mr");
	return 0;
}

/* ---- GIDs ------------------------------------------------------------------------------------ */

/* Reads a line from the port's folder in sysfs; "" if there is none, as in some containers. */
static void read_attr(const struct df_verbs_port *p, const char *what, int index, char *out,
		      size_t size)
{
	char path[256];

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%d/gid_attrs/%s/%d", p->device,
		 p->port, what, index);
	df_first_line(path, out, size);
}

static int roce_version(const struct df_verbs_port *p, int index)
{
	char type[32];

	read_attr(p, "types", index, type, sizeof(type));
	return strstr(type, "v2") ? 2 : strstr(type, "v1") ? 1 : 0;
}

static int is_v4(const struct in6_addr *gid)
{
	return IN6_IS_ADDR_V4MAPPED(gid);
}

/* A link-local GID and an unconfigured (zero) GID are not routable. */
static int is_valid(const struct in6_addr *gid)
{
	static const struct in6_addr zero;

	return memcmp(gid, &zero, 16) && !IN6_IS_ADDR_LINKLOCAL(gid);
}

/* range: "10.0.0.0/8", of the same family, or NULL for all. */
static int in_range(const struct in6_addr *gid, const char *range)
{
	char text[128];
	union df_sockaddr a, b;
	char *slash;
	int bits;

	if (!range || !*range)
		return 1;
	snprintf(text, sizeof(text), "%s", range);
	slash = strchr(text, '/');
	bits = slash ? atoi(slash + 1) : 128;
	if (slash)
		*slash = '\0';
	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	if (is_v4(gid)) {
		a.in.sin_family = b.in.sin_family = AF_INET;
		memcpy(&a.in.sin_addr, gid->s6_addr + 12, 4);
		if (inet_pton(AF_INET, text, &b.in.sin_addr) != 1)
			return 0;
	} else {
		a.in6.sin6_family = b.in6.sin6_family = AF_INET6;
		a.in6.sin6_addr = *gid;
		if (inet_pton(AF_INET6, text, &b.in6.sin6_addr) != 1)
			return 0;
	}
	return df_addr_same_subnet(&a, &b, (unsigned)DF_MAX(bits, 0));
}

static int use_gid(void *context, struct df_verbs_port *p, int index)
{
	struct in6_addr gid;

	if (ibv.query_gid(context, (uint8_t)p->port, index, &gid))
		return -EINVAL;
	p->gid_index = index;
	if (!p->infiniband && is_v4(&gid))
		inet_ntop(AF_INET, gid.s6_addr + 12, p->gid, sizeof(p->gid));
	else
		inet_ntop(AF_INET6, &gid, p->gid, sizeof(p->gid));
	p->roce_version = p->infiniband ? 0 : roce_version(p, index);
	read_attr(p, "ndevs", index, p->netdev, sizeof(p->netdev));
	return 0;
}

static void choose_infiniband(void *context, struct df_verbs_port *p, int nr)
{
	struct in6_addr gid;

	/* The FLID is in bytes 4 and 5; it is 0 within one subnet. */
	if (nr > 1 && !ibv.query_gid(context, (uint8_t)p->port, 1, &gid) &&
	    (gid.s6_addr[4] | gid.s6_addr[5]) && !use_gid(context, p, 1))
		return;
	use_gid(context, p, 0);
}

static void choose_roce(void *context, struct df_verbs_port *p, int nr)
{
	const struct df_env *env = df_env();
	int want_v4 = !env->nccl_ib_addr_family, index, version, near = -1;
	struct in6_addr gid;

	if (env->nccl_ib_gid_index >= 0) {
		if (use_gid(context, p, (int)env->nccl_ib_gid_index))
			snprintf(p->reason, sizeof(p->reason),
				 "NCCL_IB_GID_INDEX=%ld: the port has no such GID",
				 env->nccl_ib_gid_index);
		return;
	}
	for (index = 0; index < nr; index++) {
		if (ibv.query_gid(context, (uint8_t)p->port, index, &gid) || !is_valid(&gid) ||
		    is_v4(&gid) != want_v4 || !in_range(&gid, env->nccl_ib_addr_range))
			continue;
		version = roce_version(p, index);
		if (version == env->nccl_ib_roce_version && !use_gid(context, p, index))
			return;
		if (near < 0)
			near = index;
	}
	/* No GID has the wanted version; containers often do not show versions. */
	if (near >= 0 && !use_gid(context, p, near))
		return;
	snprintf(p->reason, sizeof(p->reason), "no valid GID is %s%s%s%s",
		 want_v4 ? "IPv4" : "IPv6", env->nccl_ib_addr_range ? " within " : "",
		 env->nccl_ib_addr_range ? env->nccl_ib_addr_range : "",
		 want_v4 ? ": NCCL_IB_ADDR_FAMILY=AF_INET6 takes IPv6 ones" : "");
}

/* ---- ports ----------------------------------------------------------------------------------- */

/* NCCL_IB_HCA: prefixes of names, each with or without a port. */
static int is_wanted(const char *list, const struct df_verbs_port *p)
{
	int exclude = *list == '^', exact, found = 0, port;
	char name[64];
	size_t len;

	list += exclude;
	exact = *list == '=';
	list += exact;
	while (*list) {
		len = strcspn(list, ",:");
		port = list[len] == ':' ? atoi(list + len + 1) : -1;
		snprintf(name, sizeof(name), "%.*s", (int)len, list);
		if (len && (port < 0 || port == p->port) &&
		    (exact ? !strcmp(p->device, name) : !strncmp(p->device, name, len)))
			found = 1;
		list += strcspn(list, ",");
		list += *list == ',';
	}
	return found != exclude;
}

static int mbps_of(const struct port_attr *a)
{
	static const int speeds[] = {2500, 5000, 10000, 10000, 14062, 25000, 50000, 100000};
	static const int widths[] = {1, 4, 8, 12, 2};
	int s = __builtin_ffs(a->active_speed), w = __builtin_ffs(a->active_width);

	return s && w && w <= (int)DF_ARRAY_LEN(widths) ? speeds[s - 1] * widths[w - 1] : 0;
}

static void read_port(void *context, const struct port_attr *a, struct df_verbs_port *p)
{
	static const char *const states[] = {"nop", "down", "init", "armed", "active", "deferred"};
	int nr = DF_MIN(a->gid_tbl_len, GIDS_MAX);

	p->active = a->state == PORT_ACTIVE;
	snprintf(p->state, sizeof(p->state), "%s",
		 a->state < DF_ARRAY_LEN(states) ? states[a->state] : "unknown");
	p->infiniband = a->link_layer != LINK_ETHERNET;
	p->lid = a->lid;
	p->mtu = a->active_mtu >= 1 && a->active_mtu <= 5 ? 128u << a->active_mtu : 0;
	p->mbps = mbps_of(a);
	p->gid_index = -1;
	if (p->infiniband)
		choose_infiniband(context, p, nr);
	else
		choose_roce(context, p, nr);
}

static void choose(struct df_verbs_port *p, int *nr_used)
{
	const struct df_env *env = df_env();
	const char *hca = env->nccl_ib_hca;

	if (env->nccl_ib_disable) {
		snprintf(p->reason, sizeof(p->reason), "NCCL_IB_DISABLE=1");
	} else if (hca && *hca && !is_wanted(hca, p)) {
		snprintf(p->reason, sizeof(p->reason), "%s by NCCL_IB_HCA=%.60s",
			 *hca == '^' ? "excluded" : "not named", hca);
	} else if (!p->active) {
		snprintf(p->reason, sizeof(p->reason), "the port is not active");
	} else if (p->gid_index >= 0) {
		p->order = ++*nr_used;
		snprintf(p->reason, sizeof(p->reason), "active");
	}
}

/*
 * Returns 0 if the kernel knows dma-buf: it then refuses descriptor -1 with EBADF. Else returns the
 * errno.
 */
static int ask_dmabuf(void *context)
{
	void *pd =
		ibv.reg_dmabuf_mr && ibv.alloc_pd && ibv.dealloc_pd ? ibv.alloc_pd(context) : NULL;
	int ret = EOPNOTSUPP;

	if (!pd)
		return ibv.reg_dmabuf_mr ? errno : ENOSYS;
	if (!ibv.reg_dmabuf_mr(pd, 0, 0, 0, -1, 0))
		ret = errno == EBADF ? 0 : errno;
	ibv.dealloc_pd(pd);
	return ret;
}

int df_verbs_peermem(void)
{
	return !access("/sys/module/nvidia_peermem/version", F_OK) ||
	       !access("/sys/kernel/mm/memory_peers/nv_mem/version", F_OK) ||
	       !access("/sys/kernel/mm/memory_peers/nv_mem_nc/version", F_OK);
}

static void read_device(struct df_verbs *out, void *device, int *nr_used, int dmabuf)
{
	void *context = ibv.open_device(device);
	struct df_verbs_port *p;
	struct port_attr attr;
	int port;

	if (!context && out->nr < DF_VERBS_MAX) {
		p = &out->v[out->nr++];
		snprintf(p->device, sizeof(p->device), "%s", ibv.get_device_name(device));
		p->gid_index = -1;
		snprintf(p->reason, sizeof(p->reason),
			 "cannot be opened: %s (/dev/infiniband/uverbs*)", strerror(errno));
		return;
	}
	for (port = 1; context && port <= PORTS_MAX && out->nr < DF_VERBS_MAX; port++) {
		memset(&attr, 0, sizeof(attr));
		if (ibv.query_port(context, (uint8_t)port, &attr))
			break;
		p = &out->v[out->nr++];
		snprintf(p->device, sizeof(p->device), "%s", ibv.get_device_name(device));
		p->port = port;
		read_port(context, &attr, p);
		choose(p, nr_used);
		p->dmabuf = dmabuf && p->order ? ask_dmabuf(context) : -1;
	}
	if (context)
		ibv.close_device(context);
}

void df_verbs_find(struct df_verbs *out, int dmabuf)
{
	int nr = 0, i, nr_used = 0;
	void **list;

	memset(out, 0, sizeof(*out));
	if (open_library(out))
		return;
	list = ibv.get_device_list(&nr);
	for (i = 0; list && i < nr; i++)
		read_device(out, list[i], &nr_used, dmabuf);
	if (list)
		ibv.free_device_list(list);
	if (!out->nr)
		snprintf(out->error, sizeof(out->error), "the kernel has no RDMA device");
}
