/*
 * A network plugin of NCCL over Unix sockets in the folder FAKE_PLUGIN_DIR. Without that variable
 * it can only be loaded, and aborts if a caller starts it. VERSION: the version of the interface.
 * NAME: the plugin's name. TRAP: its constructor does not return (1) or aborts (2).
 *
 * It does what a plugin may do, and aborts if its caller breaks a rule: a handle is moved while it
 * connects, several threads use one connection, memory is not registered for the connection, there
 * are too many requests, or an argument that a version needs is missing. A send waits until a
 * receive is posted. Only test() moves data.
 *
 * fake_orders.h lists its faults and variations. FAKE_PLUGIN_LOG: a file to which a line of figures
 * is appended at exit.
 *
 * Like real plugins it shuts down when exit() calls its destructors, and aborts if it is called
 * afterwards ("lingers": the shutdown takes a while). Data of a closed connection may be written
 * later ("haunts").
 */
#define _GNU_SOURCE
#include "fake_orders.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#ifdef TRAP
static void __attribute__((constructor)) trap(void)
{
	if (TRAP == 2)
		abort();
	for (;;)
		pause();
}
#endif

#ifdef VERSION
enum { SUCCESS, CUDA, SYSTEM, INTERNAL, ARGUMENT, USAGE, REMOTE };
enum { REQUESTS = 32, MRS = 8 };
#define MAGIC 0x66616b65706c7567ull

typedef void log_fn(int, unsigned long, const char *, int, const char *, ...);

static log_fn *log_to;
static volatile int has_ended;
static uint64_t sent_bytes, sent_messages, nr_connections, nr_lies;

static void __attribute__((noreturn)) broken(const char *what)
{
	fprintf(stderr, "fake plugin v%d: its caller breaks a rule: %s\n", VERSION, what);
	abort();
}
#define RULE(condition, what) ((condition) ? (void)0 : broken(what))

#define ALIVE RULE(!has_ended, "it is called, and exit() has ended it")

static void end(void)
{
	has_ended = 1;
	if (told("lingers"))
		usleep(300000);
}

static int complain(int result, const char *what)
{
	if (log_to)
		log_to(2, 0x10, __FILE__, __LINE__, "NET/Fake: %s", what);
	return result;
}

/* ---- objects --------------------------------------------------------------------------------- */

struct handle { /* at most 128 bytes; a connection's private copy, and its state */
	uint64_t magic;
	char path[88];
	void *where;
	uint32_t stage;
	int fd;
};

struct listener {
	int fd, calls;
	char path[88];
};

struct mr {
	struct comm *comm;
	char *at;
	size_t bytes;
};

struct request {
	struct comm *comm; /* NULL: this request is free */
	char *data;
	uint32_t bytes, head, off;
	int moved, late; /* moved: finished, but not yet reported */
	int seen;	 /* was considered by mix() and FAKE_PLUGIN_LOSE */
};

struct comm {
	uint64_t magic;
	int sends, fd, error;
	pid_t thread;
	uint32_t credits;  /* receives that the other side has posted */
	uint32_t owed;	   /* credits that have not been sent yet */
	uint64_t messages; /* number of messages, counted for FAKE_PLUGIN_LOSE */
	struct mr mr[MRS];
	/* Requests in order. Those from `first` on are not finished. */
	uint32_t first, next;
	struct request *order[REQUESTS];
	struct request all[REQUESTS];
};

static struct comm *check(void *p, int sends)
{
	struct comm *c = p;

	ALIVE;
	RULE(c && c->magic == MAGIC, "no connection, or one that is closed");
	RULE(sends < 0 || c->sends == sends, "the other kind of connection");
	RULE(c->thread == gettid(), "two threads for one connection");
	return c;
}

static struct comm *comm_new(int fd, int sends)
{
	struct comm *c = calloc(1, sizeof(*c));

	c->magic = MAGIC;
	c->fd = fd;
	c->sends = sends;
	c->thread = gettid();
	__atomic_add_fetch(&nr_connections, 1, __ATOMIC_RELAXED);
	return c;
}

