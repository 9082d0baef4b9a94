"""PyTorch's CUDA on a machine without a GPU: what `dfshim run --host` brings along.

The memory of the CPU backend is memory of the process, so a CUDA tensor there can be read by a CPU
operator. `operators` gives every operator that has a CUDA kernel a form that computes on the CPU in
stream order, which `streams` puts on the stream; `kernels` has the few that exist for CUDA only.
Everything else is PyTorch's own: autograd, autocast, streams, events, graphs, the allocator,
torch.distributed.

Loaded by `start` when a program imports torch; a program names nothing of this.
"""
