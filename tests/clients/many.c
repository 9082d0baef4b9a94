/*
 * Large numbers, and outsiders: a thousand communicators with few file descriptors, ten thousand
 * collectives in flight, hundreds of communicators created and destroyed (nothing may grow),
 * messages of thousands of sizes, no memory left, connections of outsiders that send garbage.
 */
#include "client.h"

#include <sys/resource.h>
#include <sys/un.h>

static const char *wanted;
static int amount;

static int sum(struct client_rank *me, ncclComm_t comm, cudaStream_t s, float *buf)
{
	float in = (float)(me->rank + 1), out = 0;
	int n = me->nr_ranks;

	CUDA(cudaMemcpyAsync(buf, &in, sizeof(in), cudaMemcpyHostToDevice, s));
	CUDA(cudaStreamSynchronize(s));
	NCCL(ncclAllReduce(buf, buf + 1, 1, ncclFloat, ncclSum, comm, s));
	if (client_wait(s, &comm, 1))
		return -1;
	CUDA(cudaMemcpy(&out, buf + 1, sizeof(out), cudaMemcpyDeviceToHost));
	EXPECT(out == (float)(n * (n + 1) / 2), "%g", out);
	client_tick();
	return 0;
}

/* All communicators are split from one, used, and destroyed at the end. */
static int comms(struct client_rank *me, cudaStream_t s, float *buf)
{
	ncclComm_t *c = calloc((size_t)amount, sizeof(*c));
	struct rlimit few = {1024, 1024};
	int i;

	EXPECT(c && !setrlimit(RLIMIT_NOFILE, &few), "set-up");
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	for (i = 0; i < amount; i++) {
		NCCL(ncclCommSplit(me->comms[0], 0, me->rank, &c[i], NULL));
		if (sum(me, c[i], s, buf))
			return -1;
	}
	for (i = 0; i < amount; i += 37)
		if (sum(me, c[i], s, buf))
			return -1;
	for (i = 0; i < amount; i++)
		NCCL(ncclCommDestroy(c[i]));
	free(c);
	return 0;
}

/*
 * All collectives are issued before the first wait, on 1 and on 4 communicators and streams. Rank 0
 * starts with the second half, so none of the first half is complete before it has issued half of
 * them.
 */
