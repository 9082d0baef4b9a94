/*
 * Shared by the clients: plain NCCL and CUDA runtime programs that contain nothing of dfshim. The
 * same binary runs on real NCCL and under the preload.
 *
 *   errors     CUDA() and NCCL() report the job's first failure, and return -1 from the function
 *   waiting    client_wait() polls the stream and the communicators' asynchronous errors, so that
 *              the wait also ends if the library ends a communicator
 *   processes  client_job.h
 *   time-out   a watchdog thread ends the process if nothing was reported for too long
 *
 * Exit status: 0 right, 1 wrong results, 2 wrong usage, 3 NCCL or CUDA error, 4 no progress.
 */
#ifndef CLIENT_H
#define CLIENT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <cuda_runtime_api.h>
#include <dirent.h>
#include <errno.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	EXIT_RIGHT = 0,
	EXIT_WRONG = 1,
	EXIT_USAGE = 2,
	EXIT_NCCL = 3,
	EXIT_HANG = 4,
	EXIT_SKIP = 77
};

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* ---- time and random numbers ----------------------------------------------------------------- */

static inline double client_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

/* A comparison for qsort(). */
static inline int client_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static inline uint64_t client_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static inline uint64_t client_seed(uint64_t seed, uint64_t a, uint64_t b)
{
	uint64_t s = seed * 0x2545f4914f6cdd1dull + a * 0x9e3779b97f4a7c15ull +
		     b * 0xd1342543de82ef95ull;

	return client_random(&s);
}

static inline void client_shuffle(int *a, int n, uint64_t *state)
{
	int i, j, t;

	for (i = n - 1; i > 0; i--) {
		j = (int)(client_random(state) % (uint64_t)(i + 1));
		t = a[i];
		a[i] = a[j];
		a[j] = t;
	}
}

