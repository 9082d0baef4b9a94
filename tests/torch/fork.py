"""Runs a step of DDP with the workers of a DataLoader. One interpreter has forked the ranks after its
import of torch (argument "forked"), or they have interpreters of their own ("separate")."""

import os
import sys

imported = "torch" in sys.modules

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        assert torch.utils.data.get_worker_info().seed
        return torch.full((4,), float(i * i))


def main():
    assert imported == (sys.argv[1] == "forked"), f"torch is imported at the start: {imported}"
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    seeds = [None] * dist.get_world_size()
    dist.all_gather_object(seeds, torch.initial_seed())
    assert len(set(seeds)) == len(seeds), "ranks have one seed"
    model = DistributedDataParallel(torch.nn.Linear(4, 4).cuda(), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters())
    for how in ("fork", "spawn") if rank < 2 else ("fork", "fork"):
        total = 0.0
        for batch in DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context=how):
            total += batch[:, 0].sum().item()
            optimizer.zero_grad()
            model(batch.cuda()).sum().backward()
            optimizer.step()
        assert total == sum(i * i for i in range(16)), total
    weight = model.module.weight.detach()
    weights = [torch.empty_like(weight) for _ in seeds]
    dist.all_gather(weights, weight.contiguous())
    assert all(torch.equal(w, weight) for w in weights), "ranks have other weights"
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
