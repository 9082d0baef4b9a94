"""The twin of tests/clients/latency.c over PyTorch's gloo: it has the same sizes, measures the time in
the same way, and prints the same output."""

import os
import resource
import statistics
import time

import torch
import torch.distributed as dist


def processor():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime


torch.set_num_threads(1)
dist.init_process_group("gloo")
n, rank = dist.get_world_size(), dist.get_rank()
rounds = int(os.environ.get("LATENCY_ROUNDS", 11))
size, most = 8, int(os.environ.get("LATENCY_MAX", 64 << 20))
while size <= most:
    x = torch.zeros(size // 4)
    inner = 200 if size <= 65536 else 20 if size <= 1 << 20 else 4
    times = []
    for r in range(-1, rounds):
        if not r:
            cpu = processor()
        start = time.monotonic()
        for _ in range(inner):
            dist.all_reduce(x)
        if r >= 0:
            times.append((time.monotonic() - start) / inner)
    print(f"cpu: {size} bytes {(processor() - cpu) * 1e6 / (inner * rounds):.3f} us", flush=True)
    took = statistics.median(times)
    if not rank:
        print(f"latency: {size} bytes {took * 1e6:.3f} us {size / took * 1e-9 * 2 * (n - 1) / n:.4f} GB/s", flush=True)
    size = 1 << 20 if size < 1 << 20 else size * 4
dist.barrier()
dist.destroy_process_group()
