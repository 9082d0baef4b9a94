/*
 * Arithmetic: executes one instruction for the lanes of a warp. Registers hold 64 bits. A narrower
 * value has zeros in the higher bits, and only its own bits are read. Combinations of operation and
 * type that the emulator lacks are reported when they are executed.
 */
#include "tests/cuda/ptx/alu.h"

/* ---- halves: one function for f16 and bf16 --------------------------------------------------- */

static uint16_t half_op(const struct insn *in, int bf, uint16_t a, uint16_t b, uint16_t c)
{
	float (*of)(uint16_t) = bf ? bf16_of : half_of;
	uint16_t (*to)(float) = bf ? bf16_to : half_to;
	float x = of(a), y = of(b);

	switch (in->base) {
	case P_ADD:
		return to(x + y);
	case P_SUB:
		return to(x - y);
	case P_MUL:
		return to(x * y);
	case P_FMA:
		return bf ? bf16_fma(a, b, c) : half_fma(a, b, c);
	case P_NEG:
		return a ^ 0x8000;
	case P_ABS:
		return a & 0x7fff;
	case P_MIN:
	case P_MAX:
		if (isnan(x) || isnan(y))
			return (in->mods & M_NAN) || (isnan(x) && isnan(y)) ? 0x7fff
			       : isnan(x)				    ? b
									    : a;
		if (x == y)
			/* of two zeros, min takes -0 and max +0 */
			return in->base == P_MIN ? a | b : a & b;
		return (x < y) == (in->base == P_MIN) ? a : b;
	default:
		return 0;
	}
}

static int halves(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	int two = in->type == T_F16X2 || in->type == T_BF16X2;
	int bf = in->type == T_BF16 || in->type == T_BF16X2;
	const uint64_t *x = at(b, w, in->a);
	const uint64_t *y = in->b == NOWHERE ? x : at(b, w, in->b);
	const uint64_t *z = in->c == NOWHERE ? x : at(b, w, in->c);
	uint64_t *d = at(b, w, in->d);

	EACH(mask, {
		uint16_t lo = half_op(in, bf, (uint16_t)x[l], (uint16_t)y[l], (uint16_t)z[l]);

		d[l] = !two ? lo
			    : half2(lo, half_op(in, bf, (uint16_t)(x[l] >> 16),
						(uint16_t)(y[l] >> 16), (uint16_t)(z[l] >> 16)));
	});
	return 1;
}

/* ---- numbers --------------------------------------------------------------------------------- */

#define BINARY(T, U, expr)                                                                         \
	EACH(mask, {                                                                               \
		T a = (T)x[l], b2 = (T)y[l];                                                       \
		(void)a, (void)b2;                                                                 \
		d[l] = (U)(expr);                                                                  \
	})
#define INTEGERS(expr)                                                                             \
	switch (in->type) {                                                                        \
	case T_B16:                                                                                \
	case T_U16:                                                                                \
		BINARY(uint16_t, uint16_t, expr);                                                  \
		return 1;                                                                          \
	case T_S16:                                                                                \
		BINARY(int16_t, uint16_t, expr);                                                   \
		return 1;                                                                          \
	case T_B32:                                                                                \
	case T_U32:                                                                                \
		BINARY(uint32_t, uint32_t, expr);                                                  \
		return 1;                                                                          \
	case T_S32:                                                                                \
		BINARY(int32_t, uint32_t, expr);                                                   \
		return 1;                                                                          \
	case T_B64:                                                                                \
	case T_U64:                                                                                \
		BINARY(uint64_t, uint64_t, expr);                                                  \
		return 1;                                                                          \
	case T_S64:                                                                                \
		BINARY(int64_t, uint64_t, expr);                                                   \
		return 1;                                                                          \
	default:                                                                                   \
		return 0;                                                                          \
	}
#define REALS(expr)                                                                                \
	if (in->type == T_F32) {                                                                   \
		EACH(mask, {                                                                       \
			float a = f32(x[l]), b2 = f32(y[l]);                                       \
			(void)b2;                                                                  \
			d[l] = of_f32(expr);                                                       \
		});                                                                                \
		return 1;                                                                          \
	}                                                                                          \
	if (in->type == T_F64) {                                                                   \
		EACH(mask, {                                                                       \
			double a = f64(x[l]), b2 = f64(y[l]);                                      \
			(void)b2;                                                                  \
			d[l] = of_f64(expr);                                                       \
		});                                                                                \
		return 1;                                                                          \
	}

