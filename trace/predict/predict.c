/*
 * Searches for an order of turns that deadlocks. An order gives, for each rank, the thread that
 * takes each turn. It also determines when a thread begins to wait for its device. If nothing makes
 * progress because the thread whose turn it is waits, another thread gets the turn. So every order
 * leads to an execution that continues as far as possible.
 *
 * Turns are given out a few operations at a time. A rank gets more turns when it has few unfinished
 * operations left, so that the ranks stay together, or when nothing else makes progress. So a
 * thread never waits only because turns have run out.
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

/* ---- an execution ---------------------------------------------------------------------------- */

struct walk {
	const struct df_mprog *p;
	const struct df_predict_order *recorded;
	struct df_mrun *run;
	struct df_model_result *res;
	/*
	 * By rank: turns that were given out. Those from `at` on are not taken yet. `given` is the
	 * number of all turns that were given out.
	 */
	uint8_t *turn[DF_MODEL_RANKS];
	size_t nr[DF_MODEL_RANKS], cap[DF_MODEL_RANKS], at[DF_MODEL_RANKS], given[DF_MODEL_RANKS];
	/* By rank and thread: the step after the last turn that was given out. */
	size_t (*step)[DF_MODEL_THREADS];
	/* By rank: threads that have had a turn since the rank last made progress. */
	uint64_t tried[DF_MODEL_RANKS];
	int first_untried; /* all threads of lower ranks have been tried */
	int moved; /* whether any thread has proceeded since tried[] was cleared for all ranks */
	uint64_t rng;
	int random; /* whether `rng` chooses the rank that proceeds next */
	int failed;
	df_model_event_fn fn;
	void *arg;
};

static void walk_fini(struct walk *x)
{
	df_mrun_destroy(x->run);
	free(x->res);
	free(x->step);
	for (int r = 0; r < DF_MODEL_RANKS; r++)
		free(x->turn[r]);
	memset(x, 0, sizeof(*x));
}

static int walk_init(struct walk *x, const struct df_mprog *p,
		     const struct df_predict_order *recorded, enum df_model_mode mode)
{
	memset(x, 0, sizeof(*x));
	x->p = p;
	x->recorded = recorded;
	x->run = df_mrun_create(p, mode);
	x->res = calloc(1, sizeof(*x->res));
	x->step = calloc((size_t)p->nr_ranks + 1, sizeof(*x->step));
	if (x->run && x->res && x->step)
		return 0;
	walk_fini(x);
	return -ENOMEM;
}

static void copy_result(struct df_model_result *to, const struct df_model_result *from,
			const struct df_mprog *p)
{
	to->hung = from->hung;
	to->nr_tasks = from->nr_tasks;
	to->nr_unfinished = from->nr_unfinished;
	to->max_resident = from->max_resident;
	memcpy(to->pc, from->pc, (size_t)p->nr_ranks * sizeof(*to->pc));
}

static int walk_copy(struct walk *x, const struct walk *from)
{
	size_t rows = (size_t)from->p->nr_ranks * sizeof(*x->step);

	*x = *from;
	x->run = df_mrun_copy(from->run);
	x->res = malloc(sizeof(*x->res));
	x->step = malloc(rows + 1);
	x->failed = !x->run || !x->res || !x->step;
	if (x->res)
		copy_result(x->res, from->res, from->p);
	if (x->step)
		memcpy(x->step, from->step, rows);
	for (int r = 0; r < DF_MODEL_RANKS; r++) {
		size_t left = from->nr[r] - from->at[r];

		x->turn[r] = left ? malloc(left) : NULL;
		x->failed |= left && !x->turn[r];
		x->nr[r] = x->cap[r] = x->turn[r] ? left : 0;
		x->at[r] = 0;
		if (x->turn[r])
			memcpy(x->turn[r], from->turn[r] + from->at[r], left);
	}
	if (!x->failed)
		return 0;
	walk_fini(x);
	return -ENOMEM;
}

static int is_operation(enum df_mop_kind kind)
{
	return kind == DF_MOP_COLL || kind == DF_MOP_P2P;
}

/* Returns the first step at or after `step` that takes a turn. */
static size_t turn_step(const struct df_mprog *p, int r, int t, size_t step)
{
	const struct df_mthread *th = &p->threads[r][t];

	while (step < th->nr_ops && !df_predict_takes_turn(th->ops[step].kind))
		step++;
	return step;
}

/*
 * Gives out the next recorded turn of a rank. Returns 1 if the turn is for an operation, 0 if not,
 * -1 if there is no turn left.
 */
