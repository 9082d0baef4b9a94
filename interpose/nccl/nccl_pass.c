/*
 * Functions that dfshim does not implement: the bodies of the table's FORWARD and REFUSE rows,
 * generated from it; and a few queries about a communicator that can be answered without the
 * feature (teams, properties, memory).
 *
 * Any thread. No state.
 */
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_handle.h"
#include "interpose/nccl/nccl_mem.h"
#include "interpose/nccl/nccl_api.h"
#include "interpose/nccl/nccl_pass.h"
#include "interpose/real/real.h"
#include "runtime/base/log.h"

/* Returns from a function with this result type if there is no real library to call. */
#define MISSING_ncclResult_t(name) return df_real_missing(name)
#define MISSING_int(name)                                                                          \
	do {                                                                                       \
		df_real_missing(name);                                                             \
		return 0;                                                                          \
	} while (0)
#define MISSING_void(name)                                                                         \
	do {                                                                                       \
		df_real_missing(name);                                                             \
		return;                                                                            \
	} while (0)

/*
 * Refuses a call. If symmetric memory is missing, uses NCCL's message. Other refusals name the
 * function.
 */
static ncclResult_t refuse(const void *comm, enum df_nccl_fn fn, const char *name)
{
	ncclResult_t res = df_comm_check(comm, name, "comm");

	if (res != ncclSuccess)
		return res;
	if (fn == DF_FN_ncclDevCommDestroy)
		DF_NCCL_WARN("Communicator does not support symmetric memory!");
	else
		DF_NCCL_WARN("%s : not supported by this communicator, which dfshim executes",
			     name);
	return ncclInvalidUsage;
}

static ncclResult_t refuse_window(const char *name)
{
	DF_NCCL_WARN("%s : a window of dfshim has no device pointers of peers", name);
	return ncclInvalidUsage;
}

#define BODY_OWNED(result, name, params, args)
#define BODY_FORWARD(result, name, params, args)                                                   \
	result name params                                                                         \
	{                                                                                          \
		if (!df_real()->name || df_on_hostcuda())                                          \
			MISSING_##result(#name);                                                   \
		return df_real()->name args;                                                       \
	}                                                                                          \
	DF_NCCL_EXPORT(name);
#define BODY_REFUSE(result, name, params, args)                                                    \
	result name params                                                                         \
	{                                                                                          \
		if (!DF_FOREIGN(comm))                                                             \
			return refuse(comm, DF_FN_##name, #name);                                  \
		if (!df_real()->name)                                                              \
			MISSING_##result(#name);                                                   \
		return df_real()->name args;                                                       \
	}                                                                                          \
	DF_NCCL_EXPORT(name);
#define BODY_REFUSE_WIN(result, name, params, args)                                                \
	result name params                                                                         \
	{                                                                                          \
		if (df_window_is_ours(window))                                                     \
			return refuse_window(#name);                                               \
		if (!df_real()->name || df_on_hostcuda())                                          \
			MISSING_##result(#name);                                                   \
		return df_real()->name args;                                                       \
	}                                                                                          \
	DF_NCCL_EXPORT(name);

#pragma GCC diagnostic ignored "-Wpedantic"
#define NCCL_FN(since, kind, result, name, params, args) BODY_##kind(result, name, params, args)
#include "interpose/nccl/nccl_api.def"
#undef NCCL_FN

void *df_nccl_find(const char *name)
{
	static const struct {
		const char *name;
		void *fn;
	} rows[] = {
#define NCCL_FN(since, kind, result, name, params, args) {#name, (void *)name},
#include "interpose/nccl/nccl_api.def"
#undef NCCL_FN
	};
	const char *a, *b;
	size_t i;

	if (name[0] == 'p')
		name++;
	if (name[0] != 'n' || name[1] != 'c' || name[2] != 'c' || name[3] != 'l')
		return NULL;
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (a = rows[i].name, b = name; *a && *a == *b; a++, b++)
			;
		if (*a == *b)
			return rows[i].fn;
	}
	return NULL;
}

/* ---- teams: the world, and every rank alone in its load-store domain ------------------------- */

static ncclTeam_t team(const void *comm, const char *name, int alone)
{
	const struct df_handle *h = comm;
	ncclTeam_t t = {0, 0, 0};

	if (df_comm_check(comm, name, "comm") != ncclSuccess)
		return t;
	t.nRanks = alone ? 1 : h->nranks;
	t.rank = alone ? 0 : h->rank;
	t.stride = 1;
	return t;
}

#define TEAM(fn, alone, params, args)                                                              \
	ncclTeam_t fn params                                                                       \
	{                                                                                          \
		if (DF_FOREIGN(comm) && df_real()->fn)                                             \
			return df_real()->fn args;                                                 \
		return team(comm, #fn, alone);                                                     \
	}                                                                                          \
	DF_NCCL_EXPORT(fn);
TEAM(ncclTeamWorld, 0, (ncclComm_t comm), (comm))
TEAM(ncclTeamLsa, 1, (ncclComm_t comm), (comm))
TEAM(ncclTeamRail, 0, (ncclComm_t comm), (comm))
TEAM(ncclTeamCft, 1, (ncclComm_t comm, ncclCftTeamMode_t mode), (comm, mode))
TEAM(ncclTeamCftMultimem, 1, (ncclComm_t comm), (comm))

int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank)
{
	if (DF_FOREIGN(comm) && df_real()->ncclTeamRankToWorld)
		return df_real()->ncclTeamRankToWorld(comm, team, rank);
	if (df_comm_check(comm, __func__, "comm") != ncclSuccess)
		return -1;
	return ((struct df_handle *)comm)->rank + (rank - team.rank) * team.stride;
}
DF_NCCL_EXPORT(ncclTeamRankToWorld);

int ncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank)
{
	if (DF_FOREIGN(comm) && df_real()->ncclTeamRankToLsa)
		return df_real()->ncclTeamRankToLsa(comm, team, rank);
	if (df_comm_check(comm, __func__, "comm") != ncclSuccess)
		return -1;
	return (rank - team.rank) * team.stride;
}
DF_NCCL_EXPORT(ncclTeamRankToLsa);

