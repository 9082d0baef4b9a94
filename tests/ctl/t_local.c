/*
 * Description: rendezvous, allgather, derived communicators and errors, among threads of one
 * process.
 */
#include "tests/ctl/ctl_test.h"

#include <dirent.h>

#include "runtime/base/hash.h"

static unsigned char ids[8][128];

static void *use_thread(void *arg)
{
	struct ct_rank *r = arg;
	int i;

	ct_join(r);
	ck_assert_int_eq(r->ret, 0);
	for (i = 0; i < 20; i++)
		ck_assert_int_eq(
			ct_gather(r->comm, r->rank, r->nranks, (uint64_t)i, (size_t)i % 5, NULL),
			0);
	for (i = 0; i < r->nranks; i++)
		ck_assert_int_eq(df_ctl_members(r->comm)[i].rank, i);
	df_ctl_leave(r->comm);
	return NULL;
}

START_TEST(t_sizes)
{
	static const int sizes[] = {1, 2, 3, 8, 17, 64};
	struct ct_rank r[64];
	int n = sizes[_i], i;

	ck_assert_int_eq(df_id_create(ids[0]), 0);
	ck_assert_int_eq(df_id_is_ours(ids[0]), 1);
	for (i = 0; i < n; i++) {
		r[i] = (struct ct_rank){.ids = ids, .nranks = n, .rank = i};
		ck_assert_int_eq(pthread_create(&r[i].thread, NULL, use_thread, &r[i]), 0);
	}
	for (i = 0; i < n; i++)
		pthread_join(r[i].thread, NULL);
	ck_assert_ptr_null(df_ctl.groups);
	ck_assert_ptr_null(df_ctl.joins);
}
END_TEST

/* Several ids for one communicator, with ranks assigned to ids as NCCL does. */
START_TEST(t_scalable)
{
	struct ct_rank r[13];
	int n, i;

	for (i = 0; i < 5; i++)
		ck_assert_int_eq(df_id_create(ids[i]), 0);
	ct_join_all(r, ids, 5, 13, 0, 1);
	for (n = 0; n < 13; n++) {
		ck_assert_int_eq(r[n].ret, 0);
		ck_assert_uint_eq(df_ctl_hash(r[n].comm), df_id_hash(ids[0]));
		df_ctl_leave(r[n].comm);
	}
}
END_TEST

#define NR_ORDERS 6

static void *orders_thread(void *arg)
{
	struct ct_rank *r = arg, one[NR_ORDERS];
	int i;

	/* Several joins of one rank at once, started in the rank's own order. */
	for (i = 0; i < NR_ORDERS; i++) {
		int k = (i * (r->rank % 2 ? 1 : 5) + r->rank) % NR_ORDERS;

		one[i] = (struct ct_rank){.ids = &ids[k], .nranks = 4, .rank = r->rank};
		pthread_create(&one[i].thread, NULL, ct_join_thread, &one[i]);
	}
	for (i = 0; i < NR_ORDERS; i++) {
		pthread_join(one[i].thread, NULL);
		ck_assert_int_eq(one[i].ret, 0);
		df_ctl_leave(one[i].comm);
	}
	return NULL;
}

START_TEST(t_orders)
{
	struct ct_rank r[4];
	int i;

	for (i = 0; i < NR_ORDERS; i++)
		ck_assert_int_eq(df_id_create(ids[i]), 0);
	for (i = 0; i < 4; i++) {
		r[i].rank = i;
		pthread_create(&r[i].thread, NULL, orders_thread, &r[i]);
	}
	for (i = 0; i < 4; i++)
		pthread_join(r[i].thread, NULL);
}
END_TEST

static void *derive_thread(void *arg)
{
	struct ct_rank *r = arg;
	struct df_ctl_comm *c;
	int odd[8], n = 0, i, me = 0;

	/* Ranks of the same parity, in reverse order. */
	for (i = r->nranks - 1; i >= 0; i--) {
		if (i % 2 != r->rank % 2)
			continue;
		if (i == r->rank)
			me = n;
		odd[n++] = i;
	}
	ck_assert_int_eq(df_ctl_derive(r->comm, 77 + (uint64_t)(r->rank % 2), odd, n, me, 0, &c),
			 0);
	ck_assert_int_eq(ct_gather(c, me, n, 5, 3, NULL), 0);
	ck_assert_uint_eq(df_ctl_members(c)[me].settings, (uint64_t)9);
	df_ctl_leave(r->comm);
	ck_assert_int_eq(ct_gather(c, me, n, 6, 1, NULL), 0);
	df_ctl_leave(c);
	return NULL;
}

