"""Schedules for PyTorch's DistributedDataParallel that hide gradients' communication behind
computation.

    model = DDP(model)
    opt = dfshim.deft.wrap(model, opt, links=2)
    ...
    loss.backward()
    opt.step()

After a warm-up as plain DDP, in which all ranks measure, one schedule is computed from their common
measurements. From then on an iteration never waits for communication; the optimizer steps when a
set of gradients is complete, with the mean over ranks and merged iterations, one or more iterations
after they were computed. docs/scheduling.md says when that helps and what it costs.
wrap(exact=True) is dfshim.gate instead: it waits, and has the numbers of plain DDP.

State per bucket: `current`, gradients that are partly sent, and `future`, the sum of complete local
gradients since. Both are this module's: DDP's own buckets are never communicated after the warm-up.
Every rank runs the same state machine on the same numbers, so all issue the same collectives in the
same order on each group; a few words a rank in each iteration tell whether that is still so, and if
not, all return to plain DDP after the same step.
"""

import math

import torch
import torch.distributed as dist

from dfshim.gate import GATED, Gate
from dfshim.plain import PLAIN, Planner, Wrapped
from dfshim.scaler import GradScaler

__all__ = ["ACTIVE", "Deft", "GATED", "GradScaler", "PLAIN", "Planner", "wrap"]

ACTIVE = "deft"
FORWARD, OLD, NEW = range(3)
TROUBLE = ("", "DDP has changed its buckets", "a backward pass without step()",
           "the preserver is not content after 10 rounds")
CHANGED, NO_STEP, HARM = range(1, 4)
UPDATES = 20  # updates between two rounds of the preserver


