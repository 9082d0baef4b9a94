/*
 * Every collective of NCCL x type x operation x in and out of place x counts (0, 1, odd, large) x
 * aligned and unaligned buffers, compared with a plain reference on the CPU. Integers must be exact
 * (they wrap). Floating point results must be within the error of a sum in any order, and AllReduce
 * bit for bit equal on all ranks of the process. Bytes around the result must not change.
 */
#include "../client.h"
#include "types.h"

#include <getopt.h>

#define GUARD 256 /* bytes before and after each buffer */

enum coll {
	ALLREDUCE,
	REDUCE,
	REDUCESCATTER,
	BROADCAST,
	BCAST,
	ALLGATHER,
	ALLTOALL,
	GATHER,
	SCATTER,
	NR_COLLS
};
static const char *const coll_names[] = {"AllReduce", "Reduce", "ReduceScatter",
					 "Broadcast", "Bcast",	"AllGather",
					 "AlltoAll",  "Gather", "Scatter"};

enum op { SUM, PROD, MAX, MIN, AVG, PREMUL_HOST, PREMUL_DEVICE, NR_OPS };
static const char *const op_names[] = {"sum", "prod",	     "max",	     "min",
				       "avg", "premul-host", "premul-device"};

struct test {
	enum coll coll;
	const struct type_info *type;
	enum op op;
	int inplace, root;
	size_t count, offset; /* offset: buffers are moved by this number of elements */
};

static const size_t counts[] = {0, 1, 7, 1023, 33333};
static struct {
	int ranks, procs, verbose;
	long sample, largest;
	uint64_t seed;
	const char *only;
	double timeout;
} opt = {.seed = 1, .largest = 1L << 40};

static struct client_job job;
static struct test *tests;
static size_t nr_tests;
static ncclUniqueId id;
static struct client_barrier barrier;
static uint64_t *digests; /* hashes of AllReduce's result, by local rank */
static uint64_t nr_wrong;
/* the encodings of float_values in each floating point type */
static uint64_t encoded[NR_TYPES][ARRAY_LEN(float_values)];

struct rank {
	int index, rank, device;
	ncclComm_t comm;
	cudaStream_t stream;
	char *send, *recv;	 /* on the device */
	unsigned char *in, *out; /* on the host */
	void *scalar;		 /* on the device */
	pthread_t thread;
};

struct span {
	size_t from, to;
};

static size_t buf_bytes(void)
{
	size_t i, most = 0, b;

	for (i = 0; i < nr_tests; i++) {
		b = (tests[i].count * (size_t)job.nr_ranks + tests[i].offset) *
		    (size_t)tests[i].type->bytes;
		if (b > most)
			most = b;
	}
	return most + 2 * GUARD;
}

/* ---- the reference --------------------------------------------------------------------------- */

/* Returns the random bits that element i of the input is made from. */
static uint64_t draw(size_t nr, int rank, size_t i)
{
	uint64_t state = client_seed(opt.seed + nr, (uint64_t)rank, i);

	return client_random(&state);
}

static double input_float(size_t nr, int rank, size_t i)
{
	return float_values[draw(nr, rank, i) % ARRAY_LEN(float_values)];
}

static uint64_t input_bits(const struct test *t, size_t nr, int rank, size_t i)
{
	uint64_t x = draw(nr, rank, i);

	if (t->type->is_float)
		return encoded[t->type - type_infos][x % ARRAY_LEN(float_values)];
	if (t->op == AVG) /* the sum over all ranks must not wrap */
		x = t->type->is_signed ? (uint64_t)((int64_t)(x % 15) - 7) : x % 8;
	return t->type->bytes == 8 ? x : x & ((1ull << 8 * t->type->bytes) - 1);
}

static double scalar_float(void)
{
	return 0.5;
}

