/*
 * The results that functions inside dfshim return: 0, or one of these negative errno values. Only
 * interpose/nccl/nccl_status.c translates them into ncclResult_t.
 *
 *   -EINVAL      the caller misused the function
 *   -ENOMEM      no memory
 *   -EOPNOTSUPP  not supported here
 *   -EAGAIN      would block; try again after progress; never logged
 *   -ETIMEDOUT   no progress within the bound
 *   -EDEADLK     a cycle was found
 *   -ECONNRESET  the peer died
 *   -ECANCELED   the communicator was aborted or revoked
 *   -EPROTO      a message or file does not have the agreed form
 *   -EIO         CUDA, verbs or the system failed
 *   -ESHUTDOWN   the library is shutting down
 *
 * Where the control plane cannot start or an address cannot be used, the result is the system's own
 * error (-EMFILE, -EADDRINUSE).
 */
#ifndef DF_BASE_ERR_H
#define DF_BASE_ERR_H

#include <errno.h>
#include <stddef.h>

#define DF_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define DF_MIN(a, b)	((a) < (b) ? (a) : (b))
#define DF_MAX(a, b)	((a) > (b) ? (a) : (b))
/* For sorting: -1, 0 or 1. Comparisons by several keys are joined by ?: */
#define DF_CMP(a, b)			 (((a) > (b)) - ((a) < (b)))
#define df_container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))
#define df_likely(x)			 __builtin_expect(!!(x), 1)
#define df_unlikely(x)			 __builtin_expect(!!(x), 0)

/*
 * Expands to THIS if `name` is a macro that expands to ", THIS", else to `otherwise`. For tables in
 * which most rows have the same value.
 */
#define DF_DEFINED_OR(name, otherwise) DF_SECOND_(name, otherwise, )
#define DF_SECOND_(a, b, ...)	       b

#endif
