#!/usr/bin/env python3
"""Runs a PyTorch program whose GPU is the stand-in of the tests: what would be a kernel is computed on the host.

    python3 torch_host.py PROGRAM ARGUMENTS...

The memory of the stand-in is memory of the process, so a tensor there is a CPU tensor at the same address: every
operator that PyTorch has a CUDA kernel for waits for the current stream and runs its CPU form. Copies stay on their
stream. While a stream is captured nothing can wait, and the operator becomes a host function of the graph. Views,
allocations, streams, events, graphs and everything of torch.distributed are PyTorch's own.
"""

import ctypes
import runpy
import sys

import torch

rt = ctypes.CDLL("libcudart.so.13")
HOST_FN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
H2D, D2H, D2D = 1, 2, 3
kept = []  # what graphs refer to

# What runs no kernel, or has to be of the device.
NATIVE = {"empty", "empty_strided", "_local_scalar_dense", "record_stream", "resize_", "set_", "is_set_to", "is_pinned",
          "_pin_memory", "_sparse_coo_tensor_with_dims"}


def host(t):
    """A CPU tensor at the same address."""
    if not isinstance(t, torch.Tensor) or t.device.type != "cuda":
        return t
    storage = t.untyped_storage()
    size = storage.nbytes()
    out = torch.empty(0, dtype=t.dtype)
    if size:
        memory = (ctypes.c_byte * size).from_address(storage.data_ptr())
        out.set_(torch.frombuffer(memory, dtype=torch.uint8).untyped_storage(), t.storage_offset(), t.shape, t.stride())
    else:
        out = torch.empty(t.shape, dtype=t.dtype)
    return out


def each(f, x):
    if isinstance(x, (list, tuple)):
        return type(x)(each(f, v) for v in x)
    if isinstance(x, dict):
        return {k: each(f, v) for k, v in x.items()}
    return f(x)


def to_host(x):
    if isinstance(x, torch.device):
        return torch.device("cpu")
    return host(x)


def to_device(x):
    if not isinstance(x, torch.Tensor):
        return x
    out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")
    host(out).copy_(x)
    return out


def in_stream(work):
    """Does it on the current stream: now, or in the graph that is being captured."""
    stream = torch.cuda.current_stream()
    if not torch.cuda.is_current_stream_capturing():
        stream.synchronize()
        work()
        return
    fn = HOST_FN(lambda _: work())
    kept.append(fn)
    if rt.cudaLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), fn, None):
        raise RuntimeError("a host function could not be captured")


def implementation(op):
    """How op is done on the host."""
    written = [i for i, a in enumerate(op._schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
    names = [a.name for a in op._schema.arguments]

    def run(*args, **kwargs):
        with torch.no_grad():
            on_host = each(to_host, args), each(to_host, kwargs)
            if written:
                in_stream(lambda: op(*on_host[0], **on_host[1]))
                out = [args[i] if i < len(args) else kwargs[names[i]] for i in written]
                return None if not op._schema.returns else out[0] if len(op._schema.returns) == 1 else tuple(out)
            if not torch.cuda.is_current_stream_capturing():
                torch.cuda.current_stream().synchronize()
                return each(to_device, op(*on_host[0], **on_host[1]))
            out = each(to_device, op(*on_host[0], **on_host[1]))  # for its shape
            def again():
                result = op(*on_host[0], **on_host[1])
                for a, b in zip([out] if isinstance(out, torch.Tensor) else out,
                                [result] if isinstance(out, torch.Tensor) else result):
                    host(a).copy_(b)
            in_stream(again)
            return out

    return run


def copy_(to, frm, non_blocking=False):
    """Between memory of the same shape a copy of the driver; else on the host."""
    with torch.no_grad():
        if frm.shape == to.shape and frm.dtype == to.dtype and to.is_contiguous() and frm.is_contiguous():
            kind = D2H if to.device.type == "cpu" else H2D if frm.device.type == "cpu" else D2D
            stream = torch.cuda.current_stream()
            if to.numel() and rt.cudaMemcpyAsync(ctypes.c_void_p(to.data_ptr()), ctypes.c_void_p(frm.data_ptr()),
                                                 ctypes.c_size_t(to.numel() * to.element_size()), kind,
                                                 ctypes.c_void_p(stream.cuda_stream)):
                raise RuntimeError("a copy failed")
            if kind != D2D and not (non_blocking and torch.cuda.is_current_stream_capturing()):
                stream.synchronize()
        else:
            a, b = host(to), host(frm)
            in_stream(lambda: a.copy_(b))
    return to


def is_view(op):
    return any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns)


def install():
    lib = torch.library.Library("aten", "IMPL", "CUDA")
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"):
        space, _, full = name.partition("::")
        base, _, overload = full.partition(".")
        if space != "aten" or base in NATIVE or base == "copy_":
            continue
        op = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
        if op is None or is_view(op) or not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU") and \
           not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeExplicitAutograd"):
            continue
        lib.impl(full, implementation(op), "CUDA")
    lib.impl("copy_", copy_, "CUDA")
    return lib


if __name__ == "__main__":
    library = install()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
