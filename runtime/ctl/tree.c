/*
 * The overlay of links between processes. Every process has at most one link up and DF_TREE_K links
 * down. A process without a link up is the root of its part. Two parts are joined when a
 * communicator has members in both: the root of one attaches below a process of the other; a
 * process that has no place left names one of its children instead. Each process sends its children
 * the path from itself to the root. The path has two uses. An orphan asks its ancestors, nearest
 * first, to take it in; the children of a dead root turn to the eldest of them, which becomes the
 * root. And if two parts attach to each other at once, which makes a cycle, a process finds itself
 * in its own path: then the process on the cycle with the highest number cuts its link up.
 *
 * Nothing depends on the shape: floods go over all links, and duplicates are dropped. Floods also
 * go over the link of a process that has said goodbye, until it has ended: it is no longer a parent
 * or child, but other processes may have no other route yet. Guarded by the control plane's lock.
 */
#include "runtime/ctl/tree.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/time.h"
#include "runtime/ctl/attach.h"
#include "runtime/ctl/flood.h"
#include "runtime/ctl/link.h"
#include "runtime/ctl/probe.h"
#include "runtime/ctl/tree_int.h"

#define VERIFY_NS (100 * DF_NS_PER_MS)
/*
 * How long a parent may take for a sign of life. On this machine the state of the process shows
 * whether it is stopped.
 */
#define NEAR_NS (500 * DF_NS_PER_MS)
#define FAR_NS	(3 * DF_NS_PER_S)
/* longer than the time in which any process looks for a new place */
#define RECENT_NS (30 * DF_NS_PER_S)

struct df_tree df_tree;
int df_tree_k = DF_TREE_K;

void df_tree_init(void)
{
	memset(&df_tree.up, 0, sizeof(df_tree.up));
	df_tree.nr_down = df_tree.nr_path = df_tree.nr_siblings = 0;
	df_list_init(&df_tree.merges);
}

void df_tree_forget_all(void)
{
	df_tree.attach = NULL;
	df_tree.merge = NULL;
	df_tree.candidates = NULL;
	df_tree.nr_candidates = df_tree.next_candidate = 0;
	df_tree.verify_at = df_tree.again_at = 0;
	df_tree.corpses = df_tree.own = NULL;
	df_tree_init();
	df_flood_forget_all();
}

struct hop df_tree_self(void)
{
	return df_tree_hop(&df_ctl.self);
}

struct hop df_tree_hop(const struct df_member *m)
{
	struct hop h = {.proc = m->proc, .host = m->host, .sock = m->sock, .key = m->key};

	memcpy(h.tcp, m->tcp, sizeof(h.tcp));
	return h;
}

uint64_t df_tree_root(void)
{
	return df_tree.nr_path	 ? df_tree.path[df_tree.nr_path - 1].proc
	       : df_tree.up.link ? df_tree.up.who.proc
				 : df_ctl.self.proc;
}

int df_tree_looking(void)
{
	return !df_tree.up.link && (df_tree.repairing || df_tree.verify_at);
}

static struct corpse *corpse_new(uint64_t proc, int in_order, const void *words, size_t bytes)
{
	struct corpse *c = calloc(1, sizeof(*c) + bytes);

	if (!c)
		return NULL;
	c->proc = proc;
	c->since_ns = df_now_ns();
	c->in_order = in_order;
	c->bytes = bytes;
	if (bytes)
		memcpy(c->words, words, bytes);
	return c;
}

int df_tree_is_dead(uint64_t proc)
{
	struct corpse *c;

	HASH_FIND(hh, df_tree.corpses, &proc, sizeof(proc), c);
	return c != NULL;
}

void df_tree_tell_again(uint64_t proc)
{
	struct corpse *c;

	HASH_FIND(hh, df_tree.corpses, &proc, sizeof(proc), c);
	if (c)
		df_flood_queue_death(proc, c->in_order, 1);
}