/* Returns the number of entries of a folder, such as /proc/self/fd. */
static inline int client_count(const char *folder)
{
	DIR *d = opendir(folder);
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/*
 * Returns the number of this process's descriptors, without those of its memory segments for slots.
 * These are never freed, and their number depends on the order in which connectors are created and
 * freed.
 */
static inline int client_descriptors(void)
{
	static const char segment[] = "/memfd:dfshim";
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	char to[64];
	int n = 0;

	while (d && (e = readdir(d))) {
		ssize_t len = readlinkat(dirfd(d), e->d_name, to, sizeof(to));

		n += len < (ssize_t)sizeof(segment) - 1 ||
		     memcmp(to, segment, sizeof(segment) - 1) != 0;
	}
	if (d)
		closedir(d);
	return n;
}

/* ---- the first failure of the job ------------------------------------------------------------ */

static int client_status; /* exit status so far; the first failure determines it */
static char client_text[512];
static pthread_mutex_t client_text_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t client_progress; /* counts events that show that the job moves */

static inline int client_failed(void)
{
	return __atomic_load_n(&client_status, __ATOMIC_ACQUIRE) != 0;
}

static inline void client_tick(void)
{
	__atomic_fetch_add(&client_progress, 1, __ATOMIC_RELAXED);
}

__attribute__((format(printf, 2, 3))) static inline void client_fail(int status, const char *fmt,
								     ...)
{
	va_list ap;

	pthread_mutex_lock(&client_text_lock);
	if (!client_status) {
		va_start(ap, fmt);
		vsnprintf(client_text, sizeof(client_text), fmt, ap);
		va_end(ap);
		__atomic_store_n(&client_status, status, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&client_text_lock);
}

#define CUDA(call)                                                                                 \
	do {                                                                                       \
		cudaError_t e_ = (call);                                                           \
		if (e_ != cudaSuccess) {                                                           \
			client_fail(EXIT_NCCL, "%s:%d %s: CUDA error %d: %s", __FILE__, __LINE__,  \
				    #call, (int)e_, cudaGetErrorString(e_));                       \
			return -1;                                                                 \
		}                                                                                  \
	} while (0)

#define NCCL(call)                                                                                 \
	do {                                                                                       \
		ncclResult_t r_ = (call);                                                          \
		if (r_ != ncclSuccess) {                                                           \
			client_fail(EXIT_NCCL, "%s:%d %s: NCCL error %d: %s (%s)", __FILE__,       \
				    __LINE__, #call, (int)r_, ncclGetErrorString(r_),              \
				    ncclGetLastError(NULL));                                       \
			return -1;                                                                 \
		}                                                                                  \
	} while (0)

/*
 * Copies to the device and waits until the data have arrived. (cudaMemcpy() from pageable memory
 * may return earlier, and a non-blocking stream is not ordered after the legacy stream.)
 * client_clear() does the same for a fill.
 */
static inline cudaError_t client_upload(void *to, const void *from, size_t bytes)
{
	cudaError_t err = cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);

	return err == cudaSuccess ? cudaStreamSynchronize(NULL) : err;
}

static inline cudaError_t client_clear(void *to, int value, size_t bytes)
{
	cudaError_t err = cudaMemset(to, value, bytes);

	return err == cudaSuccess ? cudaStreamSynchronize(NULL) : err;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Returns 0, or -1 if a communicator has failed, which it reports. */
static inline int client_async_error(ncclComm_t *comms, int nr_comms)
{
	ncclResult_t state;
	int i;

	for (i = 0; i < nr_comms; i++) {
		NCCL(ncclCommGetAsyncError(comms[i], &state));
		if (state != ncclSuccess && state != ncclInProgress) {
			client_fail(EXIT_NCCL, "communicator %d: asynchronous NCCL error %d: %s", i,
				    (int)state, ncclGetErrorString(state));
			return -1;
		}
	}
	return 0;
}

/*
 * Waits for the stream. `comms` are the communicators whose work is on it. Returns 0, or -1 after a
 * failure.
 */
static inline int client_wait(cudaStream_t stream, ncclComm_t *comms, int nr_comms)
{
	struct timespec pause = {0, 20000};
	double next = client_now() + 0.01;
	unsigned spins = 0;
	cudaError_t err;

	for (;;) {
		err = cudaStreamQuery(stream);
		if (err == cudaSuccess) {
			/* A stream also becomes idle when its communicator is aborted. */
			client_tick();
			return client_async_error(comms, nr_comms);
		}
		if (err != cudaErrorNotReady)
			CUDA(err);
		if (client_failed())
			return -1;
		if (++spins < 64) {
			sched_yield();
			continue;
		}
		nanosleep(&pause, NULL);
		if (client_now() >= next) {
			if (client_async_error(comms, nr_comms))
				return -1;
			next = client_now() + 0.01;
		}
	}
}

/*
 * Waits until a communicator, which may be non-blocking, has left ncclInProgress. Returns 0 or -1.
 */
static inline int client_settle(ncclComm_t comm)
{
	struct timespec pause = {0, 100000};
	ncclResult_t state;

	for (;;) {
		NCCL(ncclCommGetAsyncError(comm, &state));
		if (state == ncclSuccess)
			return 0;
		if (state != ncclInProgress)
			NCCL(state);
		if (client_failed())
			return -1;
		nanosleep(&pause, NULL);
	}
}

/* A barrier that also opens when the job has failed, so that no thread waits forever. */
struct client_barrier {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int nr, arrived;
	unsigned round;
};

static inline void client_barrier_init(struct client_barrier *b, int nr)
{
	memset(b, 0, sizeof(*b));
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->cond, NULL);
	b->nr = nr;
}

static inline int client_barrier_wait(struct client_barrier *b)
{
	struct timespec ts;
	unsigned round;

	pthread_mutex_lock(&b->lock);
	round = b->round;
	if (++b->arrived == b->nr) {
		b->arrived = 0;
		b->round++;
		pthread_cond_broadcast(&b->cond);
	}
	while (round == b->round && !client_failed()) {
		clock_gettime(CLOCK_REALTIME, &ts);
		ts.tv_nsec += 50000000;
		if (ts.tv_nsec >= 1000000000) {
			ts.tv_sec++;
			ts.tv_nsec -= 1000000000;
		}
		pthread_cond_timedwait(&b->cond, &b->lock, &ts);
	}
	pthread_mutex_unlock(&b->lock);
	return client_failed() ? -1 : 0;
}

/* ---- time-out -------------------------------------------------------------------------------- */

static void (*client_at_hang)(void); /* prints where the program is, before the watchdog ends it */

static inline void *client_watch(void *arg)
{
	double limit = *(double *)arg, since = client_now();
	struct timespec pause = {0, 50000000};
	uint64_t seen = 0, now;

	for (;;) {
		nanosleep(&pause, NULL);
		now = __atomic_load_n(&client_progress, __ATOMIC_RELAXED);
		if (now != seen) {
			seen = now;
			since = client_now();
		} else if (client_now() - since > limit) {
			if (client_at_hang)
				client_at_hang();
			dprintf(STDERR_FILENO, "%s: no progress for %g s: HANG\n",
				program_invocation_short_name, limit);
			_exit(EXIT_HANG);
		}
	}
	return NULL;
}

/* Starts the watchdog, unless `seconds` is 0. */
static inline void client_timeout(double seconds)
{
	static double limit;
	pthread_t thread;

	limit = seconds;
	if (seconds > 0 && !pthread_create(&thread, NULL, client_watch, &limit))
		pthread_detach(thread);
}

#include "client_job.h"

/* ---- a simple client ------------------------------------------------------------------------- */

#define CLIENT_IDS 8

static struct client_job client_job;
static ncclUniqueId client_ids[CLIENT_IDS];	   /* made by rank 0, the same in all processes */
static struct client_barrier client_ranks_barrier; /* for the ranks of this process */
static uint64_t client_seed_value = 1;

struct client_rank {
	int index; /* number within this process */
	int rank, nr_ranks, device;
	int (*run)(struct client_rank *me);
	ncclComm_t comms[CLIENT_IDS]; /* run() failed: those that are not NULL are aborted */
	pthread_t thread;
};

/* A check of the client itself. On failure it reports, and returns -1 from the function. */
#define EXPECT(cond, ...)                                                                          \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			char text_[256];                                                           \
			snprintf(text_, sizeof(text_), __VA_ARGS__);                               \
			client_fail(EXIT_WRONG, "%s:%d %s: %s", __FILE__, __LINE__, #cond, text_); \
			return -1;                                                                 \
		}                                                                                  \
	} while (0)

static inline void *client_rank_thread(void *arg)
{
	struct client_rank *me = arg;
	int i;

	if (me->run(me))
		for (i = 0; i < CLIENT_IDS; i++)
			if (me->comms[i])
				ncclCommAbort(me->comms[i]);
	return NULL;
}

/*
 * The main() of a client whose ranks all execute run(). Options: --ranks --procs --seed --timeout
 * --help. With fewer than `min_ranks` ranks it returns 77 (skipped).
 */
static inline int client_main(int argc, char **argv, int def_ranks, int min_ranks,
			      const char *about, int (*run)(struct client_rank *me))
{
	const char *name = program_invocation_short_name;
	struct client_result result = {0};
	struct client_rank *ranks;
	int nr_ranks = 0, procs = 0, i;
	double timeout = 0, start;

	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help")) {
			printf("usage: %s [--ranks N] [--procs N] [--seed N] [--timeout S]\n\n%s\n"
			       "Exit status: 0 right, 1 wrong, 2 usage, 3 NCCL or CUDA error, 4 no "
			       "progress, 77 can't be checked here.\n",
			       name, about);
			return 0;
		}
		if (i + 1 == argc || strncmp(argv[i], "--", 2)) {
			fprintf(stderr, "%s: unknown argument '%s'\n", name, argv[i]);
			return EXIT_USAGE;
		}
		if (!strcmp(argv[i], "--ranks"))
			nr_ranks = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--procs"))
			procs = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--seed"))
			client_seed_value = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--timeout"))
			timeout = atof(argv[++i]);
		else {
			fprintf(stderr, "%s: unknown argument '%s'\n", name, argv[i]);
			return EXIT_USAGE;
		}
	}
	if (!nr_ranks && !getenv("WORLD_SIZE") && !getenv("OMPI_COMM_WORLD_SIZE"))
		nr_ranks = procs ? procs : def_ranks;
	client_timeout(timeout);
	start = client_now();
	if (!client_job_open(&client_job, nr_ranks, procs, argv)) {
		if (client_job.nr_ranks < min_ranks) {
			printf("%s: needs at least %d ranks\n", name, min_ranks);
			return EXIT_SKIP;
		}
		ranks = calloc((size_t)client_job.nr_local_ranks, sizeof(*ranks));
		client_barrier_init(&client_ranks_barrier, client_job.nr_local_ranks);
		for (i = 0; i < CLIENT_IDS && !client_job.proc; i++)
			if (ncclGetUniqueId(&client_ids[i]) != ncclSuccess)
				client_fail(EXIT_NCCL, "ncclGetUniqueId: %s",
					    ncclGetLastError(NULL));
		client_broadcast(&client_job, client_ids, sizeof(client_ids));
		for (i = 0; i < client_job.nr_local_ranks && !client_failed(); i++) {
			ranks[i].index = i;
			ranks[i].rank = client_job.first_rank + i;
			ranks[i].nr_ranks = client_job.nr_ranks;
			ranks[i].device = client_device(&client_job, i);
			ranks[i].run = run;
			if (pthread_create(&ranks[i].thread, NULL, client_rank_thread, &ranks[i])) {
				client_fail(EXIT_NCCL, "cannot start a thread for rank %d",
					    ranks[i].rank);
				break;
			}
		}
		while (i-- > 0)
			pthread_join(ranks[i].thread, NULL);
		free(ranks);
	}
	result.status = client_status;
	result.seconds = client_now() - start;
	memcpy(result.text, client_text, sizeof(result.text));
	if (client_job.peers ? client_collect(&client_job, &result) : 1)
		printf("%s: %s: %d ranks in %d process%s, seed %llu, %.2f s%s%s\n", name,
		       result.status ? "FAILED" : "OK", client_job.nr_ranks, client_job.nr_procs,
		       client_job.nr_procs > 1 ? "es" : "", (unsigned long long)client_seed_value,
		       result.seconds, *result.text ? ": " : "", result.text);
	return result.status;
}

#endif
