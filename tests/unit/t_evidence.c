/* Description: the result of a self-test is kept, and only the same machine and build read it. */
#define _GNU_SOURCE
#include "tests/lib/test.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "runtime/base/time.h"
#include "runtime/evidence/evidence_file.h"

static struct df_evidence_facts facts;
static char reason[256], path[PATH_MAX];

static void setup(void)
{
	static char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s/cache.XXXXXX", getenv("T") ? getenv("T") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	setenv("XDG_CACHE_HOME", folder, 1);
	memset(&facts, 0, sizeof(facts));
	strcpy(facts.common, "build 1\ndriver 13000 \nCUDA_MODULE_LOADING=\n");
	strcpy(facts.gpu[0], "uuid 0 sm 1 name one");
	strcpy(facts.gpu[1], "uuid 1 sm 1 name one");
	facts.nr_gpus = 2;
	ck_assert_int_eq(df_evidence_path(&facts, 0, DF_EVIDENCE_DAEMON, path, sizeof(path)), 0);
}

static enum df_evidence_word word(int gpu)
{
	return df_evidence_read(&facts, gpu, DF_EVIDENCE_DAEMON, reason, sizeof(reason));
}

START_TEST(t_kept)
{
	ck_assert_int_eq(word(0), DF_EVIDENCE_NONE);
	ck_assert_str_eq(reason, "");
	ck_assert_int_eq(df_evidence_write(&facts, 0, DF_EVIDENCE_DAEMON, DF_EVIDENCE_TAKE,
					   "all 7 checks\nand more"),
			 0);
	ck_assert_int_eq(word(0), DF_EVIDENCE_TAKE);
	ck_assert_str_eq(reason, "all 7 checks");
	ck_assert_int_eq(word(1), DF_EVIDENCE_NONE);
	ck_assert_int_eq(
		df_evidence_write(&facts, 0, DF_EVIDENCE_DAEMON, DF_EVIDENCE_LEAVE, "sums"), 0);
	ck_assert_int_eq(word(0), DF_EVIDENCE_LEAVE);
	ck_assert_str_eq(reason, "sums");
}
END_TEST

/*
 * Another build, driver or setting has another file. A file that contains another key is ignored.
 */
START_TEST(t_of_another)
{
	char other[PATH_MAX];

	ck_assert_int_eq(df_evidence_write(&facts, 0, DF_EVIDENCE_DAEMON, DF_EVIDENCE_TAKE, "fine"),
			 0);
	facts.common[6] = '2';
	ck_assert_int_eq(word(0), DF_EVIDENCE_NONE);
	ck_assert_int_eq(df_evidence_path(&facts, 0, DF_EVIDENCE_DAEMON, other, sizeof(other)), 0);
	ck_assert_str_ne(path, other);
	ck_assert_int_eq(rename(path, other), 0);
	ck_assert_int_eq(word(0), DF_EVIDENCE_NONE);
	/* The process's own result overwrites the file. */
	ck_assert_int_eq(df_evidence_write(&facts, 0, DF_EVIDENCE_DAEMON, DF_EVIDENCE_TAKE, "fine"),
			 0);
	ck_assert_int_eq(word(0), DF_EVIDENCE_TAKE);
}
END_TEST

/* A file that is cut off at any byte, or in which any byte is changed, is ignored. */
START_TEST(t_damaged)
{
	char whole[4096], damaged[4096];
	size_t len, i;
	FILE *f;

	ck_assert_int_eq(df_evidence_write(&facts, 0, DF_EVIDENCE_DAEMON, DF_EVIDENCE_TAKE, "fine"),
			 0);
	f = fopen(path, "r");
	len = fread(whole, 1, sizeof(whole), f);
	fclose(f);
	ck_assert_uint_gt(len, 40);
	for (i = 0; i < 2 * len; i++) {
		memcpy(damaged, whole, len);
		damaged[i % len] ^= 1;
		f = fopen(path, "w");
		fwrite(i < len ? whole : damaged, 1, i < len ? i : len, f);
		fclose(f);
		ck_assert_msg(word(0) == DF_EVIDENCE_NONE, "byte %zu of %zu", i, len);
	}
}
END_TEST

START_TEST(t_not_ours)
{
	char aside[PATH_MAX + 8];

	ck_assert_int_eq(df_evidence_write(&facts, 0, DF_EVIDENCE_DAEMON, DF_EVIDENCE_TAKE, "fine"),
			 0);
	ck_assert_int_eq(chmod(path, 0666), 0);
	ck_assert_int_eq(word(0), DF_EVIDENCE_NONE);
	ck_assert_int_eq(chmod(path, 0600), 0);
	ck_assert_int_eq(word(0), DF_EVIDENCE_TAKE);
	snprintf(aside, sizeof(aside), "%s.aside", path);
	ck_assert_int_eq(rename(path, aside), 0);
	ck_assert_int_eq(symlink(aside, path), 0);
	ck_assert_int_eq(word(0), DF_EVIDENCE_NONE);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(word(0), DF_EVIDENCE_NONE);
	/* Only root can change the owner of a file, and to an owner that its name space has. */
	if (!geteuid()) {
		ck_assert_int_eq(rename(aside, path), 0);
		if (chown(path, 12345, (gid_t)-1))
			ck_assert_int_eq(errno, EINVAL);
		else
			ck_assert_int_eq(word(0), DF_EVIDENCE_NONE);
	}
}
END_TEST

