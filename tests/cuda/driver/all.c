/*
 * Defines every function of libcuda that the hook's table lists. Each counts its calls and calls
 * the function of the same name in libdfhost.so. That library is the one in the build folder of
 * this library; it is loaded for this library alone (RTLD_LOCAL). The definitions are weak, so that
 * the other files can replace those that need additions. Functions that the table lists without
 * parameters get as many words as the longest one takes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "tests/cuda/driver/internal.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

const struct df_hinside *fake_host;
static void *real[NR_ROWS];
static uint64_t counts[NR_ROWS];
static int logs = 1; /* whether calls are logged; 1 until FAKE_CUDA_LOG has been read */

static const char *const names[] = {
#define DF_CU(symbol, ...)	#symbol,
#define DF_CU_NONE(symbol, ...) #symbol,
#include "interpose/cuda/cuda_calls.def"
#undef DF_CU
#undef DF_CU_NONE
};

/*
 * libdfhost.so reads these variables at its first call. DFSHIM_HOST_STUB makes kernels without code
 * and without a registered function do nothing.
 */
static void settings(void)
{
	const char *devices = getenv("FAKE_CUDA_DEVICES");

	setenv("DFSHIM_HOST_DEVICES", devices && atoi(devices) > 0 ? devices : "1", 1);
	setenv("DFSHIM_HOST_STUB", "1", 1);
}

void fake_seen(enum row row)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static FILE *log;

	pthread_once(&once, settings);

	/* RELAXED: only a count. */
	__atomic_add_fetch(&counts[row], 1, __ATOMIC_RELAXED);
	/* RELAXED: only a hint; `log` itself is protected by the lock. */
	if (!__atomic_load_n(&logs, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&lock);
	if (!log) {
		log = getenv("FAKE_CUDA_LOG") ? fopen(getenv("FAKE_CUDA_LOG"), "ae") : NULL;
		__atomic_store_n(&logs, log != NULL, __ATOMIC_RELAXED);
	}
	if (log) {
		fprintf(log, "%s\n", names[row]);
		fflush(log);
	}
	pthread_mutex_unlock(&lock);
}

void *fake_real(enum row row)
{
	/* RELAXED: every caller that finds NULL looks up the same function. */
	void *fn = __atomic_load_n(&real[row], __ATOMIC_RELAXED);

	if (!fn) {
		fn = fake_host->find(names[row]);
		__atomic_store_n(&real[row], fn, __ATOMIC_RELAXED);
	}
	return fn;
}

/*
 * The table names a hook for each function. By that hook, the macros below choose an action before
 * libdfhost.so's function is called: wait for room on the stream (the first or the second
 * argument), or invalidate the emulator's knowledge of usable memory.
 */
#define FIRST(...)	    FIRST_(__VA_ARGS__, 0)
#define FIRST_(a, ...)	    ((CUstream)(uintptr_t)(a))
#define SECOND(...)	    SECOND_(__VA_ARGS__, 0, 0)
#define SECOND_(a, b, ...)  ((CUstream)(uintptr_t)(b))
#define BARE(...)	    __VA_ARGS__
#define ROOM(object, ptds)  fake_limit_room(FIRST object, ptds)
#define ROOM2(object, ptds) fake_limit_room(SECOND object, ptds)
#define NO(object, ptds)    (void)0
#define GRAPH(object, ptds)                                                                        \
	do {                                                                                       \
		ROOM2(object, ptds);                                                               \
		if (fake_fault("graphs"))                                                          \
			return CUDA_ERROR_UNKNOWN;                                                 \
	} while (0)
#define CHANGED(object, ptds) fake_changed()
#define BEFORE_WORK	      , ROOM
#define BEFORE_WORK_TOUCH     , ROOM
#define BEFORE_WORK_RANGE     , ROOM
#define BEFORE_LAUNCH	      , ROOM
#define BEFORE_EVENT_RECORD   , ROOM2
#define BEFORE_EVENT_WAIT     , ROOM2
#define BEFORE_GRAPH_LAUNCH   , GRAPH
#define BEFORE_ALLOC_SYNC     , CHANGED
#define BEFORE_NAMED	      , CHANGED
#define BEFORE_GIVE_BACK      , CHANGED
#define BEFORE_FREE	      , CHANGED
#define BEFORE_PEER	      , CHANGED
#define BEFORE_UNMAP	      , CHANGED

