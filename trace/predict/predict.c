/*
 * The search for a deadlocking order. An order says for each rank whose turn it is to take the next step: also when a
 * thread begins to wait for its device makes a difference. Where nothing moves because it is the turn of a thread
 * that waits, the turn goes to another, so that each order leads to an execution that goes as far as one can.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "trace/predict/predict.h"
#include "runtime/base/vec.h"

int df_predict_takes_turn(enum df_mop_kind kind)
{
	return kind != DF_MOP_HWAIT && kind != DF_MOP_HSIGNAL;
}

int df_predict_add(struct df_predict_order *o, int rank, int thread)
{
	uint8_t *slot = DF_VEC_PUSH(o->thread[rank], o->nr[rank], o->cap[rank]);

	if (!slot)
		return -ENOMEM;
	*slot = (uint8_t)thread;
	return 0;
}

void df_predict_order_fini(struct df_predict_order *o)
{
	for (int r = 0; r < DF_MODEL_RANKS; r++)
		free(o->thread[r]);
	memset(o, 0, sizeof(*o));
}

static int copy_order(struct df_predict_order *to, const struct df_predict_order *from)
{
	memset(to, 0, sizeof(*to));
	for (int r = 0; r < DF_MODEL_RANKS; r++) {
		if (!from->nr[r])
			continue;
		to->thread[r] = malloc(from->nr[r]);
		if (!to->thread[r])
			return -ENOMEM;
		memcpy(to->thread[r], from->thread[r], from->nr[r]);
		to->nr[r] = from->nr[r];
	}
	return 0;
}

/* ---- a run in an order ------------------------------------------------------------------------------------ */

struct run_order {
	struct df_predict_order o;
	size_t at[DF_MODEL_RANKS];
	uint32_t tried
		[DF_MODEL_RANKS]; /* threads that had a turn and did not move, since anything did */
	uint64_t rng;
	df_model_event_fn fn;
	void *arg;
};

/* Position `k` of a rank's turns comes next. */
static void bring_forward(struct run_order *x, int rank, size_t k)
{
	uint8_t *v = x->o.thread[rank], t = v[k];

	memmove(&v[x->at[rank] + 1], &v[x->at[rank]], k - x->at[rank]);
	v[x->at[rank]] = t;
}

static int hold(void *arg, int rank, int thread, const struct df_mop *next)
{
	const struct run_order *x = arg;

	return df_predict_takes_turn(next->kind) && x->at[rank] < x->o.nr[rank] &&
	       x->o.thread[rank][x->at[rank]] != thread;
}

static int let_go(void *arg)
{
	struct run_order *x = arg;

	for (int r = 0; r < DF_MODEL_RANKS; r++) {
		for (size_t k = x->at[r]; k < x->o.nr[r]; k++) {
			uint32_t bit = 1u << x->o.thread[r][k];

			if (x->tried[r] & bit)
				continue;
			x->tried[r] |= bit;
			bring_forward(x, r, k);
			return 1;
		}
	}
	return 0;
}

static void event(void *arg, enum df_model_event ev, int rank, int thread, size_t op,
		  const struct df_mop *mop, int task)
{
	struct run_order *x = arg;
	size_t k;

	if (x->fn)
		x->fn(x->arg, ev, rank, thread, op, mop, task);
	if (ev != DF_ME_LEAVE)
		return;
	memset(x->tried, 0, sizeof(x->tried));
	x->at[rank] += df_predict_takes_turn(mop->kind) && x->at[rank] < x->o.nr[rank];
	/* What is in a group is issued when it ends, all of it: a replay could not do otherwise. */
	for (k = x->at[rank]; mop->goes_on && k < x->o.nr[rank]; k++)
		if (x->o.thread[rank][k] == thread) {
			bring_forward(x, rank, k);
			return;
		}
}

static size_t below(struct run_order *x, size_t n)
{
	x->rng = x->rng * 6364136223846793005ULL + 1442695040888963407ULL;
	return (size_t)(x->rng >> 33) % n;
}

static size_t pick(void *arg, size_t nr)
{
	return below(arg, nr);
}

/* ---- which orders ------------------------------------------------------------------------------------------- */

/* How many orders of these turns there are; no more than `limit` are counted. */
static size_t count_merges(const uint8_t *thread, size_t nr, size_t limit)
{
	size_t left[DF_MODEL_THREADS] = {0}, all = 1, n = 0;

	for (size_t i = 0; i < nr; i++) {
		/* Times (n + 1) over how many of this thread: stays whole in this order. */
		all = all * ++n / ++left[thread[i]];
		if (all > limit)
			return limit + 1;
	}
	return all;
}

/* The number-th order of the turns: as digits, each of them says whose turn it is. */
static void nth_merge(uint8_t *thread, size_t nr, size_t number)
{
	uint8_t rest[256], *v = thread;

	for (size_t i = 0; i + 1 < nr; i++) {
		/* By how many orders each thread may begin what is left. */
		for (uint8_t t = 0; t < DF_MODEL_THREADS; t++) {
			size_t k = i, n;

			while (k < nr && v[k] != t)
				k++;
			if (k == nr)
				continue;
			memcpy(rest, v + i, nr - i);
			memmove(rest + (k - i), rest + (k - i) + 1, nr - 1 - k);
			n = count_merges(rest, nr - i - 1, SIZE_MAX / 512);
			if (number >= n) {
				number -= n;
				continue;
			}
			memmove(&v[i + 1], &v[i], k - i);
			v[i] = t;
			break;
		}
	}
}

