/*
 * Being loaded and unloaded. Nothing happens here that could fail or take time: the runtime starts at the
 * first NCCL call that needs it (front.c), and most processes of a job (shells, data loaders) never make
 * one. In the child of a fork everything is as if nothing had started, or refused if it had.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "interpose/load/front.h"
#include "interpose/nccl/nccl_group.h"
#include "runtime/base/env.h"

static void child(void)
{
	df_group_forked();
	df_front_forked();
}

__attribute__((constructor)) static void loaded(void)
{
	const char *mode = df_env_text(DF_ENV_ROW_mode);

	pthread_atfork(NULL, NULL, child);
	/*
	 * The driver reads it once, at its first call. Streams that share a hardware queue wait for one another, and those
	 * that wait for a collective would hold up others.
	 */
	if (!mode || !strcmp(mode, "prevent"))
		setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

__attribute__((destructor)) static void unloaded(void)
{
	df_front_unload();
}
