/*
 * Makes the environment of a job of `dfshim run`: libraries to preload, dfshim's variables, and the
 * ranks as torchrun sets them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/run/run.h"
#include "trace/record/trace_hash.h"

int df_run_is_split(const char *path)
{
	return path[strcspn(path, " :")] != '\0';
}

/*
 * Makes a link without blanks to a folder. It remains, for the next job and for processes that
 * outlive this one. A link that another user has made is not followed.
 */
static int link_to(const char *folder, char *path, size_t size)
{
	char there[PATH_MAX];
	struct stat st;
	ssize_t n;

	snprintf(path, size, "/tmp/dfshim-%u-%016llx", (unsigned)geteuid(),
		 (unsigned long long)df_hash64(folder, strlen(folder)));
	if (!symlink(folder, path))
		return 0;
	n = errno == EEXIST ? readlink(path, there, sizeof(there) - 1) : -1;
	if (n < 0)
		return -errno;
	there[n] = '\0';
	if (!lstat(path, &st) && st.st_uid == geteuid() && !strcmp(there, folder))
		return 0;
	df_cli_input_error("run", path, "is not this user's link to %s: remove it", folder);
	return -EPERM;
}

/* Returns this program's folder, or a link to it if LD_PRELOAD would split its path. */
static int own_folder(char *path, size_t size)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		return -errno;
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	if (df_run_is_split(self))
		return link_to(self, path, size);
	return snprintf(path, size, "%s", self) < (int)size ? 0 : -ENAMETOOLONG;
}

/*
 * Finds the first place, relative to this program's folder, that has the file. Fails with -ENOENT.
 */
static int find(const char *const *places, size_t nr, const char *name, char *path, size_t size)
{
	char self[PATH_MAX];
	int rc = own_folder(self, sizeof(self));

	if (rc)
		return rc;
	for (size_t i = 0; i < nr; i++)
		if (snprintf(path, size, "%s/%s%s", self, places[i], name) < (int)size &&
		    !access(path, R_OK))
			return 0;
	return -ENOENT;
}

int df_run_library(const char *sub, const char *name, char *path, size_t size)
{
	static const char *const places[] = {"", "../lib/", "../lib64/", "../lib/dfshim/"};

	int rc = find(places, DF_ARRAY_LEN(places), name, path, size);

	return rc == -ENOENT ? df_cli_input_error(sub, name,
						  "not found beside this program nor in ../lib")
			     : rc != 0;
}

/*
 * On the CPU backend a Python program's operators compute on the CPU: interpose/python/dfshim/host,
 * which Python finds at its start. Processes of one machine share its cores, as torchrun's do.
 */
static void set_python(void)
{
	/* In the build folder, below PREFIX, in a wheel. */
	static const char *const places[] = {"python/dfshim/", "../share/dfshim/python/dfshim/",
					     "../"};
	char file[PATH_MAX], path[2 * PATH_MAX];
	const char *old = getenv("PYTHONPATH");
	long share = sysconf(_SC_NPROCESSORS_ONLN) / df_run.nr_procs;

	if (find(places, DF_ARRAY_LEN(places), "host/site/sitecustomize.py", file, sizeof(file)))
		return;
	*strrchr(file, '/') = '\0';
	snprintf(path, sizeof(path), "%s%s%s", file, old && *old ? ":" : "", old ?: "");
	setenv("PYTHONPATH", path, 1);
	if (df_run.nr_procs > 1 && !getenv("OMP_NUM_THREADS"))
		df_run_set("OMP_NUM_THREADS", share > 1 ? share : 1);
}

static int have_gpu(void)
{
	void *driver;

	if (access("/dev/nvidiactl", F_OK))
		return 0;
	driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
	if (driver)
		dlclose(driver);
	return driver != NULL;
}

/*
 * Returns the sanitizer's runtime that this program has loaded, or "". A library that is built with
 * a sanitizer can be loaded only after it.
 */
