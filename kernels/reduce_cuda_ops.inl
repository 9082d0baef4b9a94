/*
 * The arithmetic of the GPU's dfk_move(): one operation on a word of elements, for every type.
 * Included by kernels/reduce_cuda.inl.
 *
 * fp16, bf16 and fp8 use the GPU's own instructions, each of which rounds once, to nearest even, as
 * the definition in kernels/reduce.h requires. Where there are none (fp8 before sm_89, everything
 * on the host), the formats are converted by integer arithmetic as on the CPU.
 */
#if defined(__CUDA_ARCH__)
#define DFK_PTX 1
#else
#define DFK_PTX 0
#endif
#if DFK_PTX && __CUDA_ARCH__ >= 890
#define DFK_PTX_FP8 1
#else
#define DFK_PTX_FP8 0
#endif

/* The four operations, and the copy. */
enum dfk_fn { DFK_FN_SUM, DFK_FN_PROD, DFK_FN_MAX, DFK_FN_MIN };

/* ---- floats in registers -------------------------------------------------------------------- */

DFK float dfk_as_float(uint32_t bits)
{
#if DFK_PTX
	return __uint_as_float(bits);
#else
	float f;

	__builtin_memcpy(&f, &bits, 4);
	return f;
#endif
}

DFK uint32_t dfk_float_bits(float f)
{
#if DFK_PTX
	return __float_as_uint(f);
#else
	uint32_t bits;

	__builtin_memcpy(&bits, &f, 4);
	return bits;
#endif
}

DFK double dfk_as_double(uint64_t bits)
{
#if DFK_PTX
	return __longlong_as_double((long long)bits);
#else
	double f;

	__builtin_memcpy(&f, &bits, 8);
	return f;
#endif
}

DFK uint64_t dfk_double_bits(double f)
{
#if DFK_PTX
	return (uint64_t)__double_as_longlong(f);
#else
	uint64_t bits;

	__builtin_memcpy(&bits, &f, 8);
	return bits;
#endif
}

DFK float dfk_add(float x, float y)
{
#if DFK_PTX
	return __fadd_rn(x, y);
#else
	return x + y;
#endif
}

DFK float dfk_mul(float x, float y)
{
#if DFK_PTX
	return __fmul_rn(x, y);
#else
	return x * y;
#endif
}

DFK float dfk_div(float x, float y)
{
#if DFK_PTX
	return __fdiv_rn(x, y);
#else
	return x / y;
#endif
}

DFK uint32_t dfk_canon(float f)
{
	return f != f ? 0x7fffffffu : dfk_float_bits(f);
}

DFK uint64_t dfk_canon64(double f)
{
	return f != f ? ~0ull >> 1 : dfk_double_bits(f);
}

/* For equal operands, AND gives the greater zero and OR the smaller one. */
DFK float dfk_extreme(bool max, float x, float y)
{
	uint32_t u = dfk_float_bits(x), v = dfk_float_bits(y);

	if (x == y)
		return dfk_as_float(max ? u & v : u | v);
	return (max ? x > y : x < y) || y != y ? x : y;
}

DFK double dfk_extreme64(bool max, double x, double y)
{
	uint64_t u = dfk_double_bits(x), v = dfk_double_bits(y);

	if (x == y)
		return dfk_as_double(max ? u & v : u | v);
	return (max ? x > y : x < y) || y != y ? x : y;
}

DFK float dfk_float_fn(int fn, float x, float y)
{
	switch (fn) {
	case DFK_FN_SUM:
		return dfk_add(x, y);
	case DFK_FN_PROD:
		return dfk_mul(x, y);
	default:
		return dfk_extreme(fn == DFK_FN_MAX, x, y);
	}
}

/* ---- small formats by integer arithmetic (see widen_format() in kernels/reduce_vec.inl) ----- */

/* Mantissa bits, exponent of the smallest normal number, greatest pattern, width. */
template <int TYPE> struct dfk_format;
template <> struct dfk_format<DF_FLOAT16> {
	enum { man = 10, emin = -14, max = 0x7c00, special = 0x7c00, width = 16 };
};
template <> struct dfk_format<DF_BFLOAT16> {
	enum { man = 7, emin = -126, max = 0x7f80, special = 0x7f80, width = 16 };
};
template <> struct dfk_format<DF_FLOAT8E4M3> {
	enum { man = 3, emin = -6, max = 0x7e, special = 0x7f, width = 8 };
};
template <> struct dfk_format<DF_FLOAT8E5M2> {
	enum { man = 2, emin = -14, max = 0x7b, special = 0x7c, width = 8 };
};

