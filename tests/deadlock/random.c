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
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "label.h"
#include "make.h"

#define NR_BATCH     40
#define NR_JOBS	     8
#define NR_SCHEDULES 64 /* that a program which is short of slots is labelled by */

static uint64_t rng;

static uint64_t rnd(uint64_t n)
{
	uint64_t z = rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (z ^ z >> 31) % n;
}

static int chance(unsigned percent)
{
	return rnd(100) < percent;
}

/* ---- programs ------------------------------------------------------------------------------------------- */

struct item {
	int p2p, comm, stream, coll, from, to, hazard;
	uint64_t count;
};

static void put_item(struct script *s, int r, int t, const struct item *x)
{
	struct sc_step *st;
	char name[16];

	if (x->p2p) {
		int both = x->p2p == 2;

		if (r != x->from && r != x->to)
			return;
		if (both)
			put(s, r, t, SC_OPEN, 0);
		for (int k = 0; k <= both; k++) {
			st = put(s, r, t, (r == x->from) ^ k ? SC_SEND : SC_RECV, x->stream);
			st->comm = x->comm;
			st->peer = r == x->from ? x->to : x->from;
			st->count = x->count;
			st->in = st->out = sc_buf(s, NULL, r);
		}
		if (both)
			put(s, r, t, SC_CLOSE, 0);
		return;
	}
	if (sc_comm_rank(&s->comms[x->comm], r) < 0)
		return;
	st = put(s, r, t, SC_COLL, x->stream);
	st->comm = x->comm;
	st->coll = x->coll;
	st->count = x->count;
	if (chance(2))
		st->count += 3;
	if (x->hazard && st->count == 4 && !chance(20)) {
		snprintf(name, sizeof(name), "x%d", x->stream);
		st->in = st->out = sc_buf(s, name, r);
	} else {
		st->in = sc_buf(s, NULL, r);
		st->out = sc_buf(s, NULL, r);
	}
}

/* Something between two operations: synchronisations are what is varied most. */
static void put_between(struct script *s, int r, int t, int nr_streams, int mode, int threads)
{
	int stream = (int)rnd((uint64_t)nr_streams), e;
	struct sc_step *st;
	char name[16];

	if (threads && t)
		stream = nr_streams; /* its own */
	if (mode == 1 || mode > 4 || (mode == 3 && chance(50))) {
		switch (threads ? rnd(2) : mode > 4 ? 2 + rnd(6) : rnd(8)) {
		case 0:
		case 1:
			put(s, r, t, SC_SSYNC, stream);
			if (chance(50)) {
				snprintf(name, sizeof(name), "x%d", stream);
				for (e = 0; e < s->buf.nr && strcmp(s->buf.v[e], name); e++)
					;
				if (e < s->buf.nr)
					put(s, r, t, SC_READ, 0)->in = e;
			}
			break;
		case 2:
		case 3:
			put(s, r, t, rnd(2) ? SC_FREE : rnd(2) ? SC_HALLOC : SC_HREG, 0);
			break;
		default:
			put(s, r, t, SC_DSYNC, 0);
			if (chance(40)) {
				snprintf(name, sizeof(name), "x%d", stream);
				for (e = 0; e < s->buf.nr && strcmp(s->buf.v[e], name); e++)
					;
				if (e < s->buf.nr)
					put(s, r, t, SC_READ, 0)->in = e;
			}
		}
	} else if (mode == 2 || mode == 3) {
		snprintf(name, sizeof(name), "e%d.%d", t, (int)rnd(2));
		e = sc_name(&s->event, name);
		st = put(s, r, t, SC_REC, stream);
		st->object = e;
		if (!threads)
			stream = (int)rnd((uint64_t)nr_streams);
		st = put(s, r, t, rnd(5) ? SC_WAIT : SC_ESYNC, stream);
		st->object = e;
	} else {
		put(s, r, t, rnd(3) ? SC_WORK : SC_FN, stream);
	}
}

