"""The commands of documents and manual pages: list_commands.py FILE...; a line each, "FILE:LINE<tab>COMMAND", or "FILE:LINE in text<tab>COMMAND".

- all lines of a block that opens with ```sh (without comments; a line that ends with \\ goes on)
- what follows "run:" or "command:" in a block of YAML
- what stands between backquotes in the text and begins with a command of ours and an argument, or with a tool used with it
- in manual pages, literal lines that begin with "$ "

Exit status 1: a block that opens otherwise has a line that begins with a command of ours.
"""

import json
import re
import shlex
import sys

OURS = r"(?:[A-Z_]+=\S*\s+)*(?:build/)?(?:dfshim|make|scripts/\w+\.sh|tests/run\.sh|python3? -m dfshim)"
TOOLS = r"(?:[A-Z_]+=\S*\s+)*(?:pip|python3?|mpirun|srun|torchrun|podman|docker|nm|echo|man|git) "
INLINE = re.compile(rf"{OURS} \S|{TOOLS}\S|make$")
bad = 0


def wrong(name, at):
    global bad
    print(f"{name}:{at}: a command in a block that does not open with ```sh", file=sys.stderr)
    bad = 1


def commands(name, lines):
    """Pairs of line number and command."""
    page = re.search(r"\.[1-9]$", name)
    block, text, begun, part = None, "", 0, ""

    def inline():
        for c in re.findall(r"`([^`]+)`", text):
            c = " ".join(c.split())
            if INLINE.match(c):
                yield f"{begun} in text", c

    for at, line in enumerate(lines, 1):
        if page:
            line = line.replace("\\-", "-")
            m = re.match(r"(?:\.Dl )?(?:[a-z]+)?\$ (.*)", line)
            part = part + " " + line if part else m.group(1) if m else ""
            if part.endswith("\\e"):
                part = part[:-2]
            elif part:
                yield at, part
                part = ""
        elif m := re.match(r"\s*```(.*)", line):
            yield from inline()
            block, text = m.group(1) if block is None else None, ""
        elif block is None:
            if not line.strip() or line.startswith("|"):
                yield from inline()
                text = ""
            begun, text = begun if text else at, text + line + "\n"
            if re.match(rf"    {OURS} ", line):
                wrong(name, at)
        elif block == "sh":
            part += line
            if part.endswith("\\"):
                part = part[:-1]
            else:
                yield at, part
                part = ""
        elif m := re.match(r"\s*(?:- )?run: (.*)", line):
            yield at, m.group(1)
        elif m := re.match(r"\s*command: (\[.*\])$", line):
            yield at, shlex.join(json.loads(m.group(1)))
        elif re.match(rf"\s*{OURS} ", line):
            wrong(name, at)
    yield from inline()


for name in sys.argv[1:]:
    with open(name) as f:
        for at, command in commands(name, f.read().splitlines()):
            command = " ".join(re.sub(r"(^|\s+)#.*", "", command).split())
            if command:
                print(f"{name}:{at}\t{command}")
sys.exit(bad)
