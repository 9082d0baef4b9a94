/*
 * FAKE_CUDA_LOOKS=FILE: at exit, writes to FILE how many words in host memory were targets of
 * stream writes, and how often kernels on the emulator read one of them. On a real machine each of
 * these reads would cross the bus.
 */
#include <stdio.h>
#include <stdlib.h>
#include "tests/cuda/driver/internal.h"

#define ROOM 4096 /* a power of two */

/* A hash table of addresses, accessed atomically. 0 is a free entry. */
static uintptr_t words[ROOM];
static uint64_t nr_words, nr_looks;

static int find(uintptr_t at, int insert)
{
	uintptr_t i, none = 0;

	for (i = at / 8; i < at / 8 + ROOM; i++) {
		uintptr_t *w = &words[i % ROOM];

		none = __atomic_load_n(w, __ATOMIC_RELAXED);
		if (none == at)
			return 1;
		if (none)
			continue;
		if (!insert)
			return 0;
		/*
		 * RELAXED: the entry leads to no other data. A kernel that begins to poll a word
		 * later finds it.
		 */
		if (__atomic_compare_exchange_n(w, &none, at, 0, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED)) {
			__atomic_add_fetch(&nr_words, 1, __ATOMIC_RELAXED);
			return 1;
		}
		if (none == at)
			return 1;
	}
	return 0;
}

int fake_looks(void)
{
	return getenv("FAKE_CUDA_LOOKS") != NULL;
}

void fake_looked(uintptr_t at)
{
	if (find(at, 0))
		__atomic_add_fetch(&nr_looks, 1, __ATOMIC_RELAXED);
}

API CUresult cuStreamBatchMemOp_v2(CUstream s, unsigned int nr, CUstreamBatchMemOpParams *ops,
				   unsigned int flags)
{
	CUpointer_attribute what = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
	unsigned int i, type;
	void *to = &type;

	SEEN(cuStreamBatchMemOp_v2);
	fake_limit_room(s, 0);
	for (i = 0; i < nr && fake_looks(); i++) {
		type = 0;
		if (ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 &&
		    REAL(cuPointerGetAttributes)(1, &what, &to, ops[i].writeValue.address) ==
			    CUDA_SUCCESS &&
		    type == CU_MEMORYTYPE_HOST)
			find((uintptr_t)ops[i].writeValue.address, 1);
	}
	return REAL(cuStreamBatchMemOp_v2)(s, nr, ops, flags);
}

__attribute__((destructor)) static void tell(void)
{
	FILE *f = fake_looks() ? fopen(getenv("FAKE_CUDA_LOOKS"), "we") : NULL;

	if (!f)
		return;
	fprintf(f, "words %llu looks %llu\n", (unsigned long long)nr_words,
		(unsigned long long)nr_looks);
	fclose(f);
}
