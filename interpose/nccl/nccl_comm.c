/*
 * The calls by which the application creates communicators: ids, init, split, shrink. Their end is
 * in nccl_comm_end.c, queries are in nccl_query.c. Steps that wait for peers are jobs (nccl_job.c).
 *
 * Threads: any; ncclCommGetAsyncError may run during another call on the same communicator.
 */
#include <stdlib.h>
#include <string.h>
#include "interpose/nccl/nccl_coll.h"
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_group.h"
#include "interpose/nccl/nccl_handover.h"
#include "interpose/nccl/nccl_api.h"
#include "interpose/nccl/nccl_job.h"
#include "interpose/real/real.h"
#include "interpose/nccl/nccl_status.h"
#include "interpose/real/traced.h"
#include "runtime/base/env.h"
#include "runtime/base/log.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

#define SITE() df_trace_site(__builtin_return_address(0))

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
	enum df_front front = df_front();
	const char *address;
	int err;

	if (df_real_makes(front))
		return df_traced_id(uniqueId);
	if (front == DF_FRONT_REFUSE)
		return df_front_refused("GetUniqueId");
	if (df_ptr_check(uniqueId, "GetUniqueId", "out") != ncclSuccess)
		return ncclInvalidArgument;
	address = df_env()->nccl_comm_id;
	if (address)
		err = df_id_from_address(address, (unsigned char *)uniqueId->internal);
	else
		err = df_id_create((unsigned char *)uniqueId->internal);
	return df_status_warn(err, "GetUniqueId");
}
DF_NCCL_EXPORT(ncclGetUniqueId);

/* ---- making one ----------------------------------------------------------------------------- */

static int make_comm(struct df_handle *h, int share, int grows)
{
	struct df_comm_config config = {.share = share,
					.max_blocks = h->config.max_ctas,
					.grows = grows,
					.bound = df_front_bound(),
					.real = &h->config};

	/* NCCL could not grow it by our id. */
	if (grows && !config.bound)
		config.bound = "a communicator that grows";

	_Static_assert(sizeof(config.name) == sizeof(h->config.name), "names of one length");
	memcpy(config.name, h->config.name, sizeof(config.name));
	memcpy(config.net, h->config.net, sizeof(config.net));
	return df_comm_create(h->device, &config, &h->comm);
}

/* Stores the ids with which a rank joins. NCCL_COMM_ID may replace them, but not those to grow. */
static ncclResult_t take_ids(struct df_job *job, int nr_ids, const ncclUniqueId *ids, int grows)
{
	const char *address = grows ? NULL : df_env()->nccl_comm_id;
	int i, err;

	job->ids = calloc((size_t)nr_ids, DF_ID_BYTES);
	if (!job->ids)
		return df_status_warn(-ENOMEM, "CommInitRank");
	for (i = 0; i < nr_ids; i++)
		memcpy(job->ids[i], ids[i].internal, DF_ID_BYTES);
	job->nr_ids = nr_ids;
	if (address) {
		err = df_id_from_address(address, job->ids[0]);
		job->nr_ids = 1;
		return df_status_warn(err, "NCCL_COMM_ID");
	}
	for (i = 0; i < nr_ids; i++) {
		if (df_id_is_ours(job->ids[i]))
			continue;
		DF_NCCL_WARN("CommInitRank : the unique id was not made under dfshim: all ranks of "
			     "a job must have it in LD_PRELOAD, in the same mode, or none");
		return ncclInvalidUsage;
	}
	return ncclSuccess;
}

/* Whether the other ranks join through dfshim's rendezvous. */
static int has_rendezvous(int nr_ids, const ncclUniqueId *ids)
{
	int i;

	for (i = 0; ids && i < nr_ids; i++)
		if (!df_id_is_ours((const unsigned char *)ids[i].internal))
			break;
	return df_env()->nccl_comm_id || (ids && nr_ids > 0 && i == nr_ids);
}

