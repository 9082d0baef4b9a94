/* Comparisons, and conversions between types. */
#include "tests/cuda/ptx/alu.h"

/* ---- comparing ------------------------------------------------------------------------------- */

static int compare(enum cmp c, int less, int equal, int unordered)
{
	switch (c) {
	case C_EQ:
		return equal;
	case C_NE:
		return !equal && !unordered;
	case C_LT:
		return less;
	case C_LE:
		return less || equal;
	case C_GT:
		return !less && !equal && !unordered;
	case C_GE:
		return !less && !unordered;
	case C_EQU:
		return equal || unordered;
	case C_NEU:
		return !equal;
	case C_LTU:
		return less || unordered;
	case C_LEU:
		return less || equal || unordered;
	case C_GTU:
		return !less && !equal;
	case C_GEU:
		return !less;
	case C_NUM:
		return !unordered;
	case C_NAN:
		return unordered;
	default:
		return 0;
	}
}

#define ORDER(T)                                                                                   \
	EACH(mask, {                                                                               \
		T a = (T)x[l], b2 = (T)y[l];                                                       \
		r[l] = (uint8_t)compare(in->cmp, a < b2, a == b2, 0);                              \
	})

int alu_compare(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a), *y = at(b, w, in->b);
	const uint64_t *z = in->c == NOWHERE ? NULL : at(b, w, in->c);
	uint64_t *d = in->d == NOWHERE ? NULL : at(b, w, in->d);
	uint64_t *d2 = in->d2 == NOWHERE ? NULL : at(b, w, in->d2);
	uint8_t r[LANES];

	switch (in->type) {
	case T_F32:
		EACH(mask, {
			float a = f32(x[l]), c = f32(y[l]);

			r[l] = (uint8_t)compare(in->cmp, a < c, a == c, isnan(a) || isnan(c));
		});
		break;
	case T_F64:
		EACH(mask, {
			double a = f64(x[l]), c = f64(y[l]);

			r[l] = (uint8_t)compare(in->cmp, a < c, a == c, isnan(a) || isnan(c));
		});
		break;
	case T_F16:
	case T_BF16:
		EACH(mask, {
			float (*of)(uint16_t) = in->type == T_F16 ? half_of : bf16_of;
			float a = of((uint16_t)x[l]), c = of((uint16_t)y[l]);

			r[l] = (uint8_t)compare(in->cmp, a < c, a == c, isnan(a) || isnan(c));
		});
		break;
	case T_B16:
	case T_U16:
		ORDER(uint16_t);
		break;
	case T_S16:
		ORDER(int16_t);
		break;
	case T_B32:
	case T_U32:
		ORDER(uint32_t);
		break;
	case T_S32:
		ORDER(int32_t);
		break;
	case T_B64:
	case T_U64:
		ORDER(uint64_t);
		break;
	case T_S64:
		ORDER(int64_t);
		break;
	default:
		return 0;
	}
	EACH(mask, {
		int p = r[l], q = !p, c = z ? z[l] != 0 : 0;

		if (z && in->mods & M_AND)
			p &= c, q &= c;
		else if (z && in->mods & M_OR)
			p |= c, q |= c;
		else if (z)
			p ^= c, q ^= c;
		if (d)
			d[l] = (uint64_t)p;
		if (d2)
			d2[l] = (uint64_t)q;
	});
	return 1;
}

/* ---- converting ------------------------------------------------------------------------------ */

static int is_real(enum type t)
{
	return t == T_F16 || t == T_BF16 || t == T_F32 || t == T_F64;
}
static int is_signed(enum type t)
{
	return t == T_S8 || t == T_S16 || t == T_S32 || t == T_S64;
}

static uint64_t cut(uint64_t v, enum type t)
{
	switch (ptx_type_bytes(t)) {
	case 1:
		return is_signed(t) ? (uint64_t)(int64_t)(int8_t)v : (uint8_t)v;
	case 2:
		return is_signed(t) ? (uint64_t)(int64_t)(int16_t)v : (uint16_t)v;
	case 4:
		return is_signed(t) ? (uint64_t)(int64_t)(int32_t)v : (uint32_t)v;
	default:
		return v;
	}
}

/*
 * Returns an integer as a register of type `t` holds it, with zeros in the higher bits. Registers
 * for bytes have 16 bits or more, so a signed byte is extended to 32 bits first.
 */
static uint64_t held(uint64_t v, enum type t)
{
	switch (ptx_type_bytes(t)) {
	case 1:
		return (uint32_t)cut(v, t);
	case 2:
		return (uint16_t)v;
	case 4:
		return (uint32_t)v;
	default:
		return v;
	}
}

static double real_of(uint64_t v, enum type t)
{
	switch (t) {
	case T_F16:
		return half_of((uint16_t)v);
	case T_BF16:
		return bf16_of((uint16_t)v);
	case T_F32:
		return f32(v);
	default:
		return f64(v);
	}
}

