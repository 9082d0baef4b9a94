"""Trains a small network on 2 ranks (gloo) with dfshim.deft, and, in one process, as its schedule says it should be.

    deft_job.py FOLDER CASE...
    dfshim run --host -- deft_job.py FOLDER networks     the links are two networks of NCCL's
    DFSHIM_NET=comm=0:tcp,comm=1:tcp,comm=2:plugin dfshim run --host -- deft_job.py FOLDER rules     the same by rules

The reference keeps CURRENT and FUTURE as sums over ranks and knows nothing of links or parts: parameters must agree.
"""
import copy
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

from dfshim import deft

WORLD, WARMUP, ITERATIONS, ODD = 2, 5, 60, 21
CASES = {  # coverage rate, links, momentum, clip
    "hidden": (0.7, 1, 0.0, None),
    "merged": (2.3, 1, 0.9, None),
    "links": (2.3, 2, 0.9, 0.5),
    "startup": (1.3, 2, 0.0, None),  # links with a start-up time
    "measured": (None, 2, 0.0, None),  # on a busy machine the result is open, and there may be no plan
    "preserved": (2.3, 1, 0.0, None),  # the preserver requests more updates and gets them
    "harm": (6.0, 1, 0.0, None),  # the preserver requests more than ten rounds can give: plain DDP
    "networks": (2.3, ["Socket", "Fake"], 0.9, 0.5),  # netName of the links' communicators
    # commName of the links' communicators, for rules of DFSHIM_NET. PyTorch 2.15 sets it to the
    # group's name, which is its number.
    "rules": (2.3, ["1", "2"], 0.9, 0.5),
    # With dfshim.deft.GradScaler, and infinite gradients in the iterations OVERFLOWS.
    "scaled": (2.3, 2, 0.9, 0.5),
    "scaled_preserved": (2.3, 1, 0.0, None),
    "scaled_changed": (2.3, 2, 0.9, 0.5),
    "scaled_too_few": (2.3, 1, 0.9, 0.5),
    # These return to plain DDP after the switch, because of an event on rank 1 in iteration ODD.
    "changed": (2.3, 2, 0.9, None),  # the buckets change
    "no_step": (2.3, 2, 0.9, 0.5),  # a backward pass without a step
    "out_of_step": (2.3, 1, 0.9, None),
    # These always use plain DDP, because their plans are invalid.
    "negative": (2.3, 1, 0.9, None),
    "fractions": (2.3, 1, 0.9, None),
    "too_few": (2.3, 1, 0.9, None),
    "too_many_links": (2.3, 1, 0.9, None),
    "too_many_startups": (2.3, 1, 0.9, None),
    "raises": (2.3, 1, 0.9, None),
}
OVERFLOWS = {2: 1, ODD: 1, 34: 0, 50: 1}  # iteration: the rank whose gradients are infinite
SCALE, GROWTH = 2.0 ** 14, 8  # the initial scale; the number of good iterations after which it doubles
ENDED = {  # words of the log line
    "harm": "preserver",
    "changed": "changed its buckets",
    "scaled_changed": "changed its buckets",
    "scaled_too_few": "buckets",
    "no_step": "without step()",
    "out_of_step": "out of step",
    "negative": "no negative time",
    "fractions": "whole numbers",
    "too_few": "buckets",
    "too_many_links": "3 links; there are 1",
    "too_many_startups": "as many as there are links",
    "raises": "no such file",
}


def network():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(20, 60), torch.nn.Tanh(), torch.nn.Linear(60, 50), torch.nn.Tanh(),
                               torch.nn.Linear(50, 30), torch.nn.Tanh(), torch.nn.Linear(30, 3))


def batch(rank, iteration):
    g = torch.Generator().manual_seed(1000 * rank + iteration)
    x = torch.randn(8, 20, generator=g)
    return x, torch.stack((x[:, 0] * x[:, 1], x[:, 2].sin(), x[:, 3:6].sum(1)), 1)


def times(cr, links):
    """Returns a plan function that ignores the measurements: three units of forward time, six of
    backward time, and `cr` times their sum for communication."""
    def plan(sizes):
        n, unit = len(sizes), 1000000
        comm = [int(cr * 9 * unit * n * s / sum(sizes)) for s in sizes]
        return [3 * unit] * n, [6 * unit] * n, comm, sizes, [1.0, 1.65][:links if isinstance(links, int) else len(links)]
    return plan


def overflows(case, rank, iteration):
    return float("inf") if case.startswith("scaled") and OVERFLOWS.get(iteration) == rank else 1.0


