/*
 * The C library's own dlsym() and dlvsym(), which interpose/load/dl_hook.c replaces for the
 * application. Any thread, from the first instruction of the process on.
 */
#ifndef DF_BASE_DLSYM_H
#define DF_BASE_DLSYM_H

/*
 * Called from inside a library of ours, so that RTLD_NEXT means the libraries after it. Returns
 * NULL, and sets dlerror(), if there is no such name.
 */
void *df_dlsym(void *handle, const char *name);

typedef void *(*df_dlsym_fn)(void *handle, const char *name);
typedef void *(*df_dlvsym_fn)(void *handle, const char *name, const char *version);

/* Sets the two pointers below. Ends the process if the C library is not glibc. */
void df_dlsym_resolve(void);
/* Hidden: the hook's assembly jumps to them without the loader's tables. */
extern __attribute__((visibility("hidden"))) df_dlsym_fn df_real_dlsym;
extern __attribute__((visibility("hidden"))) df_dlvsym_fn df_real_dlvsym;

#endif