/* ---- 2.29 ------------------------------------------------------------------------------------ */

ncclResult_t ncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *props)
{
	const struct df_handle *h = (struct df_handle *)comm;
	ncclResult_t res;

	if (DF_FOREIGN(comm))
		return DF_REAL(ncclCommQueryProperties, comm, props);
	res = df_comm_check(comm, __func__, "comm");
	if (res == ncclSuccess)
		res = df_ptr_check(props, __func__, "props");
	if (res == ncclSuccess && (props->magic != DF_NCCL_API_MAGIC ||
				   props->size < offsetof(ncclCommProperties_t, hostRmaSupport))) {
		DF_NCCL_WARN("ncclCommProperties_t argument not initialized via "
			     "NCCL_COMM_PROPERTIES_INITIALIZER");
		res = ncclInvalidArgument;
	}
	if (res == ncclSuccess)
		res = df_handle_ready((struct df_handle *)comm);
	if (res != ncclSuccess)
		return res;
	props->rank = h->rank;
	props->nRanks = h->nranks;
	props->cudaDev = h->device;
	props->nvmlDev = h->device;
	props->deviceApiSupport = false;
	props->multimemSupport = false;
	props->ginType = 0;
	props->nLsaTeams = h->nranks;
	if (props->size >= sizeof(*props)) {
		props->hostRmaSupport = false;
		props->railedGinType = 0;
	}
	return ncclSuccess;
}
DF_NCCL_EXPORT(ncclCommQueryProperties);

/*
 * Communicators have no memory of their own that could be released, so suspending changes nothing.
 */
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags)
{
	ncclResult_t res;

	if (DF_FOREIGN(comm))
		return DF_REAL(ncclCommSuspend, comm, flags);
	res = df_comm_check(comm, __func__, "comm");
	return res == ncclSuccess ? df_handle_ready((struct df_handle *)comm) : res;
}
DF_NCCL_EXPORT(ncclCommSuspend);

ncclResult_t ncclCommResume(ncclComm_t comm)
{
	ncclResult_t res;

	if (DF_FOREIGN(comm))
		return DF_REAL(ncclCommResume, comm);
	res = df_comm_check(comm, __func__, "comm");
	return res == ncclSuccess ? df_handle_ready((struct df_handle *)comm) : res;
}
DF_NCCL_EXPORT(ncclCommResume);

ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value)
{
	ncclResult_t res;

	if (DF_FOREIGN(comm))
		return DF_REAL(ncclCommMemStats, comm, stat, value);
	res = df_comm_check(comm, __func__, "comm");
	if (res == ncclSuccess)
		res = df_ptr_check(value, __func__, "value");
	if (res != ncclSuccess)
		return res;
	if (stat != ncclStatGpuMemSuspend && stat != ncclStatGpuMemSuspended) {
		DF_NCCL_WARN("ncclCommMemStats : connectors are shared by all communicators; there "
			     "is no figure for one of them");
		return ncclInvalidUsage;
	}
	*value = 0;
	return ncclSuccess;
}
DF_NCCL_EXPORT(ncclCommMemStats);

/* ---- 2.32 ------------------------------------------------------------------------------------ */

/* Data between our processes is not encrypted, so the call must not succeed. */
ncclResult_t ncclSetEncryption(const ncclEncryptionConfig_t *config)
{
	enum df_front front = df_front();
	ncclResult_t res;

	if (df_real_makes(front))
		return DF_REAL(ncclSetEncryption, config);
	res = df_ptr_check(config, __func__, "config");
	if (res != ncclSuccess)
		return res;
	if (config->magic != DF_NCCL_API_MAGIC || config->size < sizeof(*config)) {
		DF_NCCL_WARN("ncclSetEncryption: config not initialized via "
			     "NCCL_ENCRYPTION_CONFIG_INITIALIZER");
		return ncclInvalidArgument;
	}
	if (config->mode != 0) {
		DF_NCCL_WARN("ncclSetEncryption: dfshim does not encrypt the connections of its "
			     "processes; with DFSHIM_MODE=trace NCCL does");
		return ncclInvalidUsage;
	}
	return ncclSuccess;
}
DF_NCCL_EXPORT(ncclSetEncryption);
