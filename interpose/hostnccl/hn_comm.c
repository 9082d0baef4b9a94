/*
 * Makes communicators from an id or a parent, and ends them.
 *
 * Threads: any. Communicators are in a list with a lock, for the code that ends stuck ones. A
 * handle that was destroyed or aborted keeps a small piece of memory for ever, because streams may
 * still read its words.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "interpose/hostnccl/hn_api.h"
#include "interpose/hostnccl/hostnccl.h"
#include "runtime/base/env.h"
#include "runtime/base/log.h"

typedef int cudaError_t;
cudaError_t cudaMalloc(void **ptr, size_t bytes) __attribute__((weak));
cudaError_t cudaFree(void *ptr) __attribute__((weak));
const struct df_backend *df_hostcuda(void) __attribute__((weak));

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct df_hn_comm *list;
/* They are not freed, so that later calls on them are refused. */
static struct df_hn_comm *ended;
static void (*told_of_stops)(struct ncclComm *comm);

const struct df_backend *df_hn_cuda(void)
{
	return df_hostcuda ? df_hostcuda() : NULL;
}

/* Waits for the device as NCCL does during set-up, because it allocates there. */
static void allocate(void)
{
	void *p;

	if (cudaMalloc && cudaFree && !cudaMalloc(&p, 4096))
		cudaFree(p);
}

ncclResult_t df_hn_check(const void *comm, const char *function)
{
	const struct df_hn_comm *c = comm;

	if (!c || c->magic != DF_NCCL_COMM_MAGIC) {
		DF_NCCL_WARN("%s : comm argument is %s", function, c ? "corrupted" : "NULL");
		return ncclInvalidArgument;
	}
	if (DF_HN_GET(&c->ended)) {
		DF_NCCL_WARN("%s : comm has been destroyed", function);
		return ncclInvalidArgument;
	}
	return df_hn_error(c);
}

/* ---- set-up --------------------------------------------------------------------------------- */

static void enlist(struct df_hn_comm *c)
{
	pthread_mutex_lock(&list_lock);
	c->next_comm = list;
	list = c;
	pthread_mutex_unlock(&list_lock);
}

static ncclResult_t meet(struct df_hn_job *j)
{
	ncclResult_t res = df_hn_meet(j->comm, &j->id);

	if (res && !j->nonblocking)
		*j->out = NULL;
	return res;
}

/*
 * Returns the number of CTAs in a configuration, or `otherwise` if it is NULL or has no number.
 * Returns 0 for a value that NCCL refuses.
 */
static int configured(const ncclConfig_t *config, int otherwise)
{
	if (!config || config->size < offsetof(ncclConfig_t, maxCTAs) + sizeof(int) ||
	    config->maxCTAs == NCCL_CONFIG_UNDEF_INT)
		return otherwise;
	if (config->maxCTAs > 0)
		return config->maxCTAs;
	DF_NCCL_WARN("Invalid config min/max channels attribute value %d/%d", config->minCTAs,
		     config->maxCTAs);
	return 0;
}

/* Returns the number of CTAs. As in NCCL, a communicator has at least NCCL_MIN_NCHANNELS. */
static int ctas_of(const ncclConfig_t *config, int otherwise)
{
	const char *least = getenv("NCCL_MIN_NCHANNELS");
	int ctas = configured(config, otherwise);

	return ctas && least && atoi(least) > ctas ? atoi(least) : ctas;
}

/* parent: the communicator from which it grows, if this is a rank of that; or NULL. */
static ncclResult_t init(ncclComm_t *comm, int nranks, const struct df_hn_id *id, int rank,
			 const ncclConfig_t *config, const struct df_hn_comm *parent)
{
	struct df_hn_job j = {.fn = meet,
			      .out = comm,
			      .id = *id,
			      .ctas = ctas_of(config, parent ? parent->ctas : DF_HN_CTAS)};
	ncclResult_t res;

	if (!comm || nranks < 1 || nranks > DF_HN_MAX || rank < 0 || rank >= nranks) {
		DF_NCCL_WARN("Invalid rank requested : %d/%d", rank, nranks);
		return ncclInvalidArgument;
	}
	if (!df_hn_cuda()) {
		DF_NCCL_WARN(
			"libdfnccl.so needs libdfhost.so: there is no memory of the CUDA runtime "
			"on the CPU");
		return ncclUnhandledCudaError;
	}
	if (!j.ctas)
		return ncclInvalidArgument;
	allocate();
	res = df_hn_open(&j.id, nranks, rank, &j.comm);
	if (res)
		return res;
	j.comm->ctas = j.ctas;
	j.nonblocking = j.comm->nonblocking =
		config ? config->blocking == 0 : parent && parent->nonblocking;
	if (parent)
		j.comm->device = df_hn_seat(j.comm)->device = parent->device;
	enlist(j.comm);
	*comm = (ncclComm_t)j.comm;
	return df_hn_job_start(&j);
}

