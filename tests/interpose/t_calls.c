/*
 * Description: operations reach the runtime as called, or fail by NCCL's checks, in NCCL's order.
 */
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/nccl/nccl_api.h"
#include "interpose/nccl/nccl_pass.h"
#include "interpose/real/real.h"
#include "runtime/base/rng.h"
#include "tests/interpose/fake_runtime.h"

#define OK(call) ck_assert_int_eq(call, ncclSuccess)
#define N	 4

static ncclComm_t comms[N];
static char buffer[64];

static void setup(void)
{
	ncclUniqueId id;
	int i;

	OK(ncclGetUniqueId(&id));
	OK(ncclGroupStart());
	for (i = 0; i < N; i++)
		OK(ncclCommInitRank(&comms[i], N, id, i));
	OK(ncclGroupEnd());
}

struct args {
	enum df_coll_kind kind;
	const void *send;
	void *recv;
	size_t count;
	int type, op, root;
	int me;
	cudaStream_t stream;
};

static const char *const names[] = {"AllReduce",     "Broadcast", "Reduce", "AllGather",
				    "ReduceScatter", "AlltoAll",  "Gather", "Scatter",
				    "Send",	     "Recv"};

static ncclResult_t call(const struct args *a)
{
	ncclComm_t c = comms[a->me];
	ncclDataType_t t = (ncclDataType_t)a->type;
	ncclRedOp_t op = (ncclRedOp_t)a->op;

	switch (a->kind) {
	case DF_COLL_ALLREDUCE:
		return ncclAllReduce(a->send, a->recv, a->count, t, op, c, a->stream);
	case DF_COLL_BROADCAST:
		return a->send == a->recv ? ncclBcast(a->recv, a->count, t, a->root, c, a->stream)
					  : ncclBroadcast(a->send, a->recv, a->count, t, a->root, c,
							  a->stream);
	case DF_COLL_REDUCE:
		return ncclReduce(a->send, a->recv, a->count, t, op, a->root, c, a->stream);
	case DF_COLL_ALLGATHER:
		return ncclAllGather(a->send, a->recv, a->count, t, c, a->stream);
	case DF_COLL_REDUCESCATTER:
		return ncclReduceScatter(a->send, a->recv, a->count, t, op, c, a->stream);
	case DF_COLL_ALLTOALL:
		return ncclAlltoAll(a->send, a->recv, a->count, t, c, a->stream);
	case DF_COLL_GATHER:
		return ncclGather(a->send, a->recv, a->count, t, a->root, c, a->stream);
	case DF_COLL_SCATTER:
		return ncclScatter(a->send, a->recv, a->count, t, a->root, c, a->stream);
	case DF_COLL_SEND:
		return ncclSend(a->send, a->count, t, a->root, c, a->stream);
	case DF_COLL_RECV:
		return ncclRecv(a->recv, a->count, t, a->root, c, a->stream);
	default:
		abort();
	}
}

static int has_root(enum df_coll_kind k)
{
	return k == DF_COLL_BROADCAST || k == DF_COLL_REDUCE || k == DF_COLL_GATHER ||
	       k == DF_COLL_SCATTER || k >= DF_COLL_SEND;
}

static int has_op(enum df_coll_kind k)
{
	return k == DF_COLL_ALLREDUCE || k == DF_COLL_REDUCE || k == DF_COLL_REDUCESCATTER;
}

/* Returns the message of the check that fails first in NCCL, or NULL for success. */
static const char *expected(const struct args *a, char *text, size_t size)
{
	const char *name = names[a->kind];

	if (has_root(a->kind) && (a->root < 0 || a->root >= N))
		snprintf(text, size, "%s : invalid root %d (root should be in the 0..%d range)",
			 name, a->root, N);
	else if (a->type < 0 || a->type >= ncclNumTypes)
		snprintf(text, size, "%s : invalid type %d", name, a->type);
	else if (has_op(a->kind) && a->op < 0)
		snprintf(text, size, "%s : invalid reduction operation %d", name, a->op);
	else if (has_op(a->kind) && a->op >= ncclNumOps)
		snprintf(text, size, "%s : reduction operation %d unknown to this communicator",
			 name, a->op);
	else
		return NULL;
	return text;
}

