#!/usr/bin/env python3
"""Public reports of hangs, reduced: what docs/evaluation.md says of them.

    dfshim run --host -n RANKS [--rules nccl] --timeout 8 -- python3 reports.py CASE [--fixed]
    reports.py --list      the cases: ranks, words by NCCL's rules, words under dfshim (OK: it finishes), the line, the report, the cause

A case is the smallest program with the cause that the report's thread establishes; --fixed: as the thread mends it. The line that
the fix changes is marked; the report has to name it.
"""

import os
import threading

import torch
import torch.distributed as dist
import torch.nn as nn
from cases import choose, line_of

FIXED = False
rank = int(os.environ.get("RANK", 0))
world = int(os.environ.get("WORLD_SIZE", 1))


def ones(n=64):
    return torch.ones(n, device="cuda")


def summed(x, group=None):
    dist.all_reduce(x, group=group)
    return x


def sglang_26923():
    """A sum confirms a cache's writes. A rank whose own list is empty leaves the sum out."""
    pending = [1, 1] if rank == 0 else [1]

    def writing_check():
        if not pending and not FIXED:
            return
        done = torch.tensor([len(pending)], device="cuda")
        dist.all_reduce(done, op=dist.ReduceOp.MIN)  # the line
        del pending[: max(1, int(done.item()))]

    for _ in range(3):
        writing_check()
        logits = [ones(256) for _ in range(world)]
        dist.all_gather(logits, ones(256))
        torch.cuda.synchronize()


def verl_6365():
    """Each rank broadcasts buffers of several sizes in the order in which it happens to have them."""
    buffers = {"full_attention": ones(256), "sliding_attention": ones(128)}
    names = sorted(buffers) if FIXED or rank == 0 else sorted(buffers, reverse=True)
    for name in names:
        dist.broadcast(buffers[name], src=0)  # the line
    torch.cuda.synchronize()


def accelerate_3982():
    """Rank 0 walks over a state that also has quantization's entries. The others walk over the model's
    own names."""
    names = ["weight", "bias"]
    full = names if FIXED else ["weight", "weight.absmax", "bias"]
    for name in full if rank == 0 else names:
        dist.broadcast(ones(32 if "absmax" in name else 64), src=0)  # the line
    torch.cuda.synchronize()
    dist.barrier()


def accelerate_2785():
    """Only the main process gathers the predictions."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8).cuda())
    model(ones(8)).sum().backward()
    if rank == 0 or FIXED:
        out = [ones(8) for _ in range(world)]
        dist.all_gather(out, ones(8))  # the line
        torch.stack(out).mean().item()
    model(ones(8)).sum().backward()
    torch.cuda.synchronize()


def pytorch_77562():
    """The loss is reduced to rank 0 only, but each rank uses the loss to decide whether to save."""
    best = 3.0
    loss = ones(1) * (1 + rank)
    if FIXED:
        dist.all_reduce(loss)
    else:
        dist.reduce(loss, 0)  # the line
    if loss.item() >= best:
        state = [ones(16) for _ in range(world)]
        dist.all_gather(state, ones(16))
    summed(ones(64))
    torch.cuda.synchronize()


def vllm_43547():
    """A data-parallel rank without tokens skips the step's agreement, and with it one collective of each step."""
    for step in range(3):
        tokens = 0 if rank == 1 and step == 1 else 4
        if tokens or FIXED:
            summed(torch.tensor([tokens], device="cuda"))  # the line
            out = torch.empty(64 // world, device="cuda")
            dist.reduce_scatter_tensor(out, ones(64))
        summed(ones(16)).sum().item()


def deepspeed_4808():
    """An expert's gradient is reduced when the expert has one. It has one only on ranks that gave
    tokens to the expert."""
    experts = [nn.Linear(8, 8).cuda() for _ in range(2)]
    handles = []
    for i, e in enumerate(experts):
        hook = lambda g, i=i: handles.append(dist.all_reduce(ones(64 + i), async_op=True))  # the line
        e.weight.register_hook(hook)
    chosen = experts if FIXED or rank == 0 else experts[:1]
    sum(e(ones(8)).sum() for e in chosen).backward()
    for h in handles:
        h.wait()
    dist.barrier()
    torch.cuda.synchronize()


def nccl_1192():
    """Two ranks issue a reduction and a message of one communicator in opposite orders."""
    x, big = ones(1), torch.ones(1 << 20, device="cuda")
    summed(ones())
    torch.cuda.synchronize()
    message = dist.isend if rank == 0 else dist.irecv
    works = []
    if rank == 0 or FIXED:
        works.append(dist.reduce(x, world - 1, async_op=True))
    works.append(message(big, 1 - rank))  # the line
    if rank == 1 and not FIXED:
        works.append(dist.reduce(x, world - 1, async_op=True))
    for w in works:
        w.wait()
    torch.cuda.synchronize()


def pytorch_172668():
    """Two stages of a pipeline send to each other before they receive."""
    out, back = (torch.ones(1 << 20, device="cuda") for _ in range(2))
    summed(ones())
    torch.cuda.synchronize()
    if FIXED:
        for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, out, 1 - rank), dist.P2POp(dist.irecv, back, 1 - rank)]):
            w.wait()
    else:
        dist.send(out, 1 - rank)  # the line
        dist.recv(back, 1 - rank)
    torch.cuda.synchronize()