ncclResult_t pncclGetVersion(int *version)
{
	if (!version)
		return ncclInvalidArgument;
	*version = DF_NCCL_VERSION;
	return ncclSuccess;
}
DF_HN_NAME(ncclGetVersion);

ncclResult_t pncclGetUniqueId(ncclUniqueId *id)
{
	struct df_hn_id made;
	ncclResult_t res = id ? df_hn_id_make(&made) : ncclInvalidArgument;

	if (res)
		return res;
	memset(id, 0, sizeof(*id));
	memcpy(id, &made, sizeof(made));
	return ncclSuccess;
}
DF_HN_NAME(ncclGetUniqueId);

static struct df_hn_id memory_of(const ncclUniqueId *id)
{
	struct df_hn_id made;

	memcpy(&made, id, sizeof(made));
	return made;
}

static ncclResult_t init_by_id(ncclComm_t *comm, int nranks, const ncclUniqueId *id, int rank,
			       const ncclConfig_t *config)
{
	struct df_hn_id made = memory_of(id);

	return init(comm, nranks, &made, rank, config, NULL);
}

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
	return init_by_id(comm, nranks, &id, rank, NULL);
}
DF_HN_NAME(ncclCommInitRank);

ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
				     ncclConfig_t *config)
{
	return init_by_id(comm, nranks, &id, rank, config);
}
DF_HN_NAME(ncclCommInitRankConfig);

ncclResult_t pncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nr_ids,
				       ncclUniqueId *ids, ncclConfig_t *config)
{
	return nr_ids < 1 || !ids ? ncclInvalidArgument
				  : init_by_id(comm, nranks, ids, rank, config);
}
DF_HN_NAME(ncclCommInitRankScalable);

ncclResult_t pncclCommInitAll(ncclComm_t *comms, int nr, const int *devices)
{
	const struct df_backend *cuda = df_hn_cuda();
	int i, device = cuda ? cuda->get_device() : 0;
	ncclResult_t res, end;
	ncclUniqueId id;

	if (!comms || nr < 1)
		return ncclInvalidArgument;
	res = pncclGetUniqueId(&id);
	if (!res)
		res = pncclGroupStart();
	if (res)
		return res;
	for (i = 0; i < nr && !res; i++)
		res = cuda && cuda->set_device(devices ? devices[i] : i)
			      ? ncclUnhandledCudaError
			      : init_by_id(&comms[i], nr, &id, i, NULL);
	end = pncclGroupEnd();
	if (cuda)
		cuda->set_device(device);
	return res ? res : end;
}
DF_HN_NAME(ncclCommInitAll);

/* ---- division ------------------------------------------------------------------------------- */

static struct df_hn_division *division_of(const struct df_hn_comm *c, int rank, uint64_t round)
{
	return &c->share->seats[rank].divisions[round % DF_HN_ROUNDS];
}

/*
 * Waits for the values that a rank of the parent publishes for this round. Returns NULL if the
 * communicator has an error.
 */
static const struct df_hn_division *said(struct df_hn_comm *c, int rank, uint64_t round)
{
	const struct df_hn_division *d = division_of(c, rank, round);
	unsigned turns = 0;

	/*
	 * ACQUIRE pairs with the RELEASE in say(): without it colour and key might not be
	 * visible.
	 */
	while (__atomic_load_n(&d->round, __ATOMIC_ACQUIRE) != round + 1) {
		if (df_hn_error(c))
			return NULL;
		df_hn_nap(&turns);
	}
	return d;
}

static void say(struct df_hn_comm *c, uint64_t round, int color, int key)
{
	struct df_hn_division *d = division_of(c, c->rank, round);

	d->color = color;
	d->key = key;
	/* RELEASE pairs with the ACQUIRE in said(), which says why. */
	__atomic_store_n(&d->round, round + 1, __ATOMIC_RELEASE);
}

/*
 * Gets the id of the new communicator's memory. The first rank makes the id; the others wait for
 * it.
 */