DFK uint32_t dfk_pow2(int e)
{
	return (uint32_t)(e + 127) << 23;
}

template <int TYPE> DFK float dfk_widen(uint32_t bits)
{
	typedef dfk_format<TYPE> f;
	uint32_t sign = (bits >> (f::width - 1) & 1) << 31;
	uint32_t em = bits & ((1u << (f::width - 1)) - 1);
	uint32_t up = em << (23 - f::man);

	if (em >= (uint32_t)f::special)
		return dfk_as_float(up | 0x7f800000u | sign);
	if (f::emin > -126)
		up = dfk_float_bits(
			dfk_mul(dfk_as_float(up), dfk_as_float(dfk_pow2(f::emin + 126))));
	return dfk_as_float(up | sign);
}

/* |x| to nearest even, not yet limited. */
DFK uint32_t dfk_narrow(uint32_t a, int man, int emin)
{
	int drop = 23 - man;

	if (emin > -126 && a < dfk_pow2(emin))
		return dfk_float_bits(
			       dfk_add(dfk_as_float(a), dfk_as_float(dfk_pow2(emin - man + 23)))) -
		       dfk_pow2(emin - man + 23);
	if (emin > -126)
		a -= dfk_pow2(emin - 1);
	return (a + ((1u << (drop - 1)) - 1) + (a >> drop & 1)) >> drop;
}

template <int TYPE> DFK uint32_t dfk_shrink(float x)
{
	typedef dfk_format<TYPE> f;
	uint32_t bits = dfk_float_bits(x), a = bits & ~(1u << 31), r;

	if (x != x)
		return (1u << (f::width - 1)) - 1;
	r = dfk_narrow(a, f::man, f::emin);
	if (r > (uint32_t)f::max)
		r = f::max;
	return r | bits >> 31 << (f::width - 1);
}

/* ---- a word of elements --------------------------------------------------------------------- */

/*
 * The elements are handled in words: of 32 bits, or of 64 for the types of that size. If a word
 * holds a single small element, its unused part is computed too, and discarded.
 */
template <int TYPE> struct dfk_word {
	typedef uint32_t t;
};
template <> struct dfk_word<DF_INT64> {
	typedef uint64_t t;
};
template <> struct dfk_word<DF_UINT64> {
	typedef uint64_t t;
};
template <> struct dfk_word<DF_FLOAT64> {
	typedef uint64_t t;
};

template <class U, class S> DFK U dfk_int_fn(int fn, U x, U y)
{
	switch (fn) {
	case DFK_FN_SUM:
		return x + y;
	case DFK_FN_PROD:
		return x * y;
	case DFK_FN_MAX:
		return (S)x > (S)y ? x : y;
	default:
		return (S)x < (S)y ? x : y;
	}
}

template <class S> DFK uint32_t dfk_bytes_fn(int fn, uint32_t x, uint32_t y)
{
	uint32_t r = 0;

	if (fn == DFK_FN_SUM)
		return ((x & 0x7f7f7f7fu) + (y & 0x7f7f7f7fu)) ^ ((x ^ y) & 0x80808080u);
#pragma unroll
	for (int i = 0; i < 32; i += 8)
		r |= (dfk_int_fn<uint32_t, int32_t>(fn, (uint32_t)(S)(x >> i),
						    (uint32_t)(S)(y >> i)) &
		      0xff)
		     << i;
	return r;
}

/* Any small format, by way of float. */
template <int TYPE> DFK uint32_t dfk_small_fn(int fn, uint32_t x, uint32_t y)
{
	typedef dfk_format<TYPE> f;
	uint32_t r = 0;

#pragma unroll
	for (int i = 0; i < 32; i += f::width)
		r |= dfk_shrink<TYPE>(
			     dfk_float_fn(fn, dfk_widen<TYPE>(x >> i), dfk_widen<TYPE>(y >> i)))
		     << i;
	return r;
}

