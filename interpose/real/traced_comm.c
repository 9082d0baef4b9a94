/*
 * Records NCCL's communicators (in mode trace, and those that were handed to NCCL): how they are
 * made, divided and ended. Also queries non-blocking communicators for the result of calls that
 * continue in the background.
 *
 * Any thread. Communicators are in a table with open addressing. Entries are added under a mutex,
 * found without one, and never move. A dead entry is reused by the next communicator with the same
 * address, which is common, because the allocator returns the address again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_api.h"
#include "interpose/real/real.h"
#include "interpose/real/traced_int.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/base/vec.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

#define NR_SLOTS 4096

static struct df_mutex table_lock = DF_MUTEX_INIT(DF_RANK_COMM_TABLE, "traced communicators");
static struct df_mutex deferred_lock = DF_MUTEX_INIT(DF_RANK_COMM_TABLE, "deferred operations");
static struct traced *table;
/* number of communicators with deferred operations or children, and of calls that NCCL continues */
static unsigned nr_deferring;
static uint64_t nr_local;

int df_traced_recording(void)
{
	enum df_front front = df_front_now();

	return (front == DF_FRONT_TRACE || front == DF_FRONT_UNABLE || front == DF_FRONT_OWN) &&
	       !df_record_inside;
}

struct traced *df_traced_slot(const void *comm, int add)
{
	struct traced *t;
	size_t i, n;

	/*
	 * ACQUIRE pairs with the RELEASE in df_traced_comm_add(): without it a table could be seen
	 * before it is zeroed.
	 */
	t = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
	if (!t || !comm)
		return NULL;
	i = df_mix64((uintptr_t)comm) % NR_SLOTS;
	for (n = 0; n < NR_SLOTS; n++, i = (i + 1) % NR_SLOTS) {
		/*
		 * ACQUIRE pairs with the RELEASE of the key: without it the entry could have the
		 * fields of its predecessor.
		 */
		const void *key = __atomic_load_n(&t[i].key, __ATOMIC_ACQUIRE);

		if (key == comm || (!key && add))
			return &t[i];
		if (!key)
			return NULL;
	}
	return NULL;
}

void df_traced_comm_add(ncclComm_t comm, uint64_t hash, int nranks, int rank, uint64_t parent,
			const char *name)
{
	const struct df_nccl_real *real = df_real();
	ncclResult_t state = ncclSuccess;
	struct traced *t;
	int device = -1;

	if (!df_traced_recording())
		return;
	/* The hooks must not take these queries for the application's. */
	df_record_inside++;
	if (!nranks &&
	    (!real->ncclCommCount || real->ncclCommCount(comm, &nranks) != ncclSuccess ||
	     !real->ncclCommUserRank || real->ncclCommUserRank(comm, &rank) != ncclSuccess)) {
		df_record_inside--;
		return;
	}
	/* For a communicator that is not ready, even the query for its device is an error. */
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
		/* RELEASE pairs with the ACQUIRE in df_traced_slot(), which says why. */
		__atomic_store_n(&table, t, __ATOMIC_RELEASE);
	}
	t = df_traced_slot(comm, 1);
	if (t) {
		t->hash = hash;
		t->nranks = nranks;
		t->rank = rank;
		t->device = device;
		t->children = t->grown = 0;
		t->connected = 0;
		__atomic_store_n(&t->end, DF_TRACED_LIVES, __ATOMIC_RELAXED);
		t->comm = df_trace_comm(hash, nranks, rank, device, parent, name);
		/* RELEASE pairs with the ACQUIRE in df_traced_slot(), which says why. */
		__atomic_store_n(&t->key, comm, __ATOMIC_RELEASE);
		df_trace(DF_REC_COMM_READY, device, t->comm, rank, 0, hash, (uint64_t)nranks,
			 (uint64_t)(int64_t)device, 0);
	}
	df_mutex_unlock(&table_lock);
	if (t)
		df_record_made(hash, rank, t->comm, parent);
}

