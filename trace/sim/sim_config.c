/*
 * Reads and checks configurations by the table of keys. Messages name the key, its value and what
 * is allowed.
 */
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/near.h"
#include "trace/sim/sim_int.h"
#include "trace/sim/sim_keys.h"

/* -- messages ---------------------------------------------------------------------------------- */

struct complaint {
	char *text;
	size_t size;
};

static int complain(struct complaint *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static int complain(struct complaint *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->text, c->size, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* Writes `v` as JSON into buf, shortened to fit, and returns buf. */
static const char *shown(const json_t *v, char *buf, size_t size)
{
	char *s = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));

	snprintf(buf, size, "%s", s ? s : "?");
	free(s);
	if (strlen(buf) + 1 == size)
		memcpy(buf + size - 4, "...", 4);
	return buf;
}

static void allowed(const struct df_sim_key *k, char *buf, size_t size)
{
	size_t n = 0;

	switch (k->kind) {
	case INT:
		snprintf(buf, size, "an integer from %lld to %lld", (long long)k->min,
			 (long long)k->max);
		break;
	case PROB:
		snprintf(buf, size, "a number from 0 to 1");
		break;
	case WORD:
		for (int i = 0; k->words[i] && n < size; i++)
			n += (size_t)snprintf(buf + n, size - n, "%s\"%s\"", i ? ", " : "",
					      k->words[i]);
		break;
	case GROUPS:
		snprintf(buf, size, "an array with, for each group, an array of GPU numbers");
		break;
	case COUNTS:
		snprintf(buf, size, "an array of integers from 0 on, one for each group");
		break;
	case TEXT:
		snprintf(buf, size, "a string");
	}
}

static int refuse(struct complaint *c, const struct df_sim_key *k, const json_t *v)
{
	char value[80], what[160];

	allowed(k, what, sizeof(what));
	return complain(c, "%s is %s; allowed: %s", k->name, shown(v, value, sizeof(value)), what);
}

static int unknown_key(struct complaint *c, const char *name, const json_t *v)
{
	const char *best = NULL;
	char value[80], all[512];
	int d = 4;
	size_t n = 0;

	for (size_t i = 0; i < (size_t)df_sim_nr_keys; i++) {
		if (df_near_edits(name, df_sim_keys[i].name) < d) {
			d = df_near_edits(name, df_sim_keys[i].name);
			best = df_sim_keys[i].name;
		}
		n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", i ? ", " : "",
				      df_sim_keys[i].name);
	}
	shown(v, value, sizeof(value));
	if (best)
		return complain(c,
				"unknown key \"%s\" (value %s); did you mean \"%s\"? allowed: %s",
				name, value, best, all);
	return complain(c, "unknown key \"%s\" (value %s); allowed: %s", name, value, all);
}

/* -- reading ----------------------------------------------------------------------------------- */

static int check_shape(struct complaint *c, const struct df_sim_key *k, const json_t *v)
{
	const json_t *g, *x;
	size_t i, j;
	int ok = 0;

	switch (k->kind) {
	case INT:
		ok = json_is_integer(v) && json_integer_value(v) >= k->min &&
		     json_integer_value(v) <= k->max;
		break;
	case PROB:
		ok = json_is_number(v) && json_number_value(v) >= 0 && json_number_value(v) <= 1;
		break;
	case WORD:
		for (i = 0; json_is_string(v) && i < 4 && k->words[i]; i++)
			ok = ok || !strcmp(json_string_value(v), k->words[i]);
		break;
	case GROUPS:
		ok = json_array_size(v) > 0;
		json_array_foreach((json_t *)v, i, g)
		{
			if (json_array_size(g) == 0)
				return refuse(c, k, g);
			json_array_foreach((json_t *)g, j, x)
			{
				if (!json_is_integer(x) || json_integer_value(x) < k->min ||
				    json_integer_value(x) > k->max)
					return complain(c,
							"%s holds %s in group %zu; allowed: GPU "
							"numbers, integers from 0 to %lld",
							k->name,
							json_is_integer(x) ? "a number out of range"
									   : "something else",
							i, (long long)k->max);
			}
		}
		break;
	case COUNTS:
		ok = json_array_size(v) > 0;
		json_array_foreach((json_t *)v, i, x)
		{
			if (!json_is_integer(x) || json_integer_value(x) < k->min ||
			    json_integer_value(x) > k->max)
				ok = 0;
		}
		break;
	case TEXT:
		ok = json_is_string(v);
	}
	return ok ? 0 : refuse(c, k, v);
}

