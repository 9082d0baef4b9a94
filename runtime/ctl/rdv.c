/*
 * The serving side of the rendezvous. A session receives the check-ins of nranks ranks, answers
 * with the member table, waits until every process has joined the overlay, and releases all; then
 * it is closed for good. Any fault (a rank twice, different nranks, versions or settings, a process
 * that dies or gives up) fails the session: all waiting processes, and any that join later, get the
 * reason. The second half opens sessions and lets processes in: ids made here, the listener of an
 * address, links that identify themselves, and the status that is sent while ranks are missing.
 * Invariant: a session leaves RDV_OPEN and RDV_TABLE only once. Guarded by the control plane's
 * lock.
 */
#include "runtime/ctl/rdv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "runtime/base/hash.h"
#include "runtime/base/time.h"
#include "runtime/ctl/accept.h"
#include "runtime/ctl/tree.h"

#define RANKS_MAX (1 << 20)
#define STATUS_NS (500 * DF_NS_PER_MS)

enum rdv_state { RDV_OPEN, RDV_TABLE, RDV_CLOSED, RDV_FAILED };

struct df_rdv {
	UT_hash_handle hh;
	uint64_t nonce, front, hash, id_hash;
	struct df_key secret;
	enum rdv_state state;
	int by_address, listen_fd;
	int nranks, nr_ids, nr_in;
	struct df_member *members;
	uint64_t *parts;
	struct df_checkin *held; /* relay: check-ins to forward when its way is open */
	struct df_list ends;
	int nr_acks, nr_acks_wanted;
	/* whether the list of ends is being walked; then failing and freeing are postponed */
	int busy;
	int fail_error; /* the failure that is postponed */
	struct df_rdv_error error;
	uint64_t status_at;
	struct df_rdv_up up; /* relay: the connection to the session of the first id */
	int relay;
	unsigned char id0[128]; /* relay: the first id, as its ranks gave it */
	/*
	 * The first rank whose daemon cannot start, and the first that cannot use the real library;
	 * as texts, or "".
	 */
	char unable[168], bound[112];
	int32_t *missing; /* relay: the list that it received last */
	int nr_missing;
};

struct df_rdv_end {
	struct df_list node;
	struct df_rdv *rdv;
	struct df_link *link;
	struct df_rdv_up *up;
	int nr_checkins, acked, dead;
};

int df_rdv_id_of_rank(int rank, int nranks, int nr_ids)
{
	int per = nranks / nr_ids, extra = nranks % nr_ids;
	int first_small = extra * (per + 1);

	return rank < first_small ? rank / (per + 1) : extra + (rank - first_small) / per;
}

struct df_rdv *df_rdv_find(uint64_t nonce)
{
	struct df_rdv *r;

	HASH_FIND(hh, df_ctl.rdvs, &nonce, sizeof(nonce), r);
	return r;
}

const struct df_key *df_rdv_secret(uint64_t nonce)
{
	const struct df_rdv *r = df_rdv_find(nonce);

	return r ? &r->secret : NULL;
}

static void end_send(struct df_rdv_end *end, unsigned type, const void *data, size_t bytes)
{
	size_t first = bytes;

	if (end->dead)
		return;
	if (type == DF_FRAME_RDV_TABLE)
		first = df_rdv_table_secret(((const struct df_rdv_table *)data)->nranks);
	if (end->link)
		df_link_send(end->link, type, data, first, (const char *)data + first,
			     bytes - first);
	else
		end->up->input(end->up, type, data, bytes);
}

static void end_free(struct df_rdv_end *end)
{
	df_list_del(&end->node);
	if (end->link) {
		end->link->owner = NULL;
		df_link_finish(end->link);
	}
	if (end->up)
		end->up->end = NULL;
	free(end);
}

static void rdv_send_all(struct df_rdv *r, unsigned type, const void *data, size_t bytes)
{
	struct df_rdv_end *end;

	r->busy++;
	df_list_each(end, &r->ends, node) if (end->nr_checkins) end_send(end, type, data, bytes);
	r->busy--;
}

/* Ends the session: frees all but its name, and informs its ends. */
static void finish(struct df_rdv *r, enum rdv_state state, unsigned type, const void *data,
		   size_t bytes)
{
	struct df_rdv_end *end;

	r->state = state;
	if (r->listen_fd >= 0) {
		epoll_ctl(df_ctl.epoll_fd, EPOLL_CTL_DEL, r->listen_fd, NULL);
		close(r->listen_fd);
		r->listen_fd = -1;
	}
	while (!df_list_empty(&r->ends)) {
		end = df_list_first(&r->ends, struct df_rdv_end, node);
		df_list_del(&end->node);
		end_send(end, type, data, bytes);
		end_free(end);
	}
	if (r->relay)
		df_rdv_up_stop(&r->up);
	free(r->members);
	free(r->parts);
	free(r->held);
	free(r->missing);
	r->members = NULL;
	r->parts = NULL;
	r->held = NULL;
	r->missing = NULL;
	r->nr_missing = 0;
	if (r->by_address) {
		HASH_DEL(df_ctl.rdvs, r);
		free(r);
	}
}

