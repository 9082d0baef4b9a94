"""Tests of PyTorch's own distributed suite (torch.testing._internal.distributed.distributed_test), one after the other in the ranks
that `dfshim run` starts:

    dfshim run --host=N -n N -- python3 ranks.py FOLDER [--every K] [--known FILE] [NAME...]

FOLDER/RANK gets a line for each test: "ok", "skip" (with a code of the suite) or "FAIL", and its name. So ranks that one interpreter has forked can be
compared with ranks that have interpreters of their own. NAME: a part of a test's name. --every K: each K-th test. --known: exceptions
(docs/pytorch-suite.txt), which are left out. Exit status: 0 if none failed.
"""

import argparse
import os
import sys
import tempfile
import unittest

imported = "torch" in sys.modules

import torch


def names_of(suite, args):
    known = [line.split(None, 1)[0] for line in open(args.known) if line.strip() and line[0] != "#"] if args.known else []
    known = [name.partition("@")[0] for name in known]
    names = [n for i, n in enumerate(unittest.TestLoader().getTestCaseNames(suite)) if i % args.every == 0 and n not in known]
    return [n for n in names if not args.names or any(part in n for part in args.names)]


def run(suite, name, rank, file):
    """Runs a test as the suite's own processes do; returns how it ended."""
    if getattr(getattr(suite, name), "__unittest_skip__", False):
        return "skip"
    ours, theirs = torch.multiprocessing.Pipe()
    try:
        suite._run(rank, name, file, theirs)
    except SystemExit as end:
        if end.code == suite.TEST_ERROR_EXIT_CODE:
            print(f"rank {rank} {name}: {ours.recv()}", file=sys.stderr, flush=True)
            return "FAIL"
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        return f"skip {end.code}" if end.code else "ok"
    finally:
        ours.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--known")
    parser.add_argument("--how", choices=["forked", "separate"], help="what the ranks have to be")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    assert args.how in (None, "forked" if imported else "separate"), f"torch is imported at the start: {imported}"
    rank = int(os.environ["RANK"])
    temp = os.path.join(args.folder, "temp")
    for part in ("barrier", "test_dir"):
        os.makedirs(os.path.join(temp, part), exist_ok=True)
    os.environ.update(BACKEND="nccl", TEMP_DIR=temp)
    os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "300")
    tempfile.tempdir = temp

    from torch.testing._internal.distributed import distributed_test

    # The suite's limit of 10 s is too short beside other work.
    distributed_test.Barrier.sync.__func__.__defaults__ = (None, 300)

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        pass

    with open(os.path.join(args.folder, str(rank)), "w") as out:
        for i, name in enumerate(names_of(Suite, args)):
            distributed_test.Barrier.barrier_id = 1000 * i  # makes the ranks meet anew in each test
            end = run(Suite, name, rank, os.path.join(args.folder, f"store-{name}"))
            print(end, name, file=out, flush=True)
            if end == "FAIL":
                os._exit(1)  # the other ranks may wait for this one


if __name__ == "__main__":
    main()
