/*
 * The closed vocabulary of results inside dfshim: 0, or one of these negative errno values.
 * Only interpose/nccl/nccl_status.c translates them into ncclResult_t.
 *
 *   -EINVAL      the caller misused the function
 *   -ENOMEM      no memory
 *   -EOPNOTSUPP  not ours to serve
 *   -EAGAIN      would block; try again after progress; never logged
 *   -ETIMEDOUT   no progress within the bound
 *   -EDEADLK     a cycle was found
 *   -ECONNRESET  the peer is gone
 *   -ECANCELED   the communicator was aborted or revoked
 *   -EPROTO      a message or file does not have the agreed form
 *   -EIO         CUDA, verbs or the system failed
 *   -ESHUTDOWN   we are on the way out
 * and, where the control plane can't start or an address can't be served, what the system said (-EMFILE, -EADDRINUSE).
 */
#ifndef DF_BASE_ERR_H
#define DF_BASE_ERR_H

#include <errno.h>
#include <stddef.h>

#define DF_ARRAY_LEN(a)			 (sizeof(a) / sizeof((a)[0]))
#define DF_MIN(a, b)			 ((a) < (b) ? (a) : (b))
#define DF_MAX(a, b)			 ((a) > (b) ? (a) : (b))
#define df_container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))
#define df_likely(x)			 __builtin_expect(!!(x), 1)
#define df_unlikely(x)			 __builtin_expect(!!(x), 0)

/* `name` is a macro of the form ", THIS" or is none: THIS, or `otherwise`. For tables whose rows are mostly alike. */
#define DF_DEFINED_OR(name, otherwise) DF_SECOND_(name, otherwise, )
#define DF_SECOND_(a, b, ...)	       b

#endif
