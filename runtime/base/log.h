/*
 * Logging for a library that lives in other people's processes: one write(2) a line, no stdio, no
 * allocation, safe on every path that is hooked. Lines have NCCL's own form so that the tools users
 * already have read them:
 *
 *   host:pid:tid [dev] DFSHIM WARN text         (DFSHIM_DEBUG=warn, the default)
 *   host:pid:tid [dev] NCCL INFO text           (what NCCL would have printed, NCCL_DEBUG=INFO)
 *
 * Any thread may call these at any time; errno is preserved.
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

/* Our own messages: DFSHIM_DEBUG decides. */
void df_log(enum df_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define df_warn(...) df_log(DF_LOG_WARN, __VA_ARGS__)
#define df_info(...) df_log(DF_LOG_INFO, __VA_ARGS__)

/* As df_warn, but only the first time this line of code is reached in the process. */
#define df_warn_once(...)                                                                          \
	do {                                                                                       \
		static int df_warned_;                                                             \
		if (!__atomic_exchange_n(&df_warned_, 1, __ATOMIC_RELAXED))                        \
			df_warn(__VA_ARGS__);                                                      \
	} while (0)

/*
 * What NCCL would print. df_nccl_warn also becomes the text of ncclGetLastError (1,023 bytes at
 * most), whether or not NCCL_DEBUG is set. df_nccl_info prints under NCCL_DEBUG=INFO when the
 * subsystem is selected by NCCL_DEBUG_SUBSYS.
 */
void df_nccl_warn(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#define DF_NCCL_WARN(...) df_nccl_warn(__FILE__, __LINE__, __VA_ARGS__)
void df_nccl_info(unsigned subsys, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int df_nccl_info_enabled(unsigned subsys);

/*
 * The process-wide text of the last NCCL warning, copied for the calling thread: valid until its next
 * call. Never NULL.
 */
const char *df_nccl_last_error(void);

/* ncclResetDebugInit: forget the settings; the next line reads the environment again. */
void df_log_reset(void);

/* The CUDA device printed in brackets by this thread's lines; -1 unknown. */
void df_log_set_device(int device);

/* Writes the text to the log's file descriptor in as few write(2) calls as possible, unadorned. */
void df_log_raw(const char *text, size_t len);

#endif