#define WEAK __attribute__((weak, visibility("default")))
#define W    uint64_t
typedef CUresult any_fn(W, W, W, W, W, W, W, W, W, W, W, W, W, W);
#define df_cuda_touch_batch(...) NULL
#define DF_CU(symbol, base, since, ptds, class, kind, object, params, args)                        \
	WEAK CUresult symbol params                                                                \
	{                                                                                          \
		SEEN(symbol);                                                                      \
		DF_DEFINED_OR(BEFORE_##class, NO)(object, ptds);                                   \
		return REAL(symbol) args;                                                          \
	}
#define DF_CU_NONE(symbol, base, since, ptds)                                                      \
	any_fn none_##symbol __asm__(#symbol);                                                     \
	WEAK CUresult none_##symbol(W a, W b, W c, W d, W e, W f, W g, W h, W i, W j, W k, W l,    \
				    W m, W n)                                                      \
	{                                                                                          \
		SEEN(symbol);                                                                      \
		return ((any_fn *)fake_real(ROW_##symbol))(a, b, c, d, e, f, g, h, i, j, k, l, m,  \
							   n);                                     \
	}
#include "interpose/cuda/cuda_calls.def"
#undef DF_CU
#undef DF_CU_NONE

static void *const ours[] = {
#define DF_CU(symbol, ...)	(void *)symbol,
#define DF_CU_NONE(symbol, ...) (void *)none_##symbol,
#include "interpose/cuda/cuda_calls.def"
};

void *fake_ours(void *fn)
{
	int i;

	for (i = 0; i < NR_ROWS && fake_real((enum row)i) != fn; i++)
		;
	return i < NR_ROWS ? ours[i] : fn;
}

static uint64_t calls(const char *symbol)
{
	uint64_t n = 0;

	for (int i = 0; i < NR_ROWS; i++)
		if (!symbol || strcmp(names[i], symbol) == 0)
			/* RELAXED: only a count. */
			n += __atomic_load_n(&counts[i], __ATOMIC_RELAXED);
	return n;
}
static int pending(void *stream)
{
	return (int)fake_host->pending(-1, stream);
}
static void fail_launch(int result)
{
	fake_launch_error = result;
}
static void sync_alloc(int on)
{
	fake_alloc_waits = on;
}
static void fail_alloc(int nr)
{
	fake_alloc_fails = nr;
}
static void hide(int on)
{
	fake_host->hide(on);
}

API const struct fake_cuda *fake_cuda(void)
{
	static const struct fake_cuda f = {calls,	    fake_set_kernel, pending,
					   fail_launch,	    sync_alloc,	     fail_alloc,
					   fake_limit_hold, fake_limit_held, hide};

	return &f;
}

/* FAKE_CUDA_SILENT: every function does nothing, writes no output and returns CUDA_SUCCESS. */
static CUresult done(void)
{
	return CUDA_SUCCESS;
}
static void *find_done(const char *symbol)
{
	(void)symbol;
	return (void *)done;
}
static unsigned long none_of(int device, void *stream)
{
	(void)device, (void)stream;
	return 0;
}
static unsigned long none_waiting(void *stream)
{
	(void)stream;
	return 0;
}
static void no_hide(int on)
{
	(void)on;
}

__attribute__((constructor)) static void begin(void)
{
	static const struct df_hinside silent = {find_done, none_of, none_waiting, no_hide};
	static const struct df_hcode code = {.load = fake_code_load,
					     .find = fake_code_find,
					     .variable = fake_code_variable,
					     .most_threads = fake_most_threads,
					     .take = fake_take,
					     .run = fake_run,
					     .multiprocessors = fake_multiprocessors,
					     .queues = fake_limit_queues,
					     .host = fake_limit_host,
					     .moves = fake_fault_moves,
					     .later = 1};
	const struct df_hinside *(*plug)(const struct df_hcode *);
	char path[4096];
	Dl_info self;
	void *lib;

	if (getenv("FAKE_CUDA_SILENT")) {
		fake_host = &silent;
		return;
	}
	if (!dladdr((void *)(uintptr_t)begin, &self))
		abort();
	snprintf(path, sizeof(path), "%s", self.dli_fname);
	strcpy(strrchr(path, '/'), "/../../../libdfhost.so");
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	*(void **)&plug = lib ? dlsym(lib, "df_hostcuda_code") : NULL;
	if (!plug) {
		fprintf(stderr, "the tests' libcuda.so.1: %s\n", dlerror());
		_Exit(99);
	}
	fake_host = plug(&code);
}