/* Other users may write to the folder, so the folder in TMPDIR is used instead. */
START_TEST(t_open_folder)
{
	char folder[PATH_MAX], other[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s/dfshim", getenv("XDG_CACHE_HOME"));
	setenv("TMPDIR", getenv("XDG_CACHE_HOME"), 1);
	ck_assert_int_eq(chmod(folder, 0777), 0);
	ck_assert_int_eq(df_evidence_path(&facts, 0, DF_EVIDENCE_DAEMON, other, sizeof(other)), 0);
	ck_assert_str_ne(path, other);
	ck_assert_int_eq(df_evidence_write(&facts, 0, DF_EVIDENCE_DAEMON, DF_EVIDENCE_TAKE, "fine"),
			 0);
	ck_assert_int_eq(word(0), DF_EVIDENCE_TAKE);
	/* If other users may write to that folder too, there is no file. */
	snprintf(folder, sizeof(folder), "%s/dfshim-%u", getenv("TMPDIR"), (unsigned)geteuid());
	ck_assert_int_eq(chmod(folder, 0777), 0);
	ck_assert_int_eq(df_evidence_path(&facts, 0, DF_EVIDENCE_DAEMON, other, sizeof(other)),
			 -EPERM);
	ck_assert_int_eq(word(0), DF_EVIDENCE_NONE);
	ck_assert_int_lt(df_evidence_write(&facts, 0, DF_EVIDENCE_DAEMON, DF_EVIDENCE_TAKE, "fine"),
			 0);
}
END_TEST

START_TEST(t_lock)
{
	int fd = df_evidence_lock(&facts, 0, df_now_ns()), other, status;
	pid_t pid;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(df_evidence_lock(&facts, 0, df_now_ns()), -ETIMEDOUT);
	other = df_evidence_lock(&facts, 1, df_now_ns());
	ck_assert_int_ge(other, 0);
	df_evidence_unlock(other);
	df_evidence_unlock(fd);
	/* The lock of a process ends with the process. */
	pid = fork();
	if (!pid)
		_exit(df_evidence_lock(&facts, 0, df_now_ns()) < 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	fd = df_evidence_lock(&facts, 0, df_now_ns());
	ck_assert_int_ge(fd, 0);
	df_evidence_unlock(fd);
}
END_TEST

/* A driver with nr_gpus devices. */
static int nr_gpus;
static int drv_init(unsigned int flags)
{
	return (int)flags;
}
static int drv_number(int *out)
{
	*out = 13000;
	return 0;
}
static int drv_count(int *out)
{
	*out = nr_gpus;
	return 0;
}
static int drv_get(int *out, int i)
{
	*out = i;
	return 0;
}
static int drv_name(char *to, int size, int device)
{
	snprintf(to, (size_t)size, "device %d", device);
	return 0;
}
static int drv_uuid(unsigned char *to, int device)
{
	memset(to, device, 16);
	return 0;
}
static int drv_attribute(int *out, int what, int device)
{
	*out = what + device;
	return 0;
}

static void *find(const char *name)
{
	static const struct {
		const char *name;
		void *fn;
	} all[] = {
		{"cuInit", (void *)drv_init},
		{"cuDriverGetVersion", (void *)drv_number},
		{"cuDeviceGetCount", (void *)drv_count},
		{"cuDeviceGet", (void *)drv_get},
		{"cuDeviceGetName", (void *)drv_name},
		{"cuDeviceGetUuid_v2", (void *)drv_uuid},
		{"cuDeviceGetAttribute", (void *)drv_attribute},
	};
	size_t i;

	for (i = 0; i < DF_ARRAY_LEN(all); i++)
		if (strcmp(all[i].name, name) == 0)
			return all[i].fn;
	return NULL;
}

/* Returns the file name for GPU 0 when the variable has this value; "" leaves it unset. */
static const char *file_with(const char *name, const char *value)
{
	static char files[4][PATH_MAX];
	static int next;
	char *at = files[next++ % 4];

	if (*value)
		setenv(name, value, 1);
	ck_assert_int_eq(
		df_evidence_ask(find, "/proc/self/exe", 22809, &facts, reason, sizeof(reason)), 0);
	unsetenv(name);
	ck_assert_int_eq(df_evidence_path(&facts, 0, DF_EVIDENCE_LANES, at, PATH_MAX), 0);
	return at;
}

/*
 * The file name depends on the settings that NCCL obeys, in full length, and on the number of
 * visible GPUs.
 */
START_TEST(t_settings)
{
	char one[101], other[101];
	const char *none;

	memset(one, 'x', 100);
	one[100] = '\0';
	memcpy(other, one, sizeof(one));
	other[99] = 'y';
	nr_gpus = 2;
	none = file_with("NCCL_ALGO", "");
	ck_assert_str_eq(none, file_with("NCCL_ALGO", ""));
	ck_assert_str_ne(none, file_with("NCCL_LAUNCH_ORDER_IMPLICIT", "1"));
	ck_assert_str_ne(none, file_with("NCCL_MIN_NRINGS", "32"));
	ck_assert_str_ne(file_with("NCCL_ALGO", one), file_with("NCCL_ALGO", other));
	none = file_with("NCCL_ALGO", "");
	nr_gpus = 1;
	ck_assert_str_ne(none, file_with("NCCL_ALGO", ""));
}
END_TEST

int main(void)
{
	return DF_TESTS("evidence", {.before = setup}, {t_kept}, {t_of_another}, {t_damaged},
			{t_not_ours}, {t_open_folder}, {t_lock}, {t_settings});
}
