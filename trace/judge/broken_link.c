/*
 * Broken links between nodes, as the transport recorded them. A link that was broken when the trace
 * ended explains a silent rank, and an operation that ran on all ranks and did not end. An
 * operation that has not begun is explained by a function of the network library that has not
 * returned, or by a broken link to a rank of the operation's communicator, because its first data
 * may use the link.
 */
#include <stdio.h>
#include <string.h>
#include "trace/judge/judge_int.h"
#include "trace/judge/say.h"

/*
 * Finds a rank of the process at the other end of the link among the members of communicators.
 * Returns 1 and the rank, or 0 if no rank is known.
 */
static int far_rank(const struct df_check_set *set, const struct df_broken_link *k, uint32_t *gcomm,
		    int *rank)
{
	for (uint32_t g = 0; g < set->nr_gcomms; g++)
		for (uint32_t i = 0; i < set->gcomms[g].nr_members; i++)
			if (set->gcomms[g].members[i].pid == k->pid &&
			    set->gcomms[g].members[i].host_hash == k->host_hash) {
				*gcomm = g;
				*rank = (int)i;
				return 1;
			}
	return 0;
}

/* Returns the trace of the process at the other end of the link, or NULL. */
static const struct df_trc *far_trace(const struct df_check_set *set,
				      const struct df_broken_link *k)
{
	const struct df_trc_comm *e;
	uint32_t gcomm;
	int rank;

	e = far_rank(set, k, &gcomm, &rank) ? df_set_entry(set, gcomm, rank) : NULL;
	return e ? &set->traces[e->trace] : NULL;
}

/* Whether this process has also seen a link break. */
static int saw_break(const struct df_check_set *set, const struct df_trc *t)
{
	for (size_t i = 0; i < set->nr_links; i++)
		if (&set->traces[set->links[i].trace] == t)
			return 1;
	return 0;
}

/*
 * Whether the process at the other end has died. Then its death is the cause: the link broke as a
 * result.
 */
static int far_end_died(const struct df_check_set *set, const struct df_broken_link *k)
{
	const struct df_trc *far = far_trace(set, k);

	if (far && far->fate == DF_DEAD)
		return 1;
	for (size_t i = 0; i < set->nr_dead; i++)
		if (!set->dead[i].in_order && set->dead[i].pid == k->pid &&
		    set->dead[i].host_hash == k->host_hash)
			return 1;
	return 0;
}

/* Whether the rank that all wait for is at one end of the link. */
static int is_at(const struct df_check_result *r, const struct df_broken_link *k)
{
	const struct df_node *n = &r->g.nodes[r->root];
	const struct df_trc_member *m =
		n->gcomm != DF_NONE ? df_set_member(r->set, n->gcomm, n->rank) : NULL;

	if (n->trace != DF_NONE &&
	    (n->trace == k->trace || &r->set->traces[n->trace] == far_trace(r->set, k)))
		return 1;
	return m && m->pid == k->pid && m->host_hash == k->host_hash;
}

/*
 * Whether both ends are in the communicator of the operation that has not begun, so that its first
 * data may have to use the link.
 */
static int carries(const struct df_check_result *r, const struct df_broken_link *k)
{
	uint32_t g = r->set->ops[r->g.nodes[r->root].ref].gcomm;
	const struct df_gcomm *c = &r->set->gcomms[g];
	int near = 0, far = 0;

	for (uint32_t i = 0; i < c->nr_members; i++) {
		const struct df_trc_comm *e = df_set_entry(r->set, g, (int)i);

		near |= e && e->trace == k->trace;
		far |= c->members[i].pid == k->pid && c->members[i].host_hash == k->host_hash;
	}
	return near && far;
}

static int explains(const struct df_check_result *r, const struct df_broken_link *k)
{
	enum df_verdict v = r->verdict == DF_V_SLOW ? r->otherwise : r->verdict;
	const struct df_trc *far;

	if (r->set->traces[k->trace].dropped || far_end_died(r->set, k))
		return 0;
	switch (v) {
	case DF_V_OK:
		return k->gone;
	case DF_V_GPU_STUCK:
		return k->held || carries(r, k);
	case DF_V_NET_STALL:
	case DF_V_UNKNOWN:
		return 1;
	case DF_V_MISSING:
		/*
		 * A silent rank may have been cut off. A process that has exited may have given up
		 * because of the link: its trace, if there is one, shows that. A rank that has left
		 * a communicator has done so by itself.
		 */
		if (r->root == DF_NONE || !is_at(r, k) ||
		    (r->qualifier[0] && strcmp(r->qualifier, "exited")))
			return 0;
		far = far_trace(r->set, k);
		return !r->qualifier[0] || !far || saw_break(r->set, far);
	default:
		return 0;
	}
}