/* Informs the other ranks that this rank will not join. */
static void decline(int nr_ids, const ncclUniqueId *ids, int nranks, int rank)
{
	const char *absent = df_front_absent(), *address = df_env()->nccl_comm_id;
	unsigned char id[DF_ID_BYTES];

	if (!absent || !has_rendezvous(nr_ids, ids))
		return;
	if (!address)
		df_id_decline(nr_ids, (const void *)ids, nranks, rank, absent);
	else if (rank && !df_id_from_address(address, id))
		/* Only rank 0 can make the rendezvous, so the others inform it. */
		df_id_decline(1, &id, nranks, rank, absent);
}

/*
 * Does what NCCL's ncclCommInitRankDev does: checks the arguments, then starts a job. `config` is
 * NULL for the defaults.
 */
static ncclResult_t init_rank(ncclComm_t *newcomm, int nranks, int nr_ids, const ncclUniqueId *ids,
			      int rank, int grows, const void *config, const char *func,
			      uint32_t site)
{
	struct df_handle *h = NULL;
	struct df_job *job = NULL;
	struct df_config c;
	ncclResult_t res;

	if (nr_ids <= 0 || nr_ids > nranks) {
		DF_NCCL_WARN("improper usage of ncclCommInitRank: nId = %d, nranks=%d", nr_ids,
			     nranks);
		return ncclInvalidArgument;
	}
	df_front_show_version(rank);
	res = df_ptr_check(newcomm, "CommInitRank", "newcomm");
	if (res == ncclSuccess && grows)
		res = df_ptr_check(ids, func, "uniqueId");
	if (res != ncclSuccess)
		return res;
	*newcomm = NULL;
	if (rank < 0 || rank >= nranks) {
		DF_NCCL_WARN("Invalid rank requested : %d/%d", rank, nranks);
		return ncclInvalidArgument;
	}
	df_config_default(&c);
	if (config) {
		res = df_config_parse(config, &c);
		if (res != ncclSuccess)
			return res;
	}
	/* If dfshim could not start, the job informs the other ranks (run_init()). */
	if (df_front() == DF_FRONT_REFUSE && (!has_rendezvous(nr_ids, ids) || df_start_unable())) {
		decline(nr_ids, ids, nranks, rank);
		return df_front_refused(func);
	}
	h = df_handle_new(&c, df_device_get());
	job = h ? df_job_new(DF_JOB_INIT, h, func, site) : NULL;
	if (!job) {
		res = df_status_warn(-ENOMEM, func);
		goto err_handle;
	}
	res = take_ids(job, nr_ids, ids, grows);
	if (res != ncclSuccess)
		goto err_job;
	res = df_status_warn(make_comm(h, 0, grows), func);
	if (res != ncclSuccess)
		goto err_job;
	job->made = h;
	job->out = newcomm;
	job->nranks = nranks;
	job->rank = rank;
	if (df_front_now() == DF_FRONT_UNABLE)
		job->context = df_context_get();
	*newcomm = (ncclComm_t)h;
	return df_group_job(job);

err_job:
	df_job_free(job);
err_handle:
	if (h)
		df_handle_free(h);
	return res;
}

/* Refuses an id that our runtime made: with it, the real library would wait for ever. */
static ncclResult_t check_real_ids(int nr_ids, const ncclUniqueId *ids, int nranks, int rank)
{
	const char *absent = df_front_absent();

	if (!df_id_is_ours((const unsigned char *)ids->internal))
		return ncclSuccess;
	DF_NCCL_WARN("CommInitRank : the unique id was made under dfshim, but this rank runs on "
		     "plain NCCL (%s): all ranks of a job must run in the same mode",
		     absent ? absent : "?");
	decline(nr_ids, ids, nranks, rank);
	return ncclInvalidUsage;
}

/*
 * Whether the real library makes the communicator: either it makes all, or a rank that runs on
 * plain NCCL made the ids. All ranks have the same ids, so all get the same result.
 */
