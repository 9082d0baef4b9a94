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
 * A graph of collectives alone is not launched at all: on its stream they are put as the same calls would be, so they
 * have the order that their buffers ask for, and graphs that ranks launch in different orders do not hold each other
 * up. No program can tell, because nothing else is in the graph, and what comes after it on the stream comes
 * after them.
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
#include "runtime/device/cuda/cuda_graph.h"

struct exec {
	void *handle;
	UT_hash_handle hh;
	struct df_gnodes has;
	int refused; /* it was updated to what can't be executed */
};

static int kept; /* the application gave a graph objects of its own to keep */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct exec *execs;
static struct df_gnode *busy, *noting;
static struct df_gnode *nodes, *gates; /* all, by themselves and by their gates */
static uint64_t serials;
/*
 * The program may have made nodes of its own that name one of ours. While a graph is read, what it names may come to its
 * end: then it is nobody's, but its memory stays until nobody reads.
 */
static unsigned int readers;
static struct df_gnode *dead;

static void node_add(struct df_gnode *n)
{
	n->self = n;
	pthread_mutex_lock(&lock);
	HASH_ADD_PTR(nodes, self, n);
	if (n->gate)
		HASH_ADD_KEYPTR(hh_gate, gates, &n->gate, sizeof(n->gate), n);
	pthread_mutex_unlock(&lock);
}

int df_gnode_lives(const struct df_gnode *n)
{
	struct df_gnode *found;

	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(nodes, &n, found);
	pthread_mutex_unlock(&lock);
	return found != NULL;
}

struct df_gnode *df_gnode_of_gate(CUdeviceptr word)
{
	const uint64_t *gate = (const uint64_t *)(uintptr_t)word;
	struct df_gnode *found;

	pthread_mutex_lock(&lock);
	HASH_FIND(hh_gate, gates, &gate, sizeof(gate), found);
	pthread_mutex_unlock(&lock);
	return found;
}

