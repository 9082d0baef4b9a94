"""A job of two processes, as a Python program: NCCL by ctypes, nothing of dfshim. Rank 1 does not
reach the common code.

  hang.py FILE CASE    FILE passes the unique id. CASE: sleep (in load_batch()), lock (there,
                       while holding the interpreter's lock), or beats (sleep, while a second
                       thread of each rank uses another communicator)
"""

import ctypes
import os
import sys
import threading
import time

lib = ctypes.CDLL(None)
RANK = int(os.environ["RANK"])


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
        time.sleep(0.01)
    with open(file, "rb") as f:
        ctypes.memmove(ctypes.byref(uid), f.read(), 128)
    must(lib.ncclCommInitRank(ctypes.byref(comm), 2, uid, RANK))
    return comm


def load_batch(step, case):
    if RANK == 1 and step == 2:
        if case == "lock":
            ctypes.PyDLL(None).sleep(1000)
        time.sleep(1000)


def train_step(comm, data, stream=None):
    must(lib.ncclAllReduce(data, data, ctypes.c_size_t(64), 7, 0, comm, stream))
    must(lib.cudaStreamSynchronize(stream))


def buffer():
    data = ctypes.c_void_p()
    must(lib.cudaSetDevice(RANK))
    must(lib.cudaMalloc(ctypes.byref(data), ctypes.c_size_t(256)))
    return data


def beat(comm):
    data, stream = buffer(), ctypes.c_void_p()
    must(lib.cudaStreamCreateWithFlags(ctypes.byref(stream), 1))
    while True:
        train_step(comm, data, stream)
        time.sleep(0.2)


def main():
    data = buffer()
    comm = communicator(sys.argv[1])
    if sys.argv[2] == "beats":
        beats = communicator(sys.argv[1] + ".beats")
        threading.Thread(target=beat, args=(beats,), daemon=True).start()
    for step in range(5):
        load_batch(step, sys.argv[2])
        train_step(comm, data)


main()