static void rdv_fail(struct df_rdv *r, int error, const char *reason)
{
	if (r->state >= RDV_CLOSED || r->fail_error)
		return;
	r->fail_error = error;
	memset(&r->error, 0, sizeof(r->error));
	r->error.error = error;
	snprintf(r->error.reason, sizeof(r->error.reason), "%s", reason);
}

static void settle_open(struct df_rdv *r)
{
	size_t m = (size_t)r->nranks * sizeof(*r->members), p = (size_t)r->nranks * 8;
	size_t first = df_rdv_table_secret((uint32_t)r->nranks);
	struct df_rdv_table t = {.hash = r->id_hash, .nranks = (uint32_t)r->nranks};
	struct df_member *members;
	struct df_rdv_end *end;
	struct df_key *keys;
	char *buf = malloc(first + m + p);
	int i;

	if (!buf) {
		rdv_fail(r, -ENOMEM, "the rendezvous has no memory for the table of members");
		return;
	}
	/* One address may serve many communicators, one after the other. */
	if (r->by_address)
		t.hash = df_hash_u64(t.hash, df_addr_random());
	r->hash = t.hash;
	r->state = RDV_TABLE;
	memcpy(buf, &t, sizeof(t));
	keys = (struct df_key *)(buf + sizeof(t));
	members = (struct df_member *)(buf + first);
	memcpy(members, r->members, m);
	for (i = 0; i < r->nranks; i++) {
		keys[i] = members[i].key;
		memset(&members[i].key, 0, sizeof(members[i].key));
	}
	memcpy(buf + first + m, r->parts, p);
	df_list_each(end, &r->ends, node) r->nr_acks_wanted += end->nr_checkins > 0;
	rdv_send_all(r, DF_FRAME_RDV_TABLE, buf, first + m + p);
	free(buf);
}

static void rdv_settle(struct df_rdv *r)
{
	struct df_rdv_end *end, *tmp;

	if (r->busy)
		return;
	r->busy++;
	df_list_each_safe(end, tmp, &r->ends, node) if (end->dead) end_free(end);
	r->busy--;
	if (!r->fail_error && r->state == RDV_OPEN && !r->relay && r->nranks &&
	    r->nr_in == r->nranks)
		settle_open(r);
	if (r->fail_error && r->state < RDV_CLOSED) {
		/*
		 * If the first session is in this process and has failed, it answers within this
		 * call.
		 */
		r->busy++;
		if (r->relay)
			df_rdv_up_send(&r->up, DF_FRAME_RDV_ERROR, &r->error, sizeof(r->error));
		r->busy--;
		finish(r, RDV_FAILED, DF_FRAME_RDV_ERROR, &r->error, sizeof(r->error));
		return;
	}
	if (r->state == RDV_TABLE && r->nr_acks >= r->nr_acks_wanted) {
		if (!r->relay) {
			snprintf(r->error.reason, sizeof(r->error.reason),
				 "the id has been used by another communicator already");
			r->error.error = -EPROTO;
			finish(r, RDV_CLOSED, DF_FRAME_RDV_GO, NULL, 0);
		} else if (r->nr_acks_wanted >= 0) {
			r->nr_acks_wanted = -1; /* so that this happens only once */
			r->nr_acks = -1;
			df_rdv_up_send(&r->up, DF_FRAME_RDV_ACK, NULL, 0);
		}
	}
}

/* ---- a relay's way to the first session ------------------------------------------------------ */

static void relay_opened(struct df_rdv_up *up)
{
	struct df_rdv *r = up->owner;
	int i;

	/* Check-ins that arrived before the way was open. */
	for (i = 0; i < r->nr_in; i++)
		df_rdv_up_send(up, DF_FRAME_RDV_CHECKIN, &r->held[i], sizeof(r->held[i]));
}