static struct request *request_new(struct comm *c, void *data, size_t bytes, void *mh)
{
	const struct mr *m = mh;
	int i;

	if (told("null_mr"))
		RULE(!mh, "a registration that was not given");
	else
		RULE(m && m->comm == c && (char *)data >= m->at &&
			     (char *)data + bytes <= m->at + m->bytes,
		     "memory that is not registered with this connection");
	for (i = 0; i < REQUESTS; i++) {
		struct request *r = &c->all[i];

		if (r->comm)
			continue;
		*r = (struct request){.comm = c, .data = data, .bytes = (uint32_t)bytes};
		r->late = told("late") ? (int)(chance() % 8) : 0;
		c->order[c->next++ % REQUESTS] = r;
		return r;
	}
	broken("more than 32 requests");
}

/* ---- misbehaviour ---------------------------------------------------------------------------- */

/* Buffers of unfinished receives of closed connections: as many as three connections have. */
static char *ghosts[48];
static uint32_t nr_ghosts;

static void bury(struct comm *c)
{
	for (int i = 0; i < REQUESTS && !c->sends && told("haunts"); i++)
		if (c->all[i].comm)
			ghosts[__atomic_fetch_add(&nr_ghosts, 1, __ATOMIC_RELAXED) % 48] =
				c->all[i].data;
}

/* Writes into the first 4,096 bytes of such a buffer: most receives are that large. */
static void haunt(void)
{
	char *at = ghosts[chance() % 48];

	if (at)
		memset(at + chance() % 4000, 0x5a, 32);
}

/*
 * If another connection of this thread has sent a message of the same length and first bytes, sends
 * that message in place of r.
 */
static void mix(struct comm *c, struct request *r)
{
	static __thread struct {
		struct comm *comm;
		uint32_t bytes;
		char data[4096];
	} last[32], *m;
	static __thread uint64_t times, nr;
	int i, found = 0;

	if (!getenv("FAKE_PLUGIN_MIX") || r->bytes < 8 || r->bytes > sizeof(m->data))
		return;
	for (i = 0; i < 32 && !found; i++) {
		m = &last[i];
		found = m->comm && m->comm != c && m->bytes == r->bytes &&
			!memcmp(m->data, r->data, 8);
	}
	if (found && is_turn("FAKE_PLUGIN_MIX", &times)) {
		memcpy(r->data, m->data, r->bytes);
		__atomic_add_fetch(&nr_lies, 1, __ATOMIC_RELAXED);
		return;
	}
	m = &last[nr++ % 32];
	m->comm = c;
	m->bytes = r->bytes;
	memcpy(m->data, r->data, r->bytes);
}

/* ---- moving data ----------------------------------------------------------------------------- */

static int lost(struct comm *c, ssize_t n)
{
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	c->error = REMOTE;
	return 1;
}

static void take_credits(struct comm *c)
{
	char credit[64];
	ssize_t n = recv(c->fd, credit, sizeof(credit), MSG_DONTWAIT);

	if (n > 0)
		c->credits += (uint32_t)n;
	else
		lost(c, n);
}

