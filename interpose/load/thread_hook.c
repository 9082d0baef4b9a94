/*
 * pthread_create(): a thread that NCCL starts is NCCL's too, so the hooks must not take its use of
 * CUDA for the application's (df_record_inside). NCCL starts its proxies and, before 2.28, the
 * threads that make communicators, while one of its functions runs. Threads that the CUDA driver
 * starts meanwhile execute the application's host functions, so they are not NCCL's.
 *
 * Any thread. Outside calls of NCCL it only calls the C library's function.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include "interpose/cuda/cuda_hook.h"
#include "runtime/base/dlsym.h"
#include "runtime/base/err.h"
#include "runtime/dfshim.h"

typedef int (*create_fn)(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *arg),
			 void *arg);

struct start {
	void *(*run)(void *arg);
	void *arg;
};

static void *run_inside(void *arg)
{
	struct start s = *(struct start *)arg;

	free(arg);
	df_record_inside = 1;
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
	struct start *s = NULL;
	int ret;

	if (df_unlikely(!fn)) {
		*(void **)&fn = df_dlsym(RTLD_NEXT, "pthread_create");
		__atomic_store_n(&next, fn, __ATOMIC_RELAXED);
	}
	if (df_unlikely(df_record_inside) && !df_cuda_in_driver() &&
	    !is_host_driver(__builtin_return_address(0)))
		s = malloc(sizeof(*s));
	if (!s)
		return fn(thread, attr, run, arg);
	*s = (struct start){run, arg};
	ret = fn(thread, attr, run_inside, s);
	if (ret)
		free(s);
	return ret;
}
