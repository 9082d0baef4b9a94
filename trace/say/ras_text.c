/*
 * Prints the state of a job in the format of NCCL's RAS, for people and tools that know `ncclras`:
 * a summary, communicators grouped by shape, missing ranks, ranks with different counts; or JSON
 * with RAS's keys. The verdict, which RAS does not have, is a separate section.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "runtime/base/version.h"
#include "trace/read/json_text.h"
#include "trace/record/names.h"
#include "trace/judge/result.h"
#include "runtime/base/number.h"

/* The kinds that RAS counts, in its order. */
static const enum df_kind kinds[] = {DF_KIND_BROADCAST, DF_KIND_REDUCE, DF_KIND_ALLGATHER,
				     DF_KIND_REDUCESCATTER, DF_KIND_ALLREDUCE};

#define NR_KINDS (sizeof(kinds) / sizeof(kinds[0]))
#define DETAIL	 10 /* limit of differing ranks that are listed */

struct view {
	const struct df_check_set *set;
	uint32_t gcomm;
	/* ranks; here: with a trace, and not destroyed; gone: their communicator is destroyed */
	int nodes, per_node_min, per_node_max, here, gone;
	uint32_t differs; /* bits: indices of kinds */
	int group;	  /* group of communicators with the same shape */
};

static const struct df_trace_comm *row_of(const struct df_check_set *set,
					  const struct df_trc_comm *e)
{
	const struct df_trc *t = &set->traces[e->trace];
	const struct df_trace_header *h = t->image;

	return h && e->local && e->local <= h->nr_comms
		       ? (const struct df_trace_comm *)((const char *)h + h->off_comms) + e->local -
				 1
		       : NULL;
}

static uint32_t count_of(const struct df_check_set *set, const struct df_trc_comm *e, size_t k)
{
	const struct df_trace_comm *c = row_of(set, e);

	return c ? c->kinds[kinds[k]] : 0;
}

static int is_member(const struct df_trc_comm *e)
{
	return e && e->destroyed_rec == DF_NO_REC;
}

static void look(struct view *v)
{
	const struct df_check_set *set = v->set;
	const struct df_gcomm *g = &set->gcomms[v->gcomm];
	struct {
		uint64_t host;
		int nr;
	} *nodes = calloc((size_t)g->nranks + 1, sizeof(*nodes));
	const struct df_trc_comm *first = NULL;

	for (int r = 0; nodes && r < g->nranks; r++) {
		const struct df_trc_comm *e = df_set_entry(set, v->gcomm, r);
		int n = 0;

		if (!is_member(e)) {
			v->gone += e != NULL;
			continue;
		}
		v->here++;
		while (n < v->nodes && nodes[n].host != set->traces[e->trace].h.host_hash)
			n++;
		if (n == v->nodes)
			nodes[v->nodes++].host = set->traces[e->trace].h.host_hash;
		nodes[n].nr++;
		first = first ? first : e;
		for (size_t k = 0; k < NR_KINDS; k++)
			if (count_of(set, e, k) != count_of(set, first, k))
				v->differs |= 1u << k;
	}
	for (int n = 0; nodes && n < v->nodes; n++) {
		v->per_node_min =
			!n || nodes[n].nr < v->per_node_min ? nodes[n].nr : v->per_node_min;
		v->per_node_max = nodes[n].nr > v->per_node_max ? nodes[n].nr : v->per_node_max;
	}
	free(nodes);
}

static const char *errors_of(const struct view *v)
{
	int nranks = v->set->gcomms[v->gcomm].nranks, lacks = v->here + v->gone < nranks,
	    differs = v->differs || v->gone;

	return lacks && differs ? "INCOMPLETE,MISMATCH"
	       : lacks		? "INCOMPLETE"
	       : differs	? "MISMATCH"
				: "OK";
}

static int same_shape(const struct view *a, const struct view *b)
{
	return a->nodes == b->nodes && a->per_node_min == b->per_node_min &&
	       a->per_node_max == b->per_node_max && a->gone == b->gone && a->here == b->here &&
	       a->set->gcomms[a->gcomm].nranks == b->set->gcomms[b->gcomm].nranks &&
	       !strcmp(errors_of(a), errors_of(b));
}

/* Returns all communicators that still have a member, largest first, equal shapes together. */
static struct view *views_of(const struct df_check_set *set, size_t *nr)
{
	struct view *v = calloc(set->nr_gcomms + 1, sizeof(*v)), x;
	int groups = 0;

