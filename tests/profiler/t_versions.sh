#!/bin/bash
# Description: the profiler plugin in each version of NCCL's interface: communicators, groups, threads, graphs and proxies. All operations are recorded with their ends.
set -u
. "$SRC/tests/profiler/job.sh"
[ -x "$B/tests/profiler/job" ] || { echo "not built" && exit 77; }

for v in 1 2 3 4 5 6; do
	start "$T/v$v" 4 -- "$B/tests/profiler/job" "$plugin" $v RANK 4 all
	ends "v$v"
	says "$T/v$v" 0 '^OK: '
	[ "$(ls "$T/v$v/trace" | wc -l)" = 4 ] || fail "v$v: traces: $(ls "$T/v$v/trace")"
	"$df" show --json "$T/v$v/trace" >"$T/v$v.json" || fail "v$v: show"
	# 20 + 20 + 3 + 40 operations, 5 groups of 2, 5 exchanges of 2, one message to the rank
	# itself and its receive. From version 5 on also 3 replays, and 300 operations without
	# events.
	want=$((20 + 20 + 3 + 40 + 10 + 10 + 2 + (v >= 5 ? 303 : 0)))
	for rank in 0 3; do
		got=$(jq -r "select(.type == \"op\" and .job_rank == $rank) | .op" "$T/v$v.json" 2>/dev/null | sort -u | wc -l)
		[ "$got" = $want ] || fail "v$v: rank $rank: $got operations, not $want"
	done
	# From version 3 on the ends of kernels are reported, before that only those of proxies.
	ended=$(jq -r 'select(.type == "op_done" and .a == 0) | "\(.job_rank) \(.op)"' "$T/v$v.json" | sort -u | wc -l)
	case $v in
	1 | 2) least=$((4 * (20 + 40))) ;;
	3) least=$((4 * (want - 1))) ;;
	*) least=$((4 * (want - 1 - (v >= 5 ? 300 : 0)))) ;;
	esac
	[ "$ended" = $least ] || fail "v$v: $ended operations have ended, not $least"
	# The proxies of 20 and 40 collectives. Each sends to one rank and receives from one.
	[ "$(jq -r 'select(.type == "proxy_done") | .op' "$T/v$v.json" | wc -l)" = $((4 * 60 * 2)) ] || fail "v$v: proxies"
	"$df" timeline "$T/v$v/trace" >"$T/v$v.timeline" && "$df" report "$T/v$v/trace" -o "$T/v$v.html" || fail "v$v: timeline, report"
done
# The plugin does not offer a version that NCCL does not have yet.
"$B/tests/profiler/job" "$plugin" 7 0 1 all
[ $? = 3 ] || fail "version 7"
# Without DFSHIM_TRACE nothing is recorded.
env -u DFSHIM_TRACE "$B/tests/profiler/job" "$plugin" 5 0 2 all >"$T/none" 2>&1 || fail "without a trace: $(cat "$T/none")"
[ ! -s "$T/none" ] || fail "without a trace: $(cat "$T/none")"
exit $bad