static uint64_t high(uint64_t a, uint64_t b, enum type t)
{
	switch (t) {
	case T_U16:
		return (uint16_t)((uint32_t)(uint16_t)a * (uint16_t)b >> 16);
	case T_S16:
		return (uint16_t)((int16_t)a * (int16_t)b >> 16);
	case T_U32:
		return (uint64_t)(uint32_t)a * (uint32_t)b >> 32;
	case T_S32:
		return (uint32_t)((int64_t)(int32_t)a * (int32_t)b >> 32);
	case T_U64:
		return (uint64_t)((unsigned __int128)a * b >> 64);
	default:
		return (uint64_t)((__int128)(int64_t)a * (int64_t)b >> 64);
	}
}

static uint64_t wide(uint64_t a, uint64_t b, enum type t)
{
	switch (t) {
	case T_U16:
		return (uint32_t)(uint16_t)a * (uint16_t)b;
	case T_S16:
		return (uint32_t)((int16_t)a * (int16_t)b);
	case T_U32:
		return (uint64_t)(uint32_t)a * (uint32_t)b;
	default:
		return (uint64_t)((int64_t)(int32_t)a * (int32_t)b);
	}
}

static int product(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = at(b, w, in->b);
	const uint64_t *z = in->c == NOWHERE ? NULL : at(b, w, in->c);
	uint64_t *d = at(b, w, in->d);
	uint64_t keep = ptx_type_bytes(in->type) == 8	? UINT64_MAX
			: ptx_type_bytes(in->type) == 4 ? UINT32_MAX
							: UINT16_MAX;

	if (in->type == T_F32 || in->type == T_F64) {
		if (in->base == P_MUL && in->round != R_RN && in->round != R_NONE)
			return 0;
		if (!z) {
			REALS(a * b2)
		}
		if (in->type == T_F32)
			EACH(mask, d[l] = of_f32(fmaf(f32(x[l]), f32(y[l]), f32(z[l]))));
		else
			EACH(mask, d[l] = of_f64(fma(f64(x[l]), f64(y[l]), f64(z[l]))));
		return 1;
	}
	if (in->mods & M_WIDE) {
		keep = ptx_type_bytes(in->type) == 4 ? UINT64_MAX : UINT32_MAX;
		EACH(mask, d[l] = (wide(x[l], y[l], in->type) + (z ? z[l] : 0)) & keep);
	} else if (in->mods & M_HI) {
		EACH(mask, d[l] = (high(x[l], y[l], in->type) + (z ? z[l] : 0)) & keep);
	} else {
		EACH(mask, d[l] = (x[l] * y[l] + (z ? z[l] : 0)) & keep);
	}
	return 1;
}

/*
 * Division by 0 gives all ones, the remainder the dividend. Where `minus`, division by -1 is a
 * negation: the quotient of the smallest number and -1 cannot be represented.
 */
#define QUOTIENT(T, U, minus)                                                                      \
	EACH(mask, {                                                                               \
		T a = (T)x[l], b2 = (T)y[l];                                                       \
		int turn = (minus) && b2 == (T)-1;                                                 \
		if (in->base == P_DIV)                                                             \
			d[l] = (U)(!b2 ? (U) ~(U)0 : turn ? (U)(0 - (U)a) : (U)(a / b2));          \
		else                                                                               \
			d[l] = (U)(!b2 ? (U)a : turn ? (U)0 : (U)(a % b2));                        \
	})

static int quotient(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = at(b, w, in->b);
	uint64_t *d = at(b, w, in->d);

	if (in->base == P_DIV) {
		REALS(a / b2)
	}
	switch (in->type) {
	case T_U16:
		QUOTIENT(uint16_t, uint16_t, 0);
		return 1;
	case T_S16:
		QUOTIENT(int16_t, uint16_t, 1);
		return 1;
	case T_U32:
		QUOTIENT(uint32_t, uint32_t, 0);
		return 1;
	case T_S32:
		QUOTIENT(int32_t, uint32_t, 1);
		return 1;
	case T_U64:
		QUOTIENT(uint64_t, uint64_t, 0);
		return 1;
	case T_S64:
		QUOTIENT(int64_t, uint64_t, 1);
		return 1;
	default:
		return 0;
	}
}

