/*
 * Executes random programs of ranks, threads, communicators, streams, events, synchronisations,
 * messages and other work. The model (trace/predict/model.h) derives how each program ends by
 * NCCL's rules and by dfshim's. The plain client (script.c) then executes it by both sets of rules.
 * It must end as the model says, with the right values:
 *
 *   OK             completes by both
 *   P, S-i         hangs by NCCL's rules, completes by dfshim's
 *   S-e            hangs by NCCL's rules; completes by dfshim's if the release is safe, else hangs
 *   D              hangs by both, but dfshim repairs disorder inside a communicator
 *
 * A verdict must be true of the program, and must follow only when nothing can move any more; so
 * the model knows the step of each thread too. If a program was broken off too early (a busy
 * machine did not run its threads) or has a wrong verdict, it is executed up to three times more
 * with longer time-outs, and counted as repeated. If it fails each time, it is reduced to a smaller
 * program that fails in the same way, and printed with its seed.
 *
 *   random [--programs N] [--seconds S] [--executing S] [--seed N] [--print SEED]
 *          [--release safe|device] [--failures N] [--said FILE]
 *
 * Makes N programs, and more until S seconds have passed. Programs after --executing seconds are
 * only labelled. --failures: how many failing programs are reduced (default 3). --said: a file for
 * the verdict of each program that hung.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "random.h"
#include "tests/lib/test.h"

#define NR_BUSY 2  /* processes for programs that complete; these use the CPUs */
#define NR_IDLE 24 /* processes for programs that hang; these mostly sleep */

/* Programs of one speed can share a process. */
enum speed { ENDS, HANGS, HANGS_SILENTLY };

static struct {
	const char *cls;
	unsigned long labelled, executed[2];
} count[] = {{.cls = "OK"}, {.cls = "P"}, {.cls = "Si"}, {.cls = "Se"}, {.cls = "D"}};
static unsigned long nr_bad, nr_done, nr_hung, nr_released, nr_again;
/* number of failing programs that are printed and reduced */
static unsigned long most_failures = 3;
static FILE *said;

struct entry {
	struct script s;
	struct label l;
	struct outcome o;
	int nccl, patient; /* number of repetitions */
};

struct kind {
	enum speed speed;
	int nccl, patient, slots, queues;
};

#define NR_KINDS 32
#define LOOKS	 3 /* repetitions with longer time-outs */

static struct pool {
	struct kind k;
	struct entry *e[NR_BATCH];
	int nr;
} pools[NR_KINDS];
static int nr_pools;

static struct running {
	struct batch b;
	struct entry *e[NR_BATCH];
	enum speed speed;
	double start;
} running[NR_BUSY + NR_IDLE];
static int nr_running[2]; /* [0] programs that complete, [1] programs that hang */

/* For each speed: what the processes used. */
static struct {
	unsigned long programs;
	double processors, clock; /* CPU seconds, elapsed seconds */
} spent[3];

static void put_aside(struct entry *e);

static void failed(struct entry *e, const char *bad)
{
	struct script small;
	char why[1700];

	if (++nr_bad > most_failures)
		return;
	printf("\nFAILED: seed %s by %s rules (class %s): %s\n", e->s.name,
	       e->nccl ? "NCCL's" : "our", e->l.cls, bad);
	fflush(stdout);
	snprintf(why, sizeof(why), "%s", bad);
	sc_copy(&small, &e->s);
	minimise(&small, e->nccl, why, sizeof(why));
	printf("made smaller: %s\n", why);
	sc_print(&small, stdout);
	fflush(stdout);
	sc_free(&small);
}

/* Judges an outcome. Takes ownership of `e`: frees it, or puts it back into a pool. */
static void tally(struct entry *e)
{
	const struct expect *x = &e->l.by[e->nccl];
	const char *bad = judge(&e->s, &e->l, e->nccl, &e->o);

	/* An earlier program of the batch has ended the process. */
	if (!e->o.ran && !e->o.last) {
		put_aside(e);
		return;
	}
	if (e->o.ran && !e->o.done && e->patient < LOOKS && x->want != W_DONE &&
	    (bad || !stands_at_an_end(&e->s, x, &e->o, 0))) {
		nr_again++;
		if (said)
			fprintf(said, "%s again: %s\n", e->s.name, bad ? bad : "not at its end");
		memset(&e->o, 0, sizeof(e->o));
		e->patient++;
		put_aside(e);
		return;
	}
	bad = judge_at_length(&e->s, &e->l, e->nccl, &e->o);
	for (size_t c = 0; c < 5; c++)
		if (!strcmp(count[c].cls, e->l.cls))
			count[c].executed[e->nccl]++;
	if (e->o.done)
		nr_done++;
	else
		nr_hung++;
	nr_released += !e->nccl && e->o.done && x->want == W_EITHER;
	if (said && !e->o.done)
		fprintf(said, "%s %s %s [%s] %s%s\n", e->s.name, e->nccl ? "nccl" : "ours",
			e->l.cls, words_of(x->words), bad ? "BAD " : "", bad ? bad : e->o.line);
	if (bad)
		failed(e, bad);
	sc_free(&e->s);
	free(e);
}

