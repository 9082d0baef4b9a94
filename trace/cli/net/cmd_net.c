/*
 * `dfshim net`: shows the networks of this machine, which of them NCCL's rules use, and why the
 * others are not used. With peers, also measures the paths between the machines.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/ascii.h"
#include "runtime/base/clean_text.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/net/plugins.h"
#include "runtime/base/net/verbs.h"
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/net/bounded.h"
#include "trace/cli/net/gdr.h"
#include "trace/cli/net/pair.h"
#include "trace/say/json.h"

#define DRIVER_S 10

/* A network as NCCL sees it, in the order of NCCL's attempts. */
struct network {
	char name[96];
	int used;
	char reason[256];
};

#define NETWORKS_MAX (DF_PLUGINS_MAX + 2)

struct found {
	struct df_iface *ifaces;
	int nr_ifaces;
	struct df_verbs verbs;
	struct df_plugins plugins;
	struct gdr_gpus gpus;
	struct network networks[NETWORKS_MAX];
	int nr_networks;
};

/* ---- finding ----------------------------------------------------------------------------- */

static void fill_verbs(void *out)
{
	df_verbs_find(out, 1);
}

static void fill_plugins(void *out)
{
	df_plugins_find(out);
}

static void ended_badly(int ret, int signal, const char *what, char *to, size_t size)
{
	if (ret == -ETIMEDOUT)
		snprintf(to, size, "%s did not return within %d s", what, DRIVER_S);
	else if (signal)
		snprintf(to, size, "%s died: %s", what, strsignal(signal));
	else
		snprintf(to, size, "%s ended the process", what);
}

static void add_network(struct found *f, const char *name, int usable, const char *reason)
{
	struct network *n = &f->networks[f->nr_networks++];
	const char *want = df_env()->nccl_net;
	int i, earlier = 0;

	for (i = 0; i < f->nr_networks - 1; i++)
		earlier |= f->networks[i].used;
	df_text_cleaned(name, n->name, sizeof(n->name));
	n->used = usable && !earlier;
	if (usable && want && *want && df_strcasecmp(want, name)) {
		n->used = 0;
		snprintf(n->reason, sizeof(n->reason), "NCCL_NET=%.80s asks for another network",
			 want);
	} else if (usable && earlier) {
		snprintf(n->reason, sizeof(n->reason), "one before it is used");
	} else {
		snprintf(n->reason, sizeof(n->reason), "%s", reason);
	}
	df_text_clean(n->reason, strlen(n->reason));
}

static void rank_networks(struct found *f)
{
	const struct df_plugin *p;
	int i, nr = 0;
	char why[64];

	for (i = 0; i < f->plugins.nr; i++) {
		p = &f->plugins.v[i];
		add_network(f, p->name[0] ? p->name : p->asked, p->order > 0,
			    p->order ? p->reason : "see above");
	}
	for (i = 0; i < f->verbs.nr; i++)
		nr += f->verbs.v[i].order > 0;
	snprintf(why, sizeof(why), "%d port%s", nr, nr == 1 ? "" : "s");
	add_network(f, "IB", nr > 0,
		    nr		  ? why
		    : f->verbs.nr ? "no port is usable: see above"
				  : f->verbs.error);
	for (i = nr = 0; i < f->nr_ifaces; i++)
		nr += f->ifaces[i].order > 0;
	snprintf(why, sizeof(why), "%d interface%s", nr, nr == 1 ? "" : "s");
	add_network(f, "Socket", nr > 0, nr ? why : "no interface is usable: see above");
}

