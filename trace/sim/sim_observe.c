/*
 * Makes a workload from records. A GPU is a device of a traced process, and a group is a
 * communicator. A collective is identified in its communicator by kind, type, operator and count,
 * and by k: it is the k-th such collective of its rank. dfshim matches calls in the same way.
 *
 * Disorder can be counted only among GPUs that have an order in common. This holds for the members
 * of one communicator. It also holds for all communicators together among GPUs that are members of
 * the same communicators (a class). The reference order is that of the GPU for which the fewest
 * issues of the other GPUs look disordered. An issue is out of order if a collective that precedes
 * it in the reference order has not been issued yet. This is the simulator's meaning too: there a
 * draw passes over the next collective. The larger of a GPU's two counts is used.
 */
#define _GNU_SOURCE /* qsort_r */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <uthash.h>

#include "runtime/base/err.h"
#include "runtime/base/vec.h"
#include "trace/record/names.h"
#include "trace/read/reader.h"
#include "trace/sim/sim_int.h"
#include "trace/sim/sim_observe.h"

#define MAX_DEPTH      4
#define MAX_REFERENCES 8

/*
 * An issue. `what` is first the identity of the collective and later its number in its
 * communicator.
 */
struct issue {
	int gpu, group, what;
};

struct gpu {
	int rank, trace, device, number;
	uint64_t class; /* equal for GPUs that are in the same communicators */
	/*
	 * number of issues out of order, compared within each communicator, and over all
	 * communicators together among the GPUs of this class
	 */
	int64_t inside, among;
};

struct group {
	uint64_t hash;
	int nranks;
	UT_hash_handle hh;
};

/* A collective of a communicator: the nth that its rank issued with this kind and count. */
struct look {
	struct {
		uint64_t kind, count;
		int group, nth;
	} key;
	int number;
	UT_hash_handle hh;
};

/* How many collectives of one kind and count a GPU has issued in a group. */
struct tally {
	struct {
		uint64_t kind, count;
		int group, gpu;
	} key;
	int n;
	UT_hash_handle hh;
};

struct work {
	struct df_sim_observed *out;
	char *err;
	size_t err_size;
	struct issue *issues;
	int nr_issues, size;
	struct gpu *gpus;
	int nr_gpus, gpus_size;
	struct group **groups; /* by number */
	int *nr_looks;	       /* by group: number of entries of type look */
	int *base;	       /* by group: number of its first collective among all collectives */
	int nr_groups, groups_size;
	struct group *by_hash;
	struct look *looks;
	struct tally *tallies;
};

static int fail(struct work *w, int rc, const char *path, const char *why)
{
	snprintf(w->err, w->err_size, "%s: %s", path, why);
	return rc;
}

static int is_device_wide(uint64_t call)
{
	enum df_call_class class = df_call_class((uint32_t)call);

	return call < DF_CALL_NR && (class == DF_CLASS_DEVICE || class == DF_CLASS_IMPLICIT);
}

static int gpu_of(struct work *w, int trace, int device, int rank)
{
	for (int i = w->nr_gpus - 1; i >= 0 && w->gpus[i].trace == trace; i--)
		if (w->gpus[i].device == device)
			return i;
	if (DF_VEC_ROOM(w->gpus, w->gpus_size, w->nr_gpus + 1))
		return -ENOMEM;
	w->gpus[w->nr_gpus] = (struct gpu){.rank = rank, .trace = trace, .device = device};
	return w->nr_gpus++;
}

static int group_of(struct work *w, uint64_t hash, int nranks)
{
	struct group *g;
	int size = w->groups_size;

	HASH_FIND(hh, w->by_hash, &hash, sizeof(hash), g);
	if (g) {
		for (int i = w->nr_groups - 1; i >= 0; i--)
			if (w->groups[i] == g)
				return i;
	}
	if (DF_VEC_ROOM(w->nr_looks, size, w->nr_groups + 1) ||
	    DF_VEC_ROOM(w->groups, w->groups_size, w->nr_groups + 1))
		return -ENOMEM;
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	g->hash = hash;
	g->nranks = nranks;
	HASH_ADD(hh, w->by_hash, hash, sizeof(g->hash), g);
	w->groups[w->nr_groups] = g;
	w->nr_looks[w->nr_groups] = 0;
	return w->nr_groups++;
}

/*
 * Returns the number, in its group, of the collective that `gpu` issues now. Returns a negative
 * error if memory is short.
 */