static ncclResult_t child_id(struct df_hn_comm *c, int first, uint64_t round, struct df_hn_id *id)
{
	struct df_hn_division *d = division_of(c, first, round);
	unsigned turns = 0;
	ncclResult_t res;

	if (first == c->rank) {
		res = df_hn_id_make(id);
		if (res)
			return res;
		d->child = *id;
		/*
		 * RELEASE pairs with the ACQUIRE below: without it a rank could read an incomplete
		 * id.
		 */
		__atomic_store_n(&d->named, round + 1, __ATOMIC_RELEASE);
		return ncclSuccess;
	}
	/* ACQUIRE pairs with the RELEASE above, which says why. */
	while (__atomic_load_n(&d->named, __ATOMIC_ACQUIRE) != round + 1) {
		res = df_hn_error(c);
		if (res)
			return res;
		df_hn_nap(&turns);
	}
	*id = d->child;
	return ncclSuccess;
}

static ncclResult_t divide_among(struct df_hn_job *j)
{
	struct df_hn_comm *c = j->comm, *child;
	uint64_t round = c->nr_rounds++;
	int k, n = 0, rank = 0, first = c->rank, first_key = j->key;
	ncclResult_t res;

	say(c, round, j->color, j->key);
	for (k = 0; k < c->nranks; k++) {
		const struct df_hn_division *d;

		if (j->without && j->without[k])
			continue;
		d = said(c, k, round);
		if (!d)
			return df_hn_error(c);
		if (d->color != j->color)
			continue;
		n++;
		rank += d->key < j->key || (d->key == j->key && k < c->rank);
		if (d->key < first_key || (d->key == first_key && k < first)) {
			first = k;
			first_key = d->key;
		}
	}
	if (j->color < 0)
		return ncclSuccess;
	res = child_id(c, first, round, &j->id);
	if (!res)
		res = df_hn_open(&j->id, n, rank, &child);
	if (res)
		return res;
	child->device = child->share->seats[rank].device = c->device;
	child->nonblocking = j->nonblocking;
	child->ctas = j->ctas;
	enlist(child);
	res = df_hn_meet(child, &j->id);
	if (!res)
		/* RELEASE pairs with the application's own load of the handle. */
		__atomic_store_n(j->out, (ncclComm_t)child, __ATOMIC_RELEASE);
	return res;
}

static ncclResult_t divide(struct df_hn_job *j)
{
	ncclResult_t res;

	__atomic_fetch_add(&df_hn_seat(j->comm)->setting_up, 1, __ATOMIC_RELAXED);
	res = divide_among(j);
	__atomic_fetch_sub(&df_hn_seat(j->comm)->setting_up, 1, __ATOMIC_RELAXED);
	return res;
}

static ncclResult_t child_of(ncclComm_t comm, struct df_hn_job j, const ncclConfig_t *config,
			     const char *name)
{
	struct df_hn_comm *c = (struct df_hn_comm *)comm;
	ncclResult_t res = df_hn_check(c, name);

	if (!res)
		j.ctas = ctas_of(config, c->ctas);
	if (!res && (!j.out || !j.ctas))
		res = ncclInvalidArgument;
	if (res) {
		free(j.without);
		return res;
	}
	allocate();
	*j.out = NULL;
	j.fn = divide;
	j.comm = c;
	j.nonblocking = config && config->blocking != NCCL_CONFIG_UNDEF_INT ? !config->blocking
									    : c->nonblocking;
	return df_hn_job_start(&j);
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
			    ncclConfig_t *config)
{
	return child_of(comm, (struct df_hn_job){.color = color, .key = key, .out = newcomm},
			config, "CommSplit");
}
DF_HN_NAME(ncclCommSplit);

ncclResult_t pncclCommShrink(ncclComm_t comm, int *exclude, int nr, ncclComm_t *newcomm,
			     ncclConfig_t *config, int flags)
{
	struct df_hn_comm *c = (struct df_hn_comm *)comm;
	struct df_hn_job j = {.out = newcomm};
	ncclResult_t res = df_hn_check(c, "CommShrink");
	int i;

	(void)flags;
	if (res)
		return res;
	j.key = c->rank;
	j.without = calloc((size_t)c->nranks, 1);
	if (!j.without)
		return ncclSystemError;
	for (i = 0; i < nr; i++)
		if (exclude[i] >= 0 && exclude[i] < c->nranks)
			j.without[exclude[i]] = 1;
	return child_of(comm, j, config, "CommShrink");
}
DF_HN_NAME(ncclCommShrink);

/* ---- growth --------------------------------------------------------------------------------- */

