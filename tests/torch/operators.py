#!/usr/bin/env python3
"""Compares operators on CUDA tensors with the same on CPU tensors: `dfshim run --host -- python3
operators.py [CASE...]`.

Runs them at once and behind a stream that is busy. The cases are operators, gradients, optimizers,
random numbers, graphs, layouts and refusals. Prints a line for each case. Exit status: 0 right, 1
wrong.
"""

import copy
import sys
import threading
import traceback

import torch
import torch.nn as nn
import torch.nn.functional as F


def both(f, *inputs, grad=False, tolerance=1e-4):
    """Runs f on the CPU and on the device, there at once and behind a busy stream. Values, layouts and
    gradients must agree."""

    def run(device, late=False):
        args = [copy.deepcopy(x).to(device) if isinstance(x, (torch.Tensor, nn.Module)) else x for x in inputs]
        for a in args:
            if grad and isinstance(a, torch.Tensor) and a.is_floating_point():
                a.requires_grad_()
        if late:
            torch.cuda._sleep(20_000_000)
        out = f(*args)
        out = list(out) if isinstance(out, (tuple, list)) else [out]
        if grad:
            sum(o.abs().sum() for o in out if o.requires_grad).backward()
            for a in args:
                if isinstance(a, nn.Module):
                    out += [p.grad for p in a.parameters()]
                elif isinstance(a, torch.Tensor) and a.requires_grad:
                    out.append(a.grad)
        return out

    want = run("cpu")
    for late in (False, True):
        got = run("cuda", late)
        assert len(got) == len(want)
        for g, w in zip(got, want):
            if not isinstance(g, torch.Tensor):
                assert g == w
                continue
            assert g.device.type == "cuda", g.device
            assert g.dtype == w.dtype and g.shape == w.shape and g.layout == w.layout, (g.dtype, w.dtype, g.shape, w.shape)
            torch.testing.assert_close(g.detach().cpu(), w.detach(), rtol=tolerance, atol=tolerance)


def rand(*size):
    return torch.randn(*size)


