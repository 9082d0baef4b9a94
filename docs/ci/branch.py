# A branch that depends on the rank around a collective: the others wait in theirs.
import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
loss = torch.ones(1, device="cuda")
dist.all_reduce(loss)
if dist.get_rank() == 0:  # "only rank 0 logs": but the mean needs all ranks
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    print("mean loss", loss.item())
torch.cuda.synchronize()
dist.destroy_process_group()