static int word(const json_t *root, const char *name, int otherwise)
{
	const json_t *v = json_object_get(root, name);
	const struct df_sim_key *k = df_sim_find_key(name);

	for (int i = 0; v && k->words[i]; i++)
		if (!strcmp(json_string_value(v), k->words[i]))
			return i;
	return otherwise;
}

static int64_t integer(const json_t *root, const char *name, int64_t otherwise)
{
	const json_t *v = json_object_get(root, name);

	return v ? (int64_t)json_integer_value(v) : otherwise;
}

static int too_large(struct complaint *c, const char *what, double n, double max)
{
	return complain(c, "the workload has %.4g %s; allowed: up to %.4g", n, what, max);
}

static int read_megatron(struct complaint *c, const json_t *root, struct df_sim_workload *load)
{
	int64_t tp = integer(root, "tp_group_size", 0), dp = integer(root, "dp_group_size", 0);
	int64_t pp = integer(root, "pp_group_size", 0);
	int64_t nt = integer(root, "coll_cnt_per_tp_group", 0);
	int64_t nd = integer(root, "coll_cnt_per_dp_group", 0);
	double gpus = (double)tp * (double)dp * (double)pp, events = gpus * (double)(nt + nd);
	int grp = 0, m = 0, rc;

	if (gpus > DF_SIM_MAX_GPUS)
		return too_large(c, "GPUs (tp_group_size * dp_group_size * pp_group_size)", gpus,
				 DF_SIM_MAX_GPUS);
	if (events > DF_SIM_MAX_EVENTS)
		return too_large(c, "pairs of GPU and collective", events, DF_SIM_MAX_EVENTS);
	if (!(nt + nd))
		return complain(
			c, "coll_cnt_per_tp_group and coll_cnt_per_dp_group are 0; allowed: at "
			   "least one collective");
	rc = df_sim_workload_init(load, (int)((tp + dp) * pp), (int)(2 * gpus));
	if (rc)
		return rc;
	load->nr_gpus = (int)gpus;
	for (int64_t p = 0; p < pp; p++) {
		int base = (int)(p * tp * dp);

		for (int64_t i = 0; i < dp; i++, grp++) {
			load->nr_colls[grp] = (int)nt;
			for (int64_t k = 0; k < tp; k++)
				load->members[m++] = base + (int)(i * tp + k);
			load->start[grp + 1] = m;
		}
		for (int64_t k = 0; k < tp; k++, grp++) {
			load->nr_colls[grp] = (int)nd;
			for (int64_t i = 0; i < dp; i++)
				load->members[m++] = base + (int)(i * tp + k);
			load->start[grp + 1] = m;
		}
	}
	return 0;
}

