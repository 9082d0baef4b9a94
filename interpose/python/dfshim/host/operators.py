"""Operators with CUDA kernels, computed on the CPU in stream order.

One mechanism: the dispatcher's entry of each such operator for the key CUDA is a function that
makes CPU tensors over the same memory, runs the operator's CPU kernel on them, and brings new
results to the device. *When* it runs follows the current stream, as a kernel would:

- the stream has nothing to do: at once;
- it has, or it is being captured: the operator becomes a host function of the stream, and the
  calling thread goes on. New results have the shapes that PyTorch's meta kernels say;
- where only the values give the shape (nonzero, item), the caller waits for the stream, as on a
  GPU.

An error of an operator that runs later is raised by the next one, as CUDA's are.

Random numbers: a CUDA generator keeps its seed and offset; each operator seeds a CPU generator from
the two and moves the offset on. So torch.cuda's seeds and states repeat a run; the numbers are not
those of a GPU.
"""

import ctypes
import itertools
import warnings

import torch
from torch import Tensor

from dfshim.host import streams
from dfshim.host.start import STUB
from dfshim.host.streams import busy, defer, late_errors, raise_late, wait

C = torch._C
CPU = torch.device("cpu")
current_device, current_stream, is_capturing = (
    C._cuda_getDevice, C._cuda_getCurrentRawStream, C._cuda_isCurrentStreamCapturing)
CPU_KEYS = C.DispatchKeySet(C.DispatchKey.CPU)
LIBRARIES = []  # keeps the libraries: registrations end with them
memmove = ctypes.memmove
# Keeps the interpreter's lock. If it released the lock, a thread that waits for it would run first.
memmove_short = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
                                  ctypes.c_size_t)(
    ctypes.cast(ctypes.memmove, ctypes.c_void_p).value)
SHORT = 1 << 14
BY_MEMMOVE = 1 << 20  # bytes up to which one thread copies as fast as several
# Elements from which finding a result's shape beforehand takes less than copying the result.
LARGE = 1 << 14

# Operators that run no kernel, or that the device itself must execute.
NATIVE = {
    "empty", "empty_strided", "_local_scalar_dense", "record_stream", "resize_", "set_",
    "is_set_to", "is_pinned", "_pin_memory", "_sparse_coo_tensor_with_dims",
    "_sparse_coo_tensor_with_dims_and_tensors", "_indices", "_values", "indices", "values", "_nnz",
    "_dimI", "_dimV", "sparse_dim", "dense_dim", "is_coalesced", "_coalesced_", "empty_like",
    "sparse_resize_", "sparse_resize_and_clear_", "resize_as_sparse_", "copy_sparse_to_sparse_",
    "unsqueeze", "permute", "_has_same_storage_numel", "_nested_view_from_buffer",
    "_cudnn_init_dropout_state",
}
# Operators that the CPU computes as a whole, because their CUDA forms choose among libraries that
# need a GPU, or take several operators.
WHOLE = ("convolution", "convolution_backward", "_convolution",
         "_scaled_dot_product_flash_attention_for_cpu",
         "_scaled_dot_product_flash_attention_for_cpu_backward", "_safe_softmax", "isinf")

stub = None  # the module that skips operators (DFSHIM_HOST_STUB=1)


class Refused(NotImplementedError):
    """An operator that only a GPU has."""


# -- memory ----------------------------------------------------------------------------------------

_storages = {}
# CPU tensors by place and form; in _small those of few elements without a bit for conj or neg.
_small, _others = {}, {}
find_small = _small.get
strided, empty_like, empty_strided = torch.strided, torch.empty_like, torch.empty_strided


def _storage(start, size):
    """A CPU storage over a CUDA tensor's memory. It does not own the memory, so it may exist longer
    than the memory."""
    out = _storages.get((start, size))
    if out is None:
        if len(_storages) > 4096:
            _storages.clear()
        out = _storages[start, size] = C._construct_storage_from_data_pointer(start, CPU, size)
    return out


def _on_host(t):
    storage = t.untyped_storage()
    start, bytes_ = storage.data_ptr(), storage.nbytes()
    if t.numel() and bytes_:
        # The program may have set another default device.
        out = torch.empty(0, dtype=t.dtype, device=CPU)
        out.set_(_storage(start, bytes_), t.storage_offset(), t.size(), t.stride())
    else:
        out = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=CPU)
    if t.is_conj():
        out = torch._conj(out)
    if t.is_neg():
        out = torch._neg_view(out)
    return out