static int leads_to(const struct df_link *link, uint64_t proc, const struct df_link *except)
{
	return link && link != except && link->tx_proc == proc;
}

unsigned df_tree_send_to(uint64_t proc, const struct df_link *except, unsigned type, const void *a,
			 size_t a_bytes)
{
	struct df_link *to = leads_to(df_tree.up.link, proc, except) ? df_tree.up.link : NULL;
	int i;

	for (i = 0; i < df_tree.nr_down && !to; i++)
		if (leads_to(df_tree.down[i].link, proc, except))
			to = df_tree.down[i].link;
	if (!to)
		return 0;
	df_link_send(to, type, a, a_bytes, NULL, 0);
	return 1;
}

/* ---- paths ----------------------------------------------------------------------------------- */

void df_tree_send_path(struct df_link *only)
{
	struct hop hops[PATH_MAX_HOPS + 1 + DF_TREE_K];
	struct tree_path p;
	int i, n = 0;

	hops[n++] = df_tree_self();
	for (i = 0; i < df_tree.nr_path && n < PATH_MAX_HOPS; i++)
		hops[n++] = df_tree.path[i];
	p.nr_hops = (uint32_t)n;
	for (i = 0; i < df_tree.nr_down; i++)
		hops[n++] = df_tree.down[i].who;
	p.nr_children = (uint32_t)df_tree.nr_down;
	for (i = 0; i < df_tree.nr_down; i++)
		if (!only || df_tree.down[i].link == only)
			df_link_send(df_tree.down[i].link, DF_FRAME_TREE_PATH, &p, sizeof(p), hops,
				     (size_t)n * sizeof(hops[0]));
}

/* Makes this process the root of the part below it, because the link to its parent has ended. */
static void lose_up(void)
{
	df_tree.up.link = NULL;
	df_tree.doubt_at = 0;
	df_tree.nr_path = 0;
	df_tree.nr_siblings = 0;
	df_tree_send_path(NULL);
}

/* ---- a parent that does not answer (tests/model/detour.pml) ---------------------------------- */

void df_ctl_doubt(void)
{
	df_ctl_lock();
	if (df_tree.up.link && !df_tree.doubt_at && !df_ctl.leaving) {
		df_tree.doubt_at = df_now_ns() + (df_tree.up.link->is_unix ? NEAR_NS : FAR_NS);
		df_ctl_timer(df_tree.doubt_at);
		df_link_send(df_tree.up.link, DF_FRAME_TREE_ASK, NULL, 0, NULL, 0);
	}
	df_ctl_unlock();
}

void df_tree_doubted(void)
{
	struct hop path[PATH_MAX_HOPS], siblings[DF_TREE_K];
	int nr_path = df_tree.nr_path, nr_siblings = df_tree.nr_siblings;

	df_tree.doubt_at = 0;
	if (!df_tree.up.link || df_ctl.leaving || df_link_peer_runs(df_tree.up.link))
		return;
	memcpy(path, df_tree.path, sizeof(path));
	memcpy(siblings, df_tree.siblings, sizeof(siblings));
	df_tree.left = df_tree.up.who.proc;
	df_ctl_note("process %016llx does not answer: looks for another place",
		    (unsigned long long)df_tree.left);
	df_link_send(df_tree.up.link, DF_FRAME_TREE_UNLINK, NULL, 0, NULL, 0);
	lose_up();
	df_flood_changed();
	df_attach_candidates(path, nr_path, siblings, nr_siblings, 0);
	df_attach_repair();
}

