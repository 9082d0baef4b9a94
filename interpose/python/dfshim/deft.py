"""DeFT for PyTorch's DistributedDataParallel: gradients are sent while something is computed, and applied late.

    model = DDP(model)
    opt = dfshim.deft.wrap(model, opt, links=2)
    ...
    loss.backward()
    opt.step()

After a warm-up as plain DDP, in which all ranks measure, one schedule is computed from their common measurements. From
then on an iteration never waits for communication; the optimizer steps when a set of gradients is complete, with the
mean over ranks and merged iterations, one or more iterations after they were computed. docs/scheduling.md says when
that helps and what it costs.

State per bucket: `current`, gradients that are partly sent, and `future`, the sum of complete local gradients since.
Both are this module's: DDP's own buckets are never communicated after the warm-up. Every rank runs the same state
machine on the same numbers, so all issue the same collectives in the same order on each group.

Public API only: comm hook, module hooks. Everything here runs on the threads that call forward, backward and step.
"""

import ctypes
import os
import time

import torch
import torch.distributed as dist

from dfshim import library

NAME = "libdfplan.so"
FORWARD, OLD, NEW = range(3)
PLAIN, ACTIVE = "plain", "deft"


def _library():
    named = os.environ.get("DFSHIM_LIB")
    places = (named and os.path.join(named, NAME), library(NAME), os.path.join(os.path.dirname(__file__), "../../../build", NAME))
    for path in places:
        if path and os.path.exists(path):
            lib = ctypes.CDLL(path)
            lib.df_plan_open.restype = ctypes.c_void_p
            lib.df_plan_close.argtypes = lib.df_plan_expect.argtypes = lib.df_plan_expect_ddp.argtypes = [ctypes.c_void_p]
            lib.df_plan_expect.restype = lib.df_plan_expect_ddp.restype = ctypes.c_double
            return lib
    raise RuntimeError("dfshim.deft: libdfplan.so is not there; DFSHIM_LIB names its folder")


class Planner:
    """The state machine of trace/plan/plan_handle.h."""

    def __init__(self, forward, backward, comm, params, slowdown):
        def array(kind, values):
            return (kind * len(values))(*values)

        self.lib, why = _library(), ctypes.create_string_buffer(256)
        self.handle = self.lib.df_plan_open(
            len(params), *(array(ctypes.c_int64, v) for v in (forward, backward, comm, params)), len(slowdown),
            array(ctypes.c_double, slowdown), why, ctypes.c_int64(len(why)))
        if not self.handle:
            raise ValueError(why.value.decode())
        self.handle = ctypes.c_void_p(self.handle)
        nr = self.lib.df_plan_items(self.handle, None, None, None)
        items = [(ctypes.c_int32 * nr)() for _ in range(3)]
        self.lib.df_plan_items(self.handle, *items)
        self.items = list(zip(*items))  # bucket, part, parts
        self.room = [(ctypes.c_int32 * (2 * nr))() for _ in range(3)]

    def next(self):
        """Sends as (item, link, stage), merged iterations of the update (0: none), whether FUTURE becomes CURRENT."""
        merged, formed = ctypes.c_int32(), ctypes.c_int32()
        nr = self.lib.df_plan_next(self.handle, *self.room, ctypes.byref(merged), ctypes.byref(formed))
        return list(zip(*(a[:nr] for a in self.room))), merged.value, bool(formed.value)

    def expected_ms(self):
        return self.lib.df_plan_expect_ddp(self.handle), self.lib.df_plan_expect(self.handle)

    def __del__(self):
        if getattr(self, "handle", None):
            self.lib.df_plan_close(self.handle)


