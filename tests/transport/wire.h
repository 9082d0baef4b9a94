/*
 * An endpoint of the network without its thread. The test makes its passes (df_net_pass()), and is
 * the other side of a link, byte by byte.
 */
#ifndef DF_TEST_WIRE_H
#define DF_TEST_WIRE_H

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/transport/net/net.h"
#include "runtime/transport/net/socket/socket.h"
#include "runtime/transport/progress.h"
#include "runtime/transport/transport_int.h"

/* Names of processes. Only members of a communicator know them. */
#define OURS   0x6f757273ull
#define THEIRS 0x74686569ull

/* Starts the endpoint and lets it listen. *ep must be zero. Returns 0 or -errno. */
static inline int wire_start(struct df_net_ep *ep)
{
	int ret = df_arena_start();

	df_mutex_init(&ep->lock, DF_RANK_CONNECTOR, "network connectors");
	df_list_init(&ep->inbox);
	ep->proc = OURS;
	ep->ops = df_net_media;
	ep->wants = ep->media = DF_NET_BIT_TCP;
	if (!ret)
		ret = df_key_make(&ep->key);
	if (!ret)
		ret = df_session_listen(ep);
	return ret ? ret : df_session_start(ep);
}

/* Returns the hello of the first session, with one stream. */
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

/*
 * Makes passes until the link is up (or down, if `up` is 0), for at most 5 s. Returns 0 or
 * -ETIMEDOUT.
 */
static inline int wire_until(struct df_net_ep *ep, const struct df_net_link *l, int up)
{
	int i;

	for (i = 0; i < 5000 && l->up != up; i++) {
		df_net_pass(ep);
		usleep(1000);
	}
	return l->up == up ? 0 : -ETIMEDOUT;
}

/* Connects to the endpoint, which makes no pass here. Returns the socket or -errno. */
static inline int wire_connect(const struct df_net_ep *ep)
{
	union df_sockaddr at;
	int fd, ret = df_addr_parse(ep->address, &at, 1);

	if (ret)
		return ret;
	fd = socket(at.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || (connect(fd, &at.sa, df_addr_len(&at)) && errno != EINPROGRESS))
		return -errno;
	return fd;
}

/*
 * Makes passes until this number of bytes has arrived, for at most 5 s. Returns 1 if it has, 0 if
 * the endpoint has closed the connection, else -ETIMEDOUT.
 */
static inline int wire_get(struct df_net_ep *ep, int fd, void *at, size_t bytes)
{
	size_t have = 0;
	ssize_t n;
	int i;

	for (i = 0; i < 5000 && have < bytes; i++) {
		df_net_pass(ep);
		n = recv(fd, (char *)at + have, bytes - have, MSG_DONTWAIT);
		if (!n || (n < 0 && errno != EAGAIN))
			return 0;
		have += n > 0 ? (size_t)n : 0;
		if (n < 0)
			usleep(1000);
	}
	return have == bytes ? 1 : -ETIMEDOUT;
}

/*
 * Sends this hello and the proof of the key. *o receives the endpoint's outcome. Returns as
 * wire_get() does, or -errno.
 */
static inline int wire_greet(struct df_net_ep *ep, int fd, const struct hello *h,
			     const struct df_key *key, struct outcome *o)
{
	struct df_key proof;
	struct answer a;
	int ret;

	if (send(fd, h, sizeof(*h), MSG_NOSIGNAL) != sizeof(*h))
		return -errno;
	ret = wire_get(ep, fd, &a, sizeof(a));
	if (ret != 1)
		return ret;
	proof = df_auth_proof(key, DF_PROOF_CONNECTS, h, sizeof(*h), &a.challenge);
	if (send(fd, &proof, sizeof(proof), MSG_NOSIGNAL) != sizeof(proof))
		return -errno;
	return wire_get(ep, fd, o, sizeof(*o));
}

/* Starts an endpoint and connects to it. *l is set to its link. Returns the socket or -errno. */
static inline int wire_join(struct df_net_ep *ep, struct df_net_link **l)
{
	struct hello h = wire_hello();
	struct outcome o;
	int fd, ret = wire_start(ep);

	if (ret)
		return ret;
	*l = df_net_link_of(ep, THEIRS, 0, 0);
	fd = *l ? wire_connect(ep) : -ENOMEM;
	if (fd < 0)
		return fd;
	ret = wire_greet(ep, fd, &h, &ep->key, &o);
	if (ret != 1 || o.word != WELCOME)
		return -EPROTO;
	ret = wire_until(ep, *l, 1);
	return ret ? ret : fd;
}

#endif
