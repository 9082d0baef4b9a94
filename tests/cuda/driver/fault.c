/*
 * Faults of a driver or a GPU, for the tests of `dfshim doctor`. FAKE_CUDA_FAULT names one:
 *
 *   stale     one fill of memory in 50 is not visible to the next operation on the stream
 *   queue     no kernel starts while eight streams wait for words, whatever the number of
 *             connections
 *   relaunch  after three kernels, no kernel that is a registered function (the daemon) starts
 *   serial    kernels with PTX are executed one at a time
 *   sums      copies of 1,024 bytes and more have one wrong bit
 *   graphs    every launch of a graph fails
 *   crash     the third kernel kills the process
 *   hang      allocating and freeing memory never return
 *   late      the first call (cuInit) never returns
 *   busy      no context can be created: another process uses the device (EXCLUSIVE_PROCESS)
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/cuda/driver/internal.h"

int fake_fault(const char *name)
{
	const char *v = getenv("FAKE_CUDA_FAULT");

	return v && strcmp(v, name) == 0;
}

void fake_fault_hang(const char *name)
{
	while (fake_fault(name))
		sleep(1);
}

int fake_fault_moves(int after, int fills, void *to, size_t bytes)
{
	static uint64_t nr;

	if (after && !fills && bytes >= 1024 && fake_fault("sums"))
		*(unsigned char *)to ^= 1;
	/* RELAXED: only a count. */
	return !after && fills && fake_fault("stale") &&
	       __atomic_fetch_add(&nr, 1, __ATOMIC_RELAXED) % 50 == 49;
}

void fake_fault_kernel(int is_function)
{
	static uint64_t kernels;
	uint64_t nr = __atomic_fetch_add(&kernels, 1, __ATOMIC_RELAXED);

	if (nr == 2 && fake_fault("crash"))
		kill(getpid(), SIGSEGV); /* not raise(): this thread blocks all signals */
	while (fake_fault("queue") && fake_host->waiting(NULL) >= 8)
		usleep(100);
	while (is_function && nr > 2 && fake_fault("relaunch"))
		sleep(1);
}