static int real_init(int nr_ids, const ncclUniqueId *ids)
{
	enum df_front front = df_front();
	int i;

	if (front == DF_FRONT_UNABLE) {
		/*
		 * init_rank() informs the ranks that made the id, so that they use plain NCCL,
		 * too.
		 */
		if (has_rendezvous(nr_ids, ids))
			return 0;
		df_group_real();
	}
	if (df_real_makes(front))
		return 1;
	if (front != DF_FRONT_OWN || df_on_host() || df_env()->strict || df_env()->nccl_comm_id ||
	    !df_real()->ncclCommInitRank || nr_ids < 1 || !ids)
		return 0;
	for (i = 0; i < nr_ids; i++)
		if (df_id_is_ours((const unsigned char *)ids[i].internal))
			return 0;
	df_warn("communicator %016llx: its unique id was made on plain NCCL, so NCCL executes it; "
		"it is recorded, and can hang as NCCL can",
		(unsigned long long)df_id_hash((const unsigned char *)ids[0].internal));
	df_group_real();
	return 1;
}

/*
 * Makes a communicator with the real library, and records that. `call` is the call of the real
 * library. The first id shows which library made the ids.
 */
#define REAL_INIT(fn, comm, nranks, nr_ids, id, rank, config, call)                                \
	do {                                                                                       \
		__typeof__(fn) *real_ = df_real()->fn;                                             \
		uint64_t serial_, hash_;                                                           \
		ncclResult_t res_;                                                                 \
		if (!real_)                                                                        \
			return df_real_missing(#fn);                                               \
		if (check_real_ids(nr_ids, id, nranks, rank) != ncclSuccess)                       \
			return ncclInvalidUsage;                                                   \
		hash_ = df_id_hash((const unsigned char *)(id));                                   \
		df_traced_join(hash_, nr_ids, id, nranks, rank);                                   \
		serial_ = df_traced_init(DF_CALL_COMM_INIT, hash_, nranks, rank,                   \
					 __builtin_return_address(0));                             \
		res_ = real_ call;                                                                 \
		df_traced_made(DF_CALL_COMM_INIT, comm, hash_, nranks, rank,                       \
			       df_config_name(config), serial_, res_);                             \
		return df_group_error(res_);                                                       \
	} while (0)

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
				    ncclConfig_t *config)
{
	if (real_init(1, &commId))
		REAL_INIT(ncclCommInitRankConfig, comm, nranks, 1, &commId, rank, config,
			  (comm, nranks, commId, rank, config));
	return df_group_error(
		init_rank(comm, nranks, 1, &commId, rank, 0, config, __func__, SITE()));
}
DF_NCCL_EXPORT(ncclCommInitRankConfig);

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
	if (real_init(1, &commId))
		REAL_INIT(ncclCommInitRank, comm, nranks, 1, &commId, rank, NULL,
			  (comm, nranks, commId, rank));
	return df_group_error(init_rank(comm, nranks, 1, &commId, rank, 0, NULL, __func__, SITE()));
}
DF_NCCL_EXPORT(ncclCommInitRank);

ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
				      ncclUniqueId *commIds, ncclConfig_t *config)
{
	if (df_real_makes(df_front()) && !commIds)
		return DF_REAL(ncclCommInitRankScalable, newcomm, nranks, myrank, nId, commIds,
			       config);
	if (real_init(nId, commIds))
		REAL_INIT(ncclCommInitRankScalable, newcomm, nranks, nId, commIds, myrank, config,
			  (newcomm, nranks, myrank, nId, commIds, config));
	if (nId > 0 && df_ptr_check(commIds, "CommInitRank", "commIds") != ncclSuccess)
		return df_group_error(ncclInvalidArgument);
	return df_group_error(
		init_rank(newcomm, nranks, nId, commIds, myrank, 0, config, __func__, SITE()));
}
DF_NCCL_EXPORT(ncclCommInitRankScalable);

