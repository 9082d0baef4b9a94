"""Two groups in opposite orders, and a result that is needed in between."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
groups = [dist.new_group(), dist.new_group()]
x = torch.ones(1024, device="cuda")


def total(group):
    dist.all_reduce(x, group=group)
    return x[0].item()


for group in groups:
    total(group)
first, second = groups if rank == 0 else reversed(groups)
scale = total(first)
x.div_(scale)
total(second)
