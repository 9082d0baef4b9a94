"""Operators that compute nothing (DFSHIM_HOST_STUB=1), so that the communication of a large model
can be checked.

An operator is skipped if one of its tensors or results lies in large floating-point memory. Its
results have the right shape, and memory that is never touched. Its small floating-point results,
such as a loss or a norm, hold DFSHIM_HOST_STUB_VALUE; integer results are 0, which is a valid
index; a comparison has the result that it has for elements of that value.

All other operators are computed: those on integers, which are sizes, indices and pickled objects,
and those on small tensors.
"""

import itertools
import math
import os
import sys

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from dfshim.host import operators
from dfshim.host.start import say

# Bytes of a storage whose values are computed; the CPU backend moves messages of at least this
# size.
SMALL = 8 << 10

strided = torch.strided
value = 1.0
# Large skipped storages of bool, by their number: a weak reference, which keeps the number, and
# what each element would be.
uniform = {}


def is_float(dtype):
    return dtype.is_floating_point or dtype.is_complex


def is_large(t):
    return t.is_cuda and t.layout is strided and t.untyped_storage().nbytes() > SMALL


def uniform_of(t):
    """Returns the value that each element of a skipped tensor of bool would have; None if t is not
    such a tensor."""
    entry = uniform.get(t.untyped_storage()._cdata) if uniform else None
    return entry and entry[1]


def set_uniform(t, of):
    if len(uniform) > 1 << 12:
        for number in [number for number, (ref, _) in uniform.items() if ref.expired()]:
            del uniform[number]
    storage = t.untyped_storage()
    uniform[storage._cdata] = StorageWeakRef(storage), of


def is_skipped(t):
    """Whether t is a tensor of the device whose values have not been computed."""
    return is_large(t) and (is_float(t.dtype) or t.dtype is torch.bool
                            and uniform_of(t) is not None)


def tensors_of(x):
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for item in x:
            yield from tensors_of(item)


def of_one_element(op, args, kwargs):
    """Returns the result of a comparison or a logical operator for one element of each tensor."""

    def one(x):
        if not isinstance(x, Tensor):
            return x
        of = value if is_float(x.dtype) else bool(uniform_of(x))
        return torch.full((), of, dtype=x.dtype, device=operators.CPU)

    if op._schema.name in ("aten::all", "aten::any"):
        return bool(one(args[0]))
    if op._schema.name == "aten::fill_":
        return bool(one(args[1]))
    if torch.Tag.pointwise not in op.tags:
        return False
    if "out" in kwargs:
        op = op.overloadpacket
    return bool(op(*map(one, args), **{k: one(x) for k, x in kwargs.items() if k != "out"}))


def settle(t, op, args, kwargs):
    """Stores values in a result of a skipped operator."""
    if is_float(t.dtype):
        if not is_large(t):
            t.fill_(value)
    elif t.dtype is not torch.bool:
        t.zero_()
    elif is_large(t):
        set_uniform(t, of_one_element(op, args, kwargs))
    else:
        t.fill_(of_one_element(op, args, kwargs))


def new_results(op, forms, args, kwargs):
    device = next((t.device for t in tensors_of([*args, *kwargs.values()]) if t.is_cuda), "cuda")
    out = [s and torch.empty_strided(*s[:2], dtype=s[2], device=device) for s in forms]
    for t in tensors_of(out):
        settle(t, op, args, kwargs)
    return out


def has_large_result(form, args, kwargs):
    forms = operators.forms_of(form.op, args, kwargs) if form.gives_tensors else None
    return forms and any(f and is_float(f[2]) and f[0].numel() * f[2].itemsize > SMALL
                         for f in forms[0])


def call(form, args, kwargs):
    """An operator (operators.Operator): skips it or computes it."""
    large = [t for t in tensors_of([*args, *kwargs.values()]) if is_large(t)]
    if large and (any(map(is_skipped, large)) or has_large_result(form, args, kwargs)):
        done, result = skip(form, args, kwargs)
        if done:
            return result
    if uniform:
        write_uniform([*args, *kwargs.values()])
    return form.compute(args, kwargs)


