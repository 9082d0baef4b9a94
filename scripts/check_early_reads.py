#!/usr/bin/env python3
"""Checks that no pair of registers is read before CS2R has zeroed the pair.

  check_early_reads.py FILE < output of nvdisasm -hex -c for a cubin

ptxas 12.9 and 13.0 make such reads where a load that is predicated off would replace NULL. On an
H200 a comparison five cycles after CS2R saw the earlier value of the pair
(docs/gpu-results/2026-11-26.md). In all other places ptxas leaves at least six cycles. The script
counts the cycles from each CS2R to the first instruction that reads the pair, up to the next
branch, by the stall counts in the instructions' control bits. Messages call the code FILE. Exits
with 1 if a read is too early.
"""
import re
import sys

TOO_EARLY = 5
BOUNDARY = re.compile(r"^(@!?U?P\w+ )?(BRA|BSYNC|CALL|RET|EXIT|BREAK|WARPSYNC)\b")
STORE = re.compile(r"^(@!?U?P\w+ )?(ST|ATOM|RED)")


def instructions(lines):
    """Yields (address, stall in cycles, text) of each instruction. The control bits are in the
    second of its two words."""
    first = None
    for line in lines:
        m = re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*/\* 0x[0-9a-f]{16} \*/", line)
        if m:
            first = m[1], m[2]
            continue
        m = re.match(r"\s*/\* (0x[0-9a-f]{16}) \*/", line)
        if m and first:
            yield first[0], int(m[1], 16) >> 41 & 15, first[1]
            first = None


def reads(text, pair):
    body = text if STORE.match(text) else text.partition(",")[2]
    return any(re.search(rf"\bR{r}\b", body) for r in pair)


def main():
    code = list(instructions(sys.stdin))
    if not code:
        sys.exit(f"{sys.argv[1]}: no instructions")
    bad = 0
    for i, (at, stall, text) in enumerate(code):
        m = re.match(r"(?:@!?U?P\w+ )?CS2R R(\d+), SRZ", text)
        if not m:
            continue
        pair, cycles = (int(m[1]), int(m[1]) + 1), stall
        for at2, stall, text2 in code[i + 1:]:
            if BOUNDARY.match(text2) or cycles > TOO_EARLY:
                break
            if reads(text2, pair):
                print(f"{sys.argv[1]}: {cycles} cycles from {at} {text} to {at2} {text2}",
                      file=sys.stderr)
                bad = 1
                break
            cycles += stall
    sys.exit(bad)


if __name__ == "__main__":
    main()
