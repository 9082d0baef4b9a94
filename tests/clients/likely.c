/*
 * Two processes, a rank in each, that use two communicators in opposite orders with cudaDeviceSynchronize after each
 * operation. Beside them is a thread that keeps the cycle from being proved:
 *
 *	ended		it has used a communicator of the cycle and has ended; another thread, which uses neither CUDA nor
 *			NCCL, sleeps again and again
 *	sleeps		it has used one, and sleeps on a condition
 *	joins		it has used one, and joins a thread that has put work on a stream and sleeps again and again
 *	cold		it has used a third communicator, and sleeps; those of the cycle have never been used
 *	calls		as sleeps, but it puts work on a stream of its own every 20 ms for as long as LATE_MS
 *	late		as sleeps, on rank 0, and after LATE_MS it issues what the cycle lacks: the rank was only late
 *
 *	new		as late, but it has put work on a stream only, and the communicators have never been used
 *
 * Or one that has the name of PyTorch's threads for gradients:
 *
 *	autograd	as sleeps, beside a thread that uses neither CUDA nor NCCL and sleeps again and again: this one is
 *			proved, since no thread calls backward()
 *	backward	as late, but it is woken after LATE_MS by a thread that has put work on a stream
 *	named		as late
 *
 * likely HOW [ITERATIONS [LATE_MS]]: prints how long each iteration took, in ms. Status 0: all results are right.
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

#define COUNT 1000
#define COMMS 3

#define MUST(call)                                                                                 \
	do {                                                                                       \
		int err = (int)(call);                                                             \
		if (err) {                                                                         \
			fprintf(stderr, "%s: %d\n", #call, err);                                   \
			_exit(2);                                                                  \
		}                                                                                  \
	} while (0)

static const char *how;
static int rank, late_ms = 1500;
static ncclComm_t comms[COMMS];
static cudaStream_t streams[COMMS];
static float *in[COMMS], *out[COMMS], host[COUNT];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_t threads[2];
static int used, woken, issued,
	over; /* by the thread; by waker(); by the late thread; of the program */

static int is(const char *word)
{
	return !strcmp(how, word);
}

/* Its thread issues what rank 0 lacks. */
static int is_late(void)
{
	return is("late") || is("backward") || is("named") || is("new");
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

/* Puts work on a stream of the calling thread's. */
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

static void *beside(void *unused)
{
	if (is("joins"))
		use_cuda();
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		sleep_ms(10);
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
	if (is_named())
		MUST(pthread_setname_np(pthread_self(), "pt_autograd_0"));
	use_cuda();
	for (int c = 0; c < COMMS; c++)
		if (is("cold") ? c == 2 : !is("new") && c < 2) {
			reduce(c);
			MUST(cudaStreamSynchronize(streams[c]));
		}
	say(&used);
	if (is("ended"))
		return NULL;
	if (is("calls"))
		for (double end = now_ms() + late_ms; now_ms() < end; sleep_ms(20))
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
		if (host[i] != 3.0f) {
			fprintf(stderr, "rank %d, communicator %d: %g at %d\n", rank, comm,
				(double)host[i], i);
			_exit(1);
		}
}

static void iterate(void)
{
	double begun = now_ms();

	for (int comm = 0; comm < 2; comm++)
		MUST(cudaMemset(out[comm], 0, sizeof(host)));
	for (int k = 0; k < 2; k++) {
		int comm = k ^ rank;

		/* Its thread issues that one. */
		if (!(is_late() && rank == 0 && comm == 1))
			reduce(comm);
		MUST(cudaDeviceSynchronize());
	}
	/* After a release the wait for the device does not show that the late thread has issued its operation. */
	if (is_late() && rank == 0)
		wait_for(&issued);
	check(0);
	check(1);
	if (!rank)
		printf("%.0f\n", now_ms() - begun);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int iterations = argc > 2 ? atoi(argv[2]) : 1, ids[2], status = 0;
	void *(*other)(void *);
	ncclUniqueId id[COMMS];
	pid_t pid;

	if (argc < 2 || argc > 4) {
		fprintf(stderr,
			"usage: likely ended|sleeps|joins|cold|calls|late|new|autograd|backward|named [ITERATIONS [LATE_MS]]\n");
		return 1;
	}
	how = argv[1];
	other = is("backward")				       ? waker
		: is("ended") || is("joins") || is("autograd") ? beside
							       : NULL;
	if (argc > 3)
		late_ms = atoi(argv[3]);
	alarm(100);
	/* Before anything else is called. */
	MUST(pipe(ids));
	pid = fork();
	MUST(pid < 0);
	rank = !pid;
	for (int c = 0; c < COMMS; c++) {
		if (rank) {
			MUST(read(ids[0], &id[c], sizeof(id[c])) != sizeof(id[c]));
		} else {
			MUST(ncclGetUniqueId(&id[c]));
			MUST(write(ids[1], &id[c], sizeof(id[c])) != sizeof(id[c]));
		}
	}
	MUST(cudaSetDevice(rank));
	for (int c = 0; c < COMMS; c++) {
		MUST(ncclCommInitRank(&comms[c], 2, id[c], rank));
		MUST(cudaStreamCreateWithFlags(&streams[c], cudaStreamNonBlocking));
		MUST(cudaMalloc((void **)&in[c], sizeof(host)));
		MUST(cudaMalloc((void **)&out[c], sizeof(host)));
		for (int i = 0; i < COUNT; i++)
			host[i] = (float)(rank + 1);
		MUST(cudaMemcpy(in[c], host, sizeof(host), cudaMemcpyHostToDevice));
	}
	if (other)
		MUST(pthread_create(&threads[1], NULL, other, NULL));
	MUST(pthread_create(&threads[0], NULL, thread, NULL));
	wait_for(&used);
	if (is("ended"))
		pthread_join(threads[0], NULL);
	for (int i = 0; i < iterations; i++)
		iterate();
	say(&over);
	if (!is("ended"))
		pthread_join(threads[0], NULL);
	if (other && !is("joins"))
		pthread_join(threads[1], NULL);
	for (int c = 0; c < COMMS; c++)
		MUST(ncclCommDestroy(comms[c]));
	if (!rank)
		MUST(waitpid(pid, &status, 0) != pid);
	return status != 0;
}