START_TEST(t_derive)
{
	struct ct_rank r[8];
	int i;

	ck_assert_int_eq(df_id_create(ids[0]), 0);
	for (i = 0; i < 8; i++) {
		r[i] = (struct ct_rank){.ids = ids, .nranks = 8, .rank = i, .settings = 9};
		pthread_create(&r[i].thread, NULL, ct_join_thread, &r[i]);
	}
	for (i = 0; i < 8; i++)
		pthread_join(r[i].thread, NULL);
	for (i = 0; i < 8; i++)
		pthread_create(&r[i].thread, NULL, derive_thread, &r[i]);
	for (i = 0; i < 8; i++)
		pthread_join(r[i].thread, NULL);
	ck_assert_ptr_null(df_ctl.groups);
}
END_TEST

/*
 * If one rank's arguments are wrong, all waiting ranks get -EPROTO, and so does a rank that arrives
 * later.
 */
START_TEST(t_refused)
{
	struct ct_rank r[4];
	int i;

	ck_assert_int_eq(df_id_create(ids[0]), 0);
	for (i = 0; i < 3; i++) {
		r[i] = (struct ct_rank){.ids = ids, .nranks = 3, .rank = i};
		switch (_i) {
		case 0:
			r[i].rank = i == 2 ? 0 : i; /* the same rank twice */
			break;
		case 1:
			r[i].nranks = i == 2 ? 4 : 3;
			break;
		case 2:
			r[i].settings = i == 2;
			break;
		}
		pthread_create(&r[i].thread, NULL, ct_join_thread, &r[i]);
	}
	for (i = 0; i < 3; i++) {
		pthread_join(r[i].thread, NULL);
		ck_assert_int_eq(r[i].ret, -EPROTO);
	}
	r[3] = (struct ct_rank){.ids = ids, .nranks = 3, .rank = 2};
	ck_assert_int_eq(ct_join(&r[3]), -EPROTO);
}
END_TEST

/*
 * A rank cannot run with dfshim. If all ranks can change to the real library, all join, with
 * settings or without. Otherwise all are refused, also a rank that arrives later. Cases from 4 on
 * have a second id, through a relay.
 */
START_TEST(t_limits)
{
	const struct df_ctl_limits unable = {.unable = "no GPU"}, bound = {.bound = "strict"},
				   both = {"no GPU", "strict"};
	int two = _i >= 4, i, last = _i % 4 == 3 ? 1 : 3;
	struct ct_rank r[4];

	ck_assert_int_eq(df_id_create(ids[0]), 0);
	ck_assert_int_eq(df_id_create(ids[1]), 0);
	for (i = 0; i < 4; i++) {
		r[i] = (struct ct_rank){
			.ids = ids, .nr_ids = 1 + two, .nranks = 4, .rank = i, .settings = 9};
		if (i == last && _i % 4 == 3)
			r[i].limits = both;
		else if (i == last)
			r[i].limits = unable;
		if (i == last)
			r[i].settings = 0;
		if (_i % 4 == 1 && i != last)
			r[i].limits = bound;
		if (_i % 4 == 2 && i == 0)
			r[i].limits = bound;
	}
	for (i = 0; i < 4; i++)
		/* A rank with both limits waits for no other rank. */
		if (_i % 4 != 3 || i == last)
			pthread_create(&r[i].thread, NULL, ct_join_thread, &r[i]);
	if (_i % 4 == 3) {
		pthread_join(r[last].thread, NULL);
		ck_assert_int_eq(r[last].ret, -EOPNOTSUPP);
		for (i = 0; i < 4; i++)
			if (i != last)
				pthread_create(&r[i].thread, NULL, ct_join_thread, &r[i]);
	}
	for (i = 0; i < 4; i++) {
		if (_i % 4 != 3 || i != last)
			pthread_join(r[i].thread, NULL);
		ck_assert_int_eq(r[i].ret, _i % 4 ? -EOPNOTSUPP : 0);
	}
	for (i = 0; i < 4 && !(_i % 4); i++) {
		ck_assert_int_eq(df_ctl_members(r[i].comm)[last].unable, 1);
		ck_assert_int_eq(df_ctl_members(r[i].comm)[0].unable, 0);
		df_ctl_leave(r[i].comm);
	}
}
END_TEST

