"""What exists for CUDA only: the operators written here from others, PyTorch's own decompositions,
and the refusal of the rest. Each is written for CUDA tensors, of operators that compute on the CPU
(operators.py)."""

import time

import torch

from dfshim.host import operators
from dfshim.host.start import STUB

aten = torch.ops.aten


# -- batch norm: cuDNN's, and SyncBatchNorm's parts ------------------------------------------------


def _of_channel(t, like):
    return t.view([1, -1] + [1] * (like.dim() - 2)) if t is not None else None


def _but_channel(t):
    return [d for d in range(t.dim()) if d != 1]


def _acc(t):
    return t.float() if t.dtype in (torch.half, torch.bfloat16) else t


def batch_norm_stats(input, eps):
    x, dims = _acc(input), _but_channel(input)
    return x.mean(dims), (x.var(dims, unbiased=False) + eps).rsqrt()


def batch_norm_elemt(input, weight, bias, mean, invstd, eps):
    y = (_acc(input) - _of_channel(mean, input)) * _of_channel(invstd, input)
    if weight is not None:
        y = y * _of_channel(weight, input)
    if bias is not None:
        y = y + _of_channel(bias, input)
    return y.to(input.dtype)


def batch_norm_elemt_out(input, weight, bias, mean, invstd, eps, *, out):
    return out.copy_(batch_norm_elemt(input, weight, bias, mean, invstd, eps))


def batch_norm_gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum,
                                        eps, counts):
    n = counts.to(mean.dtype).view(-1, 1)
    total = n.sum()
    whole = (mean * n).sum(0) / total
    var = ((invstd.pow(-2) - eps + (mean - whole).pow(2)) * n).sum(0) / total
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(whole.to(running_mean.dtype), alpha=momentum)
    if running_var is not None:
        running_var.mul_(1 - momentum).add_((var * total / (total - 1)).to(running_var.dtype),
                                            alpha=momentum)
    return whole, (var + eps).rsqrt()


def batch_norm_gather_stats(input, mean, invstd, running_mean, running_var, momentum, eps, count):
    counts = torch.full((mean.shape[0],), count, dtype=mean.dtype, device=mean.device)
    return batch_norm_gather_stats_with_counts(input, mean, invstd, running_mean, running_var,
                                               momentum, eps, counts)


def batch_norm_backward_reduce(grad_out, input, mean, invstd, weight, input_g, weight_g, bias_g):
    dy, x, dims = _acc(grad_out), _acc(input), _but_channel(input)
    sum_dy = dy.sum(dims)
    sum_dy_xmu = (dy * (x - _of_channel(mean, x))).sum(dims)
    none = torch.empty(0, device=input.device)
    like = weight if weight is not None else mean
    return (sum_dy if input_g else none, sum_dy_xmu if input_g else none,
            (sum_dy_xmu * invstd).to(like.dtype) if weight_g else none,
            sum_dy.to(like.dtype) if bias_g else none)


def batch_norm_backward_elemt(grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count):
    dy, x, total = _acc(grad_out), _acc(input), count.sum()
    factor = invstd * weight if weight is not None else invstd
    dx = (dy - _of_channel(sum_dy / total, x) -
          (x - _of_channel(mean, x)) * _of_channel(invstd.pow(2) * sum_dy_xmu / total, x))
    return (dx * _of_channel(factor, x)).to(input.dtype)


def cudnn_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    y, mean, invstd = aten.native_batch_norm(input, weight, bias, running_mean, running_var,
                                             training, momentum, eps)
    return y, mean, invstd, torch.empty(0, dtype=torch.uint8, device=input.device)


def cudnn_batch_norm_backward(input, grad, weight, running_mean, running_var, mean, invstd, eps,
                              reserve):
    return aten.native_batch_norm_backward(grad, input, weight, running_mean, running_var, mean,
                                           invstd, True, eps,
                                           [True, True, True])


# -- statistics of halves: floats, as CUDA's; the CPU's have the type of the parameters ------------