int df_traced_defer(const struct df_record_op *op)
{
	struct traced *t = op->owner;
	struct df_record_op *v;

	df_mutex_lock(&deferred_lock);
	v = DF_VEC_PUSH(t->deferred, t->nr_deferred, t->cap_deferred);
	if (v)
		*v = *op;
	if (v && t->nr_deferred == 1)
		__atomic_add_fetch(&nr_deferring, 1, __ATOMIC_RELAXED);
	df_mutex_unlock(&deferred_lock);
	return v != NULL;
}

void df_traced_go_on(struct traced *t, struct behind b)
{
	struct behind old;

	df_mutex_lock(&deferred_lock);
	old = t->behind;
	t->behind = b;
	if (!old.serial)
		__atomic_add_fetch(&nr_deferring, 1, __ATOMIC_RELAXED);
	df_mutex_unlock(&deferred_lock);
	/* NCCL accepts a new call only after the old one is over. */
	if (old.serial)
		df_record_leave(old.serial, old.call, 0);
}

void df_traced_returned(struct behind b, struct traced *t, ncclResult_t result)
{
	if (result == ncclInProgress && t) {
		df_record_goes_on(b.serial, b.call);
		df_traced_go_on(t, b);
	} else {
		df_record_leave(b.serial, b.call, result == ncclInProgress ? 0 : (uint64_t)result);
	}
}

void df_traced_expect(const struct made *m)
{
	struct traced *t = m->parent;
	struct made *v;

	df_mutex_lock(&deferred_lock);
	v = DF_VEC_PUSH(t->expected, t->nr_expected, t->cap_expected);
	if (v)
		*v = *m;
	if (v && t->nr_expected == 1)
		__atomic_add_fetch(&nr_deferring, 1, __ATOMIC_RELAXED);
	df_mutex_unlock(&deferred_lock);
}

/*
 * Records the operations, the children and the end of the call that waited until the communicator
 * was ready again or had failed.
 */
static void settle(struct traced *t, ncclResult_t state)
{
	struct df_record_op *v;
	struct made *children;
	struct behind behind;
	size_t nr, nr_children, i;

	df_mutex_lock(&deferred_lock);
	children = t->expected;
	nr_children = t->nr_expected;
	t->expected = NULL;
	t->nr_expected = t->cap_expected = 0;
	v = t->deferred;
	nr = t->nr_deferred;
	t->deferred = NULL;
	t->nr_deferred = t->cap_deferred = 0;
	behind = t->behind;
	t->behind.serial = 0;
	if (nr || behind.serial || nr_children)
		__atomic_sub_fetch(&nr_deferring,
				   (nr > 0) + (behind.serial > 0) + (nr_children > 0),
				   __ATOMIC_RELAXED);
	df_mutex_unlock(&deferred_lock);
	df_record_after(v, nr, state == ncclSuccess);
	free(v);
	/*
	 * NCCL wrote the handles before it reported the state. The application gets the state only
	 * after this call.
	 */
	for (i = 0; i < nr_children && state == ncclSuccess; i++)
		if (*children[i].comm)
			df_traced_comm_add(*children[i].comm, children[i].hash, 0, 0, t->hash,
					   children[i].name);
	free(children);
	/* Last: while a rank is in the call, its communicators may not be recorded yet (kin.c). */
	if (behind.serial)
		df_record_leave(behind.serial, behind.call, (uint64_t)state);
}

/*
 * Called before the next call on the communicator: the application may have learned by other means
 * than a query that it is ready again.
 */
static void catch_up(ncclComm_t comm, struct traced *t)
{
	const struct df_nccl_real *real = df_real();
	ncclResult_t state = ncclInProgress;

	/*
	 * RELAXED: the call that made the count non-zero preceded this one in the application's own
	 * order.
	 */
	if (!__atomic_load_n(&nr_deferring, __ATOMIC_RELAXED) || !real->ncclCommGetAsyncError)
		return;
	df_record_inside++;
	if (real->ncclCommGetAsyncError(comm, &state) != ncclSuccess)
		state = ncclInProgress;
	df_record_inside--;
	if (state != ncclInProgress)
		settle(t, state);
}