static void generate(struct script *s, uint64_t seed)
{
	int nr_comms, nr_streams, nr_items, mode, threads, one_stream, large, i, j, r;
	struct item items[8];
	char name[24];

	rng = seed;
	memset(s, 0, sizeof(*s));
	snprintf(s->name, sizeof(s->name), "%llu", (unsigned long long)seed);
	s->nr_ranks = chance(60) ? 2 : 3 + (int)rnd(2);
	nr_comms = 1 + (int)rnd(4);
	nr_streams = 1 + (int)rnd(3);
	mode = (int)rnd(
		7); /* 0, 4 little else, 1 synchronisations, 2 events, 3 both, 5, 6 of the device only */
	threads = nr_comms > 1 && chance(15);
	s->slots = 64;
	s->queues = 64;
	if (chance(15))
		s->slots = 1 + (int)rnd(2);
	else if (chance(15))
		s->queues = 1;
	if (mode > 4 && nr_streams < nr_comms)
		nr_streams = nr_comms < 3 ? nr_comms : 3;
	one_stream = s->queues == 1 || mode > 4 || chance(50);
	for (i = 0; i < nr_comms; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		sc_comm_add(s, name, 0);
		do {
			s->comms[i].nr = 0;
			s->comms[i].members = 0;
			for (r = 0; r < s->nr_ranks; r++)
				if (s->nr_ranks == 2 || chance(75))
					sc_comm_member(&s->comms[i], r);
		} while (s->comms[i].nr < 2);
	}
	for (i = 0; i <= nr_streams; i++) {
		snprintf(name, sizeof(name), "nb%d", i);
		sc_name(&s->stream, name);
	}
	large = chance(
		30); /* all messages: those of a pair meet by their order and by their size alike */
	nr_items = 1 + (int)rnd(6);
	for (i = 0; i < nr_items; i++) {
		struct item *x = &items[i];
		const struct sc_comm *c;

		memset(x, 0, sizeof(*x));
		x->comm = (int)rnd((uint64_t)nr_comms);
		c = &s->comms[x->comm];
		x->stream = one_stream ? x->comm % nr_streams : (int)rnd((uint64_t)nr_streams);
		if (threads && x->comm == nr_comms - 1)
			x->stream = nr_streams;
		/* Those in which every rank needs all others: a root would be through before its peers come. */
		x->coll = rnd(3) ? SC_AR : rnd(2) ? SC_AG : SC_RS;
		x->count = rnd(3) ? 4 : 1000;
		x->hazard = chance(35);
		if (chance(25)) {
			x->p2p = chance(25) ? 2 : 1;
			x->from = c->ranks[rnd((uint64_t)c->nr)];
			do
				x->to = c->ranks[rnd((uint64_t)c->nr)];
			while (x->to == x->from);
			x->count = large ? LARGE : 4;
		}
	}
	for (r = 0; r < s->nr_ranks; r++) {
		struct item mine[8];

		memcpy(mine, items, sizeof(mine));
		for (j = (int)rnd(mode > 4 ? 5 : 3); j > 0 && nr_items > 1; j--) {
			struct item tmp;

			i = (int)rnd((uint64_t)nr_items - 1);
			tmp = mine[i];
			mine[i] = mine[i + 1];
			mine[i + 1] = tmp;
		}
		for (i = 0; i < nr_items; i++) {
			int t = threads && mine[i].comm == nr_comms - 1;

			if (chance(1))
				continue;
			put_item(s, r, t, &mine[i]);
			if (mode != 4 ? chance(25) : chance(5))
				put_between(s, r, t, nr_streams, mode, threads);
			if (chance(4)) {
				struct sc_step *st = put(s, r, t, rnd(2) ? SC_HS : SC_HW, 0);

				st->object = sc_name(&s->flag, rnd(2) ? "f" : "g");
			}
		}
		if (!s->nr_threads[r])
			put(s, r, 0, SC_WORK, 0);
	}
	/* Who waits for a message without a sender is not interesting. */
	for (i = 0; i < s->flag.nr; i++) {
		struct sc_step *st = put(s, (int)rnd((uint64_t)s->nr_ranks), 0, SC_HS, 0);

		st->object = i;
	}
}

/* ---- labels ------------------------------------------------------------------------------------------------ */