void df_tree_cut(uint64_t parent)
{
	if (!df_tree.up.link || df_tree.up.who.proc != parent)
		return;
	df_tree.verify = df_tree.up.who;
	df_tree.verify_at = df_now_ns() + VERIFY_NS + df_addr_random() % VERIFY_NS;
	df_ctl_timer(df_tree.verify_at);
	df_link_send(df_tree.up.link, DF_FRAME_TREE_UNLINK, NULL, 0, NULL, 0);
	df_link_finish(df_tree.up.link);
	lose_up();
	/*
	 * Otherwise a process that has learned a route over that link would continue to send where
	 * no message can pass.
	 */
	df_flood_changed();
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
		/* A cycle: hops 0..n. Every process on it chooses the same victim. */
		for (i = 0, victim = &p->hops[n]; i < n; i++)
			if (p->hops[i].proc > victim->proc)
				victim = &p->hops[i];
		i = (uint32_t)(victim - p->hops);
		if (i == n)
			df_tree_cut(p->hops[0].proc);
		else
			df_flood_send(DF_FLOOD_CUT, victim->proc, &p->hops[i + 1].proc, 8, NULL, 0);
		return 0;
	}
	df_tree.nr_siblings = (int)p->nr_children;
	memcpy(df_tree.siblings, p->hops + p->nr_hops, p->nr_children * sizeof(struct hop));
	if (df_tree.nr_path == (int)p->nr_hops &&
	    !memcmp(df_tree.path, p->hops, p->nr_hops * sizeof(struct hop)))
		return 0;
	df_tree.nr_path = (int)p->nr_hops;
	memcpy(df_tree.path, p->hops, p->nr_hops * sizeof(struct hop));
	df_tree_send_path(NULL);
	return 0;
}

/* ---- links ----------------------------------------------------------------------------------- */

static void send_exit(struct df_link *link, const struct corpse *c)
{
	const struct tree_exit e = {.proc = c->proc, .status = (uint64_t)c->in_order - 1};

	if (df_now_ns() - c->since_ns < RECENT_NS)
		df_link_send(link, DF_FRAME_TREE_EXIT, &e, sizeof(e), c->words, c->bytes);
}

/*
 * Sends goodbyes that were flooded while the other side, or its part, had no place. They have not
 * reached it.
 */
static void send_exits(struct df_link *link)
{
	struct corpse *c, *tmp;

	HASH_ITER(hh, df_tree.corpses, c, tmp)
	if (c->in_order)
		send_exit(link, c);
	if (df_tree.own)
		send_exit(link, df_tree.own);
}

static void send_dead(struct df_link *link)
{
	uint64_t dead[1024];
	struct corpse *c, *tmp;
	size_t n = 0;

	send_exits(link);
	HASH_ITER(hh, df_tree.corpses, c, tmp)
	if (!c->in_order && n < DF_ARRAY_LEN(dead))
		dead[n++] = c->proc;
	/* Sent even if empty: it shows the other side that we know of the link. */
	df_link_send(link, DF_FRAME_TREE_DEAD, dead, n * 8, NULL, 0);
}

int df_tree_exit_input(const struct df_link *link, const void *data, size_t bytes)
{
	const struct tree_exit *e = data;

	if (bytes < sizeof(*e) || bytes > sizeof(*e) + DF_WORDS_MAX || e->status > 0xff)
		return -EPROTO;
	if (df_ctl.leaving || e->proc == df_ctl.self.proc || df_tree_is_dead(e->proc))
		return 0;
	df_tree_send_all(link, DF_FRAME_TREE_EXIT, data, bytes, NULL, 0);
	df_tree_death(e->proc, 1 + (int)e->status, e->words, bytes - sizeof(*e));
	return 0;
}

static int dead_input(const void *data, size_t bytes)
{
	const uint64_t *dead = data;
	size_t i;

	if (bytes % 8)
		return -EPROTO;
	for (i = 0; i < bytes / 8; i++)
		if (dead[i] != df_ctl.self.proc)
			df_tree_death(dead[i], 0, NULL, 0);
	return 0;
}

static struct peer *peer_of(const struct df_link *link)
{
	int i;

	if (df_tree.up.link == link)
		return &df_tree.up;
	for (i = 0; i < df_tree.nr_down; i++)
		if (df_tree.down[i].link == link)
			return &df_tree.down[i];
	return NULL;
}

