/*
 * Stream functions for programs compiled with --default-stream per-thread: stream 0 means the
 * calling thread's own stream. Copies, kernels and pools define theirs in their own files.
 */
#include "interpose/hostcuda/internal.h"

DF_H_API __typeof__(cudaStreamBeginCapture) cudaStreamBeginCapture_ptsz;
DF_H_API cudaError_t cudaStreamBeginCapture_ptsz(cudaStream_t stream,
						 enum cudaStreamCaptureMode mode)
{
	return cudaStreamBeginCapture(df_hpt(stream), mode);
}

DF_H_API __typeof__(cudaStreamBeginCaptureToGraph) cudaStreamBeginCaptureToGraph_ptsz;
DF_H_API cudaError_t cudaStreamBeginCaptureToGraph_ptsz(cudaStream_t stream, cudaGraph_t graph,
							const cudaGraphNode_t *deps,
							const cudaGraphEdgeData *edges, size_t nr,
							enum cudaStreamCaptureMode mode)
{
	return cudaStreamBeginCaptureToGraph(df_hpt(stream), graph, deps, edges, nr, mode);
}

DF_H_API __typeof__(cudaStreamEndCapture) cudaStreamEndCapture_ptsz;
DF_H_API cudaError_t cudaStreamEndCapture_ptsz(cudaStream_t stream, cudaGraph_t *graph)
{
	return cudaStreamEndCapture(df_hpt(stream), graph);
}

DF_H_API __typeof__(cudaStreamGetCaptureInfo) cudaStreamGetCaptureInfo_ptsz;
DF_H_API cudaError_t cudaStreamGetCaptureInfo_ptsz(cudaStream_t stream,
						   enum cudaStreamCaptureStatus *status,
						   unsigned long long *id, cudaGraph_t *graph,
						   const cudaGraphNode_t **deps,
						   const cudaGraphEdgeData **edges, size_t *nr)
{
	return cudaStreamGetCaptureInfo(df_hpt(stream), status, id, graph, deps, edges, nr);
}

DF_H_API __typeof__(cudaStreamIsCapturing) cudaStreamIsCapturing_ptsz;
DF_H_API cudaError_t cudaStreamIsCapturing_ptsz(cudaStream_t stream,
						enum cudaStreamCaptureStatus *status)
{
	return cudaStreamIsCapturing(df_hpt(stream), status);
}

DF_H_API __typeof__(cudaStreamUpdateCaptureDependencies) cudaStreamUpdateCaptureDependencies_ptsz;
DF_H_API cudaError_t cudaStreamUpdateCaptureDependencies_ptsz(cudaStream_t stream,
							      cudaGraphNode_t *deps,
							      const cudaGraphEdgeData *edges,
							      size_t nr, unsigned flags)
{
	return cudaStreamUpdateCaptureDependencies(df_hpt(stream), deps, edges, nr, flags);
}

#define PT1(name)                                                                                  \
	DF_H_API __typeof__(name) name##_ptsz;                                                     \
	DF_H_API cudaError_t name##_ptsz(cudaStream_t stream)                                      \
	{                                                                                          \
		return name(df_hpt(stream));                                                       \
	}

PT1(cudaStreamSynchronize)
PT1(cudaStreamQuery)

DF_H_API __typeof__(cudaStreamGetAttribute) cudaStreamGetAttribute_ptsz;
DF_H_API cudaError_t cudaStreamGetAttribute_ptsz(cudaStream_t stream, cudaStreamAttrID attr,
						 cudaStreamAttrValue *value)
{
	return cudaStreamGetAttribute(df_hpt(stream), attr, value);
}

DF_H_API __typeof__(cudaStreamSetAttribute) cudaStreamSetAttribute_ptsz;
DF_H_API cudaError_t cudaStreamSetAttribute_ptsz(cudaStream_t stream, cudaStreamAttrID attr,
						 const cudaStreamAttrValue *value)
{
	return cudaStreamSetAttribute(df_hpt(stream), attr, value);
}

DF_H_API __typeof__(cudaStreamCopyAttributes) cudaStreamCopyAttributes_ptsz;
DF_H_API cudaError_t cudaStreamCopyAttributes_ptsz(cudaStream_t dst, cudaStream_t src)
{
	return cudaStreamCopyAttributes(df_hpt(dst), df_hpt(src));
}

DF_H_API __typeof__(cudaStreamAttachMemAsync) cudaStreamAttachMemAsync_ptsz;
DF_H_API cudaError_t cudaStreamAttachMemAsync_ptsz(cudaStream_t stream, void *ptr, size_t length,
						   unsigned flags)
{
	return cudaStreamAttachMemAsync(df_hpt(stream), ptr, length, flags);
}

DF_H_API __typeof__(cudaLaunchHostFunc) cudaLaunchHostFunc_ptsz;
DF_H_API cudaError_t cudaLaunchHostFunc_ptsz(cudaStream_t stream, cudaHostFn_t fn, void *arg)
{
	return cudaLaunchHostFunc(df_hpt(stream), fn, arg);
}

DF_H_API __typeof__(cudaStreamAddCallback) cudaStreamAddCallback_ptsz;
DF_H_API cudaError_t cudaStreamAddCallback_ptsz(cudaStream_t stream, cudaStreamCallback_t fn,
						void *arg, unsigned flags)
{
	return cudaStreamAddCallback(df_hpt(stream), fn, arg, flags);
}

DF_H_API __typeof__(cudaEventRecord) cudaEventRecord_ptsz;
DF_H_API cudaError_t cudaEventRecord_ptsz(cudaEvent_t event, cudaStream_t stream)
{
	return cudaEventRecord(event, df_hpt(stream));
}

DF_H_API __typeof__(cudaEventRecordWithFlags) cudaEventRecordWithFlags_ptsz;
DF_H_API cudaError_t cudaEventRecordWithFlags_ptsz(cudaEvent_t event, cudaStream_t stream,
						   unsigned flags)
{
	return cudaEventRecordWithFlags(event, df_hpt(stream), flags);
}

DF_H_API __typeof__(cudaStreamWaitEvent) cudaStreamWaitEvent_ptsz;
DF_H_API cudaError_t cudaStreamWaitEvent_ptsz(cudaStream_t stream, cudaEvent_t event,
					      unsigned flags)
{
	return cudaStreamWaitEvent(df_hpt(stream), event, flags);
}