START_TEST(t_id_twice)
{
	struct ct_rank r[3];

	ck_assert_int_eq(df_id_create(ids[0]), 0);
	ct_join_all(r, ids, 1, 2, 0, 1);
	ck_assert_int_eq(r[0].ret | r[1].ret, 0);
	r[2] = (struct ct_rank){.ids = ids, .nranks = 2, .rank = 0};
	ck_assert_int_eq(ct_join(&r[2]), -EPROTO);
	df_ctl_leave(r[0].comm);
	df_ctl_leave(r[1].comm);
}
END_TEST

/* Values of getHash() of NCCL 2.28.9 over 128 bytes. */
START_TEST(t_hash)
{
	unsigned char b[128];
	int i;

	for (i = 0; i < 128; i++)
		b[i] = (unsigned char)(i * 7 + 1);
	ck_assert_uint_eq(df_id_hash(b), 0x90e3297ca6f903d2ull);
	memset(b, 0, sizeof(b));
	ck_assert_uint_eq(df_id_hash(b), 0xcc976ec6c24bb53cull);
	memset(b, 255, sizeof(b));
	ck_assert_uint_eq(df_id_hash(b), 0xb291227e082bb663ull);
}
END_TEST

START_TEST(t_bad_arguments)
{
	struct ct_rank r = {.ids = ids, .nranks = 2, .rank = 2};

	ck_assert_int_eq(df_id_create(ids[0]), 0);
	ck_assert_int_eq(ct_join(&r), -EINVAL);
	r.rank = -1;
	ck_assert_int_eq(ct_join(&r), -EINVAL);
	r.rank = 0;
	r.nr_ids = 3;
	ck_assert_int_eq(ct_join(&r), -EINVAL);
	memset(ids[0] + 64, 0, 64);
	r.nr_ids = 1;
	ck_assert_int_eq(df_id_is_ours(ids[0]), 0);
	ck_assert_int_eq(ct_join(&r), -EPROTO);
}
END_TEST

/* A rank is missing. Every rank can name it, and a stop ends the waits of all. */
START_TEST(t_missing)
{
	struct ct_rank r[4];
	uint32_t stop = 0;
	int ranks[8], i;

	ck_assert_int_eq(df_id_create(ids[0]), 0);
	for (i = 0; i < 4; i++) {
		if (i == 2)
			continue;
		r[i] = (struct ct_rank){.ids = ids, .nranks = 4, .rank = i, .stop = &stop};
		pthread_create(&r[i].thread, NULL, ct_join_thread, &r[i]);
	}
	while (df_ctl_missing(df_id_hash(ids[0]), ranks, 8) != 1)
		usleep(500);
	ck_assert_int_eq(ranks[0], 2);
	ck_assert_int_eq(df_ctl_missing(123, ranks, 8), -ENOENT);
	__atomic_store_n(&stop, 1,
			 __ATOMIC_RELEASE); /* pairs with the ACQUIRE of the waiting call */
	df_ctl_poke();
	for (i = 0; i < 4; i++) {
		if (i == 2)
			continue;
		pthread_join(r[i].thread, NULL);
		/* The first rank to see the stop gave up. For the others a rank has left. */
		ck_assert(r[i].ret == -ECANCELED || r[i].ret == -ECONNRESET);
	}
}
END_TEST

static void *gather_alone(void *arg)
{
	struct ct_rank *r = arg;

	r->ret = ct_gather(r->comm, r->rank, r->nranks, 1, 1, r->stop);
	return NULL;
}

START_TEST(t_gather_stop)
{
	struct ct_rank r[2];
	uint32_t stop = 0;

	ck_assert_int_eq(df_id_create(ids[0]), 0);
	ct_join_all(r, ids, 1, 2, 0, 1);
	r[0].stop = &stop;
	pthread_create(&r[0].thread, NULL, gather_alone, &r[0]);
	usleep(20000);
	__atomic_store_n(&stop, 1,
			 __ATOMIC_RELEASE); /* pairs with the ACQUIRE of the waiting call */
	df_ctl_poke();
	pthread_join(r[0].thread, NULL);
	ck_assert_int_eq(r[0].ret, -ECANCELED);
	df_ctl_leave(r[0].comm);
	df_ctl_leave(r[1].comm);
}
END_TEST

