/* Shows frames of C++ functions as people read them, and leaves all other text unchanged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "runtime/base/demangle.h"

static const struct {
	const char *frame, *shown; /* shown: NULL if the frame remains unchanged */
} cases[] = {
	{"libtorch_cuda.so!_ZN4c10d16ProcessGroupNCCL9allreduceERSt6vectorIN2at6TensorESaIS3_EE+"
	 "0x629",
	 "libtorch_cuda.so!c10d::ProcessGroupNCCL::allreduce+0x629"},
	{"libc10_cuda.so!_ZN3c104cuda18device_synchronizeEv+0x47",
	 "libc10_cuda.so!c10::cuda::device_synchronize+0x47"},
	{"a!_Z3foov+0x1", "a!foo+0x1"},
	{"a!_ZN1AC1Ev+0x1", "a!A::A+0x1"},
	{"a!_ZN1A2BcD2Ev+0x1", "a!A::Bc::~Bc+0x1"},
	{"a!_ZNSt6thread4joinEv+0x1", "a!std::thread::join+0x1"},
	{"a!_ZNKSt6vectorIiSaIiEE4sizeEv+0x1", "a!std::vector<>+0x1"},
	{"a!_ZN12_GLOBAL__N_11fEv+0x1", "a!{}::f+0x1"},
	{"a!_ZN1a1b1c1d1e1f1g1hEv+0x1", "a!a::b::c::d::e::f::g::h+0x1"},
	{"a!_Z3foov", "a!foo"},
	{"a!main+0x12", NULL},
	{"a+0x12", NULL},
	{"_ZN1a1bEv", NULL},
	{"a!_Z+0x1", NULL},
	{"a!_ZN+0x1", NULL},
	{"a!_ZNE+0x1", NULL},
	{"a!_ZN1a1b+0x1", NULL},
	{"a!_ZN99abcE+0x1", NULL},
	{"a!_ZN99999999999999999999abcE+0x1", NULL},
	{"a!_ZN0aE+0x1", NULL},
	{"a!_Zd+0x1", NULL},
};

START_TEST(names)
{
	char frame[256];

	snprintf(frame, sizeof(frame), "%s", cases[_i].frame);
	df_demangle_frame(frame, sizeof(frame));
	ck_assert_str_eq(frame, cases[_i].shown ? cases[_i].shown : cases[_i].frame);
}
END_TEST

/* A name may grow, because separators are put between its parts. */
START_TEST(room)
{
	static const char frame[] = "a!_ZN1a1b1c1d1e1f1g1h1i1jEv+0x1",
			  shown[] = "a!a::b::c::d::e::f::g::h::i::j+0x1";
	char small[sizeof(frame)], large[sizeof(shown)];

	memcpy(small, frame, sizeof(frame));
	df_demangle_frame(small, sizeof(small));
	ck_assert_str_eq(small, frame);
	memcpy(large, frame, sizeof(frame));
	df_demangle_frame(large, sizeof(large));
	ck_assert_str_eq(large, shown);
}
END_TEST

/*
 * Letters with a meaning in mangled names, in random order. Nothing after the text's room is
 * changed, and the text after '+' remains.
 */
START_TEST(anything)
{
	static const char letters[] = "_ZNSt0123456789CDIEKabc~";
	unsigned seed = (unsigned)df_test_seed();

	for (int round = 0; round < 200000; round++) {
		char frame[96], was[96];
		size_t nr = 0, bad = 0;

		memset(frame, 0x55, sizeof(frame));
		memcpy(frame, "m!_Z", 4);
		for (nr = 4; nr < 40 + (size_t)(rand_r(&seed) % 20); nr++)
			frame[nr] = letters[(size_t)rand_r(&seed) % (sizeof(letters) - 1)];
		memcpy(frame + nr, "+0x7", 5);
		memcpy(was, frame, sizeof(was));
		df_demangle_frame(frame, nr + 5 + (size_t)(rand_r(&seed) % 16));
		for (size_t i = nr + 5 + 16; i < sizeof(frame); i++)
			bad += frame[i] != 0x55;
		if (bad || strlen(frame) < 6 || strcmp(frame + strlen(frame) - 4, "+0x7") != 0)
			ck_abort_msg("seed %u: '%.*s' became '%.*s'", seed, 95, was, 95, frame);
	}
}
END_TEST

int main(void)
{
	return DF_TESTS("demangle", {names, (int)(sizeof(cases) / sizeof(cases[0]))}, {room},
			{anything});
}
