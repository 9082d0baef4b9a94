/*
 * The results of a self-test of this machine: which executor may use its GPUs. `dfshim doctor`
 * (trace/cli/doctor) writes them, and a job with DFSHIM_BACKEND=auto reads them
 * (runtime/device/decide.c).
 *
 * There is one small text file per GPU and executor in the user's cache folder. It is valid for its
 * key only: the GPU, the driver, our build, NCCL's version, and the settings that affect driver and
 * NCCL. Any other file counts as no result. A file is written under another name and renamed when
 * it is complete, and it ends with a checksum. A file that does not belong to the user is not read.
 *
 * Functions return 0 or -errno. Any thread may call them with no lock of ours held, because they
 * access files and wait for locks.
 */
#ifndef DF_RUNTIME_EVIDENCE_EVIDENCE_FILE_H
#define DF_RUNTIME_EVIDENCE_EVIDENCE_FILE_H

#include <stddef.h>
#include <stdint.h>

#define DF_EVIDENCE_GPUS 64

/* The facts that a result is valid for. `common` and the GPU's own text are compared literally. */
struct df_evidence_facts {
	char common[2048];
	char gpu[DF_EVIDENCE_GPUS][256];
	int nr_gpus;
	/*
	 * If not empty: why this process must not use the daemon, whatever a test shows, as a
	 * sentence.
	 */
	char refused[256];
};

/*
 * Queries the driver without a context on any device. find: returns its functions by their exported
 * names. library: libdfshim.so, whose bytes identify the build. nccl: the version of the NCCL with
 * which the daemon's speed is compared; 0: none. Returns -errno and the reason on failure.
 */
int df_evidence_ask(void *(*find)(const char *name), const char *library, int nccl,
		    struct df_evidence_facts *out, char *reason, size_t reason_bytes);

/* The executor that a result is about: the daemon, or NCCL's kernels on lanes. */
enum df_evidence_of { DF_EVIDENCE_DAEMON, DF_EVIDENCE_LANES };

enum df_evidence_word {
	DF_EVIDENCE_NONE,  /* no result */
	DF_EVIDENCE_TAKE,  /* the executor may use the GPU */
	DF_EVIDENCE_LEAVE, /* it may not, but nothing is wrong with the GPU and its driver */
	DF_EVIDENCE_FAIL,  /* a check failed: the driver is not reliable */
};

/* The result for a GPU, and the reason in words, which is empty for NONE. */
enum df_evidence_word df_evidence_read(const struct df_evidence_facts *facts, int gpu,
				       enum df_evidence_of of, char *reason, size_t reason_bytes);
int df_evidence_write(const struct df_evidence_facts *facts, int gpu, enum df_evidence_of of,
		      enum df_evidence_word word, const char *reason);
/*
 * Writes the path of the file, which need not exist, for users. Returns -errno if no folder belongs
 * to the user alone.
 */
int df_evidence_path(const struct df_evidence_facts *facts, int gpu, enum df_evidence_of of,
		     char *path, size_t bytes);

/*
 * Lets one of the user's processes at a time test a GPU: waits for its turn until the given time
 * (df_now_ns()). Returns the argument for df_evidence_unlock(), or -errno (-ETIMEDOUT). The end of
 * the process also releases it.
 */
int df_evidence_lock(const struct df_evidence_facts *facts, int gpu, uint64_t until_ns);
void df_evidence_unlock(int fd);

#endif
