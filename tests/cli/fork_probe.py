"""Writes what a program can see of its interpreter to the file OUT.RANK, one fact a line, and facts
that differ between ranks to OUT.own. For t_fork.sh, with the test's own torch or with PyTorch."""

import ctypes
import gc
import locale
import multiprocessing
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
import traceback
import tracemalloc
import warnings

import torch

libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p


def prctl(option):
    value = ctypes.c_int()
    libc.prctl(option, ctypes.byref(value), 0, 0, 0)
    return value.value


def read(path):
    with open(path) as f:
        return f.read()


def kinds(values):
    return [v if isinstance(v, (type, str)) else type(v) for v in values]


def descriptors():
    found = []
    for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            found.append((fd, stat.S_IFMT(os.fstat(fd).st_mode), os.get_inheritable(fd)))
        except OSError:
            pass  # the descriptor of /proc/self/fd itself
    return found


def mask():
    old = os.umask(0)
    os.umask(old)
    return old


def facts():
    main_module = sys.modules["__main__"]
    for name in sorted(n for n in vars(main_module) if n.startswith("__")):
        value = vars(main_module)[name]
        yield f"__main__.{name}", type(value) if name in ("__builtins__", "__loader__") else value
    yield "functions are of __main__", main_module is sys.modules[facts.__module__]
    for name in ("argv", "orig_argv", "path", "flags", "warnoptions", "_xoptions", "executable", "prefix", "exec_prefix", "base_prefix",
                 "dont_write_bytecode", "pycache_prefix", "excepthook", "displayhook", "unraisablehook", "breakpointhook", "int_info"):
        yield f"sys.{name}", getattr(sys, name, None)
    yield "finders", kinds(sys.meta_path) + kinds(sys.path_hooks)
    yield "limits of Python", (sys.getrecursionlimit(), sys.getswitchinterval(), len(traceback.extract_stack()))
    for s in (sys.stdin, sys.stdout, sys.stderr):
        yield "stream", (s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty(), s.fileno())
    yield "encoding", (sys.getfilesystemencoding(), locale.setlocale(locale.LC_ALL), os.getcwd(), mask())
    yield "environment", sorted(item for item in os.environ.items() if item[0] not in ("OUT", "DFSHIM_HOST_FORK"))
    yield "environment of libc", [libc.getenv(n) for n in (b"RANK", b"LOCAL_RANK", b"_DFSHIM_FORK", b"LD_PRELOAD")]
    yield "environment of children", subprocess.check_output("echo $RANK $LOCAL_RANK", shell=True)
    yield "parent", (read(f"/proc/{os.getppid()}/comm"), read(f"/proc/{os.getppid()}/cmdline").split("\0")[1:2])
    yield "process", (read("/proc/self/comm"), read("/proc/self/cmdline").split("\0"), os.readlink("/proc/self/exe"))
    yield "group", (os.getpgrp() == os.getpid(), os.getsid(0) == os.getsid(os.getppid()))
    first = threading.main_thread()
    yield "threads", (len(os.listdir("/proc/self/task")), threading.active_count(), first is threading.current_thread(), first.name,
                      first.native_id == os.getpid(), threading.get_ident() == first.ident)
    yield "descriptors", descriptors()
    yield "handlers", [(s.name, signal.getsignal(s)) for s in signal.Signals if signal.getsignal(s) is not signal.SIG_DFL]
    status = dict(line.split(":", 1) for line in read("/proc/self/status").splitlines())
    yield "status", [status[n].strip() for n in ("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd", "NoNewPrivs", "CapEff", "Uid", "Groups")]
    yield "death signal, subreaper", (prctl(2), prctl(37))
    yield "collector", (gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.garbage)
    yield "trace", (sys.gettrace(), sys.getprofile(), tracemalloc.is_tracing())
    yield "multiprocessing", (multiprocessing.current_process().name, multiprocessing.parent_process(), multiprocessing.active_children(),
                              multiprocessing.get_start_method(allow_none=True), len(multiprocessing.current_process().authkey))
    yield "limits", [resource.getrlimit(getattr(resource, n)) for n in sorted(dir(resource)) if n.startswith("RLIMIT")]
    yield "scheduling", (os.nice(0), os.sched_getaffinity(0), os.sched_getscheduler(0))
    yield "warnings", warnings.filters
    yield "frames", [f.f_code.co_filename for f in sys._current_frames().values()]
    yield "children's time", os.times().children_user < 1 and time.process_time() < 60
    if hasattr(torch, "cuda"):
        yield "torch", (torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype(), torch.cuda.is_initialized(),
                        torch._C._cuda_isInBadFork(), torch.cuda.device_count())


def own():
    yield "random", random.getrandbits(64)
    yield "key", bytes(multiprocessing.current_process().authkey)
    if "numpy" in sys.modules:
        yield "numpy", sys.modules["numpy"].random.rand()
    if hasattr(torch, "initial_seed"):
        yield "torch", torch.initial_seed()


def main():
    out, rank = os.environ["OUT"], os.environ["RANK"]
    text = "".join(f"{name}: {value}\n" for name, value in facts())
    with open(f"{out}.{rank}", "w") as f:
        f.write(text)
    text = "".join(f"{name}: {value}\n" for name, value in own())
    with open(f"{out}.own", "a") as f:
        f.write(text)


if __name__ == "__main__":
    main()
