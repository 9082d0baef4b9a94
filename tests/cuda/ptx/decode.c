/* Decodes an instruction: the parts of its name, one by one, and its operands. */
#include <stdio.h>
#include <string.h>
#include "tests/cuda/ptx/int.h"

static const struct {
	const char *name;
	enum base base;
	int operands; /* smallest number of operands */
} bases[] = {
	{"add", P_ADD, 3},
	{"sub", P_SUB, 3},
	{"mul", P_MUL, 3},
	{"mad", P_MAD, 4},
	{"fma", P_FMA, 4},
	{"div", P_DIV, 3},
	{"rem", P_REM, 3},
	{"min", P_MIN, 3},
	{"max", P_MAX, 3},
	{"abs", P_ABS, 2},
	{"neg", P_NEG, 2},
	{"sqrt", P_SQRT, 2},
	{"rcp", P_RCP, 2},
	{"and", P_AND, 3},
	{"or", P_OR, 3},
	{"xor", P_XOR, 3},
	{"not", P_NOT, 2},
	{"shl", P_SHL, 3},
	{"shr", P_SHR, 3},
	{"shf", P_SHF, 4},
	{"prmt", P_PRMT, 4},
	{"popc", P_POPC, 2},
	{"clz", P_CLZ, 2},
	{"brev", P_BREV, 2},
	{"bfe", P_BFE, 4},
	{"bfi", P_BFI, 5},
	{"lop3", P_LOP3, 5},
	{"selp", P_SELP, 4},
	{"setp", P_SETP, 3},
	{"cvt", P_CVT, 2},
	{"mov", P_MOV, 2},
	{"cvta", P_MOV, 2},
	{"ld", P_LD, 2},
	{"ldu", P_LD, 2},
	{"st", P_ST, 2},
	{"atom", P_ATOM, 3},
	{"red", P_ATOM, 2},
	{"fence", P_FENCE, 0},
	{"membar", P_FENCE, 0},
	{"bar", P_BAR, 1},
	{"barrier", P_BAR, 1},
	{"vote", P_VOTE, 3},
	{"shfl", P_SHFL, 5},
	{"activemask", P_ACTIVE, 1},
	{"bra", P_BRA, 1},
	{"brx", P_BRX, 2},
	{"ret", P_RET, 0},
	{"exit", P_RET, 0},
	{"trap", P_TRAP, 0},
	{"brkpt", P_TRAP, 0},
	{"nanosleep", P_NANOSLEEP, 1},
	{"prefetch", P_NOTHING, 1},
};

static const struct {
	const char *name;
	enum type type;
} types[] = {
	{"pred", T_PRED},     {"b8", T_B8},	  {"u8", T_U8},		{"s8", T_S8},
	{"b16", T_B16},	      {"u16", T_U16},	  {"s16", T_S16},	{"f16", T_F16},
	{"bf16", T_BF16},     {"b32", T_B32},	  {"u32", T_U32},	{"s32", T_S32},
	{"f32", T_F32},	      {"f16x2", T_F16X2}, {"bf16x2", T_BF16X2}, {"b64", T_B64},
	{"u64", T_U64},	      {"s64", T_S64},	  {"f64", T_F64},	{"e4m3x2", T_E4M3X2},
	{"e5m2x2", T_E5M2X2},
};

static const struct {
	const char *name;
	enum cmp cmp;
} cmps[] = {
	{"eq", C_EQ},	{"ne", C_NE},	{"lt", C_LT},	{"le", C_LE},	{"gt", C_GT},
	{"ge", C_GE},	{"lo", C_LT},	{"ls", C_LE},	{"hi", C_GT},	{"hs", C_GE},
	{"equ", C_EQU}, {"neu", C_NEU}, {"ltu", C_LTU}, {"leu", C_LEU}, {"gtu", C_GTU},
	{"geu", C_GEU}, {"num", C_NUM}, {"nan", C_NAN},
};

