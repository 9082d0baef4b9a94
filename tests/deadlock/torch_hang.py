"""A PyTorch job that hangs by NCCL's rules, for the verdict in mode trace.

    torch_hang.py circle    two groups in opposite orders, the device synchronised in between
    torch_hang.py missing   rank 1 stays in its data loader
    torch_hang.py lock      a thread waits for a result and holds a lock that another thread needs
    torch_hang.py script    the same, and the lock is the interpreter's
    torch_hang.py queue     the other thread waits for a queue
    torch_hang.py copies    two groups in opposite orders, a copy of another tensor from the CPU and one to it in between

By dfshim's rules the last one finishes.
"""

import ctypes
import datetime
import os
import queue
import sys
import threading
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


def copies(x, a, y, b):
    u = torch.zeros(300, device="cuda")
    for step in range(3):
        x.fill_(1)
        y.fill_(1)
        torch.cuda.synchronize()
        for t, group in ((x, a), (y, b)) if RANK == 0 else ((y, b), (x, a)):
            dist.all_reduce(t, group=group)
            source = torch.full((300,), float(step + 1))
            u.copy_(source)
            source.fill_(-1)
            assert u.cpu()[7] == step + 1, u
        torch.cuda.synchronize()
        assert x[3].item() == 2 and y[3].item() == 2, (x, y)
    dist.destroy_process_group()


LOCK, QUEUE, RUNS = threading.Lock(), queue.Queue(), threading.Event()


def helper(case, t, group):
    torch.cuda.set_device(RANK)
    RUNS.set()
    if case == "queue":
        QUEUE.get()
    while case == "script":
        time.sleep(0.001)
    with LOCK:
        reduce(t, group)


def wait(case):
    stream = torch.cuda.current_stream()
    if case == "script":
        ctypes.PyDLL(None).cudaStreamSynchronize(ctypes.c_void_p(stream.cuda_stream))
    else:
        stream.synchronize()


def threads(case, x, a, y, b):
    """Rank 1 waits for group B. Rank 0's second thread would issue B's operation, but its first thread
    waits for group A."""
    if RANK == 1:
        dist.all_reduce(y, group=b)
        wait("")
        return
    other = threading.Thread(target=helper, args=(case, y, b), daemon=True)
    with LOCK:
        other.start()
        RUNS.wait()
        if case == "queue":
            LOCK.release()
        dist.all_reduce(x, group=a)
        wait(case)


def main(case):
    torch.cuda.set_device(RANK)
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=600))
    a, b = dist.new_group(), dist.new_group()
    # Connect both groups first.
    x, y = (torch.ones(1024, device="cuda") for _ in range(2))
    forward(x, a)
    backward(y, b)
    if case == "copies":
        return copies(x, a, y, b)
    if case in ("lock", "script", "queue"):
        threads(case, x, a, y, b)
    for step in range(4):
        load_batch(case, step)
        if case == "circle" and RANK == 1:
            backward(y, b)
            forward(x, a)
        else:
            forward(x, a)
            backward(y, b)


main(sys.argv[1])