static int outstanding(struct client_rank *me, cudaStream_t s, float *buf)
{
	const int places = 16;
	cudaStream_t streams[4] = {s};
	float *out, one = 1, *v;
	int nr, i;

	CUDA(cudaMalloc((void **)&out, (size_t)amount * 2 * sizeof(*out)));
	v = malloc((size_t)amount * 2 * sizeof(*v));
	EXPECT(v, "memory");
	for (i = 0; i < 4; i++)
		NCCL(ncclCommInitRank(&me->comms[i], me->nr_ranks, client_ids[i], me->rank));
	for (i = 1; i < 4; i++)
		CUDA(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
	for (nr = 1; nr <= 4; nr *= 4) {
		CUDA(client_clear(out, 0, (size_t)amount * 2 * sizeof(*out)));
		for (i = 0; i <= places; i++)
			CUDA(client_upload(buf + i, &one, sizeof(one)));
		for (i = 0; i < amount; i++) {
			int k = me->rank ? i : (i + amount / 2) % amount;

			NCCL(ncclAllReduce(buf + k % places, out + 2 * k, k < amount / 2 ? 1 : 2,
					   ncclFloat, ncclSum, me->comms[k % nr], streams[k % nr]));
		}
		for (i = 0; i < nr; i++)
			if (client_wait(streams[i], &me->comms[i], 1))
				return -1;
		CUDA(cudaMemcpy(v, out, (size_t)amount * 2 * sizeof(*v), cudaMemcpyDeviceToHost));
		for (i = 0; i < 2 * amount; i++)
			EXPECT(v[i] == (i < amount && i % 2 ? 0 : (float)me->nr_ranks), "%d: %g", i,
			       v[i]);
	}
	for (i = 1; i < 4; i++)
		CUDA(cudaStreamDestroy(streams[i]));
	free(v);
	CUDA(cudaFree(out));
	return 0;
}

/*
 * This number of streams waits at the same time: each has a collective of a communicator of its
 * own, and a copy of the result. Rank 0 starts at one end, the others at the other.
 */
static int waiting(struct client_rank *me, cudaStream_t s, float *buf)
{
	ncclComm_t *c = calloc((size_t)amount, sizeof(*c));
	cudaStream_t *on = calloc((size_t)amount, sizeof(cudaStream_t));
	float *v = calloc((size_t)amount, sizeof(*v)), *out;
	int i, k;

	EXPECT(c && on && v, "memory");
	CUDA(cudaMalloc((void **)&out, (size_t)amount * 2 * sizeof(*out)));
	CUDA(client_clear(out, 0, (size_t)amount * 2 * sizeof(*out)));
	v[0] = 1;
	CUDA(client_upload(buf, v, sizeof(*v)));
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	for (i = 0; i < amount; i++) {
		CUDA(cudaStreamCreateWithFlags(&on[i], cudaStreamNonBlocking));
		NCCL(ncclCommSplit(me->comms[0], 0, me->rank, &c[i], NULL));
		if (sum(me, c[i], s, buf + 1))
			return -1;
	}
	for (i = 0; i < amount; i++) {
		k = me->rank ? amount - 1 - i : i;
		NCCL(ncclAllReduce(buf, out + k, 1, ncclFloat, ncclSum, c[k], on[k]));
		CUDA(cudaMemcpyAsync(out + amount + k, out + k, sizeof(*out),
				     cudaMemcpyDeviceToDevice, on[k]));
	}
	for (i = 0; i < amount; i++)
		if (client_wait(on[i], &c[i], 1))
			return -1;
	CUDA(cudaMemcpy(v, out + amount, (size_t)amount * sizeof(*v), cudaMemcpyDeviceToHost));
	for (i = 0; i < amount; i++) {
		EXPECT(v[i] == (float)me->nr_ranks, "%d: %g", i, v[i]);
		NCCL(ncclCommDestroy(c[i]));
		CUDA(cudaStreamDestroy(on[i]));
	}
	CUDA(cudaFree(out));
	free(v), free(on), free(c);
	return 0;
}

/* A collective, and a copy of its result, in a graph. */
static int captured(cudaStream_t s, ncclComm_t comm, const float *in, float *out,
		    cudaGraphExec_t *exec)
{
	cudaGraph_t graph;

	CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	NCCL(ncclAllReduce(in, out, 1, ncclFloat, ncclSum, comm, s));
	CUDA(cudaMemcpyAsync(out + amount, out, sizeof(*out), cudaMemcpyDeviceToDevice, s));
	CUDA(cudaStreamEndCapture(s, &graph));
	CUDA(cudaGraphInstantiate(exec, graph, 0));
	CUDA(cudaGraphDestroy(graph));
	return 0;
}

/*
 * As waiting(), but the others begin when rank 0 has enqueued all. Its streams wait for an event
 * behind one collective; or, for "replays", in graphs with a collective each.
 */
static int behind(struct client_rank *me, cudaStream_t s, float *buf)
{
	int i, nr = amount, graphs = !strcmp(wanted, "replays"), nr_comms = graphs ? nr : 1;
	cudaGraphExec_t *exec = calloc((size_t)nr, sizeof(cudaGraphExec_t));
	ncclComm_t *c = calloc((size_t)nr_comms, sizeof(*c));
	cudaStream_t *on = calloc((size_t)nr, sizeof(cudaStream_t));
	float *v = calloc((size_t)nr, sizeof(*v)), *out;
	cudaEvent_t e;

	EXPECT(c && on && v && exec, "memory");
	EXPECT(client_job.nr_procs == 1, "threads only");
	CUDA(cudaMalloc((void **)&out, (size_t)nr * 2 * sizeof(*out)));
	CUDA(client_clear(out, 0, (size_t)nr * 2 * sizeof(*out)));
	v[0] = 1;
	CUDA(client_upload(buf, v, sizeof(*v)));
	CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	for (i = 0; i < nr; i++)
		CUDA(cudaStreamCreateWithFlags(&on[i], cudaStreamNonBlocking));
	for (i = 0; i < nr_comms; i++) {
		NCCL(ncclCommSplit(me->comms[0], 0, me->rank, &c[i], NULL));
		if (sum(me, c[i], s, buf + 1) ||
		    (graphs && captured(on[i], c[i], buf, out + i, &exec[i])))
			return -1;
	}
	if (me->rank && client_barrier_wait(&client_ranks_barrier))
		return -1;
	/* Long enough for what only waits to leave the GPU. */
	if (me->rank)
		usleep(200000);
	if (!graphs) {
		NCCL(ncclAllReduce(buf, out, 1, ncclFloat, ncclSum, c[0], s));
		CUDA(cudaMemcpyAsync(out + 1, out, sizeof(*out), cudaMemcpyDeviceToDevice, s));
		CUDA(cudaEventRecord(e, s));
	}
	for (i = 0; i < nr; i++) {
		if (graphs) {
			CUDA(cudaGraphLaunch(exec[i], on[i]));
			continue;
		}
		CUDA(cudaStreamWaitEvent(on[i], e, 0));
		CUDA(cudaMemcpyAsync(out + nr + i, out + 1, sizeof(*out), cudaMemcpyDeviceToDevice,
				     on[i]));
	}
	if (!me->rank && client_barrier_wait(&client_ranks_barrier))
		return -1;
	for (i = 0; i < nr; i++)
		if (client_wait(on[i], &c[i % nr_comms], 1))
			return -1;
	CUDA(cudaMemcpy(v, out + nr, (size_t)nr * sizeof(*v), cudaMemcpyDeviceToHost));
	for (i = 0; i < nr; i++) {
		EXPECT(v[i] == (float)me->nr_ranks, "%d: %g", i, v[i]);
		if (graphs)
			CUDA(cudaGraphExecDestroy(exec[i]));
		CUDA(cudaStreamDestroy(on[i]));
	}
	for (i = 0; i < nr_comms; i++)
		NCCL(ncclCommDestroy(c[i]));
	CUDA(cudaEventDestroy(e));
	CUDA(cudaFree(out));
	free(v), free(on), free(c), free(exec);
	return 0;
}

static long resident_kb(void)
{
	long pages = 0, ignored;
	FILE *f = fopen("/proc/self/statm", "r");

	if (!f || fscanf(f, "%ld %ld", &ignored, &pages) != 2)
		pages = 0;
	if (f)
		fclose(f);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

typedef int (*many_step_fn)(struct client_rank *me, cudaStream_t s, float *buf, int i);

/* Checks that numbers that are stable after a third of the steps do not grow in the rest. */
static int steady(struct client_rank *me, cudaStream_t s, float *buf, many_step_fn step)
{
	int i, fds = 0, threads = 0, now_fds, now_threads;
	long kb = 0, now_kb;

	for (i = 0; i < amount; i++) {
		if (i == amount / 3 && !me->index) {
			fds = client_descriptors();
			threads = client_count("/proc/self/task");
			kb = resident_kb();
		}
		if (step(me, s, buf, i))
			return -1;
	}
	if (me->index)
		return 0;
	now_fds = client_descriptors();
	now_threads = client_count("/proc/self/task");
	now_kb = resident_kb();
	printf("many: %d %s: descriptors %d -> %d, threads %d -> %d, resident %ld -> %ld KiB\n",
	       amount, wanted, fds, now_fds, threads, now_threads, kb, now_kb);
	EXPECT(now_fds <= fds + 4, "descriptors grow: %d, then %d", fds, now_fds);
	EXPECT(now_threads <= threads, "threads grow: %d, then %d", threads, now_threads);
	EXPECT(now_kb - kb < 2048, "memory grows: %ld KiB, then %ld", kb, now_kb);
	return 0;
}

static int cycle(struct client_rank *me, cudaStream_t s, float *buf, int i)
{
	static ncclUniqueId id;
	ncclComm_t child;

	if (!me->index)
		NCCL(ncclGetUniqueId(&id));
	if (client_barrier_wait(&client_ranks_barrier))
		return -1;
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, id, me->rank));
	NCCL(ncclCommSplit(me->comms[0], 0, 0, &child, NULL));
	if (sum(me, me->comms[0], s, buf) || sum(me, child, s, buf))
		return -1;
	if (i % 3)
		NCCL(ncclCommDestroy(child));
	else
		NCCL(ncclCommAbort(child));
	NCCL(ncclCommDestroy(me->comms[0]));
	me->comms[0] = NULL;
	return client_barrier_wait(&client_ranks_barrier);
}

