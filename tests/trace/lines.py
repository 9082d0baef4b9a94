"""A job of two processes that call NCCL from many forms of Python code. The number of elements
identifies each call.

  lines.py FOLDER    FOLDER contains torch/lib/libtorch_test.so, so FOLDER/torch is taken for
                     PyTorch
"""

import ctypes
import os
import sys
import threading

RANK = int(os.environ["RANK"])
folder = sys.argv[1]
lib = ctypes.CDLL(None)
ctypes.CDLL(folder + "/torch/lib/libtorch_test.so")


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def must(status):
    if status:
        sys.exit(f"status {status}")


def communicator(file):
    uid, comm = UniqueId(), ctypes.c_void_p()
    if RANK == 0:
        must(lib.ncclGetUniqueId(ctypes.byref(uid)))
        with open(file + ".new", "wb") as f:
            f.write(bytes(uid))
        os.rename(file + ".new", file)
    while not os.path.exists(file):
        pass
    with open(file, "rb") as f:
        ctypes.memmove(ctypes.byref(uid), f.read(), 128)
    must(lib.ncclCommInitRank(ctypes.byref(comm), 2, uid, RANK))
    return comm


def reduce(count):
    must(lib.ncclAllReduce(data, data, ctypes.c_size_t(count), 7, 0, comm, None))  # reduce


def function_in(file, source, name):
    names = {"reduce": reduce}
    exec(compile(source, file, "exec"), names)
    return names[name]


class Model:
    def step(self):
        reduce(2)  # method


def batches():
    yield 1
    reduce(3)  # generator
    yield 2


def deep(n):
    if n:
        deep(n - 1)
    else:
        reduce(4)  # deep


def in_thread():
    reduce(5)  # thread


data = ctypes.c_void_p()
must(lib.cudaSetDevice(0))
must(lib.cudaMalloc(ctypes.byref(data), ctypes.c_size_t(65536)))
comm = communicator(folder + "/id")
reduce(1)  # module
Model().step()
list(batches())
deep(100)
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
# Line tables with large steps, and non-ASCII names of each character width.
function_in("/x/far.py", "\n" * 1000 + "def far(n):\n    n += 0\n" + "\n" * 3000 + "    reduce(n)\n", "far")(6)
function_in("/x/f\u00fcr.py", "def gr\u00f6\u00dfe(n):\n    reduce(n)\n", "gr\u00f6\u00dfe")(7)
function_in("/x/\u7d04.py", "def \u7d04(n):\n    reduce(n)\n", "\u7d04")(8)
function_in("/x/\U0001f600.py", "def \U00010400(n):\n    reduce(n)\n", "\U00010400")(9)
# Frames of PyTorch and of Python's library are left out. Three frames of a package remain, and the
# program's.
call = "def call(f, *args):\n    f(*args)\n"
torch_call = function_in(folder + "/torch/nn.py", call, "call")
library_call = function_in("/usr/lib/python3.9/functools.py", call, "call")
package_call = function_in("/x/lib/python3.9/site-packages/package/code.py", call, "call")
raw = "def raw(n):\n    lib.ncclAllReduce(data, data, size(n), 7, 0, comm, None)\n"


def raw_in(file):
    names = {"lib": lib, "data": data, "size": ctypes.c_size_t, "comm": comm}
    exec(compile(raw, file, "exec"), names)
    return names["raw"]


def train():
    torch_raw = raw_in(folder + "/torch/distributed.py")
    torch_call(torch_raw, 10)  # torch
    torch_call(library_call, torch_raw, 11)  # library
    package_call(package_call, package_call, package_call, package_call, torch_raw, 12)  # package


train()
# A thread in which PyTorch computes gradients, recognised by its name. The main thread waits for it
# inside backward(), then outside.
serve = function_in(
    folder + "/torch/serve.py",
    "def serve(n, fd):\n"
    "    prctl(15, b'pt_autograd_0')\n"
    "    while not waits():\n        pass\n"
    "    raw(n)\n"
    "    write(fd, b'.', 1)\n",
    "serve",
)
main = threading.get_ident()
serve.__globals__.update(prctl=lib.prctl, write=lib.write, raw=raw_in(folder + "/torch/distributed.py"))
serve.__globals__["waits"] = lambda: sys._current_frames()[main].f_code.co_name in ("run", "elsewhere")
byte = ctypes.create_string_buffer(1)
engine = function_in(folder + "/torch/autograd/graph.py", "def run(read, fd, byte):\n    read(fd, byte, 1)\n", "run")


def elsewhere(read, fd, byte):
    read(fd, byte, 1)


def gradients(n, wait):
    end, begin = os.pipe()
    thread = threading.Thread(target=serve, args=(n, begin))
    thread.start()
    wait(lib.read, end, byte)  # gradients
    thread.join()


gradients(13, engine)
gradients(14, elsewhere)
must(lib.cudaDeviceSynchronize())  # wait