def on_host(t):
    """Returns a CPU tensor over the memory of the CUDA tensor t, to be read or written."""
    return _on_host(t) if t.layout is strided else _sparse_on_host(t)


def seen_on_host(t):
    """As on_host(), for a tensor whose form does not change. Tensors of the same place and form
    share one result, because making one takes longer than finding it."""
    if t.layout is not strided:
        return _sparse_on_host(t)
    bits = t.is_conj(), t.is_neg()
    seen, key = _others, (t.data_ptr(), t.size(), t.stride(), t.dtype)
    if t.numel() >= LARGE or True in bits:
        key += bits
    else:
        seen = _small
    out = seen.get(key)
    if out is None:
        if len(seen) > 4096:
            seen.clear()
        out = seen[key] = _on_host(t)
    return out


def forget(t):
    """Ends the sharing of seen_on_host(t), whose form has changed."""
    _small.pop((t.data_ptr(), t.size(), t.stride(), t.dtype), None)
    _others.pop((t.data_ptr(), t.size(), t.stride(), t.dtype, t.is_conj(), t.is_neg()), None)


def _sparse_on_host(t):
    if t.layout is not torch.sparse_coo:
        raise Refused(f"dfshim: tensors of layout {t.layout} cannot be computed on the CPU backend")
    out = torch.sparse_coo_tensor(on_host(t._indices()), on_host(t._values()), t.size(),
                                  check_invariants=False, device=CPU)
    return out._coalesced_(t.is_coalesced())


def on_device(t, device):
    """Returns a new CUDA tensor with the values, strides and layout of the CPU tensor t."""
    if t.layout is not torch.strided:
        out = torch.sparse_coo_tensor(on_device(t._indices(), device),
                                      on_device(t._values(), device), t.size(),
                                      check_invariants=False)
        return out._coalesced_(t.is_coalesced())
    # torch releases the interpreter's lock meanwhile, because the allocator may wait for an
    # operator in its stream.
    size, contiguous = t.nbytes, t.is_contiguous()
    out = (empty_like(t, device=device) if contiguous
           else empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device))
    # A storage as long as the elements together has no gaps, and none of them overlap.
    if (size <= BY_MEMMOVE and (contiguous or out.untyped_storage().nbytes() == size)
            and not t.is_conj() and not t.is_neg()):
        if size:
            (memmove_short if size <= SHORT else memmove)(out.data_ptr(), t.data_ptr(), size)
    else:
        on_host(out).copy_(t)
    return out


def fill(out, t):
    """Stores the values of t in the tensor out of the device, which has the same shape."""
    if t.numel():
        on_host(out).copy_(t)


# -- random numbers --------------------------------------------------------------------------------

_in_graphs = itertools.count(1)


def seed_for(gen, device):
    """Returns the seed of the CPU generator that replaces a CUDA generator (None: the device's) for
    one operator."""
    gen = gen or torch.cuda.default_generators[device.index]
    seed = gen.initial_seed()
    if is_capturing():
        offset = next(_in_graphs) << 40
    else:
        offset = gen.get_offset()
        gen.set_offset(offset + 4)
    # Neighbouring seeds and offsets give results that are far apart (Fibonacci hashing).
    return (seed * 0x9E3779B97F4A7C15 + offset * 0xD1B54A32D192ED03) & 0x7FFFFFFFFFFFFFFF


def generator_for(gen, device):
    """Returns the CPU generator that replaces a CUDA generator for one operator."""
    return torch.Generator(CPU).manual_seed(seed_for(gen, device))


class seeded:
    """Makes the CPU's default generator replace the device's, for operators without an argument for
    a generator."""

    def __init__(self, device):
        self.device = device

    def __enter__(self):
        self.old = torch.default_generator.get_state()
        torch.default_generator.manual_seed(seed_for(None, self.device))

    def __exit__(self, *_):
        torch.default_generator.set_state(self.old)


# -- memory that arguments share -------------------------------------------------------------------

# How PyTorch's message about it begins.
REFUSED_OVERLAP = "unsupported operation: "


