/*
 * The tests' libibverbs, loaded through NCCL_IBVERBS_LIB. It finds three devices: rocex with an
 * active Ethernet port and one that is down, ibx with an InfiniBand port that has a FLID, and badx,
 * which cannot be opened. Reliable queue pairs connect processes of this machine. A thread is the
 * hardware: it moves packets over Unix sockets, one for each queue pair, whose name is the queue
 * pair's number. It keeps the promises of reliable connections and no others: pieces of a write
 * arrive in any order and some twice, but all before the send that follows; completions appear when
 * the other side has acknowledged.
 *
 * The hardware reaches a GPU's memory (tests/cuda/driver) as a dma-buf, through a mapping of its
 * own. Writes there become visible when a later read by the same device arrives, as on a GPU that
 * does not order writes, or after BUS_MS at the latest. With FAKE_CUDA_GDR=ordered they are visible
 * at once. Built with -DNO_DMABUF it is a libibverbs before 1.12.
 *
 * Forbidden uses abort the process: states and masks in a wrong order, a full queue, an unknown key
 * of local memory, a queue pair destroyed before its events are acknowledged, more posts than there
 * is room for, a dma-buf that child programs inherit.
 *
 *   FAKE_VERBS=none          there is no device
 *              hang          opening a device does not return
 *              blackhole     packets are lost
 *              memlock       no memory can be registered
 *              strict        refuses relaxed ordering
 *              slow          opening a device takes 0.3 s
 *   FAKE_VERBS_RAILS=N       N further devices, railx0 to railx5, each with an active Ethernet port
 *                            (railx1: two)
 *   FAKE_VERBS_DOWN=railxI:N:M   after N sends of this device in the process its ports are down,
 *                            until all devices together have made M more sends
 *   FAKE_VERBS_UNTOLD=1      no event reports that ports are active again
 *   FAKE_VERBS_FATAL=railxI:N    after N sends the device has a fatal error
 *   FAKE_VERBS_MUTE=railxI   packets that the device sends do not arrive
 *   FAKE_VERBS_SLOW=railxI:N the device carries N MB/s
 *   FAKE_VERBS_HOLD=MS       queue pairs are held back at random, for MS ms each time
 *   FAKE_VERBS_SEEN=FILE     gets a line for each thing that a process asked for: relaxed ordering,
 *                            ECE, ports that write slices; at exit the number of bytes
 *   FAKE_VERBS_MEMLOCK=N     number of bytes that can be registered
 *   FAKE_VERBS_DMABUF=no     the kernel cannot register a dma-buf (full: it has no room for one)
 *   FAKE_VERBS_PEERMEM=1     the kernel registers a GPU's memory by its address
 *   FAKE_VERBS_READ=N        every N-th read fails
 *   FAKE_VERBS_FAULTS=N      after each N sends, the next fault: each completion status, of a send
 *                            or a receive, before or after it arrives; each asynchronous event; a
 *                            queue pair in error without an event; a pause; a device's fatal error
 *   FAKE_VERBS_LOG=FILE      gets the number of each injected fault, one line for each
 */
#define _GNU_SOURCE
#include "fake_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../cuda/driver/dmabuf.h"

/* `dfshim net` reads these fields without the header. */
_Static_assert(offsetof(struct ibv_port_attr, gid_tbl_len) == 12, "");
_Static_assert(offsetof(struct ibv_port_attr, active_width) == 43, "");
_Static_assert(offsetof(struct ibv_port_attr, link_layer) == 46, "");
_Static_assert(IBV_PORT_ACTIVE == 4 && IBV_LINK_LAYER_ETHERNET == 2 && IBV_MTU_4096 == 5, "");

enum { ROCE, IB, BAD, NR, RAILS = 6, CONTEXTS_MAX = 256 };
static const char *const names[NR + RAILS] = {"rocex",	"ibx",	  "badx",   "railx0", "railx1",
					      "railx2", "railx3", "railx4", "railx5"};
static struct ibv_device devices[NR + RAILS];
/*
 * For each device, in this process: the number of its sends, and the number of sends of all devices
 * after which its ports are active again (0: they are active). Protected by fake_lock.
 */
static struct {
	long sends, down_until;
} wires[NR + RAILS];
static long all_sends;
static struct context *contexts[CONTEXTS_MAX];

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

