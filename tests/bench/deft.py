"""Trains small networks as plain DDP, with exact gating and with DeFT, a rank a process: see b_deft.sh.

    deft.py rate NET                                     bit/s of a link on which plain DDP has a coverage rate of 2
    deft.py time FOLDER NET RANK                         iteration times, on the links as they are
    deft.py train FOLDER NET RANK SEEDS ITERATIONS       losses and accuracy, by schedules for a coverage rate of 2 (0: as many as
                                                         bring plain DDP to its end)
    deft.py figures FOLDER

Rank 0 appends a line of JSON for each run to FOLDER/runs.
"""
import json
import math
import os
import queue
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from dfshim import deft

WORLD, WARMUP, BATCH, CR, SLOWER = 4, 8, 16, 2.0, 1.65
FORWARD, BACKWARD = 0.090, 0.180  # seconds of computation that stand for a larger network's
TIMED = 20  # iterations behind a figure of time
POINTS = 30  # of a curve of losses


# -- networks ---------------------------------------------------------------------------------------------

class Nap(torch.autograd.Function):
    """Sleeps as long as a larger layer would compute, in each direction."""

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
    """The digits of scikit-learn. Every fifth is kept for the accuracy."""
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
    """The help texts that come with Python, by character. The last tenth is kept for the accuracy of
    the next character."""
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


NETS = {"mlp": (mlp, Digits, 0.02, 2000), "conv": (conv, Digits, 0.02, 1000), "gpt": (gpt, Text, 0.05, 3000)}  # MB of a bucket, iterations


OPTIMIZERS = {"adamw": lambda params: torch.optim.AdamW(params, 0.002), "sgd": lambda params: torch.optim.SGD(params, 0.3),
              "momentum": lambda params: torch.optim.SGD(params, 0.05, 0.9),
              "momentum_late": lambda params: torch.optim.SGD(params, 0.005, 0.9)}

# -- links ------------------------------------------------------------------------------------------------

class Link(threading.Thread):
    """Runs one all-reduce after the other, as NCCL does on a communicator's stream: gloo would mix
    two."""

    def __init__(self, group):
        super().__init__(daemon=True)
        self.group, self.todo = group, queue.SimpleQueue()
        self.start()

    def run(self):
        while True:
            tensor, op, future = self.todo.get()
            REAL(tensor, op=op, group=self.group)
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
    future = torch.futures.Future()
    LINKS[group or dist.group.WORLD].todo.put((tensor, op, future))
    return Work(future) if async_op else future.wait()


def joined(folder, net, rank):
    """Makes groups of all ranks on the two links (the node's interfaces eth0 and eth1), and two groups
    of this rank alone."""
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    dist.init_process_group("gloo", init_method=f"file://{folder}/store.{net}", rank=rank, world_size=WORLD)
    groups = []
    for name in ("eth0", "eth1"):
        os.environ["GLOO_SOCKET_IFNAME"] = name
        groups.append(dist.new_group(list(range(WORLD))))
    alone = [[dist.new_group([r]) for _ in range(2)] for r in range(WORLD)][rank]
    for group in [dist.group.WORLD] + groups + alone:
        LINKS[group] = Link(group)
    dist.all_reduce = all_reduce
    return groups, alone


# -- training ---------------------------------------------------------------------------------------------

def plan(links):
    """Returns times that are the same for every run: computation as long as the naps, communication by
    size."""
    def times(sizes):
        n, second = len(sizes), 1000000000
        comm = [int(CR * (FORWARD + BACKWARD) * second * s / sum(sizes)) for s in sizes]
        return ([int(FORWARD * second / n)] * n, [int(BACKWARD * second / n)] * n, comm, sizes, [1.0, SLOWER][:links])
    return times


def stock(group, bucket):
    """Plain DDP, whose all-reduces run one after the other."""
    buffer = bucket.buffer().mul_(1 / WORLD)
    return dist.all_reduce(buffer, group=group, async_op=True).get_future().then(lambda f: f.value()[0])