def shares_part(out, places):
    """Whether an argument lies in a part of the memory of the tensor `out`. An argument that is the
    same tensor does not count."""
    start = out.data_ptr()
    end = start + out.nbytes
    for items, at in places:
        for i in at:
            x = items[i]
            if isinstance(x, Tensor) and x.layout is strided:
                first = x.data_ptr()
                if (first < end and start < first + x.nbytes
                        and (first != start or x.size() != out.size()
                             or x.stride() != out.stride())):
                    return True
    return False


def put_into_storage(storage, places):
    """Makes the CPU tensors whose memory lies in `storage` tensors of this storage. PyTorch
    compares storages, and a tensor that was seen before may have another one over this memory."""
    start = storage.data_ptr()
    for items, at in places:
        for i in at:
            x = items[i]
            if (isinstance(x, Tensor) and x.layout is strided and not x.is_conj() and not x.is_neg()
                    and 0 <= x.data_ptr() - start < storage.nbytes()):
                items[i] = torch.empty(0, dtype=x.dtype, device=CPU).set_(
                    storage, (x.data_ptr() - start) // x.element_size(), x.size(), x.stride())


# -- an operator -----------------------------------------------------------------------------------

TENSOR, TENSORS, DEVICE = range(3)


def _kinds(op):
    """Returns index, name and kind of the arguments that belong to a device."""
    out = []
    for i, a in enumerate(op._schema.arguments):
        text = str(a.type)
        kind = ((TENSORS if "List[" in text else TENSOR) if "Tensor" in text
                else DEVICE if "Device" in text else None)
        if kind is not None:
            out.append((i, a.name, kind))
    return out


_shapes = {}


def _description(x):
    if isinstance(x, Tensor):
        return x.size(), x.stride(), x.dtype, x.layout, x.is_conj(), x.dim() == 0 and not x.is_cuda
    if isinstance(x, (list, tuple)):
        return tuple(_description(v) for v in x)
    return (type(x), x)


def _to_meta(x):
    if isinstance(x, Tensor):
        if not x.is_cuda and x.dim() == 0:
            return x  # counts as a number when types are chosen
        return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="meta")
    if isinstance(x, (list, tuple)):
        return [_to_meta(v) for v in x]
    if isinstance(x, torch.device):
        return torch.device("meta")
    return None if isinstance(x, C.Generator) else x


def forms_of(op, args, kwargs):
    """Returns (size, stride, dtype) of each tensor that op will return (None for a result that is
    no tensor), and the type of the whole result. Returns None if these depend on values, or if
    PyTorch has no meta kernel for op."""
    try:
        key = op, _description(args), tuple((k, _description(v)) for k, v in kwargs.items())
        if key in _shapes:
            return _shapes[key]
    except TypeError:  # an argument cannot be hashed
        key = None
    try:
        with torch.no_grad():
            result = op(*_to_meta(args), **{k: _to_meta(v) for k, v in kwargs.items()})
        flat = result if isinstance(result, (list, tuple)) else [result]
        out = [(t.size(), t.stride(), t.dtype) if t is not None else None
               for t in flat], type(result)
    except Exception:
        out = None
    if key and len(_shapes) < 1 << 16:
        _shapes[key] = out
    return out


def shapes_of(op, args, kwargs):
    """As forms_of(), but None if op returns anything but tensors."""
    out = forms_of(op, args, kwargs)
    return None if out and None in out[0] else out


def _into(name, op):
    """Returns a function that computes op's result into a given tensor, and the name of that
    argument (None: a list named out).

    Returns None as the function in three cases. The CPU has no such kernel: PyTorch itself would
    compute a new result and copy it. Op is a loss: its result is small, and it would use the given
    tensor for what it sums up, too. Op has several results: it may leave some of the given tensors
    unchanged."""
    base = resolve(name)[0]
    if len(op._schema.returns) != 1 or not base.endswith("backward") and any(
            a.name == "reduction" for a in op._schema.arguments):
        return None, None
    packet = getattr(torch.ops.aten, base)
    if (base.startswith("_foreach_") and len(op._schema.arguments) == 1
            and has_kernel(f"aten::{base[9:]}.out", "CPU")):
        each = getattr(torch.ops.aten, base[9:]).out._handle.redispatch_boxed

        def all_of_them(keys, tensors, out):
            for t, o in zip(tensors, out):
                each(keys, t, out=o)

        return all_of_them, None
    given = [(a.name, str(a.type)) for a in op._schema.arguments]
    for form in (getattr(packet, o) for o in packet.overloads()):
        args = form._schema.arguments
        outs = [a.name for a in args if a.is_out]
        if len(outs) == 1 and has_kernel(form.name(), "CPU") and \
                [(a.name, str(a.type)) for a in args if not a.is_out] == given:
            return form._handle.redispatch_boxed, outs[0]
    return None, None


