/*
 * Handles: numbers for NCCL that stand for objects of this process. A handle has the number of its
 * object, how often that was used before, and a mark of the process, so a handle that has ended, or
 * that another process made, finds nothing. Objects never move; their memory is kept.
 */
#ifndef DF_INTERPOSE_PROFILER_HANDLES_H
#define DF_INTERPOSE_PROFILER_HANDLES_H

#include <stddef.h>
#include <stdint.h>

enum df_profiler_handle_kind {
	DF_HANDLE_NONE,
	DF_HANDLE_COMM,
	DF_HANDLE_PLAN, /* stands for no object: df_profiler_handle_plain() */
	DF_HANDLE_CALL, /* of the group API */
	DF_HANDLE_API,	/* of an operation */
	DF_HANDLE_OP,
	DF_HANDLE_KERNEL, /* the kernel's work on an operation: the operation's object */
	DF_HANDLE_PROXY,
	DF_HANDLE_STEP, /* of a proxy: the proxy's object */
	DF_HANDLE_WAY,	/* what a rank sends to another one; NCCL does not see it */
	DF_HANDLE_KINDS
};

#define DF_HANDLE_CHUNK	 256
#define DF_HANDLE_CHUNKS 1024

/* The objects of one kind; static and zero but for bytes. */
struct df_profiler_objects {
	size_t bytes; /* of one */
	enum df_profiler_handle_kind kind;
	uint32_t nr, free; /* free: its first unused one, plus 1 */
	unsigned char *chunks[DF_HANDLE_CHUNKS];
};

/*
 * Makes an object, zeroed. Returns its handle, 0 without memory. One thread at a time, as for
 * df_profiler_drop().
 */
uint64_t df_profiler_make(struct df_profiler_objects *o, void **object);
/* Ends its handle. */
void df_profiler_drop(struct df_profiler_objects *o, uint64_t handle);
/* The object, or NULL if the handle has ended or is not one of these. Any thread. */
void *df_profiler_find(const struct df_profiler_objects *o, uint64_t handle);
/* The object with this number below o->nr, or NULL; its handle. */
void *df_profiler_at(const struct df_profiler_objects *o, uint32_t at, uint64_t *handle);

/* The same handle as one of another kind, with a number below 16. */
uint64_t df_profiler_handle_as(uint64_t handle, enum df_profiler_handle_kind kind, unsigned part);
unsigned df_profiler_handle_part(uint64_t handle);
enum df_profiler_handle_kind df_profiler_handle_kind(uint64_t handle);
/* A handle of no object: this number is its low half. */
uint64_t df_profiler_handle_plain(enum df_profiler_handle_kind kind, uint32_t number);

#endif
