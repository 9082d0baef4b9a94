/*
 * Gets a link to a parent in the overlay. A process needs one in two cases. A communicator may need
 * two parts of the overlay to become one (a merge: the root of a part makes the merges for all
 * processes of the part, one after the other). Or the parent of the process has ended (a repair).
 * There is one attempt at a time. The process that is asked takes us, redirects us to one of its
 * children, or answers that we are in one part already. Guarded by the control plane's lock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/time.h"
#include "runtime/ctl/accept.h"
#include "runtime/ctl/attach.h"
#include "runtime/ctl/flood.h"
#include "runtime/ctl/rdv.h"
#include "runtime/ctl/tree_int.h"

#define CANDIDATES_MAX 256
#define REDIRECTS_MAX  64
#define REPLY_NS       (5 * DF_NS_PER_S)
#define MERGE_TTL      128
#define AGAIN_NS       (5 * DF_NS_PER_MS)
#define ROUNDS_MAX     9
#define HEIR_NS	       (50 * DF_NS_PER_MS)

static void merge_done(struct merge *m)
{
	if (m->m.asker == df_ctl.self.proc)
		df_join_merged(m->m.token);
	else
		df_flood_send(DF_FLOOD_MERGED, m->m.asker, &m->m.token, 8, NULL, 0);
	free(m);
}

/*
 * The next hop of the attempt is on another node and cannot be reached: reports the reason to the
 * process that asked for the merge.
 */
static void attach_unreached(const char *to, int error)
{
	struct df_unreached u = {.error = error};
	struct merge *m = df_tree.merge;

	if (!m)
		return;
	u.token = m->m.token;
	df_link_why(to, error, u.text, sizeof(u.text));
	if (m->m.asker == df_ctl.self.proc)
		df_join_unreached(u.token, u.error, u.text);
	else
		df_flood_send(DF_FLOOD_UNREACHED, m->m.asker, &u, sizeof(u), NULL, 0);
}

/* Starts the next pending attempt, if this process is a root and no attempt is under way. */
static void attach_next(void);

/* The attempt is over. one: whether we and the target are in one part now. */
static void attach_over(int one)
{
	struct merge *m = df_tree.merge;
	int repaired = df_tree.repairing && df_tree.up.link;

	df_tree.attach = NULL;
	if (!one && df_tree.redirects)
		df_tree.misled = 1;
	if (m) {
		df_tree.merge = NULL;
		if (one)
			merge_done(m);
		else
			free(m); /* the asker will ask again */
	} else if (repaired) {
		df_tree.repairing = 0;
		df_tree.nr_candidates = df_tree.next_candidate = 0;
		df_flood_changed();
	}
	df_tree_answer();
	attach_next();
}

static void attach_to(const struct hop *to);

static int attach_input(struct df_link *link, unsigned type, const void *data, size_t bytes)
{
	const struct tree_reply *r = data;
	struct hop there;

	/* a process that exits refuses us in this way */
	if (type == DF_FRAME_TREE_EXIT)
		return df_tree_exit_input(link, data, bytes);
	if (type != DF_FRAME_TREE_REPLY || bytes != sizeof(*r) || link != df_tree.attach)
		return -EPROTO;
	switch (r->verdict) {
	case TAKEN:
		df_tree.attach = NULL;
		if (df_tree.up.link) { /* impossible: only roots attach */
			df_link_close(link);
			return 0;
		}
		df_tree_link(&df_tree.up, link, &df_tree.target);
		df_tree.path[0] = df_tree.target;
		df_tree.nr_path = 1;
		df_tree_send_path(NULL);
		attach_over(1);
		return 0;
	case GO_THERE:
		there = r->there;
		df_link_finish(link);
		df_tree.attach = NULL;
		if (++df_tree.redirects > REDIRECTS_MAX || there.proc == df_ctl.self.proc ||
		    there.proc == df_tree.left)
			attach_over(there.proc == df_ctl.self.proc);
		else
			attach_to(&there);
		return 0;
	default:
		df_link_finish(link);
		attach_over(r->verdict == ONE_ALREADY);
		return 0;
	}
}

