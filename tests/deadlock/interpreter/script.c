/*
 * Executes scripts (script.h). It is a plain program of NCCL and the CUDA runtime and uses nothing
 * of dfshim. Each rank is a thread; with `procs` the ranks are distributed to several processes.
 * Each rank has a device, and its own streams, events, graphs and buffers. A file may hold several
 * programs; they are executed one after the other.
 *
 * Only steps that wait in the script wait in CUDA or NCCL. For this reason the end of a program
 * polls the streams and the communicators' asynchronous errors, and `hw` and `hbar` wait on a futex
 * in memory that the processes share.
 *
 * Prints "=== NAME" to standard error before a program, and "--- NAME
 * completes|hung|wrong|error|stands TEXT" after it. The exit status is the worst of all programs: 0
 * completes, 1 wrong data, 2 usage, 3 error of NCCL or CUDA (also when dfshim broke off a hang), 4
 * no progress. The process ends after --timeout seconds without progress. If all threads of a
 * program certainly wait for one another, the program is broken off after --still seconds, and the
 * next program follows.
 */
#define _GNU_SOURCE
#include "script_steps.h"

/* ---- a rank ---------------------------------------------------------------------------------- */

static void sizes(struct rank *me)
{
	struct script *s = me->s;
	int t, i;

	for (t = 0; t < s->nr_threads[me->rank]; t++)
		for (i = 0; i < s->threads[me->rank][t].nr; i++) {
			const struct sc_step *st = &s->threads[me->rank][t].v[i];
			size_t r = or_reads(s, st), w = or_writes(s, st, me->rank);

			if (st->in >= 0 && me->sizes[st->in] < r)
				me->sizes[st->in] = r;
			if (st->out >= 0 && me->sizes[st->out] < w)
				me->sizes[st->out] = w;
			if (st->out >= 0 && st->kind == SC_COLL && me->sizes[st->out] < st->count)
				me->sizes[st->out] = st->count;
		}
}

static int buffers(struct rank *me)
{
	struct script *s = me->s;
	uint32_t *host;
	size_t k, most = 1;
	int i;

	sizes(me);
	for (i = 0; i < s->buf.nr; i++)
		most = me->sizes[i] > most ? me->sizes[i] : most;
	host = malloc(most * 4);
	for (i = 0; i < s->buf.nr; i++) {
		if (!me->sizes[i])
			continue;
		for (k = 0; k < me->sizes[i]; k++)
			host[k] = or_init(me->rank, i, k);
		if (s->kinds[i]) {
			if (s->kinds[i] == SC_PINNED)
				CUDA(cudaHostAlloc((void **)&me->bufs[i], me->sizes[i] * 4, 0));
			else
				CUDA(cudaMallocManaged((void **)&me->bufs[i], me->sizes[i] * 4,
						       cudaMemAttachGlobal));
			memcpy(me->bufs[i], host, me->sizes[i] * 4);
		} else {
			CUDA(cudaMalloc((void **)&me->bufs[i], me->sizes[i] * 4));
			CUDA(client_upload(me->bufs[i], host, me->sizes[i] * 4));
		}
	}
	free(host);
	CUDA(cudaMalloc(&me->scratch[0], 4096));
	CUDA(cudaMalloc(&me->scratch[1], 4096));
	return 0;
}

/*
 * Exchanges a message between each pair of ranks that exchanges messages in the program, so that
 * NCCL connects them.
 */
