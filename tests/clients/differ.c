/*
 * Two processes, with a rank in each, that differ in one call. Each calls cudaDeviceSynchronize
 * after every operation. Unless a library ends it, each process exits with status 0, even if
 * operations are unfinished:
 *
 *   count, type, op, kind, root
 *               the first operation differs in this
 *   last        the last of four operations has another count on rank 1, as a short last batch
 *   known       both counts were used before in the same order; then they are used in opposite
 *               orders, and rank 0 leaves out the second
 *   random SEED several operations on several communicators, in a different order on each rank.
 *               One of them differs on one rank, or is left out, unless SEED is a multiple of 4
 *
 * Prints the statuses of the two processes. Exits with 0 if both are 0 and the values that were
 * read are right.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#define COMMS 3
#define OPS   6
#define MOST  256

#define MUST(call)                                                                                 \
	do {                                                                                       \
		int err = (int)(call);                                                             \
		if (err) {                                                                         \
			fprintf(stderr, "%s: %d\n", #call, err);                                   \
			_exit(2);                                                                  \
		}                                                                                  \
	} while (0)

enum kind { ALLREDUCE, BROADCAST, ALLGATHER };

struct op {
	enum kind kind;
	int comm, count, root;
	ncclDataType_t type;
	ncclRedOp_t op;
};

static int rank;
static ncclComm_t comms[COMMS];
static cudaStream_t streams[COMMS];
static int *in, *out;

static void issue(const struct op *o, int *to)
{
	switch (o->kind) {
	case ALLREDUCE:
		MUST(ncclAllReduce(in, to, (size_t)o->count, o->type, o->op, comms[o->comm],
				   streams[o->comm]));
		break;
	case BROADCAST:
		MUST(ncclBroadcast(in, to, (size_t)o->count, o->type, o->root, comms[o->comm],
				   streams[o->comm]));
		break;
	case ALLGATHER:
		MUST(ncclAllGather(in, to, (size_t)o->count, o->type, comms[o->comm],
				   streams[o->comm]));
	}
}

static void run(const struct op *o)
{
	issue(o, out);
	MUST(cudaDeviceSynchronize());
}

/* Returns an operation that differs between the ranks in `what`. */
static struct op differing(const char *what)
{
	struct op o = {ALLREDUCE, 0, 100, 0, ncclInt, ncclSum};
	int other = rank == 1;

	if (!strcmp(what, "count"))
		o.count += other;
	else if (!strcmp(what, "type"))
		o.type = other ? ncclFloat : ncclInt;
	else if (!strcmp(what, "op"))
		o.op = other ? ncclMax : ncclSum;
	else if (!strcmp(what, "kind"))
		o.kind = other ? ALLGATHER : ALLREDUCE;
	else if (!strcmp(what, "root"))
		o = (struct op){BROADCAST, 0, 100, other, ncclInt, ncclSum};
	else
		_exit(3);
	return o;
}

static unsigned long state;

static int rnd(int n)
{
	state = state * 6364136223846793005ul + 1442695040888963407ul;
	return (int)((state >> 33) % (unsigned)n);
}

/*
 * Changes an operation on one rank. Both ranks derive the rank and the place from the seed. Returns
 * 1 if the operation must be left out.
 */
static int mutate(struct op *o)
{
	/*
	 * A broadcast is not left out: its root may finish before the other rank leaves it out, and
	 * then nothing hangs.
	 */
	switch (rnd(o->kind == BROADCAST ? 4 : 5)) {
	case 0:
		o->count += 1;
		return 0;
	case 1:
		/*
		 * An operation that only moves bytes does so with any type, so it becomes an
		 * AllReduce.
		 */
		o->kind = ALLREDUCE;
		o->type = ncclFloat;
		return 0;
	case 2:
		o->op = ncclMin;
		o->kind = ALLREDUCE;
		o->count += 2;
		return 0;
	case 3:
		o->kind = o->kind == ALLGATHER ? ALLREDUCE : ALLGATHER;
		return 0;
	default:
		return 1;
	}
}

/* Checks the result. After a released synchronisation, this copy must wait for it. */
static void look(const struct op *o, const int *at)
{
	int host[2 * MOST];

	MUST(cudaMemcpy(host, at, sizeof(int) * (size_t)o->count, cudaMemcpyDeviceToHost));
	for (int i = 0; i < o->count; i++) {
		int want = o->kind == ALLREDUCE ? 3 : o->kind == BROADCAST ? o->root + 1 : 1;

		if (host[i] != want) {
			fprintf(stderr, "rank %d: %d instead of %d\n", rank, host[i], want);
			_exit(1);
		}
	}
}

