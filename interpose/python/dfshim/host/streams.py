"""Work of Python on streams: functions that a thread of the CPU backend calls when their stream
reaches them, and waiting for streams.

An error of such a function is kept, and raised by the next operator or wait (raise_late())."""

import atexit
import ctypes
import itertools
import os
import signal
import sys
import time

import torch

C = torch._C
HOST_FN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
rt = None  # the CUDA runtime of the process

_jobs = {}
_at_work = set()
_numbers = itertools.count(1)
late_errors = []
ERROR_S = 2  # how long a program that ends by an error waits for its operators


def _run_job(number):
    """Runs in a thread of the CPU backend when the stream reaches the job."""
    _at_work.add(number)
    work, again = _jobs[number] if number in _jobs else (None, False)
    if not again:
        _jobs.pop(number, None)
    try:
        with torch.no_grad():
            work()
    except BaseException as error:  # no caller could catch it; raise_late() reports it
        late_errors.append(error)
    _at_work.discard(number)


def drain():
    """Called before the interpreter ends, after which no thread can run Python: waits until the
    streams have run their jobs.

    The jobs may need other ranks. So a rank that ends by an error waits at most ERROR_S, and an
    interrupt ends the wait. As streams may still run then, the process exits at once, without the
    rest of the interpreter's shutdown."""
    error, since = getattr(sys, "last_value", None), time.monotonic()
    try:
        while _at_work or any(not again for _, again in list(_jobs.values())):
            if error is not None and time.monotonic() - since > ERROR_S:
                break
            time.sleep(0.001)
        else:
            # The jobs that are left belong to graphs, which may have been launched.
            if _jobs and error is None:
                for device in filter(C._cuda_hasPrimaryContext, range(torch.cuda.device_count())):
                    torch.cuda.synchronize(device)
            return
    except KeyboardInterrupt as interrupt:
        error = interrupt
    sys.stdout.flush()
    sys.stderr.flush()
    if isinstance(error, KeyboardInterrupt):  # end as Python itself does after an interrupt
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(1)


_run_job_c = HOST_FN(_run_job)


def raise_late():
    error = late_errors.pop(0)
    raise RuntimeError("an operator failed in its stream, after the call that issued it: "
                       f"{error}") from error


def defer(stream, work, again):
    """Calls work() when the stream reaches this job. again: at each launch of the graph that is
    being captured."""
    number = next(_numbers)
    _jobs[number] = work, again
    error = rt.cudaLaunchHostFunc(stream, _run_job_c, number)
    if error:
        del _jobs[number]
        raise RuntimeError(f"CUDA error {error}: an operator could not be put on its stream")


_late = set()  # streams whose work did not finish within PATIENCE_NS
PATIENCE_NS = 300_000


def busy(stream):
    """Whether the stream has unfinished work that lasts. It first waits up to PATIENCE_NS, because
    putting an operator on the stream takes longer than a small collective."""
    if not rt.cudaStreamQuery(stream):
        if _late:
            _late.discard(stream)
        return False
    until = 0 if stream in _late else time.monotonic_ns() + PATIENCE_NS
    while time.monotonic_ns() < until:
        os.sched_yield()
        if not rt.cudaStreamQuery(stream):
            break
    else:
        _late.add(stream)
    rt.cudaGetLastError()  # a query of unfinished work sets it
    return stream in _late


def wait(stream):
    error = rt.cudaStreamSynchronize(stream)
    if error:
        raise RuntimeError(f"CUDA error {error} in a stream")
    if late_errors:
        raise_late()


def start():
    """Finds the CUDA runtime."""
    global rt
    rt = ctypes.CDLL(None)
    if not hasattr(rt, "cudaLaunchHostFunc"):
        rt = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.partition('.')[0]}")
    rt.cudaLaunchHostFunc.argtypes = [ctypes.c_void_p, HOST_FN, ctypes.c_void_p]
    rt.cudaMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    rt.cudaMemcpyAsync.argtypes = rt.cudaMemcpy.argtypes + [ctypes.c_void_p]
    rt.cudaStreamQuery.argtypes = rt.cudaStreamSynchronize.argtypes = [ctypes.c_void_p]
    atexit.register(drain)