static int cycles(struct client_rank *me, cudaStream_t s, float *buf)
{
	EXPECT(client_job.nr_procs == 1, "threads only");
	return steady(me, s, buf, cycle);
}

static int one_split(struct client_rank *me, cudaStream_t s, float *buf, int i)
{
	ncclComm_t child;

	NCCL(ncclCommSplit(me->comms[0], i % 5, me->rank, &child, NULL));
	if (sum(me, child, s, buf))
		return -1;
	NCCL(ncclCommDestroy(child));
	return 0;
}

static int splits(struct client_rank *me, cudaStream_t s, float *buf)
{
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	return steady(me, s, buf, one_split);
}

static int operation(struct client_rank *me, cudaStream_t s, float *buf, int i)
{
	/* Kinds and sizes repeat, so each is registered once. */
	size_t count = (size_t)1 << i % 12;

	if (i % 100 == 99)
		return sum(me, me->comms[0], s, buf);
	if (i % 3)
		NCCL(ncclAllReduce(buf, buf, count, ncclFloat, ncclMax, me->comms[0], s));
	else
		NCCL(ncclBroadcast(buf, buf, count, ncclFloat, i % me->nr_ranks, me->comms[0], s));
	return 0;
}

static int operations(struct client_rank *me, cudaStream_t s, float *buf)
{
	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	return steady(me, s, buf, operation);
}

