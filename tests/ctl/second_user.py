#!/usr/bin/env python3
"""Another user of the machine (nobody; root starts it), or a process of another machine, at a job's control plane.

usage: second_user.py record IFACE FILE     hears the wire, creates FILE when it begins, and ends after some connections or when
                                              FILE is gone: prints as JSON the names in greetings and what connecting ends have sent
       second_user.py try                   whether there is another user
       second_user.py attack HOST... < JSON   attacks the ports 5000 to 5009 of these hosts until none listens any more; prints a
                                              number each time that it has made all attacks, or what succeeded (status 1)
       second_user.py squat                 takes the names and ports of processes that die, until its input ends
       second_user.py look PID...           tries to read what these processes have
"""
import glob
import json
import os
import random
import resource
import select
import socket
import struct
import sys
import time
from concurrent.futures import ThreadPoolExecutor

MAGIC, VERSION = 0x31434644, int(os.environ.get("CTL_VERSION", "0"))
RDV_HELLO, TREE_HELLO, FETCH, PING, GREET, ANSWER, PROOF, CHECKIN, DEAD = 1, 2, 3, 4, 8, 9, 10, 16, 35
ANSWERED = 16 + 32
PORTS = range(5000, 5010)
NR_IDLE = 1000
NR_AT_ONCE = 512


def frame(kind, body, masked=0):
    return struct.pack("<IHHII", MAGIC, VERSION, kind, len(body), masked) + body + bytes(-len(body) % 8)


def record(iface, begun):
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    wire.bind((iface, 0))
    wire.settimeout(0.1)
    open(begun, "w").close()
    names, flows, end = set(), {}, None
    while end is None or time.time() < end:
        try:
            packet = wire.recv(65536)
        except socket.timeout:
            if not os.path.exists(begun):
                break
            continue
        if packet[12:14] != b"\x08\x00" or packet[23] != 6:
            continue
        ip = packet[14:]
        tcp = ip[(ip[0] & 15) * 4:struct.unpack(">H", ip[2:4])[0]]
        data = tcp[(tcp[12] >> 4) * 4:]
        flow = ip[12:20] + tcp[:4]
        if len(data) == 40 and struct.unpack("<IHH", data[:8]) == (MAGIC, VERSION, GREET):
            names.add(struct.unpack("<Q", data[16:24])[0])
            flows[flow] = [socket.inet_ntoa(ip[16:20]), struct.unpack(">H", tcp[2:4])[0], data.hex(), ""]
        elif flow in flows and data and len(flows[flow][3]) < 8192:
            # Bytes that were sent again may occur twice. The proof precedes them.
            flows[flow][3] += data.hex()
            if len([f for f in flows.values() if f[3]]) >= 4:
                end = end or time.time() + 1
    print(json.dumps({"names": sorted(names), "flows": [f for f in flows.values() if f[3]]}))


