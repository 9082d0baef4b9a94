/*
 * `dfshim run`: the ranks of a Python program as forks of one interpreter that has imported torch
 * (forks.py). First asks the interpreter, as `python OPTIONS -c pass`, whether it would fork,
 * because it may ignore our sitecustomize; then starts the program's own command line. The answers
 * arrive on a datagram socket. Ends all processes that it starts.
 */
#define _GNU_SOURCE
#include "trace/cli/run/run_fork.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/run/run.h"
#include "trace/cli/run/run_program.h"

#define VARIABLE "_DFSHIM_FORK"

static struct {
	int sock; /* -1 if closed */
	pid_t pid;
} forker = {.sock = -1};

static void end(void)
{
	if (forker.pid > 0) {
		kill(-forker.pid, SIGKILL);
		kill(forker.pid, SIGKILL);
		while (waitpid(forker.pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (forker.sock >= 0)
		close(forker.sock);
	forker.sock = -1;
	forker.pid = 0;
}

/* Starts args with our socket. Fails with -errno. */
static int start(char **args, char ask, const struct df_run_python *py, void (*first)(void *),
		 void *arg)
{
	int socks[2];
	char *text;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks))
		return -errno;
	if (asprintf(&text, "%d %c %c %s", socks[1], ask, py->kind, py->program) < 0)
		text = NULL;
	forker.pid = text ? fork() : -1;
	if (!forker.pid) {
		int copy = dup(socks[1]); /* without the close-on-exec flag */

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, 0);
		dup3(copy, socks[1], 0);
		close(copy);
		setenv(VARIABLE, text, 1);
		first(arg);
		execvp(args[0], args);
		_exit(127);
	}
	free(text);
	close(socks[1]);
	forker.sock = socks[0];
	if (forker.pid > 0) {
		setpgid(forker.pid, forker.pid);
		return 0;
	}
	end();
	return -ENOMEM;
}

/* Returns the signal that ends the job, or 0 if there is none. */
static int signal_of(int signals)
{
	struct signalfd_siginfo si;

	while (read(signals, &si, sizeof(si)) == (ssize_t)sizeof(si))
		if (si.ssi_signo != SIGCHLD)
			return (int)si.ssi_signo;
	return 0;
}

/* Waits for the answer. Returns as df_run_fork_open() does. */
static int wait_answer(int signals, uint64_t until_ns)
{
	struct pollfd fds[2] = {{forker.sock, POLLIN, 0}, {signals, POLLIN, 0}};
	char answer[1024];
	uint64_t now;
	ssize_t n;
	int sig;

	for (;;) {
		now = df_now_ns();
		if (until_ns && now >= until_ns) {
			fprintf(stderr, "dfshim run: not finished after %g s\n", df_run.limit);
			return -124;
		}
		if (poll(fds, 2,
			 until_ns ? (int)DF_MIN((until_ns - now) / DF_NS_PER_MS + 1, INT_MAX)
				  : -1) < 0)
			continue;
		sig = fds[1].revents ? signal_of(signals) : 0;
		if (sig) {
			fprintf(stderr, "dfshim run: signal %d (%s) before the program began\n",
				sig, strsignal(sig));
			return -(128 + sig);
		}
		if (!fds[0].revents)
			continue;
		n = recv(forker.sock, answer, sizeof(answer) - 1, 0);
		answer[DF_MAX(n, 0)] = '\0';
		if (!strncmp(answer, "yes", 3))
			return 0;
		df_info("separate interpreters: %s",
			n > 3 ? answer + 3 : "the interpreter does not answer");
		return 1;
	}
}

int df_run_fork_open(int signals, uint64_t until_ns, void (*first)(void *), void *arg)
{
	struct df_run_python py = {0};
	char **probe;
	int ret;

	if (!df_run_is_python(df_run.app, &py))
		return 1;
	probe = calloc((size_t)py.nr_options + 3, sizeof(*probe));
	if (!probe)
		return 1;
	memcpy(probe, df_run.app, (size_t)py.nr_options * sizeof(*probe));
	probe[py.nr_options] = (char *)"-c";
	probe[py.nr_options + 1] = (char *)"pass";
	ret = start(probe, '?', &py, first, arg) ? 1 : wait_answer(signals, until_ns);
	free(probe);
	end();
	if (ret)
		return ret;
	ret = start(df_run.app, '!', &py, first, arg) ? 1 : wait_answer(signals, until_ns);
	if (ret) {
		end();
		return ret;
	}
	/*
	 * The ranks' parent is a process that exits at once; this process then becomes their
	 * parent.
	 */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	df_info("the ranks are forked from one interpreter");
	return 0;
}

int df_run_fork_is_open(void)
{
	return forker.sock >= 0;
}

pid_t df_run_fork_rank(int rank, const int out[2])
{
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	char text[128];
	int n = snprintf(text, sizeof(text), "run%cRANK=%d%cLOCAL_RANK=%d", 0, rank, 0, rank);
	struct iovec data = {text, (size_t)n};
	struct msghdr msg = {.msg_iov = &data, .msg_iovlen = 1};
	struct cmsghdr *c;
	ssize_t got;

	if (out) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(2 * sizeof(int));
		memcpy(CMSG_DATA(c), out, 2 * sizeof(int));
	}
	if (sendmsg(forker.sock, &msg, MSG_NOSIGNAL) < 0)
		return errno == EPIPE ? -ECHILD : -errno;
	do
		got = recv(forker.sock, text, sizeof(text) - 1, 0);
	while (got < 0 && errno == EINTR);
	if (got <= 0)
		return -ECHILD;
	text[got] = '\0';
	return (pid_t)(strtol(text, NULL, 10) ?: -EPROTO); /* a pid, or the fork's -errno */
}

void df_run_fork_close(void)
{
	if (!df_run_fork_is_open())
		return;
	end();
	prctl(PR_SET_CHILD_SUBREAPER, 0);
}
