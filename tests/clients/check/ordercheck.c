/*
 * Stream order, by random programs. Every rank executes the same random program on a few streams
 * (of every kind, on two devices), communicators and events: collectives, copies, fills, host
 * functions, graphs, memory that is allocated and freed in between, all on random ranges of the
 * same small memory, and synchronisations of every kind. The generator knows from CUDA's rules and
 * NCCL's which step happens before which, and adds events where there would be a race. So executing
 * the program step by step is the reference, and every value that the program reads must be the
 * reference's. Ranks pause at random places. Neighbouring collectives that are independent are
 * exchanged at random.
 *
 * ORDER_PROGRAMS: number of programs (60). ORDER_KEEP=1: no exchanges. ORDER_ONLY=K: only program
 * K, which is printed. ORDER_OPS=N: only its first N operations.
 */
#include "order_make.h"

static int nr_programs = 60, keep, only = -1, max_ops = MAX_OPS;

/* ---- execution ------------------------------------------------------------------------------- */

struct call {
	uint64_t *p, value;
	int n;
};

struct me {
	struct client_rank *rank;
	int device, second;
	cudaStream_t streams[NR_STREAMS], capture;
	cudaEvent_t events[NR_EVENTS];
	ncclComm_t comms[3];
	uint64_t *base[3];
	struct call calls[MAX_STEPS];
};

static uint64_t *at(struct me *me, struct range r)
{
	return me->base[r.at / CELLS] + r.at % CELLS;
}

static void host_function(void *arg)
{
	const struct call *c = arg;
	int i;

	for (i = 0; i < c->n; i++)
		c->p[i] = function(c->p[i], c->value);
}

static void callback(cudaStream_t stream, cudaError_t status, void *arg)
{
	(void)stream;
	(void)status;
	host_function(arg);
}

static int coll(struct me *me, const struct step *s)
{
	uint64_t *src = at(me, s->src), *dst = at(me, s->dst);
	cudaStream_t stream = me->streams[s->stream];
	ncclComm_t comm = me->comms[s->comm];
	int size = comm_size(s->comm, me->rank->nr_ranks);
	int mine = s->comm < 2 ? me->rank->rank : me->rank->rank / 2;
	size_t n = (size_t)s->src.n;

	switch (s->kind) {
	case ALL_REDUCE:
		NCCL(ncclAllReduce(src, dst, n, ncclUint64, ncclSum, comm, stream));
		break;
	case BROADCAST:
		NCCL(ncclBroadcast(src, dst, n, ncclUint64, s->root, comm, stream));
		break;
	case REDUCE:
		NCCL(ncclReduce(src, dst, n, ncclUint64, ncclSum, s->root, comm, stream));
		break;
	case ALL_GATHER:
		NCCL(ncclAllGather(src, dst, n, ncclUint64, comm, stream));
		break;
	case REDUCE_SCATTER:
		NCCL(ncclReduceScatter(src, dst, (size_t)s->dst.n, ncclUint64, ncclSum, comm,
				       stream));
		break;
	case ALL_TO_ALL:
		NCCL(ncclAlltoAll(src, dst, n / (size_t)size, ncclUint64, comm, stream));
		break;
	default:
		NCCL(ncclGroupStart());
		NCCL(ncclSend(src, n, ncclUint64, (mine + 1) % size, comm, stream));
		NCCL(ncclRecv(dst, n, ncclUint64, (mine + size - 1) % size, comm, stream));
		NCCL(ncclGroupEnd());
	}
	return 0;
}

/* The memory is freed while the work that uses it is in flight. */
static int temp(struct me *me, const struct step *s)
{
	cudaStream_t stream = me->streams[s->stream];
	size_t bytes = (size_t)s->src.n * sizeof(uint64_t);
	uint64_t *t;

	if (s->form % 3 == 0)
		CUDA(cudaMallocAsync((void **)&t, bytes, stream));
	else if (s->form % 3 == 1)
		CUDA(cudaMalloc((void **)&t, bytes));
	else
		CUDA(cudaMallocHost((void **)&t, bytes));
	CUDA(cudaMemcpyAsync(t, at(me, s->src), bytes, cudaMemcpyDefault, stream));
	if (s->form < 6) {
		NCCL(ncclAllReduce(t, at(me, s->dst), (size_t)s->src.n, ncclUint64, ncclSum,
				   me->comms[s->comm], stream));
	} else {
		NCCL(ncclAllReduce(t, t, (size_t)s->src.n, ncclUint64, ncclSum, me->comms[s->comm],
				   stream));
		CUDA(cudaMemcpyAsync(at(me, s->dst), t, bytes, cudaMemcpyDefault, stream));
	}
	if (s->form % 3 == 0)
		CUDA(cudaFreeAsync(t, stream));
	else if (s->form % 3 == 1)
		CUDA(cudaFree(t));
	else
		CUDA(cudaFreeHost(t));
	return 0;
}

