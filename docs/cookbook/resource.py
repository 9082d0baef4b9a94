"""More collectives at once than a device has room for, in opposite orders."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
groups = [dist.new_group() for _ in range(8)]
parts = [torch.ones(1024, device="cuda") for _ in groups]
for part, group in zip(parts, groups):
    dist.all_reduce(part, group=group)
torch.cuda.synchronize()
work = []
for i in range(8) if rank == 0 else reversed(range(8)):
    work.append(dist.all_reduce(parts[i], group=groups[i], async_op=True))
for w in work:
    w.wait()
torch.cuda.synchronize()
print("rank", rank, "has finished", flush=True)
