/*
 * DFSHIM_BACKEND=auto on a machine with GPUs: decides whether this process uses them, and with
 * which executor, by the results of a self-test on this very machine (runtime/evidence). The daemon
 * is taken where it is as fast as NCCL, else NCCL's kernels on lanes. If DFSHIM_EXECUTOR is set,
 * only the executor that it names is considered. If there is no result, `dfshim doctor`, which is
 * installed beside the library, runs the test in a process of its own: the tested daemon may crash
 * or hang, and must not touch a driver lock or context of the application. One process of a node
 * runs it, the others wait. If there is still no result, NCCL executes the job.
 *
 * If ranks decide differently, all of them take the path of a rank whose daemon cannot start:
 * df_start_unable().
 *
 * Called once, at the start, with no lock of the runtime held; blocks for a bounded time.
 */
#if __has_include(<cuda.h>)
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "runtime/base/dlsym.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/device/cuda/front/cuda_front.h"
#include "runtime/device/device.h"
#include "runtime/evidence/evidence_file.h"

#define OVERRIDE "DFSHIM_BACKEND=cuda uses the GPU anyway"

static void *driver;
static int failed; /* whether a check of the self-test has failed on one of our GPUs */

/* df_dlsym() bypasses our own hook, because this call is not the application's. */
static void *find(const char *name)
{
	return df_dlsym(driver, name);
}

/* ---- running the test ------------------------------------------------------------------------ */

static int library_path(char *path)
{
	Dl_info info;

	return dladdr((const void *)(uintptr_t)library_path, &info) && info.dli_fname &&
			       realpath(info.dli_fname, path)
		       ? 0
		       : -ENOENT;
}

/* Finds `dfshim` beside the library, or where it is installed with it. */
static int doctor_path(const char *library, char *path, size_t size)
{
	static const char *const places[] = {"dfshim", "../bin/dfshim", "../../bin/dfshim",
					     "../../../bin/dfshim"};

	for (size_t i = 0; i < DF_ARRAY_LEN(places); i++)
		if (snprintf(path, size, "%.*s/%s", (int)(strrchr(library, '/') - library), library,
			     places[i]) < (int)size &&
		    !access(path, X_OK))
			return 0;
	return -ENOENT;
}

static int nccl_of(struct dl_phdr_info *info, size_t size, void *path)
{
	const char *base = strrchr(info->dlpi_name, '/');

	(void)size;
	if (!base || strncmp(base, "/libnccl.so", 11) != 0)
		return 0;
	snprintf(path, PATH_MAX, "%s", info->dlpi_name);
	return 1;
}

/*
 * Finds the NCCL with which the daemon's speed is compared: the job's, else the one that the doctor
 * finds with the same library path (*path is empty then). Returns its version, or 0 if there is
 * none.
 */
