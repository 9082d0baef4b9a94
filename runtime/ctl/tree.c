/*
 * The overlay of links between processes. Every process has at most one link up and DF_TREE_K links down.
 * A process without a link up is the root of its part. Parts are joined when a communicator with members in
 * both comes about: the root of one attaches below a process of the other; who has no place left names
 * one of its children instead. Each process tells its children the path from itself to the root, which
 * serves two ends: an orphan asks its ancestors, nearest first, to take it in (the children of a dead
 * root turn to the eldest of them, which becomes the root), and two parts that attached to each other at once
 * are found out, because a process sees itself in its own path: then the process with the largest nonce
 * on the circle lets go of its link up.
 *
 * Nothing depends on the shape: floods go over all links and are dropped when seen twice. Guarded by
 * the control plane's lock.
 */
#include "runtime/ctl/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/time.h"
#include "runtime/ctl/link.h"
#include "runtime/ctl/probe.h"
#include "runtime/ctl/rdv.h"

#define PATH_MAX_HOPS  64
#define CANDIDATES_MAX 256
#define REDIRECTS_MAX  64
#define REPLY_NS       (5 * DF_NS_PER_S)
#define VERIFY_NS      (100 * DF_NS_PER_MS)
#define MERGE_TTL      128
#define AGAIN_NS       (5 * DF_NS_PER_MS)
#define ROUNDS_MAX     9
#define HEIR_NS	       (50 * DF_NS_PER_MS)

/* A process and how to reach it. */
struct hop {
	uint64_t proc, host;
	char tcp[64];
};

struct tree_hello {
	struct hop from;
	uint64_t to;
};

enum verdict { TAKEN, GO_THERE, ONE_ALREADY, NOT_ME };

struct tree_reply {
	uint32_t verdict, pad;
	struct hop there;
};

struct tree_path {
	uint32_t nr_hops,
		nr_children; /* parent first, root last; then all children of the parent */
	struct hop hops[];
};

struct tree_merge {
	struct hop target;
	uint64_t asker, token;
	uint64_t ttl;
};

struct peer {
	struct df_link *link;
	struct hop who;
};

struct merge {
	struct df_list node;
	struct tree_merge m;
};

struct corpse {
	UT_hash_handle hh;
	uint64_t proc;
	int in_order;
};

static struct {
	struct peer up, down[DF_TREE_K];
	int nr_down, next_down;
	struct hop path[PATH_MAX_HOPS], siblings[DF_TREE_K];
	int nr_path, nr_siblings;
	/* The attempt to get a link up. */
	struct df_link *attach;
	struct hop target;
	int redirects, repairing;
	struct merge *merge; /* what it is for; NULL: repair */
	struct hop *candidates;
	int nr_candidates, next_candidate;
	/* Somebody lives but named a child that does not: it will notice, we ask again. */
	int misled, rounds;
	uint64_t again_at;
	struct df_list merges; /* waiting */
	/* After a circle was cut: look whether we are still one part. */
	struct hop verify;
	uint64_t verify_at;
	struct corpse *corpses;
	void (*on_death[8])(uint64_t proc);
} tree;

int df_tree_k = DF_TREE_K;

static void attach_next(void);
static void repair(void);

void df_tree_init(void)
{
	memset(&tree.up, 0, sizeof(tree.up));
	tree.nr_down = tree.nr_path = tree.nr_siblings = 0;
	df_list_init(&tree.merges);
}

void df_tree_forget_all(void)
{
	tree.attach = NULL;
	tree.merge = NULL;
	tree.candidates = NULL;
	tree.nr_candidates = tree.next_candidate = 0;
	tree.verify_at = tree.again_at = 0;
	tree.corpses = NULL;
	df_tree_init();
	df_flood_forget_all();
}

static struct hop self_hop(void)
{
	struct hop h = {.proc = df_ctl.self.proc, .host = df_ctl.self.host};

	memcpy(h.tcp, df_ctl.self.tcp, sizeof(h.tcp));
	return h;
}

