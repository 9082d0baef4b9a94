/*
 * Data-parallel training whose gradients are fused. A plain program of NCCL and the CUDA runtime
 * that uses nothing of dfshim. The backward pass of a Swin-T computes its 173 gradients, the last
 * parameter's first, and gives them to N fusion buffers of S bytes in turn. A buffer that has no
 * room for its next gradient is closed: one AllReduce reduces its gradients over all ranks. The
 * remaining gradients are reduced after the backward pass. Each rank is a process.
 *
 * --launch selects the thread that calls NCCL:
 *   own     A thread for each buffer; the thread of the backward pass serves the first. Nothing
 *           makes the threads of two ranks call NCCL in the same order. This is the bug to find.
 *   queue   One thread, in the order in which the buffers were closed. The same bug, hidden by a
 *           queue.
 *   agreed  One thread, in the order that follows from the model. Correct.
 * --jitter N: the thread of a buffer sleeps for up to N microseconds before it closes the buffer.
 * --calm: the backward pass waits until closed buffers are launched, so that the execution succeeds
 * on every machine.
 *
 * Results are verified, so mixed-up buffers are found. Counts are divided by --scale, so that the
 * duration depends on the order and not on the data. Whether a buffer is full is computed with
 * undivided sizes.
 */
#include "../clients/client.h"
#include <getopt.h>

#define MAX_BUFFERS 16
#define MAX_TENSORS 256
#define NR_ITERS    2

static const char help[] = "usage: fusion [--buffers N] [--size BYTES] [--launch own|queue|agreed] "
			   "[--jitter US | --calm] [--seed N]\n"
			   "              [--scale N] [--procs N] [--timeout S] [--plan]\n\n"
			   "Data-parallel training with fused gradients. --plan: only says how "
			   "many AllReduce an iteration has.\n\n"
			   "Exit status: 0 right, 1 wrong results, 2 wrong usage, 3 NCCL or CUDA "
			   "error, 4 no progress.\n";

enum launcher { LAUNCH_OWN, LAUNCH_QUEUE, LAUNCH_AGREED };

static struct {
	int buffers, procs, plan, calm;
	enum launcher launch;
	size_t size, scale;
	long jitter;
	uint64_t seed;
	double timeout;
} opt = {.buffers = 1, .size = 1 << 20, .scale = 256, .seed = 1};

/* One AllReduce of a part of a buffer. The part is complete with gradient `last`. */
struct fused {
	int buffer, last, leftover;
	size_t from, count;
};

static struct plan {
	size_t tensor[MAX_TENSORS]; /* in elements, in the order of the backward pass */
	int nr_tensors;
	/* sorted by `last`; the remaining gradients of each buffer at the end */
	struct fused fused[MAX_TENSORS];
	int nr_fused;
	size_t room[MAX_BUFFERS]; /* in elements, for all gradients of each buffer */
} plan;

static struct client_job job;
static ncclComm_t comm;
static struct buffer {
	/* gradients of this iteration; input and output of AllReduce; result */
	float *grads, *fused, *result;
	cudaStream_t stream;
	pthread_t thread;
} buffers[MAX_BUFFERS];
static int device, nr_given, nr_launched /* over all iterations */, iteration = -1, over;
/* --launch queue and agreed: the closed parts in the order in which they were closed. */
static int queue[NR_ITERS * MAX_TENSORS], nr_queued;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t nr_wrong;

/* ---- the model ------------------------------------------------------------------------------- */

static void tensor(size_t n)
{
	plan.tensor[plan.nr_tensors++] = n;
}

/* Adds the parameters of a Swin-T in their order, and reverses them. */
static void make_model(void)
{
	static const size_t depths[] = {2, 2, 6, 2}, heads[] = {3, 6, 12, 24};
	size_t c = 96;

	tensor(c * 3 * 4 * 4);
	for (int i = 0; i < 3; i++)
		tensor(c);
	for (int s = 0; s < 4; s++, c *= 2) {
		for (size_t b = 0; b < depths[s]; b++) {
			const size_t block[] = {
				c,	   c,	  (2 * 7 - 1) * (2 * 7 - 1) * heads[s],
				3 * c * c, 3 * c, c * c,
				c,	   c,	  c,
				4 * c * c, 4 * c, 4 * c * c,
				c};

			for (size_t i = 0; i < ARRAY_LEN(block); i++)
				tensor(block[i]);
		}
		if (s == 3)
			break;
		tensor(4 * c);
		tensor(4 * c);
		tensor(8 * c * c);
	}
	tensor(c);
	tensor(c);
	tensor(1000 * c);
	tensor(1000);
	for (int i = 0, k = plan.nr_tensors - 1; i < k; i++, k--) {
		size_t t = plan.tensor[i];

		plan.tensor[i] = plan.tensor[k];
		plan.tensor[k] = t;
	}
}