static ncclResult_t check_devices(int ndev, const int *devlist)
{
	int total = df_device_count(), i, j;

	if (ndev < 0) {
		DF_NCCL_WARN("Invalid device count requested : %d", ndev);
		return ncclInvalidArgument;
	}
	for (i = 0; i < ndev; i++) {
		int dev = devlist ? devlist[i] : i;

		if (dev < 0 || dev >= total) {
			DF_NCCL_WARN("Invalid device %d (totalnDev=%d)", dev, total);
			return ncclInvalidArgument;
		}
		for (j = 0; devlist && !df_env()->nccl_multi_rank_gpu && j < i; j++)
			if (devlist[j] == dev)
				return ncclInvalidUsage;
	}
	return ncclSuccess;
}

static ncclResult_t init_all(ncclComm_t *comms, int ndev, const int *devlist, uint32_t site)
{
	unsigned char id[DF_ID_BYTES];
	ncclUniqueId uid;
	ncclResult_t res;
	int i, old, err;

	res = df_ptr_check(comms, "CommInitAll", "comms");
	if (res != ncclSuccess)
		return res;
	if (df_front() == DF_FRONT_REFUSE)
		return df_front_refused("CommInitAll");
	res = check_devices(ndev, devlist);
	if (res != ncclSuccess || !ndev)
		return res;
	err = df_id_create(id);
	if (err)
		return df_status_warn(err, "CommInitAll");
	memcpy(uid.internal, id, sizeof(id));
	old = df_device_get();
	res = df_group_start();
	if (res != ncclSuccess)
		return res;
	for (i = 0; i < ndev; i++) {
		if (df_device_set(devlist ? devlist[i] : i))
			res = ncclUnhandledCudaError;
		else
			res = init_rank(&comms[i], ndev, 1, &uid, i, 0, NULL, "ncclCommInitAll",
					site);
		df_group_error(res);
	}
	df_device_set(old);
	return df_group_end(site);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
	if (df_real_makes(df_front())) {
		__typeof__(ncclCommInitAll) *real = df_real()->ncclCommInitAll;
		uint64_t serial, hash;
		ncclResult_t res;
		int i;

		if (!real)
			return df_real_missing(__func__);
		hash = df_traced_local_hash();
		serial = df_traced_init(DF_CALL_COMM_INIT, hash, ndev, -1,
					__builtin_return_address(0));
		res = real(comm, ndev, devlist);
		df_traced_leave(serial, DF_CALL_COMM_INIT, res);
		for (i = 0; res == ncclSuccess && i < ndev; i++)
			df_traced_comm_add(comm[i], hash, ndev, i, 0, "");
		return res;
	}
	return df_group_error(init_all(comm, ndev, devlist, SITE()));
}
DF_NCCL_EXPORT(ncclCommInitAll);

/* ---- split and shrink ----------------------------------------------------------------------- */