/* Returns 1 if `bits` is a valid result of reducing element i over all ranks. */
static int reduced_ok(const struct test *t, size_t nr, size_t i, uint64_t bits)
{
	const struct type_info *ty = t->type;
	double v, sum = 0, sum_abs = 0, prod = 1, max = -INFINITY, min = INFINITY, want, got, tol;
	uint64_t isum = 0, iprod = 1, b,
		 mask = ty->bytes == 8 ? ~0ull : (1ull << 8 * ty->bytes) - 1;
	int64_t imax = 0, imin = 0, x, avg;
	int r, n = job.nr_ranks;

	for (r = 0; r < n; r++) {
		if (ty->is_float) {
			v = input_float(nr, r, i);
			sum += v;
			sum_abs += fabs(v);
			prod *= v;
			max = v > max ? v : max;
			min = v < min ? v : min;
			continue;
		}
		b = input_bits(t, nr, r, i);
		x = type_integer(ty, b);
		isum += b;
		iprod *= b;
		if (ty->is_signed || ty->bytes < 8) {
			imax = !r || x > imax ? x : imax;
			imin = !r || x < imin ? x : imin;
		} else {
			imax = !r || b > (uint64_t)imax ? x : imax;
			imin = !r || b < (uint64_t)imin ? x : imin;
		}
	}
	if (!ty->is_float) {
		switch (t->op) {
		case SUM:
			return bits == (isum & mask);
		case PROD:
			return bits == (iprod & mask);
		case MAX:
			return bits == ((uint64_t)imax & mask);
		case MIN:
			return bits == ((uint64_t)imin & mask);
		case AVG:
			avg = type_integer(ty, isum & mask) / n;
			return bits == ((uint64_t)avg & mask);
		default:
			return bits == (isum * 3 & mask);
		}
	}
	got = type_decode(ty, bits);
	tol = type_epsilon(ty) * n * sum_abs;
	switch (t->op) {
	case SUM:
		want = sum;
		break;
	case PROD:
		want = prod;
		tol = type_epsilon(ty) * n * fabs(prod) +
		      ldexp(1, 2 - (1 << (ty->exp_bits - 1)) - ty->man_bits + 2);
		break;
	case MAX:
		return got == max;
	case MIN:
		return got == min;
	case AVG:
		want = sum / n;
		/* 1/n is rounded to the type before the multiplication. */
		tol = tol / n + type_epsilon(ty) * sum_abs / n +
		      n * ldexp(1, 2 - (1 << (ty->exp_bits - 1)) - ty->man_bits);
		break;
	default:
		want = sum * scalar_float();
		tol *= scalar_float();
		break;
	}
	if (isinf(want) || fabs(want) > 6e4)
		return 1; /* beyond the range of the smaller types */
	return fabs(got - want) <= tol;
}

/* Returns the number of elements of the result on this rank, or 0 if its buffer is not defined. */
static size_t result_count(const struct test *t, int rank)
{
	size_t nr = (size_t)job.nr_ranks;

	switch (t->coll) {
	case REDUCE:
		return rank == t->root ? t->count : 0;
	case GATHER:
		return rank == t->root ? t->count * nr : 0;
	case ALLGATHER:
	case ALLTOALL:
		return t->count * nr;
	default:
		return t->count;
	}
}

static int element_ok(const struct test *t, size_t nr, int rank, size_t i, uint64_t bits)
{
	size_t c = t->count;

	switch (t->coll) {
	case ALLREDUCE:
	case REDUCE:
		return reduced_ok(t, nr, i, bits);
	case REDUCESCATTER:
		return reduced_ok(t, nr, (size_t)rank * c + i, bits);
	case BROADCAST:
	case BCAST:
		return bits == input_bits(t, nr, t->root, i);
	case ALLGATHER:
	case GATHER:
		return bits == input_bits(t, nr, (int)(i / c), i % c);
	case ALLTOALL:
		return bits == input_bits(t, nr, (int)(i / c), (size_t)rank * c + i % c);
	default:
		return bits == input_bits(t, nr, t->root, (size_t)rank * c + i);
	}
}

static size_t input_count(const struct test *t)
{
	int whole = t->coll == REDUCESCATTER || t->coll == ALLTOALL || t->coll == SCATTER;

	return whole ? t->count * (size_t)job.nr_ranks : t->count;
}

/* ---- one call -------------------------------------------------------------------------------- */

