#!/bin/bash
# Description: an idle job uses almost no CPU time.
set -u
. "$SRC/tests/lib/clients.sh"
IDLE_SECONDS=1.5 host idle --ranks 8 | tee "$T/out"
grep -q '^idle: OK' "$T/out" || fail "idle"
# Spinning threads would use 100 % and more. The limit is generous.
v=$(sed -n 's/.*: \([0-9.]*\) %$/\1/p' "$T/out")
awk -v v="$v" 'BEGIN {exit !(v != "" && v < 25)}' || fail "$v % of a processor while idle"
exit 0