/* The others do not wait for a rank that has left. */
START_TEST(t_gather_left)
{
	struct ct_rank r[3];
	int i;

	ck_assert_int_eq(df_id_create(ids[0]), 0);
	ct_join_all(r, (const unsigned char(*)[128])ids, 1, 3, 0, 1);
	for (i = 0; i < 2; i++)
		pthread_create(&r[i].thread, NULL, gather_alone, &r[i]);
	df_ctl_leave(r[2].comm);
	for (i = 0; i < 2; i++) {
		pthread_join(r[i].thread, NULL);
		ck_assert_int_eq(r[i].ret, -ECONNRESET);
		df_ctl_leave(r[i].comm);
	}
}
END_TEST

/* Returns how often the control thread has woken up so far, or -1 while it is awake. */
static long turns(void)
{
	char path[300], name[64], line[256], state = 'R';
	struct dirent *e;
	DIR *d = opendir("/proc/self/task");
	long n = -1;
	FILE *f;

	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		name[0] = '\0';
		if (!fgets(name, sizeof(name), f))
			name[0] = '\0';
		fclose(f);
		if (strcmp(name, "dfshim-ctl\n"))
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof(line), f))
			if (sscanf(line, "State: %c", &state) != 1)
				sscanf(line, "voluntary_ctxt_switches: %ld", &n);
		if (f)
			fclose(f);
	}
	closedir(d);
	return state == 'S' ? n : -1;
}

/* Waits until the start is over: no timer is left and the control thread sleeps. */
static long settled(void)
{
	uint64_t timer;
	long before;

	do {
		before = turns();
		usleep(100000);
		df_ctl_lock();
		timer = df_ctl.timer_ns;
		df_ctl_unlock();
	} while (timer || before < 0 || turns() != before);
	return before;
}

/* Without work the control thread sleeps all the time. */
START_TEST(t_idle)
{
	struct ct_rank r[2];
	long before;

	ck_assert_int_eq(df_id_create(ids[0]), 0);
	ct_join_all(r, (const unsigned char(*)[128])ids, 1, 2, 0, 1);
	before = settled();
	usleep(600000);
	ck_assert_int_eq(turns(), before);
	df_ctl_leave(r[0].comm);
	df_ctl_leave(r[1].comm);
}
END_TEST

static void *gather_bytes(void *arg)
{
	struct ct_rank *r = arg;
	char in[16] = "", out[32];

	r->ret = df_ctl_allgather(r->comm, in, r->rank ? 16 : 8, out, NULL);
	return NULL;
}

START_TEST(t_gather_mismatch)
{
	struct ct_rank r[2];
	int i;

	ck_assert_int_eq(df_id_create(ids[0]), 0);
	ct_join_all(r, ids, 1, 2, 0, 1);
	for (i = 0; i < 2; i++)
		pthread_create(&r[i].thread, NULL, gather_bytes, &r[i]);
	for (i = 0; i < 2; i++) {
		pthread_join(r[i].thread, NULL);
		ck_assert_int_eq(r[i].ret, -EPROTO);
		df_ctl_leave(r[i].comm);
	}
}
END_TEST

static void *many_thread(void *arg)
{
	struct ct_rank *r = arg, one;
	struct df_ctl_comm **comms = calloc(1000, sizeof(*comms));
	int i;

	for (i = 0; i < 1000; i++) {
		one = (struct ct_rank){.ids = r->ids + i, .nranks = 2, .rank = r->rank};
		ck_assert_int_eq(ct_join(&one), 0);
		comms[i] = one.comm;
	}
	for (i = 0; i < 1000; i++)
		ck_assert_int_eq(ct_gather(comms[i], r->rank, 2, (uint64_t)i, 2, NULL), 0);
	for (i = 0; i < 1000; i++)
		df_ctl_leave(comms[i]);
	free(comms);
	return NULL;
}

START_TEST(t_many)
{
	unsigned char(*many)[128] = malloc(1000 * 128);
	struct ct_rank r[2];
	int i;

	for (i = 0; i < 1000; i++)
		ck_assert_int_eq(df_id_create(many[i]), 0);
	for (i = 0; i < 2; i++) {
		r[i] = (struct ct_rank){.ids = (const unsigned char(*)[128])many, .rank = i};
		pthread_create(&r[i].thread, NULL, many_thread, &r[i]);
	}
	for (i = 0; i < 2; i++)
		pthread_join(r[i].thread, NULL);
	free(many);
}
END_TEST