static uint64_t to_integer(double x, const struct insn *in)
{
	unsigned int bits = 8 * ptx_type_bytes(in->type);
	double lo = is_signed(in->type) ? -ldexp(1, (int)bits - 1) : 0;
	double hi = ldexp(1, (int)bits - is_signed(in->type));

	x = in->round == R_RNI	 ? nearbyint(x)
	    : in->round == R_RMI ? floor(x)
	    : in->round == R_RPI ? ceil(x)
				 : trunc(x);
	/*
	 * A value out of range becomes the nearest integer in range. NaN becomes 0, or 2^63 for 64
	 * bits.
	 */
	if (isnan(x))
		return bits == 64 ? 1ull << 63 : 0;
	if (x <= lo)
		return held((uint64_t)(int64_t)lo, in->type);
	if (x >= hi)
		return held(is_signed(in->type) ? (1ull << (bits - 1)) - 1 : UINT64_MAX, in->type);
	return held(is_signed(in->type) ? (uint64_t)(int64_t)x : (uint64_t)x, in->type);
}

/* Rounds to the nearest value, ties to even, in one step. */
static uint64_t from_integer(uint64_t v, const struct insn *in)
{
	int64_t s = (int64_t)v;
	int neg = is_signed(in->from);

	if (in->type == T_F64)
		return of_f64(neg ? (double)s : (double)v);
	if (in->type == T_F32)
		return of_f32(neg ? (float)s : (float)v);
	return 0;
}

static uint64_t convert_one(const struct insn *in, uint64_t v)
{
	double x;

	if (!is_real(in->from))
		v = cut(v, in->from);
	if (!is_real(in->type) && !is_real(in->from))
		return held(v, in->type);
	if (!is_real(in->from))
		return from_integer(v, in);
	x = real_of(v, in->from);
	if (!is_real(in->type))
		return to_integer(x, in);
	switch (in->round) {
	case R_RNI:
		x = nearbyint(x);
		break;
	case R_RZI:
		x = trunc(x);
		break;
	case R_RMI:
		x = floor(x);
		break;
	case R_RPI:
		x = ceil(x);
		break;
	default:
		break;
	}
	if (in->mods & M_SAT)
		x = isnan(x) || x < 0 ? 0 : x > 1 ? 1 : x;
	switch (in->type) {
	case T_F16:
		return half_to((float)x);
	case T_BF16:
		return bf16_to((float)x);
	case T_F32:
		return of_f32((float)x);
	default:
		return of_f64(x);
	}
}

int alu_convert(struct block *b, struct warp *w, const struct insn *in, uint32_t mask)
{
	const uint64_t *x = at(b, w, in->a);
	uint64_t *d = at(b, w, in->d);
	int e = in->type == T_E5M2X2 || in->from == T_E5M2X2 ? 5 : 4;

	if (in->type == T_F16X2 && (in->from == T_E4M3X2 || in->from == T_E5M2X2)) {
		EACH(mask, d[l] = half2(half_to(fp8_of((uint8_t)x[l], e)),
					half_to(fp8_of((uint8_t)(x[l] >> 8), e))));
		return 1;
	}
	if ((in->type == T_E4M3X2 || in->type == T_E5M2X2) && in->mods & M_SATFINITE &&
	    in->round == R_RN) {
		if (in->from == T_F16X2)
			EACH(mask, d[l] = fp8_to(half_of((uint16_t)x[l]), e) |
					  (uint32_t)fp8_to(half_of((uint16_t)(x[l] >> 16)), e)
						  << 8);
		else if (in->from == T_F32 && in->b != NOWHERE) {
			const uint64_t *y = at(b, w, in->b);

			EACH(mask, d[l] = fp8_to(f32(y[l]), e) | (uint32_t)fp8_to(f32(x[l]), e)
									 << 8);
		} else
			return 0;
		return 1;
	}
	if ((in->type == T_F16X2 || in->type == T_BF16X2) && in->from == T_F32 &&
	    in->b != NOWHERE && in->round == R_RN) {
		const uint64_t *y = at(b, w, in->b);
		uint16_t (*to)(float) = in->type == T_F16X2 ? half_to : bf16_to;

		EACH(mask, d[l] = half2(to(f32(y[l])), to(f32(x[l]))));
		return 1;
	}
	if (in->type >= T_E4M3X2 || in->from >= T_E4M3X2 || in->type == T_F16X2 ||
	    in->from == T_F16X2 || in->type == T_BF16X2 || in->from == T_BF16X2 || in->b != NOWHERE)
		return 0;
	/*
	 * Integers are converted only to float and double. A double is not converted to a half,
	 * because this code would round it twice.
	 */
	if (is_real(in->type) && !is_real(in->from) && in->type != T_F32 && in->type != T_F64)
		return 0;
	if (in->from == T_F64 && (in->type == T_F16 || in->type == T_BF16))
		return 0;
	if (in->round == R_RZ || in->round == R_RM || in->round == R_RP ||
	    (in->mods & M_SAT && !is_real(in->type)))
		return 0;
	EACH(mask, d[l] = convert_one(in, x[l]));
	return 1;
}
