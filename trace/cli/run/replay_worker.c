/*
 * The worker of `dfshim replay`: one rank of the recorded communication, in the order of the
 * records or of a witness. It finds NCCL and CUDA by name only, so it is built without them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "trace/cli/common/cli.h"
#include "trace/cli/common/input.h"
#include "trace/cli/run/nccl_fn.h"
#include "trace/cli/run/cmd_replay.h"
#include "trace/record/names.h"
#include "runtime/base/vec.h"
#include "trace/cli/run/replay_worker.h"

#define UNBUFFERED     (2 << 20) /* number of bytes; more than a connector holds */
#define CUDA_NOT_READY 600

struct buffer {
	uint64_t address;
	size_t bytes;
	void *at;
};

static struct worker {
	struct df_program_steps p;
	int rank;
	void **comms, **streams, **events;
	struct buffer *buffers;
	size_t nr_buffers, cap_buffers;
	void *scratch;
	int unbuffered; /* no message may be buffered */
	/*
	 * The witness: records of this rank's steps in the order in which its threads issue them.
	 */
	uint64_t *turns;
	size_t nr_turns, cap_turns;
	size_t turn;	/* index of the next turn */
	uint8_t *flags; /* signals of this rank's threads */
	pthread_mutex_t lock;
	pthread_cond_t moved;
} w = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static void die(const char *what, int code)
{
	fprintf(stderr, "dfshim replay: rank %d: %s failed (%d)\n", w.rank, what, code);
	_exit(3);
}

static void check(int code, const char *what)
{
	if (code)
		die(what, code);
}

/* Returns how many times `count` elements a buffer of this operation has. */
static uint64_t times(const struct df_step_of *s, int receives)
{
	uint64_t n = (uint64_t)df_ranks_count(&w.p.comms[s->comm].members);

	switch (s->kind) {
	case DF_KIND_ALLGATHER:
	case DF_KIND_GATHER:
		return receives ? n : 1;
	case DF_KIND_REDUCESCATTER:
	case DF_KIND_SCATTER:
		return receives ? 1 : n;
	case DF_KIND_ALLTOALL:
		return n;
	default:
		return 1;
	}
}

static void want_buffer(uint64_t address, size_t bytes)
{
	struct buffer *b;

	for (size_t i = 0; i < w.nr_buffers; i++) {
		if (w.buffers[i].address == address) {
			if (bytes > w.buffers[i].bytes)
				w.buffers[i].bytes = bytes;
			return;
		}
	}
	b = DF_VEC_PUSH(w.buffers, w.nr_buffers, w.cap_buffers);
	if (!b)
		die("malloc", ENOMEM);
	*b = (struct buffer){address, bytes, NULL};
}

static void *buffer(uint64_t address)
{
	for (size_t i = 0; i < w.nr_buffers; i++)
		if (w.buffers[i].address == address)
			return w.buffers[i].at;
	return w.scratch;
}

/* Returns a rank's place among the members that are here. */
static int place(int comm, int rank)
{
	return df_ranks_below(&w.p.comms[comm].members, rank);
}

static int peer_place(int comm, int peer)
{
	int here = df_steps_peer(&w.p, comm, peer);

	return here < 0 ? 0 : place(comm, here);
}

/* Rank 0 of a communicator writes the id to a file; the others wait for it. */
static void make_comm(int comm, const char *dir)
{
	char path[PATH_MAX];
	struct df_nccl_id id;
	/* With the name that it had in the job, so that both call its operations alike. */
	struct df_nccl_config config = {
		.size = sizeof(config),
		.magic = DF_NCCL_CONFIG_MAGIC,
		.version = DF_NCCL_CONFIG_VERSION,
		.blocking = DF_NCCL_UNDEF,
		.cga_cluster_size = DF_NCCL_UNDEF,
		.min_ctas = DF_NCCL_UNDEF,
		.max_ctas = DF_NCCL_UNDEF,
		.split_share = DF_NCCL_UNDEF,
		.traffic_class = DF_NCCL_UNDEF,
		.comm_name = w.p.comms[comm].name,
	};
	int me = place(comm, w.rank), n = df_ranks_count(&w.p.comms[comm].members), ret;

	snprintf(path, sizeof(path), "%s/comm%d", dir, comm);
	ret = df_nccl_share_id(path, me, &id);
	if (ret)
		die(ret > 0 ? "ncclGetUniqueId" : path, ret);
	if (*config.comm_name && df_nccl.init_config)
		check(df_nccl.init_config(&w.comms[comm], n, id, me, &config),
		      "ncclCommInitRankConfig");
	else
		check(df_nccl.init(&w.comms[comm], n, id, me), "ncclCommInitRank");
}

