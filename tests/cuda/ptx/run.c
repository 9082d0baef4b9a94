/*
 * Blocks, warps, branches and barriers. Each thread of a warp has its own program counter. The
 * threads with the lowest one run together until they reach the position of other threads, so that
 * threads meet again after a branch. One time in 64 another group runs instead, so that a thread
 * that waits for another thread of its warp does not keep it from running.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "tests/cuda/ptx/mem.h"
#include "tests/cuda/ptx/time.h"

uint64_t ptx_draw(struct block *b)
{
	uint64_t z = b->rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

const char *ptx_where(const struct ptx_kernel *k, const struct insn *in, char *buf, size_t room)
{
	const struct ptx_module *m = k->module;
	const char *p = m->text, *end = m->text + m->len;
	uint32_t line = 1;
	size_t n = 0;

	while (p < end && line < in->line)
		line += *p++ == '\n';
	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	while (p + n < end && p[n] != '\n' && p[n] != ';')
		n++;
	if (in->file < m->nr_files && m->files[in->file])
		snprintf(buf, room, "`%.*s` (%s, %s:%u)", (int)n, p, k->name, m->files[in->file],
			 in->src_line);
	else
		snprintf(buf, room, "`%.*s` (%s, line %u of %s)", (int)n, p, k->name, in->line,
			 m->name);
	return buf;
}

static int stops(enum fault kind)
{
	return kind != F_RACE;
}

void ptx_fault(struct block *b, const struct insn *in, enum fault kind, const char *fmt, ...)
{
	struct run *r = b->run;
	char what[700], here[400], text[1200];
	va_list ap;
	int first;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&r->lock);
	first = !(r->told[in - b->k->code] >> kind & 1);
	r->told[in - b->k->code] |= (uint8_t)(1u << kind);
	r->faults += first;
	if (stops(kind))
		__atomic_store_n(&r->trapped, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&r->lock);
	if (!first)
		return;
	snprintf(text, sizeof(text), "block %u: %s, by %s", b->index, what,
		 ptx_where(b->k, in, here, sizeof(here)));
	if (r->l->fault)
		r->l->fault(r->l->arg, text);
	else
		fprintf(stderr, "ptx: %s\n", text);
}

static int over(const struct block *b)
{
	/* RELAXED: no data depends on these flags. */
	return __atomic_load_n(&b->run->trapped, __ATOMIC_RELAXED) ||
	       (b->run->l->stop && __atomic_load_n(b->run->l->stop, __ATOMIC_RELAXED));
}

/* ---- single instructions --------------------------------------------------------------------- */

static uint64_t special(struct block *b, const struct warp *w, const struct insn *in, int l)
{
	const struct ptx_launch *la = b->run->l;
	uint32_t t = w->first + (uint32_t)l;
	uint32_t lane = 1u << l;
	struct timespec now;

	switch (in->offset) {
	case X_TID:
		return t % la->block[0];
	case X_TID + 1:
		return t / la->block[0] % la->block[1];
	case X_TID + 2:
		return t / la->block[0] / la->block[1];
	case X_NTID:
	case X_NTID + 1:
	case X_NTID + 2:
		return la->block[in->offset - X_NTID];
	case X_CTAID:
	case X_CTAID + 1:
	case X_CTAID + 2:
		return b->ctaid[in->offset - X_CTAID];
	case X_NCTAID:
	case X_NCTAID + 1:
	case X_NCTAID + 2:
		return la->grid[in->offset - X_NCTAID];
	case X_LANEID:
		return (uint64_t)l;
	case X_WARPID:
		return t / LANES;
	case X_NWARPID:
		return b->nr_warps;
	case X_SMID:
		return b->index;
	case X_NSMID:
		return b->run->nr_blocks;
	case X_LANEMASK_EQ:
		return lane;
	case X_LANEMASK_LT:
		return lane - 1;
	case X_LANEMASK_LE:
		return lane | (lane - 1);
	case X_LANEMASK_GE:
		return (uint32_t) ~(lane - 1);
	case X_LANEMASK_GT:
		return (uint32_t) ~(lane | (lane - 1));
	default:
		if (b->sm)
			return when_ps(w->clock) / 1000;
		clock_gettime(CLOCK_MONOTONIC, &now);
		return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	}
}

