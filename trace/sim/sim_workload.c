/* Makes workloads and their parts. One thread builds them; afterwards they are only read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/sim/sim_int.h"

int df_sim_workload_init(struct df_sim_workload *load, int nr_groups, int nr_members)
{
	struct df_sim_workload w = {.nr_groups = nr_groups};

	w.start = calloc((size_t)nr_groups + 1, sizeof(*w.start));
	w.members = calloc((size_t)nr_members + 1, sizeof(*w.members));
	w.nr_colls = calloc((size_t)nr_groups + 1, sizeof(*w.nr_colls));
	if (!w.start || !w.members || !w.nr_colls) {
		df_sim_workload_fini(&w);
		return -ENOMEM;
	}
	*load = w;
	return 0;
}

void df_sim_workload_fini(struct df_sim_workload *load)
{
	free(load->start);
	free(load->members);
	free(load->nr_colls);
	memset(load, 0, sizeof(*load));
}

int64_t df_sim_workload_events(const struct df_sim_workload *load)
{
	int64_t n = 0;

	for (int g = 0; g < load->nr_groups; g++)
		n += (int64_t)load->nr_colls[g] * (load->start[g + 1] - load->start[g]);
	return n;
}

int df_sim_workload_scale(struct df_sim_workload *out, const struct df_sim_workload *in, int factor)
{
	int largest = 0, nr_groups = 0, nr_members, g, at = 0, rc;
	struct df_sim_workload w;

	if (factor < 1 || (int64_t)factor * in->nr_gpus > DF_SIM_MAX_GPUS ||
	    factor * df_sim_workload_events(in) > DF_SIM_MAX_EVENTS)
		return -EINVAL;
	for (g = 0; g < in->nr_groups; g++)
		if (in->start[g + 1] - in->start[g] > largest)
			largest = in->start[g + 1] - in->start[g];
	for (g = 0; g < in->nr_groups; g++)
		nr_groups += in->start[g + 1] - in->start[g] == largest ? 1 : factor;
	nr_members = in->start[in->nr_groups] * factor;
	rc = df_sim_workload_init(&w, nr_groups, nr_members);
	if (rc)
		return rc;
	w.nr_gpus = in->nr_gpus * factor;
	nr_groups = 0;
	for (g = 0; g < in->nr_groups; g++) {
		int merge = in->start[g + 1] - in->start[g] == largest;

		for (int copy = 0; copy < factor; copy++) {
			for (int i = in->start[g]; i < in->start[g + 1]; i++)
				w.members[at++] = in->members[i] + copy * in->nr_gpus;
			if (!merge || copy == factor - 1) {
				w.nr_colls[nr_groups++] = in->nr_colls[g];
				w.start[nr_groups] = at;
			}
		}
	}
	*out = w;
	return 0;
}

/* -- parts ------------------------------------------------------------------------------------- */

static void part_fini(struct df_sim_part *p)
{
	free(p->list_start);
	free(p->list);
	free(p->group_start);
	free(p->members);
	free(p->coll_group);
	free(p->at_start);
	free(p->at);
	memset(p, 0, sizeof(*p));
}

#define ALLOC(p, n) (((p) = calloc((size_t)(n) + 1, sizeof(*(p)))) != NULL)

/*
 * Builds a part. `groups` are the numbers of its groups in the workload, ascending. `local` gives
 * the number of each GPU inside the part. Fails with -ENOMEM.
 */
static int part_init(struct df_sim_part *p, const struct df_sim_workload *load, const int *groups,
		     int nr_groups, const int *local, int nr_gpus, enum df_sim_dispatch dispatch)
{
	int nr_members = 0, nr_colls = 0, nr_events = 0, deepest = 0, *fill = NULL;

	memset(p, 0, sizeof(*p));
	for (int i = 0; i < nr_groups; i++) {
		int g = groups[i], size = load->start[g + 1] - load->start[g];

		nr_members += size;
		nr_colls += load->nr_colls[g];
		nr_events += load->nr_colls[g] * size;
		if (load->nr_colls[g] > deepest)
			deepest = load->nr_colls[g];
	}
	p->nr_gpus = nr_gpus;
	p->nr_groups = nr_groups;
	p->nr_colls = nr_colls;
	p->nr_events = nr_events;
	if (!ALLOC(p->list_start, nr_gpus + 1) || !ALLOC(p->list, nr_events) ||
	    !ALLOC(p->group_start, nr_groups + 1) || !ALLOC(p->members, nr_members) ||
	    !ALLOC(p->coll_group, nr_colls) || !ALLOC(p->at_start, nr_colls + 1) ||
	    !ALLOC(p->at, nr_events) || !ALLOC(fill, nr_gpus)) {
		part_fini(p);
		free(fill);
		return -ENOMEM;
	}

	nr_members = 0;
	for (int i = 0; i < nr_groups; i++) {
		int g = groups[i];

		for (int m = load->start[g]; m < load->start[g + 1]; m++) {
			int gpu = local[load->members[m]];

			p->members[nr_members++] = gpu;
			p->list_start[gpu + 1] += load->nr_colls[g];
		}
		p->group_start[i + 1] = nr_members;
	}
	for (int g = 0; g < nr_gpus; g++)
		p->list_start[g + 1] += p->list_start[g];

	/* Number the collectives in dispatch order: by place then group, or by group then place. */
	nr_colls = 0;
	if (dispatch == DF_SIM_CONCATENATE) {
		for (int i = 0; i < nr_groups; i++)
			for (int k = 0; k < load->nr_colls[groups[i]]; k++)
				p->coll_group[nr_colls++] = i;
	} else {
		for (int k = 0; k < deepest; k++)
			for (int i = 0; i < nr_groups; i++)
				if (k < load->nr_colls[groups[i]])
					p->coll_group[nr_colls++] = i;
	}
	nr_events = 0;
	for (int c = 0; c < nr_colls; c++) {
		int i = p->coll_group[c];

		p->at_start[c] = nr_events;
		for (int m = p->group_start[i]; m < p->group_start[i + 1]; m++) {
			int gpu = p->members[m];

			p->at[nr_events++] = fill[gpu];
			p->list[p->list_start[gpu] + fill[gpu]++] = c;
		}
	}
	p->at_start[nr_colls] = nr_events;
	free(fill);
	return 0;
}