static void forget_down(struct peer *p)
{
	int i = (int)(p - df_tree.down);

	/* Keeps the order of age: the eldest child follows a dead root. */
	memmove(&df_tree.down[i], &df_tree.down[i + 1],
		(size_t)(df_tree.nr_down - i - 1) * sizeof(df_tree.down[0]));
	df_tree.nr_down--;
}

static void drop_down(struct peer *p)
{
	forget_down(p);
	df_tree_send_path(NULL);
}

static int tree_input(struct df_link *link, unsigned type, const void *data, size_t bytes)
{
	struct peer *p = peer_of(link);
	struct hop child;

	if (type == DF_FRAME_FLOOD)
		return df_flood_input(link, data, bytes);
	if (type == DF_FRAME_PONG) {
		link->heard = 1;
		df_tree_answer();
	}
	/* On the link of a process that has said goodbye, only floods are still handled. */
	if (!p || type == DF_FRAME_PONG)
		return 0;
	p->sure = 1;
	if (p == &df_tree.up)
		df_tree.doubt_at = 0;
	switch (type) {
	case DF_FRAME_TREE_ASK:
		if (p == &df_tree.up)
			return -EPROTO;
		df_tree_send_path(link);
		return 0;
	case DF_FRAME_TREE_PATH:
		return p == &df_tree.up ? path_input(data, bytes) : -EPROTO;
	case DF_FRAME_TREE_MERGE:
		if (bytes != sizeof(struct tree_merge))
			return -EPROTO;
		df_attach_merge(data);
		return 0;
	case DF_FRAME_TREE_DEAD:
		return dead_input(data, bytes);
	case DF_FRAME_TREE_EXIT:
		return df_tree_exit_input(link, data, bytes);
	case DF_FRAME_TREE_UNLINK:
		df_link_finish(link);
		if (p != &df_tree.up) {
			child = p->who;
			drop_down(p);
			/*
			 * The child has left because this process did not answer. If this one is a
			 * root, its part may have gone on without it.
			 */
			if (!df_tree.up.link && !df_ctl.leaving) {
				df_tree.verify = child;
				df_tree.verify_at = df_now_ns() + VERIFY_NS;
				df_ctl_timer(df_tree.verify_at);
			}
		} else {
			lose_up();
			df_attach_repair();
		}
		return 0;
	default:
		return -EPROTO;
	}
}

static void tree_closed(struct df_link *link, int error)
{
	struct peer *p = peer_of(link);
	uint64_t proc;

	/*
	 * This neighbour no longer answers or waits for an answer. Other neighbours may have waited
	 * for its answer.
	 */
	link->heard = 1;
	link->owes = 0;
	if (df_ctl.leaving)
		df_tree_answer();
	if (!p) {
		/* The parent that was left has read that, or it has died. */
		if (link->tx_proc == df_tree.left)
			df_probe_soon();
		return;
	}
	if (df_ctl.leaving) {
		/*
		 * While this process leaves, nothing is repaired, but other threads may still send.
		 * They must not use this link.
		 */
		if (p == &df_tree.up)
			p->link = NULL;
		else
			forget_down(p);
		return;
	}
	proc = p->who.proc;
	if (!p->sure && p != &df_tree.up) {
		/*
		 * The neighbour no longer waits for our answer, or it has died. The probe finds out
		 * which.
		 */
		drop_down(p);
		df_probe_soon();
		return;
	}
	if (!df_ctl.leaving && !df_tree_is_dead(proc))
		df_ctl_note("process %016llx has died without notice: %s", (unsigned long long)proc,
			    error ? strerror(-error) : "its connection was closed");
	df_tree_death(proc, 0, NULL, 0);
}

static const struct df_link_ops tree_ops = {
	.name = "tree", .input = tree_input, .closed = tree_closed};

unsigned df_tree_send_all(const struct df_link *except, unsigned type, const void *a,
			  size_t a_bytes, const void *b, size_t b_bytes)
{
	struct df_link *l;
	unsigned nr = 0;

	df_list_each(l, &df_ctl.links, node)
	{
		if (l->ops != &tree_ops || l == except)
			continue;
		df_link_send(l, type, a, a_bytes, b, b_bytes);
		nr++;
	}
	return nr;
}

