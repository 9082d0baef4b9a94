#!/usr/bin/env python3
"""PyTorch jobs for the GPU tests: plain torch.distributed programs with nothing of dfshim in them.

    python3 -m torch.distributed.run --nproc-per-node 4 torch_jobs.py CASE [--device cpu|own]

All ranks share cuda:0, so NCCL itself refuses the job ("Duplicate GPU detected"); under the preload it runs. With
--device own each rank has the GPU of its local rank.
Training jobs compare their loss curve with the same job on one process, which every rank computes for itself
before the first collective. With --device cpu the backend is gloo: that checks the jobs, not dfshim.

Exit status: 0 right, 1 wrong.
"""

import argparse
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

STEPS = 12
WIDTH = 64
BATCH = 16  # for each rank


def mlp(layers=4):
    torch.manual_seed(7)
    parts = []
    for _ in range(layers):
        parts += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    return nn.Sequential(*parts, nn.Linear(WIDTH, 8))


def data(step, ranks):
    """Returns the whole batch of a step, the same on all ranks."""
    gen = torch.Generator().manual_seed(1000 + step)
    x = torch.randn(BATCH * ranks, WIDTH, generator=gen)
    return x, x[:, :8].sin()


def reference(model, ranks, device):
    """Returns the losses of the job in one process."""
    model = model.to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(STEPS):
        x, y = (t.to(device) for t in data(step, ranks))
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def close(name, ours, theirs, tolerance=2e-4):
    worst = max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(ours, theirs))
    if len(ours) != len(theirs) or not worst < tolerance:
        print(f"{name}: losses {ours} but one process has {theirs}")
        sys.exit(1)
    if dist.get_rank() == 0:
        print(f"{name}: {len(ours)} losses, worst relative difference {worst:.1e}")


def expect(ok, text):
    if not ok:
        print(f"rank {dist.get_rank()}: {text}")
        sys.exit(1)


def data_parallel(name, model, params, device):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    opt = torch.optim.SGD(params, lr=0.05)
    losses = []
    for step in range(STEPS):
        x, y = (t[rank * BATCH : (rank + 1) * BATCH].to(device) for t in data(step, ranks))
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        losses.append(whole.item() / ranks)
    return losses


def ddp(device):
    theirs = reference(mlp(), dist.get_world_size(), device)
    model = nn.parallel.DistributedDataParallel(mlp().to(device), bucket_cap_mb=0.02)
    close("ddp", data_parallel("ddp", model, model.parameters(), device), theirs)


def fsdp2(device):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    theirs = reference(mlp(), dist.get_world_size(), device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    model = mlp().to(device)
    for part in model:
        if isinstance(part, nn.Linear):
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    close("fsdp2", data_parallel("fsdp2", model, model.parameters(), device), theirs)


def tensor_parallel(device):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)

    ranks = dist.get_world_size()
    theirs = reference(mlp(), ranks, device)
    mesh = init_device_mesh(device.type, (ranks,))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel(), "4": ColwiseParallel(), "6": RowwiseParallel()}
    model = parallelize_module(mlp().to(device), mesh, plan)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    losses = []
    for step in range(STEPS):
        x, y = (t.to(device) for t in data(step, ranks))
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    close("tensor parallel", losses, theirs)