static int graph(struct me *me, const struct step *s)
{
	size_t n = (size_t)s->src.n;
	cudaGraphExec_t exec;
	cudaGraph_t g;
	int i;

	CUDA(cudaStreamBeginCapture(me->capture, cudaStreamCaptureModeThreadLocal));
	CUDA(cudaMemcpyAsync(at(me, s->dst), at(me, s->src), n * sizeof(uint64_t),
			     cudaMemcpyDeviceToDevice, me->capture));
	NCCL(ncclAllReduce(at(me, s->dst), at(me, s->dst), n, ncclUint64, ncclSum,
			   me->comms[s->comm], me->capture));
	NCCL(ncclAllReduce(at(me, s->dst), at(me, s->dst2), n, ncclUint64, ncclSum,
			   me->comms[s->comm], me->capture));
	CUDA(cudaStreamEndCapture(me->capture, &g));
	CUDA(cudaGraphInstantiate(&exec, g, 0));
	if (s->form & 4)
		CUDA(cudaGraphDestroy(g));
	for (i = 0; i <= s->form % 2; i++)
		CUDA(cudaGraphLaunch(exec, me->streams[s->stream]));
	CUDA(cudaGraphExecDestroy(exec));
	if (!(s->form & 4))
		CUDA(cudaGraphDestroy(g));
	return 0;
}

