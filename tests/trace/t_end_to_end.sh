#!/bin/bash
# From a real job to a verdict: a disordered job by NCCL's rules is ORDER, the same job by ours finishes
# and its trace predicts the deadlock; replays of the trace come out the same.
set -u
src=$(cd "$(dirname "$0")/../.." && pwd)
B=${B:-$src/build}
df=$B/dfshim
app=$B/clients/disorder
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
bad=0

[ -x "$app" ] && [ -e "$B/libdfhost.so" ] || { echo "no clients or no libdfhost.so here"; exit 77; }
unset DFSHIM_TRACE

expect() { # status, first word, command ...
	local status=$1 word=$2
	shift 2
	timeout "${LIMIT:-60}" "$@" >"$tmp/out" 2>"$tmp/err"
	local got=$?
	if [ $got -ne "$status" ] || ! head -1 "$tmp/out" | grep -q "^$word"; then
		echo "FAIL: $*: status $got (wanted $status), first line: $(head -1 "$tmp/out")"
		tail -3 "$tmp/err"
		bad=1
	fi
}

timeout "${LIMIT:-60}" "$df" run --host=4 -n 4 --rules nccl --trace "$tmp/nccl" --timeout 2 -- "$app" --warmup --iters 3 \
	>"$tmp/log" 2>&1 && { echo "FAIL: the disordered job finished by NCCL's rules"; bad=1; }
expect 10 ORDER: "$df" check "$tmp/nccl"
grep -q "can be cut here" "$tmp/out" || { echo "FAIL: no wait is marked as one that can be cut"; bad=1; }
grep -q "First divergence: .* at disorder" "$tmp/out" || { echo "FAIL: no call site in the first divergence"; bad=1; }
expect 10 ORDER: "$df" replay --rules nccl --timeout 2 "$tmp/nccl"
expect 0 OK: "$df" replay --rules dfshim "$tmp/nccl"

timeout "${LIMIT:-60}" "$df" run --host=4 -n 4 --trace "$tmp/ours" -- "$app" --warmup --iters 3 >"$tmp/log" 2>&1 ||
	{ echo "FAIL: the job did not finish by our rules"; cat "$tmp/log"; bad=1; }
expect 0 OK: "$df" check "$tmp/ours"
expect 14 "POTENTIAL DEADLOCK" "$df" predict "$tmp/ours"

timeout "${LIMIT:-60}" "$df" run --host=4 -n 4 --trace "$tmp/same" -- "$app" --warmup --iters 3 --inorder >"$tmp/log" 2>&1 ||
	{ echo "FAIL: the control did not finish"; bad=1; }
expect 0 "no potential deadlock" "$df" predict "$tmp/same"
expect 0 OK: "$df" replay --rules nccl "$tmp/same"
exit $bad
