"""Both ranks receive first, and send afterwards."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
mine, other = torch.ones(1024, device="cuda"), torch.empty(1024, device="cuda")
dist.all_reduce(mine)
dist.recv(other, src=1 - rank)
dist.send(mine, dst=1 - rank)
torch.cuda.synchronize()
print("rank", rank, "has finished", flush=True)