class _Warmup:
    """Times of plain DDP iterations, in nanoseconds: the ends of forward, of each bucket, and of its communication."""

    def __init__(self):
        self.rows = []

    def begin(self):
        self.start, self.forward, self.ready, self.done = time.monotonic_ns(), None, {}, {}

    def profile(self, nr):
        """Medians of the rows so far: forward time, then for each bucket (output side first) backward and communication."""
        middle = [sorted(column)[len(column) // 2] for column in zip(*self.rows)]
        return middle[0], middle[1:nr + 1], middle[nr + 1:]

    def end(self, nr):
        if self.forward is None or len(self.done) < nr:
            return
        backward, comm, before, busy = [], [], self.forward, 0
        for i in range(nr):
            backward.append(max(self.ready[i] - before, 1000))
            before = self.ready[i]
            comm.append(max(self.done[i] - max(self.ready[i], busy), 1000))
            busy = max(busy, self.done[i])
        self.rows.append([max(self.forward - self.start, 1000)] + backward + comm)


class Deft:
    """What wrap() returns: an optimizer to the training loop. State dictionaries and groups are the inner one's."""

    def __init__(self, ddp, opt, links, warmup, clip, plan):
        if not isinstance(ddp, torch.nn.parallel.DistributedDataParallel):
            raise TypeError("dfshim.deft: the model is no DistributedDataParallel")
        if ddp.find_unused_parameters:
            raise ValueError("dfshim.deft: find_unused_parameters leaves gradients out; not supported")
        if not 1 <= links <= 4:
            raise ValueError(f"dfshim.deft: links={links}; allowed: 1 to 4")
        if warmup < 4:
            raise ValueError(f"dfshim.deft: warmup={warmup}; allowed: from 4, DDP changes its buckets once")
        self.ddp, self.inner, self.clip, self.warmup, self.given = ddp, opt, clip, warmup, plan
        self.world = dist.get_world_size(ddp.process_group)
        ranks = dist.get_process_group_ranks(ddp.process_group)
        self.groups = [dist.new_group(ranks) for _ in range(links)]
        self.mode, self.iteration, self.planner, self.turn = PLAIN, 0, None, None
        self.buckets, self.works, self.merged, self.updates = {}, [], [0, 0], []
        self.measure = _Warmup()
        self.measure.begin()
        ddp.join_hook = self._refuse_join
        ddp.register_comm_hook(None, self._hook)
        ddp.register_forward_pre_hook(self._before_forward)
        ddp.register_forward_hook(self._after_forward)

    param_groups = property(lambda self: self.inner.param_groups)
    state = property(lambda self: self.inner.state)

    @property
    def _step_supports_amp_scaling(self):
        """What GradScaler asks an optimizer before each step; it would unscale gradients that are not applied now."""
        raise RuntimeError("dfshim.deft: GradScaler is not supported: train in bfloat16, or without deft")

    @staticmethod
    def _refuse_join(**_):
        """What Join asks a model for when it begins: its shadow collectives would be plain DDP's."""
        raise RuntimeError("dfshim.deft: Join (uneven inputs) is not supported: give all ranks as many batches, or train without deft")

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)

    def load_state_dict(self, state):
        self.inner.load_state_dict(state)

    def state_dict(self):
        """Of a model whose gradients are all applied: everything is sent first, so all ranks must come here."""
        self.flush()
        return self.inner.state_dict()

    # -- hooks ------------------------------------------------------------------------------------------

    def _training(self):
        return self.ddp.training and torch.is_grad_enabled()

    def _now(self):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.monotonic_ns()

    def _before_forward(self, module, args):
        if not self._training():
            return
        if not self.ddp.require_backward_grad_sync:
            raise RuntimeError("dfshim.deft: no_sync() is not supported")
        if self.mode == PLAIN:
            self.measure.begin()
        elif self.turn is None:
            self.turn = self.planner.next()
            self._send(FORWARD)

    def _after_forward(self, module, args, out):
        if self._training() and self.mode == PLAIN:
            self.measure.forward = self._now()

    def _hook(self, _, bucket):
        i, buffer = bucket.index(), bucket.buffer()
        if self.mode == PLAIN:
            return self._reduce_plain(i, bucket)
        if self.buckets[i][0] != [id(p) for p in bucket.parameters()]:
            raise RuntimeError("dfshim.deft: DDP has changed its buckets after the warm-up")
        if i == 0:
            self._wait()
            self._send(OLD)
        with torch.no_grad():
            if self.merged[1]:
                self.future[i].add_(buffer)
            else:
                self.future[i].copy_(buffer)
        self._send(NEW, i)
        return self._ready(buffer)

    @staticmethod
    def _ready(tensor):
        future = torch.futures.Future()
        future.set_result(tensor)
        return future

    def _reduce_plain(self, i, bucket):
        measure = self.measure
        self.buckets[i] = ([id(p) for p in bucket.parameters()], bucket.parameters(), bucket.buffer().numel())
        measure.ready[i] = self._now()
        work = dist.all_reduce(bucket.buffer().div_(self.world), group=self.ddp.process_group, async_op=True)

        def done(future):
            measure.done[i] = time.monotonic_ns()
            return future.value()[0]

        return work.get_future().then(done)

    # -- the schedule -----------------------------------------------------------------------------------

    def _send(self, stage, bucket=None):
        of = self.future if stage == NEW else self.current
        for item, link, when in self.turn[0]:
            index, part, parts = self.planner.items[item]
            index = len(self.buckets) - 1 - index  # DDP counts from the output side
            if when == stage and bucket in (None, index):
                self._reduce(of, index, part, parts, link)

    def _reduce(self, of, index, part, parts, link):
        size = of[index].numel()
        piece = of[index][size * part // parts:size * (part + 1) // parts]
        if len(piece):
            self.works.append(dist.all_reduce(piece, group=self.groups[link], async_op=True))
        self.unsent[of is self.future].discard((index, part, parts))

    def _wait(self):
        for work in self.works:
            work.wait()
        self.works = []

    def _all_items(self):
        return {(len(self.buckets) - 1 - b, part, parts) for b, part, parts in self.planner.items}

    def _form(self):
        """FUTURE becomes CURRENT."""
        self.current, self.future = self.future, self.current
        self.merged = [self.merged[1], 0]
        self.unsent = [self.unsent[1], self._all_items()]

    def _apply(self):
        for i, (_, parameters, _) in self.buckets.items():
            at, whole = 0, self.current[i].div_(self.world * self.merged[0])
            for p in parameters:
                p.grad = whole[at:at + p.numel()].view_as(p).clone()
                at += p.numel()
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.ddp.parameters(), self.clip)
        self.inner.step()
        self.updates.append(self.merged[0])

    def step(self):
        """The optimizer's step where an update is due; else nothing."""
        self.iteration += 1
        if self.mode == PLAIN:
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.ddp.parameters(), self.clip)
            self.inner.step()
            self.measure.end(len(self.buckets))
            if self.iteration == 2:
                self.measure.rows.clear()  # DDP has its final buckets only now
            if self.iteration == self.warmup:
                self._plan()
            return
        if self.turn is None:
            raise RuntimeError("dfshim.deft: step() without a forward pass in training mode")
        self._wait()
        _, merged, formed = self.turn
        self.merged[1] += 1
        if merged:
            self._apply()
        if formed:
            self._form()
        self.turn = None

    def flush(self):
        """Sends and applies what is not applied; the schedule then begins anew. A collective call."""
        if self.mode == PLAIN:
            return
        if self.turn is not None:
            raise RuntimeError("dfshim.deft: flush() between forward and step()")
        for _ in range(2):
            if self.merged[0]:
                for index, part, parts in sorted(self.unsent[0]):
                    self._reduce(self.current, index, part, parts, 0)
                self._wait()
                self._apply()
            self._form()
        self._start()

    def _start(self):
        self.planner = Planner(*self.profile)
        self.merged, self.unsent = [0, 0], [set(), self._all_items()]

    def _plan(self):
        """All ranks agree on times: computation of the slowest, communication of the one that waited least."""
        nr = len(self.buckets)
        if self.given:
            self.profile = self.given([self.buckets[i][2] for i in reversed(range(nr))])
        else:
            forward, backward, comm = self.measure.profile(nr)
            times = torch.tensor([[forward] + backward, [-1] + [-c for c in comm]], dtype=torch.int64)
            times = times.to(next(self.ddp.parameters()).device)
            dist.all_reduce(times, op=dist.ReduceOp.MAX, group=self.ddp.process_group)
            forward, *backward = times[0].tolist()
            comm = [-c for c in times[1].tolist()[1:]]
            total = sum(backward)
            sizes = [self.buckets[i][2] for i in range(nr)]
            self.profile = ([forward * b // total for b in backward][::-1], backward[::-1], comm[::-1], sizes[::-1],
                            [1.0] * len(self.groups))
        try:
            self._start()
        except ValueError as why:  # the same on all ranks: it follows from the same numbers
            if not dist.get_rank():
                print(f"dfshim.deft: stays plain DDP: {why}", flush=True)
            return
        device = next(self.ddp.parameters()).device
        dtype = next(self.ddp.parameters()).dtype
        self.current, self.future = ([torch.zeros(self.buckets[i][2], device=device, dtype=dtype) for i in range(nr)]
                                     for _ in range(2))
        self.mode = ACTIVE


def wrap(ddp, opt, links=1, warmup=10, clip=None, plan=None):
    """The optimizer to use instead of `opt`. clip: largest norm of a gradient, at the time it is applied. plan: a
    function that is given the buckets' sizes, input side first, and returns times instead of measured ones, the same on all
    ranks: forward, backward and communication of each bucket in ns, its size, and slowdowns of the links."""
    return Deft(ddp, opt, links, warmup, clip, plan)