/* Stores the id also for the other ranks of the communicator, which the application gives none. */
ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id)
{
	struct df_hn_comm *c = (struct df_hn_comm *)comm;
	ncclResult_t res = df_hn_check(c, "CommGetUniqueId");
	struct df_hn_id made;

	if (!res)
		res = id ? df_hn_id_make(&made) : ncclInvalidArgument;
	if (res)
		return res;
	memset(id, 0, sizeof(*id));
	memcpy(id, &made, sizeof(made));
	c->share->grown_id = made;
	/* RELEASE pairs with the ACQUIRE in grown_id(): without it the id might be incomplete. */
	__atomic_store_n(&c->share->grown, c->nr_grown + 1, __ATOMIC_RELEASE);
	return ncclSuccess;
}
DF_HN_NAME(ncclCommGetUniqueId);

/* Waits for the id that a rank of the parent makes. NCCL waits in this call, too. */
static ncclResult_t grown_id(struct df_hn_comm *c, struct df_hn_id *id)
{
	uint64_t number = ++c->nr_grown;
	unsigned turns = 0;

	/* ACQUIRE pairs with the RELEASE in pncclCommGetUniqueId(), which says why. */
	while (__atomic_load_n(&c->share->grown, __ATOMIC_ACQUIRE) < number) {
		if (df_hn_error(c))
			return df_hn_error(c);
		df_hn_nap(&turns);
	}
	*id = c->share->grown_id;
	return ncclSuccess;
}

ncclResult_t pncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
			   ncclComm_t *newcomm, ncclConfig_t *config)
{
	struct df_hn_comm *c = (struct df_hn_comm *)comm;
	struct df_hn_id made;
	ncclResult_t res;

	if (!c)
		return id ? init_by_id(newcomm, nranks, id, rank, config) : ncclInvalidArgument;
	res = df_hn_check(c, "CommGrow");
	if (!res && (!newcomm || rank != -1 || nranks <= c->nranks))
		res = ncclInvalidArgument;
	if (!res)
		res = grown_id(c, &made);
	return res ? res : init(newcomm, nranks, &made, c->rank, config, c);
}
DF_HN_NAME(ncclCommGrow);

/* ---- end ------------------------------------------------------------------------------------ */

/* Blocks until all launches are finished. */
static ncclResult_t idle(struct df_hn_comm *c)
{
	unsigned turns = 0;
	ncclResult_t error = ncclSuccess;
	uint64_t all = DF_HN_GET(&df_hn_seat(c)->given);

	/*
	 * ACQUIRE pairs with the RELEASE in finish() (hn_engine.c): without it the effects of the
	 * operations might not be visible.
	 */
	while (__atomic_load_n(&c->done, __ATOMIC_ACQUIRE) < all && !(error = df_hn_error(c)))
		df_hn_nap(&turns);
	if (error)
		df_hn_tell_stopped();
	return error;
}

static ncclResult_t finalize(struct df_hn_job *j)
{
	return idle(j->comm);
}

ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
	struct df_hn_job j = {.fn = finalize, .comm = (struct df_hn_comm *)comm};
	ncclResult_t res = df_hn_check(comm, "CommFinalize");

	return res ? res : df_hn_job_start(&j);
}
DF_HN_NAME(ncclCommFinalize);

/* Ends a communicator on which no operation runs any more. */
static void end(struct df_hn_comm *c)
{
	struct df_hn_comm **p;
	unsigned turns = 0;

	if (__atomic_exchange_n(&c->ended, 1, __ATOMIC_RELAXED))
		return;
	if (!DF_HN_GET(&c->error))
		__atomic_store_n(&c->error, ncclInvalidUsage, __ATOMIC_RELAXED);
	/* NCCL would not wait for the thread, which then uses freed memory. */
	if (!c->nonblocking && DF_HN_GET(&df_hn_seat(c)->setting_up))
		DF_NCCL_WARN("a communicator is freed under a thread that is in a call on it");
	/*
	 * Both ACQUIREs pair with the end of other threads' work on the communicator: without them
	 * this thread could free memory that the others still use.
	 */
	while (__atomic_load_n(&df_hn_seat(c)->setting_up, __ATOMIC_ACQUIRE) ||
	       __atomic_load_n(&c->in_progress, __ATOMIC_ACQUIRE))
		df_hn_nap(&turns);
	df_hn_drop(c);
	pthread_mutex_lock(&list_lock);
	for (p = &list; *p && *p != c; p = &(*p)->next_comm)
		;
	if (*p)
		*p = c->next_comm;
	c->next_comm = ended;
	ended = c;
	pthread_mutex_unlock(&list_lock);
	df_hn_close(c);
}