static int give_turn(struct walk *x, int r)
{
	uint8_t *slot, t;
	size_t step;

	if (x->failed || x->given[r] == x->recorded->nr[r])
		return -1;
	t = x->recorded->thread[r][x->given[r]];
	slot = DF_VEC_PUSH(x->turn[r], x->nr[r], x->cap[r]);
	if (!slot) {
		x->failed = 1;
		return -1;
	}
	*slot = t;
	x->given[r]++;
	step = turn_step(x->p, r, t, x->step[r][t]);
	x->step[r][t] = step + 1;
	return step < x->p->threads[r][t].nr_ops &&
	       is_operation(x->p->threads[r][t].ops[step].kind);
}

/* Counts operations of a rank that were given out and have not finished. */
static size_t unfinished(const struct walk *x, int r)
{
	size_t nr = df_mrun_open_ops(x->run, r), step[DF_MODEL_THREADS];

	memcpy(step, x->res->pc[r], sizeof(step));
	for (size_t i = x->at[r]; i < x->nr[r]; i++) {
		int t = x->turn[r][i];
		size_t s = turn_step(x->p, r, t, step[t]);

		nr += s < x->p->threads[r][t].nr_ops &&
		      is_operation(x->p->threads[r][t].ops[s].kind);
		step[t] = s + 1;
	}
	return nr;
}

/* Removes the turns that have been taken from the list. */
static void drop_taken(struct walk *x, int r)
{
	if (!x->at[r])
		return;
	x->nr[r] -= x->at[r];
	memmove(x->turn[r], x->turn[r] + x->at[r], x->nr[r]);
	x->at[r] = 0;
}

/*
 * Gives out `ops` more operations (0 means all) to ranks, and the steps between them. Returns 0 if
 * no turns are left.
 */
static int advance(struct walk *x, size_t ops)
{
	int more = 0;

	/*
	 * First give turns to the ranks that have few left. If no rank has few left, give turns to
	 * all.
	 */
	for (int all = 0; all < 2 && !more; all++) {
		for (int r = 0; r < x->p->nr_ranks; r++) {
			if (x->given[r] == x->recorded->nr[r] ||
			    (!all && ops && unfinished(x, r) >= ops))
				continue;
			more = 1;
			drop_taken(x, r);
			for (size_t n = 0; !ops || n < ops;) {
				int op = give_turn(x, r);

				if (op < 0)
					break;
				n += (size_t)op;
			}
		}
	}
	return more && !x->failed;
}

/* Moves position `k` of a rank's turns to the front. */
static void bring_forward(struct walk *x, int rank, size_t k)
{
	uint8_t *v = x->turn[rank], t = v[k];

	memmove(&v[x->at[rank] + 1], &v[x->at[rank]], k - x->at[rank]);
	v[x->at[rank]] = t;
}

static int hold(void *arg, int rank, int thread, const struct df_mop *next)
{
	const struct walk *x = arg;

	if (!df_predict_takes_turn(next->kind))
		return 0;
	if (x->at[rank] < x->nr[rank])
		return x->turn[rank][x->at[rank]] != thread;
	return x->given[rank] < x->recorded->nr[rank];
}

static void forget_tried(struct walk *x, int rank)
{
	x->tried[rank] = 0;
	if (rank < x->first_untried)
		x->first_untried = rank;
}

static void forget_all_tried(struct walk *x)
{
	memset(x->tried, 0, sizeof(x->tried));
	x->first_untried = 0;
	x->moved = 0;
}

/*
 * Gives a turn to an untried thread of the first rank that has one. Returns that rank plus 1, or 0
 * if there is none.
 */
static int pass_turn(struct walk *x)
{
	for (; x->first_untried < x->p->nr_ranks; x->first_untried++) {
		int r = x->first_untried;

		for (size_t k = x->at[r]; k < x->nr[r]; k++) {
			uint64_t bit = 1ULL << x->turn[r][k];

			if (x->tried[r] & bit)
				continue;
			x->tried[r] |= bit;
			bring_forward(x, r, k);
			return r + 1;
		}
	}
	return 0;
}

static int let_go(void *arg)
{
	struct walk *x = arg;
	int rank = pass_turn(x);

	/* Any thread may have waited for a step of another rank. */
	if (rank || !x->moved)
		return rank;
	forget_all_tried(x);
	return pass_turn(x);
}