static int connect_pairs(struct rank *me, int comm)
{
	const struct script *s = me->s;
	const struct sc_comm *c = &s->comms[comm];
	uint64_t to = 0, from = 0; /* sets of ranks */
	int r, t, i;

	for (r = 0; r < s->nr_ranks; r++)
		for (t = 0; t < s->nr_threads[r]; t++)
			for (i = 0; i < s->threads[r][t].nr; i++) {
				const struct sc_step *st = &s->threads[r][t].v[i];
				int sends = st->kind == SC_SEND, a = sends ? r : st->peer,
				    b = sends ? st->peer : r;

				if (st->comm == comm && st->kind == SC_COLL && st->coll == SC_A2A)
					to = from = c->members & ~(1ull << me->rank);
				if (st->comm != comm || (!sends && st->kind != SC_RECV) || a == b)
					continue;
				to |= a == me->rank ? 1ull << b : 0;
				from |= b == me->rank ? 1ull << a : 0;
			}
	if (!to && !from)
		return 0;
	NCCL(ncclGroupStart());
	for (r = 0; r < s->nr_ranks; r++) {
		if (to >> r & 1)
			NCCL(ncclSend(me->scratch[0], 1, ncclInt8, sc_comm_rank(c, r),
				      me->comms[comm], me->warm));
		if (from >> r & 1)
			NCCL(ncclRecv(me->scratch[1], 1, ncclInt8, sc_comm_rank(c, r),
				      me->comms[comm], me->warm));
	}
	NCCL(ncclGroupEnd());
	return 0;
}

static int uses_stream(const struct sc_step *st)
{
	switch (st->kind) {
	case SC_COLL:
	case SC_SEND:
	case SC_RECV:
	case SC_WORK:
	case SC_FN:
	case SC_STUCK:
	case SC_REC:
	case SC_WAIT:
	case SC_SSYNC:
	case SC_SPOLL:
	case SC_ANYPOLL:
	case SC_CAP:
	case SC_ENDCAP:
	case SC_LAUNCH:
		return 1;
	default:
		return 0;
	}
}

static int setup(struct rank *me)
{
	struct script *s = me->s;
	int i, t;

	if (!me->comms)
		me->comms = calloc((size_t)s->comm.nr + 1, sizeof(*me->comms));
	me->streams = calloc((size_t)s->stream.nr + 1, sizeof(*me->streams));
	me->events = calloc((size_t)s->event.nr + 1, sizeof(*me->events));
	me->graphs = calloc((size_t)s->graph.nr + 1, sizeof(*me->graphs));
	me->execs = calloc((size_t)s->graph.nr + 1, sizeof(*me->execs));
	me->bufs = calloc((size_t)s->buf.nr + 1, sizeof(*me->bufs));
	me->sizes = calloc((size_t)s->buf.nr + 1, sizeof(*me->sizes));
	CUDA(cudaSetDevice(me->device));
	for (t = 0; t < s->nr_threads[me->rank]; t++)
		for (i = 0; i < s->threads[me->rank][t].nr; i++) {
			const struct sc_step *st = &s->threads[me->rank][t].v[i];

			if (!uses_stream(st) || me->streams[st->stream])
				continue;
			if (!strcmp(s->stream.v[st->stream], "legacy")) {
				me->streams[st->stream] = cudaStreamLegacy;
				continue;
			}
			CUDA(cudaStreamCreateWithFlags(&me->streams[st->stream],
						       strncmp(s->stream.v[st->stream], "nb", 2)
							       ? cudaStreamDefault
							       : cudaStreamNonBlocking));
		}
	/*
	 * The script never measures times. Half of the events could, because that must make no
	 * difference.
	 */
	for (i = 0; i < s->event.nr; i++)
		CUDA(cudaEventCreateWithFlags(&me->events[i],
					      i % 2 || !strncmp(s->event.v[i], "timed", 5)
						      ? cudaEventDefault
						      : cudaEventDisableTiming));
	if (buffers(me))
		return -1;
	for (i = 0; i < s->comm.nr; i++)
		if (!s->comms[i].late && !me->comms[i] &&
		    sc_comm_rank(&s->comms[i], me->rank) >= 0 && comm_init(me, i, 1))
			return -1;
	/*
	 * Connects all ranks before the program starts, because the set-up must not block the
	 * program's steps.
	 */
	if (!s->cold) {
		CUDA(cudaStreamCreateWithFlags(&me->warm, cudaStreamNonBlocking));
		for (i = 0; i < s->comm.nr; i++) {
			if (!me->comms[i])
				continue;
			NCCL(ncclAllReduce(me->scratch[0], me->scratch[1], 1, ncclInt8, ncclMax,
					   me->comms[i], me->warm));
			if (connect_pairs(me, i) || poll_stream(me, me->warm))
				return -1;
		}
	}
	return 0;
}

