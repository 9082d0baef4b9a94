/* Between the files of the stand-in for libcuda. */
#ifndef DF_TESTS_FAKE_CUDA_INTERNAL_H
#define DF_TESTS_FAKE_CUDA_INTERNAL_H

struct fake_symbol {
	const char *symbol, *base;
	int since, ptds;
	void *fn;
};

const struct fake_symbol *fake_symbols(unsigned int *nr);
void fake_count(const char *symbol);

#endif
