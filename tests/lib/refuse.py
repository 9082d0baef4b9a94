"""Executes a program to which the kernel refuses a system call, as in some containers.

  refuse.py CALL PROGRAM [ARGUMENT...]    CALL: process_vm_readv or memfd_create
"""

import ctypes
import errno
import os
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2
LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERROR = 0x7FFF0000, 0x00050000
NUMBERS = {
    "x86_64": {"process_vm_readv": 310, "memfd_create": 319},
    "aarch64": {"process_vm_readv": 270, "memfd_create": 279},
}
number = NUMBERS[os.uname().machine][sys.argv[1]]
program = b"".join(
    struct.pack("<HBBI", *step)
    for step in (
        (LOAD, 0, 0, 0),  # the number of the call
        (JUMP_EQUAL, 0, 1, number),
        (RETURN, 0, 0, ERROR | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    )
)
text = ctypes.create_string_buffer(program, len(program))
head = struct.pack("@HP", len(program) // 8, ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.c_char_p(head), 0, 0):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[2], sys.argv[2:])