static const struct {
	const char *name;
	uint32_t mods;
} mods[] = {
	{"lo", M_LO},
	{"hi", M_HI},
	{"wide", M_WIDE},
	{"sat", M_SAT},
	{"satfinite", M_SATFINITE},
	{"uni", M_UNI},
	{"relaxed", M_STRONG},
	{"volatile", M_STRONG},
	{"acquire", M_STRONG | M_ACQUIRE},
	{"release", M_STRONG | M_RELEASE},
	{"acq_rel", M_STRONG | M_ACQUIRE | M_RELEASE},
	{"sc", M_ACQUIRE | M_RELEASE},
	{"and", M_AND},
	{"or", M_OR},
	{"xor", M_XOR},
	{"popc", M_POPC},
	{"red", M_RED},
	{"cas", M_CAS},
	{"exch", M_EXCH},
	{"inc", M_INC},
	{"dec", M_DEC},
	{"min", M_MIN},
	{"max", M_MAX},
	{"add", M_ADD},
	{"up", M_UP},
	{"down", M_DOWN},
	{"bfly", M_BFLY},
	{"idx", M_IDX},
	{"all", M_ALL},
	{"any", M_ANY},
	{"ballot", M_BALLOT},
	{"NaN", M_NAN},
	{"l", M_LEFT},
	{"r", M_RIGHT},
	{"wrap", M_WRAP},
	/*
	 * Parts that change nothing here: scopes, cache hints, precisions, and parts that every
	 * known instruction implies.
	 */
	{"sys", 0},
	{"gpu", 0},
	{"gl", 0},
	{"cta", 0},
	{"warp", 0},
	{"sync", 0},
	{"aligned", 0},
	{"cv", 0},
	{"cg", 0},
	{"ca", 0},
	{"cs", 0},
	{"wt", 0},
	{"wb", 0},
	{"nc", 0},
	{"L1", 0},
	{"L2", 0},
	{"clamp", 0},
	{"to", 0},
	{"approx", 0},
	{"full", 0},
	{"L1::no_allocate", 0},
};

static const struct {
	const char *name;
	enum space space;
} spaces[] = {
	{"global", S_GLOBAL}, {"shared", S_SHARED}, {"local", S_LOCAL},
	{"param", S_PARAM},   {"const", S_CONST},
};

static const struct {
	const char *name;
	enum round round;
} rounds[] = {
	{"rn", R_RN},	{"rz", R_RZ},	{"rm", R_RM},	{"rp", R_RP},
	{"rni", R_RNI}, {"rzi", R_RZI}, {"rmi", R_RMI}, {"rpi", R_RPI},
};

#define LOOK(table, field, to)                                                                     \
	for (i = 0; i < sizeof(table) / sizeof(*table); i++)                                       \
		if (strcmp(table[i].name, part) == 0) {                                            \
			(to) = table[i].field;                                                     \
			return 1;                                                                  \
		}

