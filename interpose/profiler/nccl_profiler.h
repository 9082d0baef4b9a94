/*
 * NCCL's profiler interface, versions 1 (NCCL 2.23) to 6 (2.30): the tables that NCCL looks for in
 * a plugin, and the descriptions of events that it passes. They are declared here again, so that
 * the plugin builds without NCCL's headers. Only the layout must be NCCL's; the names are ours.
 */
#ifndef DF_INTERPOSE_PROFILER_NCCL_PROFILER_H
#define DF_INTERPOSE_PROFILER_NCCL_PROFILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Types of events, bits of the mask that init() returns. */
enum df_profiler_type {
	DF_PROFILER_GROUP = 1 << 0,    /* a plan: a communicator's operations in one launch */
	DF_PROFILER_COLL = 1 << 1,     /* a collective of a plan */
	DF_PROFILER_P2P = 1 << 2,      /* a message of a plan */
	DF_PROFILER_PROXY_OP = 1 << 3, /* what a proxy sends or receives on a channel */
	DF_PROFILER_PROXY_STEP = 1 << 4,
	DF_PROFILER_KERNEL_CH = 1 << 6, /* from v3 on: a kernel's work on a channel */
	DF_PROFILER_GROUP_API = 1 << 8, /* from v5 on: calls of the application */
	DF_PROFILER_COLL_API = 1 << 9,
	DF_PROFILER_P2P_API = 1 << 10
};

/* States of a proxy's step. */
enum df_profiler_state {
	DF_PROFILER_SEND_GPU_WAIT = 8,
	DF_PROFILER_SEND_WAIT = 9,
	DF_PROFILER_RECV_WAIT = 10,
	DF_PROFILER_RECV_FLUSH_WAIT = 11,
	DF_PROFILER_RECV_GPU_WAIT = 12,
	DF_PROFILER_SEND_PEER_WAIT = 20
};

#define DF_PROFILER_PROXY_OP_ARGS                                                                  \
	struct {                                                                                   \
		int pid;                                                                           \
		uint8_t channel;                                                                   \
		int peer, steps, chunk_bytes, is_send;                                             \
	} proxy_op;                                                                                \
	struct {                                                                                   \
		int step;                                                                          \
	} proxy_step

#define DF_PROFILER_API_ARGS                                                                       \
	struct {                                                                                   \
		bool captured;                                                                     \
		int depth;                                                                         \
	} group_api;                                                                               \
	struct {                                                                                   \
		const char *func;                                                                  \
		size_t count;                                                                      \
		const char *type;                                                                  \
		int root;                                                                          \
		void *stream;                                                                      \
		bool captured;                                                                     \
	} coll_api;                                                                                \
	struct {                                                                                   \
		const char *func;                                                                  \
		size_t count;                                                                      \
		const char *type;                                                                  \
		void *stream;                                                                      \
		bool captured;                                                                     \
	} p2p_api

struct df_profiler_v1_event {
	uint8_t type;
	void *parent;
	int rank;
	union {
		struct {
			const char *name;
			uint64_t hash, number;
			uint8_t func;
			const void *send;
			void *recv;
			size_t count;
			int root;
			uint8_t type;
			uint32_t redop;
			size_t traffic_bytes;
			uint8_t channels, warps, algo, proto;
			int collnet, nvls;
		} coll;
		struct {
			const char *name;
			uint64_t hash;
			uint8_t func;
			void *buffer;
			uint8_t type;
			size_t count;
			int peer;
		} p2p;
		DF_PROFILER_PROXY_OP_ARGS;
	};
};

/* From v2 on functions and types are texts. */
struct df_profiler_named_p2p {
	const char *name;
	uint64_t hash;
	const char *func;
	void *buffer;
	const char *type;
	size_t count;
	int peer;
};

/*
 * An event of v3, and the members of v2 that are read: a collective of v2 has one more, behind
 * `type`, and v2 has no event of a kernel.
 */
