/*
 * Description: no frame of the control plane contains a key. Everything that the processes send is
 * searched for all keys.
 */
#define _GNU_SOURCE
#include "tests/ctl/ctl_test.h"

#include <sys/socket.h>
#include <sys/syscall.h>

#include "runtime/ctl/link.h"
#include "runtime/ctl/tree.h"
#include "tests/ctl/greet.h"

#define NR_PROCS 12
#define NR_PAIRS (NR_PROCS / 2)
#define NR_IDS	 (NR_PAIRS + 2) /* one for each pair, and two for the communicator of all */

static struct {
	struct ct_share share;
	struct df_key keys[NR_PROCS + NR_IDS];
	uint32_t nr_seen[64]; /* number of frames by type */
	uint32_t nr_shown, shown_by;
} * job;

static void look_for_keys(const uint8_t *data, size_t bytes)
{
	static const struct df_key none;
	struct df_frame f = {.type = 0};
	size_t at, i;

	for (at = 0; at + sizeof(f) <= bytes; at += sizeof(f) + ((f.bytes + 7) & ~7u)) {
		memcpy(&f, data + at, sizeof(f));
		if (f.magic != DF_FRAME_MAGIC)
			break;
		__atomic_add_fetch(&job->nr_seen[f.type % 64], 1, __ATOMIC_RELAXED);
	}
	for (i = 0; i < NR_PROCS + NR_IDS; i++) {
		if (df_key_equal(&job->keys[i], &none) ||
		    !memmem(data, bytes, &job->keys[i], sizeof(job->keys[i])))
			continue;
		__atomic_add_fetch(&job->nr_shown, 1, __ATOMIC_RELAXED);
		job->shown_by = f.type;
	}
}

/* Replaces the C library's function, because the test is one program. */
ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
	if (job)
		look_for_keys(data, bytes);
	return syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	size_t i;

	for (i = 0; job && i < m->msg_iovlen; i++)
		look_for_keys(m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
	return syscall(SYS_sendmsg, fd, m, flags);
}

static struct ct_rank rank_of(int id, int nr_ids, int nranks, int rank)
{
	return (struct ct_rank){.ids = (const unsigned char(*)[128]) & job->share.ids[id],
				.nr_ids = nr_ids,
				.nranks = nranks,
				.rank = rank};
}

/*
 * Pairs join first, then all ranks. So six parts of the overlay, in which each process has two
 * places for children, become one. The first rank of a part is its root, which has a free place, or
 * the root's child, which asks the root to merge.
 */
static int member(int index, void *arg)
{
	int which = index / 2, in_pair = index % 2;
	struct ct_rank pair = rank_of(which, 1, 2, in_pair);
	struct ct_rank all = rank_of(NR_PAIRS, 2, NR_PROCS,
				     2 * (NR_PAIRS - 1 - which) + (which % 2 ? in_pair : !in_pair));
	struct df_id_tail tail;
	struct df_member self;
	int i;

	(void)arg;
	df_tree_k = 2;
	ck_assert_int_eq(df_ctl_self(&self), 0);
	for (i = index; i < NR_IDS; i += NR_PROCS)
		ck_assert_int_eq(df_id_create(job->share.ids[i]), 0);
	/* The control thread reads the keys while it holds the lock. */
	df_ctl_lock();
	job->keys[index] = self.key;
	for (i = index; i < NR_IDS; i += NR_PROCS) {
		ck_assert_int_eq(df_id_open(job->share.ids[i], &tail), 0);
		job->keys[NR_PROCS + i] = tail.secret;
	}
	df_ctl_unlock();
	ct_arrive(&job->share, 0, NR_PROCS);
	ck_assert_int_eq(ct_join(&pair), 0);
	ct_arrive(&job->share, 1, NR_PROCS);
	ck_assert_int_eq(ct_join(&all), 0);
	ck_assert_int_eq(ct_gather(all.comm, all.rank, NR_PROCS, 1, 3, NULL), 0);
	/* In mode trace a message carries the id of a communicator that grows. */
	if (!index)
		ck_assert_int_eq(df_ctl_send(all.comm, 0, DF_MSG_GROWN, job->share.ids[0], 128), 0);
	ct_arrive(&job->share, 2, NR_PROCS);
	df_ctl_leave(pair.comm);
	df_ctl_leave(all.comm);
	return 0;
}

START_TEST(t_frames)
{
	static const int with_keys[] = {
		DF_FRAME_RDV_CHECKIN, DF_FRAME_RDV_TABLE,  DF_FRAME_TREE_HELLO, DF_FRAME_TREE_REPLY,
		DF_FRAME_TREE_PATH,   DF_FRAME_TREE_MERGE, DF_FRAME_FLOOD};
	pid_t pid[NR_PROCS];
	size_t i;

	job = ct_shared(sizeof(*job));
	for (i = 0; i < NR_PROCS; i++)
		pid[i] = ct_fork(member, (int)i, NULL);
	for (i = 0; i < NR_PROCS; i++)
		ck_assert_int_eq(ct_wait(pid[i]), 0);
	for (i = 0; i < sizeof(with_keys) / sizeof(with_keys[0]); i++)
		ck_assert_msg(job->nr_seen[with_keys[i]], "no frame of type %d was sent",
			      with_keys[i]);
	ck_assert_msg(!job->nr_shown, "%u times a key was sent, last in a frame of type %u",
		      job->nr_shown, job->shown_by);
}
END_TEST

