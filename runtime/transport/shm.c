/*
 * Transport "shm": the peer is another process on this node. Its segments are mapped here at first
 * need: the control thread fetches their descriptors in the background, and until then lookups find
 * nothing. Peers are kept by process and shared between communicators. A peer that is dead and
 * unreferenced is unmapped when the next peer is requested.
 *
 * A connector of ours needs the peer's bell at once, but the peer's first segment may arrive later.
 * Its address range is therefore reserved when the peer is made, and the bell's address is known.
 * Rings before the segment is mapped are lost; one ring when it is mapped replaces them.
 *
 * Lock: DF_RANK_TRANSPORT for the list of peers.
 */
#define _GNU_SOURCE
#include "runtime/blocks.h"
#include "runtime/transport/transport_int.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "runtime/base/futex.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/ctl/ctl.h"

/* Pause after a failed request: lookups are more frequent than the cause is likely to end. */
#define AGAIN_NS DF_NS_PER_MS

static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_TRANSPORT, "shm peers");
static struct df_peer *peers;
static void (*on_no_file)(uint64_t proc); /* set once, before the first peer */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void mark_dead(struct df_peer *p)
{
	/* RELEASE pairs with the ACQUIRE in df_peer_dead() (node.c). */
	__atomic_store_n(&p->dead, 1, __ATOMIC_RELEASE);
}

void df_shm_on_no_file(void (*fn)(uint64_t proc))
{
	on_no_file = fn;
}

/*
 * Called by the thread that holds `fetching`. A process that has run out of file descriptors for
 * good must end with that reason, not wait for ever. If the other side has run out, it refuses for
 * the moment (-EAGAIN).
 */
static void failed(struct df_peer *p, int error)
{
	uint64_t now = df_now_ns(), last = __atomic_load_n(&p->not_before, __ATOMIC_RELAXED);

	/* Relaxed: a thread that reads an old value only asks again. */
	__atomic_store_n(&p->not_before, now + AGAIN_NS, __ATOMIC_RELAXED);
	if (error != -EMFILE)
		return;
	/* The last failure is old, so count from now. */
	if (!p->no_file_since || now > last + DF_NO_FILE_NS)
		p->no_file_since = now;
	if (now - p->no_file_since < DF_NO_FILE_NS || __atomic_load_n(&p->dead, __ATOMIC_RELAXED))
		return;
	mark_dead(p);
	if (on_no_file)
		on_no_file(p->member.proc);
}

static void death(uint64_t proc)
{
	struct df_peer *p;

	df_mutex_lock(&lock);
	for (p = peers; p; p = p->next)
		if (p->member.proc == proc)
			mark_dead(p);
	df_mutex_unlock(&lock);
}

static void after_fork_child(void)
{
	df_mutex_init(&lock, DF_RANK_TRANSPORT, "shm peers");
	peers = NULL;
}

static void install(void)
{
	pthread_atfork(NULL, NULL, after_fork_child);
}

/* Called without a lock where GPUs have to forget the memory: their driver may take long. */
static void peer_free(void *arg)
{
	struct df_peer *p = arg;
	uint32_t i;

	for (i = 0; i < p->view.nr && df_blocks->show; i++)
		df_blocks->hide(p->view.base[i]);
	for (i = 1; i < p->view.nr; i++)
		munmap(p->view.base[i], p->view.bytes[i]);
	munmap(p->room, DF_SEG_FIRST_BYTES);
	free(p);
}

/* Frees dead and unreferenced peers. Under the lock. */
static void sweep(void)
{
	struct df_peer **at = &peers, *p;

	while ((p = *at)) {
		/*
		 * ACQUIRE pairs with the RELEASE in drop() (node.c) and in publish(): no thread
		 * still uses the peer's memory.
		 */
		if (__atomic_load_n(&p->dead, __ATOMIC_ACQUIRE) &&
		    !__atomic_load_n(&p->refs, __ATOMIC_ACQUIRE) &&
		    !__atomic_load_n(&p->fetching, __ATOMIC_ACQUIRE)) {
			*at = p->next;
			/* If no thread can be started, its memory stays mapped. */
			if (!df_blocks->show)
				peer_free(p);
			else
				df_blocks->aside(peer_free, p);
		} else {
			at = &p->next;
		}
	}
}

static struct df_peer *peer_new(const struct df_member *m)
{
	struct df_peer *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->room = mmap(NULL, DF_SEG_FIRST_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p->room == MAP_FAILED) {
		free(p);
		return NULL;
	}
	p->member = *m;
	p->next = peers;
	peers = p;
	return p;
}

