/*
 * Loads, stores and atomics, lane by lane. Checks that the memory may be accessed, its alignment,
 * and races between the threads of a block.
 *
 * A race: two threads access the same byte between two barriers, at least one of them writes, and
 * at least one access is plain (not relaxed, acquire, release or atomic). Races are checked in
 * shared and in global memory, in cells of four bytes. Accesses of other blocks and of the CPU are
 * not checked here. Weak memory (weak.c) shows whether these are ordered by enough releases and
 * acquires.
 */
#include <stdlib.h>
#include <string.h>
#include "tests/cuda/ptx/mem.h"
#include "tests/cuda/ptx/time.h"

void ptx_cells_free(struct block *b)
{
	struct page *p, *t;

	weak_flush(b);
	HASH_ITER(hh, b->pages, p, t)
	{
		HASH_DEL(b->pages, p);
		free(p);
	}
	b->nr_pages = 0;
	b->last_page = NULL;
	free(b->shared_cells);
	b->shared_cells = NULL;
}

struct page *mem_page(struct block *b, uintptr_t a)
{
	uintptr_t at = a & ~(uintptr_t)(PAGE - 1);
	struct page *p = b->last_page;

	if (p && p->at == at)
		return p;
	HASH_FIND(hh, b->pages, &at, sizeof(at), p);
	if (!p) {
		if (b->nr_pages == MAX_PAGES) {
			struct cell *keep = b->shared_cells;

			b->shared_cells = NULL;
			ptx_cells_free(b);
			b->shared_cells = keep;
		}
		p = calloc(1, sizeof(*p));
		p->at = at;
		HASH_ADD(hh, b->pages, at, sizeof(p->at), p);
		b->nr_pages++;
	}
	return b->last_page = p;
}

static struct cell *cell_of(struct block *b, uintptr_t a)
{
	if (a - (uintptr_t)b->shared < b->shared_bytes) {
		if (!b->shared_cells)
			b->shared_cells = calloc(b->shared_bytes / 4 + 1, sizeof(struct cell));
		return &b->shared_cells[(a - (uintptr_t)b->shared) / 4];
	}
	return &mem_page(b, a)->cells[(a & (PAGE - 1)) / 4];
}

/* Whether a barrier of the block or of the warp lies between the access `t` and the present one. */
static int ordered(const struct block *b, const struct touch *t, const struct who *me)
{
	if (t->epoch != b->epoch)
		return 1;
	if (t->flags & WARPS)
		return 0;
	return (t->thread == me->thread && !(t->flags & MANY)) ||
	       (t->thread / LANES == me->thread / LANES && t->sub != me->w->epoch);
}

static void race(struct block *b, const struct touch *t, const char *did, const struct who *me,
		 const char *does, uintptr_t at)
{
	char here[400];

	/* ptx_fault() names this thread's instruction, the text the other thread's. */
	ptx_fault(b, me->in, F_RACE,
		  "race in %s memory at %#lx: thread %u %s what thread %u %s by %s",
		  at - (uintptr_t)b->shared < b->shared_bytes ? "shared" : "global",
		  (unsigned long)at, me->thread, does, t->thread, did,
		  ptx_where(b->k, &b->k->code[t->insn], here, sizeof(here)));
}

