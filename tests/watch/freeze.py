#!/usr/bin/env python3
"""freeze.py NAME PID...: stops the threads of that name in these processes, as if they got no CPU
time. The processes themselves count as running. Prints "frozen". The threads continue when it is
killed."""
import ctypes
import os
import sys

SEIZE, INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def freeze(tid):
    for request in (SEIZE, INTERRUPT):
        if libc.ptrace(request, tid, None, None):
            print("no rights to trace a process:", os.strerror(ctypes.get_errno()))
            sys.exit(77)
    os.waitpid(tid, WALL)


for pid in sys.argv[2:]:
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/comm", encoding="utf-8") as f:
            if f.read().strip() == sys.argv[1]:
                freeze(int(tid))
print("frozen", flush=True)
# A process whose thread is held can end only after its tracer has seen the end of that thread.
try:
    while True:
        os.waitpid(-1, WALL)
except ChildProcessError:
    pass