static uint64_t broken_at(const struct df_check_set *set, const struct df_broken_link *k)
{
	return k->time_ns + (uint64_t)set->traces[k->trace].skew_ns;
}

/*
 * Returns how well a link explains the hang. A thread that does not return from the network library
 * explains most: the peer may see a broken link because of this thread. Next is a link that was
 * given up.
 */
static int weight(const struct df_broken_link *k)
{
	return k->held ? 2 : k->gone;
}

void df_link_judge(struct df_check_result *r)
{
	const struct df_check_set *set = r->set;

	for (size_t i = 0; i < set->nr_links; i++) {
		const struct df_broken_link *k = &set->links[i];

		if (explains(r, k) &&
		    (!r->link || weight(k) > weight(r->link) ||
		     (weight(k) == weight(r->link) && broken_at(set, k) < broken_at(set, r->link))))
			r->link = k;
	}
	if (!r->link)
		return;
	/* A link that was not given up may be restored, so the job may still only be slow. */
	if (r->verdict == DF_V_SLOW && !r->link->gone) {
		r->otherwise = DF_V_NET_STALL;
	} else {
		r->verdict = DF_V_NET_STALL;
		r->qualifier[0] = '\0';
		r->confidence = DF_C_LIKELY;
	}
}

static const char *far_end(const struct df_check_set *set, const struct df_broken_link *k,
			   char *buf, size_t size)
{
	uint32_t gcomm;
	int rank;

	if (far_rank(set, k, &gcomm, &rank))
		return df_say_member(set, gcomm, rank, buf, size);
	snprintf(buf, size, "pid %u on another node", k->pid);
	return buf;
}

/* Appends the records that one end has made of the link. */
static void put_link(const struct df_broken_link *k, struct df_line *b)
{
	if (k->held) {
		df_line_put(b, "%s",
			    k->text[0] ? k->text : "the network's library does not return");
		return;
	}
	if (k->unmapped) {
		df_line_put(b, "%s", strerror(k->error));
		return;
	}
	df_line_put(b, "the link %s%sbroke (%s), and %u attempt%s to restore it failed", k->text,
		    k->text[0] ? " " : "", strerror(k->error), k->attempts, DF_PLURAL(k->attempts));
}

void df_line_link(struct df_check_result *r, struct df_line *b)
{
	const struct df_broken_link *k = r->link;
	const struct df_check_set *set = r->set;
	char far[48];

	if (k->held) {
		put_link(k, b);
		df_line_put(b, " for %.1f s on %s, which called it for its link to %s",
			    (double)k->ms / 1e3 + df_say_ago(set, k->trace, k->time_ns),
			    set->traces[k->trace].label, far_end(set, k, far, sizeof(far)));
		return;
	}
	if (k->unmapped)
		df_line_put(b, "%s cannot map the memory of %s", set->traces[k->trace].label,
			    far_end(set, k, far, sizeof(far)));
	else if (k->gone)
		df_line_put(b, "%s has received nothing from %s for %.1f s over the network",
			    set->traces[k->trace].label, far_end(set, k, far, sizeof(far)),
			    (double)k->ms / 1e3);
	else
		df_line_put(b, "the link between %s and %s has been broken for %.1f s",
			    set->traces[k->trace].label, far_end(set, k, far, sizeof(far)),
			    (double)k->ms / 1e3 + df_say_ago(set, k->trace, k->time_ns));
	df_line_put(b, ": ");
	put_link(k, b);
}

void df_explain_link(struct df_check_result *r)
{
	const struct df_check_set *set = r->set;
	const struct df_trc *far = r->link ? far_trace(set, r->link) : NULL;
	char name[48];

	if (!r->link)
		return;
	df_note(r, "the last progress of %s was %.1f s before the end of its trace",
		set->traces[r->link->trace].label,
		df_say_ago(set, r->link->trace, set->traces[r->link->trace].last_progress_ns));
	if (!far)
		df_note(r, "%s left no trace, so the state of the link at its end is unknown",
			far_end(set, r->link, name, sizeof(name)));
	for (size_t i = 0; i < set->nr_links; i++) {
		const struct df_broken_link *k = &set->links[i];
		struct df_line b = {.n = 0};

		if (k == r->link || set->traces[k->trace].dropped)
			continue;
		put_link(k, &b);
		df_note(r, "%s reports about its link to %s: %s", set->traces[k->trace].label,
			far_end(set, k, name, sizeof(name)), b.s);
	}
}
