/*
 * Cycles until the result of an instruction is ready, for instructions that do not access memory.
 */
#include "tests/cuda/ptx/time.h"

enum {
#define DF_TIME(name, value, source) T_##name = (value),
#include "tests/cuda/ptx/times.def"
#undef DF_TIME
};

static int is_wide(const struct insn *in)
{
	return ptx_type_bytes(in->type) == 8 || in->mods & M_WIDE;
}

uint64_t time_cycles(const struct insn *in)
{
	switch (in->base) {
	case P_DIV:
	case P_REM:
		return is_wide(in) ? T_wide_div_cycles : T_div_cycles;
	case P_SQRT:
	case P_RCP:
	case P_CVT:
	case P_SHFL:
	case P_VOTE:
	case P_POPC:
	case P_CLZ:
	case P_BREV:
	case P_SPECIAL:
		return T_special_cycles;
	case P_MUL:
	case P_MAD:
		return is_wide(in) ? 2 * T_wide_cycles : T_alu_cycles;
	case P_ADD:
	case P_SUB:
	case P_SHL:
	case P_SHR:
	case P_SETP:
	case P_MIN:
	case P_MAX:
	case P_FMA:
		return is_wide(in) ? T_wide_cycles : T_alu_cycles;
	default:
		return T_alu_cycles;
	}
}