static void relay_input(struct df_rdv_up *up, unsigned type, const void *data, size_t bytes)
{
	struct df_rdv *r = up->owner;
	const struct df_rdv_error *e = data;
	struct df_rdv_end *end;

	switch (type) {
	case DF_FRAME_RDV_TABLE:
		r->state = RDV_TABLE;
		df_list_each(end, &r->ends, node) r->nr_acks_wanted += end->nr_checkins > 0;
		rdv_send_all(r, type, data, bytes);
		rdv_settle(r);
		break;
	case DF_FRAME_RDV_STATUS:
		free(r->missing);
		r->nr_missing = 0;
		r->missing = malloc(bytes + 1);
		if (r->missing) {
			memcpy(r->missing, data, bytes);
			r->nr_missing = (int)(bytes / 4);
		}
		rdv_send_all(r, type, data, bytes);
		rdv_settle(r);
		break;
	case DF_FRAME_RDV_ERROR:
		rdv_fail(r, bytes == sizeof(*e) ? e->error : -EPROTO,
			 bytes == sizeof(*e) ? e->reason : "the rendezvous failed");
		rdv_settle(r);
		break;
	case DF_FRAME_RDV_GO:
		snprintf(r->error.reason, sizeof(r->error.reason),
			 "the id has been used by another communicator already");
		r->error.error = -EPROTO;
		finish(r, RDV_CLOSED, DF_FRAME_RDV_GO, NULL, 0);
		break;
	default:
		break;
	}
}

static void relay_failed(struct df_rdv_up *up, int error, const char *reason)
{
	rdv_fail(up->owner, error, reason);
	rdv_settle(up->owner);
}

/* ---- check-in -------------------------------------------------------------------------------- */

static int take_member(struct df_rdv *r, const struct df_checkin *ci, int at)
{
	r->members[at] = ci->member;
	r->parts[at] = ci->part;
	if (r->relay)
		r->held[at] = *ci;
	r->nr_in++;
	if (!r->status_at && !r->relay) {
		r->status_at = df_now_ns() + STATUS_NS;
		df_ctl_timer(r->status_at);
	}
	return 0;
}

static int first_checkin(struct df_rdv *r, const struct df_checkin *ci)
{
	struct df_id_tail first;

	if (ci->nranks < 1 || ci->nranks > RANKS_MAX || ci->nr_ids < 1 || ci->nr_ids > ci->nranks ||
	    df_id_open(ci->id0, &first))
		return -EPROTO;
	r->members = calloc((size_t)ci->nranks, sizeof(*r->members));
	r->parts = calloc((size_t)ci->nranks, sizeof(*r->parts));
	if (!r->members || !r->parts) {
		rdv_fail(r, -ENOMEM, "the rendezvous has no memory for the table of members");
		return 0;
	}
	r->nranks = ci->nranks;
	r->nr_ids = ci->nr_ids;
	r->id_hash = df_id_hash(ci->id0);
	memcpy(r->id0, ci->id0, sizeof(r->id0));
	if (first.nonce == r->nonce)
		return 0;
	r->held = calloc((size_t)ci->nranks, sizeof(*r->held));
	if (!r->held) {
		rdv_fail(r, -ENOMEM, "the rendezvous has no memory for what it passes on");
		return 0;
	}
	r->relay = 1;
	r->up = (struct df_rdv_up){.id = first,
				   .opened = relay_opened,
				   .input = relay_input,
				   .failed = relay_failed,
				   .owner = r};
	df_rdv_up_start(&r->up);
	return 0;
}

/*
 * Checks that dfshim or the real library can execute the communicator on all ranks. Returns 0, or
 * -EOPNOTSUPP and the reason as soon as neither can.
 */
static int check_limits(struct df_rdv *r, const struct df_checkin *ci, char *why, size_t bytes)
{
	const struct df_member *m = &ci->member;

	/* A rank that can do neither is named in both reasons. */
	if (ci->unable[0] && (!r->unable[0] || ci->bound[0]))
		snprintf(r->unable, sizeof(r->unable),
			 "dfshim cannot start on rank %d (%.20s): %.*s", m->rank, m->hostname,
			 (int)sizeof(ci->unable) - 1, ci->unable);
	if (ci->bound[0] && (!r->bound[0] || ci->unable[0]))
		snprintf(r->bound, sizeof(r->bound), "rank %d cannot be handed to NCCL: %.*s",
			 m->rank, (int)sizeof(ci->bound) - 1, ci->bound);
	if (!r->unable[0] || !r->bound[0])
		return 0;
	snprintf(why, bytes, "%s; %.70s", r->unable, r->bound);
	return -EOPNOTSUPP;
}

/*
 * Returns a member whose settings count, or NULL if there is none yet. Ranks whose daemon cannot
 * start do not count.
 */
static const struct df_member *able_member(const struct df_rdv *r)
{
	int i;

	for (i = 0; i < r->nranks; i++)
		if (r->members[i].proc && !r->members[i].unable)
			return &r->members[i];
	return NULL;
}

