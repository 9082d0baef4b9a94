/*
 * Faults of a driver or of a GPU, put in by FAKE_CUDA_FAULT for the tests of `dfshim doctor`:
 *
 *   stale     some fills of memory are not there when the next operation on the stream begins
 *   queue     a kernel does not start while eight streams wait for words, with any number of
 *             connections
 *   relaunch  the daemon's kernel starts three times and then no more
 *   serial    kernels of programs are executed one after the other
 *   sums      one bit of larger copies to the host is wrong
 *   graphs    no graph is launched
 *   crash     the third kernel ends the process
 *   hang      an allocation does not return
 *   late      so does the first call of all
 *   busy      there are no contexts: the device is another process's (EXCLUSIVE_PROCESS)
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
	/* RELAXED: a count. */
	return !after && fills && fake_fault("stale") &&
	       __atomic_fetch_add(&nr, 1, __ATOMIC_RELAXED) % 50 == 49;
}

void fake_fault_kernel(int is_function)
{
	static uint64_t kernels;
	uint64_t nr = __atomic_fetch_add(&kernels, 1, __ATOMIC_RELAXED);

	if (nr == 2 && fake_fault("crash"))
		kill(getpid(), SIGSEGV); /* not of this thread, which takes no signals */
	while (fake_fault("queue") && fake_host->waiting(NULL) >= 8)
		usleep(100);
	while (is_function && nr > 2 && fake_fault("relaunch"))
		sleep(1);
}
