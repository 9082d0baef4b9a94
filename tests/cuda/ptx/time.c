/*
 * Virtual time. The warps, the program and its streams act in the order of their moments. A warp
 * executes its instructions in order, each as soon as its operands are ready and its scheduler is
 * free. An instruction waits for a load only if it uses the load's result. Other blocks see a
 * strong store when it arrives; the storing block sees it at once. A fence waits until all stores
 * of its block have arrived. Memory ports and links have a bandwidth, and the instruction cache of
 * a multiprocessor has a size.
 *
 * Left out: the L1 data cache, banks of shared memory, and the reordering and merging of
 * instructions by ptxas. Each PTX instruction counts as one machine instruction of 16 bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/base/vec.h"
#include "tests/cuda/ptx/chain.h"
#include "tests/cuda/ptx/mem.h"
#include "tests/cuda/ptx/time.h"

enum {
#define DF_TIME(name, value, source) T_##name = (value),
#include "tests/cuda/ptx/times.def"
#undef DF_TIME
};

#define SCHEDULERS 4
#define INSN_BYTES 16
#define SLACK_PS   4000 /* a warp may be ahead by this, less than the latency between warps */

/* The last change of a word by a strong store or from outside. */
struct known_word {
	uintptr_t at;
	when since;
	uint64_t seen_by; /* a bit for each multiprocessor, modulo 64, that has loaded it since */
	struct chain_word chain;
	UT_hash_handle hh;
};

/* A strong store that other blocks do not see yet. */
struct late {
	uintptr_t at;
	uint64_t value;
	unsigned int bytes;
	int out;
	struct block *from;
	struct warp *by;
	uint64_t stored;    /* when it was executed, in ps */
	struct late *older; /* the previous store of this block to the same 8 bytes */
};

struct newest {
	struct {
		uintptr_t word;
		struct block *from;
	} key;
	struct late *last;
	UT_hash_handle hh;
};

struct watch {
	const uint64_t *at;
	uint64_t value;
	void (*fn)(void *arg, double now_ns, unsigned int reads);
	void *arg;
};

struct kernel {
	struct ptx_launch l;
	struct run run;
	struct block **blocks;
	unsigned int left;
	struct ptx_time *time;
	struct kernel *next;
	uint64_t link_free[4]; /* by place: when this GPU's link to it is free, in ps */
};

/* A multiprocessor. It runs one block. */
struct sm {
	struct ptx_time *time;
	struct kernel *kernel;
	struct block *block;
	unsigned int warps_left, nr_late;
	/* ps; the ports are for loads and stores */
	uint64_t scheduler_free[SCHEDULERS], port_free[2];
	when arrived;	/* when the last store arrives */
	uint8_t *lines; /* for each line of code: whether it is in the cache */
	uint32_t *fifo, first, nr;
	struct access access; /* by the present instruction */
};

struct item {
	when at;
	uint64_t turn; /* of two items at one moment the lower number is first */
	enum { WARP, STORE, CALL, START } kind;
	struct block *b;
	void *what;
	void (*fn)(void *arg, double now_ns);
};

struct ptx_time {
	when now;
	uint64_t until_ps, turns; /* until_ps: a warp that reaches this moment lets others run */
	struct item *heap;
	uint32_t nr, room;
	struct known_word *words;
	struct newest *newest;
	struct watch *watches;
	uint32_t nr_watches, room_watches;
	struct kernel *kernels;
	int stop, all_code_cached, chains;
	const struct late *told; /* the store that the callback is about */
};

static when moment(uint64_t ps, when path)
{
	return ps << WHEN_BITS | (path & ((1u << WHEN_BITS) - 1));
}

static when later(when t, uint64_t ps)
{
	return t + (ps << WHEN_BITS);
}

static unsigned int reads_of(when t)
{
	return t & ((1u << WHEN_BITS) - 1);
}

/* Moves the warp's clock forward to the moment `t`. */
static void wait_until(struct warp *w, when t)
{
	if (t <= w->clock)
		return;
	if (reads_of(t) > reads_of(w->clock))
		w->waited[w->nr_waited++ % DF_ARRAY_LEN(w->waited)] = when_ps(t);
	w->clock = t;
}

/*
 * Returns the path of a warp that has seen a word: the store's path, and the warp's own waits for
 * host memory since the store.
 */
