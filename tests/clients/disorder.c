/*
 * The job that NCCL cannot finish: every rank issues the same collectives, each rank in its own
 * random order, which changes in every iteration (the DFCCL paper's first test; with --sync its
 * second). Every result of every rank is compared with the expected one. Inputs differ by rank,
 * iteration, collective and element, so that exchanged data are detected.
 *
 * Values are small integers, so sums in float are exact.
 */
#include "client.h"

#include <getopt.h>
#include <math.h>

/* ---- command line ---------------------------------------------------------------------------- */

static struct options {
	int warmup, ranks, colls, iters, comms, streams, ctas, procs, sync, inorder, mix, single,
		plain_wait, json;
	int no_check;
	const char *until;
	size_t min, max;
	uint64_t seed;
	double timeout;
} opt = {.ranks = 0,
	 .colls = 8,
	 .iters = 200,
	 .comms = 0,
	 .streams = 1,
	 .min = 256,
	 .max = 1048576,
	 .seed = 1};

static const char help[] =
	"usage: disorder [OPTIONS]\n\n"
	"Every rank issues the same collectives in an order of its own and checks every result.\n\n"
	"  --ranks N        NCCL ranks (default 8; 1 for each process when started by a launcher)\n"
	"  --colls N        collectives in one iteration (8)\n"
	"  --iters N        iterations (200)\n"
	"  --until FILE     end before that, after the iteration in which a rank sees this file\n"
	"  --min B --max B  smallest and largest buffer, in bytes (256, 1048576)\n"
	"  --seed N         of the orders (1)\n"
	"  --comms N        communicators (one for each collective)\n"
	"  --streams N      streams of one rank (1)\n"
	"  --ctas N         maxCTAs of each communicator, not with --single-thread (not set)\n"
	"  --sync[=N]       cudaDeviceSynchronize between the collectives: everywhere, or N times\n"
	"  --mix            all kinds of collectives instead of AllReduce alone\n"
	"  --inorder        the same order on all ranks: the control\n"
	"  --warmup         one iteration in the same order first, so that NCCL is connected\n"
	"  --procs N        processes; started here unless torchrun, mpirun or dfshim run did it\n"
	"  --single-thread  one thread for all ranks: ncclCommInitAll and groups\n"
	"  --wait poll|sync how the host waits: as PyTorch does (poll), or cudaStreamSynchronize\n"
	"  --timeout S      give up after S seconds without progress (exit 4)\n"
	"  --no-check       do not compare results\n"
	"  --json           the summary as JSON\n\n"
	"Exit status: 0 right, 1 wrong results, 2 wrong usage, 3 NCCL or CUDA error, 4 no "
	"progress.\n";

static long number(const char *name, const char *text, long min, long max)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(text, &end, 10);
	if (errno || end == text || *end || v < min || v > max) {
		fprintf(stderr, "disorder: --%s %s: a number from %ld to %ld is needed\n", name,
			text, min, max);
		exit(EXIT_USAGE);
	}
	return v;
}

