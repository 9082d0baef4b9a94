/*
 * Finds the callers of a function from what is known of their frames. The distance on the stack
 * from one return address to the next is constant, except in functions whose frames vary (alloca(),
 * or locals that need more alignment than the stack has). The first walk of the unwinder, which
 * takes some microseconds, stores these distances in a table. The next call from the same place
 * only reads return addresses. The result is accepted only if every address on the way is in the
 * table: after a frame of another size, the walk would find some other word. It stops at a frame
 * that has been seen with two sizes.
 *
 * Only on x86-64 is a return address at the end of its caller's frame. On other machines it is
 * elsewhere in a frame: there the unwinder walks each time, always to the same depth.
 *
 * The table is open-addressed and only grows. An address is claimed first, and its properties are
 * published later; a thread that finds an address without them walks the stack itself. Any thread.
 * No locks of ours; the search for the file of an address takes the loader's, once for each.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unwind.h>
#include "runtime/base/hash.h"
#include "trace/record/caller.h"
#include "trace/record/module.h"

#ifdef __x86_64__
#define HAS_STEPS 1 /* distances between return addresses can be known */
#else
#define HAS_STEPS 0
#endif

#define NR_FRAMES  2048u
#define MAX_PROBES 16
/* maximum number of frames, of libraries, of dfshim and of the application */
#define MAX_DEPTH 24u

/* Properties of a return address, as bits of a word; 0 means that none are known. */
#define KNOWN	1u
#define LIBRARY 2u /* the address is in dfshim, CUDA or NCCL */
/* the distance to the next return address is unknown or differs between calls */
#define VARIES 4u
/* the bits from here on: distance to the next return address, in words of the stack */
#define STEP_AT	 3
#define STEP_MAX 8192u

static struct {
	_Atomic(const void *) pc;
	_Atomic(uint32_t) known;
} frames[NR_FRAMES];

/*
 * The highest address of this thread's stack that the unwinder has reached. follow() reads nothing
 * beyond it.
 */
static __thread const void *const *top __attribute__((tls_model("initial-exec")));

/*
 * Returns the table's word for an address, or NULL if the address is not in the table. If `claim`,
 * adds the address unless the table is full.
 */
static _Atomic(uint32_t) *known_of(const void *pc, int claim)
{
	uint32_t at = (uint32_t)df_mix64((uint64_t)(uintptr_t)pc) & (NR_FRAMES - 1);

	for (int probe = 0; probe < MAX_PROBES; probe++, at = (at + 1) & (NR_FRAMES - 1)) {
		const void *seen = atomic_load_explicit(&frames[at].pc, memory_order_relaxed);

		if (!seen && claim &&
		    atomic_compare_exchange_strong_explicit(
			    &frames[at].pc, &seen, pc, memory_order_relaxed, memory_order_relaxed))
			return &frames[at].known;
		if (seen == pc)
			return &frames[at].known;
		if (!seen)
			return NULL;
	}
	return NULL;
}

static int in_library(const void *pc)
{
	static const char *const names[] = {"libdfshim.so", "libdfhost.so",
					    "libcuda.so",   "libcudart.so",
					    "libnccl.so",   "libnccl-profiler-dfshim.so"};
	struct df_module m;

	if (!df_module_of(pc, &m))
		return 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(m.name, names[i], strlen(names[i])))
			return 1;
	return 0;
}

/* ---- the walk -------------------------------------------------------------------------------- */

