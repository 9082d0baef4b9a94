/*
 * Snapshots: questions, answers and holds. The control thread only puts messages into an inbox. The
 * watchdog's thread does everything else, so only the inbox has a lock.
 *
 * Messages of one process arrive in the order in which they were sent. So the message that ends a
 * hold arrives after all releases that were decided during the hold.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/futex.h"
#include "runtime/base/hash.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/time.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/watch/death.h"
#include "runtime/watch/ending.h"
#include "runtime/watch/hardware.h"
#include "runtime/watch/hosts.h"
#include "runtime/watch/release.h"
#include "runtime/watch/snapshot.h"
#include "runtime/watch/tied.h"
#include "runtime/watch/watchdog.h"
#include "trace/check.h"
#include "trace/record/format.h"
#include "trace/record/writer.h"

#define HOLD_NS	   (2 * DF_GATHER_NS)
#define MAX_WAITS  256
#define STEP_TRIES 64
#define NAP_NS	   (20 * DF_NS_PER_MS) /* interval of looks for answers */
#define MOST_NS	   (30 * DF_NS_PER_S)  /* maximum time for which a report waits for news */
#define NOT_KNOWN  UINT32_MAX

struct ask {
	uint64_t epoch;
	/*
	 * sum_of() of the processes that the asker knows; an answer lists its peers only if
	 * their sum differs
	 */
	uint64_t peers;
	uint32_t what, hosts;
};

struct answer {
	uint64_t epoch, image_bytes, progress;
	uint32_t what, busy, same, nr_waits, nr_peers, nr_hosts, stalled_ms, pad;
	/* followed by waits, peers, hosts (nr_hosts NOT_KNOWN: none), image */
};

struct heard {
	uint64_t epoch;
	uint32_t stalled_ms, pad;
};

struct order {
	uint64_t epoch;
	uint32_t nr, line_bytes, likely, pad;
	/* followed by calls, line */
};

struct letter {
	struct df_list node;
	uint64_t from;
	uint32_t kind;
	size_t bytes;
	uint64_t data[];
};

static struct {
	struct df_mutex lock; /* guards the inbox */
	struct df_list inbox;
	uint32_t wake; /* futex word */
} box = {.lock = DF_MUTEX_INIT(DF_RANK_WATCHDOG, "watchdog's inbox"),
	 .inbox = DF_LIST_INIT(box.inbox)};

/* Only the watchdog's thread uses the rest. */
static struct {
	/* the process that holds this one, 0 if none does; number and end of the hold */
	uint64_t holder, epoch, until;
	uint64_t last_epoch;
	struct df_compact compact;
	uint64_t suspected;
	uint64_t answered; /* df_snapshot_answered() */
} my;

static const struct df_snapshot_owner *owner;

void df_snapshot_owned_by(const struct df_snapshot_owner *by)
{
	__atomic_store_n(&owner, by, __ATOMIC_RELAXED);
}

void df_snapshot_wake(void)
{
	const struct df_snapshot_owner *by;

	__atomic_add_fetch(&box.wake, 1, __ATOMIC_RELAXED);
	df_futex_wake(&box.wake, 1, 0);
	/* RELAXED: the struct that it points to is constant. */
	by = __atomic_load_n(&owner, __ATOMIC_RELAXED);
	if (by && by->wake)
		by->wake();
}

uint32_t df_snapshot_seen(void)
{
	return __atomic_load_n(&box.wake, __ATOMIC_RELAXED);
}

void df_snapshot_wait(uint32_t seen, int64_t timeout_ns)
{
	df_futex_wait(&box.wake, seen, timeout_ns, 0);
}

/* Confirms a question. Returns 1 if the confirmation is the whole answer. */
static int confirm(uint64_t from, const void *data, size_t bytes)
{
	/* RELAXED: the struct that it points to is constant. */
	const struct df_snapshot_owner *by = __atomic_load_n(&owner, __ATOMIC_RELAXED);
	const struct ask *ask = data;
	struct heard h;

	if (bytes < sizeof(*ask) || !by)
		return 0;
	h = (struct heard){.epoch = ask->epoch, .stalled_ms = by->stalled_ms()};
	df_ctl_send(NULL, from, DF_MSG_HEARD, &h, sizeof(h));
	return ask->what == DF_ASK_STALLED;
}

