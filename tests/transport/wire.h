/*
 * An endpoint of the network without its thread: a program makes its passes (df_net_pass()) and is the other side of a link to it,
 * by the bytes that travel.
 */
#ifndef DF_TEST_WIRE_H
#define DF_TEST_WIRE_H

#include "runtime/transport/net/net.h"
#include "runtime/transport/net/socket/socket.h"

/* Names of processes, which only members of a communicator know. */
#define OURS   0x6f757273ull
#define THEIRS 0x74686569ull

/* It listens. -errno. ep: zeroed. */
static inline int wire_start(struct df_net_ep *ep)
{
	int ret = df_arena_start();

	df_mutex_init(&ep->lock, DF_RANK_CONNECTOR, "network connectors");
	df_list_init(&ep->inbox);
	ep->proc = OURS;
	ep->media = DF_NET_BIT_TCP;
	if (!ret)
		ret = df_session_listen(ep);
	return ret ? ret : df_session_start(ep);
}

/* Of the first session, with one stream. */
static inline struct hello wire_hello(void)
{
	return (struct hello){.magic = MAGIC,
			      .version = WIRE_VERSION,
			      .nr = 1,
			      .from_proc = THEIRS,
			      .to_proc = OURS,
			      .session = 1,
			      .word = HELLO,
			      .carries = DF_NET_BIT_TCP};
}

#endif
