/*
 * A rank that cannot join the rendezvous announces that. Otherwise the others would wait for it
 * until its process ends. The rank may have no control plane, so it uses a connection of its own,
 * with no thread, lock or allocation. If the process has no file descriptor left, a child makes the
 * connection: it shares the memory but not the descriptors.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clean_text.h"
#include "runtime/base/time.h"
#include "runtime/ctl/greet.h"
#include "runtime/ctl/link.h"
#include "runtime/ctl/rdv.h"
#include "runtime/dfshim.h"

/* limit for the whole connection, however the other end spreads its bytes */
#define ANSWER_NS (5 * DF_NS_PER_S)
/* an id by address: rank 0 may not be listening yet */
#define RETRY_NS (10 * DF_NS_PER_S)

struct greeting {
	struct df_frame frame;
	struct df_greet body;
};

struct answer {
	struct df_frame frame;
	struct df_greet_answer body;
};

/* the bytes that are sent after the answer */
struct words {
	struct df_frame proof_frame;
	struct df_key proof;
	struct df_frame hello_frame;
	struct df_rdv_hello hello;
	struct df_frame checkin_frame;
	struct df_checkin checkin;
};

_Static_assert(sizeof(struct greeting) == sizeof(struct df_frame) + sizeof(struct df_greet) &&
		       sizeof(struct answer) ==
			       sizeof(struct df_frame) + sizeof(struct df_greet_answer) &&
		       sizeof(struct words) == 3 * sizeof(struct df_frame) + sizeof(struct df_key) +
						       sizeof(struct df_rdv_hello) +
						       sizeof(struct df_checkin),
	       "as it goes over the wire");

struct errand {
	const struct words *words;
	const struct df_id_tail *id;
	int ret;
};

static int wait_for(int fd, short events, uint64_t end)
{
	struct pollfd p = {.fd = fd, .events = events};
	uint64_t now;
	int ret;

	do {
		now = df_now_ns();
		ret = now < end ? poll(&p, 1, (int)((end - now) / DF_NS_PER_MS) + 1) : 0;
	} while (ret < 0 && errno == EINTR);
	return ret == 1 ? 0 : -ETIMEDOUT;
}

static int connect_to(int fd, const union df_sockaddr *addr, socklen_t len, uint64_t end)
{
	int error = 0;
	socklen_t bytes = sizeof(error);

	if (!connect(fd, &addr->sa, len))
		return 0;
	if (errno != EINPROGRESS)
		return -errno;
	if (wait_for(fd, POLLOUT, end))
		return -ETIMEDOUT;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) ? -errno : -error;
}

static struct df_frame frame_of(unsigned type, size_t bytes)
{
	return (struct df_frame){.magic = DF_FRAME_MAGIC,
				 .version = DF_CTL_VERSION,
				 .type = (uint16_t)type,
				 .bytes = (uint32_t)bytes,
				 .masked = (uint32_t)df_frame_masked(type, bytes, 0)};
}

static int send_all(int fd, const void *data, size_t bytes)
{
	/* The frame is smaller than any socket buffer. */
	return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes ? 0 : -ECONNRESET;
}

