/*
 * Shared by the CUDA programs p_*.c. They are plain programs of the runtime API; the preload
 * decides which runtime they use. A failed check ends the program with file and line.
 */
#ifndef DF_TEST_CU_H
#define DF_TEST_CU_H

#include <cuda_runtime_api.h>
#include <errno.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "interpose/hostcuda/hostcuda.h"

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #cond);       \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* Ends the program unless the call returns exactly this code. */
#define GIVES(want, call)                                                                          \
	do {                                                                                       \
		cudaError_t got_ = (call);                                                         \
		if (got_ != (want)) {                                                              \
			fprintf(stderr, "%s:%d: %s gave %s, not %s\n", __FILE__, __LINE__, #call,  \
				cudaGetErrorName(got_), cudaGetErrorName(want));                   \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define CU(call) GIVES(cudaSuccess, call)

/* A host function that gets a gate waits until the program opens the gate. */
struct gate {
	uint32_t open, arrived; /* atomic */
};

static inline void gate_open(struct gate *g)
{
	__atomic_store_n(&g->open, 1, __ATOMIC_RELEASE);
}

static inline void gate_wait(void *arg)
{
	struct gate *g = arg;

	__atomic_store_n(&g->arrived, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&g->open, __ATOMIC_ACQUIRE))
		usleep(100);
}

static inline void gate_await_arrival(struct gate *g)
{
	while (!__atomic_load_n(&g->arrived, __ATOMIC_ACQUIRE))
		usleep(100);
}

static inline const struct df_backend *hostcuda(void)
{
	const struct df_backend *(*get)(void) =
		(const struct df_backend *(*)(void))dlsym(RTLD_DEFAULT, "df_hostcuda");

	CHECK(get);
	CHECK(get()->version == DF_BACKEND_VERSION);
	return get();
}

/* Returns $SEED or a new seed, and prints it. It is the first state for next() (xorshift). */
static inline uint64_t seed(void)
{
	const char *s = getenv("SEED");
	struct timespec ts;
	uint64_t v;

	clock_gettime(CLOCK_REALTIME, &ts);
	v = s ? strtoull(s, NULL, 0) : (uint64_t)ts.tv_nsec * 2654435761u + (uint64_t)getpid();
	printf("SEED=%llu\n", (unsigned long long)v);
	fflush(stdout);
	return v | 1;
}

static inline uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

#endif
