/*
 * Shared by the files of the test driver. The test driver is libdfhost.so's driver with additions
 * that run before its functions and in its hook (interpose/hostcuda/code.h): kernels that are
 * executed (module.c, kernel.c), waits of real drivers (limits.c), faults (fault.c), other machines
 * (device.c, memory.c, green.c). All other functions only count their calls (all.c).
 *
 * FAKE_CUDA_LOG: a file to which the name of every called function is appended.
 * FAKE_CUDA_NEWER: a function that has a form unknown to us in CUDA 13.1 and later.
 * FAKE_CUDA_DEVICES: number of devices; default 1.
 * FAKE_CUDA_SMS: number of multiprocessors; default 1.
 * FAKE_CUDA_MPS: 1: the devices are shared through MPS. "old": the driver does not know.
 * FAKE_CUDA_EAGER: the driver loads all code with its module.
 * FAKE_CUDA_OLD: number of the device that has compute capability 7.
 * FAKE_CUDA_NO_CODE: number of the device that refuses to load modules.
 * FAKE_CUDA_MIG: the devices are MIG instances, by their names.
 * FAKE_CUDA_VERSION: the version that the driver reports.
 * FAKE_CUDA_SILENT: functions do nothing and succeed (all.c).
 */
#ifndef DF_TESTS_CUDA_DRIVER_INTERNAL_H
#define DF_TESTS_CUDA_DRIVER_INTERNAL_H

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include "interpose/hostcuda/code.h"
#include "tests/cuda/driver/fake.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define API	    __attribute__((visibility("default")))
#define MAX_DEVICES 8

enum row {
#define DF_CU(symbol, ...)	ROW_##symbol,
#define DF_CU_NONE(symbol, ...) ROW_##symbol,
#include "interpose/cuda/cuda_calls.def"
#undef DF_CU
#undef DF_CU_NONE
	NR_ROWS
};

/* ---- all.c ---- */
extern const struct df_hinside *fake_host;
#define SEEN(symbol) fake_seen(ROW_##symbol)
void fake_seen(enum row row);
void *fake_real(enum row row); /* Returns libdfhost.so's function. */
#define REAL(symbol) ((__typeof__(&symbol))fake_real(ROW_##symbol))
/* Returns this library's function that replaces `real`, or `real` if there is none. */
void *fake_ours(void *real);

/* ---- device.c ---- */
extern int fake_over; /* whether the driver has shut down at exit */
static inline int fake_is_over(void)
{
	return __atomic_load_n(&fake_over, __ATOMIC_RELAXED);
}
/* Returns the device of the current context, or -1 if there is no context. */
int fake_device(void);
/* Returns the device of the stream, or -1 if it is unknown. */
int fake_device_of(CUstream s);
unsigned int fake_multiprocessors(void);
/* A kernel's fault ends the context of its device for good: fake_errors holds its result. */
extern int fake_errors[MAX_DEVICES], fake_stops[MAX_DEVICES];
static inline CUresult fake_error(int device)
{
	return device < 0 || device >= MAX_DEVICES
		       ? CUDA_SUCCESS
		       : (CUresult)__atomic_load_n(&fake_errors[device], __ATOMIC_RELAXED);
}
int fake_gdr(const char *how); /* Returns whether FAKE_CUDA_GDR is `how`. */
/* bit i: kernels of this device may use device i's memory */
extern unsigned int fake_peers[MAX_DEVICES];

/* ---- kernel.c, module.c ---- */
void fake_set_kernel(const char *name, fake_kernel_fn fn);
fake_kernel_fn fake_function(const char *name);
void *fake_code_load(const void *image);
void *fake_code_find(void *code, const char *name);
void *fake_code_variable(void *code, const char *name, size_t *bytes);
/* A kernel, as the hook's find() returns it. */
struct fake_kernel {
	const struct ptx_kernel *ptx; /* NULL: the registered function `fn` is the kernel */
	fake_kernel_fn fn;
};
unsigned int fake_most_threads(void *kernel);
void *fake_take(void *kernel, const struct df_hkernel_shape *shape, void **params, void **extra);
void fake_run(void *launch);
extern int fake_launch_error;
/* Whether a kernel with PTX has been launched; only such a kernel can cause a fault. */
extern int fake_emulates;

/*
 * looks.c: fake_looks() returns whether kernels' reads are to be counted; fake_looked() counts one.
 */
int fake_looks(void);
void fake_looked(uintptr_t at);

/* ---- memory.c ---- */
extern int fake_alloc_waits, fake_alloc_fails;
extern uint64_t fake_generation; /* changes whenever memory is allocated, freed or mapped */
void fake_changed(void);
int fake_usable(int device, uintptr_t at, size_t bytes, uintptr_t *from, uintptr_t *to);

/* ---- limits.c: waits of a real driver ---- */
int fake_limit(const char *name);
void fake_limit_lock(int device);
void fake_limit_hold(int on);
int fake_limit_held(void);
void fake_limit_load(int device, CUfunction f);
void fake_limit_drain(int device);
/* Takes the device's lock, waits while busy(device), and releases the lock. */
void fake_limit_alone(int device, int (*busy)(int device));
void fake_limit_room(CUstream s, int per_thread);
unsigned int fake_limit_queues(void);
/*
 * Called by cuInit() and when a context is created: reads the number of connections, as the driver
 * does then. FAKE_CUDA_READS=1: prints the number to standard error.
 */
void fake_limit_start(void);
void fake_limit_launched(CUstream s);
void fake_limit_host(int begins);
/* Returns 0 if another process uses the device exclusively. */
int fake_limit_exclusive(int device);

/* ---- fault.c ---- */
int fake_fault(const char *name);
void fake_fault_hang(const char *name);
int fake_fault_moves(int after, int fills, void *to, size_t bytes);
void fake_fault_kernel(int is_function); /* Called before a kernel starts. */

#endif