static void give_credits(struct comm *c)
{
	static const char credit[REQUESTS];
	ssize_t n = c->owed ? send(c->fd, credit, c->owed, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;

	if (n > 0)
		c->owed -= (uint32_t)n;
	else if (c->owed)
		lost(c, n);
}

static void move_out(struct comm *c)
{
	const char *lose = getenv("FAKE_PLUGIN_LOSE");

	while (c->first != c->next && !c->error) {
		struct request *r = c->order[c->first % REQUESTS];
		struct iovec v[2];
		struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
		size_t head;
		ssize_t n;

		if (!r->seen) {
			r->seen = 1;
			mix(c, r);
			if (lose && c->messages++ >= strtoull(lose, NULL, 10)) {
				__atomic_add_fetch(&nr_lies, 1, __ATOMIC_RELAXED);
				r->moved = 1;
				c->first++;
				continue;
			}
		}
		v[0] = (struct iovec){(char *)&r->bytes + r->head, sizeof(r->bytes) - r->head};
		v[1] = (struct iovec){r->data + r->off, r->bytes - r->off};
		n = sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
		head = n > 0 && (size_t)n > v[0].iov_len ? v[0].iov_len : (size_t)n;

		if (n <= 0) {
			lost(c, n);
			return;
		}
		r->head += (uint32_t)head;
		r->off += (uint32_t)((size_t)n - head);
		if (r->off < r->bytes || r->head < sizeof(r->bytes))
			return;
		r->moved = 1;
		c->first++;
		__atomic_add_fetch(&sent_bytes, r->bytes, __ATOMIC_RELAXED);
		__atomic_add_fetch(&sent_messages, 1, __ATOMIC_RELAXED);
	}
}

static void move_in(struct comm *c)
{
	give_credits(c);
	while (c->first != c->next && !c->error && !told("deaf")) {
		struct request *r = c->order[c->first % REQUESTS];
		uint32_t capacity = r->bytes;
		ssize_t n;

		if (r->head < sizeof(uint32_t)) {
			/* The size of the message replaces the size of the receive. */
			uint32_t part = 0;

			n = recv(c->fd, &part, sizeof(part), MSG_DONTWAIT | MSG_PEEK);
			if (n != sizeof(part)) {
				if (n <= 0)
					lost(c, n);
				return;
			}
			recv(c->fd, &part, sizeof(part), MSG_DONTWAIT);
			if (part > capacity) {
				c->error =
					complain(INTERNAL, "a message is too long for its receive");
				return;
			}
			r->head = sizeof(uint32_t);
			r->bytes = part;
		}
		n = r->bytes == r->off
			    ? 0
			    : recv(c->fd, r->data + r->off, r->bytes - r->off, MSG_DONTWAIT);
		if (n <= 0 && r->bytes != r->off) {
			lost(c, n);
			return;
		}
		r->off += (uint32_t)n;
		if (r->off < r->bytes)
			return;
		r->moved = 1;
		c->first++;
	}
}

/* ---- the functions of the interface ---------------------------------------------------------- */

static int devices(int *n)
{
	ALIVE;
	if (told("devices"))
		return complain(SYSTEM, "cannot count its devices");
	*n = told("none") ? 0 : 2;
	return SUCCESS;
}

struct properties {
	char *name, *pci_path;
	uint64_t guid;
	int memory;
#if VERSION >= 8
	int global;
#endif
#if VERSION >= 9
	int force_flush;
#endif
	int mbps, port;
	float latency;
	int max_comms, max_receives, offload, offload_version;
#if VERSION >= 12
	int nr_parts, parts[8];
#elif VERSION >= 9
	int nr_parts, parts[4];
#endif
#if VERSION >= 9
	size_t max_bytes, max_coll_bytes;
#endif
#if VERSION >= 11
	int max_multi;
#endif
#if VERSION >= 12
	int16_t rail, plane;
#endif
};

static int get_properties(int dev, struct properties *p)
{
	static char *const names[] = {"fake0", "fake1"};
	static char paths[2][200];

	RULE(dev == 0 || dev == 1, "a device that is not there");
	memset(p, 0, sizeof(*p));
	p->name = names[dev];
	if (getenv("FAKE_PLUGIN_PCI")) {
		snprintf(paths[dev], sizeof(paths[dev]), "%s/%s", getenv("FAKE_PLUGIN_PCI"),
			 names[dev]);
		p->pci_path = paths[dev];
	}
	p->memory = told("gpu") ? 2 : 1;
	p->mbps = 10000;
	p->max_comms = 1024;
	p->max_receives = 1;
	p->offload = told("unpack");
#if VERSION >= 9
	p->nr_parts = 1;
	p->max_bytes = told("tiny") ? 0 : told("small") ? 4096 : 1u << 30;
#endif
	return SUCCESS;
}

static int do_listen(int dev, void *handle, void **out)
{
	static uint32_t made;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct listener *l;
	struct handle *h = handle;

	_Static_assert(sizeof(*h) <= 128, "a handle");
	ALIVE;
	RULE(dev == 0 || dev == 1, "a device that is not there");
	if (fails("listen"))
		return complain(SYSTEM, "cannot listen");
	l = calloc(1, sizeof(*l));
	snprintf(l->path, sizeof(l->path), "%s/%d.%u", getenv("FAKE_PLUGIN_DIR"), getpid(),
		 __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED));
	memcpy(at.sun_path, l->path, sizeof(l->path));
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0 || bind(l->fd, (void *)&at, sizeof(at)) || listen(l->fd, 1))
		return complain(SYSTEM, "cannot listen there");
	if (told("awaits") && made == 1)
		poll(&(struct pollfd){.fd = l->fd, .events = POLLIN}, 1, 20000);
	*h = (struct handle){.magic = MAGIC, .fd = -1};
	memcpy(h->path, l->path, sizeof(h->path));
	*out = l;
	return SUCCESS;
}

