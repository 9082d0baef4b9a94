/*
 * Parts of the doctor's work, each a process of its own: starts them, reads their reports, and
 * kills them when their time is over. Reports use a separate pipe, so that output of a driver or of
 * NCCL is not taken for them. One thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/time.h"
#include "trace/cli/doctor/doctor.h"

#define SAID_MAX (64 << 10)

/*
 * Sets LD_PRELOAD for the part: library, then nccl (each may be NULL), then the user's libraries
 * without ours.
 */
static void set_preload(const char *library, const char *nccl)
{
	const char *old = getenv("LD_PRELOAD");
	char *rest = strdup(old ? old : ""), *save = NULL, *p, text[8 * PATH_MAX];
	size_t n = (size_t)snprintf(text, sizeof(text), "%s %s", library ? library : "",
				    nccl ? nccl : "");

	for (p = rest ? strtok_r(rest, " :", &save) : NULL; p; p = strtok_r(NULL, " :", &save))
		if (!strstr(p, "libdfshim.so") && !strstr(p, "libdfhost.so") &&
		    n < sizeof(text) - PATH_MAX)
			n += (size_t)snprintf(text + n, sizeof(text) - n, " %s", p);
	free(rest);
	if (n > 1)
		setenv("LD_PRELOAD", text, 1);
	else
		unsetenv("LD_PRELOAD");
}

/* Keeps the settings on which a result depends, removes the job's own. */
static void set_environment(const struct df_doctor_part *p, const char *library)
{
	static const char *const job[] = {
		"RANK",
		"LOCAL_RANK",
		"WORLD_SIZE",
		"NCCL_COMM_ID",
		"NCCL_DEBUG",
		"NCCL_DEBUG_FILE",
		"DFSHIM_TRACE",
		"DFSHIM_STATS",
		"DFSHIM_ALGO",
		"DFSHIM_TUNER",
		"DFSHIM_MODE",
		"DFSHIM_DEBUG",
		"DFSHIM_STREAM_ORDER",
		"DFSHIM_RELEASE",
		"DFSHIM_TIMEOUT_ACTION",
		"DFSHIM_NCCL_ORDER",
	};

	for (size_t i = 0; i < DF_ARRAY_LEN(job); i++)
		unsetenv(job[i]);
	set_preload(p->ours ? library : NULL, p->on_lanes ? p->nccl : NULL);
	setenv(df_env_name(DF_ENV_ROW_backend), "cuda", 1);
	setenv(df_env_name(DF_ENV_ROW_executor), p->on_lanes ? "nccl" : "daemon", 1);
	setenv(df_env_name(DF_ENV_ROW_strict), "1", 1);
	setenv(df_env_name(DF_ENV_ROW_nccl_ras_enable), "0", 1);
	/* With this setting NCCL 2.30 and later lets ranks share a GPU; older NCCL never does. */
	setenv(df_env_name(DF_ENV_ROW_nccl_multi_rank_gpu), "1", 1);
}

static void start_child(const struct df_doctor_part *p, double seconds, const char *library,
			int pipes[2][2])
{
	char gpu[16], time[32];
	const char *argv[12] = {"dfshim", "doctor", "--part",	 p->name,
				"--gpu",  gpu,	    "--timeout", time};
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(gpu, sizeof(gpu), "%d", p->gpu);
	snprintf(time, sizeof(time), "%.3f", seconds);
	if (p->nccl) {
		argv[8] = "--nccl";
		argv[9] = p->nccl;
	}
	set_environment(p, library);
	fd = open("/dev/null", O_RDONLY);
	dup2(fd, STDIN_FILENO);
	dup2(pipes[1][1], STDOUT_FILENO);
	dup2(pipes[1][1], STDERR_FILENO);
	/* Last, because the pipes may have that number. */
	fd = fcntl(pipes[0][1], F_DUPFD, DF_DOCTOR_FD + 1);
	dup2(fd, DF_DOCTOR_FD);
	close(fd);
	execv("/proc/self/exe", (char *const *)argv);
	_exit(127);
}

