/*
 * Preloaded before libnccl.so.2: an NCCL that launches a CUDA graph of its own in each call of
 * ncclAllReduce(), on the stream of the call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static void *driver(const char *name)
{
	return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), name);
}

static int launch_graph(void *stream)
{
	int (*create)(void **, unsigned), (*make)(void **, void *, unsigned long long),
		(*launch)(void *, void *), (*destroy)(void *), (*drop)(void *);
	void *graph = NULL, *exec = NULL;
	int ret;

	*(void **)&create = driver("cuGraphCreate");
	*(void **)&make = driver("cuGraphInstantiateWithFlags");
	*(void **)&launch = driver("cuGraphLaunch");
	*(void **)&destroy = driver("cuGraphExecDestroy");
	*(void **)&drop = driver("cuGraphDestroy");
	ret = create(&graph, 0);
	if (!ret)
		ret = make(&exec, graph, 0);
	if (!ret)
		ret = launch(exec, stream);
	if (!ret)
		ret = destroy(exec);
	return ret ? ret : drop(graph);
}

int pncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *comm,
		   void *stream)
{
	int (*next)(const void *, void *, size_t, int, int, void *, void *);

	if (launch_graph(stream))
		return 1; /* ncclUnhandledCudaError */
	*(void **)&next = dlsym(RTLD_NEXT, "pncclAllReduce");
	return next(from, to, count, type, op, comm, stream);
}