/*
 * Runs on the control thread. Puts the message into the inbox, and does only the work that cannot
 * wait for the watchdog's thread.
 */
void df_snapshot_message(uint64_t from, uint32_t kind, const void *data, size_t bytes)
{
	struct letter *l;

	if (kind == DF_MSG_SNAPSHOT_ASK && confirm(from, data, bytes))
		return;
	/* The messages after the report may end this process before the watchdog reads it. */
	if (kind == DF_MSG_END || kind == DF_MSG_TOLD)
		df_release_forget_log();
	l = malloc(sizeof(*l) + bytes);
	if (!l)
		return;
	if (kind == DF_MSG_END)
		df_ending_arrived(data, bytes);
	l->from = from;
	l->kind = kind;
	l->bytes = bytes;
	if (bytes)
		memcpy(l->data, data, bytes);
	df_mutex_lock(&box.lock);
	/* Reports of verdicts first: otherwise this process could report the same hang again. */
	if (kind == DF_MSG_END || kind == DF_MSG_TOLD)
		df_list_add(&box.inbox, &l->node);
	else
		df_list_add_tail(&box.inbox, &l->node);
	df_mutex_unlock(&box.lock);
	df_snapshot_wake();
}

static struct letter *next_letter(void)
{
	struct letter *l;

	df_mutex_lock(&box.lock);
	l = df_list_first(&box.inbox, struct letter, node);
	if (l)
		df_list_del(&l->node);
	df_mutex_unlock(&box.lock);
	return l;
}

/* Returns a number that identifies a set of processes, to which this one is added. */
static uint64_t sum_of(const struct df_procs *p)
{
	uint64_t sum = df_mix64(df_rt.self.proc);

	for (uint32_t i = 0; i < p->nr; i++)
		sum += df_mix64(p->v[i]);
	return sum;
}

/* ---- this process's answer ------------------------------------------------------------------ */

/* Takes the hold for a proof. For DF_ASK_AGAIN, checks that the hold still exists. */
static int take_hold(uint64_t asker, uint64_t epoch, enum df_ask what)
{
	uint64_t now = df_now_ns();
	int held = my.holder && now < my.until &&
		   (my.holder == df_rt.self.proc || !df_ctl_is_dead(my.holder));

	if (what == DF_ASK_LOOK)
		return 0;
	if (what == DF_ASK_AGAIN)
		return held && my.holder == asker && my.epoch == epoch ? 0 : -EBUSY;
	if (held && (my.holder != asker || my.epoch != epoch))
		return -EBUSY;
	my.holder = asker;
	my.epoch = epoch;
	my.until = now + HOLD_NS;
	return 0;
}

static void let_hold(uint64_t asker, uint64_t epoch)
{
	if (my.holder == asker && my.epoch == epoch)
		my.holder = 0;
}

/*
 * Fills in the answer of this process. The image belongs to `my.compact`, except for DF_ASK_LOOK.
 */
static int say(struct df_snapshot *s, enum df_ask what, int hosts)
{
	const struct df_trace_header *ring = df_trace_ring();
	uint64_t before = my.compact.next;
	int tries = 0, ret;

	if (!ring)
		return -ENOENT;
	s->lent = what != DF_ASK_LOOK;
	if (!s->lent) {
		df_hosts_note();
		df_hardware_note();
		return df_trace_compact(ring, &s->image, &s->bytes);
	}
	/* The waits are read before the image, so that the image contains their calls. */
	s->waits = malloc(MAX_WAITS * sizeof(*s->waits));
	if (s->waits)
		s->nr_waits = df_release_may(s->waits, MAX_WAITS);
	do {
		ret = df_trace_compact_step(&my.compact, ring);
	} while (ret == -EAGAIN && ++tries < STEP_TRIES);
	if (ret)
		return ret;
	s->same = what == DF_ASK_AGAIN && my.compact.next == before;
	s->image = my.compact.image;
	s->bytes = my.compact.bytes;
	/*
	 * The threads are read after the image, so a thread that is in the image but not among them
	 * has ended.
	 */
	if (hosts && df_hosts_certain(&s->hosts, &s->nr_hosts))
		s->hosts = NULL;
	return 0;
}

