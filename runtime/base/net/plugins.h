/*
 * NCCL's network plugins, found as NCCL finds them: each name in NCCL_NET_PLUGIN (a list; unset: libnccl-net.so; none: no
 * plugin) is opened as it is, then as libnccl-net-NAME.so; the newest of the symbols ncclNetPlugin_v12 to _v6 is
 * taken.
 *
 * Loads the plugin's code, and does not start it: what devices it has is not known. For a process that can afford to die
 * of it. Stateless.
 */
#ifndef DF_BASE_NET_PLUGINS_H
#define DF_BASE_NET_PLUGINS_H

#define DF_PLUGINS_MAX	16
#define DF_PLUGINS_OURS 7 /* the oldest version that dfshim itself can use; NCCL takes v6, too */

struct df_plugin {
	char asked[96]; /* as in NCCL_NET_PLUGIN */
	char file[256]; /* what was opened; "" nothing */
	int version;	/* of the interface; 0: none that NCCL knows */
	char name[64];	/* as the plugin calls itself */
	int order;	/* 1 the first that NCCL tries; 0: not tried */
	char reason[256];
	const void *table; /* the functions of that version, in the process that has loaded it */
};

struct df_plugins {
	int nr;
	struct df_plugin v[DF_PLUGINS_MAX];
};

/* Their names, without looking for them; then one of them, after those before it. */
void df_plugins_asked(struct df_plugins *out);
void df_plugins_load(struct df_plugins *all, int i);
/* Both, for all of them. */
void df_plugins_find(struct df_plugins *out);

#endif