/* Compares every buffer that the rank's steps write with the oracle's value. */
static int verify(struct rank *me)
{
	struct script *s = me->s;
	int b, t, i;

	for (b = 0; b < s->buf.nr; b++) {
		int thread = -1;
		size_t n = 0;
		uint32_t *host;
		cudaError_t err;

		for (t = 0; t < s->nr_threads[me->rank]; t++)
			for (i = 0; i < s->threads[me->rank][t].nr; i++) {
				const struct sc_step *st = &s->threads[me->rank][t].v[i];

				if (st->out == b && or_writes(s, st, me->rank)) {
					thread = t;
					n = or_writes(s, st, me->rank);
				}
			}
		if (thread < 0)
			continue;
		host = malloc(n * 4);
		err = cudaMemcpy(host, me->bufs[b], n * 4, cudaMemcpyDefault);
		if (err == cudaSuccess)
			compare(me, thread, s->threads[me->rank][thread].nr, b, host, n, "end");
		free(host);
		CUDA(err);
		if (client_failed())
			return -1;
	}
	return 0;
}

/*
 * Whether the rank's first thread has a collective on the communicator. Otherwise the rank has
 * nothing on it that could be stuck.
 */
static int takes_part(const struct rank *me, int comm)
{
	const struct sc_thread *t = &me->s->threads[me->rank][0];

	for (int i = 0; i < t->nr; i++)
		if (t->v[i].kind == SC_COLL && t->v[i].comm == comm)
			return 1;
	return 0;
}

/*
 * Called after dfshim has ended communicators. Each communicator of `after` must report an error,
 * and all streams must finish and accept new work. Prints the results. Waits without a limit: a
 * rank that does not get to the end makes no progress, which --timeout detects.
 */
static int aftermath(struct rank *me)
{
	struct script *s = me->s;
	ncclResult_t state;
	unsigned turns = 0;
	int i;

	for (i = 0; i < s->comm.nr; i++) {
		state = ncclSuccess;
		while (me->comms[i] && takes_part(me, i) && s->after >> i & 1 &&
		       state == ncclSuccess) {
			if (ncclCommGetAsyncError(me->comms[i], &state) != ncclSuccess)
				return -1;
			nap(&turns);
		}
		dprintf(2, "after: rank %d communicator %s %s\n", me->rank, s->comm.v[i],
			state == ncclRemoteError ? "ncclRemoteError" : ncclGetErrorString(state));
	}
	for (i = 0; i < s->stream.nr; i++) {
		if (!me->streams[i])
			continue;
		while (cudaStreamQuery(me->streams[i]) == cudaErrorNotReady)
			nap(&turns);
		if (cudaMemcpyAsync(me->scratch[1], me->scratch[0], 64, cudaMemcpyDeviceToDevice,
				    me->streams[i]) != cudaSuccess ||
		    cudaStreamSynchronize(me->streams[i]) != cudaSuccess)
			return -1;
		dprintf(2, "after: rank %d stream %s runs\n", me->rank, s->stream.v[i]);
	}
	return 0;
}