def write_uniform(tensors):
    """Writes the elements of skipped tensors of bool, for an operator that is computed."""
    for t in tensors_of(tensors):
        of = uniform_of(t) if t.is_cuda and t.dtype is torch.bool else None
        if of is not None:
            del uniform[t.untyped_storage()._cdata]
            torch.empty(0, dtype=torch.bool, device=t.device).set_(t.untyped_storage()).fill_(of)


def skip(form, args, kwargs):
    """Skips an operator. Returns (True, the result), or (False, None) if the shape of the result
    depends on values."""
    op = form.op
    if form.in_place and not (form.outs and form.nr_returns):
        for t in tensors_of([args[i] for i in form.written if i < len(args)]):
            if t.dtype is torch.bool:
                settle(t, op, args, kwargs)
        return True, form.answer(None, None, args, kwargs)
    forms = operators.forms_of(op, args, kwargs) if form.gives_tensors else None
    if forms is None:
        return False, None
    if not form.outs:
        return True, form.several(new_results(op, forms[0], args, kwargs), forms[1])
    for x, (size, _, _) in zip((kwargs[n] for n in form.names if n in form.outs), forms[0]):
        if x.size() != size:
            x.resize_(size)
        settle(x, op, args, kwargs)
    return True, form.answer(None, None, args, kwargs)


def copy(to, frm, stream, waits):
    """Whether copy_() is skipped. waits: it returns only when the stream has reached it."""
    if not is_skipped(to) and not is_skipped(frm):
        return False
    if to.dtype is torch.bool and is_skipped(to) and not is_skipped(frm):
        write_uniform([to])
        return False
    if waits and frm.numel():  # for operations that use its first or its last byte
        for at in (0, sum((n - 1) * step for n, step in zip(frm.size(), frm.stride()))):
            operators.copy_by_cuda(torch.empty(1, dtype=frm.dtype, device=operators.CPU),
                                   frm.as_strided((1,), (1,), frm.storage_offset() + at), stream)
    if is_float(to.dtype):
        if not is_large(to) and to.numel() * to.element_size() <= SMALL:
            to.fill_(value)
    elif to.dtype is not torch.bool:
        to.zero_()
    else:
        of = bool(value) if is_float(frm.dtype) else uniform_of(frm)
        if is_large(to):
            set_uniform(to, of)
        else:
            to.fill_(of)
    return True


def local_scalar(t):
    """.item()"""
    operators.wait(torch._C._cuda_getCurrentRawStream(t.device.index))
    if not is_skipped(t):
        return operators.on_host(t).item()
    return value if is_float(t.dtype) else uniform_of(t)


def setting(name, kind, default):
    text = os.environ.get(name)
    try:
        number = kind(text) if text else default
        if math.isnan(number) or kind is int and number < 0:
            raise ValueError
    except ValueError:
        say(f"{name}={text}: not a number{' of batches' if kind is int else ''}")
        sys.exit(2)
    return number


def limit_loaders(batches):
    from torch.utils.data import DataLoader

    begin, length = DataLoader.__iter__, DataLoader.__len__
    DataLoader.__iter__ = lambda self: itertools.islice(begin(self), batches)
    DataLoader.__len__ = lambda self: min(length(self), batches)


def install():
    global value
    value = setting("DFSHIM_HOST_STUB_VALUE", float, value)
    batches = setting("DFSHIM_HOST_STUB_STEPS", int, 0)
    if batches:
        limit_loaders(batches)
    library = torch.library.Library("aten", "IMPL", "CUDA")
    operators.LIBRARIES.append(library)
    library.m.impl("_local_scalar_dense", "CUDA", local_scalar, False)
    operators.stub = sys.modules[__name__]
