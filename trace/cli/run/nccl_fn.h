/*
 * NCCL and the CUDA runtime by the names of their functions, for subcommands that communicate
 * without being built against either. Under `dfshim run` the preloaded libraries are found,
 * elsewhere the real ones.
 */
#ifndef DF_TRACE_CLI_RUN_NCCL_FN_H
#define DF_TRACE_CLI_RUN_NCCL_FN_H

#include <limits.h>
#include <stddef.h>

struct df_nccl_id {
	char bytes[128];
};

#define DF_NCCL_CONFIG_MAGIC   0xcafebeefu
#define DF_NCCL_CONFIG_VERSION 22700
#define DF_NCCL_UNDEF	       INT_MIN /* NCCL decides */

/* The beginning of NCCL's configuration of a communicator, as of NCCL 2.27. */
struct df_nccl_config {
	size_t size;
	unsigned magic, version;
	int blocking, cga_cluster_size, min_ctas, max_ctas;
	const char *net_name;
	int split_share, traffic_class;
	const char *comm_name;
};

struct df_nccl_fn {
	int (*set_device)(int);
	int (*malloc)(void **, size_t);
	int (*free)(void *);
	int (*stream_create)(void **, unsigned);
	int (*stream_sync)(void *);
	int (*stream_query)(void *);
	int (*device_sync)(void);
	int (*memset_async)(void *, int, size_t, void *);
	int (*event_create)(void **, unsigned);
	int (*event_record)(void *, void *);
	int (*event_sync)(void *);
	int (*stream_wait)(void *, void *, unsigned);
	int (*get_id)(struct df_nccl_id *);
	int (*init)(void **, int, struct df_nccl_id, int);
	int (*init_config)(void **, int, struct df_nccl_id, int, struct df_nccl_config *);
	int (*destroy)(void *);
	int (*group_start)(void);
	int (*group_end)(void);
	int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
	int (*broadcast)(const void *, void *, size_t, int, int, void *, void *);
	int (*reduce)(const void *, void *, size_t, int, int, int, void *, void *);
	int (*all_gather)(const void *, void *, size_t, int, void *, void *);
	int (*reduce_scatter)(const void *, void *, size_t, int, int, void *, void *);
	int (*all_to_all)(const void *, void *, size_t, int, void *, void *);
	int (*gather)(const void *, void *, size_t, int, int, void *, void *);
	int (*scatter)(const void *, void *, size_t, int, int, void *, void *);
	int (*send)(const void *, size_t, int, int, void *, void *);
	int (*recv)(void *, size_t, int, int, void *, void *);
	void (*repeats_call)(const char *stack); /* libdfshim.so's (interpose/load/repeat_hook.c) */
};

/* Filled by df_nccl_load(). */
extern struct df_nccl_fn df_nccl;

/*
 * Fails with -ENOENT after a message of `dfshim SUB` if a function is missing. all_to_all, gather,
 * scatter, init_config and repeats_call may be NULL.
 */
int df_nccl_load(const char *sub);

/*
 * Rank 0 writes the id of a new communicator to the file `path`; the others wait a minute for it.
 * Fails with -errno, or with NCCL's (positive) error of making the id.
 */
int df_nccl_share_id(const char *path, int rank, struct df_nccl_id *id);

#endif
