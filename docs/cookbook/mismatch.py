"""The ranks reduce tensors of different sizes."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
tokens = 1000 if rank == 0 else 1024
x = torch.ones(tokens, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
