/*
 * Makes the hashes of call sites. A hash covers module and offset of the hooked function's return
 * address, or the addresses of several frames (caller.c), and the lines of the Python program that
 * led there (script.c). The first call from a site also records the stack as SITE records.
 *
 * The table is open-addressed and only grows. A slot's key is claimed first and its hash published
 * later; a thread that finds a key without a hash computes the same hash again. Any thread. No
 * locks of ours; the search for the file of an address takes the loader's, once for each site.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "trace/record/caller.h"
#include "trace/record/module.h"
#include "trace/record/script.h"
#include "trace/record/trace_hash.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

#define NR_SITES   16384u
#define MAX_FRAMES 24
#define MAX_PROBES 16
#define TEXT_MAX   640

/* The place of a call: return addresses and a script's lines, both innermost first. */
struct place {
	const void *pcs[DF_CALLER_FRAMES];
	struct df_script_frame lines[DF_SCRIPT_FRAMES];
	unsigned nr_pcs, nr_lines;
};

static struct {
	_Atomic(uint64_t) key;
	/* number of records in the ring when the stack was last recorded */
	_Atomic(uint64_t) at;
	_Atomic(uint32_t) hash;
} sites[NR_SITES];

/* The call site that this thread's calls are recorded with; 0: the one that they have. */
static __thread uint32_t pretended __attribute__((tls_model("initial-exec")));

void df_trace_site_pretend(uint32_t site)
{
	pretended = site;
}

