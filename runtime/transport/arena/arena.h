/*
 * The memory of connectors: segments of anonymous shared memory that peers on the node map, an
 * allocator, and the directory that announces connectors. The node-local transports share it.
 *
 * The gate of a connector is in its directory entry, not in the connector. Entries are never used
 * for anything else, so a late access through a stale pointer finds a gate of another generation,
 * never data of another connector.
 */
#ifndef DF_TRANSPORT_ARENA_ARENA_H
#define DF_TRANSPORT_ARENA_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/abi.h"

#define DF_SEGS_MAX	   64
#define DF_TABLES_MAX	   20
#define DF_SEG_FIRST_BYTES (64ull << 20)

/* The low byte of a gate word; the generation is above it. */
enum df_gate { DF_GATE_NEVER, DF_GATE_FREE, DF_GATE_WRITING, DF_GATE_OPEN, DF_GATE_USED };

#define DF_GATE_WORD(gen, state) ((uint64_t)(gen) << 8 | (state))
#define DF_GATE_STATE(word)	 ((unsigned)((word)&0xff))
#define DF_GATE_GEN(word)	 ((word) >> 8)

/*
 * One announced connector. Its owner writes it. Others read the fields between two equal reads of
 * the gate. All accesses are atomic, because a reader may look while the owner reuses the entry.
 */
struct df_arena_entry {
	uint64_t gate;
	uint64_t key;
	uint64_t where; /* segment << 48 | offset */
	uint64_t bytes;
	uint32_t nr_slots, slot_bytes;
	/* far: whether struct df_conn_far follows the header, instead of the slots */
	uint32_t far, pad0;
	uint64_t pad[2];
};

/* Addresses of segments in this process. Bases are set one after the other and stay. */
struct df_view {
	void *base[DF_SEGS_MAX];
	uint64_t bytes[DF_SEGS_MAX];
	uint32_t nr;
};

static inline void *df_view_base(const struct df_view *v, uint32_t seg)
{
	if (seg >= DF_SEGS_MAX)
		return NULL;
	/*
	 * ACQUIRE pairs with the RELEASE in seg_publish() (arena.c) and publish() (shm.c): the size
	 * is set and the memory mapped.
	 */
	return __atomic_load_n(&v->base[seg], __ATOMIC_ACQUIRE);
}

struct df_block {
	uint32_t seg;
	uint64_t offset, bytes;
	void *ptr;
};

/* Result of a lookup in a directory. */
struct df_found {
	struct df_arena_entry *entry;
	uint64_t gen;
	struct df_conn_hdr *hdr;
	uint64_t bytes;
	uint32_t nr_slots, slot_bytes, far;
};

/* Starts the arena of this process. Returns -ENOMEM. Idempotent. */
int df_arena_start(void);
/*
 * Starts the arena and returns whether connectors can be made: 0, -EAGAIN while the first segment
 * is registered with GPUs, or -ENOMEM if they refused it. Always 0 where devices see all memory and
 * there is memory.
 */
int df_arena_settled(void);
/* Our own segments. */
const struct df_view *df_arena_view(void);

/*
 * Allocates memory for a connector, backed by pages, so later accesses never fail for lack of
 * memory. Returns -ENOMEM, or -EAGAIN while memory is being made.
 */
int df_arena_alloc(size_t bytes, struct df_block *out);
void df_arena_free(const struct df_block *block);
/* Limits the backed bytes, for tests; 0 removes the limit. */
void df_arena_limit(uint64_t bytes);

/* Announces a connector whose header is complete. Returns -EEXIST or -ENOMEM. */
int df_dir_insert(uint64_t key, const struct df_block *block, uint32_t nr_slots,
		  uint32_t slot_bytes, uint32_t far, struct df_arena_entry **entry, uint64_t *gen);
/*
 * Removes the connector if the other side does not use it, or, with force, even then. Else returns
 * -EBUSY.
 */
int df_dir_remove(struct df_arena_entry *entry, uint64_t gen, int force);
/*
 * Looks up a key in the directory of the process that owns the segments of `view`. Returns -ENOENT,
 * or -EAGAIN if a needed segment is not in the view yet. Lock-free; never waits for the owner.
 */
int df_dir_find(const struct df_view *view, uint64_t key, struct df_found *out);
/* The gate, for the other side. df_gate_use() returns -EAGAIN if it is closed. */
int df_gate_use(struct df_arena_entry *entry, uint64_t gen);
void df_gate_unuse(struct df_arena_entry *entry, uint64_t gen);

/* Whether this mapped memory has the form of a first segment that `process` owns. */
int df_arena_check(const void *base, uint64_t bytes, uint64_t process);
struct df_bell *df_arena_bell(const void *base);

extern uint64_t df_arena_bytes; /* of connectors that we announced; atomic */
/* Counts a newly announced connector of this size. */
void df_arena_count(uint64_t bytes);

#endif
