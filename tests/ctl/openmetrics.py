"""Checks OpenMetrics text by its grammar, as far as dfshim uses it, and by prometheus_client's parsers.

openmetrics.py check FILE: exit status 0, or 1 with the reason. Says whether prometheus_client was there.
openmetrics.py get FILE NAME LABEL=VALUE...: the sum of the samples of that name with these labels; "" if there is none.
openmetrics.py dashboard JSON FILE: that each metric and label that a dashboard's expressions name is in FILE.
"""
import json
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
SAMPLE = re.compile(rf"^({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)$")
SUFFIXES = {"counter": ["_total"], "gauge": [""], "summary": ["_sum", "_count"]}


def samples(path):
    """Yields (name, labels, value, type) for each sample. Fails at the first error."""
    text = open(path, "rb").read().decode("utf-8")  # invalid UTF-8 is an error
    assert text.endswith("# EOF\n"), "no # EOF at the end"
    family, kind, seen, families, helped = None, None, set(), set(), set()
    for line in text.splitlines()[:-1]:
        assert line and line == line.strip(), f"blank line, or blanks around: {line!r}"
        if line.startswith("# "):
            word, name, rest = line[2:].split(" ", 2)
            assert word in ("TYPE", "HELP"), line
            if word == "TYPE":
                assert name not in families, f"{name} in two places"
                assert rest in SUFFIXES, f"not a type of both formats: {line}"
                assert not any(name.endswith(s) for s in ("_total", "_sum", "_count")), line
                family, kind = name, rest
                families.add(name)
            else:
                assert name == family and name not in helped, line
                assert rest.endswith("."), f"not a sentence: {line}"
                helped.add(name)
            continue
        m = SAMPLE.match(line)
        assert m, f"not a sample: {line!r}"
        assert any(m[1] == family + s for s in SUFFIXES[kind]), f"{m[1]} is not of {family}"
        labels = re.findall(LABEL, m[2] or "")
        assert len({k for k, _ in labels}) == len(labels), f"a label twice: {line}"
        key = (m[1], tuple(sorted(labels)))
        assert key not in seen, f"a sample twice: {line}"
        seen.add(key)
        value = float(m[m.lastindex])
        assert value == value and value >= 0, line
        yield m[1], dict(labels), value, kind
    assert helped == families, "a family without help"


def check(path):
    have = list(samples(path))
    assert have
    try:
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as new
        from prometheus_client.parser import text_string_to_metric_families as old
    except ImportError:
        print("prometheus_client is not installed: checked by this test's own parser only")
        return
    text = open(path).read()
    theirs = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in new(text) for s in f.samples}
    ours = {(n, tuple(sorted((k, unescape(v)) for k, v in l.items()))): v for n, l, v, _ in have}
    assert theirs == ours, f"read differently: {set(theirs.items()) ^ set(ours.items())}"
    # The older format, as node_exporter reads it. The names of samples are the same.
    assert {s.name for f in old(text) for s in f.samples} == {n for n, _, _, _ in have}
    print("prometheus_client agrees")


def unescape(v):
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], v)


def get(path, name, *wanted):
    wanted = dict(w.split("=", 1) for w in wanted)
    found = [v for n, l, v, _ in samples(path) if n == name and all(l.get(k) == x for k, x in wanted.items())]
    print(f"{sum(found):.17g}" if found else "")


def expressions(it):
    if isinstance(it, dict):
        for k, v in it.items():
            if k in ("expr", "definition") and isinstance(v, str):
                yield v
            yield from expressions(v)
    elif isinstance(it, list):
        for v in it:
            yield from expressions(v)


def dashboard(board, path):
    have = {}
    for n, labels, _, _ in samples(path):
        have.setdefault(n, set()).update(labels)
    used = set()
    for e in expressions(json.load(open(board))):
        names = re.findall(r"\bdfshim_\w+", e)
        assert names, f"an expression without a metric: {e}"
        for n in names:
            assert n in have, f"{n} is no metric: {e}"
            used.add(n)
        known = set().union(*(have[n] for n in names)) | {"instance", "job"}
        for group in re.findall(r"\bby ?\(([^)]*)\)|\bon ?\(([^)]*)\)|\bgroup_left ?\(([^)]*)\)|\bignoring ?\(([^)]*)\)", e):
            for label in re.findall(r"\w+", " ".join(group)):
                assert label in known, f"{label} is no label of {names}: {e}"
    assert len(used) > 10, used


if __name__ == "__main__":
    try:
        {"check": check, "get": get, "dashboard": dashboard}[sys.argv[1]](*sys.argv[2:])
    except (AssertionError, UnicodeDecodeError) as e:
        sys.exit(f"{sys.argv[2:]}: {e}")