static int sum(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = at(b, w, in->b);
	uint64_t *d = at(b, w, in->d);

	if (in->mods & M_SAT || (in->round != R_NONE && in->round != R_RN))
		return 0;
	if (in->base == P_ADD) {
		REALS(a + b2)
		INTEGERS((uint64_t)a + (uint64_t)b2)
	}
	REALS(a - b2)
	INTEGERS((uint64_t)a - (uint64_t)b2)
}

static int least(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = at(b, w, in->b);
	uint64_t *d = at(b, w, in->d);

	if (in->mods & M_NAN)
		return 0;
	if (in->base == P_MIN) {
		REALS((isnan(a) ? b2 : isnan(b2) ? a : a < b2 || (a == b2 && signbit(a)) ? a : b2))
		INTEGERS(a < b2 ? a : b2)
	}
	REALS((isnan(a) ? b2 : isnan(b2) ? a : a > b2 || (a == b2 && !signbit(a)) ? a : b2))
	INTEGERS(a > b2 ? a : b2)
}

static int one(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = x;
	uint64_t *d = at(b, w, in->d);

	switch (in->base) {
	case P_ABS:
		REALS(signbit(a) ? -a : a)
		EACH(mask, {
			int64_t v = in->type == T_S16	? (int16_t)x[l]
				    : in->type == T_S32 ? (int32_t)x[l]
							: (int64_t)x[l];
			uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;

			d[l] = in->type == T_S16   ? (uint16_t)u
			       : in->type == T_S32 ? (uint32_t)u
						   : u;
		});
		return in->type == T_S16 || in->type == T_S32 || in->type == T_S64;
	case P_NEG:
		REALS(-a)
		INTEGERS(0 - (uint64_t)a)
	case P_NOT:
		if (in->type == T_PRED) {
			EACH(mask, d[l] = !x[l]);
			return 1;
		}
		INTEGERS(~a)
	case P_SQRT:
		REALS(sizeof(a) == 4 ? sqrtf((float)a) : sqrt((double)a))
		return 0;
	case P_RCP:
		REALS(1 / a)
		return 0;
	case P_POPC:
		EACH(mask, d[l] = (uint64_t)__builtin_popcountll(
				   in->type == T_B64 ? x[l] : (uint32_t)x[l]));
		return 1;
	case P_CLZ:
		EACH(mask, {
			uint64_t v = in->type == T_B64 ? x[l] : (uint32_t)x[l];
			int all = in->type == T_B64 ? 64 : 32;

			d[l] = v ? (uint64_t)(__builtin_clzll(v) - (64 - all)) : (uint64_t)all;
		});
		return 1;
	case P_BREV:
		EACH(mask, {
			uint64_t v = x[l], r = 0;
			int n = in->type == T_B64 ? 64 : 32;

			for (int i = 0; i < n; i++)
				r |= (v >> i & 1) << (n - 1 - i);
			d[l] = r;
		});
		return 1;
	default:
		return 0;
	}
}

int ptx_alu(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	switch (in->base) {
	case P_ADD:
	case P_SUB:
	case P_MUL:
	case P_FMA:
	case P_MIN:
	case P_MAX:
	case P_NEG:
	case P_ABS:
		if (in->type == T_F16 || in->type == T_F16X2 || in->type == T_BF16 ||
		    in->type == T_BF16X2)
			return halves(b, w, in, mask);
		if (in->base == P_MUL || in->base == P_FMA)
			return product(b, w, in, mask);
		if (in->base == P_ADD || in->base == P_SUB)
			return sum(b, w, in, mask);
		if (in->base == P_NEG || in->base == P_ABS)
			return one(b, w, in, mask);
		return least(b, w, in, mask);
	case P_MAD:
		return product(b, w, in, mask);
	case P_DIV:
	case P_REM:
		return quotient(b, w, in, mask);
	case P_NOT:
	case P_SQRT:
	case P_RCP:
	case P_POPC:
	case P_CLZ:
	case P_BREV:
		return one(b, w, in, mask);
	case P_AND:
	case P_OR:
	case P_XOR:
	case P_SHL:
	case P_SHR:
	case P_SHF:
	case P_PRMT:
	case P_BFE:
	case P_BFI:
	case P_LOP3:
		return alu_bits(b, w, in, mask);
	case P_SETP:
		return alu_compare(b, w, in, mask);
	case P_CVT:
		return alu_convert(b, w, in, mask);
	case P_SELP:
	case P_MOV:
	case P_PACK:
	case P_UNPACK:
		return alu_move(b, w, in, mask);
	default:
		return 0;
	}
}