static int by_number(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

static int fill_arbitrary(struct complaint *c, const json_t *root, struct df_sim_workload *load,
			  unsigned char *seen)
{
	const json_t *groups = json_object_get(root, "gpu_per_group");
	const json_t *counts = json_object_get(root, "coll_cnt_per_group"), *g, *x;
	int64_t said = integer(root, "gpu_num", 0);
	int m = 0, top = -1;
	double events = 0;
	size_t i, j;

	json_array_foreach((json_t *)groups, i, g)
	{
		json_array_foreach((json_t *)g, j, x) load->members[m++] =
			(int)json_integer_value(x);
		load->start[i + 1] = m;
		qsort(load->members + load->start[i], json_array_size(g), sizeof(int), by_number);
		for (int k = load->start[i]; k < m; k++) {
			seen[load->members[k]] = 1;
			top = DF_MAX(top, load->members[k]);
			if (k > load->start[i] && load->members[k] == load->members[k - 1])
				return complain(c,
						"gpu_per_group holds GPU %d twice in group %zu; "
						"allowed: each GPU once",
						load->members[k], i);
		}
		load->nr_colls[i] = (int)json_integer_value(json_array_get(counts, i));
		events += (double)load->nr_colls[i] * (double)json_array_size(g);
	}
	if (said && said != top + 1)
		return complain(c,
				"gpu_num is %lld, but the highest GPU in gpu_per_group is %d; "
				"allowed: %d, or leave it out",
				(long long)said, top, top + 1);
	for (int k = 0; k <= top; k++)
		if (!seen[k])
			return complain(c,
					"gpu_per_group has no group with GPU %d, but one with GPU "
					"%d; allowed: every GPU from 0 on is in a group",
					k, top);
	if (events > DF_SIM_MAX_EVENTS)
		return too_large(c, "pairs of GPU and collective", events, DF_SIM_MAX_EVENTS);
	if (events == 0)
		return complain(
			c, "coll_cnt_per_group holds only 0; allowed: at least one collective");
	load->nr_gpus = top + 1;
	return 0;
}

static int read_arbitrary(struct complaint *c, const json_t *root, struct df_sim_workload *load)
{
	const json_t *groups = json_object_get(root, "gpu_per_group"), *g;
	const json_t *counts = json_object_get(root, "coll_cnt_per_group");
	size_t n = json_array_size(groups), nr_members = 0, i;
	int64_t said = integer(root, "group_num", (int64_t)n);
	unsigned char *seen;
	int rc;

	if ((size_t)said != n)
		return complain(
			c,
			"group_num is %lld, but gpu_per_group has %zu groups; allowed: %zu, "
			"or leave it out",
			(long long)said, n, n);
	if (json_array_size(counts) != n)
		return complain(c,
				"coll_cnt_per_group has %zu entries, but gpu_per_group has %zu "
				"groups; allowed: %zu entries",
				json_array_size(counts), n, n);
	json_array_foreach((json_t *)groups, i, g) nr_members += json_array_size(g);
	if (nr_members > DF_SIM_MAX_EVENTS)
		return too_large(c, "members of groups", (double)nr_members, DF_SIM_MAX_EVENTS);
	rc = df_sim_workload_init(load, (int)n, (int)nr_members);
	if (rc)
		return rc;
	seen = calloc(DF_SIM_MAX_GPUS + 1, 1);
	rc = seen ? fill_arbitrary(c, root, load, seen) : -ENOMEM;
	free(seen);
	if (rc)
		df_sim_workload_fini(load);
	return rc;
}

int df_sim_config_from_json(struct df_sim_config *cfg, const json_t *root, char *err,
			    size_t err_size)
{
	static const enum df_sim_semantics semantics[] = {DF_SIM_EXACT, DF_SIM_ARTIFACT,
							  DF_SIM_FIFO};
	struct complaint c = {err, err_size};
	struct df_sim_config out = {0};
	int arbitrary, rc;
	const char *name;
	char what[160];
	json_t *v;

	snprintf(err, err_size, "out of memory");
	if (!json_is_object(root))
		return complain(&c,
				"the file holds no JSON object; allowed: { \"key\": value, ... }");
	json_object_foreach((json_t *)root, name, v)
	{
		const struct df_sim_key *k = df_sim_find_key(name);

		rc = k ? check_shape(&c, k, v) : unknown_key(&c, name, v);
		if (rc)
			return rc;
	}
	arbitrary = word(root, "grouping_policy", 0);
	out.model = (enum df_sim_model)word(root, "model", 0);
	for (size_t i = 0; i < (size_t)df_sim_nr_keys; i++) {
		const struct df_sim_key *k = &df_sim_keys[i];
		int need = k->need == ALWAYS || k->need == (arbitrary ? ARBITRARY : MEGATRON) ||
			   (!strcmp(k->name, "sync_prob") && out.model == DF_SIM_SYNC);

		if (!need || json_object_get(root, k->name))
			continue;
		allowed(k, what, sizeof(what));
		if (k->need == MEGATRON || k->need == ARBITRARY)
			return complain(
				&c, "%s is missing, grouping_policy \"%s\" needs it; allowed: %s",
				k->name, arbitrary ? "Arbitrary" : "Megatron", what);
		return complain(&c, "%s is missing; allowed: %s", k->name, what);
	}
	out.semantics = semantics[word(root, "semantics", 0)];
	out.dispatch = (enum df_sim_dispatch)word(root, "dispatch", 0);
	out.disorder_prob = json_number_value(json_object_get(root, "disorder_prob"));
	if (out.model == DF_SIM_SYNC)
		out.sync_prob = json_number_value(json_object_get(root, "sync_prob"));
	if (out.sync_prob >= 1)
		return complain(
			&c, "sync_prob is 1; allowed with model \"StreamWithSync\": a number from "
			    "0 to below 1 (a GPU that only synchronises issues nothing)");
	out.total_rounds = integer(root, "total_rounds", 32000);
	out.num_process = (int)integer(root, "num_process", 1);
	out.fix_seed = (int)integer(root, "fix_seed", 0);
	out.resource_limit = (int)integer(root, "resource_limit", -1);
	rc = arbitrary ? read_arbitrary(&c, root, &out.load) : read_megatron(&c, root, &out.load);
	if (rc)
		return rc;
	*cfg = out;
	return 0;
}

void df_sim_config_fini(struct df_sim_config *cfg)
{
	df_sim_workload_fini(&cfg->load);
}

/* -- JSON -------------------------------------------------------------------------------------- */

int df_sim_json_load(json_t **root, const char *path, char *err, size_t err_size)
{
	json_error_t e;
	FILE *f = fopen(path, "r");
	json_t *v;

	if (!f) {
		snprintf(err, err_size, "%s", strerror(errno));
		return -EIO;
	}
	v = json_loadf(f, JSON_REJECT_DUPLICATES, &e);
	fclose(f);
	if (!v) {
		snprintf(err, err_size, "line %d, column %d: %s", e.line, e.column, e.text);
		return -EINVAL;
	}
	*root = v;
	return 0;
}

int df_sim_json_set(json_t *root, const char *key, const char *value, char *err, size_t err_size)
{
	const struct df_sim_key *k = df_sim_find_key(key);
	struct complaint c = {err, err_size};
	json_error_t e;
	json_t *v;

	v = json_loads(value, JSON_DECODE_ANY, &e);
	if (!v)
		v = json_string(value);
	if (!v)
		return complain(&c, "%s: the value is not valid UTF-8", key);
	if (!k) {
		int rc = unknown_key(&c, key, v);

		json_decref(v);
		return rc;
	}
	if (json_object_set_new(root, key, v)) {
		snprintf(err, err_size, "out of memory");
		return -ENOMEM;
	}
	return 0;
}

json_t *df_sim_workload_json(const struct df_sim_workload *load, const char *model,
			     double disorder_prob, double sync_prob)
{
	json_t *groups = json_array(), *counts = json_array();

	for (int g = 0; g < load->nr_groups; g++) {
		json_t *m = json_array();

		for (int i = load->start[g]; i < load->start[g + 1]; i++)
			json_array_append_new(m, json_integer(load->members[i]));
		json_array_append_new(groups, m);
		json_array_append_new(counts, json_integer(load->nr_colls[g]));
	}
	return json_pack("{s:s, s:s, s:f, s:f, s:i, s:i, s:o, s:o}", "model", model,
			 "grouping_policy", "Arbitrary", "disorder_prob", disorder_prob,
			 "sync_prob", sync_prob, "gpu_num", load->nr_gpus, "group_num",
			 load->nr_groups, "gpu_per_group", groups, "coll_cnt_per_group", counts);
}
