/* Description: a process that ends in order is no fault of the network, whatever was on its way to it; one that just goes is. */
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/transport/node.h"
#include "tests/lib/test.h"
#include "tests/transport/wire.h"

#define PASSES 2000

static struct df_net_ep ep;
static struct df_net_link *their;

static int joined(void)
{
	union df_sockaddr at;
	struct hello h = wire_hello();
	int i, fd;

	ck_assert_int_eq(wire_start(&ep), 0);
	their = df_net_link_of(&ep, THEIRS, 0, 0);
	ck_assert_ptr_nonnull(their);
	ck_assert_int_eq(df_addr_parse(ep.address, &at, 1), 0);
	fd = socket(at.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(connect(fd, &at.sa, df_addr_len(&at)), 0);
	ck_assert_int_eq(send(fd, &h, sizeof(h), 0), sizeof(h));
	for (i = 0; i < PASSES && !their->up; i++) {
		df_net_pass(&ep);
		usleep(1000);
	}
	ck_assert_int_eq(their->up, 1);
	ck_assert_int_eq(recv(fd, &h, sizeof(h), MSG_WAITALL), sizeof(h));
	ck_assert_uint_eq(h.word, WELCOME);
	return fd;
}

static void announce(uint64_t key)
{
	struct df_conn *c;

	ck_assert_int_eq(
		df_tl_net_ops.create((struct df_peer *)(void *)their, key, 2, 64, 0, 0, &c), 0);
}

/* Something is on its way there that is not read any more, so the connection is reset; and there is more to be sent. */
START_TEST(ends)
{
	const struct df_net_frame bye = {.type = DF_NET_BYE};
	int i, fd = joined();

	announce(1);
	df_net_pass(&ep);
	if (_i)
		ck_assert_int_eq(send(fd, &bye, sizeof(bye), 0), sizeof(bye));
	announce(2);
	close(fd);
	usleep(20000);
	for (i = 0; i < PASSES && their->up; i++) {
		df_net_pass(&ep);
		usleep(1000);
	}
	ck_assert_int_eq(their->up, 0);
	ck_assert_int_eq(their->bye, _i);
	ck_assert_uint_eq(ep.n.faults, !_i);
}
END_TEST

int main(void)
{
	return DF_TESTS("goodbye", {ends, 2});
}