static void node_free(struct df_gnode *n)
{
	size_t i;

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

static void read_begin(void)
{
	pthread_mutex_lock(&lock);
	readers++;
	pthread_mutex_unlock(&lock);
}

static void free_all(struct df_gnode *list)
{
	struct df_gnode *n;

	while ((n = list)) {
		list = n->next;
		node_free(n);
	}
}

static void read_end(void)
{
	struct df_gnode *list = NULL;

	pthread_mutex_lock(&lock);
	if (!--readers) {
		list = dead;
		dead = NULL;
	}
	pthread_mutex_unlock(&lock);
	free_all(list);
}

/* Between the two above; 0: one of them has come to its end meanwhile. */
static int hold(struct df_gnode **v, size_t nr)
{
	size_t i;
	int whole = 1;

	pthread_mutex_lock(&lock);
	for (i = 0; i < nr; i++)
		whole &= v[i]->refs > 0;
	for (i = 0; i < nr && whole; i++)
		v[i]->refs++;
	pthread_mutex_unlock(&lock);
	return whole;
}

/* Lock held. 1: nobody has it any more, and it is the caller's to free. */
static int put(struct df_gnode *n)
{
	struct df_gnode **p;

	if (--n->refs)
		return 0;
	HASH_DEL(nodes, n);
	if (n->gate)
		HASH_DELETE(hh_gate, gates, n);
	for (p = &noting; !n->w && *p; p = &(*p)->next)
		if (*p == n) {
			*p = n->next;
			break;
		}
	if (!readers)
		return 1;
	n->next = dead;
	dead = n;
	return 0;
}

static void node_put(struct df_gnode *n)
{
	int last;

	pthread_mutex_lock(&lock);
	last = put(n);
	pthread_mutex_unlock(&lock);
	if (last)
		node_free(n);
}

/* On a thread of the driver: no CUDA call, no wait. */
static void CUDA_CB arrive(void *arg)
{
	struct df_gnode *n = arg;

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
static CUresult retain(CUgraph graph, struct df_gnode *n)
{
	CUuserObject object;
	CUresult r =
		df_drv.user_object(&object, n, object_gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);

	if (r != CUDA_SUCCESS)
		return r;
	return df_drv.graph_retain(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
}

static int note_add(struct df_gnode *n, const struct df_capture_ops *ops, void *arg)
{
	struct df_gnote *v = realloc(n->notes, (n->nr_notes + 1) * sizeof(*v));

	if (!v)
		return -ENOMEM;
	n->notes = v;
	v[n->nr_notes++] = (struct df_gnote){ops, arg};
	return 0;
}

static int capture_note(CUgraph graph, cuuint64_t capture, const struct df_capture_ops *ops,
			void *arg)
{
	CUDA_HOST_NODE_PARAMS params = {.fn = arrive};
	struct df_gnode *n;
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
	node_add(n);
	pthread_mutex_lock(&lock);
	n->next = noting;
	noting = n;
	pthread_mutex_unlock(&lock);
	params.userData = n;
	/* Without the node the graph goes unrecorded, and the note ends with it. */
	r = df_drv.node_add_host(&made, graph, NULL, 0, &params);
	if (r != CUDA_SUCCESS)
		df_warn_once("cannot add a node to a CUDA graph: its operations are not recorded");
	return 0;
}

int df_cuda_capture_node(struct df_mstream *s, const struct df_capture_ops *ops, void *arg)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUstreamBatchMemOpParams op;
	const CUgraphNode *last;
	CUdeviceptr gate;
	CUgraph graph = NULL;
	struct df_gnode *n;
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
	n->w = df_cuda_pinned(sizeof(*n->w), 1);
	if (!n->w) {
		free(n);
		return -ENOMEM;
	}
	n->ops = *ops;
	n->arg = arg;
	n->refs = 1;
	n->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
	n->gate = &n->w->gate;
	gate = (CUdeviceptr)(uintptr_t)n->gate;
	/* The last reference may end in the destructor, so the user object comes first. */
	r = retain(graph, n);
	if (r != CUDA_SUCCESS) {
		df_cuda_pinned_free(n->w);
		free(n);
		return df_drv_errno(r);
	}
	node_add(n);
	r = df_drv.host_func(s->handle, arrive, n);
	if (r == CUDA_SUCCESS)
		r = df_drv.stream_wait64(s->handle, gate, 1, CU_STREAM_WAIT_VALUE_GEQ);
	if (r == CUDA_SUCCESS)
		r = df_drv.stream_write64(s->handle, gate, 0, CU_STREAM_WRITE_VALUE_DEFAULT);
	/* The write is what comes next on the stream comes after. */
	if (r == CUDA_SUCCESS &&
	    df_drv.stream_capture_info(s->handle, &status, &id, &graph, &last, &nr) == CUDA_SUCCESS)
		n->readable =
			nr == 1 && !df_graph_mem_op(last[0], &op) && op.waitValue.address == gate;
	return df_drv_errno(r);
}

/* ---- executable graphs ------------------------------------------------------------------------------------------- */

int df_cuda_graph_made(CUgraphExec exec, CUgraph graph)
{
	struct exec *e;
	int ret;

	df_cuda_graph_gone(exec);
	if (!__atomic_load_n(&serials, __ATOMIC_RELAXED))
		return 0;
	e = calloc(1, sizeof(*e));
	read_begin();
	ret = e ? df_graph_read(graph, arrive, &e->has) : -ENOMEM;
	if (!ret && !hold(e->has.v, e->has.nr))
		ret = -EOPNOTSUPP;
	read_end();
	if (ret == -EOPNOTSUPP)
		df_warn_once(
			"a CUDA graph is refused: the nodes of a captured collective (a host "
			"function, a wait and a write, in this order) must stay together and unchanged");
	else if (ret)
		df_log(DF_LOG_WARN, "a CUDA graph could not be read (%s): %s", strerror(-ret),
		       df_cuda_recording ? "its collectives are not recorded" : "it is refused");
	if (!e || (!ret && !e->has.nr) || (ret && df_cuda_recording)) {
		if (e)
			free(e->has.v);
		free(e);
		return df_cuda_recording ? 0 : ret;
	}
	if (ret) {
		free(e->has.v);
		e->has = (struct df_gnodes){0};
		e->refused = 1;
	}
	e->handle = exec;
	/* What lives as long as a launch needs the launch; which graphs have such is known only of all. */
	e->has.bare &= !__atomic_load_n(&kept, __ATOMIC_RELAXED);
	pthread_mutex_lock(&lock);
	HASH_ADD_PTR(execs, handle, e);
	pthread_mutex_unlock(&lock);
	return ret;
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
	for (i = 0; i < e->has.nr; i++)
		node_put(e->has.v[i]);
	free(e->has.v);
	free(e);
}

/* ---- single nodes of executable graphs --------------------------------------------------------------------------- */

static int set_host(CUgraphNode node, const struct df_node_set *to)
{
	CUDA_HOST_NODE_PARAMS is = {0};

	if (df_drv.node_host(node, &is) != CUDA_SUCCESS)
		return 0;
	return (is.fn == arrive || to->fn == (const void *)arrive) &&
	       (to->fn != (const void *)is.fn || to->arg != is.userData);
}

static int set_mem_ops(CUgraphNode node, const struct df_node_set *to)
{
	const CUstreamBatchMemOpParams *v = to->ops;
	CUstreamBatchMemOpParams is;
	int single = !df_graph_mem_op(node, &is);
	unsigned int i;

	if (single && v && to->nr_ops == 1 && is.operation == v->operation &&
	    is.waitValue.address == v->waitValue.address &&
	    is.waitValue.value64 == v->waitValue.value64)
		return 0;
	for (i = 0; v && i < to->nr_ops; i++)
		if (df_gnode_of_gate(v[i].waitValue.address))
			return 1;
	return single && df_gnode_of_gate(is.waitValue.address);
}

static int has_ours(CUgraph graph)
{
	struct df_gnodes has = {0};
	int ret;

	read_begin();
	ret = df_graph_read(graph, arrive, &has);
	read_end();
	free(has.v);
	return ret || has.nr;
}

static int set_child(CUgraphNode node, const struct df_node_set *to)
{
	CUgraph is;

	if (df_drv.node_child(node, &is) != CUDA_SUCCESS)
		return 0;
	return has_ours(is) || (to->child && has_ours(to->child));
}

int df_cuda_graph_set(CUgraphNode node, const struct df_node_set *to)
{
	CUgraphNodeType type;
	int refused = 0;

	if (!__atomic_load_n(&serials, __ATOMIC_RELAXED) || !node ||
	    df_drv.node_type(node, &type) != CUDA_SUCCESS)
		return 0;
	if (type == CU_GRAPH_NODE_TYPE_HOST)
		refused = set_host(node, to);
	else if (type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
		refused = set_mem_ops(node, to);
	else if (type == CU_GRAPH_NODE_TYPE_GRAPH)
		refused = set_child(node, to);
	if (refused)
		df_warn_once(
			"a node of a captured collective cannot be changed in an executable "
			"graph: use cuGraphExecUpdate with the whole graph, or instantiate the "
			"graph again");
	return refused;
}

/* ---- replays --------------------------------------------------------------------------------------------------------- */

/* One instance of the node's collective; the graph will come to it as its launched-th arrival. */
static int replay(struct df_gnode *n)
{
	struct df_gturn *v, t;
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

static struct exec *exec_of(CUgraphExec exec)
{
	void *handle = exec;
	struct exec *e;

	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(execs, &handle, e);
	pthread_mutex_unlock(&lock);
	return e;
}

void df_cuda_graph_kept(void)
{
	__atomic_store_n(&kept, 1, __ATOMIC_RELAXED);
}

int df_cuda_graph_issue(CUgraphExec exec, const struct df_stream_info *s)
{
	struct exec *e = exec_of(exec);
	size_t i;
	int ret = 1;

	if (!e || !e->has.bare)
		return 0;
	for (i = 0; i < e->has.nr; i++) {
		const struct df_gnode *n = e->has.v[i];

		ret = n->ops.issue(n->arg, s, e->has.chain);
		if (ret)
			break;
	}
	return ret > 0 ? 0 : ret ? ret : 1;
}

int df_cuda_graph_launch(CUgraphExec exec, struct df_mstream *s)
{
	struct exec *e = exec_of(exec);
	size_t i;
	int ret = 0;

	(void)s;
	if (e && e->refused)
		return -EOPNOTSUPP;
	for (i = 0; e && i < e->has.nr && !ret; i++)
		ret = replay(e->has.v[i]);
	return ret;
}

int df_cuda_graph_poll(void)
{
	struct df_gnode *n, **p, *over = NULL;
	int left = 0;

	if (!__atomic_load_n(&serials, __ATOMIC_RELAXED))
		return 0;
	pthread_mutex_lock(&lock);
	for (p = &busy; (n = *p);) {
		struct df_gturn *t = &n->turns[n->first];

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
		/* With the lock: without it the next replay may make it busy, and its link is that list's. */
		if (put(n)) {
			n->next = over;
			over = n;
		}
	}
	pthread_mutex_unlock(&lock);
	free_all(over);
	return left;
}
#endif
