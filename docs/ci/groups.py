# Two groups, used in opposite orders by two ranks, with a synchronisation between: each rank waits for the other.
import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
data, model = dist.new_group([0, 1]), dist.new_group([0, 1])
x, y = torch.ones(1024, device="cuda"), torch.ones(1024, device="cuda")
order = [(data, x), (model, y)]
for group, t in order:  # connected in one order
    dist.all_reduce(t, group=group)
torch.cuda.synchronize()
for group, t in order if dist.get_rank() == 0 else reversed(order):
    dist.all_reduce(t, group=group)
    torch.cuda.synchronize()
dist.destroy_process_group()