static void random_program(unsigned long seed)
{
	int nr = 2 + (int)(seed % (OPS - 1)), who, where, drop = 0, sure = seed % 4 == 0,
	    order[OPS];
	struct op ops[OPS];

	state = seed * 0x9e3779b97f4a7c15ul + 1;
	for (int i = 0; i < nr; i++)
		ops[i] = (struct op){(enum kind)rnd(3), rnd(COMMS), 1 + rnd(100), rnd(2),
				     ncclInt,		ncclSum};
	/* Neighbouring operations have different counts. */
	for (int i = 0; i < nr; i++)
		ops[i].count += 100 * (i % 2) + i;
	who = rnd(2);
	where = rnd(nr);
	if (!sure) {
		struct op changed = ops[where];

		drop = mutate(&changed);
		if (who == rank)
			ops[where] = changed;
	}
	for (int i = 0; i < nr; i++)
		order[i] = i;
	/* Only operations of different communicators are exchanged. */
	state += (unsigned long)rank;
	for (int k = 0; k < 8; k++) {
		int i = rnd(nr - 1), t = order[i];

		if (ops[t].comm == ops[order[i + 1]].comm)
			continue;
		order[i] = order[i + 1];
		order[i + 1] = t;
	}
	for (int i = 0; i < nr; i++) {
		int at = order[i];

		if (drop && who == rank && at == where)
			continue;
		issue(&ops[at], out + at * 2 * MOST);
		MUST(cudaDeviceSynchronize());
	}
	for (int i = 0; i < nr && sure; i++)
		look(&ops[i], out + i * 2 * MOST);
}

static void known(void)
{
	const struct op o[2] = {{ALLREDUCE, 0, 100, 0, ncclInt, ncclSum},
				{ALLREDUCE, 0, 200, 0, ncclInt, ncclSum}};

	run(&o[0]);
	run(&o[1]);
	run(&o[rank]);
	if (rank)
		run(&o[0]);
}

static void program(const char *what, unsigned long seed)
{
	struct op o;

	if (!strcmp(what, "random")) {
		random_program(seed);
	} else if (!strcmp(what, "known")) {
		known();
	} else if (!strcmp(what, "last")) {
		o = (struct op){ALLREDUCE, 0, 100, 0, ncclInt, ncclSum};
		for (int i = 0; i < 3; i++)
			run(&o);
		o.count = rank ? 60 : 100;
		run(&o);
	} else {
		o = differing(what);
		run(&o);
	}
}

int main(int argc, char **argv)
{
	int ids[2], host[MOST], status[2];
	ncclUniqueId id[COMMS];
	pid_t pids[2];

	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: differ count|type|op|kind|root|last|known|random [SEED]\n");
		return 1;
	}
	/* Forks before any other call: the parent uses neither CUDA nor NCCL. */
	MUST(pipe(ids));
	for (rank = 0; rank < 2; rank++) {
		pids[rank] = fork();
		if (!pids[rank])
			break;
	}
	if (rank == 2) {
		MUST(waitpid(pids[0], &status[0], 0) != pids[0]);
		MUST(waitpid(pids[1], &status[1], 0) != pids[1]);
		printf("%d %d\n", WIFEXITED(status[0]) ? WEXITSTATUS(status[0]) : 128,
		       WIFEXITED(status[1]) ? WEXITSTATUS(status[1]) : 128);
		return status[0] || status[1];
	}
	alarm(100);
	for (int c = 0; c < COMMS; c++) {
		if (rank) {
			MUST(read(ids[0], &id[c], sizeof(id[c])) != sizeof(id[c]));
		} else {
			MUST(ncclGetUniqueId(&id[c]));
			MUST(write(ids[1], &id[c], sizeof(id[c])) != sizeof(id[c]));
		}
	}
	MUST(cudaSetDevice(rank));
	MUST(cudaMalloc((void **)&in, sizeof(int) * 2 * MOST));
	MUST(cudaMalloc((void **)&out, sizeof(int) * 2 * MOST * OPS));
	for (int i = 0; i < MOST; i++)
		host[i] = rank + 1;
	MUST(cudaMemcpy(in, host, sizeof(host), cudaMemcpyHostToDevice));
	for (int c = 0; c < COMMS; c++) {
		MUST(ncclCommInitRank(&comms[c], 2, id[c], rank));
		MUST(cudaStreamCreateWithFlags(&streams[c], cudaStreamNonBlocking));
	}
	program(argv[1], argc > 2 ? strtoul(argv[2], NULL, 0) : 0);
	return 0;
}
