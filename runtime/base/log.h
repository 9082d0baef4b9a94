/*
 * Logging for a library that lives in other people's processes: one write(2) per line, no stdio, no
 * allocation, safe on every hooked path. Lines have NCCL's form, so that existing tools can read
 * them:
 *
 *   host:pid:tid [dev] DFSHIM WARN text         (DFSHIM_DEBUG=warn, the default)
 *   host:pid:tid [dev] NCCL INFO text           (a line that NCCL would print, NCCL_DEBUG=INFO)
 *
 * Control characters in a line become '?' (clean_text.h), because names of machines, programs and
 * files can have them. Any thread may call these functions at any time; they preserve errno.
 */
#ifndef DF_BASE_LOG_H
#define DF_BASE_LOG_H

#include <stdarg.h>
#include <stddef.h>

enum df_log_level { DF_LOG_WARN = 0, DF_LOG_INFO, DF_LOG_TRACE };

/* Subsystems of NCCL_DEBUG_SUBSYS (NCCL 2.28, debug.cc); values are bits. */
enum df_nccl_subsys {
	DF_SUBSYS_INIT = 0x1,
	DF_SUBSYS_COLL = 0x2,
	DF_SUBSYS_P2P = 0x4,
	DF_SUBSYS_SHM = 0x8,
	DF_SUBSYS_NET = 0x10,
	DF_SUBSYS_GRAPH = 0x20,
	DF_SUBSYS_TUNING = 0x40,
	DF_SUBSYS_ENV = 0x80,
	DF_SUBSYS_ALLOC = 0x100,
	DF_SUBSYS_CALL = 0x200,
	DF_SUBSYS_BOOTSTRAP = 0x1000,
	DF_SUBSYS_REG = 0x2000,
};

/* Our own messages; DFSHIM_DEBUG selects them. */
void df_log(enum df_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define df_warn(...) df_log(DF_LOG_WARN, __VA_ARGS__)
#define df_info(...) df_log(DF_LOG_INFO, __VA_ARGS__)

/* As df_warn, but only the first time that the process reaches this line of code. */
#define df_warn_once(...)                                                                          \
	do {                                                                                       \
		static int df_warned_;                                                             \
		if (!__atomic_exchange_n(&df_warned_, 1, __ATOMIC_RELAXED))                        \
			df_warn(__VA_ARGS__);                                                      \
	} while (0)

/*
 * Messages that NCCL would print. df_nccl_warn() also sets the text of ncclGetLastError() (at most
 * 1,023 bytes), whether or not NCCL_DEBUG is set. df_nccl_info() prints with NCCL_DEBUG=INFO if
 * NCCL_DEBUG_SUBSYS selects the subsystem.
 */
void df_nccl_warn(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#define DF_NCCL_WARN(...) df_nccl_warn(__FILE__, __LINE__, __VA_ARGS__)
void df_nccl_info(unsigned subsys, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int df_nccl_info_enabled(unsigned subsys);

/*
 * Returns the text of the last NCCL warning of the process, copied for the calling thread and valid
 * until its next call. Never NULL.
 */
const char *df_nccl_last_error(void);

/*
 * Implements ncclResetDebugInit: forgets the settings; the next line reads the environment again.
 */
void df_log_reset(void);

/* Sets the CUDA device that this thread's lines print in brackets; -1: unknown. */
void df_log_set_device(int device);

/*
 * Opens a file that the user named, for writing, with mode 0644 less the umask. In a folder that
 * all may write to, it does not follow another user's link. Returns the descriptor, or -1 with
 * errno.
 */
int df_log_open(const char *path, int flags);

/* Writes lines to the log's file descriptor in as few write(2) calls as possible; cleans them. */
void df_log_raw(char *text, size_t len);

#endif
