/* Description: invalid messages of the other side of a link are refused, and leak nothing. */
#include "tests/lib/test.h"
#include "tests/transport/wire.h"

#define KEY 1

static struct df_net_ep ep;
static struct df_net_link *their;
static int fd;

static void say(struct df_net_frame f)
{
	ck_assert_int_eq(send(fd, &f, sizeof(f), 0), sizeof(f));
}

static struct df_conn *make(void)
{
	struct df_conn *c;

	ck_assert_int_eq(
		df_tl_net_ops.create((struct df_peer *)(void *)their, KEY, 2, 64, 0, 0, &c), 0);
	df_net_pass(&ep);
	return c;
}

/* Sends the frame. The connection must break. */
static void is_refused(struct df_net_frame f)
{
	say(f);
	ck_assert_int_eq(wire_until(&ep, their, 0), 0);
	ck_assert_int_eq(their->bye, 0);
	ck_assert_uint_eq(ep.n.faults, 1);
}

/*
 * A slice that acknowledges data that were never sent is refused, and holds no reference to its
 * connector.
 */
START_TEST(acknowledgement)
{
	struct df_net_conn *c;
	struct df_conn *conn;

	fd = wire_join(&ep, &their);
	ck_assert_int_ge(fd, 0);
	conn = make();
	c = (struct df_net_conn *)(void *)conn;
	is_refused((struct df_net_frame){.type = DF_NET_DATA, .to = c->id, .ack = UINT64_MAX});
	ck_assert_uint_eq(c->refs, 0);
	ck_assert_uint_eq(df_net_tail(c), 0);
	ck_assert_int_eq(df_tl_net_ops.close(conn), 0);
	df_net_mark_dead(their);
	df_net_pass(&ep);
	df_net_pass(&ep);
	ck_assert_int_eq(df_list_empty(&their->conns), 1);
	ck_assert_uint_eq(df_arena_bytes, 0);
}
END_TEST

/* The largest offers, and the smallest ones that are too large. */
static const struct {
	uint32_t nr_slots, slot_bytes;
	int ok;
} offers[] = {
	{DF_NET_SLOTS_MAX, DF_NET_CONN_BYTES_MAX / DF_NET_SLOTS_MAX, 1},
	{DF_NET_SLOTS_MAX + 1, 1, 0},
	{DF_NET_SLOTS_MAX, DF_NET_CONN_BYTES_MAX / DF_NET_SLOTS_MAX + 1, 0},
	{8, DF_NET_SLOT_BYTES, 1},
	{9, DF_NET_SLOT_BYTES, 0},
	{0, 64, 0},
};

START_TEST(offer)
{
	const struct df_net_frame f = {.type = DF_NET_OPEN,
				       .to = 1,
				       .aux = KEY,
				       .seq = 1,
				       .a = offers[_i].nr_slots,
				       .b = offers[_i].slot_bytes};
	int i;

	fd = wire_join(&ep, &their);
	ck_assert_int_ge(fd, 0);
	if (!offers[_i].ok) {
		is_refused(f);
		ck_assert_ptr_null(their->offers);
		return;
	}
	say(f);
	for (i = 0; i < 1000 && !their->offers; i++) {
		df_net_pass(&ep);
		usleep(1000);
	}
	ck_assert_ptr_nonnull(their->offers);
	ck_assert_int_eq(their->up, 1);
}
END_TEST

/* This side creates no connector that the other side would refuse. */
START_TEST(own)
{
	struct df_conn *c;

	fd = wire_join(&ep, &their);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(df_tl_net_ops.create((struct df_peer *)(void *)their, KEY,
					      DF_NET_SLOTS_MAX + 1, 1, 0, 0, &c),
			 -EINVAL);
}
END_TEST

/*
 * Data that arrived just before a connection broke are not sent again. Neither TOLD nor the
 * process's exit waits for them.
 */
START_TEST(acknowledged_late)
{
	fd = wire_join(&ep, &their);
	ck_assert_int_ge(fd, 0);
	make();
	ck_assert_uint_eq(their->sent, 1);
	df_net_down(their, -ECONNRESET);
	df_net_up(their);
	ck_assert_uint_eq(their->sent, 0);
	df_net_acknowledged(their, 1);
	ck_assert_uint_eq(their->sent, 1);
	df_net_pass(&ep);
	ck_assert_int_eq(their->told, 1);
}
END_TEST

int main(void)
{
	return DF_TESTS("protocol", {acknowledgement}, {offer, DF_ARRAY_LEN(offers)}, {own},
			{acknowledged_late});
}