static void checkin(struct df_rdv_end *end, const struct df_checkin *ci)
{
	const struct df_member *m = &ci->member, *one;
	struct df_rdv *r = end->rdv;
	char why[240] = "";
	int error = -EPROTO;

	if (!r->nranks && first_checkin(r, ci)) {
		end_send(end, DF_FRAME_RDV_ERROR,
			 &(struct df_rdv_error){.error = -EPROTO, .reason = "an invalid check-in"},
			 sizeof(struct df_rdv_error));
		return;
	}
	if (r->fail_error)
		return;
	one = m->unable ? NULL : able_member(r);
	end->nr_checkins++;
	if (m->version != DF_CTL_WIRE_VERSION)
		snprintf(why, sizeof(why),
			 "rank %d on %.63s (pid %u) has version 0x%x of dfshim's protocol, the "
			 "rendezvous has 0x%x",
			 m->rank, m->hostname, m->pid, m->version, DF_CTL_WIRE_VERSION);
	else if (ci->nranks != r->nranks || ci->nr_ids != r->nr_ids)
		snprintf(why, sizeof(why),
			 "rank %d on %.63s (pid %u) says %d ranks and %d ids, others say %d and %d",
			 m->rank, m->hostname, m->pid, ci->nranks, ci->nr_ids, r->nranks,
			 r->nr_ids);
	else if (m->rank < 0 || m->rank >= r->nranks)
		snprintf(why, sizeof(why), "rank %d of %d does not exist", m->rank, r->nranks);
	else if (df_id_hash(ci->id0) != r->id_hash)
		snprintf(why, sizeof(why), "rank %d on %.63s (pid %u) has another first id",
			 m->rank, m->hostname, m->pid);
	else if (!r->relay && r->members[m->rank].proc)
		snprintf(why, sizeof(why),
			 "rank %d joined twice: from %.63s (pid %u) and from %.63s (pid %u)",
			 m->rank, r->members[m->rank].hostname, r->members[m->rank].pid,
			 m->hostname, m->pid);
	else if (one && one->settings != m->settings)
		snprintf(why, sizeof(why),
			 "rank %d and rank %d have different settings of slots or programs "
			 "(DFSHIM_SLOTS, DFSHIM_SLOT_KB, DFSHIM_ALGO)",
			 one->rank, m->rank);
	else if (r->state != RDV_OPEN || r->nr_in >= r->nranks)
		snprintf(why, sizeof(why), "rank %d joined when all %d ranks had joined already",
			 m->rank, r->nranks);
	else
		error = check_limits(r, ci, why, sizeof(why));
	if (why[0]) {
		rdv_fail(r, error, why);
		return;
	}
	take_member(r, ci, r->relay ? r->nr_in : m->rank);
	if (r->relay && r->up.open)
		df_rdv_up_send(&r->up, DF_FRAME_RDV_CHECKIN, ci, sizeof(*ci));
}

int df_rdv_say(struct df_rdv_end *end, unsigned type, const void *data, size_t bytes)
{
	const struct df_rdv_error *e = data;
	struct df_rdv *r = end->rdv;

	if (r->state >= RDV_CLOSED) {
		end_send(end, DF_FRAME_RDV_ERROR, &r->error, sizeof(r->error));
		return 0;
	}
	switch (type) {
	case DF_FRAME_RDV_CHECKIN:
		if (bytes != sizeof(struct df_checkin))
			return -EPROTO;
		checkin(end, data);
		break;
	case DF_FRAME_RDV_ACK:
		if (r->state == RDV_TABLE && end->nr_checkins && !end->acked && r->nr_acks >= 0) {
			end->acked = 1;
			r->nr_acks++;
		}
		break;
	case DF_FRAME_RDV_ERROR:
		if (bytes != sizeof(*e))
			return -EPROTO;
		if (end->nr_checkins)
			rdv_fail(r, e->error < 0 ? e->error : -EPROTO, e->reason);
		break;
	default:
		return -EPROTO;
	}
	rdv_settle(r);
	return 0;
}

void df_rdv_detach(struct df_rdv_end *end, int error, const char *why)
{
	struct df_rdv *r = end->rdv;

	end->dead = 1;
	end->link = NULL;
	if (end->up)
		end->up->end = NULL;
	end->up = NULL;
	if (end->nr_checkins && why)
		rdv_fail(r, error, why);
	rdv_settle(r);
}

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
		rdv_fail(r, -EPROTO, "a rank that does not run under dfshim tried to join");
		rdv_settle(r);
	}
}

/* ---- open, status ---------------------------------------------------------------------------- */

/*
 * Finished sessions are kept, so that a process that joins late gets the reason. From this number
 * of sessions on, open ones included, each new one replaces the oldest finished one.
 */
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
	/* An event that was handled in the same turn may have closed it. */
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
		rdv_send_all(r, DF_FRAME_RDV_STATUS, ranks, (size_t)nr * sizeof(*ranks));
		rdv_settle(r);
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
