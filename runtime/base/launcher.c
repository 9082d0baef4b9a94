#include "runtime/base/launcher.h"

#include <stddef.h>
#include <stdlib.h>

#include "runtime/base/err.h"

/* The innermost launcher first: one of the others may have started torchrun, once per node. */
static const struct {
	const char *rank, *world, *local;
} launchers[] = {
	{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
	{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
	{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

/* Returns -1 if the variable is not a number of at least 0. */
static int number(const char *name)
{
	const char *text = getenv(name);
	char *end;
	long v;

	if (!text || text[0] < '0' || text[0] > '9')
		return -1;
	v = strtol(text, &end, 10);
	return *end || v > 1 << 30 ? -1 : (int)v;
}

int df_launcher_local_rank(void)
{
	size_t i;

	for (i = 0; i < DF_ARRAY_LEN(launchers); i++)
		if (number(launchers[i].rank) >= 0 && number(launchers[i].local) >= 0)
			return number(launchers[i].local);
	return 0;
}

int df_launcher_rank(int *world)
{
	int rank, nr;
	size_t i;

	for (i = 0; i < DF_ARRAY_LEN(launchers); i++) {
		rank = number(launchers[i].rank);
		nr = number(launchers[i].world);
		if (rank < 0 || (nr >= 0 && rank >= nr))
			continue;
		*world = DF_MAX(nr, 0);
		return rank;
	}
	*world = 0;
	return -1;
}
