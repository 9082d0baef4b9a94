"""Both ranks receive first, and send what they have received."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(1024, device="cuda")
dist.all_reduce(x)
dist.recv(x, src=1 - rank)
dist.send(x, dst=1 - rank)
torch.cuda.synchronize()
