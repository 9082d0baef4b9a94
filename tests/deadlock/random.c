/*
 * Random programs of ranks, threads, communicators, streams, events, synchronisations, messages and other work. The
 * model (trace/model.h) says of each how it ends by NCCL's rules and by ours; then as many as there is time for
 * are executed by the plain client (script.c), by both sets of rules, and have to end so, with the right values:
 *
 *   OK             completes by both
 *   P, S-i         hangs by NCCL's rules, completes by ours
 *   S-e            hangs by NCCL's; by ours it completes if the release is safe, else it hangs
 *   D              hangs by both, except that disorder inside a communicator is repaired by ours
 *
 * A verdict has to be of the label's kind. A program that ends otherwise is made smaller while it still does,
 * and printed with its seed.
 *
 *	random [--programs N] [--seconds S] [--seed N] [--print SEED] [--release safe|device]
 */
#define _GNU_SOURCE
#include "random_judge.h"
#include "random_make.h"

#define NR_JOBS 8

static struct {
	const char *cls;
	unsigned long labelled, executed[2], verdict[2];
} count[] = {{.cls = "OK"}, {.cls = "P"}, {.cls = "Si"}, {.cls = "Se"}, {.cls = "D"}};
static unsigned long nr_bad, nr_done, nr_hung, nr_released;

struct entry {
	struct script s;
	struct label l;
	struct outcome o;
	int nccl;
};

static void tally(struct entry *e)
{
	const char *bad = judge(&e->s, &e->l, e->nccl, &e->o);
	char why[1000];
	struct script small;
	size_t c;

	for (c = 0; c < 5; c++)
		if (!strcmp(count[c].cls, e->l.cls))
			count[c].executed[e->nccl]++;
	if (e->o.done)
		nr_done++;
	else
		nr_hung++;
	if (!e->nccl && e->o.done && e->l.ours == W_EITHER)
		nr_released++;
	if (!bad)
		return;
	if (++nr_bad > 3)
		return;
	printf("\nFAILED: seed %s by %s rules (class %s): %s\n", e->s.name,
	       e->nccl ? "NCCL's" : "our", e->l.cls, bad);
	fflush(stdout);
	snprintf(why, sizeof(why), "%s", bad);
	copy(&small, &e->s);
	minimise(&small, e->nccl, why, sizeof(why));
	printf("made smaller: %s\n", why);
	print_script(&small, stdout);
	fflush(stdout);
	sc_free(&small);
}

/* Programs that can share a process, until there are enough of them: rules, hangs, room. */
static struct entry waiting[2][2][3][NR_BATCH];
static int nr_waiting[2][2][3];

static struct running {
	struct batch b;
	struct entry *e;
} running[NR_JOBS]; /* the oldest first */
static int nr_running;

static void reap_oldest(void)
{
	struct running *x = &running[0];

	batch_end(&x->b);
	for (int i = 0; i < x->b.nr; i++) {
		tally(&x->e[i]);
		sc_free(&x->e[i].s);
	}
	free(x->e);
	memmove(&running[0], &running[1], sizeof(*x) * (size_t)--nr_running);
}

static void launch(const struct entry *entries, int nr, int nccl, int hangs, int room)
{
	static int number;
	struct running *x;

	if (nr_running == NR_JOBS)
		reap_oldest();
	x = &running[nr_running++];
	memset(x, 0, sizeof(*x));
	x->e = malloc(sizeof(*entries) * (size_t)nr);
	memcpy(x->e, entries, sizeof(*entries) * (size_t)nr);
	x->b.nr = nr;
	for (int i = 0; i < nr; i++) {
		x->b.s[i] = &x->e[i].s;
		x->b.out[i] = &x->e[i].o;
	}
	x->b.nccl = nccl;
	x->b.slots = room ? room : 64;
	x->b.queues = 64;
	x->b.ms = hangs ? HANG_MS * df_test_slow() : FINISH_MS;
	batch_start(&x->b, number++);
}

