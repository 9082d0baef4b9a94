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
	struct {
		uint64_t key, nr;
	} *pairs = NULL;
	size_t size = 1024, used = 0;

	if (!coll)
		return -ENOMEM;
	/* The first operations were overwritten: those that are here are the last ones. */
	for (uint32_t i = 0; i < l->nr_comms; i++) {
		uint64_t all = i < r->nr_comms ? df_load_nr_coll(&r->comms[i]) : 0;

		if (i < r->nr_comms && df_load_lost_ops(l, r, i + 1) && all > l->comms[i].nr_coll)
			coll[i] = all - l->comms[i].nr_coll;
	}
	for (size_t i = 0; i < l->nr_ops; i++) {
		struct df_lop *op = &l->ops[i];
		const struct df_lcomm *c = &l->comms[op->comm - 1];
		int p2p = op->kind == DF_KIND_SEND || op->kind == DF_KIND_RECV;
		uint64_t key;
		size_t at;

		if (op->has_index) {
			op->index = op->cindex;
			continue;
		}
		if (op->has_match && (!c->nr_p2p || df_load_lost_ops(l, r, op->comm))) {
			op->index = op->cindex;
			continue;
		}
		if (!p2p) {
			op->index = coll[op->comm - 1]++;
			continue;
		}
		if (!pairs || used * 2 >= size) {
			/* Rebuilt from scratch, because pairs are few. */
			size_t want = pairs ? size * 2 : size;
			typeof(pairs) fresh = calloc(want, sizeof(*fresh));

			if (!fresh) {
				free(pairs);
				free(coll);
				return -ENOMEM;
			}
			for (size_t k = 0; pairs && k < size; k++) {
				if (!pairs[k].key)
					continue;
				at = (size_t)(pairs[k].key * 0x9e3779b97f4a7c15ULL >> 20) &
				     (want - 1);
				while (fresh[at].key)
					at = (at + 1) & (want - 1);
				fresh[at] = pairs[k];
			}
			free(pairs);
			pairs = fresh;
			size = want;
		}
		key = 1ULL << 63 | (uint64_t)op->comm << 34 |
		      (uint64_t)((uint32_t)op->peer + 1) << 1 | (op->kind == DF_KIND_SEND);
		at = (size_t)(key * 0x9e3779b97f4a7c15ULL >> 20) & (size - 1);
		while (pairs[at].key && pairs[at].key != key)
			at = (at + 1) & (size - 1);
		if (!pairs[at].key) {
			pairs[at].key = key;
			used++;
		}
		op->index = pairs[at].nr++;
	}
	free(pairs);
	free(coll);
	return 0;
}
