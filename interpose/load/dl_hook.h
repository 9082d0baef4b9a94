/* The C library's own dlsym(), which ours replaces for the application. */
#ifndef DF_INTERPOSE_LOAD_DL_HOOK_H
#define DF_INTERPOSE_LOAD_DL_HOOK_H

/*
 * The real dlsym(), called from inside this library: RTLD_NEXT means the libraries after ours.
 * Returns NULL, and sets dlerror(), if there is no such name.
 */
void *df_dlsym(void *handle, const char *name);

/*
 * Finds a symbol of a loaded library, given by its file name ("libc.so.6"), in its ELF tables.
 * Returns NULL if there is none.
 */
void *df_elf_find(const char *library, const char *name);

#endif