static struct args random_args(struct df_rng *rng)
{
	struct args a = {0};

	a.kind = (enum df_coll_kind)df_rng_below(rng, DF_COLL_RECV + 1);
	a.send = buffer + df_rng_below(rng, 64);
	a.recv = df_rng_below(rng, 4) ? buffer + df_rng_below(rng, 64) : (void *)a.send;
	a.count = df_rng_below(rng, 4) ? df_rng_below(rng, 1 << 20) : 0;
	a.type = (int)(df_rng_below(rng, 8) ? df_rng_range(rng, 0, ncclNumTypes - 1)
					    : df_rng_range(rng, -2, 40));
	a.op = (int)(df_rng_below(rng, 8) ? df_rng_range(rng, 0, ncclNumOps - 1)
					  : df_rng_range(rng, -2, 40));
	a.me = (int)df_rng_below(rng, N);
	do {
		a.root = (int)(df_rng_below(rng, 8) ? df_rng_range(rng, 0, N - 1)
						    : df_rng_range(rng, -3, 9));
	} while (a.kind >= DF_COLL_SEND && a.root == a.me);
	a.stream = (cudaStream_t)(df_rng_below(rng, 2) ? 0 : df_rng_below(rng, 1 << 20));
	return a;
}

static void check_op(const struct df_op *op, const struct args *a)
{
	ck_assert_int_eq(op->kind, a->kind);
	ck_assert_int_eq(df_comm_rank(op->comm), a->me);
	if (a->kind != DF_COLL_RECV)
		ck_assert_ptr_eq(op->send, a->send);
	if (a->kind != DF_COLL_SEND)
		ck_assert_ptr_eq(op->recv, a->recv);
	ck_assert_uint_eq(op->count, a->count);
	ck_assert_uint_eq(op->type, (uint32_t)a->type);
	ck_assert_ptr_eq(op->stream, a->stream);
	if (has_root(a->kind))
		ck_assert_int_eq(op->root, a->root);
	if (!has_op(a->kind))
		return;
	switch (a->op) {
	case ncclSum:
		ck_assert_uint_eq(op->redop, DF_SUM);
		break;
	case ncclProd:
		ck_assert_uint_eq(op->redop, DF_PROD);
		break;
	case ncclMax:
		ck_assert_uint_eq(op->redop, DF_MAX);
		break;
	case ncclMin:
		ck_assert_uint_eq(op->redop, DF_MIN);
		break;
	case ncclAvg:
		ck_assert_uint_eq(op->redop, a->type <= ncclUint64 ? DF_SUMPOSTDIV : DF_PREMULSUM);
		if (a->type <= ncclUint64)
			ck_assert_uint_eq(op->redop_arg, N);
		break;
	}
}

START_TEST(t_random)
{
	struct df_rng rng;
	char text[256];
	int i;

	setup();
	df_rng_init(&rng, df_test_seed());
	for (i = 0; i < 20000; i++) {
		struct args a = random_args(&rng);
		const char *error = expected(&a, text, sizeof(text));
		int before = fake.nr_ops;

		if (error) {
			ck_assert_int_eq(call(&a), ncclInvalidArgument);
			ck_assert_str_eq(ncclGetLastError(NULL), error);
			ck_assert_int_eq(fake.nr_ops, before);
		} else {
			OK(call(&a));
			/* an empty collective is dropped */
			if (!a.count && a.kind < DF_COLL_SEND) {
				ck_assert_int_eq(fake.nr_ops, before);
				continue;
			}
			ck_assert_int_eq(fake.nr_ops, before + 1);
			check_op(&fake.ops[before % FAKE_OPS], &a);
		}
	}
}
END_TEST