static int redop(struct rank *me, const struct test *t, ncclRedOp_t *op)
{
	static const ncclRedOp_t builtin[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
	uint64_t bits = t->type->is_float ? type_encode(t->type, scalar_float()) : 3;

	if (t->op < PREMUL_HOST) {
		*op = builtin[t->op];
		return 0;
	}
	if (t->op == PREMUL_DEVICE)
		CUDA(client_upload(me->scalar, &bits, sizeof(bits)));
	NCCL(ncclRedOpCreatePreMulSum(
		op, t->op == PREMUL_DEVICE ? me->scalar : &bits, t->type->type,
		t->op == PREMUL_DEVICE ? ncclScalarDevice : ncclScalarHostImmediate, me->comm));
	return 0;
}

static int call(struct rank *me, const struct test *t, char *send, char *recv)
{
	ncclDataType_t ty = t->type->type;
	cudaStream_t s = me->stream;
	ncclComm_t c = me->comm;
	ncclRedOp_t op = ncclSum;
	int own = t->op >= PREMUL_HOST && t->coll <= REDUCESCATTER;

	if (t->coll <= REDUCESCATTER && redop(me, t, &op))
		return -1;
	switch (t->coll) {
	case ALLREDUCE:
		NCCL(ncclAllReduce(send, recv, t->count, ty, op, c, s));
		break;
	case REDUCE:
		NCCL(ncclReduce(send, recv, t->count, ty, op, t->root, c, s));
		break;
	case REDUCESCATTER:
		NCCL(ncclReduceScatter(send, recv, t->count, ty, op, c, s));
		break;
	case BROADCAST:
		NCCL(ncclBroadcast(send, recv, t->count, ty, t->root, c, s));
		break;
	case BCAST:
		NCCL(ncclBcast(recv, t->count, ty, t->root, c, s));
		break;
	case ALLGATHER:
		NCCL(ncclAllGather(send, recv, t->count, ty, c, s));
		break;
	case ALLTOALL:
		NCCL(ncclAlltoAll(send, recv, t->count, ty, c, s));
		break;
	case GATHER:
		NCCL(ncclGather(send, recv, t->count, ty, t->root, c, s));
		break;
	default:
		NCCL(ncclScatter(send, recv, t->count, ty, t->root, c, s));
		break;
	}
	if (own) /* permitted right after the call */
		NCCL(ncclRedOpDestroy(op, c));
	return 0;
}

/*
 * Sets the positions of input and output for an operation in place: one of them is a part of the
 * other.
 */
static void place(const struct test *t, int rank, char *base, char **send, char **recv)
{
	size_t part = (size_t)rank * t->count * (size_t)t->type->bytes;

	*send = *recv = base;
	switch (t->coll) {
	case REDUCESCATTER:
		*recv = base + part;
		break;
	case ALLGATHER:
		*send = base + part;
		break;
	case GATHER:
		if (rank == t->root)
			*send = base + part;
		break;
	case SCATTER:
		if (rank == t->root)
			*recv = base + part;
		break;
	default:
		break;
	}
}

static void wrong(struct rank *me, const struct test *t, const char *what, size_t i, uint64_t bits)
{
	if (__atomic_fetch_add(&nr_wrong, 1, __ATOMIC_RELAXED) < 10)
		fprintf(stderr,
			"collcheck: rank %d of %d, seed %llu: %s %s %s count %zu offset %zu %s "
			"root %d: element %zu is %#llx: %s\n",
			me->rank, job.nr_ranks, (unsigned long long)opt.seed, coll_names[t->coll],
			t->type->name, op_names[t->op], t->count, t->offset,
			t->inplace ? "in place" : "out of place", t->root, i,
			(unsigned long long)bits, what);
}

/*
 * Returns the index of the first byte in [from, to) that is not `fill`, or `to` if there is none.
 * Comparing neighbours by memcmp() is as fast as memory.
 */
static size_t first_other(const unsigned char *p, size_t from, size_t to, unsigned char fill)
{
	if (from >= to || (p[from] == fill && !memcmp(p + from, p + from + 1, to - from - 1)))
		return to;
	while (p[from] == fill)
		from++;
	return from;
}

/* Checks that all bytes of [0, bytes) outside both spans are `fill`. A span may be empty. */
static void check_outside(struct rank *me, const struct test *t, size_t bytes, unsigned char fill,
			  struct span a, struct span b)
{
	const struct span low = a.from < b.from ? a : b, high = a.from < b.from ? b : a,
			  between[] = {{0, low.from},
				       {low.to, high.from},
				       {low.to > high.to ? low.to : high.to, bytes}};
	size_t at;

	for (size_t i = 0; i < ARRAY_LEN(between); i++) {
		at = first_other(me->out, between[i].from, between[i].to, fill);
		if (at >= between[i].to)
			continue;
		wrong(me, t, "a byte outside the result was written", at, me->out[at]);
		return;
	}
}

static int run_test(struct rank *me, size_t nr, size_t bytes)
{
	const struct test *t = &tests[nr];
	size_t size = (size_t)t->type->bytes, shift = GUARD + t->offset * size, i, n, at;
	char *send = me->send + shift, *recv = me->recv + shift;
	unsigned char fill = (unsigned char)(0xa5 ^ nr);
	uint64_t bits, digest = 14695981039346656037ull;
	struct span result, input;
	int bcast = t->coll == BCAST;

	if (t->inplace || bcast)
		place(t, me->rank, recv, &send, &recv);
	memset(me->out, fill, bytes);
	CUDA(client_upload(me->recv, me->out, bytes));
	n = input_count(t);
	for (i = 0; i < n; i++) {
		bits = input_bits(t, nr, me->rank, i);
		memcpy(me->in + i * size, &bits, size);
	}
	/* In Bcast only the root's buffer is input. In Scatter only the root's input is read. */
	if (n && !(bcast && me->rank != t->root) && !(t->coll == SCATTER && me->rank != t->root))
		CUDA(client_upload(send, me->in, n * size));
	if (call(me, t, send, recv) || client_wait(me->stream, &me->comm, 1))
		return -1;
	CUDA(cudaMemcpy(me->out, me->recv, bytes, cudaMemcpyDeviceToHost));
	n = result_count(t, me->rank);
	at = (size_t)(recv - me->recv);
	for (i = 0; i < n; i++) {
		bits = type_bits(t->type, me->out + at + i * size);
		digest = (digest ^ bits) * 1099511628211ull;
		if (!element_ok(t, nr, me->rank, i, bits)) {
			wrong(me, t, "wrong", i, bits);
			break;
		}
	}
	result = input = (struct span){at, at + n * size};
	/* In place, the input belongs to the caller as well. */
	if (t->inplace || bcast) {
		input.from = (size_t)(send - me->recv);
		input.to = input.from + input_count(t) * size;
	}
	check_outside(me, t, bytes, fill, result, input);
	if (t->coll == ALLREDUCE) {
		digests[me->index] = digest;
		if (client_barrier_wait(&barrier))
			return -1;
		if (digests[0] != digest)
			wrong(me, t, "not the same bits as on the first rank", 0, digest);
		if (client_barrier_wait(&barrier))
			return -1;
	}
	return 0;
}

static int run_rank(struct rank *me)
{
	size_t bytes = buf_bytes(), i;

	CUDA(cudaSetDevice(me->device));
	CUDA(cudaStreamCreateWithFlags(&me->stream, cudaStreamNonBlocking));
	CUDA(cudaMalloc((void **)&me->send, bytes));
	CUDA(cudaMalloc((void **)&me->recv, bytes));
	CUDA(cudaMalloc(&me->scalar, 8));
	me->in = malloc(bytes);
	me->out = malloc(bytes);
	NCCL(ncclCommInitRank(&me->comm, job.nr_ranks, id, me->rank));
	for (i = 0; i < nr_tests; i++)
		if (run_test(me, i, bytes))
			return -1;
	NCCL(ncclCommDestroy(me->comm));
	CUDA(cudaFree(me->send));
	CUDA(cudaFree(me->recv));
	CUDA(cudaFree(me->scalar));
	CUDA(cudaStreamDestroy(me->stream));
	return 0;
}

static void *rank_thread(void *arg)
{
	struct rank *me = arg;

	if (run_rank(me) && me->comm)
		ncclCommAbort(me->comm);
	free(me->in);
	free(me->out);
	return NULL;
}

/* ---- choice of tests ------------------------------------------------------------------------- */

static void add(struct test t)
{
	if (opt.only && !strcasestr(coll_names[t.coll], opt.only))
		return;
	if ((long)t.count > opt.largest)
		return;
	tests = realloc(tests, (nr_tests + 1) * sizeof(*tests));
	tests[nr_tests++] = t;
}

static void plan(void)
{
	uint64_t state = opt.seed;
	int coll, type, op, inplace;
	size_t c, off, i, j;

	for (type = 0; type < NR_TYPES; type++)
		for (i = 0; type_infos[type].is_float && i < ARRAY_LEN(float_values); i++)
			encoded[type][i] = type_encode(&type_infos[type], float_values[i]);
	for (coll = 0; coll < NR_COLLS; coll++)
		for (type = 0; type < NR_TYPES; type++)
			for (op = 0; op < (coll <= REDUCESCATTER ? NR_OPS : 1); op++)
				for (inplace = 0; inplace < (coll == ALLTOALL ? 1 : 2); inplace++)
					for (c = 0; c < ARRAY_LEN(counts); c++)
						for (off = 0; off < 2; off++)
							add((struct test){
								(enum coll)coll, &type_infos[type],
								(enum op)op, inplace,
								(int)(client_random(&state) %
								      (uint64_t)job.nr_ranks),
								counts[c], off});
	if (opt.sample <= 0 || (size_t)opt.sample >= nr_tests)
		return;
	for (i = 0; i < (size_t)opt.sample; i++) {
		struct test t;

		j = i + client_random(&state) % (nr_tests - i);
		t = tests[i];
		tests[i] = tests[j];
		tests[j] = t;
	}
	nr_tests = (size_t)opt.sample;
}

static const char help[] =
	"usage: collcheck [--ranks N] [--procs N] [--sample N] [--seed N] [--only NAME] [--largest "
	"N]\n"
	"                 [--timeout S]\n\n"
	"Checks collectives x types x operations x places x counts against a reference on the "
	"host.\n"
	"  --sample N   a random choice of N cases instead of all\n"
	"  --only NAME  collectives whose name contains NAME\n"
	"  --largest N  no counts above N\n"
	"Exit status: 0 right, 1 wrong results, 2 usage, 3 NCCL or CUDA error, 4 no progress.\n";

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"ranks", 1, 0, 'r'},	{"procs", 1, 0, 'p'}, {"sample", 1, 0, 's'},
		{"seed", 1, 0, 'S'},	{"only", 1, 0, 'o'},  {"timeout", 1, 0, 't'},
		{"largest", 1, 0, 'l'}, {"help", 0, 0, 'h'},  {0, 0, 0, 0},
	};
	struct client_result result = {0};
	struct rank *ranks = NULL;
	double start;
	int o, i;

	while ((o = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		switch (o) {
		case 'r':
			opt.ranks = atoi(optarg);
			break;
		case 'p':
			opt.procs = atoi(optarg);
			break;
		case 's':
			opt.sample = atol(optarg);
			break;
		case 'S':
			opt.seed = strtoull(optarg, NULL, 0);
			break;
		case 'o':
			opt.only = optarg;
			break;
		case 'l':
			opt.largest = atol(optarg);
			break;
		case 't':
			opt.timeout = atof(optarg);
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			fputs(help, stderr);
			return EXIT_USAGE;
		}
	}
	if (!opt.ranks && !getenv("WORLD_SIZE") && !getenv("OMPI_COMM_WORLD_SIZE"))
		opt.ranks = opt.procs ? opt.procs : 4;
	client_timeout(opt.timeout);
	start = client_now();
	if (!client_job_open(&job, opt.ranks, opt.procs, argv)) {
		plan();
		ranks = calloc((size_t)job.nr_local_ranks, sizeof(*ranks));
		digests = calloc((size_t)job.nr_local_ranks, sizeof(*digests));
		client_barrier_init(&barrier, job.nr_local_ranks);
		if (!job.proc && ncclGetUniqueId(&id) != ncclSuccess)
			client_fail(EXIT_NCCL, "ncclGetUniqueId: %s", ncclGetLastError(NULL));
		client_broadcast(&job, &id, sizeof(id));
		for (i = 0; i < job.nr_local_ranks && !client_failed(); i++) {
			ranks[i].index = i;
			ranks[i].rank = job.first_rank + i;
			ranks[i].device = client_device(&job, i);
			pthread_create(&ranks[i].thread, NULL, rank_thread, &ranks[i]);
		}
		while (i-- > 0)
			pthread_join(ranks[i].thread, NULL);
	}
	free(ranks);
	free(digests);
	if (nr_wrong)
		client_fail(EXIT_WRONG, "wrong results");
	result.status = client_status;
	result.nr_wrong = nr_wrong;
	result.seconds = client_now() - start;
	memcpy(result.text, client_text, sizeof(result.text));
	if (job.peers ? client_collect(&job, &result) : 1)
		printf("collcheck: %s: %d ranks in %d process%s, %zu cases, seed %llu: %llu wrong, "
		       "%.2f s%s%s\n",
		       result.status ? "FAILED" : "OK", job.nr_ranks, job.nr_procs,
		       job.nr_procs > 1 ? "es" : "", nr_tests, (unsigned long long)opt.seed,
		       (unsigned long long)result.nr_wrong, result.seconds,
		       *result.text ? ": " : "", result.text);
	return result.status;
}
