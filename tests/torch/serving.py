#!/usr/bin/env python3
"""Patterns that hang servers of language models: docs/serving.md.

    dfshim run --host -n 2 [--rules nccl] --timeout 8 -- python3 serving.py CASE [--fixed]
    serving.py --list      the cases: words by NCCL's rules, words under dfshim (OK: it finishes), the rank, its marked line

A case is a pattern of threads and processes in vLLM and SGLang, without their code. The marked line is the one that the report names.
"""

import os
import queue

import torch
import torch.distributed as dist
from cases import choose, line_of

FIXED = False
rank = int(os.environ.get("RANK", 0))


def ones(n=64):
    return torch.ones(n, device="cuda")


def zero_tokens():
    """A data-parallel rank without requests waits for some, while the experts of the others need that
    rank in the step."""
    requests = queue.Queue()
    for tokens in (4, 4, 4) if rank == 0 else (4, 0, 4):
        requests.put(tokens)

    def forward(tokens):
        experts = torch.empty(32, device="cuda")
        dist.reduce_scatter_tensor(experts, ones(64) * tokens)
        return experts.sum().item()

    while True:
        tokens = requests.get()  # the line
        # Fixed: a step without tokens also runs.
        if tokens or FIXED:
            forward(tokens)
        if FIXED and requests.empty():
            break


def batch_mode():
    """One rank has a request to begin, so it runs a step of another size than the ranks that only
    continue theirs."""
    begins = torch.tensor([int(rank == 0)], device="cuda")
    for _ in range(2):
        dist.all_reduce(ones(32))
    if FIXED:
        dist.all_reduce(begins, op=dist.ReduceOp.MAX)
    hidden = ones(128 if begins.item() else 32)
    dist.all_reduce(hidden)  # the line
    torch.cuda.synchronize()


def side_stream():
    """Two stages of a pipeline broadcast the tokens that the last stage samples on a stream of their
    own."""
    side = torch.cuda.Stream()
    activations, tokens = ones(256), torch.zeros(8, dtype=torch.int64, device="cuda")

    def hand_over():
        ops = [dist.P2POp(dist.isend if rank == 0 else dist.irecv, activations, 1 - rank)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    def sampled():
        with torch.cuda.stream(side):
            return dist.broadcast(tokens, src=1, async_op=True)  # the line

    dist.barrier()
    # The first stage asks for the tokens early. Fixed: the communicator has one order on all ranks.
    early = rank == 0 and not FIXED
    work = sampled() if early else None
    hand_over()
    (work or sampled()).wait()
    torch.cuda.synchronize()


# Each name has the word by NCCL's rules, the word under dfshim, and the rank that the report names.
CASES = {
    zero_tokens: ("MISSING", "MISSING", 1),
    batch_mode: ("MISMATCH", "MISMATCH", 0),
    side_stream: ("ORDER", "OK", 0),
}


def main():
    global FIXED
    cases, FIXED = choose(__doc__, CASES, lambda f: (*CASES[f], line_of(f)))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    for case in cases:
        case()
        print("rank", rank, case.__name__, "has finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
