/*
 * What a built-in program costs: a model of time with few constants. The program itself is counted (instructions,
 * bytes copied and reduced, what crosses to another node), so that model and program can't differ; only how
 * many peers in a row a rank waits for is known per algorithm.
 *
 * Pure functions of what is equal on all ranks; doubles are only added, multiplied and compared, so that all
 * ranks come to the same number. Thread-safe, no locks.
 */
#ifndef DF_RUNTIME_PROGRAM_BUILD_COST_H
#define DF_RUNTIME_PROGRAM_BUILD_COST_H

#include "runtime/program/proto.h"

struct df_cost {
	double inst_ns;	    /* one instruction, without its bytes */
	double byte_ns;	    /* one byte copied by one block */
	double reduce_ns;   /* one byte reduced by one block */
	double hop_ns;	    /* until a peer that runs sees what was sent */
	double switch_ns;   /* until one that has to be scheduled first sees it */
	double block_ns;    /* one more block that takes part */
	double far_ns;	    /* latency to another node */
	double far_inst_ns; /* one message to another node */
	double far_byte_ns; /* one byte to another node, through links that the ranks of a node share */
	double cores; /* on which all ranks and blocks together run; 0: as many as there are blocks */
	uint64_t tile_bytes; /* of one slice */
	/*
	 * Low-latency protocols: how much of hop_ns a slice of words saves, and what a byte costs more, taken and
	 * put. Negative: not on this machine.
	 */
	double word_gain, word_byte_ns[DF_PROTO_NR];
	double factor[DF_ALGO_NR]; /* measured time / this model's, by algorithm; 0: 1 */
};

/* Constants for CPU threads on shared memory, and for a GPU. */
extern const struct df_cost df_cost_host, df_cost_gpu;

/* Nanoseconds expected; algo is not AUTO. Negative: there is no such program. */
double df_cost_of(const struct df_cost *c, const struct df_prog_req *req, enum df_algo algo,
		  uint32_t blocks);

/* The cheapest algorithm of those in `mask` (bits of enum df_algo, 0 all); *blocks in: the most, out: chosen. */
enum df_algo df_cost_choose(const struct df_cost *c, const struct df_prog_req *req, uint32_t mask,
			    uint32_t *blocks, double *ns);

/*
 * The protocol for a program that has no wish of its own: words as long as a slice of them costs less than the
 * wait that it saves. mask: bits of enum df_proto, 0 all; a mask that leaves nothing is none.
 */
enum df_proto df_cost_proto(const struct df_cost *c, const struct df_program *prog, uint64_t count,
			    uint32_t elem_bytes, uint32_t mask);

/*
 * What a process measured of its machine, in 16 bytes of its row in the member table. df_cal_agree() makes
 * of the rows of all ranks what all of them use: for each number the median of those who have it, of hops the least.
 */
enum df_cal_what {
	DF_CAL_INST,
	DF_CAL_BYTE,
	DF_CAL_REDUCE,
	DF_CAL_HOP,
	DF_CAL_SWITCH,
	DF_CAL_CORES, /* processors; of the node in the row, for each of its ranks when they are agreed on */
	DF_CAL_NR
};
#define DF_CAL_FACTORS (DF_ALGO_NR - 1)
struct df_cal {
	uint16_t v[DF_CAL_NR];	       /* df_cal_code(); 0: not measured */
	int8_t factor[DF_CAL_FACTORS]; /* of algorithm i + 1: 8 * log2; -128: not measured */
};
_Static_assert(sizeof(struct df_cal) == 16, "has its place in struct df_member");

/* What was measured of the way from one node to another: df_cal_code() of latency, message and byte; 0: it was not. */
#define DF_FAR_TRIES 3
struct df_far {
	uint16_t ns, inst, byte;
	uint16_t tries; /* so often it was measured; DF_FAR_TRIES: not again */
};
/* The slowest way decides: programs wait for all of them. What was measured nowhere stays as it is. */
void df_far_agree(struct df_cost *c, int nr, const struct df_far *way);

uint16_t df_cal_code(double x); /* 0.0001 to 10^8 within 3 %; 0 for 0 and less */
double df_cal_value(uint16_t code);
/* 8 * log2(x), rounded, within -64 and 64. */
int df_cal_log(double x);
/* Overwrites in *c what some rank has measured. -ENOMEM. */
int df_cal_agree(struct df_cost *c, int nranks, const struct df_cal *row);

#endif