def network(net, seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(*(Paced(layer) for layer in NETS[net][0]()))


def train(net, scheme, groups, seed, iterations, timed):
    """Returns the optimizer, the model, the losses, and the milliseconds of an iteration. A rank that
    is alone trains with the batches of four."""
    model = network(net, seed)
    for m in model:
        m.naps = (FORWARD / len(model), BACKWARD / len(model))
    Paced.naps = (1, 1) if timed else (0, 0)
    world = dist.get_world_size(groups[0])
    # The buffers are constants. Their broadcasts would run between the all-reduces of a link, which
    # another thread makes.
    ddp = DDP(model, bucket_cap_mb=NETS[net][2], process_group=groups[0], broadcast_buffers=False)
    inner = OPTIMIZERS[os.environ.get("OPTIMIZER", "adamw")](ddp.parameters())
    rates = [g["lr"] for g in inner.param_groups]
    links = 2 if scheme.endswith("2") else 1
    opt, more = inner, {"warmup": WARMUP, "plan": None if timed else plan(links)}
    if scheme == "ddp" and world > 1:
        ddp.register_comm_hook(groups[0], stock)
    elif scheme == "exact":
        opt = deft.wrap(ddp, inner, exact=True, **more)
    elif scheme != "ddp":
        opt = deft.wrap(ddp, inner, links=groups[:links], preserve=.01 if "preserved" in scheme else None, **more)
    g = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    losses, begin = [], 0
    for i in range(iterations):
        if i == WARMUP + 4:
            begin = time.monotonic()
        if not timed:  # to a tenth, along half a cosine
            for group, rate in zip(inner.param_groups, rates):
                group["lr"] = rate * (.55 + .45 * math.cos(math.pi * i / iterations))
        x, y = DATA[net].batch(g, BATCH * WORLD // world)
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(ddp(x).flatten(0, -2), y.flatten())
        loss.backward()
        opt.step(loss) if "preserved" in scheme else opt.step()
        losses.append(loss.item())
    took = (time.monotonic() - begin) * 1000 / (iterations - WARMUP - 4)
    if hasattr(opt, "flush"):
        opt.flush()
    return opt, ddp, losses, took


def right(net, ddp):
    x, y = DATA[net].test
    Paced.naps = (0, 0)
    with torch.no_grad():
        return 100 * (ddp(x).argmax(-1) == y).float().mean().item()


def mean(value, group=None):
    t = torch.tensor(value, dtype=torch.float64)
    REAL(t, group=group)
    return (t / dist.get_world_size(group)).tolist()


DATA = {}


def note(folder, **what):
    with open(f"{folder}/runs", "a") as runs:
        print(json.dumps(what), file=runs, flush=True)


def per_update(opt):
    updates = getattr(opt, "updates", None)
    return len(updates) / max(sum(updates), 1) if updates else 1


def times(folder, net, groups):
    for scheme in ("ddp", "exact", "deft", "deft2"):
        opt, _, _, took = train(net, scheme, groups, 1, WARMUP + 4 + TIMED, True)
        said = {}
        if scheme != "ddp" and opt.mode != deft.PLAIN:
            forward, backward, comm, _, slowdown, startup = opt.profile
            would = deft.Planner(*opt.profile).expected_ms()
            said = {"expected": opt.expected_ms if scheme == "exact" else would[1], "expected_ddp": would[0], "slowdown": slowdown, "startup": startup,
                    "forward": forward, "backward": backward, "comm": comm}
        took = mean(took)
        if not dist.get_rank():
            note(folder, what="time", net=net, scheme=scheme, ms=took, updates=per_update(opt), **said)


def accuracy(folder, net, together, alone, seeds, iterations):
    """Trains seed 1 on all ranks. Then each rank trains seeds of its own, which costs a fraction of
    the time. deft_job.py checks that the parameters are the same."""
    for seed in [1] + list(range(2 + dist.get_rank(), seeds + 1, WORLD)):
        groups = together if seed == 1 else alone
        for scheme in ("ddp", "deft", "deft2", "deft-preserved"):  # exact gating has DDP's bits
            opt, ddp, losses, _ = train(net, scheme, groups, seed, iterations, False)
            losses, n = mean(losses, groups[0]), iterations // POINTS
            if seed > 1 or not dist.get_rank():
                note(folder, what="train", net=net, scheme=scheme, seed=seed, ranks=dist.get_world_size(groups[0]),
                     optimizer=os.environ.get("OPTIMIZER", "adamw"), iterations=iterations, right=right(net, ddp),
                     updates=per_update(opt), rounds=getattr(opt, "rounds", 0),
                     loss=[round(sum(losses[i:i + n]) / n, 4) for i in range(0, iterations - n + 1, n)])


# -- figures ----------------------------------------------------------------------------------------------

def bench(name, value, peer, other, target, limit):
    """The ratio is `other` to `value` for a target of at least, and the inverse for one of at most."""
    ratio = other / value if target == ">=" else value / other
    ok = ratio <= limit if target == "<=" else ratio >= limit
    print(f"BENCH deft.{name} {value:.1f} ms peer {peer} {other:.1f} ratio {ratio:.3f} target {target}{limit} {'ok' if ok else 'MISS'}")


def figures(folder):
    took, trained = {}, {}
    for run in map(json.loads, open(f"{folder}/runs")):
        net, scheme = run["net"], run["scheme"]
        if run["what"] == "time":
            took[net, scheme] = run
            if scheme == "deft" and "expected_ddp" in run:
                took[net, "ddp"]["expected"] = run["expected_ddp"]
        else:
            trained.setdefault((net, scheme), {})[run["seed"]] = run
    for (net, scheme), run in took.items():
        if "expected" in run:
            bench(f"{net}.{scheme}.planned", run["ms"], "planner", run["expected"], "<=", 1.1)
        if scheme.startswith("deft"):
            bench(f"{net}.{scheme}.faster", run["ms"], "ddp", took[net, "ddp"]["ms"], ">=", 1.5)
    for (net, scheme), runs in trained.items():
        got = [sum(r[key] for r in runs.values()) / len(runs) for key in ("right", "updates", "rounds")]
        plain = sum(trained[net, "ddp"][seed]["right"] for seed in runs) / len(runs)
        if scheme != "ddp":
            print(f"BENCH deft.{net}.{scheme}.accuracy {got[0] - plain:.2f} points target >=-1 {'ok' if got[0] - plain >= -1 else 'MISS'}")
            print(f"# {net} {scheme}: {got[0]:.2f} %, DDP {plain:.2f} %, {len(runs)} seeds, {got[1]:.2f} updates an iteration, {got[2]:.1f} rounds of the preserver")


def main(what, *args):
    torch.set_num_threads(1)
    if what == "rate":
        # An all-reduce on a ring takes this number of bytes from each rank, and each frame of 1,514
        # bytes carries 1,448 of them.
        size = 4 * sum(p.numel() for p in network(args[0], 1).parameters()) * 2 * (WORLD - 1) / WORLD * 1514 / 1448
        print(int(8 * size / (CR * (FORWARD + BACKWARD))))
        return
    folder = args[0]
    if what == "figures":
        figures(folder)
        return
    net, rank = args[1], int(args[2])
    groups, alone = joined(folder, net + what, rank)
    DATA[net] = NETS[net][1]()
    if what == "time":
        times(folder, net, groups)
    else:
        accuracy(folder, net, groups, alone, int(args[3]), int(args[4]) or NETS[net][3])
    dist.barrier()


if __name__ == "__main__":
    main(*sys.argv[1:])