def pipeline(device):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, ranks = dist.get_rank(), dist.get_world_size()
    theirs = reference(mlp(2 * ranks - 2), ranks, device)
    parts = list(mlp(2 * ranks - 2))
    share = -(-len(parts) // ranks)
    mine = nn.Sequential(*parts[rank * share : (rank + 1) * share]).to(device)
    stage = PipelineStage(mine, rank, ranks, device)
    # The mean over all micro-batches is the loss that one process computes for the batch.
    schedule = Schedule1F1B(stage, n_microbatches=2 * ranks, loss_fn=F.mse_loss)
    opt = torch.optim.SGD(mine.parameters(), lr=0.05)
    ours = []
    for step in range(STEPS):
        x, y = (t.to(device) for t in data(step, ranks))
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
        ours.append(loss.item())
    close("pipeline", ours, theirs)


def ring(device):
    """batch_isend_irecv around the ring, in both directions at once, with different sizes."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for size in (1, 1000, 1 << 18):
        out = torch.full((size,), float(rank), device=device)
        left, right = torch.empty_like(out), torch.empty_like(out)
        ops = [
            dist.P2POp(dist.isend, out, (rank + 1) % ranks),
            dist.P2POp(dist.isend, out, (rank - 1) % ranks),
            dist.P2POp(dist.irecv, left, (rank - 1) % ranks),
            dist.P2POp(dist.irecv, right, (rank + 1) % ranks),
        ]
        if ranks == 2:  # both neighbours are the same rank, so the order of the messages matters
            ops = ops[:1] + ops[2:3]
            right.fill_(float(1 - rank))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        expect(bool((left == (rank - 1) % ranks).all()), f"ring: wrong data from the left at {size}")
        expect(bool((right == (rank + 1) % ranks).all()), f"ring: wrong data from the right at {size}")
    if rank == 0:
        print("ring: right")


def graphs(device):
    ranks = dist.get_world_size()
    if device.type != "cuda":
        print("graphs: needs a GPU")
        return
    x = torch.zeros(4096, device=device)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        dist.all_reduce(x)  # the communicator must exist before the capture, as PyTorch requires
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
        dist.all_reduce(x)
        x.mul_(0.5)
    x.fill_(1)
    value = 1.0
    for _ in range(20):
        graph.replay()
        value = (value + 1) * ranks * 0.5
        if value > 1e6:
            torch.cuda.synchronize()
            x.fill_(1)
            value = 1.0
    torch.cuda.synchronize()
    expect(bool((x == value).all()), f"graphs: {x[0].item()}, expected {value}")
    if dist.get_rank() == 0:
        print("graphs: 20 replays right")


def groups(device):
    """Two groups used in opposite orders with a device synchronisation in between: hangs by
    NCCL's rules.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    a, b = dist.new_group(), dist.new_group()
    x = torch.ones(1 << 16, device=device)
    y = torch.ones(1 << 16, device=device)
    for group, t in ((a, x), (b, y)):  # connect both in one order first
        dist.all_reduce(t, group=group)
        t.fill_(1)
    if device.type == "cuda":
        torch.cuda.synchronize()
    for i in range(1, 21):
        order = [(a, x), (b, y)] if (rank + i) % 2 else [(b, y), (a, x)]
        works = []
        for group, t in order:
            works.append(dist.all_reduce(t, group=group, async_op=True))
            if device.type == "cuda":
                torch.cuda.synchronize()
        for work in works:
            work.wait()
        for t in (x, y):
            expect(bool((t == ranks).all()), f"groups: round {i}: {t[0].item()}, expected {ranks}")
            t.fill_(1)
    if rank == 0:
        print("groups: 20 rounds right")


def end(device):
    """Destroys a group, and aborts one with work in flight; another group works afterwards."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for how in ("destroy", "abort"):
        group = dist.new_group()
        x = torch.ones(1 << 12, device=device)
        dist.all_reduce(x, group=group)
        expect(bool((x == ranks).all()), f"end: {x[0].item()}")
        if how == "destroy" or device.type != "cuda":
            dist.destroy_process_group(group)
            continue
        if rank == 0:  # the others never take part, so only the abort can end it
            dist.all_reduce(x, group=group, async_op=True)
            time.sleep(0.5)
        group._get_backend(device).abort()
    x = torch.ones(16, device=device)
    dist.all_reduce(x)
    expect(bool((x == ranks).all()), "end: the other group does not work any more")
    if rank == 0:
        print("end: right")


def collectives(device):
    """Functions of torch.distributed, each compared with its expected result."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    total = ranks * (ranks + 1) / 2
    cuda = device.type == "cuda"

    def full(value, size=1000):
        return torch.full((size,), float(value), device=device)

    def same(name, tensor, value):
        expect(bool((tensor == value).all()), f"{name}: {tensor.flatten()[:4].tolist()}, expected {value}")

    def each(name, tensors, first=0, step=1):
        for i, t in enumerate(tensors):
            same(name, t, first + step * i)

    for op, value in ((dist.ReduceOp.SUM, total), (dist.ReduceOp.MAX, ranks), (dist.ReduceOp.MIN, 1)):
        x = full(rank + 1)
        dist.all_reduce(x, op=op)
        same(f"all_reduce {op}", x, value)
    x = full(rank)
    dist.broadcast(x, 1)
    same("broadcast", x, 1)
    x = full(rank + 1)
    dist.reduce(x, 0)
    if rank == 0:
        same("reduce", x, total)
    out = [full(-1) for _ in range(ranks)]
    dist.all_gather(out, full(rank))
    each("all_gather", out)
    out = full(-1, 1000 * ranks)
    dist.all_gather_into_tensor(out, full(rank))
    each("all_gather_into_tensor", out.view(ranks, -1))
    out = [full(-1) for _ in range(ranks)] if rank == 0 else None
    dist.gather(full(rank), out, 0)
    each("gather", out or [])
    x = full(-1)
    dist.scatter(x, [full(i + 5) for i in range(ranks)] if rank == 0 else None, 0)
    same("scatter", x, rank + 5)
    if rank < 2:
        x = full(-1)
        for step in (rank, 1 - rank):
            if step == 0:
                dist.send(full(rank + 7), 1 - rank)
            else:
                dist.recv(x, 1 - rank)
        same("send, recv", x, 8 - rank)
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    expect([o["rank"] for o in objects] == list(range(ranks)), f"all_gather_object: {objects}")
    xs = [full(rank + 1, 1 + 7 * i) for i in range(50)]
    for work in [dist.all_reduce(x, async_op=True) for x in xs]:
        work.wait()
    for x in xs:
        same("50 at once", x, total)
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.uint8, torch.int8):
        x = torch.ones(37, device=device, dtype=dtype)
        dist.all_reduce(x)
        same(f"all_reduce {dtype}", x.to(torch.float32), ranks)
    pair = dist.new_group([0, 1])
    if rank < 2:
        x = full(rank + 1)
        dist.all_reduce(x, group=pair)
        same("a group of two", x, 3)
    if cuda:
        only_cuda(device, rank, ranks, full, same, each)
    if rank == 0:
        print("collectives: right")