/*
 * Returns the elements of an operation. A message that must not be buffered has more than any
 * buffer holds.
 */
static uint64_t elements(const struct df_step_of *s)
{
	uint64_t least = UNBUFFERED / (df_dtype_bytes(s->type) ? df_dtype_bytes(s->type) : 1);

	return w.unbuffered && s->op.kind == DF_MOP_P2P && s->count && s->count < least ? least
											: s->count;
}

/*
 * Returns the position of a step among the remaining turns, or nr_turns if it may run at any
 * time.
 */
static size_t turn_of(const struct df_step_of *s)
{
	size_t i = w.turn;

	while (i < w.nr_turns && w.turns[i] != s->rec)
		i++;
	return i;
}

/* Waits for the step's turn. Returns 1 if it has one, which the caller ends with end_turn(). */
static int wait_turn(const struct df_step_of *s)
{
	size_t at;

	if (!w.nr_turns)
		return 0;
	pthread_mutex_lock(&w.lock);
	at = turn_of(s);
	while (at < w.nr_turns && w.turn < at)
		pthread_cond_wait(&w.moved, &w.lock);
	pthread_mutex_unlock(&w.lock);
	return at < w.nr_turns;
}

static void end_turn(void)
{
	pthread_mutex_lock(&w.lock);
	w.turn++;
	pthread_cond_broadcast(&w.moved);
	pthread_mutex_unlock(&w.lock);
}

int df_replay_witness(const char *path, int rank, struct df_replay_witness *x)
{
	FILE *f = fopen(path, "r");
	char line[256];
	uint64_t *slot, rec;
	int r;

	memset(x, 0, sizeof(*x));
	while (f && fgets(line, sizeof(line), f)) {
		x->found |= sscanf(line, "@slots %d", &x->slots) == 1;
		sscanf(line, "@queues %d", &x->queues);
		sscanf(line, "@unbuffered %d", &x->unbuffered);
		if (sscanf(line, "@ %d %" SCNu64, &r, &rec) != 2 || r != rank)
			continue;
		slot = DF_VEC_PUSH(w.turns, w.nr_turns, w.cap_turns);
		if (slot)
			*slot = rec;
	}
	if (f)
		fclose(f);
	return x->found ? 0 : -EINVAL;
}

static void send_to_self(const struct df_step_of *s, void *in, void *out, void *comm, void *stream)
{
	int me = place((int)s->comm, w.rank);

	check(df_nccl.group_start(), "ncclGroupStart");
	check(df_nccl.send(in, s->count, s->type, me, comm, stream), "ncclSend");
	check(df_nccl.recv(out, s->count, s->type, me, comm, stream), "ncclRecv");
	check(df_nccl.group_end(), "ncclGroupEnd");
}

static void run_op(const struct df_step_of *s)
{
	void *comm = w.comms[s->comm], *stream = w.streams[s->op.stream], *in = buffer(s->send),
	     *out = buffer(s->recv);
	int redop = s->redop < 4 ? s->redop : 4,
	    root = s->peer >= 0 ? peer_place((int)s->comm, s->peer) : 0;

	switch (s->kind) {
	case DF_KIND_ALLREDUCE:
		check(df_nccl.all_reduce(in, out, s->count, s->type, redop, comm, stream),
		      "ncclAllReduce");
		break;
	case DF_KIND_BROADCAST:
		check(df_nccl.broadcast(in, out, s->count, s->type, root, comm, stream),
		      "ncclBroadcast");
		break;
	case DF_KIND_REDUCE:
		check(df_nccl.reduce(in, out, s->count, s->type, redop, root, comm, stream),
		      "ncclReduce");
		break;
	case DF_KIND_ALLGATHER:
		check(df_nccl.all_gather(in, out, s->count, s->type, comm, stream),
		      "ncclAllGather");
		break;
	case DF_KIND_REDUCESCATTER:
		check(df_nccl.reduce_scatter(in, out, s->count, s->type, redop, comm, stream),
		      "ncclReduceScatter");
		break;
	case DF_KIND_ALLTOALL:
		if (!df_nccl.all_to_all)
			die("ncclAlltoAll, which this NCCL does not have,", 0);
		check(df_nccl.all_to_all(in, out, s->count, s->type, comm, stream), "ncclAlltoAll");
		break;
	case DF_KIND_GATHER:
		if (!df_nccl.gather)
			die("ncclGather, which this NCCL does not have,", 0);
		check(df_nccl.gather(in, out, s->count, s->type, root, comm, stream), "ncclGather");
		break;
	case DF_KIND_SCATTER:
		if (!df_nccl.scatter)
			die("ncclScatter, which this NCCL does not have,", 0);
		check(df_nccl.scatter(in, out, s->count, s->type, root, comm, stream),
		      "ncclScatter");
		break;
	case DF_KIND_SEND:
		check(df_nccl.send(in, elements(s), s->type, root, comm, stream), "ncclSend");
		break;
	case DF_KIND_RECV:
		if (s->sends) {
			send_to_self(s, in, out, comm, stream);
			break;
		}
		check(df_nccl.recv(out, elements(s), s->type, root, comm, stream), "ncclRecv");
		break;
	default:
		die("the replay of an unknown kind of operation", s->kind);
	}
}

