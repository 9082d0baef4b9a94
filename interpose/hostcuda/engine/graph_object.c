/*
 * User objects: a program's objects that live as long as graphs. Graphs and executables hold
 * counted references. The thread that drops the last one calls the destructor, as if from a host
 * function (graph.h).
 */
#include "interpose/hostcuda/engine/graph.h"

#include <stdlib.h>

void df_hobject_put(struct df_hobject *object, unsigned count)
{
	/* ACQ_REL pairs with the decrements of others, as in df_hcoll_put(). */
	if (__atomic_sub_fetch(&object->refs, count, __ATOMIC_ACQ_REL))
		return;
	if (!df_hslot_retire(&object->slot))
		return;
	df_htls.in_host_fn++;
	object->destroy(object->arg);
	df_htls.in_host_fn--;
	df_hslab_put(&df_h.objects, object);
}

int df_hhold(struct df_hheld **held, size_t *nr, struct df_hobject *object, unsigned count)
{
	struct df_hheld *v = realloc(*held, (*nr + 1) * sizeof(*v));

	if (!v)
		return -ENOMEM;
	v[*nr] = (struct df_hheld){object, count};
	*held = v;
	++*nr;
	return 0;
}

static cudaError_t graph_arg(cudaGraph_t graph, struct df_hgraph **g)
{
	*g = df_hgraph_find(graph);
	return *g ? cudaSuccess : cudaErrorInvalidValue;
}

DF_H_API cudaError_t cudaUserObjectCreate(cudaUserObject_t *out, void *arg, cudaHostFn_t destroy,
					  unsigned refs, unsigned flags)
{
	struct df_hobject *object;
	cudaError_t err = df_henter();

	if (!err && (!out || !destroy || !refs || refs > INT_MAX ||
		     flags != cudaUserObjectNoDestructorSync))
		err = cudaErrorInvalidValue;
	if (err)
		return df_hret(err);
	object = df_hslab_get(&df_h.objects);
	if (!object)
		return df_hret(cudaErrorMemoryAllocation);
	object->destroy = destroy;
	object->arg = arg;
	/* RELAXED: the object is published below. */
	__atomic_store_n(&object->refs, refs, __ATOMIC_RELAXED);
	df_hslot_publish(&object->slot);
	*out = (cudaUserObject_t)object;
	return cudaSuccess;
}

static cudaError_t object_arg(cudaUserObject_t handle, unsigned count, struct df_hobject **object)
{
	cudaError_t err = df_henter();

	*object = err ? NULL : df_hslab_find(&df_h.objects, handle);
	return err				      ? err
	       : *object && count && count <= INT_MAX ? cudaSuccess
						      : cudaErrorInvalidValue;
}

DF_H_API cudaError_t cudaUserObjectRetain(cudaUserObject_t handle, unsigned count)
{
	struct df_hobject *object;
	cudaError_t err = object_arg(handle, count, &object);

	if (!err)
		/* RELAXED: the caller holds a reference. */
		__atomic_fetch_add(&object->refs, count, __ATOMIC_RELAXED);
	return df_hret(err);
}

DF_H_API cudaError_t cudaUserObjectRelease(cudaUserObject_t handle, unsigned count)
{
	struct df_hobject *object;
	cudaError_t err = object_arg(handle, count, &object);

	if (!err)
		df_hobject_put(object, count);
	return df_hret(err);
}

DF_H_API cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t handle,
					       unsigned count, unsigned flags)
{
	struct df_hobject *object;
	struct df_hgraph *g;
	cudaError_t err = object_arg(handle, count, &object);

	if (!err)
		err = graph_arg(graph, &g);
	if (!err && flags > cudaGraphUserObjectMove)
		err = cudaErrorInvalidValue;
	if (!err)
		err = df_herr(df_hhold(&g->held, &g->nr_held, object, count));
	if (!err && flags != cudaGraphUserObjectMove)
		/* RELAXED: the caller holds a reference. */
		__atomic_fetch_add(&object->refs, count, __ATOMIC_RELAXED);
	return df_hret(err);
}

DF_H_API cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t handle,
						unsigned count)
{
	struct df_hobject *object;
	struct df_hgraph *g;
	cudaError_t err = object_arg(handle, count, &object);
	unsigned left = count, n;
	size_t i;

	if (!err)
		err = graph_arg(graph, &g);
	for (i = 0; !err && i < g->nr_held && left; i++) {
		if (g->held[i].object != object)
			continue;
		n = DF_MIN(left, g->held[i].count);
		g->held[i].count -= n;
		left -= n;
	}
	if (!err && left == count)
		err = cudaErrorInvalidValue;
	if (!err)
		df_hobject_put(object, count - left);
	return df_hret(err);
}
