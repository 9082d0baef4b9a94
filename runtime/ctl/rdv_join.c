/*
 * The joining side of the rendezvous. All local ranks that join by one id share a df_join. It has
 * one way (df_rdv_up) to each session that serves one of them, takes the member table from the
 * first that answers, makes its share of the overlay's merges, and releases the callers together. A
 * rank that gives up informs the session, so that no rank waits for it. Guarded by the control
 * plane's lock.
 */
#include "runtime/ctl/rdv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/ctl/attach.h"
#include "runtime/ctl/tree.h"
#include "runtime/dfshim.h"

#define MERGE_RETRY_NS DF_NS_PER_S

enum join_state { JOIN_WAIT, JOIN_TABLE, JOIN_GO, JOIN_FAILED };

struct join_rank {
	struct join_rank *next;
	struct df_checkin checkin;
	int up;
};

struct df_join {
	UT_hash_handle hh;
	uint64_t nonce, id_hash;
	uint64_t token; /* token of the merge */
	int hashed;	/* whether it is in the table of joins */
	int refs;	/* number of callers */
	enum join_state state;
	int error;
	char reason[240];
	int nranks, nr_ids;
	unsigned char (*ids)[128];
	struct df_rdv_up *ups;
	uint8_t *started;
	struct join_rank *ranks;
	struct df_group *group;
	struct df_list waiters;
	uint64_t merge_at;
	struct df_member merge_with;
	int merging, merged;
	int nr_unreached; /* attempts to merge that could not connect */
	int32_t missing[DF_CTL_MISSING_MAX];
	int nr_missing;
};

/* ---- a join ---------------------------------------------------------------------------------- */

static void join_unhash(struct df_join *j)
{
	if (j->hashed)
		HASH_DEL(df_ctl.joins, j);
	j->hashed = 0;
}

static void join_stop_ups(struct df_join *j)
{
	int i;

	for (i = 0; i < j->nr_ids; i++)
		if (j->started[i])
			df_rdv_up_stop(&j->ups[i]);
}

static void join_fail(struct df_join *j, int error, const char *reason)
{
	if (j->state >= JOIN_GO)
		return;
	j->state = JOIN_FAILED;
	j->error = error;
	snprintf(j->reason, sizeof(j->reason), "%s", reason);
	join_unhash(j);
	df_waiters_wake(&j->waiters);
	join_stop_ups(j);
}

/* Fails the join from this side. The sessions inform the other processes. */
static void join_abandon(struct df_join *j, int error, const char *reason)
{
	struct df_rdv_error e = {.error = error};
	int i;

	if (j->state >= JOIN_GO)
		return;
	snprintf(e.reason, sizeof(e.reason), "%s", reason);
	for (i = 0; i < j->nr_ids; i++)
		if (j->started[i] && j->ups[i].open)
			df_rdv_up_send(&j->ups[i], DF_FRAME_RDV_ERROR, &e, sizeof(e));
	join_fail(j, error, reason);
}

static void join_opened(struct df_rdv_up *up)
{
	struct df_join *j = up->owner;
	struct join_rank *r;
	int which = (int)(up - j->ups);

	for (r = j->ranks; r && up->open; r = r->next)
		if (r->up == which)
			df_rdv_up_send(up, DF_FRAME_RDV_CHECKIN, &r->checkin, sizeof(r->checkin));
}

/* A session gets one acknowledgement, when it has sent its table and the overlay is joined. */
static void join_ack_up(struct df_join *j, struct df_rdv_up *up)
{
	if (j->state != JOIN_TABLE || !j->merged || !up->tabled)
		return;
	up->tabled = 0;
	df_rdv_up_send(up, DF_FRAME_RDV_ACK, NULL, 0);
}

static void join_ack(struct df_join *j)
{
	int i;

	j->merge_at = 0;
	j->merging = 0;
	j->merged = 1;
	for (i = 0; i < j->nr_ids; i++)
		join_ack_up(j, &j->ups[i]);
}

/*
 * The parts of the overlay that contain members, in the order of their first ranks, become a tree:
 * part i attaches to part (i - 1) / k. The process of a part's first rank starts its attachment.
 */
