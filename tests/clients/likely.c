/*
 * Processes with a rank in each. The even and the odd ones use two communicators in opposite
 * orders, with cudaDeviceSynchronize after each operation. A further thread prevents the proof of
 * the cycle:
 *
 *   ended       it has used a communicator of the cycle and has ended; another thread, which
 *               uses neither CUDA nor NCCL, sleeps again and again
 *   sleeps      it has used a communicator of the cycle, and waits on a condition variable
 *   joins       it has used a communicator of the cycle, and joins a thread that has put work on
 *               a stream and sleeps again and again
 *   cold        it has used a third communicator, and sleeps; those of the cycle were never used
 *   calls       as sleeps, but it puts work on a stream of its own every 20 ms for LATE_MS
 *   late        as sleeps, on rank 0; after LATE_MS it issues the operation that the cycle
 *               lacks: the rank was only late
 *
 *   new         as late, but it has only put work on a stream, and the communicators were never
 *               used
 *   new-calls   as calls, but it has used no communicator, and those of the cycle were never
 *               used
 *   init        it has only put work on a stream. On rank 1, after LATE_MS, it creates the third
 *               communicator; rank 0 waits for that before it issues the operation that rank 1
 *               waits for
 *   crowd       as calls, together with 300 threads that have put work on a stream and sleep
 *
 * Or threads that start and end. Each creates a stream and puts work on it. Some also use the third
 * communicator.
 *
 *   visits      until the program ends. None has used a communicator of the cycle, so it is
 *               proved
 *   churn       for LATE_MS, with one that has used the communicators of the cycle and has ended
 *
 * Or a thread with the name of PyTorch's threads for gradients:
 *
 *   autograd    as sleeps, with a thread that uses neither CUDA nor NCCL and sleeps again and
 *               again: the cycle is proved, because no thread calls backward()
 *   backward    as late, but a thread that has put work on a stream wakes it after LATE_MS
 *   named       as late
 *
 * likely HOW [ITERATIONS [LATE_MS [RANKS]]]: prints the time of each iteration, in ms. Exits with 0
 * if all results are right.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#define COUNT	  1000
#define COMMS	  3
#define CROWD	  300
#define VISITS	  40 /* number of threads that use the third communicator */
#define RANKS_MAX 64

