/*
 * Executes random programs whose ranks have several threads. Some threads sleep for the whole
 * program, have ended before it, start late, issue an operation late, or need a lock that another
 * thread holds. Communicators are used before or are new (cold); ranks are threads or processes.
 * Every operation has its own buffers, so a program waits only because of its synchronisations.
 *
 * run_once() tries random schedules of each program: by NCCL's rules, by dfshim's without a
 * release, and by dfshim's with every release that `safe` allows. Then the program is executed:
 *
 *   completes without a release  It must complete, and nothing may be called proved, because a late
 *                                thread ends every wait. Exception: a thread that has not used a
 *                                communicator before, because no such thread is expected
 *                                (docs/release.md).
 *   completes with releases      It must complete by dfshim's rules, with the right values.
 *   hangs in both                It must hang with a verdict and not end with status 0.
 *
 * By NCCL's rules a program that hangs must have a verdict, and one that completes must complete
 * with nothing called proved. If the end depends on the schedule, each end is right.
 *
 *   threads [--programs N] [--seconds S] [--seed N] [--print SEED] [--failures N]
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "drive.h"
#include "tests/lib/test.h"

#define RANKS	  4
#define THREADS	  4
#define LATE	  3 /* the number of the thread that can be late */
#define COMMS	  5
#define STEPS	  40
#define NR_BATCH  16
#define NR_RUN	  12  /* processes at a time; they mostly sleep */
#define SCHEDULES 128 /* number of schedules tried for each program */
#define LATE_MS	  150 /* how late a thread starts at least; df_test_slow() multiplies it */
#define BOUND_MS  60  /* DFSHIM_RELEASE_MS, times df_test_slow(); shorter than LATE_MS */

enum kind { ISSUE, DSYNC, SSYNC, ESYNC, READ, SLEEP, LOCK, UNLOCK, CWAIT, CSIG, HW, HS, START };

struct step {
	enum kind kind;
	int what; /* operation, condition, thread or milliseconds, by kind */
};

/* Every rank issues each operation once. */
struct op {
	int comm, count;
};

struct prog {
	uint64_t seed;
	int nr_ranks, nr_comms, nr_ops, cold, procs;
	int new; /* a late thread has not used the communicators before */
	struct op ops[2 * COMMS];
	/* started: set of threads that a START step starts */
	int nr_threads[RANKS], started[RANKS];
	struct step steps[RANKS][THREADS][STEPS];
	int nr_steps[RANKS][THREADS];
};

/* Rules of a schedule: dfshim's without a release, dfshim's with all releases of `safe`, NCCL's. */
enum rules { KEPT, RELEASED, NCCL, NR_RULES };

struct entry {
	struct prog p;
	int done[NR_RULES];
};

/* ---- a program from its seed ----------------------------------------------------------------- */

static uint64_t rng;

static int rnd(int n)
{
	uint64_t z = rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (int)((z ^ z >> 31) % (uint64_t)n);
}

static int chance(int percent)
{
	return rnd(100) < percent;
}

static void put(struct prog *p, int r, int t, enum kind kind, int what)
{
	if (p->nr_steps[r][t] == STEPS)
		abort();
	p->steps[r][t][p->nr_steps[r][t]++] = (struct step){kind, what};
	if (p->nr_threads[r] <= t)
		p->nr_threads[r] = t + 1;
}

/* Conditions of a rank: the prelude is over; the program is over. */
enum { F_USED, F_OVER };

/*
 * Thread t, the first or another one, issues the first `nr_before` operations. Another thread than
 * the first then ends, sleeps until the program is over (on a condition, or in a wait that times
 * out repeatedly), or, if it is the late thread, goes on later.
 */
static void prelude(struct prog *p, int r, int t, int nr_before)
{
	int nr_sleeps = chance(20) ? 2 : 1;

	if (t && !nr_before && chance(30))
		return;
	for (int i = 0; i < nr_before; i++) {
		put(p, r, t, ISSUE, i);
		put(p, r, t, SSYNC, i);
	}
	put(p, r, t, CSIG, F_USED);
	if (!t)
		return;
	put(p, r, 0, CWAIT, F_USED);
	if (t == LATE || chance(40))
		return; /* the thread ends, or is the late one */
	put(p, r, 1, chance(60) ? CWAIT : HW, F_OVER);
	/* A thread that uses neither CUDA nor NCCL. */
	if (nr_sleeps > 1)
		put(p, r, 2, chance(50) ? CWAIT : HW, F_OVER);
}

