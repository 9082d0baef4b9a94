/*
 * The contents of a script's buffers at its end: the value that each step writes, by program order.
 * A step of a thread reads the thread's last value; the k-th call of a signature meets the k-th of
 * the others. Sound for programs without races; unknown values (unmatched, written by two threads,
 * not integers) are not compared. One thread at a time.
 */
#ifndef DEADLOCK_ORACLE_H
#define DEADLOCK_ORACLE_H

#include "script.h"

enum or_state { OR_NEW, OR_BUSY, OR_KNOWN, OR_UNKNOWN };

struct or_val {
	uint32_t *v;
	size_t n;
	enum or_state state;
};

struct or_key {
	uint64_t sig, k;
	int thread, step;
};

struct oracle {
	struct script *s;
	struct or_val *vals[SC_RANKS][SC_THREADS];
	struct or_key *keys[SC_RANKS]; /* sorted */
	uint64_t *inst[SC_RANKS][SC_THREADS];
	int nr_keys[SC_RANKS];
};

uint32_t or_init(int rank, int buf, size_t i);

/* The value that `poke` writes. */
uint32_t or_poked(int rank, int buf, int step, size_t i);

/* Elements that a step reads and writes; 0 none. */
size_t or_reads(const struct script *s, const struct sc_step *st);

size_t or_writes(const struct script *s, const struct sc_step *st, int rank);

void or_open(struct oracle *o, struct script *s);

void or_close(struct oracle *o);

/* The first n elements of a buffer as a step of a thread finds them; 0 or -1 not known. */
int or_before(struct oracle *o, int rank, int thread, int step, int buf, size_t n, uint32_t *out);

#endif
