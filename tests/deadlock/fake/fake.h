/*
 * What the parts of the stand-in for NCCL share: communicators with the memory of all their ranks, and operations.
 * ops.c executes one operation, a step at a time; region.c has the ranks' memory; nccl.c the calls, launches and set-up.
 */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H
#include <stddef.h>
#include <stdint.h>
#include "interpose/nccl/nccl_types.h"

#define MAX_RANKS 8
#define DATA	  (8u << 20)  /* of one rank in one operation, or one message */
#define SMALL	  (64u << 10) /* messages that need not wait for their receive */
#define BUFFERS	  8
#define DEPTH	  4 /* operations whose data is kept */
#define COLLS	  64

struct pair {
	uint64_t posted, taken;
	uint64_t bytes[BUFFERS];
	char small[BUFFERS][SMALL];
	char large[DATA];
};

/* What the ranks of a communicator share. */
struct region {
	uint32_t arrived, connected, left;
	uint64_t split[COLLS][MAX_RANKS]; /* round, colour, key */
	uint64_t here[COLLS][MAX_RANKS];  /* index + 1, signature */
	uint64_t done[COLLS][MAX_RANKS];  /* index + 1 */
	struct pair pairs[MAX_RANKS][MAX_RANKS];
	char data[DEPTH][MAX_RANKS][DATA];
};

struct comm {
	uint64_t magic;
	int nranks, rank, device;
	int aborted, connected;
	int nonblocking;
	unsigned in_progress; /* calls whose work is not on its streams yet */
	struct region *r;
	char name[64];
	uint64_t next, turn; /* launches: given, finished */
	uint64_t nr_coll, sent[MAX_RANKS], got[MAX_RANKS], nr_split;
};

enum kind { AR, RED, BC, AG, RS, A2A, GA, SC, SEND, RECV };

struct op {
	enum kind kind;
	const void *in;
	void *out;
	size_t count, bytes; /* bytes: of `count` elements */
	int type, redop, root;
	struct comm *comm;
	cudaStream_t stream;
	uint64_t index;
	int step; /* 0 not begun, 1 posted, 2 done */
};

#define GET(p)	  __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define PUT(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)

typedef int cudaError_t;
cudaError_t cudaGetDevice(int *device);

/* region.c: a communicator with the memory of that name; until all of its ranks have it, or it is aborted. */
struct comm *fake_open(const char *name, int nranks, int rank);
void fake_wait_all(struct comm *c);
int fake_aborted(const struct comm *c);
void fake_nap(void);

/* One attempt to go on with an operation; o->step tells how far it is. Waits for nothing. */
void fake_step(struct op *o);

#endif