static void parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{"ranks", 1, 0, 'r'},	 {"colls", 1, 0, 'c'},
		{"iters", 1, 0, 'i'},	 {"min", 1, 0, 'm'},
		{"max", 1, 0, 'M'},	 {"seed", 1, 0, 's'},
		{"comms", 1, 0, 'C'},	 {"streams", 1, 0, 'S'},
		{"sync", 2, 0, 'y'},	 {"procs", 1, 0, 'p'},
		{"inorder", 0, 0, 'o'},	 {"warmup", 0, 0, 'u'},
		{"mix", 0, 0, 'x'},	 {"wait", 1, 0, 'w'},
		{"timeout", 1, 0, 't'},	 {"single-thread", 0, 0, '1'},
		{"json", 0, 0, 'j'},	 {"help", 0, 0, 'h'},
		{"no-check", 0, 0, 'n'}, {"ctas", 1, 0, 'b'},
		{"until", 1, 0, 'U'},	 {0, 0, 0, 0},
	};
	int o, i = 0;

	while ((o = getopt_long(argc, argv, "h", longs, &i)) != -1) {
		const char *name = o == '?' ? "" : longs[i].name;

		switch (o) {
		case 'r':
			opt.ranks = (int)number(name, optarg, 1, 4096);
			break;
		case 'c':
			opt.colls = (int)number(name, optarg, 1, 100000);
			break;
		case 'i':
			opt.iters = (int)number(name, optarg, 1, 1000000000);
			break;
		case 'm':
			opt.min = (size_t)number(name, optarg, 4, 1L << 40);
			break;
		case 'M':
			opt.max = (size_t)number(name, optarg, 4, 1L << 40);
			break;
		case 's':
			opt.seed = (uint64_t)number(name, optarg, 0, LONG_MAX);
			break;
		case 'C':
			opt.comms = (int)number(name, optarg, 1, 100000);
			break;
		case 'S':
			opt.streams = (int)number(name, optarg, 1, 100000);
			break;
		case 'b':
			opt.ctas = (int)number(name, optarg, 1, INT_MAX);
			break;
		case 'y':
			opt.sync = optarg ? (int)number(name, optarg, 0, 100000) : 100000;
			break;
		case 'p':
			opt.procs = (int)number(name, optarg, 1, 1024);
			break;
		case 't':
			opt.timeout = (double)number(name, optarg, 1, 1000000);
			break;
		case 'o':
			opt.inorder = 1;
			break;
		case 'u':
			opt.warmup = 1;
			break;
		case 'x':
			opt.mix = 1;
			break;
		case '1':
			opt.single = 1;
			break;
		case 'j':
			opt.json = 1;
			break;
		case 'n':
			opt.no_check = 1;
			break;
		case 'U':
			opt.until = optarg;
			break;
		case 'w':
			opt.plain_wait = !strcmp(optarg, "sync");
			if (!opt.plain_wait && strcmp(optarg, "poll")) {
				fprintf(stderr, "disorder: --wait %s: poll or sync is needed\n",
					optarg);
				exit(EXIT_USAGE);
			}
			break;
		case 'h':
			fputs(help, stdout);
			exit(0);
		default:
			fputs("Try 'disorder --help'.\n", stderr);
			exit(EXIT_USAGE);
		}
	}
	if (optind < argc) {
		fprintf(stderr, "disorder: unknown argument '%s'\n", argv[optind]);
		exit(EXIT_USAGE);
	}
	if (opt.max < opt.min)
		opt.max = opt.min;
	if (!opt.comms || opt.comms > opt.colls)
		opt.comms = opt.colls;
	if (!opt.ranks && !getenv("WORLD_SIZE") && !getenv("OMPI_COMM_WORLD_SIZE"))
		opt.ranks = 8;
}

enum kind { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, NR_KINDS };

struct coll {
	enum kind kind;
	size_t count;		 /* the count argument of the call */
	size_t nr_send, nr_recv; /* numbers of elements of the buffers */
	int root, comm, stream;
};

struct rank {
	int rank, device;
	ncclComm_t *comms;
	cudaStream_t *streams;
	float **send, **recv; /* for each collective, on the device */
	/* on the device: whether this rank sees the file, whether any rank does */
	float *until;
	float *host;
	int *order;
	unsigned char *sync_after;
	int nr_iters;
	uint64_t nr_wrong, nr_done; /* numbers of wrong elements, of finished collectives */
	pthread_t thread;
};

static struct client_job job;
static struct coll *colls;
static struct rank *ranks; /* of this process */
static ncclUniqueId *ids;
static struct client_barrier barrier;
static double seconds;

/* ---- data ------------------------------------------------------------------------------------ */

static float base_value(int rank, int iter, int coll)
{
	return (float)(client_seed(opt.seed, (uint64_t)rank << 32 | (uint32_t)iter,
				   (uint64_t)coll) &
		       1023);
}

/* Element i of the input is base + i % 1024. */
static void fill(float *p, size_t n, float base)
{
	size_t i;

	for (i = 0; i < n; i++)
		p[i] = base + (float)(i & 1023);
}

