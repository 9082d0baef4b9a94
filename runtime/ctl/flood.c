/*
 * Floods: messages that reach every process of the overlay once. A process passes a flood on over
 * all its links but the one it arrived on, unless it has seen (origin, number) before. All
 * processes pass floods on in the order of arrival and links keep order, so floods of one origin
 * arrive in order; only a repair can leave a gap.
 *
 * A message to one process takes one route: the link on which that process's floods arrive. Where
 * this is not known, or the link is gone, the message is flooded from there on. When the overlay's
 * shape changes, all routes are learned anew (tests/model/route.pml).
 *
 * The last messages of df_ctl_send() are kept, and sent again after a repair. They have numbers of
 * their own, by which receivers drop duplicates. Callbacks are queued; the control thread runs them
 * under no lock.
 */
#include "runtime/ctl/tree.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/exit_status.h"
#include "runtime/base/time.h"
#include "runtime/ctl/flood.h"
#include "runtime/ctl/link.h"
#include "runtime/ctl/rdv.h"

#define SENT_MAX       256
#define SENT_MAX_BYTES (4u << 20)
/*
 * How long these messages are repeated: a suspicion, a question and an answer are useless when
 * their sender no longer waits for an effect.
 */
#define BRIEF_NS (2 * DF_NS_PER_S)
/*
 * Limits of each of the two waits of a goodbye. The first is for processes that may be stopped, the
 * second for processes that are not stopped but may lack a processor.
 */
#define GOODBYE_NS (500 * DF_NS_PER_MS)
#define SLOW_NS	   (15 * DF_NS_PER_S)

struct flood {
	uint64_t origin, seq, to;
	uint32_t type, pad;
};

struct msg {
	uint64_t to, hash, mid;
	uint32_t kind, bytes;
};

/* The numbers seen of an origin: the highest, and a bit for each of the 64 below it. */
struct seen {
	uint64_t max, bits;
};

struct origin {
	UT_hash_handle hh;
	uint64_t proc;
	uint64_t via; /* the neighbour on whose link its latest flood arrived; 0: unknown */
	struct seen floods, msgs;
};

struct item {
	struct df_list node;
	uint64_t proc;
	uint32_t kind;
	int death, in_order, member;
	size_t bytes;
	uint64_t data[];
};

struct sent {
	struct df_list node;
	uint64_t until; /* when to stop repeating it */
	size_t bytes;
	uint64_t data[];
};

static struct origin *origins;
static uint64_t last_seq, last_mid;
static struct df_list queue = DF_LIST_INIT(queue), sent_list = DF_LIST_INIT(sent_list);
static size_t nr_sent, sent_bytes;
/* messages that this process has sent, and frames that it has put on links for any message */
static uint64_t nr_msgs, nr_msg_frames;

/* Whether seq is new. A number too old to be remembered counts as seen. */
static int see(struct seen *s, uint64_t seq)
{
	uint64_t shift, bit;

	if (seq > s->max) {
		shift = seq - s->max;
		s->bits = shift >= 64 ? 0 : s->bits << shift;
		if (s->max && shift <= 64)
			s->bits |= 1ull << (shift - 1);
		s->max = seq;
		return 1;
	}
	if (seq == s->max || s->max - seq > 64)
		return 0;
	bit = 1ull << (s->max - seq - 1);
	if (s->bits & bit)
		return 0;
	s->bits |= bit;
	return 1;
}

static struct origin *origin_get(uint64_t proc)
{
	struct origin *o;

	HASH_FIND(hh, origins, &proc, sizeof(proc), o);
	if (o)
		return o;
	o = calloc(1, sizeof(*o));
	if (!o)
		return NULL;
	o->proc = proc;
	HASH_ADD(hh, origins, proc, sizeof(proc), o);
	return o;
}

/*
 * Sends over all links but `except`; a message to one process only over the link that leads there,
 * if known.
 */
