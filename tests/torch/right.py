#!/usr/bin/env python3
"""Correct trainings, as people write them: `dfshim ci` must find no deadlock in any.

    dfshim ci -n 2 -- python3 right.py CASE [--steps N]
    right.py --list      the cases, with the number of ranks of each

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
    """DDP, whose mean loss is read at every eighth step, at times in the middle of the step."""
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
    """Gradients of two batches are reduced with the second batch. Buffers are broadcast. The last
    batches are uneven."""
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
    """FSDP2 with a norm that all ranks share, and with a loss that is averaged now and then."""
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
    """A thread saves the state of FSDP2 while the training goes on. The state is loaded at the end."""
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
    """The thread of a loader copies the batches to the GPU, and the training waits for each."""
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


def fsdp1(device, steps):
    """The first FSDP with flat parameters and prefetch in the backward pass. One rank gathers their
    whole state now and then."""
    from torch.distributed.fsdp import FullStateDictConfig, StateDictType
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = FSDP(mlp().to(device), auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=device, use_orig_params=True)

    def after(step, loss):
        model.clip_grad_norm_(1.0)
        if step % 10 == 9:
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
                model.state_dict()

    train(model, device, steps, after)


def hybrid(device, steps):
    """FSDP2 on a mesh of two dimensions: shards inside, and replicas across."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    ranks = dist.get_world_size()
    shards = 2 if ranks % 2 == 0 else 1
    mesh = init_device_mesh("cuda", (ranks // shards, shards), mesh_dim_names=("replicate", "shard"))
    model = mlp().to(device)
    for part in model:
        if isinstance(part, nn.Linear):
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, device, steps)


def tensor_and_data(device, steps):
    """Tensor parallelism inside of FSDP2: each rank is in two groups."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)

    ranks = dist.get_world_size()
    mesh = init_device_mesh("cuda", (ranks // 2, 2), mesh_dim_names=("data", "tensor"))
    model = parallelize_module(mlp(4).to(device), mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel(),
                                                                  "4": ColwiseParallel(), "6": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])

    def after(step, loss):
        if step % 4 == 3:
            dist.all_reduce(loss.detach().clone(), group=mesh["data"].get_group())
            loss.item()

    train(model, device, steps, after)


def zero1(device, steps):
    """DDP with a sharded optimizer, whose state rank 0 collects at the end."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(mlp().to(device), device_ids=[device.index])
    opt = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    for _ in range(steps):
        x, y = batch(device)
        F.mse_loss(model(x), y).backward()
        opt.step()
        opt.zero_grad()
    opt.consolidate_state_dict(to=0)
    dist.barrier()


def hooks(device, steps):
    """DDP with a communication hook (PowerSGD), and with batch norms whose statistics are those of all
    ranks."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(mlp(), nn.BatchNorm1d(8)))
    model = nn.parallel.DistributedDataParallel(model.to(device), device_ids=[device.index], bucket_cap_mb=0.01)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=10)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(model, device, steps)


def local(device, steps):
    """Local SGD, which averages the parameters at each fourth step."""
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    model = mlp().to(device)
    averager = PeriodicModelAverager(period=4, warmup_steps=8)
    train(model, device, steps, lambda step, loss: averager.average_parameters(model.parameters()))


def experts(device, steps):
    """A mixture of experts: tokens go to the ranks of their experts and back. The gate is data
    parallel."""
    from torch.distributed.nn.functional import all_to_all_single

    ranks = dist.get_world_size()
    gate = nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, ranks).to(device), device_ids=[device.index])
    expert = nn.Linear(WIDTH, WIDTH).to(device)
    opt = torch.optim.SGD([*gate.parameters(), *expert.parameters()], lr=0.05)
    for _ in range(steps):
        x = torch.randn(16, WIDTH, device=device)
        weight, to = gate(x).softmax(1).max(1)
        order = to.argsort()
        send = torch.bincount(to, minlength=ranks)
        receive = torch.empty_like(send)
        dist.all_to_all_single(receive, send)
        n_send, n_receive = send.tolist(), receive.tolist()
        tokens = all_to_all_single(x.new_empty(sum(n_receive), WIDTH), x[order], n_receive, n_send)
        back = all_to_all_single(torch.empty_like(x), expert(tokens), n_send, n_receive)
        (back * weight[order, None]).square().mean().backward()
        opt.step()
        opt.zero_grad()



def ring(device, steps):
    """Keys and values go around a ring (context parallelism), with two neighbours at once, beside
    DDP's gradients."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, 2 * WIDTH).to(device), device_ids=[device.index])
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    around = dist.new_group()
    for _ in range(steps):
        mine = model(torch.randn(8, WIDTH, device=device))
        block, total = mine.detach().contiguous(), mine.sum()
        for _ in range(ranks - 1):
            other = torch.empty_like(block)
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, block, (rank + 1) % ranks, around),
                                                dist.P2POp(dist.irecv, other, (rank - 1) % ranks, around)]):
                work.wait()
            total, block = total + (mine * other).mean(), other
        total.backward()
        opt.step()
        opt.zero_grad()


def adversaries(device, steps):
    """Two models that train each other (a GAN): two DDPs take turns, each with a group of its own."""
    first = nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, WIDTH).to(device), device_ids=[device.index])
    second = nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, 1).to(device), device_ids=[device.index],
                                                 process_group=dist.new_group())
    opts = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (first, second)]
    for step in range(steps):
        x, _ = batch(device)
        for opt, sign in zip(opts, (1, -1)):
            loss = sign * second(first(x)).mean()
            for o in opts:
                o.zero_grad()
            loss.backward()
            opt.step()
        if step % 5 == 4:
            dist.all_reduce(loss.detach().clone())
            torch.cuda.synchronize()


def ends_early(device, steps):
    """A rank that wants to stop adds that to a sum, which all ranks read. Rank 0 writes the objects
    that it has gathered."""
    model = nn.parallel.DistributedDataParallel(mlp().to(device), device_ids=[device.index])
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps * 2):
        x, y = batch(device)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        stop = torch.tensor(int(dist.get_rank() == 0 and step == steps), device=device)
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        if step % 10 == 9:
            losses = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
            dist.gather_object(loss.item(), losses)
        if stop.item():
            break
    dist.barrier()


CASES = {f.__name__: f for f in (ddp_eval, ddp_accumulate, fsdp2, tensor_parallel, pipeline, checkpoint, threads, fsdp1, hybrid,
                                 tensor_and_data, zero1, hooks, local, experts, ring, adversaries, ends_early)}
FOUR = ("hybrid", "tensor_and_data")  # whose meshes need four ranks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=sorted(CASES), nargs="?")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{name} {4 if name in FOUR else 2}" for name in CASES))
        return
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    # The thread that saves a checkpoint uses the group of the CPU.
    dist.init_process_group("cpu:gloo,cuda:nccl" if args.case == "checkpoint" else "nccl", device_id=device)
    CASES[args.case](device, args.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