enum want { W_DONE, W_HUNG, W_EITHER };

struct label {
	char cls[4]; /* by NCCL's matching */
	enum want nccl, ours;
};

static void label(const struct script *s, struct label *l)
{
	struct df_mprog p;
	int large = 0, a, b;

	to_model(s, 0, &p);
	large = !p.buffered;
	snprintf(l->cls, sizeof(l->cls), "%s", df_model_classify(&p));
	df_mprog_fini(&p);
	/*
	 * With large messages the small ones are buffered all the same; and who gets a slot, or a place in the
	 * queue, first is a matter of time. Where that decides, both ends are right.
	 */
	a = finishes(s, 0, DF_MODEL_BASE, 0, 0);
	b = finishes(s, 0, DF_MODEL_BASE, 1, 1);
	if (!large)
		a = finishes(s, 0, DF_MODEL_BASE, 1, 0);
	if (s->slots < 64 && a == b) {
		int nr = finish_by_chance(s, NR_SCHEDULES);

		if (nr != (b ? NR_SCHEDULES : 0))
			a = !b;
	}
	l->nccl = a == b ? (a ? W_DONE : W_HUNG) : W_EITHER;
	a = finishes(s, 1, DF_MODEL_SI, large ? 0 : 1, 0);
	b = finishes(s, 1, DF_MODEL_SE, 1, 0);
	l->ours = a ? W_DONE : b ? W_EITHER : W_HUNG;
}

/* ---- execution ---------------------------------------------------------------------------------------------- */

struct outcome {
	int ran, done, wrong, silent;
	char word[16], text[300], line[304]; /* the verdict's first line */
};

static char build[400], scratch[400];
static const char *release_policy = "safe";

static const char *const verdicts[] = {
	"OK",	"SLOW",	 "ORDER",     "RESOURCE",  "SYNC",	    "DATA", "MISSING", "MISMATCH",
	"INIT", "CRASH", "GPU_STUCK", "NET_STALL", "NCCL_INTERNAL", "HOST", "UNKNOWN"};

struct batch {
	struct script *s[NR_BATCH];
	struct outcome *out[NR_BATCH];
	int nr, nccl, slots, queues, ms;
	pid_t pid;
	char file[500], log[520];
};