/* Random nests of groups: everything is submitted once and in order, or nothing after an error. */
START_TEST(t_groups)
{
	struct args list[64];
	struct df_rng rng;
	char text[256];
	int round, i;

	setup();
	df_rng_init(&rng, df_test_seed() + 1);
	for (round = 0; round < 500; round++) {
		int depth = 1, nr = 0, submits = fake.nr_submits, ops = fake.nr_ops;
		ncclResult_t error = ncclSuccess;

		OK(ncclGroupStart());
		while (depth && nr < 60) {
			switch (df_rng_below(&rng, 10)) {
			case 0:
				OK(ncclGroupStart());
				depth++;
				break;
			case 1:
				if (depth > 1) {
					OK(ncclGroupEnd());
					depth--;
					break;
				}
				/* fallthrough */
			default:
				list[nr] = random_args(&rng);
				if (round % 3 && expected(&list[nr], text, sizeof(text)))
					continue;
				if (expected(&list[nr], text, sizeof(text))) {
					error = ncclInvalidArgument;
					ck_assert_int_eq(call(&list[nr]), error);
				} else {
					OK(call(&list[nr]));
					if (list[nr].count || list[nr].kind >= DF_COLL_SEND)
						nr++;
				}
				break;
			}
			if (!df_rng_below(&rng, 40))
				break;
		}
		while (--depth > 0)
			OK(ncclGroupEnd());
		ck_assert_int_eq(fake.nr_ops, ops);
		ck_assert_int_eq(ncclGroupEnd(), error);
		if (error != ncclSuccess) {
			ck_assert_int_eq(fake.nr_ops, ops);
			continue;
		}
		ck_assert_int_eq(fake.nr_submits, submits + !!nr);
		ck_assert_int_eq(fake.nr_ops, ops + nr);
		for (i = 0; i < nr; i++)
			check_op(&fake.ops[(ops + i) % FAKE_OPS], &list[i]);
	}
	ck_assert_int_eq(ncclGroupEnd(), ncclInvalidUsage);
	ck_assert_str_eq(ncclGetLastError(NULL), "ncclGroupEnd: not in a group call.");
}
END_TEST

/*
 * Random sends and receives of ranks to themselves, among others. The k-th send belongs to the k-th
 * receive.
 */
START_TEST(t_self)
{
	struct df_rng rng;
	int round, i;

	setup();
	df_rng_init(&rng, df_test_seed() + 2);
	for (round = 0; round < 300; round++) {
		int sends[N] = {0}, recvs[N] = {0}, seen[N] = {0}, ops = fake.nr_ops;
		int others = 0, total = 0, matched = 1, bad;
		cudaStream_t s = (cudaStream_t)8;

		OK(ncclGroupStart());
		for (i = 0; i < 40; i++) {
			int me = (int)df_rng_below(&rng, N), peer = (int)df_rng_below(&rng, N);
			int left = sends[me] - recvs[me];

			/* The numbers are mostly balanced, so that both outcomes occur. */
			if (me != peer) {
				OK(ncclSend(buffer, 1, ncclInt8, peer, comms[me], s));
				others++;
			} else if (left > 0 || (left == 0 && df_rng_below(&rng, 2))) {
				OK(ncclRecv((void *)(uintptr_t)(2000 + recvs[me]++), 5, ncclInt8,
					    me, comms[me], s));
			} else {
				OK(ncclSend((void *)(uintptr_t)(1000 + sends[me]++), 5, ncclInt8,
					    me, comms[me], s));
			}
		}
		for (i = 0; i < N; i++) {
			/* In most rounds all sends and receives get their partners. */
			while (round % 4 && sends[i] < recvs[i])
				OK(ncclSend((void *)(uintptr_t)(1000 + sends[i]++), 5, ncclInt8, i,
					    comms[i], s));
			while (round % 4 && sends[i] > recvs[i])
				OK(ncclRecv((void *)(uintptr_t)(2000 + recvs[i]++), 5, ncclInt8, i,
					    comms[i], s));
			matched &= sends[i] == recvs[i];
			total += sends[i];
		}
		if (!matched) {
			ck_assert_int_eq(ncclGroupEnd(), ncclInvalidUsage);
			ck_assert_ptr_nonnull(
				strstr(ncclGetLastError(NULL), "to self without a matching"));
			ck_assert_int_eq(fake.nr_ops, ops);
			continue;
		}
		OK(ncclGroupEnd());
		ck_assert_int_eq(fake.nr_ops, ops + others + total);
		for (i = ops, bad = 0; i < fake.nr_ops; i++) {
			const struct df_op *op = &fake.ops[i % FAKE_OPS];
			int me = df_comm_rank(op->comm);

			if (op->kind != DF_COLL_SENDRECV_SELF)
				continue;
			bad += (uintptr_t)op->send != 1000u + (unsigned)seen[me] ||
			       (uintptr_t)op->recv != 2000u + (unsigned)seen[me] || op->count != 5;
			seen[me]++;
		}
		ck_assert_int_eq(bad, 0);
	}
	ck_assert_int_eq(ncclSend(buffer, 1, ncclInt8, 2, comms[2], NULL), ncclInvalidUsage);
	ck_assert_str_eq(ncclGetLastError(NULL), "Trying to send to self without a matching recv");
	ck_assert_int_eq(ncclRecv(buffer, 0, ncclInt8, 2, comms[2], NULL), ncclInvalidUsage);
	ck_assert_str_eq(ncclGetLastError(NULL), "Trying to recv to self without a matching send");
}
END_TEST