def accelerate_2258():
    """The rank that has a bad batch skips the batch."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8).cuda())
    for step in range(4):
        if rank == 1 and step == 3 and not FIXED:
            continue  # the line
        model(ones(8)).sum().backward()
        torch.cuda.synchronize()


def prime_rl_2515():
    """FSDP iterates over a validation set to its end, and the ranks have different numbers of batches."""
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8)).cuda()
    for part in model:
        fully_shard(part)
    fully_shard(model)
    batches = 2 if FIXED else 2 + rank
    with torch.no_grad():
        for _ in range(batches):
            loss = model(ones(8)).sum()  # the line
    summed(loss.detach())
    torch.cuda.synchronize()


def lightning_18148():
    """The folder of the logs is found by a hidden broadcast. A callback asks for the folder on rank 0
    only."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8).cuda())

    def log_dir():
        dist.broadcast(ones(16), src=0)

    if rank == 0 or FIXED:
        log_dir()  # the line
    model(ones(8)).sum().backward()
    torch.cuda.synchronize()


def lightning_19045():
    """Only rank 0 knows a metric, so the ranks disagree about the file that the best model replaces."""
    score = 1 if rank == 0 or FIXED else 2  # the line
    replaced, path = f"best-{score}", "best-1"

    def exists():
        found = ones(1)
        dist.broadcast(found, src=0)
        return found.item() == 1

    while exists() and path != replaced and len(path) < 20:
        path += "-v"
    summed(ones())
    torch.cuda.synchronize()


def deepspeed_8262():
    """Partitioned parameters are gathered for each token, but the ranks' answers have different
    lengths."""
    full = torch.empty(64 * world, device="cuda")
    for token in range(6):
        if token == 2 + rank and not FIXED:
            break  # the line
        dist.all_gather_into_tensor(full, ones(64))
    summed(ones(16)).sum().item()


def automodel_3824():
    """Only a thread knows whether the daemon of a checkpoint runs. A rank that asks too early starts
    the daemon again, with a broadcast."""
    running, end = threading.Event(), threading.Event()
    starters = []

    def start(at_once):
        if not at_once:
            end.wait()
        running.set()

    for _ in range(2):
        if not running.is_set():
            dist.broadcast(ones(32), src=0)  # the line
            starters.append(threading.Thread(target=start, args=(rank == 0 or FIXED,), daemon=True))
            starters[-1].start()
            if rank == 0 or FIXED:
                running.wait()
        dist.all_gather([ones(8) for _ in range(world)], ones(8))
    torch.cuda.synchronize()
    end.set()
    for t in starters:
        t.join()


def audio_3749():
    """A rank whose loss is not a number returns before the ranks gather their numbers of frames."""
    for step in range(3):
        bad = torch.tensor([float(rank == 1 and step == 1)], device="cuda")
        if FIXED:
            summed(bad)
        if bad.item():
            continue  # the line
        frames = [ones(1) for _ in range(world)]
        dist.all_gather(frames, ones(1))
        summed(ones(32)).sum().item()


def tensorrt_llm_12024():
    """Each rank draws the next token with a random state of its own, so one of them draws the last
    token earlier."""
    last = 7
    for step in range(6):
        summed(ones(128))
        token = torch.tensor([last if step == 2 + rank else 0], device="cuda")
        if FIXED:
            dist.broadcast(token, src=0)
        if token.item() == last:
            break  # the line
    dist.all_gather([ones(8) for _ in range(world)], ones(8))
    torch.cuda.synchronize()


