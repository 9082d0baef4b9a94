/* The table of keys, the names of values, and the JSON schema made from both. */
#include <jansson.h>
#include <string.h>

#include "runtime/base/err.h"
#include "trace/sim/sim_int.h"
#include "trace/sim/sim_keys.h"

const struct df_sim_key df_sim_keys[] = {
	{"model",
	 WORD,
	 ALWAYS,
	 0,
	 0,
	 {"Single", "StreamWithSync"},
	 "Single: collectives wait in queues. StreamWithSync: any number execute, but GPUs "
	 "synchronise."},
	{"grouping_policy",
	 WORD,
	 ALWAYS,
	 0,
	 0,
	 {"Megatron", "Arbitrary"},
	 "Megatron: tensor, data and pipeline parallel groups. Arbitrary: groups are listed."},
	{"disorder_prob",
	 PROB,
	 ALWAYS,
	 0,
	 0,
	 {0},
	 "Probability that a GPU passes over the collective that is next."},
	{"sync_prob",
	 PROB,
	 OPTIONAL,
	 0,
	 0,
	 {0},
	 "Probability that a GPU spends its turn on a synchronisation. Below 1, and needed, for "
	 "StreamWithSync; ignored for Single."},
	{"semantics",
	 WORD,
	 OPTIONAL,
	 0,
	 0,
	 {"exact", "artifact", "fifo"},
	 "exact (default): a deadlock is a real cycle. artifact: as the published program decides. "
	 "fifo: a strict queue per GPU."},
	{"dispatch",
	 WORD,
	 OPTIONAL,
	 0,
	 0,
	 {"interleave", "concatenate"},
	 "How a GPU's list is made of its groups' lists: one of each in turn (default), or one "
	 "list after the other."},
	{"resource_limit",
	 INT,
	 OPTIONAL,
	 -1,
	 1000000,
	 {0},
	 "StreamWithSync: collectives a GPU can execute at once; -1 or 0: no limit."},
	{"total_rounds", INT, OPTIONAL, 1, 1000000000000, {0}, "Rounds of each process."},
	{"num_process",
	 INT,
	 OPTIONAL,
	 1,
	 10000,
	 {0},
	 "Processes of the published program; total_rounds is multiplied by it."},
	{"fix_seed",
	 INT,
	 OPTIONAL,
	 0,
	 1,
	 {0},
	 "1: seed 2023, in the artifact semantics with the random numbers of CPython."},
	{"tp_group_size",
	 INT,
	 MEGATRON,
	 1,
	 DF_SIM_MAX_GPUS,
	 {0},
	 "GPUs of a tensor parallel group."},
	{"dp_group_size", INT, MEGATRON, 1, DF_SIM_MAX_GPUS, {0}, "GPUs of a data parallel group."},
	{"pp_group_size", INT, MEGATRON, 1, DF_SIM_MAX_GPUS, {0}, "Pipeline stages."},
	{"coll_cnt_per_tp_group",
	 INT,
	 MEGATRON,
	 0,
	 DF_SIM_MAX_EVENTS,
	 {0},
	 "Collectives of each tensor parallel group."},
	{"coll_cnt_per_dp_group",
	 INT,
	 MEGATRON,
	 0,
	 DF_SIM_MAX_EVENTS,
	 {0},
	 "Collectives of each data parallel group."},
	{"gpu_num",
	 INT,
	 OPTIONAL,
	 1,
	 DF_SIM_MAX_GPUS,
	 {0},
	 "Arbitrary: number of GPUs; must fit gpu_per_group."},
	{"group_num",
	 INT,
	 OPTIONAL,
	 1,
	 DF_SIM_MAX_GPUS,
	 {0},
	 "Arbitrary: number of groups; must fit gpu_per_group."},
	{"gpu_per_group",
	 GROUPS,
	 ARBITRARY,
	 0,
	 DF_SIM_MAX_GPUS - 1,
	 {0},
	 "The GPUs of each group. All groups together hold every GPU from 0 on."},
	{"coll_cnt_per_group",
	 COUNTS,
	 ARBITRARY,
	 0,
	 DF_SIM_MAX_EVENTS,
	 {0},
	 "The number of collectives of each group."},
	{"comment", TEXT, OPTIONAL, 0, 0, {0}, "Ignored."},
	{"$schema", TEXT, OPTIONAL, 0, 0, {0}, "Ignored."},
};

