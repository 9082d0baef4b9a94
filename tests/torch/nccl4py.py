#!/usr/bin/env python3
"""NCCL's own Python binding (nccl4py, with cuda.core) without a GPU: `dfshim run --host -n 2 -- python3 nccl4py.py FOLDER`.

A sum, a send and a receive, and a communicator that is split off, on memory and streams of cuda.core. The id goes from rank 0
to the others as a file in FOLDER. Exit status: 0 right.
"""

import os
import sys
import time

import nccl.core as nccl
import numpy as np
from cuda.bindings import driver
from cuda.core import Device


class Array:
    """Eight floats of the device."""

    def __init__(self, device, stream, values):
        self.buffer = device.allocate(32, stream=stream)
        self.at = int(self.buffer.handle)
        self.__cuda_array_interface__ = {"shape": (8,), "typestr": "<f4", "data": (self.at, False), "version": 3}
        stream.sync()
        check(driver.cuMemcpyHtoD(self.at, values.ctypes.data, 32))

    def read(self):
        out = np.empty(8, dtype=np.float32)
        check(driver.cuMemcpyDtoH(out.ctypes.data, self.at, 32))
        return out


def check(result):
    assert result[0] == driver.CUresult.CUDA_SUCCESS, result


def rendezvous(rank, folder):
    name = os.path.join(folder, "id")
    if rank == 0:
        with open(name + ".new", "wb") as f:
            f.write(nccl.get_unique_id().as_bytes)
        os.rename(name + ".new", name)
    while not os.path.exists(name):
        time.sleep(0.02)
    with open(name, "rb") as f:
        return nccl.UniqueId.from_bytes(f.read())


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = Device(rank)
    device.set_current()
    stream = device.create_stream()
    comm = nccl.Communicator.init(size, rank, rendezvous(rank, sys.argv[1]))
    x = Array(device, stream, np.full(8, rank + 1, dtype=np.float32))
    comm.allreduce(x, x, nccl.SUM, stream=stream)
    stream.sync()
    assert (x.read() == size * (size + 1) / 2).all(), x.read()
    if rank == 0:
        comm.send(x, 1, stream=stream)
    elif rank == 1:
        y = Array(device, stream, np.zeros(8, dtype=np.float32))
        comm.recv(y, 0, stream=stream)
        stream.sync()
        assert (y.read() == x.read()).all(), y.read()
    half = comm.split(rank % 2, rank)
    half.allreduce(x, x, nccl.MAX, stream=stream)
    stream.sync()
    assert (x.read() == size * (size + 1) / 2).all(), x.read()
    half.destroy()
    comm.destroy()
    print("rank", rank, "is right")


main()
