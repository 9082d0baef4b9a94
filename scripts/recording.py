#!/usr/bin/env python3
"""Records commands in a terminal as an animated SVG.

    scripts/recording.py [--columns N] [--rows N] [--pause SECONDS] FILE.svg COMMAND...

Each COMMAND runs in a shell with a pseudo-terminal. Its output appears in the picture at the time
at which it arrived. A pause without output lasts at most --pause seconds, which shortens time-outs.
Lines wrap at --columns. Escape sequences are removed: dfshim prints none. The picture needs no
script, so it also moves as an image in a page.

docs/images/recording.svg has the three commands of README's example, with --rows 32.
"""

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from xml.sax.saxutils import escape

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|[\x00-\x08\x0b-\x1f]")
FONT, WIDTH, LINE = 13, 7.83, 18  # of a character, in units of the picture
# To read a command, a line of its output, and the end of the picture.
COMMAND_S, LINE_S, LAST_S = 1.5, 0.15, 4


def run(command, size):
    """Runs a command; returns its status and its output as (seconds since the begin, text)."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))
    begin, pieces = time.monotonic(), []
    job = subprocess.Popen(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=slave,
                           stderr=slave)
    os.close(slave)
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # all processes of the command have closed the terminal
            break
        if not data:
            break
        pieces.append((time.monotonic() - begin, data))
    os.close(master)
    return job.wait(), pieces


def lines_of(pieces, columns):
    """Returns the output's lines, wrapped, each with the time at which its last piece arrived."""
    lines, open_line = [], b""
    for at, data in pieces:
        *ended, open_line = (open_line + data).split(b"\n")
        lines += [(at, line) for line in ended]
    if open_line:
        lines.append((pieces[-1][0], open_line))
    for at, line in lines:
        text = ESCAPES.sub("", line.decode(errors="replace").expandtabs())
        for i in range(0, max(len(text), 1), columns):
            yield at, text[i : i + columns]


def record(args):
    """Runs the commands; returns the shown lines as (seconds, class, text)."""
    shown, now = [], 0.5
    for command in args.command:
        shown += [(now, "c", ("$ " + command)[i : i + args.columns])
                  for i in range(0, len(command) + 2, args.columns)]
        now += COMMAND_S
        status, pieces = run(command, args)
        lines, last = list(lines_of(pieces, args.columns)), 0
        for at, text in lines:
            now += min(at - last, args.pause)
            last = at
            shown.append((now, "o", text))
        print(f"status {status}: {command}", file=sys.stderr)
        now += COMMAND_S + LINE_S * len(lines)
        shown.append((now, "o", ""))
    return shown[:-1]


def steps(name, points, total):
    """Returns keyframes that jump to each (seconds, y)."""
    frames = "".join(f"{100 * at / total:.3f}%{{transform:translateY({y}px)}}" for at, y in points)
    return f"@keyframes {name}{{{frames}100%{{transform:translateY({points[-1][1]}px)}}}}"


def draw(shown, args):
    total = shown[-1][0] + LAST_S
    # A cover moves down over the lines that have arrived. The lines and the cover move up when the
    # rows are full.
    cover, scroll = {0: 0}, {0: 0}
    for i, (at, _, _) in enumerate(shown):
        cover[at] = (i + 1) * LINE
        scroll[at] = min(0, args.rows - i - 1) * LINE
    width, height = round(args.columns * WIDTH) + 24, args.rows * LINE + 24
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'width="{width}" height="{height}" role="img">')
    yield "<title>" + escape("; ".join(args.command)) + "</title>"
    yield (
        f"<style>text{{font:{FONT}px ui-monospace,Menlo,Consolas,monospace;fill:#d0d7de;"
        "white-space:pre}.c{fill:#7ee787;font-weight:bold}"
        f".cover{{animation:cover {total:.1f}s step-end infinite}}"
        f".scroll{{animation:scroll {total:.1f}s step-end infinite}}"
        + steps("cover", sorted(cover.items()), total)
        + steps("scroll", sorted(scroll.items()), total)
        + "</style>"
    )
    yield f'<rect width="{width}" height="{height}" rx="6" fill="#0d1117"/>'
    yield f'<svg x="12" y="12" width="{width - 24}" height="{args.rows * LINE}"><g class="scroll">'
    for i, (_, kind, text) in enumerate(shown):
        if text:
            yield (f'<text class="{kind}" x="0" y="{i * LINE + FONT}" xml:space="preserve">'
                   f"{escape(text)}</text>")
    yield (f'<rect class="cover" width="{width}" height="{len(shown) * LINE}" fill="#0d1117"/>'
           "</g></svg></svg>")


def main():
    parser = argparse.ArgumentParser(usage="%(prog)s [OPTION...] FILE.svg COMMAND...")
    parser.add_argument("--columns", type=int, default=110)
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--pause", type=float, default=2)
    parser.add_argument("file")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    if args.columns < 1 or args.rows < 1 or not args.pause >= 0:
        parser.error("--columns and --rows are at least 1, and --pause is not negative")
    try:
        with open(args.file, "w", encoding="utf-8") as out:
            out.writelines(line + "\n" for line in draw(record(args), args))
    except OSError as error:
        parser.error(str(error))


main()