static struct hop member_hop(const struct df_member *m)
{
	struct hop h = {.proc = m->proc, .host = m->host};

	memcpy(h.tcp, m->tcp, sizeof(h.tcp));
	return h;
}

uint64_t df_tree_root(void)
{
	return tree.nr_path   ? tree.path[tree.nr_path - 1].proc
	       : tree.up.link ? tree.up.who.proc
			      : df_ctl.self.proc;
}

int df_tree_links(void)
{
	return tree.nr_down + !!tree.up.link;
}

int df_tree_is_dead(uint64_t proc)
{
	struct corpse *c;

	HASH_FIND(hh, tree.corpses, &proc, sizeof(proc), c);
	return c != NULL;
}

void df_tree_send_all(const struct df_link *except, unsigned type, const void *a, size_t a_bytes,
		      const void *b, size_t b_bytes)
{
	int i;

	if (tree.up.link && tree.up.link != except)
		df_link_send(tree.up.link, type, a, a_bytes, b, b_bytes);
	for (i = 0; i < tree.nr_down; i++)
		if (tree.down[i].link != except)
			df_link_send(tree.down[i].link, type, a, a_bytes, b, b_bytes);
}

/* ---- paths ------------------------------------------------------------------------------------------- */

static void send_path(struct df_link *only)
{
	struct hop hops[PATH_MAX_HOPS + 1 + DF_TREE_K];
	struct tree_path p;
	int i, n = 0;

	hops[n++] = self_hop();
	for (i = 0; i < tree.nr_path && n < PATH_MAX_HOPS; i++)
		hops[n++] = tree.path[i];
	p.nr_hops = (uint32_t)n;
	for (i = 0; i < tree.nr_down; i++)
		hops[n++] = tree.down[i].who;
	p.nr_children = (uint32_t)tree.nr_down;
	for (i = 0; i < tree.nr_down; i++)
		if (!only || tree.down[i].link == only)
			df_link_send(tree.down[i].link, DF_FRAME_TREE_PATH, &p, sizeof(p), hops,
				     (size_t)n * sizeof(hops[0]));
}

/* The link up is gone: we are the root of what hangs below us. */
static void lose_up(void)
{
	tree.up.link = NULL;
	tree.nr_path = 0;
	tree.nr_siblings = 0;
	send_path(NULL);
}

static void cut(uint64_t parent)
{
	if (!tree.up.link || tree.up.who.proc != parent)
		return;
	tree.verify = tree.up.who;
	tree.verify_at = df_now_ns() + VERIFY_NS + df_addr_random() % VERIFY_NS;
	df_ctl_timer(tree.verify_at);
	df_link_send(tree.up.link, DF_FRAME_TREE_UNLINK, NULL, 0, NULL, 0);
	df_link_finish(tree.up.link);
	lose_up();
}

void df_tree_cut(uint64_t parent)
{
	cut(parent);
}

static int path_input(const void *data, size_t bytes)
{
	const struct tree_path *p = data;
	const struct hop *victim;
	uint32_t i, n;

	if (bytes < sizeof(*p) || p->nr_hops < 1 || p->nr_hops > PATH_MAX_HOPS ||
	    p->nr_children > DF_TREE_K ||
	    bytes != sizeof(*p) + (size_t)(p->nr_hops + p->nr_children) * sizeof(struct hop))
		return -EPROTO;
	for (n = 0; n < p->nr_hops; n++)
		if (p->hops[n].proc == df_ctl.self.proc)
			break;
	if (n < p->nr_hops) {
		/* A circle: hops 0..n. Everybody on it finds the same victim. */
		for (i = 0, victim = &p->hops[n]; i < n; i++)
			if (p->hops[i].proc > victim->proc)
				victim = &p->hops[i];
		i = (uint32_t)(victim - p->hops);
		if (i == n)
			cut(p->hops[0].proc);
		else
			df_flood_send(DF_FLOOD_CUT, victim->proc, &p->hops[i + 1].proc, 8, NULL, 0);
		return 0;
	}
	tree.nr_siblings = (int)p->nr_children;
	memcpy(tree.siblings, p->hops + p->nr_hops, p->nr_children * sizeof(struct hop));
	if (tree.nr_path == (int)p->nr_hops &&
	    !memcmp(tree.path, p->hops, p->nr_hops * sizeof(struct hop)))
		return 0;
	tree.nr_path = (int)p->nr_hops;
	memcpy(tree.path, p->hops, p->nr_hops * sizeof(struct hop));
	send_path(NULL);
	return 0;
}