static int number_of(struct work *w, int gpu, int group, uint64_t kind, uint64_t count)
{
	struct tally *t, tk;
	struct look *l, lk;

	memset(&tk, 0, sizeof(tk));
	memset(&lk, 0, sizeof(lk));
	tk.key.kind = lk.key.kind = kind;
	tk.key.count = lk.key.count = count;
	tk.key.group = lk.key.group = group;
	tk.key.gpu = gpu;
	HASH_FIND(hh, w->tallies, &tk.key, sizeof(tk.key), t);
	if (!t) {
		t = malloc(sizeof(*t));
		if (!t)
			return -ENOMEM;
		*t = tk;
		HASH_ADD(hh, w->tallies, key, sizeof(t->key), t);
	}
	lk.key.nth = t->n++;
	HASH_FIND(hh, w->looks, &lk.key, sizeof(lk.key), l);
	if (!l) {
		l = malloc(sizeof(*l));
		if (!l)
			return -ENOMEM;
		*l = lk;
		l->number = w->nr_looks[group]++;
		HASH_ADD(hh, w->looks, key, sizeof(l->key), l);
	}
	return l->number;
}

static int read_trace(struct work *w, const char *path)
{
	int trace = w->out->nr_traces, rc = 0, seen = 0;
	int64_t syncs_since = 0;
	const struct df_rec *rec;
	struct df_reader r;
	const char *why;
	uint64_t index;

	rc = df_reader_open(&r, path, &why);
	if (rc == -EPROTO)
		return fail(w, rc, path, why);
	if (rc)
		return fail(w, -EIO, path, strerror(-rc));
	w->out->nr_traces++;
	w->out->nr_dropped += (int64_t)r.first;
	while (!rc && (rec = df_reader_next(&r, &index))) {
		const struct df_trace_comm *comm;
		struct issue i;
		uint64_t kind = rec->a & 0xff;

		/* A synchronisation counts only if the rank communicated before and after it. */
		if (rec->type == DF_REC_CALL_ENTER && is_device_wide(rec->a) && seen)
			syncs_since++;
		if (rec->type != DF_REC_OP_ISSUE || kind == DF_KIND_SEND || kind == DF_KIND_RECV ||
		    kind == DF_KIND_SENDRECV_SELF)
			continue;
		comm = df_reader_comm(&r, rec->comm);
		if (!comm)
			continue;
		seen = 1;
		w->out->nr_sync += syncs_since;
		syncs_since = 0;
		i.gpu = gpu_of(w, trace, comm->device, r.h.rank);
		i.group = i.gpu < 0 ? i.gpu : group_of(w, comm->hash, comm->nranks);
		i.what = i.group < 0 ? i.group
				     : number_of(w, i.gpu, i.group, rec->a & 0xffffff, rec->b);
		if (i.what < 0 || DF_VEC_ROOM(w->issues, w->size, w->nr_issues + 1))
			rc = fail(w, -ENOMEM, path, "out of memory");
		else if (w->nr_issues >= DF_SIM_MAX_EVENTS)
			rc = fail(w, -EINVAL, path, "too many collectives in these traces");
		else
			w->issues[w->nr_issues++] = i;
	}
	df_reader_close(&r);
	return rc;
}

static int read_dir(struct work *w, const char *dir, int depth)
{
	struct dirent **list;
	int n = scandir(dir, &list, NULL, alphasort), rc = 0;

	if (n < 0)
		return fail(w, -EIO, dir, strerror(errno));
	for (int i = 0; i < n; i++) {
		const char *name = list[i]->d_name;
		size_t len = strlen(name);
		char path[4096];
		struct stat st;

		if (!rc && *name != '.' &&
		    snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
		    !stat(path, &st)) {
			if (S_ISDIR(st.st_mode) && depth < MAX_DEPTH)
				rc = read_dir(w, path, depth + 1);
			else if (S_ISREG(st.st_mode) && len > 4 && !strcmp(name + len - 4, ".dft"))
				rc = read_trace(w, path);
		}
		free(list[i]);
	}
	free(list);
	return rc;
}

/* -- counting ---------------------------------------------------------------------------------- */

static int by_gpu_in_group(const void *a, const void *b)
{
	const struct issue *x = *(const struct issue *const *)a,
			   *y = *(const struct issue *const *)b;

	/* The last key keeps the recorded order. */
	return DF_CMP(x->group, y->group) ?: DF_CMP(x->gpu, y->gpu) ?: DF_CMP(x, y);
}

