/* The table of the library, and how a row becomes a plan. Constant; any thread. */
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/program/lang/library/library.h"
#include "runtime/program/program_names.h"

#define DF_LIB(id, name, kind, in_place, chunks, help)                                             \
	static uint32_t chunks_##id(const struct df_shape *s)                                      \
	{                                                                                          \
		(void)s;                                                                           \
		return (uint32_t)(chunks);                                                         \
	}
#include "runtime/program/lang/library/library.def"
#undef DF_LIB

const struct df_lib df_library[] = {
#define DF_LIB(id, name, kind, in_place, chunks, help)                                             \
	{name, help, DF_COLL_##kind, in_place, chunks_##id, df_lib_##id},
#include "runtime/program/lang/library/library.def"
#undef DF_LIB
};

const unsigned df_library_size = DF_ARRAY_LEN(df_library);

const struct df_lib *df_library_find(const char *name)
{
	for (unsigned i = 0; i < df_library_size; i++) {
		if (!strcmp(name, df_library[i].name))
			return &df_library[i];
	}
	return NULL;
}

int df_library_compile(const struct df_lib *lib, const struct df_shape *shape,
		       struct df_plan **plan, struct df_expects *expect, struct df_perr *err)
{
	struct df_shape s = *shape;
	struct df_lang_opts o = {.name = lib->name, .kind = lib->kind, .in_place = lib->in_place};
	struct df_lang *l;
	int rc;

	if (s.nodes < 1)
		s.nodes = 1;
	if (s.channels < 1)
		s.channels = 1;
	if (s.gpus < 1)
		s.gpus = s.nranks / s.nodes;
	if (s.nranks < 1)
		s.nranks = s.nodes * s.gpus;
	if (s.nranks < 1 || s.nranks > 4096 || s.nranks != s.nodes * s.gpus || s.channels > 64 ||
	    s.root < 0 || s.root >= s.nranks || s.instances > 64) {
		df_perr_set(err, -1, -1, -1, -1,
			    "%d nodes of %d ranks with root %d, %d channels, %u instances", s.nodes,
			    s.gpus, s.root, s.channels, s.instances);
		return -EINVAL;
	}
	o.nranks = s.nranks;
	o.root = s.root;
	o.chunks = lib->chunks(&s);
	if ((uint64_t)o.nranks * o.chunks > DF_LANG_CHUNKS)
		return df_perr_set(err, -1, -1, -1, -1,
				   "%u chunks on each of %d ranks are too many to be verified: "
				   "take fewer ranks or channels",
				   o.chunks, o.nranks);
	o.instances = s.instances;
	o.blocks = s.blocks;
	o.no_fuse = s.no_fuse;
	l = df_lang_create(&o);
	if (!l)
		return -ENOMEM;
	lib->text(l, &s);
	rc = df_lang_compile(l, plan, expect, err);
	df_lang_destroy(l);
	return rc;
}
