"""Checks how a program sees operators that compute nothing (dfshim run --stub).

  stub.py values       checks this rank's values; DFSHIM_HOST_STUB_VALUE=0.5,
                       DFSHIM_HOST_STUB_STEPS=3
  stub.py same A B     compares the communication in the traces of two jobs
  stub.py alike A B    the same for jobs whose tensors differ in size
  stub.py BUG ARG...   docs/ci/llama.py with a bug: send, branch, groups

Run with TORCH_PYTHON's Python. DFSHIM names the program for `same`.
"""

import glob
import json
import os
import subprocess
import sys


def values():
    import torch
    import torch.distributed as dist
    from torch import nn

    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)
    torch.set_default_device("cuda")

    # Each tensor has 4 GiB. Less than 64 MiB in all may be touched.
    large = torch.empty(1 << 30)
    large.normal_()
    large = (large * 2 + 1).view(1 << 15, 1 << 15).softmax(-1)
    out = torch.empty(1 << 15, 1 << 15)
    torch.mm(large, large, out=out)
    dist.all_reduce(large)
    parts = torch.empty(world, 1 << 28)
    dist.all_gather_into_tensor(parts, large.flatten()[: 1 << 28])
    touched = sum(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssShmem"))
    assert touched < 64 << 10, f"{touched} kB are touched"

    # Reductions have small results.
    assert large.mean().item() == 0.5 and large.sum(0)[3].item() == 0.5 and large[5, 7].item() == 0.5
    assert large.norm().cpu().item() == 0.5 and large.argmax().item() == 0
    assert bool((large > 0).all()) and not torch.isnan(large).any().item() and torch.isfinite(large).all().item()
    assert not bool((large > 1).any()) and int((large > 0).sum(dtype=torch.int64).item()) == 0

    some = large[: 1 << 10]
    mask = torch.isnan(some).logical_or(torch.isinf(some))
    assert not mask.any().item() and torch.logical_not(mask).all().item()
    assert torch.gt(some, 0, out=mask).all().item() and len(mask[:1, :20].nonzero()) == 20
    for _ in range(3):  # computed masks, in memory that had skipped ones
        ones = torch.ones(some.shape, dtype=torch.bool)
        assert ones.any().item() and ones[3].sum().item() == 1 << 15
        mask = some > 1
        mask.fill_(True)
        assert mask.all().item()
        mask.copy_(torch.zeros(1 << 15, device="cpu", dtype=torch.bool))
        assert not mask.any().item()
        del mask, ones

    # Integers and small tensors are computed.
    numbers = torch.arange(1 << 16)
    assert numbers.sum().item() == (1 << 15) * ((1 << 16) - 1) and int((numbers % 2 == 0).sum()) == 1 << 15
    small = torch.full((16,), rank + 1.0)
    dist.all_reduce(small)
    assert small.tolist() == [world * (world + 1) / 2] * 16
    dist.all_reduce(numbers)
    assert numbers[7].item() == 7 * world
    objects = [None] * world
    dist.all_gather_object(objects, "r" * (200_000 + rank))
    assert [len(o) for o in objects] == [200_000 + r for r in range(world)]

    # A step has a backward pass, an optimizer, a scaler and a convolution. The backward pass of the
    # convolution returns only the gradients that are asked for.
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.Dropout(), nn.Flatten(),
                                                              nn.Linear(64 * 30 * 30, 1000)))
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler()
    loss = nn.functional.cross_entropy(model(torch.randn(8, 3, 32, 32)), torch.randint(1000, (8,)))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert loss.item() == 0.5 and scaler.get_scale() == 65536 and optimizer.state[next(model.parameters())]["step"] == 1

    torch.set_default_device("cpu")
    loader = torch.utils.data.DataLoader(list(range(100)), batch_size=2)
    assert len(loader) == 3 and [b.tolist() for b in loader] == [[0, 1], [2, 3], [4, 5]]
    dist.destroy_process_group()


def communication(folder, sizes):
    """Returns the operations of each rank in order, with the ranks that use their communicator."""
    out, members = {}, {}
    what = ("kind", "dtype", "redop", "rank") + (("b",) if sizes else ())
    for file in glob.glob(f"{folder}/*.dft"):
        show = subprocess.run([os.environ["DFSHIM"], "show", "--json", "--type=op", file], capture_output=True, text=True, check=True)
        for record in map(json.loads, show.stdout.splitlines()):
            members.setdefault(record["comm"], set()).add(record["job_rank"])
            out.setdefault(record["job_rank"], []).append((record["comm"], *(record[k] for k in what)))
    for rank, operations in out.items():
        numbers = {}  # tells communicators with equal ranks apart
        out[rank] = [(numbers.setdefault(comm, len(numbers)), sorted(members[comm]), *rest) for comm, *rest in operations]
    return out


def same(a, b, sizes):
    a, b = communication(a, sizes), communication(b, sizes)
    assert a.keys() == b.keys() and len(a) > 1
    for rank in a:
        assert len(a[rank]) > 100, len(a[rank])
        assert a[rank] == b[rank], (rank, next((pair for pair in zip(a[rank], b[rank]) if pair[0] != pair[1]), "one is longer"))
    print(f"{sum(map(len, a.values()))} operations of {len(a)} ranks are equal{'' if sizes else ' but for their sizes'}")


def with_bug(bug):
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage

    sys.path.insert(0, "docs/ci")
    import llama

    if bug == "send":  # the last microbatch is not passed on
        sends = PipelineStage.get_fwd_send_ops
        PipelineStage.get_fwd_send_ops = lambda self, chunk: [] if self.is_first and chunk == self.chunks - 1 else sends(self, chunk)
    elif bug == "branch":  # ranks with equal weights see different tokens
        step = llama.Schedule1F1B.step

        def with_branch(self, *args, **kwargs):
            tokens = llama.torch.tensor([dist.get_rank()], device="cuda")
            if tokens.max().item() == 1:
                dist.all_reduce(tokens)
            return step(self, *args, **kwargs)

        llama.Schedule1F1B.step = with_branch
    else:  # a set's order differs between ranks
        mesh = llama.init_device_mesh

        def with_groups(*args, **kwargs):
            pairs = [[0, 1], [0, 1, 2, 3]]
            groups = {len(pair): dist.new_group(pair) for pair in (pairs if dist.get_rank() else reversed(pairs))}
            tensor = llama.torch.zeros(1, device="cuda")
            for size, group in sorted(groups.items()):
                if dist.get_rank() < size:
                    dist.all_reduce(tensor, group=group)
            return mesh(*args, **kwargs)

        llama.init_device_mesh = with_groups
    llama.main()


if __name__ == "__main__":
    case = sys.argv.pop(1)
    if case == "values":
        values()
    elif case in ("same", "alike"):
        same(*sys.argv[1:], case == "same")
    else:
        with_bug(case)