def _without_keys(op):
    return lambda keys, *args, **kwargs: op(*args, **kwargs)


def _as_tensor(to, at, x, args):
    """Makes the number x a tensor if that changes no type: x is a float, and all tensors have
    floats and a dimension or more."""
    if type(x) is not float or not all(
            t.is_floating_point() and t.dim() for t in args if isinstance(t, Tensor)):
        return False
    to[at] = torch.scalar_tensor(x, dtype=torch.float64, device=CPU)
    return True


class Operator:
    """The implementation of one operator for the dispatch key CUDA."""

    def __init__(self, name, odd=True):
        """odd: its tensors may be sparse, or have a bit for conj or neg."""
        self.name, self.odd, self.op = name, odd, None

    def begin(self):
        """Runs at the first use of the operator, because a program uses few of all operators."""
        op = resolve(self.name)[1]
        schema = op._schema
        self.cpu = op._handle.redispatch_boxed
        self.names = [a.name for a in schema.arguments]
        alias = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
        kinds, positional = _kinds(op), [not a.kwarg_only for a in schema.arguments]
        # For nr positional arguments.
        self.tensors = [[i for i, _, kind in kinds if kind == TENSOR and positional[i] and i < nr]
                        for nr in range(sum(positional) + 1)]
        self.others = [k for k in kinds if k[0] not in self.tensors[-1]]
        self.outs = {a.name for a, w in zip(schema.arguments, alias) if w and a.is_out}
        self.written = [i for i, w in enumerate(alias) if w]
        self.nr_returns = len(schema.returns)
        # Which are elements of one tensor, as a GPU's.
        self.numbers = schema.name == "aten::_foreach_norm"
        self.gives_tensors = any("Tensor" in str(r.type) for r in schema.returns)
        # In place: it returns its arguments.
        self.in_place = bool(self.written) and all(r.alias_info is not None for r in schema.returns)
        self.seeded = torch.Tag.nondeterministic_seeded in op.tags and "generator" not in self.names
        self.generator = "generator" in self.names
        self.by_values = (torch.Tag.dynamic_output_shape in op.tags
                          or torch.Tag.data_dependent_output in op.tags)
        self.into, self.into_name = None, None
        if (not self.written and not self.seeded and not self.generator and not self.by_values
                and self.gives_tensors):
            self.into, self.into_name = _into(self.name, op)
        self.op = op  # last, because other threads use this object once op is set

    def __call__(self, *args, **kwargs):
        if self.op is None:
            self.begin()
        if late_errors:
            raise_late()
        return stub.call(self, args, kwargs) if stub else self.compute(args, kwargs)

    def compute(self, args, kwargs):
        like, device, plain, direct, large, outs, number = None, None, True, True, False, None, None
        a, nr, odd = list(args), len(args), self.odd
        k, places = dict(kwargs) if kwargs or self.generator else kwargs, [(a, self.tensors[nr])]
        for i, name, kind in self.others:
            if i < nr:
                x, at, to = a[i], i, a
            elif name in k:
                x, at, to = k[name], name, k
            else:
                continue
            if x is None:
                continue
            if kind == TENSORS:
                x = to[at] = list(x)
                places.append((x, range(len(x))))
            elif kind == DEVICE:
                if x.type == "cuda":
                    device, to[at] = x, CPU
            elif name not in self.outs:
                places.append((to, (at,)))
            elif x.is_cuda:
                like, outs = x, outs or []
                outs.append((x, at, to))
                large = large or x.numel() >= LARGE
                plain = plain and x.layout is strided and not x.is_conj() and not x.is_neg()
        for to, at in places:
            for i in at:
                x = to[i]
                if not isinstance(x, Tensor):
                    if x is not None:
                        # Some operators have another overload for a number.
                        direct, number = False, (to, i, x)
                elif x.is_cuda:
                    like = x
                    if odd and (x.layout is not strided or x.is_conj() or x.is_neg()):
                        h = None
                    else:
                        h = find_small((x.data_ptr(), x.size(), x.stride(), x.dtype))
                    if h is None:
                        h = seen_on_host(x)
                        large = large or h.numel() >= LARGE
                        plain = plain and h.layout is strided and not h.is_conj() and not h.is_neg()
                    to[i] = h
        if like is not None:
            device = like.device
        elif device is None or device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        index = device.index
        if index != current_device():  # the default stream is that of the current device
            with torch.cuda.device(index):
                return self.compute(args, kwargs)
        if number and outs and _as_tensor(*number, a):
            direct = True
        if self.generator:
            k["generator"] = generator_for(kwargs.get("generator"), device)

        cpu = (self.cpu if plain and direct
               else _without_keys(self.op if direct else self.op.overloadpacket))
        into = large and plain and direct and self.into is not None
        stream = current_stream(index)
        capturing = is_capturing()
        later = capturing or busy(stream)
        if outs:
            if not capturing and any(shares_part(x, places) for x, _, _ in outs):
                if later:
                    wait(stream)
                self.check_there(outs, places, cpu, a, k)
                return self.answer(None, device, args, kwargs)
            if (plain and direct and not later and not self.seeded
                    and self.computes_there(outs, a, k)):
                return self.answer(None, device, args, kwargs)
            outs = self.place(outs, large and plain and direct, args, kwargs)
        if later:
            if not self.by_values and not self.seeded and (plain or self.in_place):
                done, result = self.later(stream, capturing, lambda: cpu(CPU_KEYS, *a, **k), into,
                                          device, args, kwargs, a, k, outs)
                if done:
                    return result
            if capturing:
                raise RuntimeError(f"dfshim: {self.op} cannot be captured on the CPU backend: "
                                   "its result's shape is not known before it runs")
            wait(stream)
        if into:
            shapes = shapes_of(self.op, args, kwargs)
            if shapes:
                out = [torch.empty_strided(*s[:2], dtype=s[2], device=device) for s in shapes[0]]
                if self.computes_into([on_host(t) for t in out], a, k):
                    return self.several(out, shapes[1])
        if self.seeded:
            with seeded(device):
                result = cpu(CPU_KEYS, *a, **k)
        else:
            result = cpu(CPU_KEYS, *a, **k)
        if outs:
            for x, at, to in outs:
                self.give(x, to[at])
        return self.answer(result, device, args, kwargs)

    def computes_there(self, outs, a, k):
        """Computes the results directly into the out= arguments. Returns False if that is not
        possible."""
        for x, at, to in outs:
            if not x.numel():
                return False
            to[at] = seen_on_host(x)
        try:
            self.cpu(CPU_KEYS, *a, **k)
        except RuntimeError as e:  # if the program caused it, the next attempt raises it again
            for x, _, _ in outs:
                forget(x)
            if str(e).startswith(REFUSED_OVERLAP):
                raise
            return False
        for x, at, to in outs:
            if x.size() != to[at].size():
                forget(x)
                x.resize_(to[at].size())
        return True

    def check_there(self, outs, places, cpu, a, k):
        """As computes_there(), for out= arguments that share a part of their memory with other
        arguments. Most operators raise an error for this, which a tensor elsewhere would hide."""
        for x, at, to in outs:
            to[at] = on_host(x)
            put_into_storage(to[at].untyped_storage(), places)
        cpu(CPU_KEYS, *a, **k)
        for x, at, to in outs:
            if x.size() != to[at].size():
                x.resize_(to[at].size())

    def place(self, outs, may, args, kwargs):
        """Chooses where out= arguments are computed. If they have the right shape, that is in their
        own memory, and it returns None. Otherwise each gets a new CPU tensor, and it returns the
        arguments, to which these are copied later."""
        shapes = shapes_of(self.op, args, kwargs) if may and len(outs) == self.nr_returns else None
        if shapes and all(x.size() == size and x.dtype is dtype
                          for (x, _, _), (size, _, dtype) in zip(outs, shapes[0])):
            for x, at, to in outs:
                to[at] = on_host(x)
            return None
        for x, at, to in outs:
            to[at] = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=CPU)
        return outs

    def give(self, x, value):
        """Stores a result in an out= argument, which takes the shape of the result, too."""
        if x.size() != value.size():
            x.resize_(value.size())
        fill(x, value)

    def answer(self, result, device, args, kwargs):
        if self.in_place:
            if self.nr_returns == 1:
                i = self.written[0]
                return args[i] if i < len(args) else kwargs[self.names[i]]
            got = [args[i] if i < len(args) else kwargs[self.names[i]] for i in self.written]
            return tuple(got) if self.nr_returns else None
        if isinstance(result, Tensor):
            return on_device(result, device)
        if isinstance(result, (list, tuple)):
            if self.numbers and len({t.dtype for t in result}) == 1:
                return list(on_device(torch.stack(result), device).unbind())
            return type(result)([on_device(t, device) if isinstance(t, Tensor) else t
                                 for t in result])
        return result

    def computes_into(self, tensors, a, k):
        """Computes the results into these tensors. Returns False if the kernel would need tensors
        of another form."""
        into, forms = self.into, [(t.size(), t.stride(), False) for t in tensors]
        if into is None:  # another thread has found out that it does not work
            return False
        try:
            into(CPU_KEYS, *a, **k, **({self.into_name: tensors[0]} if self.into_name
                                       else {"out": tensors}))
            # Linalg_lu_solve makes its result a conjugate.
            done = forms == [(t.size(), t.stride(), t.is_conj()) for t in tensors]
        # No memory for the result's size; if the program caused it, the next attempt raises it
        # again.
        except RuntimeError:
            done = False
        if not done:
            self.into = None
        return done

    def several(self, out, kind):
        return out[0] if self.nr_returns == 1 and kind is not list and len(out) == 1 else kind(out)

    def later(self, stream, capturing, work, into, device, args, kwargs, a, k, outs):
        """Puts the operator on the stream. Returns (True, its result), or (False, None) if that is
        not possible."""
        out = None
        shapes = (shapes_of(self.op, args, kwargs)
                  if self.gives_tensors and (outs or not self.in_place) else None)
        if not self.in_place or outs and (shapes or any(not x.numel() for x, _, _ in outs)):
            if shapes is None:
                return False, None
            if outs:
                for (x, at, to), (size, stride, dtype) in zip(outs, shapes[0]):
                    if x.size() != size:
                        x.resize_(size)
                        to[at] = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype,
                                                     device=CPU)
            elif len(self.written):
                return False, None
            else:
                out = [torch.empty_strided(*s[:2], dtype=s[2], device=device) for s in shapes[0]]
        # CPU tensors are read now, because the program may change them after the call.
        for to, items in ((a, enumerate(args)), (k, kwargs.items())):
            for at, x in items:
                if isinstance(x, Tensor) and not x.is_cuda and to[at] is x:
                    to[at] = x.clone()
        targets = ([on_host(t) for t in out] if out
                   else [on_host(x) for x, _, _ in outs] if outs else [])

        # The job does not own the results: their memory may belong to others when it runs.
        into = into and bool(out)

        def job():
            if into and self.computes_into(targets, a, k):
                return
            result = work()
            if outs:
                result = [to[at] for _, at, to in outs]
            for t, r in zip(targets, result if isinstance(result, (list, tuple)) else [result]):
                if r.numel():  # a batch norm that is not in training returns empty statistics
                    t.copy_(r)

        defer(stream, job, capturing)
        if out is None:
            return True, self.answer(None, device, args, kwargs)
        return True, self.several(out, shapes[1])