void df_tree_link(struct peer *p, struct df_link *link, const struct hop *who)
{
	p->link = link;
	p->who = *who;
	if (df_tree.left == who->proc)
		df_tree.left = 0;
	p->sure = 0;
	link->tx_proc = who->proc;
	df_link_adopt(link, &tree_ops, NULL);
	send_dead(link);
}

/* A process wants to attach below us. */
int df_tree_introduce(struct df_link *link, const void *data, size_t bytes)
{
	const struct hop *from = data;
	struct tree_reply r = {.verdict = TAKEN};
	int i;

	if (bytes != sizeof(*from) || from->proc == df_ctl.self.proc)
		return -EPROTO;
	if (df_ctl.leaving || df_tree_is_dead(from->proc)) {
		r.verdict = NOT_ME;
	} else if (df_tree_root() == from->proc) {
		r.verdict = ONE_ALREADY;
	} else {
		for (i = 0; i < df_tree.nr_path; i++)
			if (df_tree.path[i].proc == from->proc)
				r.verdict = ONE_ALREADY;
		for (i = 0; i < df_tree.nr_down; i++)
			if (df_tree.down[i].who.proc == from->proc)
				r.verdict = ONE_ALREADY;
	}
	if (r.verdict == TAKEN && df_tree.nr_down >= df_tree_k) {
		r.verdict = GO_THERE;
		df_tree.next_down = (df_tree.next_down + 1) % df_tree.nr_down;
		r.there = df_tree.down[df_tree.next_down].who;
	}
	if (df_ctl.leaving)
		send_exits(link);
	df_link_send(link, DF_FRAME_TREE_REPLY, &r, sizeof(r), NULL, 0);
	if (r.verdict != TAKEN) {
		df_link_finish(link);
		return 0;
	}
	df_tree_link(&df_tree.down[df_tree.nr_down++], link, from);
	df_tree_send_path(NULL);
	return 0;
}

/* ---- exit (tests/model/goodbye.pml) ---------------------------------------------------------- */

void df_tree_leave(uint64_t status, const void *words, size_t bytes)
{
	df_tree.own = corpse_new(df_ctl.self.proc, 1 + (int)status, words, bytes);
	df_ctl.leaving = 1;
	df_tree_answer();
}

/* Whether a neighbour other than `but` has not answered our goodbye. */
static int unheard(const struct df_link *but)
{
	struct df_link *l;

	df_list_each(l, &df_ctl.links, node)
	{
		if (l->ops == &tree_ops && l != but && !l->heard)
			return 1;
	}
	return 0;
}

int df_tree_unheard(void)
{
	struct pollfd p = {.events = POLLIN};
	struct df_link *l;

	if (unheard(NULL))
		return 1;
	df_list_each(l, &df_ctl.links, node)
	{
		p.fd = l->fd;
		if (l->ops == &tree_ops && poll(&p, 1, 0) > 0)
			return 1;
	}
	return 0;
}

int df_tree_answer_is_slow(void)
{
	struct df_link *l;

	if (!df_ctl.leaving)
		return !df_tree.attach || df_link_peer_runs(df_tree.attach);
	/*
	 * If all answers have arrived, it is this process's own control thread that has to read
	 * them.
	 */
	if (!unheard(NULL))
		return 1;
	df_list_each(l, &df_ctl.links, node)
	{
		if (l->ops == &tree_ops && !l->heard && df_link_peer_runs(l))
			return 1;
	}
	return 0;
}

/*
 * A process may answer a goodbye when it no longer needs the leaving process: it has a place
 * without it. If it is leaving too, all neighbours that may need the leaving process must have
 * answered first.
 */
static int may_answer(const struct df_link *l)
{
	return df_ctl.leaving ? !unheard(l) : !df_tree_looking();
}

