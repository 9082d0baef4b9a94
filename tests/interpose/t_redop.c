/* Description: 1/n is the nearest value of each type; operators belong to their communicator. */
#include "tests/lib/test.h"

#include <math.h>
#include <string.h>

#include "interpose/nccl/nccl_api.h"
#include "interpose/nccl/nccl_redop.h"
#include "runtime/base/inverse.h"
#include "runtime/base/rng.h"
#include "tests/interpose/fake_runtime.h"

/* Returns the value of an encoding of a small format, exactly. */
static double decode(uint32_t bits, int mantissa, int exponent_bits, int bias)
{
	int e = (int)(bits >> mantissa) & ((1 << exponent_bits) - 1);
	double m = bits & ((1u << mantissa) - 1);

	return e ? ldexp(m + (1 << mantissa), e - bias - mantissa) : ldexp(m, 1 - bias - mantissa);
}

/* Returns the nearest encoding by trying all of them; ties go to the even one. */
static uint32_t nearest(double x, int mantissa, int exponent_bits, int bias)
{
	uint32_t b, best = 0, top = 1u << (mantissa + exponent_bits);
	double best_d = HUGE_VAL;

	for (b = 0; b < top; b++) {
		double d = fabs(decode(b, mantissa, exponent_bits, bias) - x);

		if (((b >> mantissa) & ((1u << exponent_bits) - 1)) == (1u << exponent_bits) - 1)
			break;
		if (d < best_d || (d == best_d && !(b & 1))) {
			best_d = d;
			best = b;
		}
	}
	return best;
}

static void compare(int n)
{
	float f = (float)(1.0 / n), got;
	uint64_t bits;

	ck_assert_msg(df_inverse(ncclFloat16, n) == nearest(f, 10, 5, 15), "half, n=%d", n);
	ck_assert_msg(df_inverse(ncclFloat8e4m3, n) == nearest(f, 3, 4, 7), "e4m3, n=%d", n);
	ck_assert_msg(df_inverse(ncclFloat8e5m2, n) == nearest(f, 2, 5, 15), "e5m2, n=%d", n);
	ck_assert_msg(df_inverse(ncclBfloat16, n) == nearest(f, 7, 8, 127), "bf16, n=%d", n);
	bits = df_inverse(ncclFloat32, n);
	memcpy(&got, &bits, sizeof(got));
	ck_assert(got == f && !(bits >> 32));
	ck_assert_uint_eq(df_inverse(ncclInt32, n), (uint64_t)n);
}

START_TEST(t_inverse)
{
	struct df_rng rng;
	int i;

	df_rng_init(&rng, df_test_seed());
	for (i = 1; i <= 300; i++)
		compare(i);
	for (i = 0; i < 100; i++)
		compare(1 + (int)df_rng_below(&rng, 1 << (1 + df_rng_below(&rng, 30))));
}
END_TEST

static ncclComm_t one(void)
{
	ncclComm_t comm = NULL;
	ncclUniqueId id;

	ck_assert_int_eq(ncclGetUniqueId(&id), ncclSuccess);
	ck_assert_int_eq(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess);
	return comm;
}

START_TEST(t_user)
{
	ncclComm_t a = one(), b = one();
	float two = 2, dev;
	ncclRedOp_t op, op2;
	char buf[8];

	ck_assert_int_eq(
		ncclRedOpCreatePreMulSum(&op, &two, ncclFloat32, ncclScalarHostImmediate, a), 0);
	ck_assert_int_eq(ncclRedOpCreatePreMulSum(&op2, &dev, ncclFloat32, ncclScalarDevice, a), 0);
	ck_assert_int_ge(op, ncclNumOps);
	ck_assert_int_ne(op, op2);
	two = 3; /* the scalar was copied */
	ck_assert_int_eq(ncclAllReduce(buf, buf, 1, ncclFloat32, op, a, NULL), ncclSuccess);
	ck_assert_uint_eq(fake.ops[0].redop, DF_PREMULSUM);
	ck_assert_uint_eq(fake.ops[0].redop_arg, 0x40000000u);
	ck_assert_ptr_null(fake.ops[0].redop_ptr);
	ck_assert_int_eq(ncclAllReduce(buf, buf, 1, ncclFloat32, op2, a, NULL), ncclSuccess);
	ck_assert_ptr_eq(fake.ops[1].redop_ptr, &dev);
	/* Another type, and another communicator, are refused. */
	ck_assert_int_eq(ncclAllReduce(buf, buf, 1, ncclFloat64, op, a, NULL), ncclInvalidArgument);
	ck_assert_ptr_nonnull(strstr(ncclGetLastError(NULL), "does not match type"));
	ck_assert_int_eq(ncclAllReduce(buf, buf, 1, ncclFloat32, op, b, NULL), ncclInvalidArgument);
	ck_assert_ptr_nonnull(strstr(ncclGetLastError(NULL), "unknown to this communicator"));
	ck_assert_int_eq(ncclRedOpDestroy(op, b), ncclInvalidArgument);
	/* Destroyed inside a group after the call: the operation keeps the scalar. */
	ck_assert_int_eq(ncclGroupStart(), ncclSuccess);
	ck_assert_int_eq(ncclAllReduce(buf, buf, 1, ncclFloat32, op, a, NULL), ncclSuccess);
	ck_assert_int_eq(ncclRedOpDestroy(op, a), ncclSuccess);
	ck_assert_int_eq(ncclGroupEnd(), ncclSuccess);
	ck_assert_uint_eq(fake.ops[2].redop_arg, 0x40000000u);
	ck_assert_int_eq(ncclRedOpDestroy(op, a), ncclInvalidArgument);
	ck_assert_int_eq(ncclRedOpDestroy(ncclSum, a), ncclInvalidArgument);
	ck_assert_ptr_nonnull(strstr(ncclGetLastError(NULL), "builtin"));
	ck_assert_int_eq(ncclRedOpDestroy((ncclRedOp_t)-1, a), ncclInvalidArgument);
	ck_assert_int_eq(ncclRedOpDestroy(op2, NULL), ncclInvalidArgument);
	ck_assert_int_eq(
		ncclRedOpCreatePreMulSum(&op, &two, (ncclDataType_t)99, ncclScalarHostImmediate, a),
		ncclInternalError);
	ck_assert_int_eq(ncclCommDestroy(a), ncclSuccess);
	ck_assert_int_eq(ncclCommDestroy(b), ncclSuccess);
}
END_TEST

int main(void)
{
	return DF_TESTS("redop", {t_inverse}, {t_user});
}
