/*
 * What NCCL executes, written down: in mode trace everything, else the communicators that were given to it.
 * Calls that can block, operations as they are issued, communicators as they come and go. When an operation
 * finishes is not seen here.
 *
 * NCCL calls some of its own functions by their exported names; those calls come by here too and are
 * not recorded: `inside` counts the depth.
 *
 * Threads: any. Communicators are in a table with open addressing: entries are added under a mutex,
 * found without one, and keep their place for ever (a dead one's place is taken by the next with the same
 * address, which is common: the allocator gives it out again).
 */
#include <stdlib.h>
#include "interpose/coll.h"
#include "interpose/front.h"
#include "interpose/nccl_api.h"
#include "interpose/real.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/base/lock.h"
#include "trace/writer.h"

#define NR_SLOTS 4096

struct traced {
	const void *key; /* stored last */
	uint64_t hash;
	uint32_t comm; /* of df_trace_comm() */
	int nranks, rank, device;
	uint64_t children, issued;
};

static struct df_mutex table_lock = DF_MUTEX_INIT(DF_RANK_COMM_TABLE, "traced communicators");
static struct traced *table;
static uint64_t nr_local;
static __thread int inside __attribute__((tls_model("initial-exec")));

/* 1: what goes to NCCL is recorded, and this is a call of the application. */
static int recording(void)
{
	enum df_front front = df_front_now();

	return (front == DF_FRONT_TRACE || front == DF_FRONT_OWN) && !inside;
}

static struct traced *slot_of(const void *comm, int add)
{
	struct traced *t;
	size_t i, n;

	/*
	 * The acquire pairs with the release in df_traced_comm_add(): without it a table could be seen
	 * before it is zeroed.
	 */
	t = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
	if (!t || !comm)
		return NULL;
	i = df_mix64((uintptr_t)comm) % NR_SLOTS;
	for (n = 0; n < NR_SLOTS; n++, i = (i + 1) % NR_SLOTS) {
		/*
		 * The acquire pairs with the release of the key: without it the entry could be seen with
		 * the fields of its predecessor.
		 */
		const void *key = __atomic_load_n(&t[i].key, __ATOMIC_ACQUIRE);

		if (key == comm || (!key && add))
			return &t[i];
		if (!key)
			return NULL;
	}
	return NULL;
}

void df_traced_comm_add(ncclComm_t comm, uint64_t hash, int nranks, int rank, uint64_t parent)
{
	const struct df_nccl_real *real = df_real();
	ncclResult_t state = ncclSuccess;
	struct traced *t;
	int device = -1;

	if (!recording())
		return;
	if (!nranks &&
	    (!real->ncclCommCount || real->ncclCommCount(comm, &nranks) != ncclSuccess ||
	     !real->ncclCommUserRank || real->ncclCommUserRank(comm, &rank) != ncclSuccess))
		return;
	/* Asking one that is not ready would be an error of its own. */
	if (!real->ncclCommGetAsyncError ||
	    real->ncclCommGetAsyncError(comm, &state) != ncclSuccess || state != ncclSuccess ||
	    !real->ncclCommCuDevice || real->ncclCommCuDevice(comm, &device) != ncclSuccess)
		device = -1;
	df_mutex_lock(&table_lock);
	if (!table) {
		t = calloc(NR_SLOTS, sizeof(*t));
		/* The release pairs with the acquire in slot_of(): see there. */
		__atomic_store_n(&table, t, __ATOMIC_RELEASE);
	}
	t = slot_of(comm, 1);
	if (t) {
		t->hash = hash;
		t->nranks = nranks;
		t->rank = rank;
		t->device = device;
		t->children = t->issued = 0;
		t->comm = df_trace_comm(hash, nranks, rank, device, parent, "");
		/* The release pairs with the acquire in slot_of(): see there. */
		__atomic_store_n(&t->key, comm, __ATOMIC_RELEASE);
		df_trace(DF_REC_COMM_READY, device, t->comm, rank, 0, hash, (uint64_t)nranks,
			 (uint64_t)(int64_t)device, 0);
	}
	df_mutex_unlock(&table_lock);
}

void df_traced_comm_gone(ncclComm_t comm, enum df_call call)
{
	struct traced *t = recording() ? slot_of(comm, 0) : NULL;
	enum df_rec_type type = call == DF_CALL_COMM_FINALIZE  ? DF_REC_COMM_FINALIZE
				: call == DF_CALL_COMM_DESTROY ? DF_REC_COMM_DESTROY
							       : DF_REC_COMM_ABORT;

	if (t)
		df_trace(type, t->device, t->comm, t->rank, 0, 0, 0, 0, 0);
}

uint64_t df_traced_hash(ncclComm_t comm)
{
	struct traced *t = slot_of(comm, 0);

	return t ? t->hash : 0;
}

uint64_t df_traced_child_hash(ncclComm_t comm, uint64_t salt)
{
	struct traced *t = slot_of(comm, 0);

	return t ? df_hash_u64(df_hash_u64(t->hash, ++t->children), salt) : 0;
}

uint64_t df_traced_local_hash(void)
{
	return df_hash_u64((uintptr_t)&nr_local,
			   __atomic_add_fetch(&nr_local, 1, __ATOMIC_RELAXED));
}

uint64_t df_traced_enter(enum df_call call, const void *object, uint64_t detail, const void *pc)
{
	uint64_t serial = 0;

	if (recording()) {
		serial = df_trace_serial();
		df_trace(DF_REC_CALL_ENTER, -1, 0, -1, serial, call, (uintptr_t)object, detail,
			 df_trace_site(pc));
	}
	inside++;
	return serial;
}

void df_traced_leave(uint64_t serial, enum df_call call, ncclResult_t result)
{
	inside--;
	if (serial)
		df_trace(DF_REC_CALL_EXIT, -1, 0, -1, serial, call, (uint64_t)result, 0, 0);
}

ncclResult_t df_traced_group_end(const void *pc)
{
	uint64_t serial = df_traced_enter(DF_CALL_GROUP_END, NULL, 0, pc);
	ncclResult_t res = df_real()->ncclGroupEnd();

	df_traced_leave(serial, DF_CALL_GROUP_END, res);
	return res;
}

void df_traced_op(const struct df_traced_call *c, ncclComm_t comm, const void *pc)
{
	struct traced *t = recording() ? slot_of(comm, 0) : NULL;
	int peers = c->kind == DF_COLL_SEND || c->kind == DF_COLL_RECV ||
		    c->kind == DF_COLL_BROADCAST || c->kind == DF_COLL_REDUCE ||
		    c->kind == DF_COLL_GATHER || c->kind == DF_COLL_SCATTER;
	uint64_t op;
	uint32_t site;

	if (!t)
		return;
	op = df_trace_serial();
	site = df_trace_site(pc);
	df_trace(DF_REC_OP_ISSUE, t->device, t->comm, t->rank, op,
		 (uint64_t)c->kind | (uint64_t)(c->type & 0xff) << 8 |
			 (uint64_t)(c->redop & 0xff) << 16 | (uint64_t)DF_OP_BY_NCCL << 24,
		 c->count, (uintptr_t)c->stream, site);
	df_trace(DF_REC_OP_ARGS, t->device, t->comm, t->rank, op, (uintptr_t)c->send,
		 (uintptr_t)c->recv, peers ? (uint32_t)c->root + 1u : 0, site);
	df_trace_comm_issued(t->comm, (unsigned)c->kind);
}