static ncclResult_t free_aborted(struct df_hn_job *j)
{
	end(j->comm);
	return ncclSuccess;
}

ncclResult_t pncclCommAbort(ncclComm_t comm)
{
	struct df_hn_comm *c = (struct df_hn_comm *)comm;
	struct df_hn_job j = {.fn = free_aborted, .comm = c, .frees = 1};

	if (!c || c->magic != DF_NCCL_COMM_MAGIC)
		return c ? ncclInvalidArgument : ncclSuccess;
	if (!DF_HN_GET(&c->error))
		__atomic_store_n(&c->error, ncclInternalError, __ATOMIC_RELAXED);
	/*
	 * In a group, the communicator is freed when the group ends. Until then other threads may
	 * return from their calls on it.
	 */
	return df_hn_job_start(&j);
}
DF_HN_NAME(ncclCommAbort);

/*
 * Revokes the communicator as NCCL does: operations in progress end, later ones are refused, and
 * there is no asynchronous error.
 */
ncclResult_t pncclCommRevoke(ncclComm_t comm, int flags)
{
	struct df_hn_comm *c = (struct df_hn_comm *)comm;
	ncclResult_t res = df_hn_check(comm, "CommRevoke");

	if (res)
		return res;
	if (flags || __atomic_exchange_n(&c->revoked, 1, __ATOMIC_RELAXED))
		return ncclInvalidArgument;
	__atomic_store_n(&c->error, ncclInvalidUsage, __ATOMIC_RELAXED);
	df_hn_drop(c);
	return ncclSuccess;
}
DF_HN_NAME(ncclCommRevoke);

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
	struct df_hn_comm *c = (struct df_hn_comm *)comm;

	if (!c)
		return ncclSuccess;
	if (c->magic != DF_NCCL_COMM_MAGIC || DF_HN_GET(&c->ended)) {
		DF_NCCL_WARN("CommDestroy : comm has been destroyed");
		return ncclInvalidArgument;
	}
	idle(c);
	end(c);
	return ncclSuccess;
}
DF_HN_NAME(ncclCommDestroy);

/*
 * Whether any rank has unfinished operations on the communicator, or waits for other ranks. This
 * rank may have none yet, but issue one as soon as its operations elsewhere end. Then the other
 * rank's operation would finish as if nothing had happened.
 */
static int unfinished(const struct df_hn_comm *c)
{
	for (int i = 0; i < c->nranks; i++) {
		const struct df_hn_seat *s = &c->share->seats[i];

		if (DF_HN_GET(&s->over) < DF_HN_GET(&s->given) || DF_HN_GET(&s->setting_up))
			return 1;
	}
	return 0;
}

void df_hn_tell_stopped(void)
{
	struct df_hn_comm *c;

	pthread_mutex_lock(&list_lock);
	for (c = list; c; c = c->next_comm) {
		if (c->told || DF_HN_GET(&c->ended) || df_hn_error(c) != ncclRemoteError)
			continue;
		c->told = 1;
		__atomic_store_n(&c->error, ncclRemoteError, __ATOMIC_RELAXED);
		if (told_of_stops)
			told_of_stops((struct ncclComm *)c);
	}
	pthread_mutex_unlock(&list_lock);
}

static void stop(void)
{
	struct df_hn_comm *c;

	/*
	 * Set the error of all communicators before any of them ends. The end of one may let
	 * operations of another finish, and a thread that waited for these must not believe their
	 * results.
	 */
	df_hn_engine_hold();
	pthread_mutex_lock(&list_lock);
	for (c = list; c; c = c->next_comm) {
		if (DF_HN_GET(&c->ended) || df_hn_error(c) || !unfinished(c))
			continue;
		__atomic_store_n(&c->error, ncclRemoteError, __ATOMIC_RELAXED);
		__atomic_store_n(&c->share->stopped, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&list_lock);
	df_hn_tell_stopped();
	df_hn_engine_go_on();
}

static void on_stop(void (*fn)(struct ncclComm *comm))
{
	told_of_stops = fn;
}

DF_HN_EXPORT const struct df_hostnccl_api *df_hostnccl(void)
{
	static const struct df_hostnccl_api api = {
		.stop = stop, .on_stop = on_stop, .slot_waits = df_hn_slot_waits};

	return &api;
}
