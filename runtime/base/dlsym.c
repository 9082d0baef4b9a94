/*
 * See dlsym.h. The C library's two functions are found in its ELF tables, because every other way
 * to get them leads back to the hook in front of them (interpose/load/dl_hook.c).
 *
 * Walks the loader's list as a debugger would (_r_debug), because sanitizers replace
 * dl_iterate_phdr(), and look up symbols before their own version can be called. Done once, early.
 * Only libraries that the program was started with are looked up, and these stay in the list.
 *
 * Any thread; no lock, no allocation.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include "runtime/base/dlsym.h"
#include "runtime/base/err.h"

df_dlsym_fn df_real_dlsym;
df_dlvsym_fn df_real_dlvsym;

/*
 * Not strcmp() and strrchr(): a sanitizer looks up its own through the hook before they are usable.
 */
static int same(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

static const char *base_name(const char *path)
{
	const char *base = path;

	for (; *path; path++)
		if (*path == '/')
			base = path + 1;
	return base;
}

static uint32_t gnu_hash(const char *s)
{
	uint32_t h = 5381;

	for (; *s; s++)
		h = h * 33 + (unsigned char)*s;
	return h;
}

struct tables {
	const ElfW(Sym) * syms;
	const char *strings;
	const uint32_t *hash;
	const ElfW(Half) * versions;
};

static void *lookup(const struct tables *t, ElfW(Addr) base, const char *name)
{
	uint32_t nr_buckets = t->hash[0], first = t->hash[1], nr_bloom = t->hash[2];
	const uint32_t *buckets = t->hash + 4 + nr_bloom * (sizeof(ElfW(Addr)) / 4);
	const uint32_t *chain = buckets + nr_buckets;
	uint32_t h = gnu_hash(name), i = buckets[h % nr_buckets];

	for (; i >= first; i++) {
		uint32_t c = chain[i - first];

		/* The top bit of a version marks one that is not the default. */
		if ((c | 1) == (h | 1) && same(t->strings + t->syms[i].st_name, name) &&
		    t->syms[i].st_shndx != SHN_UNDEF &&
		    (!t->versions || !(t->versions[i] & 0x8000)))
			return (void *)(base + t->syms[i].st_value);
		if (c & 1)
			break;
	}
	return NULL;
}

static void *find_in(const struct link_map *l, const char *name)
{
	struct tables t = {0};
	const ElfW(Dyn) * d;

	for (d = l->l_ld; d && d->d_tag != DT_NULL; d++) {
		/* The loader has added the base to these addresses, except on some machines. */
		ElfW(Addr) p =
			d->d_un.d_ptr < l->l_addr ? l->l_addr + d->d_un.d_ptr : d->d_un.d_ptr;

		switch (d->d_tag) {
		case DT_SYMTAB:
			t.syms = (const void *)p;
			break;
		case DT_STRTAB:
			t.strings = (const void *)p;
			break;
		case DT_GNU_HASH:
			t.hash = (const void *)p;
			break;
		case DT_VERSYM:
			t.versions = (const void *)p;
			break;
		}
	}
	if (!t.syms || !t.strings || !t.hash || !t.hash[0])
		return NULL;
	return lookup(&t, l->l_addr, name);
}

static void *elf_find(const char *library, const char *name)
{
	const struct link_map *l;

	for (l = _r_debug.r_map; l; l = l->l_next)
		if (l->l_name && same(base_name(l->l_name), library))
			return find_in(l, name);
	return NULL;
}

static void *must_find(const char *name)
{
	/* In libc.so.6 since glibc 2.34, before that in libdl.so.2. */
	static const char *const where[] = {"libc.so.6", "libdl.so.2"};
	static const char text[] = "dfshim: the C library's dlsym is not found: not glibc?\n";
	void *fn;
	size_t i;

	for (i = 0; i < DF_ARRAY_LEN(where); i++) {
		fn = elf_find(where[i], name);
		if (fn)
			return fn;
	}
	if (write(2, text, sizeof(text) - 1) < 0)
		abort();
	abort();
}

void df_dlsym_resolve(void)
{
	/* Two threads may both do this: they find the same functions. */
	if (df_unlikely(!__atomic_load_n(&df_real_dlvsym, __ATOMIC_RELAXED))) {
		__atomic_store_n(&df_real_dlsym, (df_dlsym_fn)must_find("dlsym"), __ATOMIC_RELAXED);
		__atomic_store_n(&df_real_dlvsym, (df_dlvsym_fn)must_find("dlvsym"),
				 __ATOMIC_RELAXED);
	}
}

void *df_dlsym(void *handle, const char *name)
{
	df_dlsym_resolve();
	return df_real_dlsym(handle, name);
}
