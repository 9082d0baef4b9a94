/*
 * Executes scripts (script.h): a plain NCCL and CUDA runtime program, with nothing of dfshim in it. Ranks are
 * threads of one process, or with `procs` a process each; every rank has a device. Streams, events, graphs and
 * buffers are a rank's own. A file may hold many programs; they are executed one after the other.
 *
 * What is not a wait in the script is not one here: the end of the program polls the streams and the
 * communicators' asynchronous errors; `hw` and `hbar` are locks between processes. Those that are waits there are the real calls.
 *
 * On standard error: "=== NAME" before a program and "--- NAME completes|hung|wrong|error|stands TEXT" after it.
 * Exit status: that of the worst program (0 completes, 1 wrong, 2 usage, 3 NCCL or CUDA error: what a hang
 * that was broken off looks like, 4 no progress). Without progress for --timeout the process ends; a program of which
 * it is certain that all its threads wait for one another is broken off after --still, and the next one follows.
 */
#define _GNU_SOURCE
#include "script_rank.h"

/* ---- standstill ----------------------------------------------------------------------------------------- */

static struct {
	pthread_mutex_t lock;
	const struct script *s; /* that runs */
	double limit;
} still = {.lock = PTHREAD_MUTEX_INITIALIZER};

/*
 * Every thread waits for a flag that is not set, or has ended in a rank that is through or has such a one: only a thread
 * that runs sets flags. None has been set while we looked, so all that we saw held at the same time.
 */
static int stands_still(const struct script *s)
{
	uint32_t turn = __atomic_load_n(&shared->turn, __ATOMIC_SEQ_CST);
	int all = 0;

	for (int r = 0; r < s->nr_ranks; r++) {
		int waiting = 0;

		for (int t = 0; t < s->nr_threads[r]; t++) {
			int flag = __atomic_load_n(&waits_for[r][t], __ATOMIC_SEQ_CST);

			if (flag && !__atomic_load_n(&shared->flags[flag - 1], __ATOMIC_SEQ_CST))
				waiting++;
			else if (__atomic_load_n(&stands[r][t], __ATOMIC_RELAXED) <
				 s->threads[r][t].nr)
				return 0;
		}
		if (!waiting && !__atomic_load_n(&through[r], __ATOMIC_SEQ_CST))
			return 0;
		all += waiting;
	}
	return all && turn == __atomic_load_n(&shared->turn, __ATOMIC_SEQ_CST);
}

/*
 * A program whose hosts wait for one another is broken off when that has been so for the limit: until then the library
 * may say what it makes of it.
 */
static void *watch_still(void *arg)
{
	struct timespec pause = {0, 20000000};
	double since = client_now();
	uint64_t seen = 0, now;

	(void)arg;
	for (;;) {
		nanosleep(&pause, NULL);
		pthread_mutex_lock(&still.lock);
		now = __atomic_load_n(&client_progress, __ATOMIC_RELAXED);
		if (now != seen || !still.s || client_failed() || !stands_still(still.s)) {
			seen = now;
			since = client_now();
		} else if (client_now() - since > still.limit) {
			client_fail(EXIT_HANG, "every thread waits for another, or has ended");
			host_wake();
		}
		pthread_mutex_unlock(&still.lock);
	}
	return NULL;
}

static void now_runs(const struct script *s)
{
	pthread_mutex_lock(&still.lock);
	if (s) {
		memset(stands, 0, sizeof(stands));
		memset(waits_for, 0, sizeof(waits_for));
		memset(through, 0, sizeof(through));
	}
	still.s = s;
	pthread_mutex_unlock(&still.lock);
}

/* Of all ranks of this process: what a process with several devices does. */
static int share_comms(struct rank *ranks)
{
	struct script *s = ranks->s;

	for (int i = 0; i < job.nr_local_ranks; i++)
		ranks[i].comms = calloc((size_t)s->comm.nr + 1, sizeof(*ranks[i].comms));
	for (int c = 0; c < s->comm.nr; c++) {
		NCCL(ncclGroupStart());
		for (int i = 0; i < job.nr_local_ranks; i++) {
			int rank = sc_comm_rank(&s->comms[c], ranks[i].rank);

			if (s->comms[c].late || rank < 0)
				continue;
			CUDA(cudaSetDevice(ranks[i].device));
			NCCL(ncclCommInitRank(&ranks[i].comms[c], s->comms[c].nr, ids[c], rank));
		}
		NCCL(ncclGroupEnd());
	}
	return 0;
}

