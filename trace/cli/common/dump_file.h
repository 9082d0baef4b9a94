/* Recognises files of PyTorch's Flight Recorder. No state. */
#ifndef DF_CLI_DUMP_FILE_H
#define DF_CLI_DUMP_FILE_H

#include <stddef.h>

/*
 * Returns the number at the end of a dump's name, before an extension like .json, or -1 if there is
 * none.
 */
int df_cli_dump_rank(const char *path);
/*
 * Whether the file is a dump: by PyTorch's name for it, because it may be cut off before the key,
 * or by its contents. Other files are ignored.
 */
int df_cli_is_dump(const char *path, size_t bytes);
/* Whether the path is a dump, or a folder with dumps. */
int df_cli_has_dumps(const char *path);

#endif
