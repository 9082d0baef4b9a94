/*
 * Description: a process that submits an operation after a pause sends the first slice itself, so
 * the network thread need not wake up. A process that calls all the time, and is late once, does
 * not: its next call or wait sends the slice.
 */
#include "tests/transport/sides.h"

#include <sys/socket.h>
#include <sys/syscall.h>

#include "kernels/bell.h"

#define NR    200
#define BYTES 64

/* number of sendmsg() calls of this thread */
static __thread unsigned int sent;

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	sent++;
	return syscall(SYS_sendmsg, fd, m, flags);
}

static uint64_t get(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static int receive(const struct df_tl_ops *tl, struct df_peer *p)
{
	struct df_conn *c;
	struct df_kconn k;
	uint64_t n;

	ck_assert_int_eq(make(tl, p, 1, 4, BYTES, 0, &c, &k), 0);
	for (n = 0; n < NR; n++) {
		while (get(k.tail) == n)
			sched_yield();
		ck_assert_uint_eq(k.slots[n % 4 * BYTES], (uint8_t)n);
		__atomic_store_n(k.head, n + 1, __ATOMIC_RELEASE);
		df_bell_ring(k.bell);
	}
	return tl->close(c);
}

static int begin(const struct df_tl_ops *tl, struct df_peer *p)
{
	struct df_conn *c = find(tl, p, 1);
	unsigned int n, i, at_once = 0;
	struct df_kconn k;

	ck_assert_int_eq(tl->use(c), 0);
	memset(&k, 0, sizeof(k));
	tl->end(c, &k);
	for (n = 0; n < NR; n++) {
		/*
		 * As if this thread had waited for the previous operation: then the network thread
		 * leaves the endpoint to other threads.
		 */
		while (get(k.head) != n)
			df_tl_progress(self.device);
		usleep(50);
		memset(k.slots + n % 4 * BYTES, (uint8_t)n, BYTES);
		__atomic_store_n(k.tail, n + 1, __ATOMIC_RELEASE);
		df_bell_ring(k.bell);
		sent = 0;
		/* Many calls right after a pass make the library forget earlier pauses. */
		for (i = 0; n % 2 && i < 64; i++)
			df_tl_begun(self.device, 0);
		df_tl_begun(self.device, df_now_ns());
		if (n % 2)
			ck_assert_uint_eq(sent, 0);
		else
			at_once += sent == 1;
	}
	/*
	 * The network thread is sometimes awake and holds the endpoint; then this thread does not
	 * send.
	 */
	ck_assert_msg(at_once >= NR / 4, "%u of %u slices were sent at once", at_once, NR / 2);
	while (get(k.head) != n)
		df_tl_progress(self.device);
	tl->unuse(c);
	tl->forget(c);
	return 0;
}

static int begun(struct world *w, int side, const struct df_member *peer)
{
	struct df_peer *p;
	int ret;

	ck_assert_int_eq(peer_get(w->tl, peer, &p), 0);
	ret = (side ? begin : receive)(w->tl, p);
	w->tl->peer_put(p);
	return ret;
}

START_TEST(t_begun)
{
	play(begun);
}
END_TEST

int main(void)
{
	return DF_TESTS("what is begun", {.before = choose_network}, {t_begun});
}
