/*
 * Opens the CUDA driver: loads libcuda.so.1 at run time and finds its functions by version with
 * cuGetProcAddress(). The functions are found without our own hook, so our calls are not taken for
 * the application's. Called once, at the start.
 */
#if __has_include(<cuda.h>)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "runtime/base/connections.h"
#include "runtime/base/dlsym.h"
#include "runtime/base/err.h"
#include "runtime/device/cuda/cuda_int.h"

struct df_drv_table df_drv_table;

static const struct {
	const char *name;
	int version;
	size_t at;
} functions[] = {
#define DF_DRV(member, name, version, params)                                                      \
	{name, version, offsetof(struct df_drv_table, member)},
#include "runtime/device/cuda/cuda_drv.def"
#undef DF_DRV
};

static CUresult (*ask)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

void *df_drv_find(const char *name, int version)
{
	CUdriverProcAddressQueryResult found;
	void *fn = NULL;

	return ask(name, &fn, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found) == CUDA_SUCCESS
		       ? fn
		       : NULL;
}

int df_drv_open(char *reason, size_t reason_bytes)
{
	CUdriverProcAddressQueryResult found;
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	int version = 0;
	CUresult r;
	size_t i;

	if (!lib) {
		snprintf(reason, reason_bytes, "no usable GPU: %s", dlerror());
		return -ENODEV;
	}
	*(void **)&ask = df_dlsym(lib, "cuGetProcAddress_v2");
	if (!ask) {
		snprintf(reason, reason_bytes,
			 "the CUDA driver is older than 12.0 (it has no cuGetProcAddress_v2)");
		return -EOPNOTSUPP;
	}
	for (i = 0; i < DF_ARRAY_LEN(functions); i++) {
		void **fn = (void **)((char *)&df_drv_table + functions[i].at);

		*fn = NULL;
		if (ask(functions[i].name, fn, functions[i].version,
			CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found) != CUDA_SUCCESS ||
		    !*fn) {
			snprintf(reason, reason_bytes, "the CUDA driver lacks %s (version %d)",
				 functions[i].name, functions[i].version);
			return -EOPNOTSUPP;
		}
	}
	df_connections_begin();
	r = df_drv.init(0);
	df_connections_end();
	if (r != CUDA_SUCCESS) {
		snprintf(reason, reason_bytes, "no usable GPU: cuInit says %s", df_drv_name(r));
		return -ENODEV;
	}
	if (df_drv.driver_version(&version) != CUDA_SUCCESS || version < 12000) {
		snprintf(reason, reason_bytes, "the CUDA driver is version %d, older than 12.0",
			 version);
		return -EOPNOTSUPP;
	}
	return 0;
}

/*
 * Reads the edges of a graph. Since 12.3 an edge may have data (8 bytes, CUgraphEdgeData), and the
 * form of the call without data fails for such graphs.
 */
int df_drv_graph_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *nr)
{
	CUresult (*plain)(CUgraph, CUgraphNode *, CUgraphNode *, size_t *);
	CUresult (*with)(CUgraph, CUgraphNode *, CUgraphNode *, void *, size_t *);
	uint64_t *data = NULL;
	int version = 0;
	CUresult r;

	df_drv.driver_version(&version);
	if (version < 12030) {
		*(void **)&plain = df_drv_find("cuGraphGetEdges", 10000);
		return plain ? df_drv_errno(plain(graph, from, to, nr)) : -EOPNOTSUPP;
	}
	*(void **)&with = df_drv_find("cuGraphGetEdges", 12030);
	if (from)
		data = calloc(*nr + 1, sizeof(*data));
	if (!with || (from && !data)) {
		free(data);
		return with ? -ENOMEM : -EOPNOTSUPP;
	}
	r = with(graph, from, to, data, nr);
	free(data);
	return df_drv_errno(r);
}

const char *df_drv_name(CUresult r)
{
	const char *name = NULL;

	return df_drv.error_name(r, &name) == CUDA_SUCCESS && name ? name : "unknown error";
}

int df_drv_errno(CUresult r)
{
	switch (r) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_NOT_READY:
		return -EAGAIN;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_HANDLE:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
		return -EINVAL;
	case CUDA_ERROR_NOT_SUPPORTED:
		return -EOPNOTSUPP;
	default:
		return -EIO;
	}
}
#endif
