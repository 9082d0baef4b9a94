/*
 * `dfshim doctor`: what its parts share. cmd_doctor.c asks, decides and prints; part.c starts each part of the work as a
 * process of its own, which may crash or hang; those are facts.c (what there is), python.c (PyTorch), trial.c (the self-test of a GPU) and
 * speed.c (the daemon's times and NCCL's), with the driver's functions by their names (driver.c).
 *
 * A part tells its parent what it finds in lines of words between tabs on file descriptor DF_DOCTOR_FD:
 *
 *   key L, gpu L, refused L    what a result holds for (runtime/evidence)
 *   fact NAME VALUE            versions and the like, for people
 *   begin NAME                 a check begins
 *   check NAME ok|failed SEEN  it has ended
 *   figure NAME MICROSECONDS   one operation
 *   unable REASON              it cannot be tried here and now, which says nothing against the daemon
 */
#ifndef DF_TRACE_CLI_DOCTOR_DOCTOR_H
#define DF_TRACE_CLI_DOCTOR_DOCTOR_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include "trace/cli/run/nccl_fn.h"

#define DF_DOCTOR_FD 3

/* The checks of trial.c, in their order: name, what it looks at, what follows where it fails. */
#define DF_DOCTOR_CHECKS(X)                                                                        \
	X(start, "the daemon starts", "it cannot run on this GPU")                                 \
	X(sums, "all types and operations, bit for bit", "results would be wrong")                 \
	X(words, "data and words in their order", "ranks would compute on old data")               \
	X(queues, "a launch behind waiting streams",                                               \
	  "the daemon could not start: jobs would hang")                                           \
	X(relaunch, "launches beside calls that block",                                            \
	  "the daemon could not come back: jobs would hang")                                       \
	X(graph, "a captured collective, 100 replays", "graphs would be wrong or hang")            \
	X(disorder, "opposite orders with device waits", "what dfshim is for would not work")

struct df_doctor_opts {
	const char *part, *nccl;
	int gpu;
	double timeout; /* seconds, of a part */
};

/* ---- in a part ------------------------------------------------------------------------------------------------ */

/* One line to the parent. */
void df_doctor_tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Each returns the status to exit with. */
int df_doctor_facts(const struct df_doctor_opts *o);
int df_doctor_python(void);
int df_doctor_trial(const struct df_doctor_opts *o);
int df_doctor_speed(const struct df_doctor_opts *o);

/* The driver's CUmemAllocationProp and CUmemAccessDesc (CUDA 10.2 on), as far as they are used. */
struct df_vm_place {
	int type, id; /* 1: a device */
};

struct df_vm_prop {
	int type, handles; /* 1: pinned; 0: for no other process */
	struct df_vm_place place;
	void *more;
	uint64_t flags;
};

struct df_vm_access {
	struct df_vm_place place;
	int flags; /* 3: read and write */
};

/* The driver and NCCL, as they are called; handles are pointers, device addresses 64 bits. */
struct df_doctor_api {
#define DF_FN(member, name, params) int(*member) params;
#include "trace/cli/doctor/driver.def"
#undef DF_FN
};

extern struct df_doctor_api df_api;

/* The driver's functions; nccl: a library, or NULL for what is preloaded. -ENOENT, after a line "unable". */
int df_doctor_load(const char *nccl);
const char *df_doctor_nccl_error(void);

#define DF_NOT_READY 600 /* CUDA_ERROR_NOT_READY */

/* ---- in the parent -------------------------------------------------------------------------------------------- */

struct df_doctor_part {
	const char *name; /* facts, python, test, speed */
	int gpu;
	int ours;	  /* libdfshim.so is in front */
	const char *nccl; /* --nccl; NULL: none */
	/* Of its end: */
	int status;	  /* as waitpid() says */
	int late;	  /* it was ended for its time */
	char words[1024]; /* the last of what it wrote to standard output and error */
	/* Its own: */
	int pid, fd, err;
	char *said;
	size_t len, nr_words;
};

/*
 * Runs parts beside one another, each for at most so many seconds; line() is called for what they tell, as it comes. 0 or
 * -errno.
 */
int df_doctor_run(struct df_doctor_part *parts, int nr, double seconds, const char *library,
		  void (*line)(struct df_doctor_part *part, char *text));

#endif
