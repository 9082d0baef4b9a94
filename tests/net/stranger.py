#!/usr/bin/env python3
"""A stranger at a data socket of dfshim: it hears what travels and knows all names, but no key.

usage: stranger.py record IFACE MAGIC              prints "listens", and HOST PORT HELLO PROOF of the first greeting on the wire
       stranger.py attack HOST PORT HELLO PROOF    as another user, attacks of each kind until nothing listens there any more;
                                                   prints how often it made all of them, or what succeeded (status 1)
"""
import os
import socket
import struct
import sys

HELLO = "<QIHHQQiiQIIQ16s"
HELLO_WORD, WELCOME, KNOCK, OVER = range(4)
ANSWER, PROOF, FRAME = 32, 16, 96


def record(iface, magic):
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    wire.bind((iface, 0))
    wire.settimeout(60)
    print("listens", flush=True)
    hellos = {}
    while True:
        packet = wire.recv(65536)
        if packet[12:14] != b"\x08\x00" or packet[23] != 6:
            continue
        ip = packet[14:]
        tcp = ip[(ip[0] & 15) * 4:struct.unpack(">H", ip[2:4])[0]]
        data = tcp[(tcp[12] >> 4) * 4:]
        flow = ip[12:20] + tcp[:4]
        if len(data) == struct.calcsize(HELLO) and data[:8] == struct.pack("<Q", magic):
            if struct.unpack(HELLO, data)[9] == HELLO_WORD:
                hellos[flow] = data
        elif flow in hellos and len(data) == PROOF:
            port = struct.unpack(">H", tcp[2:4])[0]
            print(socket.inet_ntoa(ip[16:20]), port, hellos[flow].hex(), data.hex())
            return


def leave():
    """Changes to another user, nobody, where root may do so. A user namespace has no other user."""
    "".encode("idna")  # create_connection() needs it; that user may not read Python's files
    try:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    except OSError:
        print("no other user here", file=sys.stderr)


def receive(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        if not more:
            return data
        data += more
    return data


def changed(hello, **what):
    names = ("magic", "version", "index", "nr", "from_proc", "to_proc", "from_device", "to_device", "session", "word", "without",
             "carries", "challenge")
    fields = dict(zip(names, struct.unpack(HELLO, hello)))
    fields.update(what)
    return struct.pack(HELLO, *(fields[n] for n in names))


def attacks(hello, proof):
    """Yields attacks: a name, the first message, and the message after the other side's answer
    (None: the connection stays open).
    """
    frames = b"".join(struct.pack("<IIII80x", kind, 16 if kind == 1 else 0, 1, 16) + (b"a forged slice.." if kind == 1 else b"")
                      for kind in range(1, 11))
    higher = changed(hello, session=1 << 60)
    yield "a hello alone", higher, None
    yield "frames without a proof", higher, frames
    yield "a wrong proof and frames", higher, b"\1" * PROOF + frames
    yield "the answer as proof", higher, "answer"
    yield "a knock", changed(hello, word=KNOCK), b"\0" * PROOF
    yield "OVER as hello", changed(hello, word=OVER), b"\0" * PROOF
    yield "OVER as proof", higher, struct.pack("<QII", 0, OVER, 0)
    yield "a recorded greeting", hello + proof, frames
    yield "a recorded proof for a higher session", higher + proof, frames
    yield "half a hello", hello[:40], None
    yield "half a proof", higher, proof[:7]
    yield "another name", changed(hello, from_proc=4711), b"\2" * PROOF
    yield "another process", changed(hello, to_proc=4711), b"\2" * PROOF


def crowd(at, hello):
    """Opens a thousand connections that send nothing, or only a hello."""
    idle = []
    for i in range(1000):
        idle.append(socket.create_connection(at, 20))
        if i % 2:
            try:
                idle[-1].sendall(changed(hello, session=1 << 61))
            except (ConnectionResetError, BrokenPipeError):
                pass
    return idle


def attack(at, hello, proof):
    rounds, idle = 0, []
    try:
        while True:
            for name, first, then in attacks(hello, proof):
                s = socket.create_connection(at, 20)
                s.settimeout(20)
                try:
                    s.sendall(first)
                    if then is None:
                        idle.append(s)
                        continue
                    answer = receive(s, ANSWER)
                    s.sendall(answer[PROOF:] + b"\0" * FRAME if then == "answer" else then)
                    s.shutdown(socket.SHUT_WR)
                    more = receive(s, FRAME)
                    if more:
                        sys.exit("%s: %d bytes after the answer: %s" % (name, len(more), more.hex()))
                except TimeoutError:
                    sys.exit("%s: no answer, and the connection stays open" % name)
                except OSError:
                    pass  # the other side has closed the connection
                s.close()
            if not rounds:
                idle += crowd(at, hello)
            rounds += 1
            del idle[:-1000]
    except (ConnectionRefusedError, ConnectionResetError):
        print(rounds)


if sys.argv[1] == "record":
    record(sys.argv[2], int(sys.argv[3], 0))
else:
    leave()
    attack((sys.argv[2], int(sys.argv[3])), bytes.fromhex(sys.argv[4]), bytes.fromhex(sys.argv[5]))
