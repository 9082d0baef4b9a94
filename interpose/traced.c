/*
 * What NCCL executes, written down: in mode trace everything, else the communicators that were given to it.
 * Calls that can block, operations as they are issued, communicators as they come and go. In mode trace
 * the runtime also sees operations begin and end (runtime/record.c); a group's are put between their marks when
 * it ends, because that is when NCCL puts them on their streams.
 *
 * NCCL calls some of its own functions by their exported names; those calls come by here too and are
 * not recorded: df_record_inside counts the depth.
 *
 * Threads: any. Communicators are in a table with open addressing: entries are added under a mutex,
 * found without one, and keep their place for ever (a dead one's place is taken by the next with the same
 * address, which is common: the allocator gives it out again). What a group has collected is its thread's own.
 */
#include <stdlib.h>
#include <string.h>
#include "interpose/coll.h"
#include "interpose/front.h"
#include "interpose/nccl_api.h"
#include "interpose/real.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/base/lock.h"
#include "trace/writer.h"

#define NR_SLOTS 4096

/* A call that has come back while NCCL goes on with it: set-up, finalization. serial 0: none. */
struct behind {
	uint64_t serial;
	enum df_call call;
};

struct traced {
	const void *key; /* stored last */
	uint64_t hash;
	uint32_t comm; /* of df_trace_comm() */
	int nranks, rank, device;
	uint64_t children;
	int connected; /* its first operation has come back from NCCL */
	/* Non-blocking: what NCCL has not put on its streams yet; under deferred_lock. */
	struct df_record_op *deferred;
	size_t nr_deferred, cap_deferred;
	struct behind behind; /* under deferred_lock, too */
};

/* What a thread's open group of NCCL's has collected. */
struct made {
	ncclComm_t *comm;
	uint64_t hash;
	int nranks, rank;
};

struct batch {
	int depth;
	uint64_t serial; /* of the group */
	struct df_record_op *ops;
	size_t nr_ops, cap_ops;
	struct made *made;
	size_t nr_made, cap_made;
	struct traced *first; /* a communicator that is used for the first time */
};

static struct df_mutex table_lock = DF_MUTEX_INIT(DF_RANK_COMM_TABLE, "traced communicators");
static struct df_mutex deferred_lock = DF_MUTEX_INIT(DF_RANK_COMM_TABLE, "deferred operations");
static struct traced *table;
static unsigned nr_deferring; /* communicators that have such, and calls that NCCL goes on with */
static uint64_t nr_local;
static __thread struct batch batch __attribute__((tls_model("initial-exec")));

/* 1: what goes to NCCL is recorded, and this is a call of the application. */
static int recording(void)
{
	enum df_front front = df_front_now();

	return (front == DF_FRONT_TRACE || front == DF_FRONT_OWN) && !df_record_inside;
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
	/* Its questions are ours, not the application's. */
	df_record_inside++;
	if (!nranks &&
	    (!real->ncclCommCount || real->ncclCommCount(comm, &nranks) != ncclSuccess ||
	     !real->ncclCommUserRank || real->ncclCommUserRank(comm, &rank) != ncclSuccess)) {
		df_record_inside--;
		return;
	}
	/* Asking one that is not ready would be an error of its own. */
	if (!real->ncclCommGetAsyncError ||
	    real->ncclCommGetAsyncError(comm, &state) != ncclSuccess || state != ncclSuccess ||
	    !real->ncclCommCuDevice || real->ncclCommCuDevice(comm, &device) != ncclSuccess)
		device = -1;
	if (device < 0)
		device = df_record_device();
	df_record_inside--;
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
		t->children = 0;
		t->connected = 0;
		t->comm = df_trace_comm(hash, nranks, rank, device, parent, "");
		/* The release pairs with the acquire in slot_of(): see there. */
		__atomic_store_n(&t->key, comm, __ATOMIC_RELEASE);
		df_trace(DF_REC_COMM_READY, device, t->comm, rank, 0, hash, (uint64_t)nranks,
			 (uint64_t)(int64_t)device, 0);
	}
	df_mutex_unlock(&table_lock);
}