static void answer(uint64_t to, const struct ask *ask)
{
	enum df_ask what = (enum df_ask)ask->what;
	struct df_snapshot s = {0};
	struct answer *a;
	struct df_procs p = {0};
	size_t bytes;
	char *at;

	s.busy = take_hold(to, ask->epoch, what) || say(&s, what, ask->hosts != 0);
	if (s.busy || s.same)
		s.bytes = 0;
	if (s.busy)
		s.nr_waits = 0;
	else if (what != DF_ASK_AGAIN)
		df_tied_peers(&p);
	if (sum_of(&p) == ask->peers)
		p.nr = 0;
	if (s.busy || !s.hosts)
		s.nr_hosts = 0;
	bytes = sizeof(*a) + (s.nr_waits + p.nr) * sizeof(uint64_t) +
		s.nr_hosts * sizeof(*s.hosts) + s.bytes;
	a = malloc(bytes);
	if (a) {
		*a = (struct answer){.epoch = ask->epoch,
				     .image_bytes = s.bytes,
				     .what = ask->what,
				     .busy = (uint32_t)s.busy,
				     .same = (uint32_t)s.same,
				     .nr_waits = s.nr_waits,
				     .nr_peers = p.nr,
				     .nr_hosts = s.hosts ? s.nr_hosts : NOT_KNOWN,
				     .progress = owner->progress(),
				     .stalled_ms = owner->stalled_ms()};
		at = (char *)(a + 1);
		if (s.nr_waits)
			memcpy(at, s.waits, s.nr_waits * sizeof(uint64_t));
		at += s.nr_waits * sizeof(uint64_t);
		if (p.nr)
			memcpy(at, p.v, p.nr * sizeof(uint64_t));
		at += p.nr * sizeof(uint64_t);
		if (s.nr_hosts)
			memcpy(at, s.hosts, s.nr_hosts * sizeof(*s.hosts));
		at += s.nr_hosts * sizeof(*s.hosts);
		if (s.bytes)
			memcpy(at, s.image, s.bytes);
		df_ctl_send(NULL, to, DF_MSG_SNAPSHOT, a, bytes);
		free(a);
	}
	free(p.v);
	free(s.waits);
	free(s.hosts);
	if (!s.lent)
		free(s.image);
}

void *df_snapshot_words(size_t *bytes)
{
	struct df_left_row *rows = NULL;
	size_t nr = 0;

	if (df_trace_left(df_trace_ring(), &rows, &nr))
		rows = NULL;
	*bytes = rows ? nr * sizeof(*rows) : 0;
	return rows;
}

/* ---- incoming messages ---------------------------------------------------------------------- */

static void obey(uint64_t from, const struct order *o, size_t bytes)
{
	const uint64_t *calls = (const uint64_t *)(o + 1);
	const char *line;

	if (bytes < sizeof(*o) + o->nr * sizeof(uint64_t) + o->line_bytes)
		return;
	line = (const char *)(calls + o->nr);
	if (o->nr && my.holder == from && my.epoch == o->epoch && df_now_ns() < my.until)
		df_release(calls, o->nr, o->likely != 0, o->line_bytes ? line : NULL);
	let_hold(from, o->epoch);
}

static uint64_t suspicion(const struct letter *l)
{
	uint32_t ms = 0;

	if (l->bytes >= sizeof(ms))
		memcpy(&ms, l->data, sizeof(ms));
	return ms;
}

static void serve(const struct letter *l)
{
	const struct ask *ask = (const void *)l->data;

	switch (l->kind) {
	case DF_MSG_SNAPSHOT_ASK:
		if (l->bytes >= sizeof(*ask))
			answer(l->from, ask);
		my.answered = df_now_ns();
		return;
	case DF_MSG_SUSPECT:
		if (l->bytes == 2 * sizeof(uint64_t)) {
			df_watchdog_mismatch(l->data[1]);
			return;
		}
		my.suspected = DF_MAX(my.suspected, suspicion(l) + 1);
		return;
	case DF_MSG_RELEASE:
		if (l->bytes >= sizeof(struct order))
			obey(l->from, (const void *)l->data, l->bytes);
		return;
	case DF_MSG_TOLD:
	case DF_MSG_END:
		owner->told(l->kind, l->data, l->bytes);
		return;
	case DF_MSG_UNMAPPED:
		df_death_unmapped(l->from);
		return;
	default:
		return; /* a late answer to a question that is over */
	}
}

void df_snapshot_serve(void)
{
	struct letter *l;

	while ((l = next_letter())) {
		serve(l);
		free(l);
	}
}

