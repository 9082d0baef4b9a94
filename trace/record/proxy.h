/* The states of NCCL's proxies, the threads that send and receive for it, in PROXY records. */
#ifndef DF_TRACE_RECORD_PROXY_H
#define DF_TRACE_RECORD_PROXY_H

/* The state of the first step of a proxy that has not ended, if there is one. */
enum df_proxy_at {
	DF_PROXY_NO_STEP,
	DF_PROXY_BEGUN,
	DF_PROXY_SEND_GPU, /* the kernel has not written the data to send */
	/* the peer has announced no room (reported by versions from 4 on of the interface) */
	DF_PROXY_SEND_PEER,
	DF_PROXY_SEND_NET,   /* the network has the data and does not report that they were sent */
	DF_PROXY_RECV_NET,   /* no data arrive */
	DF_PROXY_RECV_FLUSH, /* data have arrived, and are not visible to the GPU yet */
	DF_PROXY_RECV_GPU    /* the kernel has not read them */
};

#endif