static void specials(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	uint64_t *d = at(b, w, in->d);

	EACH(mask, d[l] = special(b, w, in, l));
	/* A thread that reads the clock usually waits for something: let other threads run. */
	if (!b->sm && (in->offset == X_CLOCK || in->offset == X_GLOBALTIMER))
		usleep(20);
}

static void vote(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *p = at(b, w, in->a);
	uint64_t *d = at(b, w, in->d);
	uint32_t yes = 0;

	EACH(mask, yes |= (uint32_t)(p[l] != 0) << l);
	EACH(mask, d[l] = in->mods & M_BALLOT ? yes
			  : in->mods & M_ALL  ? yes == mask
			  : in->mods & M_ANY  ? yes != 0
					      : yes == mask || yes == 0);
}

static void shuffle(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = at(b, w, in->b), *z = at(b, w, in->c);
	uint64_t *d = in->d == NOWHERE ? NULL : at(b, w, in->d), r[LANES];
	uint64_t *p = in->d2 == NOWHERE ? NULL : at(b, w, in->d2);
	uint8_t ok[LANES];

	EACH(mask, {
		int seg = (int)(z[l] >> 8 & 31), clamp = (int)(z[l] & 31), by = (int)(y[l] & 31);
		int most = (l & seg) | (clamp & ~seg), least = l & seg, from = l;

		if (in->mods & M_UP) {
			from = l - by;
			ok[l] = from >= most;
		} else if (in->mods & M_DOWN) {
			from = l + by;
			ok[l] = from <= most;
		} else if (in->mods & M_BFLY) {
			from = l ^ by;
			ok[l] = from <= most;
		} else {
			from = least | (by & ~seg);
			ok[l] = from <= most;
		}
		r[l] = (uint32_t)x[ok[l] ? from & 31 : l];
	});
	EACH(mask, {
		if (d)
			d[l] = r[l];
		if (p)
			p[l] = ok[l];
	});
}

/* ---- a warp ---------------------------------------------------------------------------------- */

/*
 * Returns the threads that run next. *pc is their position, *limit the next position at which there
 * are other threads.
 */
static uint32_t group(struct block *b, struct warp *w, uint32_t *pc, uint32_t *limit)
{
	uint32_t run = w->live & ~w->at_barrier & ~w->at_warpsync, mask = 0, least = UINT32_MAX;

	*limit = UINT32_MAX;
	EACH(run, {
		if (w->pc[l] < least)
			least = w->pc[l];
	});
	if (++w->picks % 64 == 0 && run) {
		/* Take the position of any thread. */
		uint32_t nr = (uint32_t)(ptx_draw(b) % (uint64_t)__builtin_popcount(run)), m = run;

		while (nr--)
			m &= m - 1;
		least = w->pc[__builtin_ctz(m)];
	}
	EACH(run, {
		if (w->pc[l] == least)
			mask |= 1u << l;
		else if (w->pc[l] > least && w->pc[l] < *limit)
			*limit = w->pc[l];
		/* Others are behind: look at them again after one instruction. */
		if (w->pc[l] < least)
			*limit = least + 1;
	});
	*pc = least;
	return mask;
}

/*
 * For an instruction at which the threads of a mask must meet. Returns whether all of them are
 * here, and then sets *mask to them.
 */
static int together(struct block *b, struct warp *w, const struct insn *in, uint32_t pc,
		    uint32_t *mask)
{
	slot s = in->base == P_WARPSYNC ? in->a : in->base == P_VOTE ? in->b : in->e;
	uint32_t need = (uint32_t)at(b, w, s)[__builtin_ctz(*mask)] & w->live;
	uint32_t here = *mask;

	EACH(w->at_warpsync, {
		if (w->pc[l] == pc)
			here |= 1u << l;
	});
	if ((here & need) != need) {
		EACH(*mask, w->pc[l] = pc);
		w->at_warpsync |= *mask;
		return 0;
	}
	w->at_warpsync &= ~here;
	*mask = here;
	return 1;
}

