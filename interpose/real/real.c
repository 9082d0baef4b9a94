/*
 * Finds the real NCCL library. Names are looked up as pncclX first, which no other library
 * interposes, then as ncclX. An address inside this library is not the real function and is
 * dropped: if our library is installed as libnccl.so.2, calls must not go in a cycle.
 *
 * Any thread. The first builds the table and publishes it with a release. No lock is held while
 * dlopen() runs, so two threads may both build it: the results are equal and one is dropped.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "interpose/real/real.h"
#include "runtime/base/dlsym.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"

static const struct df_nccl_real *real_table;
static const struct df_nccl_real none;

int df_on_hostcuda(void)
{
	static int known; /* 0 until known, then 1 for no, 2 for yes */
	int k = __atomic_load_n(&known, __ATOMIC_RELAXED);
	const void *(*table)(void);

	if (!k) {
		*(void **)&table = df_dlsym(RTLD_DEFAULT, "df_hostcuda");
		/* table() reads the environment and warns, so this library need not */
		if (table)
			(void)table();
		k = table ? 2 : 1;
		__atomic_store_n(&known, k, __ATOMIC_RELAXED);
	}
	return k == 2;
}

const struct df_hostnccl_api *df_real_on_cpu(void)
{
	const struct df_hostnccl_api *(*api)(void);

	*(void **)&api = df_dlsym(RTLD_DEFAULT, "df_hostnccl");
	return api ? api() : NULL;
}

/* Whether the addresses are in one library. */
static int same_library(const void *a, const void *b)
{
	Dl_info there, here;

	return dladdr(a, &there) && dladdr(b, &here) && there.dli_fbase == here.dli_fbase;
}

/* Whether the address is in this library. */
static int is_ours(const void *addr)
{
	return same_library(addr, (void *)df_real);
}

static void *find(void *handle, const char *pname)
{
	void *fn = df_dlsym(handle, pname);

	if (!fn || is_ours(fn))
		fn = df_dlsym(handle, pname + 1);
	return fn && !is_ours(fn) ? fn : NULL;
}

/*
 * Whether the function is in another NCCL than `version`, the ncclGetVersion of the one in use. A
 * process may have loaded two NCCLs. A search for a name that the first lacks finds the function of
 * the second, which must not get handles of the first. A library that has some names only (a
 * profiler in front of NCCL) is no NCCL.
 */
static int is_of_another(const void *fn, const void *version)
{
	Dl_info there;
	void *lib, *its;
	int another;

	if (same_library(fn, version) || !dladdr(fn, &there))
		return 0;
	lib = dlopen(there.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (!lib)
		return 0;
	its = df_dlsym(lib, "ncclGetVersion");
	another = its && same_library(its, fn);
	dlclose(lib);
	return another;
}

static void *open_library(void)
{
	static const char *const names[] = {"libnccl.so.2", "libnccl.so"};
	size_t i;

	for (i = 0; i < DF_ARRAY_LEN(names); i++) {
		void *lib = dlopen(names[i],
				   RTLD_NOW | RTLD_LOCAL | (df_on_hostcuda() ? RTLD_NOLOAD : 0));

		if (lib)
			return lib;
	}
	return NULL;
}

static struct df_nccl_real *build(void)
{
	static const char *const names[] = {
#define NCCL_FN(since, kind, result, name, params, args) "p" #name,
#include "interpose/nccl/nccl_api.def"
#undef NCCL_FN
	};
	struct df_nccl_real *t = calloc(1, sizeof(*t));
	void **slot = (void **)t;
	void *handle = RTLD_NEXT, *version;
	size_t i;

	_Static_assert(sizeof(*t) == DF_ARRAY_LEN(names) * sizeof(void *), "one pointer per name");
	if (!t)
		return NULL;
	version = find(RTLD_NEXT, "pncclGetVersion");
	if (!version)
		handle = open_library();
	for (i = 0; handle && i < DF_ARRAY_LEN(names); i++) {
		slot[i] = find(handle, names[i]);
		if (version && slot[i] && is_of_another(slot[i], version))
			slot[i] = NULL;
	}
	return t;
}

const struct df_nccl_real *df_real(void)
{
	/*
	 * ACQUIRE pairs with the compare-exchange below: without it the pointer could be seen
	 * before the functions in the table.
	 */
	const struct df_nccl_real *t = __atomic_load_n(&real_table, __ATOMIC_ACQUIRE);
	const struct df_nccl_real *seen = NULL;
	struct df_nccl_real *mine;

	if (t)
		return t;
	mine = build();
	if (!mine)
		return &none;
	/*
	 * RELEASE pairs with the load above (the table's contents precede it); ACQUIRE pairs with
	 * another thread's RELEASE: without it this thread could return a table that is not filled
	 * yet.
	 */
	if (__atomic_compare_exchange_n(&real_table, &seen, mine, 0, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return mine;
	free(mine);
	return seen;
}

ncclResult_t df_real_missing(const char *name)
{
	if (df_on_hostcuda() && !df_real_on_cpu())
		DF_NCCL_WARN("%s: not served by dfshim on the CPU, and NCCL cannot use its memory",
			     name);
	else if (!df_real()->ncclGetVersion)
		DF_NCCL_WARN("%s: no libnccl.so.2 found: neither loaded nor on the library path",
			     name);
	else {
		DF_NCCL_WARN("%s: the NCCL library found is version %d and has no such function",
			     name, df_real_version());
		return ncclInvalidUsage;
	}
	return ncclSystemError;
}

int df_real_version(void)
{
	const struct df_nccl_real *r = df_real();
	int version;

	if (r->ncclGetVersion && r->ncclGetVersion(&version) == ncclSuccess)
		return version;
	return DF_NCCL_VERSION;
}
