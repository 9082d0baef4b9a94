/*
 * Shared by the files of the PTX emulator.
 *
 *   read.c     words, names, declarations
 *   parse.c    text -> modules, kernels, statements
 *   decode.c   one statement -> one struct insn
 *   run.c      blocks, warps, branches, barriers
 *   alu.c      arithmetic, one instruction over the lanes of a warp; bits.c, convert.c
 *   mem.c      loads, stores, atomics; the memory that they may access, and races
 *   weak.c     weakly ordered memory: late stores, stale loads
 *   time.c     virtual time
 *   cycles.c   latencies of instructions
 *   chain.c    the path of steps that leads to a store
 *   half.c     numbers of 16 and 8 bits
 */
#ifndef DF_TESTS_PTX_INT_H
#define DF_TESTS_PTX_INT_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>
#include "tests/cuda/ptx/ptx.h"

#define LANES 32

enum base {
	P_UNKNOWN,
	P_ADD,
	P_SUB,
	P_MUL,
	P_MAD,
	P_FMA,
	P_DIV,
	P_REM,
	P_MIN,
	P_MAX,
	P_ABS,
	P_NEG,
	P_SQRT,
	P_RCP,
	P_AND,
	P_OR,
	P_XOR,
	P_NOT,
	P_SHL,
	P_SHR,
	P_SHF,
	P_PRMT,
	P_POPC,
	P_CLZ,
	P_BREV,
	P_BFE,
	P_BFI,
	P_LOP3,
	P_SELP,
	P_SETP,
	P_CVT,
	P_MOV,
	P_SPECIAL, /* mov from a special register */
	P_SYMBOL,  /* mov of the address of a variable that each block or thread has of its own */
	P_PACK,	   /* mov from a vector */
	P_UNPACK,  /* mov to a vector */
	P_LD,
	P_ST,
	P_ATOM,
	P_FENCE,
	P_BAR,
	P_WARPSYNC,
	P_VOTE,
	P_SHFL,
	P_ACTIVE,
	P_BRA,
	P_BRX,
	P_RET,
	P_TRAP,
	P_NANOSLEEP,
	P_NOTHING,
};

enum type {
	T_NONE,
	T_PRED,
	T_B8,
	T_U8,
	T_S8,
	T_B16,
	T_U16,
	T_S16,
	T_F16,
	T_BF16,
	T_B32,
	T_U32,
	T_S32,
	T_F32,
	T_F16X2,
	T_BF16X2,
	T_B64,
	T_U64,
	T_S64,
	T_F64,
	T_E4M3X2,
	T_E5M2X2,
};

enum space { S_GENERIC, S_GLOBAL, S_SHARED, S_LOCAL, S_PARAM, S_CONST };

enum cmp {
	C_NONE,
	C_EQ,
	C_NE,
	C_LT,
	C_LE,
	C_GT,
	C_GE,
	C_EQU,
	C_NEU,
	C_LTU,
	C_LEU,
	C_GTU,
	C_GEU,
	C_NUM,
	C_NAN
};

/* Further parts of an instruction's name, as bits of insn.mods. */
#define M_LO	    (1u << 0)
#define M_HI	    (1u << 1)
#define M_WIDE	    (1u << 2)
#define M_SAT	    (1u << 3)
#define M_SATFINITE (1u << 4)
#define M_UNI	    (1u << 5)
#define M_STRONG    (1u << 6) /* not a plain access: relaxed, volatile, acquire, release */
#define M_ACQUIRE   (1u << 7)
#define M_RELEASE   (1u << 8)
#define M_AND	    (1u << 9)
#define M_OR	    (1u << 10)
#define M_XOR	    (1u << 11)
#define M_POPC	    (1u << 12)
#define M_RED	    (1u << 13) /* for barriers: reduces a value of all threads */
#define M_CAS	    (1u << 14)
#define M_EXCH	    (1u << 15)
#define M_INC	    (1u << 16)
#define M_DEC	    (1u << 17)
#define M_MIN	    (1u << 18)
#define M_MAX	    (1u << 19)
#define M_ADD	    (1u << 20)
#define M_UP	    (1u << 21)
#define M_DOWN	    (1u << 22)
#define M_BFLY	    (1u << 23)
#define M_IDX	    (1u << 24)
#define M_ALL	    (1u << 25)
#define M_ANY	    (1u << 26)
#define M_BALLOT    (1u << 27)
#define M_NAN	    (1u << 28)
#define M_LEFT	    (1u << 29)
#define M_RIGHT	    (1u << 30)
#define M_WRAP	    (1u << 31)

