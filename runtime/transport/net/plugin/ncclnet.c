/* Calls a plugin's functions in the form that its version has; see ncclnet.h. */
#define _GNU_SOURCE
#include "runtime/transport/net/plugin/ncclnet.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/err.h"
#include "runtime/base/log.h"

/*
 * Indices into the table, after its name. v9 adds makeVDevice, v11 finalize and setNetAttr, which
 * are not called.
 */
enum function {
	INIT = 1,
	DEVICES,
	PROPERTIES,
	LISTEN,
	CONNECT,
	ACCEPT,
	REGISTER,
	REGISTER_DMABUF,
	DEREGISTER,
	SEND,
	RECEIVE,
	FLUSH,
	TEST,
	CLOSE_SEND,
	CLOSE_RECEIVE,
	CLOSE_LISTEN,
	FUNCTIONS
};

enum { LOG_WARN = 2, LOG_INFO = 3 };
enum { MEMORY_HOST = 1 };

typedef void logger_fn(int level, unsigned long flags, const char *file, int line, const char *fmt,
		       ...);
typedef int profiler_fn(void **event, int type, void *parent, int64_t plugin, void *ext);

struct config {
	int traffic_class;
};

/* The first fields of a device's properties, in all versions of the interface. */
#define PROPERTIES_BEGIN                                                                           \
	char *name, *pci_path;                                                                     \
	uint64_t guid;                                                                             \
	int memory
#define PROPERTIES_PORT                                                                            \
	int mbps, port;                                                                            \
	float latency;                                                                             \
	int max_comms, max_receives, offload, offload_version

struct properties_v7 {
	PROPERTIES_BEGIN;
	PROPERTIES_PORT;
};

struct properties_v8 {
	PROPERTIES_BEGIN;
	int global;
	PROPERTIES_PORT;
};

/* v11 adds a number at the end. */
struct properties_v9 {
	PROPERTIES_BEGIN;
	int global, force_flush;
	PROPERTIES_PORT;
	int nr_parts, parts[4];
	size_t max_bytes, max_coll_bytes;
	int max_multi;
};

struct properties_v12 {
	PROPERTIES_BEGIN;
	int global, force_flush;
	PROPERTIES_PORT;
	int nr_parts, parts[8];
	size_t max_bytes, max_coll_bytes;
	int max_multi;
	int16_t rail, plane;
};

static __thread char complaint[160];

/* ---- callbacks for the plugin ---------------------------------------------------------------- */

__attribute__((format(printf, 5, 6))) static void
logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[512];
	va_list args;

	if (level > LOG_INFO)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (level == LOG_WARN) {
		/* The first complaint is the reason; later ones are from its callers. */
		if (!complaint[0])
			snprintf(complaint, sizeof(complaint), "%.159s", text);
		df_nccl_warn(file ? file : "", line, "%s", text);
	} else {
		df_nccl_info((unsigned)flags, "%s", text);
	}
}

static int profiler(void **event, int type, void *parent, int64_t plugin, void *ext)
{
	(void)event, (void)type, (void)parent, (void)plugin, (void)ext;
	return DF_NCCLNET_OK;
}

const char *df_ncclnet_complaint(void)
{
	return complaint;
}

const char *df_ncclnet_result(int result)
{
	static const char *const names[] = {
		"success",	    "unhandled CUDA error", "system error", "internal error",
		"invalid argument", "invalid usage",	    "remote error", "in progress"};

	return result >= 0 && (size_t)result < DF_ARRAY_LEN(names) ? names[result]
								   : "unknown result";
}

/* ---- calls ----------------------------------------------------------------------------------- */

const char *df_ncclnet_missing(const struct df_ncclnet *n)
{
	static const struct {
		enum function i;
		const char *name;
	} needed[] = {{DEVICES, "devices"},	    {PROPERTIES, "getProperties"},
		      {LISTEN, "listen"},	    {CONNECT, "connect"},
		      {ACCEPT, "accept"},	    {REGISTER, "regMr"},
		      {DEREGISTER, "deregMr"},	    {SEND, "isend"},
		      {RECEIVE, "irecv"},	    {TEST, "test"},
		      {CLOSE_SEND, "closeSend"},    {CLOSE_RECEIVE, "closeRecv"},
		      {CLOSE_LISTEN, "closeListen"}};
	size_t i;

	for (i = 0; i < DF_ARRAY_LEN(needed); i++)
		if (!n->table[needed[i].i])
			return needed[i].name;
	return NULL;
}