#if DFK_PTX
DFK uint32_t dfk_half2_fn(int fn, uint32_t x, uint32_t y)
{
	uint32_t r;

	switch (fn) {
	case DFK_FN_SUM:
		asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
		break;
	case DFK_FN_PROD:
		asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
		break;
	case DFK_FN_MAX:
		asm("max.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
		break;
	default:
		asm("min.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
		break;
	}
	return r;
}

/* sm_80 has no addition of bf16: x * 1 + y, and x * y - 0, round once and keep the sign of zero. */
DFK uint32_t dfk_bfloat2_fn(int fn, uint32_t x, uint32_t y)
{
	uint32_t r;

	switch (fn) {
	case DFK_FN_SUM:
		asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(0x3f803f80u), "r"(y));
		break;
	case DFK_FN_PROD:
		asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(0x80008000u));
		break;
	case DFK_FN_MAX:
		asm("max.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
		break;
	default:
		asm("min.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
		break;
	}
	return r;
}
#endif

#if DFK_PTX_FP8
template <int TYPE> DFK uint32_t dfk_fp8_to_half2(uint32_t x)
{
	uint32_t r;

	if (TYPE == DF_FLOAT8E4M3)
		asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((uint16_t)x));
	else
		asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(r) : "h"((uint16_t)x));
	return r;
}
template <int TYPE> DFK uint32_t dfk_half2_to_fp8(uint32_t x)
{
	uint16_t r;

	if (TYPE == DF_FLOAT8E4M3)
		asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(r) : "r"(x));
	else
		asm("cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;" : "=h"(r) : "r"(x));
	return r;
}
#endif

template <int TYPE> DFK uint32_t dfk_fp8_fn(int fn, uint32_t x, uint32_t y)
{
#if DFK_PTX_FP8
	uint32_t lo = dfk_half2_to_fp8<TYPE>(
		dfk_half2_fn(fn, dfk_fp8_to_half2<TYPE>(x), dfk_fp8_to_half2<TYPE>(y)));
	uint32_t hi = dfk_half2_to_fp8<TYPE>(
		dfk_half2_fn(fn, dfk_fp8_to_half2<TYPE>(x >> 16), dfk_fp8_to_half2<TYPE>(y >> 16)));

	return lo | hi << 16;
#else
	return dfk_small_fn<TYPE>(fn, x, y);
#endif
}

DFK uint64_t dfk_double_fn(int fn, uint64_t u, uint64_t v)
{
	double x = dfk_as_double(u), y = dfk_as_double(v);

	switch (fn) {
	case DFK_FN_SUM:
#if DFK_PTX
		return dfk_canon64(__dadd_rn(x, y));
#else
		return dfk_canon64(x + y);
#endif
	case DFK_FN_PROD:
#if DFK_PTX
		return dfk_canon64(__dmul_rn(x, y));
#else
		return dfk_canon64(x * y);
#endif
	default:
		return dfk_canon64(dfk_extreme64(fn == DFK_FN_MAX, x, y));
	}
}

/* One operation on a word. */
template <int TYPE>
DFK typename dfk_word<TYPE>::t dfk_fn(int fn, typename dfk_word<TYPE>::t x,
				      typename dfk_word<TYPE>::t y)
{
	switch (TYPE) {
	case DF_INT8:
		return dfk_bytes_fn<int8_t>(fn, (uint32_t)x, (uint32_t)y);
	case DF_UINT8:
		return dfk_bytes_fn<uint8_t>(fn, (uint32_t)x, (uint32_t)y);
	case DF_INT32:
		return dfk_int_fn<uint32_t, int32_t>(fn, (uint32_t)x, (uint32_t)y);
	case DF_UINT32:
		return dfk_int_fn<uint32_t, uint32_t>(fn, (uint32_t)x, (uint32_t)y);
	case DF_INT64:
		return (typename dfk_word<TYPE>::t)dfk_int_fn<uint64_t, int64_t>(fn, x, y);
	case DF_UINT64:
		return (typename dfk_word<TYPE>::t)dfk_int_fn<uint64_t, uint64_t>(fn, x, y);
	case DF_FLOAT32:
		return dfk_canon(
			dfk_float_fn(fn, dfk_as_float((uint32_t)x), dfk_as_float((uint32_t)y)));
	case DF_FLOAT64:
		return (typename dfk_word<TYPE>::t)dfk_double_fn(fn, x, y);
#if DFK_PTX
	case DF_FLOAT16:
		return dfk_half2_fn(fn, (uint32_t)x, (uint32_t)y);
	case DF_BFLOAT16:
		return dfk_bfloat2_fn(fn, (uint32_t)x, (uint32_t)y);
#else
	case DF_FLOAT16:
		return dfk_small_fn<DF_FLOAT16>(fn, (uint32_t)x, (uint32_t)y);
	case DF_BFLOAT16:
		return dfk_small_fn<DF_BFLOAT16>(fn, (uint32_t)x, (uint32_t)y);
#endif
	case DF_FLOAT8E4M3:
		return dfk_fp8_fn<DF_FLOAT8E4M3>(fn, (uint32_t)x, (uint32_t)y);
	default:
		return dfk_fp8_fn<DF_FLOAT8E5M2>(fn, (uint32_t)x, (uint32_t)y);
	}
}

