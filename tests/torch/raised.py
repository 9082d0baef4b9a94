"""Hangs where mode trace can end it: the counts of the last all-reduce differ.

  DFSHIM_TIMEOUT_ACTION=abort dfshim run --host -n 2 --rules nccl -- python3 raised.py [wait]

PyTorch must raise an error in Python: in the next collective, or with "wait" and
TORCH_NCCL_BLOCKING_WAIT=1 in the wait for the stuck one. Each rank prints the error on one line.
"""

import os
import sys

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
values = torch.ones(64, device="cuda")
dist.all_reduce(values)
torch.cuda.synchronize()
try:
    work = dist.all_reduce(values[: 64 - rank], async_op=True)
    if "wait" in sys.argv:
        work.wait()
    torch.cuda.synchronize()
    dist.all_reduce(values)
except dist.DistError as e:
    # One write, because the ranks share the output.
    os.write(1, f"rank {rank} raised {type(e).__name__}: {' '.join(str(e).split())}\n".encode())
    raise