def nonsense(case, plan):
    """Returns the plan function, made invalid for some cases."""
    def spoilt(sizes):
        forward, backward, comm, sizes, slowdown = plan(sizes)
        if case == "negative":
            forward[0] = -1
        if case == "fractions":
            comm[0] += .5
        if case.endswith("too_few"):
            return forward[1:], backward[1:], comm[1:], sizes[1:], slowdown
        if case == "too_many_links":
            slowdown = [1.0, 1.0, 1.0]
        if case in ("startup", "too_many_startups"):
            return forward, backward, comm, sizes, slowdown, [100000, 300000]
        if case == "raises":
            raise OSError("no such file")
        return forward, backward, comm, sizes, slowdown
    return spoilt


def worker(rank, cases, folder):
    torch.set_num_threads(1)
    for case in cases:
        train(rank, case, folder)


def by_name(case, name):
    """Selects the network by NCCL's own configuration."""
    options = dist.ProcessGroupNCCL.Options()
    setattr(options.config, "net_name" if case == "networks" else "comm_name", name)
    return options


def train(rank, case, folder):
    cr, links, momentum, clip = CASES[case]
    device, store = torch.device("cpu"), f"file://{folder}/{case}.store"
    if isinstance(links, int):
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD)
    else:
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        # DDP's own communicator uses the first network, so only the second link uses the second.
        dist.init_process_group("nccl", init_method=store, rank=rank, world_size=WORLD, pg_options=by_name(case, links[0]))
        links = [dist.new_group(pg_options=by_name(case, name)) for name in links]
    model, preserve = DDP(network().to(device), bucket_cap_mb=0.002), {"preserved": .02, "scaled_preserved": .02, "harm": .001}.get(case)
    scaler = deft.GradScaler("cpu", init_scale=SCALE, growth_interval=GROWTH) if case.startswith("scaled") else None
    opt = deft.wrap(model, torch.optim.SGD(model.parameters(), 0.05, momentum), links=links, warmup=WARMUP, clip=clip,
                    plan=cr and nonsense(case, times(cr, links)), preserve=preserve)
    asked, ask = [], deft.Planner.preserve
    for i in range(ITERATIONS):
        def record(planner, *args, i=i):
            asked.append((i, args))
            return ask(planner, *args)

        deft.Planner.preserve = record
        if rank and i == ODD and case.endswith("changed"):
            opt.buckets[1] = (opt.buckets[1][0][::-1], *opt.buckets[1][1:])
        if rank and i == ODD and case == "out_of_step":
            opt.iteration += 1
        opt.zero_grad()
        x, y = (t.to(device) for t in batch(rank, i))
        loss = torch.nn.functional.mse_loss(model(x), y)
        wanted = [loss] if preserve else []
        if scaler:
            scaler.scale(loss * overflows(case, rank, i)).backward()
            if i == ODD - 1 and case == "scaled":
                wrong(RuntimeError, "wrap(clip=)", lambda: scaler.unscale_(opt))
                wrong(RuntimeError, "after one without it", opt.step)
            scaler.step(opt, *wanted)
            scaler.update()
            continue
        loss.backward()
        if not (rank and i == ODD and case == "no_step"):
            opt.step(*wanted)
    deft.Planner.preserve = ask
    before = [p.detach().cpu().clone() for p in model.parameters()]
    opt.flush()
    after = [p.detach().cpu().clone() for p in model.parameters()]
    if case == "hidden":
        refused(model, opt)
    torch.save((opt.mode, opt.profile, opt.updates, before, after, opt.ended, asked, opt.rounds,
                scaler and scaler.get_scale()), f"{folder}/{case}.{rank}")
    dist.destroy_process_group()


def wrong(kind, words, call):
    try:
        call()
    except kind as why:
        assert words in str(why), why
    else:
        raise AssertionError(f"accepted: {words}")


def refused(model, opt):
    """Uses that would give wrong gradients must raise an error."""
    def accumulate():
        with model.no_sync():
            model(batch(0, 0)[0])

    wrong(TypeError, "no DistributedDataParallel", lambda: deft.wrap(network(), opt.inner))
    wrong(ValueError, "find_unused_parameters", lambda: deft.wrap(DDP(network(), find_unused_parameters=True), opt.inner))
    wrong(ValueError, "links=5", lambda: deft.wrap(DDP(network()), opt.inner, links=5))
    def uneven():
        with Join([model]):
            model(batch(0, 0)[0])

    wrong(RuntimeError, "no_sync", accumulate)
    wrong(RuntimeError, "Join", uneven)
    wrong(RuntimeError, "Join", lambda: model.join().__enter__())
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    wrong(RuntimeError, "use dfshim.deft.GradScaler", lambda: scaler.step(opt))
    wrong(RuntimeError, "without a forward pass", opt.step)
    wrong(ValueError, "negative", lambda: deft.Planner([-1], [1], [1], [1], [1.0]))


