/*
 * Collectives in CUDA graphs. A captured collective is three memory operations on its stream
 * (struct df_kgate): a write that announces its arrival, a wait for its gate, and a write that
 * closes the gate again. cuGraphLaunch() submits one instance of every such collective, in the
 * order of capture. The instance becomes ready by the arrival, and the block that finishes it opens
 * the gate, so no CPU thread is needed between two nodes. Collectives that were captured as a group
 * arrive together, at the first of them.
 *
 * The collectives of a graph are found by reading the graph when it is instantiated (children too),
 * so clones and updates need no book-keeping. A gate serves one replay at a time: another
 * executable graph with the same collective waits on the device until the earlier replay is over.
 * (Both use the same buffers, so a program that runs both at once has a race anyway.)
 *
 * A graph of collectives alone is not launched at all: the collectives are submitted to its stream
 * like ordinary calls. So they are ordered only as their buffers require, and graphs that ranks
 * launch in different orders do not block each other. A program cannot notice, because the graph
 * has nothing else, and later work on the stream follows the collectives.
 *
 * In mode trace, nothing of the graph may wait for dfshim, and no node may be added between the
 * application's. All operations that are captured into one graph are in a list outside of it. A
 * single host function refers to the list. It depends on nothing, nothing depends on it, and it
 * does nothing (df_gnode_noted()). By it the list is found when the graph, or a copy of it, is
 * read.
 *
 * One lock for everything; it is not held across the driver or the runtime.
 */
#if __has_include(<cuda.h>)
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/vec.h"
#include "runtime/device/cuda/cuda_graph.h"
#include "runtime/device/cuda/front/cuda_front.h"

struct exec {
	void *handle;
	UT_hash_handle hh;
	struct df_gnodes has;
	uint64_t serial;
	int refused; /* whether the graph was updated to one that cannot be executed */
};

static int kept; /* whether the application has given a graph objects to keep alive */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t launched = PTHREAD_COND_INITIALIZER;
static struct exec *execs;
static struct df_gnode *busy, *noting;
static struct df_gnode *nodes; /* all nodes, by address */
static struct df_gslot *slots; /* all slots, by gate */
/*
 * Unused slots, oldest first. UNUSED_MIN of them are kept, so a slot is reused late: until then a
 * graph that still names its gate is refused.
 */
static struct df_gslot *unused, **unused_end = &unused;
static size_t nr_unused;
#define UNUSED_MIN 1024
static uint64_t serials;
static uint64_t arrivals; /* only for the poller */
/*
 * The program may have copied nodes that name one of ours. While a graph is being read, such a node
 * of ours may end. It is then in no table, but its memory stays until no thread reads a graph.
 */
static unsigned int readers;
static struct df_gnode *dead;

