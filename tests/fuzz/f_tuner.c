/* Tuner files: any bytes are read or refused. A file that is read and written keeps its hash. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/program/build/tuner.h"
#include "runtime/program/program_names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct df_prog_req q = {.nranks = 8, .count = 1000, .elem_bytes = 4, .max_blocks = 4};
	struct df_tuner *t = NULL, *u = NULL;
	struct df_perr err;
	char *text = NULL;
	uint32_t blocks = 4;
	size_t n = 0;
	FILE *f;

	df_perr_clear(&err);
	if (df_tuner_parse((const char *)data, size, &t, &err)) {
		if (!err.text[0])
			abort();
		return 0;
	}
	for (q.kind = DF_COLL_ALLREDUCE; q.kind < DF_COLL_SEND; q.kind++) {
		if (df_tuner_choose(t, NULL, &q, &blocks, NULL) >= DF_ALGO_NR || !blocks ||
		    blocks > 4)
			abort();
	}
	f = open_memstream(&text, &n);
	if (!f || df_tuner_write(t, f))
		abort();
	fclose(f);
	if (df_tuner_parse(text, n, &u, &err) || u->hash != t->hash)
		abort();
	df_tuner_free(t);
	df_tuner_free(u);
	free(text);
	return 0;
}
