/*
 * Description: several communicators are ended (runtime/comm/comm.h). All are marked before the
 * first one is ended, no lock is held while an executor takes long, and a communicator that a
 * thread ends is not destroyed meanwhile. After a hang the process cannot exit with 0 from the
 * moment on at which the program can notice the end.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "runtime/base/exit_status.h"
#include "runtime/base/list.h"
#include "runtime/base/log.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/devs.h"
#include "runtime/executor.h"
#include "runtime/watch/ending.h"
#include "tests/lib/test.h"

#define NR 3

static struct df_dev dev;
static struct df_comm *comms[NR];
static uint32_t condemned, inside, ended[NR + 1], forgotten, go;

static uint32_t get(const uint32_t *v)
{
	/* ACQUIRE pairs with add(). */
	return __atomic_load_n(v, __ATOMIC_ACQUIRE);
}

static void add(uint32_t *v)
{
	/* RELEASE pairs with get(). */
	__atomic_add_fetch(v, 1, __ATOMIC_RELEASE);
}

static void until(const uint32_t *v, uint32_t value)
{
	while (get(v) != value)
		usleep(1000);
}

/* Its number; NR: none of those that are ended. */
static int number_of(const struct df_comm *comm)
{
	int i = 0;

	while (i < NR && comms[i] != comm)
		i++;
	return i;
}

static void condemn(struct df_comm *comm)
{
	ck_assert_int_eq(df_comm_state(comm), DF_COMM_ABORTED);
	ck_assert_uint_eq(get(&inside), 0);
	add(&condemned);
}

/* Like an abort of NCCL that does not return. */
static void end(struct df_comm *comm)
{
	ck_assert_uint_eq(get(&condemned), NR);
	add(&inside);
	until(&go, 1);
	add(&ended[number_of(comm)]);
}

static void forget(struct df_comm *comm)
{
	int i = number_of(comm);

	/* The others may still be ended. */
	ck_assert_uint_eq(get(&ended[i]), i < NR);
	add(&forgotten);
}

static void wait(struct df_dev *d, int (*ready)(void *arg), void *arg)
{
	(void)d;
	ck_assert(ready(arg));
}

static const struct df_executor slow = {
	.condemn = condemn, .end = end, .forget = forget, .wait = wait};

static int is_any(struct df_comm *comm, void *arg)
{
	(void)comm;
	(void)arg;
	return 1;
}

static void *end_them(void *arg)
{
	*(int *)arg = df_comm_end_all(is_any, NULL, -ECANCELED, 0);
	return NULL;
}

static void *destroy(void *arg)
{
	df_comm_destroy(arg);
	return NULL;
}

static void start(const struct df_executor *executor)
{
	df_executor = executor;
	df_mutex_init(&dev.lock, DF_RANK_DEVICE, "device");
	df_mutex_init(&df_rt.lock, DF_RANK_COMM_TABLE, "communicators");
	df_list_init(&df_rt.comms);
	df_rt.devs = &dev;
	df_rt.nr_devs = 1;
}

START_TEST(no_lock)
{
	pthread_t ends, destroys[NR];
	struct df_comm *more;
	int i, nr = 0;

	start(&slow);
	for (i = 0; i < NR; i++)
		ck_assert_int_eq(df_comm_create(0, NULL, &comms[i]), 0);
	pthread_create(&ends, NULL, end_them, &nr);
	until(&inside, 1);
	/* Meanwhile another thread can create a communicator. */
	ck_assert_int_eq(df_comm_create(0, NULL, &more), 0);
	for (i = 0; i < NR; i++)
		pthread_create(&destroys[i], NULL, destroy, comms[i]);
	usleep(20000);
	ck_assert_uint_eq(get(&forgotten), 0);
	add(&go);
	for (i = 0; i < NR; i++)
		pthread_join(destroys[i], NULL);
	pthread_join(ends, NULL);
	ck_assert_int_eq(nr, NR);
	for (i = 0; i < NR; i++)
		ck_assert_uint_eq(ended[i], 1);
	ck_assert_uint_eq(forgotten, NR);
	df_comm_destroy(more);
}
END_TEST

static int status_at_end; /* that replaces 0 when the communicator is condemned */

static void condemn_now(struct df_comm *comm)
{
	(void)comm;
	status_at_end = df_exit_status_instead(0);
}

static void end_now(struct df_comm *comm)
{
	(void)comm;
}

static const struct df_executor quick = {
	.condemn = condemn_now, .end = end_now, .forget = end_now, .wait = wait};

enum how { FOUND, ELSEWHERE, STUCK };

/*
 * The program waits in calls that never meet, which this process or another one has found, or in
 * another hang. In the last case it may exit with 0 if it has seen the error.
 */
static void end_by(enum how how)
{
	struct df_ending *e = calloc(1, sizeof(*e) + sizeof(*e->names));
	struct df_comm *comm;

	setenv("DFSHIM_TIMEOUT_ACTION", "abort", 1);
	start(&quick);
	ck_assert_int_eq(df_comm_create(0, NULL, &comm), 0);
	comm->hash = 0xc0ffee;
	comm->state = DF_COMM_READY;
	comm->issued = 1;
	e->nr = 1;
	e->status = DF_EXIT_MISMATCH;
	e->at_once = how == ELSEWHERE;
	strcpy(e->line, "MISMATCH: of a test");
	e->names[0] = comm->hash;
	if (how == FOUND)
		df_ending_mismatch(comm->hash, "MISMATCH: of a test");
	else
		df_ending_obey(e);
	ck_assert_int_eq(df_comm_state(comm), DF_COMM_ABORTED);
	ck_assert_int_eq(status_at_end, DF_EXIT_MISMATCH);
	ck_assert_ptr_nonnull(strstr(df_nccl_last_error(), "MISMATCH: of a test"));
	df_comm_abort(comm);
	ck_assert_int_eq(df_exit_status_instead(0), how == STUCK ? 0 : DF_EXIT_MISMATCH);
	comm->issued = 0;
	df_comm_destroy(comm);
	free(e);
}

START_TEST(found)
{
	end_by(FOUND);
}
END_TEST

START_TEST(elsewhere)
{
	end_by(ELSEWHERE);
}
END_TEST

START_TEST(stuck)
{
	end_by(STUCK);
}
END_TEST

int main(void)
{
	return DF_TESTS("ends", {no_lock}, {found}, {elsewhere}, {stuck});
}