static void close_buffer(struct fused *open, int last, int leftover)
{
	if (!open->count)
		return;
	open->last = last;
	open->leftover = leftover;
	plan.fused[plan.nr_fused++] = *open;
	open->from += open->count;
	open->count = 0;
}

static void make_plan(void)
{
	struct fused open[MAX_BUFFERS] = {0};
	size_t bytes[MAX_BUFFERS] = {0};

	make_model();
	for (int i = 0; i < plan.nr_tensors; i++) {
		int b = i % opt.buffers;
		size_t n = plan.tensor[i] * sizeof(float);

		open[b].buffer = b;
		if (bytes[b] && bytes[b] + n > opt.size) {
			close_buffer(&open[b], i, 0);
			bytes[b] = 0;
		}
		bytes[b] += n;
		n = (plan.tensor[i] + opt.scale - 1) / opt.scale;
		open[b].count += n;
		plan.room[b] += n;
		if (bytes[b] < opt.size)
			continue;
		close_buffer(&open[b], i, 0);
		bytes[b] = 0;
	}
	for (int b = 0; b < opt.buffers; b++)
		close_buffer(&open[b], plan.nr_tensors - 1, 1);
}

/* ---- reductions ------------------------------------------------------------------------------ */

static float value(int rank, int b, int iter)
{
	return (float)(rank + 10 * b + 1000 * iter);
}

static void nap(long us)
{
	struct timespec pause = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&pause, NULL);
}

/*
 * Copies a part into the fusion buffer, reduces it, and copies it out, in stream order. The calling
 * thread does not wait.
 */
static int launch(const struct fused *f)
{
	struct buffer *b = &buffers[f->buffer];

	CUDA(cudaMemcpyAsync(b->fused + f->from, b->grads + f->from, f->count * sizeof(float),
			     cudaMemcpyDeviceToDevice, b->stream));
	NCCL(ncclAllReduce(b->fused + f->from, b->fused + f->from, f->count, ncclFloat, ncclSum,
			   comm, b->stream));
	CUDA(cudaMemcpyAsync(b->result + f->from, b->fused + f->from, f->count * sizeof(float),
			     cudaMemcpyDeviceToDevice, b->stream));
	client_tick();
	__atomic_add_fetch(&nr_launched, 1, __ATOMIC_RELEASE);
	return 0;
}

/* Launches part `i` of the plan, or queues it for the launching thread. */
static int closed(int i)
{
	if (opt.launch == LAUNCH_OWN)
		return launch(&plan.fused[i]);
	pthread_mutex_lock(&lock);
	queue[nr_queued++] = i;
	pthread_mutex_unlock(&lock);
	return 0;
}

/*
 * Closes the parts of buffer b that are complete, from entry *at of the plan on. Advances *at to
 * the first part that is not. Returns -1 if the job has failed.
 */
static int close_ready(int b, int *at, uint64_t *rng)
{
	for (; *at < plan.nr_fused && !plan.fused[*at].leftover; ++*at) {
		if (plan.fused[*at].buffer != b)
			continue;
		if (plan.fused[*at].last >= __atomic_load_n(&nr_given, __ATOMIC_ACQUIRE))
			return 0;
		if (opt.jitter)
			nap((long)(client_random(rng) % (uint64_t)opt.jitter));
		if (closed(*at))
			return -1;
	}
	return 0;
}

static int run_buffer(int b)
{
	uint64_t rng = client_seed(opt.seed, (uint64_t)job.proc, (uint64_t)b);
	int iter = 0, at = 0;

	CUDA(cudaSetDevice(device));
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE) && !client_failed()) {
		if (__atomic_load_n(&iteration, __ATOMIC_ACQUIRE) > iter) {
			iter++;
			at = 0;
		}
		if (__atomic_load_n(&iteration, __ATOMIC_ACQUIRE) == iter &&
		    close_ready(b, &at, &rng))
			return -1;
		nap(20);
	}
	return 0;
}

static void *buffer_thread(void *arg)
{
	run_buffer((int)(intptr_t)arg);
	return NULL;
}

