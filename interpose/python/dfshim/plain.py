"""The common part of the schedules of dfshim.deft and dfshim.gate: an optimizer that wraps the
program's optimizer.

At first it trains as plain DDP, and all ranks measure. Then all ranks plan with the same numbers
and switch to the schedule at the same iteration.

Public API only: comm hook, module hooks. Everything here runs on the threads that call forward,
backward and step.
"""

import ctypes
import math
import os
import time

import torch
import torch.distributed as dist

from dfshim import library

NAME = "libdfplan.so"
PLAIN = "plain"


def _library():
    named = os.environ.get("DFSHIM_LIB")
    places = (named and os.path.join(named, NAME), library(NAME),
              os.path.join(os.path.dirname(__file__), "../../../build", NAME))
    for path in places:
        if path and os.path.exists(path):
            lib = ctypes.CDLL(path)
            lib.df_plan_open.restype = ctypes.c_void_p
            for fn in lib.df_plan_close, lib.df_plan_expect, lib.df_plan_expect_ddp:
                fn.argtypes = [ctypes.c_void_p]
            for fn in lib.df_plan_expect, lib.df_plan_expect_ddp, lib.df_plan_order:
                fn.restype = ctypes.c_double
            return lib
    raise RuntimeError("dfshim.deft: libdfplan.so is not there; DFSHIM_LIB names its folder")


class Planner:
    """The state machine of trace/plan/plan_handle.h. Raises ValueError if no plan can be made."""

    def __init__(self, forward, backward, comm, params, slowdown, startup=()):
        times = [list(v) for v in (forward, backward, comm, params)]
        if any(len(v) != len(times[3]) or not all(type(t) is int and abs(t) < 1 << 62 for t in v)
               for v in times):
            raise ValueError("times and sizes have to be whole numbers, as many of each as there "
                             "are buckets")
        startup = list(startup) or [0] * len(slowdown)
        if len(startup) != len(slowdown) or not all(
                type(t) is int and abs(t) < 1 << 62 for t in startup):
            raise ValueError("start-ups have to be whole numbers, as many as there are links")
        self.lib, why = _library(), ctypes.create_string_buffer(256)
        self.handle = self.lib.df_plan_open(
            len(times[3]), *((ctypes.c_int64 * len(v))(*v) for v in times), len(slowdown),
            (ctypes.c_double * len(slowdown))(*slowdown), (ctypes.c_int64 * len(startup))(*startup),
            why, ctypes.c_int64(len(why)))
        if not self.handle:
            raise ValueError(why.value.decode())
        self.handle, self.buckets = ctypes.c_void_p(self.handle), len(times[3])
        nr = self.lib.df_plan_items(self.handle, None, None, None)
        items = [(ctypes.c_int32 * nr)() for _ in range(3)]
        self.lib.df_plan_items(self.handle, *items)
        self.items = list(zip(*items))  # bucket, part, parts
        self.room = [(ctypes.c_int32 * (2 * nr))() for _ in range(3)]

    def next(self):
        """Returns the sends of the next iteration as (item, link, stage), the number of iterations
        that its update merges (0: no update), and whether FUTURE becomes CURRENT."""
        merged, formed = ctypes.c_int32(), ctypes.c_int32()
        nr = self.lib.df_plan_next(self.handle, *self.room, ctypes.byref(merged),
                                   ctypes.byref(formed))
        return list(zip(*(a[:nr] for a in self.room))), merged.value, bool(formed.value)

    def order(self):
        """Returns the buckets in the order of exact gating, and the expected milliseconds of an
        iteration."""
        order = (ctypes.c_int32 * self.buckets)()
        ms = self.lib.df_plan_order(self.handle, order)
        if ms < 0:
            raise ValueError("out of memory")
        return list(order), ms

    def restart(self):
        self.lib.df_plan_restart(self.handle)

    def preserve(self, loss, fall, noise, epsilon):
        """Returns how often stages got more time so far, and the ratio of losses that is expected
        now."""
        ratio = ctypes.c_double()
        rounds = self.lib.df_plan_preserved(
            self.handle, *(ctypes.c_double(v) for v in (loss, fall, noise, epsilon)),
            ctypes.byref(ratio))
        if rounds < 0:
            raise MemoryError("dfshim.deft: the planner is out of memory")
        return rounds, ratio.value

    def expected_ms(self):
        return self.lib.df_plan_expect_ddp(self.handle), self.lib.df_plan_expect(self.handle)

    def __del__(self):
        if getattr(self, "handle", None):
            self.lib.df_plan_close(self.handle)