	*nr = 0;
	for (uint32_t i = 0; v && i < set->nr_gcomms; i++) {
		x = (struct view){.set = set, .gcomm = i};
		look(&x);
		if (x.here)
			v[(*nr)++] = x;
	}
	for (size_t i = 1; v && i < *nr; i++)
		for (size_t k = i;
		     k > 0 && set->gcomms[v[k].gcomm].nranks > set->gcomms[v[k - 1].gcomm].nranks;
		     k--) {
			x = v[k];
			v[k] = v[k - 1];
			v[k - 1] = x;
		}
	for (size_t i = 0; v && i < *nr; i++) {
		size_t k = 0;

		while (k < i && !same_shape(&v[i], &v[k]))
			k++;
		v[i].group = k < i ? v[k].group : groups++;
	}
	return v;
}

static void who(FILE *out, const struct df_check_set *set, const struct df_trc_comm *e)
{
	fprintf(out, "GPU %d managed by process %u on node %s\n", e->device,
		set->traces[e->trace].h.pid, set->traces[e->trace].h.host);
}

static void summary(FILE *out, const struct df_check_set *set, unsigned asked)
{
	int nodes = 0, procs = 0, gpus = 0;
	uint64_t devices;

	for (size_t i = 0; i < set->nr_traces; i++) {
		const struct df_trc *t = &set->traces[i];
		size_t k = 0;

		if (t->dropped)
			continue;
		while (k < i &&
		       (set->traces[k].dropped || set->traces[k].h.host_hash != t->h.host_hash))
			k++;
		nodes += k == i;
		procs++;
		devices = 0;
		for (uint32_t n = 0; n < t->nr_entries; n++)
			devices |= 1ULL << (set->entries[t->first_entry + n].device & 63);
		gpus += __builtin_popcountll(devices);
	}
	fprintf(out,
		"Job summary\n===========\n\n"
		"  Nodes  Processes         GPUs  Processes     GPUs\n"
		"(total)   per node  per process    (total)  (total)\n"
		"%7d  %9d  %11d  %9d  %7d\n",
		nodes, nodes ? (procs + nodes - 1) / nodes : 0,
		procs ? (gpus + procs - 1) / procs : 0, procs, gpus);
	if (asked > (unsigned)procs)
		fprintf(out, "\n%u of %u processes answered.\n", (unsigned)procs, asked);
}

static void table(FILE *out, const struct df_check_set *set, const struct view *v, size_t nr)
{
	if (!nr) {
		fputs("No communicator data collected!\n", out);
		return;
	}
	fputs("Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
	      "    #  in group  per comm  per node  per comm  in group\n",
	      out);
	for (size_t i = 0; i < nr; i++) {
		char per_node[32];
		int comms = 0, ranks = 0;
		size_t k = 0;

		while (v[k].group != v[i].group)
			k++;
		if (k < i)
			continue;
		for (; k < nr; k++) {
			comms += v[k].group == v[i].group;
			ranks += v[k].group == v[i].group ? v[k].here : 0;
		}
		if (v[i].per_node_min == v[i].per_node_max)
			snprintf(per_node, sizeof(per_node), "%d", v[i].per_node_min);
		else
			snprintf(per_node, sizeof(per_node), "%d-%d", v[i].per_node_min,
				 v[i].per_node_max);
		fprintf(out, "%5d  %8d  %8d  %8s  %8d  %8d  %8s  %6s\n", v[i].group, comms,
			v[i].nodes, per_node, set->gcomms[v[i].gcomm].nranks, ranks,
			v[i].gone ? "FINALIZE" : "RUNNING", errors_of(&v[i]));
	}
}

/* Returns the number of v[i] within its group. */
static int place_of(const struct view *v, size_t i)
{
	int n = 0;

	for (size_t k = 0; k < i; k++)
		n += v[k].group == v[i].group;
	return n;
}

