"""A Llama with tensor, pipeline and data parallelism (FSDP2) on random data, to check its communication without GPUs:

    dfshim run --stub -n 64 -- python llama.py --tp 4 --pp 4
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Attention(nn.Module):
    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.size = dim // heads
        self.q = nn.Linear(dim, heads * self.size, bias=False)
        self.k = nn.Linear(dim, kv_heads * self.size, bias=False)
        self.v = nn.Linear(dim, kv_heads * self.size, bias=False)
        self.out = nn.Linear(heads * self.size, dim, bias=False)

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(args.dim) for _ in range(2))
        self.attention = Attention(args.dim, args.heads, args.kv_heads)
        self.gate = nn.Linear(args.dim, args.hidden, bias=False)
        self.up = nn.Linear(args.dim, args.hidden, bias=False)
        self.down = nn.Linear(args.hidden, args.dim, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


PLAN = {
    "attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(), "attention.v": ColwiseParallel(),
    "attention.out": RowwiseParallel(), "gate": ColwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel(),
}


class Stage(nn.Module):
    """The layers of one pipeline stage."""

    def __init__(self, args, stage):
        super().__init__()
        self.embed = nn.Embedding(args.vocab, args.dim) if stage == 0 else None
        self.blocks = nn.ModuleList(Block(args) for _ in range(args.layers // args.pp))
        self.head = nn.Linear(args.dim, args.vocab, bias=False) if stage == args.pp - 1 else None

    def forward(self, x):
        if self.embed is not None:
            x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(x)


def loss_of(logits, target):
    return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


def clip(parameters, group, most=1.0):
    """Clips the norm of the gradients of all stages. Those of one device mesh are reduced together."""
    meshes = {}
    for p in parameters:
        meshes.setdefault(p.device_mesh, []).append(p)
    norms = [nn.utils.get_total_norm([p.grad for p in ps]).full_tensor() for ps in meshes.values()]
    total = torch.stack(norms).square().sum()
    dist.all_reduce(total, group=group)
    for ps in meshes.values():
        nn.utils.clip_grads_with_norm_(ps, most, total.sqrt())


def main():
    # By default the 8 billion parameters of Llama 3.
    sizes = dict(tp=2, pp=2, dim=4096, hidden=14336, heads=32, kv_heads=8, layers=32, vocab=128256, length=4096, batch=8,
                 microbatches=8, steps=1)
    parser = argparse.ArgumentParser()
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    mesh = init_device_mesh("cuda", (dist.get_world_size() // (args.tp * args.pp), args.pp, args.tp),
                            mesh_dim_names=("dp", "pp", "tp"))
    stage = mesh["pp"].get_local_rank()

    with torch.device("meta"):
        model = Stage(args, stage)
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], PLAN)
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    model.to_empty(device=device)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.02) if p.dim() > 1 else p.fill_(1)
    optimizer = torch.optim.AdamW(model.parameters())

    pipeline = Schedule1F1B(PipelineStage(model, stage, args.pp, device, group=mesh["pp"].get_group()), args.microbatches,
                            loss_fn=loss_of)
    for step in range(args.steps):
        tokens = torch.randint(args.vocab, (args.batch, args.length + 1), device=device)
        losses = []
        if stage == 0:
            pipeline.step(tokens[:, :-1])
        else:
            pipeline.step(target=tokens[:, 1:], losses=losses)
        clip(model.parameters(), mesh["pp"].get_group())
        optimizer.step()
        optimizer.zero_grad()
        loss = torch.stack(losses).mean() if losses else torch.zeros((), device=device)
        dist.all_reduce(loss)
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item() / (args.tp * mesh['dp'].size()):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