int fake_is_mode(const char *mode)
{
	const char *is = getenv("FAKE_VERBS");

	return is && !strcmp(is, mode);
}

long fake_number(const char *name)
{
	const char *text = getenv(name);

	return text ? atol(text) : 0;
}

uint64_t fake_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Writes the line to FAKE_VERBS_SEEN, once for each process, with or without fake_lock. */
void fake_seen(const char *text)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static char seen[16][64];
	const char *file = getenv("FAKE_VERBS_SEEN");
	FILE *f = file ? fopen(file, "ae") : NULL;
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; f && i < 16; i++) {
		if (!strcmp(seen[i], text))
			break;
		if (seen[i][0])
			continue;
		snprintf(seen[i], sizeof(seen[i]), "%s", text);
		fprintf(f, "%s\n", text);
		break;
	}
	pthread_mutex_unlock(&lock);
	if (f)
		fclose(f);
}

/* The caller holds fake_lock. */
uint32_t fake_dice(uint32_t below)
{
	static uint64_t state;

	if (!state)
		state = ((uint64_t)fake_number("SEED") + 1) * 0x9e3779b97f4a7c15u ^
			(uint64_t)getpid() << 32;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 33) % below;
}

/* ---- devices --------------------------------------------------------------------------------- */

struct ibv_device **ibv_get_device_list(int *nr)
{
	struct ibv_device **list = calloc(NR + RAILS + 1, sizeof(*list));
	int i;

	*nr = fake_is_mode("none") ? 0 : NR + (int)fake_number("FAKE_VERBS_RAILS");
	must(*nr <= NR + RAILS);
	for (i = 0; i < *nr; i++)
		list[i] = &devices[i];
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return names[device - devices];
}

static int poll_cq(struct ibv_cq *cq, int nr, struct ibv_wc *wc);
static int notify_cq(struct ibv_cq *cq, int solicited);

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct context *c;
	int i;

	while (fake_is_mode("hang"))
		pause();
	if (fake_is_mode("slow"))
		usleep(300000);
	errno = EACCES;
	if (device == &devices[BAD])
		return NULL;
	c = calloc(1, sizeof(*c));
	c->c.device = device;
	c->c.ops.poll_cq = poll_cq;
	c->c.ops.req_notify_cq = notify_cq;
	c->c.ops.post_send = fake_post_send;
	c->c.ops.post_recv = fake_post_recv;
	c->events.fd = c->c.async_fd = eventfd(0, EFD_CLOEXEC);
	pthread_mutex_lock(&fake_lock);
	for (i = 0; contexts[i]; i++)
		must(i < CONTEXTS_MAX - 1);
	contexts[i] = c;
	pthread_mutex_unlock(&fake_lock);
	return &c->c;
}

static int device_of(const struct ibv_context *context)
{
	return (int)(context->device - devices);
}

static int nr_ports(int device)
{
	return device == ROCE || device == NR + 1 ? 2 : 1;
}

static int is_down(int device)
{
	return wires[device].down_until != 0;
}

/* Reports an event of all ports of the device to each context of this process. */
static void tell_ports(int device, enum ibv_event_type type)
{
	int i, port;

	for (i = 0; i < CONTEXTS_MAX; i++)
		for (port = 1; contexts[i] && device_of(&contexts[i]->c) == device &&
			       port <= nr_ports(device);
		     port++)
			fake_tell_async(&contexts[i]->c,
					(struct ibv_async_event){.event_type = type,
								 .element.port_num = port});
}

/* Returns A and *second, B, of "DEVICE:A[:B]"; -1 if the setting is for another device. */
static long setting(const char *name, int device, long *second)
{
	const char *text = getenv(name);
	size_t len = strlen(names[device]);
	char *end;
	long first;

	if (!text || strncmp(text, names[device], len))
		return -1;
	first = text[len] ? strtol(text + len + 1, &end, 10) : 0;
	if (second)
		*second = text[len] && *end ? atol(end + 1) : 0;
	return first;
}

static uint64_t wrote[NR + RAILS];