static int find(struct found *f)
{
	int ret, signal;

	memset(f, 0, sizeof(*f));
	f->nr_ifaces = df_ifaces_find(&f->ifaces);
	if (f->nr_ifaces < 0)
		return f->nr_ifaces;
	ret = df_bounded(fill_verbs, &f->verbs, sizeof(f->verbs), DRIVER_S, &signal);
	if (ret)
		ended_badly(ret, signal, "libibverbs or a driver", f->verbs.error,
			    sizeof(f->verbs.error));
	ret = df_bounded(fill_plugins, &f->plugins, sizeof(f->plugins), DRIVER_S, &signal);
	if (ret) {
		f->plugins.nr = 1;
		snprintf(f->plugins.v[0].asked, sizeof(f->plugins.v[0].asked), "%s",
			 df_env()->nccl_net_plugin ? df_env()->nccl_net_plugin : "libnccl-net.so");
		ended_badly(ret, signal, "loading it", f->plugins.v[0].reason,
			    sizeof(f->plugins.v[0].reason));
	}
	ret = df_bounded(gdr_find, &f->gpus, sizeof(f->gpus), DRIVER_S, &signal);
	if (ret) {
		memset(&f->gpus, 0, sizeof(f->gpus));
		ended_badly(ret, signal, "the CUDA driver", f->gpus.error, sizeof(f->gpus.error));
	}
	rank_networks(f);
	return 0;
}

/* ---- as text ----------------------------------------------------------------------------- */

static void speed_text(int mbps, char *text, size_t size)
{
	if (mbps <= 0)
		snprintf(text, size, "-");
	else if (mbps % 1000)
		snprintf(text, size, "%d Mb/s", mbps);
	else
		snprintf(text, size, "%d Gb/s", mbps / 1000);
}

static void used_text(int order, const char *reason)
{
	if (order)
		printf("  used (%d): %s\n", order, reason);
	else
		printf("  not used: %s\n", reason);
}

static void print_iface(const struct df_iface *v)
{
	char ip[DF_ADDR_TEXT + 8] = "-", speed[24];

	if (v->addr.sa.sa_family != AF_UNSPEC) {
		df_addr_format_ip(&v->addr, ip, sizeof(ip));
		snprintf(ip + strlen(ip), sizeof(ip) - strlen(ip), "/%u", v->prefix);
	}
	speed_text(v->mbps, speed, sizeof(speed));
	printf("  %-15s %-28s MTU %-6u %-9s", v->name, ip, v->mtu, speed);
	used_text(v->order, v->reason);
}

/* Prints addresses by interface; the kernel lists them by family. */
static void print_ifaces(const struct found *f)
{
	int i, k, first;

	printf("Network interfaces\n");
	for (i = 0; i < f->nr_ifaces; i++) {
		for (first = 0; strcmp(f->ifaces[first].name, f->ifaces[i].name); first++)
			;
		for (k = i; first == i && k < f->nr_ifaces; k++)
			if (!strcmp(f->ifaces[k].name, f->ifaces[i].name))
				print_iface(&f->ifaces[k]);
	}
}

static void print_verbs(const struct df_verbs *verbs)
{
	const struct df_verbs_port *p;
	char gid[80], speed[24];

	printf("RDMA ports (%s)\n", verbs->library[0] ? verbs->library : "libibverbs");
	if (verbs->error[0])
		printf("  none: %s\n", verbs->error);
	for (p = verbs->v; p < verbs->v + verbs->nr; p++) {
		speed_text(p->mbps, speed, sizeof(speed));
		gid[0] = '\0';
		if (p->gid_index >= 0)
			snprintf(gid, sizeof(gid), "GID %d %s%s%s", p->gid_index, p->gid,
				 p->roce_version == 2	? " RoCE v2"
				 : p->roce_version == 1 ? " RoCE v1"
							: "",
				 p->netdev[0] ? " " : "");
		printf("  %s:%d %s %s MTU %u %s %s%s", p->device, p->port,
		       p->infiniband ? "InfiniBand" : "Ethernet", p->state, p->mtu, speed, gid,
		       p->netdev);
		used_text(p->order, p->reason);
	}
}