class Norm(operators.Operator):
    def __call__(self, *args):
        out = super().__call__(*args)
        return out if args[0].dtype is torch.float32 else (out[0], *map(_acc, out[1:]))


class NormBackward(operators.Operator):
    def __init__(self, name, statistics, parameters):
        super().__init__(name)
        self.statistics, self.parameters = statistics, parameters

    def __call__(self, *args):
        like = next((args[i] for i in self.parameters if args[i] is not None), args[1])
        if like.dtype is not torch.float32:
            args = [a.to(like.dtype) if i in self.statistics and a is not None else a
                    for i, a in enumerate(args)]
        return super().__call__(*args)


# -- cells of recurrent networks -------------------------------------------------------------------


def _gates(input_gates, hidden_gates, input_bias, hidden_bias):
    if input_bias is not None:
        return input_gates + input_bias, hidden_gates + hidden_bias
    return input_gates, hidden_gates


def lstm_cell(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    a, b = _gates(input_gates, hidden_gates, input_bias, hidden_bias)
    i, f, g, o = (a + b).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat((i, f, g, o), 1)


def lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    i, f, g, o = workspace.chunk(4, 1)
    t = cy.tanh()
    zero = torch.zeros_like(cy)
    dh = grad_hy if grad_hy is not None else zero
    dc = (grad_cy if grad_cy is not None else zero) + dh * o * (1 - t * t)
    gates = torch.cat((dc * g * i * (1 - i), dc * cx * f * (1 - f), dc * i * (1 - g * g),
                       dh * t * o * (1 - o)), 1)
    return gates, dc * f, gates.sum(0) if has_bias else torch.empty(0, device=cx.device)


def gru_cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    a, b = _gates(input_gates, hidden_gates, input_bias, hidden_bias)
    ir, ii, inew = a.chunk(3, 1)
    hr, hi, hn = b.chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (ii + hi).sigmoid()
    n = (inew + r * hn).tanh()
    return n + z * (hx - n), torch.cat((r, z, n, hx, hn), 1)


def gru_cell_backward(grad, workspace, has_bias):
    r, z, n, hx, hn = workspace.chunk(5, 1)
    dn = grad * (1 - z) * (1 - n * n)
    dz = grad * (hx - n) * z * (1 - z)
    dr = dn * hn * r * (1 - r)
    a, b = torch.cat((dr, dz, dn), 1), torch.cat((dr, dz, dn * r), 1)
    none = torch.empty(0, device=grad.device)
    return a, b, grad * z, a.sum(0) if has_bias else none, b.sum(0) if has_bias else none


# -- a softmax of halves that gives floats: the CPU's kernels have one type ------------------------


class Widened(operators.Operator):
    def __call__(self, input, dim, half_to_float):
        return super().__call__(input.float() if half_to_float else input, dim, False)


class Narrowed(operators.Operator):
    def __call__(self, grad, output, dim, input_dtype):
        return super().__call__(grad, output, dim, grad.dtype).to(input_dtype)


# -- choices ---------------------------------------------------------------------------------------


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None,
              enable_gqa=False):
    """Uses the CPU's own kernel in the usual cases, otherwise products and a softmax. PyTorch's
    other choices need a GPU."""
    if enable_gqa:
        key, value = (t.repeat_interleave(query.size(-3) // t.size(-3), -3) for t in (key, value))
    if (attn_mask is None and not dropout_p and query.dim() == 4 and query.is_floating_point()
            and query.numel() and query.shape == key.shape == value.shape
            and query.stride(3) == key.stride(3) == value.stride(3) == 1
            and not query.is_nested and torch.backends.cuda.flash_sdp_enabled()):
        return aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal,
                                                                scale=scale)[0]
    # The code below adds the mask to the scores.
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
    return aten._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p,
                                                   is_causal, scale=scale)[0]