static int shm_reachable(const struct df_member *self, const struct df_member *peer)
{
	return self->proc != peer->proc && self->host == peer->host && self->node == peer->node &&
	       peer->sock;
}

static int shm_peer_get(const struct df_member *self, const struct df_member *m,
			struct df_peer **out)
{
	struct df_peer *p;
	int dead, ret;

	(void)self;
	ret = df_arena_start();
	if (ret)
		return ret;
	pthread_once(&once, install);
	df_ctl_on_death(death);
	dead = df_ctl_is_dead(m->proc);
	df_mutex_lock(&lock);
	sweep();
	for (p = peers; p; p = p->next)
		if (p->member.proc == m->proc)
			break;
	if (!p)
		p = peer_new(m);
	if (p) {
		__atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
		if (dead)
			mark_dead(p);
		*out = p;
	}
	df_mutex_unlock(&lock);
	return p ? 0 : -ENOMEM;
}

static void shm_peer_put(struct df_peer *p)
{
	/*
	 * RELEASE pairs with the ACQUIRE in sweep(): our last use of the peer is before the
	 * decrement.
	 */
	__atomic_sub_fetch(&p->refs, 1, __ATOMIC_RELEASE);
}

/* Whether the descriptor is the first segment of this process. */
static int is_ours(const struct df_peer *p, int fd, uint64_t bytes)
{
	void *base = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
	int ret;

	if (base == MAP_FAILED)
		return 0;
	ret = df_arena_check(base, bytes, p->member.proc);
	munmap(base, bytes);
	return ret;
}

/* The next segments of a peer, mapped here but not published; they follow the first view.nr. */
struct news {
	struct df_peer *peer;
	int nr, ret;
	void *base[DF_FETCH_MAX];
	uint64_t bytes[DF_FETCH_MAX];
};

static int map_segment(struct news *news, int fd, uint64_t bytes)
{
	struct df_peer *p = news->peer;
	uint32_t n = p->view.nr + (uint32_t)news->nr;
	int seals = fcntl(fd, F_GET_SEALS);
	off_t size = lseek(fd, 0, SEEK_END);
	void *base;

	/* The owner could truncate an unsealed file, and our next access would raise SIGBUS. */
	if (n >= DF_SEGS_MAX || news->nr == DF_FETCH_MAX || seals < 0 || !(seals & F_SEAL_SHRINK) ||
	    size < 0 || (uint64_t)size < bytes || !bytes)
		return -EPROTO;
	if (!n && (bytes != DF_SEG_FIRST_BYTES || !is_ours(p, fd, bytes)))
		return -EPROTO;
	/*
	 * Call mmap directly: the first segment replaces the reserved range while others may read
	 * the bell in it. They see either mapping, but a race detector takes mmap() for a write.
	 */
	base = (void *)syscall(SYS_mmap, n ? NULL : p->room, bytes, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_NORESERVE | (n ? 0 : MAP_FIXED), fd, 0L);
	if (base == MAP_FAILED)
		return -ENOMEM;
	news->base[news->nr] = base;
	news->bytes[news->nr++] = bytes;
	return 0;
}

static void ring(struct df_bell *bell)
{
	/*
	 * SEQ_CST pairs with df_bell_arm() (kernels/bell.c): a thread that goes to sleep
	 * sees the new number or is woken.
	 */
	__atomic_add_fetch(&bell->seq, 1, __ATOMIC_SEQ_CST);
	df_futex_wake(&bell->seq, INT_MAX, 1);
}

/* Publishes the segments up to the first that cannot be used. */
static void publish(void *arg)
{
	struct news *news = arg;
	struct df_peer *p = news->peer;
	int i, ret = news->ret;

	for (i = 0; i < news->nr; i++) {
		uint32_t n = p->view.nr;

		if (df_blocks->show && df_blocks->show(news->base[i], news->bytes[i])) {
			ret = -ENOMEM;
			break;
		}
		p->view.bytes[n] = news->bytes[i];
		/*
		 * RELEASE pairs with the ACQUIRE in df_view_base(): size and mapping are visible
		 * before the base.
		 */
		__atomic_store_n(&p->view.base[n], news->base[i], __ATOMIC_RELEASE);
		__atomic_store_n(&p->view.nr, n + 1, __ATOMIC_RELEASE);
	}
	for (; i < news->nr; i++)
		if (news->base[i] != p->room)
			munmap(news->base[i], news->bytes[i]);
	if (ret)
		df_warn_once("cannot map shared memory of process %u: %s", p->member.pid,
			     strerror(-ret));
	if (ret == -EPROTO)
		mark_dead(p);
	/*
	 * Wake the peer, for publications before its bell was mapped, and our own threads, whose
	 * lookups can now succeed.
	 */
	if (p->view.nr)
		ring(df_arena_bell(p->room));
	/* RELEASE pairs with the ACQUIRE in sweep() and fetch(): the fetch is over. */
	__atomic_store_n(&p->fetching, 0, __ATOMIC_RELEASE);
	ring(df_tl_bell());
	free(news);
}

