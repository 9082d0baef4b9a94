/* Files of self-test results, and the facts they are valid for; see evidence_file.h. No state. */
#define _GNU_SOURCE
#include "runtime/evidence/evidence_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "runtime/base/connections.h"
#include "runtime/base/err.h"
#include "runtime/base/first_line.h"
#include "runtime/base/hash.h"
#include "runtime/base/time.h"

#define FILE_MAX 4096
#define HEADER	 "dfshim evidence 1\n"

static int add(char *to, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Appends text. Returns 0 or -ENAMETOOLONG. */
static int add(char *to, size_t size, const char *fmt, ...)
{
	size_t at = strlen(to);
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(to + at, size - at, fmt, ap);
	va_end(ap);
	return n < 0 || (size_t)n >= size - at ? -ENAMETOOLONG : 0;
}

/* ---- facts ---------------------------------------------------------------------------------- */

/*
 * Attributes by their numbers in cuda.h, because this is also built without that header. Every
 * driver knows them.
 */
enum {
	ATTRIBUTE_MULTIPROCESSORS = 16,
	ATTRIBUTE_COMPUTE_MODE = 20,
	ATTRIBUTE_MAJOR = 75,
	ATTRIBUTE_MINOR = 76,
	ATTRIBUTE_MPS = 147,
};

struct driver {
	int (*init)(unsigned int);
	int (*version)(int *);
	int (*count)(int *);
	int (*get)(int *, int);
	int (*name)(char *, int, int);
	int (*uuid)(unsigned char *, int);
	int (*attribute)(int *, int, int);
};

static int find_all(void *(*find)(const char *), struct driver *d)
{
	static const struct {
		const char *name;
		size_t at;
	} names[] = {
		{"cuInit", offsetof(struct driver, init)},
		{"cuDriverGetVersion", offsetof(struct driver, version)},
		{"cuDeviceGetCount", offsetof(struct driver, count)},
		{"cuDeviceGet", offsetof(struct driver, get)},
		{"cuDeviceGetName", offsetof(struct driver, name)},
		{"cuDeviceGetUuid_v2", offsetof(struct driver, uuid)},
		{"cuDeviceGetAttribute", offsetof(struct driver, attribute)},
	};

	for (size_t i = 0; i < DF_ARRAY_LEN(names); i++) {
		void *fn = find(names[i].name);

		if (!fn)
			return -EOPNOTSUPP;
		memcpy((char *)d + names[i].at, &fn, sizeof(fn));
	}
	return 0;
}

static int build_of(const char *library, uint64_t *out)
{
	char piece[1 << 14];
	uint64_t hash = 0;
	ssize_t n;
	int fd = open(library, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	while ((n = read(fd, piece, sizeof(piece))) > 0)
		hash = df_hash_bytes(piece, (size_t)n, hash);
	close(fd);
	*out = hash;
	return n < 0 ? -EIO : 0;
}

static int attribute(const struct driver *d, int what, int device)
{
	int v = -1;

	/* This driver does not know the attribute. */
	if (d->attribute(&v, what, device))
		v = -1;
	return v;
}

static int gpu_line(const struct driver *d, int ordinal, char *to, size_t size, const char **mig)
{
	unsigned char uuid[16];
	char name[128] = "", text[2 * sizeof(uuid) + 1];
	int device;

	if (d->get(&device, ordinal) || d->name(name, sizeof(name), device) ||
	    d->uuid(uuid, device))
		return -EIO;
	for (size_t i = 0; i < sizeof(uuid); i++)
		snprintf(text + 2 * i, 3, "%02x", uuid[i]);
	name[strcspn(name, "\n")] = '\0';
	if (strstr(name, " MIG "))
		*mig = "MIG: this GPU is divided, and the daemon has not been tried on a part of "
		       "one";
	*to = '\0';
	return add(to, size, "uuid %s sm %d capability %d.%d mps %d mode %d name %s", text,
		   attribute(d, ATTRIBUTE_MULTIPROCESSORS, device),
		   attribute(d, ATTRIBUTE_MAJOR, device), attribute(d, ATTRIBUTE_MINOR, device),
		   attribute(d, ATTRIBUTE_MPS, device),
		   attribute(d, ATTRIBUTE_COMPUTE_MODE, device), name);
}

static const char *variable(const char *name)
{
	const char *v = getenv(name);

	return v ? v : "";
}

/* Returns why the environment of this process forbids the daemon; "" if it does not. */
static const char *refused_by_environment(void)
{
	const char *v = getenv("CUDA_LAUNCH_BLOCKING");

	if (v && *v && strcmp(v, "0") != 0)
		return "CUDA_LAUNCH_BLOCKING is set: a launch of the daemon would not return";
	if (*variable("CUDA_INJECTION64_PATH"))
		return "CUDA_INJECTION64_PATH is set: a tool is inside the driver, which may "
		       "serialise kernels";
	if (strstr(variable("LD_PRELOAD"), "Injection"))
		return "a profiler or sanitizer is preloaded, which may serialise kernels";
	return "";
}

/* A setting. The rest of a long value counts too, as a hash. */
static int add_setting(char *to, size_t size, const char *name)
{
	const char *v = variable(name);
	size_t n = strnlen(v, 60);
	char rest[20] = "";

	if (v[n])
		snprintf(rest, sizeof(rest), "..%016llx",
			 (unsigned long long)df_hash_bytes(v + n, strlen(v + n), 0));
	return add(to, size, "%s=%.*s%s\n", name, (int)n, v, rest);
}

int df_evidence_ask(void *(*find)(const char *name), const char *library, int nccl,
		    struct df_evidence_facts *out, char *reason, size_t reason_bytes)
{
	/*
	 * Settings that affect the driver, our daemon on it, or the speed of NCCL, with which the
	 * daemon is compared.
	 */
	static const char *const settings[] = {
		"CUDA_MODULE_LOADING",
		"CUDA_SCALE_LAUNCH_QUEUES",
		"DFSHIM_GPU_QUEUE",
		"DFSHIM_NCCL_CTAS",
		"DFSHIM_BLOCKS",
		"DFSHIM_THREADS",
		"DFSHIM_P2P",
		"DFSHIM_QUIT_US",
		"NCCL_ALGO",
		"NCCL_PROTO",
		"NCCL_BUFFSIZE",
		"NCCL_NTHREADS",
		"NCCL_MIN_CTAS",
		"NCCL_MAX_CTAS",
		"NCCL_MIN_NCHANNELS",
		"NCCL_MAX_NCHANNELS",
		"NCCL_MIN_NRINGS",
		"NCCL_MAX_NRINGS",
		"NCCL_CGA_CLUSTER_SIZE",
		"NCCL_NVLS_ENABLE",
		"NCCL_P2P_DISABLE",
		"NCCL_P2P_LEVEL",
		"NCCL_SHM_DISABLE",
		"NCCL_LAUNCH_MODE",
		"NCCL_LAUNCH_ORDER_IMPLICIT",
	};
	struct driver d;
	const char *mig = "";
	char module[128];
	uint64_t build;
	int version = 0, ret, i;

	memset(out, 0, sizeof(*out));
	ret = build_of(library, &build);
	if (ret) {
		snprintf(reason, reason_bytes, "%s cannot be read: %s", library, strerror(-ret));
		return ret;
	}
	ret = find_all(find, &d);
	df_connections_begin();
	ret = ret ?: d.init(0);
	df_connections_end();
	if (ret || d.version(&version) || d.count(&out->nr_gpus)) {
		snprintf(reason, reason_bytes, "the CUDA driver does not list its devices");
		return -ENODEV;
	}
	df_first_line("/sys/module/nvidia/version", module, sizeof(module));
	out->nr_gpus = DF_MIN(out->nr_gpus, DF_EVIDENCE_GPUS);
	ret = add(out->common, sizeof(out->common), "build %016llx\ndriver %d %s\nnccl %d\n",
		  (unsigned long long)build, version, module, nccl);
	ret = ret ?: add(out->common, sizeof(out->common), "gpus %d\n", out->nr_gpus);
	for (i = 0; i < (int)DF_ARRAY_LEN(settings) && !ret; i++)
		ret = add_setting(out->common, sizeof(out->common), settings[i]);
	for (i = 0; i < out->nr_gpus && !ret; i++)
		ret = gpu_line(&d, i, out->gpu[i], sizeof(out->gpu[i]), &mig);
	if (ret) {
		snprintf(reason, reason_bytes, "the CUDA driver does not identify device %d",
			 i - 1);
		return ret;
	}
	snprintf(out->refused, sizeof(out->refused), "%s", refused_by_environment());
	if (!*out->refused)
		snprintf(out->refused, sizeof(out->refused), "%s", mig);
	/* Later drivers have not been reviewed. */
	if (!*out->refused && (version / 1000 < 12 || version / 1000 > 13))
		snprintf(out->refused, sizeof(out->refused),
			 "a driver for CUDA %d.%d, which this version of dfshim does not know",
			 version / 1000, version % 1000 / 10);
	return 0;
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Makes sure that the folder exists and belongs to the user alone. */
static int own_folder(const char *path)
{
	struct stat st;

	if (mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	if (lstat(path, &st))
		return -errno;
	return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022) ? 0 : -EPERM;
}

static int folder(char *path, size_t size)
{
	const char *xdg = variable("XDG_CACHE_HOME"), *home = variable("HOME"),
		   *tmp = variable("TMPDIR");

	if (*xdg == '/' || *home == '/') {
		*path = '\0';
		/* The parent folder may be missing. */
		if (!add(path, size, "%s%s", *xdg == '/' ? xdg : home,
			 *xdg == '/' ? "" : "/.cache"))
			mkdir(path, 0700);
		if (!add(path, size, "/dfshim") && !own_folder(path))
			return 0;
	}
	*path = '\0';
	return add(path, size, "%s/dfshim-%u", *tmp == '/' ? tmp : "/tmp", (unsigned)geteuid())
		       ?: own_folder(path);
}

int df_evidence_path(const struct df_evidence_facts *facts, int gpu, enum df_evidence_of of,
		     char *path, size_t bytes)
{
	uint64_t hash = df_hash_bytes(facts->common, strlen(facts->common), 0);
	int ret = folder(path, bytes);

	hash = df_hash_bytes(facts->gpu[gpu], strlen(facts->gpu[gpu]), hash);
	return ret
		       ?: add(path, bytes, "/%s-%016llx", of == DF_EVIDENCE_LANES ? "lanes" : "gpu",
			      (unsigned long long)hash);
}

/* Opens a regular file of the user. Returns a descriptor or -errno. */
static int open_own(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	    !(st.st_mode & 022) && st.st_size < FILE_MAX)
		return fd;
	close(fd);
	return -EPERM;
}

/* The text before the line with the result. */
static int put_key(const struct df_evidence_facts *facts, int gpu, char *to, size_t size)
{
	*to = '\0';
	return add(to, size, HEADER "%s%s\n", facts->common, facts->gpu[gpu]);
}

/* The last line: a checksum of everything before it. */
static void put_sum(const char *text, size_t len, char *to, size_t size)
{
	snprintf(to, size, "\nsum %016llx\n", (unsigned long long)df_hash_bytes(text, len, 0));
}

enum df_evidence_word df_evidence_read(const struct df_evidence_facts *facts, int gpu,
				       enum df_evidence_of of, char *reason, size_t reason_bytes)
{
	enum df_evidence_word word = DF_EVIDENCE_NONE;
	char path[PATH_MAX], text[FILE_MAX + 1], key[FILE_MAX], said[8], sum[32];
	int fd = -1, at = 0;
	char *line, *end;
	ssize_t n;

	*reason = '\0';
	if (df_evidence_path(facts, gpu, of, path, sizeof(path)) ||
	    put_key(facts, gpu, key, sizeof(key)))
		return DF_EVIDENCE_NONE;
	fd = open_own(path);
	if (fd < 0)
		return DF_EVIDENCE_NONE;
	n = read(fd, text, FILE_MAX);
	close(fd);
	if (n <= 0)
		return DF_EVIDENCE_NONE;
	text[n] = '\0';
	if (strncmp(text, key, strlen(key)) != 0)
		return DF_EVIDENCE_NONE;
	line = text + strlen(key);
	end = strchr(line, '\n');
	if (!end)
		return DF_EVIDENCE_NONE;
	put_sum(text, (size_t)(end - text), sum, sizeof(sum));
	if (strcmp(end, sum) != 0)
		return DF_EVIDENCE_NONE;
	*end = '\0';
	if (sscanf(line, "%7s %n", said, &at) != 1)
		return DF_EVIDENCE_NONE;
	if (!strcmp(said, "take"))
		word = DF_EVIDENCE_TAKE;
	else if (!strcmp(said, "leave"))
		word = DF_EVIDENCE_LEAVE;
	else if (!strcmp(said, "fail"))
		word = DF_EVIDENCE_FAIL;
	if (word != DF_EVIDENCE_NONE)
		snprintf(reason, reason_bytes, "%s", line + at);
	return word;
}

int df_evidence_write(const struct df_evidence_facts *facts, int gpu, enum df_evidence_of of,
		      enum df_evidence_word word, const char *reason)
{
	static const char *const words[] = {[DF_EVIDENCE_NONE] = "leave",
					    [DF_EVIDENCE_TAKE] = "take",
					    [DF_EVIDENCE_LEAVE] = "leave",
					    [DF_EVIDENCE_FAIL] = "fail"};
	char path[PATH_MAX], part[PATH_MAX + 16], text[FILE_MAX], sum[32];
	size_t len;
	int fd, ret;

	ret = df_evidence_path(facts, gpu, of, path, sizeof(path)) ?:
		      put_key(facts, gpu, text, sizeof(text)) ?:
			      add(text, sizeof(text), "%s %.*s", words[word],
				  (int)strcspn(reason, "\n"), reason);
	if (ret)
		return ret;
	put_sum(text, strlen(text), sum, sizeof(sum));
	ret = add(text, sizeof(text), "%s", sum);
	if (ret)
		return ret;
	len = strlen(text);
	snprintf(part, sizeof(part), "%s.XXXXXX", path);
	fd = mkostemp(part, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* Readers find the old file or the new one, never a part. */
	if (write(fd, text, len) != (ssize_t)len || fsync(fd))
		ret = -EIO;
	if (close(fd) || (!ret && rename(part, path)))
		ret = ret ?: -EIO;
	if (ret)
		unlink(part);
	return ret;
}

int df_evidence_lock(const struct df_evidence_facts *facts, int gpu, uint64_t until_ns)
{
	char path[PATH_MAX];
	int fd, ret = df_evidence_path(facts, gpu, DF_EVIDENCE_DAEMON, path, sizeof(path))
			      ?: add(path, sizeof(path), ".lock");

	if (ret)
		return ret;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		ret = errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
		if (ret || df_now_ns() > until_ns) {
			close(fd);
			return ret ?: -ETIMEDOUT;
		}
		df_sleep_ns(20 * DF_NS_PER_MS);
	}
	return fd;
}

void df_evidence_unlock(int fd)
{
	close(fd);
}