static void run_step(const struct df_step_of *s)
{
	void *p = NULL;

	switch (s->op.kind) {
	case DF_MOP_COLL:
	case DF_MOP_P2P:
		run_op(s);
		break;
	case DF_MOP_KERNEL:
		/* Each stream has its own part, so parallel work stays parallel. */
		check(df_nccl.memset_async((char *)w.scratch + 4096 + 256 * (size_t)s->op.stream, 0,
					   256, w.streams[s->op.stream]),
		      "cudaMemsetAsync");
		break;
	case DF_MOP_RECORD:
		check(df_nccl.event_record(w.events[s->op.object], w.streams[s->op.stream]),
		      "cudaEventRecord");
		break;
	case DF_MOP_WAIT:
		check(df_nccl.stream_wait(w.streams[s->op.stream], w.events[s->op.object], 0),
		      "cudaStreamWaitEvent");
		break;
	case DF_MOP_SSYNC:
		check(df_nccl.stream_sync(w.streams[s->op.stream]), "cudaStreamSynchronize");
		break;
	case DF_MOP_ESYNC:
		check(df_nccl.event_sync(w.events[s->op.object]), "cudaEventSynchronize");
		break;
	case DF_MOP_DSYNC:
		check(df_nccl.device_sync(), "cudaDeviceSynchronize");
		break;
	case DF_MOP_ISYNC:
		check(df_nccl.malloc(&p, 256), "cudaMalloc");
		check(df_nccl.free(p), "cudaFree");
		break;
	case DF_MOP_HSIGNAL:
		pthread_mutex_lock(&w.lock);
		w.flags[s->op.object] = 1;
		pthread_cond_broadcast(&w.moved);
		pthread_mutex_unlock(&w.lock);
		break;
	case DF_MOP_HWAIT:
		pthread_mutex_lock(&w.lock);
		while (!w.flags[s->op.object])
			pthread_cond_wait(&w.moved, &w.lock);
		pthread_mutex_unlock(&w.lock);
		break;
	default:
		break;
	}
}

/* Whether the thread's step i is another operation of the group. */
static int goes_on(const struct df_rank_of *r, size_t t, size_t i, uint32_t group)
{
	const struct df_step_of *s = i < r->nr[t] ? &r->steps[t][i] : NULL;

	return s && (s->op.kind == DF_MOP_COLL || s->op.kind == DF_MOP_P2P) && s->group == group;
}

static void *thread_main(void *arg)
{
	const struct df_rank_of *r = &w.p.ranks[w.rank];
	size_t t = (size_t)(uintptr_t)arg;
	uint32_t group = 0;

	check(df_nccl.set_device(atoi(getenv("LOCAL_RANK") ?: "0")), "cudaSetDevice");
	for (size_t i = 0; i < r->nr[t]; i++) {
		const struct df_step_of *s = &r->steps[t][i];
		int op = s->op.kind == DF_MOP_COLL || s->op.kind == DF_MOP_P2P, turn;

		if (op && s->group && !group) {
			check(df_nccl.group_start(), "ncclGroupStart");
			group = s->group;
		}
		turn = wait_turn(s);
		/* A thread that waits for its device must not delay the turns of others. */
		if (turn && !op && s->op.kind >= DF_MOP_SSYNC)
			turn = (end_turn(), 0);
		if (df_nccl.repeats_call)
			df_nccl.repeats_call(df_steps_stack(&w.p, w.rank, s));
		run_step(s);
		/*
		 * The operations of a group are issued at its end, which is therefore part of the
		 * turn.
		 */
		if (group && !goes_on(r, t, i + 1, group)) {
			check(df_nccl.group_end(), "ncclGroupEnd");
			group = 0;
		}
		if (turn)
			end_turn();
	}
	if (df_nccl.repeats_call)
		df_nccl.repeats_call(NULL);
	return NULL;
}

