#!/bin/bash
# Description: times of events, calls while collectives are pending, threads on one communicator, priorities.
set -u
. "$SRC/tests/lib/clients.sh"
host streamcheck
STREAM_ONLY=reset host streamcheck

# behind ORDER: how many of the others rank 0 finished after the collective that it issued last.
behind() {
	DFSHIM_TRACE=$T/$1 DFSHIM_BLOCKS=1 DFSHIM_ORDER=$1 STREAM_ONLY=priority host streamcheck >&2
	"$B/dfshim" show "$T/$1" | awk '
	$4 == "op_match" || $4 == "op_done" {
		if (!match($0, /rank 0 \[op [0-9]+\]/)) next
		op = substr($0, RSTART + 11, RLENGTH - 12)
		if ($4 == "op_match") { if (op + 0 > last) last = op + 0 }
		else done[++n] = op + 0
	}
	END { for (i = n; i && done[i] != last; i--) left++; print left + 0 }'
}
fifo=$(behind fifo) && first=$(behind priority) || exit 1
echo "after the urgent one: $fifo by order of issue, $first by priority"
[ "$fifo" = 0 ] || fail "by order of issue something came after the last one"
[ "$first" = 20 ] || fail "the urgent one did not come first"
exit 0