static void print_plugins(const struct df_plugins *plugins)
{
	const char *want = df_env()->nccl_net_plugin;
	const struct df_plugin *p;
	char text[PATH_MAX];

	printf("Network plugins (NCCL_NET_PLUGIN%s%s)\n", want ? "=" : " is not set",
	       df_text_cleaned(want ?: "", text, sizeof(text)));
	if (!plugins->nr)
		printf("  none is asked for\n");
	for (p = plugins->v; p < plugins->v + plugins->nr; p++) {
		printf("  %s", df_text_cleaned(p->asked, text, sizeof(text)));
		if (p->version)
			printf(": %s, interface v%d, %s", p->name, p->version, p->file);
		used_text(p->order, df_text_cleaned(p->reason, text, sizeof(text)));
	}
}

static void print_networks(const struct found *f)
{
	const struct network *n;
	int used = 0;

	printf("Networks, in the order in which NCCL tries them\n");
	for (n = f->networks; n < f->networks + f->nr_networks; n++) {
		printf("  %-15s %s: %s\n", n->name, n->used ? "used" : "not used", n->reason);
		used |= n->used;
	}
	if (!used)
		printf("  No network can be used: ranks on other machines cannot be reached.\n");
}

/*
 * Returns the only medium that may be used, or DF_NET_AUTO if any may. Stores the setting that
 * restricts it in `by`.
 */
static int only_medium(char *by, size_t size)
{
	const struct df_env *env = df_env();

	snprintf(by, size, "DFSHIM_NET=%s", df_env_text(DF_ENV_ROW_net));
	if (df_env_net("") != DF_NET_AUTO || !env->nccl_net || !env->nccl_net[0])
		return df_env_net("");
	snprintf(by, size, "NCCL_NET=%.40s", env->nccl_net);
	df_text_clean(by, strlen(by));
	return !df_strcasecmp(env->nccl_net, "Socket") ? DF_NET_TCP
	       : !df_strcasecmp(env->nccl_net, "IB")   ? DF_NET_VERBS
						       : DF_NET_PLUGIN;
}

/*
 * Returns the network by which dfshim itself connects machines: "plugin", "verbs" or "tcp". Returns
 * NULL, with the reason, if it has none.
 */
static const char *own_network(const struct found *f, char *why, size_t size)
{
	const struct df_plugin *plugin = NULL;
	int verbs = 0, tcp = 0, i, only;
	char by[64];

	only = only_medium(by, sizeof(by));
	for (i = f->plugins.nr - 1; i >= 0; i--)
		if (f->plugins.v[i].order > 0 && f->plugins.v[i].version >= DF_PLUGINS_OURS)
			plugin = &f->plugins.v[i];
	for (i = 0; i < f->verbs.nr; i++)
		verbs += f->verbs.v[i].order > 0;
	for (i = 0; i < f->nr_ifaces; i++)
		tcp += f->ifaces[i].order > 0;
	if (only == DF_NET_OFF) {
		snprintf(why, size, "%s", by);
		return NULL;
	}
	if (!tcp) {
		snprintf(why, size, "no interface is usable, and nodes meet over one");
		return NULL;
	}
	if (only == DF_NET_PLUGIN && !plugin) {
		snprintf(why, size, "%s, and no network plugin is usable", by);
		return NULL;
	}
	if (only == DF_NET_VERBS && !verbs) {
		snprintf(why, size, "%s, and no RDMA port is usable", by);
		return NULL;
	}
	if (only == DF_NET_TCP) {
		snprintf(why, size, "%s", by);
		return "tcp";
	}
	if (plugin && only != DF_NET_VERBS) {
		snprintf(why, size, "%s (v%d)%s", plugin->name, plugin->version,
			 only == DF_NET_PLUGIN ? "" : "; verbs or tcp if it finds no device");
		return "plugin";
	}
	if (!verbs) {
		snprintf(why, size, "no plugin and no RDMA port is usable");
		return "tcp";
	}
	snprintf(why, size, "%d RDMA port%s%s", verbs, verbs == 1 ? "" : "s",
		 only == DF_NET_VERBS ? "" : "; tcp with a device that has none");
	return "verbs";
}

static void print_own(const struct found *f)
{
	char why[128];
	const char *name = own_network(f, why, sizeof(why));

	printf("dfshim joins machines by %s: %s\n", name ? name : "nothing", why);
}