static int teardown(struct rank *me)
{
	struct script *s = me->s;
	int i, bad = client_failed() || me->gone || me->returned;

	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	if (bad && !me->gone && s->after)
		aftermath(me);
	for (i = 0; i < s->comm.nr; i++) {
		if (!me->comms[i])
			continue;
		if (bad)
			ncclCommAbort(me->comms[i]);
		else
			NCCL(ncclCommDestroy(me->comms[i]));
	}
	for (i = 0; i < s->graph.nr; i++) {
		if (me->execs[i])
			CUDA(cudaGraphExecDestroy(me->execs[i]));
		if (me->graphs[i])
			CUDA(cudaGraphDestroy(me->graphs[i]));
	}
	for (i = 0; i < s->stream.nr; i++)
		if (me->streams[i] > cudaStreamPerThread)
			CUDA(cudaStreamDestroy(me->streams[i]));
	if (me->warm)
		CUDA(cudaStreamDestroy(me->warm));
	if (me->far)
		CUDA(cudaStreamDestroy(me->far));
	for (i = 0; i < s->event.nr; i++)
		if (me->events[i])
			CUDA(cudaEventDestroy(me->events[i]));
	for (i = 0; i < s->buf.nr; i++)
		if (me->bufs[i])
			CUDA(s->kinds[i] == SC_PINNED ? cudaFreeHost(me->bufs[i])
						      : cudaFree(me->bufs[i]));
	for (i = 0; i < me->nr_pinned; i++)
		CUDA(cudaFreeHost(me->pinned[i]));
	if (me->registered)
		CUDA(cudaHostUnregister(me->registered));
	free(me->registered);
	CUDA(cudaFree(me->scratch[0]));
	CUDA(cudaFree(me->scratch[1]));
	free(me->comms);
	free(me->streams);
	free(me->events);
	free(me->graphs);
	free(me->execs);
	free(me->bufs);
	free(me->sizes);
	return 0;
}

/*
 * Whether all threads of the rank have ended and its streams have been polled until they were idle.
 */
static int through[SC_RANKS];

static void *run_rank(void *arg)
{
	struct rank *me = arg;
	struct script *s = me->s;
	struct thread_arg a[SC_THREADS];
	int t, i, ret = setup(me);

	if (!ret)
		ret = meet(me, 0, 1);
	for (t = 0; t < SC_THREADS; t++) {
		a[t].me = me;
		a[t].thread = t;
		a[t].started = 0;
	}
	me->args = a;
	between_init(&between[me->rank]);
	for (t = 1; !ret && t < s->nr_threads[me->rank]; t++)
		if (!(s->started[me->rank] >> t & 1))
			start_thread(me, t);
	if (!ret) {
		run_thread(&a[0]);
		for (t = 1; t < s->nr_threads[me->rank]; t++)
			if (a[t].started)
				pthread_join(a[t].id, NULL);
	}
	if (me->returned) {
		meet(me, 1, 0);
		meet(me, 2, 0);
		return NULL;
	}
	if (!me->gone) {
		for (i = 0; i < s->stream.nr && !failed(); i++)
			if (me->streams[i] && poll_stream(me, me->streams[i]))
				break;
	}
	__atomic_store_n(&through[me->rank], 1, __ATOMIC_SEQ_CST);
	/*
	 * No rank destroys its communicators before all ranks reach this line. A rank whose thread
	 * returned arrives without waiting.
	 */
	if (!meet(me, 1, 1) && !me->gone && !failed())
		verify(me);
	meet(me, 2, !failed());
	teardown(me);
	return NULL;
}

/* ---- standstill ------------------------------------------------------------------------------ */

static struct {
	pthread_mutex_t lock;
	const struct script *s; /* the program that runs, or NULL */
	double limit;
} still = {.lock = PTHREAD_MUTEX_INITIALIZER};

/*
 * Whether the program can make no progress: each thread waits for a flag that is not set, or has
 * ended; and a rank without a waiting thread is through. Only running threads set flags.
 * shared->turn shows that no flag was set during the check, so all observations were true at the
 * same time.
 */
static int stands_still(const struct script *s)
{
	uint32_t turn = __atomic_load_n(&shared->turn, __ATOMIC_SEQ_CST);
	int all = 0;

	for (int r = 0; r < s->nr_ranks; r++) {
		int waiting = 0;

		for (int t = 0; t < s->nr_threads[r]; t++) {
			int flag = __atomic_load_n(&waits_for[r][t], __ATOMIC_SEQ_CST);

			if (flag && !__atomic_load_n(&shared->flags[flag - 1], __ATOMIC_SEQ_CST))
				waiting++;
			else if (__atomic_load_n(&stands[r][t], __ATOMIC_RELAXED) <
				 s->threads[r][t].nr)
				return 0;
		}
		if (!waiting && !__atomic_load_n(&through[r], __ATOMIC_SEQ_CST))
			return 0;
		all += waiting;
	}
	return all && turn == __atomic_load_n(&shared->turn, __ATOMIC_SEQ_CST);
}

