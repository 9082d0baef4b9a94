/*
 * Two ranks in one process that wait for each other in device synchronisations, while the thread that made their
 * communicators waits for them outside CUDA and NCCL. "hostwaits HOW" ends only if a synchronisation is released;
 * "hostwaits HOW late" looks the same, but there the main thread is woken after a second by a thread that uses
 * neither, and issues what was lacking: nothing need be released. HOW: join, cond, mutex, sem, or timed: late, its
 * time-out wakes it.
 *
 * There is no thread here but these, so none that could wake another.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static ncclComm_t comms[2][2]; /* by name, rank */
static struct rank {
	int rank;
	cudaStream_t streams[2];
	int *in, *out[2];
} ranks[2];
static int late, wakes; /* wakes: by a third thread */

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

/* Each in an order of its own; late: rank 0 leaves the second to the main thread. */
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

/* Until all workers are done; late: until the waker is. */
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
			if (!strcmp(how, "cond")) {
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
	pthread_t threads[3];
	int host[COUNT], r, c, i;

	late = argc == 3 && !strcmp(argv[2], "late");
	if (argc < 2 || argc > 2 + late) {
		fprintf(stderr, "usage: hostwaits join|cond|mutex|sem|timed [late]\n");
		return 1;
	}
	wakes = late && strcmp(argv[1], "timed");
	alarm(60);
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
	pthread_barrier_wait(&holding);
	wait_for(argv[1], threads);
	if (late)
		issue(&ranks[0], 1);
	/* Who waited by joining has joined these already. */
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
	for (c = 0; c < 2; c++)
		for (r = 0; r < 2; r++)
			MUST(ncclCommDestroy(comms[c][r]));
	puts("all right");
	return 0;
}