/*
 * A message of a rank to itself on two streams, in both orders of calls. Each stream waits for the
 * other.
 */
START_TEST(t_self_streams)
{
	cudaStream_t a = (cudaStream_t)8, b = (cudaStream_t)9;
	char from[8], to[8];
	int i;

	setup();
	OK(ncclGroupStart());
	OK(ncclSend(buffer, 1, ncclInt8, 1, comms[0], a));
	if (_i)
		OK(ncclRecv(to, 8, ncclInt8, 0, comms[0], b));
	OK(ncclSend(from, 8, ncclInt8, 0, comms[0], a));
	if (!_i)
		OK(ncclRecv(to, 8, ncclInt8, 0, comms[0], b));
	OK(ncclRecv(buffer + 8, 1, ncclInt8, 1, comms[0], a));
	OK(ncclGroupEnd());
	ck_assert_int_eq(fake.nr_ops, 5);
	ck_assert_int_eq(fake.ops[0].kind, DF_COLL_SEND);
	ck_assert_int_eq(fake.ops[4].kind, DF_COLL_RECV);
	for (i = 1; i < 4; i++)
		ck_assert_int_eq(fake.ops[i].kind, DF_COLL_SENDRECV_SELF);
	ck_assert(fake.ops[1].stream == a && fake.ops[1].send == from && fake.ops[1].recv == from);
	ck_assert(fake.ops[2].stream == b && fake.ops[2].send == from && fake.ops[2].recv == to);
	ck_assert(fake.ops[3].stream == a && fake.ops[3].send == from && fake.ops[3].recv == from);
}
END_TEST