static int receive_all(int fd, void *data, size_t bytes, uint64_t end)
{
	char *to = data;
	ssize_t n;

	while (bytes) {
		if (wait_for(fd, POLLIN, end))
			return -ETIMEDOUT;
		n = recv(fd, to, bytes, 0);
		if (n <= 0)
			return -ECONNRESET;
		to += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Greets: both ends prove that they know the id's secret (greet.c). Then w can be sent. */
static int greet(int fd, struct words *w, const struct df_id_tail *id, uint64_t end)
{
	struct greeting g = {frame_of(DF_FRAME_GREET, sizeof(g.body)), {.name = id->nonce}};
	struct df_key proof, session;
	uint64_t at = 0;
	struct answer a;
	int ret;

	ret = df_key_make(&g.body.challenge);
	if (!ret)
		ret = send_all(fd, &g, sizeof(g));
	if (!ret)
		ret = receive_all(fd, &a, sizeof(a), end);
	if (ret)
		return ret;
	proof = df_auth_proof(&id->secret, DF_PROOF_ACCEPTS, &g.body, sizeof(g.body),
			      &a.body.challenge);
	if (a.frame.magic != DF_FRAME_MAGIC || a.frame.type != DF_FRAME_ANSWER ||
	    !df_key_equal(&proof, &a.body.proof))
		return -EPROTO;
	w->proof = df_auth_proof(&id->secret, DF_PROOF_CONNECTS, &g.body, sizeof(g.body),
				 &a.body.challenge);
	session = df_auth_proof(&id->secret, DF_PROOF_SESSION, &g.body, sizeof(g.body),
				&a.body.challenge);
	df_greet_mask(&session, &at, &w->checkin, w->checkin_frame.masked);
	return 0;
}

/*
 * Announces the failure at this address, and waits until it has been read: the other side answers
 * and hangs up.
 */
static int say_at(const struct words *words, const struct df_id_tail *id,
		  const union df_sockaddr *addr, socklen_t len)
{
	uint64_t end = df_now_ns() + ANSWER_NS;
	struct words w = *words;
	char answer[256];
	int fd, ret;

	fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	ret = connect_to(fd, addr, len, end);
	if (!ret)
		ret = greet(fd, &w, id, end);
	if (!ret)
		ret = send_all(fd, &w, sizeof(w));
	while (!ret) {
		ret = wait_for(fd, POLLIN, end);
		if (!ret && recv(fd, answer, sizeof(answer), 0) <= 0)
			break;
	}
	close(fd);
	return ret;
}

static int say(const struct words *words, const struct df_id_tail *id)
{
	union df_sockaddr addr;
	socklen_t len;
	int ret = -EADDRNOTAVAIL;

	/* The socket's name is random, so no process of another node has it. */
	if (id->sock) {
		len = df_addr_unix(id->sock, &addr);
		ret = say_at(words, id, &addr, len);
	}
	if (ret && id->flags & (DF_ID_HAS_TCP4 | DF_ID_HAS_TCP6)) {
		df_id_address(id, &addr);
		ret = say_at(words, id, &addr, df_addr_len(&addr));
	}
	return ret;
}

static int child(void *arg)
{
	struct errand *e = arg;
	int fd;

	if (syscall(SYS_close_range, 3u, ~0u, 0u))
		for (fd = 3; fd < 1024; fd++)
			close(fd);
	e->ret = say(e->words, e->id);
	return 0;
}

/* As say(), in a process with no open descriptors. */
static int say_in_child(const struct words *words, const struct df_id_tail *id)
{
	struct errand e = {.words = words, .id = id, .ret = -EMFILE};
	_Alignas(64) char stack[65536];
	pid_t pid;

	/*
	 * The caller sleeps until the child has ended, so the stack stays valid. The application
	 * gets no signal about the child.
	 */
	pid = clone(child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK, &e);
	if (pid < 0)
		return -errno;
	while (waitpid(pid, NULL, __WCLONE) < 0 && errno == EINTR)
		;
	return e.ret;
}

int df_id_decline(int nr_ids, const unsigned char (*ids)[DF_ID_BYTES], int nranks, int rank,
		  const char *why)
{
	uint64_t end = df_now_ns() + RETRY_NS;
	struct words w = {.hello.proc = df_addr_random()};
	struct df_member *m = &w.checkin.member;
	struct df_id_tail id;
	int ret;

	if (nr_ids < 1 || nr_ids > nranks || rank < 0 || rank >= nranks ||
	    df_id_open(ids[df_rdv_id_of_rank(rank, nranks, nr_ids)], &id))
		return -EINVAL;
	w.proof_frame = frame_of(DF_FRAME_PROOF, sizeof(w.proof));
	w.hello_frame = frame_of(DF_FRAME_RDV_HELLO, sizeof(w.hello));
	w.checkin_frame = frame_of(DF_FRAME_RDV_CHECKIN, sizeof(w.checkin));
	memcpy(w.checkin.id0, ids[0], sizeof(w.checkin.id0));
	w.checkin.nranks = nranks;
	w.checkin.nr_ids = nr_ids;
	w.checkin.part = m->proc = w.hello.proc;
	m->pid = (uint32_t)getpid();
	m->rank = rank;
	m->version = DF_CTL_WIRE_VERSION;
	m->unable = 1;
	gethostname(m->hostname, sizeof(m->hostname) - 1);
	df_text_clean(m->hostname, strlen(m->hostname));
	snprintf(w.checkin.unable, sizeof(w.checkin.unable), "%s", why);
	snprintf(w.checkin.bound, sizeof(w.checkin.bound), "it cannot take part in the decision");
	for (;;) {
		ret = say(&w, &id);
		if (ret == -EMFILE)
			ret = say_in_child(&w, &id);
		if (!ret || !(id.flags & DF_ID_BY_ADDR) || df_now_ns() > end)
			return ret;
		usleep(100000);
	}
}
