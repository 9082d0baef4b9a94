#!/bin/bash
# Description: mode trace on the driver: graphs, start and end of operations that NCCL executes,
# threads that block in the driver; and with DFSHIM_TRACE_CUDA=0.
set -u
fake=$B/tests/cuda/driver
[ -x "$B/tests/cuda/use_handover" ] || { echo "skipped: built without NCCL's header" && exit 77; }
bad=0
run() { # PROGRAM NAME VARIABLE=VALUE...
	local program=$1 name=$2
	shift 2
	env LD_LIBRARY_PATH="$fake" LD_PRELOAD="$B/libdfshim.so" FAKE_CUDA_DEVICES=2 DFSHIM_MODE=trace \
		DFSHIM_TRACE="$T/$name.trace" "$@" timeout "${LIMIT:-60}" "$B/tests/cuda/$program" >"$T/$name" 2>&1 || {
		echo "$name: status $?"
		cat "$T/$name"
		bad=1
	}
	"$B/dfshim" show "$T/$name.trace" >"$T/$name.show" || bad=1
}
count() { awk -v t="$2" '$4 == t' "$T/$1.show" | wc -l; }

run use_handover on
ops=$(count on op)
[ "$ops" -ge 20 ] || { echo "only $ops operations" && bad=1; }
for t in op_start op_done; do
	[ "$(count on $t)" = "$ops" ] || { echo "$ops operations, $(count on $t) records $t" && bad=1; }
done
[ "$(count on comm_init)" = "$(count on comm_ready)" ] || { echo "a communicator without its beginning" && bad=1; }
"$B/dfshim" check "$T/on.trace" | grep -q "^OK: all $ops operations finished" || {
	echo "check: $("$B/dfshim" check "$T/on.trace" | head -1)"
	bad=1
}
# Where the daemon may not use the GPU, NCCL executes the job, and dfshim records it as well.
run use_handover left DFSHIM_MODE=prevent DFSHIM_BACKEND=auto DFSHIM_SELF_TEST_MS=0 DFSHIM_EVIDENCE="$T/none"
grep -q "NCCL executes the job, which is recorded and watched" "$T/left" || { echo "left: $(cat "$T/left")" && bad=1; }
for t in op op_start op_done; do
	[ "$(count left $t)" = "$ops" ] || { echo "left: $ops operations, $(count left $t) records $t" && bad=1; }
done
# dfshim puts nothing on the streams, so it sees no start and end. NCCL's calls are recorded all the
# same.
run use_handover off DFSHIM_TRACE_CUDA=0
[ "$(count off op)" = "$ops" ] || { echo "off: $(count off op) operations" && bad=1; }
[ "$(count off op_start)" = 0 ] || { echo "off: operations are marked" && bad=1; }
# A graph's operations are recorded at each launch of the graph.
run use_captured graph
ops=$(tail -1 "$T/graph")
for t in op op_start op_done; do
	[ "$(count graph $t)" = "$ops" ] || { echo "graph: $ops operations launched, $(count graph $t) records $t" && bad=1; }
done
exit $bad
