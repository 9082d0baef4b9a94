/*
 * Executes scripts (script.h): a plain NCCL and CUDA runtime program, with nothing of dfshim in it. Ranks are
 * threads of one process, or with `procs` a process each; every rank has a device. Streams, events, graphs and
 * buffers are a rank's own. A file may hold many programs; they are executed one after the other.
 *
 * What is not a wait in the script is not one here: the end of the program polls the streams and the
 * communicators' asynchronous errors; `hw` and `hbar` are locks between processes. Those that are waits there are the real calls.
 *
 * On standard error: "=== NAME" before a program and "--- NAME completes|hung|wrong|error TEXT" after it.
 * Exit status: that of the worst program (0 completes, 1 wrong, 2 usage, 3 NCCL or CUDA error: what a hang
 * that was broken off looks like, 4 no progress).
 */
#define _GNU_SOURCE
#include "script_rank.h"

static void run(struct script *s)
{
	struct rank *ranks = calloc((size_t)s->nr_ranks, sizeof(*ranks));
	struct oracle o;
	static const char *const words[] = {"completes", "wrong", "error", "hung", "hung"};
	int i, nr_devices = 0;

	dprintf(2, "=== %s\n", s->name);
	client_status = 0;
	client_text[0] = 0;
	over = 0;
	memset(stands, 0, sizeof(stands));
	if (job.nr_procs == 1)
		memset(shared, 0, sizeof(*shared));
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
		pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
	}
	while (i-- > 0)
		pthread_join(ranks[i].thread, NULL);
	failed();
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
	FILE *f = NULL;
	int ret, opened = 0;

	if (argc > 2 && !strcmp(argv[1], "--timeout")) {
		timeout = atof(argv[2]);
		f = argc > 3 ? fopen(argv[3], "r") : NULL;
	} else if (argc > 1 && strcmp(argv[1], "--help")) {
		f = fopen(argv[1], "r");
	}
	if (!f) {
		fprintf(stderr, "usage: script [--timeout SECONDS] FILE\n");
		return EXIT_USAGE;
	}
	client_at_hang = say_stands;
	client_timeout(timeout);
	while ((ret = sc_read(f, &s)) > 0) {
		if (!*s.name)
			snprintf(s.name, sizeof(s.name), "program");
		if (s.event.nr + s.flag.nr + s.bar.nr > NR_WORDS || (opened && s.procs)) {
			fprintf(stderr, "%s: too large, or a process each in a file of many\n",
				s.name);
			return EXIT_USAGE;
		}
		if (s.procs || !opened) {
			if (client_job_open(&job, s.nr_ranks, s.procs ? s.nr_ranks : 0, argv)) {
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