static double seconds_of(const struct rusage *u)
{
	return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
	       1e-6 * (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

/*
 * Waits for a process to end and judges its programs. The process's last thread may still be
 * exiting. Then the kernel, which drops its /proc entries when the process is reaped, spins until
 * that thread is done. Without a free CPU this takes up to a second, so sleep before reaping.
 */
static void reap(void)
{
	const struct timespec nap = {.tv_nsec = 2000000};
	struct entry *e[NR_BATCH];
	struct rusage used;
	int status, nr;
	siginfo_t ended;

	waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT);
	nanosleep(&nap, NULL);
	wait4(ended.si_pid, &status, 0, &used);
	for (size_t i = 0; i < NR_BUSY + NR_IDLE; i++) {
		struct running *x = &running[i];

		if (!x->b.nr || x->b.pid != ended.si_pid)
			continue;
		batch_end(&x->b, status);
		nr = x->b.nr;
		spent[x->speed].programs += (unsigned long)nr;
		spent[x->speed].processors += seconds_of(&used);
		spent[x->speed].clock += now() - x->start;
		memcpy(e, x->e, sizeof(e));
		nr_running[x->speed != ENDS]--;
		x->b.nr = 0;
		/* tally() may reap other processes and reuse `x`. */
		for (int k = 0; k < nr; k++)
			tally(e[k]);
		return;
	}
}

static void launch(struct pool *from)
{
	/* Empty the pool first: reap() may put a program into the same pool and launch it. */
	const struct pool took = *from, *p = &took;
	int idle = p->k.speed != ENDS, slow = df_test_slow(), most = idle ? NR_IDLE : NR_BUSY;
	struct running *x = running;

	from->nr = 0;
	while (nr_running[idle] >= most)
		reap();
	while (x->b.nr)
		x++;
	memset(x, 0, sizeof(*x));
	memcpy(x->e, p->e, sizeof(x->e));
	for (int i = 0; i < p->nr; i++) {
		x->b.s[i] = &p->e[i]->s;
		x->b.out[i] = &p->e[i]->o;
	}
	x->b.nccl = p->k.nccl;
	x->b.slots = p->k.slots;
	x->b.queues = p->k.queues;
	x->b.ms = idle ? (p->k.patient ? PATIENT_MS : HANG_MS) * slow : FINISH_MS;
	if (p->k.speed == HANGS_SILENTLY)
		x->b.silent_ms = (p->k.patient ? 3 * PATIENT_MS : SILENT_MS) * slow;
	x->b.nr = p->nr;
	x->speed = p->k.speed;
	x->start = now();
	batch_start(&x->b);
	nr_running[idle]++;
}

/* Adds the program to the pool of its kind, and launches the pool when it is full. */
static void put_aside(struct entry *e)
{
	const struct expect *x = &e->l.by[e->nccl];
	const struct kind k = {.speed = x->want == W_DONE   ? ENDS
					: x->words & SILENT ? HANGS_SILENTLY
							    : HANGS,
			       .nccl = e->nccl,
			       .patient = e->patient > 0,
			       .slots = e->nccl ? e->s.slots : 64,
			       .queues = e->nccl ? e->s.queues : 64};
	struct pool *p = pools;

	while (p < pools + nr_pools && memcmp(&p->k, &k, sizeof(k)))
		p++;
	if (p == pools + nr_pools) {
		if (nr_pools++ == NR_KINDS)
			abort();
		p->k = k;
	}
	p->e[p->nr++] = e;
	if (p->nr == (k.patient ? 2 : k.speed == ENDS ? NR_BATCH : NR_BATCH / 2))
		launch(p);
}

static void flush_pools(void)
{
	int any;

	do {
		any = 0;
		for (int i = 0; i < nr_pools; i++) {
			if (!pools[i].nr)
				continue;
			launch(&pools[i]);
			any = 1;
		}
		while (nr_running[0] + nr_running[1])
			reap();
	} while (any);
}

static int print_one(uint64_t seed)
{
	struct script s;
	struct label l;

	generate(&s, seed);
	label(&s, &l, NR_SCHEDULES);
	printf("# class %s nccl %d ours %d (0 completes, 1 hangs, 2 either)\n", l.cls, l.by[1].want,
	       l.by[0].want);
	for (int nccl = 1; nccl >= 0; nccl--)
		if (l.by[nccl].want != W_DONE)
			printf("# %s: %s\n", nccl ? "nccl" : "ours", words_of(l.by[nccl].words));
	sc_print(&s, stdout);
	sc_free(&s);
	return 0;
}

static void report(unsigned long n, double seconds)
{
	static const char *const rules[] = {"NCCL's rules", "ours"}, *const kinds[] = {
									     "complete", "hang",
									     "hang silently"};
	struct rusage self;

	printf("%lu programs in %.1f s:", n, seconds);
	for (size_t c = 0; c < 5; c++)
		printf(" %s %lu", count[c].cls, count[c].labelled);
	for (int k = 0; k < 2; k++) {
		printf("\nexecuted by %s:", rules[k]);
		for (size_t c = 0; c < 5; c++)
			printf(" %s %lu", count[c].cls, count[c].executed[!k]);
	}
	getrusage(RUSAGE_SELF, &self);
	printf("\nseconds of processors: %.1f for the model", seconds_of(&self));
	for (int k = 0; k < 3; k++)
		printf(", %.1f (%.1f to their end) for %lu that %s", spent[k].processors,
		       spent[k].clock, spent[k].programs, kinds[k]);
	printf("\n"
	       "%lu completed, %lu hung, %lu with a released synchronisation, %lu looked at again "
	       "with more patience, %lu wrong\n",
	       nr_done, nr_hung, nr_released, nr_again, nr_bad);
}

static void take(uint64_t seed, int executing)
{
	struct script s;
	struct label l;

	generate(&s, seed);
	label(&s, &l, NR_SCHEDULES);
	for (size_t c = 0; c < 5; c++)
		count[c].labelled += !strcmp(count[c].cls, l.cls);
	for (int nccl = 0; nccl < 2 && executing; nccl++) {
		struct entry *e = calloc(1, sizeof(*e));

		sc_copy(&e->s, &s);
		e->l = l;
		e->nccl = nccl;
		put_aside(e);
	}
	sc_free(&s);
}

int main(int argc, char **argv)
{
	const char *sd = getenv("SEED");
	uint64_t seed =
		sd ? strtoull(sd, NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
	unsigned long programs = 20000, n;
	double seconds = 0, most = 0, start = now();
	int executing;
	char path[600];

	for (int i = 1; i < argc; i++) {
		if (i + 1 < argc && !strcmp(argv[i], "--programs"))
			programs = strtoul(argv[++i], NULL, 0);
		else if (i + 1 < argc && !strcmp(argv[i], "--seconds"))
			seconds = atof(argv[++i]);
		else if (i + 1 < argc && !strcmp(argv[i], "--executing"))
			most = atof(argv[++i]);
		else if (i + 1 < argc && !strcmp(argv[i], "--seed"))
			seed = strtoull(argv[++i], NULL, 0);
		else if (i + 1 < argc && !strcmp(argv[i], "--release"))
			release_policy = argv[++i];
		else if (i + 1 < argc && !strcmp(argv[i], "--failures"))
			most_failures = strtoul(argv[++i], NULL, 0);
		else if (i + 1 < argc && !strcmp(argv[i], "--said"))
			said = fopen(argv[++i], "w");
		else if (i + 1 < argc && !strcmp(argv[i], "--print"))
			return print_one(strtoull(argv[++i], NULL, 0));
		else {
			fprintf(stderr, "usage: random [--programs N] [--seconds S] [--executing "
					"S] [--seed N] [--print SEED] [--release safe|device] "
					"[--failures N] [--said FILE]\n");
			return 2;
		}
	}
	drive_init();
	printf("SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	snprintf(path, sizeof(path), "%s/tests/deadlock/interpreter/script", build);
	executing = !access(path, X_OK);
	for (n = 0; n < programs || (executing && now() - start < seconds); n++)
		take(seed + n, executing && (!most || now() - start < most));
	flush_pools();
	report(n, now() - start);
	if (said)
		fclose(said);
	return nr_bad != 0;
}
