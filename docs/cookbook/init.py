"""A communicator that one rank never makes."""

import os
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("gloo")
if rank == 1:
    time.sleep(1000)
group = dist.new_group([0, 1], backend="nccl", use_local_synchronization=True)
