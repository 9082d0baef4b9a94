"""Trains small networks on 4 ranks (gloo) as plain DDP, with exact gating and with DeFT: see b_deft.sh.

    deft.py FOLDER SEEDS ITERATIONS NET...
"""
import os
import queue
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

from dfshim import deft

WORLD, WARMUP, BATCH, CR, SLOWER = 4, 8, 16, 2.0, 1.65
FORWARD, BACKWARD = 0.090, 0.180  # seconds of computation that stand for a larger network's
TIMED = 20  # iterations behind a figure of time


# -- networks ---------------------------------------------------------------------------------------------

class Nap(torch.autograd.Function):
    """What a larger layer would take, in each direction."""

    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.nap = backward
        time.sleep(forward)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.nap)
        return gradient, None, None


class Paced(torch.nn.Module):
    naps = 0.0, 0.0

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        x = self.inner(x)
        return Nap.apply(x, *self.naps) if Paced.naps[0] else x


class Block(torch.nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.attend = torch.nn.MultiheadAttention(width, 4, batch_first=True)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.triu(torch.ones(length, length, dtype=torch.bool), 1))

    def forward(self, x):
        y = self.norms[0](x)
        x = x + self.attend(y, y, y, attn_mask=self.mask, need_weights=False)[0]
        return x + self.down(torch.nn.functional.gelu(self.up(self.norms[1](x))))


class Embed(torch.nn.Module):
    def __init__(self, symbols, width, length):
        super().__init__()
        self.symbol, self.place = torch.nn.Embedding(symbols, width), torch.nn.Parameter(torch.zeros(length, width))

    def forward(self, x):
        return self.symbol(x) + self.place


def mlp():
    sizes = [64, 96, 96, 96, 96, 10]
    return [torch.nn.Sequential(torch.nn.Linear(a, b), *([torch.nn.ReLU()] if b != 10 else [])) for a, b in zip(sizes, sizes[1:])]


def conv():
    def layer(a, b):
        return torch.nn.Sequential(torch.nn.Conv2d(a, b, 3, padding=1), torch.nn.ReLU())

    return [torch.nn.Sequential(torch.nn.Unflatten(1, (1, 8, 8)), layer(1, 16)), layer(16, 24),
            torch.nn.Sequential(layer(24, 32), torch.nn.MaxPool2d(2)), layer(32, 32),
            torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(512, 10))]


LENGTH, WIDTH = 24, 32


def gpt():
    return [Embed(128, WIDTH, LENGTH), Block(WIDTH, LENGTH), Block(WIDTH, LENGTH),
            torch.nn.Sequential(torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 128))]


class Digits:
    """scikit-learn's digits, every fifth for the accuracy."""
    def __init__(self):
        from sklearn.datasets import load_digits

        data = load_digits()
        x, y = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
        test = torch.arange(len(y)) % 5 == 4
        self.x, self.y, self.test = x[~test], y[~test], (x[test], y[test])

    def batch(self, g, size):
        i = torch.randint(len(self.y), (size,), generator=g)
        return self.x[i], self.y[i]


class Text:
    """The help texts that come with Python, by character; the last tenth for the accuracy of the next character."""
    def __init__(self):
        from pydoc_data.topics import topics

        text = "\n".join(topics[k] for k in sorted(topics))
        self.data = torch.tensor([min(ord(c), 127) for c in text])
        self.end = len(self.data) * 9 // 10
        starts = range(self.end, len(self.data) - LENGTH - 1, 997)
        self.test = torch.stack([self.data[s:s + LENGTH] for s in starts]), torch.stack([self.data[s + 1:s + LENGTH + 1] for s in starts])

    def batch(self, g, size):
        starts = torch.randint(self.end - LENGTH - 1, (size,), generator=g).tolist()
        return torch.stack([self.data[s:s + LENGTH] for s in starts]), torch.stack([self.data[s + 1:s + LENGTH + 1] for s in starts])


NETS = {"mlp": (mlp, Digits, 0.02), "conv": (conv, Digits, 0.02), "gpt": (gpt, Text, 0.05)}  # MB of a bucket


OPTIMIZERS = {"adamw": lambda params: torch.optim.AdamW(params, 0.002), "sgd": lambda params: torch.optim.SGD(params, 0.3),
              "momentum": lambda params: torch.optim.SGD(params, 0.05, 0.9)}

