/*
 * Description: after communicators have ended for a verdict, a process that exits with an error
 * leaves before the exit handlers that were registered before the verdict, with its own status and
 * with all files flushed, also while a thread reads from a file. A process that exits with 0, and a
 * child that is forked later, run all handlers, as does one that has given the communicator up.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "runtime/base/exit_status.h"
#include "tests/lib/test.h"

static int out[2];

enum verdict { NONE, ENDED, UNHEARD, HEARD };

static void earlier(void)
{
	ck_assert_int_eq(write(out[1], "E", 1), 1);
}

static void later(void)
{
	ck_assert_int_eq(write(out[1], "L", 1), 1);
}

static void *read_on(void *arg)
{
	return getc(arg) == EOF ? NULL : arg;
}

/* A thread waits in a read, and has the file locked. */
static void start_reader(void)
{
	pthread_t thread;
	int in[2];
	FILE *f;

	ck_assert_int_eq(pipe(in), 0);
	f = fdopen(in[0], "r");
	pthread_create(&thread, NULL, read_on, f);
	while (!ftrylockfile(f)) {
		funlockfile(f);
		usleep(1000);
	}
}

/* Returns the process's status; seen: its handlers, and "F" for what it left in a file's buffer. */
static int run(enum verdict verdict, int forks, int status, char seen[8])
{
	int ws;
	pid_t pid;

	ck_assert_int_eq(pipe(out), 0);
	pid = fork();
	if (!pid) {
		FILE *f = fdopen(out[1], "w");

		start_reader();
		atexit(earlier);
		if (verdict == ENDED)
			df_exit_status_failed(DF_EXIT_MISMATCH);
		if (verdict >= UNHEARD)
			df_exit_status_unheard(DF_EXIT_MISMATCH);
		if (verdict == HEARD)
			df_exit_status_heard();
		atexit(later);
		if (forks && (pid = fork())) {
			waitpid(pid, &ws, 0);
			_exit(WEXITSTATUS(ws));
		}
		fputs("F", f);
		exit(status);
	}
	close(out[1]);
	ck_assert_int_eq(waitpid(pid, &ws, 0), pid);
	ck_assert(WIFEXITED(ws));
	seen[read(out[0], seen, 7)] = '\0';
	close(out[0]);
	return WEXITSTATUS(ws);
}

START_TEST(leaves)
{
	char seen[8];

	ck_assert_int_eq(run(NONE, 0, 3, seen), 3);
	ck_assert_str_eq(seen, "LEF");
	ck_assert_int_eq(run(ENDED, 0, 3, seen), 3);
	ck_assert_str_eq(seen, "LF");
	ck_assert_int_eq(run(UNHEARD, 0, 3, seen), 3);
	ck_assert_str_eq(seen, "LF");
	ck_assert_int_eq(run(HEARD, 0, 3, seen), 3);
	ck_assert_str_eq(seen, "LEF");
	run(ENDED, 0, 0, seen);
	ck_assert_str_eq(seen, "LEF");
	ck_assert_int_eq(run(ENDED, 1, 3, seen), 3);
	ck_assert_str_eq(seen, "LEF");
}
END_TEST

int main(void)
{
	return DF_TESTS("leave", {leaves});
}
