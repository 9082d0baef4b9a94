/*
 * Description: a process that exits normally causes no fault of the network, even if data are in
 * transit to it. A process that disappears does.
 */
#include "tests/lib/test.h"
#include "tests/transport/wire.h"

static struct df_net_ep ep;
static struct df_net_link *their;

static void announce(uint64_t key)
{
	struct df_conn *c;

	ck_assert_int_eq(
		df_tl_net_ops.create((struct df_peer *)(void *)their, key, 2, 64, 0, 0, &c), 0);
}

/*
 * The other end closes its socket with unread data, so the connection is reset, and this end has
 * more data to send. With _i = 1 the other end has sent BYE before.
 */
START_TEST(ends)
{
	const struct df_net_frame bye = {.type = DF_NET_BYE};
	int fd = wire_join(&ep, &their);

	ck_assert_int_ge(fd, 0);
	announce(1);
	df_net_pass(&ep);
	if (_i)
		ck_assert_int_eq(send(fd, &bye, sizeof(bye), 0), sizeof(bye));
	announce(2);
	close(fd);
	usleep(20000);
	ck_assert_int_eq(wire_until(&ep, their, 0), 0);
	ck_assert_int_eq(their->bye, _i);
	ck_assert_uint_eq(ep.n.faults, !_i);
}
END_TEST

int main(void)
{
	return DF_TESTS("goodbye", {ends, 2});
}