class Attack:
    def __init__(self, hosts):
        known = json.load(sys.stdin)
        self.names, self.flows, self.hosts = known["names"], known["flows"], hosts
        self.near = os.path.exists("/proc/net/unix") and hosts[0] == "near"
        self.hosts = [h for h in hosts if h != "near"]
        self.idle, self.rng = [], random.Random(int(os.environ.get("SEED", "1")))
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    def targets(self):
        for host in self.hosts:
            for port in PORTS:
                yield socket.AF_INET, (host, port)
        if self.near:
            for line in open("/proc/net/unix"):
                at = line.split()[-1]
                if at.startswith("@dfshim-"):
                    yield socket.AF_UNIX, "\0" + at[1:]

    @staticmethod
    def connect(family, address):
        s = socket.socket(family)
        s.settimeout(10)
        try:
            s.connect(address)
        except OSError:
            s.close()
            return None
        return s

    @staticmethod
    def heard(s, n):
        """Returns at most n bytes from the other end; fewer if it hangs up."""
        data = b""
        try:
            while len(data) < n:
                more = s.recv(n - len(data))
                if not more:
                    break
                data += more
        except OSError:
            pass
        return data

    def one(self, family, address, kind, name=0, flow=None):
        """Makes one attack. Returns the number of bytes received and the number that is allowed, or
        None if nothing listens."""
        s = self.connect(family, address)
        if s is None:
            return None
        rng = self.rng
        hop = struct.pack("<QQQ16s64s", 0x1122334455667788, 1, 2, rng.randbytes(16), b"127.0.0.1:9")
        dead = struct.pack(f"<{len(self.names)}Q", *self.names)
        may, answer = 0, b""
        with s:
            try:
                if kind == "nothing":
                    return 0, 0
                if kind == "random":
                    s.sendall(rng.randbytes(rng.randrange(1, 5000)))
                    s.shutdown(socket.SHUT_WR)
                elif kind == "half":
                    s.sendall(frame(GREET, struct.pack("<Q16s", name, rng.randbytes(16)))[:rng.randrange(1, 40)])
                    return 0, 0
                elif kind == "kill":  # as if there were no greeting
                    s.sendall(frame(TREE_HELLO, hop) + frame(DEAD, dead))
                elif kind == "wrong":  # a known name and a wrong proof
                    s.sendall(frame(GREET, struct.pack("<Q16s", name, rng.randbytes(16))))
                    answer, may = self.heard(s, ANSWERED), ANSWERED
                    proof = rng.choice((rng.randbytes(16), answer[-16:].ljust(16, b"\0"), bytes(16)))
                    s.sendall(frame(PROOF, proof) + frame(TREE_HELLO, hop) + frame(DEAD, dead))
                elif kind == "skip":  # no proof at all
                    s.sendall(frame(GREET, struct.pack("<Q16s", name, rng.randbytes(16))))
                    answer, may = self.heard(s, ANSWERED), ANSWERED
                    s.sendall(rng.choice((frame(TREE_HELLO, hop), frame(RDV_HELLO, bytes(8)), frame(FETCH, bytes(8)),
                                          frame(CHECKIN, rng.randbytes(576)))) + frame(DEAD, dead))
                elif kind == "replay":  # everything that a member sent, from the greeting on
                    s.sendall(bytes.fromhex(flow[2]))
                    answer, may = self.heard(s, ANSWERED), ANSWERED
                    s.sendall(bytes.fromhex(flow[3]) + frame(DEAD, dead))
                answer += self.heard(s, 4096)
            except OSError:
                pass
        return len(answer), may

    def keep_idle(self, targets):
        """Holds many connections that send nothing."""
        poll = select.poll()
        for s in self.idle:
            poll.register(s, select.POLLIN)
        gone = {fd for fd, _ in poll.poll(0)}
        for s in self.idle:
            if s.fileno() in gone:
                s.close()
        self.idle = [s for s in self.idle if s.fileno() >= 0]
        while len(self.idle) < NR_IDLE and targets:
            s = self.connect(*self.rng.choice(targets))
            if s is None:
                break
            self.idle.append(s)

    def attacks(self):
        """Yields all attacks on one target: kind, name, recorded connection."""
        yield from ((kind, 0, None) for kind in ("nothing", "random", "half", "kill"))
        yield from ((kind, name, None) for name in self.names for kind in ("wrong", "skip"))
        yield from (("replay", 0, flow) for flow in self.flows)

    def run(self):
        rounds, seen, empty = 0, False, 0
        pool = ThreadPoolExecutor(NR_AT_ONCE)
        while empty < 50:
            there = []
            for target in self.targets():
                s = self.connect(*target)
                if s is not None:
                    s.close()
                    there.append(target)
            if not there:
                empty = empty + 1 if seen else 0
                time.sleep(0.05)
                continue
            seen, empty = True, 0
            # Attack at the same time, because a port that waits for more bytes hangs up only after
            # its limit.
            made = [(target, attack, pool.submit(self.one, *target, *attack)) for target in there for attack in self.attacks()]
            for target, attack, result in made:
                got = result.result()
                if got and got[0] > (got[1] if target[0] == socket.AF_INET else 0):
                    print(f"{attack[0]} at {target} was told {got[0]} bytes")
                    return 1
            self.keep_idle([t for t in there if t[0] == socket.AF_INET])
            rounds += 1
            print(rounds, flush=True)
        return 0


