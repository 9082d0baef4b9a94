"""Prints programs for the checker: the catalogue's scenarios, or random programs with the label that
an independent model in Python gives them. t_model.sh uses it. `programs.py scenarios MODELDIR` made
scenarios.txt; its verdict words were added by hand.

  programs.py scenarios MODELDIR
  programs.py random MODELDIR SEED COUNT
"""
import io
import random
import sys
from contextlib import redirect_stdout

KINDS = {"AR": 0, "BC": 1, "AG": 3, "RS": 4, "AG1": 3, "AG9": 3, "BAR": 0}


def emit(name, label, sc, out):
    words = {}

    def num(space, key):
        return words.setdefault(space, {}).setdefault(key, len(words.setdefault(space, {})))

    opts = ""
    if sc.get("cap"):
        opts += f" cap={sc['cap']}"
    if sc.get("maxconn1"):
        opts += " one_queue"
    if sc.get("buffered"):
        opts += " buffered"
    if sc.get("launchq"):
        opts += f" launchq={sc['launchq']}"
    out.append(f"prog {name} {label}{opts}")
    for c in sc.get("comms", {}):
        num("comm", c)
        out.append("comm " + ",".join(map(str, sc["comms"][c])))
    for r in sorted(sc["prog"]):
        p = sc["prog"][r]
        threads = p if p and isinstance(p[0], list) else [p]
        for t, ops in enumerate(threads):
            for op in ops:
                out.append(f"op {r} {t} " + text(op, num))
    out.append("end")


def bufs(names, num):
    m = 0
    for b in names:
        m |= 1 << num("buf", b)
    return f"{m:x}"


def text(op, num):
    k = op[0]
    st = lambda s: num("stream", s)
    if k == "k":
        return f"kernel {st(op[1])}"
    if k == "stuck":
        return f"stuck {st(op[1])}"
    if k == "leg":
        return "legacy"
    if k == "c":
        comm, sig, s = op[1:4]
        kind, n = (KINDS[sig[0]], sig[1]) if isinstance(sig, tuple) else (KINDS[sig], 1)
        if sig == "AG9":
            n = 9
        if sig == "BAR":
            n = 3
        rd = bufs(op[4], num) if len(op) > 4 else "0"
        wr = bufs(op[5], num) if len(op) > 5 else "0"
        return f"coll {num('comm', comm)} {st(s)} {kind} {n} {rd} {wr}"
    if k in ("g", "send", "recv"):
        ops = op[1] if k == "g" else [op]
        s = op[2] if k == "g" else op[3]
        parts = " ".join(f"{o[0]} {num('comm', o[1])} {o[2]} {o[4] if len(o) > 4 else 1}" for o in ops)
        return f"p2p {st(s)} {len(ops)} {parts}"
    if k == "rec":
        return f"record {num('event', op[1])} {st(op[2])}"
    if k == "wait":
        return f"wait {num('event', op[1])} {st(op[2])}"
    if k == "ssync":
        return f"ssync {st(op[1])}"
    if k == "esync":
        return f"esync {num('event', op[1])}"
    if k in ("dsync", "isync", "exit", "spin"):
        return k
    if k in ("hbar", "conn", "init"):
        return f"{k} {num('name', op[1])} {','.join(map(str, op[2]))}"
    if k == "hw":
        return f"hwait {num('flag', op[1])}"
    if k == "hs":
        return f"hsignal {num('flag', op[1])}"
    raise ValueError(op)


def random_program(rng):
    nr = rng.choice([2, 2, 2, 3, 4])
    ncomm = rng.randint(1, 4)
    comms = {}
    for i in range(ncomm):
        m = list(range(nr)) if rng.random() < 0.6 else sorted(rng.sample(range(nr), rng.randint(2, nr)))
        comms[f"c{i}"] = m
    streams = [f"s{i}" for i in range(rng.randint(1, 3))]
    mode = rng.choice(["plain", "sync", "event", "p2p", "mixed", "legacy"])
    seq = []
    for _ in range(rng.randint(1, 6)):
        c = rng.choice(list(comms))
        s = rng.choice(streams)
        b = rng.choice("abcdef")
        if mode in ("p2p", "mixed") and rng.random() < 0.5:
            a, z = rng.sample(comms[c], 2)
            seq.append(("m", c, a, z, s))
        else:
            seq.append(("c", c, s, b, rng.choice([1, 1, 1, 1, 2])))
    prog = {}
    for r in range(nr):
        ops = []
        mine = list(seq)
        if rng.random() < 0.5:
            i = rng.randrange(len(mine))
            j = min(len(mine) - 1, i + 1)
            mine[i], mine[j] = mine[j], mine[i]
        for x in mine:
            if x[0] == "c" and r in comms[x[1]]:
                n = x[4] if rng.random() < 0.97 else 7
                rw = [x[3]] if rng.random() < 0.8 else ["z"]
                ops.append(("c", x[1], ("AR", n), x[2], rw, rw))
            elif x[0] == "m" and r == x[2]:
                ops.append(("send", x[1], x[3], x[4], 1))
            elif x[0] == "m" and r == x[3]:
                ops.append(("recv", x[1], x[2], x[4], 1))
            u = rng.random()
            if mode in ("sync", "mixed") and u < 0.12:
                ops.append(rng.choice([("dsync",), ("isync",), ("ssync", rng.choice(streams))]))
            elif mode in ("event", "mixed") and u < 0.3:
                e = rng.choice("ef")
                ops.append(("rec", e, rng.choice(streams)))
                ops.append(("wait", e, rng.choice(streams)))
            elif mode == "legacy" and u < 0.2:
                ops.append(("leg",))
            elif u < 0.36:
                ops.append(("k", rng.choice(streams)))
        if rng.random() < 0.05 and ops:
            ops = ops[:-1] + [("exit",)]
        prog[r] = ops
    sc = dict(prog=prog, comms=comms)
    if rng.random() < 0.25:
        sc["cap"] = rng.randint(1, 3)
    if rng.random() < 0.15:
        sc["maxconn1"] = True
    return sc


def main():
    what, where = sys.argv[1], sys.argv[2]
    sys.path.insert(0, where)
    out = []
    if what == "scenarios":
        with redirect_stdout(io.StringIO()):
            import scenarios
        for name, sc in scenarios.S.items():
            emit(name, sc["exp"], sc, out)
    else:
        import model

        rng = random.Random(int(sys.argv[3]))
        for i in range(int(sys.argv[4])):
            sc = random_program(rng)
            emit(f"random-{sys.argv[3]}-{i}", model.classify(sc), sc, out)
    print("\n".join(out))


main()