def elementwise():
    both(lambda x, y: [x + y, x * 2 - 1, torch.where(x > 0, x, y), x.clamp(-1, 1), (x > y).sum(), x / 3, (x / 0).isinf()], rand(7, 5), rand(7, 5))
    both(lambda x: [x.half() * 2, x.bfloat16().float(), x.double().exp(), x.to(torch.int32) // 2, x.to(torch.int32) % 3, 2 ** x.to(torch.int32).abs()], rand(9))


def reductions():
    both(lambda x: [x.sum(), x.mean(0), x.max(1)[0], x.argmax(1), x.std(), x.softmax(-1), x.cumsum(0), x.sort()[0]], rand(6, 8))


def wider():
    """Takes halves and returns floats: one kernel on a GPU."""
    both(lambda x: [f(x.to(t), -1, dtype=torch.float32) for f in (torch.softmax, torch.log_softmax) for t in (torch.half, torch.bfloat16)],
         rand(6, 8), grad=True)


def products():
    both(lambda x, y: [x @ y, torch.addmm(y, y.t(), y) if y.shape[0] == y.shape[1] else y, torch.einsum("ij,jk->ik", x, y)],
         rand(5, 6), rand(6, 6), grad=True)


def indexing():
    i = torch.tensor([0, 2, 1])
    both(lambda x, i: [x[i], x[x > 0], x.gather(1, i.view(1, 3)), x.index_add(0, i, x[:3]), torch.nonzero(x > 0)], rand(4, 4), i)
    both(lambda x: [x.masked_fill(x > 0, 1.0), torch.cat([x, x]), torch.stack([x, x]), x.flip(0), x.roll(1)], rand(3, 4))


def outputs():
    def f(x):
        empty, right, wrong = (torch.empty(n, device=x.device) for n in ((0,), (3, 3), (0,)))
        torch.add(x, x, out=empty)
        torch.mm(x, x, out=right)
        torch.cat([x, x], out=wrong)
        y = x.to(torch.complex64).conj()
        torch.add(y, 1, out=y)
        z = torch.zeros(6, 6, device=x.device)
        torch.mul(x, 2, out=z[::2, 1::2])
        narrow = torch.zeros(3, 3, dtype=torch.double, device=x.device)
        torch.mul(x, 0.1, out=narrow)
        larger = torch.zeros(9, device=x.device)
        torch.add(x, 1, out=larger[:3])
        return [empty, right, wrong, y.resolve_conj(), z, narrow, larger, larger[:3] * 2]

    both(f, rand(3, 3))


def in_place():
    def f(x):
        x = x.clone()
        for _ in range(20):
            x.add_(1).mul_(2).sub_(x.floor())
        x[0] = 5
        x[1:].zero_()
        return x

    both(f, rand(4, 4))
    both(lambda x: torch._foreach_add([x, x * 2], 1.5), rand(5))
    both(lambda x: [*torch._foreach_norm([x, x[:2]]), *torch._foreach_norm([x, x.double()])], rand(5))


def views():
    both(lambda x: [x.t().contiguous(), x[::2, 1:].clone(), x.view(-1)[3:].sum(), x.expand(2, 4, 4) + 1], rand(4, 4))


def complex_numbers():
    c = torch.randn(5, dtype=torch.complex64)
    both(lambda c: [c.conj() * c, c.conj().resolve_conj(), c.abs(), torch.view_as_real(c.conj().resolve_conj()), c.imag + 1], c)
    both(lambda x: [torch.fft.fft(x), torch.fft.irfft(torch.fft.rfft(x))], rand(8))


def eight_bits():
    both(lambda x: [x.to(t).float() for t in (torch.float8_e4m3fn, torch.float8_e5m2)], rand(4, 5))

    def product(x, y):
        one = torch.ones((), device=x.device)
        return torch._scaled_mm(x.to(torch.float8_e4m3fn), y.to(torch.float8_e4m3fn).t(), one, one, out_dtype=torch.bfloat16)

    both(product, rand(16, 32), rand(16, 32), tolerance=0.02)


def convolutions():
    both(lambda m, x: m(x), nn.Sequential(nn.Conv2d(3, 6, 3, padding=1, groups=3), nn.ReLU(), nn.Conv2d(6, 4, 3, stride=2),
                                          nn.ConvTranspose2d(4, 2, 2)), rand(2, 3, 9, 9), grad=True)
    both(lambda m, x: m(x), nn.Conv1d(3, 5, 3), rand(2, 3, 9), grad=True)
    both(lambda m, x: m(x), nn.Conv3d(2, 2, 2), rand(1, 2, 4, 4, 4), grad=True)


def normalizations():
    both(lambda m, x: m(x), nn.Sequential(nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.MaxPool2d(2)), rand(3, 4, 6, 6), grad=True)
    both(lambda m, x: m(x), nn.Sequential(nn.LayerNorm(8), nn.RMSNorm(8)), rand(3, 8), grad=True)
    both(lambda m, x: m(x), nn.BatchNorm1d(4).eval(), rand(3, 4), grad=True)
    for norm, x in ((nn.LayerNorm(8), rand(3, 8)), (nn.LayerNorm(8, elementwise_affine=False), rand(3, 8)),
                    (nn.BatchNorm1d(4), rand(3, 4))):
        both(lambda m, x: m(x), norm.bfloat16(), x.bfloat16(), grad=True, tolerance=5e-2)
    x, w = rand(3, 8).cuda().bfloat16(), torch.ones(8, device="cuda", dtype=torch.bfloat16)
    for cycles in (0, 20_000_000):
        torch.cuda._sleep(cycles)
        for y, *saved in (torch.ops.aten.native_layer_norm(x, [8], w, w, 1e-5),
                          torch.ops.aten.native_batch_norm(x, w, w, None, None, True, 0.1, 1e-5)):
            assert y.dtype is torch.bfloat16 and all(t.dtype is torch.float32 for t in saved)


def attention():
    q = rand(2, 2, 6, 8)
    both(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, rand(2, 2, 6, 8), rand(2, 2, 6, 8), grad=True)
    both(lambda q, k: F.scaled_dot_product_attention(q, k, k, attn_mask=q.new_ones(6, 5).tril().bool()), q, rand(2, 2, 5, 8),
         grad=True)
    both(lambda q, k: F.scaled_dot_product_attention(q, k, k, attn_mask=q.new_ones(6, 5).tril(-1).bool()), q, rand(2, 2, 5, 8))
    both(lambda q: F.scaled_dot_product_attention(q.bfloat16(), q.bfloat16(), q.bfloat16()), q, tolerance=0.05)
    both(lambda m, x: m(x), nn.TransformerEncoderLayer(16, 2, dropout=0, batch_first=True), rand(2, 5, 16), grad=True,
         tolerance=1e-3)


def recurrent():
    for m in (nn.LSTM(4, 8, 2), nn.GRU(4, 8), nn.RNN(4, 8)):
        both(lambda m, x: m(x)[0], m, rand(5, 2, 4), grad=True, tolerance=1e-3)


def losses():
    both(lambda x, y: [F.cross_entropy(x, y), F.nll_loss(x.log_softmax(1), y)], rand(6, 5), torch.randint(0, 5, (6,)), grad=True)
    both(lambda x, y: [F.mse_loss(x, y), F.smooth_l1_loss(x, y), F.binary_cross_entropy_with_logits(x, y.sigmoid())], rand(6),
         rand(6), grad=True)


def sparse():
    e = nn.Embedding(10, 4, sparse=True)
    d = copy.deepcopy(e).cuda()
    i = torch.tensor([1, 2, 2])
    for m, index in ((e, i), (d, i.cuda())):
        opt = torch.optim.SparseAdam(m.parameters())
        m(index).sum().backward()
        assert m.weight.grad.is_sparse and m.weight.grad.device == m.weight.device
        opt.step()
    torch.testing.assert_close(d.weight.detach().cpu(), e.weight.detach())
    torch.testing.assert_close(d.weight.grad.coalesce().to_dense().cpu(), e.weight.grad.coalesce().to_dense())


def channels_last():
    x = rand(2, 3, 4, 4).cuda().to(memory_format=torch.channels_last)
    m = nn.Conv2d(3, 4, 3).cuda().to(memory_format=torch.channels_last)
    assert F.relu(x).is_contiguous(memory_format=torch.channels_last)
    assert m(x).is_contiguous(memory_format=torch.channels_last)


def autocast():
    m, x = nn.Linear(8, 4).cuda(), rand(3, 8).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = m(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), m(x), rtol=0.05, atol=0.05)
    w = torch.ones(3, device="cuda", requires_grad=True)
    opt, scaler = torch.optim.SGD([w], lr=0.1), torch.amp.GradScaler("cuda")
    scaler.scale((w * 2).sum()).backward()
    scaler.step(opt)
    scaler.update()
    torch.testing.assert_close(w.detach().cpu(), torch.full((3,), 0.8))


def optimizers():
    for make in (lambda p: torch.optim.AdamW(p, fused=True), lambda p: torch.optim.Adam(p, foreach=True),
                 lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True), lambda p: torch.optim.Adagrad(p),
                 lambda p: torch.optim.RMSprop(p, foreach=True)):
        cpu = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
        cuda = copy.deepcopy(cpu).cuda()
        data = [rand(4, 6) for _ in range(4)]
        for m, device in ((cpu, "cpu"), (cuda, "cuda")):
            opt = make(m.parameters())
            for x in data:
                opt.zero_grad()
                m(x.to(device)).pow(2).mean().backward()
                nn.utils.clip_grad_norm_(m.parameters(), 1.0)
                opt.step()
        for a, b in zip(cpu.parameters(), cuda.parameters()):
            torch.testing.assert_close(b.detach().cpu(), a.detach(), rtol=1e-3, atol=1e-4)