static void attach_closed(struct df_link *link, int error)
{
	if (link != df_tree.attach)
		return;
	/*
	 * A process that accepts the connection but sends nothing may be stopped: do not give up
	 * because of it.
	 */
	if (link->connecting && !link->is_unix)
		attach_unreached(link->who, error);
	attach_over(0);
}

/* The process has accepted the connection. It must also answer, but it may be stopped. */
static void attach_connected(struct df_link *link)
{
	link->deadline_ns = df_now_ns() + REPLY_NS;
	df_ctl_timer(link->deadline_ns);
}

static const struct df_link_ops attach_ops = {.name = "attach",
					      .input = attach_input,
					      .connected = attach_connected,
					      .closed = attach_closed};

static void attach_to(const struct hop *to)
{
	struct hop self = df_tree_self();
	struct df_member m = {.proc = to->proc, .host = to->host, .sock = to->sock, .key = to->key};
	int error;

	memcpy(m.tcp, to->tcp, sizeof(m.tcp));
	m.tcp[sizeof(m.tcp) - 1] = '\0';
	df_tree.target = *to;
	df_tree.attach = df_link_open_member(&m, &attach_ops, NULL, &error);
	if (!df_tree.attach) {
		if (m.host != df_ctl.self.host && !df_ctl_lacks(error))
			attach_unreached(m.tcp[0] ? m.tcp : "another node", error);
		attach_over(0);
		return;
	}
	df_link_send(df_tree.attach, DF_FRAME_TREE_HELLO, &self, sizeof(self), NULL, 0);
	if (!df_tree.attach->connecting)
		attach_connected(df_tree.attach);
}

static void attach_next(void)
{
	struct merge *m;

	if (df_tree.attach || df_tree.again_at || df_ctl.leaving)
		return;
	if (!df_tree.up.link && df_tree.repairing) {
		while (df_tree.next_candidate < df_tree.nr_candidates) {
			const struct hop *to = &df_tree.candidates[df_tree.next_candidate++];

			if (df_tree_is_dead(to->proc) || to->proc == df_ctl.self.proc)
				continue;
			df_tree.redirects = 0;
			attach_to(to);
			return;
		}
		if (df_tree.misled && df_tree.rounds < ROUNDS_MAX) {
			df_tree.again_at = df_now_ns() + (AGAIN_NS << df_tree.rounds++);
			df_ctl_timer(df_tree.again_at);
			return;
		}
		df_tree.repairing = 0;
		df_tree_answer();
	}
	m = df_list_first(&df_tree.merges, struct merge, node);
	if (!m)
		return;
	df_list_del(&m->node);
	if (df_tree.up.link) {
		/* The root makes the merge. */
		df_link_send(df_tree.up.link, DF_FRAME_TREE_MERGE, &m->m, sizeof(m->m), NULL, 0);
		free(m);
		attach_next();
	} else if (m->m.target.proc == df_ctl.self.proc) {
		merge_done(m);
		attach_next();
	} else if (df_tree_is_dead(m->m.target.proc)) {
		free(m);
		attach_next();
	} else {
		df_tree.merge = m;
		df_tree.redirects = 0;
		attach_to(&m->m.target);
	}
}

void df_attach_merge(const struct tree_merge *in)
{
	struct merge *m;

	if (!in->ttl)
		return;
	m = malloc(sizeof(*m));
	if (!m)
		return; /* the process that needs the merge will ask again */
	m->m = *in;
	m->m.ttl--;
	df_list_add_tail(&df_tree.merges, &m->node);
	attach_next();
}