static int nccl_version(char *path)
{
	int (*version)(int *), v = 0;
	void *lib;

	*path = '\0';
	dl_iterate_phdr(nccl_of, path);
	lib = dlopen(*path ? path : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
	*(void **)&version = lib ? df_dlsym(lib, "ncclGetVersion") : NULL;
	return version && !version(&v) ? v : 0;
}

/* Runs the doctor, which writes its result, if any, to a file. */
static void run_doctor(const char *program, const char *nccl, uint64_t until_ns)
{
	char seconds[32];
	char *argv[] = {(char *)program, "doctor", "--job",	 "--timeout",
			seconds,	 "--nccl", (char *)nccl, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t how;
	sigset_t none;
	pid_t pid;
	int ret;

	if (!*nccl)
		argv[5] = NULL;
	snprintf(seconds, sizeof(seconds), "%d.%03d", (int)df_env()->self_test_ms / 1000,
		 (int)df_env()->self_test_ms % 1000);
	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
	posix_spawnattr_init(&how);
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&how, &none);
	ret = posix_spawn(&pid, program, &files, &how, argv, environ);
	posix_spawnattr_destroy(&how);
	posix_spawn_file_actions_destroy(&files);
	if (ret) {
		df_warn("%s cannot be started: %s", program, strerror(ret));
		return;
	}
	/* waitpid() fails if the application reaps all children and has reaped this one. */
	while (!waitpid(pid, NULL, WNOHANG)) {
		if (df_now_ns() > until_ns)
			kill(pid, SIGKILL);
		df_sleep_ns(20 * DF_NS_PER_MS);
	}
}

/* ---- the decision ---------------------------------------------------------------------------- */

static int how_bad(enum df_evidence_word word)
{
	return word == DF_EVIDENCE_FAIL	   ? 3
	       : word == DF_EVIDENCE_LEAVE ? 2
	       : word == DF_EVIDENCE_NONE  ? 1
					   : 0;
}

/*
 * Combines the results of all GPUs. Returns FAIL if one GPU has FAIL, else LEAVE if one has LEAVE,
 * else NONE if one has no result (*lacking), else TAKE.
 */
static enum df_evidence_word known(const struct df_evidence_facts *f, enum df_evidence_of of,
				   int *lacking, char *reason, size_t reason_bytes)
{
	enum df_evidence_word word = DF_EVIDENCE_TAKE, one;
	char why[256];

	*reason = '\0';
	for (int i = 0; i < f->nr_gpus; i++) {
		one = df_evidence_read(f, i, of, why, sizeof(why));
		failed |= one == DF_EVIDENCE_FAIL;
		if (one == word && word == DF_EVIDENCE_TAKE)
			snprintf(reason, reason_bytes, "%s", why);
		if (how_bad(one) <= how_bad(word))
			continue;
		word = one;
		if (one == DF_EVIDENCE_NONE)
			*lacking = i;
		else
			snprintf(reason, reason_bytes, "GPU %d: %s", i, why);
	}
	return word;
}

/*
 * Finds the best executor that DFSHIM_EXECUTOR allows (*of) and returns its result. Lanes do not
 * replace a daemon whose checks have failed, unless DFSHIM_EXECUTOR names them. Returns NONE if a
 * test could find a better executor; `reason` may say why that has not been tested.
 */
static enum df_evidence_word best(const struct df_evidence_facts *f, enum df_evidence_of *of,
				  int *lacking, char *reason, size_t reason_bytes)
{
	enum df_evidence_word word = DF_EVIDENCE_LEAVE, lanes;
	char why[256];
	size_t n;

	*of = DF_EVIDENCE_DAEMON;
	*reason = '\0';
	if (df_env()->executor != DF_EXECUTOR_NCCL) {
		word = known(f, *of, lacking, reason, reason_bytes);
		if (word != DF_EVIDENCE_LEAVE || df_env()->executor == DF_EXECUTOR_DAEMON)
			return word;
	}
	lanes = known(f, DF_EVIDENCE_LANES, lacking, why, sizeof(why));
	if (lanes == DF_EVIDENCE_TAKE || df_env()->executor == DF_EXECUTOR_NCCL) {
		*of = DF_EVIDENCE_LANES;
		snprintf(reason, reason_bytes, "%s", why);
		return lanes;
	}
	n = strlen(reason);
	snprintf(reason + n, reason_bytes - n, "; NCCL on lanes: %s",
		 lanes == DF_EVIDENCE_NONE ? "not tested" : why);
	*of = DF_EVIDENCE_LANES;
	return lanes;
}

static enum df_evidence_word tested(const struct df_evidence_facts *f, const char *library,
				    const char *nccl, enum df_evidence_of *of, char *reason,
				    size_t reason_bytes)
{
	uint64_t bound_ns = (uint64_t)df_env()->self_test_ms * DF_NS_PER_MS, until;
	enum df_evidence_word word;
	char program[PATH_MAX];
	int gpu = 0, fd;

	word = best(f, of, &gpu, reason, reason_bytes);
	if (word != DF_EVIDENCE_NONE)
		return word;
	if (!bound_ns || doctor_path(library, program, sizeof(program))) {
		/* The reason is the daemon's result and that lanes have none, or it is empty. */
		if (*reason)
			return DF_EVIDENCE_NONE;
		snprintf(reason, reason_bytes,
			 "it has not been tested here (%s); run `dfshim doctor`",
			 bound_ns ? "no program dfshim beside the library"
				  : "DFSHIM_SELF_TEST_MS=0");
		return DF_EVIDENCE_NONE;
	}
	/*
	 * Each part is bounded: listing the GPUs, the tests, the pairs of speeds of which the last
	 * begins in time (cmd_doctor.c), and for lanes the tests of concurrent kernels and of
	 * NCCL's speed.
	 */
	until = df_now_ns() + (2 + 3 + 2) * bound_ns + 5 * DF_NS_PER_S;
	fd = df_evidence_lock(f, gpu, until);
	if (fd < 0) {
		snprintf(reason, reason_bytes, "its self-test has no result: %s", strerror(-fd));
		return DF_EVIDENCE_NONE;
	}
	word = best(f, of, &gpu, reason, reason_bytes);
	if (word == DF_EVIDENCE_NONE) {
		df_warn("testing GPU %d, once for this GPU, driver and build (some seconds); to "
			"skip, set DFSHIM_BACKEND=cuda, or DFSHIM_SELF_TEST_MS=0, which leaves the "
			"job to NCCL",
			gpu);
		run_doctor(program, nccl, until);
		word = best(f, of, &gpu, reason, reason_bytes);
	}
	df_evidence_unlock(fd);
	if (word == DF_EVIDENCE_NONE && !*reason)
		snprintf(reason, reason_bytes,
			 "the self-test of GPU %d has no result; run `dfshim doctor` for details",
			 gpu);
	return word;
}

int df_device_failed(void)
{
	return failed;
}

int df_device_decide(int *by_lanes, char *reason, size_t reason_bytes)
{
	const char *local = getenv("LOCAL_RANK");
	struct df_evidence_facts facts;
	char library[PATH_MAX], nccl[PATH_MAX], why[640];
	enum df_evidence_of of;

	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver) {
		snprintf(reason, reason_bytes, "no usable GPU: no libcuda.so.1");
		return -ENODEV;
	}
	if (library_path(library)) {
		snprintf(reason, reason_bytes, "the path of libdfshim.so is unknown; " OVERRIDE);
		return -EOPNOTSUPP;
	}
	if (df_evidence_ask(find, library, nccl_version(nccl), &facts, why, sizeof(why))) {
		snprintf(reason, reason_bytes, "no usable GPU: %.120s", why);
		return -ENODEV;
	}
	if (*facts.refused) {
		snprintf(reason, reason_bytes, "%.150s; " OVERRIDE, facts.refused);
		return -EOPNOTSUPP;
	}
	if (tested(&facts, library, nccl, &of, why, sizeof(why)) != DF_EVIDENCE_TAKE) {
		snprintf(reason, reason_bytes, "%.300s; " OVERRIDE, why);
		return -EOPNOTSUPP;
	}
	*by_lanes = of == DF_EVIDENCE_LANES;
	/*
	 * Nothing is wrong, but users should know that dfshim executes their collectives. One
	 * process of a node warns.
	 */
	if (!local || !atoi(local))
		df_warn("%s: %s (DFSHIM_MODE=trace leaves it to NCCL)",
			*by_lanes ? "NCCL executes on lanes, which dfshim keeps from deadlocking"
				  : "dfshim's daemon takes the GPU",
			why);
	return 0;
}
#endif
