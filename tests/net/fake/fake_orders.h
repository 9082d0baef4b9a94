/*
 * The settings of fake_plugin.c, from the environment of the process.
 *
 * FAKE_PLUGIN contains words, separated by commas. Behaviour that a plugin may show: nulls (returns
 * no connection or request at first, and sometimes later), late (requests finish in any order),
 * small (messages of at most 4,096 bytes, from v9 on), null_mr (registrations are NULL). Faults:
 * init, devices, none (no device), missing (no isend), gpu (no host memory), unpack (needs code on
 * the GPU), tiny (messages of 0 bytes), hang (init() does not return), stops (init() stops the
 * process; its id is in FAKE_PLUGIN_DIR/stopped), deaf (receives never finish), refuse (connect()
 * fails), awaits (the first listen() returns only when there is a connection); lingers and haunts:
 * see fake_plugin.c. CALL is isend, irecv, test, connect, accept, listen or regMr:
 *
 *   FAKE_PLUGIN_FAIL=CALL:N[:M]   every N-th such call fails, at most M times
 *   FAKE_PLUGIN_HOLD=CALL:N[:MS]  the N-th such call does not return, or takes MS ms
 *   FAKE_PLUGIN_HELD=FILE         HOLD applies only to the process that creates this file
 *   FAKE_PLUGIN_LIE=N             every N-th receive is reported with a wrong size
 *   FAKE_PLUGIN_LOSE=N            a connection reports messages after the first N as sent, but
 *                                 does not send them; counts as lies
 *   FAKE_PLUGIN_MIX=N             of messages that have the length and first bytes of one of
 *                                 another connection, every N-th is replaced by that one;
 *                                 counts as lies
 */
#ifndef TESTS_NET_FAKE_ORDERS_H
#define TESTS_NET_FAKE_ORDERS_H

#include <stdint.h>

#pragma GCC visibility push(hidden) /* several such plugins may be in one process */

/* Returns whether FAKE_PLUGIN contains the word. */
int told(const char *word);
/* With VARIABLE=N in the environment, returns 1 in every N-th call. *times counts the calls. */
int is_turn(const char *variable, uint64_t *times);
/*
 * Returns whether this call must fail (FAKE_PLUGIN_FAIL). Holds the call first if FAKE_PLUGIN_HOLD
 * chooses it.
 */
int fails(const char *call);
uint64_t nr_failed(void);
unsigned chance(void);

#pragma GCC visibility pop

#endif
