/*
 * Scheduling policy of the daemon (DFCCL section 4.3, "stickiness"): thresholds are largest at the front of the
 * task queue and grow after a success, so that all ranks drift towards the same collective. Pure functions of
 * the settings; see runtime/sched.h.
 */
#include "runtime/sched.h"

void df_policy_init(struct df_policy *p, const struct df_env *env, int on_host)
{
	/*
	 * On CPU threads a failed poll costs a pass over all blocks (about 100 ns each), so the
	 * thresholds are far lower than a GPU's, where a poll is a load.
	 */
	p->front = env->spin_front != DF_AUTO ? env->spin_front : on_host ? 12 : 100000;
	p->step = env->spin_step != DF_AUTO ? env->spin_step : p->front / 8;
	p->boost = env->spin_boost != DF_AUTO ? env->spin_boost : on_host ? 4 : 20;
	p->max = env->spin_max != DF_AUTO ? env->spin_max : p->front * (on_host ? 16 : 20);
	p->floor = DF_MAX(p->front / 64, 1);
	if (p->max < p->front)
		p->max = p->front;
	/* On the host the engine decides when its threads leave (runtime/engine.c). */
	p->quit = on_host ? INT64_MAX : 10000;
	p->order = env->order == DF_ORDER_PRIORITY;
	p->events = 1;
}