void df_site_preload(void)
{
	void *frame[1];

	backtrace(frame, 1);
	df_script_look();
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Writes module and symbol of an address as text. Returns the offset in the module. */
static uint64_t describe(const void *pc, char *buf, size_t size)
{
	Dl_info info;
	uint64_t at = (uint64_t)(uintptr_t)pc;

	if (!dladdr(pc, &info) || !info.dli_fname) {
		snprintf(buf, size, "?+0x%llx", (unsigned long long)at);
		return at;
	}
	if (info.dli_sname)
		snprintf(buf, size, "%s!%s+0x%llx", info.dli_fname, info.dli_sname,
			 (unsigned long long)(at - (uint64_t)(uintptr_t)info.dli_saddr));
	else
		snprintf(buf, size, "%s+0x%llx", info.dli_fname,
			 (unsigned long long)(at - (uint64_t)(uintptr_t)info.dli_fbase));
	return at - (uint64_t)(uintptr_t)info.dli_fbase;
}

static uint64_t pc_hash(const void *pc)
{
	struct df_module m;
	uint64_t h, off = (uint64_t)(uintptr_t)pc;

	if (df_module_of(pc, &m)) {
		off -= (uint64_t)m.start;
		h = df_hash64(m.name, strlen(m.name));
	} else {
		h = df_hash64("?", 1);
	}
	return df_mix64(h ^ off);
}

/*
 * Hashes the text of a line from the last component of its path on, because programs are in
 * different folders on different machines.
 */
static uint64_t line_hash(const struct df_script_frame *line)
{
	char text[TEXT_MAX];
	const char *name;

	if (!df_script_text(line, text, sizeof(text)))
		return 1;
	name = base_name(text);
	return df_hash64(name, strlen(name));
}

static uint32_t site_hash(const struct place *p)
{
	uint64_t h = pc_hash(p->pcs[0]);
	uint32_t low;

	for (unsigned i = 1; i < p->nr_pcs; i++)
		h = df_mix64(h) ^ pc_hash(p->pcs[i]);
	for (unsigned i = 0; i < p->nr_lines; i++)
		h = df_mix64(h) ^ line_hash(&p->lines[i]);
	low = (uint32_t)(h ^ (h >> 32));
	return low ? low : 1;
}

static void record_frame(uint32_t hash, int frame, uint64_t offset, const char *text)
{
	df_trace_text(text);
	df_trace(DF_REC_SITE, -1, 0, -1, hash, (uint64_t)frame, offset,
		 df_hash64(text, strlen(text)), 0);
}

/* Records the script's lines, then the frames from the call out to the interpreter. */
static void record_stack(const struct place *p, uint32_t hash)
{
	const void *pc = p->pcs[0];
	void *frames[MAX_FRAMES];
	char text[TEXT_MAX];
	int n = backtrace(frames, MAX_FRAMES), first = -1, nr = 0;

	for (unsigned i = 0; i < p->nr_lines; i++)
		if (df_script_text(&p->lines[i], text, sizeof(text)))
			record_frame(hash, nr++, 0, text);
	for (int i = 0; i < n; i++) {
		if (frames[i] == pc) {
			first = i;
			break;
		}
	}
	/*
	 * Without unwind tables the walk may miss the caller: then record only the return address.
	 */
	if (first < 0) {
		frames[0] = (void *)(uintptr_t)pc;
		first = 0;
		n = 1;
	}
	for (int i = first; i < n && !(nr && df_script_has(frames[i])); i++) {
		uint64_t off = describe(frames[i], text, sizeof(text));

		record_frame(hash, nr++, off, text);
	}
}

/* Returns the number of records that were appended to this ring until now. */
static uint64_t seen_by(const struct df_trace_header *h)
{
	return atomic_load_explicit((const _Atomic(uint64_t) *)&h->next, memory_order_relaxed);
}

static void describe_site(const struct place *p, uint32_t hash)
{
	int saved = errno;

	record_stack(p, hash);
	errno = saved;
}

/*
 * Records the stack again once half the ring has been written since, so that the ring always
 * contains it: a job may hang after days.
 */
static void keep_stack(uint32_t at, const struct place *p, uint32_t hash,
		       const struct df_trace_header *h)
{
	uint64_t next = seen_by(h),
		 last = atomic_load_explicit(&sites[at].at, memory_order_relaxed);

	if ((int64_t)(next - last) > (int64_t)(h->nr_recs / 2) &&
	    atomic_compare_exchange_strong_explicit(&sites[at].at, &last, next,
						    memory_order_relaxed, memory_order_relaxed))
		describe_site(p, hash);
}

static uint64_t key_of(const struct place *p)
{
	uint64_t key = (uint64_t)(uintptr_t)p->pcs[0];

	for (unsigned i = 1; i < p->nr_pcs; i++)
		key = df_mix64(key) ^ (uint64_t)(uintptr_t)p->pcs[i];
	for (unsigned i = 0; i < p->nr_lines; i++)
		key = df_mix64(key) ^
		      (p->lines[i].id + p->lines[i].at + (uint64_t)p->lines[i].backward);
	return key;
}

/*
 * Returns the site of the place `p`, whose return addresses are set. Adds the script's lines
 * itself.
 */
static uint32_t site_of(struct place *p)
{
	const struct df_trace_header *h = df_trace_ring();
	uint32_t at, hash;
	uint64_t key;

	if (!h || !p->nr_pcs)
		return 0;
	p->nr_lines = df_script_frames(p->lines);
	key = key_of(p);
	at = (uint32_t)df_mix64(key) & (NR_SITES - 1);
	for (int probe = 0; probe < MAX_PROBES; probe++, at = (at + 1) & (NR_SITES - 1)) {
		uint64_t seen = atomic_load_explicit(&sites[at].key, memory_order_relaxed);

		if (seen == key) {
			hash = atomic_load_explicit(&sites[at].hash, memory_order_relaxed);
			if (!hash)
				return site_hash(p);
			keep_stack(at, p, hash, h);
			return hash;
		}
		if (seen)
			continue;
		if (!atomic_compare_exchange_strong_explicit(&sites[at].key, &seen, key,
							     memory_order_relaxed,
							     memory_order_relaxed)) {
			if (seen == key)
				return site_hash(p);
			continue;
		}
		/* The interpreter may have been loaded since the last look. */
		df_script_look();
		hash = site_hash(p);
		atomic_store_explicit(&sites[at].at, seen_by(h), memory_order_relaxed);
		describe_site(p, hash);
		atomic_store_explicit(&sites[at].hash, hash, memory_order_relaxed);
		return hash;
	}
	/* The table is full: use only the address, which is fast to hash. */
	p->nr_lines = 0;
	return site_hash(p);
}

uint32_t df_trace_site(const void *pc)
{
	struct place p;

	if (pretended)
		return pretended;
	/* Not initialised, because clearing the rest costs as much as the lookup. */
	p.pcs[0] = pc;
	p.nr_pcs = pc != NULL;
	return site_of(&p);
}

/* Not inlined, because the walk begins at this function's frame. */
__attribute__((noinline)) uint32_t df_trace_caller(void)
{
	struct place p;

	if (pretended)
		return pretended;
	p.nr_pcs = df_trace_ring() ? df_callers(__builtin_dwarf_cfa(), p.pcs) : 0;
	return site_of(&p);
}

/* Stacks that were given as text: hash, and position of the ring when they were recorded. */
#define NR_TEXTS 64
static struct {
	uint32_t hash;
	uint64_t at;
} texts[NR_TEXTS];

uint32_t df_trace_site_text(const char *const *frames, size_t nr)
{
	const struct df_trace_header *ring = df_trace_ring();
	uint64_t h = 0, now = ring ? seen_by(ring) : 0;
	uint32_t hash;
	size_t i;

	if (!ring || !nr)
		return 0;
	for (i = 0; i < nr; i++)
		h = df_mix64(h ^ df_hash64(frames[i], strlen(frames[i])));
	hash = (uint32_t)(h ^ (h >> 32));
	hash = hash ? hash : 1;
	/* Recorded recently, so the ring still contains the stack. */
	if (texts[hash % NR_TEXTS].hash == hash &&
	    now - texts[hash % NR_TEXTS].at < ring->nr_recs / 2)
		return hash;
	for (i = 0; i < nr; i++) {
		df_trace_text(frames[i]);
		df_trace(DF_REC_SITE, -1, 0, -1, hash, i, 0,
			 df_hash64(frames[i], strlen(frames[i])), 0);
	}
	texts[hash % NR_TEXTS].hash = hash;
	texts[hash % NR_TEXTS].at = now;
	return hash;
}

uint32_t df_trace_site_stack(const char *stack)
{
	const char *frames[MAX_FRAMES];
	char *copy = strdup(stack), *at = copy, *end;
	size_t nr = 0;
	uint32_t site;

	for (; at && *at && nr < MAX_FRAMES; at = end ? end + strlen(DF_STACK_SEP) : NULL) {
		end = strstr(at, DF_STACK_SEP);
		if (end)
			*end = '\0';
		frames[nr++] = at;
	}
	site = df_trace_site_text(frames, nr);
	free(copy);
	return site;
}