int df_replay_steps(struct df_program_steps *p, int argc, char **argv, int flags)
{
	size_t nr;
	char **paths = df_cli_trace_paths("replay", argc, argv, &nr);
	int rc = paths ? df_steps_load(p, "replay", paths, nr, flags) : 1;

	if (paths)
		df_cli_paths_free(paths, nr);
	return rc;
}

/* Polls, because a report of a hang would show a wait of ours as one of the job. */
static void finish_streams(void)
{
	struct timespec nap = {0, 200000};

	for (size_t i = 0; i < w.p.nr_ids[0]; i++) {
		int rc;

		while ((rc = df_nccl.stream_query(w.streams[i])) == CUDA_NOT_READY)
			nanosleep(&nap, NULL);
		check(rc, "cudaStreamQuery");
	}
}

int df_replay_worker(int argc, char **argv)
{
	const char *dir = getenv("REPLAY_IDS"), *rank = getenv("RANK");
	pthread_t id[DF_MODEL_THREADS];
	struct df_replay_witness x = {0};
	struct df_rank_of *r;

	if (!dir || !rank ||
	    df_replay_steps(&w.p, argc, argv, getenv("REPLAY_PREFIX") ? 0 : DF_STEPS_MEMBERS))
		return 1;
	w.rank = atoi(rank);
	if (w.rank < 0 || w.rank >= w.p.nr_ranks || df_nccl_load("replay"))
		return 1;
	if (getenv("REPLAY_WITNESS") && df_replay_witness(getenv("REPLAY_WITNESS"), w.rank, &x))
		return 1;
	w.unbuffered = x.unbuffered;
	r = &w.p.ranks[w.rank];
	check(df_nccl.set_device(atoi(getenv("LOCAL_RANK") ?: "0")), "cudaSetDevice");
	check(df_nccl.malloc(&w.scratch, 4096 + 256 * (w.p.nr_ids[0] + 1)), "cudaMalloc");
	w.comms = calloc(w.p.nr_comms + 1, sizeof(void *));
	w.streams = calloc(w.p.nr_ids[0] + 1, sizeof(void *));
	w.flags = calloc((size_t)w.p.nr_flags + 1, 1);
	w.events = calloc(w.p.nr_ids[1] + 1, sizeof(void *));
	for (int t = 0; t < r->nr_threads; t++) {
		for (size_t i = 0; i < r->nr[t]; i++) {
			const struct df_step_of *s = &r->steps[t][i];
			uint64_t bytes = elements(s) * df_dtype_bytes(s->type);

			if (s->op.kind != DF_MOP_COLL && s->op.kind != DF_MOP_P2P)
				continue;
			want_buffer(s->send, bytes * times(s, 0));
			want_buffer(s->recv, bytes * times(s, 1));
		}
	}
	for (size_t i = 0; i < w.nr_buffers; i++)
		check(df_nccl.malloc(&w.buffers[i].at, w.buffers[i].bytes + 256), "cudaMalloc");
	for (size_t i = 0; i < w.p.nr_ids[0]; i++)
		check(df_nccl.stream_create(&w.streams[i], 1), "cudaStreamCreateWithFlags");
	for (size_t i = 0; i < w.p.nr_ids[1]; i++)
		check(df_nccl.event_create(&w.events[i], 2), "cudaEventCreateWithFlags");
	for (size_t c = 0; c < w.p.nr_comms; c++)
		if (df_ranks_has(&w.p.comms[c].members, w.rank))
			make_comm((int)c, dir);
	for (int t = 0; t < r->nr_threads; t++)
		if (pthread_create(&id[t], NULL, thread_main, (void *)(uintptr_t)t))
			die("pthread_create", errno);
	for (int t = 0; t < r->nr_threads; t++)
		pthread_join(id[t], NULL);
	finish_streams();
	for (size_t c = 0; c < w.p.nr_comms; c++)
		if (w.comms[c])
			check(df_nccl.destroy(w.comms[c]), "ncclCommDestroy");
	return 0;
}
