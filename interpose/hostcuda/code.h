/*
 * Who executes kernels that the driver is asked to launch, and what else a test has of a driver. In the product nobody
 * does: they are refused or skipped. Tests bring what they need (PTX, the daemon on CPU threads, what real drivers hold up)
 * before the first module is loaded. A launch is an operation of its stream on a thread of its own, as a host function is,
 * and in a graph it is a host node. Any thread calls any of it; without a lock but for find, load and queues.
 */
#ifndef DF_HOSTCUDA_CODE_H
#define DF_HOSTCUDA_CODE_H

#include <stddef.h>

struct df_hkernel_shape {
	unsigned int grid[3], block[3], shared;
	int device;
};

/* Of code that can be read: it has nothing of that name. */
#define DF_HCODE_LACKS ((void *)1)

/* All but find, take and run may be NULL. */
struct df_hcode {
	/* The code of an image; NULL: it can't be read, and its kernels are known by their names alone. */
	void *(*load)(const void *image);
	/* A kernel of that name; NULL: not one that can be executed. */
	void *(*find)(void *code, const char *name);
	/* A variable of the code, in memory that stays; NULL: there is none. */
	void *(*variable)(void *code, const char *name, size_t *bytes);
	/* Threads a block at most. */
	unsigned int (*most_threads)(void *kernel);
	/* Takes the parameters, as cuLaunchKernel's: what run() gets, as often as the launch is repeated by a graph. NULL: wrong. */
	void *(*take)(void *kernel, const struct df_hkernel_shape *shape, void **params,
		      void **extra);
	void (*run)(void *launch);
	/* Of a device. */
	unsigned int (*multiprocessors)(void);
	/*
	 * Hardware queues of a device, as of now; 0: each stream has one of its own. A stream that is given work while it has none
	 * takes the one that the fewest have, whatever its priority, and keeps it until it has no more. Behind a stream's wait for a
	 * word nothing that was put into its queue later begins.
	 */
	unsigned int (*queues)(void);
	/* A host function or a callback begins (1), has ended (0). */
	void (*host)(int begins);
	/* A copy or a fill is about to be made (after 0; 1: it is left out), has been made. */
	int (*moves)(int after, int fills, void *to, size_t bytes);
	/* Nothing is done by the call that puts it on a stream, however small. */
	int later;
};

/* What there is to be known of the library, for who has brought such a table. */
struct df_hinside {
	/* A function of the driver by its symbol; NULL: there is none. */
	void *(*find)(const char *symbol);
	/* Operations that are not finished: of a stream of that device (NULL: of all), of all devices (-1). */
	unsigned long (*pending)(int device, void *stream);
	/* Streams whose next operation is a wait for a word that is not there; of that one, or of all (NULL). */
	unsigned long (*waiting)(void *stream);
	/* The memory of the devices can't be touched by this process (1), as that of a GPU; it can (0). */
	void (*hide)(int on);
};

/* The table stays the caller's, and valid. */
const struct df_hinside *df_hostcuda_code(const struct df_hcode *code);

/* Inside the library: NULL: nobody has brought any. */
extern const struct df_hcode *df_hcode;

#endif