static int by_gpu_in_class(const void *a, const void *b, void *arg)
{
	const struct issue *x = *(const struct issue *const *)a,
			   *y = *(const struct issue *const *)b;
	const struct work *w = arg;
	uint64_t cx = w->gpus[x->gpu].class, cy = w->gpus[y->gpu].class;

	return DF_CMP(cx, cy) ?: DF_CMP(x->gpu, y->gpu) ?: DF_CMP(x, y);
}

/* Returns the index after the last issue of v[i]'s GPU. */
static int gpu_end(struct issue **v, int i, int n)
{
	int j = i;

	while (j < n && v[j]->gpu == v[i]->gpu)
		j++;
	return j;
}

static int number_in(const struct work *w, const struct issue *i, int whole)
{
	return i->what + (whole ? w->base[i->group] : 0);
}

/*
 * Counts those of the issues v[0..n-1] that are earlier than an issue that precedes them in the
 * reference order. `place` gives the position of each collective in that order, whose length is
 * `len`.
 */
static int64_t count_disorder(const struct work *w, struct issue **v, int n, int whole,
			      const int *place, unsigned char *taken, int len)
{
	int64_t nr = 0;
	int first = 0;

	/* Collectives of the reference that this GPU never issues do not count. */
	memset(taken, 1, (size_t)len);
	for (int i = 0; i < n; i++)
		if (place[number_in(w, v[i], whole)] >= 0)
			taken[place[number_in(w, v[i], whole)]] = 0;
	for (int i = 0; i < n; i++) {
		int p = place[number_in(w, v[i], whole)];

		if (p < 0)
			continue;
		while (first < len && taken[first])
			first++;
		nr += p > first;
		taken[p] = 1;
	}
	return nr;
}

/*
 * Counts the disorder of GPUs that have an order in common. Adds the count to `inside` of each GPU
 * (for a communicator), or to `among` if `whole` (for a class). v[0..n-1] are their issues, sorted
 * by GPU. `len` is the number of different collectives. Fails with -ENOMEM.
 */
static int compare_orders(struct work *w, struct issue **v, int n, int whole, int len)
{
	int *place = malloc(((size_t)len + 1) * sizeof(*place)), longest = 0, nr_tried = 0,
	    chosen = -1;
	unsigned char *taken = malloc((size_t)n + 1);
	int64_t best = 0;
	int rc = place && taken ? 0 : -ENOMEM;

	for (int i = 0, j; i < n; i = j) {
		j = gpu_end(v, i, n);
		longest = DF_MAX(longest, j - i);
	}
	/*
	 * The first pass finds the best reference order. The second pass counts with this order and
	 * stores the counts.
	 */
	for (int pass = 0; pass < 2 && !rc; pass++)
		for (int i = 0, j; i < n; i = j) {
			int64_t total = 0;

			j = gpu_end(v, i, n);
			if (pass ? i != chosen : j - i < longest || nr_tried == MAX_REFERENCES)
				continue;
			nr_tried++;
			memset(place, -1, (size_t)len * sizeof(*place));
			for (int k = i; k < j; k++)
				place[number_in(w, v[k], whole)] = k - i;
			for (int a = 0, b; a < n; a = b) {
				struct gpu *g = &w->gpus[v[a]->gpu];
				int64_t nr;

				b = gpu_end(v, a, n);
				nr = count_disorder(w, v + a, b - a, whole, place, taken, j - i);
				total += nr;
				if (pass)
					*(whole ? &g->among : &g->inside) += nr;
			}
			if (!pass && (chosen < 0 || total < best)) {
				best = total;
				chosen = i;
			}
		}
	free(place);
	free(taken);
	return rc;
}

/*
 * Counts the disorder in one communicator, and stores its members in the workload. v[0..n-1] are
 * its issues, sorted by GPU.
 */
