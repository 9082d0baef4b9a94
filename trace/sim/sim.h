/*
 * The deadlock simulator: how likely do disordered collectives and GPU synchronisation hang a job?
 *
 * A workload is a set of groups of GPUs, each with a list of collectives that all its members
 * issue. In a round the GPUs take turns, and each issues one collective per turn. With probability
 * disorder_prob it passes over the next collective and issues a later one. With probability
 * sync_prob it spends the turn on a synchronisation instead, and is suspended while it has an
 * outstanding collective. A collective is outstanding on a GPU from its issue by that GPU until it
 * completes, that is until all members have issued it. A round ends when all collectives are issued
 * or a deadlock is found. docs/simulator.md defines the semantics.
 *
 * All functions are thread-safe on distinct objects; none reads the environment or writes to stdio.
 */
#ifndef DF_SIM_H
#define DF_SIM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum df_sim_model { DF_SIM_SINGLE, DF_SIM_SYNC };
enum df_sim_semantics { DF_SIM_ARTIFACT, DF_SIM_EXACT, DF_SIM_FIFO };
enum df_sim_dispatch { DF_SIM_INTERLEAVE, DF_SIM_CONCATENATE };

/*
 * The rules by which collectives are executed. DF_SIM_NCCL: NCCL, as `semantics` describes it.
 * DF_SIM_PREEMPT: dfshim, where every issued collective can progress whatever was issued before it,
 * and a synchronisation waits. DF_SIM_RELEASE: dfshim, where a synchronisation that closes a proved
 * cycle also returns.
 */
enum df_sim_rules { DF_SIM_NCCL, DF_SIM_PREEMPT, DF_SIM_RELEASE };

/*
 * Which GPUs communicate; a recorded job is reduced to this. Groups are in dispatch order: the list
 * of collectives that a GPU is expected to issue consists of its groups' lists, in the order of the
 * groups. Members are distinct and ascending. Every GPU 0..nr_gpus-1 is in at least one group.
 */
struct df_sim_workload {
	int nr_gpus;
	int nr_groups;
	int *start; /* nr_groups + 1: the members of group g are members[start[g]..start[g+1]-1] */
	int *members;
	int *nr_colls; /* number of collectives of each group */
};

struct df_sim_config {
	enum df_sim_model model;
	enum df_sim_semantics semantics;
	enum df_sim_dispatch dispatch;
	enum df_sim_rules rules;
	double disorder_prob;
	double sync_prob;     /* 0 in the Single model */
	int64_t total_rounds; /* rounds of each process of the published program */
	int num_process;
	int fix_seed;
	int resource_limit; /* collectives that a GPU can hold; -1 means no limit */
	struct df_sim_workload load;
};

struct json_t;

/*
 * Fills *cfg from a JSON object. On -EINVAL, err names the key, its value and what is allowed; *cfg
 * is untouched. The caller releases *cfg with df_sim_config_fini().
 */
int df_sim_config_from_json(struct df_sim_config *cfg, const struct json_t *root, char *err,
			    size_t err_size);
void df_sim_config_fini(struct df_sim_config *cfg);

/*
 * Reads a file into *root, which the caller releases with json_decref(). Returns 0, or -EIO or
 * -EINVAL with the reason in err.
 */
int df_sim_json_load(struct json_t **root, const char *path, char *err, size_t err_size);

/*
 * Parses `value` as in a configuration file (words need no quotes) and stores it under `key`.
 * Returns 0, or -EINVAL with the reason in err if the key is unknown or the value cannot be parsed.
 */
int df_sim_json_set(struct json_t *root, const char *key, const char *value, char *err,
		    size_t err_size);

/* The kind of value that a key takes. UNKNOWN: no such key. OTHER: not a number. */
enum df_sim_key_type { DF_SIM_KEY_UNKNOWN, DF_SIM_KEY_INT, DF_SIM_KEY_REAL, DF_SIM_KEY_OTHER };
enum df_sim_key_type df_sim_key_type(const char *key);