static void put_op(struct prog *p, int r, int t, int op, int style)
{
	put(p, r, t, ISSUE, op);
	if (chance(style == 2 ? 25 : 12))
		put(p, r, t, chance(50) ? SSYNC : ESYNC, op);
	else if (chance(style ? 85 : 60))
		put(p, r, t, DSYNC, 0);
	else
		return;
	if (chance(8))
		put(p, r, t, READ, op);
}

/*
 * Makes a program. The ranks issue the operations in different orders. A late thread issues some of
 * them.
 */
static void make(struct prog *p, uint64_t seed, int slow)
{
	int nr_before, style, late;

	memset(p, 0, sizeof(*p));
	rng = p->seed = seed;
	p->nr_ranks = 2 + (chance(35) ? 1 + rnd(2) : 0);
	p->nr_comms = 2 + rnd(COMMS - 2);
	p->procs = chance(25);
	p->cold = chance(60);
	/* Cold communicators are connected by the program's own first operations, if any. */
	nr_before = p->cold ? chance(50) ? 0 : rnd(p->nr_comms + 1) : chance(50) ? p->nr_comms : 0;
	for (int i = 0; i < nr_before; i++)
		p->ops[p->nr_ops++] = (struct op){.comm = i, .count = 7};
	for (int i = 0; i < p->nr_comms; i++)
		p->ops[p->nr_ops++] = (struct op){.comm = i, .count = chance(50) ? 4 : 1000};
	style = rnd(3);
	late = chance(50) ? 1 << rnd(p->nr_ranks) : 0;
	late |= late && chance(20) ? 1 << rnd(p->nr_ranks) : 0;
	for (int r = 0; r < p->nr_ranks; r++) {
		int order[COMMS], by[COMMS] = {0}, t = LATE, lock = style == 2 && chance(50);
		int how = rnd(3), user = chance(70) ? 1 : 0;

		/*
		 * The late thread has used all communicators before, as the other ranks' threads
		 * have.
		 */
		if ((late >> r & 1) && nr_before == p->nr_comms && how != 1 && chance(70))
			user = t;
		p->new |= (late >> r & 1) && user != t;
		prelude(p, r, user, nr_before);
		for (int i = 0; i < p->nr_comms; i++)
			order[i] = i;
		for (int i = p->nr_comms - 1; i > 0; i--) {
			int k = rnd(i + 1), x = order[i];

			order[i] = order[k];
			order[k] = x;
		}
		if (late >> r & 1) {
			by[rnd(p->nr_comms)] = t;
			/* The first operation on a communicator is the same on all ranks. */
			if (user != t && nr_before)
				put(p, r, t, CWAIT, F_USED);
			if (how == 0)
				put(p, r, t, SLEEP, (LATE_MS + rnd(LATE_MS)) * slow);
			if (how == 1)
				p->started[r] |= 1 << t;
			if (lock)
				put(p, r, t, LOCK, 0);
		}
		if (lock)
			put(p, r, 0, LOCK, 0);
		for (int i = 0; i < p->nr_comms; i++) {
			if ((late >> r & 1) && how == 1 && i == p->nr_comms / 2)
				put(p, r, 0, START, t);
			put_op(p, r, by[order[i]], nr_before + order[i], style);
		}
		for (int k = 0; k <= t; k += t)
			if (lock && p->nr_steps[r][k])
				put(p, r, k, UNLOCK, 0);
		put(p, r, 0, HS, F_OVER);
		put(p, r, 0, CSIG, F_OVER);
	}
}

/*
 * Locks and conditions belong to a rank. Flags (hw, hs) belong to the job, so their names contain
 * it.
 */
