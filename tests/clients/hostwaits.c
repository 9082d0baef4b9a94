/*
 * Two ranks in one process wait for each other in device synchronisations, while the thread that
 * created their communicators waits for them outside CUDA and NCCL. "hostwaits HOW" ends only if a
 * synchronisation is released. "hostwaits HOW late" looks the same, but after a second another
 * thread, which uses neither CUDA nor NCCL, wakes the main thread, and that issues the missing
 * operation, so no release is needed. HOW is join, cond, mutex, sem or timed (with late, its
 * time-out wakes it); or func with late: a host function wakes it, which runs when another process
 * has issued its part of a collective.
 *
 * The process has no other threads that could wake these. "hostwaits join beside" has one more,
 * which uses neither CUDA nor NCCL and never waits long.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#define COUNT 64

#define MUST(call)                                                                                 \
	do {                                                                                       \
		int err = (int)(call);                                                             \
		if (err) {                                                                         \
			fprintf(stderr, "%s: %d\n", #call, err);                                   \
			_exit(2);                                                                  \
		}                                                                                  \
	} while (0)

static ncclComm_t comms[2][2]; /* by communicator and rank */
static struct rank {
	int rank;
	cudaStream_t streams[2];
	int *in, *out[2];
} ranks[2];
static int late, wakes; /* wakes: a third thread wakes the main thread */
static int over;	/* for the thread of "beside"; atomic */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t holding;
static sem_t sem;
static int nr_done;

static void issue(struct rank *me, int comm)
{
	MUST(cudaSetDevice(me->rank));
	MUST(ncclAllReduce(me->in, me->out[comm], COUNT, ncclInt, ncclSum, comms[comm][me->rank],
			   me->streams[comm]));
}

static void done(void)
{
	pthread_mutex_lock(&lock);
	nr_done++;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&lock);
	sem_post(&sem);
}

/*
 * Issues both operations, in a different order on each rank. With `late`, rank 0 leaves the second
 * one to the main thread.
 */
static void *worker(void *arg)
{
	struct rank *me = arg;

	if (!late && me->rank == 0)
		pthread_mutex_lock(&held);
	pthread_barrier_wait(&holding);
	issue(me, me->rank);
	MUST(cudaDeviceSynchronize());
	if (!late || me->rank == 1) {
		issue(me, 1 - me->rank);
		MUST(cudaDeviceSynchronize());
	}
	if (!late) {
		if (me->rank == 0)
			pthread_mutex_unlock(&held);
		done();
	}
	return NULL;
}

static void *waker(void *arg)
{
	const struct timespec second = {.tv_sec = 1};

	(void)arg;
	pthread_mutex_lock(&held);
	pthread_barrier_wait(&holding);
	nanosleep(&second, NULL);
	pthread_mutex_unlock(&held);
	done();
	done();
	return NULL;
}

static void *beside(void *unused)
{
	const struct timespec moment = {.tv_nsec = 10000000};

	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		nanosleep(&moment, NULL);
	return unused;
}

static void CUDART_CB waking_function(void *unused)
{
	(void)unused;
	done();
	done();
}

/* A communicator of two processes on the third device; the other process is late. */
static struct {
	int rank, ids[2];
	pid_t pid;
	int *buf;
	ncclComm_t comm;
	cudaStream_t stream;
} pair = {.pid = -1};

/* Must be called before CUDA or NCCL is used. */
static void pair_fork(void)
{
	const struct timespec second = {.tv_sec = 1, .tv_nsec = 500000000};
	ncclUniqueId id;

	MUST(pipe(pair.ids));
	pair.pid = fork();
	pair.rank = !pair.pid;
	if (pair.rank) {
		unsetenv("DFSHIM_STATS"); /* the child would overwrite the parent's file */
		MUST(read(pair.ids[0], &id, sizeof(id)) != sizeof(id));
	} else {
		MUST(ncclGetUniqueId(&id));
		MUST(write(pair.ids[1], &id, sizeof(id)) != sizeof(id));
	}
	MUST(cudaSetDevice(2));
	MUST(ncclCommInitRank(&pair.comm, 2, id, pair.rank));
	MUST(cudaStreamCreateWithFlags(&pair.stream, cudaStreamNonBlocking));
	MUST(cudaMalloc((void **)&pair.buf, sizeof(int)));
	if (!pair.rank)
		return;
	nanosleep(&second, NULL);
	MUST(ncclAllReduce(pair.buf, pair.buf, 1, ncclInt, ncclSum, pair.comm, pair.stream));
	MUST(cudaStreamSynchronize(pair.stream));
	MUST(ncclCommDestroy(pair.comm));
	exit(0);
}