static void node_add(struct df_gnode *n)
{
	n->self = n;
	pthread_mutex_lock(&lock);
	HASH_ADD_PTR(nodes, self, n);
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

/*
 * Clears a gate that another graph has used. RELAXED: a thread may still look at an operation of
 * that graph that has just ended (df_lane_is_ready()), and accepts any value.
 */
static void gate_reset(struct df_kgate *g)
{
	uint64_t *const words[] = {&g->arrived, &g->opened, &g->issued,
				   &g->begun,	&g->lane,   &g->open};
	size_t i;

	for (i = 0; i < DF_ARRAY_LEN(words); i++)
		__atomic_store_n(words[i], 0, __ATOMIC_RELAXED);
}

/* Returns a closed gate, or NULL if memory is short. */
static struct df_gslot *slot_get(struct df_gnode *of)
{
	struct df_gslot *s, *fresh;

	pthread_mutex_lock(&lock);
	s = nr_unused > UNUSED_MIN ? unused : NULL;
	if (s) {
		unused = s->next;
		nr_unused--;
		s->of = of;
		gate_reset(s->gate);
	}
	pthread_mutex_unlock(&lock);
	if (s)
		return s;
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return NULL;
	fresh->of = of;
	fresh->gate = df_cuda_pinned(sizeof(*fresh->gate), 1);
	if (!fresh->gate) {
		free(fresh);
		return NULL;
	}
	pthread_mutex_lock(&lock);
	HASH_ADD_PTR(slots, gate, fresh);
	pthread_mutex_unlock(&lock);
	return fresh;
}

enum df_gpart df_gnode_part(const CUstreamBatchMemOpParams *op, struct df_gnode **n)
{
	/* Waits and writes have address and value at the same offsets. */
	const char *at = (const char *)(uintptr_t)op->waitValue.address;
	const struct df_kgate *gate = (const struct df_kgate *)(const void *)at;
	int writes = op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
	uint64_t value = op->waitValue.value64;
	enum df_gpart part = DF_GPART_OTHER;
	struct df_gslot *s;

	pthread_mutex_lock(&lock);
	HASH_FIND_PTR(slots, &gate, s);
	if (s) {
		if (writes && value == 1)
			part = DF_GPART_ARRIVES;
	} else {
		gate = (const struct df_kgate *)(const void *)(at -
							       offsetof(struct df_kgate, open));
		HASH_FIND_PTR(slots, &gate, s);
		if (writes && value == 0)
			part = DF_GPART_CLOSES;
		else if (op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 && value == 1)
			part = DF_GPART_WAITS;
	}
	*n = s ? s->of : NULL;
	pthread_mutex_unlock(&lock);
	return s ? part : DF_GPART_NONE;
}

static void node_free(struct df_gnode *n)
{
	size_t i;

	for (i = 0; i < n->nr_notes; i++)
		n->notes[i].ops->destroy(n->notes[i].arg);
	free(n->notes);
	if (n->ops.destroy)
		n->ops.destroy(n->arg);
	free(n->turns);
	free(n);
}

void df_gnodes_read(void)
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

void df_gnodes_read_end(void)
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

/*
 * Takes references. Call between df_gnodes_read() and df_gnodes_read_end(). Returns 0 if one of the
 * nodes has ended meanwhile.
 */
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

/*
 * Drops a reference. Returns 1 if it was the last one, so that the caller must free the node. The
 * caller holds the lock.
 */
static int put(struct df_gnode *n)
{
	struct df_gnode **p;

	if (--n->refs)
		return 0;
	HASH_DEL(nodes, n);
	if (n->slot) {
		n->slot->of = NULL;
		n->slot->next = NULL;
		*unused_end = n->slot;
		unused_end = &n->slot->next;
		nr_unused++;
	}
	for (p = &noting; !n->slot && *p; p = &(*p)->next)
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

void CUDA_CB df_gnode_noted(void *arg)
{
	(void)arg;
}

int df_gnodes_any(void)
{
	return __atomic_load_n(&serials, __ATOMIC_RELAXED) != 0;
}

static void CUDA_CB object_gone(void *arg)
{
	node_put(arg);
}

/*
 * Gives the graph a reference, which is dropped when the graph and everything made from it are
 * gone.
 */
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
	CUDA_HOST_NODE_PARAMS params = {.fn = df_gnode_noted};
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
	if (ret != -ENOENT) {
		if (ret)
			ops->destroy(arg);
		return ret;
	}
	n = calloc(1, sizeof(*n));
	if (!n || note_add(n, ops, arg)) {
		free(n);
		ops->destroy(arg);
		return -ENOMEM;
	}
	n->refs = 1;
	n->capture = capture;
	n->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
	r = retain(graph, n);
	if (r != CUDA_SUCCESS) {
		node_free(n);
		return df_drv_errno(r);
	}
	node_add(n);
	pthread_mutex_lock(&lock);
	n->next = noting;
	noting = n;
	pthread_mutex_unlock(&lock);
	params.userData = n;
	/* Without the node the notes are not found; they are destroyed with the graph. */
	r = df_drv.node_add_host(&made, graph, NULL, 0, &params);
	if (r != CUDA_SUCCESS)
		df_warn_once("cannot add a node to a CUDA graph: its operations are not recorded");
	return 0;
}

/*
 * Makes the state of a collective, without its nodes, and takes ownership of `arg`. Returns NULL if
 * memory is short.
 */
static struct df_gnode *node_new(const struct df_capture_ops *ops, void *arg, struct df_gnode *head,
				 uint32_t nr)
{
	struct df_gnode *n = calloc(1, sizeof(*n));

	if (!n) {
		ops->destroy(arg);
		return NULL;
	}
	n->ops = *ops;
	n->arg = arg;
	n->refs = 1;
	n->head = head ? head : n;
	n->nr_group = nr;
	n->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
	n->slot = slot_get(n);
	if (n->slot)
		return n;
	node_free(n);
	return NULL;
}

static int capture_nodes(struct df_mstream *const *s, CUgraph graph,
			 const struct df_capture_ops *ops, void *const *args, uint32_t nr)
{
	struct df_gnode **v = calloc(2 * (size_t)nr, sizeof(*v));
	uint32_t i;
	CUresult r;
	int ret = v ? 0 : -ENOMEM;

	for (i = 0; i < nr; i++) {
		if (ret) {
			ops->destroy(args[i]);
			continue;
		}
		v[i] = node_new(ops, args[i], i ? v[0] : NULL, nr);
		if (!v[i]) {
			ret = -ENOMEM;
			continue;
		}
		node_add(v[i]);
		/* On success the graph owns the node, and frees it when the graph is destroyed. */
		r = retain(graph, v[i]);
		if (r != CUDA_SUCCESS) {
			ret = df_drv_errno(r);
			node_put(v[i]);
		}
	}
	if (!ret)
		ret = df_gnodes_capture(s, v, nr, v + nr);
	free(v);
	return ret;
}

int df_cuda_capture_nodes(struct df_mstream *const *s, const struct df_capture_ops *ops,
			  void *const *args, uint32_t nr)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUgraph graph = NULL;
	cuuint64_t id, first = 0;
	size_t deps;
	uint32_t i;
	int ret = 0;

	for (i = 0; i < nr && !ret; i++) {
		if (df_drv.stream_capture_info(s[i]->handle, &status, &id, &graph, NULL, &deps) !=
			    CUDA_SUCCESS ||
		    status != CU_STREAM_CAPTURE_STATUS_ACTIVE || (i && id != first))
			ret = -EINVAL;
		first = id;
	}
	if (!ret && !df_cuda_recording)
		return capture_nodes(s, graph, ops, args, nr);
	for (i = 0; i < nr; i++) {
		if (!ret)
			ret = capture_note(graph, first, ops, args[i]);
		else
			ops->destroy(args[i]);
	}
	return ret;
}

