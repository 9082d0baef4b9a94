"""What `make bench BENCH=torch` measures, as plain PyTorch programs: torch_bench.py operators|start|imported|gpt

operators  with CUDA devices: what an operator on small CUDA tensors takes beyond the same on CPU tensors; blocks take turns
start      a job's first collective has ended: the time since the epoch
imported   torch is imported: the time since the epoch
gpt        a step of a small GPT (10 M parameters) under DistributedDataParallel; on gloo where there are no CUDA devices

A line for each figure: "operator NAME CUDA-US CPU-US", "start S", "imported S", "step MS LOSS".
"""

import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F


def operators():
    def cases(device):
        x, y, w = torch.ones(64, device=device), torch.ones(64, device=device), torch.ones(8, 8, device=device)
        z = torch.zeros(64, device=device)
        parts = [torch.ones(8, device=device) for _ in range(4)]
        return {
            "add": lambda: x + y,
            "add_": lambda: z.add_(1),
            "mul": lambda: x * 2.0,
            "relu": lambda: torch.relu(x),
            "mm": lambda: w @ w,
            "linear": lambda: F.linear(w, w, w[0]),
            "softmax": lambda: torch.softmax(w, -1),
            "layer_norm": lambda: F.layer_norm(w, (8,)),
            "sum": lambda: x.sum(),
            "cat": lambda: torch.cat(parts),
            "zeros": lambda: torch.zeros(64, device=device),
            "copy_": lambda: z.copy_(x),
        }

    def once(f, calls=200):
        begun = time.perf_counter()
        for _ in range(calls):
            f()
        return (time.perf_counter() - begun) / calls * 1e6

    cuda, cpu = cases("cuda"), cases("cpu")
    with torch.no_grad():
        for name in cuda:
            once(cuda[name], 20), once(cpu[name], 20)
            rounds = [(once(cuda[name]), once(cpu[name])) for _ in range(int(os.environ.get("ROUNDS", "15")))]
            rounds.sort(key=lambda r: r[0] - r[1])
            print("operator", name, *("%.2f" % v for v in rounds[len(rounds) // 2]), flush=True)


def start():
    import torch.distributed as dist

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    x = torch.ones(1024, device="cuda")
    dist.all_reduce(x)
    assert x[0].item() == dist.get_world_size()
    # One write, because the ranks share the output.
    os.write(1, b"start %.3f\n" % time.time())
    dist.destroy_process_group()


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(torch.nn.Module):
    def __init__(self, words=3072, length=128, width=352, heads=8, layers=6):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(words, width), torch.nn.Embedding(length, width)
        self.blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return F.linear(self.norm(self.blocks(x)), self.words.weight)


def gpt():
    import torch.distributed as dist

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    torch.manual_seed(1)
    model = GPT()
    count = sum(p.numel() for p in model.parameters())
    assert 9.5e6 < count < 10.5e6, count
    model = torch.nn.parallel.DistributedDataParallel(model.to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    draw = torch.Generator().manual_seed(dist.get_rank())
    times = []
    for _ in range(int(os.environ.get("STEPS", "7"))):
        tokens = torch.randint(0, 3072, (2, 129), generator=draw).to(device)
        begun = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        value = loss.item()
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    # The first two steps also connect and fill allocators.
    if dist.get_rank() == 0:
        print("step %.1f %.4f" % (statistics.median(times[2:]) * 1e3, value), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "imported":
        print("imported %.3f" % time.time())
    else:
        {"operators": operators, "start": start, "gpt": gpt}[what]()
