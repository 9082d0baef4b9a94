"""Only the rank that uses a group makes it."""

import os
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(1024, device="cuda")
if rank == 0:
    group = dist.new_group([0, 1])
    dist.all_reduce(x, group=group)
else:
    time.sleep(1000)