uint64_t fake_wrote(struct ibv_context *context, int port, uint32_t bytes)
{
	int device = device_of(context);
	long most = setting("FAKE_VERBS_SLOW", device, NULL);
	char text[64];

	wrote[device] += bytes;
	snprintf(text, sizeof(text), "%s:%d writes", names[device], port);
	fake_seen(text);
	return most > 0 ? (uint64_t)bytes * 1000 / (uint64_t)most : 0;
}

__attribute__((destructor)) static void say_wrote(void)
{
	const char *file = getenv("FAKE_VERBS_SEEN");
	FILE *f = file ? fopen(file, "ae") : NULL;
	int i;

	for (i = 0; f && i < NR + RAILS; i++)
		if (wrote[i])
			fprintf(f, "%s wrote %llu bytes\n", names[i], (unsigned long long)wrote[i]);
	if (f)
		fclose(f);
}

int fake_wires_look(void)
{
	int device, down = 0;

	for (device = 0; device < NR + RAILS; device++) {
		if (is_down(device) && all_sends >= wires[device].down_until) {
			wires[device].down_until = 0;
			if (!getenv("FAKE_VERBS_UNTOLD"))
				tell_ports(device, IBV_EVENT_PORT_ACTIVE);
		}
		down |= is_down(device);
	}
	return down;
}

enum fake_wire fake_wire(struct ibv_context *context)
{
	int device = device_of(context);

	return is_down(device)				       ? FAKE_DOWN
	       : setting("FAKE_VERBS_MUTE", device, NULL) >= 0 ? FAKE_MUTE
							       : FAKE_GOOD;
}

enum fake_wire fake_send_counts(struct ibv_context *context)
{
	int device = device_of(context);
	long more, n = ++wires[device].sends;

	all_sends++;
	if (n == setting("FAKE_VERBS_DOWN", device, &more)) {
		wires[device].down_until = all_sends + more;
		tell_ports(device, IBV_EVENT_PORT_ERR);
		fake_seen("a port was down");
		return FAKE_DOWN;
	}
	if (n == setting("FAKE_VERBS_FATAL", device, NULL)) {
		tell_ports(device, IBV_EVENT_DEVICE_FATAL);
		fake_seen("a device has failed");
		return FAKE_DOWN;
	}
	return FAKE_GOOD;
}

int ibv_close_device(struct ibv_context *context)
{
	int i;

	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < CONTEXTS_MAX; i++)
		if (contexts[i] && &contexts[i]->c == context)
			contexts[i] = NULL;
	pthread_mutex_unlock(&fake_lock);
	close(context->async_fd);
	free(context);
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	int device = device_of(context), down = device == ROCE && port == 2;
	uint8_t *a = (void *)attr;

	if (port < 1 || port > nr_ports(device))
		return EINVAL;
	memset(a, 0, 48); /* not more: the exported function's structure ends there */
	pthread_mutex_lock(&fake_lock);
	down |= is_down(device);
	pthread_mutex_unlock(&fake_lock);
	memcpy(a, &(uint32_t){down ? 1 : 4}, 4);	     /* state: down or active */
	memcpy(a + 8, &(uint32_t){device == IB ? 5 : 3}, 4); /* MTU 4096 or 1024 */
	memcpy(a + 12, &(int32_t){device == IB ? 2 : 5}, 4);
	memcpy(a + 34, &(uint16_t){device == IB ? 77 : 0}, 2);
	a[43] = 2;			 /* width: four lanes */
	a[44] = device == IB ? 128 : 32; /* speed: NDR or EDR */
	a[46] = device == IB ? 1 : 2;
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	static const char *const roce[] = {"fe80::1", "::", "2001:db8::5", "::ffff:10.1.0.5",
					   "::ffff:10.2.0.5"};
	static const char *const ib[] = {"fe80::2", "fec0:0:9::2"};
	int device = device_of(context), is_roce = device != IB;
	char rail[32];

	if (index < 0 || index >= (is_roce ? 5 : 2))
		return EINVAL;
	snprintf(rail, sizeof(rail), "::ffff:10.1.%d.%d", 10 + device - NR, port);
	if (device >= NR && index == 3)
		return inet_pton(AF_INET6, rail, gid) == 1 ? 0 : EINVAL;
	return inet_pton(AF_INET6, is_roce ? roce[index] : ib[index], gid) == 1 ? 0 : EINVAL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static struct mr *mrs[MRS_MAX]; /* by key without its lowest byte */
