"""Two groups, and a wait for the whole device between their operations."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
groups = [dist.new_group(), dist.new_group()]
tensors = {group: torch.ones(1024, device="cuda") for group in groups}


def reduce(group):
    dist.all_reduce(tensors[group], group=group)
    torch.cuda.synchronize()


for step in range(3):
    for group in groups:
        reduce(group)
# From here on rank 1 takes them the other way round.
for group in groups if rank == 0 else reversed(groups):
    reduce(group)
print("rank", rank, "has finished", flush=True)
