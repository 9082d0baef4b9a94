/*
 * An interface for tests: it executes kernels that the driver is asked to launch, and replaces
 * other parts. The product does not use it: there, kernels are refused or skipped. A test provides
 * its functions (for PTX, the daemon on CPU threads, waits of real drivers) before the first module
 * is loaded. A launch is an operation of its stream that runs on a thread of its own, like a host
 * function; in a graph it is a host node. Any thread may call any of the functions. The library
 * holds a lock only when it calls find, load and queues.
 */
#ifndef DF_HOSTCUDA_CODE_H
#define DF_HOSTCUDA_CODE_H

#include <stddef.h>

struct df_hkernel_shape {
	unsigned int grid[3], block[3], shared;
	int device;
};

/* Returned for code that can be read and has no kernel of that name. */
#define DF_HCODE_LACKS ((void *)1)

/* All members except find, take and run may be NULL. */
struct df_hcode {
	/*
	 * Returns the code of an image. Returns NULL if it cannot be read, so that only the names
	 * of its kernels are known.
	 */
	void *(*load)(const void *image);
	/* Returns a kernel by name, or NULL if it cannot be executed. */
	void *(*find)(void *code, const char *name);
	/*
	 * Returns a variable of the code, in memory that is never freed, or NULL if there is
	 * none.
	 */
	void *(*variable)(void *code, const char *name, size_t *bytes);
	/* Returns the maximum number of threads of a block. */
	unsigned int (*most_threads)(void *kernel);
	/*
	 * Copies the parameters of cuLaunchKernel() for run(), which a graph may call repeatedly.
	 * Returns NULL if they are wrong.
	 */
	void *(*take)(void *kernel, const struct df_hkernel_shape *shape, void **params,
		      void **extra);
	void (*run)(void *launch);
	/* Returns the number of multiprocessors of a device. */
	unsigned int (*multiprocessors)(void);
	/*
	 * Returns the present number of hardware queues of a device; 0 means that each stream has
	 * its own. A stream that gets work while it has no queue takes the one with the fewest
	 * streams, whatever its priority, and keeps it until its work is done. If a stream waits
	 * for a word, nothing that was put into its queue later begins.
	 */
	unsigned int (*queues)(void);
	/* Called when a host function or a callback begins (1) or has ended (0). */
	void (*host)(int begins);
	/*
	 * Called with after = 0 before a copy or a fill (return 1 to skip it), and with 1 after it.
	 */
	int (*moves)(int after, int fills, void *to, size_t bytes);
	/*
	 * If set, the thread that enqueues an operation never executes it itself, however small it
	 * is.
	 */
	int later;
};

/* The library's functions for the provider of such a table. */
struct df_hinside {
	/* Returns a function of the driver by its symbol, or NULL if there is none. */
	void *(*find)(const char *symbol);
	/*
	 * Returns the number of unfinished operations of a stream of the device (NULL: of all its
	 * streams). Device -1 means all devices.
	 */
	unsigned long (*pending)(int device, void *stream);
	/*
	 * Returns the number of streams whose next operation waits for a word. If `stream` is not
	 * NULL, only this stream counts.
	 */
	unsigned long (*waiting)(void *stream);
	/*
	 * Makes the devices' memory inaccessible to this process (1), like a GPU's, or accessible
	 * (0).
	 */
	void (*hide)(int on);
};

/* The caller keeps the table valid. */
const struct df_hinside *df_hostcuda_code(const struct df_hcode *code);

/* For use inside the library. NULL if no table was provided. */
extern const struct df_hcode *df_hcode;

#endif