static void print_step(const struct prog *p, int r, const struct step *s, FILE *f)
{
	static const char *const words[] = {"AR",    "dsync", "ssync",	"esync", "read",
					    "sleep", "lock",  "unlock", "cwait", "csig",
					    "hw",    "hs",    "start"};
	const struct op *op = &p->ops[s->what];

	fputs(words[s->kind], f);
	switch (s->kind) {
	case ISSUE:
		fprintf(f, " c%d nb%d n=%d in=i%d out=o%d; rec e%d nb%d", op->comm, op->comm,
			op->count, s->what, s->what, s->what, op->comm);
		break;
	case SSYNC:
		fprintf(f, " nb%d", op->comm);
		break;
	case ESYNC:
		fprintf(f, " e%d", s->what);
		break;
	case READ:
		fprintf(f, " o%d n=%d", s->what, op->count);
		break;
	case SLEEP:
	case START:
		fprintf(f, " %d", s->what);
		break;
	case DSYNC:
		break;
	case HW:
	case HS:
		fprintf(f, " h%d", r);
		break;
	case LOCK:
	case UNLOCK:
		fputs(" l", f);
		break;
	case CWAIT:
	case CSIG:
		fprintf(f, " s%d", s->what);
	}
}

static void print(const struct prog *p, FILE *f)
{
	fprintf(f, "prog %llu\nranks %d\n%s%s", (unsigned long long)p->seed, p->nr_ranks,
		p->cold ? "cold\n" : "", p->procs ? "procs\n" : "");
	for (int c = 0; c < p->nr_comms; c++) {
		fprintf(f, "comm c%d", c);
		for (int r = 0; r < p->nr_ranks; r++)
			fprintf(f, " %d", r);
		fputc('\n', f);
	}
	for (int r = 0; r < p->nr_ranks; r++)
		for (int t = 0; t < p->nr_threads[r]; t++) {
			fprintf(f, "%d.%d:", r, t);
			for (int i = 0; i < p->nr_steps[r][t]; i++) {
				fputs(i ? "; " : " ", f);
				print_step(p, r, &p->steps[r][t][i], f);
			}
			fputc('\n', f);
		}
	fprintf(f, "end\n");
}

/* ---- how it ends ----------------------------------------------------------------------------- */

struct state {
	int at[RANKS][THREADS];				 /* the next step of each thread */
	int begun[RANKS];				 /* begun: set of threads */
	unsigned issued[RANKS], awaited[RANKS][THREADS]; /* sets of operations */
	int waits[RANKS][THREADS], lock[RANKS];
	unsigned flags[RANKS], signs[RANKS],
		used[RANKS]; /* used: set of communicators whose set-up the rank has begun */
};

static int is_done(const struct prog *p, const struct state *s, int op)
{
	for (int r = 0; r < p->nr_ranks; r++)
		if (!(s->issued[r] >> op & 1))
			return 0;
	return 1;
}

static int are_done(const struct prog *p, const struct state *s, unsigned ops)
{
	for (int i = 0; i < p->nr_ops; i++)
		if (ops >> i & 1 && !is_done(p, s, i))
			return 0;
	return 1;
}

/* Returns the operations that the rank has issued on the communicator. */
static unsigned of_comm(const struct prog *p, const struct state *s, int r, int comm)
{
	unsigned set = 0;

	for (int i = 0; i < p->nr_ops; i++)
		if (p->ops[i].comm == comm)
			set |= s->issued[r] & 1u << i;
	return set;
}

/*
 * Whether NCCL's first operation on a communicator can return: all ranks must have begun theirs.
 * Marks that rank r has.
 */
static int is_set_up(const struct prog *p, struct state *s, int r, int comm)
{
	int all = 1;

	s->used[r] |= 1u << comm;
	for (int k = 0; k < p->nr_ranks; k++)
		all &= s->used[k] >> comm & 1;
	return all;
}

/*
 * Whether `safe` releases a wait for the rank's device. A copy to host memory that is queued behind
 * an operation is other work, which prevents the release (docs/release.md).
 */
static int is_releasable(const struct prog *p, const struct state *s, int r)
{
	for (int t = 0; t < p->nr_threads[r]; t++)
		if (s->waits[r][t] && p->steps[r][t][s->at[r][t]].kind == READ)
			return 0;
	return 1;
}

