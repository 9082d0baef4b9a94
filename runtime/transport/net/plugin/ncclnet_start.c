/*
 * Finds a network plugin by NCCL's rules (base/net/plugins.h) and starts it once per process; see
 * ncclnet.h.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/join.h"
#include "runtime/base/log.h"
#include "runtime/base/net/plugins.h"
#include "runtime/transport/net/plugin/ncclnet.h"
#include "runtime/transport/transport.h"

#define START_S 10 /* bound on the start of a plugin */

struct starting {
	struct df_ncclnet net;
	struct df_plugins asked;
	int ret, loaded; /* loaded: a plugin was found, even if it is unusable */
	char why[512];
	uint32_t refs; /* the starting thread and its waiter; the last one frees it; atomic */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct df_ncclnet *chosen;
static uint32_t ended; /* atomic */
static void (*on_started)(void);
static pid_t owner;

/* Lists usable devices. why: the reason of the first unusable one. */
static int look_at_devices(struct df_ncclnet *n, char *why, size_t size)
{
	char one[160];
	int i, nr = 0, ret = df_ncclnet_devices(n, &nr);

	if (ret) {
		snprintf(why, size, "devices() returned %d (%s)", ret, df_ncclnet_result(ret));
		return -EIO;
	}
	if (nr <= 0)
		snprintf(why, size, nr ? "it says that it has %d devices" : "it has no device", nr);
	for (i = 0; i < nr && n->nr_devices < DF_NCCLNET_DEVICES; i++) {
		ret = df_ncclnet_properties(n, i, &n->devices[n->nr_devices], one, sizeof(one));
		if (ret)
			snprintf(one, sizeof(one), "getProperties(%d) returned %d (%s)", i, ret,
				 df_ncclnet_result(ret));
		if (!ret && !one[0])
			n->nr_devices++;
		else if (!*why)
			snprintf(why, size, "%s", one);
	}
	return n->nr_devices ? 0 : -ENODEV;
}

/* Starts a plugin. Returns 0, or -errno with the reason in why. */
static int start_one(struct starting *s, const struct df_plugin *p)
{
	struct df_ncclnet *n = &s->net;
	const char *missing;
	int ret;

	memset(n, 0, sizeof(*n));
	n->table = p->table;
	n->version = p->version;
	snprintf(n->name, sizeof(n->name), "%s", p->name);
	snprintf(n->file, sizeof(n->file), "%s", p->file);
	s->why[0] = '\0';
	if (p->version < DF_PLUGINS_OURS) {
		snprintf(s->why, sizeof(s->why), "dfshim speaks v7 to v12 of the interface");
		return -EPROTONOSUPPORT;
	}
	ret = df_ncclnet_init(n);
	if (ret) {
		snprintf(s->why, sizeof(s->why), "init() returned %d (%s)%s%s", ret,
			 df_ncclnet_result(ret), *df_ncclnet_complaint() ? ": " : "",
			 df_ncclnet_complaint());
		return -EIO;
	}
	missing = df_ncclnet_missing(n);
	if (missing) {
		snprintf(s->why, sizeof(s->why), "it has no function %s", missing);
		return -ENOSYS;
	}
	return look_at_devices(n, s->why, sizeof(s->why));
}

static void put(struct starting *s)
{
	/* ACQ_REL: the last user sees the other's writes. Pairs with itself. */
	if (!__atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL))
		free(s);
}

static void *starter(void *arg)
{
	struct starting *s = arg;
	size_t len = 0;
	char why[2048];
	int i;

	why[0] = '\0';
	s->ret = -ENOENT;
	df_plugins_asked(&s->asked);
	for (i = 0; i < s->asked.nr && s->ret; i++) {
		struct df_plugin *p = &s->asked.v[i];

		df_plugins_load(&s->asked, i);
		if (p->order) {
			s->loaded = 1;
			s->ret = start_one(s, p);
			if (!s->ret)
				break;
			len += (size_t)snprintf(why + len, sizeof(why) - len,
						"%s%s of %s (v%d): %s", len ? "; " : "", p->name,
						p->file, p->version, s->why);
		} else {
			len += (size_t)snprintf(why + len, sizeof(why) - len, "%s%s %s",
						len ? "; " : "", p->asked, p->reason);
		}
		len = DF_MIN(len, sizeof(why) - 1);
	}
	if (s->ret)
		snprintf(s->why, sizeof(s->why), "%.*s", (int)sizeof(s->why) - 1,
			 why[0] ? why : "NCCL_NET_PLUGIN=none");
	put(s);
	return NULL;
}

/* Warns if a plugin was requested, or was found but is unusable; else logs at level info. */
static void say_missed(const char *why, int aloud)
{
	const struct df_env *env = df_env();

	if (df_env_net_has(DF_NET_PLUGIN))
		df_warn("DFSHIM_NET=%s, but no network plugin can be used: %s; NCCL_NET_PLUGIN "
			"names which to load",
			env->net, why);
	else if (aloud)
		df_warn("no network plugin can be used: %s; NCCL_NET_PLUGIN names others, or none",
			why);
	else
		df_info("no network plugin can be used: %s", why);
	df_nccl_info(DF_SUBSYS_INIT | DF_SUBSYS_NET, "NET/Plugin: Could not find: %s", why);
}

static void start(void)
{
	const struct df_env *env = df_env();
	struct starting *s = calloc(1, sizeof(*s));
	struct df_ncclnet *n;
	pthread_t t;
	char late[160];
	int i;

	owner = getpid();
	if (!s)
		return;
	s->refs = 2;
	/* A plugin may hang, and its caller with it, so start it on a thread. */
	if (pthread_create(&t, NULL, starter, s)) {
		s->refs = 1;
		put(s);
		return;
	}
	if (df_join_within(t, START_S * DF_NS_PER_S)) {
		snprintf(late, sizeof(late), "%s did not return within 10 s",
			 env->nccl_net_plugin ? env->nccl_net_plugin : "libnccl-net.so");
		say_missed(late, 1);
	} else if (s->ret) {
		say_missed(s->why,
			   s->loaded || (s->asked.nr && env->set[DF_ENV_ROW_nccl_net_plugin]));
	} else {
		n = malloc(sizeof(*n));
		if (n)
			*n = s->net;
		for (i = 0; n && i < n->nr_devices; i++)
			n->devices[i].net = n;
		chosen = n;
		df_nccl_info(DF_SUBSYS_INIT | DF_SUBSYS_NET,
			     "NET/Plugin: Loaded net plugin %s (v%d)", s->net.name, s->net.version);
		for (i = 0; i < s->net.nr_devices; i++)
			df_info("network plugin %s (v%d, %s): device %d, %s", s->net.name,
				s->net.version, s->net.file, s->net.devices[i].dev,
				s->net.devices[i].name);
		if (on_started)
			on_started();
	}
	put(s);
}

const struct df_ncclnet *df_ncclnet_get(void)
{
	pthread_once(&once, start);
	return owner == getpid() ? chosen : NULL;
}

void df_tl_on_library(void (*fn)(void))
{
	on_started = fn;
}

int df_ncclnet_end(void)
{
	if (!chosen || owner != getpid())
		return 0;
	/* Relaxed: a later pass over each endpoint shows that the flag is seen (df_tl_end()). */
	__atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
	return 1;
}

int df_ncclnet_ended(void)
{
	return __atomic_load_n(&ended, __ATOMIC_RELAXED) != 0;
}
