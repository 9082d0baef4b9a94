/*
 * Reads this process's own memory without a fault where none is mapped. Any thread; takes no locks;
 * errno may change.
 */
#ifndef DF_TRACE_RECORD_PEEK_H
#define DF_TRACE_RECORD_PEEK_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Returns 1, or 0 if the bytes cannot be read. */
int df_peek(const void *at, void *to, size_t bytes);
/* As process_vm_readv(): returns the number of bytes read, or -1. */
ssize_t df_peek_pieces(const struct iovec *to, const struct iovec *from, unsigned nr);

#endif
