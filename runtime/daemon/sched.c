/*
 * Scheduling policy of the daemon (DFCCL section 4.3, "stickiness"): thresholds are largest at the front of the
 * task queue and grow after a success, so that all ranks drift towards the same collective. Pure functions of
 * the settings; see runtime/daemon/sched.h.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "runtime/base/time.h"
#include "runtime/daemon/sched.h"

struct rule {
	const char *key, *value;
	size_t key_len, value_len;
	int number;
};

/* Takes one rule off the list; 1 there was one, 0 the end, -EINVAL. */
static int rule_next(const char **at, struct rule *r)
{
	const char *s = *at, *eq, *colon;
	size_t len;
	char *end;

	while (*s == ',' || *s == ' ')
		s++;
	*at = s;
	if (!*s)
		return 0;
	len = strcspn(s, ",");
	eq = memchr(s, '=', len);
	colon = eq ? memrchr(eq, ':', len - (size_t)(eq - s)) : NULL;
	if (!colon || colon == eq + 1)
		return -EINVAL;
	r->key = s;
	r->key_len = (size_t)(eq - s);
	r->value = eq + 1;
	r->value_len = (size_t)(colon - eq - 1);
	r->number = (int)strtol(colon + 1, &end, 10);
	if (end != s + len || end == colon + 1 ||
	    !((r->key_len == 4 && strncmp(s, "comm", 4) == 0) ||
	      (r->key_len == 2 && strncmp(s, "op", 2) == 0)))
		return -EINVAL;
	*at = s + len;
	return 1;
}

int df_priority_check(const char *rules, const char **bad)
{
	struct rule r;
	int ret = 1;

	while (rules && ret > 0)
		ret = rule_next(&rules, &r);
	if (ret < 0)
		*bad = rules;
	return ret < 0 ? ret : 0;
}

int df_priority_of(const char *rules, const char *comm_name, const char *op_name)
{
	struct rule r;
	int sum = 0;

	while (rules && rule_next(&rules, &r) > 0) {
		const char *mine = r.key_len == 4 ? comm_name : op_name;

		if (strlen(mine) == r.value_len && strncasecmp(mine, r.value, r.value_len) == 0)
			sum += r.number;
	}
	return sum;
}

void df_policy_init(struct df_policy *p, const struct df_env *env, int gpu)
{
	/*
	 * A failed poll is a turn of the block: about 100 ns on CPU threads, on a GPU one or two microseconds. So the
	 * thresholds are far lower than the paper's, whose poll is a load. Measured with the disordered job of 8
	 * ranks on 2 cores: a front of 12 takes 1.4 to 1.9 times as long as the same job in order, 2 about as
	 * long, and with a cap of 64 it still preempts fewer than 2,000 times a block. A GPU's have not been measured.
	 */
	p->front = env->spin_front != DF_AUTO ? env->spin_front : 2;
	p->step = env->spin_step != DF_AUTO ? env->spin_step : p->front / 8;
	p->boost = env->spin_boost != DF_AUTO ? env->spin_boost : 4;
	p->max = env->spin_max != DF_AUTO ? env->spin_max : p->front * 32;
	p->floor = DF_MAX(p->front / 64, 1);
	if (p->max < p->front)
		p->max = p->front;
	/* On CPU threads the engine decides when they leave (runtime/device/host/threads.c). */
	p->quit_ns = (env->quit_us != DF_AUTO ? (uint64_t)env->quit_us : 1000) * DF_NS_PER_US;
	p->gang = (uint64_t)env->gang;
	p->order = env->order == DF_ORDER_PRIORITY;
	/* About a slice: 15 us on CPU threads. */
	p->urgent = gpu ? 8 : 128;
	p->share = (uint32_t)env->priority_share;
	/* A verdict asks what has started; how it was taken in turns is for who writes a trace. */
	p->events = env->trace && *env->trace ? 2 : 1;
}
