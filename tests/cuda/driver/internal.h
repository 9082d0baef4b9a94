/*
 * Between the files of the tests' libcuda.so.1: libdfhost.so's driver, with additions of tests
 * before its functions and in its hook (interpose/hostcuda/code.h): kernels that are executed
 * (module.c, kernel.c), waits of real drivers (limits.c), faults (fault.c), other machines
 * (device.c, memory.c, green.c). A function that is in none of them is counted and passed on
 * (all.c).
 *
 * FAKE_CUDA_LOG: file to which every call is appended. FAKE_CUDA_NEWER: name of a function of which
 * the driver has an unknown form from 13.1 on. FAKE_CUDA_DEVICES: 1. FAKE_CUDA_SMS:
 * multiprocessors; 1. FAKE_CUDA_MPS: 1: they are shared through MPS; "old": the driver cannot say.
 * FAKE_CUDA_EAGER: nothing is loaded later than its module. FAKE_CUDA_OLD: the device that has
 * compute capability 7. FAKE_CUDA_NO_CODE: the device that no module can be loaded on.
 * FAKE_CUDA_MIG: the devices are parts of one. FAKE_CUDA_VERSION: the version that the driver
 * reports. FAKE_CUDA_SILENT: there is no driver behind it.
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

/* all.c */
extern const struct df_hinside *fake_host;
#define SEEN(symbol) fake_seen(ROW_##symbol)
void fake_seen(enum row row);
void *fake_real(enum row row); /* libdfhost.so's */
#define REAL(symbol) ((__typeof__(&symbol))fake_real(ROW_##symbol))
/* The function of ours that stands before that one, else itself. */
void *fake_ours(void *real);

/* device.c */
extern int fake_over; /* the driver has ended */
static inline int fake_is_over(void)
{
	return __atomic_load_n(&fake_over, __ATOMIC_RELAXED);
}
int fake_device(void); /* of the current context; -1: none */
/* The device of the stream; -1: unknown. */
int fake_device_of(CUstream s);
unsigned int fake_multiprocessors(void);
/* A kernel's fault, which nothing takes away, ends the context of its device. */
extern int fake_errors[MAX_DEVICES], fake_stops[MAX_DEVICES];
static inline CUresult fake_error(int device)
{
	return device < 0 || device >= MAX_DEVICES
		       ? CUDA_SUCCESS
		       : (CUresult)__atomic_load_n(&fake_errors[device], __ATOMIC_RELAXED);
}
int fake_gdr(const char *how);		     /* FAKE_CUDA_GDR is that */
extern unsigned int fake_peers[MAX_DEVICES]; /* bits of devices whose memory its kernels may use */

/* kernel.c, module.c */
void fake_set_kernel(const char *name, fake_kernel_fn fn);
fake_kernel_fn fake_function(const char *name);
void *fake_code_load(const void *image);
void *fake_code_find(void *code, const char *name);
void *fake_code_variable(void *code, const char *name, size_t *bytes);
/* The result of find(). */
struct fake_kernel {
	const struct ptx_kernel *ptx; /* NULL: the function */
	fake_kernel_fn fn;
};
unsigned int fake_most_threads(void *kernel);
void *fake_take(void *kernel, const struct df_hkernel_shape *shape, void **params, void **extra);
void fake_run(void *launch);
extern int fake_launch_error;
/* Whether a kernel that could make a fault has been launched. */
extern int fake_emulates;

/* looks.c: 1: it is to be counted that a kernel looks there. */
int fake_looks(void);
void fake_looked(uintptr_t at);

/* memory.c */
extern int fake_alloc_waits, fake_alloc_fails;
extern uint64_t fake_generation; /* of what memory there is */
void fake_changed(void);
int fake_usable(int device, uintptr_t at, size_t bytes, uintptr_t *from, uintptr_t *to);

/* limits.c: what a real driver blocks on. */
int fake_limit(const char *name);
void fake_limit_lock(int device);
void fake_limit_hold(int on);
int fake_limit_held(void);
void fake_limit_load(int device, CUfunction f);
void fake_limit_drain(int device);
void fake_limit_alone(int device, int (*busy)(int device)); /* with its lock while it is busy */
void fake_limit_room(CUstream s, int per_thread);
unsigned int fake_limit_queues(void);
/*
 * At cuInit() and for a context: the driver reads how many queues there are. FAKE_CUDA_READS=1: it
 * prints the number.
 */
void fake_limit_start(void);
void fake_limit_launched(CUstream s);
void fake_limit_host(int begins);
int fake_limit_exclusive(int device); /* 0: it is another process's */

/* fault.c: faults put in. */
int fake_fault(const char *name);
void fake_fault_hang(const char *name);
int fake_fault_moves(int after, int fills, void *to, size_t bytes);
void fake_fault_kernel(int is_function); /* before one starts */

#endif