# -- links ------------------------------------------------------------------------------------------------

class Link(threading.Thread):
    """One all-reduce after the other: gloo's, then as long as its bytes take at the link's speed."""

    def __init__(self, group):
        super().__init__(daemon=True)
        self.group, self.rate, self.todo = group, 0, queue.SimpleQueue()
        self.start()

    def run(self):
        while True:
            tensor, op, future = self.todo.get()
            REAL(tensor, op=op, group=self.group)
            if self.rate and tensor.is_floating_point():
                time.sleep(tensor.numel() * tensor.element_size() / self.rate)
            future.set_result([tensor])


class Work:
    def __init__(self, future):
        self.future = future

    def wait(self):
        self.future.wait()

    def get_future(self):
        return self.future


REAL, LINKS = dist.all_reduce, {}


def all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    if (group or dist.group.WORLD) not in LINKS:
        return REAL(tensor, op=op, group=group, async_op=async_op)
    future = torch.futures.Future()
    LINKS[group or dist.group.WORLD].todo.put((tensor, op, future))
    return Work(future) if async_op else future.wait()


# -- training ---------------------------------------------------------------------------------------------

def plan(links):
    """The same for every run: computation as it would nap, communication by size."""
    def times(sizes):
        n, second = len(sizes), 1000000000
        comm = [int(CR * (FORWARD + BACKWARD) * second * s / sum(sizes)) for s in sizes]
        return ([int(FORWARD * second / n)] * n, [int(BACKWARD * second / n)] * n, comm, sizes, [1.0, SLOWER][:links])
    return times


def stock(_, bucket):
    """Plain DDP on our links."""
    buffer = bucket.buffer().mul_(1 / WORLD)
    return dist.all_reduce(buffer, async_op=True).get_future().then(lambda f: f.value()[0])


def train(net, scheme, groups, seed, iterations, timed):
    """timed: on all ranks. Else on this one alone, with all ranks' batches."""
    make, _, cap = NETS[net]
    torch.manual_seed(seed)
    model = torch.nn.Sequential(*(Paced(layer) for layer in make()))
    size = sum(p.numel() for p in model.parameters())
    for m in model:
        m.naps = (FORWARD / len(model), BACKWARD / len(model))
    Paced.naps = (1, 1) if timed else (0, 0)
    for group, link in LINKS.items():
        link.rate = timed and 4 * size / (CR * (FORWARD + BACKWARD)) / (SLOWER if group is groups[1] else 1)
    ddp = DDP(model, bucket_cap_mb=cap, process_group=None if timed else groups[0])
    inner = OPTIMIZERS[os.environ.get("OPTIMIZER", "adamw")](ddp.parameters())
    links = 2 if scheme.endswith("2") else 1
    opt, more = inner, {"warmup": WARMUP, "plan": None if timed else plan(links)}
    if scheme == "ddp" and timed:
        ddp.register_comm_hook(None, stock)
    elif scheme == "exact":
        opt = deft.wrap(ddp, inner, exact=True, **more)
    elif scheme != "ddp":
        opt = deft.wrap(ddp, inner, links=groups[:links], preserve=.01 if "preserved" in scheme else None, **more)
    g = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    losses, begin = [], 0
    for i in range(iterations):
        if i == WARMUP + 4:
            begin = time.monotonic()
        x, y = DATA[net].batch(g, BATCH if timed else BATCH * WORLD)
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(x).flatten(0, -2), y.flatten())
        loss.backward()
        opt.step(loss) if "preserved" in scheme else opt.step()
        losses.append(loss.item())
    if hasattr(opt, "flush"):
        opt.flush()
    took = (time.monotonic() - begin) * 1000 / (iterations - WARMUP - 4)
    return opt, ddp, losses, took


def right(net, ddp):
    x, y = DATA[net].test
    Paced.naps = (0, 0)
    with torch.no_grad():
        return 100 * (ddp(x).argmax(-1) == y).float().mean().item()


def mean(value):
    t = torch.tensor(value, dtype=torch.float64)
    REAL(t)
    return t.item() / WORLD


DATA = {}


