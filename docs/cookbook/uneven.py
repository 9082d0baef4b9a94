"""One rank has fewer batches than the other."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(1024, device="cuda")
for batch in range(5 if rank == 0 else 4):
    dist.all_reduce(x)
    torch.cuda.synchronize()