uint64_t df_snapshot_suspected(void)
{
	uint64_t was = my.suspected;

	my.suspected = 0;
	return was;
}

uint64_t df_snapshot_answered(void)
{
	return my.answered;
}

void df_snapshot_suspect(uint64_t proc, uint32_t ms)
{
	df_ctl_send(NULL, proc, DF_MSG_SUSPECT, &ms, sizeof(ms));
}

void df_snapshot_suspect_mismatch(uint64_t proc, uint64_t comm)
{
	uint64_t body[2] = {0, comm};

	df_ctl_send(NULL, proc, DF_MSG_SUSPECT, body, sizeof(body));
}

/* ---- gathering ------------------------------------------------------------------------------ */

static struct df_snapshot *answer_of(const struct df_snapshots *g, uint64_t proc)
{
	struct df_snapshot *s;

	df_list_each(s, &g->answers, node) if (s->proc == proc) return s;
	return NULL;
}

static void forget_image(struct df_snapshot *s)
{
	if (!s->lent)
		free(s->image);
	free(s->waits);
	free(s->hosts);
	s->image = NULL;
	s->waits = NULL;
	s->hosts = NULL;
	s->nr_waits = s->nr_hosts = 0;
}

static struct df_snapshot *answer_new(struct df_snapshots *g, uint64_t proc)
{
	struct df_snapshot *s = answer_of(g, proc);

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->proc = proc;
	df_list_add_tail(&g->answers, &s->node);
	return s;
}

/* A look holds no process, so the question can go to all at once. */
static int asks_all(enum df_ask what)
{
	return what == DF_ASK_LOOK && df_tied_all();
}

/* Asks one process, or all if `proc` is 0. */
static void ask_one(struct df_snapshots *g, const struct df_procs *asked, uint64_t proc,
		    enum df_ask what)
{
	struct ask ask = {.epoch = g->epoch,
			  .peers = sum_of(asked),
			  .what = (uint32_t)what,
			  .hosts = (uint32_t)g->hosts};

	g->news = df_now_ns();
	df_ctl_send(NULL, proc, DF_MSG_SNAPSHOT_ASK, &ask, sizeof(ask));
}

static int same_hosts(const struct df_snapshot *a, const struct df_snapshot *b)
{
	return !a->hosts == !b->hosts && a->nr_hosts == b->nr_hosts &&
	       (!a->hosts || !memcmp(a->hosts, b->hosts, a->nr_hosts * sizeof(*a->hosts)));
}

/* Replaces the known states of the threads. Returns 1 if they are the same as before. */
static int take_hosts(struct df_snapshot *s, const void *hosts, uint32_t nr)
{
	size_t bytes = nr == NOT_KNOWN ? 0 : nr * sizeof(*s->hosts);
	struct df_snapshot was = *s;
	int same;

	s->hosts = nr == NOT_KNOWN ? NULL : malloc(bytes + 1);
	s->nr_hosts = s->hosts ? nr : 0;
	if (s->hosts)
		memcpy(s->hosts, hosts, bytes);
	same = same_hosts(s, &was);
	free(was.hosts);
	return same;
}

/* Takes one answer, and asks the processes that it names for the first time. */
static void take(struct df_snapshots *g, struct df_procs *asked, const struct letter *l,
		 enum df_ask what)
{
	const struct answer *a = (const void *)l->data;
	const char *at = (const char *)(a + 1);
	struct df_snapshot *s;
	uint64_t proc;
	uint32_t i, nr_hosts;

