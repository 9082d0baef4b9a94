/*
 * Deaths that no process noticed. The neighbours of a process in the overlay notice its death; when
 * all of them die with it, no one reports it. So after each death, every process checks each of its
 * communicators: it tries to connect to the first member that it believes to be alive, or, if it is
 * that member itself, to all others. A process that refuses has died. One that hangs up is asked
 * again. Each death found starts another round. Guarded by the control plane's lock; at most
 * PROBES_MAX connections at a time.
 */
#include "runtime/ctl/probe.h"

#include <stdlib.h>

#include "runtime/base/time.h"
#include "runtime/ctl/accept.h"
#include "runtime/ctl/link.h"
#include "runtime/ctl/tree.h"

#define DELAY_NS   (30 * DF_NS_PER_MS)
#define AGAIN_NS   (300 * DF_NS_PER_MS)
#define ANSWER_NS  (10 * DF_NS_PER_S)
#define PROBES_MAX 64
#define TRIES_MAX  10 /* pauses are DELAY_NS, twice DELAY_NS, ...: together 1.3 s */

/* A process to probe. While the probe is under way, its link owns this. */
struct target {
	UT_hash_handle hh;
	struct df_member member;
	int nr_tries;
	uint64_t not_before;
};

static struct target *targets;
static int nr_probes;
static uint64_t start_at, again_at;
static int once_more;

static void next_probes(void);

static void over(struct target *t, int refused)
{
	uint64_t proc = t->member.proc;

	nr_probes--;
	free(t);
	if (refused && !df_tree_is_dead(proc)) {
		df_ctl_note("process %016llx has died without notice: it does not answer",
			    (unsigned long long)proc);
		df_tree_death(proc, 0, NULL, 0);
	}
	next_probes();
}

/*
 * The other end hung up. It may be alive: it closes connections when it has no descriptor, and when
 * the greeting takes too long because this process was stopped. If it has died, the next connection
 * will be refused.
 */
static void ask_again(struct target *t)
{
	struct target *other;

	HASH_FIND(hh, targets, &t->member.proc, sizeof(t->member.proc), other);
	if (other || t->nr_tries == TRIES_MAX) {
		over(t, !other);
		return;
	}
	nr_probes--;
	t->not_before = df_now_ns() + (uint64_t)t->nr_tries * DELAY_NS;
	HASH_ADD(hh, targets, member.proc, sizeof(t->member.proc), t);
	again_at = again_at ? DF_MIN(again_at, t->not_before) : t->not_before;
	df_ctl_timer(again_at);
	next_probes();
}

/* A stopped process is not dead: the kernel accepts the connection, but the answer takes long. */
static void probe_connected(struct df_link *link)
{
	link->deadline_ns = df_now_ns() + ANSWER_NS;
	df_ctl_timer(link->deadline_ns);
}

static int probe_input(struct df_link *link, unsigned type, const void *data, size_t bytes)
{
	struct target *t = link->owner;

	(void)data;
	(void)bytes;
	if (type != DF_FRAME_PONG || !t)
		return -EPROTO;
	df_link_finish(link);
	over(t, 0);
	return 0;
}

/* With -EPROTO the other end does not know the secret: another process has taken the port. */
static void probe_closed(struct df_link *link, int error)
{
	struct target *t = link->owner;

	if (!error || error == -ECONNRESET || error == -EPROTO)
		ask_again(t);
	else
		over(t, error == -ECONNREFUSED);
}

static const struct df_link_ops probe_ops = {.name = "probe",
					     .input = probe_input,
					     .connected = probe_connected,
					     .closed = probe_closed};

static void probe(struct target *t)
{
	struct df_link *link;
	int error = 0;

	nr_probes++;
	t->nr_tries++;
	link = df_link_open_member(&t->member, &probe_ops, t, &error);
	if (!link) {
		over(t, error == -ECONNREFUSED);
		return;
	}
	df_link_send(link, DF_FRAME_PING, NULL, 0, NULL, 0);
	if (!link->connecting)
		probe_connected(link);
}

/* Returns a target that is due, or NULL. */
static struct target *next_target(void)
{
	uint64_t now = df_now_ns();
	struct target *t, *tmp;

	HASH_ITER(hh, targets, t, tmp)
	if (t->not_before <= now)
		return t;
	return NULL;
}

static void next_probes(void)
{
	static int going;
	struct target *t;

	/*
	 * A probe that ends at once calls this function again: only the outermost call continues.
	 */
	if (going)
		return;
	going = 1;
	while (nr_probes < PROBES_MAX && (t = next_target())) {
		HASH_DEL(targets, t);
		if (df_tree_is_dead(t->member.proc))
			free(t);
		else
			probe(t);
	}
	going = 0;
}

static void want(const struct df_member *m)
{
	struct target *t;

	HASH_FIND(hh, targets, &m->proc, sizeof(m->proc), t);
	if (t || m->proc == df_ctl.self.proc || df_tree_is_dead(m->proc))
		return;
	t = calloc(1, sizeof(*t));
	if (!t)
		return;
	t->member = *m;
	HASH_ADD(hh, targets, member.proc, sizeof(m->proc), t);
}

static void start_round(void)
{
	struct df_group *g, *tmp;
	int i, n;

	HASH_ITER(hh, df_ctl.groups, g, tmp)
	{
		if (g->nr_procs < 2)
			continue;
		for (i = 0; i < g->nranks && df_tree_is_dead(g->members[i].proc); i++)
			;
		if (i == g->nranks)
			continue;
		n = g->members[i].proc == df_ctl.self.proc ? g->nranks : i + 1;
		for (; i < n; i++)
			want(&g->members[i]);
	}
	next_probes();
}

void df_probe_soon(void)
{
	if (df_ctl.leaving)
		return;
	once_more = 1;
	if (start_at && start_at <= df_now_ns() + DELAY_NS)
		return;
	start_at = df_now_ns() + DELAY_NS;
	df_ctl_timer(start_at);
}

uint64_t df_probe_timers(uint64_t now)
{
	struct target *t, *tmp;

	if (start_at && start_at <= now) {
		/*
		 * One more round finds a process that died on its way to a new place in the
		 * overlay.
		 */
		start_at = once_more ? now + AGAIN_NS : 0;
		once_more = 0;
		start_round();
	}
	if (again_at && again_at <= now) {
		again_at = 0;
		next_probes();
		HASH_ITER(hh, targets, t, tmp)
		if (t->not_before > now)
			again_at = again_at ? DF_MIN(again_at, t->not_before) : t->not_before;
	}
	return start_at && again_at ? DF_MIN(start_at, again_at) : start_at | again_at;
}

void df_probe_forget_all(void)
{
	targets = NULL;
	nr_probes = 0;
	start_at = again_at = 0;
	once_more = 0;
}