def worker(rank, folder, seeds, iterations, nets):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    groups = [dist.new_group(list(range(WORLD))) for _ in range(2)]
    for group in [dist.group.WORLD] + groups:
        LINKS[group] = Link(group)
    alone = [[dist.new_group([r]) for _ in range(2)] for r in range(WORLD)][rank]
    dist.all_reduce = all_reduce

    lines = None if rank else open(f"{folder}/lines", "a")

    def say(*words):
        if lines:
            print(*words, file=lines, flush=True)

    for net in nets:
        DATA[net] = NETS[net][1]()
        for scheme in ("ddp", "exact", "deft", "deft2"):
            opt, _, _, took = train(net, scheme, groups, 1, WARMUP + 4 + TIMED, True)
            expected = {"ddp": 0, "exact": opt.expected_ms if scheme == "exact" and opt.mode != deft.PLAIN else 0}.get(scheme)
            if expected is None and opt.mode != deft.PLAIN:
                would, expected = opt.expected_ms()
                say("expected", net, scheme + ".ddp", would)
                say("updates", net, scheme, len(opt.updates) / sum(opt.updates))
                say("slowdown", net, scheme, *opt.profile[4])
                if scheme == "deft":
                    p = opt.profile
                    say("cr", net, sum(p[2]) / (sum(p[0]) + sum(p[1])), len(p[3]))
            say("time", net, scheme, mean(took), expected or 0)
        # Every rank has seeds of its own.
        for seed in range(1 + rank, seeds + 1, WORLD):
            for scheme in ("ddp", "exact", "deft", "deft2", "deft-preserved"):
                if scheme == "exact" and seed > 1:
                    continue  # its bits are DDP's
                opt, ddp, losses, _ = train(net, scheme, alone, seed, iterations, False)
                tenth = iterations // 10
                curve = [sum(losses[i:i + tenth]) / tenth for i in range(0, iterations - tenth + 1, tenth)]
                updates = getattr(opt, "updates", None)
                with open(f"{folder}/lines", "a") as seen:
                    print("accuracy", net, scheme, seed, right(net, ddp), len(updates) / max(sum(updates), 1) if updates else 1,
                          getattr(opt, "rounds", 0), *(f"{v:.4f}" for v in curve), file=seen)
        dist.barrier()


# -- figures ----------------------------------------------------------------------------------------------

def bench(name, value, peer, other, target, limit):
    """The ratio is other to value for a target of at least."""
    ratio = other / value if target == ">=" else value / other
    ok = ratio <= limit if target == "<=" else ratio >= limit
    print(f"BENCH deft.{name} {value:.1f} ms peer {peer} {other:.1f} ratio {ratio:.3f} target {target}{limit} {'ok' if ok else 'MISS'}")


def figures(folder):
    times, expected, accuracy = {}, {}, {}
    for line in open(f"{folder}/lines"):
        what, net, *rest = line.split()
        if what == "time":
            times[net, rest[0]], expected[net, rest[0]] = float(rest[1]), float(rest[2])
        elif what == "expected":
            expected[net, "ddp"] = float(rest[1])  # of the last; the same network
        elif what == "accuracy":
            accuracy.setdefault((net, rest[0]), {})[int(rest[1])] = [float(v) for v in rest[2:5]]
    for (net, scheme), took in times.items():
        if expected[net, scheme]:
            bench(f"{net}.{scheme}.planned", took, "planner", expected[net, scheme], "<=", 1.1)
        if scheme.startswith("deft"):
            bench(f"{net}.{scheme}.faster", took, "ddp", times[net, "ddp"], ">=", 1.5)
    for (net, scheme), runs in accuracy.items():
        right, updates, rounds = (sum(column) / len(runs) for column in zip(*runs.values()))
        plain = sum(accuracy[net, "ddp"][seed][0] for seed in runs) / len(runs)
        if scheme != "ddp":
            print(f"BENCH deft.{net}.{scheme}.accuracy {right - plain:.2f} points target >=-1 {'ok' if right - plain >= -1 else 'MISS'}")
            print(f"# {net} {scheme}: {right:.2f} %, DDP {plain:.2f} %, {len(runs)} seeds, {updates:.2f} updates an iteration, {rounds:.1f} rounds of the preserver")


if __name__ == "__main__":
    torch.set_num_threads(1)
    open(f"{sys.argv[1]}/lines", "w").close()
    mp.spawn(worker, (sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:] or list(NETS)), WORLD)
    figures(sys.argv[1])
