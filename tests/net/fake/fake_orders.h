/*
 * The settings of the plugin of fake_plugin.c, from the environment of the process.
 *
 * FAKE_PLUGIN, words with commas between. Variations that a plugin may show: nulls (no connections
 * and requests at first, and in between), late (requests are done in any order), small (4,096
 * bytes a message, v9 on), null_mr (registrations are NULL). Faults: init, devices, none (no
 * device), missing (no isend), gpu (no host memory), unpack (needs code on the GPU), tiny
 * (messages of no byte), hang (init() does not return), stops (init() stops the process; its id is
 * in FAKE_PLUGIN_DIR/stopped), deaf (nothing ever arrives), refuse (connect() fails), awaits (the
 * first listen() returns when there is a connection), and lingers, haunts (fake_plugin.c). Calls
 * are isend, irecv, test, connect, accept, listen, regMr:
 *
 *   FAKE_PLUGIN_FAIL=CALL:N[:M]   every N-th such call fails, M times at most
 *   FAKE_PLUGIN_HOLD=CALL:N[:MS]  the N-th such call does not return, or takes MS ms
 *   FAKE_PLUGIN_HELD=FILE         only in one process: the one that makes this file
 *   FAKE_PLUGIN_LIE=N             every N-th receive is reported with a wrong size
 *   FAKE_PLUGIN_LOSE=N            a connection reports all but its first N messages as sent, and
 *                                 they are not; counts as lies
 *   FAKE_PLUGIN_MIX=N             every N-th message that begins as one of another connection, and
 *                                 is as long, is that one; likewise
 */
#ifndef TESTS_NET_FAKE_ORDERS_H
#define TESTS_NET_FAKE_ORDERS_H

#include <stdint.h>

#pragma GCC visibility push(hidden) /* several plugins may be in one process */

/* Is it a word of FAKE_PLUGIN? */
int told(const char *word);
/* VARIABLE=N: is it the N-th time? */
int is_turn(const char *variable, uint64_t *times);
/* Whether it is this call's turn to fail. Does not return when it is its turn for that. */
int fails(const char *call);
uint64_t nr_failed(void);
unsigned chance(void);

#pragma GCC visibility pop

#endif