/*
 * NCCL_COMM_ID: every rank has the same id, rank 0 may arrive last, and the address can be used
 * again.
 */
START_TEST(t_address)
{
	unsigned char again[128];
	struct ct_rank r[3];
	uint64_t hash = 0;
	char text[64];
	int turn, i;

	ct_address(text);
	ck_assert_int_eq(df_id_from_address("nonsense", ids[0]), -EINVAL);
	ck_assert_int_eq(df_id_from_address("localhost:", ids[0]), -EINVAL);
	ck_assert_int_eq(df_id_from_address(text, ids[0]), 0);
	ck_assert_int_eq(df_id_from_address(text, again), 0);
	ck_assert_int_eq(memcmp(ids[0], again, 128), 0);
	for (turn = 0; turn < 3; turn++) {
		for (i = 2; i >= 0; i--) {
			r[i] = (struct ct_rank){.ids = ids, .nranks = 3, .rank = i};
			pthread_create(&r[i].thread, NULL, ct_join_thread, &r[i]);
			usleep(30000);
		}
		for (i = 0; i < 3; i++) {
			pthread_join(r[i].thread, NULL);
			ck_assert_int_eq(r[i].ret, 0);
		}
		ck_assert_uint_ne(df_ctl_hash(r[0].comm), hash);
		hash = df_ctl_hash(r[0].comm);
		for (i = 0; i < 3; i++)
			df_ctl_leave(r[i].comm);
	}
}
END_TEST

static void *hang_up(void *arg)
{
	int fd;

	while ((fd = accept(*(int *)arg, NULL, NULL)) >= 0)
		close(fd);
	return NULL;
}

/*
 * A foreign process listens at the address. Rank 0 cannot serve the id there, and the others do not
 * wait for ever.
 */
START_TEST(t_address_taken)
{
	union df_sockaddr addr;
	struct ct_rank r = {.ids = ids, .nranks = 2, .rank = _i};
	pthread_t thread;
	char text[64];
	int fd;

	ct_address(text);
	ck_assert_int_eq(df_id_from_address(text, ids[0]), 0);
	ck_assert_int_eq(df_addr_parse(text, &addr, 1), 0);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(fd, &addr.sa, df_addr_len(&addr)) | listen(fd, 16), 0);
	pthread_create(&thread, NULL, hang_up, &fd);
	ct_join(&r);
	ck_assert_int_eq(r.ret, _i ? -ECONNRESET : -EADDRINUSE);
	shutdown(fd, SHUT_RDWR);
	pthread_join(thread, NULL);
	close(fd);
}
END_TEST

/* A rank with plain NCCL connects to the address. The other ranks fail with the reason. */
START_TEST(t_address_unshimmed)
{
	struct ct_rank r = {.ids = ids, .nranks = 2};
	uint64_t magic = DF_ID_ADDR_MAGIC;
	union df_sockaddr addr;
	char text[64];
	int fd = -1, ret;

	ct_address(text);
	ck_assert_int_eq(df_id_from_address(text, ids[0]), 0);
	ck_assert_int_eq(df_addr_parse(text, &addr, 1), 0);
	pthread_create(&r.thread, NULL, ct_join_thread, &r);
	do {
		usleep(1000);
		close(fd);
		fd = socket(AF_INET, SOCK_STREAM, 0);
		ret = connect(fd, &addr.sa, df_addr_len(&addr));
	} while (ret);
	/* NCCL's magic number and type, then the rank's data. */
	ck_assert_int_eq(send(fd, &magic, 8, MSG_NOSIGNAL), 8);
	(void)!send(fd, text, sizeof(text), MSG_NOSIGNAL);
	pthread_join(r.thread, NULL);
	ck_assert_int_eq(r.ret, -EPROTO);
	close(fd);
}
END_TEST

int main(void)
{
	return DF_TESTS("ctl local", {t_sizes, 6}, {t_scalable}, {t_orders}, {t_derive},
			{t_refused, 3}, {t_limits, 8}, {t_id_twice}, {t_hash}, {t_bad_arguments},
			{t_missing}, {t_gather_stop}, {t_gather_left}, {t_idle},
			{t_gather_mismatch}, {t_many}, {t_address}, {t_address_taken, 2},
			{t_address_unshimmed});
}
