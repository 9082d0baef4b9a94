/*
 * The deadlock simulator: how likely do disordered collectives and GPU synchronisation hang a job?
 *
 * A workload is a set of groups of GPUs, each with a list of collectives that all its members
 * issue. In a round the GPUs take turns, and each issues one collective per turn. With probability
 * disorder_prob it passes over the next collective and issues a later one. With probability
 * sync_prob it spends the turn on a synchronisation instead, and is suspended until all that it has
 * issued has completed. A round ends when all collectives are issued or a deadlock is found.
 * docs/simulator.md defines the semantics.
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
 * How the collectives are executed. NCCL: by the semantics. PREEMPT: every issued collective can
 * progress whatever was issued before it (matching by signature, preemption), but a synchronisation
 * waits. RELEASE: as PREEMPT, and a synchronisation that closes a proved cycle returns.
 */
enum df_sim_rules { DF_SIM_NCCL, DF_SIM_PREEMPT, DF_SIM_RELEASE };

/*
 * Which GPUs communicate. A recorded job is reduced to this. Groups are in dispatch order: a GPU's
 * expected list consists of its groups' lists in group order. Members are distinct and ascending;
 * every GPU 0..nr_gpus-1 is in at least one group.
 */
struct df_sim_workload {
	int nr_gpus;
	int nr_groups;
	int *start; /* nr_groups + 1: the members of group g are members[start[g]..start[g+1]-1] */
	int *members;
	int *nr_colls; /* per group */
};

struct df_sim_config {
	enum df_sim_model model;
	enum df_sim_semantics semantics;
	enum df_sim_dispatch dispatch;
	enum df_sim_rules rules;
	double disorder_prob;
	double sync_prob;     /* 0 in the Single model */
	int64_t total_rounds; /* per process of the published program */
	int num_process;
	int fix_seed;
	int resource_limit; /* -1: none */
	struct df_sim_workload load;
};

struct json_t;

/*
 * Fills *cfg from a JSON object. On -EINVAL, err names the key, its value and what is allowed; *cfg
 * is untouched. The caller releases it with df_sim_config_fini().
 */
int df_sim_config_from_json(struct df_sim_config *cfg, const struct json_t *root, char *err,
			    size_t err_size);
void df_sim_config_fini(struct df_sim_config *cfg);

/*
 * Reads a file into *root, which the caller releases with json_decref(). Fails with -EIO or -EINVAL
 * and err.
 */
int df_sim_json_load(struct json_t **root, const char *path, char *err, size_t err_size);

/*
 * Sets key to the value, written as in the file; words need no quotes. Fails with -EINVAL and err
 * if the key is unknown or the text is no value.
 */
int df_sim_json_set(struct json_t *root, const char *key, const char *value, char *err,
		    size_t err_size);

/* The kind of number that a key takes, if any. */
enum df_sim_key_type { DF_SIM_KEY_UNKNOWN, DF_SIM_KEY_INT, DF_SIM_KEY_REAL, DF_SIM_KEY_OTHER };
enum df_sim_key_type df_sim_key_type(const char *key);

/*
 * Returns the JSON schema of a configuration, made from the table that the checks use. NULL: no
 * memory.
 */
struct json_t *df_sim_schema(void);

/* Returns the configuration of a workload given by its groups, for df_sim_config_from_json(). */
struct json_t *df_sim_workload_json(const struct df_sim_workload *load, const char *model,
				    double disorder_prob, double sync_prob);

/* Allocates a workload with that many groups and members. Fails with -ENOMEM. */
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

/* The words used in files and tables. */
const char *df_sim_model_name(enum df_sim_model model);
const char *df_sim_semantics_name(enum df_sim_semantics semantics);
const char *df_sim_dispatch_name(enum df_sim_dispatch dispatch);

enum df_sim_rng_kind {
	/* CPYTHON for the artifact semantics under NCCL's rules with fix_seed, else NATIVE */
	DF_SIM_RNG_AUTO,
	DF_SIM_RNG_NATIVE,  /* one stream per round and part: any number of jobs, short cuts */
	DF_SIM_RNG_CPYTHON, /* one sequence over all rounds, as in the published program */
};

struct df_sim_progress {
	int64_t rounds, deadlocks, limit; /* limit 0: unknown */
	double seconds, width, until_width;
};

struct df_sim_options {
	int64_t rounds; /* 0: total_rounds * num_process of the configuration */
	uint64_t seed;
	int jobs; /* threads, at least 1; does not affect the result */
	enum df_sim_rng_kind rng;
	int plain; /* simulate every event: no short cuts */
	/* > 0: stop at the first block of rounds after which ci95 is this narrow. */
	double until_width;
	const atomic_int *stop; /* not NULL: ends the run early when it becomes non-zero */
	/*
	 * Both are called by one thread at a time, with locks held, so they must be short.
	 * round(): for each round, in order. progress(): a few times a second.
	 */
	void (*round)(void *arg, int64_t round, int deadlock, int64_t deadlocks);
	void (*progress)(void *arg, const struct df_sim_progress *p);
	void *arg;
};

struct df_sim_result {
	int64_t rounds;
	int64_t deadlocks;
	int64_t releases;	  /* synchronisations that were released */
	int64_t released_rounds;  /* rounds with at least one */
	int64_t nr_parts;	  /* independent parts, over all rounds */
	int64_t nr_parts_skipped; /* of these, decided without simulating */
	double ratio;
	double ci95[2];
	double seconds;
	double rounds_per_second;
	int stopped; /* ended by *stop */
};

/*
 * Runs the simulation with opt->jobs threads. Fails with -ENOMEM, or with -EINVAL for options that
 * exclude one another.
 */
int df_sim_run(const struct df_sim_config *cfg, const struct df_sim_options *opt,
	       struct df_sim_result *result);

/* The 95 % Wilson score interval of k successes in n trials. */
void df_sim_wilson(int64_t k, int64_t n, double ci[2]);

#endif
