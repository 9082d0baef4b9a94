/*
 * The hooks of libdfshim.so: each is called when hostcuda.h says so, and its result takes effect.
 */
#include "tests/hostcuda/programs/cu.h"

static int calls[16], work[DF_WORK_NR], syncs[DF_SYNC_NR];
static int skip_record, not_ready, defer, release, flushes;
static uint64_t *word;
static void *deferred;
static const struct df_backend *api;

enum { WORK, RECORD, WAIT, EQUERY, ESYNC, EDESTROY, CREATE, SSYNC, SQUERY, SDESTROY, HELP, DONE };

static void before_work(const struct df_stream_info *s, enum df_work kind, const struct df_touch *t)
{
	CHECK(s->id && s->user);
	CHECK(!t || t->in_end - t->in == t->out_end - t->out || t->in == t->in_end);
	calls[WORK]++;
	work[kind]++;
}

static int event_record(const struct df_event_info *e, const struct df_stream_info *s)
{
	calls[RECORD]++;
	if (skip_record)
		CHECK(!api->event_record(e->event, s->stream));
	return skip_record;
}

static void event_wait(const struct df_stream_info *s, const struct df_event_info *e)
{
	CHECK(s->id != e->id);
	calls[WAIT]++;
}

static int event_query(const struct df_event_info *e)
{
	CHECK(e->timing == 0 || e->timing == 1);
	calls[EQUERY]++;
	return not_ready;
}

/* If `other` is not NULL, the time of an event is that event's. */
static void *other;
static int not_timed;

static int event_time(const struct df_event_info *e, void **event)
{
	CHECK(e->timing && e->event);
	*event = other ? other : e->event;
	return not_timed;
}

static void event_sync(const struct df_event_info *e)
{
	CHECK(e->event);
	calls[ESYNC]++;
}

static void event_destroy(const struct df_event_info *e)
{
	CHECK(*e->user == e->event);
	calls[EDESTROY]++;
}

static void stream_create(const struct df_stream_info *s)
{
	CHECK(!*s->user);
	*s->user = s->stream;
	calls[CREATE]++;
}

static void stream_sync(const struct df_stream_info *s)
{
	CHECK(s->legacy || s->per_thread || *s->user == s->stream);
	calls[SSYNC]++;
}

static int stream_query(const struct df_stream_info *s)
{
	(void)s;
	calls[SQUERY]++;
	return not_ready;
}

static int told[2];

static void queried(int done)
{
	told[done]++;
}

static void stream_destroy(const struct df_stream_info *s)
{
	CHECK(*s->user == s->stream);
	calls[SDESTROY]++;
}

static int device_sync(int device, enum df_sync_kind kind, const void *ptr)
{
	CHECK(device == 0 && (kind != DF_SYNC_FREE || ptr));
	syncs[kind]++;
	return release;
}

static int nr_sync_copies, let_copy;

static int sync_copy(const struct df_stream_info *s, const struct df_touch *t)
{
	CHECK(s->legacy && t && t->in_end - t->in == 10 && t->out_end - t->out == 10);
	nr_sync_copies++;
	return let_copy;
}

static int free_hook(void *ptr, const struct df_mem_info *info)
{
	CHECK(info->base == ptr);
	if (defer)
		deferred = ptr;
	return defer;
}

/* Stands for the daemon: its 20th call writes the word that the stream waits for. */
static int help(void)
{
	if (++calls[HELP] == 20) {
		__atomic_store_n(word, 1, __ATOMIC_RELEASE);
		return 1;
	}
	return 0;
}

static void sync_done(int device)
{
	CHECK(device == 0);
	calls[DONE]++;
}

/* Frees the deferred memory when an allocation finds no room. */
static int flush(int device)
{
	CHECK(device == 0);
	flushes++;
	if (deferred)
		CHECK(!api->mem_free(deferred));
	deferred = NULL;
	return 1;
}

static int launched;

static void after_graph(const struct df_stream_info *s, int done)
{
	CHECK(s->stream && done);
	launched++;
}

static const struct df_hooks hooks = {
	.before_work = before_work,
	.event_record = event_record,
	.event_wait = event_wait,
	.event_query = event_query,
	.event_time = event_time,
	.event_sync = event_sync,
	.event_destroy = event_destroy,
	.stream_create = stream_create,
	.stream_sync = stream_sync,
	.stream_query = stream_query,
	.queried = queried,
	.stream_destroy = stream_destroy,
	.device_sync = device_sync,
	.sync_copy = sync_copy,
	.free = free_hook,
	.help = help,
	.sync_done = sync_done,
	.flush = flush,
	.after_graph = after_graph,
};