static void join_merge(struct df_join *j, const struct df_member *members, const uint64_t *parts)
{
	int i, n = 0, at, *first = malloc((size_t)j->nranks * sizeof(*first));
	struct part_of {
		UT_hash_handle hh;
		uint64_t part;
	} *known = NULL, *table, *p;

	table = calloc((size_t)j->nranks, sizeof(*table));
	if (!first || !table) {
		free(first);
		free(table);
		join_abandon(j, -ENOMEM, "no memory");
		return;
	}
	for (i = 0, at = -1; i < j->nranks; i++) {
		HASH_FIND(hh, known, &parts[i], sizeof(parts[i]), p);
		if (p)
			continue;
		table[n].part = parts[i];
		HASH_ADD(hh, known, part, sizeof(uint64_t), &table[n]);
		if (n && members[i].proc == df_ctl.self.proc && at < 0) {
			at = n;
			j->merge_with = members[first[(n - 1) / df_tree_k]];
		}
		first[n++] = i;
	}
	HASH_CLEAR(hh, known);
	free(table);
	free(first);
	if (at < 0) {
		join_ack(j);
		return;
	}
	j->merging = 1;
	j->merge_at = df_now_ns() + MERGE_RETRY_NS;
	df_ctl_timer(j->merge_at);
	df_tree_merge(&j->merge_with, j->token);
}

static void join_table(struct df_join *j, const void *data, size_t bytes)
{
	const struct df_rdv_table *t = data;
	const struct df_key *keys = (const struct df_key *)(t + 1);
	size_t first = df_rdv_table_secret((uint32_t)j->nranks);
	struct df_member *members;
	const struct join_rank *r;
	int i, ret;

	if (bytes < sizeof(*t) || t->nranks != (uint32_t)j->nranks ||
	    bytes != first + (size_t)t->nranks * (sizeof(*members) + 8)) {
		join_abandon(j, -EPROTO, "the rendezvous sent an invalid table");
		return;
	}
	members = malloc((size_t)j->nranks * sizeof(*members));
	if (!members) {
		join_abandon(j, -ENOMEM, "no memory");
		return;
	}
	memcpy(members, (const char *)data + first, (size_t)j->nranks * sizeof(*members));
	for (i = 0; i < j->nranks; i++)
		members[i].key = keys[i];
	for (r = j->ranks; r; r = r->next)
		if (members[r->checkin.member.rank].proc != df_ctl.self.proc)
			break;
	ret = r ? -EPROTO : df_group_get(t->hash, members, j->nranks, &j->group);
	if (ret) {
		join_abandon(j, ret,
			     r ? "the rendezvous sent a table without us"
			       : "no memory, or the id is in use already");
	} else {
		j->state = JOIN_TABLE;
		join_merge(j, members,
			   (const uint64_t *)((const char *)data + first +
					      (size_t)j->nranks * sizeof(*members)));
	}
	free(members);
}

static void join_input(struct df_rdv_up *up, unsigned type, const void *data, size_t bytes)
{
	const struct df_rdv_error *e = data;
	struct df_join *j = up->owner;

	switch (type) {
	case DF_FRAME_RDV_TABLE:
		up->tabled = 1;
		if (j->state == JOIN_WAIT)
			join_table(j, data, bytes);
		else
			join_ack_up(j, up);
		break;
	case DF_FRAME_RDV_GO:
		if (j->state != JOIN_TABLE)
			break;
		j->state = JOIN_GO;
		join_unhash(j);
		df_waiters_wake(&j->waiters);
		join_stop_ups(j);
		break;
	case DF_FRAME_RDV_STATUS:
		j->nr_missing = (int)DF_MIN(bytes / 4, (size_t)DF_CTL_MISSING_MAX);
		memcpy(j->missing, data, (size_t)j->nr_missing * 4);
		break;
	case DF_FRAME_RDV_ERROR:
		if (bytes == sizeof(*e))
			join_fail(j, e->error < 0 ? e->error : -EPROTO, e->reason);
		else
			join_fail(j, -EPROTO, "the rendezvous failed");
		break;
	default:
		break;
	}
}

static void join_up_failed(struct df_rdv_up *up, int error, const char *reason)
{
	join_abandon(up->owner, error, reason);
}

void df_join_merged(uint64_t token)
{
	struct df_join *j, *tmp;

	HASH_ITER(hh, df_ctl.joins, j, tmp)
	if (j->merging && j->token == token)
		join_ack(j);
}

/*
 * The refusing process may have died. Its neighbours report a death better than this join could, so
 * the join tries once more.
 */
void df_join_unreached(uint64_t token, int error, const char *text)
{
	struct df_join *j, *tmp;

	HASH_ITER(hh, df_ctl.joins, j, tmp)
	if (j->merging && j->token == token && (error == -ETIMEDOUT || j->nr_unreached++)) {
		join_abandon(j, -ECONNRESET, text);
		return;
	}
}

static void join_no_file(struct df_join *j)
{
	const struct df_member *m = &j->ranks->checkin.member;
	char why[240];

	snprintf(why, sizeof(why), "rank %d on %.63s (pid %u) has no file descriptor left", m->rank,
		 m->hostname, m->pid);
	join_abandon(j, -EMFILE, why);
}

