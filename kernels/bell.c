/*
 * Bells wake a sleeping process when a peer has moved a slice. The sleeper arms the bell, checks
 * once more for work, and sleeps on the futex word. A peer that publishes rings the bell if it is
 * armed. Bells are in memory that processes of a node share, so the futex is a shared one. The
 * network's threads also wait for sockets: their bells, which no other process uses, write to a
 * descriptor instead.
 */
#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "runtime/base/futex.h"
#include "kernels/bell.h"

uint32_t df_bell_arm(struct df_bell *bell)
{
	uint32_t seq = __atomic_load_n(&bell->seq, __ATOMIC_RELAXED);

	/*
	 * SEQ_CST pairs with the fence in df_bell_ring(): either the ringing thread sees us among
	 * the sleepers, or our check after arming sees what it published. Without it both could
	 * miss the other, and we would sleep although there is work.
	 */
	__atomic_add_fetch(&bell->sleepers, 1, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return seq;
}

void df_bell_sleep(struct df_bell *bell, uint32_t seen, int64_t timeout_ns)
{
	df_futex_wait(&bell->seq, seen, timeout_ns, 1);
}

void df_bell_disarm(struct df_bell *bell)
{
	__atomic_sub_fetch(&bell->sleepers, 1, __ATOMIC_RELAXED);
}

void df_bell_ring(struct df_bell *bell)
{
	/*
	 * SEQ_CST pairs with df_bell_arm(): our publication is ordered before the read of sleepers.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&bell->sleepers, __ATOMIC_RELAXED) == 0)
		return;
	__atomic_add_fetch(&bell->seq, 1, __ATOMIC_RELAXED);
	if (bell->fd > 0) {
		uint64_t one = 1;
		int saved = errno;

		/* A full counter means that a wake-up is already pending. */
		(void)!write(bell->fd, &one, sizeof(one));
		errno = saved;
	} else {
		df_futex_wake(&bell->seq, INT_MAX, 1);
	}
}
