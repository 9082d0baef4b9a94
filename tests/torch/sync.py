"""Uses two groups of all ranks, which the ranks use in opposite orders, with a tensor for each and a
wait of the host in between.

  sync.py [--cold] [--backward] [CASE...]

Without a case: all that dfshim executes to their end. Each case has groups of its own. The ranks
use them in one order first, except with --cold. --backward: after a backward pass of
DistributedDataParallel, whose thread of autograd then sleeps. These run only by name, because they
must hang:

  stream      the host waits for its stream, and so for the result (DATA)
  barrier     barriers of both groups, each of which is a promise between hosts (DATA)
  models      backward passes of two models, one on each group: the second model's kernels are
              queued behind the first model's all-reduce on one stream, so a release of the wait
              would only move the cycle (SYNC)
"""

import argparse
import datetime
import os
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SUM = WORLD * (WORLD + 1) // 2


def order():
    return (0, 1) if RANK % 2 == 0 else (1, 0)


def model(group=None):
    return DistributedDataParallel(torch.nn.Linear(4, 4).cuda(), device_ids=[RANK], process_group=group)


def step(m):
    m(torch.ones(2, 4, device="cuda")).sum().backward()


def disordered(groups, between, times=2, each=lambda: None, **kinds):
    """Reduces a tensor on each group, and calls `between` after each."""
    for _ in range(times):
        each()
        tensors = [torch.full((1000,), float(RANK + 1), device="cuda") for _ in groups]
        torch.cuda.synchronize()
        for k in order():
            between(dist.all_reduce(tensors[k], group=groups[k], **kinds))
        torch.cuda.synchronize()
        for t in tensors:
            assert t[7].item() == SUM, (RANK, t[7].item(), SUM)


def device(groups):
    disordered(groups, lambda work: torch.cuda.synchronize())


def later(groups):
    def between(work):
        torch.cuda.synchronize()
        work.wait()

    disordered(groups, between, async_op=True)


def wait(groups):
    disordered(groups, lambda work: work.wait(), async_op=True)


def item(groups):
    other = torch.ones(3, device="cuda")
    disordered(groups, lambda work: other.sum().item(), async_op=True)


def each_step(groups):
    m = model()
    disordered(groups, lambda work: torch.cuda.synchronize(), each=lambda: step(m))


def own_group(groups):
    m = model(groups[0])
    disordered(groups, lambda work: torch.cuda.synchronize(), each=lambda: step(m))


def ended_thread(groups):
    third = dist.new_group()

    def helper():
        torch.cuda.set_device(RANK)
        dist.all_reduce(torch.ones(1, device="cuda"), group=third)
        torch.cuda.synchronize()

    thread = threading.Thread(target=helper)
    thread.start()
    thread.join()
    disordered(groups, lambda work: torch.cuda.synchronize())


def stream(groups):
    disordered(groups, lambda work: torch.cuda.current_stream().synchronize())


def barrier(groups):
    for k in order():
        dist.barrier(group=groups[k])


def models(groups):
    both = [model(group) for group in groups]
    for k in order():
        step(both[k])
        torch.cuda.synchronize()


FINISH = (device, later, wait, item, each_step, own_group, ended_thread)
HANG = (stream, barrier, models)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--cold", action="store_true")
    options.add_argument("--backward", action="store_true")
    options.add_argument("case", nargs="*")
    args = options.parse_args()
    cases = {case.__name__: case for case in FINISH + HANG}
    torch.cuda.set_device(RANK)
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=600))
    if args.backward:
        step(model())
    for name in args.case or [case.__name__ for case in FINISH]:
        groups = [dist.new_group() for _ in range(2)]
        if not args.cold:
            for group in groups:
                dist.all_reduce(torch.ones(4, device="cuda"), group=group)
            torch.cuda.synchronize()
        cases[name](groups)
        if RANK == 0:
            print(name, "has finished", flush=True)
    dist.destroy_process_group()


main()
