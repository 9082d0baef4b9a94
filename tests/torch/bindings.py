#!/usr/bin/env python3
"""NCCL's own Python binding (nccl4py) and CuPy's without a GPU: `dfshim run --host -n 2 -- python3 bindings.py nccl4py|cupy FOLDER`.

A sum, a send and a receive, and with nccl4py a communicator that is split off, on memory and streams of cuda.core: CuPy's arrays
need a GPU. The id goes from rank 0 to the others as a file in FOLDER. Exit status: 0 right.
"""

import os
import pickle
import sys
import time

import numpy as np
from cuda.bindings import driver
from cuda.core import Device


class Array:
    """Eight floats on the device."""

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


def rendezvous(rank, folder, new):
    """Returns the value of rank 0's new() on every rank."""
    name = os.path.join(folder, "id")
    if rank == 0:
        with open(name + ".new", "wb") as f:
            pickle.dump(new(), f)
        os.rename(name + ".new", name)
    while not os.path.exists(name):
        time.sleep(0.02)
    with open(name, "rb") as f:
        return pickle.load(f)


def nccl4py(rank, size, device, stream, folder):
    import nccl.core as nccl

    uid = nccl.UniqueId.from_bytes(rendezvous(rank, folder, lambda: bytes(nccl.get_unique_id().as_bytes)))
    comm = nccl.Communicator.init(size, rank, uid)
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


def cupy(rank, size, device, stream, folder):
    from cupy.cuda import nccl

    comm = nccl.NcclCommunicator(size, rendezvous(rank, folder, nccl.get_unique_id), rank)
    assert (comm.rank_id(), comm.size(), comm.device_id()) == (rank, size, rank)
    x, on = Array(device, stream, np.full(8, rank + 1, dtype=np.float32)), int(stream.handle)
    comm.allReduce(x.at, x.at, 8, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, on)
    stream.sync()
    assert (x.read() == size * (size + 1) / 2).all(), x.read()
    y = Array(device, stream, np.full(8, rank, dtype=np.float32))
    nccl.groupStart()
    comm.send(y.at, 8, nccl.NCCL_FLOAT32, (rank + 1) % size, on)
    comm.recv(x.at, 8, nccl.NCCL_FLOAT32, (rank - 1) % size, on)
    nccl.groupEnd()
    stream.sync()
    assert (x.read() == (rank - 1) % size).all(), x.read()
    comm.broadcast(y.at, y.at, 8, nccl.NCCL_FLOAT32, size - 1, on)
    stream.sync()
    assert (y.read() == size - 1).all(), y.read()
    comm.check_async_error()
    comm.destroy()


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = Device(rank)
    device.set_current()
    {"nccl4py": nccl4py, "cupy": cupy}[sys.argv[1]](rank, size, device, device.create_stream(), sys.argv[2])
    print("rank", rank, "is right")


main()
