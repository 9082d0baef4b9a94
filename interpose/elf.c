/*
 * Reading a symbol's address from the tables of a loaded library, without dlsym: the dlsym hook needs the
 * C library's own dlsym and dlvsym, and every other way to ask for them leads back to the hook.
 *
 * Threads: any; dl_iterate_phdr holds the loader's lock meanwhile. No state.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <string.h>
#include "interpose/dl_hook.h"

struct query {
	const char *library, *name;
	void *found;
};

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

		/* The top bit of a version says that it is not the default one. */
		if ((c | 1) == (h | 1) && !strcmp(t->strings + t->syms[i].st_name, name) &&
		    t->syms[i].st_shndx != SHN_UNDEF &&
		    (!t->versions || !(t->versions[i] & 0x8000)))
			return (void *)(base + t->syms[i].st_value);
		if (c & 1)
			break;
	}
	return NULL;
}

static int visit(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct query *q = arg;
	const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
	struct tables t = {0};
	const ElfW(Dyn) *d = NULL;
	int i;

	(void)size;
	if (strcmp(slash ? slash + 1 : "", q->library))
		return 0;
	for (i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			d = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (; d && d->d_tag != DT_NULL; d++) {
		/* The loader has added the base to these, except on machines where it does not. */
		ElfW(Addr) p = d->d_un.d_ptr < info->dlpi_addr ? info->dlpi_addr + d->d_un.d_ptr
							       : d->d_un.d_ptr;

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
	if (t.syms && t.strings && t.hash && t.hash[0])
		q->found = lookup(&t, info->dlpi_addr, q->name);
	return q->found != NULL;
}

void *df_elf_find(const char *library, const char *name)
{
	struct query q = {library, name, NULL};

	dl_iterate_phdr(visit, &q);
	return q.found;
}