def random_numbers():
    def draw():
        return [torch.rand(5, device="cuda"), torch.randn(5, device="cuda"), torch.randperm(9, device="cuda"),
                F.dropout(torch.ones(50, device="cuda")), torch.randint(0, 9, (5,), device="cuda"),
                torch.multinomial(torch.ones(4, device="cuda"), 2)]

    before = torch.get_rng_state()
    torch.cuda.manual_seed(5)
    first, state = draw(), torch.cuda.get_rng_state()
    second = draw()
    torch.cuda.manual_seed(5)
    again = draw()
    torch.cuda.set_rng_state(state)
    for a, b, c, d in zip(first, again, second, draw()):
        assert torch.equal(a, b) and torch.equal(c, d) and not (a.numel() == 5 and torch.equal(a, c))
    assert torch.equal(before, torch.get_rng_state()), "the CPU's generator has moved"
    g = torch.Generator("cuda").manual_seed(1)
    x = torch.rand(3, device="cuda", generator=g)
    assert torch.equal(x, torch.rand(3, device="cuda", generator=g.manual_seed(1)))
    assert abs(torch.randn(20000, device="cuda").mean().item()) < 0.05


def closed():
    """Stops the current stream until the event is set: a launch that waits for its stream would wait
    for ever."""
    gate = threading.Event()
    sys.modules["dfshim.host.operators"].defer(torch.cuda.current_stream().cuda_stream, gate.wait, False)
    return gate


def streams():
    """A launch returns before its stream gets there, and only events order streams."""
    x, gate = torch.zeros(1000, dtype=torch.int64, device="cuda"), closed()
    for i in range(50):
        x.add_(i)
        y = x * 2
        x = y - x
    gate.set()
    assert (x == 1225).all().item()
    side, event = torch.cuda.Stream(), torch.cuda.Event()
    torch.cuda._sleep(100_000_000)
    x.fill_(7)
    event.record()
    with torch.cuda.stream(side):
        side.wait_event(event)
        y = x + 1
    side.synchronize()
    assert (y == 8).all().item()


def hashes():
    """PyTorch holds the interpreter's lock while it waits for these. The operators need that lock,
    too."""
    torch.cuda._sleep(100_000_000)
    x = torch.arange(8, device="cuda") * 2
    assert torch._C._distributed_c10d._hash_tensors([x]) == torch._C._distributed_c10d._hash_tensors([x.clone()])


