/*
 * A communicator that needs a feature that dfshim cannot execute (device code that loads from and
 * stores to its peers) is handed to the real library as a whole. Its ranks exchange a new id over
 * our control plane and make NCCL's communicator with it. All later calls on the handle are
 * forwarded (DF_FOREIGN), and recorded as in mode trace. Operations that were submitted before are
 * still executed by dfshim: NCCL's kernels follow them in stream order, like any other work.
 *
 * The hand-over happens at ncclDevCommCreate(), which all ranks call, so all decide together.
 * Windows that were registered before are only host objects, useless for device code, so the
 * hand-over is refused if there are any. With DFSHIM_HANDOVER=window the hand-over happens at the
 * first symmetric window instead, which is collective, too.
 *
 * It can also happen at the start: if dfshim cannot start on some ranks, all learn that at the
 * rendezvous, and the communicator is NCCL's on all of them from its first operation on.
 *
 * Runs as a job (nccl_group.h): it waits for peers, and a thread may call it for several
 * communicators in a group.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "interpose/nccl/nccl_coll.h"
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_group.h"
#include "interpose/nccl/nccl_handover.h"
#include "interpose/nccl/nccl_mem.h"
#include "interpose/nccl/nccl_api.h"
#include "interpose/nccl/nccl_job.h"
#include "interpose/real/real.h"
#include "interpose/nccl/nccl_status.h"
#include "interpose/real/traced.h"
#include "runtime/base/dlsym.h"
#include "runtime/base/env.h"
#include "runtime/base/log.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

enum why_not { CAN, IS_OFF, NO_LIBRARY, HAS_WINDOWS, NO_ID };

/*
 * A rank's message to the others. Rank 0 makes an id only if all ranks can take part, because an
 * unused id costs NCCL a thread.
 */
struct row {
	int32_t why_not; /* enum why_not: why this rank cannot take part */
	int32_t version;
	ncclUniqueId id;
	char unable[112]; /* why its runtime could not start; "" if it could */
};

static const char *const reasons[] = {
	[IS_OFF] = "DFSHIM_HANDOVER=off",
	[NO_LIBRARY] = "no NCCL library was found that has a device API",
	[HAS_WINDOWS] = "windows were registered before, which device code cannot use "
			"(DFSHIM_HANDOVER=window hands over at the first one)",
	[NO_ID] = "NCCL made no unique id",
};

static enum why_not look(const struct df_handle *h)
{
	const struct df_nccl_real *real = df_real();

	if (df_env()->handover == DF_HANDOVER_OFF)
		return IS_OFF;
	if (!real->ncclGetUniqueId || !real->ncclCommInitRankConfig || !real->ncclDevCommCreate)
		return NO_LIBRARY;
	return df_window_any(h) ? HAS_WINDOWS : CAN;
}

static ncclResult_t refuse(const struct df_handle *h, const char *func, int rank, const char *why)
{
	if (df_handle_flags(h) & DF_H_READY)
		DF_NCCL_WARN("Communicator does not support symmetric memory!");
	else
		DF_NCCL_WARN("%s : the communicator cannot be handed to NCCL: rank %d: %s", func,
			     rank, why);
	df_warn("%s: communicator %016llx cannot be handed to NCCL: rank %d: %s", func,
		(unsigned long long)h->hash, rank, why);
	return ncclInvalidUsage;
}

/* Exchanges the rows. All ranks see the same rows, so all reach the same result. */
static ncclResult_t exchange(struct df_handle *h, const struct row *mine, struct row *all,
			     const char *func)
{
	int i, err = df_comm_allgather(h->comm, mine, sizeof(*mine), all);

	if (err)
		return df_status_warn(err, func);
	for (i = 0; i < h->nranks; i++) {
		if (all[i].why_not > CAN && all[i].why_not <= NO_ID)
			return refuse(h, func, i, reasons[all[i].why_not]);
		if (all[i].version != all[0].version)
			return refuse(h, func, i, "its NCCL is of another version than rank 0's");
	}
	return ncclSuccess;
}

/* Makes the real library's communicator of the same ranks. */
static ncclResult_t make_real(struct df_handle *h, const ncclUniqueId *id, ncclComm_t *out)
{
	ncclConfig_t config = h->config.raw;
	ncclResult_t res;
	uint64_t serial;

	if (config.size) {
		config.blocking = 1;
		config.commName = h->config.name[0] ? h->config.name : NULL;
		config.netName = h->config.net[0] ? h->config.net : NULL;
	}
	serial = df_traced_init(DF_CALL_COMM_INIT, df_id_hash((const unsigned char *)id->internal),
				h->nranks, h->rank, NULL);
	res = df_real()->ncclCommInitRankConfig(out, h->nranks, *id, h->rank,
						config.size ? &config : NULL);
	df_traced_leave(serial, DF_CALL_COMM_INIT, res);
	if (res == ncclSuccess)
		df_traced_comm_add(*out, df_id_hash((const unsigned char *)id->internal), h->nranks,
				   h->rank, h->hash, h->config.name);
	return res;
}

/*
 * Hands the communicator over. `mine` is this rank's message. *all receives the messages of all
 * ranks; the caller frees it.
 */
