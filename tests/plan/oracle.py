"""Iteration times of DDP, ByteScheduler and US-Byte, from their definitions, on a configuration of `dfshim plan`.

In steps of the clock where the planner counts events: a second opinion on who is sent when. Integer milliseconds only.

  oracle.py CONFIG.json     prints "ddp T", "bytescheduler T", and "lower T", below which no order can be
"""
import itertools
import json
import math
import sys


def forward(buckets, done):
    t = sum(b["backward_ms"] for b in buckets)
    for b, d in zip(buckets, done):
        t = max(t, d) + b["forward_ms"]
    return t


def releases(buckets):
    after = [0] + list(itertools.accumulate(b["backward_ms"] for b in reversed(buckets)))
    return after[:0:-1]


def ddp(buckets):
    """Advances by ticks of one millisecond. The link sends the earliest bucket that is ready."""
    ready, left, t = releases(buckets), [b["communication_ms"] for b in buckets], 0
    while any(left):
        waiting = [i for i in range(len(buckets)) if left[i] and ready[i] <= t]
        if waiting:
            left[max(waiting)] -= 1
        t += 1
    return forward(buckets, [t] * len(buckets))


def bytescheduler(buckets, size, credit):
    """Advances by ticks of a unit that divides every block. Sends blocks by priority while there is
    credit."""
    parts = [math.ceil(b["parameters"] / size) for b in buckets]
    unit = math.lcm(*parts)
    ready = [r * unit for r in releases(buckets)]
    length = [b["communication_ms"] * unit // n for b, n in zip(buckets, parts)]
    params = [math.ceil(b["parameters"] / n) for b, n in zip(buckets, parts)]
    waiting, queue, done, t = list(parts), [], [0] * len(buckets), 0
    while any(waiting) or queue:
        while credit > 0:
            able = [i for i in range(len(buckets)) if waiting[i] and ready[i] <= t]
            if not able:
                break
            i = min(able)
            waiting[i] -= 1
            credit -= params[i]
            queue.append([i, length[i]])
        t += 1
        if queue:
            queue[0][1] -= 1
            if not queue[0][1]:
                i = queue.pop(0)[0]
                credit += params[i]
                done[i] = t / unit
    return forward(buckets, done)


def main():
    with open(sys.argv[1]) as f:
        config = json.load(f)
    buckets = config["buckets"]
    print("ddp", ddp(buckets))
    print("bytescheduler", min(bytescheduler(buckets, config["partition"], credit) for credit in (4000000, 1)))
    print("lower", buckets[-1]["backward_ms"] + sum(b["communication_ms"] for b in buckets) + buckets[-1]["forward_ms"])


if __name__ == "__main__":
    main()