/* The launching thread. Follows the queue, or the plan if --launch is agreed. */
static int run_launcher(void)
{
	int launched = 0, seen = 0, here[MAX_TENSORS] = {0};

	CUDA(cudaSetDevice(device));
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE) && !client_failed()) {
		int at = launched % plan.nr_fused, next = -1;

		pthread_mutex_lock(&lock);
		while (seen < nr_queued)
			here[queue[seen++]]++;
		if (opt.launch == LAUNCH_QUEUE && launched < seen)
			next = queue[launched];
		else if (opt.launch == LAUNCH_AGREED && here[at] > launched / plan.nr_fused)
			next = at;
		pthread_mutex_unlock(&lock);
		if (next < 0) {
			nap(20);
			continue;
		}
		if (launch(&plan.fused[next]))
			return -1;
		launched++;
	}
	return 0;
}

static void *launcher_thread(void *arg)
{
	(void)arg;
	run_launcher();
	return NULL;
}

/* ---- an iteration ---------------------------------------------------------------------------- */

static int fill(int iter)
{
	for (int b = 0; b < opt.buffers; b++) {
		float *p = malloc(plan.room[b] * sizeof(float));

		for (size_t i = 0; i < plan.room[b]; i++)
			p[i] = value(job.proc, b, iter) + (float)(i & 1023);
		CUDA(client_upload(buffers[b].grads, p, plan.room[b] * sizeof(float)));
		free(p);
	}
	return 0;
}

static int verify(int iter)
{
	for (int b = 0; b < opt.buffers; b++) {
		float *p = malloc(plan.room[b] * sizeof(float)), base = 0;

		for (int r = 0; r < job.nr_ranks; r++)
			base += value(r, b, iter);
		CUDA(cudaMemcpy(p, buffers[b].result, plan.room[b] * sizeof(float),
				cudaMemcpyDeviceToHost));
		for (size_t i = 0; i < plan.room[b]; i++)
			nr_wrong += p[i] != base + (float)job.nr_ranks * (float)(i & 1023);
		free(p);
	}
	return 0;
}

/* Waits until `nr` parts of this iteration have been launched. */
static int wait_launched(int iter, int nr)
{
	while (__atomic_load_n(&nr_launched, __ATOMIC_ACQUIRE) < iter * plan.nr_fused + nr) {
		if (client_failed() || client_async_error(&comm, 1))
			return -1;
		nap(50);
	}
	return 0;
}

static int iterate(int iter, uint64_t *rng)
{
	int at = 0, due = 0;

	if (fill(iter))
		return -1;
	__atomic_store_n(&nr_given, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&iteration, iter, __ATOMIC_RELEASE);
	for (int i = 1; i <= plan.nr_tensors; i++) {
		__atomic_store_n(&nr_given, i, __ATOMIC_RELEASE);
		if (close_ready(0, &at, rng))
			return -1;
		while (due < plan.nr_fused && !plan.fused[due].leftover && plan.fused[due].last < i)
			due++;
		if (opt.calm ? wait_launched(iter, due) : (nap(50), 0))
			return -1;
	}
	/* Launch the remaining gradients after all other parts. */
	if (wait_launched(iter, due))
		return -1;
	for (int i = due; i < plan.nr_fused; i++)
		if (closed(i))
			return -1;
	if (wait_launched(iter, plan.nr_fused))
		return -1;
	for (int b = 0; b < opt.buffers; b++)
		if (client_wait(buffers[b].stream, &comm, 1))
			return -1;
	return verify(iter);
}

static int iterations(void)
{
	uint64_t rng = client_seed(opt.seed, (uint64_t)job.proc, 0);

	for (int i = 0; i < NR_ITERS; i++)
		if (iterate(i, &rng))
			return -1;
	return 0;
}

