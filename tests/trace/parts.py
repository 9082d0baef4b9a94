"""A job of two processes whose ranks execute different Python code. All their calls go through one
helper.

  parts.py FOLDER CASE    CASE: order (of three communicators), mismatch (of a count), or the name of
                          a function below: its branches make the ranks part
"""

import ctypes
import os
import sys
import time

RANK = int(os.environ["RANK"])
folder, case = sys.argv[1:]
lib = ctypes.CDLL(None)


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def must(status):
    if status:
        sys.exit(f"status {status}")


def communicator(name):
    uid, comm, file = UniqueId(), ctypes.c_void_p(), f"{folder}/{name}"
    if RANK == 0:
        must(lib.ncclGetUniqueId(ctypes.byref(uid)))
        with open(file + ".new", "wb") as f:
            f.write(bytes(uid))
        os.rename(file + ".new", file)
    while not os.path.exists(file):
        time.sleep(0.01)
    with open(file, "rb") as f:
        ctypes.memmove(ctypes.byref(uid), f.read(), 128)
    must(lib.ncclCommInitRank(ctypes.byref(comm), 2, uid, RANK))
    return comm


def all_reduce(comm, count=64):
    must(lib.ncclAllReduce(data, data, ctypes.c_size_t(count), 7, 0, comm, None))


def reduce_loss():
    all_reduce(a)  # loss


def clip():
    all_reduce(b)  # clip


def log_metrics():
    all_reduce(c)  # metrics


def step_of_128():
    all_reduce(a, 128)  # 128


def step_of_64():
    all_reduce(a, 64)  # 64


def leaves():
    for step in range(4):  # loop
        if step == 2 + RANK:  # leaves
            break
        all_reduce(a)
    all_reduce(a, 32)


def returns():
    text = """
    if text:  not a statement
    """
    if len(text) > 100:  # unused
        return
    bad, note = (RANK == 1), text  # value
    if bad: return all_reduce(a, 32)  # returns
    all_reduce(a)


def catches():
    for number in "12", "x" if RANK else "3":
        try:
            int(number)
            all_reduce(a)
        except ValueError:  # handler
            all_reduce(a, 32)
            continue


def drops():
    for step in range(3):
        if (
            step == 2  # of three
            and RANK == 1
        ):
            continue  # drops
        all_reduce(a)


data = ctypes.c_void_p()
must(lib.cudaSetDevice(RANK))
must(lib.cudaMalloc(ctypes.byref(data), ctypes.c_size_t(4096)))
a, b, c = communicator("a"), communicator("b"), communicator("c")
for comm in (a, b, c):
    all_reduce(comm)  # alike
must(lib.cudaDeviceSynchronize())
steps = (reduce_loss, clip, log_metrics)
if case == "order":
    for step in reversed(steps) if RANK else steps:
        step()
elif case == "mismatch":
    step_of_64() if RANK else step_of_128()
else:
    globals()[case]()
must(lib.cudaDeviceSynchronize())