/*
 * Messages around the ranks, each with a size of its own, BURST at a time, as the tokens of a
 * mixture of experts. Some sizes are repeated much later.
 */
#define BURST 10

static int sizes(struct client_rank *me, cudaStream_t s, float *buf)
{
	int n = me->nr_ranks, to = (me->rank + 1) % n, from = (me->rank + n - 1) % n, i, k;
	size_t room = ((size_t)amount + 1) * 16, bytes;
	unsigned char *at[2], *v;

	(void)buf;
	v = malloc(room);
	EXPECT(v, "memory");
	NCCL(ncclCommInitRank(&me->comms[0], n, client_ids[0], me->rank));
	for (i = 0; i < 2; i++)
		CUDA(cudaMalloc((void **)&at[i], room));
	for (i = 0; i < amount; i++) {
		bytes = (size_t)(i % 7 == 6 ? i / 2 : i) * 16 + 16;
		if (i % BURST == 0) {
			memset(v, me->rank + i / BURST, room);
			CUDA(client_upload(at[0], v, room));
		}
		NCCL(ncclGroupStart());
		NCCL(ncclSend(at[0], bytes, ncclInt8, to, me->comms[0], s));
		NCCL(ncclRecv(at[1], bytes, ncclInt8, from, me->comms[0], s));
		NCCL(ncclGroupEnd());
		if (i % BURST != BURST - 1)
			continue;
		if (client_wait(s, &me->comms[0], 1))
			return -1;
		CUDA(cudaMemcpy(v, at[1], bytes, cudaMemcpyDeviceToHost));
		for (k = 0; k < (int)bytes; k++)
			EXPECT(v[k] == (unsigned char)(from + i / BURST), "%d: byte %d is %d", i, k,
			       v[k]);
		client_tick();
	}
	for (i = 0; i < 2; i++)
		CUDA(cudaFree(at[i]));
	free(v);
	return 0;
}

/* The address space is exhausted: calls fail with an error, or succeed. None hangs or crashes. */
static int memory(struct client_rank *me, cudaStream_t s, float *buf)
{
	struct rlimit old, tight;
	float *big = NULL;
	int i, failed = 0;
	long pages = 0;
	FILE *f;

	NCCL(ncclCommInitRank(&me->comms[0], me->nr_ranks, client_ids[0], me->rank));
	if (sum(me, me->comms[0], s, buf))
		return -1;
	CUDA(cudaMalloc((void **)&big, 64 << 20));
	if (client_barrier_wait(&client_ranks_barrier))
		return -1;
	getrlimit(RLIMIT_AS, &old);
	f = fopen("/proc/self/statm", "r");
	EXPECT(f && fscanf(f, "%ld", &pages) == 1, "statm");
	fclose(f);
	if (!me->index) {
		tight = old;
		tight.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (1 << 20);
		EXPECT(!setrlimit(RLIMIT_AS, &tight), "setrlimit");
	}
	if (client_barrier_wait(&client_ranks_barrier))
		return -1;
	for (i = 0; i < 200; i++) {
		ncclResult_t r = ncclAllReduce(big, big, 40000 + 40000 * (size_t)i, ncclFloat,
					       ncclSum, me->comms[0], s);

		if (r == ncclSuccess)
			continue;
		failed++;
		EXPECT(*ncclGetLastError(NULL), "no text for error %d", (int)r);
		break;
	}
	if (client_barrier_wait(&client_ranks_barrier))
		return -1;
	if (!me->index)
		setrlimit(RLIMIT_AS, &old);
	if (client_barrier_wait(&client_ranks_barrier))
		return -1;
	printf("many: rank %d: %d collectives, then %s\n", me->rank, i,
	       failed ? "an error" : "the end");
	/* Ranks may have stopped at different places, so the communicator can only be aborted. */
	NCCL(ncclCommAbort(me->comms[0]));
	me->comms[0] = NULL;
	CUDA(cudaStreamSynchronize(s));
	NCCL(ncclCommInitRank(&me->comms[1], me->nr_ranks, client_ids[1], me->rank));
	if (sum(me, me->comms[1], s, buf))
		return -1;
	CUDA(cudaFree(big));
	return 0;
}