/*
 * Magnitudes of up to 32 bits: the upper half of x * magic (see divisor_of() in
 * kernels/reduce_vec.inl).
 */
DFK uint32_t dfk_div_small(uint32_t x, uint64_t magic)
{
#if DFK_PTX
	return (uint32_t)__umul64hi(x, magic);
#else
	return (uint32_t)((unsigned __int128)x * magic >> 64);
#endif
}

template <int BITS, bool SIGNED> DFK uint32_t dfk_div_int(uint32_t x, uint64_t magic)
{
	uint32_t r = 0, mask = (uint32_t)(0xffffffffull >> (32 - BITS));

#pragma unroll
	for (int i = 0; i < 32; i += BITS) {
		uint32_t e = x >> i & mask, neg = SIGNED && e >> (BITS - 1) ? mask : 0;

		e = dfk_div_small(((e ^ neg) - neg) & mask, magic);
		r |= (((e ^ neg) - neg) & mask) << i;
	}
	return r;
}

template <int TYPE> DFK uint32_t dfk_div_float(uint32_t x, float d)
{
	typedef dfk_format<TYPE> f;
	uint32_t r = 0;

#pragma unroll
	for (int i = 0; i < 32; i += f::width)
		r |= dfk_shrink<TYPE>(dfk_div(dfk_widen<TYPE>(x >> i), d)) << i;
	return r;
}

/* A word divided by d; magic belongs to it. */
template <int TYPE>
DFK typename dfk_word<TYPE>::t dfk_post(typename dfk_word<TYPE>::t x, uint64_t d, uint64_t magic)
{
	typedef typename dfk_word<TYPE>::t word;
	uint64_t neg;

	switch (TYPE) {
	case DF_INT8:
		return dfk_div_int<8, true>((uint32_t)x, magic);
	case DF_UINT8:
		return dfk_div_int<8, false>((uint32_t)x, magic);
	case DF_INT32:
		return dfk_div_int<32, true>((uint32_t)x, magic);
	case DF_UINT32:
		return dfk_div_int<32, false>((uint32_t)x, magic);
	case DF_INT64:
		neg = 0 - ((uint64_t)x >> 63);
		return (word)(((((uint64_t)x ^ neg) - neg) / d ^ neg) - neg);
	case DF_UINT64:
		return (word)((uint64_t)x / d);
	case DF_FLOAT16:
		return dfk_div_float<DF_FLOAT16>((uint32_t)x, (float)d);
	case DF_FLOAT32:
		return dfk_canon(dfk_div(dfk_as_float((uint32_t)x), (float)d));
	case DF_FLOAT64:
#if DFK_PTX
		return (word)dfk_canon64(__ddiv_rn(dfk_as_double(x), (double)d));
#else
		return (word)dfk_canon64(dfk_as_double(x) / (double)d);
#endif
	case DF_BFLOAT16:
		return dfk_div_float<DF_BFLOAT16>((uint32_t)x, (float)d);
	case DF_FLOAT8E4M3:
		return dfk_div_float<DF_FLOAT8E4M3>((uint32_t)x, (float)d);
	default:
		return dfk_div_float<DF_FLOAT8E5M2>((uint32_t)x, (float)d);
	}
}
