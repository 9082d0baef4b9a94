/*
 * Memory: ncclMemAlloc, registration of buffers, and windows.
 *
 * The runtime needs no registration, so these calls only keep records and return NCCL's errors. A
 * window of ours is a host object: it can be registered, passed to host calls and deregistered, but
 * device code cannot use it. A communicator whose windows are for device code is handed over to
 * NCCL first (nccl_handover.c).
 *
 * Locks: a communicator's, for its lists; windows_lock (leaf).
 */
#include <stdlib.h>
#include "interpose/real/front.h"
#include "interpose/nccl/nccl_handle.h"
#include "interpose/nccl/nccl_api.h"
#include "interpose/nccl/nccl_group.h"
#include "interpose/nccl/nccl_handover.h"
#include "interpose/nccl/nccl_mem.h"
#include "interpose/real/real.h"
#include "interpose/nccl/nccl_status.h"
#include "runtime/base/env.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"

/* All windows of the process, so that a pointer can be recognized without reading through it. */
static struct df_mutex windows_lock = DF_MUTEX_INIT(DF_RANK_LEAF, "windows");
static struct df_window *windows;

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
	enum df_front front = df_front();
	void *mem;
	int err;

	if (df_real_makes(front))
		return DF_REAL(ncclMemAlloc, ptr, size);
	if (front == DF_FRONT_REFUSE)
		return df_front_refused("MemAlloc");
	if (!ptr) {
		DF_NCCL_WARN("MemAlloc : ptr argument is NULL");
		return ncclUnhandledCudaError;
	}
	*ptr = NULL;
	if (!size)
		return ncclSuccess;
	err = df_mem_alloc(size, &mem);
	if (err) {
		DF_NCCL_WARN("MemAlloc : no %zu bytes of device memory", size);
		return ncclUnhandledCudaError;
	}
	*ptr = mem;
	return ncclSuccess;
}
DF_NCCL_EXPORT(ncclMemAlloc);

ncclResult_t ncclMemFree(void *ptr)
{
	enum df_front front = df_front();

	if (df_real_makes(front))
		return DF_REAL(ncclMemFree, ptr);
	if (!ptr)
		return ncclSuccess;
	if (front == DF_FRONT_REFUSE)
		return df_front_refused("MemFree");
	if (!df_mem_free(ptr))
		return ncclSuccess;
	DF_NCCL_WARN("MemFree : %p is not memory of ncclMemAlloc", ptr);
	return ncclUnhandledCudaError;
}
DF_NCCL_EXPORT(ncclMemFree);

ncclResult_t ncclCommRegister(ncclComm_t comm, void *buff, size_t size, void **handle)
{
	struct df_handle *h = (struct df_handle *)comm;
	struct df_range *r;
	ncclResult_t res;

	if (DF_FOREIGN(comm))
		return DF_REAL(ncclCommRegister, comm, buff, size, handle);
	res = df_comm_check(comm, "ncclCommRegister", "comm");
	if (res == ncclSuccess)
		res = df_ptr_check(handle, "ncclCommRegister", "handle");
	if (res != ncclSuccess)
		return res;
	pthread_mutex_lock(&h->lock);
	for (r = h->ranges; r; r = r->next)
		if (r->ptr == buff && r->bytes == size)
			break;
	if (!r) {
		r = calloc(1, sizeof(*r));
		if (r) {
			r->ptr = buff;
			r->bytes = size;
			r->next = h->ranges;
			h->ranges = r;
		}
	}
	if (r)
		r->refs++;
	pthread_mutex_unlock(&h->lock);
	if (!r)
		return df_status_warn(-ENOMEM, "ncclCommRegister");
	*handle = r;
	return ncclSuccess;
}
DF_NCCL_EXPORT(ncclCommRegister);

ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle)
{
	struct df_handle *h = (struct df_handle *)comm;
	struct df_range **at, *r;
	ncclResult_t res;
	int found = 0;

	if (DF_FOREIGN(comm))
		return DF_REAL(ncclCommDeregister, comm, handle);
	res = df_comm_check(comm, "ncclCommDeregister", "comm");
	if (res != ncclSuccess || !handle)
		return res;
	pthread_mutex_lock(&h->lock);
	for (at = &h->ranges; (r = *at); at = &r->next) {
		if (r != handle)
			continue;
		found = 1;
		if (!--r->refs) {
			*at = r->next;
			free(r);
		}
		break;
	}
	pthread_mutex_unlock(&h->lock);
	if (found)
		return ncclSuccess;
	DF_NCCL_WARN("Deregister: Could not find handle");
	return ncclInvalidUsage;
}
DF_NCCL_EXPORT(ncclCommDeregister);

/* ---- windows -------------------------------------------------------------------------------- */