/*
 * A rank that cannot join reports this to the process that serves the id. The report's check-in
 * contains the id.
 */
START_TEST(t_decline)
{
	unsigned char id[1][128], other[1][128];
	struct gr_answer a = {.frame = gr_frame(DF_FRAME_ANSWER, sizeof(a.body))};
	struct df_id_tail tail;
	union df_sockaddr addr;
	int listener, fd;
	socklen_t len;
	pid_t pid;
	char c[64];

	job = ct_shared(sizeof(*job));
	ck_assert_int_eq(df_id_create(id[0]), 0);
	ck_assert_int_eq(df_id_open(id[0], &tail), 0);
	job->keys[0] = tail.secret;
	pid = fork();
	if (!pid)
		_exit(df_id_decline(1, (const unsigned char(*)[128])id, 2, 1, "a test") != 0);
	ck_assert_int_eq(ct_wait(pid), 0);
	ck_assert_uint_eq(job->nr_seen[DF_FRAME_RDV_CHECKIN], 1);
	ck_assert_uint_eq(job->nr_shown, 0);

	/* An end that does not know the secret receives only the greeting. */
	tail.sock = df_addr_random();
	tail.flags = 0;
	memcpy(other[0], id[0], sizeof(other[0]));
	memcpy(other[0] + DF_ID_TAIL, &tail, sizeof(tail));
	len = df_addr_unix(tail.sock, &addr);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, &addr.sa, len), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	pid = fork();
	if (!pid)
		_exit(df_id_decline(1, (const unsigned char(*)[128])other, 2, 1, "a test") !=
		      -EPROTO);
	fd = accept(listener, NULL, NULL);
	ck_assert_int_eq(
		recv(fd, c, sizeof(struct df_frame) + sizeof(struct df_greet), MSG_WAITALL),
		sizeof(struct df_frame) + sizeof(struct df_greet));
	ck_assert_int_eq(df_key_make(&a.body.challenge), 0);
	ck_assert_int_eq(df_key_make(&a.body.proof), 0);
	ck_assert_int_eq(send(fd, &a, sizeof(a), 0), sizeof(a));
	ck_assert_int_eq(recv(fd, c, sizeof(c), 0), 0);
	ck_assert_int_eq(ct_wait(pid), 0);
	ck_assert_uint_eq(job->nr_seen[DF_FRAME_RDV_CHECKIN], 1);
	close(fd);
	close(listener);
}
END_TEST

/*
 * A process that takes the address of NCCL_COMM_ID and never completes its answer does not block a
 * rank that declines for ever.
 */
START_TEST(t_decline_bounded)
{
	unsigned char id[1][128];
	struct df_id_tail tail;
	char at[64], c = 0;
	union df_sockaddr addr;
	int listener, fd, nr = 0;
	pid_t pid;

	job = NULL;
	ct_address(at);
	ck_assert_int_eq(df_id_from_address(at, id[0]), 0);
	ck_assert_int_eq(df_id_open(id[0], &tail), 0);
	df_id_address(&tail, &addr);
	listener = df_addr_listen(&addr, 1);
	ck_assert_int_ge(listener, 0);
	pid = fork();
	if (!pid)
		_exit(!df_id_decline(1, (const unsigned char(*)[128])id, 2, 1, "a test"));
	while (waitpid(pid, NULL, WNOHANG) == 0) {
		fd = accept(listener, NULL, NULL);
		if (fd < 0) {
			usleep(1000);
			continue;
		}
		nr++;
		if (!gr_accept(fd, tail.nonce, &tail.secret))
			while (send(fd, &c, 1, MSG_NOSIGNAL) == 1)
				usleep(1000);
		close(fd);
	}
	ck_assert_int_gt(nr, 0);
	close(listener);
}
END_TEST

/*
 * The name of a communicator in logs reveals neither the id's secret nor its first bytes, which
 * identify NCCL's ranks.
 */
START_TEST(t_hash)
{
	unsigned char id[128];
	uint64_t hash;
	size_t i;

	ck_assert_int_eq(df_id_create(id), 0);
	hash = df_id_hash(id);
	for (i = 0; i < 8; i++)
		id[i] ^= 1;
	for (i = 0; i < sizeof(struct df_key); i++)
		id[DF_ID_TAIL + offsetof(struct df_id_tail, secret) + i] ^= 1;
	ck_assert_uint_eq(df_id_hash(id), hash);
	id[DF_ID_TAIL + offsetof(struct df_id_tail, nonce)] ^= 1;
	ck_assert_uint_ne(df_id_hash(id), hash);
}
END_TEST

int main(void)
{
	return DF_TESTS("ctl secrets", {t_frames}, {t_decline}, {t_decline_bounded}, {t_hash});
}
