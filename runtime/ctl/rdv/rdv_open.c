/*
 * Opens sessions of the rendezvous and lets processes in: ids made here, the listener of an
 * address, links that identify themselves, and the status that is sent while ranks are missing.
 * Guarded by the control plane's lock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "runtime/base/time.h"
#include "runtime/ctl/accept.h"
#include "runtime/ctl/rdv/rdv_int.h"

/* ---- links to a session ---------------------------------------------------------------------- */

static int end_input(struct df_link *link, unsigned type, const void *data, size_t bytes)
{
	return link->owner ? df_rdv_say(link->owner, type, data, bytes) : -EPROTO;
}

static void end_closed(struct df_link *link, int error)
{
	struct df_rdv_end *end = link->owner;
	char why[240] = "a process died during the rendezvous";
	struct df_rdv *r;
	int i;

	if (!end)
		return;
	r = end->rdv;
	for (i = 0; r->members && i < r->nranks; i++) {
		if (!link->tx_proc || r->members[i].proc != link->tx_proc)
			continue;
		snprintf(why, sizeof(why),
			 "rank %d on %.63s (pid %u) died or left during the rendezvous",
			 r->members[i].rank, r->members[i].hostname, r->members[i].pid);
		/*
		 * Only a closed connection proves that it ended: other errors may be the network's.
		 */
		if ((!error || error == -ECONNRESET) && r->state < RDV_CLOSED && !r->fail_error &&
		    df_ctl.events && df_ctl.events->lost)
			df_ctl.events->lost(&r->members[i]);
		break;
	}
	df_rdv_detach(end, -ECONNRESET, why);
}

static const struct df_link_ops end_ops = {
	.name = "rendezvous", .input = end_input, .closed = end_closed};

struct df_rdv_end *df_rdv_attach(struct df_rdv *r, struct df_link *link, struct df_rdv_up *up)
{
	struct df_rdv_end *end = calloc(1, sizeof(*end));

	if (!end)
		return NULL;
	end->rdv = r;
	end->link = link;
	end->up = up;
	df_list_add_tail(&r->ends, &end->node);
	return end;
}

int df_rdv_introduce(struct df_link *link, const void *data, size_t bytes)
{
	const struct df_rdv_hello *h = data;
	struct df_rdv_end *end;
	struct df_rdv *r;

	r = df_rdv_find(link->greet.name);
	if (bytes != sizeof(*h) || !r)
		return -EPROTO;
	link->tx_proc = h->proc;
	df_link_adopt(link, &end_ops, NULL);
	if (r->state >= RDV_CLOSED) {
		df_link_send(link, DF_FRAME_RDV_ERROR, &r->error, sizeof(r->error), NULL, 0);
		df_link_finish(link);
		return 0;
	}
	end = df_rdv_attach(r, link, NULL);
	if (!end)
		return -ENOMEM;
	link->owner = end;
	return 0;
}

void df_rdv_unshimmed(uint64_t magic)
{
	struct df_rdv *r, *tmp;

	HASH_ITER(hh, df_ctl.rdvs, r, tmp)
	{
		if (r->front != magic || !magic)
			continue;
		df_rdv_fail(r, -EPROTO, "a rank that does not run under dfshim tried to join");
		df_rdv_settle(r);
	}
}

/* ---- open, status ---------------------------------------------------------------------------- */

/* Finished sessions that are kept, so that a process that joins late gets the reason. */
#define KEPT 1024

static void forget_oldest(void)
{
	struct df_rdv *r, *tmp;

	if (HASH_COUNT(df_ctl.rdvs) < KEPT)
		return;
	/* hash tables are walked in the order of insertion */
	HASH_ITER(hh, df_ctl.rdvs, r, tmp)
	{
		if (r->state < RDV_CLOSED || r->busy)
			continue;
		HASH_DEL(df_ctl.rdvs, r);
		free(r);
		return;
	}
}

static struct df_rdv *rdv_new(const struct df_id_tail *id, uint64_t front)
{
	struct df_rdv *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	forget_oldest();
	r->nonce = id->nonce;
	r->secret = id->secret;
	r->front = front;
	r->listen_fd = -1;
	r->by_address = !!(id->flags & DF_ID_BY_ADDR);
	df_list_init(&r->ends);
	HASH_ADD(hh, df_ctl.rdvs, nonce, sizeof(r->nonce), r);
	return r;
}

