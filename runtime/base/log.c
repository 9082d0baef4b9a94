/*
 * Writes each line with one write(2). Invariant: no function here allocates, takes a lock of stdio,
 * or calls a function that dfshim hooks; all preserve errno.
 *
 * Our own lines go to standard error. NCCL's lines go where NCCL would write them: to standard
 * output or NCCL_DEBUG_FILE. The first line reads the settings under settings_lock. No lock is
 * taken inside it, and it is held for a few system calls only.
 */
#define _GNU_SOURCE /* dup3 */
#include "runtime/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/ascii.h"
#include "runtime/base/clean_text.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/number.h"

#define LINE_BYTES 1024 /* NCCL's own limit */

enum { NCCL_NONE, NCCL_VERSION, NCCL_WARN, NCCL_INFO, NCCL_ABORT, NCCL_TRACE };

static const struct {
	const char *name;
	unsigned mask;
} subsystems[] = {
	{"INIT", DF_SUBSYS_INIT},
	{"COLL", DF_SUBSYS_COLL},
	{"P2P", DF_SUBSYS_P2P},
	{"SHM", DF_SUBSYS_SHM},
	{"NET", DF_SUBSYS_NET},
	{"GRAPH", DF_SUBSYS_GRAPH},
	{"TUNING", DF_SUBSYS_TUNING},
	{"ENV", DF_SUBSYS_ENV},
	{"ALLOC", DF_SUBSYS_ALLOC},
	{"CALL", DF_SUBSYS_CALL},
	{"PROXY", 0x400},
	{"NVLS", 0x800},
	{"REG", DF_SUBSYS_REG},
	{"BOOTSTRAP", DF_SUBSYS_BOOTSTRAP},
	{"PROFILE", 0x4000},
	{"RAS", 0x8000},
	{"ALL", ~0u},
};

static pthread_mutex_t settings_lock = PTHREAD_MUTEX_INITIALIZER;
static int settings_ready; /* whether the variables below are valid */
static int own_level;
static int nccl_level;
static unsigned nccl_mask;
static int nccl_fd = STDOUT_FILENO;
/* our descriptor of NCCL_DEBUG_FILE; after a reset a new file gets the same number */
static int file_fd = -1;
static char host[64] = "unknown";
static long utc_offset; /* seconds; read once, because localtime_r() may allocate */

static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;
static char error_text[LINE_BYTES]; /* guarded by error_lock */

static __thread int thread_device __attribute__((tls_model("initial-exec"))) = -1;

static unsigned parse_subsys(const char *text)
{
	unsigned mask = 0, invert = 0;
	size_t len, i;

	if (!text)
		return DF_SUBSYS_INIT | DF_SUBSYS_BOOTSTRAP | DF_SUBSYS_ENV;
	if (*text == '^') {
		invert = 1;
		text++;
	}
	while (*text) {
		len = strcspn(text, ",");
		for (i = 0; i < DF_ARRAY_LEN(subsystems); i++)
			if (strlen(subsystems[i].name) == len &&
			    !df_strncasecmp(subsystems[i].name, text, len))
				mask |= subsystems[i].mask;
		text += len + (text[len] == ',');
	}
	return invert ? ~mask : mask;
}

/*
 * Whether path is a link that another user made in a folder that all may write to, as /tmp. Links
 * of the folder's owner are trusted.
 */
static int is_planted(const char *path)
{
	struct stat link, folder;
	char in[4096];

	snprintf(in, sizeof(in), "%s", path);
	strcpy(strrchr(in, '/') ? strrchr(in, '/') + 1 : in, ".");
	return lstat(path, &link) || stat(in, &folder) ||
	       (link.st_uid != geteuid() && link.st_uid != folder.st_uid &&
		folder.st_mode & S_IWOTH);
}

int df_log_open(const char *path, int flags)
{
	const int how = O_WRONLY | O_CREAT | O_CLOEXEC | flags;
	int fd = open(path, how | O_NOFOLLOW, 0644);

	/* /dev/stdout is a link, so links cannot all be refused. */
	if (fd < 0 && errno == ELOOP && is_planted(path))
		errno = EACCES;
	else if (fd < 0 && errno == ELOOP)
		fd = open(path, how, 0644);
	return fd;
}