static long registered;

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = context;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

static struct ibv_mr *add_mr(struct ibv_pd *pd, const struct mr *what)
{
	static uint32_t next;
	long most = fake_number("FAKE_VERBS_MEMLOCK");
	struct mr *m = NULL;
	uint32_t i;

	pthread_mutex_lock(&fake_lock);
	if (fake_is_mode("memlock") ||
	    (most && !what->gpu && registered + (long)what->mr.length > most)) {
		errno = ENOMEM;
		goto out;
	}
	do {
		i = ++next % MRS_MAX;
	} while (!i || mrs[i]);
	m = malloc(sizeof(*m));
	*m = *what;
	m->mr.context = pd->context;
	m->mr.pd = pd;
	m->mr.lkey = m->mr.rkey = i << 8 | (next / MRS_MAX & 0xff);
	mrs[i] = m;
	registered += what->gpu ? 0 : (long)what->mr.length;
out:
	pthread_mutex_unlock(&fake_lock);
	return m ? &m->mr : NULL;
}

/* Whether the memory is a GPU's: libdfhost.so gives its file this name. */
static int is_gpu(const void *at)
{
	FILE *f = getenv("FAKE_CUDA_GDR") ? fopen("/proc/self/maps", "re") : NULL;
	unsigned long from, to;
	char line[512];
	int is = 0;

	while (f && !is && fgets(line, sizeof(line), f))
		is = sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)at >= from &&
		     (uintptr_t)at < to && strstr(line, "dfshim-device");
	if (f)
		fclose(f);
	return is;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
	struct mr m = {.mr = {.addr = at, .length = bytes},
		       .map = at,
		       .access = access,
		       .gpu = is_gpu(at)};

	if (m.gpu && !getenv("FAKE_VERBS_PEERMEM")) {
		errno = EFAULT;
		return NULL;
	}
	if (m.gpu)
		fake_seen("GPU memory by address");
	return add_mr(pd, &m);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t bytes, uint64_t iova,
				unsigned int access)
{
	must(iova == (uintptr_t)at);
	if (access & IBV_ACCESS_RELAXED_ORDERING && fake_is_mode("strict")) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (access & IBV_ACCESS_RELAXED_ORDERING)
		fake_seen("relaxed ordering");
	return ibv_reg_mr(pd, at, bytes, (int)access);
}