static int do_connect(int dev, void *handle, void **out, void **offload)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct handle *h = handle;
	char hello;
	ssize_t n;

	ALIVE;
	RULE(dev == 0 || dev == 1, "a device that is not there");
	RULE(h->magic == MAGIC, "a handle that is not as it was");
	RULE(offload && !*offload, "an offload that is asked for");
	RULE(!h->where || h->where == handle, "a handle that is moved");
	h->where = handle;
	*out = NULL;
	if (fails("connect") || told("refuse"))
		return complain(REMOTE, "cannot connect");
	if (told("nulls") && h->stage++ % 3 != 2)
		return SUCCESS;
	if (h->fd < 0) {
		h->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		memcpy(at.sun_path, h->path, sizeof(h->path));
		if (connect(h->fd, (void *)&at, sizeof(at)))
			return complain(REMOTE, "no process listens there");
	}
	n = recv(h->fd, &hello, 1, MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return SUCCESS;
	if (n != 1)
		return complain(REMOTE, "the connection has broken");
	*out = comm_new(h->fd, 1);
	h->magic = 0; /* a handle can be used once */
	return SUCCESS;
}

static int do_accept(void *listener, void **out, void **offload)
{
	struct listener *l = listener;
	int fd;

	ALIVE;
	RULE(offload && !*offload, "an offload that is asked for");
	*out = NULL;
	if (fails("accept"))
		return complain(SYSTEM, "cannot accept");
	if (told("nulls") && l->calls++ % 3 != 2)
		return SUCCESS;
	fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return errno == EAGAIN ? SUCCESS : SYSTEM;
	if (send(fd, "", 1, MSG_NOSIGNAL) != 1) {
		close(fd);
		return REMOTE;
	}
	*out = comm_new(fd, 0);
	return SUCCESS;
}

#if VERSION <= 7
static int reg_mr(void *comm, void *data, int bytes, int type, void **mh)
#else
static int reg_mr(void *comm, void *data, size_t bytes, int type, void **mh)
#endif
{
	struct comm *c = check(comm, -1);
	int i;

	RULE(type == 1 && bytes > 0, "memory that is not the host's");
	*mh = NULL;
	if (fails("regMr"))
		return complain(SYSTEM, "cannot register memory");
	if (told("null_mr"))
		return SUCCESS;
	for (i = 0; i < MRS; i++) {
		if (c->mr[i].comm)
			continue;
		c->mr[i] = (struct mr){c, data, (size_t)bytes};
		*mh = &c->mr[i];
		return SUCCESS;
	}
	broken("too many registrations");
}

static int dereg_mr(void *comm, void *mh)
{
	struct comm *c = check(comm, -1);
	struct mr *m = mh;

	RULE(m && m->comm == c, "a registration of another connection");
	m->comm = NULL;
	return SUCCESS;
}

static int do_send(void *comm, void *data, size_t bytes, int tag, void *mh, void **out)
{
	struct comm *c = check(comm, 1);

	(void)tag;
	RULE(!told("small") || VERSION < 9 || bytes <= 4096, "a message that is too long");
	*out = NULL;
	if (c->error || fails("isend"))
		return c->error = complain(SYSTEM, "cannot send");
	if (!c->credits)
		take_credits(c);
	if (!c->credits || (told("nulls") && chance() % 3 == 0))
		return SUCCESS;
	c->credits--;
	*out = request_new(c, data, bytes, mh);
	return SUCCESS;
}