/* ---- executable graphs ----------------------------------------------------------------------- */

int df_cuda_graph_made(CUgraphExec exec, CUgraph graph)
{
	struct exec *e;
	int ret;

	df_cuda_graph_gone(exec);
	if (!df_gnodes_any())
		return 0;
	e = calloc(1, sizeof(*e));
	df_gnodes_read();
	ret = e ? df_graph_read(graph, &e->has) : -ENOMEM;
	if (!ret && !hold(e->has.v, e->has.nr))
		ret = -EOPNOTSUPP;
	df_gnodes_read_end();
	if (ret == -EOPNOTSUPP)
		df_warn_once("a CUDA graph is refused: the nodes of a captured collective (a "
			     "write, a wait and a write, in this order) must stay together, "
			     "unchanged, and not be there twice at a time");
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
	e->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
	/*
	 * An object that a graph keeps alive needs a real launch. It is not known which graphs have
	 * one, so all are launched.
	 */
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

/* ---- replays --------------------------------------------------------------------------------- */

/*
 * Makes the stream wait if another executable graph made the collective's last replay: until that
 * replay is done and that graph has closed the gate. Returns 0 or -errno.
 */
static int behind(const struct df_gnode *n, const struct exec *e, const struct df_mstream *s)
{
	CUresult r;

	if (!n->last.done || n->by == e->serial)
		return 0;
	r = df_drv.stream_wait64(s->handle, df_gnode_word(n->last.done), n->last.value,
				 CU_STREAM_WAIT_VALUE_GEQ);
	if (r == CUDA_SUCCESS)
		r = df_drv.stream_wait64(s->handle, df_gnode_word(&n->slot->gate->open), 0,
					 CU_STREAM_WAIT_VALUE_EQ);
	return df_drv_errno(r);
}

static int is_done(const struct df_replayed *t)
{
	/*
	 * ACQUIRE pairs with the RELEASE of done in dfk_finish(), with the lane's write of the
	 * word, and with df_lane_end(): without it the state of the gate might not be visible.
	 */
	return __atomic_load_n(t->done, __ATOMIC_ACQUIRE) >= t->value;
}

/*
 * Reserves space for a turn, and checks whether the collective can be submitted. Returns 0 or
 * -errno.
 */
static int prepare(struct df_gnode *n)
{
	const struct df_arrival a = {.gate = n->slot ? n->slot->gate : NULL};
	int ret = 0;

	if (!n->slot)
		return 0;
	pthread_mutex_lock(&lock);
	if (n->first && n->first + n->nr == n->cap) {
		memmove(n->turns, n->turns + n->first, n->nr * sizeof(*n->turns));
		n->first = 0;
	}
	ret = DF_VEC_ROOM(n->turns, n->cap, n->first + n->nr + 1);
	pthread_mutex_unlock(&lock);
	return !ret && n->ops.prepare ? n->ops.prepare(n->arg, &a) : ret;
}

/*
 * Submits the instance and notes its turn. Only one thread at a time does so for each node. Returns
 * as replay() does.
 */
static int replay_now(struct df_gnode *n, const struct exec *e)
{
	const struct df_arrival a = {.gate = n->slot->gate};
	struct df_replayed t;
	int ret = n->ops.launch(n->arg, &a, &t);

	if (ret)
		return ret;
	pthread_mutex_lock(&lock);
	n->last = t;
	n->by = e->serial;
	/* A second thread may have used the room that was reserved. */
	ret = DF_VEC_ROOM(n->turns, n->cap, n->first + n->nr + 1);
	if (!ret)
		n->turns[n->first + n->nr++] = t;
	if (!ret && !n->busy) {
		n->busy = 1;
		n->refs++;
		n->next = busy;
		busy = n;
	}
	pthread_mutex_unlock(&lock);
	return ret ? ret : is_done(&t);
}

/*
 * Submits one instance of the node's collective. Stores in *late an error after which it is
 * submitted all the same. Returns 1 if it has ended already, 0 if not, or -errno.
 */
static int replay(struct df_gnode *n, const struct exec *e, const struct df_mstream *s, int *late)
{
	struct df_replayed t;
	size_t i;
	int ret, err;

	if (!n->slot) {
		for (i = 0; i < n->nr_notes; i++)
			n->notes[i].ops->launch(n->notes[i].arg, NULL, &t);
		return 0;
	}
	/*
	 * As everywhere in CUDA, the application orders launches of one executable graph; those of
	 * two graphs it need not.
	 */
	pthread_mutex_lock(&lock);
	n->refs++;
	while (n->launching)
		pthread_cond_wait(&launched, &lock);
	n->launching = 1;
	pthread_mutex_unlock(&lock);
	err = behind(n, e, s);
	ret = replay_now(n, e);
	if (err && !*late)
		*late = err;
	pthread_mutex_lock(&lock);
	n->launching = 0;
	pthread_cond_broadcast(&launched);
	pthread_mutex_unlock(&lock);
	node_put(n);
	return ret;
}

static int is_among(struct df_gnode *const *v, size_t nr, const struct df_gnode *n)
{
	size_t i;

	for (i = 0; i < nr && v[i] != n;)
		i++;
	return i < nr;
}

/*
 * Ends instances that were submitted but will not be launched. Their communicators end, because the
 * graph does not compute their data. The stream does what the graph would have done at their gates,
 * so that neither the executor nor a later replay finds an arrival missing.
 */
static void lose(struct df_gnode *const *v, size_t nr, const struct df_mstream *s)
{
	size_t i, k;

	for (i = 0; i < nr; i++)
		if (v[i]->slot && v[i]->ops.lost)
			v[i]->ops.lost(v[i]->arg);
	/* A collective that is in the list twice arrives twice, one after the other. */
	for (i = 0; i < nr && v[i]->slot; i = k) {
		for (k = i + 1; k < nr && !is_among(v + i, k - i, v[k]);)
			k++;
		(void)df_gnodes_put(s->handle, v + i, k - i);
	}
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
	int ret = 0, late = 0, over = 0, held;

	if (!e)
		return 0;
	if (e->refused)
		return -EOPNOTSUPP;
	for (i = 0; i < e->has.nr && !ret; i++)
		ret = prepare(e->has.v[i]);
	if (ret)
		return ret;
	for (i = 0; i < e->has.nr && ret >= 0; i += ret >= 0) {
		ret = replay(e->has.v[i], e, s, &late);
		over |= ret > 0;
	}
	if (ret >= 0)
		ret = late;
	if (ret)
		lose(e->has.v, i, s);
	if (over)
		(void)df_cuda_graph_poll(&held);
	return ret;
}

void df_cuda_graph_lost(CUgraphExec exec, const struct df_mstream *s)
{
	struct exec *e = exec_of(exec);

	if (e && !e->refused)
		lose(e->has.v, e->has.nr, s);
}

/*
 * Whether the replay is over. The block or the lane that finished the instance has opened the gate.
 * If none did, because the communicator was ended, this opens it, so that the graph continues,
 * replay after replay.
 */
static int turn_over(const struct df_gnode *n, const struct df_replayed *t)
{
	struct df_kgate *g = n->slot->gate;

	if (!is_done(t))
		return 0;
	/*
	 * ACQUIRE pairs with the lane's write, which follows the write of `open`. So if `open` is 0
	 * below, the graph has closed the gate since.
	 */
	if (__atomic_load_n(&g->opened, __ATOMIC_ACQUIRE) >= t->opens)
		return 1;
	/* RELAXED: the value was set before the instance was done. */
	if (t->opens <= __atomic_load_n(&g->lane, __ATOMIC_RELAXED) ||
	    __atomic_load_n(&g->open, __ATOMIC_RELAXED))
		return 0;
	/*
	 * RELEASE pairs with the stream's wait for the gate: without it the graph could continue
	 * before the results are visible.
	 */
	__atomic_store_n(&g->open, 1, __ATOMIC_RELEASE);
	return 1;
}

int df_cuda_graph_poll(int *held)
{
	struct df_gnode *n, **p, *over = NULL;
	uint64_t sum = 0;
	int left = 0;

	*held = 0;
	if (!df_gnodes_any())
		return 0;
	pthread_mutex_lock(&lock);
	for (p = &busy; (n = *p);) {
		while (n->nr && turn_over(n, &n->turns[n->first])) {
			n->first++;
			n->nr--;
		}
		/* RELAXED: the caller only compares sums. */
		sum += __atomic_load_n(&n->slot->gate->opened, __ATOMIC_RELAXED) +
		       __atomic_load_n(&n->slot->gate->arrived, __ATOMIC_RELAXED) * n->serial;
		left += n->nr;
		*held |= n->nr && is_done(&n->turns[n->first]);
		if (n->nr) {
			p = &n->next;
			continue;
		}
		*p = n->next;
		n->busy = 0;
		/*
		 * The lock is held here: otherwise the next replay could make the node busy and
		 * change n->next.
		 */
		if (put(n)) {
			n->next = over;
			over = n;
		}
	}
	/* RELAXED: pollers only compare sums. */
	__atomic_store_n(&arrivals, sum, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&lock);
	free_all(over);
	return left;
}

uint64_t df_cuda_graph_arrivals(void)
{
	return __atomic_load_n(&arrivals, __ATOMIC_RELAXED);
}
#endif
