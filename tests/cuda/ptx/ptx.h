/*
 * An emulator of PTX: kernels as nvcc compiles them for a GPU, executed on CPU threads, with all
 * threads of their blocks. The test driver (tests/cuda/driver) executes with it the kernels of
 * programs, the daemon's own kernel first of all.
 *
 * It shows that device code computes the right thing in any order of its warps, and reports faults
 * that a GPU would not forgive: accesses of memory that the device does not know or in the wrong
 * alignment, races between the threads of a block (in shared and in global memory), barriers that
 * not all threads of a warp reach. On request memory is weak, so that a missing acquire or release
 * shows too. It shows nothing about ptxas. With a clock (struct ptx_time) it executes the kernels
 * of several GPUs in the order of virtual time, and shows about what they would take.
 *
 * A block is one CPU thread, which executes its warps in turn, in an order drawn from a seed; a
 * warp's threads go in lockstep while they are at the same instruction. 64-bit generic addresses
 * are addresses of this process, and the spaces shared, global, local, const and param are parts
 * of it.
 *
 * Unknown PTX is refused, by name, when a kernel executes it. Reference: Parallel Thread Execution
 * ISA 9.0 (NVIDIA).
 */
#ifndef DF_TESTS_PTX_H
#define DF_TESTS_PTX_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct ptx_module;
struct ptx_kernel;

/*
 * NULL: not readable as PTX, said on standard error with the line. name: for messages. The text may
 * go away afterwards.
 */
struct ptx_module *ptx_load(const char *text, size_t len, const char *name);
/* Its kernels must not run any more. */
void ptx_unload(struct ptx_module *m);
/* NULL: there is none of that name. */
const struct ptx_kernel *ptx_kernel(const struct ptx_module *m, const char *name);
/* A variable of the module in global or const memory; NULL: there is none of that name. */
void *ptx_variable(const struct ptx_module *m, const char *name, size_t *bytes);

/*
 * The kernel's parameters: number, then offset and size of each in the parameter block, in bytes.
 */
unsigned int ptx_nr_params(const struct ptx_kernel *k);
void ptx_param(const struct ptx_kernel *k, unsigned int i, size_t *offset, size_t *bytes);
size_t ptx_param_bytes(const struct ptx_kernel *k);
/* Threads a block at most, from .maxntid; 1024 without. */
unsigned int ptx_max_threads(const struct ptx_kernel *k);

/* Memory as a multiprocessor reaches it. */
enum ptx_place { PTX_L2, PTX_HBM, PTX_PEER, PTX_HOST };

struct ptx_launch {
	const struct ptx_kernel *kernel;
	unsigned int grid[3], block[3];
	size_t dynamic_shared; /* bytes */
	const void *params;    /* the parameter block */
	unsigned int resident; /* blocks that are on the device at a time; 0: all */
	uint64_t seed;	       /* of the order in which warps run */
	/*
	 * Whether global memory is about as weak as PTX allows: stores are seen late, loads may be
	 * old (weak.c).
	 */
	int weak;
	/*
	 * May the device access these bytes? Called from several threads. *from, *to: what may be
	 * accessed around it; the answer is kept until *generation changes. NULL: everything may
	 * be.
	 */
	int (*known)(void *arg, uintptr_t at, size_t bytes, uintptr_t *from, uintptr_t *to);
	const uint64_t *generation;
	/*
	 * A fault, as a whole sentence; the kernel then stops if it cannot go on. NULL: to standard
	 * error. Called from several threads, at most once for each instruction and kind.
	 */
	void (*fault)(void *arg, const char *text);
	/* Not NULL: called for each access of global memory, from several threads. */
	void (*touched)(void *arg, uintptr_t at, unsigned int bytes, int writes);
	/*
	 * Not NULL: called for each fence, and each store and atomic with one before it, of a warp;
	 * as touched().
	 */
	void (*fenced)(void *arg);
	void *arg;
	const int *stop; /* not NULL: leave as soon as it is not 0 */
	/*
	 * With a clock: where that address is for this GPU. `weak`, `resident` and `stop` do not
	 * count.
	 */
	enum ptx_place (*place)(void *arg, uintptr_t at);
	/* With a clock: called when the last block has ended. */
	void (*ended)(void *arg, double now_ns);
};

/* Until all blocks have ended. 0, or the number of faults. */
int ptx_run(const struct ptx_launch *l);

/*
 * A clock: kernels of several GPUs, the program and its streams act one after the other, in the
 * order of virtual time, in the calling thread. A register is ready at a moment, and others see
 * a word that is stored for them (relaxed, release) from a moment on; times.def has the times.
 * Plain stores are seen at once: a strong store orders them, and that one is seen late.
 * Races are not reported.
 */
struct ptx_time;

struct ptx_time *ptx_time_new(void);
/* Drops all events that have not happened yet. */
void ptx_time_free(struct ptx_time *t);
/* Nanoseconds. */
double ptx_time_now(const struct ptx_time *t);
/* Starts a kernel at that time, one block a multiprocessor of a GPU of its own. Copies *l. */
void ptx_time_launch(struct ptx_time *t, const struct ptx_launch *l, double at_ns);
/* Calls fn at that time. */
void ptx_time_call(struct ptx_time *t, double at_ns, void (*fn)(void *arg, double now_ns),
		   void *arg);
/* The word has changed at this time from outside, by the program or a stream. */
void ptx_time_told(struct ptx_time *t, uintptr_t at);
/*
 * Calls fn as soon as a strong store of a kernel makes the word at least that value. reads:
 * dependent loads of host memory on the path to this store since the last change from outside that
 * the path has seen.
 */
void ptx_time_watch(struct ptx_time *t, const uint64_t *at, uint64_t value,
		    void (*fn)(void *arg, double now_ns, unsigned int reads), void *arg);
/*
 * Until nothing is left to be done, or ptx_time_stop(). Returns the number of faults of all
 * kernels.
 */
int ptx_time_run(struct ptx_time *t);
void ptx_time_stop(struct ptx_time *t);
/* Kernels launched from now on record what their warps wait for. */
void ptx_time_chains(struct ptx_time *t);
/* In a function that ptx_time_watch() calls: prints the path to the store, since that time. */
void ptx_time_chain(const struct ptx_time *t, FILE *f, double since_ns);
/* From now on the instruction cache costs nothing. */
void ptx_time_all_code_cached(struct ptx_time *t);

#endif
