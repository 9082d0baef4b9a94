"""One rank raises an exception; the others wait for it."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(1024, device="cuda")
for batch in range(5):
    if rank == 1 and batch == 3:
        raise ValueError("image 4711 cannot be decoded")
    dist.all_reduce(x)
    torch.cuda.synchronize()
