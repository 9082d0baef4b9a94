"""Trains on 3 ranks (gloo) as plain DDP and with exact gating: losses and parameters must be the same bit for bit.

    gate_job.py FOLDER CASE...
"""
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

from deft_job import network, times
from dfshim import deft

WORLD, WARMUP, ITERATIONS, ODD = 3, 5, 24, 15


class Attention(torch.nn.Module):
    """Another module uses the output projection; two modules share one weight; no module uses another
    weight."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.first = torch.nn.Linear(20, 20)
        self.attend = torch.nn.MultiheadAttention(20, 2, batch_first=True)
        self.tied = torch.nn.Linear(20, 20)
        self.tied.weight = self.first.weight
        self.last = torch.nn.Linear(20, 3)
        self.scale = torch.nn.Parameter(torch.ones(20))

    def forward(self, x):
        x = self.first(x).view(2, -1, 20)
        x = self.tied(self.attend(x, x, x, need_weights=False)[0]) * self.scale
        return torch.nn.functional.linear(x, self.last.weight, self.last.bias).view(-1, 3)


def sgd(params):
    return torch.optim.SGD(params, 0.1, 0.9, weight_decay=0.01, nesterov=True)


def adam(params):
    params = list(params)
    return torch.optim.AdamW([{"params": params[::2]}, {"params": params[1::2], "lr": 0.003}], 0.01)


CASES = {  # model, optimizer, further arguments of DDP
    "sgd": (network, sgd, {}),
    "adam": (network, adam, {"gradient_as_bucket_view": True}),
    "attention": (Attention, adam, {"bucket_cap_mb": 0.0001}),  # a bucket for each parameter
    "skipped": (network, sgd, {}),
    "changed": (network, sgd, {}),
    "measured": (network, sgd, {}),
}


def batch(rank, iteration):
    g = torch.Generator().manual_seed(1000 * rank + iteration)
    x = torch.randn(8, 20, generator=g)
    return x, torch.stack((x[:, 0] * x[:, 1], x[:, 2].sin(), x[:, 3:6].sum(1)), 1)


def train(rank, case, wrap):
    make, optimizer, options = CASES[case]
    model = DDP(make(), **{"bucket_cap_mb": 0.002, **options})
    inner = optimizer(model.parameters())
    opt, said = wrap(model, inner), []
    schedule = torch.optim.lr_scheduler.StepLR(inner, 3, 0.8)
    for i in range(ITERATIONS):
        if case == "changed" and i == ODD and opt is not inner:
            opt.buckets[1] = ([], *opt.buckets[1][1:])
        opt.zero_grad()
        x, y = batch(rank, i)
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        if case != "skipped" or i != ODD:
            opt.step()
        schedule.step()
        said.append(loss.item())
        if i % 5 == 4:
            model.eval()
            with torch.inference_mode() if i % 2 else torch.no_grad():
                said.append(model(x).sum().item())
            model.train()
    return opt, said, [v.clone() for v in model.state_dict().values()], opt.state_dict()["state"]


def worker(rank, cases, folder):
    torch.set_num_threads(1)
    for case in cases:
        dist.init_process_group("gloo", init_method=f"file://{folder}/gate-{case}.store", rank=rank, world_size=WORLD)
        plan = None if case == "measured" else times(2.3, 1)
        _, want_losses, want, want_state = train(rank, case, lambda model, opt: opt)
        opt, losses, got, state = train(rank, case, lambda model, opt: deft.wrap(model, opt, warmup=WARMUP, plan=plan, exact=True))
        assert losses == want_losses, f"{case}, rank {rank}: losses {losses}, without gating {want_losses}"
        for i, (a, b) in enumerate(zip(got, want)):
            assert torch.equal(a, b), f"{case}, rank {rank}: parameter {i} differs by {(a - b).abs().max()}"
        for p, values in want_state.items():
            for name, value in values.items():
                assert torch.equal(torch.as_tensor(value), torch.as_tensor(state[p][name])), f"{case}: {name} of parameter {p}"
        assert opt.mode == (deft.PLAIN if case == "changed" else deft.GATED), (case, opt.mode, opt.ended)
        if case != "measured":
            assert opt.order != sorted(opt.order), "buckets go as DDP sends them"
        held = sorted(opt.early)
        assert bool(held) == (case == "attention") and len(held) < len(opt.buckets), (case, held)
        if not rank:
            print(f"{case}: {len(opt.buckets)} buckets, sent {opt.order}, before the forward pass {held}: same bits", flush=True)
        if case == "sgd":
            refused(opt)
        dist.destroy_process_group()


def refused(opt):
    def wrong(kind, words, call):
        try:
            call()
        except kind as why:
            assert words in str(why), why
        else:
            raise AssertionError(f"accepted: {words}")

    model = DDP(network())
    inner = sgd(model.parameters())
    wrong(RuntimeError, "without a backward pass", opt.step)
    wrong(ValueError, "no clip", lambda: deft.wrap(model, inner, clip=1.0, exact=True))
    wrong(ValueError, "one link", lambda: deft.wrap(model, inner, links=2, exact=True))
    wrong(ValueError, "LBFGS", lambda: deft.wrap(model, torch.optim.LBFGS(model.parameters()), exact=True))


if __name__ == "__main__":
    torch.set_num_threads(1)
    mp.spawn(worker, (sys.argv[2:] or list(CASES), sys.argv[1]), WORLD)