static void open_file(const char *pattern)
{
	char path[4096];
	int fd;

	if (df_env_expand(path, sizeof(path), pattern, -1))
		return;
	fd = df_log_open(path, O_TRUNC);
	if (fd < 0)
		return;
	if (file_fd >= 0) {
		/*
		 * Other threads may be writing to the old descriptor, so replace the file behind
		 * its number.
		 */
		dup3(fd, file_fd, O_CLOEXEC);
		close(fd);
	} else {
		file_fd = fd;
	}
	__atomic_store_n(&nccl_fd, file_fd, __ATOMIC_RELAXED);
}

static void read_settings(void)
{
	const char *text;
	time_t now = time(NULL);
	struct tm tm;
	int i;

	text = df_env_text(DF_ENV_ROW_debug);
	i = text ? df_env_enum_index("warn|info|trace", text) : 0;
	__atomic_store_n(&own_level, i < 0 ? 0 : i, __ATOMIC_RELAXED);

	text = df_env_text(DF_ENV_ROW_nccl_debug);
	i = text ? df_env_enum_index("NONE|VERSION|WARN|INFO|ABORT|TRACE", text) : NCCL_NONE;
	__atomic_store_n(&nccl_level, i < 0 ? NCCL_NONE : i, __ATOMIC_RELAXED);
	__atomic_store_n(&nccl_mask, parse_subsys(df_env_text(DF_ENV_ROW_nccl_debug_subsys)),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&nccl_fd, STDOUT_FILENO, __ATOMIC_RELAXED);
	text = df_env_text(DF_ENV_ROW_nccl_debug_file);
	if (text && i > NCCL_VERSION)
		open_file(text);

	if (!strcmp(host, "unknown")) {
		char name[sizeof(host)] = "";

		if (!gethostname(name, sizeof(name) - 1) && *name) {
			name[strcspn(name, ".")] = '\0';
			df_text_clean(name, strlen(name));
			memcpy(host, name, sizeof(host));
		}
	}
	if (!utc_offset && localtime_r(&now, &tm))
		utc_offset = tm.tm_gmtoff;
}