	if (l->bytes < sizeof(*a) || a->epoch != g->epoch || a->what != (uint32_t)what)
		return;
	nr_hosts = a->nr_hosts == NOT_KNOWN ? 0 : a->nr_hosts;
	if (l->bytes != sizeof(*a) + ((size_t)a->nr_waits + a->nr_peers) * 8 +
				nr_hosts * sizeof(*s->hosts) + a->image_bytes)
		return;
	s = answer_new(g, l->from);
	if (!s || s->fresh)
		return;
	s->fresh = 1;
	g->nr_fresh++;
	df_procs_add(asked, l->from);
	g->news = df_now_ns();
	s->stalled_ms = a->stalled_ms;
	s->progress = a->progress;
	s->busy = a->busy != 0;
	s->same = a->same != 0;
	g->busy |= s->busy;
	if (s->busy)
		return;
	free(s->waits);
	s->waits = malloc(a->nr_waits * sizeof(uint64_t) + 1);
	s->nr_waits = s->waits ? a->nr_waits : 0;
	if (s->waits)
		memcpy(s->waits, at, a->nr_waits * sizeof(uint64_t));
	at += a->nr_waits * sizeof(uint64_t);
	for (i = 0; i < a->nr_peers; i++, at += sizeof(proc)) {
		memcpy(&proc, at, sizeof(proc));
		if (proc != df_rt.self.proc && df_procs_add(asked, proc) && !asks_all(what))
			ask_one(g, asked, proc, what);
	}
	g->all_same &= take_hosts(s, at, a->nr_hosts) & s->same;
	at += nr_hosts * sizeof(*s->hosts);
	if (s->same)
		return;
	free(s->image);
	s->bytes = a->image_bytes;
	s->image = malloc(s->bytes + 1);
	if (s->image)
		memcpy(s->image, at, s->bytes);
}

/* Notes that a process has confirmed the question. */
static void take_heard(struct df_snapshots *g, const struct letter *l)
{
	const struct heard *h = (const void *)l->data;
	struct df_snapshot *s;

	if (l->bytes < sizeof(*h) || h->epoch != g->epoch)
		return;
	s = answer_new(g, l->from);
	if (s && !s->heard) {
		s->heard = 1;
		g->news = df_now_ns();
	}
}

static int somebody_is_slow(const struct df_snapshots *g)
{
	struct df_snapshot *s;
	int slow = 0;

	df_list_each(s, &g->answers, node) slow |=
		s->heard && !s->fresh && !df_ctl_is_dead(s->proc);
	return slow;
}

/*
 * How long this thread has waited. A nap counts as at most twice its length: where this process
 * gets no processor time, its messages do not move either.
 */
struct patience {
	uint64_t at, waited;
};

static uint64_t has_waited(struct patience *p)
{
	uint64_t now = df_now_ns();

	p->waited += DF_MIN(now - p->at, 2 * NAP_NS);
	p->at = now;
	return p->waited;
}

/*
 * Whether to wait for more answers. A proof holds the other processes, so its time is bounded. A
 * report waits for news.
 */
static int waits(const struct df_snapshots *g, enum df_ask what, uint64_t begun,
		 struct patience *since_news)
{
	uint64_t now = df_now_ns();

	if (what != DF_ASK_LOOK)
		return now < begun + DF_GATHER_NS;
	if (since_news->at < g->news)
		*since_news = (struct patience){.at = g->news};
	return now < g->news + MOST_NS &&
	       has_waited(since_news) < (somebody_is_slow(g) ? DF_SLOW_NS : DF_GATHER_NS);
}

static unsigned nr_living(const struct df_procs *p)
{
	unsigned nr = 0;
	uint32_t i;

	for (i = 0; i < p->nr; i++)
		nr += !df_ctl_is_dead(p->v[i]);
	return nr;
}

int df_snapshot_gather(struct df_snapshots *g, enum df_ask what)
{
	uint64_t begun = df_now_ns();
	struct patience since_news = {.at = begun};
	struct df_snapshot *s, *self, was = {0};
	struct df_procs asked = {0};
	uint32_t i;
	int ret = 0;

	if (what != DF_ASK_AGAIN)
		g->epoch = ++my.last_epoch;
	g->all_same = 1;
	g->busy = 0;
	g->news = begun;
	df_list_each(s, &g->answers, node)
	{
		s->fresh = s->heard = 0;
		if (s->proc != df_rt.self.proc)
			df_procs_add(&asked, s->proc);
	}
	self = answer_new(g, df_rt.self.proc);
	if (!self) {
		free(asked.v);
		return -ENOMEM;
	}
	if (take_hold(df_rt.self.proc, g->epoch, what)) {
		g->busy = 1;
		free(asked.v);
		return 0;
	}
	if (what != DF_ASK_AGAIN)
		df_tied_peers(&asked);
	if (asks_all(what) && asked.nr)
		ask_one(g, &asked, 0, what);
	for (i = 0; i < asked.nr && !asks_all(what); i++)
		ask_one(g, &asked, asked.v[i], what);
	was.hosts = self->hosts;
	was.nr_hosts = self->nr_hosts;
	self->hosts = NULL;
	forget_image(self);
	ret = say(self, what, g->hosts);
	self->fresh = 1;
	g->nr_fresh = 1;
	self->progress = owner->progress();
	g->all_same &= self->same & same_hosts(self, &was);
	free(was.hosts);
	while (!ret && !g->busy && !owner->meanwhile()) {
		uint32_t seen = df_snapshot_seen();
		struct letter *l = next_letter();

		if (!l) {
			if (g->nr_fresh > nr_living(&asked) || !waits(g, what, begun, &since_news))
				break;
			df_snapshot_wait(seen, (int64_t)NAP_NS);
			continue;
		}
		if (l->kind == DF_MSG_SNAPSHOT)
			take(g, &asked, l, what);
		else if (l->kind == DF_MSG_HEARD)
			take_heard(g, l);
		else
			serve(l);
		free(l);
	}
	g->nr_procs = asked.nr + 1;
	/* An answer from an earlier round no longer counts. */
	df_list_each(s, &g->answers, node)
	{
		if (s->fresh)
			continue;
		forget_image(s);
		g->all_same = 0;
	}
	/* Processes that did not answer must be released from the hold as well. */
	for (i = 0; i < asked.nr; i++)
		answer_new(g, asked.v[i]);
	df_tied_keep(&asked);
	return ret;
}