def devices():
    """Uses a tensor of a device that is not the current one: the stream of its device counts."""
    if torch.cuda.device_count() < 2:
        return
    with torch.cuda.device(1):
        gate = closed()
        x = torch.zeros(10, device="cuda:1")
    x.add_(1)
    y = x * 2
    gate.set()
    assert y.device.index == 1
    assert y.tolist() == [2] * 10 and y.to("cuda:0").tolist() == [2] * 10


def graphs():
    g, x = torch.cuda.CUDAGraph(), torch.zeros(4, device="cuda")
    with torch.cuda.graph(g):
        x.add_(1)
        y = x * 2
    for _ in range(3):
        g.replay()
    assert x.tolist() == [3] * 4 and y.tolist() == [6] * 4


def copies():
    x = rand(1000).pin_memory()
    y = x.cuda(non_blocking=True)
    assert torch.equal(y.cpu(), x) and torch.equal(y.double().cpu().float(), x)
    if torch.cuda.device_count() > 1:
        assert torch.equal(y.to("cuda:1").cpu(), x) and y.to("cuda:1").add(1).device.index == 1
    for x in (torch.ones(1000), torch.ones(1000).pin_memory()):
        torch.cuda._sleep(100_000_000)
        y = x.cuda()
        x.zero_()  # the program may change the source from here on
        assert (y == 1).all().item()


def errors():
    for f, kind in ((lambda: torch.empty(1 << 60, device="cuda"), torch.OutOfMemoryError),
                    (lambda: torch.ops.aten._cslt_compress(rand(4, 4).cuda()), NotImplementedError),
                    (lambda: rand(2, 3).cuda() @ rand(2, 3).cuda(), RuntimeError)):
        try:
            f()
        except kind:
            continue
        raise AssertionError(f"no {kind.__name__}")


def shared():
    """An out= argument in a part of an input's memory: an error where the CPU raises one, else the
    same values."""

    def outcome(f, device, late=False):
        x = torch.arange(16.0, device=device)
        if late:
            torch.cuda._sleep(20_000_000)
        try:
            return f(x, torch.tensor([0, 1], device=device)).tolist(), x.tolist()
        except RuntimeError as e:
            return str(e).split(":")[0]

    refused = 0
    for f in (lambda x, i: torch.add(x[:8], 1, out=x[4:12]),
              lambda x, i: torch.mul(x[:8], x[8:], out=x[4:12]),
              lambda x, i: torch.sigmoid(x[:8], out=x[4:12]),
              lambda x, i: torch.cat([x[:4], x[4:8]], out=x[2:10]),
              lambda x, i: torch.where(x[:4] > 1, x[:4], x[1:5], out=x[2:6]),
              lambda x, i: torch.index_select(x, 0, i, out=x[:2]),
              lambda x, i: torch.add(x[:4], 1, out=x[:2]),
              lambda x, i: torch.sum(x.view(4, 4), 0, out=x[:4]),
              lambda x, i: torch.add(x, 1, out=x),
              lambda x, i: torch.add(x[:8], 1, out=x[8:])):
        want = outcome(f, "cpu")
        refused += isinstance(want, str)
        for late in (False, True):
            assert outcome(f, "cuda", late) == want, (want, late)
    assert refused == 7, refused


def compiled():
    m = torch.compile(nn.Linear(3, 3).cuda())
    m(rand(2, 3).cuda()).sum().backward()


def profiler():
    """Records CUDA's activities, too, as PyTorch does by default. The CPU's side must be present."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
        torch.ones(4, device="cuda").add(1).sum().item()
    assert "aten::add" in [e.key for e in p.key_averages()]


CASES = [elementwise, reductions, wider, products, indexing, outputs, in_place, views, complex_numbers, eight_bits,
         convolutions, normalizations, attention, recurrent, losses, sparse, channels_last, autocast, optimizers,
         random_numbers, streams, hashes, devices, graphs, copies, errors, shared, compiled,
         profiler]


def main():
    bad = 0
    torch.manual_seed(1)
    operators = sys.modules["dfshim.host.operators"]
    # The cases run with the usual limit. Then they run as if all tensors were large: large results
    # are computed where they stay.
    for case, large in [(c, large) for large in (operators.LARGE, 0) for c in CASES]:
        if sys.argv[1:] and case.__name__ not in sys.argv[1:]:
            continue
        operators._small.clear()  # a tensor that has been seen is not measured again
        operators.LARGE, name = large, case.__name__ if large else case.__name__ + ", as if large"
        try:
            case()
            torch.cuda.synchronize()
            print("ok  ", name, flush=True)
        except Exception:
            bad += 1
            print("FAIL", name, flush=True)
            for line in traceback.format_exc().rstrip().split("\n")[-8:]:
                print("     |", line)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
