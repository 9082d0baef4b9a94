/* Description: the control plane between processes: joins, gathers, messages, limits, fork. */
#include "tests/ctl/ctl_test.h"

#include <dirent.h>

#include "runtime/ctl/tree_int.h"

#define NR_PROCS_MAX 8

struct job {
	struct ct_share share;
	int nr_procs, nr_threads, nr_ids;
};

static struct job *job;

static int links(void)
{
	int n;

	df_ctl_lock();
	n = df_tree.nr_down + !!df_tree.up.link;
	df_ctl_unlock();
	return n;
}

static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Returns rank `rank` of n for the id with number `id`. */
static struct ct_rank by_id(int id, int n, int rank)
{
	return (struct ct_rank){.ids = (const unsigned char(*)[128]) & job->share.ids[id],
				.nranks = n,
				.rank = rank};
}

/* The last process makes the ids, which need not be rank 0's process. */
static void make_ids(int index)
{
	int i;

	if (index == job->nr_procs - 1)
		for (i = 0; i < job->nr_ids; i++)
			ck_assert_int_eq(df_id_create(job->share.ids[i]), 0);
	ct_arrive(&job->share, 0, (uint32_t)job->nr_procs);
}

/* ---- processes times threads ----------------------------------------------------------------- */

static void *use_thread(void *arg)
{
	struct ct_rank *r = arg;
	int i;

	ct_join(r);
	ck_assert_int_eq(r->ret, 0);
	for (i = 0; i < 30; i++)
		ck_assert_int_eq(ct_gather(r->comm, r->rank, r->nranks, (uint64_t)i,
					   (size_t)(i * 37) % 300, NULL),
				 0);
	return NULL;
}

/* Ranks are dealt to processes in turn, so that no two neighbours share a process. */
static int mix(int index)
{
	struct ct_rank r[64];
	int i, nranks = job->nr_procs * job->nr_threads;

	make_ids(index);
	for (i = 0; i < job->nr_threads; i++) {
		r[i] = by_id(0, nranks, i * job->nr_procs + index);
		r[i].nr_ids = job->nr_ids;
		pthread_create(&r[i].thread, NULL, use_thread, &r[i]);
	}
	for (i = 0; i < job->nr_threads; i++)
		pthread_join(r[i].thread, NULL);
	ck_assert_int_le(links(), DF_TREE_K + 1);
	ct_arrive(&job->share, 1, (uint32_t)job->nr_procs);
	for (i = 0; i < job->nr_threads; i++)
		df_ctl_leave(r[i].comm);
	return 0;
}

/* Ids made by different processes serve one communicator. */
static int scattered(int index)
{
	struct ct_rank r;

	ck_assert_int_eq(df_id_create(job->share.ids[index]), 0);
	ct_arrive(&job->share, 0, (uint32_t)job->nr_procs);
	r = by_id(0, job->nr_procs, job->nr_procs - 1 - index);
	r.nr_ids = job->nr_procs - 1;
	ck_assert_int_eq(ct_join(&r), 0);
	ck_assert_int_eq(ct_gather(r.comm, r.rank, r.nranks, 1, 3, NULL), 0);
	ct_arrive(&job->share, 1, (uint32_t)job->nr_procs);
	df_ctl_leave(r.comm);
	return 0;
}

/* ---- many communicators ---------------------------------------------------------------------- */

/*
 * Each process joins all communicators at once, by threads in its own order. So parts of the
 * overlay are merged in cycles.
 */
static int orders(int index)
{
	struct ct_rank r[16];
	int i, k;

	make_ids(index);
	for (i = 0; i < job->nr_ids; i++) {
		k = (i * (index % 2 ? 5 : 1) + index) % job->nr_ids;
		r[i] = by_id(k, job->nr_procs, (index + k) % job->nr_procs);
		pthread_create(&r[i].thread, NULL, use_thread, &r[i]);
	}
	for (i = 0; i < job->nr_ids; i++)
		pthread_join(r[i].thread, NULL);
	ct_arrive(&job->share, 1, (uint32_t)job->nr_procs);
	ck_assert_int_le(links(), DF_TREE_K + 1);
	for (i = 0; i < job->nr_ids; i++)
		df_ctl_leave(r[i].comm);
	return 0;
}