/* Connects to every socket on which this process listens. Returns the number of connections. */
static int outsiders(int *fds, int max, uint64_t *seed)
{
	int fd, nr = 0, one, i;

	for (fd = 0; fd < 256 && nr < max; fd++) {
		struct sockaddr_storage addr;
		socklen_t len = sizeof(addr), one_len = sizeof(one);
		uint64_t junk[64];
		int peer;

		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &one, &one_len) || !one ||
		    getsockname(fd, (struct sockaddr *)&addr, &len))
			continue;
		if (addr.ss_family == AF_INET)
			((struct sockaddr_in *)&addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		if (addr.ss_family == AF_INET6)
			((struct sockaddr_in6 *)&addr)->sin6_addr = in6addr_loopback;
		peer = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (peer < 0)
			continue;
		if (connect(peer, (struct sockaddr *)&addr, len) && errno != EINPROGRESS) {
			close(peer);
			continue;
		}
		usleep(2000);
		for (i = 0; i < 64; i++)
			junk[i] = client_random(seed);
		/* Sends garbage, a part of it, text, or nothing. */
		switch (client_random(seed) % 4) {
		case 0:
			(void)!send(peer, junk, sizeof(junk), MSG_NOSIGNAL);
			break;
		case 1:
			(void)!send(peer, junk, 1 + client_random(seed) % 60, MSG_NOSIGNAL);
			break;
		case 2:
			(void)!send(peer, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
			break;
		default:
			break;
		}
		fds[nr++] = peer;
	}
	return nr;
}

static int garbage(struct client_rank *me, cudaStream_t s, float *buf)
{
	uint64_t seed = client_seed(client_seed_value, (uint64_t)me->rank, 7);
	int fds[200], nr = 0, i, k;

	/* Before and during the rendezvous, and while operations are in progress. */
	for (k = 0; k < CLIENT_IDS; k++) {
		if (nr < 150)
			nr += outsiders(fds + nr, 40, &seed);
		NCCL(ncclCommInitRank(&me->comms[k], me->nr_ranks, client_ids[k], me->rank));
		for (i = 0; i < 10; i++) {
			if (i == 5 && nr < 150)
				nr += outsiders(fds + nr, 40, &seed);
			if (sum(me, me->comms[k], s, buf))
				return -1;
		}
	}
	printf("many: rank %d: %d outsiders\n", me->rank, nr);
	if (!me->index)
		EXPECT(nr || client_job.proc, "nothing listens");
	while (nr)
		close(fds[--nr]);
	return sum(me, me->comms[0], s, buf);
}

static const struct {
	const char *name;
	int (*run)(struct client_rank *me, cudaStream_t s, float *buf);
} cases[] = {
	{"comms", comms},     {"outstanding", outstanding}, {"waiting", waiting},
	{"cycles", cycles},   {"splits", splits},	    {"memory", memory},
	{"garbage", garbage}, {"operations", operations},   {"sizes", sizes},
	{"behind", behind},   {"replays", behind},
};

static int run(struct client_rank *me)
{
	cudaStream_t s;
	unsigned c;
	float *buf;
	int i;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&buf, 1 << 20));
	for (c = 0; c < ARRAY_LEN(cases) && strcmp(wanted, cases[c].name); c++)
		;
	if (c == ARRAY_LEN(cases)) {
		client_fail(EXIT_USAGE, "no case '%s'", wanted);
		return -1;
	}
	if (cases[c].run(me, s, buf))
		return -1;
	for (i = 0; i < CLIENT_IDS; i++) {
		if (me->comms[i])
			NCCL(ncclCommDestroy(me->comms[i]));
		me->comms[i] = NULL;
	}
	CUDA(cudaFree(buf));
	CUDA(cudaStreamDestroy(s));
	return 0;
}

int main(int argc, char **argv)
{
	const char *text = getenv("MANY_AMOUNT");

	wanted = getenv("MANY_CASE");
	if (!wanted)
		wanted = "";
	amount = text ? atoi(text) : 1000;
	return client_main(
		argc, argv, 2, 1,
		"One case of much, named by MANY_CASE: comms, outstanding, waiting, cycles, "
		"splits, operations,\nsizes (MANY_AMOUNT of them), memory, garbage.",
		run);
}
