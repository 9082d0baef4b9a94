/*
 * Functions that have another form in programs compiled against CUDA 12 (rows DF_CUDA_12 of
 * api.def). Each is exported as name@libcudart.so.12 and calls CUDA 13's function of the same
 * meaning.
 */
#include <stddef.h>
#include <string.h>

#include "interpose/hostcuda/internal.h"

#define DF12(name, params, call)                                                                   \
	DF_H_VERSION_12(name)                                                                      \
	DF_H_API cudaError_t df12_##name params;                                                   \
	DF_H_API cudaError_t df12_##name params                                                    \
	{                                                                                          \
		return call;                                                                       \
	}

DF12(cudaGraphAddDependencies,
     (cudaGraph_t g, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t nr),
     cudaGraphAddDependencies(g, from, to, NULL, nr))
DF12(cudaGraphRemoveDependencies,
     (cudaGraph_t g, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t nr),
     cudaGraphRemoveDependencies(g, from, to, NULL, nr))
DF12(cudaGraphGetEdges, (cudaGraph_t g, cudaGraphNode_t *from, cudaGraphNode_t *to, size_t *nr),
     cudaGraphGetEdges(g, from, to, NULL, nr))
DF12(cudaGraphNodeGetDependencies, (cudaGraphNode_t node, cudaGraphNode_t *deps, size_t *nr),
     cudaGraphNodeGetDependencies(node, deps, NULL, nr))
DF12(cudaGraphNodeGetDependentNodes, (cudaGraphNode_t node, cudaGraphNode_t *nodes, size_t *nr),
     cudaGraphNodeGetDependentNodes(node, nodes, NULL, nr))
DF12(cudaGraphAddNode,
     (cudaGraphNode_t * out, cudaGraph_t g, const cudaGraphNode_t *deps, size_t nr,
      struct cudaGraphNodeParams *p),
     cudaGraphAddNode(out, g, deps, NULL, nr, p))
DF12(cudaStreamGetCaptureInfo,
     (cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id),
     cudaStreamGetCaptureInfo(s, status, id, NULL, NULL, NULL, NULL))
DF12(cudaStreamGetCaptureInfo_ptsz,
     (cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id),
     cudaStreamGetCaptureInfo(df_hpt(s), status, id, NULL, NULL, NULL, NULL))
DF12(cudaStreamGetCaptureInfo_v2,
     (cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *g,
      const cudaGraphNode_t **deps, size_t *nr),
     cudaStreamGetCaptureInfo(s, status, id, g, deps, NULL, nr))
DF12(cudaStreamGetCaptureInfo_v2_ptsz,
     (cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *g,
      const cudaGraphNode_t **deps, size_t *nr),
     cudaStreamGetCaptureInfo(df_hpt(s), status, id, g, deps, NULL, nr))
DF12(cudaStreamUpdateCaptureDependencies,
     (cudaStream_t s, cudaGraphNode_t *deps, size_t nr, unsigned flags),
     cudaStreamUpdateCaptureDependencies(s, deps, NULL, nr, flags))
DF12(cudaStreamUpdateCaptureDependencies_ptsz,
     (cudaStream_t s, cudaGraphNode_t *deps, size_t nr, unsigned flags),
     cudaStreamUpdateCaptureDependencies(df_hpt(s), deps, NULL, nr, flags))

static struct cudaMemLocation at(int device)
{
	return (struct cudaMemLocation){
		device < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice, device};
}

DF12(cudaMemAdvise, (const void *ptr, size_t n, enum cudaMemoryAdvise advice, int device),
     cudaMemAdvise(ptr, n, advice, at(device)))
DF12(cudaMemPrefetchAsync, (const void *ptr, size_t n, int device, cudaStream_t s),
     cudaMemPrefetchAsync(ptr, n, at(device), 0, s))
DF12(cudaMemPrefetchAsync_ptsz, (const void *ptr, size_t n, int device, cudaStream_t s),
     cudaMemPrefetchAsync(ptr, n, at(device), 0, df_hpt(s)))

/* CUDA 12's structure ends before `reserved`: the caller has no memory for more. */
DF_H_VERSION_12(cudaPointerGetAttributes)
DF_H_API cudaError_t df12_cudaPointerGetAttributes(struct cudaPointerAttributes *out,
						   const void *ptr);
DF_H_API cudaError_t df12_cudaPointerGetAttributes(struct cudaPointerAttributes *out,
						   const void *ptr)
{
	struct cudaPointerAttributes all;
	cudaError_t err = cudaPointerGetAttributes(out ? &all : NULL, ptr);

	if (!err)
		memcpy(out, &all,
		       offsetof(struct cudaPointerAttributes, hostPointer) +
			       sizeof(all.hostPointer));
	return err;
}
