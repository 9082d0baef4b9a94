/*
 * An emulator of PTX: executes kernels as nvcc compiles them for a GPU, on CPU threads, with all
 * threads of their blocks. The test driver (tests/cuda/driver) executes the kernels of programs
 * with it, first of all the daemon's own kernel.
 *
 * It shows that device code computes the right results in any order of its warps. It reports faults
 * that a GPU would not tolerate: accesses of memory that the device does not know or with a wrong
 * alignment, races between the threads of a block (in shared and in global memory), barriers that
 * not all threads of a warp reach. On request its memory is weakly ordered, so that a missing
 * acquire or release shows too. It shows nothing about ptxas. With a clock (struct ptx_time) it
 * executes the kernels of several GPUs in the order of virtual time, and estimates how long they
 * would take.
 *
 * One CPU thread executes a block: its warps in turn, in an order drawn from a seed. Threads of a
 * warp execute in lockstep while they are at the same instruction. 64-bit generic addresses are
 * addresses of this process. The spaces shared, global, local, const and param are parts of that
 * address space.
 *
 * Unknown PTX instructions are reported by name when a kernel executes them. Reference: Parallel
 * Thread Execution ISA 9.0 (NVIDIA).
 */
#ifndef DF_TESTS_PTX_H
#define DF_TESTS_PTX_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct ptx_module;
struct ptx_kernel;

/*
 * Reads a module. Returns NULL if the text is no PTX that the emulator reads, and reports the line
 * on standard error. `name` appears in messages. The caller may free the text afterwards.
 */
struct ptx_module *ptx_load(const char *text, size_t len, const char *name);
/* Frees the module. None of its kernels may be running. */
void ptx_unload(struct ptx_module *m);
/* Returns the kernel `name`, or NULL if there is none. */
const struct ptx_kernel *ptx_kernel(const struct ptx_module *m, const char *name);
/*
 * Returns the address of a variable in global or const memory and its size, or NULL if the module
 * has no such variable.
 */
void *ptx_variable(const struct ptx_module *m, const char *name, size_t *bytes);

/*
 * The kernel's parameters: their number, the offset and size of each in the parameter block, and
 * the size of that block, in bytes.
 */
unsigned int ptx_nr_params(const struct ptx_kernel *k);
void ptx_param(const struct ptx_kernel *k, unsigned int i, size_t *offset, size_t *bytes);
size_t ptx_param_bytes(const struct ptx_kernel *k);
/* Returns the largest number of threads of a block: .maxntid, or 1024 without it. */
unsigned int ptx_max_threads(const struct ptx_kernel *k);

/* Where memory is, as seen from a multiprocessor. */
enum ptx_place { PTX_L2, PTX_HBM, PTX_PEER, PTX_HOST };

struct ptx_launch {
	const struct ptx_kernel *kernel;
	unsigned int grid[3], block[3];
	size_t dynamic_shared; /* bytes */
	const void *params;    /* the parameter block */
	unsigned int resident; /* number of blocks that run at a time; 0: all */
	uint64_t seed;	       /* seed of the order in which warps run */
	/*
	 * Whether global memory is about as weakly ordered as PTX allows: stores become visible
	 * late, loads may be stale (weak.c).
	 */
	int weak;
	/*
	 * Returns whether the device may access these bytes. Sets *from and *to to the accessible
	 * range around them, which is valid until *generation changes. Called from several threads.
	 * NULL: everything is accessible.
	 */
	int (*known)(void *arg, uintptr_t at, size_t bytes, uintptr_t *from, uintptr_t *to);
	const uint64_t *generation;
	/*
	 * Reports a fault as a whole sentence. Every fault except a race then ends the kernel.
	 * Called from several threads, at most once for each instruction and kind. NULL: faults are
	 * printed to standard error.
	 */
	void (*fault)(void *arg, const char *text);
	/* If not NULL, called for each access of global memory, from several threads. */
	void (*touched)(void *arg, uintptr_t at, unsigned int bytes, int writes);
	/*
	 * If not NULL, called for each fence of a warp, and for each store and atomic that contains
	 * a fence (release). Called from several threads.
	 */
	void (*fenced)(void *arg);
	void *arg;
	const int *stop; /* if not NULL: the kernel ends as soon as this is not 0 */
	/*
	 * Used with a clock: returns where the address is, as seen from this GPU. With a clock
	 * `weak`, `resident` and `stop` are ignored.
	 */
	enum ptx_place (*place)(void *arg, uintptr_t at);
	/* Used with a clock: called when the last block has ended. */
	void (*ended)(void *arg, double now_ns);
};

/* Runs the kernel until all blocks have ended. Returns the number of faults. */
int ptx_run(const struct ptx_launch *l);

/*
 * A clock: kernels of several GPUs, the program and its streams act one after the other, in the
 * order of virtual time, in the calling thread. Each register has a moment at which its value is
 * ready. A strong store (relaxed, release) has a moment from which others see it; times.def has the
 * times. Plain stores are visible at once, because others read them only after the strong store
 * that follows. Races are not reported.
 */
struct ptx_time;

struct ptx_time *ptx_time_new(void);
/* Frees the clock and drops all events that have not happened yet. */
void ptx_time_free(struct ptx_time *t);
/* Returns the present time in nanoseconds. */
double ptx_time_now(const struct ptx_time *t);
/*
 * Starts a kernel at that time on a GPU of its own, with one block for each multiprocessor. Copies
 * *l.
 */
void ptx_time_launch(struct ptx_time *t, const struct ptx_launch *l, double at_ns);
/* Calls fn at that time. */
void ptx_time_call(struct ptx_time *t, double at_ns, void (*fn)(void *arg, double now_ns),
		   void *arg);
/* Notes that the program or a stream has changed the word now. */
void ptx_time_told(struct ptx_time *t, uintptr_t at);
/*
 * Calls fn once, as soon as a strong store of a kernel makes the word at least `value`. `reads`:
 * the number of loads of host memory, each dependent on the one before it, on the path to this
 * store since the path's last change from outside.
 */
void ptx_time_watch(struct ptx_time *t, const uint64_t *at, uint64_t value,
		    void (*fn)(void *arg, double now_ns, unsigned int reads), void *arg);
/*
 * Runs until no event is left, or until ptx_time_stop(). Returns the number of faults of all
 * kernels.
 */
int ptx_time_run(struct ptx_time *t);
void ptx_time_stop(struct ptx_time *t);
/* Makes kernels launched from now on record what their warps wait for. */
void ptx_time_chains(struct ptx_time *t);
/* For functions that ptx_time_watch() calls: prints the path to the store since that time. */
void ptx_time_chain(const struct ptx_time *t, FILE *f, double since_ns);
/* From now on fetching instructions takes no time. */
void ptx_time_all_code_cached(struct ptx_time *t);

#endif
