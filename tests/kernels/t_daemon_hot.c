/*
 * Description: runs t_daemon.c with the daemon as it works on a GPU: on copies of contexts, of
 * which few fit in "shared memory" and some in lines of "GPU memory" (kernels/hot.inl). Blocks
 * leave their device at random moments. Before the test reads a block's state it makes the block
 * leave, as the host does. Some daemons have no lines, some have two, for which several contexts
 * then compete. Programs have more connectors and instructions than there is room for, or fewer.
 */
#include <string.h>
#include "kernels/port.h"
#define DFK_WAYS       2
#define DFK_LOOK_EVERY 3
#define DFK_HOT_CONNS  4
#define DFK_HOT_INSTS  6
#include "kernels/abi.h"
#include "kernels/reduce.h"
#include "kernels/daemon.inl"
#include "runtime/base/rng.h"

#define NR_LOCALS 64

static struct dfk_local locals[NR_LOCALS]; /* free if home is NULL */
static uint8_t lines[NR_LOCALS][8 * DF_LINE_BYTES] __attribute__((aligned(64)));

static struct df_rng *hot_rng(void)
{
	static struct df_rng r;
	static int seeded;

	if (!seeded)
		df_rng_init(&r, 77);
	seeded = 1;
	return &r;
}

static struct dfk_local *on_device(const struct df_kblock *blk)
{
	int i;

	for (i = 0; i < NR_LOCALS; i++)
		if (locals[i].home == blk)
			return &locals[i];
	return NULL;
}

/* Makes the block leave its device: afterwards its original state is valid. */
static void hot_leave(const struct df_kblock *blk)
{
	struct dfk_local *l = on_device(blk);

	if (!l)
		return;
	dfk_block_leave(l);
	/* Nothing may use the copy afterwards. */
	memset(l, 0x5a, sizeof(*l));
	memset(lines[l - locals], 0x5a, sizeof(lines[0]));
	l->home = NULL;
}

static enum df_turn hot_turn(struct df_kdaemon *d, struct df_kblock *blk)
{
	struct dfk_local *l = on_device(blk);
	/* A GPU's block has this in shared memory, as `l` and `sh`. */
	static struct dfk_stage stages[NR_LOCALS];
	struct dfk_shared sh;
	enum df_turn turn;

	memset(&sh, 0x5a, sizeof(sh));
	if (!l) {
		uint32_t b = (uint32_t)(blk - d->blocks);

		l = on_device(NULL);
		/* Places the lines as if every block had lines of its own. */
		d->nr_lines = df_rng_u64(hot_rng()) % 2 ? 2 : 8;
		d->lines = df_rng_u64(hot_rng()) % 3
				   ? lines[l - locals] - (size_t)b * d->nr_lines * DF_LINE_BYTES
				   : NULL;
		dfk_block_enter(l, d, b);
	}
	do {
		turn = dfk_block_turn(&l->d, &l->blk, &sh, &stages[l - locals]);
	} while (sh.fetch.home); /* a turn that only fetches a context does not count as a turn */
	if (df_rng_u64(hot_rng()) % 50 == 0)
		hot_leave(blk);
	return turn;
}

#define NR_WORLDS	      60
#define df_block_turn(d, blk) hot_turn(d, blk)
#define SETTLE(blk)	      hot_leave(blk)
#include "tests/kernels/t_daemon.c"