static void settings(void)
{
	/*
	 * ACQUIRE pairs with the RELEASE below: without it a thread could print with settings that
	 * are half written.
	 */
	if (df_likely(__atomic_load_n(&settings_ready, __ATOMIC_ACQUIRE)))
		return;
	pthread_mutex_lock(&settings_lock);
	if (!__atomic_load_n(&settings_ready, __ATOMIC_RELAXED)) {
		read_settings();
		/*
		 * RELEASE pairs with the ACQUIRE above: the settings become visible before the
		 * flag.
		 */
		__atomic_store_n(&settings_ready, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&settings_lock);
}

static void write_all(int fd, const char *text, size_t len)
{
	ssize_t n;

	while (len) {
		n = write(fd, text, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return; /* an error of the log itself cannot be reported */
		text += n;
		len -= (size_t)n;
	}
}

static size_t clamp(int n, size_t len, size_t size)
{
	return n < 0 ? len : DF_MIN(len + (size_t)n, size - 1);
}

/* Appends "host:pid:tid [dev] " to the line. */
static size_t put_prefix(char *line, size_t len)
{
	return clamp(snprintf(line + len, LINE_BYTES - len, "%s:%d:%ld [%d] ", host, (int)getpid(),
			      (long)syscall(SYS_gettid), thread_device),
		     len, LINE_BYTES);
}

static size_t put_time(char *line)
{
	time_t now = time(NULL) + utc_offset;
	struct tm tm;

	gmtime_r(&now, &tm);
	return clamp(snprintf(line, LINE_BYTES, "\n[%04d-%02d-%02d %02d:%02d:%02d] ",
			      tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
			      tm.tm_sec),
		     0, LINE_BYTES);
}

/* Appends the message to the line and cleans it: it may have names of other machines or files. */
static size_t put_text(char *line, size_t len, const char *fmt, va_list ap)
{
	DF_DECIMAL_POINT;
	size_t end = clamp(vsnprintf(line + len, LINE_BYTES - len, fmt, ap), len, LINE_BYTES);

	df_text_clean(line + len, end - len);
	return end;
}

static void finish(int fd, char *line, size_t len)
{
	line[DF_MIN(len, (size_t)LINE_BYTES - 1)] = '\n';
	write_all(fd, line, DF_MIN(len, (size_t)LINE_BYTES - 1) + 1);
}

void df_log(enum df_log_level level, const char *fmt, ...)
{
	static const char *const words[] = {"WARN", "INFO", "TRACE"};
	char line[LINE_BYTES];
	int saved = errno;
	size_t len;
	va_list ap;

	settings();
	if ((int)level <= __atomic_load_n(&own_level, __ATOMIC_RELAXED)) {
		len = put_prefix(line, 0);
		len = clamp(snprintf(line + len, sizeof(line) - len, "DFSHIM %s ", words[level]),
			    len, sizeof(line));
		va_start(ap, fmt);
		errno = saved; /* for %m */
		len = put_text(line, len, fmt, ap);
		va_end(ap);
		finish(STDERR_FILENO, line, len);
	}
	errno = saved;
}

void df_nccl_warn(const char *file, int line_nr, const char *fmt, ...)
{
	char line[LINE_BYTES], text[LINE_BYTES];
	const char *base = strrchr(file, '/');
	int saved = errno;
	size_t len;
	va_list ap;

	va_start(ap, fmt);
	put_text(text, 0, fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&error_lock);
	memcpy(error_text, text, sizeof(error_text));
	pthread_mutex_unlock(&error_lock);

	settings();
	if (__atomic_load_n(&nccl_level, __ATOMIC_RELAXED) >= NCCL_WARN) {
		len = put_time(line);
		len = put_prefix(line, len);
		len = clamp(snprintf(line + len, sizeof(line) - len, "%s:%d NCCL WARN ",
				     base ? base + 1 : file, line_nr),
			    len, sizeof(line));
		len = clamp(snprintf(line + len, sizeof(line) - len, "%s", text), len,
			    sizeof(line));
		finish(__atomic_load_n(&nccl_fd, __ATOMIC_RELAXED), line, len);
	}
	errno = saved;
}

int df_nccl_info_enabled(unsigned subsys)
{
	settings();
	return __atomic_load_n(&nccl_level, __ATOMIC_RELAXED) >= NCCL_INFO &&
	       (__atomic_load_n(&nccl_mask, __ATOMIC_RELAXED) & subsys);
}

void df_nccl_info(unsigned subsys, const char *fmt, ...)
{
	char line[LINE_BYTES];
	int saved = errno;
	size_t len;
	va_list ap;

	if (df_nccl_info_enabled(subsys)) {
		len = put_prefix(line, 0);
		len = clamp(snprintf(line + len, sizeof(line) - len, "NCCL INFO "), len,
			    sizeof(line));
		va_start(ap, fmt);
		errno = saved;
		len = put_text(line, len, fmt, ap);
		va_end(ap);
		finish(__atomic_load_n(&nccl_fd, __ATOMIC_RELAXED), line, len);
	}
	errno = saved;
}

static pthread_key_t copy_key;
static pthread_once_t copy_once = PTHREAD_ONCE_INIT;

static void make_copy_key(void)
{
	pthread_key_create(&copy_key, free);
}

const char *df_nccl_last_error(void)
{
	char *copy;

	/*
	 * Each thread gets a copy, so that another thread's warning does not change the text while
	 * it is read. Not thread-local: a library that is loaded late has little static TLS space.
	 */
	pthread_once(&copy_once, make_copy_key);
	copy = pthread_getspecific(copy_key);
	if (!copy) {
		copy = malloc(LINE_BYTES);
		if (!copy)
			return "";
		pthread_setspecific(copy_key, copy);
	}
	pthread_mutex_lock(&error_lock);
	memcpy(copy, error_text, LINE_BYTES);
	pthread_mutex_unlock(&error_lock);
	return copy;
}

void df_log_reset(void)
{
	/*
	 * RELEASE pairs with the ACQUIRE in settings(): threads that see 0 read the settings again.
	 */
	__atomic_store_n(&settings_ready, 0, __ATOMIC_RELEASE);
}

void df_log_set_device(int device)
{
	thread_device = device;
}

void df_log_raw(char *text, size_t len)
{
	int saved = errno;

	for (char *at = text, *end = text + len, *next; at < end; at = next + 1) {
		next = memchr(at, '\n', (size_t)(end - at)) ?: end;
		df_text_clean(at, (size_t)(next - at));
	}
	write_all(STDERR_FILENO, text, len);
	errno = saved;
}
