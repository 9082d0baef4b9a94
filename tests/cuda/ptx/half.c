/* Floating point numbers of 16 and 8 bits, as the GPU's instructions compute with them. */
#include <math.h>
#include <string.h>
#include "tests/cuda/ptx/int.h"

static uint32_t bits_of(float x)
{
	uint32_t u;

	memcpy(&u, &x, 4);
	return u;
}
static float of_bits(uint32_t u)
{
	float x;

	memcpy(&x, &u, 4);
	return x;
}

float half_of(uint16_t bits)
{
	int e = bits >> 10 & 31;
	float m = (float)(bits & 1023), v;

	if (e == 31)
		v = bits & 1023 ? NAN : INFINITY;
	else
		v = e ? ldexpf(m + 1024, e - 25) : ldexpf(m, -24);
	return bits & 0x8000 ? -v : v;
}

uint16_t half_to(float x)
{
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	float a = fabsf(x), scaled;
	int e;

	if (isnan(x))
		return 0x7fff;
	if (a >= 65520)
		return sign | 0x7c00;
	if (a == 0)
		return sign;
	frexpf(a, &e); /* `a` is in [2^(e-1), 2^e) */
	if (e < -13)
		e = -13;
	/*
	 * The scaling to units of the last place is exact; the rounding is to nearest even. A carry
	 * of the rounding increments the exponent by itself.
	 */
	scaled = nearbyintf(ldexpf(a, 11 - e));
	return (uint16_t)(sign | (uint16_t)((uint32_t)(e + 13) * 1024 + (uint32_t)scaled));
}

float bf16_of(uint16_t bits)
{
	return of_bits((uint32_t)bits << 16);
}

uint16_t bf16_to(float x)
{
	uint32_t u = bits_of(x);

	if (isnan(x))
		return 0x7fff;
	u += 0x7fff + (u >> 16 & 1);
	return (uint16_t)(u >> 16);
}

/*
 * Returns a * b + c, rounded to odd in the last place of a float. a * b is exact in a double, and
 * `lost` is what the sum loses. Rounding to odd keeps a later rounding to fewer digits correct.
 */
static float fma_odd(double a, double b, double c)
{
	double p = a * b, s = p + c, t, lost;
	float f;
	uint32_t u;

	if (!isfinite(s))
		return (float)s;
	t = s - p;
	lost = (p - (s - t)) + (c - t);
	f = (float)s;
	if ((double)f == s && lost == 0)
		return f;
	u = bits_of(f);
	if (u & 1)
		return f;
	/*
	 * One step toward the true value, which is less than one place away, has an odd last place.
	 */
	if ((double)f == s)
		return lost > 0 ? nextafterf(f, INFINITY) : nextafterf(f, -INFINITY);
	return s > (double)f ? nextafterf(f, INFINITY) : nextafterf(f, -INFINITY);
}

uint16_t half_fma(uint16_t a, uint16_t b, uint16_t c)
{
	return half_to(fma_odd(half_of(a), half_of(b), half_of(c)));
}

uint16_t bf16_fma(uint16_t a, uint16_t b, uint16_t c)
{
	return bf16_to(fma_odd(bf16_of(a), bf16_of(b), bf16_of(c)));
}

float fp8_of(uint8_t bits, int exponent)
{
	int digits = 7 - exponent, bias = (1 << (exponent - 1)) - 1;
	int e = bits >> digits & ((1 << exponent) - 1), m = bits & ((1 << digits) - 1);
	float v;

	if (exponent == 5 && e == 31)
		v = m ? NAN : INFINITY;
	else if (exponent == 4 && (bits & 127) == 127)
		v = NAN;
	else
		v = e ? ldexpf((float)(m + (1 << digits)), e - bias - digits)
		      : ldexpf((float)m, 1 - bias - digits);
	return bits & 0x80 ? -v : v;
}

uint8_t fp8_to(float x, int exponent)
{
	uint8_t sign = signbit(x) ? 0x80 : 0;
	uint8_t top = exponent == 5 ? 0x7b : 0x7e;
	float a = fabsf(x);
	uint8_t lo = 0, hi = top;

	if (isnan(x))
		return 0x7f;
	if (a >= fp8_of(top, exponent))
		return sign | top;
	/* The bits of non-negative numbers are ordered as the numbers are. */
	while (hi - lo > 1) {
		uint8_t mid = (uint8_t)((lo + hi) / 2);

		if (fp8_of(mid, exponent) <= a)
			lo = mid;
		else
			hi = mid;
	}
	{
		float below = a - fp8_of(lo, exponent), above = fp8_of(hi, exponent) - a;

		if (above < below || (above == below && (hi & 1) == 0))
			lo = hi;
	}
	return sign | lo;
}
