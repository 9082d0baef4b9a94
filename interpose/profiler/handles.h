/*
 * Handles: numbers that NCCL gets for objects of this process. A handle contains the number of its
 * object, how often the object was used before, and a mark of the process. So a handle that has
 * ended, or that another process made, finds no object. Objects never move, and their memory is
 * kept.
 */
#ifndef DF_INTERPOSE_PROFILER_HANDLES_H
#define DF_INTERPOSE_PROFILER_HANDLES_H

#include <stddef.h>
#include <stdint.h>

enum df_profiler_handle_kind {
	DF_HANDLE_NONE,
	DF_HANDLE_COMM,
	DF_HANDLE_PLAN, /* stands for no object: df_profiler_handle_plain() */
	DF_HANDLE_CALL, /* a call of the group API */
	DF_HANDLE_API,	/* a call of an operation */
	DF_HANDLE_OP,
	DF_HANDLE_KERNEL, /* the kernel's work on an operation: the operation's object */
	DF_HANDLE_PROXY,
	DF_HANDLE_STEP, /* a step of a proxy: the proxy's object */
	/* the data that a rank sends to another rank; NCCL does not see this handle */
	DF_HANDLE_WAY,
	DF_HANDLE_KINDS
};

#define DF_HANDLE_CHUNK	 256
#define DF_HANDLE_CHUNKS 1024

/* The objects of one kind. Static, and zero except for `bytes`. */
struct df_profiler_objects {
	size_t bytes; /* size of one object */
	enum df_profiler_handle_kind kind;
	uint32_t nr, free; /* `free` is the first unused object, plus 1 */
	unsigned char *chunks[DF_HANDLE_CHUNKS];
};

/*
 * Makes a zeroed object. Returns its handle, or 0 if memory is short. Only one thread at a time may
 * call this or df_profiler_drop().
 */
uint64_t df_profiler_make(struct df_profiler_objects *o, void **object);
/* Ends the object's handle. */
void df_profiler_drop(struct df_profiler_objects *o, uint64_t handle);
/* Returns the object, or NULL if the handle has ended or belongs to no such object. Any thread. */
void *df_profiler_find(const struct df_profiler_objects *o, uint64_t handle);
/*
 * Returns the object with this number, which is less than o->nr, and its handle. Returns NULL if it
 * is unused.
 */
void *df_profiler_at(const struct df_profiler_objects *o, uint32_t at, uint64_t *handle);

/* Returns a handle of another kind for the same object, with a number less than 16. */
uint64_t df_profiler_handle_as(uint64_t handle, enum df_profiler_handle_kind kind, unsigned part);
unsigned df_profiler_handle_part(uint64_t handle);
enum df_profiler_handle_kind df_profiler_handle_kind(uint64_t handle);
/* Returns a handle that stands for no object, with `number` as its lower half. */
uint64_t df_profiler_handle_plain(enum df_profiler_handle_kind kind, uint32_t number);

#endif