# -- copies ----------------------------------------------------------------------------------------


def is_plain_copy(to, frm):
    """Whether the copy moves one contiguous range of bytes unchanged."""
    return (to.dtype == frm.dtype and to.shape == frm.shape and to.is_contiguous()
            and frm.is_contiguous()
            and not (to.is_conj() or frm.is_conj() or to.is_neg() or frm.is_neg()))


def copy_by_cuda(to, frm, stream):
    """Copies bytes between a device and the CPU through the CUDA runtime. The runtime knows the
    range, so the copy waits only for operations that use it."""
    what = to.data_ptr(), frm.data_ptr(), to.numel() * to.element_size()
    kind = 1 if to.is_cuda else 2
    # The call has read a pageable source when it returns. Pinned memory is read in stream order,
    # and the program may change or free it before.
    waits = not to.is_cuda or frm.is_pinned()
    if stream or not waits:
        error = streams.rt.cudaMemcpyAsync(*what, kind, stream)
        if waits:
            error = error or streams.rt.cudaStreamSynchronize(stream)
    else:
        error = streams.rt.cudaMemcpy(*what, kind)
    if error:
        raise RuntimeError(f"CUDA error {error} in a copy")
    if late_errors and waits:
        raise_late()
    return to


def copy_(to, frm, non_blocking=False):
    """
    To the CPU, and from pinned memory, it blocks where it does on a GPU. From pageable memory it is
    put on the stream, and the source is read before the call returns. Else it is an operator like
    any other.
    """
    if late_errors:
        raise_late()
    device = to.device if to.is_cuda else frm.device
    if device.index != current_device():
        with torch.cuda.device(device.index):
            return copy_(to, frm, non_blocking)
    stream = current_stream(device.index)
    capturing = is_capturing()
    across = to.is_cuda != frm.is_cuda
    if stub and stub.copy(
            to, frm, stream,
            not to.is_cuda and not capturing and not (non_blocking and to.is_pinned())):
        return to
    target = seen_on_host(to) if to.is_cuda else to
    source = seen_on_host(frm) if frm.is_cuda else frm
    later = capturing or busy(stream)
    if later and across and not capturing:
        asks = non_blocking and (frm if to.is_cuda else to).is_pinned()
        if not asks and is_plain_copy(to, frm):
            return copy_by_cuda(to, frm, stream)
        if not asks and not to.is_cuda:
            wait(stream)
            later = False
        elif not asks:
            source = frm.clone()  # the source must be read before this call returns
    if to.is_cuda and frm.is_cuda and to.device != frm.device and not capturing:
        with torch.cuda.device(frm.device.index):
            wait(current_stream(frm.device.index))
    if later:
        defer(stream, lambda: target.copy_(source), capturing)
    else:
        target.copy_(source)
    return to


