/*
 * The states of NCCL's proxies in PROXY records. A proxy is a thread that sends and receives for
 * NCCL.
 */
#ifndef DF_TRACE_RECORD_PROXY_H
#define DF_TRACE_RECORD_PROXY_H

/* The state of the first step of a proxy that has not ended. */
enum df_proxy_at {
	DF_PROXY_NO_STEP,
	DF_PROXY_BEGUN,
	DF_PROXY_SEND_GPU, /* the kernel has not written the data to send */
	/* the peer has announced no free buffer (reported from version 4 of the interface on) */
	DF_PROXY_SEND_PEER,
	/* the network has the data but does not report that it has sent them */
	DF_PROXY_SEND_NET,
	DF_PROXY_RECV_NET,   /* no data arrive */
	DF_PROXY_RECV_FLUSH, /* data have arrived, and are not visible to the GPU yet */
	DF_PROXY_RECV_GPU    /* the kernel has not read them */
};

#endif
