#!/bin/bash
# Description: times of events, calls while collectives are pending, threads on one communicator, priorities.
set -u
. "$SRC/tests/lib/clients.sh"
host streamcheck
STREAM_ONLY=reset host streamcheck

# behind ORDER PART [BEFORE]: how many rank 0 finished after the collective that it issued last, or before that one.
behind() {
	DFSHIM_TRACE=$T/$1.$2 DFSHIM_BLOCKS=1 DFSHIM_ORDER=$1 STREAM_ONLY=$2 host streamcheck >&2
	"$B/dfshim" show "$T/$1.$2" | awk -v before="${3:-0}" '
	$4 == "op_match" || $4 == "op_done" {
		if (!match($0, /rank 0 \[op [0-9]+\]/)) next
		op = substr($0, RSTART + 11, RLENGTH - 12)
		if ($4 == "op_match") { if (op + 0 > last[0]) { last[1] = last[0]; last[0] = op + 0 } }
		else done[++n] = op + 0
	}
	END { for (i = n; i && done[i] != last[before]; i--) left++; print left + 0 }'
}
fifo=$(behind fifo priority) && first=$(behind priority priority) || exit 1
echo "after the urgent one: $fifo by order of issue, $first by priority"
[ "$fifo" = 0 ] || fail "by order of issue something came after the last one"
[ "$first" = 20 ] || fail "the urgent one did not come first"
# What an urgent one waits for is as urgent: all that lies between the two comes after it.
for part in behind_data behind_work; do
	fifo=$(behind fifo $part 1) && lent=$(behind priority $part 1) || exit 1
	echo "$part: after the one that the urgent one waits for $fifo by order of issue, $lent by priority"
	[ "$fifo" = 1 ] || fail "by order of issue something else than the urgent one came after it"
	[ "$lent" = 21 ] || fail "$part: the one of low priority did not get the urgent one's priority"
done
exit 0
