/* Makes folders for jobs, and runs jobs (jobdir.h). One thread. */
#define _GNU_SOURCE
#include "trace/cli/run/jobdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "trace/cli/common/cli.h"

#define ROOT "/tmp"

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP};

static int open_dir(const char *path)
{
	return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static void remove_tree(const char *dir)
{
	pid_t pid = fork();

	if (!pid) {
		execlp("rm", "rm", "-rf", "--", dir, (char *)NULL);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

/* Removes folders without an owner: those whose lock is free. */
static void sweep(const char *prefix)
{
	DIR *root = opendir(ROOT);
	struct dirent *e;

	while (root && (e = readdir(root))) {
		char path[PATH_MAX];
		struct stat st;
		int fd;

		if (strncmp(e->d_name, prefix, strlen(prefix)))
			continue;
		snprintf(path, sizeof(path), ROOT "/%s", e->d_name);
		fd = open_dir(path);
		if (fd < 0)
			continue;
		if (!fstat(fd, &st) && st.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB))
			remove_tree(path);
		close(fd);
	}
	if (root)
		closedir(root);
}

/* Returns the signals that are not ignored, and SIGCHLD. */
static sigset_t to_hold(void)
{
	struct sigaction sa;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (unsigned i = 0; i < DF_ARRAY_LEN(passed_on); i++)
		if (!sigaction(passed_on[i], NULL, &sa) && sa.sa_handler != SIG_IGN)
			sigaddset(&set, passed_on[i]);
	return set;
}

/*
 * Makes a new folder and locks it. Fails with -EAGAIN if another process swept it before it was
 * locked.
 */
static int make(struct df_jobdir *d, const char *prefix)
{
	struct stat mine, there;

	snprintf(d->path, sizeof(d->path), ROOT "/%sXXXXXX", prefix);
	if (!mkdtemp(d->path))
		return -errno;
	d->lock = open_dir(d->path);
	if (d->lock < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	if (!flock(d->lock, LOCK_EX) && !fstat(d->lock, &mine) && !stat(d->path, &there) &&
	    mine.st_ino == there.st_ino)
		return 0;
	close(d->lock);
	return -EAGAIN;
}

int df_jobdir_create(struct df_jobdir *d, const char *sub)
{
	char prefix[48];
	sigset_t held = to_hold();
	int rc;

	snprintf(prefix, sizeof(prefix), "dfshim-%s-", sub);
	sweep(prefix);
	sigprocmask(SIG_BLOCK, &held, &d->old);
	while ((rc = make(d, prefix)) == -EAGAIN)
		;
	if (rc) {
		sigprocmask(SIG_SETMASK, &d->old, NULL);
		df_cli_input_error(sub, d->path, "%s", strerror(-rc));
	}
	return rc;
}

void df_jobdir_remove(struct df_jobdir *d)
{
	remove_tree(d->path);
	close(d->lock);
	sigprocmask(SIG_SETMASK, &d->old, NULL);
}

int df_jobdir_run(struct df_jobdir *d, char *const *args, void (*prepare)(void *arg), void *arg)
{
	int status = 0, sig, interrupted = 0;
	sigset_t held = to_hold();
	pid_t pid, ended;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		sigprocmask(SIG_SETMASK, &d->old, NULL);
		/* The job's standard output is not the subcommand's result. */
		dup2(STDERR_FILENO, STDOUT_FILENO);
		if (prepare)
			prepare(arg);
		execv(args[0], args);
		_exit(127);
	}
	while (!(ended = waitpid(pid, &status, WNOHANG))) {
		sig = sigwaitinfo(&held, NULL);
		if (sig <= 0 || sig == SIGCHLD)
			continue;
		kill(pid, sig);
		interrupted = sig;
	}
	/*
	 * The signal is blocked until df_jobdir_remove() has removed the folder, then it ends us.
	 */
	if (interrupted)
		raise(interrupted);
	return ended < 0 ? -errno : status;
}