static void pair_issue(void)
{
	MUST(cudaSetDevice(2));
	MUST(ncclAllReduce(pair.buf, pair.buf, 1, ncclInt, ncclSum, pair.comm, pair.stream));
	MUST(cudaLaunchHostFunc(pair.stream, waking_function, NULL));
}

static void pair_end(void)
{
	int status;

	MUST(cudaSetDevice(2));
	MUST(cudaStreamSynchronize(pair.stream));
	MUST(ncclCommDestroy(pair.comm));
	MUST(waitpid(pair.pid, &status, 0) != pair.pid || status);
}

/* Waits for all workers or, with `late`, for the waker. */
static void wait_for(const char *how, pthread_t *threads)
{
	struct timespec soon;

	if (!strcmp(how, "join")) {
		if (late) {
			pthread_join(threads[2], NULL);
		} else {
			pthread_join(threads[0], NULL);
			pthread_join(threads[1], NULL);
		}
	} else if (!strcmp(how, "mutex")) {
		pthread_mutex_lock(&held);
	} else if (!strcmp(how, "sem")) {
		sem_wait(&sem);
		sem_wait(&sem);
	} else {
		pthread_mutex_lock(&lock);
		while (nr_done < 2) {
			if (strcmp(how, "timed")) {
				pthread_cond_wait(&cond, &lock);
				continue;
			}
			clock_gettime(CLOCK_REALTIME, &soon);
			soon.tv_sec++;
			if (pthread_cond_timedwait(&cond, &lock, &soon) && late)
				break;
		}
		pthread_mutex_unlock(&lock);
	}
}

int main(int argc, char **argv)
{
	const int devices[] = {0, 1};
	int host[COUNT], r, c, i, func, free_one;
	pthread_t threads[3], other;

	late = argc == 3 && !strcmp(argv[2], "late");
	free_one = argc == 3 && !strcmp(argv[2], "beside");
	if (argc < 2 || argc > 2 + late + free_one) {
		fprintf(stderr, "usage: hostwaits join|cond|mutex|sem|timed|func [late|beside]\n");
		return 1;
	}
	func = late && !strcmp(argv[1], "func");
	wakes = late && strcmp(argv[1], "timed") && !func;
	alarm(60);
	if (func)
		pair_fork();
	if (free_one)
		pthread_create(&other, NULL, beside, NULL);
	sem_init(&sem, 0, 0);
	pthread_barrier_init(&holding, NULL, 3 + (unsigned)wakes);
	for (c = 0; c < 2; c++)
		MUST(ncclCommInitAll(comms[c], 2, devices));
	for (r = 0; r < 2; r++) {
		ranks[r].rank = r;
		MUST(cudaSetDevice(r));
		MUST(cudaMalloc((void **)&ranks[r].in, sizeof(host)));
		for (i = 0; i < COUNT; i++)
			host[i] = i * (r + 1);
		MUST(cudaMemcpy(ranks[r].in, host, sizeof(host), cudaMemcpyHostToDevice));
		for (c = 0; c < 2; c++) {
			MUST(cudaStreamCreateWithFlags(&ranks[r].streams[c],
						       cudaStreamNonBlocking));
			MUST(cudaMalloc((void **)&ranks[r].out[c], sizeof(host)));
		}
	}
	for (r = 0; r < 2; r++)
		pthread_create(&threads[r], NULL, worker, &ranks[r]);
	if (wakes)
		pthread_create(&threads[2], NULL, waker, NULL);
	if (func)
		pair_issue();
	pthread_barrier_wait(&holding);
	wait_for(argv[1], threads);
	if (late)
		issue(&ranks[0], 1);
	/* In the wait "join" the main thread has already joined these threads. */
	for (r = 0; r < 2 + wakes; r++)
		if (strcmp(argv[1], "join") || (late && r < 2))
			pthread_join(threads[r], NULL);
	for (r = 0; r < 2; r++) {
		MUST(cudaSetDevice(r));
		for (c = 0; c < 2; c++) {
			MUST(cudaStreamSynchronize(ranks[r].streams[c]));
			MUST(cudaMemcpy(host, ranks[r].out[c], sizeof(host),
					cudaMemcpyDeviceToHost));
			for (i = 0; i < COUNT; i++) {
				if (host[i] == 3 * i)
					continue;
				fprintf(stderr, "rank %d: element %d is %d, not %d\n", r, i,
					host[i], 3 * i);
				return 1;
			}
		}
	}
	if (func)
		pair_end();
	for (c = 0; c < 2; c++)
		for (r = 0; r < 2; r++)
			MUST(ncclCommDestroy(comms[c][r]));
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	if (free_one)
		pthread_join(other, NULL);
	puts("all right");
	return 0;
}