/*
 * Breaks off a program after its threads have waited for one another for the time `still.limit`.
 * Until then dfshim can report the hang.
 */
static void *watch_still(void *arg)
{
	struct timespec pause = {0, 20000000};
	double since = client_now();
	uint64_t seen = 0, now;

	(void)arg;
	for (;;) {
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&still.lock);
		now = __atomic_load_n(&client_progress, __ATOMIC_RELAXED);
		if (now != seen || !still.s || client_failed() || !stands_still(still.s)) {
			seen = now;
			since = client_now();
		} else if (client_now() - since > still.limit) {
			client_fail(EXIT_HANG, "every thread waits for another, or has ended");
			host_wake();
		}
		pthread_mutex_unlock(&still.lock);
	}
	return NULL;
}

static void now_runs(const struct script *s)
{
	pthread_mutex_lock(&still.lock);
	if (s) {
		memset(stands, 0, sizeof(stands));
		memset(waits_for, 0, sizeof(waits_for));
		memset(through, 0, sizeof(through));
	}
	still.s = s;
	pthread_mutex_unlock(&still.lock);
}

/*
 * Creates the communicators of all ranks of this process in one group, as a process with several
 * devices does.
 */
static int share_comms(struct rank *ranks)
{
	struct script *s = ranks->s;

	for (int i = 0; i < job.nr_local_ranks; i++)
		ranks[i].comms = calloc((size_t)s->comm.nr + 1, sizeof(*ranks[i].comms));
	for (int c = 0; c < s->comm.nr; c++) {
		NCCL(ncclGroupStart());
		for (int i = 0; i < job.nr_local_ranks; i++) {
			int rank = sc_comm_rank(&s->comms[c], ranks[i].rank);

			if (s->comms[c].late || rank < 0)
				continue;
			CUDA(cudaSetDevice(ranks[i].device));
			NCCL(ncclCommInitRank(&ranks[i].comms[c], s->comms[c].nr, ids[c], rank));
		}
		NCCL(ncclGroupEnd());
	}
	return 0;
}

static void run(struct script *s)
{
	struct rank *ranks = calloc((size_t)s->nr_ranks, sizeof(*ranks));
	struct oracle o;
	static const char *const words[] = {"completes", "wrong", "error", "hung", "stands"};
	int i, nr_devices = 0;

	dprintf(2, "=== %s\n", s->name);
	client_status = 0;
	client_text[0] = 0;
	over = 0;
	if (job.nr_procs == 1)
		memset(shared, 0, sizeof(*shared));
	now_runs(s);
	or_open(&o, s);
	if (cudaGetDeviceCount(&nr_devices) != cudaSuccess || !nr_devices)
		client_fail(EXIT_NCCL, "no CUDA device");
	ids = calloc((size_t)s->comm.nr + 1, sizeof(*ids));
	for (i = 0; i < s->comm.nr && !job.proc; i++)
		if (ncclGetUniqueId(&ids[i]) != ncclSuccess)
			client_fail(EXIT_NCCL, "ncclGetUniqueId: %s", ncclGetLastError(NULL));
	client_broadcast(&job, ids, (size_t)s->comm.nr * sizeof(*ids));
	for (i = 0; i < job.nr_local_ranks && !client_failed(); i++) {
		ranks[i].s = s;
		ranks[i].o = &o;
		ranks[i].rank = job.first_rank + i;
		ranks[i].device = ranks[i].rank % nr_devices;
	}
	if (s->shared && !client_failed())
		share_comms(ranks);
	for (i = 0; i < job.nr_local_ranks && !client_failed(); i++)
		pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
	while (i-- > 0)
		pthread_join(ranks[i].thread, NULL);
	for (i = 0; i < job.nr_local_ranks; i++)
		if (ranks[i].returned)
			teardown(&ranks[i]);
	failed();
	now_runs(NULL);
	or_close(&o);
	free(ids);
	free(ranks);
	if (client_status && job.nr_procs == 1)
		say_stands();
	dprintf(2, "--- %s %s %s\n", s->name, words[client_status > 4 ? 2 : client_status],
		client_text);
	if (client_status > max_status)
		max_status = client_status;
}

