/*
 * Shared by the files of `dfshim doctor`. cmd_doctor.c starts the parts, decides and prints. part.c
 * runs each part as a process of its own, which may crash or hang: facts.c (the machine), python.c
 * (PyTorch), trial.c (the self-test of a GPU), speed.c (the daemon's times and NCCL's) and
 * lanes_trial.c (NCCL's kernels on lanes). driver.c finds the driver's functions by name.
 *
 * A part reports to its parent in lines of words between tabs on file descriptor DF_DOCTOR_FD:
 *
 *   key L, gpu L, refused L    conditions of a result (runtime/evidence)
 *   fact NAME VALUE            versions and the like, for people
 *   begin NAME                 a check begins
 *   check NAME ok|failed|not shown SEEN  it has ended
 *   figure NAME MICROSECONDS   one operation
 *   unable REASON              it cannot be tried here and now, which is no failure of the daemon
 */
#ifndef DF_TRACE_CLI_DOCTOR_DOCTOR_H
#define DF_TRACE_CLI_DOCTOR_DOCTOR_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include "trace/cli/run/nccl_fn.h"

#define DF_DOCTOR_FD 3

/* The checks of trial.c, in their order: name, subject, and the consequence of a failure. */
#define DF_DOCTOR_CHECKS(X)                                                                        \
	X(start, "the daemon starts", "it cannot run on this GPU")                                 \
	X(sums, "all types and operations, bit for bit", "results would be wrong")                 \
	X(words, "data and words in their order", "ranks would compute on old data")               \
	X(queues, "a launch behind waiting streams",                                               \
	  "the daemon could not start: jobs would hang")                                           \
	X(relaunch, "launches beside calls that block",                                            \
	  "the daemon could not be launched again: jobs would hang")                               \
	X(graph, "a captured collective, 100 replays", "graphs would be wrong or hang")            \
	X(disorder, "opposite orders with device waits", "what dfshim is for would not work")

/* The checks of lanes_trial.c. */
#define DF_DOCTOR_LANE_CHECKS(X)                                                                   \
	X(together, "kernels of all lanes at the same time",                                       \
	  "NCCL's kernels would wait for one another")
#define DF_DOCTOR_NCCL_CHECKS(X)                                                                   \
	X(opposite, "NCCL on lanes, opposite orders with device waits",                            \
	  "what dfshim is for would not work")                                                     \
	X(capture, "NCCL on lanes, a captured collective", "graphs would fail or hang")

struct df_doctor_opts {
	const char *part, *nccl;
	int gpu;
	double timeout; /* seconds, for a part */
};

/* ---- in a part --------------------------------------------------------------------------- */

/* Sends one line to the parent. */
void df_doctor_tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Each function runs a part and returns its exit status. */
int df_doctor_facts(const struct df_doctor_opts *o);
int df_doctor_python(void);
int df_doctor_trial(const struct df_doctor_opts *o);
int df_doctor_speed(const struct df_doctor_opts *o);
int df_doctor_lanes(const struct df_doctor_opts *o);
int df_doctor_nccl(const struct df_doctor_opts *o);

/*
 * The driver's CUmemAllocationProp and CUmemAccessDesc (since CUDA 10.2), as far as they are used.
 */
struct df_vm_place {
	int type, id; /* type 1 means a device */
};

struct df_vm_prop {
	int type, handles; /* type 1 means pinned; handles 0 means for no other process */
	struct df_vm_place place;
	void *more;
	uint64_t flags;
};

struct df_vm_access {
	struct df_vm_place place;
	int flags; /* 3 means read and write */
};

/* Functions of the driver and of NCCL. Handles are pointers, device addresses 64 bits. */
struct df_doctor_api {
#define DF_FN(member, name, params) int(*member) params;
#include "trace/cli/doctor/driver.def"
#undef DF_FN
};

extern struct df_doctor_api df_api;

/*
 * Finds the driver's functions. nccl: a library, or NULL for the preloaded one. Fails with -ENOENT
 * after a line "unable".
 */
int df_doctor_load(const char *nccl);
const char *df_doctor_nccl_error(void);
/* Makes the GPU's primary context current. Returns nonzero after a report that it cannot. */
int df_doctor_enter(int gpu, void **context);

/*
 * The result of the current check as text, whether it passed or failed; and its current step, or
 * "".
 */
extern char df_doctor_seen[256];
extern const char *df_doctor_step;
/*
 * Sets df_doctor_seen. Returns -1, for a check that has failed; a check that has passed ignores
 * this value.
 */
int df_doctor_failed(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Calls a function of the driver or of NCCL. If that fails, the calling function returns. */
#define DF_CU(fn, ...)                                                                             \
	do {                                                                                       \
		int r_ = df_api.fn(__VA_ARGS__);                                                   \
		if (r_)                                                                            \
			return df_doctor_failed("%s%s%s returned %d", df_doctor_step,              \
						*df_doctor_step ? ": " : "", #fn, r_);             \
	} while (0)

#define DF_NOT_READY 600 /* CUDA_ERROR_NOT_READY */

/* Waits until the work on the stream has ended. Returns its result, 0 or an error of the driver. */
int df_doctor_wait(void *stream);

/* ---- in the parent ----------------------------------------------------------------------- */

struct df_doctor_part {
	const char *name; /* facts, python, test, speed, lanes, nccl */
	int gpu;
	int ours; /* whether libdfshim.so is preloaded */
	/* whether it is preloaded with DFSHIM_EXECUTOR=nccl, before the library `nccl` */
	int on_lanes;
	const char *nccl; /* the library of --nccl; NULL if there is none */
	/* How the part ended: */
	int status;	  /* status as from waitpid() */
	int late;	  /* whether it was killed because its time was over */
	char words[1024]; /* the end of its standard output and error */
	/* Only part.c uses these: */
	int pid, fd, err;
	char *said;
	size_t len, nr_words;
};

/*
 * Runs parts in parallel, each for at most `seconds`. Calls line() for each line that they report,
 * when it arrives. Returns 0 or -errno.
 */
int df_doctor_run(struct df_doctor_part *parts, int nr, double seconds, const char *library,
		  void (*line)(struct df_doctor_part *part, char *text));

#endif
