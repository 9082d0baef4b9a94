/*
 * Pickles: any bytes are read as plain data, or refused. Nothing is executed, and no byte after the
 * end is read.
 */
#include <string.h>

#include "trace/cli/fr/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct df_pickle p;
	char buf[64];

	if (!df_pickle_read(&p, data, size)) {
		const struct df_pvalue *e = df_pickle_get(p.root, "entries");

		df_pickle_text(df_pickle_get(p.root, "version"), buf, sizeof(buf));
		for (size_t i = 0; e && i < e->nr; i++)
			df_pickle_int(df_pickle_get(e->items[i], "record_id"), 0);
	}
	df_pickle_free(&p);
	return 0;
}
