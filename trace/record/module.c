#define _GNU_SOURCE
#include "trace/record/module.h"

#include <errno.h>
#include <link.h>
#include <string.h>
#include "runtime/base/err.h"

struct search {
	uintptr_t at;
	struct df_module *found;
};

/* Returns 1 if the file contains the address, which ends the search. */
static int contains(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;
	uintptr_t start = UINTPTR_MAX, end = 0;
	const char *path = info->dlpi_name, *slash;
	int in = 0;

	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + p->p_vaddr, to = from + p->p_memsz;

		if (p->p_type != PT_LOAD)
			continue;
		start = DF_MIN(start, from);
		end = DF_MAX(end, to);
		in |= s->at >= from && s->at < to;
	}
	if (!in)
		return 0;
	/* The program itself has no name in the loader's list. */
	if (!*path)
		path = program_invocation_name;
	slash = strrchr(path, '/');
	*s->found = (struct df_module){slash ? slash + 1 : path, start, end};
	return 1;
}

int df_module_of(const void *pc, struct df_module *m)
{
	struct search s = {(uintptr_t)pc, m};

	return dl_iterate_phdr(contains, &s);
}
