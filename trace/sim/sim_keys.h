/*
 * The keys of a configuration: those of the published simulator and a few of ours. They are
 * declared only in this table; the checks, their messages and the JSON schema follow it.
 */
#ifndef DF_TRACE_SIM_SIM_KEYS_H
#define DF_TRACE_SIM_SIM_KEYS_H

#include <stdint.h>

enum key_kind { INT, PROB, WORD, GROUPS, COUNTS, TEXT };
enum key_need { OPTIONAL, ALWAYS, MEGATRON, ARBITRARY };

struct df_sim_key {
	const char *name;
	enum key_kind kind;
	enum key_need need; /* when it is required */
	int64_t min, max;   /* INT */
	const char *words[4];
	const char *help;
};

extern const struct df_sim_key df_sim_keys[];
extern const int df_sim_nr_keys;

/* NULL: there is no such key. */
const struct df_sim_key *df_sim_find_key(const char *name);

#endif