/* Starts the client on a batch of programs. */
static void batch_start(struct batch *b, int number)
{
	FILE *f;
	int i, fd;

	snprintf(b->file, sizeof(b->file), "%s/batch.%d.%d", scratch, (int)getpid(), number);
	snprintf(b->log, sizeof(b->log), "%s.log", b->file);
	f = fopen(b->file, "w");
	if (!f) {
		perror(b->file);
		exit(1);
	}
	for (i = 0; i < b->nr; i++)
		print_script(b->s[i], f);
	fclose(f);
	b->pid = fork();
	if (b->pid)
		return;
	fd = open(b->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	dup2(fd, 1);
	dup2(fd, 2);
	unsetenv("DFSHIM_TRACE");
	set("DFSHIM_BACKEND", "host");
	set("DFSHIM_HOST_DEVICES", "4");
	set("DFSHIM_TIMEOUT_MS", "%d", b->ms);
	set("DFSHIM_TIMEOUT_ACTION", "abort");
	set("DFSHIM_RELEASE", "%s", release_policy);
	set("DFSHIM_RULES", "%s", b->nccl ? "nccl" : "dfshim");
	set("DFSHIM_HOST_SLOTS", "%d", b->slots);
	set("DFSHIM_HOST_QUEUES", "%d", b->queues);
	set("LD_PRELOAD", "%s/libdfshim.so %s/libdfhost.so", build, build);
	set("CLIENT", "%s/tests/deadlock/script", build);
	execl(getenv("CLIENT"), "script", "--timeout", b->ms > 5000 ? "60" : "5", b->file, NULL);
	_exit(127);
}

static void batch_end(struct batch *b)
{
	char line[300], *p;
	struct outcome *o = NULL;
	int status, i;
	size_t k;
	FILE *f;

	waitpid(b->pid, &status, 0);
	f = fopen(b->log, "r");
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "=== ", 4)) {
			for (i = 0, o = NULL; i < b->nr; i++)
				if (!strcmp(b->s[i]->name, line + 4))
					o = b->out[i];
			continue;
		}
		if (!o)
			continue;
		if (!strncmp(line, "--- ", 4)) {
			o->ran = 1;
			p = strchr(line + 4, ' ');
			o->done = p && !strncmp(p, " completes", 10);
			o->wrong = p && (!strncmp(p, " wrong", 6) || !strncmp(p, " error", 6));
			/* An error of ours that no verdict explains is looked at by the caller. */
			snprintf(o->text, sizeof(o->text), "%s", p ? p + 1 : "");
			o = NULL;
			continue;
		}
		p = strchr(line, ':');
		if (!p || *o->word)
			continue;
		for (k = 0; k < sizeof(verdicts) / sizeof(*verdicts); k++)
			if (!strncmp(line, verdicts[k], (size_t)(p - line)) &&
			    strlen(verdicts[k]) == (size_t)(p - line))
				snprintf(o->word, sizeof(o->word), "%s", verdicts[k]),
					snprintf(o->line, sizeof(o->line), "%s", line);
	}
	if (f)
		fclose(f);
	for (i = 0; i < b->nr; i++)
		if (!b->out[i]->ran && b->nr == 1 && WIFEXITED(status) &&
		    WEXITSTATUS(status) == 4) {
			/* Hosts that wait for one another, and nothing in flight that could be told about. */
			b->out[i]->ran = b->out[i]->silent = 1;
			snprintf(b->out[i]->text, sizeof(b->out[i]->text), "no progress");
		} else if (!b->out[i]->ran && (!i || b->out[i - 1]->ran))
			snprintf(b->out[i]->text, sizeof(b->out[i]->text),
				 "the client ended with status %#x", status);
	unlink(b->file);
	if (!getenv("KEEP"))
		unlink(b->log);
}

/* ---- judging --------------------------------------------------------------------------------------------------- */

/* NULL: as it should be. */
static const char *judge(const struct script *s, const struct label *l, int nccl,
			 const struct outcome *o)
{
	static char text[900];
	enum want w = nccl ? l->nccl : l->ours;
	const char *c = l->cls;

	if (!o->ran)
		return snprintf(text, sizeof(text), "crashed or stuck: %s", o->text), text;
	if (o->wrong && !*o->word)
		return snprintf(text, sizeof(text), "wrong: %s", o->text), text;
	if (o->done && w == W_HUNG)
		return "completed, expected to hang";
	if (!o->done && w == W_DONE)
		return snprintf(text, sizeof(text), "hung, expected to complete: %s %s", o->word,
				o->text),
		       text;
	if (o->done)
		return NULL;
	if (!*o->word && o->silent && s->flag.nr)
		return NULL;
	if (!*o->word)
		return snprintf(text, sizeof(text), "hung without a verdict: %s", o->text), text;
	if (!strcmp(o->word, "OK") || !strcmp(o->word, "UNKNOWN"))
		return snprintf(text, sizeof(text), "hung with verdict %s", o->word), text;
	/* A host that waits for another's message makes no call that could be seen: it may be told as missing. */
	if (s->flag.nr && (!strcmp(o->word, "SLOW") || !strcmp(o->word, "MISSING")))
		return NULL;
	/* Who is in a device synchronisation may go on to what the others wait for: nobody knows that it would not. */
	if (*c == 'D' && !strcmp(o->word, "SYNC"))
		return NULL;
	/* Messages that stand between a communicator's collectives are not always found in the graph. */
	if (!strcmp(o->word, "GPU_STUCK"))
		for (int r = 0; r < s->nr_ranks; r++)
			for (int t = 0; t < s->nr_threads[r]; t++)
				for (int i = 0; i < s->threads[r][t].nr; i++)
					if (s->threads[r][t].v[i].kind == SC_SEND)
						return NULL;
	/* Preventable by order alone is not a matter of data, nor is anybody missing. */
	if (nccl && w == W_HUNG && !strcmp(c, "P") && strcmp(o->word, "ORDER") &&
	    strcmp(o->word, "RESOURCE"))
		return snprintf(text, sizeof(text), "class %s with verdict %s", c, o->line), text;
	/* Of two causes either may be told. */
	if (nccl && s->slots < 64 && !strcmp(o->word, "RESOURCE"))
		return NULL;
	if (nccl && w == W_HUNG && *c == 'S' && strcmp(o->word, "SYNC") && strcmp(o->word, "ORDER"))
		return snprintf(text, sizeof(text), "class %s with verdict %s", c, o->line), text;
	if (nccl && w == W_HUNG && *c == 'D' &&
	    (!strcmp(o->word, "SYNC") || !strcmp(o->word, "RESOURCE")))
		return snprintf(text, sizeof(text), "class %s with verdict %s", c, o->line), text;
	return NULL;
}

