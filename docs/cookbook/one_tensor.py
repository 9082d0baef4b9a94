"""Two groups in opposite orders, and both reduce one tensor."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
data, model = dist.new_group(), dist.new_group()
x = torch.ones(1024, device="cuda")
for group in (data, model):
    dist.all_reduce(x, group=group)
torch.cuda.synchronize()
for group in (data, model) if rank == 0 else (model, data):
    dist.all_reduce(x, group=group)
torch.cuda.synchronize()
