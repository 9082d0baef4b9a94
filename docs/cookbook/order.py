"""Two groups, first used in opposite orders."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
data, model = dist.new_group(), dist.new_group()
gradients, activations = torch.ones(1024, device="cuda"), torch.ones(1024, device="cuda")


def reduce_gradients():
    dist.all_reduce(gradients, group=data)


def reduce_activations():
    dist.all_reduce(activations, group=model)


if rank == 0:
    reduce_gradients()
    reduce_activations()
else:
    reduce_activations()
    reduce_gradients()
torch.cuda.synchronize()
print("rank", rank, "has finished", flush=True)
