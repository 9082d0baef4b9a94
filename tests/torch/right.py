#!/usr/bin/env python3
"""Correct trainings, as people write them: `dfshim ci` must find no deadlock in any.

    dfshim ci -n 2 -- python3 right.py CASE [--steps N]

Exit status: 0.
"""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

WIDTH = 32


def mlp(layers=3):
    torch.manual_seed(7)
    parts = []
    for _ in range(layers):
        parts += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    return nn.Sequential(*parts, nn.Linear(WIDTH, 8))


def batch(device):
    return torch.randn(8, WIDTH, device=device), torch.randn(8, 8, device=device)


def train(model, device, steps, after=None, losses=F.mse_loss):
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        x, y = batch(device)
        loss = losses(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if after:
            after(step, loss)


def ddp_eval(device, steps):
    """DDP, whose mean loss is looked at every eighth step, in the middle of a step at times."""
    model = nn.parallel.DistributedDataParallel(mlp().to(device), device_ids=[device.index], bucket_cap_mb=0.01)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        x, y = batch(device)
        loss = F.mse_loss(model(x), y)
        if step % 3 == 0:  # between forward and backward
            mean = loss.detach().clone()
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            mean.item()
        loss.backward()
        opt.step()
        opt.zero_grad()
        if step % 8 == 7:
            with torch.no_grad():
                total = F.mse_loss(model.module(x), y)
            dist.broadcast(total, 0)
            total.item()
            torch.cuda.synchronize()
    dist.barrier()


def ddp_accumulate(device, steps):
    """Gradients of two batches, reduced with the second; buffers are broadcast; the last batches are uneven."""
    model = nn.Sequential(mlp(), nn.BatchNorm1d(8)).to(device)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[device.index], find_unused_parameters=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    with model.join():
        for step in range(steps + (dist.get_rank() == 0)):
            with model.no_sync():
                x, y = batch(device)
                F.mse_loss(model(x), y).backward()
            x, y = batch(device)
            F.mse_loss(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()


def fsdp2(device, steps):
    """FSDP2 with a norm that all ranks share, and a loss that is averaged now and then."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = mlp().to(device)
    for part in model:
        if isinstance(part, nn.Linear):
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)

    def after(step, loss):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if step % 4 == 3:
            mean = loss.detach().clone()
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            mean.item()

    train(model, device, steps, after)


def tensor_parallel(device, steps):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)

    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = parallelize_module(mlp(4).to(device), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel(),
                                                        "4": ColwiseParallel(), "6": RowwiseParallel()})
    opt = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    for step in range(steps):
        torch.manual_seed(step)
        x, y = batch(device)
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss.item()


def pipeline(device, steps):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = list(mlp(2 * ranks - 2))
    share = -(-len(parts) // ranks)
    mine = nn.Sequential(*parts[rank * share : (rank + 1) * share]).to(device)
    schedule = Schedule1F1B(PipelineStage(mine, rank, ranks, device), n_microbatches=2 * ranks, loss_fn=F.mse_loss)
    opt = torch.optim.SGD(mine.parameters(), lr=0.05)
    for step in range(steps):
        x, y = torch.randn(4 * ranks, WIDTH, device=device), torch.randn(4 * ranks, 8, device=device)
        opt.zero_grad()
        losses = []
        if rank == 0:
            schedule.step(x)
        elif rank == ranks - 1:
            schedule.step(target=y, losses=losses)
        else:
            schedule.step()
        opt.step()
        loss = torch.stack([l.detach() for l in losses]).mean() if losses else torch.zeros((), device=device)
        dist.broadcast(loss, src=ranks - 1)
        loss.item()


def checkpoint(device, steps):
    """FSDP2, whose state is saved by a thread while the training goes on, and loaded at the end."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = mlp().to(device)
    fully_shard(model, mesh=mesh)
    where = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(where, 0)
    saving = []

    def after(step, loss):
        if step % 5 == 4:
            for s in saving:
                s.result()
            saving[:] = [dcp.async_save({"model": model.state_dict()}, checkpoint_id=os.path.join(where[0], str(step)))]

    train(model, device, steps, after)
    for s in saving:
        s.result()
    dist.barrier()
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=os.path.join(where[0], str(steps // 5 * 5 - 1)))
    model.load_state_dict(state["model"])
    dist.barrier()


def threads(device, steps):
    """A loader's thread copies the batches to the GPU; the training waits for each."""
    import queue
    import threading

    ready = queue.Queue(2)

    def load():
        side = torch.cuda.Stream(device)
        for _ in range(steps):
            with torch.cuda.stream(side):
                x = torch.randn(8, WIDTH).pin_memory().to(device, non_blocking=True)
            side.synchronize()
            ready.put(x)

    loader = threading.Thread(target=load)
    loader.start()
    model = nn.parallel.DistributedDataParallel(mlp().to(device), device_ids=[device.index])
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        x = ready.get()
        loss = model(x).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        dist.all_reduce(loss.detach())
        torch.cuda.synchronize()
    loader.join()


CASES = {f.__name__: f for f in (ddp_eval, ddp_accumulate, fsdp2, tensor_parallel, pipeline, checkpoint, threads)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    # The thread that saves a checkpoint has the CPU's group.
    dist.init_process_group("cpu:gloo,cuda:nccl" if args.case == "checkpoint" else "nccl", device_id=device)
    CASES[args.case](device, args.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
