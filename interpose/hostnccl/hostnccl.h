/*
 * The interface of libdfnccl.so (NCCL with its own rules, on the memory of libdfhost.so) for the
 * libraries in front of it or below it. Besides NCCL's names it exports one, df_hostnccl(), found
 * with dlsym. Its existence shows that NCCL can use this memory, and that streams share hardware
 * queues as on a GPU.
 */
#ifndef DF_HOSTNCCL_H
#define DF_HOSTNCCL_H

struct ncclComm;

struct df_hostnccl_api {
	/*
	 * Ends every communicator of this process on which any rank, in any process, has unfinished
	 * operations, with ncclRemoteError for all ranks. Calls that wait return this error, and
	 * streams continue. Handles stay valid. Any thread.
	 */
	void (*stop)(void);
	/*
	 * Sets a function that is called with each communicator that stop() has ended, here or in
	 * another process, before any of its operations ends and any waiting call returns. Any
	 * thread may call fn, and fn must not call NCCL. Set it before there are communicators.
	 */
	void (*on_stop)(void (*fn)(struct ncclComm *comm));
	/*
	 * Calls fn with every communicator of this process whose next launch has been reached by
	 * its streams and waits for a slot of its device; fn must not call NCCL. Any thread.
	 */
	void (*slot_waits)(void (*fn)(struct ncclComm *comm));
};

const struct df_hostnccl_api *df_hostnccl(void);

#endif