static int run(void)
{
	pthread_t launcher;
	ncclUniqueId id;
	float *warm;

	device = client_device(&job, 0);
	if (device < 0)
		return -1;
	CUDA(cudaSetDevice(device));
	if (!job.proc)
		NCCL(ncclGetUniqueId(&id));
	if (client_broadcast(&job, &id, sizeof(id)))
		return -1;
	NCCL(ncclCommInitRank(&comm, job.nr_ranks, id, job.proc));
	for (int b = 0; b < opt.buffers; b++) {
		CUDA(cudaMalloc((void **)&buffers[b].grads, plan.room[b] * sizeof(float)));
		CUDA(cudaMalloc((void **)&buffers[b].fused, plan.room[b] * sizeof(float)));
		CUDA(cudaMalloc((void **)&buffers[b].result, plan.room[b] * sizeof(float)));
		CUDA(cudaStreamCreateWithFlags(&buffers[b].stream, cudaStreamNonBlocking));
	}
	/*
	 * The first call connects the ranks. It waits for the other ranks, so make it before the
	 * threads start.
	 */
	CUDA(cudaMalloc((void **)&warm, 256));
	NCCL(ncclAllReduce(warm, warm, 16, ncclFloat, ncclSum, comm, buffers[0].stream));
	if (client_wait(buffers[0].stream, &comm, 1))
		return -1;
	for (int b = 1; b < opt.buffers; b++)
		if (pthread_create(&buffers[b].thread, NULL, buffer_thread, (void *)(intptr_t)b))
			return -1;
	if (opt.launch != LAUNCH_OWN && pthread_create(&launcher, NULL, launcher_thread, NULL))
		return -1;
	if (iterations()) {
		/* These threads may wait for ever, so do not join them. */
		for (int b = 1; b < opt.buffers; b++)
			pthread_detach(buffers[b].thread);
		if (opt.launch != LAUNCH_OWN)
			pthread_detach(launcher);
		return -1;
	}
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	for (int b = 1; b < opt.buffers; b++)
		pthread_join(buffers[b].thread, NULL);
	if (opt.launch != LAUNCH_OWN)
		pthread_join(launcher, NULL);
	NCCL(ncclCommDestroy(comm));
	return 0;
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {{"buffers", required_argument, NULL, 'b'},
						{"size", required_argument, NULL, 's'},
						{"launch", required_argument, NULL, 'l'},
						{"jitter", required_argument, NULL, 'j'},
						{"seed", required_argument, NULL, 'S'},
						{"scale", required_argument, NULL, 'x'},
						{"procs", required_argument, NULL, 'p'},
						{"timeout", required_argument, NULL, 't'},
						{"plan", no_argument, NULL, 'P'},
						{"calm", no_argument, NULL, 'c'},
						{"help", no_argument, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	static const char *const launchers[] = {"own", "queue", "agreed"};
	int c, k;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'b':
			opt.buffers = atoi(optarg);
			break;
		case 's':
			opt.size = strtoull(optarg, NULL, 0);
			break;
		case 'l':
			for (k = 0; k < 3 && strcmp(optarg, launchers[k]); k++)
				;
			if (k == 3)
				goto usage;
			opt.launch = (enum launcher)k;
			break;
		case 'j':
			opt.jitter = atol(optarg);
			break;
		case 'S':
			opt.seed = strtoull(optarg, NULL, 0);
			break;
		case 'x':
			opt.scale = strtoull(optarg, NULL, 0);
			break;
		case 'p':
			opt.procs = atoi(optarg);
			break;
		case 't':
			opt.timeout = atof(optarg);
			break;
		case 'c':
			opt.calm = 1;
			break;
		case 'P':
			opt.plan = 1;
			break;
		case 'h':
			fputs(help, stdout);
			exit(0);
		default:
			goto usage;
		}
	}
	if (optind == argc && opt.buffers > 0 && opt.buffers <= MAX_BUFFERS && opt.size &&
	    opt.scale && opt.jitter >= 0)
		return;
usage:
	fputs(help, stderr);
	exit(EXIT_USAGE);
}

int main(int argc, char **argv)
{
	struct client_result result = {0};

	parse(argc, argv);
	make_plan();
	if (opt.plan) {
		printf("%d\n", plan.nr_fused);
		return 0;
	}
	client_timeout(opt.timeout);
	if (!client_job_open(&job, 0, opt.procs, argv) && run() && comm)
		ncclCommAbort(comm);
	if (nr_wrong)
		client_fail(EXIT_WRONG, "wrong results");
	result.status = client_status;
	result.nr_wrong = nr_wrong;
	memcpy(result.text, client_text, sizeof(result.text));
	if (job.peers ? client_collect(&job, &result) : 1)
		printf("fusion: %s: %d ranks, %d buffers of %zu bytes, %d AllReduce an iteration, "
		       "%llu wrong values%s%s\n",
		       result.status ? "FAILED" : "OK", job.nr_ranks, opt.buffers, opt.size,
		       plan.nr_fused, (unsigned long long)result.nr_wrong, *result.text ? ": " : "",
		       result.text);
	return result.status;
}