/* Maps the memory in which threads set flags for one another. Processes share it. */
static void share(void)
{
	const char *port = getenv("MASTER_PORT");
	unsigned turns = 0;
	char path[64];
	int fd = -1;

	if (job.nr_procs > 1) {
		snprintf(path, sizeof(path), "/dev/shm/script.%d.%s", (int)getuid(),
			 port ? port : "0");
		if (!job.proc) {
			unlink(path);
			fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
			if (fd >= 0 && ftruncate(fd, sizeof(*shared)))
				fd = -1;
		}
		client_broadcast(&job, &max_status, sizeof(max_status));
		if (job.proc)
			fd = open(path, O_RDWR);
		if (fd < 0) {
			perror(path);
			exit(EXIT_NCCL);
		}
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, fd, 0);
	if (shared == MAP_FAILED) {
		perror("mmap");
		exit(EXIT_NCCL);
	}
	if (fd < 0)
		return;
	close(fd);
	__atomic_add_fetch(&shared->arrived[3], 1, __ATOMIC_ACQ_REL);
	while (!job.proc &&
	       __atomic_load_n(&shared->arrived[3], __ATOMIC_ACQUIRE) < (uint32_t)job.nr_procs)
		nap(&turns);
	if (!job.proc)
		unlink(path);
}

int main(int argc, char **argv)
{
	struct script s;
	double timeout = 20;
	pthread_t watch;
	int ret, opened = 0, i;
	FILE *f;

	for (i = 1; i + 2 < argc; i += 2) {
		if (!strcmp(argv[i], "--timeout"))
			timeout = atof(argv[i + 1]);
		else if (!strcmp(argv[i], "--still"))
			still.limit = atof(argv[i + 1]);
		else
			break;
	}
	f = i + 1 == argc && strcmp(argv[i], "--help") ? fopen(argv[i], "r") : NULL;
	if (!f) {
		fprintf(stderr, "usage: script [--timeout SECONDS] [--still SECONDS] FILE\n");
		return EXIT_USAGE;
	}
	client_at_hang = say_stands;
	client_timeout(timeout);
	if (still.limit > 0 && !pthread_create(&watch, NULL, watch_still, NULL))
		pthread_detach(watch);
	while ((ret = sc_read(f, &s)) > 0) {
		if (s.procs && still.limit > 0) {
			fprintf(stderr, "%s: --still knows the threads of one process\n", s.name);
			return EXIT_USAGE;
		}
		if (!*s.name)
			snprintf(s.name, sizeof(s.name), "program");
		if (s.event.nr + s.flag.nr + s.bar.nr > NR_WORDS || (opened && s.procs)) {
			fprintf(stderr, "%s: too large, or a process each in a file of many\n",
				s.name);
			return EXIT_USAGE;
		}
		if (s.procs || !opened) {
			if (client_job_open(&job, s.nr_ranks, s.procs < 0 ? s.nr_ranks : s.procs,
					    argv)) {
				fprintf(stderr, "script: %s\n", client_text);
				return EXIT_NCCL;
			}
			share();
		}
		opened = 1;
		job.nr_ranks = s.nr_ranks;
		job.nr_local_ranks = s.nr_ranks / job.nr_procs;
		job.first_rank = job.proc * job.nr_local_ranks;
		__atomic_store_n(&first_stands, job.first_rank, __ATOMIC_RELAXED);
		__atomic_store_n(&nr_stand, job.nr_local_ranks, __ATOMIC_RELAXED);
		run(&s);
		sc_free(&s);
	}
	fclose(f);
	if (ret < 0) {
		fprintf(stderr, "script: %s\n", s.error);
		return EXIT_USAGE;
	}
	return max_status;
}
