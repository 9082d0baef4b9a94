/*
 * Wraps pthread_create() and pthread_exit(). A thread that NCCL starts belongs to NCCL, so the
 * hooks must not take its use of CUDA for the application's (df_record_inside). NCCL starts its
 * proxies and, before 2.28, the threads that make communicators, while one of its functions runs.
 * Threads that the CUDA driver starts meanwhile execute the application's host functions, so they
 * do not belong to NCCL.
 *
 * pthread_exit() keeps Python from ending PyTorch's threads after a verdict; below is why.
 *
 * Any thread. Outside of calls of NCCL it only calls the C library's function. Not instrumented by
 * sanitizers and allocates nothing: a sanitizer may not know the new thread yet when this code runs
 * in it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>
#include "interpose/cuda/cuda_hook.h"
#include "runtime/base/dlsym.h"
#include "runtime/base/err.h"
#include "runtime/base/exit_status.h"
#include "runtime/base/futex.h"
#include "runtime/base/time.h"
#include "runtime/dfshim.h"

/* how long a thread waits at most until the process ends */
#define END_NS (10 * DF_NS_PER_S)

typedef int (*create_fn)(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *arg),
			 void *arg);

/* On the stack of the creator, which waits until the thread has copied it. */
struct start {
	void *(*run)(void *arg);
	void *arg;
	uint32_t is_copied; /* futex word */
};

static void *run_inside(void *arg)
{
	struct start *at = arg, s = *at;

	df_record_inside = 1;
	/*
	 * RELEASE pairs with the ACQUIRE in pthread_create(): without it *at could be reused before
	 * this thread has read it.
	 */
	__atomic_store_n(&at->is_copied, 1, __ATOMIC_RELEASE);
	df_futex_wake(&at->is_copied, 1, 0);
	return s.run(s.arg);
}

/* Whether the code is libdfhost.so's, which is the driver of the CPU backend. */
static int is_host_driver(const void *code)
{
	void *driver = df_dlsym(RTLD_DEFAULT, "df_hostcuda");
	Dl_info there, here;

	return driver && dladdr(driver, &there) && dladdr(code, &here) &&
	       there.dli_fbase == here.dli_fbase;
}

__attribute__((visibility("default"))) int
pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *arg), void *arg)
{
	static create_fn next;
	/* RELAXED: all threads find the same function. */
	create_fn fn = __atomic_load_n(&next, __ATOMIC_RELAXED);
	struct start s = {run, arg, 0};
	int ret;

	if (df_unlikely(!fn)) {
		*(void **)&fn = df_dlsym(RTLD_NEXT, "pthread_create");
		__atomic_store_n(&next, fn, __ATOMIC_RELAXED);
	}
	if (df_likely(!df_record_inside) || df_cuda_in_driver() ||
	    is_host_driver(__builtin_return_address(0)))
		return fn(thread, attr, run, arg);
	ret = fn(thread, attr, run_inside, &s);
	/* ACQUIRE pairs with the RELEASE in run_inside(), which says why. */
	while (!ret && !__atomic_load_n(&s.is_copied, __ATOMIC_ACQUIRE))
		df_futex_wait(&s.is_copied, 0, -1, 0);
	return ret;
}

static int is_python_ending(void)
{
	int (*ends)(void);

	*(void **)&ends = df_dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
	if (!ends)
		*(void **)&ends = df_dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
	return ends && ends();
}

/*
 * Before 3.14 Python ends a thread that asks for its lock while the interpreter ends. With C++
 * functions on the thread's stack that aborts the process. PyTorch's threads do so when they look
 * into the error of a communicator that has ended for a verdict. So they wait for the end of the
 * process instead, as they do from 3.14 on.
 */
__attribute__((visibility("default"), noreturn)) void pthread_exit(void *value)
{
	__attribute__((noreturn)) void (*fn)(void *value);
	int status = df_exit_status_instead(0);

	if (status && is_python_ending()) {
		df_sleep_ns(END_NS);
		_exit(status);
	}
	*(void **)&fn = df_dlsym(RTLD_NEXT, "pthread_exit");
	fn(value);
}
