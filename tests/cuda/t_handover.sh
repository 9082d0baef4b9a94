#!/bin/bash
# Description: communicators that use the device API, or whose id a rank on plain NCCL made, are
# given to NCCL as a whole, and recorded.
set -u
fake=$B/tests/cuda/driver
if [ ! -x "$B/tests/cuda/use_handover" ] || [ ! -f "$B/kernels/daemon.fatbin" ]; then
	echo "skipped: built without NCCL's header or without nvcc"
	exit 77
fi
bad=0
preload=$B/libdfshim.so
run() { # NAME VARIABLE=VALUE...: output in $T/NAME, log in $T/NAME.err, NCCL's calls in $T/NAME.calls
	local name=$1
	shift
	env LD_LIBRARY_PATH="$fake" LD_PRELOAD="$preload" FAKE_CUDA_DEVICES=2 DFSHIM_BACKEND=cuda \
		FAKE_NCCL_LOG="$T/$name.calls" DFSHIM_TRACE="$T/$name.trace" "$@" timeout "${LIMIT:-60}" \
		"$B/tests/cuda/use_handover" >"$T/$name" 2>"$T/$name.err" || {
		echo "$name: status $?"
		cat "$T/$name" "$T/$name.err"
		bad=1
	}
}
want() { # FILE LINE...
	local f=$1 l
	shift
	for l; do
		grep -qxF -- "$l" "$f" || {
			echo "$f lacks: $l"
			bad=1
		}
	done
}
called() { # NAME FUNCTION TIMES
	local n
	n=$(grep -cx "$2" "$T/$1.calls")
	[ "$n" = "$3" ] || {
		echo "$1: NCCL's $2 was called $n times, not $3"
		bad=1
	}
}

run device
want "$T/device" "init 0 0" "ours before 1 1" "foreign id 0 0" "device communicator 0 0" "ours after 0 0" "count 2 2" \
	"another 1 1" "group 0 0" "group with an error 4 4" "another still 1 1" "window 0 0" \
	"device communicator, windows 5 5" "ours with windows 1 1" "grouped 0 0" "ours grouped 0 0" "destroy 0 0" \
	"destroy again 4 4" "abort 0 0" "abort again 4 4" "destroy ours 0 0" "destroy foreign 0 0"
[ "$(grep -c "ours before 1 1" "$T/device")" = 3 ] || bad=1
# Two communicators of two ranks are handed over. One was NCCL's from the start.
called device ncclGetUniqueId 2
called device ncclCommInitRankConfig 4
called device ncclDevCommCreate 4
# For each of two ranks: one with the foreign id, one after the handover, one in a group, two in the
# group with an error, one after the grouped handover.
called device ncclAllReduce 12
called device ncclGroupStart 4
called device ncclGroupEnd 4
called device ncclCommDestroy 4
called device ncclCommAbort 2
[ "$(grep -c 'is handed to NCCL as a whole' "$T/device.err")" = 4 ] || {
	echo "the log does not say what was handed over"
	bad=1
}
grep -q "its unique id was made on plain NCCL" "$T/device.err" || bad=1
grep -q "rank 1: windows were registered before" "$T/device.err" || bad=1
# The trace contains the operations on the communicators that were handed over.
"$B/dfshim" show --json "$T/device.trace" >"$T/show" 2>&1 || bad=1
[ "$(grep -c '"type": *"op"' "$T/show")" -ge 20 ] || {
	echo "the trace lacks operations"
	bad=1
}
timeout "${LIMIT:-60}" "$B/dfshim" check "$T/device.trace" >"$T/verdict" 2>&1
rc=$?
[ $rc = 0 ] || {
	echo "check: status $rc"
	cat "$T/verdict"
	bad=1
}

# Windows for device code must be registered with NCCL from the first one on.
run window DFSHIM_HANDOVER=window
want "$T/window" "window 0 0" "device communicator, windows 0 0" "ours with windows 0 0"
called window ncclCommWindowRegister 2

# With handover switched off, the call is refused as NCCL refuses it without symmetric memory.
run off DFSHIM_HANDOVER=off
want "$T/off" "device communicator 5 5" "ours after 1 1" "grouped 5 0" "ours grouped 1 1" "destroy 0 0"
called off ncclDevCommCreate 0

# With DFSHIM_STRICT=1 an id of a rank on plain NCCL is an error.
run strict DFSHIM_STRICT=1
want "$T/strict" "init 5 5" "foreign id -1 -1"
exit $bad
