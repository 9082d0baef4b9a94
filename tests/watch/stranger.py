#!/usr/bin/env python3
"""A stranger on the network of a job in mode trace: it sees all that travels, and can connect to every port, but has no id.

usage: stranger.py record IFACE FILE       collects what is sent on TCP connections until its input ends; prints "listens"
       stranger.py attack FILE HOST:PORT   ...each kind of attack on each of these, over and over until its input ends; holds idle
                                           connections all the time; prints "attacks" after the first of all kinds, and at the end
                                           the number of attacks, or what a process has answered that it must not (status 1)
"""
import json
import os
import random
import select
import socket
import struct
import sys
import time

MAGIC = b"DFC1"
IDLE = 150  # silent connections at each port: more than a process accepts before they prove anything


def over():
    return bool(select.select([sys.stdin], [], [], 0)[0])


def record(iface, path):
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    wire.bind((iface, 0))
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    wire.settimeout(0.05)
    print("listens", flush=True)
    streams = {}
    while not over():
        try:
            packet = wire.recv(65536)
        except socket.timeout:
            continue
        if len(packet) < 54 or packet[12:14] != b"\x08\x00" or packet[23] != 6:
            continue
        ip = 14
        tcp = ip + (packet[ip] & 15) * 4
        end = ip + struct.unpack(">H", packet[ip + 2:ip + 4])[0]
        data = packet[tcp + (packet[tcp + 12] >> 4) * 4:end]
        sport, dport, seq = struct.unpack(">HHI", packet[tcp:tcp + 8])
        if data:
            key = f"{socket.inet_ntoa(packet[30:34])}:{dport} {sport}"
            streams.setdefault(key, {})[seq] = data.hex()
    with open(path, "w", encoding="utf-8") as f:
        json.dump(streams, f)


def load(path):
    """Returns the bytes of each recorded connection in the order of sending."""
    with open(path, encoding="utf-8") as f:
        streams = json.load(f)
    return [b"".join(bytes.fromhex(parts[seq]) for seq in sorted(parts, key=int)) for parts in streams.values()]


def reach(where):
    host, port = where.rsplit(":", 1)
    s = socket.socket()
    s.settimeout(2)
    try:
        s.connect((host, int(port)))
        return s
    except OSError:
        s.close()
        return None


def is_open(s):
    """Returns whether the connection is open. Closes it if the other end has closed it."""
    try:
        if s.recv(1, socket.MSG_DONTWAIT):
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    s.close()
    return False


def frame(like, kind, body, length=None):
    """Returns a frame of the control plane: DFC1, version (of a recorded frame), type, length, number
    of masked bytes."""
    return like[:6] + struct.pack("<HII", kind, len(body) if length is None else length, 0) + body


def attacks(recorded):
    chosen = [r for r in recorded if r[:4] == MAGIC] or [b"\0"]
    whole = random.choice(chosen)
    yield "random", random.randbytes(random.randrange(1, 4096))
    yield "frame", frame(whole, random.randrange(64), random.randbytes(random.randrange(512)))
    yield "half", whole[:random.randrange(1, 40)]
    yield "replayed", whole
    yield "greeting, then another", whole[:random.randrange(40, 200)] + frame(whole, random.randrange(64), random.randbytes(64))
    yield "long", frame(whole, 1, b"", 0xffffffff)


def attack(path, ports):
    recorded = load(path)
    if not any(r[:4] == MAGIC for r in recorded):
        print("no greeting was recorded")
        return 1
    idle, made, said = {}, 0, False
    while not over():
        for where in ports:
            held = [s for s in idle.get(where, []) if is_open(s)]
            while len(held) < IDLE:
                s = reach(where)
                if not s:
                    break
                held.append(s)
            idle[where] = held
            for kind, data in attacks(recorded):
                s = reach(where)
                if not s:
                    continue
                made += 1
                try:
                    s.sendall(data)
                    if random.randrange(2):
                        s.shutdown(socket.SHUT_WR)
                    s.settimeout(0.02)
                    # An answer to a greeting is a challenge and a proof: 64 bytes and a header.
                    # Nothing else may follow.
                    heard = s.recv(65536)
                    if len(heard) > 256:
                        print(f"{kind}: {len(heard)} bytes were answered at {where}")
                        return 1
                except OSError:
                    pass
                s.close()
        if not said:
            print("attacks", flush=True)
            said = True
        time.sleep(0.01)
    print(f"{made} attacks")
    return 0


if __name__ == "__main__":
    random.seed(int(os.environ.get("SEED", "1")))
    if sys.argv[1] == "record":
        sys.exit(record(*sys.argv[2:]))
    sys.exit(attack(sys.argv[2], sys.argv[3:]))