static ncclResult_t hand_over(struct df_handle *h, struct row *mine, struct row **all,
			      const char *func)
{
	ncclComm_t comm = NULL;
	ncclResult_t res;

	*all = malloc((size_t)h->nranks * sizeof(**all));
	if (!*all)
		return df_status_warn(-ENOMEM, func);
	mine->version = df_real_version();
	res = exchange(h, mine, *all, func);
	if (res == ncclSuccess) {
		if (!h->rank && df_real()->ncclGetUniqueId(&mine->id) != ncclSuccess)
			mine->why_not = NO_ID;
		res = exchange(h, mine, *all, func);
	}
	if (res == ncclSuccess)
		res = make_real(h, &(*all)[0].id, &comm);
	if (res == ncclSuccess)
		/* RELEASE pairs with the ACQUIRE in df_foreign_slow(), which says why. */
		__atomic_store_n(&h->real, comm, __ATOMIC_RELEASE);
	return res;
}

ncclResult_t df_hand_over(struct df_handle *h, const char *func)
{
	struct row mine = {.why_not = (int32_t)look(h)}, *all;
	ncclResult_t res;

	/*
	 * A job may have handed it over earlier in the same group: jobs of one communicator run in
	 * order.
	 */
	if (__atomic_load_n(&h->real, __ATOMIC_RELAXED))
		return ncclSuccess;
	res = hand_over(h, &mine, &all, func);
	free(all);
	if (res == ncclSuccess)
		df_warn("%s: communicator %016llx, rank %d of %d, is handed to NCCL as a whole: "
			"dfshim cannot execute what it uses. It is recorded, and can hang as NCCL "
			"can",
			func, (unsigned long long)h->hash, h->rank, h->nranks);
	return res;
}

ncclResult_t df_hand_over_at_start(struct df_handle *h, const char *func)
{
	struct row mine = {0}, *all;
	ncclResult_t res;
	int i, nr = 0, first = -1;

	/* This is empty if dfshim could start in this process. */
	if (*df_start_reason())
		snprintf(mine.unable, sizeof(mine.unable), "%s", df_start_reason());
	res = hand_over(h, &mine, &all, func);
	for (i = 0; res == ncclSuccess && i < h->nranks; i++) {
		if (!all[i].unable[0])
			continue;
		if (!nr++)
			first = i;
	}
	/* Only rank 0 reports it: the rank that could not start has reported its own failure. */
	if (nr && !h->rank)
		df_warn("communicator %016llx is handed to NCCL on all its %d ranks: dfshim cannot "
			"start on rank %d%s: %.*s",
			(unsigned long long)h->hash, h->nranks, first, nr > 1 ? " and others" : "",
			(int)sizeof(mine.unable) - 1, all[first].unable);
	free(all);
	return res;
}

/* ---- the device of a process whose runtime could not start ----------------------------------- */

/*
 * Finds a function of the driver. NCCL takes the device from the driver's current context, and jobs
 * run in threads of their own.
 */
static void *driver(const char *name)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *fn = lib ? df_dlsym(lib, name) : NULL;

	if (lib)
		dlclose(lib);
	return fn;
}

void *df_context_get(void)
{
	int (*get)(void **ctx);
	void *ctx = NULL;

	*(void **)&get = driver("cuCtxGetCurrent");
	return get && !get(&ctx) ? ctx : NULL;
}

void df_context_set(void *ctx)
{
	int (*set)(void *ctx);

	*(void **)&set = ctx ? driver("cuCtxSetCurrent") : NULL;
	if (set)
		set(ctx);
}

/* Makes a job for the hand-over and the call after it. */
static struct df_job *job_for(ncclComm_t comm, ncclResult_t (*then)(struct df_job *),
			      const char *func, ncclResult_t *res)
{
	struct df_job *job;

	*res = df_comm_check(comm, func, "comm");
	if (*res == ncclSuccess)
		*res = df_handle_ready((struct df_handle *)comm);
	if (*res != ncclSuccess)
		return NULL;
	if (df_on_host()) {
		*res = refuse((struct df_handle *)comm, func, ((struct df_handle *)comm)->rank,
			      "NCCL cannot use memory of the CUDA runtime on the CPU");
		return NULL;
	}
	job = df_job_new(DF_JOB_HAND_OVER, (struct df_handle *)comm, func,
			 df_trace_site(__builtin_return_address(0)));
	if (!job)
		*res = df_status_warn(-ENOMEM, func);
	else
		job->then = then;
	return job;
}

static ncclResult_t create_dev_comm(struct df_job *job)
{
	return DF_REAL(ncclDevCommCreate, job->on->real, job->in, job->out2);
}

ncclResult_t ncclDevCommCreate(ncclComm_t comm, ncclDevCommRequirements_t const *reqs,
			       ncclDevComm_t *outDevComm)
{
	ncclResult_t res;
	struct df_job *job;

	if (DF_FOREIGN(comm))
		return df_group_error(DF_REAL(ncclDevCommCreate, comm, reqs, outDevComm));
	job = job_for(comm, create_dev_comm, __func__, &res);
	if (!job)
		return df_group_error(res);
	job->in = reqs;
	job->out2 = outDevComm;
	return df_group_error(df_group_job(job));
}
DF_NCCL_EXPORT(ncclDevCommCreate);

static ncclResult_t register_window(struct df_job *job)
{
	return DF_REAL(ncclCommWindowRegister, job->on->real, (void *)job->in, job->bytes,
		       job->out2, job->flags);
}

ncclResult_t df_window_hand_over(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
				 int flags, const char *func)
{
	ncclResult_t res;
	struct df_job *job = job_for(comm, register_window, func, &res);

	if (!job)
		return df_group_error(res);
	job->in = buff;
	job->bytes = size;
	job->out2 = win;
	job->flags = flags;
	return df_group_error(df_group_job(job));
}