static void event(void *arg, enum df_model_event ev, int rank, int thread, size_t op,
		  const struct df_mop *mop, int task)
{
	struct walk *x = arg;

	if (x->fn)
		x->fn(x->arg, ev, rank, thread, op, mop, task);
	if (ev != DF_ME_LEAVE && ev != DF_ME_DONE)
		return;
	forget_tried(x, rank);
	if (ev == DF_ME_DONE)
		return;
	x->moved = 1;
	x->at[rank] += df_predict_takes_turn(mop->kind) && x->at[rank] < x->nr[rank];
	/*
	 * A replay can issue a group only as a whole, so the group's next operation gets the next
	 * turn.
	 */
	for (size_t k = x->at[rank]; mop->goes_on; k++) {
		if (k == x->nr[rank] && give_turn(x, rank) < 0)
			return;
		if (x->turn[rank][k] == thread) {
			bring_forward(x, rank, k);
			return;
		}
	}
}

static size_t below(struct walk *x, size_t n)
{
	x->rng = x->rng * 6364136223846793005ULL + 1442695040888963407ULL;
	return (size_t)(x->rng >> 33) % n;
}

static size_t pick(void *arg, size_t nr)
{
	return below(arg, nr);
}

/* Runs as far as the turns that were given out allow. */
static int go(struct walk *x)
{
	struct df_model_schedule s = {.arg = x, .hold = hold, .let_go = let_go};
	int rc;

	/* The choice of the next rank also decides which task gets a slot first. */
	if (x->random)
		s.pick = pick;
	forget_all_tried(x);
	rc = x->failed ? -ENOMEM : df_mrun_go(x->run, &s, event, x, x->res);
	return x->failed ? -ENOMEM : rc;
}

/* ---- choosing orders ------------------------------------------------------------------------- */

/* Counts the different orders of these turns, up to `limit`. */
static size_t count_merges(const uint8_t *thread, size_t nr, size_t limit)
{
	size_t left[DF_MODEL_THREADS] = {0}, all = 1, n = 0;

	for (size_t i = 0; i < nr; i++) {
		/*
		 * Multiply by n + 1 and divide by the count of this thread: the result is a whole
		 * number after each step.
		 */
		all = all * ++n / ++left[thread[i]];
		if (all > limit)
			return limit + 1;
	}
	return all;
}

