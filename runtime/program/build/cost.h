/*
 * The cost of a built-in program: a model of time with few constants. Instructions, bytes copied
 * and reduced, and messages between nodes are counted in the program itself, so that model and
 * program cannot differ. Only the number of consecutive hops that a rank waits for is known by
 * algorithm.
 *
 * Pure functions of data that are equal on all ranks. Doubles are only added, multiplied and
 * compared, so that all ranks compute the same number. Thread-safe, no locks.
 */
#ifndef DF_RUNTIME_PROGRAM_BUILD_COST_H
#define DF_RUNTIME_PROGRAM_BUILD_COST_H

#include "runtime/program/proto.h"

struct df_cost {
	double inst_ns;	    /* one instruction, without its bytes */
	double byte_ns;	    /* one byte copied by one block */
	double reduce_ns;   /* one byte reduced by one block */
	double hop_ns;	    /* until a running peer sees what was sent */
	double switch_ns;   /* until a peer that must be scheduled first sees it */
	double block_ns;    /* for each further block */
	double far_ns;	    /* latency to another node */
	double far_inst_ns; /* one message to another node */
	double far_byte_ns; /* one byte to another node, over the links that a node's ranks share */
	double cores; /* cores for all ranks and blocks together; 0: as many as there are blocks */
	uint64_t tile_bytes; /* bytes of a slice */
	/*
	 * Low-latency protocols: the share of hop_ns that a slice saves, and the additional cost of
	 * a byte by protocol. A negative cost: the protocol is not used on this machine.
	 */
	double word_gain, word_byte_ns[DF_PROTO_NR];
	/* measured time / modelled time, by algorithm; 0: unknown, so 1 */
	double factor[DF_ALGO_NR];
};

/* Constants for CPU threads on shared memory, and for a GPU. */
extern const struct df_cost df_cost_host, df_cost_gpu;

/* Returns the expected nanoseconds; negative if there is no such program. algo is not AUTO. */
double df_cost_of(const struct df_cost *c, const struct df_prog_req *req, enum df_algo algo,
		  uint32_t blocks);

/*
 * Returns the cheapest algorithm of those in `mask` (bits of enum df_algo; 0: all). *blocks: the
 * most; set to the number chosen.
 */
enum df_algo df_cost_choose(const struct df_cost *c, const struct df_prog_req *req, uint32_t mask,
			    uint32_t *blocks, double *ns);

/*
 * Chooses the protocol of a program that names none: words while a slice of them costs less than
 * the wait that it saves. mask: bits of enum df_proto; 0, or a mask that allows none: all.
 */
enum df_proto df_cost_proto(const struct df_cost *c, const struct df_program *prog, uint64_t count,
			    uint32_t elem_bytes, uint32_t mask);

/*
 * One process's measurements of its machine, in 16 bytes of its row of the member table.
 * df_cal_agree() combines the rows of all ranks: each number is the median of the ranks that have
 * it, but for hops the least.
 */
enum df_cal_what {
	DF_CAL_INST,
	DF_CAL_BYTE,
	DF_CAL_REDUCE,
	DF_CAL_HOP,
	DF_CAL_SWITCH,
	/* A process's row has the cores of its node; df_cal_agree() expects those of one rank. */
	DF_CAL_CORES,
	DF_CAL_NR
};
#define DF_CAL_FACTORS (DF_ALGO_NR - 1)
struct df_cal {
	uint16_t v[DF_CAL_NR];	       /* df_cal_code(); 0: not measured */
	int8_t factor[DF_CAL_FACTORS]; /* of algorithm i + 1: 8 * log2; -128: not measured */
};
_Static_assert(sizeof(struct df_cal) == 16, "struct df_member has 16 bytes for it");

/*
 * Measurements of the path from one node to another: df_cal_code() of latency, message and byte; 0:
 * not measured.
 */
#define DF_FAR_TRIES 3
struct df_far {
	uint16_t ns, inst, byte;
	/* Attempts; DF_FAR_TRIES once the measurement is complete or given up. */
	uint16_t tries;
};
/*
 * Uses the slowest path, because programs wait for all of them. A value measured on no path keeps
 * its default.
 */
void df_far_agree(struct df_cost *c, int nr, const struct df_far *way);

/* Encodes a number from 0.0001 to 10^8, up to 4.3 % too low; 0 for x <= 0. */
uint16_t df_cal_code(double x);
double df_cal_value(uint16_t code);
/* 8 * log2(x), within -64 and 64: rounded down for x > 1, to the nearest number for x < 1. */
int df_cal_log(double x);
/* Replaces those costs in *c that any rank has measured. Fails with -ENOMEM. */
int df_cal_agree(struct df_cost *c, int nranks, const struct df_cal *row);

#endif