/* ---- links -------------------------------------------------------------------------------------------- */

static void send_dead(struct df_link *link)
{
	uint64_t dead[1024];
	struct corpse *c, *tmp;
	size_t n = 0;

	HASH_ITER(hh, tree.corpses, c, tmp)
	if (!c->in_order && n < DF_ARRAY_LEN(dead))
		dead[n++] = c->proc;
	if (n)
		df_link_send(link, DF_FRAME_TREE_DEAD, dead, n * 8, NULL, 0);
}

static int dead_input(const void *data, size_t bytes)
{
	const uint64_t *dead = data;
	size_t i;

	if (bytes % 8)
		return -EPROTO;
	for (i = 0; i < bytes / 8; i++)
		if (dead[i] != df_ctl.self.proc)
			df_tree_death(dead[i], 0);
	return 0;
}

static void merge_input(const struct tree_merge *m);

static struct peer *peer_of(const struct df_link *link)
{
	int i;

	if (tree.up.link == link)
		return &tree.up;
	for (i = 0; i < tree.nr_down; i++)
		if (tree.down[i].link == link)
			return &tree.down[i];
	return NULL;
}

static void drop_down(struct peer *p)
{
	int i = (int)(p - tree.down);

	/* The order of age is kept: the eldest is the heir. */
	memmove(&tree.down[i], &tree.down[i + 1],
		(size_t)(tree.nr_down - i - 1) * sizeof(tree.down[0]));
	tree.nr_down--;
	send_path(NULL);
}

static int tree_input(struct df_link *link, unsigned type, const void *data, size_t bytes)
{
	struct peer *p = peer_of(link);

	if (!p)
		return -EPROTO;
	switch (type) {
	case DF_FRAME_TREE_PATH:
		return p == &tree.up ? path_input(data, bytes) : -EPROTO;
	case DF_FRAME_TREE_MERGE:
		if (bytes != sizeof(struct tree_merge))
			return -EPROTO;
		merge_input(data);
		return 0;
	case DF_FRAME_TREE_DEAD:
		return dead_input(data, bytes);
	case DF_FRAME_TREE_UNLINK:
		df_link_finish(link);
		if (p != &tree.up) {
			drop_down(p);
		} else {
			lose_up();
			repair();
		}
		return 0;
	case DF_FRAME_FLOOD:
		return df_flood_input(link, data, bytes);
	default:
		return -EPROTO;
	}
}

static void tree_closed(struct df_link *link, int error)
{
	struct peer *p = peer_of(link);
	uint64_t proc;

	(void)error;
	if (!p)
		return;
	proc = p->who.proc;
	df_tree_death(proc, 0);
}

static const struct df_link_ops tree_ops = {
	.name = "tree", .input = tree_input, .closed = tree_closed};

static void link_peer(struct peer *p, struct df_link *link, const struct hop *who)
{
	p->link = link;
	p->who = *who;
	link->tx_nonce = who->proc;
	link->rx_nonce = df_ctl.self.proc;
	link->tx_proc = who->proc;
	df_link_adopt(link, &tree_ops, NULL);
	send_dead(link);
}