static void touch(struct block *b, const struct who *me, uintptr_t at, unsigned int bytes,
		  int writes)
{
	while (bytes) {
		unsigned int n = 4 - (at & 3) < bytes ? 4 - (unsigned int)(at & 3) : bytes;
		uint8_t bits = (uint8_t)(((1u << n) - 1) << (at & 3));
		struct cell *c = cell_of(b, at);
		struct touch *t;

		if (c->write.bytes & bits && !ordered(b, &c->write, me) &&
		    !(me->strong && c->write.flags & STRONG))
			race(b, &c->write, "writes", me, writes ? "writes" : "reads", at);
		if (writes && c->read.bytes & bits && !ordered(b, &c->read, me) &&
		    !(me->strong && c->read.flags & STRONG))
			race(b, &c->read, "reads", me, "writes", at);
		t = writes ? &c->write : &c->read;
		/*
		 * A cell holds one read. A reader of other bytes replaces it, so every report is
		 * true, but some races are missed.
		 */
		if (t->epoch == b->epoch && t->sub == me->w->epoch && !writes && t->bytes & bits &&
		    (t->thread != me->thread || t->flags & MANY)) {
			/* Keep one of the readers, and that there are several. */
			if (!me->strong)
				t->flags &= (uint8_t)~STRONG;
			t->flags |= t->thread / LANES == me->thread / LANES ? MANY : MANY | WARPS;
			t->bytes |= bits;
		} else {
			*t = (struct touch){
				.epoch = b->epoch,
				.sub = me->w->epoch,
				.insn = (uint32_t)(me->in - b->k->code),
				.thread = (uint16_t)me->thread,
				.bytes = (uint8_t)((t->epoch == b->epoch && t->thread == me->thread
							    ? t->bytes
							    : 0) |
						   bits),
				.flags = me->strong ? STRONG : 0};
		}
		at += n;
		bytes -= n;
	}
}

/* A kernel may also access the variables of its module. */
static int in_module(const struct block *b, uintptr_t at, unsigned int bytes)
{
	return at - (uintptr_t)b->k->module->memory < b->k->module->bytes &&
	       at + bytes - (uintptr_t)b->k->module->memory <= b->k->module->bytes;
}

static int in_local(const struct block *b, uint32_t thread, uintptr_t at, unsigned int bytes)
{
	uintptr_t from = (uintptr_t)b->local + thread * b->k->local_bytes;

	return b->k->local_bytes && at - from < b->k->local_bytes &&
	       at + bytes - from <= b->k->local_bytes;
}

static int known(struct block *b, uintptr_t at, unsigned int bytes)
{
	const struct ptx_launch *l = b->run->l;
	uint64_t now;

	if (!l->known)
		return 1;
	/*
	 * ACQUIRE pairs with the RELEASE by which the owner of the memory changes the number.
	 * Without it, an earlier answer could be about memory that is freed.
	 */
	now = l->generation ? __atomic_load_n(l->generation, __ATOMIC_ACQUIRE) : 0;
	if (now == b->generation && at >= b->from && at + bytes <= b->to)
		return 1;
	b->generation = now;
	b->from = b->to = 0;
	return l->known(l->arg, at, bytes, &b->from, &b->to);
}

/* Whether the thread may access these bytes. If not, the fault is reported and the kernel ends. */
static int allowed(struct block *b, const struct who *me, uintptr_t at, unsigned int bytes,
		   int writes)
{
	const struct insn *in = me->in;
	const char *does = writes ? "writes" : "reads";
	int shared = at - (uintptr_t)b->shared < b->shared_bytes;

	if (at & (bytes - 1)) {
		ptx_fault(b, in, F_ALIGN,
			  "thread %u %s %u bytes at %#lx, which is not a multiple of that",
			  me->thread, does, bytes, (unsigned long)at);
		return 0;
	}
	if (in->space == S_PARAM && !writes)
		return 1;
	if (shared && at + bytes - (uintptr_t)b->shared <= b->shared_bytes &&
	    (in->space == S_SHARED || in->space == S_GENERIC)) {
		if (!b->sm)
			touch(b, me, at, bytes, writes);
		return 1;
	}
	if (in_local(b, me->thread, at, bytes) && (in->space == S_LOCAL || in->space == S_GENERIC))
		return 1;
	if (!shared && in->space != S_SHARED && in->space != S_LOCAL &&
	    (in_module(b, at, bytes) || known(b, at, bytes))) {
		if (b->run->l->touched)
			b->run->l->touched(b->run->l->arg, at, bytes, writes);
		if (!b->sm)
			touch(b, me, at, bytes, writes);
		return 1;
	}
	ptx_fault(b, in, F_ADDRESS,
		  "thread %u %s %u bytes at %#lx, which the device does not know%s", me->thread,
		  does, bytes, (unsigned long)at,
		  in->space == S_SHARED	 ? " as shared memory"
		  : in->space == S_LOCAL ? " as the thread's own"
					 : "");
	return 0;
}