static int slots_of(const struct found *f, int gpu, char *why, size_t size)
{
	char by[64];

	return gdr_slots(&f->gpus, gpu, &f->verbs, only_medium(by, sizeof(by)) == DF_NET_VERBS, why,
			 size);
}

/* Prints the path from a GPU to each used port, if any path is known. */
static void print_paths(const struct found *f, int gpu)
{
	enum df_pci_path nearest = gdr_nearest(&f->gpus, gpu, &f->verbs), path;
	const struct df_verbs_port *p;

	for (p = f->verbs.v; p < f->verbs.v + f->verbs.nr && nearest != DF_PCI_UNKNOWN; p++) {
		if (!p->order)
			continue;
		path = df_pci_to_verbs(f->gpus.v[gpu].pci, p->device);
		printf("    %s:%d: path %s%s\n", p->device, p->port, df_pci_name(path),
		       path > nearest ? ", used when nearer ones fail" : "");
	}
}

static void print_slots(const struct found *f)
{
	char why[192];
	int i, in;

	if (f->gpus.error[0])
		printf("  GPUs are not known: %s\n", f->gpus.error);
	for (i = 0; i < f->gpus.nr; i++) {
		in = slots_of(f, i, why, sizeof(why));
		printf("  GPU %d (%s): slots for other machines lie in %s memory: %s\n", i,
		       f->gpus.v[i].name, in ? "GPU" : "host", why);
		print_paths(f, i);
	}
}

static void print_peer(const struct pair_peer *peer)
{
	char from[DF_ADDR_TEXT + 20], to[DF_ADDR_TEXT + 20], ip[DF_ADDR_TEXT];
	const struct pair_result *r;

	printf("Peer %s\n", peer->text);
	if (peer->error[0])
		printf("  not reached: %s\n", peer->error);
	else
		printf("  %-32s %-32s %12s %12s %10s %10s %6s\n", "from", "to", "latency us",
		       "99 % us", "out GB/s", "in GB/s", "MTU");
	for (r = peer->v; r < peer->v + peer->nr; r++) {
		df_addr_format_ip(&r->from.addr, ip, sizeof(ip));
		snprintf(from, sizeof(from), "%s %s", r->from.name, ip);
		snprintf(to, sizeof(to), "%s %s", r->to.name, r->to.ip);
		printf("  %-32s %-32s ", from, to);
		if (r->error[0])
			printf("%s\n", r->error);
		else
			printf("%12.1f %12.1f %10.2f %10.2f %6u\n", r->latency_us,
			       r->latency_p99_us, r->gbps_out, r->gbps_in, r->mtu);
	}
}

/* ---- as JSON ----------------------------------------------------------------------------- */

static json_t *ifaces_json(const struct found *f)
{
	json_t *list = json_array();
	const struct df_iface *v;
	char ip[DF_ADDR_TEXT];

	for (v = f->ifaces; v < f->ifaces + f->nr_ifaces; v++) {
		if (v->addr.sa.sa_family != AF_UNSPEC)
			df_addr_format_ip(&v->addr, ip, sizeof(ip));
		json_array_append_new(
			list, json_pack("{s:s, s:o, s:i, s:b, s:b, s:i, s:i, s:i, s:s}", "name",
					v->name, "address",
					df_json_text(v->addr.sa.sa_family == AF_UNSPEC ? NULL : ip),
					"prefix", (int)v->prefix, "up", !!(v->flags & IFF_UP),
					"carrier", !!(v->flags & IFF_RUNNING), "mtu", (int)v->mtu,
					"mbps", v->mbps, "order", v->order, "reason", v->reason));
	}
	return list;
}

