/*
 * The slow path of df_once_begin(): start the work, or wait for the thread that does it. Invariant:
 * one thread at a time is between BEGUN and DONE.
 */
#include "runtime/base/once.h"

#include <limits.h>
#include "runtime/base/futex.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"

#define SAY_AFTER_S 10

int df_once_wait(struct df_once *once, const char *what)
{
	uint64_t begun = df_now_ns();
	int said = 0;

	for (;;) {
		uint32_t state = DF_ONCE_NOT_YET;

		/*
		 * ACQUIRE pairs with the RELEASE in df_once_end(): this thread sees the work that
		 * another thread has done.
		 */
		if (__atomic_compare_exchange_n(&once->state, &state, DF_ONCE_BEGUN, 0,
						__ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
			return 1;
		if (state == DF_ONCE_DONE)
			return 0;
		df_futex_wait(&once->state, DF_ONCE_BEGUN, SAY_AFTER_S * (int64_t)DF_NS_PER_S, 0);
		if (!said && df_now_ns() - begun >= SAY_AFTER_S * DF_NS_PER_S) {
			said = 1;
			df_warn("%s has not ended after %d s in another thread of this process, "
				"and this thread waits for it; a stack of both (gdb, py-spy) shows "
				"where",
				what, SAY_AFTER_S);
		}
	}
}

void df_once_end(struct df_once *once)
{
	/*
	 * RELEASE pairs with the ACQUIRE in df_once_is_done() and df_once_wait(): the work becomes
	 * visible before DONE.
	 */
	__atomic_store_n(&once->state, DF_ONCE_DONE, __ATOMIC_RELEASE);
	df_futex_wake(&once->state, INT_MAX, 0);
}
