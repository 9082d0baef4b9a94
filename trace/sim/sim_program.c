/*
 * Makes the random program of a round: draws its rare turns by jumping from one to the next with
 * geometric gaps, and finds the order of issue that follows from these.
 *
 * A turn of the published program draws r1 and synchronises if r1 < s, else it passes over each
 * remaining collective with probability d. So turns are independent, a turn is rare with
 * probability s + (1 - s) d, the number of ordinary turns before the next rare one is geometric,
 * and a rare turn is a synchronisation with probability s / (s + (1 - s) d). The gap is memoryless,
 * so the rest of it at the end of one GPU carries over to the next.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/vec.h"
#include "trace/sim/sim_int.h"

#define MAX_TURNS (1 << 30)

void df_sim_odds_init(struct df_sim_odds *odds, double disorder, double sync)
{
	double q = sync + (1 - sync) * disorder;

	odds->disorder = disorder;
	odds->sync = sync;
	/* log(1 - q) = log(1 - s) + log(1 - d), without losing small probabilities. */
	odds->log_q = log1p(-sync) + log1p(-disorder);
	odds->log_disorder = disorder > 0 ? log(disorder) : -INFINITY;
	odds->sync_share = q > 0 ? sync / q : 0;
}

int df_sim_program_init(struct df_sim_program *prog, const struct df_sim_part *part)
{
	memset(prog, 0, sizeof(*prog));
	prog->size = 256;
	prog->rare = malloc((size_t)prog->size * sizeof(*prog->rare));
	prog->start = calloc((size_t)part->nr_gpus + 1, sizeof(*prog->start));
	if (!prog->rare || !prog->start) {
		df_sim_program_fini(prog);
		return -ENOMEM;
	}
	return 0;
}

void df_sim_program_fini(struct df_sim_program *prog)
{
	free(prog->rare);
	free(prog->start);
	memset(prog, 0, sizeof(*prog));
}

static int add_rare(struct df_sim_program *prog, int turn, int skip)
{
	struct df_sim_rare *v = DF_VEC_PUSH(prog->rare, prog->nr_rare, prog->size);

	if (!v)
		return -ENOMEM;
	*v = (struct df_sim_rare){turn, skip};
	return 0;
}

int df_sim_program_draw(struct df_sim_program *prog, const struct df_sim_part *part,
			const struct df_sim_odds *odds, struct df_rng *rng)
{
	int64_t gap = df_rng_geometric(rng, odds->log_q);
	int rc = 0;

	prog->nr_rare = prog->nr_disorder = prog->nr_sync = prog->nr_danger = 0;
	for (int g = 0; g < part->nr_gpus; g++) {
		int left = df_sim_list_len(part, g), turn = 0, passed = 0;

		prog->start[g] = prog->nr_rare;
		while (left > 0) {
			int n = gap < left ? (int)gap : left;

			gap -= n;
			left -= n;
			turn += n;
			passed = passed > n ? passed - n : 0;
			if (!left)
				break;
			gap = df_rng_geometric(rng, odds->log_q);
			if (odds->sync_share > 0 && df_rng_unit(rng) <= odds->sync_share) {
				rc = add_rare(prog, turn,
					      passed ? DF_SIM_SYNC_DANGER : DF_SIM_SYNC_CALM);
				prog->nr_sync++;
				prog->nr_danger += passed > 0;
			} else {
				int64_t skip = left;

				if (odds->disorder < 1)
					skip = 1 + df_rng_geometric(rng, odds->log_disorder);
				if (skip > left - 1)
					skip = left - 1;
				if (skip) {
					rc = add_rare(prog, turn, (int)skip);
					prog->nr_disorder++;
				}
				/*
				 * This turn issues a passed-over collective, or one after `skip`
				 * others.
				 */
				if (skip >= passed)
					passed = (int)skip;
				else
					passed--;
				left--;
			}
			if (rc)
				return rc;
			if (++turn > MAX_TURNS)
				return -E2BIG;
		}
	}
	prog->start[part->nr_gpus] = prog->nr_rare;
	return 0;
}

/* -- excursions -------------------------------------------------------------------------------- */

int df_sim_excursions_init(struct df_sim_excursions *ex, const struct df_sim_part *part)
{
	int longest = 0;

	memset(ex, 0, sizeof(*ex));
	for (int g = 0; g < part->nr_gpus; g++)
		if (df_sim_list_len(part, g) > longest)
			longest = df_sim_list_len(part, g);
	ex->size = 64;
	ex->v = malloc((size_t)ex->size * sizeof(*ex->v));
	ex->order = malloc(((size_t)part->nr_events + 1) * sizeof(*ex->order));
	ex->skipped = malloc(((size_t)longest + 1) * sizeof(*ex->skipped));
	if (!ex->v || !ex->order || !ex->skipped) {
		df_sim_excursions_fini(ex);
		return -ENOMEM;
	}
	return 0;
}

void df_sim_excursions_fini(struct df_sim_excursions *ex)
{
	free(ex->v);
	free(ex->order);
	free(ex->skipped);
	memset(ex, 0, sizeof(*ex));
}

int df_sim_excursions_find(struct df_sim_excursions *ex, const struct df_sim_part *part,
			   const struct df_sim_program *prog)
{
	int used = 0, *sk = ex->skipped;

	ex->nr = 0;
	for (int g = 0; g < part->nr_gpus; g++) {
		const int *list = part->list + part->list_start[g];
		int turn = 0, pos = 0, passed = 0, len = df_sim_list_len(part, g);
		struct df_sim_excursion *e = NULL;

		for (int r = prog->start[g];; r++) {
			int last = r == prog->start[g + 1];
			int n = last ? len - pos + passed : prog->rare[r].turn - turn;
			int skip = last ? 0 : prog->rare[r].skip;

			/*
			 * These turns are ordinary: they first issue the passed-over collectives,
			 * in order.
			 */
			for (; n && passed; n--) {
				ex->order[used++] = sk[0];
				memmove(sk, sk + 1, (size_t)--passed * sizeof(*sk));
			}
			pos += n;
			if (e && !passed) {
				e->nr = pos - n - e->first;
				e = NULL;
			}
			if (last)
				break;
			turn = prog->rare[r].turn + 1;
			if (skip <= 0)
				continue;
			if (!e) {
				e = DF_VEC_PUSH(ex->v, ex->nr, ex->size);
				if (!e)
					return -ENOMEM;
				*e = (struct df_sim_excursion){g, pos, 0, ex->order + used};
			}
			if (skip < passed) {
				ex->order[used++] = sk[skip];
				passed--;
				memmove(sk + skip, sk + skip + 1,
					(size_t)(passed - skip) * sizeof(*sk));
			} else {
				while (passed < skip)
					sk[passed++] = list[pos++];
				ex->order[used++] = list[pos++];
			}
		}
	}
	return 0;
}
