/*
 * The machine's block, thread, barrier and scoped accesses. The daemon's source uses only these
 * names; nothing else in kernels/ depends on the machine.
 *
 * Scopes: _sys orders with the host, peers and other processes; _dev only within the device. The
 * CPU build tests the ordering: ThreadSanitizer checks the same acquire/release pairs.
 */
#ifndef DFK_PORT_H
#define DFK_PORT_H

#include <stdint.h>
#include <stddef.h>

#ifdef __CUDACC__

#include <cuda/atomic>
#define DFK		static __device__ __forceinline__
#define DFK_TID		((int)threadIdx.x)
#define DFK_NTHREADS	((int)blockDim.x)
#define dfk_sync()	__syncthreads()
#define dfk_sync_and(x) __syncthreads_and(x)
/*
 * The lanes are the first threads of a block: a warp on a GPU, the only thread on the CPU.
 * dfk_lanes_all() and dfk_lanes_any() are barriers of the lanes, and return whether x is true on
 * all of them or on one.
 */
#define DFK_LANES	 32
#define dfk_lanes_all(x) (__syncwarp(), __all_sync(0xffffffffu, (x)))
#define dfk_lanes_any(x) (__syncwarp(), __any_sync(0xffffffffu, (x)))
#define DFK_LINE	 16 /* words of a line of LL128 */

template <typename T> DFK T dfk_load_acquire_sys(const T *p)
{
	return cuda::atomic_ref<T, cuda::thread_scope_system>(*const_cast<T *>(p))
		.load(cuda::memory_order_acquire);
}
template <typename T> DFK T dfk_load_relaxed_sys(const T *p)
{
	return cuda::atomic_ref<T, cuda::thread_scope_system>(*const_cast<T *>(p))
		.load(cuda::memory_order_relaxed);
}
template <typename T> DFK void dfk_store_release_sys(T *p, T v)
{
	cuda::atomic_ref<T, cuda::thread_scope_system>(*p).store(v, cuda::memory_order_release);
}
/*
 * One fence for several stores: a thread that sees one of the later dfk_store_released_sys() sees
 * everything before the fence.
 */
DFK void dfk_fence_release_sys(void)
{
	cuda::atomic_thread_fence(cuda::memory_order_release, cuda::thread_scope_system);
}
template <typename T> DFK void dfk_store_released_sys(T *p, T v)
{
	cuda::atomic_ref<T, cuda::thread_scope_system>(*p).store(v, cuda::memory_order_relaxed);
}
template <typename T> DFK void dfk_store_relaxed_sys(T *p, T v)
{
	cuda::atomic_ref<T, cuda::thread_scope_system>(*p).store(v, cuda::memory_order_relaxed);
}
template <typename T> DFK T dfk_sub_acq_rel_dev(T *p, T v)
{
	return cuda::atomic_ref<T, cuda::thread_scope_device>(*p).fetch_sub(
		       v, cuda::memory_order_acq_rel) -
	       v;
}
DFK void dfk_ring_bell(struct df_bell *bell)
{
	(void)bell;
}
/*
 * The same for all blocks of the device. This clock continues while other contexts have their time
 * slice.
 */
DFK uint64_t dfk_now_ns(void)
{
	uint64_t t;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

#else

#include "kernels/bell.h"
#include "kernels/daemon.h"

#define DFK			     static inline __attribute__((always_inline))
#define DFK_TID			     0
#define DFK_NTHREADS		     1
#define dfk_sync()		     ((void)0)
#define dfk_sync_and(x)		     (x)
#define DFK_LANES		     1
#define dfk_lanes_all(x)	     (x)
#define dfk_lanes_any(x)	     (x)
#define DFK_LINE		     8 /* a cache line: the flag needs no second one */
#define dfk_load_acquire_sys(p)	     __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define dfk_load_relaxed_sys(p)	     __atomic_load_n((p), __ATOMIC_RELAXED)
#define dfk_store_release_sys(p, v)  __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define dfk_store_relaxed_sys(p, v)  __atomic_store_n((p), (v), __ATOMIC_RELAXED)
/* A release is free here, and ThreadSanitizer does not support fences. */
#define dfk_fence_release_sys()	     ((void)0)
#define dfk_store_released_sys(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define dfk_sub_acq_rel_dev(p, v)    __atomic_sub_fetch((p), (v), __ATOMIC_ACQ_REL)

/*
 * Called only where blocks leave by themselves (DFK_WAYS). The code that builds for that provides
 * it.
 */
uint64_t dfk_now_ns(void);
#define dfk_ring_bell(bell)                                                                        \
	do {                                                                                       \
		if (bell)                                                                          \
			df_bell_ring(bell);                                                        \
	} while (0)

#endif

/*
 * Words that are ordered by a separate flag. ThreadSanitizer sees plain accesses: relaxed ones are
 * never a race, so it would not notice a missing release or acquire of the flag.
 */
#ifdef __SANITIZE_THREAD__
#define dfk_load_flagged_sys(p)	    (*(p))
#define dfk_store_flagged_sys(p, v) ((void)(*(p) = (v)))
#else
#define dfk_load_flagged_sys(p)	    dfk_load_relaxed_sys(p)
#define dfk_store_flagged_sys(p, v) dfk_store_relaxed_sys(p, v)
#endif

#endif