static void run_one(struct script *s, const struct label *l, int nccl, struct outcome *o)
{
	struct batch b = {.nr = 1, .nccl = nccl, .slots = s->slots, .queues = s->queues};
	enum want w = nccl ? l->nccl : l->ours;

	memset(o, 0, sizeof(*o));
	b.s[0] = s;
	b.out[0] = o;
	b.ms = w == W_DONE ? 3000 : 300;
	batch_start(&b, 999);
	batch_end(&b);
}

/* Takes away steps (a group as a whole) for as long as the program is still judged wrong. */
static void minimise(struct script *s, int nccl, char *why, size_t len)
{
	double end = now() + 30;
	int r, t, i, again = 1;
	char first[16];

	snprintf(first, sizeof(first), "%.15s", why);
	while (again && now() < end) {
		again = 0;
		for (r = 0; r < s->nr_ranks; r++)
			for (t = 0; t < s->nr_threads[r]; t++)
				for (i = 0; i < s->threads[r][t].nr && now() < end; i++) {
					struct script small;
					struct sc_thread *th;
					struct outcome o;
					struct label l;
					const char *bad;
					int n = 1;

					copy(&small, s);
					th = &small.threads[r][t];
					if (th->v[i].kind == SC_CLOSE ||
					    (i && th->v[i - 1].kind == SC_OPEN))
						n = 0;
					while (th->v[i].kind == SC_OPEN &&
					       th->v[i + n - 1].kind != SC_CLOSE)
						n++;
					if (!n) {
						sc_free(&small);
						continue;
					}
					memmove(&th->v[i], &th->v[i + n],
						(size_t)(th->nr - i - n) * sizeof(*th->v));
					th->nr -= n;
					label(&small, &l);
					run_one(&small, &l, nccl, &o);
					bad = judge(&small, &l, nccl, &o);
					/* The same failure, not another. */
					if (!bad || strncmp(bad, first, 8)) {
						sc_free(&small);
						continue;
					}
					snprintf(why, len, "%s (class %s)", bad, l.cls);
					sc_free(s);
					*s = small;
					again = 1;
					i--;
				}
	}
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

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

int main(int argc, char **argv)
{
	const char *b = getenv("B"), *t = getenv("T"), *sd = getenv("SEED");
	uint64_t seed = sd ? strtoull(sd, NULL, 0)
			   : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid(),
		 at;
	unsigned long programs = 20000, n;
	double seconds = 60, start = now();
	static struct entry
		entries[2][2][3]
		       [NR_BATCH]; /* rules, hangs, room; what hangs has a process of its own */
	int filled[2][2][3] = {0}, nr_running = 0, number = 0, executing;
	static struct {
		struct batch b;
		struct entry *e;
	} running[NR_JOBS];
	size_t c;
	int i;

	for (i = 1; i < argc; i++) {
		if (i + 1 < argc && !strcmp(argv[i], "--programs"))
			programs = strtoul(argv[++i], NULL, 0);
		else if (i + 1 < argc && !strcmp(argv[i], "--seconds"))
			seconds = atof(argv[++i]);
		else if (i + 1 < argc && !strcmp(argv[i], "--seed"))
			seed = strtoull(argv[++i], NULL, 0);
		else if (i + 1 < argc && !strcmp(argv[i], "--release"))
			release_policy = argv[++i];
		else if (i + 1 < argc && !strcmp(argv[i], "--print")) {
			struct script s;
			struct label l;

			generate(&s, strtoull(argv[++i], NULL, 0));
			label(&s, &l);
			printf("# class %s nccl %d ours %d (0 completes, 1 hangs, 2 either)\n",
			       l.cls, l.nccl, l.ours);
			print_script(&s, stdout);
			return 0;
		} else {
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
	{
		char path[600];

		snprintf(path, sizeof(path), "%s/tests/deadlock/script", build);
		executing = !access(path, X_OK) && seconds > 0;
	}
	for (n = 0; n < programs || (executing && now() - start < seconds); n++) {
		struct script s;
		struct label l;
		int rules;

		at = seed + n;
		generate(&s, at);
		label(&s, &l);
		for (c = 0; c < 5; c++)
			count[c].labelled += !strcmp(count[c].cls, l.cls);
		for (rules = 0; executing && now() - start < seconds && rules < 2; rules++) {
			int hangs = (rules ? l.nccl : l.ours) != W_DONE;
			int room = !rules ? 0 : s.slots < 64 ? s.slots : 0;
			struct entry *e;
			struct batch *x;

			/* Room for one queue is a process of its own too. */
			if (rules && s.queues == 1)
				continue;
			/* A hang takes a hundred times the time of a program that completes. */
			if (hangs && at % 8)
				continue;
			e = &entries[rules][hangs][room][filled[rules][hangs][room]++];
			copy(&e->s, &s);
			e->l = l;
			e->nccl = rules;
			memset(&e->o, 0, sizeof(e->o));
			if (filled[rules][hangs][room] < (hangs ? 1 : NR_BATCH))
				continue;
			/* Full: the oldest of those that run is waited for. */
			if (nr_running == NR_JOBS) {
				batch_end(&running[0].b);
				for (i = 0; i < running[0].b.nr; i++) {
					tally(&running[0].e[i]);
					sc_free(&running[0].e[i].s);
				}
				free(running[0].e);
				memmove(&running[0], &running[1],
					sizeof(running[0]) * (NR_JOBS - 1));
				nr_running--;
			}
			x = &running[nr_running].b;
			memset(x, 0, sizeof(*x));
			x->nr = filled[rules][hangs][room];
			running[nr_running].e = malloc(sizeof(struct entry) * (size_t)x->nr);
			memcpy(running[nr_running].e, entries[rules][hangs][room],
			       sizeof(struct entry) * (size_t)x->nr);
			for (i = 0; i < x->nr; i++) {
				x->s[i] = &running[nr_running].e[i].s;
				x->out[i] = &running[nr_running].e[i].o;
			}
			x->nccl = rules;
			x->slots = s.slots < 64 ? s.slots : 64;
			if (rules && !room)
				x->slots = 64;
			x->queues = 64;
			x->ms = hangs ? 300 : 60000;
			batch_start(x, number++);
			nr_running++;
			filled[rules][hangs][room] = 0;
		}
		sc_free(&s);
	}
	for (; nr_running; nr_running--) {
		batch_end(&running[0].b);
		for (i = 0; i < running[0].b.nr; i++)
			tally(&running[0].e[i]);
		memmove(&running[0], &running[1], sizeof(running[0]) * (NR_JOBS - 1));
	}
	printf("%lu programs labelled in %.1f s:", n, now() - start);
	for (c = 0; c < 5; c++)
		printf(" %s %lu", count[c].cls, count[c].labelled);
	printf("\nexecuted by NCCL's rules:");
	for (c = 0; c < 5; c++)
		printf(" %s %lu", count[c].cls, count[c].executed[1]);
	printf("\nexecuted by ours:");
	for (c = 0; c < 5; c++)
		printf(" %s %lu", count[c].cls, count[c].executed[0]);
	printf("\n%lu completed, %lu hung, %lu with a released synchronisation or a race for room, %lu wrong\n",
	       nr_done, nr_hung, nr_released, nr_bad);
	return nr_bad != 0;
}