# -- registration ----------------------------------------------------------------------------------


def _is_view(op):
    return any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns)


def has_kernel(name, *keys):
    return any(C._dispatch_has_kernel_for_dispatch_key(name, k) for k in keys)


def resolve(name):
    base, _, overload = name.partition("::")[2].partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return base, getattr(packet, overload or "default", None) if packet else None


class Lazily:
    """An implementation that is made when it is first used."""

    def __init__(self, name, make):
        self.name, self.make, self.form = name, make, None

    def __call__(self, *args, **kwargs):
        form = self.form
        if form is None:
            form = self.form = self.make(self.name)
        return form(*args, **kwargs)


def install():
    from dfshim.host import kernels

    streams.start()
    C._set_cudnn_enabled(False)
    with warnings.catch_warnings():
        # PyTorch 2.9 prints a warning for each kernel that is replaced.
        warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
        register(kernels)
    kernels.install()
    if STUB:
        from dfshim.host import stub as module

        module.install()


def register(kernels):
    for key, cpu in (("CUDA", "CPU"), ("SparseCUDA", "SparseCPU")):
        library = torch.library.Library("aten", "IMPL", key)
        LIBRARIES.append(library)
        names = C._dispatch_get_registrations_for_dispatch_key(key)
        if key == "CUDA":
            names = [n for n in names if n != "aten::copy_"] + [f"aten::{n}" for n in WHOLE]
        for name in names:
            space, _, full = name.partition("::")
            base = full.partition(".")[0]
            if space != "aten" or base in NATIVE or key == "SparseCUDA" and base == "copy_":
                continue
            op = resolve(name)[1]
            if op is None or _is_view(op):
                continue
            own = kernels.FORMS.get(full)
            if own:
                form = own
            elif has_kernel(name, cpu, "CompositeExplicitAutograd",
                            "CompositeExplicitAutogradNonFunctional"):
                form = Operator(name, key != "CUDA" or has_kernel(name, "Conjugate", "Negative"))
            else:
                form = Lazily(name, kernels.without_cpu)
            library.m.impl(full, key, form, False)
        if key == "CUDA":
            library.m.impl("copy_", key, copy_, False)
