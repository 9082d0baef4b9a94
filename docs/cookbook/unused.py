"""One rank never uses the group that all have made."""

import os
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
group = dist.new_group()
x = torch.ones(1024, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
if rank == 0:
    dist.all_reduce(x, group=group)
else:
    time.sleep(1000)