uint64_t mem_load(uintptr_t at, unsigned int bytes)
{
	/*
	 * ACQUIRE, whatever the instruction says. It pairs with the RELEASE of mem_store() in other
	 * blocks, and with releases of CPU threads. So the emulator does not show that a weaker
	 * load is enough on a GPU; weak.c does.
	 */
	switch (bytes) {
	case 1:
		return __atomic_load_n((const uint8_t *)at, __ATOMIC_ACQUIRE);
	case 2:
		return __atomic_load_n((const uint16_t *)at, __ATOMIC_ACQUIRE);
	case 4:
		return __atomic_load_n((const uint32_t *)at, __ATOMIC_ACQUIRE);
	default:
		return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
	}
}

void mem_store(uintptr_t at, unsigned int bytes, uint64_t v)
{
	/*
	 * RELEASE pairs with the ACQUIRE of mem_load() in other blocks and with loads of CPU
	 * threads.
	 */
	switch (bytes) {
	case 1:
		__atomic_store_n((uint8_t *)at, (uint8_t)v, __ATOMIC_RELEASE);
		break;
	case 2:
		__atomic_store_n((uint16_t *)at, (uint16_t)v, __ATOMIC_RELEASE);
		break;
	case 4:
		__atomic_store_n((uint32_t *)at, (uint32_t)v, __ATOMIC_RELEASE);
		break;
	default:
		__atomic_store_n((uint64_t *)at, v, __ATOMIC_RELEASE);
	}
}

/* Returns what an atomic operation stores, given the old value and the operands. */
static uint64_t changed(const struct insn *in, uint64_t old, uint64_t v, uint64_t by)
{
	int is_signed = in->type == T_S32 || in->type == T_S64;
	int64_t a = in->type == T_S32 ? (int32_t)old : (int64_t)old;
	int64_t c = in->type == T_S32 ? (int32_t)v : (int64_t)v;
	int less = is_signed ? c < a : v < old;

	if (in->mods & M_ADD) {
		if (in->type == T_F32) {
			float x, y;

			memcpy(&x, &old, 4);
			memcpy(&y, &v, 4);
			x += y;
			old = 0;
			memcpy(&old, &x, 4);
			return old;
		}
		if (in->type == T_F64) {
			double x, y;

			memcpy(&x, &old, 8);
			memcpy(&y, &v, 8);
			x += y;
			memcpy(&old, &x, 8);
			return old;
		}
		return old + v;
	}
	if (in->mods & M_AND)
		return old & v;
	if (in->mods & M_OR)
		return old | v;
	if (in->mods & M_XOR)
		return old ^ v;
	if (in->mods & M_EXCH)
		return v;
	if (in->mods & M_CAS)
		return old == v ? by : old;
	if (in->mods & M_MIN)
		return less ? v : old;
	if (in->mods & M_MAX)
		return less ? old : v;
	if (in->mods & M_INC)
		return old >= v ? 0 : old + 1;
	return old == 0 || old > v ? v : old - 1; /* M_DEC */
}