def squat():
    """Takes every name and port that a process leaves. Nothing may be sent to this user on a unix
    socket."""
    taken, told, names, ports = {}, {}, set(), set()
    print("looks", flush=True)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    open_ones, ended = {}, False
    while not ended:
        for fd, _ in poll.poll(1):
            if fd == 0:
                ended = not os.read(0, 1)
            elif fd in open_ones:
                key, s = open_ones[fd]
                try:
                    data = s.recv(65536)
                except OSError:
                    data = b""
                told[key] = told.get(key, 0) + len(data)
                if data and data[:4] == b"DFC1":
                    s.send(frame(ANSWER, os.urandom(32)))
                else:
                    poll.unregister(fd)
                    open_ones.pop(fd)
                    s.close()
            else:
                for key, listener in taken.items():
                    if listener.fileno() == fd:
                        s = listener.accept()[0]
                        open_ones[s.fileno()] = key, s
                        poll.register(s, select.POLLIN)
        now = {line.split()[-1][1:] for line in open("/proc/net/unix") if "@dfshim-" in line}
        for name in names - now:
            s = socket.socket(socket.AF_UNIX)
            try:
                s.bind("\0" + name)
                s.listen(16)
            except OSError:
                continue
            taken["unix", name] = s
            poll.register(s, select.POLLIN)
        names |= now
        now = set()
        for line in open("/proc/net/tcp").readlines()[1:]:
            f = line.split()
            if f[3] == "0A" and int(f[1][9:], 16) in PORTS:
                now.add((socket.inet_ntoa(struct.pack("<I", int(f[1][:8], 16))), int(f[1][9:], 16)))
        for address in ports - now:
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(address)
                s.listen(16)
            except OSError:
                continue
            taken["tcp", address] = s
            poll.register(s, select.POLLIN)
        ports |= now
    unix = [told[a] for a in told if a[0] == "unix"]
    tcp = [told[a] for a in told if a[0] == "tcp"]
    print(sum(a[0] == "unix" for a in taken), sum(a[0] == "tcp" for a in taken), sum(unix), sum(tcp))
    return 0


def look(pids):
    found = 0
    for pid in pids:
        for what in ("environ", "maps", "mem", "auxv"):
            try:
                open(f"/proc/{pid}/{what}", "rb").read(1)
                print(f"read /proc/{pid}/{what}")
                found = 1
            except OSError:
                pass
        for fd in glob.glob(f"/proc/{pid}/fd/*") + glob.glob(f"/proc/{pid}/map_files/*"):
            print(f"saw {fd}")
            found = 1
    # RAS answers every process of its machine, even if earlier clients send nothing.
    idle = [socket.create_connection(("127.0.0.1", 28028), 30) for _ in range(20)]
    s = socket.create_connection(("127.0.0.1", 28028), 30)
    s.sendall(b"VERBOSE STATUS\n")
    text = b""
    while True:
        more = s.recv(65536)
        if not more:
            break
        text += more
    print(f"{len(text)} bytes, behind {len(idle)} idle clients")
    if b"Job summary" not in text:
        print(f"RAS did not answer: {text!r}")
        found = 1
    return found


def become_nobody():
    "".encode("idna")  # create_connection() loads this codec, and another user may not read Python's files
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)


def main():
    mode = sys.argv[1]
    if mode == "record":
        return record(*sys.argv[2:])
    become_nobody()
    if mode == "try":
        return 0
    if mode == "attack":
        return Attack(sys.argv[2:]).run()
    if mode == "squat":
        return squat()
    return look(sys.argv[2:])


sys.exit(main())