/* Somebody wants to hang below us. */
int df_tree_introduce(struct df_link *link, const void *data, size_t bytes)
{
	const struct tree_hello *h = data;
	struct tree_reply r = {.verdict = TAKEN};
	int i;

	if (bytes != sizeof(*h) || h->to != df_ctl.self.proc || h->from.proc == df_ctl.self.proc)
		return -EPROTO;
	link->tx_nonce = h->from.proc;
	if (df_ctl.leaving || df_tree_is_dead(h->from.proc)) {
		r.verdict = NOT_ME;
	} else if (df_tree_root() == h->from.proc) {
		r.verdict = ONE_ALREADY;
	} else {
		for (i = 0; i < tree.nr_path; i++)
			if (tree.path[i].proc == h->from.proc)
				r.verdict = ONE_ALREADY;
		for (i = 0; i < tree.nr_down; i++)
			if (tree.down[i].who.proc == h->from.proc)
				r.verdict = ONE_ALREADY;
	}
	if (r.verdict == TAKEN && tree.nr_down >= df_tree_k) {
		r.verdict = GO_THERE;
		tree.next_down = (tree.next_down + 1) % tree.nr_down;
		r.there = tree.down[tree.next_down].who;
	}
	df_link_send(link, DF_FRAME_TREE_REPLY, &r, sizeof(r), NULL, 0);
	if (r.verdict != TAKEN) {
		df_link_finish(link);
		return 0;
	}
	link_peer(&tree.down[tree.nr_down++], link, &h->from);
	send_path(NULL);
	return 0;
}

/* ---- getting a link up ---------------------------------------------------------------------------------- */

static void merge_done(struct merge *m)
{
	if (m->m.asker == df_ctl.self.proc)
		df_join_merged(m->m.token);
	else
		df_flood_send(DF_FLOOD_MERGED, m->m.asker, &m->m.token, 8, NULL, 0);
	free(m);
}

/* The attempt is over. one: we are one part with the target now. */
static void attach_over(int one)
{
	struct merge *m = tree.merge;
	int repaired = tree.repairing && tree.up.link;

	tree.attach = NULL;
	if (!one && tree.redirects)
		tree.misled = 1;
	if (m) {
		tree.merge = NULL;
		if (one)
			merge_done(m);
		else
			free(m); /* who asked asks again */
	} else if (repaired) {
		tree.repairing = 0;
		tree.nr_candidates = tree.next_candidate = 0;
		df_flood_send(DF_FLOOD_REPAIR, 0, NULL, 0, NULL, 0);
		df_ctl.nr_repairs++;
		df_gather_ask(df_now_ns(), 1);
		df_flood_repeat();
	}
	attach_next();
}

static void attach_to(const struct hop *to);