/*
 * Whether parts made from `groups` and from `other` would be equal. `nr_groups` is the length of
 * both.
 */
static int same_shape(const struct df_sim_workload *load, const int *local, const int *groups,
		      const int *other, int nr_groups)
{
	for (int i = 0; i < nr_groups; i++) {
		int a = groups[i], b = other[i], size = load->start[a + 1] - load->start[a];

		if (size != load->start[b + 1] - load->start[b] ||
		    load->nr_colls[a] != load->nr_colls[b])
			return 0;
		for (int m = 0; m < size; m++)
			if (local[load->members[load->start[a] + m]] !=
			    local[load->members[load->start[b] + m]])
				return 0;
	}
	return 1;
}

static int find_root(int *up, int x)
{
	while (up[x] != x)
		x = up[x] = up[up[x]];
	return x;
}

struct kind {
	int groups_at, nr_groups, nr_gpus;
};

/*
 * A new part is compared with this number of previous shapes. There is rarely more than one
 * shape.
 */
#define KINDS_BACK 16

int df_sim_system_init(struct df_sim_system *sys, const struct df_sim_workload *load,
		       enum df_sim_dispatch dispatch, int split)
{
	int n = load->nr_gpus, ng = load->nr_groups, nr_parts = 0, rc = -ENOMEM, g, i;
	int *up = NULL, *part = NULL, *local = NULL, *count = NULL, *groups = NULL, *at = NULL;
	struct kind *kinds = NULL;

	memset(sys, 0, sizeof(*sys));
	if (!ALLOC(up, n) || !ALLOC(part, n) || !ALLOC(local, n) || !ALLOC(count, n) ||
	    !ALLOC(groups, ng) || !ALLOC(at, n + 1))
		goto out;
	for (i = 0; i < n; i++)
		up[i] = i;
	for (g = 0; g < ng; g++)
		for (i = load->start[g]; i < load->start[g + 1]; i++) {
			int a = find_root(up, split ? load->members[load->start[g]] : 0);
			int b = find_root(up, load->members[i]);

			/*
			 * The smaller number is the root, so that parts are in the order of their
			 * first GPU.
			 */
			if (a < b)
				up[b] = a;
			else
				up[a] = b;
		}
	for (i = 0; i < n; i++) {
		int r = find_root(up, i);

		part[i] = r == i ? nr_parts++ : part[r];
		local[i] = count[part[i]]++;
	}
	/* Sort the groups by part. */
	for (g = 0; g < ng; g++)
		at[part[load->members[load->start[g]]] + 1]++;
	for (i = 0; i < nr_parts; i++)
		at[i + 1] += at[i];
	for (g = 0; g < ng; g++)
		groups[at[part[load->members[load->start[g]]]]++] = g;
	for (i = nr_parts; i > 0; i--)
		at[i] = at[i - 1];
	at[0] = 0;

	if (!ALLOC(sys->part_of, nr_parts) || !ALLOC(sys->parts, nr_parts) ||
	    !ALLOC(kinds, nr_parts))
		goto out;
	for (i = 0; i < nr_parts; i++) {
		int nr_groups = at[i + 1] - at[i], k, stop = sys->nr_kinds - KINDS_BACK;

		for (k = sys->nr_kinds - 1; k >= 0 && k >= stop; k--)
			if (kinds[k].nr_groups == nr_groups && kinds[k].nr_gpus == count[i] &&
			    same_shape(load, local, groups + at[i], groups + kinds[k].groups_at,
				       nr_groups))
				break;
		if (k < 0 || k < stop) {
			k = sys->nr_kinds;
			rc = part_init(&sys->parts[k], load, groups + at[i], nr_groups, local,
				       count[i], dispatch);
			if (rc)
				goto out;
			rc = -ENOMEM;
			kinds[k] = (struct kind){at[i], nr_groups, count[i]};
			sys->nr_kinds++;
		}
		sys->part_of[i] = k;
	}
	sys->nr_parts = nr_parts;
	rc = 0;
out:
	if (rc)
		df_sim_system_fini(sys);
	free(up);
	free(part);
	free(local);
	free(count);
	free(groups);
	free(at);
	free(kinds);
	return rc;
}

void df_sim_system_fini(struct df_sim_system *sys)
{
	for (int k = 0; k < sys->nr_kinds; k++)
		part_fini(&sys->parts[k]);
	free(sys->parts);
	free(sys->part_of);
	memset(sys, 0, sizeof(*sys));
}
