/* Description: lines in NCCL's name have its form and output, our own go to stderr; errno stays. */
#include "tests/lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/log.h"

static int saved[3], file;

/* Redirects descriptor `fd` to a file. */
static void capture(int fd)
{
	char path[] = "/tmp/t_log_XXXXXX";

	fflush(NULL);
	file = mkstemp(path);
	ck_assert_int_ge(file, 0);
	unlink(path);
	saved[fd] = dup(fd);
	dup2(file, fd);
}

static const char *captured(int fd)
{
	static char text[65536];
	ssize_t n;

	dup2(saved[fd], fd);
	close(saved[fd]);
	n = pread(file, text, sizeof(text) - 1, 0);
	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	close(file);
	return text;
}

static int matches(const char *text, const char *pattern)
{
	regex_t re;
	int ret;

	ck_assert_int_eq(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
	ret = regexec(&re, text, 0, NULL, 0);
	regfree(&re);
	return !ret;
}

static void settings(const char *own, const char *nccl, const char *subsys, const char *path)
{
	const char *values[] = {own, nccl, subsys, path};
	const enum df_env_row names[] = {DF_ENV_ROW_debug, DF_ENV_ROW_nccl_debug,
					 DF_ENV_ROW_nccl_debug_subsys, DF_ENV_ROW_nccl_debug_file};
	int i;

	for (i = 0; i < 4; i++) {
		if (values[i])
			setenv(df_env_name(names[i]), values[i], 1);
		else
			unsetenv(df_env_name(names[i]));
	}
	df_log_reset();
}

START_TEST(t_own_levels)
{
	const char *levels[] = {NULL, "warn", "info", "trace"};
	const int nr_lines[] = {1, 1, 2, 3};
	const char *text, *p;
	int n = 0;

	settings(levels[_i], NULL, NULL, NULL);
	df_log_set_device(5);
	capture(STDERR_FILENO);
	df_warn("one %d", 1);
	df_info("two %s", "2");
	df_log(DF_LOG_TRACE, "three");
	text = captured(STDERR_FILENO);
	for (p = text; (p = strchr(p, '\n')); p++)
		n++;
	ck_assert_msg(n == nr_lines[_i], "%s", text);
	ck_assert_msg(matches(text, "^[^:]+:[0-9]+:[0-9]+ \\[5\\] DFSHIM WARN one 1\n"), "%s",
		      text);
	if (n > 1)
		ck_assert_msg(strstr(text, " [5] DFSHIM INFO two 2\n") != NULL, "%s", text);
	if (n > 2)
		ck_assert_msg(strstr(text, " [5] DFSHIM TRACE three\n") != NULL, "%s", text);
}
END_TEST

START_TEST(t_nccl_lines)
{
	const char *text;

	settings(NULL, "INFO", "COLL", NULL);
	df_log_set_device(2);
	capture(STDOUT_FILENO);
	df_nccl_info(DF_SUBSYS_COLL, "AllReduce: opCount %x", 7);
	df_nccl_info(DF_SUBSYS_INIT, "not selected");
	df_nccl_warn("a/b/enqueue.cc", 12, "bad %s", "thing");
	text = captured(STDOUT_FILENO);
	ck_assert_msg(matches(text,
			      "^[^:]+:[0-9]+:[0-9]+ \\[2\\] NCCL INFO AllReduce: opCount 7\n\n"
			      "\\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\] "
			      "[^:]+:[0-9]+:[0-9]+ \\[2\\] enqueue.cc:12 NCCL WARN bad thing\n$"),
		      "%s", text);
	ck_assert_str_eq(df_nccl_last_error(), "bad thing");
}
END_TEST

START_TEST(t_nccl_levels)
{
	static const struct {
		const char *debug, *subsys;
		unsigned mask;
		int enabled, warns;
	} cases[] = {
		{NULL, NULL, DF_SUBSYS_INIT, 0, 0},
		{"VERSION", NULL, DF_SUBSYS_INIT, 0, 0},
		{"WARN", NULL, DF_SUBSYS_INIT, 0, 1},
		{"info", NULL, DF_SUBSYS_INIT, 1, 1},
		{"INFO", NULL, DF_SUBSYS_ENV, 1, 1},
		{"INFO", NULL, DF_SUBSYS_BOOTSTRAP, 1, 1},
		{"INFO", NULL, DF_SUBSYS_COLL, 0, 1},
		{"INFO", "ALL", DF_SUBSYS_COLL, 1, 1},
		{"INFO", "coll,NET", DF_SUBSYS_NET, 1, 1},
		{"INFO", "coll,NET", DF_SUBSYS_INIT, 0, 1},
		{"INFO", "^INIT,COLL", DF_SUBSYS_INIT, 0, 1},
		{"INFO", "^INIT,COLL", DF_SUBSYS_NET, 1, 1},
		{"TRACE", "ALL", DF_SUBSYS_P2P, 1, 1},
		{"nonsense", "ALL", DF_SUBSYS_P2P, 0, 0},
	};
	const char *text;

	if (_i >= (int)(sizeof(cases) / sizeof(cases[0])))
		return;
	settings(NULL, cases[_i].debug, cases[_i].subsys, NULL);
	ck_assert_msg(!df_nccl_info_enabled(cases[_i].mask) == !cases[_i].enabled, "case %d", _i);
	capture(STDOUT_FILENO);
	df_nccl_warn("x.cc", 1, "w%d", _i);
	text = captured(STDOUT_FILENO);
	ck_assert_msg(!strstr(text, "NCCL WARN") == !cases[_i].warns, "case %d: %s", _i, text);
	/* The last error does not depend on what is printed. */
	ck_assert_int_eq(atoi(df_nccl_last_error() + 1), _i);
}
END_TEST

START_TEST(t_file)
{
	char dir[] = "/tmp/t_log_XXXXXX", pattern[64], path[96], text[4096] = "";
	int fd;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(pattern, sizeof(pattern), "%s/log.%%p", dir);
	snprintf(path, sizeof(path), "%s/log.%d", dir, (int)getpid());
	settings(NULL, "INFO", "ALL", pattern);
	df_nccl_info(DF_SUBSYS_NET, "into the file");
	fd = open(path, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_gt(read(fd, text, sizeof(text) - 1), 0);
	ck_assert_ptr_nonnull(strstr(text, "NCCL INFO into the file\n"));
	close(fd);
	unlink(path);
	rmdir(dir);
}
END_TEST

START_TEST(t_errno_and_length)
{
	char *big = malloc(5000);
	const char *text;

	memset(big, 'x', 4999);
	big[4999] = '\0';
	settings("trace", "TRACE", "ALL", NULL);
	capture(STDERR_FILENO);
	errno = ENOTTY;
	df_warn("%s", big);
	ck_assert_int_eq(errno, ENOTTY);
	df_warn("%m");
	ck_assert_int_eq(errno, ENOTTY);
	text = captured(STDERR_FILENO);
	ck_assert_int_eq(strcspn(text, "\n"), 1023);
	ck_assert_ptr_nonnull(strstr(text, strerror(ENOTTY)));
	capture(STDOUT_FILENO);
	errno = EXDEV;
	df_nccl_warn("f.cc", 1, "%s", big);
	df_nccl_info(DF_SUBSYS_NET, "%s", big);
	ck_assert_int_eq(errno, EXDEV);
	captured(STDOUT_FILENO);
	ck_assert_int_eq(strlen(df_nccl_last_error()), 1023);
	free(big);
}
END_TEST

/* The name of another machine, in every function that writes to the log. */
START_TEST(t_names)
{
	static const char *const clean = "rank 1 (no?[2Jde?fake?, pid 7) has died";
	char name[] = "no\x1b[2Jde\nfake\x7f", raw[128];
	const char *text;
	int len = snprintf(raw, sizeof(raw), "rank 1 (%s, pid 7)\nsecond\xc2\x9b line\n", name);

	settings("trace", "TRACE", "ALL", NULL);
	capture(STDERR_FILENO);
	df_warn("rank 1 (%s, pid 7) has died", name);
	/* A text of several lines keeps its lines. */
	raw[strcspn(raw, "\n")] = ' ';
	df_log_raw(raw, (size_t)len);
	text = captured(STDERR_FILENO);
	ck_assert_msg(strstr(text, clean) != NULL, "%s", text);
	ck_assert_msg(strstr(text, "rank 1 (no?[2Jde fake?, pid 7)\nsecond?? line\n") != NULL, "%s",
		      text);
	capture(STDOUT_FILENO);
	df_nccl_info(DF_SUBSYS_NET, "rank 1 (%s, pid 7) has died", name);
	df_nccl_warn("x.cc", 1, "rank 1 (%s, pid 7) has died", name);
	text = captured(STDOUT_FILENO);
	ck_assert_ptr_nonnull(strstr(text, clean));
	ck_assert_ptr_nonnull(strstr(strstr(text, clean) + 1, clean));
	ck_assert_str_eq(df_nccl_last_error(), clean);
}
END_TEST

START_TEST(t_once)
{
	const char *text;
	int i;

	settings(NULL, NULL, NULL, NULL);
	capture(STDERR_FILENO);
	for (i = 0; i < 10; i++)
		df_warn_once("only once");
	text = captured(STDERR_FILENO);
	text = strstr(text, "only once");
	ck_assert_ptr_nonnull(text);
	ck_assert_ptr_null(strstr(text + 1, "only once"));
}
END_TEST

#define NR_THREADS 8
#define NR_LINES   200

static void *writer(void *arg)
{
	int i;

	for (i = 0; i < NR_LINES; i++) {
		df_warn("thread %d line %d end", (int)(long)arg, i);
		df_nccl_warn("x.cc", i, "thread %d", (int)(long)arg);
		ck_assert_int_eq(strncmp(df_nccl_last_error(), "thread ", 7), 0);
		if (i % 50 == 0)
			df_log_reset();
	}
	return NULL;
}

/* Lines of several threads are not mixed. */
START_TEST(t_threads)
{
	pthread_t threads[NR_THREADS];
	static char buf[1 << 20];
	int seen = 0, fds, t, l;
	char path[] = "/tmp/t_log_XXXXXX", *line, *save = NULL;
	ssize_t n;

	settings(NULL, NULL, NULL, NULL);
	fds = mkstemp(path);
	fcntl(fds, F_SETFL, O_APPEND);
	saved[2] = dup(2);
	dup2(fds, 2);
	for (t = 0; t < NR_THREADS; t++)
		pthread_create(&threads[t], NULL, writer, (void *)(long)t);
	for (t = 0; t < NR_THREADS; t++)
		pthread_join(threads[t], NULL);
	dup2(saved[2], 2);
	n = pread(fds, buf, sizeof(buf) - 1, 0);
	ck_assert_int_gt(n, 0);
	buf[n] = '\0';
	for (line = strtok_r(buf, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char end[8] = "";

		line = strstr(line, "thread ");
		ck_assert_ptr_nonnull(line);
		ck_assert_int_eq(sscanf(line, "thread %d line %d %7s", &t, &l, end), 3);
		ck_assert_str_eq(end, "end");
		seen++;
	}
	ck_assert_int_eq(seen, NR_THREADS * NR_LINES);
	unlink(path);
}
END_TEST

int main(void)
{
	return DF_TESTS("log", {t_own_levels, 4}, {t_nccl_lines}, {t_nccl_levels, 14}, {t_file},
			{t_errno_and_length}, {t_names}, {t_once}, {t_threads});
}