static void arrive(struct block *b, struct warp *w, const struct insn *in, uint32_t pc,
		   uint32_t mask)
{
	const uint64_t *id = at(b, w, in->a);

	EACH(mask, {
		w->pc[l] = pc;
		if (id[l])
			ptx_fault(b, in, F_UNKNOWN, "barrier %lu: only number 0 is known here",
				  (unsigned long)id[l]);
	});
	w->at_barrier |= mask;
	if (in->mods & M_RED) {
		const uint64_t *p = at(b, w, in->b);

		EACH(mask, {
			b->red_and &= p[l] != 0;
			b->red_or |= p[l] != 0;
			b->red_popc += p[l] != 0;
		});
	}
}

/*
 * Runs threads of the warp until all of them wait, or for `budget` instructions. Returns the number
 * of instructions.
 */
unsigned int ptx_warp_run(struct block *b, struct warp *w, unsigned int budget)
{
	const struct ptx_kernel *k = b->k;
	unsigned int ran = 0;

	while (ran < budget && !over(b)) {
		uint32_t pc, limit, mask = group(b, w, &pc, &limit);
		int alone;

		if (!mask)
			break;
		alone = mask == (w->live & ~w->at_barrier & ~w->at_warpsync);
		for (;;) {
			const struct insn *in = &k->code[pc];
			uint32_t m = mask;
			int stay = 1;

			if (pc >= k->nr) {
				w->live &= ~mask;
				break;
			}
			if (in->pred != NOWHERE) {
				const uint64_t *p = at(b, w, in->pred);

				m = 0;
				EACH(mask, m |= (uint32_t)((p[l] != 0) != in->not_if) << l);
			}
			if (b->sm && !time_starts(b, w, in)) {
				EACH(mask, w->pc[l] = pc);
				return ran;
			}
			ran++;
			if (!m) {
				pc++;
			} else {
				switch (in->base) {
				case P_LD:
				case P_ST:
				case P_ATOM:
				case P_SYMBOL:
					ptx_memory(b, w, in, m);
					pc++;
					break;
				case P_SPECIAL:
					specials(b, w, in, m);
					pc++;
					break;
				case P_ACTIVE: {
					uint64_t *d = at(b, w, in->d);

					EACH(m, d[l] = m);
					pc++;
					break;
				}
				case P_FENCE:
					ptx_fence(b, w, in, m);
					pc++;
					break;
				case P_NOTHING:
					pc++;
					break;
				case P_NANOSLEEP:
					if (!b->sm)
						usleep(20);
					pc++;
					break;
				case P_BRA:
					if (m == mask) {
						pc = (uint32_t)in->offset;
					} else {
						EACH(m, w->pc[l] = (uint32_t)in->offset);
						EACH(mask & ~m, w->pc[l] = pc + 1);
						stay = 0;
					}
					break;
				case P_BRX: {
					const uint64_t *x = at(b, w, in->a);

					EACH(mask & ~m, w->pc[l] = pc + 1);
					EACH(m, w->pc[l] = x[l] < in->nr_targets
								   ? (uint32_t)in->targets[x[l]]
								   : k->nr);
					stay = 0;
					break;
				}
				case P_RET:
					EACH(mask & ~m, w->pc[l] = pc + 1);
					w->live &= ~m;
					stay = 0;
					break;
				case P_BAR:
					EACH(mask & ~m, w->pc[l] = pc + 1);
					arrive(b, w, in, pc, m);
					stay = 0;
					break;
				case P_WARPSYNC:
				case P_VOTE:
				case P_SHFL:
					EACH(mask & ~m, w->pc[l] = pc + 1);
					stay = 0;
					if (!together(b, w, in, pc, &m))
						break;
					if (in->base == P_VOTE)
						vote(b, w, in, m);
					else if (in->base == P_SHFL)
						shuffle(b, w, in, m);
					else
						w->epoch++;
					EACH(m, w->pc[l] = pc + 1);
					break;
				case P_TRAP:
					ptx_fault(b, in, F_TRAP, "the kernel traps");
					pc++;
					break;
				default:
					if (!ptx_alu(b, w, in, m))
						ptx_fault(b, in, F_UNKNOWN,
							  "an instruction that the emulator does "
							  "not know");
					pc++;
				}
			}
			if (b->sm)
				time_ends(b, w, in, m);
			if (!stay)
				break;
			/*
			 * Other threads may be at this position, or behind it after a jump back:
			 * choose again.
			 */
			if (ran >= budget || (!alone && (pc >= limit || in->base == P_BRA)) ||
			    __atomic_load_n(&b->run->trapped, __ATOMIC_RELAXED)) {
				EACH(mask, w->pc[l] = pc);
				break;
			}
		}
	}
	return ran;
}