/*
 * Pairs in random order build the overlay from many parts; then all ranks join. Every process must
 * receive data from every other process over it.
 */
static int pairs(int index)
{
	struct ct_rank r[NR_PROCS_MAX], all;
	int i, k, n = job->nr_procs, at = 0, nr = 0;

	make_ids(index);
	for (i = 0; i < n; i++) {
		for (k = i + 1; k < n; k++, at++) {
			if (i != index && k != index)
				continue;
			r[nr] = by_id(at, 2, (at & 1) ^ (k == index));
			pthread_create(&r[nr].thread, NULL, use_thread, &r[nr]);
			nr++;
		}
	}
	for (i = 0; i < nr; i++)
		pthread_join(r[i].thread, NULL);
	all = by_id(at, n, index);
	use_thread(&all);
	ct_arrive(&job->share, 1, (uint32_t)n);
	ck_assert_int_le(links(), DF_TREE_K + 1);
	for (i = 0; i < nr; i++)
		df_ctl_leave(r[i].comm);
	df_ctl_leave(all.comm);
	return 0;
}

/* 1,000 communicators need no sockets of their own, and each works. */
static int thousand(int index)
{
	struct df_ctl_comm **c = calloc(1000, sizeof(*c));
	int i, n = job->nr_procs, ranks[NR_PROCS_MAX], before;
	struct ct_rank r;

	make_ids(index);
	r = by_id(0, n, index);
	ck_assert_int_eq(ct_join(&r), 0);
	before = descriptors();
	for (i = 0; i < 1000; i++) {
		int k, me = (index + i) % n;

		for (k = 0; k < n; k++)
			ranks[(k + i) % n] = k;
		ck_assert_int_eq(df_ctl_derive(r.comm, 1000 + (uint64_t)i, ranks, n, me, 0, &c[i]),
				 0);
		ck_assert_int_eq(df_ctl_members(c[i])[me].proc == df_ctl.self.proc, 1);
	}
	for (i = 0; i < 1000; i += 7)
		ck_assert_int_eq(ct_gather(c[i], (index + i) % n, n, (uint64_t)i, 1, NULL), 0);
	ck_assert_int_le(descriptors(), before + 2);
	ct_arrive(&job->share, 1, (uint32_t)n);
	for (i = 0; i < 1000; i++)
		df_ctl_leave(c[i]);
	df_ctl_leave(r.comm);
	free(c);
	return 0;
}

