/* Places of NCCL's proxies, the threads that send and receive for it: in PROXY records. */
#ifndef DF_TRACE_RECORD_PROXY_H
#define DF_TRACE_RECORD_PROXY_H

/* Where a proxy of NCCL stands: its first step that has not ended, if there is one. */
enum df_proxy_at {
	DF_PROXY_NO_STEP,
	DF_PROXY_BEGUN,
	DF_PROXY_SEND_GPU,   /* the kernel has not written the data to send */
	DF_PROXY_SEND_PEER,  /* the peer has no room announced (from v4 of the interface on) */
	DF_PROXY_SEND_NET,   /* the network has the data and does not report them sent */
	DF_PROXY_RECV_NET,   /* no data arrive */
	DF_PROXY_RECV_FLUSH, /* they have arrived, and are not visible to the GPU yet */
	DF_PROXY_RECV_GPU    /* the kernel has not read them */
};

#endif
