/*
 * Description: CUDA_DEVICE_MAX_CONNECTIONS (runtime/base/connections.h). The application's value is
 * restored after the last call, and in a child that is forked during calls of other threads.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "runtime/base/connections.h"
#include "tests/lib/test.h"

#define VARIABLE "CUDA_DEVICE_MAX_CONNECTIONS"
#define FORKS	 200

static uint32_t inside, stop;

static int is(const char *value)
{
	const char *now = getenv(VARIABLE);

	return now && !strcmp(now, value);
}

/* Runs in a child. Returns 0 if the child sees the application's value, and its own calls work. */
static int child(void)
{
	if (!is("1"))
		return 1;
	df_connections_begin();
	if (!is("32"))
		return 2;
	df_connections_end();
	return is("1") ? 0 : 3;
}

static void fork_one(void)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(child());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

static void *call(void *arg)
{
	df_connections_begin();
	__atomic_store_n(&inside, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
		usleep(1000);
	df_connections_end();
	return arg;
}

static void *calls(void *arg)
{
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		df_connections_begin();
		df_connections_end();
	}
	return arg;
}

static void before(void)
{
	unsetenv("DFSHIM_MODE");
	setenv(VARIABLE, "1", 1);
	inside = stop = 0;
	df_connections_default();
	ck_assert(is("1"));
}

START_TEST(in_a_call)
{
	pthread_t t;

	pthread_create(&t, NULL, call, NULL);
	while (!__atomic_load_n(&inside, __ATOMIC_ACQUIRE))
		usleep(1000);
	fork_one();
	ck_assert(is("32"));
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	ck_assert(is("1"));
}
END_TEST

START_TEST(at_any_time)
{
	pthread_t t;
	int i;

	pthread_create(&t, NULL, calls, NULL);
	for (i = 0; i < FORKS / df_test_slow(); i++)
		fork_one();
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	ck_assert(is("1"));
}
END_TEST

/* A trace says how many the driver uses, not what the application has set. */
START_TEST(what_the_driver_uses)
{
	ck_assert_int_eq(df_connections(), 32);
	setenv("DFSHIM_MODE", "trace", 1);
	ck_assert_int_eq(df_connections(), 1);
	unsetenv(VARIABLE);
	ck_assert_int_eq(df_connections(), 0);
}
END_TEST

int main(void)
{
	return DF_TESTS("connections", {.before = before}, {in_a_call}, {at_any_time},
			{what_the_driver_uses});
}
