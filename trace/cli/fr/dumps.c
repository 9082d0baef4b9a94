/* Dumps among the operands: see dumps.h. */
#define _GNU_SOURCE
#include "trace/cli/fr/dumps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "runtime/base/vec.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/common/dump_file.h"
#include "trace/cli/fr/import_fr.h"
#include "trace/cli/common/input.h"

struct found {
	char **dumps;
	size_t nr, cap;
	char *trace; /* one of ours */
};

static int look(void *arg, const char *path, const struct stat *st)
{
	struct found *f = arg;
	char **slot;

	if (df_cli_is_trace(path)) {
		if (!f->trace)
			f->trace = strdup(path);
	} else if (df_cli_is_dump(path, (size_t)st->st_size)) {
		slot = DF_VEC_PUSH(f->dumps, f->nr, f->cap);
		if (!slot || !(*slot = strdup(path)))
			return -ENOMEM;
	}
	return 0;
}

static int import(struct df_jobdir *d, const char *sub, const struct found *f, const char *where)
{
	size_t nr_ops;
	int failed;

	if (df_jobdir_create(d, sub))
		return -1;
	failed = df_fr_import(sub, d->path, f->nr, f->dumps, &nr_ops);
	if (!failed && !nr_ops)
		failed = df_cli_input_error(
			sub, where,
			"its Flight Recorder dumps hold no operations that can be judged; PyTorch "
			"records them with TORCH_FR_BUFFER_SIZE=2000 (earlier: "
			"TORCH_NCCL_TRACE_BUFFER_SIZE), dfshim with LD_PRELOAD=libdfshim.so "
			"DFSHIM_TRACE=traces");
	if (failed) {
		df_jobdir_remove(d);
		return -1;
	}
	fprintf(stderr,
		"dfshim %s: %s: Flight Recorder dumps of PyTorch. They do not show streams, waits "
		"in CUDA, a process that died, and where a rank is now.\n"
		"dfshim %s: next time: LD_PRELOAD=libdfshim.so DFSHIM_TRACE=traces torchrun ..., "
		"then dfshim check traces\n",
		sub, where, sub);
	return 1;
}

int df_fr_traces(struct df_jobdir *d, const char *sub, int nr, char **paths)
{
	struct found f = {0};
	int rc = 0;

	/* The reader of the traces reports operands that cannot be read. */
	for (int i = 0; i < nr && rc != -ENOMEM; i++)
		rc = df_cli_walk(paths[i], look, &f);
	if (rc == -ENOMEM)
		rc = -df_cli_input_error(sub, paths[0], "out of memory");
	else if (f.nr && f.trace)
		rc = -df_cli_input_error(
			sub, f.dumps[0],
			"a Flight Recorder dump beside a trace (%s); give one kind", f.trace);
	else
		rc = f.nr ? import(d, sub, &f, paths[0]) : 0;
	df_cli_paths_free(f.dumps, f.nr);
	free(f.trace);
	return rc;
}