static int do_receive(void *comm, int n, void *data, size_t bytes, void *mh, void **out)
{
	struct comm *c = check(comm, 0);

	RULE(n == 1, "more buffers than maxRecvs");
	RULE(VERSION < 9 || !*out, "a receive whose end the caller does not ask for");
	*out = NULL;
	if (c->error || fails("irecv"))
		return c->error = complain(SYSTEM, "cannot receive");
	if (told("nulls") && chance() % 3 == 0)
		return SUCCESS;
	*out = request_new(c, data, bytes, mh);
	c->owed++;
	give_credits(c);
	return SUCCESS;
}

static int test(void *request, int *done, int *size)
{
	static uint64_t receives;
	static const int lies[] = {-5, 1 << 30, 1, -1};
	struct request *r = request;
	struct comm *c;

	RULE(r && r->comm, "a request that is gone");
	c = check(r->comm, -1);
	*done = 0;
	haunt();
	if (c->sends)
		move_out(c);
	else
		move_in(c);
	if (fails("test"))
		c->error = SYSTEM;
	if (c->error)
		return complain(c->error, "the connection has broken");
	if (!r->moved || r->late-- > 0)
		return SUCCESS;
	*done = 1;
	*size = (int)r->bytes;
	if (!c->sends && is_turn("FAKE_PLUGIN_LIE", &receives))
		*size = lies[__atomic_fetch_add(&nr_lies, 1, __ATOMIC_RELAXED) % 4] + *size;
	r->comm = NULL;
	return SUCCESS;
}

static int close_comm(void *comm)
{
	struct comm *c = check(comm, -1);

	bury(c);
	close(c->fd);
	c->magic = 0;
	free(c);
	return SUCCESS;
}

static int close_listen(void *listener)
{
	struct listener *l = listener;

	ALIVE;
	close(l->fd);
	unlink(l->path);
	free(l);
	return SUCCESS;
}

static void __attribute__((destructor)) say(void)
{
	const char *file = getenv("FAKE_PLUGIN_LOG");
	FILE *f = file ? fopen(file, "a") : NULL;

	if (!f)
		return;
	fprintf(f, "v%d connections %lu messages %lu bytes %lu failures %lu lies %lu\n", VERSION,
		nr_connections, sent_messages, sent_bytes, nr_failed(), nr_lies);
	fclose(f);
}

/* ---- the table of functions ------------------------------------------------------------------ */

#if VERSION <= 9
#define INIT_ARGS    log_fn *fn
#define CONNECT_ARGS int dev, void *handle, void **out, void **offload
#define PRE_CONNECT
#elif VERSION == 10
#define INIT_ARGS    log_fn *fn, int (*prof)(void **, int, void *, int64_t, void *)
#define CONNECT_ARGS int dev, int *config, void *handle, void **out, void **offload
#define PRE_CONNECT  RULE(*config == -1, "no traffic class");
#else
#define INIT_ARGS                                                                                  \
	void **ctx, uint64_t comm, int *config, log_fn *fn,                                        \
		int (*prof)(void **, int, void *, int64_t, void *)
#define CONNECT_ARGS void *ctx, int dev, void *handle, void **out, void **offload
#define PRE_CONNECT  RULE(ctx == &context, "another context");
#endif
#if VERSION <= 10
#define LISTEN_ARGS int dev, void *handle, void **out
#define PRE_LISTEN
#else
static char context;
#define LISTEN_ARGS void *ctx, int dev, void *handle, void **out
#define PRE_LISTEN  RULE(ctx == &context, "another context");
#endif
#if VERSION <= 8
#define SEND_ARGS    void *comm, void *data, int bytes, int tag, void *mh, void **out
#define RECEIVE_ARGS void *comm, int n, void **data, int *bytes, int *tags, void **mhs, void **out
#define PRE_SEND     RULE(bytes > 0, "nothing to send");
#define PRE_RECEIVE
#elif VERSION == 9
#define SEND_ARGS void *comm, void *data, size_t bytes, int tag, void *mh, void **out
#define RECEIVE_ARGS                                                                               \
	void *comm, int n, void **data, size_t *bytes, int *tags, void **mhs, void **out
