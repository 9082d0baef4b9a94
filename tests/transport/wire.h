/*
 * An endpoint of the network without its thread: a program makes its passes (df_net_pass()) and is the other side of a link to it,
 * by the bytes that travel.
 */
#ifndef DF_TEST_WIRE_H
#define DF_TEST_WIRE_H

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/transport/net/net.h"
#include "runtime/transport/net/socket/socket.h"
#include "runtime/transport/node.h"

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

/* Passes until the link is up, or is not any more; 5 s at most. -ETIMEDOUT. */
static inline int wire_until(struct df_net_ep *ep, const struct df_net_link *l, int up)
{
	int i;

	for (i = 0; i < 5000 && l->up != up; i++) {
		df_net_pass(ep);
		usleep(1000);
	}
	return l->up == up ? 0 : -ETIMEDOUT;
}

/* Starts an endpoint and joins it. l: its link; the socket, or -errno. */
static inline int wire_join(struct df_net_ep *ep, struct df_net_link **l)
{
	struct hello h = wire_hello();
	union df_sockaddr at;
	int fd, ret = wire_start(ep);

	if (ret)
		return ret;
	*l = df_net_link_of(ep, THEIRS, 0, 0);
	ret = *l ? df_addr_parse(ep->address, &at, 1) : -ENOMEM;
	if (ret)
		return ret;
	fd = socket(at.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(fd, &at.sa, df_addr_len(&at)) || send(fd, &h, sizeof(h), 0) != sizeof(h))
		return -errno;
	ret = wire_until(ep, *l, 1);
	if (ret)
		return ret;
	if (recv(fd, &h, sizeof(h), MSG_WAITALL) != sizeof(h) || h.word != WELCOME)
		return -EPROTO;
	return fd;
}

#endif