struct df_profiler_v3_event {
	uint8_t type;
	void *parent;
	int rank;
	union {
		struct {
			const char *name;
			uint64_t hash, number;
			const char *func;
			const void *send;
			void *recv;
			size_t count;
			int root;
			const char *type;
			uint8_t channels, warps;
			const char *algo, *proto;
		} coll;
		struct df_profiler_named_p2p p2p;
		DF_PROFILER_PROXY_OP_ARGS;
		struct {
			uint8_t channel;
		} kernel_ch;
	};
};

/* From v4 on init() describes the communicator. */
struct df_profiler_coll {
	uint64_t number;
	const char *func;
	const void *send;
	void *recv;
	size_t count;
	int root;
	const char *type;
	uint8_t channels, warps;
	const char *algo, *proto;
};

struct df_profiler_p2p {
	const char *func;
	void *buffer;
	const char *type;
	size_t count;
	int peer;
	uint8_t channels;
};

struct df_profiler_v4_event {
	uint8_t type;
	void *parent;
	int rank;
	union {
		struct df_profiler_coll coll;
		struct df_profiler_p2p p2p;
		DF_PROFILER_PROXY_OP_ARGS;
		struct {
			uint8_t channel;
			uint64_t gpu_ns;
		} kernel_ch;
	};
};

/* v6 adds events of copy engines. They have no end, so they are not read. */
struct df_profiler_v5_event {
	uint64_t type;
	void *parent;
	int rank;
	union {
		DF_PROFILER_API_ARGS;
		struct {
			struct df_profiler_coll is;
			void *group;
		} coll;
		struct {
			struct df_profiler_p2p is;
			void *group;
		} p2p;
		DF_PROFILER_PROXY_OP_ARGS;
		struct {
			uint8_t channel;
			uint64_t gpu_ns;
		} kernel_ch;
	};
};

/* All functions return an ncclResult_t; 0 means success. */
typedef int (*df_profiler_init_v1_fn)(void **context, int *mask);
typedef int (*df_profiler_init_v4_fn)(void **context, int *mask, const char *name, uint64_t hash,
				      int nodes, int nranks, int rank, void *log);
typedef int (*df_profiler_init_v5_fn)(void **context, uint64_t hash, int *mask, const char *name,
				      int nodes, int nranks, int rank, void *log);

#define DF_PROFILER_TABLE(version, init_fn, event)                                                 \
	struct df_profiler_v##version {                                                            \
		const char *name;                                                                  \
		init_fn init;                                                                      \
		int (*start)(void *context, void **handle, event *e);                              \
		int (*stop)(void *handle);                                                         \
		int (*state)(void *handle, int state, void *args);                                 \
		int (*finalize)(void *context);                                                    \
	}

DF_PROFILER_TABLE(1, df_profiler_init_v1_fn, struct df_profiler_v1_event);
DF_PROFILER_TABLE(2, df_profiler_init_v1_fn, struct df_profiler_v3_event);
DF_PROFILER_TABLE(3, df_profiler_init_v1_fn, struct df_profiler_v3_event);
DF_PROFILER_TABLE(4, df_profiler_init_v4_fn, struct df_profiler_v4_event);
DF_PROFILER_TABLE(5, df_profiler_init_v5_fn, struct df_profiler_v5_event);
DF_PROFILER_TABLE(6, df_profiler_init_v5_fn, struct df_profiler_v5_event);

/* The exports of the plugin. */
extern const struct df_profiler_v1 ncclProfiler_v1;
extern const struct df_profiler_v2 ncclProfiler_v2;
extern const struct df_profiler_v3 ncclProfiler_v3;
extern const struct df_profiler_v4 ncclProfiler_v4;
extern const struct df_profiler_v5 ncclProfiler_v5;
extern const struct df_profiler_v6 ncclProfiler_v6;

#endif
