/*
 * Finds Flight Recorder dumps among the operands of `dfshim check`, which judges them directly. One
 * thread.
 */
#ifndef DF_TRACE_CLI_FR_DUMPS_H
#define DF_TRACE_CLI_FR_DUMPS_H

#include "trace/cli/run/jobdir.h"

/*
 * Writes the traces of all dumps in the folders and files to d, a new folder, and prints what dumps
 * cannot show. Returns 0 if there are no dumps, 1 if d must be removed, -1 after it has printed an
 * error.
 */
int df_fr_traces(struct df_jobdir *d, const char *sub, int nr, char **paths);

#endif