static json_t *verbs_json(const struct df_verbs *verbs)
{
	json_t *list = json_array();
	const struct df_verbs_port *p;

	for (p = verbs->v; p < verbs->v + verbs->nr; p++)
		json_array_append_new(
			list,
			json_pack("{s:s, s:i, s:s, s:s, s:i, s:i, s:i, s:s, s:i, s:s, s:i, s:s}",
				  "device", p->device, "port", p->port, "link",
				  p->infiniband ? "InfiniBand" : "Ethernet", "state", p->state,
				  "mtu", (int)p->mtu, "mbps", p->mbps, "gid_index", p->gid_index,
				  "gid", p->gid, "roce_version", p->roce_version, "interface",
				  p->netdev, "order", p->order, "reason", p->reason));
	return json_pack("{s:o, s:o, s:o}", "library", df_json_text(verbs->library), "error",
			 df_json_text(verbs->error[0] ? verbs->error : NULL), "ports", list);
}

static json_t *plugins_json(const struct df_plugins *plugins)
{
	json_t *list = json_array();
	const struct df_plugin *p;

	for (p = plugins->v; p < plugins->v + plugins->nr; p++)
		json_array_append_new(
			list,
			json_pack("{s:o, s:o, s:o, s:i, s:i, s:o}", "asked", df_json_text(p->asked),
				  "file", df_json_text(p->file[0] ? p->file : NULL), "name",
				  df_json_text(p->name[0] ? p->name : NULL), "version", p->version,
				  "order", p->order, "reason", df_json_text(p->reason)));
	return list;
}

static json_t *networks_json(const struct found *f)
{
	json_t *list = json_array();
	const struct network *n;

	for (n = f->networks; n < f->networks + f->nr_networks; n++)
		json_array_append_new(list, json_pack("{s:o, s:b, s:o}", "name",
						      df_json_text(n->name), "used", n->used,
						      "reason", df_json_text(n->reason)));
	return list;
}

static json_t *paths_json(const struct found *f, int gpu)
{
	const struct df_verbs_port *p;
	json_t *list = json_array();

	for (p = f->verbs.v; p < f->verbs.v + f->verbs.nr; p++)
		if (p->order)
			json_array_append_new(
				list, json_pack("{s:s, s:i, s:s}", "device", p->device, "port",
						p->port, "path",
						df_pci_name(df_pci_to_verbs(f->gpus.v[gpu].pci,
									    p->device))));
	return list;
}

static json_t *own_json(const struct found *f)
{
	json_t *gpus = json_array();
	char why[192];
	const char *name;
	int i, in;

	for (i = 0; i < f->gpus.nr; i++) {
		in = slots_of(f, i, why, sizeof(why));
		json_array_append_new(gpus,
				      json_pack("{s:i, s:o, s:s, s:s, s:s, s:o}", "gpu", i, "name",
						df_json_text(f->gpus.v[i].name), "slots",
						in ? "GPU" : "host", "reason", why, "pci",
						f->gpus.v[i].pci, "ports", paths_json(f, i)));
	}
	name = own_network(f, why, sizeof(why));
	return json_pack("{s:o, s:s, s:o}", "network", df_json_text(name), "reason", why, "gpus",
			 gpus);
}

static json_t *peer_json(const struct pair_peer *peer)
{
	json_t *list = json_array(), *o;
	const struct pair_result *r;
	char ip[DF_ADDR_TEXT];

	for (r = peer->v; r < peer->v + peer->nr; r++) {
		df_addr_format_ip(&r->from.addr, ip, sizeof(ip));
		o = json_pack("{s:{s:s, s:s}, s:{s:o, s:o}, s:o}", "from", "name", r->from.name,
			      "address", ip, "to", "name", df_json_text(r->to.name), "address",
			      df_json_text(r->to.ip), "error",
			      df_json_text(r->error[0] ? r->error : NULL));
		if (!r->error[0])
			df_json_add(o, json_pack("{s:o, s:o, s:o, s:o, s:i}", "latency_us",
						 df_json_milli(r->latency_us), "latency_p99_us",
						 df_json_milli(r->latency_p99_us), "out_gbps",
						 df_json_milli(r->gbps_out), "in_gbps",
						 df_json_milli(r->gbps_in), "mtu", (int)r->mtu));
		json_array_append_new(list, o);
	}
	return json_pack("{s:o, s:o, s:o}", "peer", df_json_text(peer->text), "error",
			 df_json_text(peer->error[0] ? peer->error : NULL), "pairs", list);
}