enum round { R_NONE, R_RN, R_RZ, R_RM, R_RP, R_RNI, R_RZI, R_RMI, R_RPI };

/* Special registers. Three values in a row are the components x, y, z. */
enum special {
	X_TID,
	X_NTID = X_TID + 3,
	X_CTAID = X_NTID + 3,
	X_NCTAID = X_CTAID + 3,
	X_LANEID = X_NCTAID + 3,
	X_WARPID,
	X_NWARPID,
	X_SMID,
	X_NSMID,
	X_CLOCK,
	X_GLOBALTIMER,
	X_LANEMASK_LT,
	X_LANEMASK_LE,
	X_LANEMASK_EQ,
	X_LANEMASK_GE,
	X_LANEMASK_GT,
};

#define NOWHERE INT32_MIN

/*
 * The index of a register of a warp or, if negative, of a constant of the kernel. NOWHERE: no
 * operand.
 */
typedef int32_t slot;

struct insn {
	enum base base;
	enum type type,
		/*
		 * `type` is the type of the result. `from` is the type of cvt's operand; else both
		 * are equal.
		 */
		from;
	enum space space;
	enum cmp cmp;
	enum round round;
	uint32_t mods;
	uint8_t vec; /* number of values: 1, 2 or 4 */
	uint8_t not_if;
	uint8_t near; /* scope .gpu or .cta: orders accesses of this GPU only */
	slot pred;    /* executed by threads whose value is not 0 (with not_if: 0) */
	slot d, d2, a, b, c, e;
	slot v[4]; /* vector operand */
	/*
	 * For an address: added to the value of `a`, or without `a` the offset of the variable in
	 * its space. For a branch: the index of the target. For P_SPECIAL: the enum special.
	 */
	int64_t offset;
	int32_t *targets; /* for P_BRX: the indices of the targets */
	uint32_t nr_targets;
	uint32_t line;		 /* line of the PTX text */
	uint32_t file, src_line; /* position in the source by .loc; 0 if unknown */
};

struct param {
	char *name;
	size_t offset, bytes;
};

/* A variable of a module, of a block's shared memory, or of a thread's local memory. */
struct variable {
	char *name;
	enum space space;
	int dynamic; /* shared, after all other variables; the launch gives its size */
	size_t offset, bytes;
	UT_hash_handle hh;
};

struct ptx_kernel {
	char *name;
	const struct ptx_module *module;
	struct insn *code;
	uint32_t nr, room;
	uint64_t *consts; /* each constant LANES times, so that it is read as a register is */
	uint32_t nr_consts;
	uint32_t nr_regs;
	struct param *params;
	uint32_t nr_params;
	size_t param_bytes, shared_bytes, local_bytes;
	unsigned int max_threads;
	UT_hash_handle hh;
};

struct ptx_module {
	char *name, *text;
	size_t len;
	struct ptx_kernel *kernels;
	struct variable *variables;
	uint8_t *memory; /* holds the variables in global and const */
	size_t bytes, shared_bytes;
	char **files; /* by number of .file */
	uint32_t nr_files;
};

/* ---- reading --------------------------------------------------------------------------------- */

struct operand {
	enum { O_NONE, O_SLOT, O_VECTOR, O_ADDRESS, O_VARIABLE, O_SPECIAL, O_WORD } kind;
	slot s;
	slot v[4];
	int nr;
	const struct variable *var; /* also set for an address that contains a variable */
	const struct param *param;
	int64_t offset;
	int special;
	char word[256];
};

/*
 * Decodes an instruction's name and operands into `in`, except for the targets of branches. Returns
 * 0 and sets in->base to P_UNKNOWN if the emulator does not know the instruction.
 */
int ptx_decode(struct insn *in, const char *name, const struct operand *o, int nr);

/* ---- running --------------------------------------------------------------------------------- */

struct cell; /* the accesses of four bytes since the last barrier */