static void sanitizer_runtime(char *path, size_t size)
{
	*path = '\0';
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[PATH_MAX + 128], *p;

	while (maps && fgets(line, sizeof(line), maps)) {
		line[strcspn(line, "\n")] = '\0';
		p = strchr(line, '/');
		if (p && (strstr(p, "/libasan.so") || strstr(p, "/libtsan.so"))) {
			snprintf(path, size, "%s ", p);
			break;
		}
	}
	if (maps)
		fclose(maps);
#else
	(void)size;
#endif
}

void df_run_set(const char *name, long value)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld", value);
	setenv(name, text, 1);
}

/*
 * Reserves a port for rank 0. The socket stays bound until the job is over, so that the kernel
 * gives the port to no other process. It never listens, so rank 0 can bind the port too, with
 * SO_REUSEADDR as servers do.
 */
static long hold_port(void)
{
	struct sockaddr_in addr = {.sin_family = AF_INET};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) &&
	    !bind(fd, (struct sockaddr *)&addr, sizeof(addr)) &&
	    !getsockname(fd, (struct sockaddr *)&addr, &len))
		return ntohs(addr.sin_port);
	if (fd >= 0)
		close(fd);
	return 29500;
}

/*
 * Finds the driver under its own name, for programs that are linked with it: the loader uses a
 * preloaded library that has the name it looks for. Writes "" if it is not there.
 */
static void driver_library(char *path, size_t size)
{
	static const char *const places[] = {"dfhost/", "../lib/dfhost/", "../lib64/dfhost/"};

	if (find(places, DF_ARRAY_LEN(places), "libcuda.so.1", path, size))
		*path = '\0';
}

