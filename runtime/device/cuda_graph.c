/*
 * Collectives in CUDA graphs. A captured collective is three nodes on its stream: a host function that counts
 * the node's arrival, a wait for the node's gate word, and a write that closes the gate again. The host
 * function neither blocks nor calls CUDA. At cuGraphLaunch one instance of every such node is submitted, in the
 * order of capture; it becomes ready with the arrival, and the poller opens the gate when it is done.
 *
 * Which nodes a graph has is read from the graph when it is instantiated (children too), so clones and
 * updates need no book-keeping. Two executable graphs that hold the same node and run at the same time have
 * the same buffers, so such a program races with itself already.
 *
 * In mode trace nothing of the graph may wait for us, and nothing stands between the application's nodes: all that is
 * captured into one graph is a list beside it, in a single host function that depends on nothing, on which nothing
 * depends, and which does nothing. It is there to be found when the graph, or a copy of it, is read.
 *
 * One lock for all; it is not held across the driver or the runtime.
 */
#if __has_include(<cuda.h>)
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/device/cuda_int.h"

#define MAX_DEPTH 8

/* In pinned memory: the device reads and writes the gate. */
struct words {
	uint64_t gate; /* 1: the collective is done, the graph goes on */
	uint64_t pad[7];
	uint64_t arrived; /* replays whose predecessors are done */
};

struct turn {
	const uint64_t *done;
	uint64_t value;
};

/* What is only noted, of one graph. */
struct note {
	const struct df_capture_ops *ops;
	void *arg;
};

struct node {
	struct words *w; /* NULL: it only notes */
	struct df_capture_ops ops;
	void *arg;
	struct note *notes;
	size_t nr_notes;
	cuuint64_t capture;
	uint64_t serial;    /* of the capture */
	uint64_t launched;  /* replays */
	struct turn *turns; /* those whose gate has not been opened */
	uint32_t first, nr, cap;
	int busy;	   /* there are such */
	int refs;	   /* executable graphs, replays, and the driver's user object */
	struct node *next; /* of the busy ones, or of those that note */
};

