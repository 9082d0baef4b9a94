/*
 * What a self-test of this very machine has shown: may the daemon take its GPUs? `dfshim doctor` (trace/cli/doctor) writes
 * it down, a job with DFSHIM_BACKEND=auto reads it (runtime/device/decide.c).
 *
 * One small text file a GPU in the user's cache folder. It holds for its key alone: the GPU, the driver, our build, NCCL's
 * version, and the settings that change how driver and NCCL behave; anything else counts as nothing. A file is made under another name and
 * renamed when it is whole, and ends with a sum over itself; one that is not the user's own is not read.
 *
 * Results: 0 or -errno. Any thread; files are read and written, locks waited for, with no lock of ours held.
 */
#ifndef DF_RUNTIME_EVIDENCE_EVIDENCE_FILE_H
#define DF_RUNTIME_EVIDENCE_EVIDENCE_FILE_H

#include <stddef.h>
#include <stdint.h>

#define DF_EVIDENCE_GPUS 64

/* What a result holds for: lines that `common` and the GPU's own are compared with as they are. */
struct df_evidence_facts {
	char common[2048];
	char gpu[DF_EVIDENCE_GPUS][256];
	int nr_gpus;
	/* Not empty: why the daemon is not for this process, whatever a test would show; a sentence. */
	char refused[256];
};

/*
 * Asks the driver, without a context on any device. find: its functions by their exported names; library: libdfshim.so,
 * whose bytes are the build; nccl: version of the NCCL that the daemon's speed is compared with, 0: none. -errno with the
 * reason.
 */
int df_evidence_ask(void *(*find)(const char *name), const char *library, int nccl,
		    struct df_evidence_facts *out, char *reason, size_t reason_bytes);

enum df_evidence_word {
	DF_EVIDENCE_NONE,  /* no result */
	DF_EVIDENCE_TAKE,  /* the daemon may take the GPU */
	DF_EVIDENCE_LEAVE, /* it works, but the job is better off with NCCL */
	DF_EVIDENCE_FAIL,  /* a check failed: the driver is not to be relied on */
};

/* What is known of a GPU, and the reason in words, which are empty for NONE. */
enum df_evidence_word df_evidence_read(const struct df_evidence_facts *facts, int gpu, char *reason,
				       size_t reason_bytes);
int df_evidence_write(const struct df_evidence_facts *facts, int gpu, enum df_evidence_word word,
		      const char *reason);
/* Where it is or would be; for people. -errno: there is no folder that is the user's alone. */
int df_evidence_path(const struct df_evidence_facts *facts, int gpu, char *path, size_t bytes);

/*
 * One process of the user's tests a GPU at a time: waits until it is our turn, at most until the time (df_now_ns()). Returns
 * what df_evidence_unlock() takes, or -errno (-ETIMEDOUT). The end of the process gives it back too.
 */
int df_evidence_lock(const struct df_evidence_facts *facts, int gpu, uint64_t until_ns);
void df_evidence_unlock(int fd);

#endif
