/*
 * The daemon as its launchers see it: one function that lets a block take one turn. The GPU kernel calls it
 * in a loop (daemon_cuda.cu); on the host backend the engine's threads call it for one block after another
 * (runtime/device/host/threads.c), which is how many blocks share few cores without spinning against each other.
 */
#ifndef DFK_DAEMON_H
#define DFK_DAEMON_H

#include "kernels/abi.h"

/*
 * One turn of one block on the host: takes in submissions, then polls or moves one slice of the task whose
 * turn it is. Never blocks. The caller owns the block (df_kblock.lock); by df_policy.let it does not while a slice moves.
 */
enum df_turn df_block_turn(struct df_kdaemon *d, struct df_kblock *blk);

/*
 * The block's lock, where df_policy.let lets several threads execute it. Taking it sleeps while another thread, which may have lost its
 * processor, has it.
 */
void df_block_take(struct df_kblock *blk);
void df_block_let(struct df_kblock *blk);

/* What a block does to a fresh connector (df_kconn.fresh); for tests that take a block's place. */
void df_conn_begin(struct df_kconn *c);

/*
 * Takes in all submissions and drops every task whose collective is aborted. The caller owns the block.
 * Afterwards the block holds no reference to those collectives.
 */
void df_block_purge(struct df_kdaemon *d, struct df_kblock *blk);

/*
 * Forgets all tasks and submissions: the device is lost and the block never wrote its state back. Nothing runs
 * there any more.
 */
void df_block_reset(struct df_kblock *blk);

#endif