/* On the control thread, under its lock. */
static void fetched(void *arg, int error, const int *fds, const uint64_t *bytes, int nr)
{
	struct df_peer *p = arg;
	struct news *news = calloc(1, sizeof(*news));
	int i;

	if (news)
		news->peer = p;
	for (i = 0; i < nr; i++) {
		if (news && !news->ret)
			news->ret = map_segment(news, fds[i], bytes[i]);
		close(fds[i]);
	}
	if (error == -ECONNRESET)
		mark_dead(p);
	if (error)
		failed(p, error);
	else
		p->no_file_since = 0;
	if (error == -EMFILE && news)
		news->ret = error;
	if (!news) {
		/* RELEASE pairs with the ACQUIRE in fetch(): the next lookup asks again. */
		__atomic_store_n(&p->fetching, 0, __ATOMIC_RELEASE);
		return;
	}
	if (!df_blocks->show) {
		publish(news);
	} else if (df_blocks->aside(publish, news)) {
		/* No thread: drop the segments; the next lookup asks again. */
		for (i = 0; i < news->nr; i++)
			if (news->base[i] != p->room)
				munmap(news->base[i], news->bytes[i]);
		free(news);
		/* RELEASE pairs with the ACQUIRE in sweep() and fetch(): the fetch is over. */
		__atomic_store_n(&p->fetching, 0, __ATOMIC_RELEASE);
	}
}

static void fetch(struct df_peer *p)
{
	int ret;

	if (df_now_ns() < __atomic_load_n(&p->not_before, __ATOMIC_RELAXED))
		return;
	/*
	 * ACQUIRE pairs with the RELEASE in publish(): we ask for the segments after those it
	 * mapped.
	 */
	if (__atomic_exchange_n(&p->fetching, 1, __ATOMIC_ACQUIRE))
		return;
	ret = df_fetch_start(&p->member, p->view.nr, fetched, p);
	if (!ret)
		return;
	if (ret == -ECONNRESET)
		mark_dead(p);
	failed(p, ret);
	/* RELEASE pairs with the ACQUIRE above and in sweep(), as in publish(). */
	__atomic_store_n(&p->fetching, 0, __ATOMIC_RELEASE);
}

static struct df_bell *peer_bell(const struct df_peer *p)
{
	return df_arena_bell(p->room);
}

struct df_bell *df_shm_bell(struct df_peer *p)
{
	/* Map it, so that ringing reaches the peer. */
	if (!df_view_base(&p->view, 0))
		fetch(p);
	return peer_bell(p);
}

int df_shm_settled(struct df_peer *p, int begin)
{
	if (df_view_base(&p->view, 0))
		return 0;
	if (begin)
		fetch(p);
	/* ACQUIRE pairs with the RELEASE in publish(): the check below sees its mapping. */
	if (__atomic_load_n(&p->fetching, __ATOMIC_ACQUIRE))
		return -EAGAIN;
	return df_view_base(&p->view, 0) ? 0 : -ENOENT;
}

static int shm_create(struct df_peer *p, uint64_t key, uint32_t nr_slots, uint32_t slot_bytes,
		      int how, uint64_t base, struct df_conn **out)
{
	return df_node_create(&df_tl_shm_ops, p, key, nr_slots, slot_bytes, how, base,
			      df_shm_bell(p), NULL, out);
}

static int shm_find(struct df_peer *p, uint64_t key, struct df_conn **out)
{
	struct df_found f;
	int ret;

	/* ACQUIRE pairs with the RELEASE in mark_dead(). */
	if (__atomic_load_n(&p->dead, __ATOMIC_ACQUIRE))
		return -ECONNRESET;
	ret = df_dir_find(&p->view, key, &f);
	if (!ret)
		return df_node_found(&df_tl_shm_ops, p, key, &f, peer_bell(p), out);
	if (ret == -EAGAIN)
		fetch(p);
	return -EAGAIN;
}

const struct df_tl_ops df_tl_shm_ops = {
	.name = "shm",
	.caps = DF_TL_SAME_NODE | DF_TL_DIRECT | DF_TL_BELL,
	.reachable = shm_reachable,
	.peer_get = shm_peer_get,
	.peer_put = shm_peer_put,
	.create = shm_create,
	.find = shm_find,
	DF_NODE_OPS,
};