static void incomplete(FILE *out, const struct view *v, size_t i)
{
	const struct df_check_set *set = v[i].set;
	const struct df_gcomm *g = &set->gcomms[v[i].gcomm];
	int lacks = g->nranks - v[i].here - v[i].gone, told = 0;

	if (!lacks)
		return;
	fprintf(out,
		"#%d-%d (%016" PRIx64 ") INCOMPLETE\n  Missing communicator data from %d rank%s\n",
		v[i].group, place_of(v, i), g->hash, lacks, lacks > 1 ? "s" : "");
	for (int r = 0; r < g->nranks && told < DETAIL; r++) {
		const struct df_trc_member *m;

		if (df_set_entry(set, v[i].gcomm, r))
			continue;
		told++;
		m = df_set_member(set, v[i].gcomm, r);
		if (m)
			fprintf(out, "  Rank %d -- GPU %d managed by process %u\n", r, m->device,
				m->pid);
		else
			fprintf(out, "  Rank %d -- [process information not found]\n", r);
	}
	fputc('\n', out);
}

static void counts(FILE *out, const struct view *v, size_t i, size_t k)
{
	const struct df_check_set *set = v[i].set;
	const struct df_gcomm *g = &set->gcomms[v[i].gcomm];
	uint32_t low = UINT32_MAX, high = 0, n;

	fprintf(out,
		"#%d-%d (%016" PRIx64
		") MISMATCH\n  Communicator ranks have different %s operation counts\n",
		v[i].group, place_of(v, i), g->hash, df_kind_name((uint8_t)kinds[k]));
	for (int r = 0; r < g->nranks; r++) {
		const struct df_trc_comm *e = df_set_entry(set, v[i].gcomm, r);

		if (!is_member(e))
			continue;
		n = count_of(set, e, k);
		low = n < low ? n : low;
		high = n > high ? n : high;
	}
	for (uint32_t c = high;; c--) {
		int nr = 0;

		for (int r = 0; r < g->nranks; r++) {
			const struct df_trc_comm *e = df_set_entry(set, v[i].gcomm, r);

			nr += is_member(e) && count_of(set, e, k) == c;
		}
		if (nr && c)
			fprintf(out, "  %d rank%s launched up to operation %u\n", nr,
				nr > 1 ? "s have" : " has", c);
		else if (nr)
			fprintf(out, "  %d rank%s not launched any operations\n", nr,
				nr > 1 ? "s have" : " has");
		for (int r = 0, told = 0; c < high && nr && r < g->nranks && told < DETAIL; r++) {
			const struct df_trc_comm *e = df_set_entry(set, v[i].gcomm, r);

			if (!is_member(e) || count_of(set, e, k) != c)
				continue;
			told++;
			fprintf(out, "  Rank %d -- ", r);
			who(out, set, e);
		}
		if (c == low || high - c > 64)
			break;
	}
	fputc('\n', out);
}

static void print_text(const struct df_check_result *r, FILE *out, const struct view *v, size_t nr,
		       unsigned asked, double seconds)
{
	fprintf(out, "dfshim version " DF_VERSION ", answering in place of NCCL\n\n");
	summary(out, r->set, asked);
	fprintf(out, "\nCommunicators... (%.3fs)\n=============\n\n", seconds);
	table(out, r->set, v, nr);
	fputs("\nErrors\n======\n\n", out);
	for (size_t i = 0; i < r->set->nr_dead; i++) {
		const struct df_dead *d = &r->set->dead[i];

		if (d->in_order)
			continue;
		fprintf(out, "DEAD\n  Process %u, rank %d of communicator %016" PRIx64 "\n\n",
			d->pid, d->rank, d->comm_hash);
	}
	for (size_t i = 0; i < nr; i++)
		incomplete(out, v, i);
	fputs("Warnings\n========\n\n", out);
	for (size_t i = 0; i < nr; i++)
		for (size_t k = 0; k < NR_KINDS; k++)
			if (v[i].differs >> k & 1)
				counts(out, v, i, k);
	fputs("Verdict\n=======\n\n", out);
	df_check_print(r, out);
}

static void print_rank(FILE *out, const struct df_check_set *set, const struct df_trc_comm *e,
		       int rank)
{
	const struct df_trc *t = &set->traces[e->trace];

	fprintf(out, "        {\n          \"rank\": %d,\n          \"host\": ", rank);
	df_json_string(out, t->h.host);
	fprintf(out,
		",\n          \"pid\": %u,\n          \"cuda_dev\": %d,\n"
		"          \"nvml_dev\": %d,\n"
		"          \"status\": {\n            \"init_state\": 0,\n"
		"            \"async_error\": 0,\n"
		"            \"finalize_called\": false,\n            \"destroy_flag\": false,\n"
		"            \"abort_flag\": false\n          },\n"
		"          \"collective_counts\": {\n",
		t->h.pid, e->device, e->device);
	for (size_t k = 0; k < NR_KINDS; k++)
		fprintf(out, "            \"%s\": %u%s\n", df_kind_name((uint8_t)kinds[k]),
			count_of(set, e, k), k + 1 < NR_KINDS ? "," : "");
	fputs("          }\n        }", out);
}

