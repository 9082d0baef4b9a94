#!/bin/bash
# Description: with libdfshim.so in the process the profiler plugin writes no trace of its own. Records of proxies are in dfshim's trace, with their operation.
set -u
. "$SRC/tests/profiler/job.sh"
app=$B/tests/profiler/preloaded/app
[ -x "$app" ] || { echo "not built" && exit 77; }
[ -z "$san" ] || { echo "the stand-in for NCCL does not start behind a sanitizer's runtime" && exit 77; }
vars=(LD_PRELOAD="$san$B/libdfshim.so" DFSHIM_MODE=trace DFSHIM_TRACE_CUDA=0 NCCL_PROFILER_PLUGIN="$plugin" DFSHIM_TIMEOUT_MS=$((600 * SLOW)))

start "$T/ok" 2 "${vars[@]}" -- "$app" RANK 2
ends ok
says "$T/ok" 0 '^OK: '
[ "$(ls "$T/ok/trace" | wc -l)" = 2 ] || fail "traces: $(ls "$T/ok/trace")"
"$df" show --json "$T/ok/trace" >"$T/ok.json"
# Each of five operations is recorded once for each rank, and has proxies that send and receive.
ops=$(jq -r 'select(.type == "op") | "\(.job_rank) \(.op)"' "$T/ok.json" | sort)
[ "$(wc -l <<<"$ops")" = 10 ] || fail "operations: $ops"
[ "$(jq -r 'select(.type == "proxy_done") | "\(.job_rank) \(.op)"' "$T/ok.json" | sort -u)" = "$ops" ] ||
	fail "the proxies' operations: $(jq -c 'select(.type == "proxy_done")' "$T/ok.json")"
start "$T/hang" 2 "${vars[@]}" -- "$app" RANK 2 hang
stands "$T/hang" 2 stall
says "$T/hang" 32 '^NET_STALL: .*#6: the network has not reported that data from r1 to r0 was sent \(step 3 of 4 on channel 1\) for'
exit $bad