struct exec {
	void *handle;
	UT_hash_handle hh;
	struct node **nodes;
	size_t nr;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct exec *execs;
static struct node *busy, *noting;
static uint64_t serials;

static void node_put(struct node *n)
{
	struct node **p;
	size_t i;
	int last;

	pthread_mutex_lock(&lock);
	last = --n->refs == 0;
	for (p = &noting; last && !n->w && *p; p = &(*p)->next)
		if (*p == n) {
			*p = n->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	if (!last)
		return;
	for (i = 0; i < n->nr_notes; i++)
		n->notes[i].ops->destroy(n->notes[i].arg);
	free(n->notes);
	if (n->ops.destroy)
		n->ops.destroy(n->arg);
	if (n->w)
		df_cuda_pinned_free(n->w);
	free(n->turns);
	free(n);
}

/* On a thread of the driver: no CUDA call, no wait. */
static void CUDA_CB arrive(void *arg)
{
	struct node *n = arg;

	if (!n->w)
		return;
	/* RELEASE pairs with the daemon's ACQUIRE of the ready word: what the graph did before is seen. */
	__atomic_add_fetch(&n->w->arrived, 1, __ATOMIC_RELEASE);
}

static void CUDA_CB object_gone(void *arg)
{
	node_put(arg);
}

/* The graph has a reference until it, and all that was made of it, is gone. */
static CUresult retain(CUgraph graph, struct node *n)
{
	CUuserObject object;
	CUresult r =
		df_drv.user_object(&object, n, object_gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);

	if (r != CUDA_SUCCESS)
		return r;
	return df_drv.graph_retain(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
}

static int note_add(struct node *n, const struct df_capture_ops *ops, void *arg)
{
	struct note *v = realloc(n->notes, (n->nr_notes + 1) * sizeof(*v));

	if (!v)
		return -ENOMEM;
	n->notes = v;
	v[n->nr_notes++] = (struct note){ops, arg};
	return 0;
}

static int capture_note(CUgraph graph, cuuint64_t capture, const struct df_capture_ops *ops,
			void *arg)
{
	CUDA_HOST_NODE_PARAMS params = {.fn = arrive};
	struct node *n;
	CUgraphNode made;
	CUresult r;
	int ret = -ENOENT;

	pthread_mutex_lock(&lock);
	for (n = noting; n && n->capture != capture; n = n->next)
		;
	if (n)
		ret = note_add(n, ops, arg);
	pthread_mutex_unlock(&lock);
	if (ret != -ENOENT)
		return ret;
	n = calloc(1, sizeof(*n));
	if (!n || note_add(n, ops, arg)) {
		free(n);
		return -ENOMEM;
	}
	n->refs = 1;
	n->capture = capture;
	n->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
	r = retain(graph, n);
	if (r != CUDA_SUCCESS) {
		free(n->notes);
		free(n);
		return df_drv_errno(r);
	}
	pthread_mutex_lock(&lock);
	n->next = noting;
	noting = n;
	pthread_mutex_unlock(&lock);
	params.userData = n;
	/* Without the node the graph goes unrecorded, and the note ends with it. */
	r = df_drv.node_add_host(&made, graph, NULL, 0, &params);
	if (r != CUDA_SUCCESS)
		df_warn_once("a CUDA graph took no node that says what is in it: its operations "
			     "are not recorded");
	return 0;
}

int df_cuda_capture_node(struct df_hstream *s, const struct df_capture_ops *ops, void *arg)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUdeviceptr gate;
	CUgraph graph = NULL;
	struct node *n;
	cuuint64_t id;
	size_t nr;
	CUresult r;

	if (df_drv.stream_capture_info(s->handle, &status, &id, &graph, NULL, &nr) !=
		    CUDA_SUCCESS ||
	    status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return -EINVAL;
	if (df_cuda_recording)
		return capture_note(graph, id, ops, arg);
	n = calloc(1, sizeof(*n));
	if (!n)
		return -ENOMEM;
	n->w = df_cuda_pinned(sizeof(*n->w));
	if (!n->w) {
		free(n);
		return -ENOMEM;
	}
	n->ops = *ops;
	n->arg = arg;
	n->refs = 1;
	n->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
	gate = (CUdeviceptr)(uintptr_t)&n->w->gate;
	/* The last reference may end in the destructor, so the user object comes first. */
	r = retain(graph, n);
	if (r != CUDA_SUCCESS) {
		df_cuda_pinned_free(n->w);
		free(n);
		return df_drv_errno(r);
	}
	r = df_drv.host_func(s->handle, arrive, n);
	if (r == CUDA_SUCCESS)
		r = df_drv.stream_wait64(s->handle, gate, 1, CU_STREAM_WAIT_VALUE_GEQ);
	if (r == CUDA_SUCCESS)
		r = df_drv.stream_write64(s->handle, gate, 0, CU_STREAM_WRITE_VALUE_DEFAULT);
	return df_drv_errno(r);
}

/* ---- which nodes a graph has ------------------------------------------------------------------------------------- */

/* A node of a graph, as far as it matters: a collective, or a child with such. */
struct item {
	CUgraphNode node;
	struct node *ours;
	struct exec sub;
	uint64_t serial; /* of the first collective in it; 0: none */
	size_t before;	 /* nodes that come first and have not been passed */
	size_t next;	 /* its first edge */
};

struct edge {
	size_t from, to;
};

static int exec_add(struct exec *e, struct node *const *nodes, size_t nr)
{
	struct node **v = realloc(e->nodes, (e->nr + nr + 1) * sizeof(struct node *));

	if (!v)
		return -ENOMEM;
	e->nodes = v;
	memcpy(v + e->nr, nodes, nr * sizeof(struct node *));
	e->nr += nr;
	return 0;
}

static int by_node(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	return (uintptr_t)x->node < (uintptr_t)y->node ? -1
						       : (uintptr_t)x->node > (uintptr_t)y->node;
}

static int by_from(const void *a, const void *b)
{
	const struct edge *x = a, *y = b;

	return x->from < y->from ? -1 : x->from > y->from;
}

static size_t index_of(const struct item *items, size_t nr, CUgraphNode node)
{
	struct item key = {.node = node}, *it = bsearch(&key, items, nr, sizeof(key), by_node);

	return it ? (size_t)(it - items) : nr;
}

/* The edges of a graph, by where they begin. items are sorted by their nodes. */
static int read_edges(CUgraph graph, struct item *items, size_t nr, struct edge **out,
		      size_t *out_nr)
{
	CUgraphNode *ends;
	struct edge *v;
	size_t n = 0, i;
	int ret = -EIO;

	if (df_drv_graph_edges(graph, NULL, NULL, &n))
		return -EIO;
	ends = calloc(2 * n + 1, sizeof(*ends));
	v = calloc(n + 1, sizeof(*v));
	if (!ends || !v)
		ret = -ENOMEM;
	else if (!df_drv_graph_edges(graph, ends, ends + n, &n))
		ret = 0;
	for (i = 0; i < n && !ret; i++) {
		v[i].from = index_of(items, nr, ends[i]);
		v[i].to = index_of(items, nr, ends[n + i]);
		if (v[i].from == nr || v[i].to == nr)
			ret = -EIO;
		else
			items[v[i].to].before++;
	}
	free(ends);
	if (ret) {
		free(v);
		return ret;
	}
	qsort(v, n, sizeof(*v), by_from);
	for (i = n; i-- > 0;)
		items[v[i].from].next = i;
	*out = v;
	*out_nr = n;
	return 0;
}

/*
 * The collectives of a graph in an order in which it may come to them: what comes after another in the graph is issued
 * after it, and of those that do not wait for one another the one that was captured first. Ranks that captured the same
 * have the same order.
 */
static int in_order(CUgraph graph, struct item *items, size_t nr, struct exec *e)
{
	struct edge *edges = NULL;
	size_t *ready = NULL, nr_edges = 0, n = 0, i, k;
	int ret;

	qsort(items, nr, sizeof(*items), by_node);
	for (i = 0; i < nr; i++)
		items[i].next = SIZE_MAX;
	ret = read_edges(graph, items, nr, &edges, &nr_edges);
	if (!ret)
		ready = calloc(nr + 1, sizeof(*ready));
	if (!ret && !ready)
		ret = -ENOMEM;
	for (i = 0; i < nr && !ret; i++)
		if (!items[i].before)
			ready[n++] = i;
	while (n && !ret) {
		struct item *it;

		/* Those that are nothing to us are passed first: serial 0. */
		for (i = k = 0; i < n; i++)
			if (items[ready[i]].serial < items[ready[k]].serial)
				k = i;
		it = &items[ready[k]];
		ready[k] = ready[--n];
		if (it->ours)
			ret = exec_add(e, &it->ours, 1);
		else
			ret = exec_add(e, it->sub.nodes, it->sub.nr);
		for (i = it->next; i < nr_edges && edges[i].from == (size_t)(it - items); i++)
			if (!--items[edges[i].to].before)
				ready[n++] = edges[i].to;
	}
	free(ready);
	free(edges);
	return ret;
}

static int collect(CUgraph graph, struct exec *e, int depth);

static int read_item(CUgraphNode node, struct item *it, int depth)
{
	CUDA_HOST_NODE_PARAMS host = {0};
	CUgraphNodeType type;
	CUgraph child;
	int ret = 0;

	it->node = node;
	if (df_drv.node_type(node, &type) != CUDA_SUCCESS)
		return -EIO;
	if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
		if (df_drv.node_child(node, &child) != CUDA_SUCCESS)
			return -EIO;
		ret = collect(child, &it->sub, depth + 1);
		it->serial = it->sub.nr ? it->sub.nodes[0]->serial : 0;
	} else if (type == CU_GRAPH_NODE_TYPE_HOST) {
		if (df_drv.node_host(node, &host) != CUDA_SUCCESS)
			return -EIO;
		if (host.fn == arrive) {
			it->ours = host.userData;
			it->serial = it->ours->serial;
		}
	}
	return ret;
}

static int collect(CUgraph graph, struct exec *e, int depth)
{
	CUgraphNode *nodes;
	struct item *items;
	size_t nr = 0, i, some = 0;
	int ret = 0;

	if (depth > MAX_DEPTH)
		return -EINVAL;
	if (df_drv.graph_nodes(graph, NULL, &nr) != CUDA_SUCCESS)
		return -EIO;
	nodes = calloc(nr + 1, sizeof(*nodes));
	items = calloc(nr + 1, sizeof(*items));
	if (!nodes || !items)
		ret = -ENOMEM;
	else if (df_drv.graph_nodes(graph, nodes, &nr) != CUDA_SUCCESS)
		ret = -EIO;
	for (i = 0; i < nr && !ret; i++) {
		ret = read_item(nodes[i], &items[i], depth);
		some += items[i].serial != 0;
	}
	if (!ret && some > 1)
		ret = in_order(graph, items, nr, e);
	for (i = 0; i < nr && !ret && some == 1; i++)
		if (items[i].serial)
			ret = items[i].ours ? exec_add(e, &items[i].ours, 1)
					    : exec_add(e, items[i].sub.nodes, items[i].sub.nr);
	for (i = 0; items && i < nr; i++)
		free(items[i].sub.nodes);
	free(items);
	free(nodes);
	return ret;
}

void df_cuda_graph_made(CUgraphExec exec, CUgraph graph)
{
	struct exec *e;
	size_t i;
	int ret;

	df_cuda_graph_gone(exec);
	if (!__atomic_load_n(&serials, __ATOMIC_RELAXED))
		return;
	e = calloc(1, sizeof(*e));
	ret = e ? collect(graph, e, 0) : -ENOMEM;
	if (ret)
		df_log(DF_LOG_WARN,
		       "a CUDA graph could not be read (%s): its collectives will not run",
		       strerror(-ret));
	if (ret || !e->nr) {
		if (e)
			free(e->nodes);
		free(e);
		return;
	}
	e->handle = exec;
	pthread_mutex_lock(&lock);
	for (i = 0; i < e->nr; i++)
		e->nodes[i]->refs++;
	HASH_ADD_PTR(execs, handle, e);
	pthread_mutex_unlock(&lock);
}

void df_cuda_graph_gone(CUgraphExec exec)
{
	struct exec *e;
	void *handle = exec;
	size_t i;

	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(execs, &handle, e);
	if (e)
		HASH_DEL(execs, e);
	pthread_mutex_unlock(&lock);
	if (!e)
		return;
	for (i = 0; i < e->nr; i++)
		node_put(e->nodes[i]);
	free(e->nodes);
	free(e);
}

/* ---- replays --------------------------------------------------------------------------------------------------------- */

/* One instance of the node's collective; the graph will come to it as its launched-th arrival. */
static int replay(struct node *n)
{
	struct turn *v, t;
	uint32_t cap;
	size_t i;
	int ret;

	if (!n->w) {
		for (i = 0; i < n->nr_notes; i++)
			n->notes[i].ops->launch(n->notes[i].arg, NULL, 0, &t.done, &t.value);
		return 0;
	}
	pthread_mutex_lock(&lock);
	/* Room first: what has been submitted can't be taken back. */
	if (n->first + n->nr == n->cap) {
		memmove(n->turns, n->turns + n->first, n->nr * sizeof(*n->turns));
		n->first = 0;
	}
	cap = n->nr == n->cap ? DF_MAX(n->cap * 2, 8) : n->cap;
	v = cap == n->cap ? n->turns : realloc(n->turns, cap * sizeof(*v));
	if (v) {
		n->turns = v;
		n->cap = cap;
	}
	n->refs++;
	pthread_mutex_unlock(&lock);
	if (!v) {
		node_put(n);
		return -ENOMEM;
	}
	/* Launches of one executable graph are the application's to order, as everywhere in CUDA. */
	ret = n->ops.launch(n->arg, &n->w->arrived, n->launched + 1, &t.done, &t.value);
	if (!ret) {
		pthread_mutex_lock(&lock);
		n->launched++;
		n->turns[n->first + n->nr++] = t;
		if (!n->busy) {
			n->busy = 1;
			n->refs++;
			n->next = busy;
			busy = n;
		}
		pthread_mutex_unlock(&lock);
	}
	node_put(n);
	return ret;
}

int df_cuda_graph_launch(CUgraphExec exec, struct df_hstream *s)
{
	void *handle = exec;
	struct exec *e;
	size_t i;
	int ret = 0;

	(void)s;
	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(execs, &handle, e);
	pthread_mutex_unlock(&lock);
	for (i = 0; e && i < e->nr && !ret; i++)
		ret = replay(e->nodes[i]);
	return ret;
}

int df_cuda_graph_poll(void)
{
	struct node *n, **p, *over = NULL;
	int left = 0;

	if (!__atomic_load_n(&serials, __ATOMIC_RELAXED))
		return 0;
	pthread_mutex_lock(&lock);
	for (p = &busy; (n = *p);) {
		struct turn *t = &n->turns[n->first];

		/*
		 * ACQUIRE pairs with the daemon's RELEASE of the done word: the results are there before
		 * the graph goes on. The gate is closed by the graph when it has gone through.
		 */
		if (n->nr && __atomic_load_n(t->done, __ATOMIC_ACQUIRE) >= t->value &&
		    __atomic_load_n(&n->w->gate, __ATOMIC_RELAXED) == 0) {
			/* RELEASE pairs with the stream's wait for the gate: it orders the results before it. */
			__atomic_store_n(&n->w->gate, 1, __ATOMIC_RELEASE);
			n->first++;
			n->nr--;
		}
		left += n->nr;
		if (n->nr) {
			p = &n->next;
			continue;
		}
		*p = n->next;
		n->busy = 0;
		n->next = over;
		over = n;
	}
	pthread_mutex_unlock(&lock);
	while ((n = over)) {
		over = n->next;
		node_put(n);
	}
	return left;
}
#endif