/*
 * Returns the JSON schema of a configuration, made from the table of keys that the checks use.
 * Returns NULL if memory is short. The caller releases the schema with json_decref().
 */
struct json_t *df_sim_schema(void);

/*
 * Returns the configuration of a workload as a JSON object for df_sim_config_from_json(), or NULL
 * if memory is short. The caller releases the object with json_decref().
 */
struct json_t *df_sim_workload_json(const struct df_sim_workload *load, const char *model,
				    double disorder_prob, double sync_prob);

/*
 * Allocates a workload with `nr_groups` groups and `nr_members` members in total. Fails with
 * -ENOMEM.
 */
int df_sim_workload_init(struct df_sim_workload *load, int nr_groups, int nr_members);
void df_sim_workload_fini(struct df_sim_workload *load);

/* Returns the number of pairs (GPU, collective) of one round. */
int64_t df_sim_workload_events(const struct df_sim_workload *load);

/*
 * Makes the workload for `factor` times the GPUs: `factor` copies of the job, in which the groups
 * of the largest size are merged across the copies (they grow with data parallelism) and all others
 * are repeated. Fails with -ENOMEM, or with -EINVAL if factor < 1 or the result exceeds the limits.
 */
int df_sim_workload_scale(struct df_sim_workload *out, const struct df_sim_workload *in,
			  int factor);

/* The words that files and tables use for these values. */
const char *df_sim_model_name(enum df_sim_model model);
const char *df_sim_semantics_name(enum df_sim_semantics semantics);
const char *df_sim_dispatch_name(enum df_sim_dispatch dispatch);

enum df_sim_rng_kind {
	/* means CPYTHON for the artifact semantics under NCCL's rules with fix_seed, else NATIVE */
	DF_SIM_RNG_AUTO,
	/* one stream per round and part: allows several threads and short cuts */
	DF_SIM_RNG_NATIVE,
	DF_SIM_RNG_CPYTHON, /* one sequence over all rounds, as in the published program */
};

struct df_sim_progress {
	/* `limit` 0 means that the number of rounds is not known */
	int64_t rounds, deadlocks, limit;
	double seconds, width, until_width;
};

struct df_sim_options {
	int64_t rounds; /* 0 means total_rounds * num_process of the configuration */
	uint64_t seed;
	int jobs; /* threads, at least 1; does not affect the result */
	enum df_sim_rng_kind rng;
	int plain; /* simulate every event, without short cuts */
	/*
	 * If > 0, the run stops after the first block of rounds at which ci95 is at most this
	 * wide.
	 */
	double until_width;
	const atomic_int *stop; /* if not NULL, the run ends early when *stop becomes non-zero */
	/*
	 * Callbacks. One thread at a time calls them, with locks held, so they must be short.
	 * round() is called for each round, in order. progress() is called a few times a second.
	 */
	void (*round)(void *arg, int64_t round, int deadlock, int64_t deadlocks);
	void (*progress)(void *arg, const struct df_sim_progress *p);
	void *arg;
};

struct df_sim_result {
	int64_t rounds;
	int64_t deadlocks;
	int64_t releases;	  /* synchronisations that were released */
	int64_t released_rounds;  /* rounds with at least one release */
	int64_t nr_parts;	  /* independent parts, over all rounds */
	int64_t nr_parts_skipped; /* of these, parts that were decided without simulating */
	double ratio;
	double ci95[2];
	double seconds;
	double rounds_per_second;
	int stopped; /* ended by *stop */
};

/*
 * Runs the simulation with opt->jobs threads. Returns 0, -ENOMEM, or -EINVAL for options that
 * exclude one another.
 */
int df_sim_run(const struct df_sim_config *cfg, const struct df_sim_options *opt,
	       struct df_sim_result *result);

/* Stores the 95 % Wilson score interval of k successes in n trials in ci. */
void df_sim_wilson(int64_t k, int64_t n, double ci[2]);

#endif