/* Counts the elements that differ from base + scale * ((first + i) % 1024). */
static uint64_t count_wrong(const float *p, size_t n, size_t first, float base, float scale)
{
	uint64_t wrong = 0;
	size_t i;

	for (i = 0; i < n; i++)
		wrong += p[i] != base + scale * (float)((first + i) & 1023);
	return wrong;
}

static uint64_t check(const struct rank *me, const struct coll *c, const float *out, int iter)
{
	int nr = job.nr_ranks, id = (int)(c - colls), r;
	uint64_t wrong = 0;
	float sum = 0;

	for (r = 0; r < nr; r++)
		sum += base_value(r, iter, id);
	switch (c->kind) {
	case ALL_REDUCE:
		return count_wrong(out, c->count, 0, sum, (float)nr);
	case REDUCE:
		return me->rank == c->root ? count_wrong(out, c->count, 0, sum, (float)nr) : 0;
	case BROADCAST:
		return count_wrong(out, c->count, 0, base_value(c->root, iter, id), 1);
	case ALL_GATHER:
		for (r = 0; r < nr; r++)
			wrong += count_wrong(out + (size_t)r * c->count, c->count, 0,
					     base_value(r, iter, id), 1);
		return wrong;
	default:
		return count_wrong(out, c->count, (size_t)me->rank * c->count, sum, (float)nr);
	}
}

static void plan_colls(void)
{
	double ratio = (double)opt.max / (double)opt.min;
	int i;

	colls = calloc((size_t)opt.colls, sizeof(*colls));
	for (i = 0; i < opt.colls; i++) {
		struct coll *c = &colls[i];
		double at = opt.colls > 1 ? (double)i / (opt.colls - 1) : 0;
		size_t n = (size_t)((double)opt.min * pow(ratio, at) + 0.5) / sizeof(float);
		size_t nr = (size_t)job.nr_ranks;

		c->kind = opt.mix ? (enum kind)(i % NR_KINDS) : ALL_REDUCE;
		c->count = n ? n : 1;
		c->root = i % job.nr_ranks;
		c->comm = i % opt.comms;
		c->stream = i % opt.streams;
		if (c->kind == ALL_GATHER || c->kind == REDUCE_SCATTER)
			c->count = (c->count + nr - 1) / nr;
		c->nr_send = c->kind == REDUCE_SCATTER ? c->count * nr : c->count;
		c->nr_recv = c->kind == ALL_GATHER ? c->count * nr : c->count;
	}
}

/* ---- one rank -------------------------------------------------------------------------------- */

static int setup(struct rank *me)
{
	size_t largest = 0;
	int i;

	me->streams = calloc((size_t)opt.streams, sizeof(*me->streams));
	me->send = calloc((size_t)opt.colls, sizeof(*me->send));
	me->recv = calloc((size_t)opt.colls, sizeof(*me->recv));
	me->order = calloc((size_t)opt.colls, sizeof(*me->order));
	me->sync_after = calloc((size_t)opt.colls, 1);
	CUDA(cudaSetDevice(me->device));
	for (i = 0; i < opt.streams; i++)
		CUDA(cudaStreamCreateWithFlags(&me->streams[i], cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&me->until, 2 * sizeof(*me->until)));
	for (i = 0; i < opt.colls; i++) {
		CUDA(cudaMalloc((void **)&me->send[i], colls[i].nr_send * sizeof(float)));
		CUDA(cudaMalloc((void **)&me->recv[i], colls[i].nr_recv * sizeof(float)));
		if (colls[i].nr_send > largest)
			largest = colls[i].nr_send;
		if (colls[i].nr_recv > largest)
			largest = colls[i].nr_recv;
	}
	me->host = malloc(largest * sizeof(float));
	return 0;
}

static int same_order(int iter)
{
	return opt.inorder || (opt.warmup && !iter);
}

