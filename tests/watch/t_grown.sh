#!/bin/bash
# Description: mode trace names a hang in a communicator that has grown from another one (ncclCommGrow), with the ranks of the job, on every node, also after the smaller one is destroyed, and if that happens before the processes are connected.
# Limit: 400 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 4 1
procs=$((SLOW > 1 ? 1 : 2))
. "$SRC/tests/lib/live.sh"
nodes=4
n=$((nodes * procs)) last=r$((n - 1))
for GROW in 1 alone; do
	export GROW
	echo "GROW=$GROW:"
	hang mismatch "MISMATCH: .* differs in count: .*AllReduce\(500 x float32, sum\) on $last" 600000
	hang cycle "DATA: .* cycle " 600000
	hang dead "CRASH: $last has died" 600000
	hang left "MISSING: .* waits for $last, whose process exited normally" $((3000 * SLOW))
done
hang missing "INIT: rank $((n - 1)) of $n has not called ncclCommGrow" $((3000 * SLOW))

# On a busy machine the threads that join the other processes may start after the smaller
# communicator has been destroyed.
gcc -shared -fPIC -O1 -o "$T/late.so" "$SRC/tests/watch/late.c" -ldl || fail "late.c cannot be built"
NCCL_RULES[-1]+=" $T/late.so"
GROW=alone hang cycle "DATA: .* cycle " 600000
exit 0
