/*
 * Call sites: the hash of (module, offset) of the hooked function's return address, and, with the first
 * call from there, the stack as SITE records.
 *
 * The table is open-addressed and only grows; a slot's address is claimed first and its hash published
 * after, and who finds an address without a hash computes the same hash again. Threads: any. Locks: none
 * of ours; dladdr() takes the loader's lock, once per site.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "trace/hash.h"
#include "trace/site.h"
#include "trace/writer.h"

#define NR_SITES   4096u
#define MAX_FRAMES 24
#define MAX_PROBES 16

static struct {
	_Atomic(const void *) pc;
	_Atomic(uint32_t) hash;
} sites[NR_SITES];

void df_site_preload(void)
{
	void *frame[1];

	backtrace(frame, 1);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Module and symbol of an address as text; returns the offset in the module. */
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

static uint32_t site_hash(const void *pc)
{
	Dl_info info;
	uint64_t h, off = (uint64_t)(uintptr_t)pc;
	uint32_t low;

	if (dladdr(pc, &info) && info.dli_fname) {
		const char *name = base_name(info.dli_fname);

		off -= (uint64_t)(uintptr_t)info.dli_fbase;
		h = df_hash64(name, strlen(name));
	} else {
		h = df_hash64("?", 1);
	}
	h = df_mix64(h ^ off);
	low = (uint32_t)(h ^ (h >> 32));
	return low ? low : 1;
}

static void record_stack(const void *pc, uint32_t hash)
{
	void *frames[MAX_FRAMES];
	char text[512];
	int n = backtrace(frames, MAX_FRAMES), first = -1;

	for (int i = 0; i < n; i++) {
		if (frames[i] == pc) {
			first = i;
			break;
		}
	}
	/* Without unwind tables the walk may miss the caller: then the return address alone. */
	if (first < 0) {
		frames[0] = (void *)(uintptr_t)pc;
		first = 0;
		n = 1;
	}
	for (int i = first; i < n; i++) {
		uint64_t off = describe(frames[i], text, sizeof(text));

		df_trace_text(text);
		df_trace(DF_REC_SITE, -1, 0, -1, hash, (uint64_t)(i - first), off,
			 df_hash64(text, strlen(text)), 0);
	}
}

uint32_t df_trace_site(const void *pc)
{
	uint32_t at = (uint32_t)df_mix64((uint64_t)(uintptr_t)pc) & (NR_SITES - 1), hash;
	int saved;

	if (!pc || !df_trace_ring())
		return 0;
	for (int probe = 0; probe < MAX_PROBES; probe++, at = (at + 1) & (NR_SITES - 1)) {
		const void *seen = atomic_load_explicit(&sites[at].pc, memory_order_relaxed);

		if (seen == pc) {
			hash = atomic_load_explicit(&sites[at].hash, memory_order_relaxed);
			return hash ? hash : site_hash(pc);
		}
		if (seen)
			continue;
		if (!atomic_compare_exchange_strong_explicit(
			    &sites[at].pc, &seen, pc, memory_order_relaxed, memory_order_relaxed)) {
			if (seen == pc)
				return site_hash(pc);
			continue;
		}
		saved = errno;
		hash = site_hash(pc);
		record_stack(pc, hash);
		errno = saved;
		atomic_store_explicit(&sites[at].hash, hash, memory_order_relaxed);
		return hash;
	}
	return site_hash(pc);
}
