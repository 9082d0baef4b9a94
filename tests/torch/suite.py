#!/usr/bin/env python3
"""PyTorch's own distributed suite (torch.testing._internal.distributed.distributed_test, in its wheel) with NCCL.

    dfshim run --host=N -- python3 suite.py --world N [--every K] [--limit S] [--known FILE] [--list] [NAME...]

NAME: a part of a test's name. --every K: each K-th test. --known: exceptions, which are skipped: a test's name (NAME@N: with N
ranks only) and the reason a line. A line for each test ("ok", "FAIL", "skip"); the last line counts them. Exit status: 0 if none failed. The tests' processes are forked from one that has torch loaded.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
import unittest

def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds after which no further test is begun")
    parser.add_argument("--known")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*")
    return parser.parse_args()


if __name__ == "__main__":
    args = options()
    temp = tempfile.TemporaryDirectory(prefix="dfshim-suite-")
    os.makedirs(os.path.join(temp.name, "barrier"))
    os.makedirs(os.path.join(temp.name, "test_dir"))
    os.environ.update(BACKEND="nccl", WORLD_SIZE=str(args.world), TEMP_DIR=temp.name)
    os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "300")
    os.environ.setdefault("MASTER_ADDR", "localhost")

from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402


def in_child(environment, run, *args, **kwargs):
    """A forked process has the environment of the first test, but each test has folders of its own."""
    os.environ.update(environment)
    run(*args, **kwargs)


def process(target, args, **rest):
    environment = {k: v for k, v in os.environ.items() if k in ("TEMP_DIR", "MASTER_ADDR", "MASTER_PORT")}
    return multiprocessing.get_context("forkserver").Process(target=in_child, args=(environment, target, *args), **rest)


class Suite(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(process)


class Lines(unittest.TestResult):
    """Prints a line for each test as it ends."""

    def __init__(self):
        super().__init__()
        self.nr_passed = 0

    def startTest(self, test):
        super().startTest(test)
        self.begun = time.monotonic()

    def line(self, test, text):
        print(f"{text} {test._testMethodName} ({time.monotonic() - self.begun:.1f} s)", flush=True)

    def addSuccess(self, test):
        self.nr_passed += 1
        self.line(test, "ok  ")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.line(test, "skip")
        print(f"     | {reason.strip()}", flush=True)

    def bad(self, test, error):
        self.line(test, "FAIL")
        for line in self._exc_info_to_string(error, test).rstrip().split("\n")[-25:]:
            print("     |", line, flush=True)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.bad(test, error)

    def addError(self, test, error):
        super().addError(test, error)
        self.bad(test, error)


def main():
    multiprocessing.set_forkserver_preload(["torch", "torch._dynamo"])
    names = unittest.TestLoader().getTestCaseNames(Suite)
    names = [n for i, n in enumerate(names) if i % args.every == 0]
    if args.names:
        names = [n for n in names if any(part in n for part in args.names)]
    if args.list:
        print("\n".join(names))
        return 0
    known = {}
    for line in open(args.known) if args.known else ():
        if line.strip() and line[0] != "#":
            name, reason = line.strip().split(None, 1)
            name, _, ranks = name.partition("@")
            if not ranks or int(ranks) == args.world:
                known[name] = reason
    result, begun = Lines(), time.monotonic()
    for i, name in enumerate(names):
        if time.monotonic() - begun > args.limit:
            print(f"     | {len(names) - i} tests were not begun: no time left")
            break
        test = Suite(name)
        if name in known:
            result.startTest(test)
            result.addSkip(test, "exception: " + known[name])
        else:
            test(result)
    failed = len(result.failures) + len(result.errors)
    print(f"{args.world} ranks: {result.nr_passed} passed, {failed} failed, {len(result.skipped)} skipped")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