static int has_file(void)
{
	int fd = fcntl(df_ctl.epoll_fd, F_DUPFD_CLOEXEC, 0);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

uint64_t df_join_timers(uint64_t now)
{
	uint64_t next = 0, t, give_up = df_ctl.no_file_since + DF_NO_FILE_NS;
	struct df_join *j, *tmp;
	int i;

	if (df_ctl.no_file_since && give_up > now)
		next = give_up;
	else if (df_ctl.no_file_since && has_file())
		df_ctl.no_file_since = 0;
	HASH_ITER(hh, df_ctl.joins, j, tmp)
	{
		for (i = 0; i < j->nr_ids && j->hashed; i++) {
			t = j->started[i] ? df_rdv_up_timer(&j->ups[i], now) : 0;
			if (t)
				next = next ? DF_MIN(next, t) : t;
		}
		/* A rank that could not get a descriptor has given up and will not join. */
		if (j->state < JOIN_GO && j->ranks && df_ctl.no_file_since && give_up <= now) {
			join_no_file(j);
			continue;
		}
		if (j->hashed && j->merging) {
			if (j->merge_at <= now) {
				j->merge_at = now + MERGE_RETRY_NS;
				df_tree_merge(&j->merge_with, j->token);
			}
			if (j->merge_at)
				next = next ? DF_MIN(next, j->merge_at) : j->merge_at;
		}
	}
	return next;
}

static void join_put(struct df_join *j)
{
	struct join_rank *r;

	if (--j->refs)
		return;
	join_unhash(j);
	join_stop_ups(j);
	if (j->group)
		df_group_put(j->group);
	while ((r = j->ranks)) {
		j->ranks = r->next;
		free(r);
	}
	free(j->ids);
	free(j->ups);
	free(j->started);
	free(j);
}

static struct df_join *join_new(int nr_ids, const unsigned char (*ids)[128], int nranks)
{
	struct df_join *j = calloc(1, sizeof(*j));
	struct df_id_tail tail;
	int i;

	if (!j)
		return NULL;
	j->ids = malloc((size_t)nr_ids * 128);
	j->ups = calloc((size_t)nr_ids, sizeof(*j->ups));
	j->started = calloc((size_t)nr_ids, 1);
	if (!j->ids || !j->ups || !j->started) {
		free(j->ids);
		free(j->ups);
		free(j->started);
		free(j);
		return NULL;
	}
	memcpy(j->ids, ids, (size_t)nr_ids * 128);
	for (i = 0; i < nr_ids; i++) {
		df_id_open(ids[i], &tail);
		j->ups[i] = (struct df_rdv_up){.id = tail,
					       .opened = join_opened,
					       .input = join_input,
					       .failed = join_up_failed,
					       .owner = j};
	}
	df_id_open(ids[0], &tail);
	j->nonce = tail.nonce;
	j->id_hash = df_id_hash(ids[0]);
	j->token = df_addr_random();
	j->nranks = nranks;
	j->nr_ids = nr_ids;
	df_list_init(&j->waiters);
	HASH_ADD(hh, df_ctl.joins, nonce, sizeof(j->nonce), j);
	j->hashed = 1;
	return j;
}

static int join_add(struct df_join *j, const struct df_member *me,
		    const struct df_ctl_limits *limits, int nranks)
{
	struct join_rank *r = calloc(1, sizeof(*r)), **last = &j->ranks;
	struct df_rdv_up *up;

	if (!r)
		return -ENOMEM;
	r->up = df_rdv_id_of_rank(me->rank, j->nranks, j->nr_ids);
	r->checkin.nranks = nranks;
	r->checkin.nr_ids = j->nr_ids;
	r->checkin.part = df_tree_root();
	r->checkin.member = *me;
	if (limits && limits->unable) {
		r->checkin.member.unable = 1;
		snprintf(r->checkin.unable, sizeof(r->checkin.unable), "%s", limits->unable);
	}
	if (limits && limits->bound)
		snprintf(r->checkin.bound, sizeof(r->checkin.bound), "%s", limits->bound);
	memcpy(r->checkin.id0, j->ids[0], 128);
	while (*last)
		last = &(*last)->next;
	*last = r;
	up = &j->ups[r->up];
	if (up->id.flags & DF_ID_BY_ADDR && me->rank == 0 && !up->serves) {
		up->serves = 1;
		if (j->started[r->up] && !up->end) {
			/* The way was looking for another process. */
			df_rdv_up_stop(up);
			j->started[r->up] = 0;
		}
	}
	if (!j->started[r->up]) {
		j->started[r->up] = 1;
		df_rdv_up_start(up);
	} else if (up->open) {
		df_rdv_up_send(up, DF_FRAME_RDV_CHECKIN, &r->checkin, sizeof(r->checkin));
	}
	return 0;
}

static int settled(void *arg)
{
	const struct df_join *j = arg;

	return j->state >= JOIN_GO;
}

static struct df_join *join_find(uint64_t nonce)
{
	struct df_join *j;

	HASH_FIND(hh, df_ctl.joins, &nonce, sizeof(nonce), j);
	return j;
}

static int join_locked(int nr_ids, const unsigned char (*ids)[128], int nranks,
		       const struct df_member *me, const struct df_ctl_limits *limits,
		       const uint32_t *stop, struct df_ctl_comm *c, char reason[240])
{
	struct df_id_tail tail;
	struct df_join *j;
	char why[240];
	int ret;

	df_id_open(ids[0], &tail);
	j = join_find(tail.nonce);
	if (!j)
		j = join_new(nr_ids, ids, nranks);
	if (!j)
		return -ENOMEM;
	j->refs++;
	if (j->nr_ids != nr_ids || j->nranks != nranks) {
		snprintf(why, sizeof(why),
			 "rank %d (pid %u) says %d ranks and %d ids, others say %d and %d",
			 me->rank, me->pid, nranks, nr_ids, j->nranks, j->nr_ids);
		join_abandon(j, -EPROTO, why);
	} else {
		ret = join_add(j, me, limits, nranks);
		if (ret) {
			join_put(j);
			return ret;
		}
	}
	ret = df_wait_for(&j->waiters, settled, j, stop);
	if (ret) {
		snprintf(why, sizeof(why), "rank %d on %.63s (pid %u) gave up the rendezvous",
			 me->rank, me->hostname, me->pid);
		join_abandon(j, -ECONNRESET, why);
	} else if (j->state == JOIN_FAILED) {
		ret = j->error;
		snprintf(reason, 240, "%s", j->reason);
	} else {
		c->group = j->group;
		c->rank = me->rank;
		j->group->refs++;
	}
	join_put(j);
	return ret;
}

int df_ctl_join(int nr_ids, const unsigned char (*ids)[128], int nranks, const struct df_member *me,
		const struct df_ctl_limits *limits, const uint32_t *stop, struct df_ctl_comm **out)
{
	struct df_ctl_comm *c;
	struct df_id_tail tail;
	char reason[240] = "";
	int i, ret;

	if (nranks < 1 || me->rank < 0 || me->rank >= nranks || nr_ids < 1 || nr_ids > nranks)
		return -EINVAL;
	for (i = 0; i < nr_ids; i++) {
		if (!df_id_open(ids[i], &tail))
			continue;
		df_warn("rank %d: a process without dfshim made the unique id", me->rank);
		return -EPROTO;
	}
	ret = df_ctl_start();
	c = ret ? NULL : calloc(1, sizeof(*c));
	if (c) {
		df_ctl_lock();
		ret = join_locked(nr_ids, ids, nranks, me, limits, stop, c, reason);
		df_ctl_unlock();
	} else if (!ret) {
		ret = -ENOMEM;
	}
	if (ret) {
		/* If no communicator is watched, the job runs as without dfshim. */
		if (reason[0] && df_id_is_watched(ids[0]))
			df_info("rank %d of %d cannot join the other processes: %s", me->rank,
				nranks, reason);
		else if (reason[0])
			df_warn("rank %d of %d cannot join the communicator: %s", me->rank, nranks,
				reason);
		/* The other processes may not know that this rank has failed. */
		if (!c || df_ctl_lacks(ret)) {
			snprintf(reason, sizeof(reason), "control plane: %s", strerror(-ret));
			df_id_decline(nr_ids, ids, nranks, me->rank, reason);
		}
		free(c);
		return ret;
	}
	*out = c;
	return 0;
}

void df_ctl_rendezvous_at(uint64_t id_hash, char *text, size_t size)
{
	struct df_join *j, *tmp;
	char at[DF_ADDR_TEXT];

	text[0] = '\0';
	df_ctl_lock();
	HASH_ITER(hh, df_ctl.joins, j, tmp)
	if (j->id_hash == id_hash)
		snprintf(text, size, "%s", df_id_at(&j->ups[0].id, at));
	df_ctl_unlock();
}

int df_ctl_missing(uint64_t id_hash, int *ranks, int max)
{
	struct df_join *j, *tmp;
	int i, n;

	if (!df_ctl_start())
		df_ctl_lock();
	else
		return -EIO;
	n = df_rdv_missing(id_hash, ranks, max);
	HASH_ITER(hh, df_ctl.joins, j, tmp)
	{
		if (n >= 0 || j->id_hash != id_hash)
			continue;
		for (n = 0, i = 0; i < j->nr_missing && n < max; i++)
			ranks[n++] = j->missing[i];
	}
	df_ctl_unlock();
	return n;
}