/* Executes the thread's next step if it can. Returns 1 if it did. `awake` lets SLEEP steps end. */
static int take_step(const struct prog *p, struct state *s, int r, int t, enum rules rules,
		     int awake)
{
	const struct step *st = &p->steps[r][t][s->at[r][t]];
	unsigned *wait = &s->awaited[r][t];

	if (s->at[r][t] == p->nr_steps[r][t] || !(s->begun[r] >> t & 1))
		return 0;
	switch (st->kind) {
	case ISSUE:
		if (rules == NCCL && p->cold && !is_set_up(p, s, r, p->ops[st->what].comm))
			return 0;
		s->issued[r] |= 1u << st->what;
		break;
	case DSYNC:
	case SSYNC:
	case ESYNC:
	case READ:
		if (st->kind == DSYNC && rules == RELEASED && is_releasable(p, s, r)) {
			s->waits[r][t] = 0;
			break;
		}
		if (!s->waits[r][t]) {
			s->waits[r][t] = 1;
			*wait = st->kind == DSYNC   ? s->issued[r]
				: st->kind == SSYNC ? of_comm(p, s, r, p->ops[st->what].comm)
						    : 1u << st->what;
		}
		if (!are_done(p, s, *wait))
			return 0;
		s->waits[r][t] = 0;
		break;
	case LOCK:
		if (s->lock[r])
			return 0;
		s->lock[r] = 1;
		break;
	case UNLOCK:
		s->lock[r] = 0;
		break;
	case CSIG:
		s->signs[r] |= 1u << st->what;
		break;
	case HS:
		s->flags[r] |= 1u << st->what;
		break;
	case CWAIT:
	case HW:
		if (!((st->kind == HW ? s->flags : s->signs)[r] >> st->what & 1))
			return 0;
		break;
	case START:
		s->begun[r] |= 1 << st->what;
		break;
	case SLEEP:
		if (!awake)
			return 0;
		break;
	}
	s->at[r][t]++;
	return 1;
}

/* Lets one random thread that is not in `held` take a step. Returns 0 if none can. */
static int move(const struct prog *p, struct state *s, enum rules rules, unsigned held, int awake)
{
	int from = rnd(RANKS * THREADS);

	for (int i = 0; i < RANKS * THREADS; i++) {
		int k = (from + i) % (RANKS * THREADS);

		if (!(held >> k & 1) && k / THREADS < p->nr_ranks &&
		    take_step(p, s, k / THREADS, k % THREADS, rules, awake))
			return 1;
	}
	return 0;
}

/*
 * Runs the program by a random schedule. Returns 1 if every thread reached its end. Random choices
 * alone make no thread late enough, so with `late` some threads start, and sleeping threads go on,
 * only when nothing else can move.
 */
static int run_once(const struct prog *p, enum rules rules, int late)
{
	struct state s = {.lock = {0}};
	unsigned held = 0, was;
	int all = 1;

	for (int r = 0; r < p->nr_ranks; r++)
		s.begun[r] = ~p->started[r];
	for (int k = 0; k < RANKS * THREADS && late; k++)
		held |= (unsigned)chance(k % THREADS == LATE ? 60 : 10) << k;
	do {
		while (move(p, &s, rules, held, !late))
			;
		was = held;
		held = 0;
	} while (was || move(p, &s, rules, 0, 1));
	for (int r = 0; r < p->nr_ranks; r++)
		for (int t = 0; t < p->nr_threads[r]; t++)
			all &= s.at[r][t] == p->nr_steps[r][t];
	return all;
}

static void label(struct entry *e)
{
	for (int k = 0; k < NR_RULES; k++)
		for (int i = 0; i < SCHEDULES; i++)
			e->done[k] += run_once(&e->p, (enum rules)k, i & 1);
}

/* ---- execution ------------------------------------------------------------------------------- */

/* How programs end. Those with the same end share a process. */
enum end { BY_ITSELF, BY_A_NEW_THREAD, WITH_RELEASE, NEVER, EITHER, NR_ENDS };

static const char *const ends[] = {"complete by themselves", "may need a new thread for that",
				   "complete with a release", "hang", "may hang"};

struct batch {
	struct entry *e[NR_BATCH];
	int nr, by_nccl;
	enum end end;
	pid_t pid;
	char file[500], log[520];
};

static struct batch pools[2][NR_ENDS], running[NR_RUN];
static int nr_running, slow;
static unsigned long nr_programs, nr_executed[2][NR_ENDS], nr_procs, nr_cold, nr_bad, nr_likely,
	nr_proved, most_failures = 3;