#ifndef NO_DMABUF
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova,
				 int fd, int access)
{
	const char *how = getenv("FAKE_VERBS_DMABUF");
	struct mr m = {.mr = {.addr = (void *)(uintptr_t)iova, .length = bytes},
		       .access = access,
		       .gpu = 1};
	struct fake_dmabuf b;
	uint64_t pad;

	errno = EOPNOTSUPP;
	if ((how && !strcmp(how, "no")) ||
	    (access & IBV_ACCESS_RELAXED_ORDERING && fake_is_mode("strict")))
		return NULL;
	errno = EBADF;
	if (pread(fd, &b, sizeof(b), 0) != sizeof(b) || b.magic != FAKE_DMABUF_MAGIC)
		return NULL;
	must(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	errno = EINVAL;
	if (!bytes || offset + bytes > b.bytes || (offset ^ iova) & 4095)
		return NULL;
	errno = ENOMEM;
	if (how && !strcmp(how, "full"))
		return NULL;
	pad = (b.offset + offset) & 4095;
	m.map_bytes = bytes + pad;
	m.map = mmap(NULL, m.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
		     (int)b.fd, (off_t)(b.offset + offset - pad));
	must(m.map != MAP_FAILED);
	m.map += pad;
	fake_seen("dma-buf");
	return add_mr(pd, &m);
}
#endif

/* Writes to a GPU's memory that are not visible yet, in order. */
static struct late {
	struct late *next;
	uint64_t due; /* moment at which they become visible, in ns */
	int device;
	const struct mr *mr;
	uint8_t *to;
	uint32_t bytes;
	uint8_t payload[];
} * late, **last = &late;

/* Makes the device's writes visible; drops those to the memory `gone` if it is not NULL. */
static void settle(int device, const struct mr *gone)
{
	struct late **at = &late, *l;

	while ((l = *at)) {
		if (gone ? l->mr != gone : l->device != device) {
			at = &l->next;
			continue;
		}
		if (!gone)
			memcpy(l->to, l->payload, l->bytes);
		*at = l->next;
		free(l);
	}
	last = at;
}

void fake_settle(struct ibv_context *context)
{
	settle(device_of(context), NULL);
}

int fake_bus_looks(void)
{
	struct late *l;

	while (late && late->due <= fake_now_ns()) {
		l = late;
		memcpy(l->to, l->payload, l->bytes);
		late = l->next;
		free(l);
	}
	if (!late)
		last = &late;
	return late != NULL;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct mr *m = (struct mr *)mr;

	pthread_mutex_lock(&fake_lock);
	must(mrs[mr->lkey >> 8] == m);
	mrs[mr->lkey >> 8] = NULL;
	registered -= m->gpu ? 0 : (long)mr->length;
	settle(-1, m);
	pthread_mutex_unlock(&fake_lock);
	if (m->map_bytes)
		munmap((void *)((uintptr_t)m->map & ~(uintptr_t)4095), m->map_bytes);
	free(m);
	return 0;
}

static struct mr *opens(uint32_t key, uint64_t at, uint64_t bytes, int access)
{
	struct mr *m = key >> 8 < MRS_MAX ? mrs[key >> 8] : NULL;
	uint64_t from = m ? (uintptr_t)m->mr.addr : 0;

	return m && m->mr.lkey == key && at >= from && at + bytes <= from + m->mr.length &&
			       (m->access & access) == access
		       ? m
		       : NULL;
}

uint8_t *fake_memory(uint32_t key, uint64_t at, uint64_t bytes, int access)
{
	const struct mr *m = opens(key, at, bytes, access);

	return m ? m->map + (at - (uintptr_t)m->mr.addr) : NULL;
}

int fake_lands(struct ibv_context *context, uint32_t key, uint64_t at, const void *from,
	       uint32_t bytes)
{
	const struct mr *m = opens(key, at, bytes, IBV_ACCESS_REMOTE_WRITE);
	const char *gdr = getenv("FAKE_CUDA_GDR");
	struct late *l;

	if (!m)
		return -1;
	if (!m->gpu || (gdr && !strcmp(gdr, "ordered"))) {
		memcpy(m->map + (at - (uintptr_t)m->mr.addr), from, bytes);
		return 0;
	}
	l = malloc(sizeof(*l) + bytes);
	*l = (struct late){.device = device_of(context),
			   .due = fake_now_ns() + fake_dice(BUS_MS * 1000) * 1000ull,
			   .mr = m,
			   .to = m->map + (at - (uintptr_t)m->mr.addr),
			   .bytes = bytes};
	memcpy(l->payload, from, bytes);
	*last = l;
	last = &l->next;
	return 0;
}

/* ---- events and completions ------------------------------------------------------------------ */

void fake_wake(int fd)
{
	must(eventfd_write(fd, 1) == 0);
}

void fake_tell_async(struct ibv_context *context, struct ibv_async_event e)
{
	struct events *v = &((struct context *)context)->events;

	must(v->tail - v->head < QUEUE_MAX);
	v->async[v->tail++ % QUEUE_MAX] = e;
	fake_wake(v->fd);
}

/* Returns 0 if there is an event, -1 if a non-blocking descriptor has none. Takes fake_lock. */
static int next_event(struct events *v)
{
	eventfd_t count;

	for (;;) {
		pthread_mutex_lock(&fake_lock);
		if (v->head != v->tail)
			return 0;
		pthread_mutex_unlock(&fake_lock);
		if (eventfd_read(v->fd, &count)) {
			pthread_mutex_lock(&fake_lock);
			return -1;
		}
	}
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *e)
{
	struct events *v = &((struct context *)context)->events;
	int ret = next_event(v);

	if (!ret)
		*e = v->async[v->head++ % QUEUE_MAX];
	pthread_mutex_unlock(&fake_lock);
	return ret;
}

int fake_names_qp(enum ibv_event_type type)
{
	return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
	       type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_COMM_EST ||
	       type == IBV_EVENT_SQ_DRAINED || type == IBV_EVENT_PATH_MIG ||
	       type == IBV_EVENT_PATH_MIG_ERR || type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

void ibv_ack_async_event(struct ibv_async_event *e)
{
	pthread_mutex_lock(&fake_lock);
	if (fake_names_qp(e->event_type))
		((struct qp *)e->element.qp)->unacked--;
	pthread_mutex_unlock(&fake_lock);
}

const char *ibv_event_type_str(enum ibv_event_type type)
{
	static _Thread_local char text[32];

	snprintf(text, sizeof(text), "event %d", (int)type);
	return text;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static _Thread_local char text[32];

	snprintf(text, sizeof(text), "status %d", (int)status);
	return text;
}

struct channel {
	struct ibv_comp_channel c; /* must be first */
	struct events events;
};

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *c = calloc(1, sizeof(*c));

	c->c.context = context;
	c->events.fd = c->c.fd = eventfd(0, EFD_CLOEXEC);
	return &c->c;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	close(channel->fd);
	free(channel);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	struct cq *q = calloc(1, sizeof(*q));

	(void)vector;
	must(cqe > 0 && cqe <= WRS_MAX * 3);
	q->cq.context = context;
	q->cq.channel = channel;
	q->cq.cq_context = cq_context;
	q->cq.cqe = cqe;
	return &q->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct events *v = &((struct channel *)cq->channel)->events;
	uint32_t i, to;

	pthread_mutex_lock(&fake_lock);
	for (i = 0; i < QPS_MAX; i++)
		must(!fake_qps[i] ||
		     (fake_qps[i]->qp.send_cq != cq && fake_qps[i]->qp.recv_cq != cq));
	for (i = to = v->head; i != v->tail; i++)
		if (v->cq[i % QUEUE_MAX] != cq)
			v->cq[to++ % QUEUE_MAX] = v->cq[i % QUEUE_MAX];
	v->tail = to;
	pthread_mutex_unlock(&fake_lock);
	free(cq);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	struct events *v = &((struct channel *)channel)->events;
	int ret = next_event(v);

	if (!ret) {
		*cq = v->cq[v->head++ % QUEUE_MAX];
		*context = (*cq)->cq_context;
	}
	pthread_mutex_unlock(&fake_lock);
	return ret;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nr)
{
	(void)cq, (void)nr;
}

/* Callers of the functions from here on, except those of the library, hold fake_lock. */
void fake_complete(struct ibv_cq *to, struct qp *qp, uint64_t id, enum ibv_wc_status status,
		   enum ibv_wc_opcode opcode, uint32_t bytes)
{
	struct cq *q = (struct cq *)to;
	struct ibv_wc wc = {.wr_id = id, .status = status, .qp_num = qp->qp.qp_num};

	must(q->tail - q->head < (uint32_t)q->cq.cqe);
	if (status == IBV_WC_SUCCESS) {
		wc.opcode = opcode;
		wc.byte_len = bytes;
	} else {
		/* The other fields of a failed completion are undefined. */
		wc.opcode = (enum ibv_wc_opcode)fake_dice(200);
		wc.byte_len = fake_dice(100000);
		wc.vendor_err = 129;
	}
	q->wc[q->tail++ % (WRS_MAX * 3)] = wc;
	if (q->armed) {
		struct events *v = &((struct channel *)q->cq.channel)->events;

		q->armed = 0;
		must(v->tail - v->head < QUEUE_MAX);
		v->cq[v->tail++ % QUEUE_MAX] = to;
		fake_wake(v->fd);
	}
}

static int poll_cq(struct ibv_cq *cq, int nr, struct ibv_wc *wc)
{
	struct cq *q = (struct cq *)cq;
	int n = 0;

	pthread_mutex_lock(&fake_lock);
	/* A reader sees all writes that are due, even if the hardware's thread is late. */
	fake_bus_looks();
	while (n < nr && q->head != q->tail)
		wc[n++] = q->wc[q->head++ % (WRS_MAX * 3)];
	pthread_mutex_unlock(&fake_lock);
	return n;
}

static int notify_cq(struct ibv_cq *cq, int solicited)
{
	(void)solicited;
	pthread_mutex_lock(&fake_lock);
	((struct cq *)cq)->armed = 1;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}
