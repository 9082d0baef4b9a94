#define _GNU_SOURCE
#include "runtime/base/net/plugins.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/ascii.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"

#define NEWEST 12
#define OLDEST 6

/* The first field of every version of the interface. */
struct net {
	const char *name;
};

static void *open_one(struct df_plugin *p)
{
	struct link_map *map;
	char file[160];
	size_t len = strlen(p->asked);
	void *handle = dlopen(p->asked, RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		snprintf(p->reason, sizeof(p->reason), "not loaded: %s", dlerror());
	if (!handle && !strchr(p->asked, '/') &&
	    (strncmp(p->asked, "lib", 3) || len < 6 || strcmp(p->asked + len - 3, ".so"))) {
		snprintf(file, sizeof(file), "libnccl-net-%s.so", p->asked);
		handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
		if (!handle)
			snprintf(p->reason, sizeof(p->reason), "not loaded: %s", dlerror());
	}
	if (handle && !dlinfo(handle, RTLD_DI_LINKMAP, &map))
		snprintf(p->file, sizeof(p->file), "%s", map->l_name);
	return handle;
}

void df_plugins_load(struct df_plugins *all, int i)
{
	struct df_plugin *p = &all->v[i];
	const char *want = df_env()->nccl_net;
	const struct net *net = NULL;
	char symbol[32];
	void *handle;
	int v;

	handle = !df_strcasecmp(p->asked, "STATIC_PLUGIN") ? RTLD_DEFAULT : open_one(p);
	if (!handle && df_strcasecmp(p->asked, "STATIC_PLUGIN"))
		return;
	for (v = NEWEST; v >= OLDEST && !net; v--) {
		snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", v);
		net = dlsym(handle, symbol);
		p->version = net ? v : 0;
	}
	if (!net) {
		snprintf(p->reason, sizeof(p->reason), "has no symbol ncclNetPlugin_v%d to _v%d",
			 NEWEST, OLDEST);
		return;
	}
	snprintf(p->name, sizeof(p->name), "%s", net->name ? net->name : "");
	if (want && *want && df_strcasecmp(want, p->name)) {
		snprintf(p->reason, sizeof(p->reason), "NCCL_NET=%.40s asks for another network",
			 want);
		return;
	}
	p->table = net;
	for (p->order = 1; i > 0; i--)
		p->order += all->v[i - 1].order > 0;
	snprintf(p->reason, sizeof(p->reason),
		 "loads; which devices it has is known once it is started");
}

void df_plugins_asked(struct df_plugins *out)
{
	const char *list = df_env()->nccl_net_plugin;
	size_t len;

	memset(out, 0, sizeof(*out));
	if (!list || !*list)
		list = "libnccl-net.so";
	if (!df_strcasecmp(list, "none"))
		return;
	while (*list && out->nr < DF_PLUGINS_MAX) {
		len = strcspn(list, ",");
		if (len)
			snprintf(out->v[out->nr++].asked, sizeof(out->v[0].asked), "%.*s", (int)len,
				 list);
		list += len;
		list += *list == ',';
	}
}

void df_plugins_find(struct df_plugins *out)
{
	int i;

	df_plugins_asked(out);
	for (i = 0; i < out->nr; i++)
		df_plugins_load(out, i);
}