static when seen(const struct warp *w, when word)
{
	unsigned int i, n = 0;

	for (i = 0; i < DF_ARRAY_LEN(w->waited); i++)
		n += w->waited[i] > when_ps(word);
	return word + n;
}

static uint64_t cycles(uint64_t nr)
{
	return nr * T_cycle_ps;
}

static uint64_t ns(uint64_t nr)
{
	return nr * 1000;
}

/* ---- the next event ------------------------------------------------------------------------- */

static int before(const struct item *a, const struct item *b)
{
	return a->at != b->at ? a->at < b->at : a->turn < b->turn;
}

static void push(struct ptx_time *t, struct item it)
{
	uint32_t i;

	if (DF_VEC_ROOM(t->heap, t->room, t->nr + 1))
		abort();
	it.turn = t->turns++;
	for (i = t->nr++; i && before(&it, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
		t->heap[i] = t->heap[(i - 1) / 2];
	t->heap[i] = it;
}

static struct item pop(struct ptx_time *t)
{
	struct item first = t->heap[0], last = t->heap[--t->nr];
	uint32_t i = 0, c;

	while ((c = 2 * i + 1) < t->nr) {
		c += c + 1 < t->nr && before(&t->heap[c + 1], &t->heap[c]);
		if (!before(&t->heap[c], &last))
			break;
		t->heap[i] = t->heap[c];
		i = c;
	}
	t->heap[i] = last;
	return first;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static struct known_word *word_at(struct ptx_time *t, uintptr_t at)
{
	struct known_word *w;

	HASH_FIND(hh, t->words, &at, sizeof(at), w);
	return w;
}

static struct known_word *word_new(struct ptx_time *t, uintptr_t at)
{
	struct known_word *w = word_at(t, at);

	if (!w) {
		w = calloc(1, sizeof(*w));
		w->at = at;
		w->seen_by = UINT64_MAX;
		HASH_ADD(hh, t->words, at, sizeof(w->at), w);
	}
	return w;
}

/* Notes a change of a word. `s` is the store, or NULL for a change from outside. */
static void changed(struct ptx_time *t, uintptr_t at, when since, const struct late *s)
{
	struct known_word *w = word_new(t, at);

	w->since = since;
	w->seen_by = 0;
	w->chain.by = s ? s->by : NULL;
	w->chain.at = s ? s->stored : 0;
}

void ptx_time_told(struct ptx_time *t, uintptr_t at)
{
	changed(t, at, moment(when_ps(t->now), 0), NULL);
}

static void tell(struct ptx_time *t, const struct late *s)
{
	uint32_t i = 0;

	while (i < t->nr_watches) {
		struct watch w = t->watches[i];

		if ((uintptr_t)w.at != s->at || mem_load(s->at, 8) < w.value) {
			i++;
			continue;
		}
		t->watches[i] = t->watches[--t->nr_watches];
		t->told = s;
		w.fn(w.arg, (double)when_ps(t->now) / 1000, reads_of(t->now));
	}
}

static void out(struct ptx_time *t, struct late *s)
{
	if (s->out)
		return;
	s->out = 1;
	mem_store(s->at, s->bytes, s->value);
	changed(t, s->at, t->now, s);
	tell(t, s);
}

static struct newest *newest_of(struct ptx_time *t, struct block *b, uintptr_t at)
{
	struct newest key, *n;

	memset(&key, 0, sizeof(key));
	key.key.word = at & ~(uintptr_t)7;
	key.key.from = b;
	HASH_FIND(hh, t->newest, &key.key, sizeof(key.key), n);
	return n;
}

/* Performs the store and its predecessors, the oldest first. */
static void out_all(struct ptx_time *t, struct late *s)
{
	if (!s)
		return;
	out_all(t, s->older);
	out(t, s);
}

/* Performs the block's delayed stores to this word now. */
static void settle(struct block *b, uintptr_t at)
{
	struct newest *n = b->sm->nr_late ? newest_of(b->sm->time, b, at) : NULL;

	if (n)
		out_all(b->sm->time, n->last);
}

static void arrived(struct ptx_time *t, struct late *s)
{
	struct newest *n = newest_of(t, s->from, s->at);
	struct late **p = &n->last;

	out(t, s);
	s->from->sm->nr_late--;
	while (*p != s)
		p = &(*p)->older;
	/* `s` is the last of the list, because a block's stores to a word arrive in order. */
	*p = s->older;
	if (!n->last) {
		HASH_DEL(t->newest, n);
		free(n);
	}
	free(s);
}

static void accessed(struct block *b, uintptr_t at, unsigned int bytes, int stores)
{
	const struct ptx_launch *l = &b->sm->kernel->l;
	const struct ptx_module *m = b->k->module;
	enum ptx_place place = l->place ? l->place(l->arg, at) : PTX_L2;
	struct access *a = &b->sm->access;

	/* The module's variables count as constants, which are cached. */
	if (at - (uintptr_t)m->memory < m->bytes)
		return;
	a->place = place > a->place ? place : a->place;
	a->bytes[stores] += bytes;
}

uint64_t time_load(struct block *b, struct warp *warp, const struct insn *in, uintptr_t at,
		   unsigned int bytes)
{
	struct newest *n = b->sm->nr_late ? newest_of(b->sm->time, b, at) : NULL;

	accessed(b, at, bytes, 0);
	if (n) {
		if (n->last->at == at && n->last->bytes == bytes && !n->last->older)
			return n->last->value;
		out_all(b->sm->time, n->last);
	}
	if (in->mods & M_STRONG) {
		struct known_word *w =
			b->sm->time->chains ? word_new(b->sm->time, at) : word_at(b->sm->time, at);
		uint64_t bit = 1ull
			       << (b->index + (unsigned int)((uintptr_t)b->sm->kernel >> 6)) % 64;

		if (w && !(w->seen_by & bit)) {
			w->seen_by |= bit;
			b->sm->access.word = w->since;
			if (chain_polled(&w->chain, when_ps(w->since)))
				b->sm->access.by = w->chain;
		} else if (w && b->sm->time->chains) {
			w->chain.looked = when_ps(warp->clock);
		}
	}
	return mem_load(at, bytes);
}

void time_store(struct block *b, struct warp *w, const struct insn *in, uintptr_t at,
		unsigned int bytes, uint64_t v)
{
	static const uint32_t way[] = {T_l2_store, T_l2_store, T_peer_store, T_host_store};
	struct ptx_time *t = b->sm->time;
	struct newest *n;
	struct late *s;
	when seen;

	accessed(b, at, bytes, 1);
	if (!(in->mods & M_STRONG)) {
		settle(b, at);
		mem_store(at, bytes, v);
		return;
	}
	seen = later(w->clock, ns(way[b->sm->access.place]));
	s = calloc(1, sizeof(*s));
	*s = (struct late){.at = at,
			   .bytes = bytes,
			   .value = v,
			   .from = b,
			   .by = w,
			   .stored = when_ps(w->clock)};
	n = newest_of(t, b, at);
	if (!n) {
		n = calloc(1, sizeof(*n));
		n->key.word = at & ~(uintptr_t)7;
		n->key.from = b;
		HASH_ADD(hh, t->newest, key, sizeof(n->key), n);
	}
	s->older = n->last;
	n->last = s;
	b->sm->nr_late++;
	push(t, (struct item){.at = seen, .kind = STORE, .what = s});
}

void time_atomic(struct block *b, uintptr_t at, unsigned int bytes)
{
	settle(b, at);
	accessed(b, at, bytes, 0);
}

void time_fence(struct block *b, struct warp *w, const struct insn *in)
{
	w->clock = later(w->clock, ns(in->near ? T_fence_gpu : T_fence_sys));
	if (b->sm->arrived > w->clock)
		w->clock = moment(when_ps(b->sm->arrived), w->clock);
	chain_step(w, in, CHAIN_FENCE, NULL, 0);
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* Returns the time in ps to fetch the instruction; 0 if it is in the cache. */
static uint64_t fetch(struct sm *sm, const struct insn *in)
{
	uint32_t line = (uint32_t)(in - sm->block->k->code) * INSN_BYTES / T_code_line, i;
	uint32_t most = T_code_bytes / T_code_line;
	uint64_t wait = 0;

	if (sm->lines[line] || sm->time->all_code_cached)
		return 0;
	for (i = line; i < line + 2 && i * (T_code_line / INSN_BYTES) < sm->block->k->nr; i++) {
		if (sm->lines[i])
			continue;
		if (sm->nr == most) {
			sm->lines[sm->fifo[sm->first]] = 0;
			sm->first = (sm->first + 1) % most;
			sm->nr--;
		}
		sm->fifo[(sm->first + sm->nr++) % most] = i;
		sm->lines[i] = 1;
		wait = ns(T_code_load);
	}
	return wait;
}

/* Returns when the instruction's last operand is ready; *last is the operand's register. */
static when operands(const struct warp *w, const struct insn *in, slot *last)
{
	const slot from[] = {in->pred, in->a, in->b, in->c, in->e};
	when t = 0;
	size_t i;

	for (i = 0; i < DF_ARRAY_LEN(from); i++)
		if (from[i] >= 0 && w->ready[from[i]] > t)
			t = w->ready[ *last = from[i]];
	for (i = 0; in->base != P_LD && i < in->vec && i < 4; i++)
		if (in->v[i] >= 0 && w->ready[in->v[i]] > t)
			t = w->ready[ *last = in->v[i]];
	return t;
}

int time_starts(struct block *b, struct warp *w, const struct insn *in)
{
	struct sm *sm = b->sm;
	uint64_t *free_at = &sm->scheduler_free[w->first / LANES % SCHEDULERS];
	slot last = NOWHERE;
	when t = operands(w, in, &last);
	const struct chain_load *l = chain_load_of(w, last);

	wait_until(w, t);
	if (l)
		chain_step(w, in, l->kind, l->by, l->at);
	if (*free_at > when_ps(w->clock))
		w->clock = moment(*free_at, w->clock);
	if (when_ps(w->clock) > sm->time->until_ps)
		return 0;
	chain_step(w, in, CHAIN_RUN, NULL, 0);
	w->clock = later(w->clock, fetch(sm, in));
	chain_step(w, in, CHAIN_CODE, NULL, 0);
	/* A division occupies the scheduler: it is a call of many instructions. */
	*free_at = when_ps(w->clock) +
		   cycles(in->base == P_DIV || in->base == P_REM ? time_cycles(in) / 4 : 1);
	w->clock = later(w->clock, cycles(1));
	memset(&sm->access, 0, sizeof(sm->access));
	return 1;
}

/* Returns when the bytes have passed the multiprocessor's port and the GPU's link. */
static uint64_t passed(struct sm *sm, uint64_t ps, int stores)
{
	static const uint32_t rate[] = {T_l2_bytes_per_ns, T_hbm_bytes_per_ns, T_peer_bytes_per_ns,
					T_host_bytes_per_ns};
	const struct access *a = &sm->access;
	uint64_t *port = &sm->port_free[stores], *link = &sm->kernel->link_free[a->place];

	*port = (*port > ps ? *port : ps) +
		cycles((a->bytes[stores] + T_sm_bytes_per_cycle - 1) / T_sm_bytes_per_cycle);
	*link = (*link > ps ? *link : ps) + a->bytes[stores] * 1000ull / rate[a->place];
	return *port > *link ? *port : *link;
}

static void memory_ends(struct block *b, struct warp *w, const struct insn *in)
{
	static const uint32_t load[] = {T_l2_load, T_hbm_load, T_peer_load, T_host_load};
	static const uint32_t ack[] = {T_l2_ack, T_l2_ack, T_peer_ack, T_host_ack};
	struct sm *sm = b->sm;
	const struct access *a = &sm->access;
	when t, path = w->clock;
	struct chain_load from = {a->bytes[0] ? CHAIN_L2 + a->place : CHAIN_SHARED, a->by.by,
				  a->by.at};
	unsigned int i;

	if (a->bytes[1]) {
		t = moment(passed(sm, when_ps(w->clock), 1) + ns(ack[a->place]), w->clock);
		if (t > sm->arrived)
			sm->arrived = t;
	}
	if (in->base == P_ST)
		return;
	if (!a->bytes[0]) {
		t = later(w->clock, ns(T_shared_load));
	} else {
		/* The load saw a strong store: its path continues the path of that store. */
		if (a->word)
			path = seen(w, a->word);
		path += a->place == PTX_HOST;
		t = moment(passed(sm, when_ps(w->clock), 0) + ns(load[a->place]), path);
	}
	for (i = 0; i < in->vec && i < 4; i++) {
		if (in->v[i] >= 0)
			w->ready[in->v[i]] = t;
		chain_loaded(w, in->v[i], &from);
	}
	if (in->d >= 0)
		w->ready[in->d] = t;
	chain_loaded(w, in->d, &from);
	/* Instructions after an acquire start when the load has returned. */
	if (in->mods & M_ACQUIRE) {
		wait_until(w, t);
		chain_step(w, in, from.kind, from.by, from.at);
	}
}

void time_ends(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	static const struct chain_load result = {CHAIN_RESULT, NULL, 0};
	when t;
	unsigned int i;

	chain_step(w, in, CHAIN_RUN, NULL, 0);
	if (!mask)
		return;
	switch (in->base) {
	case P_LD:
	case P_ST:
	case P_ATOM:
		memory_ends(b, w, in);
		return;
	case P_BRA:
	case P_BRX:
		w->clock = later(w->clock, cycles(T_branch_cycles));
		chain_step(w, in, CHAIN_RUN, NULL, 0);
		return;
	case P_NANOSLEEP:
		w->clock = later(w->clock, ns(100));
		return;
	default:
		t = later(w->clock, cycles(time_cycles(in)));
		for (i = 0; in->base == P_UNPACK && i < in->vec && i < 4; i++) {
			if (in->v[i] >= 0)
				w->ready[in->v[i]] = t;
			chain_loaded(w, in->v[i], &result);
		}
		if (in->d >= 0)
			w->ready[in->d] = t;
		chain_loaded(w, in->d, &result);
		if (in->d2 >= 0)
			w->ready[in->d2] = t;
		chain_loaded(w, in->d2, &result);
	}
}

/* ---- warps, blocks, kernels ------------------------------------------------------------------ */

static void push_warp(struct block *b, struct warp *w)
{
	push(b->sm->time, (struct item){.at = w->clock, .kind = WARP, .b = b, .what = w});
}

static void block_ends(struct block *b)
{
	struct kernel *k = b->sm->kernel;

	if (!--k->left && k->l.ended)
		k->l.ended(k->l.arg, ptx_time_now(k->time));
}

static void meet(struct block *b)
{
	struct warp *last = NULL;
	const struct insn *in;
	when t, end = 0;
	unsigned int i;

	for (i = 0; i < b->nr_warps; i++)
		if (b->warps[i].live && (!last || b->warps[i].clock > end))
			end = (last = &b->warps[i])->clock;
	in = &b->k->code[last->pc[__builtin_ctz(last->live)] - 1];
	t = later(end, cycles(T_barrier_cycles));
	for (i = 0; i < b->nr_warps; i++) {
		if (!b->warps[i].live)
			continue;
		b->warps[i].clock = t;
		chain_step(&b->warps[i], in, CHAIN_MEET, last, when_ps(end));
		push_warp(b, &b->warps[i]);
	}
}

static void go_on(struct ptx_time *t, struct block *b, struct warp *w)
{
	t->until_ps = (t->nr && when_ps(t->heap[0].at) < when_ps(w->clock) + ns(100)
			       ? when_ps(t->heap[0].at)
			       : when_ps(w->clock) + ns(100)) +
		      SLACK_PS;
	ptx_warp_run(b, w, UINT32_MAX);
	if (b->run->trapped) {
		t->stop = 1;
		return;
	}
	if (w->live & ~w->at_barrier) {
		push_warp(b, w);
		return;
	}
	if (!w->live && !--b->sm->warps_left) {
		block_ends(b);
		return;
	}
	if (ptx_block_release(b))
		meet(b);
}

static void start(struct ptx_time *t, struct kernel *k)
{
	unsigned int i, j;

	for (i = 0; i < k->run.nr_blocks; i++) {
		struct block *b = k->blocks[i] = ptx_block_new(&k->run);
		struct sm *sm = calloc(1, sizeof(*sm));

		b->sm = sm;
		sm->time = t;
		sm->kernel = k;
		sm->block = b;
		sm->warps_left = b->nr_warps;
		sm->lines = calloc(b->k->nr * INSN_BYTES / T_code_line + 2, 1);
		sm->fifo = calloc(T_code_bytes / T_code_line, sizeof(*sm->fifo));
		ptx_block_start(b, i);
		for (j = 0; j < b->nr_warps; j++) {
			b->warps[j].clock = t->now;
			b->warps[j].ready = calloc(b->k->nr_regs + 1, sizeof(when));
			if (t->chains)
				chain_start(b, &b->warps[j]);
			push_warp(b, &b->warps[j]);
		}
	}
}

struct ptx_time *ptx_time_new(void)
{
	return calloc(1, sizeof(struct ptx_time));
}

double ptx_time_now(const struct ptx_time *t)
{
	return (double)when_ps(t->now) / 1000;
}

static void kernel_free(struct kernel *k)
{
	unsigned int i, j;

	for (i = 0; k->blocks && i < k->run.nr_blocks; i++) {
		struct block *b = k->blocks[i];

		if (!b)
			continue;
		for (j = 0; j < b->nr_warps; j++) {
			free(b->warps[j].ready);
			chain_free(&b->warps[j]);
		}
		free(b->sm->lines);
		free(b->sm->fifo);
		free(b->sm);
		ptx_block_free(b);
	}
	pthread_mutex_destroy(&k->run.lock);
	free(k->run.told);
	free(k->blocks);
	free(k);
}

void ptx_time_free(struct ptx_time *t)
{
	struct known_word *w, *next_w;
	struct newest *n, *next_n;
	struct kernel *k;

	while (t->nr) {
		struct item it = pop(t);

		if (it.kind == STORE)
			free(it.what);
	}
	HASH_ITER(hh, t->newest, n, next_n)
	{
		HASH_DEL(t->newest, n);
		free(n);
	}
	HASH_ITER(hh, t->words, w, next_w)
	{
		HASH_DEL(t->words, w);
		free(w);
	}
	while ((k = t->kernels)) {
		t->kernels = k->next;
		kernel_free(k);
	}
	free(t->watches);
	free(t->heap);
	free(t);
}

void ptx_time_launch(struct ptx_time *t, const struct ptx_launch *l, double at_ns)
{
	struct kernel *k = calloc(1, sizeof(*k));

	k->l = *l;
	k->time = t;
	k->run = (struct run){.l = &k->l, .k = l->kernel};
	k->run.nr_blocks = k->left = l->grid[0] * l->grid[1] * l->grid[2];
	k->run.told = calloc(l->kernel->nr + 1, 1);
	pthread_mutex_init(&k->run.lock, NULL);
	k->blocks = calloc(k->run.nr_blocks, sizeof(*k->blocks));
	k->next = t->kernels;
	t->kernels = k;
	push(t, (struct item){.at = moment((uint64_t)(at_ns * 1000), 0), .kind = START, .what = k});
}

void ptx_time_call(struct ptx_time *t, double at_ns, void (*fn)(void *arg, double now_ns),
		   void *arg)
{
	push(t, (struct item){.at = moment((uint64_t)(at_ns * 1000), 0),
			      .kind = CALL,
			      .what = arg,
			      .fn = fn});
}

void ptx_time_watch(struct ptx_time *t, const uint64_t *at, uint64_t value,
		    void (*fn)(void *arg, double now_ns, unsigned int reads), void *arg)
{
	if (DF_VEC_ROOM(t->watches, t->room_watches, t->nr_watches + 1))
		abort();
	t->watches[t->nr_watches++] = (struct watch){at, value, fn, arg};
}

void ptx_time_chains(struct ptx_time *t)
{
	t->chains = 1;
}

void ptx_time_chain(const struct ptx_time *t, FILE *f, double since_ns)
{
	if (t->chains && t->told)
		chain_print(f, t->told->by, t->told->stored, (uint64_t)(since_ns * 1000));
}

void ptx_time_stop(struct ptx_time *t)
{
	t->stop = 1;
}

void ptx_time_all_code_cached(struct ptx_time *t)
{
	t->all_code_cached = 1;
}

int ptx_time_run(struct ptx_time *t)
{
	const struct kernel *k;
	int faults = 0;

	while (t->nr && !t->stop) {
		struct item it = pop(t);

		if (it.at > t->now)
			t->now = it.at;
		switch (it.kind) {
		case WARP:
			go_on(t, it.b, it.what);
			break;
		case STORE:
			/* The store's path becomes the path of this moment. */
			t->now = moment(when_ps(t->now), it.at);
			arrived(t, it.what);
			break;
		case CALL:
			it.fn(it.what, ptx_time_now(t));
			break;
		case START:
			start(t, it.what);
		}
	}
	for (k = t->kernels; k; k = k->next)
		faults += k->run.faults;
	return faults;
}
