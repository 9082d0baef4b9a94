/*
 * Converts Flight Recorder dumps of PyTorch, pickles or JSON, to traces. Nothing in a dump is
 * executed. One thread.
 */
#ifndef DF_TRACE_CLI_FR_IMPORT_FR_H
#define DF_TRACE_CLI_FR_IMPORT_FR_H

#include <stddef.h>

/*
 * Writes a trace of each dump to DIR/rank<rank>.dft, and prints why a dump cannot be read. Returns
 * the number of such dumps. *nr_ops is the number of operations in all dumps.
 */
int df_fr_import(const char *sub, const char *dir, size_t nr, char *const *paths, size_t *nr_ops);

#endif