/* A function of the table, with a type. */
#define FN(n, i, type) ((type)(n)->table[i])

int df_ncclnet_init(struct df_ncclnet *n)
{
	typedef int init_v7(logger_fn *);
	typedef int init_v10(logger_fn *, profiler_fn *);
	typedef int init_v11(void **ctx, uint64_t comm, struct config *, logger_fn *,
			     profiler_fn *);
	static struct config config = {-1};

	complaint[0] = '\0';
	if (!n->table[INIT])
		return 5;
	if (n->version <= 9)
		return FN(n, INIT, init_v7 *)(logger);
	if (n->version == 10)
		return FN(n, INIT, init_v10 *)(logger, profiler);
	/*
	 * One context for all communicators: it only selects a traffic class, which ours do not
	 * have.
	 */
	return FN(n, INIT, init_v11 *)(&n->ctx, (uint64_t)getpid(), &config, logger, profiler);
}

int df_ncclnet_devices(const struct df_ncclnet *n, int *nr)
{
	typedef int devices_fn(int *);

	complaint[0] = '\0';
	return FN(n, DEVICES, devices_fn *)(nr);
}

int df_ncclnet_properties(const struct df_ncclnet *n, int dev, struct df_ncclnet_device *out,
			  char *why, size_t size)
{
	typedef int properties_fn(int, void *);
	/* Newer versions may write more. */
	union {
		struct properties_v7 v7;
		struct properties_v8 v8;
		struct properties_v9 v9;
		struct properties_v12 v12;
		char room[512];
	} p;
	int ret, offload, receives;
	size_t most = (size_t)1 << 30; /* before v9, as NCCL assumes */

	*why = '\0';
	complaint[0] = '\0';
	memset(&p, 0, sizeof(p));
	ret = FN(n, PROPERTIES, properties_fn *)(dev, &p);
	if (ret)
		return ret;
	offload = n->version == 7 ? p.v7.offload : n->version == 8 ? p.v8.offload : p.v9.offload;
	receives = n->version == 7   ? p.v7.max_receives
		   : n->version == 8 ? p.v8.max_receives
				     : p.v9.max_receives;
	if (n->version >= 9)
		most = n->version >= 12 ? p.v12.max_bytes : p.v9.max_bytes;
	out->dev = dev;
	out->max_bytes = most;
	snprintf(out->name, sizeof(out->name), "%s", p.v7.name ? p.v7.name : "?");
	snprintf(out->pci, sizeof(out->pci), "%s", p.v7.pci_path ? p.v7.pci_path : "");
	if (!(p.v7.memory & MEMORY_HOST))
		snprintf(why, size, "%s does not accept host memory (ptrSupport %#x)", out->name,
			 (unsigned)p.v7.memory);
	else if (offload)
		snprintf(why, size, "%s needs code of its own on the GPU (netDeviceType %d)",
			 out->name, offload);
	else if (receives < 1)
		snprintf(why, size, "%s says that it can receive nothing (maxRecvs %d)", out->name,
			 receives);
	else if (most < 256)
		snprintf(why, size, "%s says that a message has %zu bytes at most (maxP2pBytes)",
			 out->name, most);
	return DF_NCCLNET_OK;
}

int df_ncclnet_listen(const struct df_ncclnet *n, int dev, void *handle, void **listener)
{
	typedef int listen_v7(int, void *, void **);
	typedef int listen_v11(void *, int, void *, void **);

	complaint[0] = '\0';
	if (n->version <= 10)
		return FN(n, LISTEN, listen_v7 *)(dev, handle, listener);
	return FN(n, LISTEN, listen_v11 *)(n->ctx, dev, handle, listener);
}