static void print_missing(FILE *out, const struct df_check_set *set, uint32_t gcomm, int rank)
{
	const struct df_gcomm *g = &set->gcomms[gcomm];
	const struct df_trc_member *m = df_set_member(set, gcomm, rank);
	int dead = 0;

	for (size_t i = 0; i < set->nr_dead; i++)
		dead |= set->dead[i].comm_hash == g->hash && set->dead[i].rank == rank;
	fprintf(out,
		"        {\n          \"rank\": %d,\n          \"host\": \"\",\n"
		"          \"pid\": %u,\n"
		"          \"cuda_dev\": %d,\n          \"nvml_dev\": %d,\n"
		"          \"status\": {\n"
		"            \"unresponsive\": %s,\n            \"considered_dead\": %s\n"
		"          }\n        }",
		rank, m ? m->pid : 0, m ? m->device : -1, m ? m->device : -1,
		dead ? "false" : "true", dead ? "true" : "false");
}

static void print_json(const struct df_check_result *r, FILE *out, const struct view *v, size_t nr,
		       unsigned asked, double seconds)
{
	const struct df_check_set *set = r->set;
	time_t now = time(NULL);
	unsigned answered = 0;
	char stamp[32] = "";
	struct tm tm;

	if (localtime_r(&now, &tm))
		strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M:%S", &tm);
	fprintf(out,
		"{\n  \"nccl_version\": \"dfshim " DF_VERSION
		"\",\n  \"cuda_runtime_version\": 0,\n"
		"  \"cuda_driver_version\": 0,\n  \"timestamp\": \"%s\",\n"
		"  \"communicators_count\": %zu,\n"
		"  \"communicators\": [\n",
		stamp, nr);
	for (size_t i = 0; i < nr; i++) {
		const struct df_gcomm *g = &set->gcomms[v[i].gcomm];
		int printed = 0;

		fprintf(out,
			"%s    {\n      \"hash\": \"0x%" PRIx64
			"\",\n      \"secondary_hash\": \"0x%" PRIx64
			":0x0\",\n      \"size\": %d,\n      \"ranks_count\": %d,\n"
			"      \"missing_ranks_count\": %d,\n      \"ranks\": [\n",
			i ? ",\n" : "", g->hash, g->parent, g->nranks, v[i].here,
			g->nranks - v[i].here);
		for (int k = 0; k < g->nranks; k++) {
			const struct df_trc_comm *e = df_set_entry(set, v[i].gcomm, k);

			if (!is_member(e))
				continue;
			fputs(printed++ ? ",\n" : "", out);
			print_rank(out, set, e, k);
		}
		fputs("\n      ],\n      \"missing_ranks\": [\n", out);
		printed = 0;
		for (int k = 0; k < g->nranks; k++) {
			if (is_member(df_set_entry(set, v[i].gcomm, k)))
				continue;
			fputs(printed++ ? ",\n" : "", out);
			print_missing(out, set, v[i].gcomm, k);
		}
		fputs("\n      ]\n    }", out);
	}
	for (size_t i = 0; i < set->nr_traces; i++)
		answered += !set->traces[i].dropped;
	fprintf(out,
		"\n  ],\n  \"ras\": {\n    \"collection_time_sec\": %.3f,\n"
		"    \"timeouts_count\": %u\n  },\n"
		"  \"verdict\": ",
		seconds, asked > answered ? asked - answered : 0);
	df_json_string(out, df_check_line(r));
	fputs("\n}\n", out);
}

void df_check_print_ras(const struct df_check_result *r, FILE *out, int json, unsigned asked,
			double seconds)
{
	DF_DECIMAL_POINT;
	size_t nr;
	struct view *v = views_of(r->set, &nr);

	if (!v)
		return;
	if (json)
		print_json(r, out, v, nr, asked, seconds);
	else
		print_text(r, out, v, nr, asked, seconds);
	free(v);
}