/* ---- a block --------------------------------------------------------------------------------- */

int ptx_block_release(struct block *b)
{
	uint32_t i, live = 0, gone = 0;
	const struct insn *in = NULL;

	for (i = 0; i < b->nr_warps; i++) {
		struct warp *w = &b->warps[i];
		uint32_t all = b->nr_threads - w->first >= LANES
				       ? UINT32_MAX
				       : (1u << (b->nr_threads - w->first)) - 1;

		if (w->at_barrier != w->live)
			return 0;
		live |= w->live;
		gone |= all & ~w->live;
	}
	if (!live)
		return 0;
	for (i = 0; i < b->nr_warps; i++) {
		struct warp *w = &b->warps[i];

		if (!w->live)
			continue;
		in = &b->k->code[w->pc[__builtin_ctz(w->live)]];
		EACH(w->live, {
			const struct insn *other = &b->k->code[w->pc[l]];

			if (other != in)
				ptx_fault(b, other, F_BARRIER,
					  "thread %u waits at another barrier than others of its "
					  "warp",
					  w->first + (uint32_t)l);
			if (other->mods & M_RED)
				at(b, w, other->d)[l] = other->mods & M_POPC ? (uint64_t)b->red_popc
							: other->mods & M_OR ? (uint64_t)b->red_or
									     : (uint64_t)b->red_and;
			w->pc[l]++;
		});
		w->at_barrier = 0;
	}
	if (gone)
		ptx_fault(b, in, F_BARRIER,
			  "a barrier is waited at after threads of the block have left");
	b->epoch++;
	b->acquires_at_barrier = b->acquires;
	b->red_and = 1;
	b->red_or = b->red_popc = 0;
	return 1;
}

static void run_block(struct block *b)
{
	uint32_t idle = 0;

	while (!over(b)) {
		uint32_t i, start = (uint32_t)(ptx_draw(b) % b->nr_warps), live = 0;
		unsigned int ran = 0;

		for (i = 0; i < b->nr_warps && !over(b); i++) {
			struct warp *w = &b->warps[(start + i) % b->nr_warps];
			uint64_t r = ptx_draw(b);

			/* Mostly many instructions, sometimes a few. */
			ran += ptx_warp_run(b, w, r % 8 ? 4000 : 1 + (unsigned int)(r >> 8) % 60);
			live |= w->live;
		}
		weak_step(b);
		if (!live)
			break;
		if (ran || ptx_block_release(b)) {
			/* Blocks that wait for one another may share a processor. */
			if (++idle % 64 == 0)
				sched_yield();
			continue;
		}
		for (i = 0; i < b->nr_warps; i++) {
			const struct warp *w = &b->warps[i];

			if (w->live & ~w->at_barrier) {
				ptx_fault(
					b,
					&b->k->code[w->pc[__builtin_ctz(w->live & ~w->at_barrier)]],
					F_BARRIER,
					"thread %u waits for threads of its warp that never arrive",
					w->first +
						(uint32_t)__builtin_ctz(w->live & ~w->at_barrier));
				break;
			}
		}
		if (i == b->nr_warps)
			break;
	}
}

/* Distance of tried addresses: more than the shared memory of a block. */
#define LOW_STEP  (1ul << 20)
#define LOW_FIRST (1ul << 28)
#define LOW_END	  (1ul << 31)

static void *map_at(uintptr_t at, size_t bytes)
{
	return mmap((void *)at, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED_NOREPLACE : 0),
		    -1, 0);
}