int df_ncclnet_connect(const struct df_ncclnet *n, int dev, void *handle, void **comm)
{
	typedef int connect_v7(int, void *, void **, void **);
	typedef int connect_v10(int, struct config *, void *, void **, void **);
	typedef int connect_v11(void *, int, void *, void **, void **);
	struct config config = {-1};
	void *offload = NULL; /* no offload is requested */

	complaint[0] = '\0';
	if (n->version <= 9)
		return FN(n, CONNECT, connect_v7 *)(dev, handle, comm, &offload);
	if (n->version == 10)
		return FN(n, CONNECT, connect_v10 *)(dev, &config, handle, comm, &offload);
	return FN(n, CONNECT, connect_v11 *)(n->ctx, dev, handle, comm, &offload);
}

int df_ncclnet_accept(const struct df_ncclnet *n, void *listener, void **comm)
{
	typedef int accept_fn(void *, void **, void **);
	void *offload = NULL;

	complaint[0] = '\0';
	return FN(n, ACCEPT, accept_fn *)(listener, comm, &offload);
}

int df_ncclnet_register(const struct df_ncclnet *n, void *comm, void *at, size_t bytes, void **mr)
{
	typedef int register_v7(void *, void *, int, int, void **);
	typedef int register_v8(void *, void *, size_t, int, void **);

	complaint[0] = '\0';
	if (n->version <= 7)
		return FN(n, REGISTER, register_v7 *)(comm, at, (int)bytes, MEMORY_HOST, mr);
	return FN(n, REGISTER, register_v8 *)(comm, at, bytes, MEMORY_HOST, mr);
}

int df_ncclnet_deregister(const struct df_ncclnet *n, void *comm, void *mr)
{
	typedef int deregister_fn(void *, void *);

	return FN(n, DEREGISTER, deregister_fn *)(comm, mr);
}

int df_ncclnet_send(const struct df_ncclnet *n, void *comm, void *at, size_t bytes, void *mr,
		    void **request)
{
	typedef int send_v7(void *, void *, int, int, void *, void **);
	typedef int send_v9(void *, void *, size_t, int, void *, void **);
	typedef int send_v10(void *, void *, size_t, int, void *, void *, void **);

	complaint[0] = '\0';
	*request = NULL;
	if (n->version <= 8)
		return FN(n, SEND, send_v7 *)(comm, at, (int)bytes, 0, mr, request);
	if (n->version == 9)
		return FN(n, SEND, send_v9 *)(comm, at, bytes, 0, mr, request);
	return FN(n, SEND, send_v10 *)(comm, at, bytes, 0, mr, NULL, request);
}

int df_ncclnet_receive(const struct df_ncclnet *n, void *comm, void *at, size_t bytes, void *mr,
		       void **request)
{
	typedef int receive_v7(void *, int, void **, int *, int *, void **, void **);
	typedef int receive_v9(void *, int, void **, size_t *, int *, void **, void **);
	typedef int receive_v10(void *, int, void **, size_t *, int *, void **, void **, void **);
	int small = (int)bytes, tag = 0;
	void *event = NULL;

	complaint[0] = '\0';
	/* From v9 on, a non-NULL value would mean that completion need not be reported. */
	*request = NULL;
	if (n->version <= 8)
		return FN(n, RECEIVE, receive_v7 *)(comm, 1, &at, &small, &tag, &mr, request);
	if (n->version == 9)
		return FN(n, RECEIVE, receive_v9 *)(comm, 1, &at, &bytes, &tag, &mr, request);
	return FN(n, RECEIVE, receive_v10 *)(comm, 1, &at, &bytes, &tag, &mr, &event, request);
}

int df_ncclnet_test(const struct df_ncclnet *n, void *request, int *done, int *bytes)
{
	typedef int test_fn(void *, int *, int *);

	complaint[0] = '\0';
	*done = 0;
	*bytes = -1;
	return FN(n, TEST, test_fn *)(request, done, bytes);
}

typedef int close_fn(void *);

int df_ncclnet_close_send(const struct df_ncclnet *n, void *comm)
{
	return FN(n, CLOSE_SEND, close_fn *)(comm);
}

int df_ncclnet_close_receive(const struct df_ncclnet *n, void *comm)
{
	return FN(n, CLOSE_RECEIVE, close_fn *)(comm);
}

int df_ncclnet_close_listen(const struct df_ncclnet *n, void *listener)
{
	return FN(n, CLOSE_LISTEN, close_fn *)(listener);
}