ncclResult_t df_traced_settled(ncclComm_t comm, ncclResult_t state)
{
	struct traced *t;
	uint64_t serial;

	if (!df_traced_recording())
		return state;
	df_call_polled(0);
	t = df_traced_slot(comm, 0);
	if (!t)
		return state;
	/*
	 * RELAXED: the call that made the count non-zero preceded this one in the application's own
	 * order.
	 */
	if (__atomic_load_n(&nr_deferring, __ATOMIC_RELAXED)) {
		if (state != ncclInProgress) {
			settle(t, state);
		} else {
			df_mutex_lock(&deferred_lock);
			serial = t->behind.serial;
			df_mutex_unlock(&deferred_lock);
			df_call_polled(serial);
		}
	}
	return df_traced_result(t, state);
}

void df_traced_ended(ncclComm_t comm, enum df_call call, uint64_t serial, ncclResult_t result)
{
	enum df_rec_type type = call == DF_CALL_COMM_FINALIZE  ? DF_REC_COMM_FINALIZE
				: call == DF_CALL_COMM_DESTROY ? DF_REC_COMM_DESTROY
							       : DF_REC_COMM_ABORT;
	int goes_on = call == DF_CALL_COMM_FINALIZE && result == ncclInProgress;
	struct traced *t;

	df_record_inside--;
	t = df_traced_recording() ? df_traced_slot(comm, 0) : NULL;
	if (serial)
		df_traced_returned((struct behind){serial, call}, goes_on ? t : NULL, result);
	if (!t)
		return;
	if (!goes_on)
		settle(t, ncclInternalError);
	df_trace(type, t->device, t->comm, t->rank, 0, 0, 0, 0, 0);
	if (type != DF_REC_COMM_FINALIZE)
		df_record_ended(t->hash, t->rank);
}

/* ---- ending what is stuck ------------------------------------------------------------------ */

/*
 * Records that dfshim ends the communicator because it is stuck. Call before any of its operations
 * ends, so that the checker judges the trace as it was then.
 */
static void stopped(ncclComm_t comm)
{
	struct traced *t = df_traced_slot(comm, 0);

	if (t)
		df_trace(DF_REC_COMM_ABORT, t->device, t->comm, t->rank, 0, 1, 0, 0, 0);
}

/*
 * Marks all communicators as stopped by dfshim and returns their number. This includes those on
 * which this process has nothing unfinished: another rank may have, and the application's next
 * operation would wait for that rank for ever.
 */
