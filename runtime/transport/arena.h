/*
 * The memory of connectors: segments of anonymous shared memory that peers on the node map, an allocator,
 * and the directory in which connectors are announced. Shared by the node-local transports.
 *
 * The gate of a connector lies in its directory entry, not in the connector: entries are never used for
 * anything else, so a late look through a stale pointer meets a gate of another generation, never bytes
 * of somebody's data.
 */
#ifndef DF_TRANSPORT_ARENA_H
#define DF_TRANSPORT_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/abi.h"

#define DF_SEGS_MAX	   64
#define DF_TABLES_MAX	   20
#define DF_SEG_FIRST_BYTES (64ull << 20)

/* The low byte of a gate word; above it the generation. */
enum df_gate { DF_GATE_NEVER, DF_GATE_FREE, DF_GATE_WRITING, DF_GATE_OPEN, DF_GATE_USED };

#define DF_GATE_WORD(gen, state) ((uint64_t)(gen) << 8 | (state))
#define DF_GATE_STATE(word)	 ((unsigned)((word)&0xff))
#define DF_GATE_GEN(word)	 ((word) >> 8)

/*
 * One announced connector. The owner writes; others read the fields between two equal looks at the gate.
 * All fields are accessed as atomics: a reader may look while the owner reuses the entry.
 */
struct df_arena_entry {
	uint64_t gate;
	uint64_t key;
	uint64_t where; /* segment << 48 | offset */
	uint64_t bytes;
	uint32_t nr_slots, slot_bytes;
	uint32_t far, pad0; /* 1: struct df_conn_far follows the header, not the slots */
	uint64_t pad[2];
};

/* Where a segment lies here; bases appear one after the other and stay. */
struct df_view {
	void *base[DF_SEGS_MAX];
	uint64_t bytes[DF_SEGS_MAX];
	uint32_t nr;
};

struct df_block {
	uint32_t seg;
	uint64_t offset, bytes;
	void *ptr;
};

/* What a look at a directory found. */
struct df_found {
	struct df_arena_entry *entry;
	uint64_t gen;
	struct df_conn_hdr *hdr;
	uint64_t bytes;
	uint32_t nr_slots, slot_bytes, far;
};

/* Starts the arena of this process; -ENOMEM. Idempotent. */
int df_arena_start(void);
/*
 * Starts it, and says whether connectors can be had: 0; -EAGAIN: the GPUs are being told, which is begun once; -ENOMEM:
 * never. Always 0 where devices see all memory and there is memory.
 */
int df_arena_settled(void);
/* Our own segments. */
const struct df_view *df_arena_view(void);
/* Descriptors of our segments from `first` on, for peers. Never blocks. */
int df_arena_serve(uint32_t first, int *fds, uint64_t *bytes, int max);

/*
 * Memory for a connector, backed by pages: later accesses never fail for want of memory. -ENOMEM; -EAGAIN: it is
 * being made.
 */
int df_arena_alloc(size_t bytes, struct df_block *out);
void df_arena_free(const struct df_block *block);
/* Lets at most so many bytes be backed; for tests. 0: no limit. */
void df_arena_limit(uint64_t bytes);

/* Announces a connector. -EEXIST, -ENOMEM. The header is complete. */
int df_dir_insert(uint64_t key, const struct df_block *block, uint32_t nr_slots,
		  uint32_t slot_bytes, uint32_t far, struct df_arena_entry **entry, uint64_t *gen);
/* Takes it out if nobody uses it (force: even then). -EBUSY. */
int df_dir_remove(struct df_arena_entry *entry, uint64_t gen, int force);
/*
 * Looks a key up in the directory of the process whose segments `view` shows. -ENOENT; -EAGAIN: a segment
 * that is needed is not in the view yet. Lock-free, never waits for the owner.
 */
int df_dir_find(const struct df_view *view, uint64_t key, struct df_found *out);
/* The gate, for the other side. -EAGAIN: it is closed. */
int df_gate_use(struct df_arena_entry *entry, uint64_t gen);
void df_gate_unuse(struct df_arena_entry *entry, uint64_t gen);

/* 1 if this mapped first segment is one of ours in form; process: who owns it. */
int df_arena_check(const void *base, uint64_t bytes, uint64_t process);
struct df_bell *df_arena_bell(const void *base);

extern uint64_t df_arena_bytes,
	df_arena_most; /* of connectors announced by us, now and at most; atomic */
/* A connector is announced; bytes of it come back by df_arena_bytes. */
void df_arena_count(uint64_t bytes);

#endif
