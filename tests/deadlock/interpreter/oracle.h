/*
 * Computes the value that each step of a script writes, and so the contents of its buffers, from
 * the program order alone. A step reads the last value that its own thread wrote. The k-th call of
 * a signature on one rank matches the k-th call of that signature on the others. This is correct
 * for programs without races. A value is unknown, and is not compared, if its operation has no
 * match, if two threads write the buffer, or if its elements are not integers. Not thread-safe.
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
	struct or_key *keys[SC_RANKS]; /* sorted by (sig, k) */
	uint64_t *inst[SC_RANKS][SC_THREADS];
	int nr_keys[SC_RANKS];
};

uint32_t or_init(int rank, int buf, size_t i);

/* The value that step `poke` writes to element `i`. */
uint32_t or_poked(int rank, int buf, int step, size_t i);

/*
 * The number of elements that a step reads, and the number that it writes. 0 if it reads or writes
 * no buffer.
 */
size_t or_reads(const struct script *s, const struct sc_step *st);

size_t or_writes(const struct script *s, const struct sc_step *st, int rank);

void or_open(struct oracle *o, struct script *s);

void or_close(struct oracle *o);

/*
 * Computes the first n elements of a buffer as a step of a thread finds them. Returns 0, or -1 if
 * the value is unknown.
 */
int or_before(struct oracle *o, int rank, int thread, int step, int buf, size_t n, uint32_t *out);

#endif