static enum end end_of(const struct entry *e, int by_nccl)
{
	enum rules most = by_nccl ? NCCL : RELEASED, least = by_nccl ? NCCL : KEPT;

	if (e->done[least] == SCHEDULES)
		return e->p.new ? BY_A_NEW_THREAD : BY_ITSELF;
	if (!by_nccl && e->done[most] == SCHEDULES)
		return WITH_RELEASE;
	return e->done[most] ? EITHER : NEVER;
}

static void start(struct batch *b)
{
	static int number;
	/*
	 * If the program completes, the time-out is so short that a verdict precedes the late
	 * thread, and the job goes on after it. A program that hangs is ended, later if processes
	 * must start first.
	 */
	int hangs = b->end == NEVER || b->end == EITHER;
	FILE *f;

	snprintf(b->file, sizeof(b->file), "%s/threads.%d.%d", scratch, (int)getpid(), number++);
	snprintf(b->log, sizeof(b->log), "%s.log", b->file);
	f = fopen(b->file, "w");
	if (!f) {
		perror(b->file);
		exit(1);
	}
	for (int i = 0; i < b->nr; i++)
		print(&b->e[i]->p, f);
	fclose(f);
	b->pid = drive_start(&(struct drive){
		.by_nccl = b->by_nccl,
		.devices = RANKS,
		.slots = 64,
		.queues = 64,
		.timeout_ms =
			(hangs ? b->e[0]->p.procs ? 3000L : 4L * LATE_MS : LATE_MS / 2) * slow,
		.goes_on = !hangs,
		.trace_mb = 1,
		.timeout = 60,
		.script = b->file,
		.log = b->log});
}

static void failed(const struct batch *b, const struct entry *e, const char *why, const char *log)
{
	if (++nr_bad > most_failures)
		return;
	printf("\nFAILED: seed %llu by %s rules, one of those that %s: %s\n%s",
	       (unsigned long long)e->p.seed, b->by_nccl ? "NCCL's" : "our", ends[b->end], why,
	       log);
	print(&e->p, stdout);
	fflush(stdout);
}

/* Judges a program by the output of its processes in `text`. */
static void judge(const struct batch *b, const struct entry *e, const char *text, int status)
{
	int done, hung = 0;
	int proved = strstr(text, "Confidence: proved.\n") != NULL,
	    released = strstr(text, "was part of a deadlock") != NULL;

	/* Each process prints how it ended. */
	for (const char *at = text; (at = strstr(at, "\n--- ")); at++)
		hung += !strstr(at, " completes ") ||
			strcspn(at + 1, "\n") < (size_t)(strstr(at, " completes ") - at);
	done = !hung && strstr(text, "\n--- ");
	nr_likely += strstr(text, "a cycle that is likely") != NULL;
	nr_proved += (unsigned long)released;
	if (strstr(text, " wrong "))
		failed(b, e, "a wrong value", text);
	else if (!done && !hung)
		failed(b, e, "it crashed, or got stuck", text);
	else if (b->end == BY_ITSELF && (proved || released))
		failed(b, e, "called proved, although it ends by itself", text);
	else if (!done && b->end <= WITH_RELEASE)
		failed(b, e, "does not complete", text);
	else if (done && b->end == NEVER)
		failed(b, e, "completes, and can't", text);
	else if (!done &&
		 (!status || !(strstr(text, "Confidence: ") || strstr(text, " records, "))))
		failed(b, e, status ? "hung without a verdict" : "hung, with status 0", text);
}

static void finish(struct batch *b, int status)
{
	char *text = NULL, *at, *end;
	size_t len = 0;
	FILE *f = fopen(b->log, "r");

	if (f && getdelim(&text, &len, 0, f) < 0)
		*text = 0;
	if (f)
		fclose(f);
	for (int i = 0; i < b->nr; i++) {
		char first[64], next[64], *mine;

		snprintf(first, sizeof(first), "=== %llu\n", (unsigned long long)b->e[i]->p.seed);
		snprintf(next, sizeof(next), "=== %llu\n",
			 i + 1 < b->nr ? (unsigned long long)b->e[i + 1]->p.seed : 0);
		at = text ? strstr(text, first) : NULL;
		end = at && i + 1 < b->nr ? strstr(at, next) : NULL;
		mine = at ? strndup(at, end ? (size_t)(end - at) : strlen(at)) : strdup("");
		judge(b, b->e[i], mine, status);
		free(mine);
		free(b->e[i]);
	}
	free(text);
	unlink(b->file);
	if (!getenv("KEEP"))
		unlink(b->log);
	b->nr = 0;
}