static int load(struct rank *me, int iter)
{
	uint64_t state = client_seed(opt.seed, same_order(iter) ? 0 : (uint64_t)me->rank + 1,
				     (uint64_t)iter);
	int i, left;

	for (i = 0; i < opt.colls; i++) {
		if (!opt.no_check || !iter) {
			fill(me->host, colls[i].nr_send, base_value(me->rank, iter, i));
			CUDA(client_upload(me->send[i], me->host,
					   colls[i].nr_send * sizeof(float)));
			CUDA(client_clear(me->recv[i], 0xff, colls[i].nr_recv * sizeof(float)));
		}
		me->order[i] = i;
		me->sync_after[i] = 0;
	}
	client_shuffle(me->order, opt.colls, &state);
	left = opt.warmup && !iter ? 0 : opt.sync < opt.colls - 1 ? opt.sync : opt.colls - 1;
	while (left > 0) {
		i = (int)(client_random(&state) % (uint64_t)(opt.colls - 1));
		left -= !me->sync_after[i];
		me->sync_after[i] = 1;
	}
	return 0;
}

static int issue(struct rank *me, int id)
{
	const struct coll *c = &colls[id];
	ncclComm_t comm = me->comms[c->comm];
	cudaStream_t stream = me->streams[c->stream];

	switch (c->kind) {
	case ALL_REDUCE:
		NCCL(ncclAllReduce(me->send[id], me->recv[id], c->count, ncclFloat, ncclSum, comm,
				   stream));
		break;
	case BROADCAST:
		NCCL(ncclBroadcast(me->send[id], me->recv[id], c->count, ncclFloat, c->root, comm,
				   stream));
		break;
	case REDUCE:
		NCCL(ncclReduce(me->send[id], me->recv[id], c->count, ncclFloat, ncclSum, c->root,
				comm, stream));
		break;
	case ALL_GATHER:
		NCCL(ncclAllGather(me->send[id], me->recv[id], c->count, ncclFloat, comm, stream));
		break;
	default:
		NCCL(ncclReduceScatter(me->send[id], me->recv[id], c->count, ncclFloat, ncclSum,
				       comm, stream));
	}
	return 0;
}

static int wait_streams(struct rank *me)
{
	int i;

	for (i = 0; i < opt.streams; i++) {
		if (opt.plain_wait)
			CUDA(cudaStreamSynchronize(me->streams[i]));
		else if (client_wait(me->streams[i], me->comms, opt.comms))
			return -1;
	}
	client_tick();
	return client_async_error(me->comms, opt.comms);
}

static int device_sync(struct rank *me)
{
	CUDA(cudaDeviceSynchronize());
	client_tick();
	return client_async_error(me->comms, opt.comms);
}

static int verify(struct rank *me, int iter)
{
	uint64_t wrong;
	int i;

	for (i = 0; i < opt.colls && !opt.no_check; i++) {
		CUDA(cudaMemcpy(me->host, me->recv[i], colls[i].nr_recv * sizeof(float),
				cudaMemcpyDeviceToHost));
		wrong = check(me, &colls[i], me->host, iter);
		if (wrong && !me->nr_wrong)
			fprintf(stderr,
				"disorder: rank %d iteration %d collective %d (kind %d, %zu "
				"elements): %llu wrong\n",
				me->rank, iter, i, (int)colls[i].kind, colls[i].count,
				(unsigned long long)wrong);
		me->nr_wrong += wrong;
	}
	me->nr_done += (uint64_t)opt.colls;
	return 0;
}

/*
 * Agrees on the end, so that all ranks end after the same iteration. Returns 1 if this was the last
 * one, 0 if not, -1 on a failure.
 */
static int is_last(struct rank *me)
{
	if (!opt.until)
		return 0;
	*me->host = access(opt.until, F_OK) == 0;
	CUDA(client_upload(me->until, me->host, sizeof(float)));
	NCCL(ncclAllReduce(me->until, me->until + 1, 1, ncclFloat, ncclMax, me->comms[0],
			   me->streams[0]));
	if (wait_streams(me))
		return -1;
	CUDA(cudaMemcpy(me->host, me->until + 1, sizeof(float), cudaMemcpyDeviceToHost));
	return *me->host != 0;
}