def reference(case, profile, fell, asked):
    """`fell` is the iteration at whose end all ranks return to plain DDP."""
    _, _, momentum, clip = CASES[case]
    model, planner = network(), deft.Planner(*profile) if profile and fell >= WARMUP else None
    params = list(model.parameters())
    opt = torch.optim.SGD(params, 0.05, momentum)
    sums, counts, updates, lost = [None, None], [0, 0], [], []
    # If the scale is never scheduled, PyTorch's own scaler is the reference. Otherwise the scale is
    # halved after iterations in which a non-finite value was applied, and doubled after GROWTH
    # other iterations.
    own = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=GROWTH) if case == "scaled_too_few" else None
    scale, good, finite = SCALE, 0, True

    def apply(gradients, k, scheduled=True):
        nonlocal finite
        for p, g in zip(params, gradients):
            p.grad = g / (WORLD * k)
        if own:
            own.scale(torch.ones(()))
            for p in params:
                p.grad *= own.get_scale()
            own.unscale_(opt)
        elif not all(g.isfinite().all() for g in gradients):
            finite = False
            lost.extend([k] * scheduled)
            return
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(params, clip)
        own.step(opt) if own else opt.step()
        updates.extend([k] * scheduled)

    for i in range(ITERATIONS):
        total, finite = None, True
        for rank in range(WORLD):
            x, y = batch(rank, i)
            g = torch.autograd.grad(torch.nn.functional.mse_loss(model(x), y) * overflows(case, rank, i), params)
            total = g if total is None else [a + b for a, b in zip(total, g)]
        if i < WARMUP or i > fell:
            apply(total, 1, False)
            if i == WARMUP - 1 and asked and planner:
                planner.preserve(*asked[0][1])
        else:
            sums[1] = total if sums[1] is None else [a + b for a, b in zip(sums[1], total)]
            counts[1] += 1
            _, merged, formed = planner.next()
            if merged:
                assert merged == counts[0]
                apply(sums[0], merged)
            if formed:
                sums, counts = [sums[1], None], [counts[1], 0]
            for when, args in asked:
                if when == i:
                    planner.preserve(*args)
            if i == fell:
                for gradients, k in zip(sums, counts):
                    if k:
                        apply(gradients, k)
                sums, counts = [None, None], [0, 0]
        if own:
            own.update()
            scale = own.get_scale()
        elif not finite:
            scale, good = scale / 2, 0
        else:
            good += 1
            if good == GROWTH:
                scale, good = scale * 2, 0
    before = [p.detach().clone() for p in params]
    for gradients, k in zip(sums, counts):
        if k:
            apply(gradients, k)
    assert sum(updates + lost) == max(min(fell + 1, ITERATIONS) - WARMUP, 0)
    assert not case.startswith("scaled") or own or lost
    return updates, before, params, scale


def main():
    folder = sys.argv[1]
    torch.set_num_threads(1)
    cases = sys.argv[2:] or [case for case in CASES if isinstance(CASES[case][1], int)]
    mp.spawn(worker, (cases, folder), WORLD)
    for case in cases:
        runs = [torch.load(f"{folder}/{case}.{rank}") for rank in range(WORLD)]
        mode, profile, updates, before, after, ended, asked, rounds, scale = runs[0]
        assert ENDED.get(case, "") in (ended or ""), f"{case}: {ended}"
        assert (mode == deft.PLAIN) == bool(ended) and (bool(ended) == (case in ENDED) or case == "measured"), (case, mode, ended)
        if case in ("preserved", "scaled_preserved", "harm"):
            assert len(asked) > 1 or ended, asked
            assert rounds == 10 if ended else 1 <= rounds <= 10, rounds
        fell = ITERATIONS
        if ended:
            fell = {"changed": ODD + 1, "scaled_changed": ODD + 1, "no_step": ODD + 1, "out_of_step": ODD,
                    "harm": asked[-1][0] if asked else 0}.get(case, 0)
        assert ended or len(profile[3]) >= 3, profile
        want_updates, want_before, want_after, want_scale = reference(case, copy.deepcopy(profile), fell, asked)
        assert updates == want_updates, (updates, want_updates)
        for run in runs if scale else ():
            assert run[8] == want_scale, f"{case}: scale {run[8]}, not {want_scale}"
        worst = 0
        for run in runs:
            for got, want in zip(run[3] + run[4], want_before + want_after):
                worst = max(worst, (got - want).abs().max().item())
        assert worst < 2e-5, f"{case}: parameters differ by {worst}"
        for a, b in zip(runs[0][4], runs[1][4]):
            assert torch.equal(a, b), f"{case}: ranks differ"
        print(f"{case}: {mode}, {ended}, {rounds} rounds, updates {updates}, parameters within {worst:.1e}")


if __name__ == "__main__":
    main()
