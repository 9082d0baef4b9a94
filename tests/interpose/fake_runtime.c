/* The fake runtime. One mutex protects everything; joins wait on one condition variable. */
#include "tests/interpose/fake_runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/backend.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/device/cuda/front/cuda_front.h"
#include "runtime/lanes.h"

/* Only lanes use this. */
const struct df_backend *df_backend;

struct fake fake = {.join_err_rank = -1, .nr_devices = 8};

struct clique {
	struct clique *next;
	uint64_t hash;
	int nranks, arrived;
	int color[64], key[64]; /* of a split in progress, by rank of the parent */
	unsigned char there[64];
};

struct df_comm {
	int device, nranks, rank;
	uint64_t hash;
	int aborted, revoked, finalized, joined;
	int children;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static struct clique *cliques;
static __thread int device;
static uint64_t nr_ids;

int fake_wait(const int *counter, int value)
{
	int i;

	for (i = 0; i < 20000; i++) {
		if (__atomic_load_n(counter, __ATOMIC_ACQUIRE) == value)
			return 1;
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	return 0;
}

const struct df_cuda_hook *df_cuda_hook;

int df_start(void)
{
	return fake.start_err;
}

const char *df_start_reason(void)
{
	return "the test wants it so";
}

const char *df_comm_ended_for(void)
{
	return "";
}

/* In the real runtime this informs other ranks at the rendezvous. Here there is no rendezvous. */
void df_lanes_set(const struct df_lane_calls *(*find)(void))
{
	(void)find;
}

int df_start_unable(void)
{
	return -EINVAL;
}

int df_on_host(void)
{
	return 1;
}

int df_on_lanes(void)
{
	return 0;
}

int df_device_get(void)
{
	return device;
}

int df_device_set(int dev)
{
	if (dev < 0 || dev >= fake.nr_devices)
		return -EINVAL;
	device = dev;
	return 0;
}

int df_device_count(void)
{
	return fake.nr_devices;
}

int df_id_create(unsigned char id[DF_ID_BYTES])
{
	memset(id, 0, DF_ID_BYTES);
	memcpy(id + 64, "ours", 4);
	pthread_mutex_lock(&lock);
	nr_ids++;
	memcpy(id + 72, &nr_ids, sizeof(nr_ids));
	pthread_mutex_unlock(&lock);
	return 0;
}

int df_id_from_address(const char *host_port, unsigned char id[DF_ID_BYTES])
{
	memset(id, 0, DF_ID_BYTES);
	memcpy(id + 64, "ours", 4);
	strncpy((char *)id + 72, host_port, 40);
	return strchr(host_port, ':') ? 0 : -EINVAL;
}

int df_id_is_ours(const unsigned char id[DF_ID_BYTES])
{
	return !memcmp(id + 64, "ours", 4);
}

int df_id_decline(int nr_ids, const unsigned char (*ids)[DF_ID_BYTES], int nranks, int rank,
		  const char *why)
{
	(void)nr_ids;
	(void)ids;
	(void)nranks;
	(void)rank;
	(void)why;
	return 0;
}

uint64_t df_id_hash(const unsigned char id[DF_ID_BYTES])
{
	return df_hash_bytes(id, DF_ID_BYTES, 0);
}

int df_comm_create(int dev, const struct df_comm_config *config, struct df_comm **out)
{
	struct df_comm *c = calloc(1, sizeof(*c));

	(void)config;
	if (!c)
		return -ENOMEM;
	c->device = dev;
	*out = c;
	__atomic_add_fetch(&fake.nr_live, 1, __ATOMIC_ACQ_REL);
	return 0;
}

static struct clique *clique_of(uint64_t hash, int nranks)
{
	struct clique *q;

	for (q = cliques; q; q = q->next)
		if (q->hash == hash)
			return q;
	q = calloc(1, sizeof(*q));
	q->hash = hash;
	q->nranks = nranks;
	q->next = cliques;
	cliques = q;
	return q;
}

/*
 * Waits until all ranks have arrived, or the communicator or its parent is aborted. The caller
 * holds the lock. Returns 0 or -errno.
 */
static int meet(struct clique *q, int rank, const struct df_comm *c, const struct df_comm *parent)
{
	int err = 0;

	if (q->nranks > 64 || rank >= q->nranks || q->there[rank])
		return -EPROTO;
	q->there[rank] = 1;
	q->arrived++;
	__atomic_add_fetch(&fake.nr_joining, 1, __ATOMIC_ACQ_REL);
	pthread_cond_broadcast(&cond);
	while (q->arrived < q->nranks && !(c && c->aborted) && !(parent && parent->aborted))
		pthread_cond_wait(&cond, &lock);
	if (q->arrived < q->nranks)
		err = -ECANCELED;
	__atomic_sub_fetch(&fake.nr_joining, 1, __ATOMIC_ACQ_REL);
	return err;
}

int df_comm_join(struct df_comm *c, int nr, const unsigned char (*ids)[DF_ID_BYTES], int nranks,
		 int rank)
{
	struct clique *q;
	int err;

	(void)nr;
	if (rank == fake.join_err_rank)
		return -EPROTO;
	pthread_mutex_lock(&lock);
	q = clique_of(df_id_hash(ids[0]), nranks);
	err = q->nranks != nranks ? -EPROTO : meet(q, rank, c, NULL);
	if (!err) {
		c->nranks = nranks;
		c->rank = rank;
		c->hash = q->hash;
		c->joined = 1;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

int df_comm_join_split(struct df_comm *c, struct df_comm *parent, int color, int key)
{
	struct clique *q;
	int err, r, rank = 0, nranks = 0;

	pthread_mutex_lock(&lock);
	q = clique_of(df_hash_u64(parent->hash, (uint64_t)++parent->children), parent->nranks);
	q->color[parent->rank] = color;
	q->key[parent->rank] = key;
	err = meet(q, parent->rank, c, parent);
	if (!err && c) {
		for (r = 0; r < parent->nranks; r++) {
			if (q->color[r] != color)
				continue;
			nranks++;
			rank += q->key[r] < key || (q->key[r] == key && r < parent->rank);
		}
		c->nranks = nranks;
		c->rank = rank;
		c->hash = df_hash_u64(q->hash, (uint64_t)color);
		c->joined = 1;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

int df_comm_join_shrink(struct df_comm *c, struct df_comm *parent, const int *exclude,
			int nr_exclude, int abort)
{
	struct clique *q;
	int err, i, before = 0;

	(void)abort;
	pthread_mutex_lock(&lock);
	for (i = 0; i < nr_exclude; i++)
		before += exclude[i] < parent->rank;
	q = clique_of(df_hash_u64(parent->hash, (uint64_t)++parent->children),
		      parent->nranks - nr_exclude);
	err = meet(q, parent->rank - before, c, parent);
	if (!err) {
		c->nranks = q->nranks;
		c->rank = parent->rank - before;
		c->hash = q->hash;
		c->joined = 1;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

/* smoke/t_grow tests it with the real runtime. */
int df_comm_join_grown(struct df_comm *c, struct df_comm *parent, const unsigned char *id,
		       int nranks)
{
	(void)c;
	(void)parent;
	(void)id;
	(void)nranks;
	return -EOPNOTSUPP;
}

int df_comm_allgather(struct df_comm *c, const void *in, size_t bytes, void *out)
{
	(void)c;
	(void)in;
	(void)bytes;
	(void)out;
	return -EOPNOTSUPP;
}

int df_comm_stopped(const struct df_comm *c)
{
	(void)c;
	return 0;
}

int df_comm_finalize(struct df_comm *c)
{
	int err;

	pthread_mutex_lock(&lock);
	__atomic_add_fetch(&fake.nr_finalized, 1, __ATOMIC_ACQ_REL);
	pthread_cond_broadcast(&cond);
	while (fake.finalize_blocks && !c->aborted)
		pthread_cond_wait(&cond, &lock);
	c->finalized = 1;
	err = c->aborted ? -ECANCELED : 0;
	pthread_mutex_unlock(&lock);
	return err;
}

void df_comm_destroy(struct df_comm *c)
{
	memset(c, 0xdb, sizeof(*c)); /* makes later uses detectable */
	free(c);
	__atomic_sub_fetch(&fake.nr_live, 1, __ATOMIC_ACQ_REL);
}

void df_comm_abort(struct df_comm *c)
{
	pthread_mutex_lock(&lock);
	c->aborted = 1;
	fake.nr_aborts++;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&lock);
}

int df_comm_revoke(struct df_comm *c)
{
	pthread_mutex_lock(&lock);
	c->revoked = 1;
	fake.nr_revokes++;
	pthread_mutex_unlock(&lock);
	return 0;
}

int df_comm_nranks(const struct df_comm *c)
{
	return c->nranks;
}

int df_comm_rank(const struct df_comm *c)
{
	return c->rank;
}

uint64_t df_comm_hash(const struct df_comm *c)
{
	return c->hash;
}

enum df_comm_state df_comm_state(const struct df_comm *c)
{
	return c->aborted ? DF_COMM_ABORTED : c->joined ? DF_COMM_READY : DF_COMM_NEW;
}

int df_comm_error(const struct df_comm *c)
{
	(void)c;
	return __atomic_load_n(&fake.comm_err, __ATOMIC_RELAXED);
}

int df_submit(const struct df_op *ops, size_t nr_ops)
{
	size_t i;

	if (fake.submit_err)
		return fake.submit_err;
	pthread_mutex_lock(&lock);
	fake.nr_submits++;
	for (i = 0; i < nr_ops; i++)
		if (ops[i].ticket) {
			ops[i].ticket->done = &fake.done;
			ops[i].ticket->value = (uint64_t)fake.nr_ops + i + 1;
		}
	for (i = 0; i < nr_ops; i++)
		fake.ops[fake.nr_ops++ % FAKE_OPS] = ops[i];
	pthread_mutex_unlock(&lock);
	return 0;
}

void df_call_about(uint32_t site, uint64_t *serial)
{
	(void)site;
	(void)serial;
}

void df_call_polled(uint64_t serial)
{
	(void)serial;
}

uint64_t df_comm_pending(const struct df_comm *c)
{
	(void)c;
	return 0;
}

int df_mem_alloc(size_t bytes, void **out)
{
	*out = malloc(bytes);
	return *out ? 0 : -ENOMEM;
}

int df_mem_free(void *ptr)
{
	free(ptr);
	return 0;
}

int df_mem_known(const void *ptr)
{
	(void)ptr;
	return !fake.mem_unknown;
}

/* ---- recording: nothing is recorded here ----------------------------------------------------- */

__thread int df_record_inside __attribute__((tls_model("initial-exec")));

void df_record_id(unsigned char id[DF_ID_BYTES])
{
	(void)id;
}

void df_record_grow_id(unsigned char id[DF_ID_BYTES], uint64_t hash, uint64_t parent)
{
	(void)id;
	(void)hash;
	(void)parent;
}

void df_record_grow(uint64_t hash, uint64_t parent, int nranks, int rank)
{
	(void)hash;
	(void)parent;
	(void)nranks;
	(void)rank;
}

uint64_t df_id_named(const unsigned char id[DF_ID_BYTES])
{
	(void)id;
	return 0;
}

void df_record_join(uint64_t hash, int nr_ids, const unsigned char (*ids)[DF_ID_BYTES], int nranks,
		    int rank, int grows)
{
	(void)hash;
	(void)grows;
	(void)nr_ids;
	(void)ids;
	(void)nranks;
	(void)rank;
}

void df_record_made(uint64_t hash, int rank, uint32_t trace, uint64_t parent)
{
	(void)hash;
	(void)rank;
	(void)trace;
	(void)parent;
}

void df_record_ended(uint64_t hash, int rank)
{
	(void)hash;
	(void)rank;
}

void df_record_no_slot(uint32_t comm)
{
	(void)comm;
}

int df_record_start(const struct df_record_nccl *nccl)
{
	(void)nccl;
	return -EOPNOTSUPP;
}

void df_record_stop(void) {}

int df_record_intend(const struct df_record_call *c, const void *stream, uint64_t call)
{
	(void)c;
	(void)stream;
	(void)call;
	return 0;
}

int df_record_issue(const struct df_record_call *c, const void *stream, uint64_t group,
		    struct df_record_op *op)
{
	(void)c;
	(void)stream;
	(void)group;
	memset(op, 0, sizeof(*op));
	return 1;
}

void df_record_before(struct df_record_op *ops, size_t nr)
{
	(void)ops;
	(void)nr;
}

void df_record_after(struct df_record_op *ops, size_t nr, int begun)
{
	(void)ops;
	(void)nr;
	(void)begun;
}

uint64_t df_record_enter(uint32_t call, uint32_t comm, int rank, int dev, uint64_t object,
			 uint64_t detail, uint32_t site)
{
	(void)call;
	(void)comm;
	(void)rank;
	(void)dev;
	(void)object;
	(void)detail;
	(void)site;
	return 0;
}

void df_record_goes_on(uint64_t serial, uint32_t call)
{
	(void)serial;
	(void)call;
}

void df_record_leave(uint64_t serial, uint32_t call, uint64_t result)
{
	(void)serial;
	(void)call;
	(void)result;
}

int df_record_device(void)
{
	return -1;
}