struct walk {
	uintptr_t from; /* canonical frame address of the function whose callers are wanted */
	unsigned nr, nr_app;
	int stopped; /* whether there may be more frames after the last one */
	struct {
		const void *pc;
		const void *const *slot; /* address of the return address on the stack */
		uint32_t known;
	} frame[MAX_DEPTH];
};

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *arg)
{
	struct walk *w = arg;
	uintptr_t cfa = _Unwind_GetCFA(context);
	const void *pc = (const void *)_Unwind_GetIP(context);
	_Atomic(uint32_t) *k;

	if (!pc || (!w->nr && cfa != w->from))
		return _URC_NO_REASON;
	k = known_of(pc, 0);
	w->frame[w->nr].pc = pc;
	w->frame[w->nr].slot = (const void *const *)cfa - 1;
	w->frame[w->nr].known = k ? atomic_load_explicit(k, memory_order_relaxed) : 0;
	if (!w->frame[w->nr].known)
		w->frame[w->nr].known = KNOWN | (in_library(pc) ? LIBRARY : 0);
	w->nr_app += !(w->frame[w->nr].known & LIBRARY);
	/* Take one frame more than is returned, to know the distance to it. */
	w->stopped = ++w->nr == MAX_DEPTH || w->nr_app > DF_CALLER_FRAMES;
	return w->stopped ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

/*
 * Returns the distance from frame i to the next, in the bits at STEP_AT, or VARIES if it is
 * unknown.
 */
static uint32_t distance(const struct walk *w, unsigned i)
{
#if HAS_STEPS
	const void *const *a = w->frame[i].slot;
	const void *const *b = i + 1 < w->nr ? w->frame[i + 1].slot : NULL;

	if (b && *a == w->frame[i].pc && *b == w->frame[i + 1].pc && b > a && b - a < STEP_MAX)
		return (uint32_t)(b - a) << STEP_AT;
	return VARIES;
#else
	(void)w;
	(void)i;
	return 0;
#endif
}

static void learn(struct walk *w)
{
	uint32_t seen, next;
	_Atomic(uint32_t) *k;

	for (unsigned i = 0; i + (unsigned)w->stopped < w->nr; i++) {
		k = known_of(w->frame[i].pc, 1);
		if (!k)
			continue;
		seen = atomic_load_explicit(k, memory_order_relaxed);
		next = (w->frame[i].known & (KNOWN | LIBRARY)) | distance(w, i);
		if (seen && seen != next)
			next = (next & (KNOWN | LIBRARY)) | VARIES;
		w->frame[i].known = next;
		atomic_store_explicit(k, next, memory_order_relaxed);
	}
	if (w->nr && w->frame[w->nr - 1].slot > top)
		top = w->frame[w->nr - 1].slot;
}

static unsigned walk(uintptr_t from, const void **pcs)
{
	struct walk w = {.from = from};
	unsigned nr = 0;

	_Unwind_Backtrace(step, &w);
	learn(&w);
	for (unsigned i = 0; i < w.nr && nr < DF_CALLER_FRAMES; i++) {
		if (!(w.frame[i].known & LIBRARY))
			pcs[nr++] = w.frame[i].pc;
		/*
		 * Stop where follow() would stop: a site must not depend on how its callers were
		 * found.
		 */
		if (nr && (w.frame[i].known & VARIES))
			break;
	}
	return nr;
}

/* ---- the short way --------------------------------------------------------------------------- */

#if HAS_STEPS
/*
 * Finds the callers from the table alone. Returns their number, or 0 if the table does not suffice.
 * Reads the stack directly, which sanitizers would report.
 */
__attribute__((no_sanitize("address", "thread", "undefined"))) static unsigned
follow(const void *const *slot, const void **pcs)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < MAX_DEPTH && slot <= top; i++) {
		_Atomic(uint32_t) *k = known_of(*slot, 0);
		uint32_t known = k ? atomic_load_explicit(k, memory_order_relaxed) : 0;

		if (!known)
			return 0;
		if (!(known & LIBRARY)) {
			pcs[nr++] = *slot;
			if (nr == DF_CALLER_FRAMES || (known & VARIES))
				return nr;
		} else if (known & VARIES) {
			return 0;
		}
		slot += known >> STEP_AT;
	}
	return 0;
}
#endif

unsigned df_callers(const void *from, const void *pcs[DF_CALLER_FRAMES])
{
	unsigned nr = 0;

#if HAS_STEPS
	nr = follow((const void *const *)from - 1, pcs);
#endif
	return nr ? nr : walk((uintptr_t)from, pcs);
}
