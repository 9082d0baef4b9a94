/*
 * Reduction operators. A user's operator belongs to one communicator. Its handle contains the
 * communicator's tag, so that other communicators refuse it. An operation copies what it needs when
 * it is issued, because the operator may be destroyed right after the call.
 *
 * Locks: the communicator's, for its table of operators; built-in operators need none.
 */
#include <stdlib.h>
#include <string.h>
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_group.h"
#include "interpose/nccl/nccl_api.h"
#include "interpose/real/real.h"
#include "interpose/nccl/nccl_redop.h"
#include "interpose/nccl/nccl_status.h"
#include "runtime/base/inverse.h"
#include "runtime/base/log.h"

/* A handle: ncclNumOps + (index << TAG_BITS | tag). */
#define TAG_BITS   13
#define TAG_MASK   ((1 << TAG_BITS) - 1)
#define MAX_REDOPS (1 << 17)

/*
 * Returns the index in the communicator's table, or -1 if the handle cannot be one of its
 * operators.
 */
static int op_index(const struct df_handle *h, int redop)
{
	int v = redop - ncclNumOps;

	return v < 0 || (v & TAG_MASK) != (int)(h->tag & TAG_MASK) ? -1 : v >> TAG_BITS;
}

static ncclResult_t lower_user(struct df_handle *h, const char *name, int redop,
			       ncclDataType_t type, struct df_op *op)
{
	int i = op_index(h, redop);
	struct df_user_redop r = {0};

	pthread_mutex_lock(&h->lock);
	if (i >= 0 && i < h->nr_redops)
		r = h->redops[i];
	pthread_mutex_unlock(&h->lock);
	if (!r.live) {
		DF_NCCL_WARN("%s : reduction operation %d unknown to this communicator", name,
			     redop);
		return ncclInvalidArgument;
	}
	if (r.type != type) {
		DF_NCCL_WARN("Data type supplied to user-created ncclRedOp_t does not match type "
			     "given to reduction operation");
		return ncclInvalidArgument;
	}
	op->redop = DF_PREMULSUM;
	op->redop_arg = r.arg;
	op->redop_ptr = r.ptr;
	return ncclSuccess;
}

ncclResult_t df_redop_lower(struct df_handle *h, const char *name, int redop, ncclDataType_t type,
			    struct df_op *op)
{
	op->redop_arg = 0;
	op->redop_ptr = NULL;
	switch (redop) {
	case ncclSum:
		op->redop = DF_SUM;
		return ncclSuccess;
	case ncclProd:
		op->redop = DF_PROD;
		return ncclSuccess;
	case ncclMax:
		op->redop = DF_MAX;
		return ncclSuccess;
	case ncclMin:
		op->redop = DF_MIN;
		return ncclSuccess;
	case ncclAvg:
		op->redop = type <= ncclUint64 ? DF_SUMPOSTDIV : DF_PREMULSUM;
		op->redop_arg = df_inverse(type, h->nranks);
		return ncclSuccess;
	}
	if (redop < 0) {
		DF_NCCL_WARN("%s : invalid reduction operation %d", name, redop);
		return ncclInvalidArgument;
	}
	return lower_user(h, name, redop, type, op);
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
				      ncclScalarResidence_t residence, ncclComm_t comm)
{
	struct df_handle *h = (struct df_handle *)comm;
	struct df_user_redop r = {.live = 1, .type = datatype};
	ncclResult_t res;
	int i;

	if (DF_FOREIGN(comm))
		return DF_REAL(ncclRedOpCreatePreMulSum, op, scalar, datatype, residence, comm);
	res = df_comm_check(comm, __func__, "comm");
	if (res == ncclSuccess)
		res = df_handle_ready(h);
	if (res != ncclSuccess)
		return res;
	if (residence == ncclScalarHostImmediate) {
		if ((unsigned)datatype >= ncclNumTypes)
			return ncclInternalError;
		memcpy(&r.arg, scalar, df_type_bytes((uint32_t)datatype));
	} else {
		r.ptr = scalar;
	}
	pthread_mutex_lock(&h->lock);
	i = h->free_redop;
	if (i >= 0) {
		h->free_redop = h->redops[i].next_free;
	} else if (h->nr_redops < MAX_REDOPS) {
		struct df_user_redop *t =
			realloc(h->redops, (size_t)(h->nr_redops + 1) * sizeof(*t));

		if (t) {
			h->redops = t;
			i = h->nr_redops++;
		}
	}
	if (i >= 0)
		h->redops[i] = r;
	pthread_mutex_unlock(&h->lock);
	if (i < 0)
		return df_status_warn(-ENOMEM, __func__);
	*op = (ncclRedOp_t)(ncclNumOps + (i << TAG_BITS | (int)(h->tag & TAG_MASK)));
	return ncclSuccess;
}
DF_NCCL_EXPORT(ncclRedOpCreatePreMulSum);

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
	struct df_handle *h = (struct df_handle *)comm;
	int i, known = 0;

	if (DF_FOREIGN(comm))
		return DF_REAL(ncclRedOpDestroy, op, comm);
	if ((int)op >= 0 && (int)op < ncclNumOps) {
		DF_NCCL_WARN("ncclRedOpDestroy : operator is a NCCL builtin.");
		return ncclInvalidArgument;
	}
	if ((int)op < 0) {
		DF_NCCL_WARN("ncclRedOpDestroy :  operator is garbage.");
		return ncclInvalidArgument;
	}
	if (!comm) {
		DF_NCCL_WARN("ncclRedOpDestroy : invalid communicator passed.");
		return ncclInvalidArgument;
	}
	if (df_comm_check(comm, __func__, "comm") != ncclSuccess)
		return ncclInvalidArgument;
	i = op_index(h, (int)op);
	pthread_mutex_lock(&h->lock);
	if (i >= 0 && i < h->nr_redops && h->redops[i].live) {
		h->redops[i].live = 0;
		h->redops[i].next_free = h->free_redop;
		h->free_redop = i;
		known = 1;
	}
	pthread_mutex_unlock(&h->lock);
	if (!known) {
		DF_NCCL_WARN("ncclRedOpDestroy : operator unknown to this communicator.");
		return ncclInvalidArgument;
	}
	return ncclSuccess;
}
DF_NCCL_EXPORT(ncclRedOpDestroy);