class Deft(Wrapped):
    def __init__(self, ddp, opt, links, warmup, clip, plan, preserve):
        number = links if isinstance(links, int) else len(links)
        if not 1 <= number <= 4:
            raise ValueError(f"dfshim.deft: links={number}; allowed: 1 to 4")
        if preserve is not None and not 0 < preserve < 1:
            raise ValueError(f"dfshim.deft: preserve={preserve}; allowed: between 0 and 1")
        super().__init__(ddp, opt, warmup, plan)
        ranks = dist.get_process_group_ranks(ddp.process_group)
        self.groups = ([dist.new_group(ranks) for _ in range(links)]
                       if isinstance(links, int) else list(links))
        for group in self.groups:
            if dist.get_process_group_ranks(group) != ranks:
                raise ValueError("dfshim.deft: a link's group has other ranks than the model's")
        self.links, self.clip, self.preserve = number, clip, preserve
        self.turn, self.trouble, self.rounds = None, 0, 0
        self.works, self.merged, self.updates, self.arrived = [], [0, 0], [], {}
        self.local, self.walk = {}, []
        self.unscale = 1.0

    def expected_ms(self):
        """Returns the expected time of an iteration with plain DDP, and with the schedule."""
        return self.planner.expected_ms()

    # -- hooks -------------------------------------------------------------------------------------

    def _begin(self):
        if self.turn is not None and self.arrived:
            self._end_turn()
            self.zero_grad()  # the program has called it before this pass
            self.trouble = self.trouble or NO_STEP
        if self.turn is None:
            self.turn, self.arrived, self.complete = self.planner.next(), {}, None
            at = [self.iteration, self.rounds, int(self.scaler is not None)]
            self.words = torch.tensor([self.trouble] + at + [-n for n in at], dtype=torch.int64,
                                      device=self.current[0].device)
            self.heard = dist.all_reduce(self.words, op=dist.ReduceOp.MAX, group=self.groups[0],
                                         async_op=True)
            self._send(FORWARD)

    def _after_forward(self, module, args, out):
        super()._after_forward(module, args, out)
        # The backward pass begins. The parts of CURRENT that it sends need not wait for its first
        # gradient.
        if self.turn is not None and self.complete is None and self._training():
            # Buckets of FUTURE so far; they are sent in this order, in whatever order they become
            # complete.
            self.complete = 0
            self._send(OLD)

    def _hook(self, _, bucket):
        if self.preserve and not self.ended:
            self.local.update((id(p), g.clone())
                              for p, g in zip(bucket.parameters(), bucket.gradients()))
        return super()._hook(_, bucket)

    def _collect(self, bucket):
        i, known = bucket.index(), self._known(bucket)
        if self.scaler and not self.arrived:
            # Merged iterations may have different scales. All scales are powers of two, so no
            # precision is lost.
            self.unscale = 1 / self.scaler.get_scale()
        with torch.no_grad():
            if known:
                self._add(self.future[i], bucket.buffer())
                self.arrived[i] = len(self.buckets[i][1])
            else:
                self.trouble = self.trouble or CHANGED
                for p, gradient in zip(bucket.parameters(), bucket.gradients()):
                    j, at = self.place[id(p)]
                    self._add(self.future[j][at:at + p.numel()].view_as(p), gradient)
                    self.arrived[j] = self.arrived.get(j, 0) + 1
        while (self.complete < len(self.buckets)
               and self.arrived.get(self.complete) == len(self.buckets[self.complete][1])):
            self._send(NEW, self.complete)
            self.complete += 1
        return self._ready(bucket.buffer())

    def _add(self, to, gradient):
        if self.merged[1]:
            to.add_(gradient, alpha=self.unscale)
        else:
            torch.mul(gradient, self.unscale, out=to)

    # -- the schedule ------------------------------------------------------------------------------

    def _send(self, stage, bucket=None):
        of = self.future if stage == NEW else self.current
        for item, link, when in self.turn[0]:
            index, part, parts = self.planner.items[item]
            index = len(self.buckets) - 1 - index  # DDP numbers its buckets from the output side
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
        if self.scaler and not torch.stack([sent.isfinite().all()
                                            for sent in self.current]).all().item():
            self.infinite = True  # on all ranks, because these are sums over all ranks
            return
        for i, (_, parameters, _) in self.buckets.items():
            at, whole = 0, self.current[i].div_(self.world * self.merged[0])
            for p in parameters:
                p.grad = whole[at:at + p.numel()].view_as(p).clone()
                at += p.numel()
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.ddp.parameters(), self.clip)
        self._inner_step()
        self.updates.append(self.merged[0])

    def step(self, loss=None):
        """loss: the loss of this rank's batch, which the preserver needs."""
        if self.preserve and loss is None:
            raise ValueError("dfshim.deft: with preserve=, step(loss) needs the loss")
        self.loss = None if loss is None else float(torch.as_tensor(loss).detach())
        super().step()

    def _step(self):
        if self.turn is None:
            raise RuntimeError("dfshim.deft: step() without a forward pass in training mode")
        self._end_turn()
        self.heard.wait()
        trouble, *most = self.words.tolist()
        most, least = most[:len(most) // 2], most[len(most) // 2:]
        if not trouble and self.preserve and len(self.walk) >= UPDATES and not self._content():
            trouble = HARM
        if trouble or most != [-n for n in least]:
            self.flush()
            self._stay(TROUBLE[trouble] if trouble else "a rank is out of step")
            self.current = self.future = None

    def _end_turn(self):
        self._wait()
        _, merged, formed = self.turn
        self.merged[1] += 1
        if merged:
            self._apply()
        if formed:
            self._form()
        self.turn = None

    def flush(self):
        """Sends and applies all gradients that have not been applied. The schedule then begins
        anew. A collective call."""
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
        self._restart()

    def _restart(self):
        self.planner.restart()
        self.merged, self.unsent = [0, 0], [set(), self._all_items()]

    # -- the switch --------------------------------------------------------------------------------

    def _speeds(self, comm):
        """Measures each link by all-reduces of one element and of the largest bucket. The fastest
        becomes the first. A collective call."""
        of = self.buckets[comm.index(max(comm))]
        data = torch.zeros(of[2], dtype=of[1][0].dtype, device=of[1][0].device)
        took = torch.zeros(self.links, 2, dtype=torch.int64, device=data.device)
        for link, group in enumerate(self.groups):
            for column, piece in enumerate((data[:1], data)):
                rounds = []
                for _ in range(3):
                    dist.barrier(group=self.ddp.process_group)
                    begin = self._now()
                    dist.all_reduce(piece, group=group)
                    rounds.append(self._now() - begin)
                took[link, column] = min(rounds)
        dist.all_reduce(took, op=dist.ReduceOp.MAX, group=self.ddp.process_group)
        # On a busy machine one element may take as long as a bucket.
        took = [(max(whole, 2), min(start, max(whole, 2) // 2)) for start, whole in took.tolist()]
        took = sorted((whole - start, start, link) for link, (whole, start) in enumerate(took))
        self.groups = [self.groups[link] for _, _, link in took]
        # The measured times include the start-up, and the smallest of them must remain above 0
        # without it.
        return ([sent / took[0][0] for sent, _, _ in took],
                [min(start, min(comm) // 2) for _, start, _ in took])

    def _switch(self):
        self.planner = Planner(*self.profile)
        self._restart()
        self.place = {}
        for i, (ids, parameters, _) in self.buckets.items():
            at = 0
            for p in parameters:
                self.place[id(p)] = i, at
                at += p.numel()
        self.current, self.future = ([torch.zeros(self.buckets[i][2],
                                                  device=self.buckets[i][1][0].device,
                                                  dtype=self.buckets[i][1][0].dtype)
                                      for i in range(len(self.buckets))]
                                     for _ in range(2))
        if self.preserve and not self._content():
            self._stay(TROUBLE[HARM])
            return
        self.mode = ACTIVE

    # -- the preserver -----------------------------------------------------------------------------

    def _inner_step(self):
        """Takes the step. Records what the preserver's model needs of it: the loss, and how far the
        loss falls by this rank's gradient."""
        if not self.preserve or self.ended:
            super()._inner_step()
            return
        parameters = [p for p in self.ddp.parameters() if id(p) in self.local]
        before = [p.detach().clone() for p in parameters]
        super()._inner_step()
        moved = [b.sub_(p.detach()) for b, p in zip(before, parameters)]
        fall = sum((m * self.local[id(p)]).sum().item() for m, p in zip(moved, parameters))
        if self.scaler:
            # If the gradients were not finite, no step was taken.
            fall = fall / self.scaler.get_scale() if any(m.any() for m in moved) else math.nan
        self.walk.append((self.loss, fall))

    def _content(self):
        """Whether merging does no harm. If it helps, gives stages more time for communication. A
        collective call."""
        walk = torch.zeros(self.world, len(self.walk), 2, dtype=torch.float64,
                           device=self.current[0].device)
        walk[dist.get_rank(self.ddp.process_group)] = torch.tensor(self.walk, dtype=torch.float64)
        dist.all_reduce(walk, group=self.ddp.process_group)
        self.walk = []
        walk = walk[:, walk.isfinite().all(2).all(0)]
        if not walk.numel():
            return True
        loss, fall = walk[:, -UPDATES // 4:, 0].mean().item(), walk[:, :, 1].mean().item()
        # The variance between ranks. With a single rank, that between iterations.
        noise = math.sqrt(walk[:, :, 1].var(0).mean().item() / self.world if self.world > 1
                          else walk[0, :, 1].var().item())
        if not (loss > 0 and fall > 0 and math.isfinite(loss + fall + noise)):
            return True  # the training makes no progress, so the model does not apply
        self.rounds, self.ratio = self.planner.preserve(loss, fall, max(noise, 1e-9 * loss),
                                                        self.preserve)
        return abs(self.ratio - 1) <= self.preserve


def wrap(ddp, opt, links=1, warmup=10, clip=None, plan=None, exact=False, preserve=None):
    """Returns the optimizer to use instead of `opt`.

    links     the number of process groups to make, or a list of process groups; each is a link
    clip      the largest norm of the gradients; they are clipped when they are applied
    plan      a function that gets the buckets' sizes, input side first, and returns times to use
              instead of measured ones: forward, backward and communication of each bucket in ns,
              its size, the slowdowns of the links, and optionally their start-up times in ns. The
              first rank's result is used
    exact     exact gating: no late updates
    preserve  how far the loss that the preserver expects may differ from that of plain training,
              .01 for 1 %; needs step(loss)
    """
    if not exact:
        return Deft(ddp, opt, links, warmup, clip, plan, preserve)
    if links != 1 or clip is not None or preserve is not None:
        raise ValueError("dfshim.deft: exact gating has one link, no clip (it needs all gradients "
                         "at once) and no preserver")
    return Gate(ddp, opt, warmup, plan)
