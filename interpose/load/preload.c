/*
 * Being loaded and unloaded. Nothing happens here that could fail or take time: the runtime starts at the
 * first NCCL call that needs it (front.c), and most processes of a job (shells, data loaders) never make
 * one. In the child of a fork everything is as if nothing had started, or refused if it had.
 */
#include <pthread.h>
#include "interpose/load/front.h"
#include "interpose/nccl/nccl_group.h"

static void child(void)
{
	df_group_forked();
	df_front_forked();
}

__attribute__((constructor)) static void loaded(void)
{
	pthread_atfork(NULL, NULL, child);
}

__attribute__((destructor)) static void unloaded(void)
{
	df_front_unload();
}