static int compare_ints(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

/* Splits or shrinks. `exclude` is NULL for a split. */
static ncclResult_t make_child(ncclComm_t comm, ncclComm_t *newcomm, int color, int key,
			       int *exclude, int nr_exclude, int shrink, int flags,
			       const void *config, const char *func, uint32_t site)
{
	struct df_handle *h = (struct df_handle *)comm, *child = NULL;
	struct df_job *job;
	struct df_config c;
	ncclResult_t res;
	int share;

	res = df_comm_check(comm, func, "comm");
	if (res == ncclSuccess)
		res = df_ptr_check(newcomm, func, "newcomm");
	if (res == ncclSuccess && shrink) {
		res = df_ptr_check(exclude, func, "excludeRanksList");
		if (res == ncclSuccess && nr_exclude <= 0)
			res = ncclInvalidArgument;
		if (res == ncclSuccess) {
			qsort(exclude, (size_t)nr_exclude, sizeof(int), compare_ints);
			if (bsearch(&h->rank, exclude, (size_t)nr_exclude, sizeof(int),
				    compare_ints))
				res = ncclInvalidArgument;
		}
	}
	if (res == ncclSuccess)
		res = df_handle_ready(h);
	if (res != ncclSuccess && !(shrink && flags & NCCL_SHRINK_ABORT && res == ncclRemoteError))
		return res;
	*newcomm = NULL;
	job = df_job_new(shrink ? DF_JOB_SHRINK : DF_JOB_SPLIT, h, func, site);
	if (!job)
		return df_status_warn(-ENOMEM, func);
	if (!shrink && color == NCCL_SPLIT_NOCOLOR) {
		df_nccl_info(DF_SUBSYS_INIT,
			     "Rank %d has color with NCCL_SPLIT_NOCOLOR, not creating a new "
			     "communicator",
			     h->rank);
	} else {
		share = !(df_handle_flags(h) & DF_H_REVOKED) &&
			(shrink ? !(flags & NCCL_SHRINK_ABORT) && h->config.shrink_share
				: h->config.split_share);
		c = h->config;
		c.name[0] = 0;
		if (config) {
			res = df_config_parse(config, &c);
			if (res != ncclSuccess)
				goto err;
		}
		child = df_handle_new(&c, h->device);
		res = child ? df_status_warn(make_comm(child, share, 0), func)
			    : df_status_warn(-ENOMEM, func);
		if (res != ncclSuccess)
			goto err;
	}
	if (shrink) {
		job->exclude = malloc((size_t)nr_exclude * sizeof(int));
		if (!job->exclude) {
			res = df_status_warn(-ENOMEM, func);
			goto err;
		}
		memcpy(job->exclude, exclude, (size_t)nr_exclude * sizeof(int));
		job->nr_exclude = nr_exclude;
		job->abort = !!(flags & NCCL_SHRINK_ABORT);
	}
	h->child_count++;
	job->made = child;
	job->out = newcomm;
	job->color = color;
	job->key = key;
	return df_group_job(job);

err:
	if (child)
		df_handle_free(child);
	df_job_free(job);
	return res;
}

/* Makes a child with the real library, and records that. */
#define REAL_CHILD(fn, enum_call, comm, newcomm, salt, config, call)                               \
	do {                                                                                       \
		__typeof__(fn) *real_ = df_real()->fn;                                             \
		uint64_t serial_, hash_;                                                           \
		ncclResult_t res_;                                                                 \
		if (!real_)                                                                        \
			return df_real_missing(#fn);                                               \
		hash_ = df_traced_child_hash(comm, salt);                                          \
		serial_ = df_traced_enter(enum_call, comm, 0, 0,                                   \
					  df_trace_site(__builtin_return_address(0)));             \
		res_ = real_ call;                                                                 \
		df_traced_divided(enum_call, comm, newcomm, hash_, df_config_name(config),         \
				  serial_, res_);                                                  \
		return df_group_error(res_);                                                       \
	} while (0)

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
			   ncclConfig_t *config)
{
	if (DF_FOREIGN(comm))
		REAL_CHILD(ncclCommSplit, DF_CALL_COMM_SPLIT, comm, newcomm, (uint64_t)color,
			   config, (comm, color, key, newcomm, config));
	return df_group_error(
		make_child(comm, newcomm, color, key, NULL, 0, 0, 0, config, __func__, SITE()));
}
DF_NCCL_EXPORT(ncclCommSplit);

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
			    ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)
{
	if (DF_FOREIGN(comm))
		REAL_CHILD(
			ncclCommShrink, DF_CALL_COMM_SHRINK, comm, newcomm, 1ull << 40, config,
			(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
	return df_group_error(make_child(comm, newcomm, 0, 0, excludeRanksList, excludeRanksCount,
					 1, shrinkFlags, config, __func__, SITE()));
}
DF_NCCL_EXPORT(ncclCommShrink);

/* ---- growth --------------------------------------------------------------------------------- */

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId)
{
	struct df_handle *h;
	ncclResult_t res;
	int err;

	if (DF_FOREIGN(comm))
		return df_traced_grow_id(comm, uniqueId);
	h = (struct df_handle *)comm;
	res = df_handle_unusable(h, "CommGetUniqueId");
	if (res == ncclSuccess)
		res = df_ptr_check(uniqueId, "CommGetUniqueId", "uniqueId");
	if (res != ncclSuccess)
		return res;
	err = df_id_create((unsigned char *)uniqueId->internal);
	if (!err) {
		memcpy(h->grow_id, uniqueId->internal, sizeof(h->grow_id));
		h->has_grow_id = 1;
	}
	return df_status_warn(err, "CommGetUniqueId");
}
DF_NCCL_EXPORT(ncclCommGetUniqueId);

/* The call of a rank of the parent. */
static ncclResult_t grow(ncclComm_t comm, int nranks, int rank, ncclComm_t *newcomm,
			 const void *config, const char *func, uint32_t site)
{
	struct df_handle *h = (struct df_handle *)comm, *child;
	struct df_config c;
	struct df_job *job;
	ncclResult_t res = df_handle_unusable(h, func);

	if (res == ncclSuccess)
		res = df_ptr_check(newcomm, func, "newcomm");
	if (res != ncclSuccess)
		return res;
	*newcomm = NULL;
	if (rank != -1 || nranks <= h->nranks) {
		DF_NCCL_WARN("%s : rank %d of a communicator of %d ranks has to pass rank -1 and "
			     "more ranks, not rank %d and %d",
			     func, h->rank, h->nranks, rank, nranks);
		return ncclInvalidArgument;
	}
	c = h->config;
	c.name[0] = 0;
	if (config) {
		res = df_config_parse(config, &c);
		if (res != ncclSuccess)
			return res;
	}
	job = df_job_new(DF_JOB_GROW, h, func, site);
	child = job ? df_handle_new(&c, h->device) : NULL;
	res = df_status_warn(child ? make_comm(child, 0, 1) : -ENOMEM, func);
	if (res == ncclSuccess && h->has_grow_id) {
		job->ids = calloc(1, DF_ID_BYTES);
		if (!job->ids)
			res = df_status_warn(-ENOMEM, func);
		else
			memcpy(job->ids[0], h->grow_id, DF_ID_BYTES);
		job->nr_ids = 1;
	}
	if (res != ncclSuccess) {
		if (child)
			df_handle_free(child);
		if (job)
			df_job_free(job);
		return res;
	}
	h->has_grow_id = 0;
	h->child_count++;
	job->made = child;
	job->out = newcomm;
	job->nranks = nranks;
	return df_group_job(job);
}

/* A rank of the parent passes `comm` and rank -1; a new rank passes no `comm`, and its id. */
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
			  ncclComm_t *newcomm, ncclConfig_t *config)
{
	__typeof__(ncclCommGrow) *real = df_real()->ncclCommGrow;
	uint64_t serial, hash;
	ncclResult_t res;
	int at = rank;

	/* It may be the first call of a new rank, so df_front() decides. */
	if (!(comm	 ? DF_FOREIGN(comm)
	      : uniqueId ? real_init(1, uniqueId)
			 : df_real_makes(df_front())))
		return df_group_error(
			comm ? grow(comm, nRanks, rank, newcomm, config, "ncclCommGrow", SITE())
			     : init_rank(newcomm, nRanks, 1, uniqueId, rank, 1, config,
					 "ncclCommGrow", SITE()));
	if (!real)
		return df_real_missing(__func__);
	hash = df_traced_grow(comm, uniqueId, nRanks, &at);
	if (!hash)
		return df_group_error(real(comm, nRanks, uniqueId, rank, newcomm, config));
	serial = df_traced_init(DF_CALL_COMM_GROW, hash, nRanks, at, __builtin_return_address(0));
	res = real(comm, nRanks, uniqueId, rank, newcomm, config);
	df_traced_made(DF_CALL_COMM_GROW, newcomm, hash, nRanks, at, df_config_name(config), serial,
		       res);
	return df_group_error(res);
}
DF_NCCL_EXPORT(ncclCommGrow);