START_TEST(t_errors)
{
	ncclSimInfo_t sim = {sizeof(sim), DF_NCCL_SIM_MAGIC, 22809, 5.0f};
	static const struct {
		int err;
		ncclResult_t result;
	} map[] = {{-EINVAL, ncclInvalidArgument},  {-ECONNRESET, ncclRemoteError},
		   {-ENOMEM, ncclSystemError},	    {-EIO, ncclUnhandledCudaError},
		   {-EPROTO, ncclInvalidUsage},	    {-ETIMEDOUT, ncclRemoteError},
		   {-ECANCELED, ncclInternalError}, {-ENOSYS, ncclSystemError}};
	uint64_t fake_comm[8] = {0};
	size_t i;

	setup();
	for (i = 0; i < sizeof(map) / sizeof(map[0]); i++) {
		fake.submit_err = map[i].err;
		ck_assert_int_eq(
			ncclAllReduce(buffer, buffer, 1, ncclInt8, ncclSum, comms[0], NULL),
			map[i].result);
		ck_assert_ptr_nonnull(strstr(ncclGetLastError(NULL), "AllReduce : "));
		OK(ncclGroupStart());
		OK(ncclAllReduce(buffer, buffer, 1, ncclInt8, ncclSum, comms[0], NULL));
		ck_assert_int_eq(ncclGroupEnd(), map[i].result);
	}
	fake.submit_err = 0;
	ck_assert_int_eq(ncclAllReduce(buffer, buffer, 1, ncclInt8, ncclSum, NULL, NULL),
			 ncclInvalidArgument);
	ck_assert_str_eq(ncclGetLastError(NULL), "AllReduce : comm argument is NULL");
	ck_assert_int_eq(ncclBcast(buffer, 1, ncclInt8, 0, (ncclComm_t)fake_comm, NULL),
			 ncclInvalidArgument);
	ck_assert_str_eq(ncclGetLastError(NULL), "Error: corrupted comm object detected");
	/* ncclGroupSimulateEnd() ends the group without executing it. */
	OK(ncclGroupStart());
	OK(ncclAllReduce(buffer, buffer, 1, ncclInt8, ncclSum, comms[0], NULL));
	OK(ncclGroupSimulateEnd(&sim));
	ck_assert(sim.estimatedTime == -1.0f);
	ck_assert_int_eq(fake.nr_ops, 0);
	OK(ncclGroupStart());
	sim.magic++;
	ck_assert_int_eq(ncclGroupSimulateEnd(&sim), ncclInvalidArgument);
	ck_assert_int_eq(ncclGroupSimulateEnd(NULL), ncclInvalidUsage);
}
END_TEST

START_TEST(t_pointers)
{
	setup();
	fake.mem_unknown = 1;
	if (!_i) {
		OK(ncclAllReduce(buffer, buffer, 1, ncclInt8, ncclSum, comms[0], NULL));
		return;
	}
	ck_assert_int_eq(ncclAllReduce(buffer, buffer, 1, ncclInt8, ncclSum, comms[0], NULL),
			 ncclInvalidArgument);
	ck_assert_ptr_nonnull(strstr(ncclGetLastError(NULL), "is not a valid pointer"));
	OK(ncclGroupStart());
	OK(ncclSend(NULL, 0, ncclInt8, 1, comms[0], NULL));
	OK(ncclGroupEnd());
}
END_TEST

static void check_pointers_on(void)
{
	setenv("NCCL_CHECK_POINTERS", "1", 1);
}

