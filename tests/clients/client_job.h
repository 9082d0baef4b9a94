/*
 * The processes of a client's job; included by client.h only. A job is threads of one process,
 * processes found in the environment (torchrun, mpirun), or copies that the program starts itself.
 * Process 0 has a small TCP store.
 */
#ifndef CLIENT_JOB_H
#define CLIENT_JOB_H

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

struct client_job {
	int nr_procs, proc; /* number of processes of the job; number of this one */
	int local_proc;	    /* number of this process on its machine */
	int nr_ranks;	    /* number of NCCL ranks of the job */
	int first_rank, nr_local_ranks;
	/* in process 0: a socket to each other process; else peers[0] is connected to process 0 */
	int *peers;
};

static inline int client_env_int(const char *a, const char *b, int fallback)
{
	const char *text = getenv(a);

	if (!text)
		text = b ? getenv(b) : NULL;
	return text ? atoi(text) : fallback;
}

static inline int client_send(int fd, const void *data, size_t len)
{
	const char *p = data;
	ssize_t n;

	while (len) {
		n = send(fd, p, len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static inline int client_recv(int fd, void *data, size_t len)
{
	char *p = data;
	ssize_t n;

	while (len) {
		n = recv(fd, p, len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static inline int client_listen(const char *port, int fd)
{
	struct sockaddr_in6 addr = {.sin6_family = AF_INET6};
	int one = 1, zero = 0;

	if (fd >= 0)
		return fd;
	fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
		addr.sin6_port = htons((uint16_t)atoi(port));
		if (!bind(fd, (struct sockaddr *)&addr, sizeof(addr)) && !listen(fd, 1024))
			return fd;
		close(fd);
	}
	client_fail(EXIT_NCCL, "can't listen on port %s: %s", port, strerror(errno));
	return -1;
}

static inline int client_connect(const char *host, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *a;
	struct timespec pause = {0, 20000000};
	double end = client_now() + 60;
	int fd, one = 1;

	if (getaddrinfo(host, port, &hints, &list)) {
		client_fail(EXIT_NCCL, "unknown host %s", host);
		return -1;
	}
	while (client_now() < end) {
		for (a = list; a; a = a->ai_next) {
			fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
			if (fd < 0)
				continue;
			if (!connect(fd, a->ai_addr, a->ai_addrlen)) {
				setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
				freeaddrinfo(list);
				return fd;
			}
			close(fd);
		}
		nanosleep(&pause, NULL);
	}
	freeaddrinfo(list);
	client_fail(EXIT_NCCL, "process 0 does not answer at %s:%s", host, port);
	return -1;
}

static inline int client_store_open(struct client_job *job)
{
	const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
	int fd, i, who;

	if (!host)
		host = "127.0.0.1";
	if (!port)
		port = "29500";
	job->peers = calloc((size_t)job->nr_procs, sizeof(*job->peers));
	if (job->proc) {
		job->peers[0] = client_connect(host, port);
		if (job->peers[0] < 0)
			return -1;
		return client_send(job->peers[0], &job->proc, sizeof(job->proc));
	}
	fd = client_listen(port, client_env_int("CLIENT_STORE_FD", NULL, -1));
	if (fd < 0)
		return -1;
	for (i = 1; i < job->nr_procs; i++) {
		struct pollfd p = {fd, POLLIN, 0};
		int peer;

		if (poll(&p, 1, 120000) != 1) {
			client_fail(EXIT_NCCL, "only %d of %d processes arrived", i, job->nr_procs);
			return -1;
		}
		peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		if (peer < 0 || client_recv(peer, &who, sizeof(who)) || who < 1 ||
		    who >= job->nr_procs || job->peers[who]) {
			close(peer);
			i--;
			continue;
		}
		job->peers[who] = peer;
	}
	close(fd);
	return 0;
}

/*
 * Copies the bytes from process 0 to all processes. Returns 0, or -1 after a failure, which it
 * reports.
 */
static inline int client_broadcast(struct client_job *job, void *data, size_t len)
{
	int i;

	if (job->nr_procs == 1)
		return 0;
	if (job->proc && client_recv(job->peers[0], data, len)) {
		client_fail(EXIT_NCCL, "process 0 is gone");
		return -1;
	}
	for (i = 1; !job->proc && i < job->nr_procs; i++)
		if (client_send(job->peers[i], data, len)) {
			client_fail(EXIT_NCCL, "process %d is gone", i);
			return -1;
		}
	return 0;
}

struct client_result {
	int status;
	uint64_t nr_wrong, nr_done;
	double seconds; /* the longest time of all processes */
	char text[512];
};

/* How long a failed process 0 waits for another process's result. */
#define CLIENT_REST_S 3

/*
 * Process 0 receives the results of all processes and returns 1. The others send theirs and return
 * 0. A failed process ends afterwards, so that others that wait for its ranks see that.
 */
static inline int client_collect(struct client_job *job, struct client_result *r)
{
	const struct timeval rest = {.tv_sec = CLIENT_REST_S};
	struct client_result other;
	int i;

	if (job->nr_procs == 1)
		return 1;
	if (job->proc) {
		client_send(job->peers[0], r, sizeof(*r));
		return 0;
	}
	for (i = 1; i < job->nr_procs; i++) {
		if (r->status)
			setsockopt(job->peers[i], SOL_SOCKET, SO_RCVTIMEO, &rest, sizeof(rest));
		if (client_recv(job->peers[i], &other, sizeof(other))) {
			memset(&other, 0, sizeof(other));
			other.status = EXIT_NCCL;
			snprintf(other.text, sizeof(other.text), "process %d is gone", i);
		}
		if (!r->status && other.status) {
			r->status = other.status;
			memcpy(r->text, other.text, sizeof(r->text));
		}
		r->nr_wrong += other.nr_wrong;
		r->nr_done += other.nr_done;
		if (other.seconds > r->seconds)
			r->seconds = other.seconds;
	}
	return 1;
}

/* Starts `nr` copies of this program with torchrun's variables. Returns the job's exit status. */
static inline int client_start_copies(int nr, char **argv)
{
	struct sockaddr_in6 addr;
	socklen_t len = sizeof(addr);
	pid_t pids[1024], pid;
	int fd, i, status, left, code = 0;
	double since = 0;
	char text[32];

	if (nr > (int)ARRAY_LEN(pids)) {
		fprintf(stderr, "at most %zu processes\n", ARRAY_LEN(pids));
		return EXIT_USAGE;
	}
	fd = client_listen("0", -1);
	if (fd < 0 || getsockname(fd, (struct sockaddr *)&addr, &len)) {
		fprintf(stderr, "%s\n", client_text);
		return EXIT_NCCL;
	}
	for (i = 0; i < nr; i++) {
		pids[i] = fork();
		if (pids[i] < 0) {
			perror("fork");
			nr = i;
			code = EXIT_NCCL;
			break;
		}
		if (pids[i])
			continue;
		snprintf(text, sizeof(text), "%d", i);
		setenv("RANK", text, 1);
		setenv("LOCAL_RANK", text, 1);
		snprintf(text, sizeof(text), "%d", nr);
		setenv("WORLD_SIZE", text, 1);
		setenv("LOCAL_WORLD_SIZE", text, 1);
		setenv("MASTER_ADDR", "127.0.0.1", 1);
		snprintf(text, sizeof(text), "%d", ntohs(addr.sin6_port));
		setenv("MASTER_PORT", text, 1);
		if (!i) {
			fd = dup(fd); /* dup() clears close-on-exec */
			snprintf(text, sizeof(text), "%d", fd);
			setenv("CLIENT_STORE_FD", text, 1);
		}
		execv("/proc/self/exe", argv);
		perror("/proc/self/exe");
		_exit(127);
	}
	close(fd);
	for (left = nr; left;) {
		client_tick(); /* the copies have watchdogs of their own */
		pid = waitpid(-1, &status, WNOHANG);
		if (pid > 0) {
			left--;
			for (i = 0; i < nr; i++)
				if (pids[i] == pid)
					pids[i] = 0;
			status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
			if (status && !code) {
				code = status;
				since = client_now();
			}
			continue;
		}
		if (pid < 0 && errno != EINTR)
			break;
		/* After a failure the others get 10 s to notice it; then they are killed. */
		for (i = 0; code && i < nr && client_now() - since > 10; i++)
			if (pids[i])
				kill(pids[i], SIGKILL);
		usleep(20000);
	}
	return code;
}

/*
 * Determines this process's place in the job. ranks: number of ranks of the whole job; 0: one for
 * each process. procs: number of processes that the user asked for; 0: as in the environment.
 * Returns 0 or -1. Exits if this process has only started the others.
 */
static inline int client_job_open(struct client_job *job, int ranks, int procs, char **argv)
{
	memset(job, 0, sizeof(*job));
	job->nr_procs = client_env_int("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", 0);
	job->proc = client_env_int("RANK", "OMPI_COMM_WORLD_RANK", 0);
	job->local_proc = client_env_int("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", job->proc);
	if (!job->nr_procs && procs > 1)
		exit(client_start_copies(procs, argv));
	if (job->nr_procs < 1)
		job->nr_procs = 1;
	if (!ranks)
		ranks = job->nr_procs;
	if (job->proc < 0 || job->proc >= job->nr_procs || ranks % job->nr_procs) {
		fprintf(stderr, "%s: %d ranks can't be divided among %d processes (this is %d)\n",
			program_invocation_short_name, ranks, job->nr_procs, job->proc);
		exit(EXIT_USAGE);
	}
	job->nr_ranks = ranks;
	job->nr_local_ranks = ranks / job->nr_procs;
	job->first_rank = job->proc * job->nr_local_ranks;
	if (job->nr_procs > 1)
		return client_store_open(job);
	return 0;
}

/* Returns the device of this process's i-th rank, or -1 if there is none, which it reports. */
static inline int client_device(const struct client_job *job, int i)
{
	int nr = 0;

	CUDA(cudaGetDeviceCount(&nr));
	if (!nr) {
		client_fail(EXIT_NCCL, "no CUDA device");
		return -1;
	}
	return (job->local_proc * job->nr_local_ranks + i) % nr;
}

#endif
