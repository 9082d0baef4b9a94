#!/bin/bash
# Description: hangs of jobs that only NCCL's profiler plugin has seen: a rank that does not call, and proxies that make no progress, with their peer and step.
set -u
. "$SRC/tests/profiler/job.sh"
[ -x "$B/tests/profiler/job" ] || { echo "not built" && exit 77; }

# hang NAME VERSION WHAT NR TYPE: runs the job until NR records of this type are in its trace.
hang() {
	start "$T/$1" 3 DFSHIM_TIMEOUT_MS=$((600 * SLOW)) -- "$B/tests/profiler/job" "$plugin" "$2" RANK 3 "$3"
	stands "$T/$1" "$4" "$5"
}

for v in 1 2 3 4 5 6; do
	hang missing$v $v missing 2 stall
	says "$T/missing$v" 20 '^MISSING: .*#6 waits for r1, which has not issued it'
	grep -q "has done nothing for .* unfinished operations" "$T/missing$v"/0.err || fail "missing$v: no line: $(cat "$T/missing$v"/0.err)"
	hang send$v $v send 3 stall
	says "$T/send$v" 32 '^NET_STALL: .*#6: the network has not reported that data from r1 to r2 was sent \(step 3 of 4 on channel 1\) for'
	# Without events of kernels the senders seem to be done.
	hang lost$v $v lost $((v < 3 ? 1 : 3)) stall
	says "$T/lost$v" 32 '^NET_STALL: .*#6: no data from r1 has arrived at r2 \(step 3 of 4 on channel 1\) for'
	hang kernel$v $v kernel 3 stall
	says "$T/kernel$v" 33 '^NCCL_INTERNAL: .*#6: the kernel of r1 has not written the data for r2 \(step 1 of 4 on channel [01]\) for'
done
# An operation that is launched after the call. And a step that NCCL starts again and again makes no
# progress.
hang late 5 late 3 stall
says "$T/late" 32 '^NET_STALL: .*#6 runs on all of its 3 ranks'
hang again 5 again 3 stall
says "$T/again" 32 '^NET_STALL: .*#6: no data from r1 has arrived at r2 \(step 3 of 4 on channel 1\) for'
hang connect 5 connect 2 stall
says "$T/connect" 20 '^MISSING: .*r1'
# A job that is killed long before its time-out, when it has stood still for some seconds: each rank
# records the time at its start, and those that wait do so again.
start "$T/killed" 3 DFSHIM_TIMEOUT_MS=600000 -- "$B/tests/profiler/job" "$plugin" 5 RANK 3 missing
stands "$T/killed" 5 clock
says "$T/killed" 20 '^MISSING: .*#6 waits for r1, which has not issued it'
exit $bad