static void run(struct script *s)
{
	struct rank *ranks = calloc((size_t)s->nr_ranks, sizeof(*ranks));
	struct oracle o;
	static const char *const words[] = {"completes", "wrong", "error", "hung", "stands"};
	int i, nr_devices = 0;

	dprintf(2, "=== %s\n", s->name);
	client_status = 0;
	client_text[0] = 0;
	over = 0;
	if (job.nr_procs == 1)
		memset(shared, 0, sizeof(*shared));
	now_runs(s);
	or_open(&o, s);
	if (cudaGetDeviceCount(&nr_devices) != cudaSuccess || !nr_devices)
		client_fail(EXIT_NCCL, "no CUDA device");
	ids = calloc((size_t)s->comm.nr + 1, sizeof(*ids));
	for (i = 0; i < s->comm.nr && !job.proc; i++)
		if (ncclGetUniqueId(&ids[i]) != ncclSuccess)
			client_fail(EXIT_NCCL, "ncclGetUniqueId: %s", ncclGetLastError(NULL));
	client_broadcast(&job, ids, (size_t)s->comm.nr * sizeof(*ids));
	for (i = 0; i < job.nr_local_ranks && !client_failed(); i++) {
		ranks[i].s = s;
		ranks[i].o = &o;
		ranks[i].rank = job.first_rank + i;
		ranks[i].device = ranks[i].rank % nr_devices;
	}
	if (s->shared && !client_failed())
		share_comms(ranks);
	for (i = 0; i < job.nr_local_ranks && !client_failed(); i++)
		pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
	while (i-- > 0)
		pthread_join(ranks[i].thread, NULL);
	for (i = 0; i < job.nr_local_ranks; i++)
		if (ranks[i].returned)
			teardown(&ranks[i]);
	failed();
	now_runs(NULL);
	or_close(&o);
	free(ids);
	free(ranks);
	if (client_status && job.nr_procs == 1)
		say_stands();
	dprintf(2, "--- %s %s %s\n", s->name, words[client_status > 4 ? 2 : client_status],
		client_text);
	if (client_status > max_status)
		max_status = client_status;
}

/* What hosts tell each other, between processes too. */
static void share(void)
{
	const char *port = getenv("MASTER_PORT");
	unsigned turns = 0;
	char path[64];
	int fd = -1;

	if (job.nr_procs > 1) {
		snprintf(path, sizeof(path), "/dev/shm/script.%d.%s", (int)getuid(),
			 port ? port : "0");
		if (!job.proc) {
			unlink(path);
			fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
			if (fd >= 0 && ftruncate(fd, sizeof(*shared)))
				fd = -1;
		}
		client_broadcast(&job, &max_status, sizeof(max_status));
		if (job.proc)
			fd = open(path, O_RDWR);
		if (fd < 0) {
			perror(path);
			exit(EXIT_NCCL);
		}
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, fd, 0);
	if (shared == MAP_FAILED) {
		perror("mmap");
		exit(EXIT_NCCL);
	}
	if (fd < 0)
		return;
	close(fd);
	__atomic_add_fetch(&shared->arrived[3], 1, __ATOMIC_ACQ_REL);
	while (!job.proc &&
	       __atomic_load_n(&shared->arrived[3], __ATOMIC_ACQUIRE) < (uint32_t)job.nr_procs)
		nap(&turns);
	if (!job.proc)
		unlink(path);
}

int main(int argc, char **argv)
{
	struct script s;
	double timeout = 20;
	pthread_t watch;
	int ret, opened = 0, i;
	FILE *f;

	for (i = 1; i + 2 < argc; i += 2) {
		if (!strcmp(argv[i], "--timeout"))
			timeout = atof(argv[i + 1]);
		else if (!strcmp(argv[i], "--still"))
			still.limit = atof(argv[i + 1]);
		else
			break;
	}
	f = i + 1 == argc && strcmp(argv[i], "--help") ? fopen(argv[i], "r") : NULL;
	if (!f) {
		fprintf(stderr, "usage: script [--timeout SECONDS] [--still SECONDS] FILE\n");
		return EXIT_USAGE;
	}
	client_at_hang = say_stands;
	client_timeout(timeout);
	if (still.limit > 0 && !pthread_create(&watch, NULL, watch_still, NULL))
		pthread_detach(watch);
	while ((ret = sc_read(f, &s)) > 0) {
		if (s.procs && still.limit > 0) {
			fprintf(stderr, "%s: --still knows the threads of one process\n", s.name);
			return EXIT_USAGE;
		}
		if (!*s.name)
			snprintf(s.name, sizeof(s.name), "program");
		if (s.event.nr + s.flag.nr + s.bar.nr > NR_WORDS || (opened && s.procs)) {
			fprintf(stderr, "%s: too large, or a process each in a file of many\n",
				s.name);
			return EXIT_USAGE;
		}
		if (s.procs || !opened) {
			if (client_job_open(&job, s.nr_ranks, s.procs < 0 ? s.nr_ranks : s.procs,
					    argv)) {
				fprintf(stderr, "script: %s\n", client_text);
				return EXIT_NCCL;
			}
			share();
		}
		opened = 1;
		job.nr_ranks = s.nr_ranks;
		job.nr_local_ranks = s.nr_ranks / job.nr_procs;
		job.first_rank = job.proc * job.nr_local_ranks;
		__atomic_store_n(&first_stands, job.first_rank, __ATOMIC_RELAXED);
		__atomic_store_n(&nr_stand, job.nr_local_ranks, __ATOMIC_RELAXED);
		run(&s);
		sc_free(&s);
	}
	fclose(f);
	if (ret < 0) {
		fprintf(stderr, "script: %s\n", s.error);
		return EXIT_USAGE;
	}
	return max_status;
}
