/* Looks up NCCL and the CUDA runtime (nccl_fn.h). One thread. */
#define _GNU_SOURCE
#include "trace/cli/run/nccl_fn.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct df_nccl_fn df_nccl;

static const struct {
	const char *name;
	size_t at;
	int optional;
} names[] = {
#define FN(name, field)                                                                            \
	{                                                                                          \
		name, offsetof(struct df_nccl_fn, field), 0                                        \
	}
	FN("cudaSetDevice", set_device),
	FN("cudaMalloc", malloc),
	FN("cudaFree", free),
	FN("cudaStreamCreateWithFlags", stream_create),
	FN("cudaStreamSynchronize", stream_sync),
	FN("cudaStreamQuery", stream_query),
	FN("cudaDeviceSynchronize", device_sync),
	FN("cudaMemsetAsync", memset_async),
	FN("cudaEventCreateWithFlags", event_create),
	FN("cudaEventRecord", event_record),
	FN("cudaEventSynchronize", event_sync),
	FN("cudaStreamWaitEvent", stream_wait),
	FN("ncclGetUniqueId", get_id),
	FN("ncclCommInitRank", init),
	FN("ncclCommDestroy", destroy),
	FN("ncclGroupStart", group_start),
	FN("ncclGroupEnd", group_end),
	FN("ncclAllReduce", all_reduce),
	FN("ncclBroadcast", broadcast),
	FN("ncclReduce", reduce),
	FN("ncclAllGather", all_gather),
	FN("ncclReduceScatter", reduce_scatter),
	FN("ncclSend", send),
	FN("ncclRecv", recv),
#undef FN
	{"ncclAlltoAll", offsetof(struct df_nccl_fn, all_to_all), 1},
	{"ncclGather", offsetof(struct df_nccl_fn, gather), 1},
	{"ncclScatter", offsetof(struct df_nccl_fn, scatter), 1},
	{"ncclCommInitRankConfig", offsetof(struct df_nccl_fn, init_config), 1},
	{"dfshim_repeats_call", offsetof(struct df_nccl_fn, repeats_call), 1},
};

int df_nccl_load(const char *sub)
{
	static const char *const libs[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so",
					   "libnccl.so.2"};

	for (size_t pass = 0; pass < 2; pass++) {
		int lacking = 0;

		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			void *fn = dlsym(RTLD_DEFAULT, names[i].name);

			memcpy((char *)&df_nccl + names[i].at, &fn, sizeof(fn));
			lacking |= !fn && !names[i].optional;
			if (pass && !fn && !names[i].optional)
				fprintf(stderr, "dfshim %s: neither CUDA nor NCCL has %s here\n",
					sub, names[i].name);
		}
		if (!lacking)
			return 0;
		for (size_t i = 0; i < sizeof(libs) / sizeof(libs[0]); i++)
			dlopen(libs[i], RTLD_NOW | RTLD_GLOBAL);
	}
	return -ENOENT;
}

int df_nccl_share_id(const char *path, int rank, struct df_nccl_id *id)
{
	char tmp[PATH_MAX + 8];
	FILE *f;
	int ret;

	if (!rank) {
		snprintf(tmp, sizeof(tmp), "%s.tmp", path);
		ret = df_nccl.get_id(id);
		if (ret)
			return ret;
		f = fopen(tmp, "wb");
		if (!f || fwrite(id, sizeof(*id), 1, f) != 1 || fclose(f) || rename(tmp, path))
			return errno ? -errno : -EIO;
		return 0;
	}
	for (int i = 0; access(path, R_OK) && i < 6000; i++)
		usleep(10000);
	f = fopen(path, "rb");
	ret = f && fread(id, sizeof(*id), 1, f) == 1 ? 0 : -ENOENT;
	if (f)
		fclose(f);
	return ret;
}