class _Warmup:
    """Times of plain DDP iterations, in nanoseconds: when the forward pass, each bucket and its
    communication end."""

    def __init__(self):
        self.rows = []
        self.begin()

    def begin(self):
        self.start, self.forward, self.ready, self.done = time.monotonic_ns(), None, {}, {}

    def profile(self, nr):
        """Returns medians of the rows so far: the forward time, then for each bucket (output side
        first) the backward times, then the times of communication."""
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


class Wrapped:
    """What the training loop uses as its optimizer. State dictionaries and groups are those of the
    inner optimizer."""

    def __init__(self, ddp, opt, warmup, plan):
        if not isinstance(ddp, torch.nn.parallel.DistributedDataParallel):
            raise TypeError("dfshim.deft: the model is no DistributedDataParallel")
        if ddp.find_unused_parameters:
            raise ValueError("dfshim.deft: find_unused_parameters leaves gradients out; "
                             "not supported")
        if warmup < 4:
            raise ValueError(f"dfshim.deft: warmup={warmup}; allowed: from 4, DDP changes its "
                             "buckets once")
        self.ddp, self.inner, self.warmup, self.given = ddp, opt, warmup, plan
        self.world = dist.get_world_size(ddp.process_group)
        self.mode, self.iteration, self.planner, self.ended = PLAIN, 0, None, None
        self.buckets, self.links, self.clip = {}, 1, None
        # The GradScaler of earlier steps, and that of the present step.
        self.scaler = self.stepping = None
        self.infinite, self.verdict = False, None
        self.measure = _Warmup()
        ddp.join_hook = self._refuse_join
        ddp.register_comm_hook(None, self._hook)
        ddp.register_forward_pre_hook(self._before_forward)
        ddp.register_forward_hook(self._after_forward, always_call=True)

    param_groups = property(lambda self: self.inner.param_groups)
    state = property(lambda self: self.inner.state)

    NO_SCALER = ("torch.amp.GradScaler would unscale gradients that are not applied now: use "
                 "dfshim.deft.GradScaler in its place")

    @property
    def _step_supports_amp_scaling(self):
        """torch.amp.GradScaler reads this before each step."""
        raise RuntimeError(f"dfshim.deft: {self.NO_SCALER}")

    @staticmethod
    def _refuse_join(**_):
        """Join calls this when it begins. Its shadow collectives would be those of plain DDP."""
        raise RuntimeError("dfshim.deft: Join (uneven inputs) is not supported: give all ranks as "
                           "many batches, or train without deft")

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)

    def load_state_dict(self, state):
        self.inner.load_state_dict(state)

    def state_dict(self):
        """First applies all gradients. All ranks must call this, because gradients may have to be
        sent for that."""
        self.flush()
        return self.inner.state_dict()

    # -- hooks -------------------------------------------------------------------------------------

    def _training(self):
        return self.ddp.training and torch.is_grad_enabled()

    def _measuring(self):
        return self.mode == PLAIN and not self.ended

    @staticmethod
    def _now():
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.monotonic_ns()

    def _before_forward(self, module, args):
        if not self._training():
            return
        if not self.ddp.require_backward_grad_sync:
            raise RuntimeError("dfshim.deft: no_sync() is not supported")
        if self._measuring():
            self.measure.begin()
        elif self.mode != PLAIN:
            self._begin()

    def _after_forward(self, module, args, out):
        if self._training() and self._measuring():
            self.measure.forward = self._now()

    def _hook(self, _, bucket):
        return self._reduce_plain(bucket) if self.mode == PLAIN else self._collect(bucket)

    @staticmethod
    def _ready(tensor):
        future = torch.futures.Future()
        future.set_result(tensor)
        return future

    def _known(self, bucket):
        """Whether DDP's bucket is still the one for which the plan was made."""
        i = bucket.index()
        return i in self.buckets and self.buckets[i][0] == [id(p) for p in bucket.parameters()]

    def _mean(self, buffer):
        """Divides with the same bits as DDP without a hook, except for gradients that zero_grad()
        left as views of a bucket."""
        return buffer.mul_(1 / self.world)

    def _reduce_plain(self, bucket):
        i, measure, measuring = bucket.index(), self.measure, self._measuring()
        if measuring:
            self.buckets[i] = ([id(p) for p in bucket.parameters()], bucket.parameters(),
                               bucket.buffer().numel())
            measure.ready[i] = self._now()
        work = dist.all_reduce(self._mean(bucket.buffer()), group=self.ddp.process_group,
                               async_op=True)

        def done(future):
            if measuring:
                measure.done[i] = time.monotonic_ns()
            return future.value()[0]

        return work.get_future().then(done)

    # -- the warm-up, and its end ------------------------------------------------------------------

    def _inner_step(self):
        if self.scaler and self.mode == PLAIN:
            self.scaler.step(self.inner)
        else:
            self.inner.step()

    def scaled_step(self, scaler, *args, **kwargs):
        """The step of dfshim.scaler: the gradients of backward() are scaled."""
        self.stepping = scaler
        try:
            self.step(*args, **kwargs)
        finally:
            self.stepping = None

    def _tell(self):
        """Reports to the scaler, for its update(), whether a gradient of this step was inf or
        NaN."""
        if self.verdict is None:
            self.verdict = torch.optim.SGD(
                [torch.zeros_like(next(self.ddp.parameters()).detach().view(-1)[:1])])
        for p in self.verdict.param_groups[0]["params"]:
            p.grad = torch.full_like(p, math.inf if self.infinite else 0)
        self.scaler.unscale_(self.verdict)
        self.infinite = False

    def step(self):
        """Takes the optimizer's step if an update is due."""
        if self.mode != PLAIN and self.stepping is not self.scaler:
            raise RuntimeError("dfshim.deft: a step through a GradScaler after one without it, or "
                               "the reverse, or through another one")
        self.scaler = self.stepping
        self.iteration += 1
        if self.mode != PLAIN:
            self._step()
            if self.scaler:
                self._tell()
            return
        if self.scaler:
            self.scaler.unscale_(self.inner)
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.ddp.parameters(), self.clip)
        self._inner_step()
        if self._measuring():
            self.measure.end(len(self.buckets))
            if self.iteration == 2:
                self.measure.rows.clear()  # DDP changes its buckets once, in the first iterations
            if self.iteration == self.warmup:
                self._plan()

    def _stay(self, why):
        """Returns to plain DDP for good. All ranks call this at the same iteration."""
        self.mode, self.ended = PLAIN, why
        if not dist.get_rank():
            print(f"dfshim.deft: plain DDP from iteration {self.iteration + 1} on: {why}",
                  flush=True)

    def _speeds(self, comm):
        """Returns the slowdowns of the links, and their start-up times in nanoseconds."""
        return [1.0], [0]

    def _measured(self):
        """Returns times on which all ranks agree: the longest computation and the shortest
        communication of any rank."""
        nr = len(self.buckets)
        forward, backward, comm = self.measure.profile(nr)
        times = torch.tensor([[forward] + backward, [-1] + [-c for c in comm]], dtype=torch.int64)
        times = times.to(next(self.ddp.parameters()).device)
        dist.all_reduce(times, op=dist.ReduceOp.MAX, group=self.ddp.process_group)
        forward, *backward = times[0].tolist()
        comm = [-c for c in times[1].tolist()[1:]]
        total = sum(backward)
        sizes = [self.buckets[i][2] for i in range(nr)]
        return ([forward * b // total for b in backward][::-1], backward[::-1], comm[::-1],
                sizes[::-1], *self._speeds(comm))

    def _plan(self):
        """Makes one profile for all ranks. If a plan was given, the first rank's is used."""
        profile = why = None
        try:
            profile = (self.given([self.buckets[i][2] for i in reversed(range(len(self.buckets)))])
                       if self.given else self._measured())
            if len(profile[3]) != len(self.buckets):
                raise ValueError(f"the plan has {len(profile[3])} buckets, DDP {len(self.buckets)}")
            if len(profile[4]) > self.links:
                raise ValueError(f"the plan has {len(profile[4])} links; there are {self.links}")
            Planner(*profile)
        except Exception as error:  # any kind: the other ranks wait in the broadcast below
            why = str(error)
        first = [(profile, why)]
        dist.broadcast_object_list(first, dist.get_process_group_ranks(self.ddp.process_group)[0],
                                   group=self.ddp.process_group)
        self.profile, why = first[0]
        if why:
            self._stay(why)
        else:
            self._switch()