START_TEST(t_memory)
{
	void *p = (void *)1, *handle, *handle2, *user;
	ncclWindow_t win = NULL, same = (ncclWindow_t)77;
	_Alignas(4096) static char page[4096];

	setup();
	OK(ncclMemAlloc(&p, 0));
	ck_assert_ptr_null(p);
	OK(ncclMemAlloc(&p, 100));
	OK(ncclCommRegister(comms[0], p, 100, &handle));
	OK(ncclCommRegister(comms[0], p, 100, &handle2));
	ck_assert_ptr_nonnull(handle);
	ck_assert_ptr_eq(handle, handle2);
	OK(ncclCommDeregister(comms[0], handle));
	ck_assert_int_eq(ncclCommDeregister(comms[1], handle), ncclInvalidUsage);
	OK(ncclCommDeregister(comms[0], handle));
	ck_assert_int_eq(ncclCommDeregister(comms[0], handle), ncclInvalidUsage);
	ck_assert_str_eq(ncclGetLastError(NULL), "Deregister: Could not find handle");
	OK(ncclCommDeregister(comms[0], NULL));
	OK(ncclMemFree(p));
	OK(ncclMemFree(NULL));

	OK(ncclCommWindowRegister(comms[0], page, 4096, &win, NCCL_WIN_COLL_SYMMETRIC));
	ck_assert_ptr_nonnull(win);
	OK(ncclWinGetUserPtr(comms[0], win, &user));
	ck_assert_ptr_eq(user, page);
	ck_assert_int_eq(ncclGetPeerDevicePointer(win, 0, 1, &user), ncclInvalidUsage);
	OK(ncclCommWindowRegister(comms[0], NULL, 4096, &same, 0));
	ck_assert_ptr_eq(same, (void *)77);
	ck_assert_int_eq(
		ncclCommWindowRegister(comms[0], page + 1, 8, &same, NCCL_WIN_COLL_SYMMETRIC),
		ncclInvalidArgument);
	ck_assert_int_eq(ncclCommWindowDeregister(comms[1], win), ncclInvalidArgument);
	OK(ncclCommWindowDeregister(comms[0], win));
	ck_assert_int_eq(ncclCommWindowDeregister(comms[0], win), ncclInvalidArgument);
	OK(ncclCommWindowDeregister(comms[0], NULL));
	/* A registration that is left is freed with its communicator. */
	OK(ncclCommWindowRegister(comms[0], page, 4096, &win, 0));
	OK(ncclCommRegister(comms[0], page, 100, &handle));
	OK(ncclCommDestroy(comms[0]));
}
END_TEST

START_TEST(t_refused)
{
	ncclCommProperties_t props = {.size = sizeof(props), .magic = DF_NCCL_API_MAGIC};
	ncclTeam_t t;
	uint64_t v;

	setup();
	ck_assert_int_eq(ncclDevCommCreate(comms[0], NULL, NULL), ncclInvalidUsage);
	ck_assert_str_eq(ncclGetLastError(NULL), "Communicator does not support symmetric memory!");
	ck_assert_int_eq(ncclSignal(0, 0, 0, 0, comms[0], NULL), ncclInvalidUsage);
	ck_assert_int_eq(ncclSignal(0, 0, 0, 0, NULL, NULL), ncclInvalidArgument);
	props.deviceApiSupport = true;
	OK(ncclCommQueryProperties(comms[2], &props));
	ck_assert(props.rank == 2 && props.nRanks == N && !props.deviceApiSupport);
	t = ncclTeamWorld(comms[3]);
	ck_assert(t.nRanks == N && t.rank == 3 && t.stride == 1);
	ck_assert_int_eq(ncclTeamRankToWorld(comms[3], t, 1), 1);
	t = ncclTeamLsa(comms[3]);
	ck_assert(t.nRanks == 1 && t.rank == 0);
	ck_assert_int_eq(ncclTeamRankToWorld(comms[3], t, 0), 3);
	OK(ncclCommMemStats(comms[0], ncclStatGpuMemSuspended, &v));
	ck_assert_str_eq(ncclGetErrorString(ncclSuccess), "no error");
	ck_assert_str_eq(ncclGetErrorString((ncclResult_t)77), "unknown result code");
	ck_assert_int_eq(ncclGetVersion(NULL), ncclInvalidArgument);
	ck_assert_ptr_eq(df_nccl_find("ncclAllReduce"), (void *)ncclAllReduce);
	ck_assert_ptr_eq(df_nccl_find("pncclAllReduce"), (void *)ncclAllReduce);
	ck_assert_ptr_null(df_nccl_find("ncclAllReduce2"));
	ck_assert_ptr_null(df_nccl_find("ncclAllReduc"));
	ck_assert_ptr_null(df_nccl_find(""));
}
END_TEST

int main(void)
{
	return DF_TESTS("calls", {t_random}, {t_groups}, {t_self}, {t_self_streams, 2}, {t_errors},
			{t_memory}, {t_refused}, {t_pointers}, {.before = check_pointers_on},
			{t_pointers, 2, .from = 1});
}
