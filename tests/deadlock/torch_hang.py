"""A PyTorch job that hangs by NCCL's rules, for the verdict in mode trace.

    torch_hang.py circle    two groups in opposite orders, the device synchronised in between
    torch_hang.py missing   rank 1 stays in its data loader
"""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])


def reduce(t, group):
    dist.all_reduce(t, group=group)
    torch.cuda.synchronize()


def forward(t, group):
    reduce(t, group)


def backward(t, group):
    reduce(t, group)


def load_batch(case, step):
    if case == "missing" and RANK == 1 and step == 2:
        time.sleep(1000)


def main(case):
    torch.cuda.set_device(RANK)
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=600))
    a, b = dist.new_group(), dist.new_group()
    # Both are connected before.
    x, y = (torch.ones(1024, device="cuda") for _ in range(2))
    forward(x, a)
    backward(y, b)
    for step in range(4):
        load_batch(case, step)
        if case == "circle" and RANK == 1:
            backward(y, b)
            forward(x, a)
        else:
            forward(x, a)
            backward(y, b)


main(sys.argv[1])