int df_run_environment(void)
{
	char shim[PATH_MAX], hostlib[PATH_MAX], nccl[PATH_MAX], runtime[PATH_MAX], driver[PATH_MAX];
	char preload[6 * PATH_MAX];
	const char *backend = getenv(df_env_name(DF_ENV_ROW_backend));
	const char *old = getenv("LD_PRELOAD");
	const char *action = getenv(df_env_name(DF_ENV_ROW_timeout_action));
	const char *executor = getenv(df_env_name(DF_ENV_ROW_executor));
	const char *mode = df_run.mode ?: getenv(df_env_name(DF_ENV_ROW_mode));
	const char *stub = df_run.stub ? "1" : getenv(df_env_name(DF_ENV_ROW_host_stub));
	int user_host = df_run.host, ranks = df_run.workers ?: df_run.nr_procs;

	if (backend && !strcmp(backend, "host"))
		df_run.host = 1;
	else if (!df_run.host && !(backend && !strcmp(backend, "cuda")))
		df_run.host = !have_gpu();
	if (df_run.rules && !df_run.host)
		return df_cli_usage_error("run", "--rules needs --host");
	if (df_run.stub && !df_run.host)
		return df_cli_usage_error("run", "--stub needs --host");
	df_run.nccl = df_run.rules && !strcmp(df_run.rules, "nccl");
	if (df_run.nccl && df_run.mode && strcmp(df_run.mode, "trace"))
		return df_cli_usage_error("run",
					  "--rules nccl: NCCL executes, so the mode is trace, "
					  "not %s",
					  df_run.mode);
	df_run.lanes = df_run.executor && !strcmp(df_run.executor, "nccl");
	if (df_run.lanes && !df_run.host)
		return df_cli_usage_error("run", "--executor nccl needs --host");
	if (df_run.lanes && (df_run.nccl || (df_run.mode && strcmp(df_run.mode, "prevent"))))
		return df_cli_usage_error("run",
					  "--executor nccl: dfshim decides the order, so the mode "
					  "is prevent, not %s",
					  df_run.nccl ? "trace (--rules nccl)" : df_run.mode);
	if (!df_run.executor && executor && !strcmp(executor, "nccl"))
		df_run.lanes = df_run.host && !df_run.nccl && !(mode && strcmp(mode, "prevent"));
	if (df_run_library("run", "libdfshim.so", shim, sizeof(shim)))
		return 1;
	*hostlib = '\0';
	if (df_run.host && df_run_library("run", "libdfhost.so", hostlib, sizeof(hostlib)))
		return 1;
	*driver = '\0';
	if (df_run.host)
		driver_library(driver, sizeof(driver));
	*nccl = '\0';
	if ((df_run.nccl || df_run.lanes) &&
	    df_run_library("run", "libdfnccl.so", nccl, sizeof(nccl)))
		return 1;
	sanitizer_runtime(runtime, sizeof(runtime));
	snprintf(preload, sizeof(preload), "%s%s%s%s%s%s%s%s%s%s", runtime, shim,
		 *driver ? " " : "", driver, df_run.host ? " " : "", hostlib, *nccl ? " " : "",
		 nccl, old && *old ? " " : "", old ? old : "");
	setenv("LD_PRELOAD", preload, 1);

	if (df_run.host) {
		setenv(df_env_name(DF_ENV_ROW_backend), "host", 1);
		set_python();
	}
	if (df_run.devices)
		df_run_set(df_env_name(DF_ENV_ROW_host_devices), df_run.devices);
	else if (df_run.host && ranks > 8 && !getenv(df_env_name(DF_ENV_ROW_host_devices)))
		df_run_set(df_env_name(DF_ENV_ROW_host_devices), DF_MIN(ranks, 1024));
	if (df_run.workers) /* torchrun's --nproc-per-node */
		df_run_set("PET_NPROC_PER_NODE", df_run.workers);
	if (df_run.stub)
		df_run_set(df_env_name(DF_ENV_ROW_host_stub), 1);
	if (df_run.host && stub && !strcmp(stub, "1"))
		fprintf(stderr,
			"dfshim run: %s=1: PyTorch's operators on large floating-point tensors "
			"compute nothing; their values mean nothing\n",
			df_env_name(DF_ENV_ROW_host_stub));
	if (df_run.no_fork)
		df_run_set(df_env_name(DF_ENV_ROW_host_fork), 0);
	if (df_run.host && !user_host)
		fprintf(stderr, "dfshim run: no GPU here: devices are CPU threads (CPU backend)\n");
	if (df_run.executor)
		setenv(df_env_name(DF_ENV_ROW_executor), df_run.executor, 1);
	if (df_run.lanes)
		setenv(df_env_name(DF_ENV_ROW_mode), "prevent", 1);
	if (df_run.mode || df_run.nccl)
		setenv(df_env_name(DF_ENV_ROW_mode), df_run.nccl ? "trace" : df_run.mode, 1);
	/* By NCCL's rules a job that hangs would hang for ever, so it ends with its verdict. */
	if (df_run.nccl)
		setenv(df_env_name(DF_ENV_ROW_timeout_action), "exit", 0);
	if (*df_run.trace)
		setenv(df_env_name(DF_ENV_ROW_trace), df_run.trace, 1);
	if (df_run.timeout > 0) {
		df_run_set(df_env_name(DF_ENV_ROW_timeout_ms), (long)(df_run.timeout * 1000 + 0.5));
		/*
		 * Keep the user's "abort": the program wants to handle the end of its
		 * communicators.
		 */
		if (!action || strcmp(action, "abort"))
			setenv(df_env_name(DF_ENV_ROW_timeout_action), "exit", 1);
	}
	if (df_run.set_ranks) {
		df_run_set("WORLD_SIZE", df_run.nr_procs);
		df_run_set("LOCAL_WORLD_SIZE", df_run.nr_procs);
		setenv("MASTER_ADDR", "127.0.0.1", 0);
		if (!getenv("MASTER_PORT"))
			df_run_set("MASTER_PORT", hold_port());
	}
	return 0;
}

void df_run_print_environment(void)
{
	static const char *const names[] = {"LD_PRELOAD",	  "PYTHONPATH", "OMP_NUM_THREADS",
					    "PET_NPROC_PER_NODE", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
					    "MASTER_ADDR",	  "MASTER_PORT"};
	const char *value;
	size_t i;

	for (i = 0; i < DF_ARRAY_LEN(names); i++) {
		value = getenv(names[i]);
		if (value)
			printf("%s=%s\n", names[i], value);
	}
	for (i = 0; i < DF_ENV_NR_ROWS; i++) {
		value = getenv(df_env_name((enum df_env_row)i));
		if (value)
			printf("%s=%s\n", df_env_name((enum df_env_row)i), value);
	}
}
