/*
 * Finds NCCL's network plugins as NCCL does: it opens each name of NCCL_NET_PLUGIN (a list; unset:
 * libnccl-net.so; none: no plugin) as it is, then as libnccl-net-NAME.so, and uses the newest of
 * the symbols ncclNetPlugin_v12 to _v6.
 *
 * Loads the plugin's code but does not start it, so its devices are unknown. Call it only in a
 * process that may crash. Stateless.
 */
#ifndef DF_BASE_NET_PLUGINS_H
#define DF_BASE_NET_PLUGINS_H

#define DF_PLUGINS_MAX	16
#define DF_PLUGINS_OURS 7 /* the oldest version that dfshim can use; NCCL also accepts v6 */

struct df_plugin {
	char asked[96]; /* as in NCCL_NET_PLUGIN */
	char file[256]; /* path of the opened library, or "" */
	int version;	/* of the interface; 0: no version that NCCL knows */
	char name[64];	/* the name in the plugin's table */
	int order;	/* position in the order in which NCCL tries them, from 1; 0: not tried */
	char reason[256];
	/* the table of functions of that version, in the process that loaded it */
	const void *table;
};

struct df_plugins {
	int nr;
	struct df_plugin v[DF_PLUGINS_MAX];
};

/*
 * Lists the names without loading them. df_plugins_load() then loads number i; call it in the order
 * of the list.
 */
void df_plugins_asked(struct df_plugins *out);
void df_plugins_load(struct df_plugins *all, int i);
/* Lists and loads all. */
void df_plugins_find(struct df_plugins *out);

#endif
