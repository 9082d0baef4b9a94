/*
 * Remembers what the application's threads poll. A loop of queries writes no records, as these
 * would fill the ring; only its end is recorded, as a wait that is over. Each thread keeps the last
 * few things that it polled, and hosts.c reads them when nothing makes progress: a thread that
 * polls is not a thread that does something else.
 *
 * Threads: a thread writes its own slot, and any thread may read it. Each word is read and written
 * by itself, so a reader of a slot that is being written may see an object that was polled a moment
 * before.
 */
#include <sys/syscall.h>
#include <unistd.h>
#include "runtime/base/time.h"
#include "runtime/comm/polls.h"
#include "runtime/dfshim.h"
#include "trace/record/format.h"
#include "trace/record/writer.h"

#define SLOTS 256 /* number of threads; further threads are not observed */

struct polled {
	uint64_t object, at_ns;
	uint32_t kind; /* enum df_polled, plus one */
	int waits;     /* the last query returned "not done" */
};

struct slot {
	uint32_t tid; /* 0: free */
	uint32_t next;
	uint64_t acts;
	uint64_t asked_ns[DF_POLLED_NR]; /* the last query of each kind, also of unknown objects */
	struct polled v[DF_POLLS_MAX];
};

static struct slot slots[SLOTS];
/* the calls of all threads that found no free slot, and one more for each of them */
static uint64_t acts_of_others;
static __thread struct slot *mine __attribute__((tls_model("initial-exec")));
/* the thread's latest query */
static __thread struct polled *asked __attribute__((tls_model("initial-exec")));
/* the thread found no free slot */
static __thread int refused __attribute__((tls_model("initial-exec")));

#define GET(p)	  __atomic_load_n(p, __ATOMIC_RELAXED)
#define PUT(p, x) __atomic_store_n(p, x, __ATOMIC_RELAXED)

static struct slot *slot_new(void)
{
	uint32_t tid = (uint32_t)syscall(SYS_gettid), none;
	size_t i;

	for (i = 0; i < SLOTS; i++) {
		none = 0;
		if (GET(&slots[i].tid) == tid ||
		    __atomic_compare_exchange_n(&slots[i].tid, &none, tid, 0, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED))
			return &slots[i];
	}
	__atomic_fetch_add(&acts_of_others, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* The calling thread's slot, or NULL if there is no room. */
static struct slot *own_slot(void)
{
	/* Search only once: each further search would slow down a call of the application. */
	if (!mine && !refused) {
		mine = slot_new();
		refused = !mine;
	}
	return mine;
}

/* Records the time of the query. Returns the slot as own_slot() does. */
static struct slot *ask(enum df_polled kind, uint64_t now)
{
	struct slot *s = own_slot();

	if (s)
		PUT(&s->asked_ns[kind], now);
	return s;
}

void df_polls_act(void)
{
	struct slot *s = own_slot();

	/*
	 * From now on this thread counts as one that may issue the operation that others wait for.
	 */
	df_trace_enter();
	if (s)
		PUT(&s->acts, GET(&s->acts) + 1);
	else
		__atomic_fetch_add(&acts_of_others, 1, __ATOMIC_RELAXED);
}

uint64_t df_polls_acts(uint32_t tid)
{
	for (size_t i = 0; i < SLOTS; i++)
		if (GET(&slots[i].tid) == tid)
			return GET(&slots[i].acts);
	return GET(&acts_of_others);
}

void df_polls_ask(enum df_polled kind)
{
	asked = NULL;
	ask(kind, df_now_ns());
}

void df_polls_note(enum df_polled kind, uint64_t object)
{
	uint64_t now = df_now_ns();
	struct slot *s = ask(kind, now);
	struct polled *p;
	size_t i;

	if (!s)
		return;
	for (i = 0; i < DF_POLLS_MAX; i++)
		if (GET(&s->v[i].object) == object && GET(&s->v[i].kind) == kind + 1u) {
			PUT(&s->v[i].at_ns, now);
			asked = &s->v[i];
			return;
		}
	p = &s->v[s->next++ % DF_POLLS_MAX];
	PUT(&p->kind, 0);
	PUT(&p->waits, 0);
	PUT(&p->object, object);
	PUT(&p->at_ns, now);
	PUT(&p->kind, kind + 1u);
	asked = p;
}

void df_polls_answer(int done)
{
	struct polled *p = asked;
	uint32_t kind;

	asked = NULL;
	if (!p)
		return;
	kind = GET(&p->kind);
	if (done == 1 && kind && GET(&p->waits))
		df_trace(DF_REC_POLLED, -1, 0, -1, 0, kind - 1, GET(&p->object), 0, 0);
	PUT(&p->waits, done == 0);
}

void df_call_polled(uint64_t serial)
{
	if (serial)
		df_polls_note(DF_POLLED_CALL, serial);
	else
		df_polls_ask(DF_POLLED_CALL);
	asked = NULL; /* the end of a call has its own record */
}

size_t df_polls_of(uint32_t tid, uint64_t since_ns, uint32_t *kinds, uint64_t *objects)
{
	size_t i, k, n = 0;

	for (i = 0; i < SLOTS && GET(&slots[i].tid) != tid; i++)
		;
	for (k = 0; i < SLOTS && k < DF_POLLS_MAX; k++) {
		struct polled *p = &slots[i].v[k];
		uint32_t kind = GET(&p->kind);

		if (!kind || GET(&p->at_ns) < since_ns)
			continue;
		kinds[n] = kind - 1;
		objects[n++] = GET(&p->object);
	}
	return n;
}

unsigned df_polls_asked(uint32_t tid, uint64_t since_ns)
{
	unsigned kinds = 0, k;
	size_t i;

	for (i = 0; i < SLOTS && GET(&slots[i].tid) != tid; i++)
		;
	for (k = 0; i < SLOTS && k < DF_POLLED_NR; k++)
		if (GET(&slots[i].asked_ns[k]) >= since_ns)
			kinds |= 1u << k;
	return kinds;
}

void df_polls_gone(uint32_t tid)
{
	size_t i, k;

	for (i = 0; i < SLOTS; i++) {
		if (GET(&slots[i].tid) != tid)
			continue;
		for (k = 0; k < DF_POLLS_MAX; k++)
			PUT(&slots[i].v[k].kind, 0);
		for (k = 0; k < DF_POLLED_NR; k++)
			PUT(&slots[i].asked_ns[k], 0);
		PUT(&slots[i].tid, 0);
	}
}
