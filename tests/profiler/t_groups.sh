#!/bin/bash
# Description: in traces of the profiler plugin the messages of one call, of one group and of one launch of a graph have a group. Calls in graphs need bounded memory. An aborted communicator leaves no proxies.
set -u
. "$SRC/tests/profiler/job.sh"
[ -x "$B/tests/profiler/job" ] || { echo "not built" && exit 77; }

start "$T/groups" 3 -- "$B/tests/profiler/job" "$plugin" 5 RANK 3 groups
ends groups
says "$T/groups" 0 '^OK: '
for rank in 0 1 2; do
	# The higher bits of c are the group.
	got=$("$df" show --json --type op_args "$T/groups/trace" | jq -r "select(.job_rank == $rank) | .c" |
		while read -r c; do echo $((c >> 32)); done | uniq -c | awk '{print $2 == 0 ? "none" : $1}' | xargs)
	[ "$got" = "6 2 2 2" ] || fail "rank $rank: groups of messages: $got"
done

start "$T/capture" 1 -- "$B/tests/profiler/job" "$plugin" 5 RANK 1 capture
ends capture
got=$("$df" show --json --type op "$T/capture/trace" | wc -l)
[ "$got" = 2 ] || fail "after many calls in graphs $got operations are recorded, not 2"

start "$T/aborted" 1 DFSHIM_TIMEOUT_MS=$((400 * SLOW)) -- "$B/tests/profiler/job" "$plugin" 5 RANK 1 aborted
ends aborted
[ -z "$("$df" show --json --type stall "$T/aborted/trace")" ] || fail "a standstill of an aborted communicator's proxies"
exit $bad