/* From one turn of a thread on: as late, or as early, as it can be. */
static void shift(struct run_order *x, int r, int late)
{
	size_t nr = x->o.nr[r], from = below(x, nr), n = from, m = 0;
	uint8_t *v = x->o.thread[r], *mine = malloc(nr), who = v[from];

	if (!mine)
		return;
	for (size_t i = from; i < nr; i++)
		if ((v[i] == who) == !late)
			mine[m++] = v[i];
	for (size_t i = from; i < nr; i++)
		if ((v[i] == who) == late)
			mine[m++] = v[i];
	memcpy(v + n, mine, m);
	free(mine);
}

/* A random order: now many turns of one thread together, now few. */
static void shuffle(struct run_order *x, int r)
{
	size_t nr = x->o.nr[r], again = 1 + below(x, 8);
	uint8_t *v = x->o.thread[r];

	for (size_t i = 0; i + 1 < nr; i++) {
		size_t k = i;

		if (i && below(x, again))
			while (k < nr && v[k] != v[i - 1])
				k++;
		if (k == nr || k == i)
			k = i + below(x, nr - i);
		x->at[r] = i;
		bring_forward(x, r, k);
	}
	x->at[r] = 0;
}

static size_t count_orders(const struct df_predict_order *o, size_t limit)
{
	size_t all = 1;

	for (int r = 0; r < DF_MODEL_RANKS && all <= limit; r++)
		if (o->nr[r])
			all *= o->nr[r] > 256 ? limit + 1
					      : count_merges(o->thread[r], o->nr[r], limit);
	return all > limit ? limit + 1 : all;
}

/* Makes the order of a try; `all`: they are counted through. */
static void make_order(struct run_order *x, uint64_t schedule, int all)
{
	int ranks[DF_MODEL_RANKS], nr = 0;
	uint64_t rest = schedule - 1;

	x->rng = schedule * 0x9e3779b97f4a7c15ULL;
	for (int r = 0; r < DF_MODEL_RANKS; r++)
		if (x->o.nr[r])
			ranks[nr++] = r;
	for (int i = 0; i < nr && all; i++) {
		uint8_t *v = x->o.thread[ranks[i]];
		size_t n = count_merges(v, x->o.nr[ranks[i]], SIZE_MAX / 512);

		nth_merge(v, x->o.nr[ranks[i]], rest % n);
		rest /= n;
	}
	if (all || !nr)
		return;
	/* One thread of one rank that is late or early is what is seen most; then everything in disorder. */
	if (schedule % 3)
		shift(x, ranks[below(x, (size_t)nr)], schedule % 3 == 1);
	else
		for (int i = 0; i < nr; i++)
			shuffle(x, ranks[i]);
}

static int run_in_order(const struct df_mprog *p, const struct df_predict_order *recorded,
			uint64_t schedule, int all, df_model_event_fn fn, void *arg,
			struct df_model_result *res)
{
	struct run_order x = {.fn = fn, .arg = arg};
	struct df_model_schedule s = {.arg = &x, .hold = hold, .let_go = let_go};
	int rc = copy_order(&x.o, recorded);

	if (!rc && schedule)
		make_order(&x, schedule, all);
	/* Who gets a slot first also depends on which rank is ahead. */
	if (schedule && p->cap)
		s.pick = pick;
	if (!rc)
		rc = df_model_run(p, DF_MODEL_BASE, &s, event, &x, res);
	df_predict_order_fini(&x.o);
	return rc;
}

int df_predict_search(struct df_mprog *p, const struct df_predict_order *recorded,
		      const struct df_predict_opts *opts, struct df_predict_finding *f)
{
	struct df_model_result res;
	size_t orders = count_orders(recorded, opts->tries), tries;
	int rc;

	memset(f, 0, sizeof(*f));
	rc = run_in_order(p, recorded, 0, 0, NULL, NULL, &f->res);
	if (rc)
		return rc;
	f->need_slots = f->res.max_resident;
	if (f->res.hung) {
		/* The recorded order itself: what made the difference in the recorded run? */
		p->buffered = 1;
		rc = run_in_order(p, recorded, 0, 0, NULL, NULL, &res);
		p->buffered = 0;
		f->unbuffered = !rc && !res.hung;
		f->what = f->unbuffered
				  ? "the recorded order deadlocks when messages are not buffered"
				  : "the recorded order deadlocks by NCCL's rules";
		return rc ? rc : 1;
	}
	p->one_queue = f->one_queue = opts->one_queue;
	p->cap = f->slots = opts->slots;
	if (p->cap || p->one_queue) {
		rc = run_in_order(p, recorded, 0, 0, NULL, NULL, &f->res);
		if (rc)
			return rc;
		if (f->res.hung) {
			f->what = p->cap ? "deadlocks with the given slots"
					 : "deadlocks when all streams share one hardware queue";
			return 1;
		}
	}
	f->complete = orders <= opts->tries && !p->cap;
	tries = f->complete ? orders : opts->tries;
	if (orders == 1 && !p->cap)
		return 0;
	for (uint64_t i = 1; i <= tries; i++) {
		rc = run_in_order(p, recorded, i, f->complete, NULL, NULL, &f->res);
		if (rc)
			return rc;
		if (f->res.hung) {
			f->what = "an interleaving of the threads deadlocks";
			f->schedule = i;
			return 1;
		}
	}
	return 0;
}

int df_predict_again(struct df_mprog *p, const struct df_predict_order *recorded,
		     const struct df_predict_finding *f, df_model_event_fn fn, void *arg)
{
	struct df_model_result res;

	return run_in_order(p, recorded, f->schedule, f->complete, fn, arg, &res);
}
