"""Trains a model with DistributedDataParallel, as PyTorch's tutorials write it: nothing of dfshim in
it.

  torchrun --nproc-per-node 4 ddp.py        or        dfshim run --host -n 4 -- python ddp.py

--hang: one rank leaves out a step's all_reduce, which is the bug that the tests look for. --killed:
one rank is killed in the middle of a step. --memory: one rank asks for more memory than there is.
--unfinished: rank 0 ends while operators are left on its stream, behind an all_reduce that the
others enter late. --left: the others never enter that all_reduce. --error: rank 0 ends there with
an error. Prints the losses, which one process computes for comparison. Exit status: 0 right, 1
wrong.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(4 * 8 * 8, 10)

    def forward(self, x):
        return self.fc(self.relu(self.conv(x)).flatten(1))


def batch(step, rank, ranks):
    gen = torch.Generator().manual_seed(step)
    x, y = torch.randn(4 * ranks, 1, 8, 8, generator=gen), torch.randint(0, 10, (4 * ranks,), generator=gen)
    return (x, y) if rank is None else (x[rank::ranks], y[rank::ranks])


def accident():
    """Happens between a step's forward and backward pass: the others are then inside all_reduces that
    wait for this rank."""
    if "--killed" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    if "--memory" in sys.argv:
        torch.empty(1 << 60, device="cuda")


def train(model, device, rank, ranks, average):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(5):
        x, y = (t.to(device) for t in batch(step, rank, ranks))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        if step == 3 and rank == 1:
            accident()
        loss.backward()
        optimizer.step()
        losses.append(average(step, loss.detach()))
    return losses


def unfinished(device, rank, ranks):
    x = torch.ones(1 << 16, device=device)
    if rank and "--left" in sys.argv:
        time.sleep(3)
        print("one is left out", flush=True)
        time.sleep(1000)
    time.sleep(4 * rank)
    dist.all_reduce(x)
    for _ in range(50):
        x.add_(1)
    dist.all_reduce(x)
    if "--error" in sys.argv:
        raise ValueError("of its own")
    sys.exit(rank > 0 and x[0].item() != (ranks + 50) * ranks)


def main():
    dist.init_process_group("nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())

    def average(step, loss):
        if "--hang" in sys.argv and step == 3 and rank == 1:
            print("one is left out", flush=True)
            return loss.item()  # the bug: the others wait for this rank
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        return loss.item()

    torch.manual_seed(0)
    model = Toy()
    alone = Toy()
    alone.load_state_dict(model.state_dict())
    losses = train(DDP(model.to(device), device_ids=[device.index]), device, rank, ranks, average)
    want = train(alone, torch.device("cpu"), None, ranks, lambda step, loss: loss.item())
    worst = max(abs(a - b) for a, b in zip(losses, want))
    if rank == 0:
        print(f"{ranks} ranks on {device.type}: losses {losses}, worst difference {worst:.1e}")
    if "--unfinished" in sys.argv or "--left" in sys.argv:
        unfinished(device, rank, ranks)
    dist.destroy_process_group()
    sys.exit(worst > 1e-4)


if __name__ == "__main__":
    main()
