# Two stages of a pipeline, each of which sends before it receives: it works as long as the messages fit into buffers.
import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
rank, peer = dist.get_rank(), 1 - dist.get_rank()
activation = torch.full((64,), float(rank), device="cuda")
gradient = torch.empty_like(activation)
# The first messages connect the ranks, each with a call on both: in a batch they do not wait for one another.
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, activation, peer), dist.P2POp(dist.irecv, gradient, peer)]):
    work.wait()
dist.send(activation, peer)
dist.recv(gradient, peer)
torch.cuda.synchronize()
assert gradient[0].item() == peer
dist.destroy_process_group()