void df_tree_merge(const struct df_member *target, uint64_t token)
{
	struct tree_merge m = {.target = df_tree_hop(target),
			       .asker = df_ctl.self.proc,
			       .token = token,
			       .ttl = MERGE_TTL};

	df_attach_merge(&m);
}

static void add_candidate(const struct hop *h)
{
	int i;

	if (!df_tree.candidates)
		df_tree.candidates = malloc(CANDIDATES_MAX * sizeof(*df_tree.candidates));
	if (!df_tree.candidates || df_tree.nr_candidates == CANDIDATES_MAX ||
	    df_tree_is_dead(h->proc) || h->proc == df_ctl.self.proc || h->proc == df_tree.left)
		return;
	for (i = 0; i < df_tree.nr_candidates; i++)
		if (df_tree.candidates[i].proc == h->proc)
			return;
	df_tree.candidates[df_tree.nr_candidates++] = *h;
}

/* Adds the processes that share a communicator with us. */
static void add_members(void)
{
	struct df_group *g, *tmp;
	struct hop h;
	int i;

	HASH_ITER(hh, df_ctl.groups, g, tmp)
	{
		for (i = 0; i < g->nranks && df_tree.nr_candidates < CANDIDATES_MAX; i++) {
			h = df_tree_hop(&g->members[i]);
			add_candidate(&h);
		}
	}
}

/* path, siblings: copies of what the parent had sent, since those in df_tree are cleared. */
void df_attach_candidates(const struct hop *path, int nr_path, const struct hop *siblings,
			  int nr_siblings, int in_order)
{
	int i;

	df_tree.nr_candidates = df_tree.next_candidate = 0;
	for (i = 1; i < nr_path; i++)
		add_candidate(&path[i]);
	if (nr_path <= 1) {
		/* The parent was the root. Its eldest living child becomes the root. */
		for (i = 0; i < nr_siblings && siblings[i].proc != df_ctl.self.proc; i++)
			add_candidate(&siblings[i]);
		/*
		 * Alternatively the parent had only just lost its own parent, and the overlay is
		 * larger. Then the new root looks for the other parts when the other orphans have
		 * had time to attach. But a parent that exited normally was not looking for a
		 * place. So it was the root, and there are no other parts.
		 */
		if (!df_tree.nr_candidates && in_order)
			return;
		if (!df_tree.nr_candidates)
			df_tree.again_at = df_now_ns() + HEIR_NS;
	}
	add_members();
}

void df_attach_repair(void)
{
	if (df_tree.up.link || df_ctl.leaving)
		return;
	df_tree.repairing = 1;
	df_tree.misled = df_tree.rounds = 0;
	if (df_tree.again_at)
		df_ctl_timer(df_tree.again_at);
	else
		attach_next();
}

static void look_after_cut(void)
{
	df_tree.verify_at = 0;
	if (df_tree.up.link || df_tree.repairing)
		return;
	df_tree.nr_candidates = df_tree.next_candidate = 0;
	add_candidate(&df_tree.verify);
	/*
	 * Two orphans that attached to each other have not found the other parts of the overlay
	 * yet.
	 */
	add_members();
	df_attach_repair();
}

uint64_t df_tree_timers(uint64_t now)
{
	uint64_t next = 0;

	if (df_tree.verify_at && df_tree.verify_at <= now)
		look_after_cut();
	if (df_tree.doubt_at && df_tree.doubt_at <= now)
		df_tree_doubted();
	if (df_tree.again_at && df_tree.again_at <= now) {
		df_tree.again_at = 0;
		df_tree.misled = 0;
		df_tree.next_candidate = 0;
		attach_next();
	}
	if (df_tree.verify_at)
		next = df_tree.verify_at;
	if (df_tree.doubt_at)
		next = next ? DF_MIN(next, df_tree.doubt_at) : df_tree.doubt_at;
	if (df_tree.again_at)
		next = next ? DF_MIN(next, df_tree.again_at) : df_tree.again_at;
	return next;
}
