/* Translates dfshim's results to NCCL's. No state except the log; any thread. */
#include <string.h>
#include "interpose/nccl/nccl_status.h"
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/dfshim.h"

static const struct row {
	int err;
	ncclResult_t result;
	const char *text;
} table[] = {
	{EINVAL, ncclInvalidArgument, "an argument is not valid"},
	{ENOMEM, ncclSystemError, "out of memory"},
	{EMFILE, ncclSystemError, "no file descriptor left (see `ulimit -n`)"},
	{EOPNOTSUPP, ncclInvalidUsage, "not served by dfshim"},
	{EAGAIN, ncclInProgress, "not finished yet"},
	{ETIMEDOUT, ncclRemoteError, "no progress within the time-out; the communicator was ended"},
	{EDEADLK, ncclRemoteError,
	 "the operations wait for one another; the communicator was ended"},
	{ECONNRESET, ncclRemoteError, "a peer of the communicator is gone"},
	{ECANCELED, ncclInternalError, "the communicator was aborted"},
	{EPROTO, ncclInvalidUsage, "the ranks do not agree, or one of them is not under dfshim"},
	{ENODEV, ncclInvalidUsage, "two ranks of the communicator are on one device"},
	{EIO, ncclUnhandledCudaError, "CUDA failed"},
	{ESHUTDOWN, ncclSystemError, "the process is shutting down"},
};

/* Returns the row of a negative errno, or NULL. */
static const struct row *row_of(int err)
{
	for (size_t i = 0; i < DF_ARRAY_LEN(table); i++)
		if (table[i].err == -err)
			return &table[i];
	return NULL;
}

ncclResult_t df_status(int err)
{
	const struct row *row = row_of(err);

	return !err ? ncclSuccess : row ? row->result : ncclSystemError;
}

ncclResult_t df_status_warn(int err, const char *what)
{
	const struct row *row = row_of(err);
	/* Programs print the last error's text, so it repeats the verdict. */
	const char *why = err == -ETIMEDOUT ? df_comm_ended_for() : "";

	if (err)
		DF_NCCL_WARN("%s : %s%s%s", what, row ? row->text : strerror(-err),
			     *why ? ": " : "", why);
	return df_status(err);
}
