#!/bin/bash
# Runs every fuzz target for a part of the time: parsers, and both ends of the control plane.
# shellcheck disable=SC2034 # lib.sh reads them
set -u
. "$SRC/tests/soak/lib.sh"
set -- "$SRC"/tests/fuzz/f_*.c
(cd "$SRC" && SECONDS_EACH=$((BUDGET / $# > 0 ? BUDGET / $# : 1)) scripts/fuzz.sh) >"$T/log" 2>&1
rc=$?
grep -E '^fuzz: ' "$T/log"
runs=$(sed -n 's/^fuzz: .*: ok, \([0-9]*\) inputs.*/\1/p' "$T/log" | awk '{n += $1} END {print n + 0}')
findings=$(grep -c '^fuzz: .*: FAILED' "$T/log")
[ $rc = 0 ] || [ $rc = 77 ] || [ "$findings" != 0 ] || { findings=1 && echo "FINDING: fuzz: status $rc: $(tail -3 "$T/log")"; }
done_with