int df_rdv_open(const struct df_id_tail *id, uint64_t front)
{
	struct df_rdv *r;

	/* Every process of the job connects to this one for a moment. */
	df_addr_raise_files(RLIM_INFINITY);
	df_ctl_lock();
	r = rdv_new(id, front);
	df_ctl_unlock();
	return r ? 0 : -ENOMEM;
}

int df_rdv_open_address(const struct df_id_tail *id)
{
	struct epoll_event e = {.events = EPOLLIN};
	union df_sockaddr addr;
	struct df_rdv *r;
	int fd;

	if (df_rdv_find(id->nonce))
		return 0;
	df_id_address(id, &addr);
	/* Every process of the job connects to this one for a moment. */
	df_addr_raise_files(RLIM_INFINITY);
	fd = df_addr_listen(&addr, DF_LINK_BACKLOG);
	if (fd < 0)
		return fd;
	r = rdv_new(id, DF_ID_ADDR_MAGIC);
	if (!r) {
		close(fd);
		return -ENOMEM;
	}
	e.data.ptr = (char *)r + 1; /* the odd address shows that it is not a link */
	r->listen_fd = fd;
	if (epoll_ctl(df_ctl.epoll_fd, EPOLL_CTL_ADD, fd, &e)) {
		HASH_DEL(df_ctl.rdvs, r);
		free(r);
		close(fd);
		return -EIO;
	}
	return 0;
}

int df_rdv_accept(void *ptr)
{
	struct df_rdv *r, *tmp;

	if (!((uintptr_t)ptr & 1))
		return 0;
	/* An event of the same turn may have closed it. */
	HASH_ITER(hh, df_ctl.rdvs, r, tmp)
	{
		if ((char *)r + 1 == (char *)ptr && r->listen_fd >= 0)
			df_link_accept(r->listen_fd, 0, ptr);
	}
	return 1;
}

static int missing_of(const struct df_rdv *r, int *ranks, int max)
{
	int i, n = 0;

	if (r->relay) {
		for (i = 0; i < r->nr_missing && n < max; i++)
			ranks[n++] = r->missing[i];
		return n;
	}
	for (i = 0; i < r->nranks && r->members && n < max; i++)
		if (!r->members[i].proc)
			ranks[n++] = i;
	return n;
}

int df_rdv_missing(uint64_t id_hash, int *ranks, int max)
{
	struct df_rdv *r, *tmp;

	HASH_ITER(hh, df_ctl.rdvs, r, tmp)
	if (r->nranks && r->id_hash == id_hash && r->state == RDV_OPEN)
		return missing_of(r, ranks, max);
	return -ENOENT;
}

uint64_t df_rdv_timers(uint64_t now)
{
	int ranks[DF_CTL_MISSING_MAX], nr;
	struct df_rdv *r, *tmp;
	uint64_t next = 0, t;

	HASH_ITER(hh, df_ctl.rdvs, r, tmp)
	{
		if (r->relay) {
			t = r->state < RDV_CLOSED ? df_rdv_up_timer(&r->up, now) : 0;
			if (t)
				next = next ? DF_MIN(next, t) : t;
			continue;
		}
		if (!r->status_at)
			continue;
		if (r->state != RDV_OPEN) {
			r->status_at = 0;
			continue;
		}
		if (r->status_at > now) {
			next = next ? DF_MIN(next, r->status_at) : r->status_at;
			continue;
		}
		r->status_at = 0;
		nr = missing_of(r, ranks, DF_CTL_MISSING_MAX);
		df_rdv_send_all(r, DF_FRAME_RDV_STATUS, ranks, (size_t)nr * sizeof(*ranks));
		df_rdv_settle(r);
	}
	return next;
}

void df_rdv_forget_all(void)
{
	struct df_rdv *r, *tmp;

	/* After fork: the parent's sessions are not ours; only close their descriptors. */
	HASH_ITER(hh, df_ctl.rdvs, r, tmp)
	if (r->listen_fd >= 0)
		close(r->listen_fd);
	df_ctl.inherited = df_ctl.rdvs;
	df_ctl.rdvs = NULL;
	df_ctl.joins = NULL;
}
