/*
 * The facts on which a verdict is based: reduces them to one number, so that two results can be
 * compared, and checks whether they are complete. Pure functions on a result.
 */
#include <stdlib.h>
#include "trace/judge/judge_int.h"
#include "trace/record/trace_hash.h"

static uint64_t mix(uint64_t id, uint64_t value)
{
	return df_mix64(id ^ value);
}

/* Mixes the wait of a thread into `id`: one call, or one place outside of all recorded calls. */
static uint64_t wait_of(const struct df_check_result *r, const struct df_node *n, uint64_t id)
{
	const struct df_lcall *call = &r->set->traces[n->trace].calls[n->ref];

	return call->serial ? mix(id, call->serial) : mix(mix(id, call->site), n->thread);
}

/* Returns the lowest index of the operations that wait for the rank, plus 1; 0: none. */
static uint64_t first_wait(const struct df_check_result *r, uint32_t node)
{
	uint64_t least = 0;

	for (uint32_t k = r->g.in_first[node]; k < r->g.in_first[node + 1]; k++) {
		const struct df_node *from = &r->g.nodes[r->g.edges[r->g.in[k]].from];

		if (from->kind == DF_N_MATCH && !from->young &&
		    (!least || r->g.insts[from->ref].index < least - 1))
			least = r->g.insts[from->ref].index + 1;
	}
	return least;
}

/*
 * Returns a hash of a node of the root component. If only the node's process can end its wait, the
 * hash covers what that process has done. Returns 0 for a node that is determined by other nodes.
 */
static uint64_t fact(const struct df_check_result *r, uint32_t i)
{
	const struct df_check_set *set = r->set;
	const struct df_node *n = &r->g.nodes[i];
	const struct df_trc *t = n->trace == DF_NONE ? NULL : &set->traces[n->trace];
	uint64_t id = (uint64_t)n->kind + 1;

	if (t)
		id = mix(mix(id, t->h.host_hash), t->h.pid);
	if (t && r->g.self[i] && !n->mark && !r->aged)
		id = mix(id, t->progress);
	switch (n->kind) {
	case DF_N_THREAD:
		return wait_of(r, n, id);
	case DF_N_START:
	case DF_N_DONE:
		return mix(id, set->ops[n->ref].l.serial);
	case DF_N_NEXT:
		id = n->gcomm == DF_NONE
			     ? id
			     : mix(mix(id, set->gcomms[n->gcomm].hash), (uint32_t)n->rank);
		return r->aged ? mix(id, first_wait(r, i)) : id;
	case DF_N_BARRIER:
		return mix(id, r->g.bars[n->ref].key);
	default:
		return 0;
	}
}

uint64_t df_check_facts(const struct df_check_result *r)
{
	uint64_t sum = 0;

	/*
	 * A call that was issued stays issued, so calls that do not agree depend on nothing that
	 * can change.
	 */
	if (r->verdict == DF_V_MISMATCH || r->root == DF_NONE || !r->comp)
		return sum;
	for (uint32_t i = 0; i < r->g.nr_nodes; i++)
		if (r->comp[i] == r->root_comp)
			sum += fact(r, i);
	return sum;
}

/* Returns the communicator that the node belongs to, or DF_NONE. */
static uint32_t comm_of(const struct df_check_result *r, const struct df_node *n)
{
	switch (n->kind) {
	case DF_N_START:
	case DF_N_DONE:
		return r->set->ops[n->ref].gcomm;
	case DF_N_MATCH:
		return r->g.insts[n->ref].gcomm;
	case DF_N_NEXT:
		return n->gcomm;
	case DF_N_BARRIER:
		return r->g.bars[n->ref].gcomm;
	default:
		return DF_NONE;
	}
}

/*
 * Whether any process might end the wait: it is for a barrier of the application, or not recorded.
 */
static int is_open(const struct df_check_result *r, const struct df_node *n)
{
	return ((n->kind == DF_N_NEXT || n->kind == DF_N_BARRIER) && comm_of(r, n) == DF_NONE) ||
	       (n->kind == DF_N_THREAD &&
		r->set->traces[n->trace].calls[n->ref].call == DF_CALL_OUTSIDE);
}

/*
 * The root component waits for nothing outside itself, and its waits lead from one process to
 * another only through communicators. So the members of these communicators are all that matter.
 */
static int cycle_is_whole(const struct df_check_result *r)
{
	uint8_t *seen = calloc(r->set->nr_gcomms + 1, 1);
	int whole = seen != NULL;

	for (uint32_t i = 0; i < r->g.nr_nodes && whole; i++) {
		const struct df_node *n = &r->g.nodes[i];
		uint32_t gcomm = comm_of(r, n);

		if (r->comp[i] != r->root_comp)
			continue;
		if (gcomm != DF_NONE && !seen[gcomm])
			whole = df_set_is_whole(r->set, gcomm);
		whole &= !is_open(r, n);
		if (gcomm != DF_NONE)
			seen[gcomm] = 1;
	}
	free(seen);
	return whole;
}

int df_cause_is_whole(const struct df_check_result *r)
{
	uint32_t gcomm;

	if (r->verdict >= DF_V_ORDER && r->verdict <= DF_V_DATA)
		return r->is_cycle && cycle_is_whole(r);
	if (r->verdict != DF_V_MISMATCH)
		return 0;
	gcomm = r->root == DF_NONE ? df_set_first_mismatch(r->set)
				   : comm_of(r, &r->g.nodes[r->root]);
	return gcomm != DF_NONE && df_set_is_whole(r->set, gcomm);
}
