/*
 * Program files, MSCCL XML and the text form: any bytes are read, or refused with a reason. A
 * program that is read and verified is written, read again, and must be the same. Large programs
 * are not verified, to keep inputs fast.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/program/file/algofile.h"
#include "runtime/program/file/canon.h"
#include "runtime/program/file/text.h"
#include "runtime/program/program_names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The reader accepts larger programs, but verifying millions of chunks is too slow here. */
static int too_big(const struct df_plan *p)
{
	uint64_t n = 0;

	for (int r = 0; r < p->nranks; r++) {
		const struct df_prank *k = &p->rank[r];

		n += (uint64_t)k->in_chunks + k->out_chunks + k->scratch_chunks + k->nr_blocks;
		for (uint32_t b = 0; b < k->nr_blocks; b++) {
			for (uint32_t i = 0; i < k->block[b].nr; i++)
				n += k->block[b].inst[i].cnt;
		}
	}
	return n > 4096;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct df_algo_file *a = NULL;
	struct df_perr err;
	char line[600];
	int rc;

	df_perr_clear(&err);
	rc = df_algo_parse_only("fuzz", (const char *)data, size, &a, &err);
	if (rc) {
		if (rc == -EPROTO && !err.text[0])
			abort();
		df_perr_str(&err, line, sizeof(line));
		return 0;
	}
	if (!too_big(a->plan)) {
		rc = df_plan_prove(a->plan, &a->expect, &a->progs, &a->v);
		if (rc == -EPROTO && !a->v.err.text[0])
			abort();
		if (!rc) {
			struct df_algo_file *b = NULL;
			char *text = NULL;
			size_t n = 0;
			FILE *f = open_memstream(&text, &n);

			if (!f || df_text_write(f, a->plan, &a->expect))
				abort();
			fclose(f);
			df_perr_clear(&err);
			if (df_algo_parse("again", text, n, &b, &err) ||
			    b->progs[0]->hash != a->progs[0]->hash)
				abort();
			df_algo_free(b);
			free(text);
		}
	}
	df_algo_free(a);
	return 0;
}
