/*
 * Description: ranks from torchrun, Open MPI, MPICH and Slurm, also one inside another; bad values.
 */
#include "tests/lib/test.h"

#include <stdlib.h>

#include "runtime/base/launcher.h"

static const char *const names[] = {
	"RANK",	    "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
	"PMI_RANK", "PMI_SIZE",	  "SLURM_PROCID",	  "SLURM_NTASKS"};
#define NR_NAMES (sizeof(names) / sizeof(*names))

static const struct {
	const char *value[NR_NAMES];
	int rank, world;
} rows[] = {
	{{NULL}, -1, 0},
	{{"3", "8"}, 3, 8},
	{{"3"}, 3, 0},
	{{NULL, "8"}, -1, 0},
	{{NULL, NULL, "0", "2"}, 0, 2},
	{{NULL, NULL, NULL, NULL, "5", "6"}, 5, 6},
	{{NULL, NULL, NULL, NULL, NULL, NULL, "7", "16"}, 7, 16},
	/* srun starts torchrun once on each node. */
	{{"9", "16", NULL, NULL, NULL, NULL, "1", "2"}, 9, 16},
	/* An allocation of Slurm without a step. */
	{{NULL, NULL, NULL, NULL, NULL, NULL, NULL, "16"}, -1, 0},
	{{"", "", NULL, NULL, NULL, NULL, "1", "2"}, 1, 2},
	{{"x", "8"}, -1, 0},
	{{"-1", "8"}, -1, 0},
	{{"8", "8"}, -1, 0},
	{{"1 ", "8"}, -1, 0},
	{{"99999999999999999999", "8"}, -1, 0},
	{{"1", "x"}, 1, 0},
};

START_TEST(t_rows)
{
	int world = 77, rank;
	size_t i;

	for (i = 0; i < NR_NAMES; i++) {
		unsetenv(names[i]);
		if (rows[_i].value[i])
			setenv(names[i], rows[_i].value[i], 1);
	}
	rank = df_launcher_rank(&world);
	ck_assert_msg(rank == rows[_i].rank && world == rows[_i].world, "row %d: %d of %d", _i,
		      rank, world);
}
END_TEST

int main(void)
{
	return DF_TESTS("launcher", {t_rows, (int)(sizeof(rows) / sizeof(*rows))});
}