def only_cuda(device, rank, ranks, full, same, each):
    """Functions that gloo does not have."""
    total = ranks * (ranks + 1) / 2
    x = full(rank + 1)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    same("average", x, (ranks + 1) / 2)
    x = full(rank + 1)
    dist.all_reduce(x, op=dist._make_nccl_premul_sum(2.0))
    same("premultiplied sum", x, 2 * total)
    x = torch.ones(37, device=device, dtype=torch.bool)
    dist.all_reduce(x)
    expect(bool(x.all()), "all_reduce of bool")
    out = [full(-1, 10 + i) for i in range(ranks)]
    dist.all_gather(out, full(rank, 10 + rank))
    each("all_gather of different sizes", out)
    x = full(-1)
    dist.reduce_scatter(x, [full(i) for i in range(ranks)])
    same("reduce_scatter", x, rank * ranks)
    x = full(-1)
    dist.reduce_scatter_tensor(x, full(1, 1000 * ranks))
    same("reduce_scatter_tensor", x, ranks)
    give, take = [rank + i + 1 for i in range(ranks)], [i + rank + 1 for i in range(ranks)]
    x = full(-1, sum(take))
    dist.all_to_all_single(x, full(rank, sum(give)), take, give)
    each("all_to_all_single of different sizes", x.split(take))
    out = [full(-1) for _ in range(ranks)]
    dist.all_to_all(out, [full(rank * 10 + i) for i in range(ranks)])
    each("all_to_all", out, rank, 10)
    xs = [full(rank + 1, size) for size in (5, 100, 4000)]
    with dist._coalescing_manager(device=device):
        for x in xs:
            dist.all_reduce(x)
    for x in xs:
        same("coalesced", x, total)
    streams, xs = [torch.cuda.Stream() for _ in range(2)], []
    for i in range(10):
        with torch.cuda.stream(streams[i % 2]):
            xs.append(full(rank + 1))
            dist.all_reduce(xs[-1])
            xs[-1].add_(1)
    torch.cuda.synchronize()
    for x in xs:
        same("streams", x, total + 1)
    x = full(rank + 1, 4 << 20)
    dist.all_reduce(x)
    same("16 MiB", x, total)


def eager(device):
    """Communicators that are created at once, and by ncclCommSplit; then collectives()."""
    ranks = dist.get_world_size()
    group = dist.split_group(split_ranks=[list(range(ranks))])
    x = torch.ones(1000, device=device)
    dist.all_reduce(x, group=group)
    expect(bool((x == ranks).all()), f"eager: {x[0].item()}")
    collectives(device)


CASES = {f.__name__: f for f in (ddp, fsdp2, tensor_parallel, pipeline, ring, graphs, groups, end, collectives, eager)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("--device", default="cuda", choices=("cuda", "own", "cpu"))
    args = parser.parse_args()
    own = int(os.environ["LOCAL_RANK"]) if args.device == "own" else 0
    device = torch.device("cpu") if args.device == "cpu" else torch.device("cuda", own)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.cuda.set_device(device)
    at_once = {"device_id": device} if args.case == "eager" else {}
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo",
                            timeout=datetime.timedelta(seconds=60), **at_once)
    CASES[args.case](device)
    dist.barrier()
    dist.destroy_process_group()
    # Loaded modules may have started threads: end without waiting for them.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