/* Decodes one part of the name after the first. Returns 0 if the part is unknown. */
static int modifier(struct insn *in, const char *part)
{
	size_t i;
	enum type t = T_NONE;

	for (i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (strcmp(types[i].name, part) == 0)
			t = types[i].type;
	if (t != T_NONE) {
		if (in->type == T_NONE)
			in->type = t;
		else
			in->from = t;
		return 1;
	}
	if (in->base == P_SETP && in->cmp == C_NONE)
		LOOK(cmps, cmp, in->cmp)
	LOOK(spaces, space, in->space)
	LOOK(rounds, round, in->round)
	if (strcmp(part, "v2") == 0 || strcmp(part, "v4") == 0) {
		in->vec = (uint8_t)(part[1] - '0');
		return 1;
	}
	if (part[0] == 'x' && in->base == P_BRX)
		return 1;
	if (strcmp(part, "gpu") == 0 || strcmp(part, "cta") == 0)
		in->near = 1;
	for (i = 0; i < sizeof(mods) / sizeof(*mods); i++)
		if (strcmp(mods[i].name, part) == 0) {
			in->mods |= mods[i].mods;
			return 1;
		}
	return 0;
}

unsigned int ptx_type_bytes(enum type t)
{
	switch (t) {
	case T_B8:
	case T_U8:
	case T_S8:
	case T_PRED:
		return 1;
	case T_B16:
	case T_U16:
	case T_S16:
	case T_F16:
	case T_BF16:
	case T_E4M3X2:
	case T_E5M2X2:
		return 2;
	case T_B64:
	case T_U64:
	case T_S64:
	case T_F64:
		return 8;
	default:
		return 4;
	}
}

static int is_slot(const struct operand *o)
{
	return o->kind == O_SLOT;
}

/*
 * Decodes an address and, if `val` is not NULL, the register, vector or constant that is loaded or
 * stored.
 */
static int memory_operands(struct insn *in, const struct operand *addr, const struct operand *val)
{
	if (addr->kind != O_ADDRESS || (val && val->kind != O_SLOT && val->kind != O_VECTOR))
		return 0;
	in->a = addr->s;
	in->offset = addr->offset;
	if (addr->param)
		in->space = S_PARAM;
	else if (addr->var && addr->s == NOWHERE)
		in->space = addr->var->space;
	if (!val)
		return 1;
	if (val->kind == O_VECTOR) {
		if (val->nr != in->vec)
			return 0;
		memcpy(in->v, val->v, sizeof(in->v));
	} else if (in->vec == 1) {
		in->v[0] = val->s;
	} else {
		return 0;
	}
	return 1;
}

static int mov(struct insn *in, const struct operand *o)
{
	if (is_slot(&o[0]) && is_slot(&o[1])) {
		in->d = o[0].s;
		in->a = o[1].s;
		return 1;
	}
	if (is_slot(&o[0]) && o[1].kind == O_SPECIAL) {
		in->base = P_SPECIAL;
		in->d = o[0].s;
		in->offset = o[1].special;
		return 1;
	}
	if (is_slot(&o[0]) && o[1].kind == O_VARIABLE) {
		in->base = P_SYMBOL;
		in->d = o[0].s;
		in->space = o[1].param ? S_PARAM : o[1].var->space;
		in->offset = o[1].offset;
		return 1;
	}
	if (is_slot(&o[0]) && o[1].kind == O_VECTOR) {
		in->base = P_PACK;
		in->d = o[0].s;
		in->vec = (uint8_t)o[1].nr;
		memcpy(in->v, o[1].v, sizeof(in->v));
		return 1;
	}
	if (o[0].kind == O_VECTOR && is_slot(&o[1])) {
		in->base = P_UNPACK;
		in->a = o[1].s;
		in->vec = (uint8_t)o[0].nr;
		memcpy(in->v, o[0].v, sizeof(in->v));
		return 1;
	}
	return 0;
}

static int operands(struct insn *in, const char *name, const struct operand *o, int nr)
{
	slot *to[] = {&in->d, &in->a, &in->b, &in->c, &in->e};
	int i;

	switch (in->base) {
	case P_MOV:
		return mov(in, o);
	case P_LD:
		return memory_operands(in, &o[1], &o[0]);
	case P_ST:
		return memory_operands(in, &o[0], &o[1]);
	case P_ATOM: {
		int red = name[0] == 'r';

		/* The operands are d, [a], b, c; red has no d. */
		if (!memory_operands(in, &o[!red], NULL))
			return 0;
		for (i = 0; i < nr; i++)
			if (i != !red && !is_slot(&o[i]))
				return 0;
		if (!red)
			in->d = o[0].s;
		in->b = o[2 - red].s;
		in->c = nr > 3 - red ? o[3 - red].s : NOWHERE;
		return 1;
	}
	case P_BAR:
		/*
		 * Only barriers of all threads are known, so there is no operand for their number.
		 */
		in->mods |= strstr(name, ".red") ? M_RED : 0;
		if (strncmp(name, "bar.warp", 8) == 0) {
			in->base = P_WARPSYNC;
			in->a = o[0].s;
			return is_slot(&o[0]);
		}
		if (strstr(name, ".arrive"))
			return 0;
		if (!(in->mods & M_RED)) {
			in->a = o[0].s;
			return nr == 1 && is_slot(&o[0]);
		}
		in->d = o[0].s;
		in->a = o[1].s;
		in->b = o[2].s;
		return nr == 3 && is_slot(&o[0]) && is_slot(&o[1]) && is_slot(&o[2]);
	case P_BRA:
		return o[0].kind == O_WORD;
	case P_BRX:
		in->a = o[0].s;
		return is_slot(&o[0]) && o[1].kind == O_WORD;
	case P_SETP:
		if (o[0].nr)
			in->d2 = o[0].v[0];
		/* fall through */
	default:
		/*
		 * The last operand may be the mask of the warp's threads that must meet. It is a
		 * value as any other operand.
		 */
		for (i = 0; i < nr && i < 5; i++) {
			if (!is_slot(&o[i]))
				return 0;
			*to[i] = o[i].s;
		}
		if (in->base == P_NANOSLEEP) {
			in->a = in->d;
			in->d = NOWHERE;
		}
		if (in->base == P_SHFL && o[0].nr)
			in->d2 = o[0].v[0];
		return nr <= 5;
	}
}

int ptx_decode(struct insn *in, const char *name, const struct operand *o, int nr)
{
	char part[64];
	const char *p = name + strcspn(name, ".");
	size_t i, len = (size_t)(p - name);
	int known = 1, least = 0;

	in->vec = 1;
	in->d = in->d2 = in->a = in->b = in->c = in->e = NOWHERE;
	for (i = 0; i < 4; i++)
		in->v[i] = NOWHERE;
	for (i = 0; i < sizeof(bases) / sizeof(*bases); i++)
		if (strlen(bases[i].name) == len && strncmp(bases[i].name, name, len) == 0) {
			in->base = bases[i].base;
			least = bases[i].operands;
		}
	while (*p == '.' && known) {
		size_t n = strcspn(p + 1, ".");

		if (n >= sizeof(part))
			return in->base = P_UNKNOWN, 0;
		memcpy(part, p + 1, n);
		part[n] = 0;
		known = modifier(in, part);
		p += 1 + n;
	}
	if (!known || in->base == P_UNKNOWN || nr < least || !operands(in, name, o, nr)) {
		in->base = P_UNKNOWN;
		return 0;
	}
	/* Only cvt has a second type, that of its operand. */
	if (in->from == T_NONE)
		in->from = in->type;
	return 1;
}
