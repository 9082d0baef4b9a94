"""Exact gating for PyTorch's DistributedDataParallel, as ByteScheduler does it: the next forward
pass begins while gradients are still being sent, and each layer waits for its own. The same numbers
as plain DDP, bit for bit.

Buckets are sent whole, each by the all-reduce that DDP would have made, those of the input side
first where that is better: a sum in other pieces could be another sum. What opt.step() leaves
undone, a bucket's optimizer step, is done when the first module is called that has a parameter of
it. Which modules do not use their parameters themselves is watched during the warm-up; such
parameters are waited for before the forward pass.
"""

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from dfshim.plain import PLAIN, Planner, Wrapped

GATED = "exact"


class _Uses(TorchFunctionMode):
    """Finds the parameters that a forward pass uses, and those that it uses before a module that
    owns them was called."""

    # Attributes that give access to a parameter's values. Others only describe it.
    VALUES = ("data", "grad", "T", "mT", "H", "mH", "real", "imag")

    def __init__(self, params):
        super().__init__()
        self.params, self.open, self.used, self.early = params, set(), set(), set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        described = (getattr(func, "__name__", "") == "__get__"
                     and func.__self__.__name__ not in self.VALUES)
        if not described:
            self._look((args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _look(self, value):
        if isinstance(value, torch.Tensor):
            if id(value) in self.params:
                self.used.add(id(value))
                if id(value) not in self.open:
                    self.early.add(id(value))
        elif isinstance(value, (list, tuple)):
            for v in value:
                self._look(v)
        elif isinstance(value, dict):
            self._look(list(value.values()))


class Gate(Wrapped):
    NO_SCALER = ("exact gating has no GradScaler, which needs all gradients at once: "
                 "train in bfloat16")

    def __init__(self, ddp, opt, warmup, plan):
        super().__init__(ddp, opt, warmup, plan)
        if isinstance(opt, torch.optim.LBFGS):
            raise ValueError("dfshim.deft: LBFGS steps all parameters together; exact gating "
                             "steps each by itself")
        self.params = {id(p): p for group in opt.param_groups for p in group["params"]}
        self.uses = _Uses({id(p) for p in ddp.parameters()})
        self.watching = self.armed = self.changed = False
        self.sums, self.held, self.works = [], set(), {}
        for module in ddp.module.modules():
            own = [id(p) for p in module.parameters(recurse=False)]
            if own:
                module.register_forward_pre_hook(lambda _m, _a, own=own: self._enter(own))
        for module in (ddp, ddp.module):
            module.register_state_dict_pre_hook(lambda *_: self.flush())

    def scaled_step(self, scaler, *args, **kwargs):
        raise RuntimeError(f"dfshim.deft: {self.NO_SCALER}")

    # -- forward -----------------------------------------------------------------------------------

    def _before_forward(self, module, args):
        super()._before_forward(module, args)
        if self.mode != PLAIN:
            for i in self.early:
                self._finish(i)
        elif self._training() and self._measuring():
            self.uses.open.clear()
            self.uses.__enter__()
            self.watching = True

    def _after_forward(self, module, args, out):
        if self.watching:
            self.watching = False
            self.uses.__exit__(None, None, None)
        super()._after_forward(module, args, out)
        self.flush()

    def _enter(self, own):
        if self.watching:
            self.uses.open.update(own)
        elif self.armed:
            for p in own:
                self._finish(self.place.get(p))

    def _begin(self):
        """If a backward pass had no step, drops its gradients, as zero_grad() does with those of
        plain DDP."""
        if not self.armed:
            self._wait()
            self._reset()

    # -- backward ----------------------------------------------------------------------------------

    def _reset(self):
        self.held, self.works, self.sent, self.armed = set(), {}, 0, False

    def _wait(self):
        for work in self.works.values():
            work.wait()

    def _collect(self, bucket):
        i = bucket.index()
        if self.changed or not self._known(bucket):
            # DDP's buckets are the same on all ranks, so all ranks get here with the same bucket.
            if not self.changed:
                self.changed = True
                for j in sorted(self.held):
                    self._send(j)
            return self._reduce_plain(bucket)
        with torch.no_grad():
            self._mean(self.sums[i].copy_(bucket.buffer()))
        self.held.add(i)
        while self.sent < len(self.order) and self.order[self.sent] in self.held:
            self._send(self.order[self.sent])
            self.sent += 1
        return self._ready(bucket.buffer())

    def _send(self, i):
        self.held.discard(i)
        self.works[i] = dist.all_reduce(self.sums[i], group=self.ddp.process_group, async_op=True)

    def _step(self):
        if not self.works or self.armed:
            raise RuntimeError("dfshim.deft: step() without a backward pass")
        if self.changed:
            self._wait()
            for i in self.works:
                self._gradients(i)
            self._reset()
            self.inner.step()
            self._stay("DDP has changed its buckets")
            return
        # A learning rate that a scheduler sets later belongs to the next iteration.
        self.frozen = [{k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in group.items()
                        if k != "params"}
                       for group in self.inner.param_groups]
        for p in self.params.values():
            p.grad = None
        self.armed = True

    # -- updates -----------------------------------------------------------------------------------

    def _gradients(self, i):
        at = 0
        for p in self.buckets[i][1]:
            p.grad = self.sums[i][at:at + p.numel()].view_as(p)
            at += p.numel()

    def _finish(self, i):
        """Takes the optimizer's step for the parameters of one bucket, with the settings that it
        had in step()."""
        if not self.armed or i not in self.works:
            return
        self.works.pop(i).wait()
        others = [(p, p.grad) for p in self.params.values()]
        later = [{k: v for k, v in group.items() if k != "params"}
                 for group in self.inner.param_groups]
        for p, _ in others:
            p.grad = None
        self._gradients(i)
        for group, settings in zip(self.inner.param_groups, self.frozen):
            group.update(settings)
        device = self.sums[i].device.type
        with torch.inference_mode(False), torch.autocast(device, enabled=False):
            self.inner.step()
        for group, settings in zip(self.inner.param_groups, later):
            group.update(settings)
        for p, grad in others:
            p.grad = grad
        if not self.works:
            self._reset()

    def flush(self):
        """Takes all steps that are due. This is not a collective call."""
        while self.armed:
            self._finish(next(iter(self.works)))

    # -- the switch --------------------------------------------------------------------------------

    def _switch(self):
        order, self.expected_ms = Planner(*self.profile).order()
        nr = len(self.buckets)
        self.order = [nr - 1 - i for i in order]  # DDP numbers its buckets from the output side
        self.place = {p: i for i, (ids, _, _) in self.buckets.items() for p in ids}
        # A parameter that was seen in no call is used by code outside Python, so it is waited for
        # early.
        seen = self.uses.used - self.uses.early
        self.early = {i for p, i in self.place.items() if p not in seen}
        self.sums = [torch.zeros(self.buckets[i][2], device=self.buckets[i][1][0].device,
                                 dtype=self.buckets[i][1][0].dtype)
                     for i in range(nr)]
        self._reset()
        self.mode = GATED