static int copy(struct me *me, const struct step *s)
{
	uint64_t *src = at(me, s->src), *dst = at(me, s->dst);
	cudaStream_t stream = me->streams[s->stream];
	size_t bytes = (size_t)s->src.n * sizeof(uint64_t);
	struct cudaMemcpy3DParms p = {0};

	switch (s->form % 4) {
	case 0:
		CUDA(cudaMemcpy2DAsync(dst, 8, src, 8, 8, (size_t)s->src.n, cudaMemcpyDefault,
				       stream));
		break;
	case 1:
		p.srcPtr = (struct cudaPitchedPtr){src, bytes, bytes, 1};
		p.dstPtr = (struct cudaPitchedPtr){dst, bytes, bytes, 1};
		p.extent = (struct cudaExtent){bytes, 1, 1};
		p.kind = cudaMemcpyDefault;
		CUDA(cudaMemcpy3DAsync(&p, stream));
		break;
	case 2:
		if (s->src.at / CELLS != 1 && s->dst.at / CELLS != 1) {
			CUDA(cudaMemcpyPeerAsync(dst, s->dst.at < CELLS ? me->device : me->second,
						 src, s->src.at < CELLS ? me->device : me->second,
						 bytes, stream));
			break;
		}
		/* fallthrough */
	default:
		CUDA(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
	}
	return 0;
}

static int poll_stream(cudaStream_t s)
{
	cudaError_t err;

	while ((err = cudaStreamQuery(s)) == cudaErrorNotReady) {
		if (client_failed())
			return -1;
		sched_yield();
	}
	CUDA(err);
	return 0;
}

static int poll_event(cudaEvent_t e)
{
	cudaError_t err;

	while ((err = cudaEventQuery(e)) == cudaErrorNotReady) {
		if (client_failed())
			return -1;
		sched_yield();
	}
	CUDA(err);
	return 0;
}

static int look(struct me *me, const struct plan *p, const struct step *s, int program, int nr)
{
	uint64_t got[MAX_RUN];
	size_t bytes = (size_t)s->src.n * sizeof(uint64_t);
	int i;

	if (s->form == 1)
		memcpy(got, at(me, s->src), bytes);
	else if (s->form == 2)
		CUDA(cudaMemcpyAsync(got, at(me, s->src), bytes, cudaMemcpyDefault,
				     me->streams[s->stream]));
	else
		CUDA(cudaMemcpy(got, at(me, s->src), bytes, cudaMemcpyDefault));
	for (i = 0; i < s->src.n; i++)
		EXPECT(got[i] == p->expect[s->expect + i],
		       "program %d step %d rank %d: cell %d is %llx, not %llx", program, nr,
		       p->rank, s->src.at + i, (unsigned long long)got[i],
		       (unsigned long long)p->expect[s->expect + i]);
	return 0;
}

static int act(struct me *me, const struct plan *p, const struct step *s, int program, int nr)
{
	cudaStream_t stream = me->streams[s->stream];
	struct call *c = &me->calls[nr];

	/* The default streams belong to the current device. */
	CUDA(cudaSetDevice(s->stream < NR_OWN && s->event < NR_OWN_EV ? me->device : me->second));
	switch (s->what) {
	case COLL:
		return member(s->comm, p->rank) ? coll(me, s) : 0;
	case PAIR:
		NCCL(ncclGroupStart());
		NCCL(ncclAllReduce(at(me, s->src), at(me, s->dst), (size_t)s->src.n, ncclUint64,
				   ncclSum, me->comms[s->comm], stream));
		NCCL(ncclAllReduce(at(me, s->src2), at(me, s->dst2), (size_t)s->src2.n, ncclUint64,
				   ncclSum, me->comms[s->comm], me->streams[s->stream2]));
		NCCL(ncclGroupEnd());
		return 0;
	case TEMP:
		return temp(me, s);
	case GRAPH:
		return graph(me, s);
	case COPY:
		return copy(me, s);
	case FILL:
		if (s->form % 2)
			CUDA(cudaMemsetAsync(at(me, s->dst), (int)s->value,
					     (size_t)s->dst.n * sizeof(uint64_t), stream));
		else
			CUDA(cudaMemset2DAsync(at(me, s->dst), 8, (int)s->value, 8,
					       (size_t)s->dst.n, stream));
		return 0;
	case HOSTFN:
		*c = (struct call){at(me, s->dst), s->value, s->dst.n};
		if (s->form % 2)
			CUDA(cudaLaunchHostFunc(stream, host_function, c));
		else
			CUDA(cudaStreamAddCallback(stream, callback, c, 0));
		return 0;
	case RECORD:
		CUDA(cudaSetDevice(s->stream < NR_OWN ? me->device : me->second));
		CUDA(cudaEventRecord(me->events[s->event], stream));
		return 0;
	case WAIT:
		CUDA(cudaSetDevice(s->stream < NR_OWN ? me->device : me->second));
		CUDA(cudaStreamWaitEvent(stream, me->events[s->event], 0));
		return 0;
	case SYNC_STREAM:
		if (s->form)
			return poll_stream(stream);
		CUDA(cudaStreamSynchronize(stream));
		return 0;
	case SYNC_EVENT:
		if (s->form)
			return poll_event(me->events[s->event]);
		CUDA(cudaEventSynchronize(me->events[s->event]));
		return 0;
	case SYNC_DEVICE:
		CUDA(cudaSetDevice(s->form ? me->second : me->device));
		CUDA(cudaDeviceSynchronize());
		return 0;
	default:
		return look(me, p, s, program, nr);
	}
}

static int one_program(struct me *me, struct plan *p, int program)
{
	uint64_t own, cells[NR_CELLS];
	int i;

	memset(p, 0, sizeof(*p));
	p->rank = me->rank->rank;
	p->nr_ranks = me->rank->nr_ranks;
	p->rng = client_seed(client_seed_value, (uint64_t)program, 0);
	p->loose = program % 2;
	own = client_seed(client_seed_value, (uint64_t)program, (uint64_t)p->rank + 1);
	for (i = 0; i < NR_CELLS; i++)
		cells[i] = client_seed(client_seed_value, (uint64_t)p->rank, (uint64_t)i);
	i = 20 + rnd(p, MAX_OPS - 60);
	make(p, i < max_ops ? i : max_ops);
	if (only >= 0 && !p->rank)
		print(p);
	if (!keep)
		disorder(p, &own);
	for (i = 0; i < 3; i++)
		CUDA(cudaMemcpy(me->base[i], cells + i * CELLS, CELLS * sizeof(uint64_t),
				cudaMemcpyDefault));
	for (i = 0; i < p->nr_steps; i++) {
		if (client_random(&own) % 8 == 0)
			usleep((useconds_t)(client_random(&own) % 300));
		if (act(me, p, &p->steps[i], program, i))
			return -1;
	}
	for (i = 0; i < 2; i++) {
		CUDA(cudaSetDevice(i ? me->device : me->second));
		CUDA(cudaDeviceSynchronize());
	}
	if (client_async_error(me->comms, member(2, p->rank) ? 3 : 2))
		return -1;
	for (i = 0; i < 3; i++)
		CUDA(cudaMemcpy(cells + i * CELLS, me->base[i], CELLS * sizeof(uint64_t),
				cudaMemcpyDefault));
	for (i = 0; i < NR_CELLS && only >= 0; i++)
		if (cells[i] != p->mem[p->rank][i])
			fprintf(stderr, "rank %d: cell %d is wrong\n", p->rank, i);
	for (i = 0; i < NR_CELLS; i++)
		EXPECT(cells[i] == p->mem[p->rank][i],
		       "program %d rank %d at the end: cell %d is %llx, not %llx", program, p->rank,
		       i, (unsigned long long)cells[i], (unsigned long long)p->mem[p->rank][i]);
	client_tick();
	return 0;
}

static int run(struct client_rank *rank)
{
	struct me *me = calloc(1, sizeof(*me));
	struct plan *p = calloc(1, sizeof(*p));
	int i, nr;

	EXPECT(me && p && rank->nr_ranks <= MAX_RANKS, "set-up");
	me->rank = rank;
	me->device = rank->device;
	CUDA(cudaGetDeviceCount(&nr));
	me->second = (rank->device + client_job.nr_local_ranks) % nr;
	/*
	 * If the second device were another rank's, the default streams of both ranks would wait
	 * for each other.
	 */
	EXPECT(nr >= 2 * client_job.nr_local_ranks, "%d devices", nr);
	for (i = 0; i < NR_STREAMS; i++) {
		CUDA(cudaSetDevice(i < NR_OWN ? me->device : me->second));
		if (i == 1)
			CUDA(cudaStreamCreateWithPriority(&me->streams[i], cudaStreamNonBlocking,
							  -3));
		else if (i == 2 || i == 3 || i == 7)
			CUDA(cudaStreamCreate(&me->streams[i]));
		else if (i == 0 || i == 6)
			CUDA(cudaStreamCreateWithFlags(&me->streams[i], cudaStreamNonBlocking));
		else if (i == 5)
			me->streams[i] = cudaStreamPerThread;
		else
			me->streams[i] = i == LEGACY ? NULL : cudaStreamLegacy;
	}
	for (i = 0; i < NR_EVENTS; i++) {
		CUDA(cudaSetDevice(i < NR_OWN_EV ? me->device : me->second));
		CUDA(cudaEventCreateWithFlags(&me->events[i],
					      (i % 3 ? cudaEventDisableTiming : 0) |
						      (i % 2 ? cudaEventBlockingSync : 0)));
	}
	CUDA(cudaMalloc((void **)&me->base[2], CELLS * sizeof(uint64_t)));
	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&me->capture, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&me->base[0], CELLS * sizeof(uint64_t)));
	CUDA(cudaMallocHost((void **)&me->base[1], CELLS * sizeof(uint64_t)));
	for (i = 0; i < 2; i++) {
		NCCL(ncclCommInitRank(&rank->comms[i], rank->nr_ranks, client_ids[i], rank->rank));
		me->comms[i] = rank->comms[i];
	}
	NCCL(ncclCommSplit(rank->comms[0], member(2, rank->rank) ? 0 : NCCL_SPLIT_NOCOLOR,
			   rank->rank, &rank->comms[2], NULL));
	me->comms[2] = rank->comms[2];
	for (i = 0; i < nr_programs; i++)
		if ((only < 0 || i == only) && one_program(me, p, i)) {
			/* The others may wait for this rank in a call that never returns. */
			fprintf(stderr, "ordercheck: FAILED: seed %llu: %s\n",
				(unsigned long long)client_seed_value, client_text);
			_exit(client_status);
		}
	for (i = 0; i < NR_STREAMS; i++)
		if (me->streams[i] > cudaStreamPerThread)
			CUDA(cudaStreamDestroy(me->streams[i]));
	CUDA(cudaStreamDestroy(me->capture));
	for (i = 0; i < NR_EVENTS; i++)
		CUDA(cudaEventDestroy(me->events[i]));
	for (i = 2; i >= 0; i--)
		if (rank->comms[i]) {
			NCCL(ncclCommDestroy(rank->comms[i]));
			rank->comms[i] = NULL;
		}
	CUDA(cudaFree(me->base[0]));
	CUDA(cudaFreeHost(me->base[1]));
	CUDA(cudaFree(me->base[2]));
	free(me);
	free(p);
	return 0;
}

static int number(const char *name, int fallback)
{
	const char *text = getenv(name);

	return text ? atoi(text) : fallback;
}

int main(int argc, char **argv)
{
	nr_programs = number("ORDER_PROGRAMS", nr_programs);
	keep = number("ORDER_KEEP", keep);
	only = number("ORDER_ONLY", only);
	max_ops = number("ORDER_OPS", max_ops);
	if (only >= nr_programs)
		nr_programs = only + 1;
	return client_main(
		argc, argv, 3, 1,
		"Random programs of streams, events, collectives and other work, against a "
		"sequential reference.",
		run);
}