static void nothing(void *arg)
{
	(void)arg;
}

int main(void)
{
	struct df_stream_info own, info;
	cudaGraphExec_t exec;
	cudaGraph_t graph;
	cudaStream_t s;
	cudaEvent_t e;
	char *p, *pinned, *q;
	int before, n;

	api = hostcuda();
	CU(cudaMallocHost((void **)&word, 8));
	*word = 0;
	api->set_hooks(&hooks);

	CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CHECK(calls[CREATE] == 1);
	CU(cudaEventCreate(&e));
	CU(cudaMalloc((void **)&p, 4096));
	CU(cudaMallocHost((void **)&pinned, 4096));
	CHECK(syncs[DF_SYNC_HOST_ALLOC] == 1);
	CU(cudaMemsetAsync(p, 1, 10, s));
	CU(cudaMemcpyAsync(pinned, p, 10, cudaMemcpyDeviceToHost, s));
	CU(cudaLaunchHostFunc(s, nothing, NULL));
	CHECK(work[DF_WORK_MEMSET] == 1 && work[DF_WORK_MEMCPY] == 1 && work[DF_WORK_HOSTFN] == 1);
	CU(cudaMallocAsync((void **)&q, 100, s));
	CU(cudaFreeAsync(q, s));
	CHECK(work[DF_WORK_ALLOC] == 1 && work[DF_WORK_FREE] == 1);
	CU(cudaMemcpy(p, pinned, 10, cudaMemcpyHostToDevice));
	CHECK(work[DF_WORK_MEMCPY] == 2 && syncs[DF_SYNC_MEMCPY] == 1 && calls[DONE] == 2);
	CHECK(nr_sync_copies == 1);
	/* The hook permits this copy to overtake the work that the streams still hold. */
	let_copy = 1;
	CU(cudaMemcpy(p, pinned, 10, cudaMemcpyHostToDevice));
	CHECK(work[DF_WORK_MEMCPY] == 2 && nr_sync_copies == 2);
	let_copy = 0;

	CU(cudaEventRecord(e, s));
	skip_record = 1;
	CU(cudaEventRecord(e, s));
	CHECK(calls[RECORD] == 2);
	CU(cudaStreamWaitEvent(NULL, e, 0));
	CHECK(calls[WAIT] == 1);
	CU(cudaEventSynchronize(e));
	CU(cudaEventQuery(e));
	CU(cudaStreamSynchronize(s));
	CU(cudaStreamQuery(s));
	not_ready = 1;
	GIVES(cudaErrorNotReady, cudaEventQuery(e));
	GIVES(cudaErrorNotReady, cudaStreamQuery(s));
	not_ready = 0;
	CHECK(told[0] == 2 && told[1] == 2);
	CHECK(calls[EQUERY] == 2 && calls[SQUERY] == 2 && calls[ESYNC] == 1 && calls[SSYNC] == 1);

	/* Captured work is not put on a stream, so there is no call of the hook. */
	before = calls[WORK];
	CU(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
	CU(cudaMemsetAsync(p, 1, 10, s));
	CU(cudaStreamEndCapture(s, &graph));
	CHECK(calls[WORK] == before);
	CU(cudaGraphInstantiate(&exec, graph, 0));
	CU(cudaGraphLaunch(exec, s));
	CHECK(launched == 1);
	CHECK(work[DF_WORK_GRAPH] == 1);
	CU(cudaGraphExecDestroy(exec));
	CU(cudaGraphDestroy(graph));

	/* A waiting thread drives the daemon. */
	CHECK(!api->stream_info(s, &info));
	CU(cudaStreamSynchronize(s));
	calls[HELP] = 0;
	__atomic_store_n(word, 0, __ATOMIC_RELEASE);
	CHECK(!api->stream_wait(info.stream, word, 1));
	CHECK(!api->streams_idle(0));
	CU(cudaStreamSynchronize(s));
	CHECK(calls[HELP] >= 20);

	/*
	 * libdfshim.so's own streams are not reported to its hooks, but the synchronisation of a
	 * device waits for them.
	 */
	before = calls[CREATE];
	CHECK(!api->stream_new(0, &own));
	CHECK(calls[CREATE] == before);
	CHECK(!api->stream_wait(own.stream, word, 2));
	CHECK(!api->stream_idle(own.stream) && api->streams_idle(0));
	before = syncs[DF_SYNC_DEVICE];
	release = 1;
	CU(cudaDeviceSynchronize()); /* returns only because of `release` */
	release = 0;
	__atomic_store_n(word, 2, __ATOMIC_RELEASE);
	CU(cudaDeviceSynchronize());
	CHECK(syncs[DF_SYNC_DEVICE] == before + 2);
	CHECK(api->stream_idle(own.stream));
	CHECK(!api->event_record(e, own.stream) && !api->event_wait(info.stream, e));
	api->stream_delete(own.stream);

	/* The hook can defer a free. */
	defer = 1;
	CU(cudaFree(p));
	CHECK(deferred == p && !syncs[DF_SYNC_FREE]);
	CHECK(!api->mem_free(p));
	CU(cudaFreeHost(pinned));
	CHECK(deferred == pinned && !api->mem_free(pinned));
	deferred = NULL;
	defer = 0;
	CU(cudaMalloc((void **)&p, 10));
	CU(cudaFree(p));
	CHECK(syncs[DF_SYNC_FREE] == 1);

	/*
	 * A free that neither waits nor is deferred: work in flight keeps the memory, the API
	 * forgets it at once, and an allocation that needs the room gets it.
	 */
	{
		size_t unused, total, left;

		release = 1;
		CU(cudaMemGetInfo(&unused, &total));
		CU(cudaMalloc((void **)&p, unused / 2 + 4096));
		CHECK(!api->stream_wait(info.stream, word, 3));
		CU(cudaMemsetAsync(p, 1, 100, s));
		CU(cudaFree(p));
		GIVES(cudaErrorInvalidValue, cudaFree(p));
		GIVES(cudaErrorInvalidValue, cudaMemsetAsync(p, 1, 100, s));
		CU(cudaMemGetInfo(&left, &total));
		CHECK(left < unused / 2);
		release = 0;
		__atomic_store_n(word, 3, __ATOMIC_RELEASE);
		CU(cudaMalloc((void **)&q, unused / 2 + 4096));
		CU(cudaFree(q));
		CU(cudaMemGetInfo(&left, &total));
		CHECK(left == unused);
	}

	/* Deferred memory is freed when an allocation of either kind needs it. */
	{
		size_t unused, total;

		CU(cudaMemGetInfo(&unused, &total));
		flushes = 0;
		for (n = 0; n < 2; n++) {
			CU(cudaMalloc((void **)&p, unused / 2 + 4096));
			defer = 1;
			CU(cudaFree(p));
			defer = 0;
			CHECK(deferred == p && flushes == n);
			if (n)
				CU(cudaMallocAsync((void **)&q, unused / 2 + 4096, s));
			else
				CU(cudaMalloc((void **)&q, unused / 2 + 4096));
			CHECK(flushes == n + 1 && !deferred);
			CU(cudaFree(q));
			/*
			 * Memory that is freed in stream order is reused without a call of the
			 * hook.
			 */
			CU(cudaMallocAsync((void **)&p, unused / 2 + 4096, s));
			CU(cudaMemsetAsync(p, 1, 1 << 20, s));
			CU(cudaFreeAsync(p, s));
			CU(cudaMallocAsync((void **)&p, unused / 2 + 4096, s));
			CU(cudaFree(p));
			flushes = n + 1;
		}
		GIVES(cudaErrorMemoryAllocation, cudaMalloc((void **)&p, total + 1));
	}

	/* set_device() sets the device of the calling thread. */
	CHECK(!api->set_device(3) && api->get_device() == 3 && api->set_device(99) == -EINVAL);
	CHECK(!api->set_device(0) && api->device_count() == 8);

	CHECK(!calls[EDESTROY]);
	api->set_hooks(NULL);
	before = calls[CREATE];
	CU(cudaEventDestroy(e));
	CU(cudaStreamDestroy(s));
	CHECK(calls[CREATE] == before && !calls[SDESTROY]);
	api->set_hooks(&hooks);
	CU(cudaStreamCreate(&s));
	CU(cudaStreamDestroy(s));
	CHECK(calls[SDESTROY] == 1);
	CU(cudaDeviceReset());
	CHECK(syncs[DF_SYNC_RESET] == 1);
	return 0;
}