/* Sorts turns into order `number`. Orders are numbered lexicographically by their threads. */
static void nth_merge(uint8_t *thread, size_t nr, size_t number)
{
	uint8_t rest[256], *v = thread;

	for (size_t i = 0; i + 1 < nr; i++) {
		/* Count the orders in which each thread takes the first of the remaining turns. */
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

/* Moves all turns of a random thread, from a random turn on, as late or as early as possible. */
static void shift(struct walk *x, int r, int late)
{
	size_t nr = x->nr[r] - x->at[r], from = below(x, nr), n = from, m = 0;
	uint8_t *v = x->turn[r] + x->at[r], *mine = malloc(nr), who = v[from];

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

/* Makes a random order: sometimes with many turns of a thread together, sometimes with few. */
static void shuffle(struct walk *x, int r)
{
	size_t nr = x->nr[r], first = x->at[r], again = 1 + below(x, 8);
	uint8_t *v = x->turn[r];

	for (size_t i = first; i + 1 < nr; i++) {
		size_t k = i;

		if (i > first && below(x, again))
			while (k < nr && v[k] != v[i - 1])
				k++;
		if (k == nr || k == i)
			k = i + below(x, nr - i);
		x->at[r] = i;
		bring_forward(x, r, k);
	}
	x->at[r] = first;
}

/* Counts the orders of the turns that were given out. */
static size_t count_orders(const struct walk *x, size_t limit)
{
	size_t all = 1;

	for (int r = 0; r < x->p->nr_ranks && all <= limit; r++) {
		size_t nr = x->nr[r] - x->at[r];

		if (nr)
			all *= nr > 256 ? limit + 1
					: count_merges(x->turn[r] + x->at[r], nr, limit);
	}
	return all > limit ? limit + 1 : all;
}

static int several_threads(const struct walk *x, int r)
{
	for (size_t i = x->at[r]; i < x->nr[r]; i++)
		if (x->turn[r][i] != x->turn[r][x->at[r]])
			return 1;
	return 0;
}

/*
 * Whether thread a, after its step i, signals the condition for which thread b waits between its
 * previous turn and its step j.
 */
static int hands_over(const struct df_mprog *p, int r, int a, size_t i, int b, size_t j)
{
	const struct df_mop *from = p->threads[r][a].ops, *to = p->threads[r][b].ops;

	for (i++; i < p->threads[r][a].nr_ops && !df_predict_takes_turn(from[i].kind); i++)
		for (size_t k = j; k-- > 0 && !df_predict_takes_turn(to[k].kind);)
			if (from[i].kind == DF_MOP_HSIGNAL && to[k].kind == DF_MOP_HWAIT &&
			    from[i].object == to[k].object)
				return 1;
	return 0;
}

/*
 * Whether, at each change of threads, the later thread waits for a signal of the earlier one, so
 * that no other order is possible.
 */
static int in_turns(const struct walk *x, int r)
{
	size_t step[DF_MODEL_THREADS], last = 0;
	int before = -1;

	memcpy(step, x->res->pc[r], sizeof(step));
	for (size_t i = x->at[r]; i < x->nr[r]; i++) {
		int t = x->turn[r][i];
		size_t s = turn_step(x->p, r, t, step[t]);

		if (before >= 0 && before != t && !hands_over(x->p, r, before, last, t, s))
			return 0;
		before = t;
		last = s;
		step[t] = s + 1;
	}
	return 1;
}

/* Makes the order of try `schedule`. If `all`, tries enumerate the orders. */
static void make_order(struct walk *x, uint64_t schedule, int all)
{
	int ranks[DF_MODEL_RANKS], nr = 0;
	uint64_t rest = schedule - 1;

	x->rng = schedule * 0x9e3779b97f4a7c15ULL;
	x->random = x->p->cap > 0;
	for (int r = 0; r < x->p->nr_ranks; r++)
		if (several_threads(x, r))
			ranks[nr++] = r;
	for (int i = 0; i < nr && all; i++) {
		uint8_t *v = x->turn[ranks[i]] + x->at[ranks[i]];
		size_t left = x->nr[ranks[i]] - x->at[ranks[i]];
		size_t n = count_merges(v, left, SIZE_MAX / 512);

		nth_merge(v, left, rest % n);
		rest /= n;
	}
	if (all || !nr)
		return;
	/* Two of three tries move one thread of one rank; the third shuffles all ranks. */
	if (schedule % 3)
		shift(x, ranks[below(x, (size_t)nr)], schedule % 3 == 1);
	else
		for (int i = 0; i < nr; i++)
			shuffle(x, ranks[i]);
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Runs the whole program as recorded. */
static int as_recorded(const struct df_mprog *p, const struct df_predict_order *recorded,
		       const struct df_predict_opts *opts, df_model_event_fn fn,
		       df_mrun_task_fn open, void *arg, struct df_model_result *res)
{
	struct walk x;
	int rc = walk_init(&x, p, recorded, opts->mode);

	x.fn = fn;
	x.arg = arg;
	while (!rc) {
		rc = go(&x);
		if (rc || !advance(&x, opts->window))
			break;
	}
	if (x.res)
		copy_result(res, x.res, p);
	if (!rc && open)
		df_mrun_each(x.run, open, arg);
	rc = rc ?: x.failed ? -ENOMEM : 0;
	walk_fini(&x);
	return rc;
}

static int all_taken(const struct walk *x)
{
	int all = 1;

	for (int r = 0; r < x->p->nr_ranks; r++)
		all &= x->given[r] == x->recorded->nr[r] && x->at[r] == x->nr[r];
	return all;
}

/* Returns the distance from one window to the next: windows overlap by half. */
static size_t stride(size_t window)
{
	return window > 1 ? window / 2 : window;
}

/*
 * Continues from the state of x, for whose window turns have been given out: executes the window in
 * the order of try `schedule`, and the rest as recorded. Returns 0 when all operations of the
 * window have finished, 1 if nothing makes progress any more (x->res has the state), or -ENOMEM.
 */
static int go_through(struct walk *x, uint64_t schedule, int all, size_t window)
{
	size_t rows = (size_t)x->p->nr_ranks * sizeof(*x->step);
	size_t(*end)[DF_MODEL_THREADS] = malloc(rows + 1);
	int mark = -1, rc = end ? 0 : -ENOMEM;

	if (rc)
		return rc;
	memcpy(end, x->step, rows);
	make_order(x, schedule, all);
	for (;;) {
		int behind = 1;

		rc = go(x);
		if (rc)
			break;
		for (int r = 0; r < x->p->nr_ranks && mark < 0; r++)
			for (int t = 0; t < x->p->nr_threads[r]; t++)
				behind &= x->res->pc[r][t] >= end[r][t];
		if (mark < 0 && behind)
			mark = df_mrun_issued(x->run);
		if (!x->res->hung || (mark >= 0 && !df_mrun_is_open(x->run, mark)))
			break;
		if (!advance(x, window)) {
			rc = x->failed ? -ENOMEM : 1;
			break;
		}
	}
	free(end);
	return rc;
}

/*
 * Tries the orders of the window that begins at the state of `base`. Returns 1 if one deadlocks, 0
 * if none does, or -ENOMEM.
 */
static int search_window(const struct walk *base, const struct df_predict_opts *opts,
			 struct df_predict_finding *f)
{
	struct walk first, x;
	size_t orders, tries;
	int rc = walk_copy(&first, base), free_threads = 0;

	if (rc)
		return rc;
	advance(&first, opts->window);
	for (int r = 0; r < first.p->nr_ranks && !first.failed; r++)
		free_threads |= several_threads(&first, r) && !in_turns(&first, r);
	orders = free_threads ? count_orders(&first, opts->tries) : 1;
	f->counted = orders <= opts->tries && !first.p->cap;
	tries = f->counted ? orders : opts->tries;
	if (orders == 1 && !first.p->cap)
		tries = 0;
	for (uint64_t i = 1; i <= tries && !rc && !first.failed; i++) {
		rc = walk_copy(&x, &first);
		if (rc)
			break;
		rc = go_through(&x, i, f->counted, opts->window);
		if (rc > 0) {
			f->what = "an interleaving of the threads deadlocks";
			f->schedule = i;
			copy_result(&f->res, x.res, x.p);
		}
		walk_fini(&x);
	}
	rc = first.failed ? -ENOMEM : rc;
	walk_fini(&first);
	return rc;
}

int df_predict_search(struct df_mprog *p, const struct df_predict_order *recorded,
		      const struct df_predict_opts *opts, struct df_predict_finding *f)
{
	struct df_model_result *res;
	struct walk base;
	int rc, complete = 1;

	memset(f, 0, sizeof(*f));
	rc = as_recorded(p, recorded, opts, NULL, NULL, NULL, &f->res);
	if (rc)
		return rc;
	f->need_slots = f->res.max_resident;
	if (f->res.hung) {
		/*
		 * The recorded order itself deadlocks: find the condition that differed in the
		 * recorded run.
		 */
		res = calloc(1, sizeof(*res));
		p->buffered = 1;
		rc = res ? as_recorded(p, recorded, opts, NULL, NULL, NULL, res) : -ENOMEM;
		p->buffered = 0;
		f->unbuffered = !rc && !res->hung;
		free(res);
		f->what = f->unbuffered
				  ? "the recorded order deadlocks when messages are not buffered"
			  : opts->mode == DF_MODEL_LANES
				  ? "the recorded order deadlocks on lanes"
				  : "the recorded order deadlocks by NCCL's rules";
		return rc ? rc : 1;
	}
	p->one_queue = f->one_queue = opts->one_queue;
	p->cap = f->slots = opts->slots;
	if (p->cap || p->one_queue) {
		rc = as_recorded(p, recorded, opts, NULL, NULL, NULL, &f->res);
		if (rc)
			return rc;
		if (f->res.hung) {
			f->what = p->cap ? "deadlocks with the given slots"
					 : "deadlocks when all streams share one hardware queue";
			return 1;
		}
	}
	rc = walk_init(&base, p, recorded, opts->mode);
	while (!rc) {
		int found = search_window(&base, opts, f);

		f->window = f->nr_windows++;
		complete &= f->counted;
		if (found) {
			rc = found;
			break;
		}
		if (opts->progress)
			opts->progress(f->nr_windows);
		if (!advance(&base, stride(opts->window)))
			break;
		rc = go(&base);
		/* The last window reached the end of the program. */
		if (!rc && all_taken(&base))
			break;
	}
	f->complete = complete && f->nr_windows == 1;
	rc = base.failed && !rc ? -ENOMEM : rc;
	walk_fini(&base);
	return rc;
}

int df_predict_again(struct df_mprog *p, const struct df_predict_order *recorded,
		     const struct df_predict_opts *opts, const struct df_predict_finding *f,
		     df_model_event_fn fn, df_mrun_task_fn open, void *arg)
{
	struct df_model_result res;
	struct walk x;
	int rc;

	if (!f->schedule)
		return as_recorded(p, recorded, opts, fn, open, arg, &res);
	rc = walk_init(&x, p, recorded, opts->mode);
	x.fn = fn;
	x.arg = arg;
	for (size_t i = 0; i < f->window && !rc && advance(&x, stride(opts->window)); i++)
		rc = go(&x);
	if (!rc)
		advance(&x, opts->window);
	rc = rc ?: go_through(&x, f->schedule, f->counted, opts->window);
	if (rc >= 0 && open)
		df_mrun_each(x.run, open, arg);
	walk_fini(&x);
	return rc < 0 ? rc : 0;
}