static void execute(const struct script *s, const struct label *l, uint64_t seed, int nccl)
{
	int hangs = (nccl ? l->nccl : l->ours) != W_DONE;
	int room = nccl && s->slots < 64 ? s->slots : 0;
	int *nr = &nr_waiting[nccl][hangs][room];
	struct entry *e;

	/* Room for one queue is a process of its own too. */
	if (nccl && s->queues == 1)
		return;
	/* A hang takes a hundred times the time of a program that completes. */
	if (hangs && seed % 8)
		return;
	e = &waiting[nccl][hangs][room][(*nr)++];
	memset(e, 0, sizeof(*e));
	copy(&e->s, s);
	e->l = *l;
	e->nccl = nccl;
	/* What hangs has a process of its own. */
	if (*nr < (hangs ? 1 : NR_BATCH))
		return;
	launch(waiting[nccl][hangs][room], *nr, nccl, hangs, room);
	*nr = 0;
}

static int print_one(uint64_t seed)
{
	struct script s;
	struct label l;

	generate(&s, seed);
	label(&s, &l);
	printf("# class %s nccl %d ours %d (0 completes, 1 hangs, 2 either)\n", l.cls, l.nccl,
	       l.ours);
	print_script(&s, stdout);
	sc_free(&s);
	return 0;
}

static void report(unsigned long n, double seconds)
{
	static const char *const rules[] = {"NCCL's rules", "ours"};

	printf("%lu programs labelled in %.1f s:", n, seconds);
	for (size_t c = 0; c < 5; c++)
		printf(" %s %lu", count[c].cls, count[c].labelled);
	for (int k = 0; k < 2; k++) {
		printf("\nexecuted by %s:", rules[k]);
		for (size_t c = 0; c < 5; c++)
			printf(" %s %lu", count[c].cls, count[c].executed[!k]);
	}
	printf("\n%lu completed, %lu hung, %lu with a released synchronisation or a race for room, %lu wrong\n",
	       nr_done, nr_hung, nr_released, nr_bad);
}

int main(int argc, char **argv)
{
	const char *b = getenv("B"), *t = getenv("T"), *sd = getenv("SEED");
	uint64_t seed =
		sd ? strtoull(sd, NULL, 0) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
	unsigned long programs = 20000, n;
	double seconds = 60, start = now();
	int executing;
	char path[600];

	for (int i = 1; i < argc; i++) {
		if (i + 1 < argc && !strcmp(argv[i], "--programs"))
			programs = strtoul(argv[++i], NULL, 0);
		else if (i + 1 < argc && !strcmp(argv[i], "--seconds"))
			seconds = atof(argv[++i]);
		else if (i + 1 < argc && !strcmp(argv[i], "--seed"))
			seed = strtoull(argv[++i], NULL, 0);
		else if (i + 1 < argc && !strcmp(argv[i], "--release"))
			release_policy = argv[++i];
		else if (i + 1 < argc && !strcmp(argv[i], "--print"))
			return print_one(strtoull(argv[++i], NULL, 0));
		else {
			fprintf(stderr,
				"usage: random [--programs N] [--seconds S] [--seed N] [--print SEED] "
				"[--release safe|device]\n");
			return 2;
		}
	}
	snprintf(build, sizeof(build), "%s", b ? b : "build");
	snprintf(scratch, sizeof(scratch), "%s", t ? t : "/tmp");
	printf("SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	snprintf(path, sizeof(path), "%s/tests/deadlock/script", build);
	executing = !access(path, X_OK) && seconds > 0;
	for (n = 0; n < programs || (executing && now() - start < seconds); n++) {
		struct script s;
		struct label l;

		generate(&s, seed + n);
		label(&s, &l);
		for (size_t c = 0; c < 5; c++)
			count[c].labelled += !strcmp(count[c].cls, l.cls);
		for (int nccl = 0; nccl < 2; nccl++)
			if (executing && now() - start < seconds)
				execute(&s, &l, seed + n, nccl);
		sc_free(&s);
	}
	while (nr_running)
		reap_oldest();
	report(n, now() - start);
	return nr_bad != 0;
}
