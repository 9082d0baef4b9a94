/*
 * Bells: how a process that sleeps learns that a peer has moved a slice. The sleeper arms the bell, looks
 * once more, and sleeps on its futex word; whoever publishes rings if the bell is armed. Bells lie in memory
 * that the node's processes share, so the futex is a shared one. The network's threads wait for sockets too: their bells,
 * which are their process's alone, write to a descriptor instead.
 */
#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "runtime/base/futex.h"
#include "runtime/transport/bell.h"

uint32_t df_bell_arm(struct df_bell *bell)
{
	uint32_t seq = __atomic_load_n(&bell->seq, __ATOMIC_RELAXED);

	/*
	 * SEQ_CST pairs with the fence in df_bell_ring(): either the ringer sees us among the sleepers,
	 * or our look after arming sees what it published. Without it both could miss the other and we
	 * would sleep although there is work.
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
	/* SEQ_CST pairs with df_bell_arm(): what was published is ordered before the look at sleepers. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&bell->sleepers, __ATOMIC_RELAXED) == 0)
		return;
	__atomic_add_fetch(&bell->seq, 1, __ATOMIC_RELAXED);
	if (bell->fd > 0) {
		uint64_t one = 1;
		int saved = errno;

		/* A full counter is a wake-up that is pending already. */
		(void)!write(bell->fd, &one, sizeof(one));
		errno = saved;
	} else {
		df_futex_wake(&bell->seq, INT_MAX, 1);
	}
}
