/*
 * Handles a GPU that processes share through MPS (docs/cuda-backend.md). The server does not reveal
 * its clients. Only this is known: whether there is a server, which share of the multiprocessors
 * this process may use, and how many processes of a communicator share a GPU. Blocks of different
 * clients are on the device together, and none is suspended for another client: blocks that do not
 * fit wait until a daemon leaves by its clock.
 */
#if __has_include(<cuda.h>)
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/number.h"
#include "runtime/ctl/ctl.h"
#include "runtime/device/cuda/cuda_int.h"

#define MPS_ENABLED ((CUdevice_attribute)133) /* CU_DEVICE_ATTRIBUTE_MPS_ENABLED of 12.2 */

int df_cuda_mps(int device)
{
	const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char path[512];
	int on = 0;

	if (df_drv.device_attribute(&on, MPS_ENABLED, df_cudevs[device].device) == CUDA_SUCCESS)
		return on != 0;
	/* An older driver does not report this. It looks for a server if this pipe exists. */
	snprintf(path, sizeof(path), "%s/control", dir && *dir ? dir : "/tmp/nvidia-mps");
	return access(path, F_OK) == 0;
}

int df_cuda_multiprocessors(int device)
{
	const char *v = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	int nr = 0;
	double percent;
	char *end;

	if (df_drv.device_attribute(&nr, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
				    df_cudevs[device].device) != CUDA_SUCCESS ||
	    !v || !*v || !df_cuda_mps(device))
		return nr;
	percent = df_strtod(v, &end);
	/* The server ignores invalid values, and so do we. */
	return !*end && percent > 0 && percent < 100 ? DF_MAX((int)(nr * percent / 100), 1) : nr;
}

void df_cuda_mps_fits(const struct df_member *members, int nranks, int rank)
{
	const struct df_member *self = &members[rank];
	uint32_t blocks = 0, processes = 0;
	static int told;
	int i, k, nr = 0;

	/* The whole GPU counts, even if this process may use only a part of it. */
	if (!df_cuda_mps(self->device) ||
	    df_drv.device_attribute(&nr, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
				    df_cudevs[self->device].device) != CUDA_SUCCESS)
		return;
	for (i = 0; i < nranks; i++) {
		if (members[i].host != self->host || members[i].device_id != self->device_id)
			continue;
		for (k = 0; k < i && (members[k].proc != members[i].proc ||
				      members[k].device_id != self->device_id);
		     k++)
			;
		if (k < i)
			continue; /* threads of one process have one daemon */
		processes++;
		blocks += members[i].blocks;
	}
	if (blocks <= (uint32_t)nr || processes < 2 ||
	    __atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
		return;
	df_log(DF_LOG_WARN,
	       "GPU %d: %u processes of a communicator share it through MPS with %u blocks of "
	       "their daemons, which take turns on its %d multiprocessors; with DFSHIM_BLOCKS=%u "
	       "all are there at once",
	       self->device, processes, blocks, nr, DF_MAX((uint32_t)nr / processes, 1));
}
#endif
