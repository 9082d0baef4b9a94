/*
 * The daemon's interface for the code that runs it: one function that lets a block take one turn.
 * The GPU kernel calls it in a loop (daemon_cuda.cu). On the CPU backend the engine's threads call
 * it for one block after another (runtime/device/host/threads.c), so that many blocks share few
 * cores without spinning against each other.
 */
#ifndef DFK_DAEMON_H
#define DFK_DAEMON_H

#include "kernels/abi.h"

/*
 * Executes one turn of one block on the host: accepts submissions, then polls or moves one slice of
 * the task that has its turn. Never blocks. The caller must own the block (df_kblock.lock). With
 * df_policy.let, it does not own the block while a slice moves.
 */
enum df_turn df_block_turn(struct df_kdaemon *d, struct df_kblock *blk);

/*
 * The block's lock, where df_policy.let allows several threads to execute it. Taking it sleeps
 * while another thread holds it, because that thread may have lost its processor. A futex: 0 free,
 * 1 held, 2 held while others may sleep.
 */
void df_block_take(struct df_kblock *blk);
void df_block_let(struct df_kblock *blk);

/*
 * Initializes a fresh connector as a block does (df_kconn.fresh); for tests that replace a block.
 */
void df_conn_begin(struct df_kconn *c);

/*
 * Accepts all submissions and drops every task whose collective is aborted. The caller owns the
 * block. Afterwards the block has no reference to those collectives.
 */
void df_block_purge(struct df_kdaemon *d, struct df_kblock *blk);

/*
 * Drops all tasks and submissions: the device is lost, and the block never wrote its state back.
 * Nothing runs there any more.
 */
void df_block_reset(struct df_kblock *blk);

#endif
