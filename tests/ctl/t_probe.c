/*
 * Description: a process that hangs up on a probe is probed again, because it may live. A process
 * that always hangs up, or refuses the connection, has died.
 */
#define _GNU_SOURCE
#include "tests/ctl/ctl_test.h"

#include <sys/socket.h>

#include "runtime/ctl/link.h"
#include "runtime/ctl/probe.h"
#include "runtime/ctl/tree.h"
#include "tests/ctl/greet.h"

#define ALWAYS 1000

/*
 * The other process of a communicator, played by a thread. It hangs up nr_hang_ups times and then
 * answers.
 */
static struct {
	struct df_member member;
	int listener, nr_hang_ups, nr_connections, nr_answers;
} peer;

static void *play_peer(void *arg)
{
	struct df_frame ping;
	int fd;

	(void)arg;
	while ((fd = accept(peer.listener, NULL, NULL)) >= 0) {
		if (peer.nr_connections++ >= peer.nr_hang_ups &&
		    !gr_accept(fd, peer.member.proc, &peer.member.key) &&
		    recv(fd, &ping, sizeof(ping), MSG_WAITALL) == sizeof(ping) &&
		    ping.type == DF_FRAME_PING) {
			gr_say(fd, DF_FRAME_PONG, NULL, 0);
			/* RELEASE pairs with nr_answers() */
			__atomic_add_fetch(&peer.nr_answers, 1, __ATOMIC_RELEASE);
		}
		close(fd);
	}
	return NULL;
}

static int nr_answers(void)
{
	return __atomic_load_n(&peer.nr_answers, __ATOMIC_ACQUIRE); /* pairs with play_peer() */
}

/*
 * Probes the peer of a communicator. Returns whether its death was found; otherwise the peer has
 * answered.
 */
static int found_dead(int nr_hang_ups)
{
	struct df_member members[2];
	union df_sockaddr addr;
	struct df_group *group;
	pthread_t thread;
	socklen_t len;
	int dead;

	ck_assert_int_eq(df_ctl_self(&members[0]), 0);
	members[1] = members[0];
	members[1].rank = 1;
	members[1].proc = df_addr_random();
	members[1].sock = df_addr_random();
	ck_assert_int_eq(df_key_make(&members[1].key), 0);
	peer.member = members[1];
	peer.nr_hang_ups = nr_hang_ups;
	peer.nr_connections = peer.nr_answers = 0;
	peer.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	len = df_addr_unix(peer.member.sock, &addr);
	ck_assert_int_eq(bind(peer.listener, &addr.sa, len), 0);
	if (nr_hang_ups >= 0)
		ck_assert_int_eq(listen(peer.listener, 16), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, play_peer, NULL), 0);
	df_ctl_lock();
	ck_assert_int_eq(df_group_get(df_addr_random(), members, 2, &group), 0);
	df_probe_soon();
	df_ctl_unlock();
	do {
		usleep(1000);
		dead = df_ctl_is_dead(peer.member.proc);
	} while (!dead && !nr_answers());
	shutdown(peer.listener, SHUT_RDWR);
	pthread_join(thread, NULL);
	close(peer.listener);
	df_ctl_lock();
	df_group_put(group);
	df_ctl_unlock();
	return dead;
}

START_TEST(t_hangs_up)
{
	ck_assert_int_eq(found_dead(0), 0);
	ck_assert_int_eq(found_dead(1), 0);
	ck_assert_int_eq(found_dead(5), 0);
}
END_TEST

START_TEST(t_always)
{
	ck_assert_int_eq(found_dead(ALWAYS), 1);
	ck_assert_int_gt(peer.nr_connections, 1);
}
END_TEST

START_TEST(t_refuses)
{
	ck_assert_int_eq(found_dead(-1), 1);
}
END_TEST

int main(void)
{
	return DF_TESTS("ctl probe", {t_hangs_up}, {t_always}, {t_refuses});
}