int df_window_is_ours(const void *window)
{
	const struct df_window *w;

	df_mutex_lock(&windows_lock);
	for (w = windows; w; w = w->next)
		if (w == window)
			break;
	df_mutex_unlock(&windows_lock);
	return w != NULL;
}

int df_window_any(const struct df_handle *owner)
{
	const struct df_window *w;

	df_mutex_lock(&windows_lock);
	for (w = windows; w && w->owner != owner; w = w->next)
		;
	df_mutex_unlock(&windows_lock);
	return w != NULL;
}

/*
 * Removes a window from the list and returns it. Returns NULL if it does not belong to this
 * communicator. If `window` is NULL, any window of the owner matches; if `owner` is NULL, any owner
 * does.
 */
static struct df_window *take_window(const void *window, const struct df_handle *owner)
{
	struct df_window **at, *w = NULL;

	df_mutex_lock(&windows_lock);
	for (at = &windows; *at; at = &(*at)->next) {
		if ((window && *at != window) || (owner && (*at)->owner != owner))
			continue;
		w = *at;
		*at = w->next;
		break;
	}
	df_mutex_unlock(&windows_lock);
	return w;
}

void df_windows_drop(const struct df_handle *owner)
{
	struct df_window *w;

	while ((w = take_window(NULL, owner)))
		free(w);
}

static ncclResult_t window_register(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
				    int flags)
{
	struct df_window *w;
	ncclResult_t res;

	res = df_comm_check(comm, "ncclCommWindowRegister", "comm");
	if (res == ncclSuccess)
		res = df_ptr_check(win, "ncclCommWindowRegister", "win");
	if (res == ncclSuccess)
		res = df_handle_ready((struct df_handle *)comm);
	/* There is nothing to register: returns success and leaves *win unchanged. */
	if (res != ncclSuccess || !buff || !size)
		return res;
	if (flags & NCCL_WIN_COLL_SYMMETRIC && (uintptr_t)buff % NCCL_WIN_REQUIRED_ALIGNMENT) {
		DF_NCCL_WARN("ncclCommWindowRegister : %p is not aligned to %d bytes, as a "
			     "symmetric window must be",
			     buff, NCCL_WIN_REQUIRED_ALIGNMENT);
		return ncclInvalidArgument;
	}
	w = calloc(1, sizeof(*w));
	if (!w)
		return df_status_warn(-ENOMEM, "ncclCommWindowRegister");
	w->owner = (struct df_handle *)comm;
	w->ptr = buff;
	w->bytes = size;
	w->flags = flags;
	df_mutex_lock(&windows_lock);
	w->next = windows;
	windows = w;
	df_mutex_unlock(&windows_lock);
	*win = (ncclWindow_t)w;
	return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
				    int winFlags)
{
	if (DF_FOREIGN(comm))
		return DF_REAL(ncclCommWindowRegister, comm, buff, size, win, winFlags);
	if (winFlags & NCCL_WIN_COLL_SYMMETRIC && df_env()->handover == DF_HANDOVER_WINDOW)
		return df_window_hand_over(comm, buff, size, win, winFlags, __func__);
	return df_group_error(window_register(comm, buff, size, win, winFlags));
}
DF_NCCL_EXPORT(ncclCommWindowRegister);

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
	struct df_window *w;
	ncclResult_t res;

	if (DF_FOREIGN(comm))
		return DF_REAL(ncclCommWindowDeregister, comm, win);
	res = df_comm_check(comm, "ncclCommWindowDeregister", "comm");
	if (res != ncclSuccess || !win)
		return res;
	w = take_window(win, (struct df_handle *)comm);
	if (w) {
		free(w);
		return ncclSuccess;
	}
	DF_NCCL_WARN("ncclCommWindowDeregister : %p is no window of this communicator",
		     (void *)win);
	return ncclInvalidArgument;
}
DF_NCCL_EXPORT(ncclCommWindowDeregister);

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr)
{
	const struct df_window *w;
	ncclResult_t res;

	if (DF_FOREIGN(comm))
		return DF_REAL(ncclWinGetUserPtr, comm, win, outUserPtr);
	res = df_comm_check(comm, "ncclWinGetUserPtr", "comm");
	if (res == ncclSuccess)
		res = df_ptr_check(outUserPtr, "ncclWinGetUserPtr", "outUserPtr");
	if (res == ncclSuccess)
		res = df_ptr_check(win, "ncclWinGetUserPtr", "win");
	if (res != ncclSuccess)
		return res;
	df_mutex_lock(&windows_lock);
	for (w = windows; w; w = w->next)
		if (w == (void *)win)
			break;
	if (w)
		*outUserPtr = w->ptr;
	df_mutex_unlock(&windows_lock);
	if (w)
		return ncclSuccess;
	DF_NCCL_WARN("ncclWinGetUserPtr : %p is no window", (void *)win);
	return ncclInvalidArgument;
}
DF_NCCL_EXPORT(ncclWinGetUserPtr);
