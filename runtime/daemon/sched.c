/*
 * The daemon's scheduling policy (DFCCL section 4.3, "stickiness"): thresholds are largest at the
 * front of the task queue and grow after a success, so that all ranks tend towards the same
 * collective. Pure functions of the settings; see runtime/daemon/sched.h.
 */
#include "runtime/base/rules.h"
#include "runtime/base/time.h"
#include "runtime/daemon/sched.h"

int df_priority_of(const char *rules, const char *comm_name, const char *op_name)
{
	struct df_rule r;
	int sum = 0;

	while (rules && df_rule_next(&rules, &r) > 0)
		if (df_rule_is_for(&r, "comm", comm_name) || df_rule_is_for(&r, "op", op_name))
			sum += (int)r.number;
	return sum;
}

void df_policy_init(struct df_policy *p, const struct df_env *env, int gpu)
{
	/*
	 * A failed poll is a turn of the block: about 100 ns on CPU threads, one or two
	 * microseconds on a GPU. So the thresholds are far lower than the paper's, where a poll is
	 * a load. Measured with 8 ranks on 2 cores that issue in different orders: with front = 12
	 * the job takes 1.4 to 1.9 times as long as in one order, with 2 about as long; and with a
	 * cap of 64 it has fewer than 2,000 preemptions per block. Not measured on a GPU.
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
	/* About 15 us on CPU threads, a slice on a GPU. */
	p->urgent = gpu ? 8 : 128;
	/*
	 * The size above which moving a slice takes longer than releasing the lock and taking it
	 * again.
	 */
	p->let = p->order && !gpu ? 16384 : 0;
	p->share = (uint32_t)env->priority_share;
	/*
	 * A verdict needs the starts of operations; preemptions are recorded only for a trace file.
	 */
	p->events = env->trace && *env->trace ? 2 : 1;
}