/* ---- the command ------------------------------------------------------------------------- */

static int is_reached(const struct pair_peer *peer)
{
	int i;

	for (i = 0; i < peer->nr; i++)
		if (!peer->v[i].error[0])
			return 1;
	return 0;
}

static int test_and_print(int nr_peers, char **names, const struct pair_config *c, json_t *all)
{
	json_t *list = json_array();
	struct pair_peer peer;
	int i, rc = 0;

	for (i = 0; i < nr_peers; i++) {
		pair_test(names[i], c, &peer);
		if (all)
			json_array_append_new(list, peer_json(&peer));
		else
			print_peer(&peer);
		if (!is_reached(&peer))
			rc = 1;
		free(peer.v);
	}
	if (all)
		json_object_set(all, "peers", list);
	json_decref(list);
	return rc;
}

static int listen_here(int nr, char **operands, double idle_s)
{
	int port = PAIR_PORT, last;

	if (nr > 1)
		return df_cli_usage_error("net", "--listen: one port, not %d operands", nr);
	if (nr && (df_ports_parse(operands[0], &port, &last) || port != last))
		return df_cli_usage_error("net", "--listen %s: a port from 1 to 65535 is needed",
					  operands[0]);
	return pair_listen(port, idle_s);
}

int df_cmd_net(int argc, char **argv)
{
	struct pair_config config = {.timeout_s = 3, .seconds = 0.5, .streams = 4};
	int json = 0, listens = 0, rc;
	double timeout = 0;
	struct found f;
	json_t *all;
	const struct df_opt options[] = {
		DF_OPT(JSON, json, NULL),
		DF_FLAG("listen", listens,
			"let other machines test the connection to this one; the operand is the "
			"port (28029)"),
		DF_OPT(TIMEOUT, timeout,
		       "give up a step that makes no progress for this time (3); with --listen: "
		       "end when no machine has connected for this time (never)"),
		DF_REAL("seconds", "S", config.seconds, 0.05, 5,
			"measure each direction for this time (0.5)"),
		DF_NUMBER("streams", "N", config.streams, 1, PAIR_STREAMS_MAX,
			  "connections at a time, for the bandwidth (4)"),
	};

	DF_CLI_PARSE(
		"net", &argc, &argv, .args = "[PEER...]\n--listen [PORT]", .most = -1,
		.doc = "Lists the network interfaces, RDMA ports and network plugins of this "
		       "machine: which of them dfshim uses, and why not the others. Start `dfshim "
		       "net --listen` on other machines and name them as PEER to measure latency, "
		       "bandwidth and MTU of each pair of interfaces.\vExit status: 0; 1 if no "
		       "pair of interfaces reaches a peer; 2 for wrong usage.");
	/* No name of a machine is changed by this. */
	for (int i = 0; i < argc; i++)
		df_text_clean(argv[i], strlen(argv[i]));
	if (listens)
		return listen_here(argc, argv, timeout);
	if (timeout > 0)
		config.timeout_s = timeout;
	rc = find(&f);
	if (rc) {
		fprintf(stderr, "dfshim net: the network interfaces cannot be read: %s\n",
			strerror(-rc));
		return 1;
	}
	if (json) {
		all = json_pack("{s:o, s:o, s:o, s:o, s:o}", "interfaces", ifaces_json(&f), "verbs",
				verbs_json(&f.verbs), "plugins", plugins_json(&f.plugins),
				"networks", networks_json(&f), "dfshim", own_json(&f));
		rc = test_and_print(argc, argv, &config, all);
		if (df_json_line(all, stdout))
			rc = 1;
	} else {
		print_ifaces(&f);
		print_verbs(&f.verbs);
		print_plugins(&f.plugins);
		print_networks(&f);
		print_own(&f);
		print_slots(&f);
		rc = test_and_print(argc, argv, &config, NULL);
	}
	free(f.ifaces);
	return rc;
}
