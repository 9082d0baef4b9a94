/*
 * Stands in front of libdfnccl.so as an NCCL of version VERSION (21903 is 2.19.3). It has the names
 * of that version (rows.def: the rows of nccl_api.def up to it), and reads as much of a
 * configuration as that version knows. It lets no communicator be aborted in a group where that
 * version frees it at once. It opens libdfnccl.so (NEWEST is its path) for itself only, so newer
 * names are not found.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "interpose/hostnccl/hostnccl.h"
#include "interpose/nccl/nccl_types.h"

static void *newest(const char *name)
{
	static void *(*find)(void *, const char *);
	static void *lib;
	void *fn;

	if (!lib) {
		/* The first dlsym() in the process is dfshim's, which would answer with itself. */
		*(void **)&find = dlsym(RTLD_NEXT, "dlsym");
		lib = dlopen(NEWEST, RTLD_NOW | RTLD_LOCAL);
	}
	fn = lib ? find(lib, name) : NULL;
	if (!fn) {
		fprintf(stderr, "older.c: %s\n", dlerror());
		abort();
	}
	return fn;
}

const struct df_hostnccl_api *df_hostnccl(void)
{
	const struct df_hostnccl_api *(*fn)(void);

	*(void **)&fn = newest("df_hostnccl");
	return fn();
}

/* The end of the configuration's last field. */
static size_t known(void)
{
#define UNTIL(field) (offsetof(ncclConfig_t, field) + sizeof(int))
	return VERSION < 22600	 ? UNTIL(splitShare)
	       : VERSION < 22700 ? UNTIL(trafficClass)
	       : VERSION < 22800 ? UNTIL(nvlsCTAs)
	       : VERSION < 22900 ? UNTIL(nvlinkCentricSched)
	       : VERSION < 23000 ? UNTIL(numRmaCtx)
				 : UNTIL(graphStreamOrdering);
}

/* Checks what an NCCL of this version would read of the configuration, and passes that on. */
static ncclConfig_t *read_config(ncclConfig_t *config, ncclConfig_t *out)
{
	if (!config)
		return NULL;
	*out = (ncclConfig_t){0};
	memcpy(out, config, config->size < known() ? config->size : known());
	/* In mode trace the configuration is the application's. */
	if (!getenv("DFSHIM_MODE") &&
	    (out->magic != 0xcafebeefu || out->maxCTAs <= 0 || out->maxCTAs > 16 ||
	     (out->minCTAs != NCCL_CONFIG_UNDEF_INT && out->minCTAs > out->maxCTAs))) {
		fprintf(stderr, "older.c: a configuration without a limit of CTAs\n");
		abort();
	}
	return out;
}

static __thread int depth; /* of the thread's groups */

static void see(const char *name)
{
	if (!strcmp(name, "ncclGroupStart"))
		depth++;
	else if (!strcmp(name, "ncclGroupEnd"))
		depth--;
	else if (VERSION < 22200 && depth && !strcmp(name, "ncclCommAbort")) {
		fprintf(stderr, "older.c: an abort in a group frees the communicator at once\n");
		abort();
	}
}

#define NCCL_FN(since, kind, result, name, params, args)                                           \
	result p##name params                                                                      \
	{                                                                                          \
		result(*fn) params;                                                                \
		*(void **)&fn = newest("p" #name);                                                 \
		see(#name);                                                                        \
		return fn args;                                                                    \
	}                                                                                          \
	extern __typeof__(p##name) name __attribute__((alias("p" #name)));
#include "rows.def"
#undef NCCL_FN

ncclResult_t pncclGetVersion(int *version)
{
	*version = VERSION;
	return ncclSuccess;
}

ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
				     ncclConfig_t *config)
{
	ncclResult_t (*fn)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
	ncclConfig_t read;

	*(void **)&fn = newest("pncclCommInitRankConfig");
	return fn(comm, nranks, id, rank, read_config(config, &read));
}

/* One function shows what happens to a type that the version does not have. */
ncclResult_t pncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
			    ncclComm_t comm, cudaStream_t stream)
{
	ncclResult_t (*fn)(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);

	*(void **)&fn = newest("pncclAllGather");
	if (VERSION < 22400 && type > ncclBfloat16)
		return ncclInvalidArgument;
	return fn(in, out, count, type, comm, stream);
}

extern __typeof__(pncclAllGather) ncclAllGather __attribute__((alias("pncclAllGather")));
extern __typeof__(pncclGetVersion) ncclGetVersion __attribute__((alias("pncclGetVersion")));
extern __typeof__(pncclCommInitRankConfig) ncclCommInitRankConfig
	__attribute__((alias("pncclCommInitRankConfig")));
