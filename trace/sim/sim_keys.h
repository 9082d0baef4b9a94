/*
 * The keys of a configuration: those of the published simulator and a few of ours. Only this table
 * declares them. The checks, the messages and the JSON schema are made from the table.
 */
#ifndef DF_TRACE_SIM_SIM_KEYS_H
#define DF_TRACE_SIM_SIM_KEYS_H

#include <stdint.h>

enum key_kind { INT, PROB, WORD, GROUPS, COUNTS, TEXT };
enum key_need { OPTIONAL, ALWAYS, MEGATRON, ARBITRARY };

struct df_sim_key {
	const char *name;
	enum key_kind kind;
	enum key_need need; /* when the key is required */
	int64_t min, max;   /* bounds of an integer key */
	const char *words[4];
	const char *help;
};

extern const struct df_sim_key df_sim_keys[];
extern const int df_sim_nr_keys;

/* Returns the entry of a key, or NULL if there is no such key. */
const struct df_sim_key *df_sim_find_key(const char *name);

#endif