/* NCCL puts it on its stream at a time of its own, before the communicator is said to be ready again. */
static int defer(const struct df_record_op *op)
{
	struct traced *t = op->owner;
	struct df_record_op *v;
	size_t cap;

	df_mutex_lock(&deferred_lock);
	if (t->nr_deferred == t->cap_deferred) {
		cap = t->cap_deferred ? t->cap_deferred * 2 : 16;
		v = realloc(t->deferred, cap * sizeof(*v));
		if (!v) {
			df_mutex_unlock(&deferred_lock);
			return 0;
		}
		t->deferred = v;
		t->cap_deferred = cap;
	}
	t->deferred[t->nr_deferred++] = *op;
	if (t->nr_deferred == 1)
		__atomic_add_fetch(&nr_deferring, 1, __ATOMIC_RELAXED);
	df_mutex_unlock(&deferred_lock);
	return 1;
}

/* NCCL has said that it goes on with the call: whoever polls the communicator waits for it. */
static void go_on(struct traced *t, struct behind b)
{
	struct behind old;

	df_mutex_lock(&deferred_lock);
	old = t->behind;
	t->behind = b;
	if (!old.serial)
		__atomic_add_fetch(&nr_deferring, 1, __ATOMIC_RELAXED);
	df_mutex_unlock(&deferred_lock);
	/* It would have been refused before that one was over. */
	if (old.serial)
		df_record_leave(old.serial, old.call, 0);
}

/* A call that waits for other ranks has come back; t: whom to ask how it goes on. */
static void returned(struct behind b, struct traced *t, ncclResult_t result)
{
	if (result == ncclInProgress && t) {
		df_record_goes_on(b.serial, b.call);
		go_on(t, b);
	} else {
		df_record_leave(b.serial, b.call, result == ncclInProgress ? 0 : (uint64_t)result);
	}
}

/* It is ready again (begun), or has failed. */
static void settle(struct traced *t, ncclResult_t state)
{
	struct df_record_op *v;
	struct behind behind;
	size_t nr;

	df_mutex_lock(&deferred_lock);
	v = t->deferred;
	nr = t->nr_deferred;
	t->deferred = NULL;
	t->nr_deferred = t->cap_deferred = 0;
	behind = t->behind;
	t->behind.serial = 0;
	if (nr || behind.serial)
		__atomic_sub_fetch(&nr_deferring, (nr > 0) + (behind.serial > 0), __ATOMIC_RELAXED);
	df_mutex_unlock(&deferred_lock);
	df_record_after(v, nr, state == ncclSuccess);
	free(v);
	if (behind.serial)
		df_record_leave(behind.serial, behind.call, (uint64_t)state);
}

void df_traced_settled(ncclComm_t comm, ncclResult_t state)
{
	struct traced *t;
	uint64_t serial;

	/* RELAXED: the application has its own call that began them before this one. */
	if (!__atomic_load_n(&nr_deferring, __ATOMIC_RELAXED) || !recording())
		return;
	t = slot_of(comm, 0);
	if (!t)
		return;
	if (state != ncclInProgress) {
		settle(t, state);
		return;
	}
	df_mutex_lock(&deferred_lock);
	serial = t->behind.serial;
	df_mutex_unlock(&deferred_lock);
	df_call_polled(serial);
}

/* The call of NCCL that was to put them on their streams has returned. */
static void called(struct df_record_op *ops, size_t nr, ncclResult_t res)
{
	size_t i, left = 0;

	for (i = 0; i < nr; i++)
		if (res != ncclInProgress || !ops[i].seen || !defer(&ops[i]))
			ops[left++] = ops[i];
	df_record_after(ops, left, res == ncclSuccess);
}