static void put(const struct flood *f, size_t bytes, const struct df_link *except, const void *b,
		size_t b_bytes)
{
	struct origin *to = NULL;
	unsigned nr = 0;

	if (f->type == DF_FLOOD_MSG && f->to) {
		if (f->to == df_ctl.self.proc)
			return;
		HASH_FIND(hh, origins, &f->to, sizeof(f->to), to);
		if (to && to->via)
			nr = df_tree_send_to(to->via, except, DF_FRAME_FLOOD, f, bytes);
	}
	if (!nr)
		nr = df_tree_send_all(except, DF_FRAME_FLOOD, f, bytes, b, b_bytes);
	if (f->type == DF_FLOOD_MSG)
		__atomic_add_fetch(&nr_msg_frames, nr, __ATOMIC_RELAXED);
}

static void forget_ways(void)
{
	struct origin *o, *tmp;

	HASH_ITER(hh, origins, o, tmp) o->via = 0;
}

void df_ctl_counts(uint64_t *messages, uint64_t *frames)
{
	*messages = __atomic_load_n(&nr_msgs, __ATOMIC_RELAXED);
	*frames = __atomic_load_n(&nr_msg_frames, __ATOMIC_RELAXED);
}

int df_flood_send(enum df_flood_type type, uint64_t to, const void *a, size_t a_bytes,
		  const void *b, size_t b_bytes)
{
	struct flood *f = malloc(sizeof(*f) + a_bytes);

	if (!f)
		return -ENOMEM;
	f->origin = df_ctl.self.proc;
	f->seq = ++last_seq;
	f->to = to;
	f->type = type;
	f->pad = 0;
	if (a_bytes)
		memcpy(f + 1, a, a_bytes);
	put(f, sizeof(*f) + a_bytes, NULL, b, b_bytes);
	free(f);
	return 0;
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static void queue_message(uint64_t from, uint32_t kind, const void *data, size_t bytes)
{
	struct item *i = malloc(sizeof(*i) + bytes);

	if (!i)
		return;
	memset(i, 0, sizeof(*i));
	i->proc = from;
	i->kind = kind;
	i->bytes = bytes;
	if (bytes)
		memcpy(i->data, data, bytes);
	df_list_add_tail(&queue, &i->node);
	df_ctl_poke();
}

void df_flood_queue_death(uint64_t proc, int in_order, int member)
{
	struct item *i = calloc(1, sizeof(*i));

	if (!i)
		return;
	i->proc = proc;
	i->death = 1;
	i->in_order = in_order;
	i->member = member;
	df_list_add_tail(&queue, &i->node);
	df_ctl_poke();
}

void df_flood_deliver(void)
{
	const struct df_ctl_events *ev;
	struct df_list todo;
	struct item *i, *tmp;

	df_list_init(&todo);
	df_ctl_lock();
	df_list_splice_tail(&todo, &queue);
	ev = df_ctl.events;
	df_ctl_unlock();
	df_list_each_safe(i, tmp, &todo, node)
	{
		if (i->death) {
			df_tree_tell_death(i->proc);
			if (ev && ev->death && i->member)
				ev->death(i->proc, i->in_order);
		} else if (ev && ev->message) {
			ev->message(i->proc, i->kind, i->data, i->bytes);
		}
		df_list_del(&i->node);
		free(i);
	}
}

void df_ctl_set_events(const struct df_ctl_events *events)
{
	df_ctl_lock();
	df_ctl.events = events;
	df_ctl_unlock();
}

/* ---- messages -------------------------------------------------------------------------------- */

static int msg_input(struct origin *o, const void *data, size_t bytes)
{
	const struct msg *m = data;

	if (bytes < sizeof(*m) || bytes != sizeof(*m) + m->bytes)
		return -EPROTO;
	if (!see(&o->msgs, m->mid))
		return 0;
	if (m->to == df_ctl.self.proc || (!m->to && (!m->hash || df_group_find(m->hash))))
		queue_message(o->proc, m->kind, m + 1, m->bytes);
	return 0;
}

static int is_brief(uint32_t kind)
{
	return kind == DF_MSG_SNAPSHOT_ASK || kind == DF_MSG_SNAPSHOT || kind == DF_MSG_SUSPECT ||
	       kind == DF_MSG_HEARD;
}

static void keep_sent(const struct msg *m, size_t bytes)
{
	struct sent *s = malloc(sizeof(*s) + bytes);

	if (!s)
		return;
	s->until = is_brief(m->kind) ? df_now_ns() + BRIEF_NS : UINT64_MAX;
	s->bytes = bytes;
	memcpy(s->data, m, bytes);
	df_list_add_tail(&sent_list, &s->node);
	nr_sent++;
	sent_bytes += bytes;
	while (nr_sent > SENT_MAX || sent_bytes > SENT_MAX_BYTES) {
		s = df_list_first(&sent_list, struct sent, node);
		df_list_del(&s->node);
		nr_sent--;
		sent_bytes -= s->bytes;
		free(s);
	}
}

static void repeat_sent(void)
{
	uint64_t now = df_now_ns();
	struct sent *s;

	df_list_each(s, &sent_list, node)
	{
		const struct msg *m = (const void *)s->data;

		if (now < s->until && !(m->to && df_tree_is_dead(m->to)))
			df_flood_send(DF_FLOOD_MSG, 0, s->data, s->bytes, NULL, 0);
	}
}

/*
 * Called when the overlay's shape has changed, here or elsewhere. Messages under way may be lost,
 * and known routes may be wrong.
 */
static void repaired(void)
{
	df_ctl.nr_repairs++;
	forget_ways();
	df_gather_ask(df_now_ns(), 1);
	repeat_sent();
}

void df_flood_changed(void)
{
	df_flood_send(DF_FLOOD_REPAIR, 0, NULL, 0, NULL, 0);
	repaired();
}

int df_ctl_send(struct df_ctl_comm *c, uint64_t proc, uint32_t kind, const void *data, size_t bytes)
{
	struct df_group *g = c ? c->group : NULL;
	struct msg *m;
	int ret = 0;

	if (bytes > DF_FRAME_MAX / 2)
		return -EINVAL;
	m = malloc(sizeof(*m) + bytes);
	if (!m)
		return -ENOMEM;
	*m = (struct msg){
		.to = proc, .hash = g ? g->hash : 0, .kind = kind, .bytes = (uint32_t)bytes};
	if (bytes)
		memcpy(m + 1, data, bytes);
	df_ctl_lock();
	if (g && !df_group_alive(g)) {
		ret = -ESHUTDOWN;
	} else if (g && proc && !df_group_has(g, proc)) {
		ret = -EINVAL;
	} else if (proc && df_tree_is_dead(proc)) {
		ret = -ECONNRESET;
	} else if (proc == df_ctl.self.proc) {
		queue_message(proc, kind, data, bytes);
	} else if (!g || g->nr_procs > 1) {
		m->mid = ++last_mid;
		keep_sent(m, sizeof(*m) + bytes);
		__atomic_add_fetch(&nr_msgs, 1, __ATOMIC_RELAXED);
		ret = df_flood_send(DF_FLOOD_MSG, proc, m, sizeof(*m) + bytes, NULL, 0);
	}
	df_ctl_unlock();
	free(m);
	return ret;
}

/* ---- input ----------------------------------------------------------------------------------- */

static int act(struct origin *o, const struct flood *f, const void *body, size_t bytes)
{
	const struct df_unreached *u = body;
	const uint64_t *word = body;

	switch (f->type) {
	case DF_FLOOD_SHARE:
		return df_gather_input(body, bytes);
	case DF_FLOOD_NEED:
		return df_gather_need(body, bytes);
	case DF_FLOOD_LEFT:
		return df_gather_left(body, bytes);
	case DF_FLOOD_MSG:
		return msg_input(o, body, bytes);
	case DF_FLOOD_DEATH:
		if (bytes != 8)
			return -EPROTO;
		df_tree_death(*word, 0, NULL, 0);
		return 0;
	case DF_FLOOD_EXIT:
		if (bytes < 8 || bytes > 8 + DF_WORDS_MAX || *word > 0xff)
			return -EPROTO;
		df_tree_death(o->proc, 1 + (int)*word, word + 1, bytes - 8);
		return 0;
	case DF_FLOOD_UNREACHED:
		if (bytes != sizeof(*u) || u->text[sizeof(u->text) - 1])
			return -EPROTO;
		if (f->to == df_ctl.self.proc)
			df_join_unreached(u->token, u->error, u->text);
		return 0;
	case DF_FLOOD_MERGED:
	case DF_FLOOD_CUT:
		if (bytes != 8)
			return -EPROTO;
		if (f->to != df_ctl.self.proc)
			return 0;
		if (f->type == DF_FLOOD_CUT)
			df_tree_cut(*word);
		else
			df_join_merged(*word);
		return 0;
	case DF_FLOOD_REPAIR:
		repaired();
		return 0;
	default:
		return -EPROTO;
	}
}

int df_flood_input(struct df_link *from, const void *data, size_t bytes)
{
	const struct flood *f = data;
	struct origin *o;
	int ret;

	if (bytes < sizeof(*f))
		return -EPROTO;
	if (f->origin == df_ctl.self.proc)
		return 0;
	if (f->type == DF_FLOOD_EXIT && f->origin == from->tx_proc)
		from->owes = 1;
	o = origin_get(f->origin);
	if (!o || !see(&o->floods, f->seq)) {
		df_tree_answer();
		return 0;
	}
	/* If a flood arrives late, its route was an outdated one. */
	if (f->seq == o->floods.max)
		o->via = from->tx_proc;
	put(f, bytes, from, NULL, 0);
	ret = act(o, f, f + 1, bytes - sizeof(*f));
	df_tree_answer();
	return ret;
}

static void wait_while(int (*is)(void), uint64_t until)
{
	uint64_t begin = df_now_ns(), waited = 0;

	while (is() && begin + waited < until &&
	       (waited < GOODBYE_NS || (waited < SLOW_NS && df_tree_answer_is_slow()))) {
		df_ctl_unlock();
		df_sleep_ns(waited < GOODBYE_NS ? DF_NS_PER_MS / 5 : 5 * DF_NS_PER_MS);
		df_ctl_lock();
		waited = df_now_ns() - begin;
	}
}

void df_ctl_goodbye(const void *words, size_t bytes, uint64_t until)
{
	uint64_t status = (uint64_t)df_exit_status();

	df_ctl_lock();
	/*
	 * A process that has just lost a neighbour, perhaps because the neighbour has exited too,
	 * has no link for its goodbye yet.
	 */
	wait_while(df_tree_looking, until);
	if (bytes > DF_WORDS_MAX)
		bytes = 0;
	if (df_ctl.started && !df_ctl.leaving) {
		df_flood_send(DF_FLOOD_EXIT, 0, &status, sizeof(status), words, bytes);
		df_tree_leave(status, words, bytes);
		/*
		 * Other processes that exit now need us to pass the goodbye on, and orphans need a
		 * new place first.
		 */
		wait_while(df_tree_unheard, until);
		df_link_drain(200 * DF_NS_PER_MS);
	}
	df_ctl_unlock();
}

void df_flood_forget_all(void)
{
	/* After fork: the parent's numbers and messages are not those of the new process. */
	origins = NULL;
	last_seq = last_mid = 0;
	df_list_init(&queue);
	df_list_init(&sent_list);
	nr_sent = sent_bytes = 0;
}