static unsigned claim_all(void)
{
	/* ACQUIRE pairs with the RELEASE in df_traced_comm_add(), as in df_traced_slot(). */
	struct traced *t = __atomic_load_n(&table, __ATOMIC_ACQUIRE);
	unsigned nr = 0;

	for (size_t i = 0; t && i < NR_SLOTS; i++) {
		int lives = DF_TRACED_LIVES;

		/* ACQUIRE pairs with the RELEASE of the key, as in df_traced_slot(). */
		if (!__atomic_load_n(&t[i].key, __ATOMIC_ACQUIRE) || t[i].nranks < 2 ||
		    !__atomic_compare_exchange_n(&t[i].end, &lives, DF_TRACED_IS_STOPPED, 0,
						 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		stopped((ncclComm_t)t[i].key);
		nr++;
	}
	return nr;
}

/*
 * Revokes all communicators in one group, so that NCCL signals all their kernels to end before it
 * waits for any: a kernel may be queued after one of another communicator. NCCL then reports
 * success for a revoked communicator, so df_traced_result() replaces its results.
 */
static int revoke_all(void)
{
	const struct df_nccl_real *real = df_real();
	struct traced *t;

	if (!real->ncclCommRevoke) {
		df_warn("NCCL %d has no ncclCommRevoke: the process exits instead",
			df_real_version());
		return 0;
	}
	/*
	 * There may be none: the call that hangs creates the first one, or another thread revokes
	 * the rest.
	 */
	if (!claim_all())
		return 0;
	df_record_inside++;
	real->ncclGroupStart();
	/* RELAXED: claim_all() has seen it. */
	t = __atomic_load_n(&table, __ATOMIC_RELAXED);
	for (size_t i = 0; i < NR_SLOTS; i++)
		if (__atomic_load_n(&t[i].end, __ATOMIC_RELAXED) == DF_TRACED_IS_STOPPED)
			real->ncclCommRevoke((ncclComm_t)t[i].key, 0);
	real->ncclGroupEnd();
	df_record_inside--;
	for (size_t i = 0; i < NR_SLOTS; i++)
		/* RELEASE pairs with the ACQUIRE in leave_to_application(), which says why. */
		if (__atomic_load_n(&t[i].end, __ATOMIC_RELAXED) == DF_TRACED_IS_STOPPED)
			__atomic_store_n(&t[i].end, DF_TRACED_STOPPED, __ATOMIC_RELEASE);
	return 1;
}

/*
 * Call before the application destroys or aborts a communicator. Returns once dfshim neither
 * revokes it nor will do so later.
 */
static void leave_to_application(struct traced *t)
{
	int end = DF_TRACED_LIVES;

	/*
	 * ACQUIRE pairs with the RELEASE in revoke_all(): without it NCCL could free a communicator
	 * that it is revoking.
	 */
	while (!__atomic_compare_exchange_n(&t->end, &end, DF_TRACED_GONE, 0, __ATOMIC_ACQUIRE,
					    __ATOMIC_ACQUIRE) &&
	       end == DF_TRACED_IS_STOPPED) {
		df_sleep_ns(DF_NS_PER_MS);
		end = DF_TRACED_LIVES;
	}
}

ncclResult_t df_traced_result(const struct traced *t, ncclResult_t result)
{
	int end = t ? __atomic_load_n(&t->end, __ATOMIC_RELAXED) : DF_TRACED_LIVES;

	return end == DF_TRACED_IS_STOPPED || end == DF_TRACED_STOPPED ? ncclRemoteError : result;
}

static void no_slot(ncclComm_t comm)
{
	struct traced *t = df_traced_slot(comm, 0);

	if (t)
		df_record_no_slot(t->comm);
}

static void slot_waits(void)
{
	df_real_on_cpu()->slot_waits(no_slot);
}

static int stop_on_cpu(void)
{
	df_real_on_cpu()->stop();
	return 1;
}

const struct df_record_nccl *df_traced_nccl(void)
{
	static struct df_record_nccl nccl = {.stop = revoke_all};
	const struct df_hostnccl_api *cpu = df_real_on_cpu();

	if (cpu && cpu->stop) {
		cpu->on_stop(stopped);
		nccl.stop = stop_on_cpu;
	}
	if (cpu)
		nccl.slot_waits = slot_waits;
	return &nccl;
}

uint64_t df_traced_child_hash(ncclComm_t comm, uint64_t salt)
{
	struct traced *t = df_traced_slot(comm, 0);

	return t ? df_hash_u64(df_hash_u64(t->hash, ++t->children), salt) : 0;
}

/* `number` counts the communicators that have grown from this one, as NCCL's own ids do. */
static uint64_t grown_hash(const struct traced *t, uint64_t number)
{
	return df_hash_u64(df_hash_u64(t->hash, number), 1ull << 41);
}

uint64_t df_traced_local_hash(void)
{
	return df_hash_u64((uintptr_t)&nr_local,
			   __atomic_add_fetch(&nr_local, 1, __ATOMIC_RELAXED));
}

uint64_t df_traced_enter(enum df_call call, ncclComm_t comm, uint64_t object, uint64_t detail,
			 uint32_t site)
{
	struct traced *t = comm ? df_traced_slot(comm, 0) : NULL;
	uint64_t serial = 0;

	if (t && df_traced_recording())
		catch_up(comm, t);
	if (t && (call == DF_CALL_COMM_DESTROY || call == DF_CALL_COMM_ABORT))
		leave_to_application(t);
	if (df_traced_recording())
		serial = df_record_enter(call, t ? t->comm : 0, t ? t->rank : -1,
					 t ? t->device : df_record_device(), t ? t->hash : object,
					 detail, site);
	df_record_inside++;
	return serial;
}

void df_traced_leave(uint64_t serial, enum df_call call, ncclResult_t result)
{
	df_record_inside--;
	if (serial)
		df_record_leave(serial, call, result == ncclInProgress ? 0 : (uint64_t)result);
}

/* ---- the other processes ------------------------------------------------------------------- */

static int has_peers(void)
{
	return df_front_now() == DF_FRONT_TRACE && !df_record_inside;
}

ncclResult_t df_traced_id(ncclUniqueId *id)
{
	ncclResult_t res = DF_REAL(ncclGetUniqueId, id);

	if (res == ncclSuccess && id && has_peers())
		df_record_id((unsigned char *)id->internal);
	return res;
}

void df_traced_join(uint64_t hash, int nr_ids, const ncclUniqueId *ids, int nranks, int rank)
{
	if (has_peers())
		df_record_join(hash, nr_ids, (const unsigned char(*)[128])(const void *)ids, nranks,
			       rank, 0);
}

ncclResult_t df_traced_grow_id(ncclComm_t comm, ncclUniqueId *id)
{
	ncclResult_t res = DF_REAL(ncclCommGetUniqueId, comm, id);
	struct traced *t = df_traced_slot(comm, 0);

	if (res == ncclSuccess && id && t && df_traced_recording())
		df_record_grow_id((unsigned char *)id->internal, grown_hash(t, t->grown + 1),
				  has_peers() ? t->hash : 0);
	return res;
}

uint64_t df_traced_grow(ncclComm_t comm, const ncclUniqueId *id, int nranks, int *rank)
{
	struct traced *t = df_traced_slot(comm, 0);
	uint64_t hash = 0;

	if (!df_traced_recording())
		return 0;
	if (t) {
		hash = grown_hash(t, ++t->grown);
		*rank = t->rank;
		if (has_peers())
			df_record_grow(hash, t->hash, nranks, *rank);
	} else if (!comm && id) {
		hash = df_id_named((const unsigned char *)id->internal)
			       ?: df_id_hash((const unsigned char *)id->internal);
		if (has_peers())
			df_record_join(hash, 1, (const unsigned char(*)[128])(const void *)id,
				       nranks, *rank, 1);
	}
	return hash;
}

/* ---- communicators being made ---------------------------------------------------------------- */

void df_traced_note_init(uint64_t serial, uint64_t hash, int nranks, int rank)
{
	df_trace(DF_REC_COMM_INIT, df_record_device(), 0, rank, serial, hash, (uint64_t)nranks,
		 (uint64_t)(int64_t)df_record_device(), 0);
}

uint64_t df_traced_init(enum df_call call, uint64_t hash, int nranks, int rank, const void *pc)
{
	uint64_t serial = df_traced_enter(call, NULL, hash, (uint64_t)nranks, df_trace_site(pc));
	int i;

	/* -1 means all ranks */
	for (i = rank < 0 ? 0 : rank; serial && i < (rank < 0 ? nranks : rank + 1); i++)
		df_traced_note_init(serial, hash, nranks, i);
	return serial;
}

void df_traced_made(enum df_call call, ncclComm_t *comm, uint64_t hash, int nranks, int rank,
		    const char *name, uint64_t serial, ncclResult_t result)
{
	struct made m = {comm, hash, nranks, rank, NULL, call, ""};
	struct traced *t = NULL;

	snprintf(m.name, sizeof(m.name), "%s", name);
	df_record_inside--;
	if ((result == ncclSuccess || result == ncclInProgress) && comm && df_traced_recording() &&
	    !df_traced_made_later(&m) && *comm) {
		df_traced_comm_add(*comm, hash, nranks, rank, 0, m.name);
		t = df_traced_slot(*comm, 0);
	}
	if (serial)
		df_traced_returned((struct behind){serial, call}, t, result);
}

void df_traced_divided(enum df_call call, ncclComm_t comm, ncclComm_t *child, uint64_t hash,
		       const char *name, uint64_t serial, ncclResult_t result)
{
	struct made m = {child, hash, 0, 0, df_traced_slot(comm, 0), call, ""};
	struct traced *t = NULL;

	snprintf(m.name, sizeof(m.name), "%s", name);
	df_record_inside--;
	if ((result == ncclSuccess || result == ncclInProgress) && child && m.parent &&
	    df_traced_recording() && !df_traced_made_later(&m)) {
		t = m.parent;
		if (result == ncclInProgress)
			df_traced_expect(&m);
		else if (*child)
			df_traced_comm_add(*child, hash, 0, 0, t->hash, m.name);
	}
	if (serial)
		df_traced_returned((struct behind){serial, call}, t, result);
}