def megatron_5240():
    """Messages without a batch make a communicator for each pair at its first use. The pairs of a ring
    wait in a cycle."""
    there, back = ones(), ones()
    ops = [dist.P2POp(dist.isend, there, (rank + 1) % world), dist.P2POp(dist.irecv, back, (rank - 1) % world)]
    if FIXED:
        works = dist.batch_isend_irecv(ops)
    else:
        works = [p.op(p.tensor, p.peer) for p in ops]  # the line
    for w in works:
        w.wait()
    torch.cuda.synchronize()


def pytorch_147561():
    """The compiler of each rank decides by itself whether the backward pass gathers the weights again."""

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            dist.all_gather_into_tensor(torch.empty(64 * world, device="cuda"), ones(64))
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            if rank == 0 and not FIXED:
                dist.all_gather_into_tensor(torch.empty(64 * world, device="cuda"), ones(64))  # the line
            return grad * 2

    x = ones().requires_grad_()
    Layer.apply(x).sum().backward()
    summed(x.grad)
    torch.cuda.synchronize()


def pytorch_117486():
    """A rank expects more from another rank than that rank sends."""
    out = [1, 1] if rank or FIXED else [1, 3]
    dist.all_to_all_single(torch.empty(sum(out), device="cuda"), ones(2), out, [1, 1])  # the line
    torch.cuda.synchronize()


# Each name has the number of ranks, the words by NCCL's rules, the words under dfshim, and the tracker.
CASES = {
    sglang_26923: (2, "MISMATCH", "MISMATCH", "sgl-project/sglang"),
    verl_6365: (2, "MISMATCH", "OK", "verl-project/verl"),
    accelerate_3982: (2, "MISMATCH", "MISMATCH", "huggingface/accelerate"),
    accelerate_2785: (2, "MISMATCH", "MISMATCH", "huggingface/accelerate"),
    pytorch_77562: (2, "MISMATCH", "MISMATCH", "pytorch/pytorch"),
    vllm_43547: (2, "MISMATCH", "MISMATCH", "vllm-project/vllm"),
    deepspeed_4808: (2, "MISMATCH", "MISMATCH", "deepspeedai/DeepSpeed"),
    nccl_1192: (2, "ORDER", "OK", "NVIDIA/nccl"),
    pytorch_172668: (2, "ORDER", "OK", "pytorch/pytorch"),
    accelerate_2258: (2, "MISSING", "MISSING", "huggingface/accelerate"),
    prime_rl_2515: (2, "MISMATCH", "MISMATCH", "PrimeIntellect-ai/prime-rl"),
    lightning_18148: (2, "MISMATCH", "MISMATCH", "Lightning-AI/pytorch-lightning"),
    lightning_19045: (2, "MISMATCH", "MISMATCH", "Lightning-AI/pytorch-lightning"),
    deepspeed_8262: (2, "MISMATCH", "MISMATCH", "deepspeedai/DeepSpeed"),
    automodel_3824: (2, "MISMATCH", "MISMATCH", "NVIDIA-NeMo/Automodel"),
    audio_3749: (2, "MISSING", "MISSING", "pytorch/audio"),
    tensorrt_llm_12024: (2, "MISMATCH", "MISMATCH", "NVIDIA/TensorRT-LLM"),
    megatron_5240: (3, "ORDER", "OK", "NVIDIA/Megatron-LM"),
    pytorch_147561: (2, "MISMATCH", "MISMATCH", "pytorch/pytorch"),
    pytorch_117486: (2, "MISMATCH", "MISMATCH", "pytorch/pytorch"),
}


def row(case):
    ranks, nccl, ours, tracker = CASES[case]
    cause = " ".join(case.__doc__.split()).rstrip(".")
    return ranks, nccl, ours, line_of(case), f"{tracker} {case.__name__.rsplit('_', 1)[1]}", cause


def main():
    global FIXED
    cases, FIXED = choose(__doc__, CASES, row)
    torch.manual_seed(0)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    # All cases one after the other work only with --fixed.
    for case in cases:
        case()
        print("rank", rank, case.__name__, "has finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