static void reap(void)
{
	int status;
	pid_t pid = wait(&status);

	for (int i = 0; i < NR_RUN; i++)
		if (running[i].nr && running[i].pid == pid) {
			nr_running--;
			finish(&running[i], status);
		}
}

static void launch(struct batch *pool)
{
	struct batch *b = running;

	while (nr_running == NR_RUN)
		reap();
	while (b->nr)
		b++;
	*b = *pool;
	pool->nr = 0;
	nr_running++;
	start(b);
}

static void take(uint64_t seed)
{
	for (int by_nccl = 0; by_nccl < 2; by_nccl++) {
		struct entry *e = calloc(1, sizeof(*e));
		struct batch *pool, alone = {.nr = 0};
		enum end end;

		make(&e->p, seed, slow);
		label(e);
		end = end_of(e, by_nccl);
		nr_executed[by_nccl][end]++;
		pool = e->p.procs ? &alone : &pools[by_nccl][end];
		pool->by_nccl = by_nccl;
		pool->end = end;
		nr_procs += (unsigned long)(e->p.procs && !by_nccl);
		nr_cold += (unsigned long)(e->p.cold && !by_nccl);
		pool->e[pool->nr++] = e;
		if (e->p.procs || pool->nr == NR_BATCH)
			launch(pool);
	}
	nr_programs++;
}

static int print_one(uint64_t seed)
{
	struct entry e = {.done = {0}};

	make(&e.p, seed, slow);
	label(&e);
	printf("# ours: %s; nccl: %s\n", ends[end_of(&e, 0)], ends[end_of(&e, 1)]);
	print(&e.p, stdout);
	return 0;
}

int main(int argc, char **argv)
{
	const char *sd = getenv("SEED");
	uint64_t seed =
		sd ? strtoull(sd, NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
	unsigned long programs = 1000;
	double seconds = 0, begun = now();
	char bound[16];

	slow = df_test_slow();
	for (int i = 1; i < argc; i++) {
		if (i + 1 < argc && !strcmp(argv[i], "--programs"))
			programs = strtoul(argv[++i], NULL, 0);
		else if (i + 1 < argc && !strcmp(argv[i], "--seconds"))
			seconds = atof(argv[++i]);
		else if (i + 1 < argc && !strcmp(argv[i], "--seed"))
			seed = strtoull(argv[++i], NULL, 0);
		else if (i + 1 < argc && !strcmp(argv[i], "--failures"))
			most_failures = strtoul(argv[++i], NULL, 0);
		else if (i + 1 < argc && !strcmp(argv[i], "--print"))
			return print_one(strtoull(argv[++i], NULL, 0));
		else {
			fprintf(stderr, "usage: threads [--programs N] [--seconds S] [--seed N] "
					"[--print SEED] [--failures N]\n");
			return 2;
		}
	}
	drive_init();
	snprintf(bound, sizeof(bound), "%d", BOUND_MS * slow);
	setenv("DFSHIM_RELEASE_MS", bound, 1);
	printf("SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	for (unsigned long n = 0; n < programs || now() - begun < seconds; n++)
		take(seed + n);
	for (int k = 0; k < 2 * NR_ENDS; k++)
		if (pools[k / NR_ENDS][k % NR_ENDS].nr)
			launch(&pools[k / NR_ENDS][k % NR_ENDS]);
	while (nr_running)
		reap();
	printf("%lu programs in %.1f s, %lu of them in processes, %lu cold\n", nr_programs,
	       now() - begun, nr_procs, nr_cold);
	for (int k = 0; k < 2; k++) {
		printf("by %s rules:", k ? "NCCL's" : "our");
		for (int i = 0; i < NR_ENDS; i++)
			printf(" %lu %s%s", nr_executed[k][i], ends[i],
			       i + 1 < NR_ENDS ? "," : "\n");
	}
	printf("processes that logged a release: %lu of what was likely, %lu of what was proved; "
	       "%lu wrong\n",
	       nr_likely, nr_proved, nr_bad);
	return nr_bad != 0;
}
