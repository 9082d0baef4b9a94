"""Makes a hang that PyTorch's Flight Recorder and dfshim record at the same time: rank 1 leaves out
the third all-reduce.

  TORCH_NCCL_TRACE_BUFFER_SIZE=200 dfshim run --host -n 2 --rules nccl --timeout 25 --trace TRACES -- python3 recorder.py DUMPS

Each rank writes the record of the Flight Recorder into DUMPS, and then waits.
"""

import os
import sys
import threading

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

rank = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
values = torch.ones(64, device="cuda")
for step in range(2):
    dist.all_reduce(values)
    torch.cuda.synchronize()
if rank == 0:
    dist.all_reduce(values)  # the line
try:
    dump = _distributed_c10d._dump_fr_trace(backend="nccl2")
except (AttributeError, TypeError):  # PyTorch has one recorder for each backend since 2.15
    dump = _distributed_c10d._dump_nccl_trace()
with open(os.path.join(sys.argv[1], f"nccl_trace_rank_{rank}"), "wb") as f:
    f.write(dump)
if rank == 0:
    torch.cuda.synchronize()
threading.Event().wait()