const int df_sim_nr_keys = (int)DF_ARRAY_LEN(df_sim_keys);

const struct df_sim_key *df_sim_find_key(const char *name)
{
	for (size_t i = 0; i < DF_ARRAY_LEN(df_sim_keys); i++)
		if (!strcmp(df_sim_keys[i].name, name))
			return &df_sim_keys[i];
	return NULL;
}

enum df_sim_key_type df_sim_key_type(const char *name)
{
	const struct df_sim_key *k = df_sim_find_key(name);

	if (!k)
		return DF_SIM_KEY_UNKNOWN;
	return k->kind == INT	 ? DF_SIM_KEY_INT
	       : k->kind == PROB ? DF_SIM_KEY_REAL
				 : DF_SIM_KEY_OTHER;
}

const char *df_sim_model_name(enum df_sim_model model)
{
	return df_sim_find_key("model")->words[model];
}

const char *df_sim_semantics_name(enum df_sim_semantics semantics)
{
	return semantics == DF_SIM_EXACT ? "exact" : semantics == DF_SIM_FIFO ? "fifo" : "artifact";
}

const char *df_sim_dispatch_name(enum df_sim_dispatch dispatch)
{
	return df_sim_find_key("dispatch")->words[dispatch];
}

static json_t *schema_of(const struct df_sim_key *k)
{
	json_t *o = NULL, *words = json_array();

	switch (k->kind) {
	case INT:
		o = json_pack("{s:s, s:I, s:I}", "type", "integer", "minimum", (json_int_t)k->min,
			      "maximum", (json_int_t)k->max);
		break;
	case PROB:
		o = json_pack("{s:s, s:i, s:i}", "type", "number", "minimum", 0, "maximum", 1);
		break;
	case WORD:
		for (int i = 0; i < 4 && k->words[i]; i++)
			json_array_append_new(words, json_string(k->words[i]));
		o = json_pack("{s:O}", "enum", words);
		break;
	case GROUPS:
		o = json_pack("{s:s, s:i, s:{s:s, s:i, s:b, s:{s:s, s:i, s:I}}}", "type", "array",
			      "minItems", 1, "items", "type", "array", "minItems", 1, "uniqueItems",
			      1, "items", "type", "integer", "minimum", 0, "maximum",
			      (json_int_t)k->max);
		break;
	case COUNTS:
		o = json_pack("{s:s, s:i, s:{s:s, s:i, s:I}}", "type", "array", "minItems", 1,
			      "items", "type", "integer", "minimum", 0, "maximum",
			      (json_int_t)k->max);
		break;
	case TEXT:
		o = json_pack("{s:s}", "type", "string");
	}
	json_decref(words);
	if (o)
		json_object_set_new(o, "description", json_string(k->help));
	return o;
}

/* Returns the schema rule "if `key` has this value, the keys in `required` must be present". */
static json_t *condition(const char *key, const char *value, json_t *required)
{
	return json_pack("{s:{s:{s:{s:s}}}, s:{s:o}}", "if", "properties", key, "const", value,
			 "then", "required", required);
}

json_t *df_sim_schema(void)
{
	json_t *props = json_object(), *need[4], *all;

	for (int i = 0; i < 4; i++)
		need[i] = json_array();
	for (size_t i = 0; i < DF_ARRAY_LEN(df_sim_keys); i++) {
		json_object_set_new(props, df_sim_keys[i].name, schema_of(&df_sim_keys[i]));
		if (df_sim_keys[i].need != OPTIONAL)
			json_array_append_new(need[df_sim_keys[i].need],
					      json_string(df_sim_keys[i].name));
	}
	json_decref(need[OPTIONAL]);
	all = json_pack("[o, o, o]", condition("grouping_policy", "Megatron", need[MEGATRON]),
			condition("grouping_policy", "Arbitrary", need[ARBITRARY]),
			condition("model", "StreamWithSync", json_pack("[s]", "sync_prob")));
	return json_pack("{s:s, s:s, s:s, s:b, s:o, s:o, s:o}", "$schema",
			 "https://json-schema.org/draft/2020-12/schema", "title",
			 "Configuration of dfshim sim", "type", "object", "additionalProperties", 0,
			 "properties", props, "required", need[ALWAYS], "allOf", all);
}