static uint64_t atomic(const struct insn *in, uintptr_t at, uint64_t v, uint64_t by)
{
	if (ptx_type_bytes(in->type) == 8) {
		uint64_t *p = (uint64_t *)at, old = __atomic_load_n(p, __ATOMIC_ACQUIRE);

		/* SEQ_CST is the strongest order that an instruction can ask for. */
		while (!__atomic_compare_exchange_n(p, &old, changed(in, old, v, by), 0,
						    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			;
		return old;
	}
	{
		uint32_t *p = (uint32_t *)at, old = __atomic_load_n(p, __ATOMIC_ACQUIRE);

		while (!__atomic_compare_exchange_n(
			p, &old, (uint32_t)changed(in, old, (uint32_t)v, (uint32_t)by), 0,
			__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			;
		return old;
	}
}

static uintptr_t base_of(const struct block *b, const struct insn *in, uint32_t thread)
{
	switch (in->space) {
	case S_PARAM:
		return (uintptr_t)b->run->l->params;
	case S_SHARED:
		return (uintptr_t)b->shared;
	case S_LOCAL:
		return (uintptr_t)b->local + thread * b->k->local_bytes;
	default:
		return 0;
	}
}

static void fenced(const struct block *b)
{
	if (b->run->l->fenced)
		b->run->l->fenced(b->run->l->arg);
}

void ptx_memory(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *a = in->a == NOWHERE ? NULL : at(b, w, in->a);
	unsigned int bytes = ptx_type_bytes(in->type), i;
	uint32_t m = mask;
	int weak = b->run->l->weak, global;

	if (b->sm && in->mods & M_RELEASE)
		time_fence(b, w, in);

	if (in->mods & M_RELEASE)
		fenced(b);
	if (in->base == P_SYMBOL) {
		uint64_t *d = at(b, w, in->d);

		EACH(mask, d[l] = base_of(b, in, w->first + (uint32_t)l) + (uint64_t)in->offset);
		return;
	}
	for (; m; m &= m - 1) {
		int l = __builtin_ctz(m);
		struct who me = {in, w, w->first + (uint32_t)l,
				 in->base == P_ATOM || in->mods & M_STRONG};
		uintptr_t where = (a ? a[l] : base_of(b, in, me.thread)) + (uintptr_t)in->offset;

		if (!allowed(b, &me, where, bytes * in->vec, in->base != P_LD))
			return;
		if (in->base == P_ATOM) {
			uint64_t old;

			if (weak)
				weak_atomic(b, &me, where);
			if (b->sm && where - (uintptr_t)b->shared >= b->shared_bytes)
				time_atomic(b, where, bytes);
			old = atomic(in, where, at(b, w, in->b)[l],
				     in->c == NOWHERE ? 0 : at(b, w, in->c)[l]);
			if (weak && in->mods & M_ACQUIRE)
				weak_acquire(b, &me);
			if (in->d != NOWHERE)
				at(b, w, in->d)[l] = old;
			continue;
		}
		/* The block's own memory is never stale: only global memory needs the models. */
		global = (weak || b->sm) && where - (uintptr_t)b->shared >= b->shared_bytes &&
			 !in_local(b, me.thread, where, bytes) && in->space != S_PARAM;
		for (i = 0; i < in->vec; i++) {
			uint64_t *v = in->v[i] == NOWHERE ? NULL : at(b, w, in->v[i]);
			uintptr_t p = where + i * bytes;
			uint64_t x;

			if (in->base == P_ST) {
				if (global && b->sm)
					time_store(b, w, in, p, bytes, v[l]);
				else if (global)
					weak_store(b, &me, p, bytes, v[l]);
				else
					mem_store(p, bytes, v[l]);
				continue;
			}
			x = !global ? mem_load(p, bytes)
			    : b->sm ? time_load(b, w, in, p, bytes)
				    : weak_load(b, &me, p, bytes);
			if (in->type == T_S8)
				x = (uint32_t)(int32_t)(int8_t)x;
			if (v)
				v[l] = x;
		}
	}
}

void ptx_fence(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	fenced(b);
	/* SEQ_CST is the strongest order that a fence can ask for. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (b->sm)
		time_fence(b, w, in);
	if (!b->run->l->weak)
		return;
	EACH(mask, {
		struct who me = {in, w, w->first + (uint32_t)l, 1};

		weak_release(b, me.thread);
		weak_acquire(b, &me);
	});
}