static int start(struct df_doctor_part *p, double seconds, const char *library)
{
	int pipes[2][2], ret;

	p->pid = 0;
	p->fd = p->err = -1;
	if (pipe2(pipes[0], O_CLOEXEC))
		return -errno;
	if (pipe2(pipes[1], O_CLOEXEC)) {
		ret = -errno;
		goto err_pipe;
	}
	p->pid = fork();
	if (!p->pid)
		start_child(p, seconds, library, pipes);
	if (p->pid < 0) {
		ret = -errno;
		p->pid = 0;
		goto err_pipes;
	}
	close(pipes[0][1]);
	close(pipes[1][1]);
	p->fd = pipes[0][0];
	p->err = pipes[1][0];
	fcntl(p->fd, F_SETFL, O_NONBLOCK);
	fcntl(p->err, F_SETFL, O_NONBLOCK);
	return 0;

err_pipes:
	close(pipes[1][0]);
	close(pipes[1][1]);
err_pipe:
	close(pipes[0][0]);
	close(pipes[0][1]);
	return ret;
}

static void close_end(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void take_lines(struct df_doctor_part *p, void (*line)(struct df_doctor_part *, char *))
{
	char *end, copy[1024];
	ssize_t n;

	if (!p->said)
		p->said = calloc(1, SAID_MAX);
	while (p->said && p->fd >= 0) {
		n = read(p->fd, p->said + p->len, SAID_MAX - 1 - p->len);
		if (n <= 0) {
			if (!n || (errno != EAGAIN && errno != EINTR))
				close_end(&p->fd);
			return;
		}
		p->said[p->len + (size_t)n] = '\0';
		p->len += (size_t)n;
		while ((end = strchr(p->said, '\n'))) {
			*end = '\0';
			snprintf(copy, sizeof(copy), "%s", p->said);
			p->len -= (size_t)(end + 1 - p->said);
			memmove(p->said, end + 1, p->len + 1);
			line(p, copy);
		}
	}
}

/* Keeps the end of the part's output in p->words. */
static void take_words(struct df_doctor_part *p)
{
	char piece[4096];
	ssize_t n;
	size_t keep;

	while (p->err >= 0) {
		n = read(p->err, piece, sizeof(piece));
		if (n <= 0) {
			if (!n || (errno != EAGAIN && errno != EINTR))
				close_end(&p->err);
			return;
		}
		keep = DF_MIN((size_t)n, sizeof(p->words) - 1);
		if (p->nr_words + keep > sizeof(p->words) - 1) {
			size_t drop = p->nr_words + keep - (sizeof(p->words) - 1);

			memmove(p->words, p->words + drop, p->nr_words - drop);
			p->nr_words -= drop;
		}
		memcpy(p->words + p->nr_words, piece + n - keep, keep);
		p->nr_words += keep;
		p->words[p->nr_words] = '\0';
	}
}

int df_doctor_run(struct df_doctor_part *parts, int nr, double seconds, const char *library,
		  void (*line)(struct df_doctor_part *part, char *text))
{
	uint64_t until = df_now_ns() + (uint64_t)(seconds * 1e9);
	int i, left = 0, ret = 0;

	for (i = 0; i < nr && !ret; i++) {
		ret = start(&parts[i], seconds, library);
		left += !ret;
	}
	while (left) {
		struct pollfd fds[2 * 64];
		int late = df_now_ns() > until || ret;

		for (i = 0; i < nr && i < 64; i++) {
			fds[2 * i] = (struct pollfd){parts[i].fd, POLLIN, 0};
			fds[2 * i + 1] = (struct pollfd){parts[i].err, POLLIN, 0};
		}
		poll(fds, (nfds_t)(2 * i), 50);
		for (i = 0; i < nr; i++) {
			struct df_doctor_part *p = &parts[i];
			int gone;

			if (!p->pid)
				continue;
			gone = waitpid(p->pid, &p->status, WNOHANG) == p->pid;
			take_lines(p, line);
			take_words(p);
			if (!gone && late && !p->late) {
				/* A process inside the driver may take a while to die. */
				kill(p->pid, SIGKILL);
				p->late = 1;
			}
			if (!gone && late && df_now_ns() < until + 5 * DF_NS_PER_S)
				continue;
			if (gone || late) {
				close_end(&p->fd);
				close_end(&p->err);
				p->pid = 0;
				left--;
			}
		}
	}
	for (i = 0; i < nr; i++) {
		free(parts[i].said);
		parts[i].said = NULL;
	}
	return ret;
}