static int count_group(struct work *w, struct issue **v, int n, int group)
{
	struct df_sim_workload *load = &w->out->load;
	int m = load->start[group], longest = 0;

	for (int i = 0, j; i < n; i = j) {
		struct gpu *g = &w->gpus[v[i]->gpu];
		uint64_t x = (uint64_t)group;

		j = gpu_end(v, i, n);
		load->members[m++] = g->number;
		longest = DF_MAX(longest, j - i);
		g->class += df_splitmix(&x);
	}
	load->start[group + 1] = m;
	load->nr_colls[group] = longest;
	w->out->nr_incomplete += m - load->start[group] < w->groups[group]->nranks;
	return compare_orders(w, v, n, 0, w->nr_looks[group]);
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static int by_rank(const void *a, const void *b)
{
	const struct gpu *x = *(const struct gpu *const *)a, *y = *(const struct gpu *const *)b;

	return DF_CMP(x->rank, y->rank) ?:
		       DF_CMP(x->trace, y->trace) ?: DF_CMP(x->device, y->device);
}

static int count(struct work *w)
{
	struct df_sim_workload *load = &w->out->load;
	struct issue **v = malloc((size_t)w->nr_issues * sizeof(*v));
	struct gpu **order = malloc((size_t)w->nr_gpus * sizeof(*order));
	int rc = -ENOMEM, nr_looks = 0;

	w->base = malloc((size_t)w->nr_groups * sizeof(*w->base));
	if (!v || !order || !w->base || df_sim_workload_init(load, w->nr_groups, w->nr_issues))
		goto out;
	load->nr_gpus = w->nr_gpus;
	for (int g = 0; g < w->nr_groups; g++) {
		w->base[g] = nr_looks;
		nr_looks += w->nr_looks[g];
	}
	for (int i = 0; i < w->nr_gpus; i++)
		order[i] = &w->gpus[i];
	qsort(order, (size_t)w->nr_gpus, sizeof(*order), by_rank);
	for (int i = 0; i < w->nr_gpus; i++)
		order[i]->number = i;
	for (int i = 0; i < w->nr_issues; i++)
		v[i] = &w->issues[i];
	qsort(v, (size_t)w->nr_issues, sizeof(*v), by_gpu_in_group);
	rc = 0;
	for (int i = 0, j; i < w->nr_issues && !rc; i = j) {
		int g = v[i]->group;

		for (j = i; j < w->nr_issues && v[j]->group == g; j++)
			;
		rc = count_group(w, v + i, j - i, g);
		if (!rc)
			qsort(load->members + load->start[g],
			      (size_t)(load->start[g + 1] - load->start[g]), sizeof(int),
			      by_number);
	}
	/* The classes of all GPUs are known from here on. */
	qsort_r(v, (size_t)w->nr_issues, sizeof(*v), by_gpu_in_class, w);
	for (int i = 0, j; i < w->nr_issues && !rc; i = j) {
		uint64_t class = w->gpus[v[i]->gpu].class;

		for (j = i; j < w->nr_issues && w->gpus[v[j]->gpu].class == class; j++)
			;
		if (gpu_end(v, i, j) < j)
			rc = compare_orders(w, v + i, j - i, 1, nr_looks);
	}
	for (int i = 0; i < w->nr_gpus; i++)
		w->out->nr_disorder += DF_MAX(w->gpus[i].inside, w->gpus[i].among);
	w->out->nr_issued = w->nr_issues;
out:
	free(v);
	free(order);
	return rc;
}

int df_sim_observe(struct df_sim_observed *out, const char *dir, char *err, size_t err_size)
{
	struct df_sim_observed o = {0};
	struct work w = {.out = &o, .err = err, .err_size = err_size};
	struct tally *t, *tn;
	struct group *g, *gn;
	struct look *l, *ln;
	int rc = read_dir(&w, dir, 0);

	if (!rc && !o.nr_traces)
		rc = fail(&w, -EPROTO, dir, "no trace files (*.dft) in it");
	if (!rc && !w.nr_issues)
		rc = fail(&w, -EINVAL, dir, "the traces hold no collectives");
	if (!rc) {
		rc = count(&w);
		if (rc)
			fail(&w, rc, dir, "out of memory");
	}
	HASH_ITER(hh, w.tallies, t, tn)
	{
		HASH_DEL(w.tallies, t);
		free(t);
	}
	HASH_ITER(hh, w.looks, l, ln)
	{
		HASH_DEL(w.looks, l);
		free(l);
	}
	HASH_ITER(hh, w.by_hash, g, gn)
	{
		HASH_DEL(w.by_hash, g);
		free(g);
	}
	free(w.groups);
	free(w.nr_looks);
	free(w.base);
	free(w.issues);
	free(w.gpus);
	if (rc)
		df_sim_workload_fini(&o.load);
	else
		*out = o;
	return rc;
}