static int attach_input(struct df_link *link, unsigned type, const void *data, size_t bytes)
{
	const struct tree_reply *r = data;
	struct hop there;

	if (type != DF_FRAME_TREE_REPLY || bytes != sizeof(*r) || link != tree.attach)
		return -EPROTO;
	switch (r->verdict) {
	case TAKEN:
		tree.attach = NULL;
		if (tree.up.link) { /* cannot be: only roots attach */
			df_link_close(link);
			return 0;
		}
		link_peer(&tree.up, link, &tree.target);
		tree.path[0] = tree.target;
		tree.nr_path = 1;
		send_path(NULL);
		attach_over(1);
		return 0;
	case GO_THERE:
		there = r->there;
		df_link_finish(link);
		tree.attach = NULL;
		if (++tree.redirects > REDIRECTS_MAX || there.proc == df_ctl.self.proc)
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
	(void)error;
	if (link == tree.attach)
		attach_over(0);
}

static const struct df_link_ops attach_ops = {
	.name = "attach", .input = attach_input, .closed = attach_closed};

static void attach_to(const struct hop *to)
{
	struct tree_hello h = {.from = self_hop(), .to = to->proc};
	struct df_member m = {.proc = to->proc, .host = to->host};
	int error;

	snprintf(m.unix_name, sizeof(m.unix_name), "dfshim-%016llx", (unsigned long long)to->proc);
	memcpy(m.tcp, to->tcp, sizeof(m.tcp));
	m.tcp[sizeof(m.tcp) - 1] = '\0';
	tree.target = *to;
	tree.attach = df_link_open_member(&m, &attach_ops, NULL, &error);
	if (!tree.attach) {
		attach_over(0);
		return;
	}
	tree.attach->tx_nonce = to->proc;
	tree.attach->rx_nonce = df_ctl.self.proc;
	df_link_send(tree.attach, DF_FRAME_TREE_HELLO, &h, sizeof(h), NULL, 0);
	tree.attach->deadline_ns = df_now_ns() + REPLY_NS;
	df_ctl_timer(tree.attach->deadline_ns);
}

/* Starts what is waiting, if we are a root and nothing is on its way. */
static void attach_next(void)
{
	struct merge *m;

	if (tree.attach || tree.again_at || df_ctl.leaving)
		return;
	if (!tree.up.link && tree.repairing) {
		while (tree.next_candidate < tree.nr_candidates) {
			const struct hop *to = &tree.candidates[tree.next_candidate++];

			if (df_tree_is_dead(to->proc) || to->proc == df_ctl.self.proc)
				continue;
			tree.redirects = 0;
			attach_to(to);
			return;
		}
		if (tree.misled && tree.rounds < ROUNDS_MAX) {
			tree.again_at = df_now_ns() + (AGAIN_NS << tree.rounds++);
			df_ctl_timer(tree.again_at);
			return;
		}
		tree.repairing = 0;
	}
	m = df_list_first(&tree.merges, struct merge, node);
	if (!m)
		return;
	df_list_del(&m->node);
	if (tree.up.link) {
		/* The root does it. */
		df_link_send(tree.up.link, DF_FRAME_TREE_MERGE, &m->m, sizeof(m->m), NULL, 0);
		free(m);
		attach_next();
	} else if (m->m.target.proc == df_ctl.self.proc) {
		merge_done(m);
		attach_next();
	} else if (df_tree_is_dead(m->m.target.proc)) {
		free(m);
		attach_next();
	} else {
		tree.merge = m;
		tree.redirects = 0;
		attach_to(&m->m.target);
	}
}

static void merge_input(const struct tree_merge *in)
{
	struct merge *m;

	if (!in->ttl)
		return;
	m = malloc(sizeof(*m));
	if (!m)
		return; /* it will be asked for again */
	m->m = *in;
	m->m.ttl--;
	df_list_add_tail(&tree.merges, &m->node);
	attach_next();
}

void df_tree_merge(const struct df_member *target, uint64_t token)
{
	struct tree_merge m = {.target = member_hop(target),
			       .asker = df_ctl.self.proc,
			       .token = token,
			       .ttl = MERGE_TTL};

	merge_input(&m);
}

static void add_candidate(const struct hop *h)
{
	int i;

	if (!tree.candidates)
		tree.candidates = malloc(CANDIDATES_MAX * sizeof(*tree.candidates));
	if (!tree.candidates || tree.nr_candidates == CANDIDATES_MAX || df_tree_is_dead(h->proc) ||
	    h->proc == df_ctl.self.proc)
		return;
	for (i = 0; i < tree.nr_candidates; i++)
		if (tree.candidates[i].proc == h->proc)
			return;
	tree.candidates[tree.nr_candidates++] = *h;
}

/* We have lost our parent; the path and siblings it told us are still known. */
static void collect_candidates(const struct hop *path, int nr_path, const struct hop *siblings,
			       int nr_siblings)
{
	struct df_group *g, *tmp;
	struct hop h;
	int i;

	tree.nr_candidates = tree.next_candidate = 0;
	for (i = 1; i < nr_path; i++)
		add_candidate(&path[i]);
	if (nr_path <= 1) {
		/* It was the root. The eldest of its children that lives follows it. */
		for (i = 0; i < nr_siblings && siblings[i].proc != df_ctl.self.proc; i++)
			add_candidate(&siblings[i]);
		/*
		 * Or it had only just lost its own parent, and there is more of the overlay. The heir looks
		 * for that when the others have had the time to come.
		 */
		if (!tree.nr_candidates)
			tree.again_at = df_now_ns() + HEIR_NS;
	}
	HASH_ITER(hh, df_ctl.groups, g, tmp)
	{
		for (i = 0; i < g->nranks && tree.nr_candidates < CANDIDATES_MAX; i++) {
			h = member_hop(&g->members[i]);
			add_candidate(&h);
		}
	}
}

static void repair(void)
{
	if (tree.up.link || df_ctl.leaving)
		return;
	tree.repairing = 1;
	tree.misled = tree.rounds = 0;
	if (tree.again_at)
		df_ctl_timer(tree.again_at);
	else
		attach_next();
}

/* ---- death ------------------------------------------------------------------------------------------------ */

int df_ctl_is_dead(uint64_t proc)
{
	int ret;

	df_ctl_lock();
	ret = df_tree_is_dead(proc);
	df_ctl_unlock();
	return ret;
}

void df_ctl_on_death(void (*fn)(uint64_t proc))
{
	size_t i;

	df_ctl_lock();
	for (i = 0; i < DF_ARRAY_LEN(tree.on_death); i++) {
		if (tree.on_death[i] && tree.on_death[i] != fn)
			continue;
		tree.on_death[i] = fn;
		break;
	}
	df_ctl_unlock();
}

void df_tree_tell_death(uint64_t proc)
{
	void (*fns[DF_ARRAY_LEN(tree.on_death)])(uint64_t);
	size_t i;

	df_ctl_lock();
	memcpy(fns, tree.on_death, sizeof(fns));
	df_ctl_unlock();
	for (i = 0; i < DF_ARRAY_LEN(fns); i++)
		if (fns[i])
			fns[i](proc);
}

void df_tree_death(uint64_t proc, int in_order)
{
	struct hop path[PATH_MAX_HOPS], siblings[DF_TREE_K];
	struct df_link *link;
	struct corpse *c;
	int i, nr_path, nr_siblings, member;

	if (df_ctl.leaving || proc == df_ctl.self.proc)
		return;
	HASH_FIND(hh, tree.corpses, &proc, sizeof(proc), c);
	if (!c) {
		c = calloc(1, sizeof(*c));
		if (c) {
			c->proc = proc;
			c->in_order = in_order;
			HASH_ADD(hh, tree.corpses, proc, sizeof(proc), c);
		}
		/* An exit has been flooded by who exits. */
		if (!in_order) {
			df_flood_send(DF_FLOOD_DEATH, 0, &proc, 8, NULL, 0);
			df_probe_soon();
		}
		member = df_group_death(proc, in_order);
		df_flood_queue_death(proc, in_order, member);
	}
	for (i = 0; i < tree.nr_down; i++) {
		if (tree.down[i].who.proc != proc)
			continue;
		link = tree.down[i].link;
		drop_down(&tree.down[i]);
		df_link_finish(link);
		break;
	}
	if (tree.up.link && tree.up.who.proc == proc) {
		link = tree.up.link;
		nr_path = tree.nr_path;
		nr_siblings = tree.nr_siblings;
		memcpy(path, tree.path, sizeof(path));
		memcpy(siblings, tree.siblings, sizeof(siblings));
		lose_up();
		df_link_finish(link);
		collect_candidates(path, nr_path, siblings, nr_siblings);
		repair();
	}
}

static void look_after_cut(void)
{
	tree.verify_at = 0;
	if (tree.up.link || tree.repairing)
		return;
	tree.nr_candidates = tree.next_candidate = 0;
	add_candidate(&tree.verify);
	repair();
}

uint64_t df_tree_timers(uint64_t now)
{
	uint64_t next = 0;

	if (tree.verify_at && tree.verify_at <= now)
		look_after_cut();
	if (tree.again_at && tree.again_at <= now) {
		tree.again_at = 0;
		tree.misled = 0;
		tree.next_candidate = 0;
		attach_next();
	}
	if (tree.verify_at)
		next = tree.verify_at;
	if (tree.again_at)
		next = next ? DF_MIN(next, tree.again_at) : tree.again_at;
	return next;
}