#define PRE_SEND
#define PRE_RECEIVE
#else
#define SEND_ARGS void *comm, void *data, size_t bytes, int tag, void *mh, void *event, void **out
#define RECEIVE_ARGS                                                                               \
	void *comm, int n, void **data, size_t *bytes, int *tags, void **mhs, void **events,       \
		void **out
#define PRE_SEND    RULE(!event, "an event that was not made");
#define PRE_RECEIVE RULE(!events || !events[0], "an event that was not made");
#endif

static int v_listen(LISTEN_ARGS)
{
	PRE_LISTEN
	return do_listen(dev, handle, out);
}

static int v_connect(CONNECT_ARGS)
{
	PRE_CONNECT
	return do_connect(dev, handle, out, offload);
}

static int v_send(SEND_ARGS)
{
	PRE_SEND
	return do_send(comm, data, (size_t)bytes, tag, mh, out);
}

static int v_receive(RECEIVE_ARGS)
{
	PRE_RECEIVE
	RULE(!tags[0], "a tag that no sender uses");
	return do_receive(comm, n, data[0], (size_t)bytes[0], mhs[0], out);
}

static int init(INIT_ARGS);

#define CAT_(a, b) a##b
#define CAT(a, b)  CAT_(a, b)

/* The table as the interface defines it; v9 and v11 add fields. */
struct net {
	const char *name;
	int (*init)(INIT_ARGS);
	int (*devices)(int *);
	int (*properties)(int, struct properties *);
	int (*listen)(LISTEN_ARGS);
	int (*connect)(CONNECT_ARGS);
	int (*accept)(void *, void **, void **);
	void *reg_mr, *reg_dmabuf;
	int (*dereg_mr)(void *, void *);
	int (*send)(SEND_ARGS);
	int (*receive)(RECEIVE_ARGS);
	void *flush;
	int (*test)(void *, int *, int *);
	int (*close_send)(void *), (*close_receive)(void *), (*close_listen)(void *);
	void *get_device_mr, *consumed;
#if VERSION >= 9
	void *make_device;
#endif
#if VERSION >= 11
	void *finalize, *set_attr;
#endif
} CAT(ncclNetPlugin_v, VERSION) = {.name = NAME, .init = init};

static int init(INIT_ARGS)
{
	if (!getenv("FAKE_PLUGIN_DIR"))
		abort(); /* a caller that only loads the plugin must not start it */
	if (told("hang"))
		for (;;)
			pause();
	if (told("stops")) {
		char path[128];
		FILE *f;

		snprintf(path, sizeof(path), "%s/stopped", getenv("FAKE_PLUGIN_DIR"));
		f = fopen(path, "w");
		fprintf(f, "%d\n", getpid());
		fclose(f);
		kill(getpid(), SIGSTOP);
		usleep(300000);
	}
	RULE(fn, "no logger");
	log_to = fn;
	atexit(end);
#if VERSION >= 10
	RULE(prof && !prof(NULL, 0, NULL, 0, NULL), "no profiler");
#endif
#if VERSION >= 11
	RULE(config && *config == -1 && comm, "no settings");
	*ctx = &context;
#endif
	if (told("init")) {
		complain(SYSTEM, "has no hardware");
		return complain(SYSTEM, "cannot start");
	}
	/* The table is filled only now: a caller that copied it before init() has no functions. */
	CAT(ncclNetPlugin_v, VERSION) = (struct net){
		.name = NAME,
		.init = init,
		.devices = devices,
		.properties = get_properties,
		.listen = v_listen,
		.connect = v_connect,
		.accept = do_accept,
		.reg_mr = (void *)reg_mr,
		.dereg_mr = dereg_mr,
		.send = told("missing") ? NULL : v_send,
		.receive = v_receive,
		.test = test,
		.close_send = close_comm,
		.close_receive = close_comm,
		.close_listen = close_listen,
	};
	return SUCCESS;
}
#endif