struct warp {
	uint64_t *regs;
	uint32_t pc[LANES];
	uint32_t live, at_barrier, at_warpsync;
	uint32_t first; /* number of the first thread */
	uint32_t picks;
	uint32_t epoch;		  /* number of barriers of this warp alone */
	uint32_t acquired[LANES]; /* for each thread: value of block.acquires at its last acquire */
	/* used only with a clock (time.c) */
	uint64_t clock;	 /* earliest moment of the next instruction */
	uint64_t *ready; /* for each register: when its value is ready */
	/* a ring: the last moments (ps) until which it waited for host memory */
	uint64_t waited[16];
	uint32_t nr_waited;
	struct chain *chain; /* see chain.c; NULL: nothing is recorded */
};

struct run {
	const struct ptx_launch *l;
	const struct ptx_kernel *k;
	pthread_mutex_t lock;
	unsigned int next, nr_blocks;
	uint8_t *told; /* for each instruction: bits of the kinds of faults reported */
	int faults, trapped;
};

struct block {
	struct run *run;
	const struct ptx_kernel *k;
	unsigned int index, ctaid[3];
	unsigned int nr_threads, nr_warps;
	struct warp *warps;
	uint8_t *shared, *local;
	size_t shared_bytes;
	uint32_t epoch; /* number of barriers */
	int red_and, red_or, red_popc;
	uint64_t rng;
	struct cell *shared_cells;
	struct page *pages; /* accesses of global memory, by page */
	uint32_t nr_pages;
	struct page *last_page;
	uintptr_t from, to; /* range that is known to be accessible */
	uint64_t generation;
	/* used only by weak.c */
	/* number of acquires, from 1; that number at the last barrier */
	uint32_t acquires, acquires_at_barrier;
	struct waiting *waiting; /* words with stores that are not published yet */
	uint32_t nr_waiting, room_waiting;
	struct sm *sm; /* see time.c; NULL: no clock */
};

static inline uint64_t *at(const struct block *b, const struct warp *w, slot s)
{
	return s >= 0 ? w->regs + (size_t)s * LANES
		      : b->k->consts + (size_t)(-(int64_t)s - 1) * LANES;
}

/* Executes the statement for each lane l of the mask. */
#define EACH(mask, ...)                                                                            \
	do {                                                                                       \
		if ((mask) == UINT32_MAX)                                                          \
			for (int l = 0; l < LANES; l++) {                                          \
				__VA_ARGS__;                                                       \
			}                                                                          \
		else                                                                               \
			for (uint32_t m_ = (mask); m_; m_ &= m_ - 1) {                             \
				int l = __builtin_ctz(m_);                                         \
				__VA_ARGS__;                                                       \
			}                                                                          \
	} while (0)

enum fault { F_ADDRESS, F_ALIGN, F_RACE, F_BARRIER, F_UNKNOWN, F_TRAP };

/* Reports a fault once for each instruction and kind. Every kind except F_RACE ends the kernel. */
void ptx_fault(struct block *b, const struct insn *in, enum fault kind, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Writes the instruction and its position in the source into `buf`, and returns `buf`. */
const char *ptx_where(const struct ptx_kernel *k, const struct insn *in, char *buf, size_t room);
/*
 * Executes one instruction for the lanes of the mask. Returns 0 if this is no instruction of
 * arithmetic that the emulator knows.
 */
int ptx_alu(struct block *b, struct warp *w, const struct insn *in, uint32_t mask);
void ptx_memory(struct block *b, struct warp *w, const struct insn *in, uint32_t mask);
void ptx_cells_free(struct block *b);
void ptx_fence(struct block *b, struct warp *w, const struct insn *in, uint32_t mask);
uint64_t ptx_draw(struct block *b);
unsigned int ptx_type_bytes(enum type t);

/* half.c: conversions from bits and back, rounding to nearest even. */
float half_of(uint16_t bits);
uint16_t half_to(float x);
float bf16_of(uint16_t bits);
uint16_t bf16_to(float x);
/* These return a * b + c, rounded once. */
uint16_t half_fma(uint16_t a, uint16_t b, uint16_t c);
uint16_t bf16_fma(uint16_t a, uint16_t b, uint16_t c);
/*
 * fp8 with 4 or 5 bits of exponent. fp8_to() turns a number out of range into the largest finite
 * number.
 */
float fp8_of(uint8_t bits, int exponent);
uint8_t fp8_to(float x, int exponent);

#endif