void df_tree_answer(void)
{
	struct df_link *l;

	df_list_each(l, &df_ctl.links, node)
	{
		if (l->ops != &tree_ops || !l->owes || !may_answer(l))
			continue;
		l->owes = 0;
		/* Our new parent leads to every process that the old one leads to. */
		l->heard |= l->left && df_tree.up.link && !df_ctl.leaving;
		df_link_send(l, DF_FRAME_PONG, NULL, 0, NULL, 0);
	}
}

/* ---- death ----------------------------------------------------------------------------------- */

int df_ctl_is_dead(uint64_t proc)
{
	int ret;

	df_ctl_lock();
	ret = df_tree_is_dead(proc);
	df_ctl_unlock();
	return ret;
}

int df_ctl_is_neighbour(uint64_t proc)
{
	int ret;

	df_ctl_lock();
	ret = leads_to(df_tree.up.link, proc, NULL);
	for (int i = 0; i < df_tree.nr_down && !ret; i++)
		ret = leads_to(df_tree.down[i].link, proc, NULL);
	df_ctl_unlock();
	return ret;
}

void df_ctl_each_words(void (*fn)(void *arg, const void *words, size_t bytes), void *arg)
{
	struct corpse *c, *tmp;

	df_ctl_lock();
	HASH_ITER(hh, df_tree.corpses, c, tmp)
	if (c->bytes)
		fn(arg, c->words, c->bytes);
	df_ctl_unlock();
}

void df_ctl_on_death(void (*fn)(uint64_t proc))
{
	size_t i;

	df_ctl_lock();
	for (i = 0; i < DF_ARRAY_LEN(df_tree.on_death); i++) {
		if (df_tree.on_death[i] && df_tree.on_death[i] != fn)
			continue;
		df_tree.on_death[i] = fn;
		break;
	}
	df_ctl_unlock();
}

void df_tree_tell_death(uint64_t proc)
{
	void (*fns[DF_ARRAY_LEN(df_tree.on_death)])(uint64_t);
	size_t i;

	df_ctl_lock();
	memcpy(fns, df_tree.on_death, sizeof(fns));
	df_ctl_unlock();
	for (i = 0; i < DF_ARRAY_LEN(fns); i++)
		if (fns[i])
			fns[i](proc);
}

void df_tree_death(uint64_t proc, int in_order, const void *words, size_t bytes)
{
	struct hop path[PATH_MAX_HOPS], siblings[DF_TREE_K];
	struct df_link *link;
	struct corpse *c;
	int i, nr_path, nr_siblings, member;

	if (df_ctl.leaving || proc == df_ctl.self.proc)
		return;
	HASH_FIND(hh, df_tree.corpses, &proc, sizeof(proc), c);
	if (!c) {
		c = corpse_new(proc, in_order, words, bytes);
		if (c)
			HASH_ADD(hh, df_tree.corpses, proc, sizeof(proc), c);
		/* A process that exits has flooded its goodbye itself. */
		if (!in_order) {
			df_flood_send(DF_FLOOD_DEATH, 0, &proc, 8, NULL, 0);
			df_probe_soon();
		}
		member = df_group_death(proc, in_order);
		df_flood_queue_death(proc, in_order, member);
	}
	for (i = 0; i < df_tree.nr_down; i++) {
		if (df_tree.down[i].who.proc != proc)
			continue;
		link = df_tree.down[i].link;
		drop_down(&df_tree.down[i]);
		if (!in_order)
			df_link_finish(link);
		break;
	}
	if (df_tree.up.link && df_tree.up.who.proc == proc) {
		link = df_tree.up.link;
		nr_path = df_tree.nr_path;
		nr_siblings = df_tree.nr_siblings;
		memcpy(path, df_tree.path, sizeof(path));
		memcpy(siblings, df_tree.siblings, sizeof(siblings));
		lose_up();
		link->left = 1;
		if (!in_order)
			df_link_finish(link);
		df_attach_candidates(path, nr_path, siblings, nr_siblings, in_order);
		df_attach_repair();
	}
}