static int is_silent(const struct df_snapshot *s)
{
	return !s->fresh && !s->heard && !df_ctl_is_dead(s->proc);
}

int df_snapshot_is_silent(const struct df_snapshots *g, const struct df_snapshot *s, int *certain)
{
	const struct df_snapshot *o;

	if (!is_silent(s))
		return 0;
	*certain = df_ctl_is_neighbour(s->proc);
	if (*certain)
		return 1;
	*certain = 1;
	df_list_each(o, &g->answers,
		     node) if (is_silent(o) && df_ctl_is_neighbour(o->proc)) *certain = 0;
	return 1;
}

int df_snapshot_defers(uint32_t ms)
{
	struct df_snapshots g = {.epoch = ++my.last_epoch, .answers = DF_LIST_INIT(g.answers)};
	struct patience asked = {.at = df_now_ns()};
	struct df_procs p = {0};
	uint32_t i, seen, left = 0;
	struct letter *l;
	int defers = 0;

	df_tied_known(&p);
	for (i = 0; i < p.nr; i++) {
		if (p.v[i] > df_rt.self.proc)
			continue;
		ask_one(&g, &p, p.v[i], DF_ASK_STALLED);
		left++;
	}
	free(p.v);
	while (left && !defers && has_waited(&asked) < DF_GATHER_NS && !owner->meanwhile()) {
		const struct heard *h;

		seen = df_snapshot_seen();
		l = next_letter();
		if (!l) {
			df_snapshot_wait(seen, (int64_t)NAP_NS);
			continue;
		}
		h = (const void *)l->data;
		if (l->kind != DF_MSG_HEARD) {
			serve(l);
		} else if (l->bytes >= sizeof(*h) && h->epoch == g.epoch) {
			left--;
			defers = h->stalled_ms >= ms;
		}
		free(l);
	}
	return defers;
}

void df_snapshot_release(const struct df_snapshots *g, uint64_t proc, const uint64_t *calls,
			 uint32_t nr, int likely, const char *line)
{
	size_t line_bytes = line ? strlen(line) + 1 : 0;
	size_t bytes = sizeof(struct order) + nr * sizeof(*calls) + line_bytes;
	struct order *o;

	if (proc == df_rt.self.proc) {
		if (nr)
			df_release(calls, nr, likely, line);
		return;
	}
	o = malloc(bytes);
	if (!o)
		return;
	*o = (struct order){.epoch = g->epoch,
			    .nr = nr,
			    .line_bytes = (uint32_t)line_bytes,
			    .likely = (uint32_t)likely};
	if (nr)
		memcpy(o + 1, calls, nr * sizeof(*calls));
	if (line)
		memcpy((uint64_t *)(o + 1) + nr, line, line_bytes);
	df_ctl_send(NULL, proc, DF_MSG_RELEASE, o, bytes);
	free(o);
}

void df_snapshot_done(struct df_snapshots *g)
{
	struct df_snapshot *s, *tmp;

	df_list_each_safe(s, tmp, &g->answers, node)
	{
		df_list_del(&s->node);
		forget_image(s);
		free(s);
	}
	let_hold(df_rt.self.proc, g->epoch);
}