static int teardown(struct rank *me)
{
	int i;

	if (client_failed()) {
		/* The abort ends operations that are stuck in these communicators. */
		for (i = 0; i < opt.comms; i++)
			if (me->comms[i])
				ncclCommAbort(me->comms[i]);
		return -1;
	}
	for (i = 0; i < opt.comms; i++)
		NCCL(ncclCommDestroy(me->comms[i]));
	for (i = 0; i < opt.colls; i++) {
		CUDA(cudaFree(me->send[i]));
		CUDA(cudaFree(me->recv[i]));
	}
	CUDA(cudaFree(me->until));
	for (i = 0; i < opt.streams; i++)
		CUDA(cudaStreamDestroy(me->streams[i]));
	return 0;
}

static int run_rank(struct rank *me)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	int iter, k, i, last = 0;

	if (setup(me))
		return -1;
	if (opt.ctas)
		config.maxCTAs = opt.ctas;
	for (i = 0; i < opt.comms; i++)
		NCCL(ncclCommInitRankConfig(&me->comms[i], job.nr_ranks, ids[i], me->rank,
					    &config));
	client_tick();
	if (client_barrier_wait(&barrier))
		return -1;
	for (iter = 0; iter < opt.iters && !last; iter++) {
		if (load(me, iter))
			return -1;
		for (k = 0; k < opt.colls; k++) {
			if (issue(me, me->order[k]))
				return -1;
			if (me->sync_after[k] && device_sync(me))
				return -1;
		}
		if (wait_streams(me) || verify(me, iter))
			return -1;
		last = is_last(me);
		if (last < 0)
			return -1;
		me->nr_iters++;
	}
	return 0;
}

static void *rank_thread(void *arg)
{
	struct rank *me = arg;

	run_rank(me);
	teardown(me);
	return NULL;
}

/* One thread issues the operations of all ranks: those of each step in one group. */
static int run_single(void)
{
	int nr = job.nr_local_ranks, iter, k, i, r;
	ncclComm_t *tmp = calloc((size_t)nr, sizeof(*tmp));
	int *devices = calloc((size_t)nr, sizeof(*devices));

	for (r = 0; r < nr; r++) {
		devices[r] = ranks[r].device;
		if (setup(&ranks[r]))
			return -1;
	}
	for (i = 0; i < opt.comms; i++) {
		NCCL(ncclCommInitAll(tmp, nr, devices));
		for (r = 0; r < nr; r++)
			ranks[r].comms[i] = tmp[r];
	}
	free(tmp);
	free(devices);
	for (iter = 0; iter < opt.iters; iter++) {
		for (r = 0; r < nr; r++) {
			CUDA(cudaSetDevice(ranks[r].device));
			if (load(&ranks[r], iter))
				return -1;
		}
		for (k = 0; k < opt.colls; k++) {
			NCCL(ncclGroupStart());
			for (r = 0; r < nr; r++)
				if (issue(&ranks[r], ranks[r].order[k]))
					return -1;
			NCCL(ncclGroupEnd());
			for (r = 0; r < nr; r++) {
				if (!ranks[r].sync_after[k])
					continue;
				CUDA(cudaSetDevice(ranks[r].device));
				if (device_sync(&ranks[r]))
					return -1;
			}
		}
		for (r = 0; r < nr; r++) {
			CUDA(cudaSetDevice(ranks[r].device));
			if (wait_streams(&ranks[r]) || verify(&ranks[r], iter))
				return -1;
		}
	}
	return 0;
}

static int run_all(void)
{
	double start;
	int i;

	ranks = calloc((size_t)job.nr_local_ranks, sizeof(*ranks));
	ids = calloc((size_t)opt.comms, sizeof(*ids));
	client_barrier_init(&barrier, job.nr_local_ranks);
	for (i = 0; i < job.nr_local_ranks; i++) {
		ranks[i].rank = job.first_rank + i;
		ranks[i].device = client_device(&job, i);
		if (ranks[i].device < 0)
			return -1;
		ranks[i].comms = calloc((size_t)opt.comms, sizeof(ncclComm_t));
	}
	for (i = 0; i < opt.comms && !job.proc && !opt.single; i++)
		if (ncclGetUniqueId(&ids[i]) != ncclSuccess) {
			client_fail(EXIT_NCCL, "ncclGetUniqueId: %s", ncclGetLastError(NULL));
			/* The other processes must not wait for this one. */
			for (i = 1; i < job.nr_procs; i++)
				shutdown(job.peers[i], SHUT_RDWR);
			return -1;
		}
	if (client_broadcast(&job, ids, (size_t)opt.comms * sizeof(*ids)))
		return -1;
	start = client_now();
	if (opt.single) {
		run_single();
		for (i = 0; i < job.nr_local_ranks; i++)
			teardown(&ranks[i]);
	} else {
		for (i = 0; i < job.nr_local_ranks; i++)
			if (pthread_create(&ranks[i].thread, NULL, rank_thread, &ranks[i])) {
				fprintf(stderr, "disorder: no thread for rank %d\n", i);
				_exit(EXIT_NCCL);
			}
		for (i = 0; i < job.nr_local_ranks; i++)
			pthread_join(ranks[i].thread, NULL);
	}
	seconds = client_now() - start;
	return client_failed() ? -1 : 0;
}

