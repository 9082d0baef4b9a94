"""One rank does not come back from its data loader."""

import os
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(1024, device="cuda")


def load_batch(step):
    if rank == 1 and step == 3:
        time.sleep(1000)


for step in range(5):
    load_batch(step)
    dist.all_reduce(x)
    torch.cuda.synchronize()
