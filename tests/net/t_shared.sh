#!/bin/bash
# Description: two nodes share one processor without knowing of each other: a waiting thread notices
# that others use the processor, and yields it.
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 2 1
. "$SRC/tests/net/hosts.sh"
first=$(taskset -pc $$ | sed -nE 's/.*: ([0-9]+).*/\1/p')
taskset -pc "$first" $$ >/dev/null || skip "cannot run on processor $first alone"
hosts 2 collcheck --sample $((200 / SLOW)) --only AllReduce --seed "$SEED"
grep -q "other threads use this process's processors" "$T/out0" "$T/out1" || fail "nobody has noticed: $(cat "$T/out0")"
exit 0
