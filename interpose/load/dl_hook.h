/*
 * The dlsym that the C library has, below the one that we put in front of it.
 */
#ifndef DF_INTERPOSE_LOAD_DL_HOOK_H
#define DF_INTERPOSE_LOAD_DL_HOOK_H

/*
 * The real dlsym, called from inside this library: RTLD_NEXT means the libraries behind ours. NULL with
 * dlerror() if the name is not there.
 */
void *df_dlsym(void *handle, const char *name);

/* A symbol of a loaded library by its file name ("libc.so.6"), read from its ELF tables. NULL: none. */
void *df_elf_find(const char *library, const char *name);

#endif