#define MUST(call)                                                                                 \
	do {                                                                                       \
		int err = (int)(call);                                                             \
		if (err) {                                                                         \
			fprintf(stderr, "%s: %d\n", #call, err);                                   \
			_exit(2);                                                                  \
		}                                                                                  \
	} while (0)

static const char *how;
static int rank, nr_ranks = 2, late_ms = 1500;
static ncclUniqueId id[COMMS];
static ncclComm_t comms[COMMS];
static cudaStream_t streams[COMMS];
static float *in[COMMS], *out[COMMS], host[COUNT];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t full;
static pthread_t threads[2], crowded[CROWD];
static int used, woken, issued,
	over; /* set by the thread; by waker(); by the late thread; at the end of the program */

static int is(const char *word)
{
	return !strcmp(how, word);
}

/* Whether the thread issues the operation that rank 0 lacks. */
static int is_late(void)
{
	return is("late") || is("backward") || is("named") || is("new");
}

static int unused_by_thread(void)
{
	return is("new") || is("new-calls") || is("init") || is("visits");
}

static int is_named(void)
{
	return is("autograd") || is("backward") || is("named");
}

static void sleep_ms(int ms)
{
	const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

	nanosleep(&t, NULL);
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/*
 * When a thread of this rank started to call for LATE_MS; 0: not started, or taken by wait_begin().
 */
static double late_from;

static double late_end(void)
{
	double now = now_ms();

	__atomic_store(&late_from, &now, __ATOMIC_RELAXED);
	return now + late_ms;
}

/* Returns the start of the wait, even if the main thread reaches it later. */
static double wait_begin(void)
{
	double from = 0, none = 0;

	__atomic_exchange(&late_from, &none, &from, __ATOMIC_RELAXED);
	return from > 0 ? from : now_ms();
}

static void reduce(int comm)
{
	MUST(ncclAllReduce(in[comm], out[comm], COUNT, ncclFloat, ncclSum, comms[comm],
			   streams[comm]));
}

static void say(int *what)
{
	pthread_mutex_lock(&lock);
	__atomic_store_n(what, 1, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&lock);
}

static void wait_for(const int *what)
{
	pthread_mutex_lock(&lock);
	while (!*what)
		pthread_cond_wait(&cond, &lock);
	pthread_mutex_unlock(&lock);
}

/* Puts work on a stream of the calling thread. */
static void use_cuda(void)
{
	static __thread cudaStream_t own;
	static __thread float *mem;

	MUST(cudaSetDevice(rank));
	if (!own)
		MUST(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
	if (!mem)
		MUST(cudaMalloc((void **)&mem, sizeof(float)));
	MUST(cudaMemsetAsync(mem, 0, sizeof(float), own));
}

static void make_third(void)
{
	MUST(ncclCommInitRank(&comms[2], nr_ranks, id[2], rank));
}

static void *crowd(void *unused)
{
	use_cuda();
	pthread_barrier_wait(&full);
	wait_for(&over);
	return unused;
}

static void *beside(void *unused)
{
	if (is("joins"))
		use_cuda();
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		sleep_ms(10);
	return unused;
}

static void *visit(void *third)
{
	cudaStream_t own;
	float *mem;

	MUST(cudaSetDevice(rank));
	MUST(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
	MUST(cudaMallocAsync((void **)&mem, sizeof(float), own));
	MUST(cudaMemsetAsync(mem, 0, sizeof(float), own));
	MUST(cudaFreeAsync(mem, own));
	if (third) {
		MUST(ncclAllReduce(in[2], out[2], COUNT, ncclFloat, ncclSum, comms[2], own));
		MUST(cudaStreamSynchronize(own));
	}
	MUST(cudaStreamDestroy(own));
	return NULL;
}

static void *visits(void *unused)
{
	const double end = late_end();
	pthread_t visitor;

	for (int i = 0; i < VISITS ||
			(is("visits") ? !__atomic_load_n(&over, __ATOMIC_RELAXED) : now_ms() < end);
	     i++) {
		MUST(pthread_create(&visitor, NULL, visit, i < VISITS ? &visitor : NULL));
		pthread_join(visitor, NULL);
	}
	return unused;
}

static void *waker(void *unused)
{
	use_cuda();
	sleep_ms(late_ms);
	say(&woken);
	wait_for(&over);
	return unused;
}

static void *thread(void *unused)
{
	double end = 0;

	if (is_named())
		MUST(pthread_setname_np(pthread_self(), "pt_autograd_0"));
	use_cuda();
	for (int c = 0; c < COMMS; c++)
		if (is("cold") ? c == 2 : !unused_by_thread() && c < 2) {
			reduce(c);
			MUST(cudaStreamSynchronize(streams[c]));
		}
	if (is("calls") || is("new-calls") || is("crowd"))
		end = late_end();
	say(&used);
	if (is("ended") || is("churn"))
		return NULL;
	if (is("init") && rank == 1) {
		sleep_ms(late_ms);
		make_third();
	}
	for (; now_ms() < end; sleep_ms(20))
		use_cuda();
	if (is_late() && rank == 0) {
		if (is("backward"))
			wait_for(&woken);
		else
			sleep_ms(late_ms);
		reduce(1);
		say(&issued);
	}
	if (is("joins"))
		pthread_join(threads[1], NULL);
	else
		wait_for(&over);
	return unused;
}

static void check(int comm)
{
	MUST(cudaMemcpy(host, out[comm], sizeof(host), cudaMemcpyDeviceToHost));
	for (int i = 0; i < COUNT; i++)
		if (host[i] != (float)(nr_ranks * (nr_ranks + 1) / 2)) {
			fprintf(stderr, "rank %d, communicator %d: %g at %d\n", rank, comm,
				(double)host[i], i);
			_exit(1);
		}
}

static void iterate(void)
{
	double begun = wait_begin();

	for (int comm = 0; comm < 2; comm++)
		MUST(cudaMemset(out[comm], 0, sizeof(host)));
	for (int k = 0; k < 2; k++) {
		int comm = is("init") ? k : k ^ (rank & 1);

		if (is("init") && !rank && !k)
			make_third();
		/* The late thread issues this operation. */
		if (!(is_late() && rank == 0 && comm == 1))
			reduce(comm);
		MUST(cudaDeviceSynchronize());
	}
	/*
	 * After a release, the return of the synchronisation does not show that the late thread has
	 * issued its operation, and the copies do not wait for a non-blocking stream.
	 */
	if (is_late() && rank == 0) {
		wait_for(&issued);
		MUST(cudaStreamSynchronize(streams[1]));
	}
	check(0);
	check(1);
	if (!rank)
		printf("%.0f\n", now_ms() - begun);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int iterations = argc > 2 ? atoi(argv[2]) : 1, ids[2], status, failed = 0;
	void *(*other)(void *);
	pid_t pids[RANKS_MAX];

	if (argc < 2 || argc > 5) {
		fprintf(stderr,
			"usage: likely "
			"ended|sleeps|joins|cold|calls|late|new|new-calls|init|crowd|visits|churn|"
			"autograd|backward|named [ITERATIONS [LATE_MS [RANKS]]]\n");
		return 1;
	}
	how = argv[1];
	other = is("backward")				       ? waker
		: is("visits") || is("churn")		       ? visits
		: is("ended") || is("joins") || is("autograd") ? beside
							       : NULL;
	if (argc > 3)
		late_ms = atoi(argv[3]);
	if (argc > 4)
		nr_ranks = atoi(argv[4]);
	MUST(nr_ranks < 2 || nr_ranks > RANKS_MAX);
	alarm(100);
	/* Forks before any other call. */
	MUST(pipe(ids));
	for (int i = 1; i < nr_ranks && !rank; i++) {
		pids[i] = fork();
		MUST(pids[i] < 0);
		rank = pids[i] ? 0 : i;
	}
	if (rank) {
		MUST(read(ids[0], id, sizeof(id)) != sizeof(id));
	} else {
		for (int c = 0; c < COMMS; c++)
			MUST(ncclGetUniqueId(&id[c]));
		for (int i = 1; i < nr_ranks; i++)
			MUST(write(ids[1], id, sizeof(id)) != sizeof(id));
	}
	MUST(pthread_barrier_init(&full, NULL, CROWD + 1));
	MUST(cudaSetDevice(rank));
	for (int c = 0; c < COMMS; c++) {
		if (c < 2 || !is("init"))
			MUST(ncclCommInitRank(&comms[c], nr_ranks, id[c], rank));
		MUST(cudaStreamCreateWithFlags(&streams[c], cudaStreamNonBlocking));
		MUST(cudaMalloc((void **)&in[c], sizeof(host)));
		MUST(cudaMalloc((void **)&out[c], sizeof(host)));
		for (int i = 0; i < COUNT; i++)
			host[i] = (float)(rank + 1);
		MUST(cudaMemcpy(in[c], host, sizeof(host), cudaMemcpyHostToDevice));
	}
	for (int i = 0; i < CROWD && is("crowd"); i++)
		MUST(pthread_create(&crowded[i], NULL, crowd, NULL));
	if (is("crowd"))
		pthread_barrier_wait(&full);
	if (other)
		MUST(pthread_create(&threads[1], NULL, other, NULL));
	if (is("init") && !rank)
		say(&used);
	else
		MUST(pthread_create(&threads[0], NULL, thread, NULL));
	wait_for(&used);
	if (is("ended") || is("churn"))
		pthread_join(threads[0], NULL);
	for (int c = 0; c < 2 && is("visits"); c++)
		reduce(c);
	MUST(cudaDeviceSynchronize());
	for (int i = 0; i < iterations; i++)
		iterate();
	say(&over);
	if (!is("ended") && !is("churn") && threads[0])
		pthread_join(threads[0], NULL);
	if (other && !is("joins"))
		pthread_join(threads[1], NULL);
	for (int i = 0; i < CROWD && is("crowd"); i++)
		pthread_join(crowded[i], NULL);
	for (int c = 0; c < COMMS; c++)
		MUST(ncclCommDestroy(comms[c]));
	for (int i = 1; i < nr_ranks && !rank; i++) {
		MUST(waitpid(pids[i], &status, 0) != pids[i]);
		failed |= status != 0;
	}
	return failed;
}
