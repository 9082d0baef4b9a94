/*
 * Configurations of `dfshim plan`: a network, its links, and the data of the preserver. Unknown
 * keys are refused. One thread.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "trace/cli/cmd_plan.h"

#define FLOAT_BYTES 4

/* Converts milliseconds. A value beyond 11 days becomes -1, which the planner refuses. */
static int64_t ns(double ms)
{
	return fabs(ms) < 1e9 ? llround(ms * 1e6) : -1;
}

/* Reads the links. *first_gbs is the speed of the first link, or 0 if it is not given. */
static int read_links(struct df_plan_profile *p, json_t *links, double *first_gbs, char *err,
		      size_t size)
{
	json_t *each;
	size_t i;

	*first_gbs = 0;
	p->nr_links = 0;
	if (!links) {
		p->nr_links = 1;
		p->links[0] = (struct df_plan_link){.name = "link", .slowdown = 1};
		return 0;
	}
	if (!json_is_array(links) || !json_array_size(links) ||
	    json_array_size(links) > DF_PLAN_LINKS)
		return df_plan_refuse(err, size, "links: allowed: an array of 1 to %d links",
				      DF_PLAN_LINKS);
	json_array_foreach(links, i, each)
	{
		struct df_plan_link *l = &p->links[p->nr_links++];
		double slowdown = 0, startup = 0, gbs = 0;
		const char *name = "link";
		json_error_t why;

		if (json_unpack_ex(each, &why, JSON_STRICT, "{s?s, s?F, s?F, s?F}", "name", &name,
				   "slowdown", &slowdown, "startup_ms", &startup, "gbyte_per_s",
				   &gbs))
			return df_plan_refuse(err, size, "links[%zu]: %s", i, why.text);
		if (gbs < 0 || (gbs && slowdown) || (i && !gbs != !*first_gbs && !slowdown))
			return df_plan_refuse(
				err, size,
				"links[%zu]: a link after the first has a slowdown, or, where "
				"the first one has it, gbyte_per_s; not both",
				i);
		if (!i)
			*first_gbs = gbs;
		if (!slowdown)
			slowdown = i && gbs ? *first_gbs / gbs : 1;
		*l = (struct df_plan_link){.slowdown = slowdown, .startup_ns = ns(startup)};
		snprintf(l->name, sizeof(l->name), "%s", name);
	}
	return 0;
}

static int read_buckets(struct df_plan_profile *p, json_t *buckets, double gbs, char *err,
			size_t size)
{
	json_t *each;
	size_t i;

	if (!json_is_array(buckets) || !json_array_size(buckets) ||
	    json_array_size(buckets) > DF_PLAN_BUCKETS)
		return df_plan_refuse(
			err, size,
			"buckets: allowed: an array of 1 to %d buckets, input side first",
			DF_PLAN_BUCKETS);
	p->nr_buckets = 0;
	json_array_foreach(buckets, i, each)
	{
		double forward, backward, comm = -1;
		json_int_t params;
		json_error_t why;

		if (json_unpack_ex(each, &why, JSON_STRICT, "{s:F, s:F, s?F, s:I}", "forward_ms",
				   &forward, "backward_ms", &backward, "communication_ms", &comm,
				   "parameters", &params))
			return df_plan_refuse(err, size, "buckets[%zu]: %s", i, why.text);
		if (comm < 0 && !gbs)
			return df_plan_refuse(
				err, size,
				"buckets[%zu]: neither communication_ms nor gbyte_per_s of the "
				"first link says how long it takes to send",
				i);
		if (comm < 0)
			comm = (double)p->links[0].startup_ns / 1e6 +
			       (double)params * FLOAT_BYTES / gbs / 1e6;
		p->buckets[p->nr_buckets++] = (struct df_plan_bucket){
			.forward_ns = ns(forward),
			.backward_ns = ns(backward),
			.comm_ns = ns(comm),
			.params = params,
		};
	}
	return 0;
}

static int read_walk(struct df_plan_config *c, json_t *walk, char *err, size_t size)
{
	struct df_plan_walk *w = &c->walk;
	json_error_t why;

	if (!walk)
		return 0;
	w->epsilon = 0.01;
	w->target = 0;
	if (json_unpack_ex(walk, &why, JSON_STRICT, "{s:F, s?F, s:F, s:F, s:F, s:F, s?F}", "loss",
			   &w->loss, "target", &w->target, "learning_rate", &w->rate, "mu", &w->mu,
			   "sigma", &w->sigma, "batch", &w->batch, "epsilon", &w->epsilon))
		return df_plan_refuse(err, size, "preserver: %s", why.text);
	if (!(w->rate > 0 && w->sigma > 0 && w->batch >= 1 && w->loss > w->target &&
	      w->epsilon > 0 && w->epsilon < 1))
		return df_plan_refuse(
			err, size,
			"preserver: allowed: learning_rate and sigma above 0, batch from 1, a loss "
			"above the target, epsilon between 0 and 1");
	c->has_walk = 1;
	return 0;
}

int df_plan_config_read(struct df_plan_config *c, const char *path, char *err, size_t size)
{
	json_t *root, *buckets = NULL, *links = NULL, *walk = NULL, *comment = NULL;
	struct df_plan_profile *p = &c->profile;
	const char *name = "";
	json_error_t why;
	json_int_t partition = 0;
	double gbs = 0;
	int rc;

	memset(c, 0, sizeof(*c));
	root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
	if (!root) {
		if (why.line > 0)
			return df_plan_refuse(err, size, "line %d, column %d: %s", why.line,
					      why.column, why.text);
		return df_plan_refuse(err, size, "%s", why.text);
	}
	if (json_unpack_ex(root, &why, JSON_STRICT, "{s?s, s?o, s:o, s?o, s?I, s?o}", "name", &name,
			   "comment", &comment, "buckets", &buckets, "links", &links, "partition",
			   &partition, "preserver", &walk))
		rc = df_plan_refuse(err, size, "%s", why.text);
	else if (partition < 0 || partition > (INT64_C(1) << 42))
		rc = df_plan_refuse(err, size,
				    "partition is %lld; allowed: parameters of a block, 1 to 2^42",
				    (long long)partition);
	else
		rc = read_links(p, links, &gbs, err, size);
	p->partition = partition;
	snprintf(p->name, sizeof(p->name), "%s", *name ? name : path);
	if (!rc)
		rc = read_buckets(p, buckets, gbs, err, size);
	if (!rc)
		rc = read_walk(c, walk, err, size);
	if (!rc)
		rc = df_plan_check(p, err, size);
	json_decref(root);
	return rc;
}
