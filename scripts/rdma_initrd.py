#!/usr/bin/env python3
"""Packs the first file system of scripts/rdma.sh: busybox, its init, and kernel modules in an order
in which each module follows the modules that it needs.

  rdma_initrd.py MODULES BUSYBOX INIT OUT NAME...

MODULES: the folder of one kernel's modules. NAME: a module, which is packed with all modules that
it depends on. The modules themselves name those. Modules that are built in are left out.
"""
import gzip
import os
import re
import sys

folder, busybox, init, out, *wanted = sys.argv[1:]
files = {}
for where, _, names in os.walk(folder):
    for name in names:
        if name.endswith(".ko"):
            files[name[:-3].replace("-", "_")] = os.path.join(where, name)

order = []


def load(name):
    name = name.replace("-", "_")
    if name in order or name not in files:
        return
    with open(files[name], "rb") as f:
        data = f.read()
    said = re.search(rb"\0depends=([^\0]*)\0", data)
    for need in (said.group(1).decode() if said else "").split(","):
        load(need)
    order.append(name)


for name in wanted:
    load(name)
if "rdma_rxe" not in order:
    sys.exit("the kernel's package has no rdma_rxe.ko (compressed modules?)")

archive = bytearray()


def add(name, mode, data=b"", device=(0, 0)):
    """Adds one entry of a cpio archive in the format newc."""
    encoded = name.encode() + b"\0"
    fields = [add.inode, mode, 0, 0, 1, 0, len(data), 0, 0, device[0], device[1], len(encoded), 0]
    add.inode += 1
    archive.extend(b"070701" + b"".join(b"%08X" % f for f in fields) + encoded)
    archive.extend(b"\0" * (-len(archive) % 4))
    archive.extend(data)
    archive.extend(b"\0" * (-len(archive) % 4))


add.inode = 1
for name in ("bin", "dev", "proc", "sys", "here", "memory", "all", "modules"):
    add(name, 0o040755)
add("dev/console", 0o020600, device=(5, 1))
for name, path in [("bin/busybox", busybox), ("init", init)]:
    with open(path, "rb") as f:
        add(name, 0o100755, f.read())
for name in order:
    with open(files[name], "rb") as f:
        add(f"modules/{name}.ko", 0o100644, f.read())
add("modules/order", 0o100644, "".join(f"{name}.ko\n" for name in order).encode())
add("TRAILER!!!", 0)
with gzip.open(out, "wb", 1) as f:
    f.write(archive)