FORMS = {
    "batch_norm_stats": batch_norm_stats,
    "batch_norm_elemt": batch_norm_elemt,
    "batch_norm_elemt.out": batch_norm_elemt_out,
    "batch_norm_gather_stats": batch_norm_gather_stats,
    "batch_norm_gather_stats_with_counts": batch_norm_gather_stats_with_counts,
    "batch_norm_backward_reduce": batch_norm_backward_reduce,
    "batch_norm_backward_elemt": batch_norm_backward_elemt,
    "cudnn_batch_norm": cudnn_batch_norm,
    "cudnn_batch_norm_backward": cudnn_batch_norm_backward,
    "native_batch_norm": Norm("aten::native_batch_norm"),
    "native_batch_norm_backward": NormBackward("aten::native_batch_norm_backward", (5, 6), (2, 3)),
    "native_layer_norm": Norm("aten::native_layer_norm"),
    "native_layer_norm_backward": NormBackward("aten::native_layer_norm_backward", (3, 4), (5,)),
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
    "_softmax": Widened("aten::_softmax"),
    "_log_softmax": Widened("aten::_log_softmax"),
    "_softmax_backward_data": Narrowed("aten::_softmax_backward_data"),
    "_log_softmax_backward_data": Narrowed("aten::_log_softmax_backward_data"),
    "_fused_sdp_choice": lambda *_args, **_kwargs: 0,
    "_use_cudnn_ctc_loss": lambda *_args, **_kwargs: False,
    "_use_cudnn_ctc_loss.Tensor": lambda *_args, **_kwargs: False,
}


def without_cpu(name):
    """Returns the implementation of an operator that has no CPU kernel."""
    from torch._decomp import decomposition_table

    op = operators.resolve(name)[1]
    composite = operators.has_kernel(name, "CompositeImplicitAutograd") and op.decompose
    return decomposition_table.get(op) or composite or Nowhere(op)


class Nowhere:
    """Refused, by name; with DFSHIM_HOST_STUB=1 its results have the right shape and no values."""

    def __init__(self, op):
        self.op = op
        self.returns_given = all(r.alias_info is not None for r in op._schema.returns)

    def __call__(self, *args, **kwargs):
        if STUB and self.returns_given:
            names = [a.name for a in self.op._schema.arguments if a.alias_info is not None]
            given = [kwargs[n] if n in kwargs else args[0] for n in names]
            return given[0] if len(given) == 1 else tuple(given)
        shapes = operators.shapes_of(self.op, args, kwargs) if STUB else None
        if shapes is None:
            raise operators.Refused(
                f"dfshim: {self.op} exists for GPUs only and cannot run on the CPU backend"
                + ("; DFSHIM_HOST_STUB=1 cannot skip it, as the shape of its result is not known"
                   if STUB else "; DFSHIM_HOST_STUB=1 skips it (communication can be checked, "
                   "values mean nothing)"))
        out = operators.stub.new_results(self.op, shapes[0], args, kwargs)
        return out[0] if len(out) == 1 else tuple(out)


def sleep(cycles):
    """Replaces torch.cuda._sleep, a kernel that spins: 1 ns for each cycle."""
    stream = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())
    operators.defer(stream, lambda: time.sleep(cycles / 1e9),
                    torch._C._cuda_isCurrentStreamCapturing())


def waits_first(call):
    """Wraps a function of PyTorch that waits for the device and keeps the interpreter's lock.
    Operators on the device's streams need that lock, so the wrapper waits for them first."""
    def form(tensors):
        for t in tensors:
            torch.cuda.synchronize(t.device)
        return call(tensors)

    return form


def install():
    c10d = getattr(torch._C, "_distributed_c10d", None)
    if hasattr(c10d, "_hash_tensors"):
        c10d._hash_tensors = waits_first(c10d._hash_tensors)
    for key in ("CUDA", "AutogradCUDA"):
        library = torch.library.Library("aten", "IMPL", key)
        operators.LIBRARIES.append(library)
        library.m.impl("scaled_dot_product_attention", key, attention, False)
    torch.cuda._sleep = sleep
