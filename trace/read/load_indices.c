/* Sets the indices that match operations of different ranks. */
#include <errno.h>
#include <stdlib.h>
#include "trace/read/load.h"
#include "trace/record/names.h"

int df_load_lost_ops(const struct df_load *l, const struct df_reader *r, uint32_t comm)
{
	const struct df_trace_comm *c = &r->comms[comm - 1];
	const struct df_lcomm *here = &l->comms[comm - 1];

	return c->drops && (!c->issued || c->issued > here->nr_coll + here->nr_p2p);
}

uint64_t df_load_nr_coll(const struct df_trace_comm *c)
{
	uint64_t nr = 0;

	for (size_t k = 0; k < sizeof(c->kinds) / sizeof(c->kinds[0]); k++)
		nr += c->kinds[k];
	return nr;
}

int df_load_indices(struct df_load *l, const struct df_reader *r)
{
	uint64_t *coll = calloc(l->nr_comms + 1, sizeof(*coll));
	struct df_map pairs = {0}; /* (communicator and direction, peer): number of messages */
	int rc = 0;

	if (!coll)
		return -ENOMEM;
	/* The ring overwrites the oldest operations, so those in it are the last ones. */
	for (uint32_t i = 0; i < l->nr_comms; i++) {
		uint64_t all = i < r->nr_comms ? df_load_nr_coll(&r->comms[i]) : 0;

		if (i < r->nr_comms && df_load_lost_ops(l, r, i + 1) && all > l->comms[i].nr_coll)
			coll[i] = all - l->comms[i].nr_coll;
	}
	for (size_t i = 0; i < l->nr_ops && !rc; i++) {
		struct df_lop *op = &l->ops[i];
		const struct df_lcomm *c = &l->comms[op->comm - 1];
		uint64_t *nr;

		if (op->has_index ||
		    (op->has_match && (!c->nr_p2p || df_load_lost_ops(l, r, op->comm)))) {
			op->index = op->cindex;
			continue;
		}
		if (!df_kind_is_p2p(op->kind)) {
			op->index = coll[op->comm - 1]++;
			continue;
		}
		nr = df_map_at(&pairs, (uint64_t)op->comm << 1 | (op->kind == DF_KIND_SEND),
			       (uint32_t)op->peer);
		if (nr)
			op->index = (*nr)++;
		else
			rc = -ENOMEM;
	}
	df_map_fini(&pairs);
	free(coll);
	return rc;
}