void df_traced_comm_gone(ncclComm_t comm, enum df_call call)
{
	struct traced *t = recording() ? slot_of(comm, 0) : NULL;
	enum df_rec_type type = call == DF_CALL_COMM_FINALIZE  ? DF_REC_COMM_FINALIZE
				: call == DF_CALL_COMM_DESTROY ? DF_REC_COMM_DESTROY
							       : DF_REC_COMM_ABORT;

	if (!t)
		return;
	settle(t, ncclInternalError);
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

uint64_t df_traced_enter(enum df_call call, ncclComm_t comm, uint64_t object, uint64_t detail,
			 const void *pc)
{
	struct traced *t = comm ? slot_of(comm, 0) : NULL;
	uint64_t serial = 0;

	if (recording())
		serial = df_record_enter(call, t ? t->comm : 0, t ? t->rank : -1,
					 t ? t->device : df_record_device(), t ? t->hash : object,
					 detail, df_trace_site(pc));
	df_record_inside++;
	return serial;
}

void df_traced_leave(uint64_t serial, enum df_call call, ncclResult_t result)
{
	df_record_inside--;
	if (serial)
		df_record_leave(serial, call, result == ncclInProgress ? 0 : (uint64_t)result);
}

/* ---- communicators being made ------------------------------------------------------------------------ */

static void note_init(uint64_t serial, uint64_t hash, int nranks, int rank)
{
	df_trace(DF_REC_COMM_INIT, df_record_device(), 0, rank, serial, hash, (uint64_t)nranks,
		 (uint64_t)(int64_t)df_record_device(), 0);
}

uint64_t df_traced_init(ncclComm_t *comm, uint64_t hash, int nranks, int rank, const void *pc)
{
	uint64_t serial = df_traced_enter(DF_CALL_COMM_INIT, NULL, hash, (uint64_t)nranks, pc);
	int i;

	/* rank -1: all ranks at once. */
	for (i = rank < 0 ? 0 : rank; serial && i < (rank < 0 ? nranks : rank + 1); i++)
		note_init(serial, hash, nranks, i);
	(void)comm;
	return serial;
}

/* In a group it is made when the group ends. */
static int made_later(ncclComm_t *comm, uint64_t hash, int nranks, int rank)
{
	struct batch *b = &batch;

	if (!b->depth || df_front_now() != DF_FRONT_TRACE)
		return 0;
	if (b->nr_made == b->cap_made) {
		size_t cap = b->cap_made ? b->cap_made * 2 : 8;
		struct made *v = realloc(b->made, cap * sizeof(*v));

		if (!v)
			return 0;
		b->made = v;
		b->cap_made = cap;
	}
	b->made[b->nr_made++] = (struct made){comm, hash, nranks, rank};
	return 1;
}

void df_traced_made(ncclComm_t *comm, uint64_t hash, int nranks, int rank, uint64_t serial,
		    ncclResult_t result)
{
	struct traced *t = NULL;

	df_record_inside--;
	if ((result == ncclSuccess || result == ncclInProgress) && comm && recording() &&
	    !made_later(comm, hash, nranks, rank) && *comm) {
		df_traced_comm_add(*comm, hash, nranks, rank, 0);
		t = slot_of(*comm, 0);
	}
	if (serial)
		returned((struct behind){serial, DF_CALL_COMM_INIT}, t, result);
}

/* ---- groups --------------------------------------------------------------------------------------------- */

void df_traced_group_start(void)
{
	if (df_record_inside)
		return;
	if (!batch.depth++)
		batch.serial = df_trace_serial() & UINT32_MAX;
}

/*
 * What the group waits for at its end, innermost last: other ranks of the communicators that it makes, and of those
 * that it uses for the first time.
 */
static uint64_t enter_inner(enum df_call *call)
{
	struct batch *b = &batch;
	uint64_t serial = 0;
	size_t i;

	if (b->nr_made) {
		*call = DF_CALL_COMM_INIT;
		serial = df_record_enter(*call, 0, -1, df_record_device(), b->made[0].hash,
					 (uint64_t)b->made[0].nranks, 0);
		for (i = 0; i < b->nr_made; i++)
			note_init(serial, b->made[i].hash, b->made[i].nranks, b->made[i].rank);
	} else if (b->first) {
		*call = DF_CALL_CONNECT;
		serial = df_record_enter(*call, b->first->comm, b->first->rank, b->first->device,
					 b->first->hash, 1, 0);
	}
	return serial;
}

ncclResult_t df_traced_group_end(const void *pc)
{
	struct batch *b = &batch;
	uint64_t serial, inner = 0;
	enum df_call call = DF_CALL_NONE;
	ncclResult_t res;
	size_t i;

	if (!recording() || b->depth > 1) {
		b->depth -= recording() && b->depth > 0;
		df_record_inside++;
		res = df_real()->ncclGroupEnd();
		df_record_inside--;
		return res;
	}
	b->depth = 0;
	serial = df_traced_enter(DF_CALL_GROUP_END, NULL, 0, b->nr_ops, pc);
	inner = enter_inner(&call);
	df_record_before(b->ops, b->nr_ops);
	res = df_real()->ncclGroupEnd();
	called(b->ops, b->nr_ops, res);
	if (inner && b->nr_made && res == ncclInProgress)
		df_record_goes_on(inner, call);
	else if (inner)
		returned((struct behind){inner, call}, b->first, res);
	if (b->first)
		b->first->connected = 1;
	df_traced_leave(serial, DF_CALL_GROUP_END, res);
	for (i = 0; i < b->nr_made; i++)
		if ((res == ncclSuccess || res == ncclInProgress) && *b->made[i].comm)
			df_traced_comm_add(*b->made[i].comm, b->made[i].hash, b->made[i].nranks,
					   b->made[i].rank, 0);
	if (inner && b->nr_made && res == ncclInProgress) {
		/* They become ready together. */
		struct traced *t = slot_of(*b->made[0].comm, 0);

		if (t)
			go_on(t, (struct behind){inner, call});
		else
			df_record_leave(inner, call, 0);
	}
	/* Nothing is kept over the end of a group: nobody would free it when the thread ends. */
	free(b->ops);
	free(b->made);
	b->ops = NULL;
	b->made = NULL;
	b->nr_ops = b->cap_ops = 0;
	b->nr_made = b->cap_made = 0;
	b->first = NULL;
	return res;
}

/* ---- operations ------------------------------------------------------------------------------------------ */

/* The operation as it is issued; 0: there is nothing to be done around its call. */
static int issue(const struct df_traced_call *c, struct traced *t, struct df_record_op *op,
		 uint32_t site)
{
	int peers = c->kind == DF_COLL_SEND || c->kind == DF_COLL_RECV ||
		    c->kind == DF_COLL_BROADCAST || c->kind == DF_COLL_REDUCE ||
		    c->kind == DF_COLL_GATHER || c->kind == DF_COLL_SCATTER;
	struct df_record_call call = {
		.kind = c->kind,
		.type = c->type,
		.redop = c->redop,
		.peer = peers ? c->root : -1,
		.count = c->count,
		.send = c->send,
		.recv = c->recv,
		.comm = t->comm,
		.site = site,
		.rank = t->rank,
		.device = t->device,
	};

	if (!df_record_issue(&call, c->stream, batch.depth ? batch.serial : 0, op))
		return 0;
	op->owner = t;
	return 1;
}

/* In a group: kept until it ends. */
static int later(const struct df_record_op *op)
{
	struct batch *b = &batch;

	if (b->nr_ops == b->cap_ops) {
		size_t cap = b->cap_ops ? b->cap_ops * 2 : 64;
		struct df_record_op *v = realloc(b->ops, cap * sizeof(*v));

		if (!v)
			return 0;
		b->ops = v;
		b->cap_ops = cap;
	}
	b->ops[b->nr_ops++] = *op;
	return 1;
}

/* Once only: another thread that sees it too says the same. */
static int is_first(struct traced *t)
{
	return !t->connected && t->nranks > 1;
}

void df_traced_begin(struct df_traced_op *o, const struct df_traced_call *c, ncclComm_t comm,
		     const void *pc)
{
	struct traced *t = recording() ? slot_of(comm, 0) : NULL;
	uint32_t site;
	int issued;

	o->t = NULL;
	o->serial = 0;
	df_record_inside++;
	if (!t)
		return;
	site = df_trace_site(pc);
	issued = issue(c, t, &o->op, site);
	if (batch.depth) {
		if (is_first(t) && !batch.first)
			batch.first = t;
		if (!issued || later(&o->op))
			return;
	}
	o->t = t;
	o->call = is_first(t) ? DF_CALL_CONNECT : DF_CALL_NCCL_OP;
	o->serial = df_record_enter(o->call, t->comm, t->rank, t->device, t->hash, 1, site);
	df_record_before(&o->op, 1);
}

void df_traced_end(struct df_traced_op *o, ncclResult_t result)
{
	df_record_inside--;
	if (!o->t)
		return;
	called(&o->op, 1, result);
	returned((struct behind){o->serial, o->call}, o->call == DF_CALL_CONNECT ? o->t : NULL,
		 result);
	((struct traced *)o->t)->connected = 1;
	if (result != ncclSuccess && result != ncclInProgress)
		df_trace(DF_REC_OP_FAILED, o->op.device, o->op.comm, o->op.rank, 0, 0,
			 (uint64_t)result, 0, 0);
}