static void *map(size_t bytes, int low)
{
	void *p = low ? MAP_FAILED : map_at(0, bytes);
	uintptr_t at;

	/* Some instructions take addresses of shared memory with 32 bits. */
	for (at = LOW_FIRST; low && p == MAP_FAILED && at < LOW_END; at += LOW_STEP)
		p = map_at(at, bytes);
	if (p == MAP_FAILED) {
		perror("ptx: mmap");
		abort();
	}
	return p;
}

struct block *ptx_block_new(struct run *r)
{
	const struct ptx_launch *l = r->l;
	struct block *b = calloc(1, sizeof(*b));
	size_t regs = (size_t)r->k->nr_regs * LANES * sizeof(uint64_t) + 64, local;
	unsigned int i;

	b->run = r;
	b->k = r->k;
	b->nr_threads = l->block[0] * l->block[1] * l->block[2];
	b->nr_warps = (b->nr_threads + LANES - 1) / LANES;
	b->warps = calloc(b->nr_warps, sizeof(*b->warps));
	b->shared_bytes = (b->k->shared_bytes + 15) / 16 * 16 + l->dynamic_shared;
	b->shared = map(b->shared_bytes + 64, 1);
	local = b->k->local_bytes * b->nr_threads;
	b->local = local ? map(local, 0) : NULL;
	for (i = 0; i < b->nr_warps; i++)
		b->warps[i].regs = map(regs, 0);
	return b;
}

void ptx_block_free(struct block *b)
{
	size_t regs = (size_t)b->k->nr_regs * LANES * sizeof(uint64_t) + 64;
	unsigned int i;

	ptx_cells_free(b);
	free(b->waiting);
	for (i = 0; i < b->nr_warps; i++)
		munmap(b->warps[i].regs, regs);
	if (b->local)
		munmap(b->local, b->k->local_bytes * b->nr_threads);
	munmap(b->shared, b->shared_bytes + 64);
	free(b->warps);
	free(b);
}

void ptx_block_start(struct block *b, unsigned int index)
{
	const struct ptx_launch *l = b->run->l;
	unsigned int i;

	b->index = index;
	b->ctaid[0] = b->index % l->grid[0];
	b->ctaid[1] = b->index / l->grid[0] % l->grid[1];
	b->ctaid[2] = b->index / l->grid[0] / l->grid[1];
	b->epoch++;
	b->acquires_at_barrier = ++b->acquires;
	b->red_and = 1;
	b->red_or = b->red_popc = 0;
	b->rng = l->seed * 0x2545f4914f6cdd1dull + b->index;
	/* A GPU clears neither shared memory nor registers. */
	memset(b->shared, 0x5a, b->shared_bytes);
	for (i = 0; i < b->nr_warps; i++) {
		struct warp *w = &b->warps[i];
		uint64_t *keep = w->regs;
		uint32_t nr = b->nr_threads - i * LANES;

		memset(w, 0, sizeof(*w));
		w->regs = keep;
		w->first = i * LANES;
		w->epoch = 1;
		w->live = nr >= LANES ? UINT32_MAX : (1u << nr) - 1;
	}
}

static void *run_blocks(void *arg)
{
	struct run *r = arg;
	struct block *b = ptx_block_new(r);
	unsigned int index;

	while ((index = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED)) < r->nr_blocks &&
	       !over(b)) {
		ptx_block_start(b, index);
		run_block(b);
		weak_flush(b);
	}
	ptx_block_free(b);
	return NULL;
}

int ptx_run(const struct ptx_launch *l)
{
	struct run r = {.l = l, .k = l->kernel};
	unsigned int i, nr;
	pthread_t *threads;

	r.nr_blocks = l->grid[0] * l->grid[1] * l->grid[2];
	r.told = calloc(r.k->nr + 1, 1);
	pthread_mutex_init(&r.lock, NULL);
	nr = l->resident && l->resident < r.nr_blocks ? l->resident : r.nr_blocks;
	threads = calloc(nr + 1, sizeof(*threads));
	for (i = 0; i < nr; i++)
		pthread_create(&threads[i], NULL, run_blocks, &r);
	for (i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	free(r.told);
	pthread_mutex_destroy(&r.lock);
	return r.faults;
}