/* 60 joins one after the other, by ids of all processes. Descriptors do not accumulate. */
static int joins(int index)
{
	struct ct_rank r;
	int i, at_first = 0;

	for (i = 0; i < 60; i++)
		if (i % job->nr_procs == index)
			ck_assert_int_eq(df_id_create(job->share.ids[i]), 0);
	ct_arrive(&job->share, 0, (uint32_t)job->nr_procs);
	for (i = 0; i < 60; i++) {
		r = by_id(i, job->nr_procs, (index + i) % job->nr_procs);
		ck_assert_int_eq(ct_join(&r), 0);
		df_ctl_leave(r.comm);
		ct_arrive(&job->share, 1, (uint32_t)(job->nr_procs * (i + 1)));
		if (i == 10)
			at_first = descriptors();
	}
	ck_assert_int_le(descriptors(), at_first + 10);
	return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

static uint64_t got_from[64], got_sum;
static uint32_t nr_got;

static void on_message(uint64_t from, uint32_t kind, const void *data, size_t bytes)
{
	uint64_t word = 0;

	ck_assert_uint_eq(kind, DF_MSG_USER + 1);
	ck_assert_uint_ge(bytes, 8);
	memcpy(&word, data, 8);
	got_from[nr_got % 64] = from;
	got_sum += word;
	__atomic_add_fetch(&nr_got, 1, __ATOMIC_RELEASE); /* pairs with messages() */
}

static const struct df_ctl_events message_events = {.message = on_message};

static int messages(int index)
{
	struct ct_rank r;
	const struct df_member *m;
	uint64_t word[200];
	uint32_t want;
	int i, k, n = job->nr_procs;

	df_ctl_set_events(&message_events);
	make_ids(index);
	r = by_id(0, n, index);
	ck_assert_int_eq(ct_join(&r), 0);
	m = df_ctl_members(r.comm);
	ct_arrive(&job->share, 1, (uint32_t)n);
	memset(word, 0, sizeof(word));
	for (i = 0; i < 50; i++) {
		word[0] = 1;
		ck_assert_int_eq(df_ctl_send(r.comm, 0, DF_MSG_USER + 1, word, sizeof(word)), 0);
		word[0] = 1000;
		for (k = 0; k < n; k++)
			ck_assert_int_eq(df_ctl_send(r.comm, m[k].proc, DF_MSG_USER + 1, word, 8),
					 0);
	}
	ck_assert_int_eq(df_ctl_send(r.comm, 12345, DF_MSG_USER + 1, word, 8), -EINVAL);
	/* 50 from each other process to all, and 50 from each to this one. */
	want = (uint32_t)(50 * (n - 1) + 50 * n);
	while (__atomic_load_n(&nr_got, __ATOMIC_ACQUIRE) < want) /* pairs with on_message() */
		usleep(1000);
	ck_assert_uint_eq(got_sum, 50ull * (uint64_t)(n - 1) + 50000ull * (uint64_t)n);
	ct_arrive(&job->share, 2, (uint32_t)n);
	usleep(20000);
	/* no message arrives twice */
	ck_assert_uint_eq(__atomic_load_n(&nr_got, __ATOMIC_ACQUIRE), want);
	ct_arrive(&job->share, 3, (uint32_t)n);
	df_ctl_leave(r.comm);
	return 0;
}

/* ---- missing --------------------------------------------------------------------------------- */

static int missing(int index)
{
	struct ct_rank r;
	uint32_t stop = 0;
	int ranks[8];

	make_ids(index);
	if (index == 1) {
		ct_arrive(&job->share, 1, 3);
		return 0; /* the rank of this process never arrives */
	}
	r = by_id(0, 3, index);
	r.stop = &stop;
	pthread_create(&r.thread, NULL, ct_join_thread, &r);
	while (df_ctl_missing(df_id_hash(job->share.ids[0]), ranks, 8) != 1)
		usleep(1000);
	ck_assert_int_eq(ranks[0], 1);
	ct_arrive(&job->share, 1, 3);
	ct_arrive(&job->share, 2, 2);
	if (index == 0) {
		__atomic_store_n(&stop, 1, __ATOMIC_RELEASE); /* pairs with the waiting call */
		df_ctl_poke();
	}
	pthread_join(r.thread, NULL);
	/* One rank gives up; the other is informed. */
	ck_assert_int_eq(r.ret, index == 0 ? -ECANCELED : -ECONNRESET);
	ct_arrive(&job->share, 3, 2);
	return 0;
}

/* The others do not wait for a rank that has left, in any process. */
static int left(int index)
{
	struct ct_rank r;

	make_ids(index);
	r = by_id(0, 3, index);
	ck_assert_int_eq(ct_join(&r), 0);
	ck_assert_int_eq(ct_gather(r.comm, index, 3, 1, 1, NULL), 0);
	if (index != 1)
		ck_assert_int_eq(ct_gather(r.comm, index, 3, 2, 1, NULL), -ECONNRESET);
	df_ctl_leave(r.comm);
	ct_arrive(&job->share, 1, 3);
	return 0;
}

/* Arguments are wrong in one process, and all processes learn of it. */
static int refused(int index)
{
	struct ct_rank r;

	make_ids(index);
	r = by_id(0, 4, index == 2 ? 1 : index);
	ck_assert_int_eq(ct_join(&r), -EPROTO);
	ct_arrive(&job->share, 1, 3);
	return 0;
}

/* ---- address --------------------------------------------------------------------------------- */

static int address(int index)
{
	unsigned char id[1][128];
	struct ct_rank r;
	char text[64];
	int turn;

	ct_address(text);
	ck_assert_int_eq(df_id_from_address(text, id[0]), 0);
	for (turn = 0; turn < 5; turn++) {
		/* Each time another process is rank 0. */
		r = (struct ct_rank){.ids = (const unsigned char(*)[128])id,
				     .nranks = 3,
				     .rank = (index + turn) % 3};
		ck_assert_int_eq(ct_join(&r), 0);
		ck_assert_int_eq(ct_gather(r.comm, r.rank, 3, 1, 1, NULL), 0);
		df_ctl_leave(r.comm);
	}
	ct_arrive(&job->share, 1, 3);
	return 0;
}

/* ---- fork ------------------------------------------------------------------------------------ */

/*
 * A child of a member neither keeps the member's links open nor disturbs them. The child may use a
 * control plane of its own.
 */
static int forks(int index)
{
	struct ct_rank r, own;
	unsigned char id[1][128];
	uint64_t proc;
	pid_t pid;
	int i;

	make_ids(index);
	r = by_id(0, 2, index);
	ck_assert_int_eq(ct_join(&r), 0);
	proc = df_ctl.self.proc;
	for (i = 0; i < 5; i++) {
		pid = fork();
		if (!pid) {
			struct df_member self;

			if (df_ctl_allgather(r.comm, "", 0, &self, NULL) != -ESHUTDOWN)
				_exit(1);
			df_ctl_leave(r.comm);
#ifdef __SANITIZE_THREAD__
			_exit(0); /* with ThreadSanitizer a child has no threads */
#endif
			if (df_ctl_self(&self) || self.proc == proc || df_id_create(id[0]))
				_exit(2);
			own = (struct ct_rank){.ids = (const unsigned char(*)[128])id, .nranks = 1};
			if (ct_join(&own))
				_exit(3);
			df_ctl_leave(own.comm);
			_exit(0);
		}
		ck_assert_int_eq(ct_gather(r.comm, index, 2, (uint64_t)i, 4, NULL), 0);
		ck_assert_int_eq(ct_wait(pid), 0);
	}
	ck_assert_int_eq(ct_gather(r.comm, index, 2, 9, 4, NULL), 0);
	ct_arrive(&job->share, 1, 2);
	df_ctl_leave(r.comm);
	return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct row {
	const char *name;
	int (*fn)(int index);
	int nr_procs, nr_threads, nr_ids;
} rows[] = {
	{"mix", mix, 2, 1, 1},
	{"mix", mix, 3, 1, 1},
	{"mix", mix, 8, 1, 1},
	{"mix", mix, 2, 8, 1},
	{"mix", mix, 8, 8, 1},
	{"mix", mix, 4, 3, 5},
	{"mix", mix, 5, 2, 10},
	{"scattered", scattered, 6},
	{"orders", orders, 6, .nr_ids = 11},
	{"pairs", pairs, 7, .nr_ids = 22},
	{"thousand", thousand, 2, .nr_ids = 1},
	{"thousand", thousand, 8, .nr_ids = 1},
	{"joins", joins, 3},
	{"messages", messages, 5, .nr_ids = 1},
	{"missing", missing, 3, .nr_ids = 1},
	{"left", left, 3, .nr_ids = 1},
	{"refused", refused, 3, .nr_ids = 1},
	{"address", address, 3},
	{"fork", forks, 2, .nr_ids = 1},
};

static int process(int index, void *arg)
{
	return ((const struct row *)arg)->fn(index);
}

/* Forks the row's processes. All must return 0. */
START_TEST(t_row)
{
	struct row row = rows[_i];
	pid_t pid[NR_PROCS_MAX];
	int i, status;

	job = ct_shared(sizeof(*job));
	job->nr_procs = row.nr_procs;
	job->nr_threads = row.nr_threads;
	job->nr_ids = row.nr_ids;
	for (i = 0; i < row.nr_procs; i++)
		pid[i] = ct_fork(process, i, &row);
	for (i = 0; i < row.nr_procs; i++)
		ck_assert_msg(!(status = ct_wait(pid[i])), "%s: process %d of %d: status %d",
			      row.name, i, row.nr_procs, status);
}
END_TEST

int main(void)
{
	return DF_TESTS("ctl processes", {t_row, DF_ARRAY_LEN(rows)});
}
