#!/bin/bash
# Description: mode trace names a hang in a communicator that was split from another one, with the ranks of the job, on every node, also after the other one is destroyed.
# Limit: 400 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 4 1
procs=$((SLOW > 1 ? 2 : 4))
. "$SRC/tests/lib/live.sh"
for nodes in 2 4; do
	# shellcheck disable=SC2034 # used by live.sh
	n=$((nodes * procs)) last=r$((nodes * procs - 1))
	for SPLIT in 1 alone; do
		export SPLIT
		echo "$nodes nodes, SPLIT=$SPLIT:"
		hang mismatch "MISMATCH: .* differs in count: .*AllReduce\(500 x float32, sum\) on $last" 600000
		# These ranks have no trace. The first communicator shows which processes they are.
		hang dead "CRASH: $last has died" 600000
		hang left "MISSING: .* waits for $last, whose process exited normally" $((3000 * SLOW))
	done
	hang missing "(SLOW|MISSING): r[0-9]* waits in ncclCommSplit for $last, which has not issued it" $((3000 * SLOW))
done
# A proof does not depend on the ranks outside the communicator.
export SPLIT=exits
hang mismatch "MISMATCH: .* differs in count: .*AllReduce\(500 x float32, sum\) on $last" 600000
hang cycle "DATA: .* cycle " 600000
exit 0