/* ---- summary --------------------------------------------------------------------------------- */

static void summary(const struct client_result *r)
{
	static const char *const words[] = {"OK", "WRONG", "USAGE", "ERROR", "HANG"};
	const char *word = words[r->status > 4 ? 3 : r->status];
	const char *order = opt.inorder ? "equal" : "random";
	int nr_iters = opt.until && ranks ? ranks->nr_iters : opt.iters;
	long done = (long)opt.colls * nr_iters;
	char text[sizeof(r->text)];
	size_t i;

	snprintf(text, sizeof(text), "%s", r->text);
	for (i = 0; text[i]; i++)
		if (text[i] == '"' || text[i] == '\\' || (unsigned char)text[i] < 0x20)
			text[i] = '\'';
	if (opt.json)
		printf("{\"client\":\"disorder\",\"result\":\"%s\",\"ranks\":%d,\"processes\":%d,"
		       "\"collectives\":%ld,\"comms\":%d,\"streams\":%d,\"sync\":%d,"
		       "\"order\":\"%s\",\"seed\":%llu,\"done\":%llu,\"wrong\":%llu,\"seconds\":%."
		       "6f,\"error\":"
		       "\"%s\"}\n",
		       word, job.nr_ranks, job.nr_procs, done, opt.comms, opt.streams,
		       opt.sync != 0, order, (unsigned long long)opt.seed,
		       (unsigned long long)r->nr_done, (unsigned long long)r->nr_wrong, r->seconds,
		       text);
	else
		printf("disorder: %s: %d ranks in %d process%s, %d collectives x %d iterations, %d "
		       "communicators, %d stream%s%s, %s order, seed %llu: %llu of %llu done, %llu "
		       "wrong values, %.3f s%s%s\n",
		       word, job.nr_ranks, job.nr_procs, job.nr_procs > 1 ? "es" : "", opt.colls,
		       nr_iters, opt.comms, opt.streams, opt.streams > 1 ? "s" : "",
		       opt.sync ? ", device synchronisation" : "", order,
		       (unsigned long long)opt.seed, (unsigned long long)r->nr_done,
		       (unsigned long long)done * (unsigned)job.nr_ranks,
		       (unsigned long long)r->nr_wrong, r->seconds, *text ? ": " : "", text);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct client_result result = {0};
	int i;

	parse(argc, argv);
	client_timeout(opt.timeout);
	if (!client_job_open(&job, opt.ranks, opt.procs, argv)) {
		if (opt.single && job.nr_procs > 1) {
			fprintf(stderr, "disorder: --single-thread is for one process\n");
			return EXIT_USAGE;
		}
		if (opt.single && opt.until) {
			fprintf(stderr, "disorder: --until is for a thread for each rank\n");
			return EXIT_USAGE;
		}
		plan_colls();
		run_all();
	}
	result.seconds = seconds;
	for (i = 0; ranks && i < job.nr_local_ranks; i++) {
		result.nr_wrong += ranks[i].nr_wrong;
		result.nr_done += ranks[i].nr_done;
	}
	if (result.nr_wrong)
		client_fail(EXIT_WRONG, "wrong results");
	result.status = client_status;
	memcpy(result.text, client_text, sizeof(result.text));
	if (job.peers ? client_collect(&job, &result) : 1)
		summary(&result);
	return result.status;
}
