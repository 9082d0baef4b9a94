/*
 * The border between libdfnccl.so (NCCL by its own rules, on the memory of libdfhost.so) and who stands in front of or
 * below it. Beyond NCCL's names it exports one, df_hostnccl(), found with dlsym: that it is there says that NCCL can use
 * this memory, and that streams share hardware queues as on a GPU.
 */
#ifndef DF_HOSTNCCL_H
#define DF_HOSTNCCL_H

struct ncclComm;

struct df_hostnccl_api {
	/*
	 * Ends every communicator of this process on which any of its ranks, in whatever process, has something unfinished,
	 * with ncclRemoteError for all of them: calls that wait return it, streams go on. Handles stay valid. Any thread.
	 */
	void (*stop)(void);
	/*
	 * fn: called with a communicator that has ended like that, here or in another process, before any of its operations
	 * does and any call that waits returns; by any thread; it may not call NCCL. To be set before there are communicators.
	 */
	void (*on_stop)(void (*fn)(struct ncclComm *comm));
	/*
	 * Calls fn with every communicator of this process whose next launch has been reached by its streams and waits for
	 * a slot of its device; fn may not call NCCL. Any thread.
	 */
	void (*slot_waits)(void (*fn)(struct ncclComm *comm));
};

const struct df_hostnccl_api *df_hostnccl(void);

#endif
