#!/bin/bash
# Description: timing of events, calls while collectives are pending, several threads on one communicator, priorities.
set -u
. "$SRC/tests/lib/clients.sh"
host streamcheck
STREAM_ONLY=reset host streamcheck

# behind ORDER PART [BEFORE [RECORD]]: prints the number of collectives that rank 0 finished
# (RECORD; default op_done) after the one that it issued last, or BEFORE places earlier.
behind() {
	local to=$T/$1.$2${RANKS_ON:+.$RANKS_ON}
	# shellcheck disable=SC2086 # options
	DFSHIM_TRACE=$to DFSHIM_BLOCKS=1 DFSHIM_ORDER=$1 STREAM_ONLY=$2 timeout -k 5 "${LIMIT:-100}" \
		"$B/dfshim" run --host ${RANKS_ON:+-n $RANKS_ON} -- "$C/streamcheck" --timeout "${QUIET:-60}" >&2 || fail "streamcheck $2 by $1"
	"$B/dfshim" show "$to" | awk -v before="${3:-0}" -v record="${4:-op_done}" '
	($4 == "op_match" || $4 == record) && / dev 0 / {
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
# An operation for which an urgent one waits is as urgent. Operations that were issued between the
# two run after it.
for part in behind_data behind_work; do
	fifo=$(behind fifo $part 1) && lent=$(behind priority $part 1) || exit 1
	echo "$part: after the one that the urgent one waits for $fifo by order of issue, $lent by priority"
	[ "$fifo" = 1 ] || fail "by order of issue something else than the urgent one came after it"
	[ "$lent" = 21 ] || fail "$part: the one of low priority did not get the urgent one's priority"
done
# The same on another rank that has a part of that operation, on another device of the process and
# in another process. There the start is checked, because the end depends on the peer too.
for RANKS_ON in "" 2; do
	fifo=$(behind fifo behind_peer 1 op_start) && lent=$(behind priority behind_peer 1 op_start) || exit 1
	echo "behind_peer, ${RANKS_ON:-1} processes: begun after the one that the peer's urgent one waits for $fifo by order of issue, $lent by priority"
	[ "$fifo" = 0 ] || fail "by order of issue something came after the last one"
	[ "$lent" = 20 ] || fail "the one of low priority did not get the priority of its peer's urgent one"
done
# Threads raise priorities on one another's devices, and receive those of peers, while they submit.
# Also for ThreadSanitizer.
for RANKS_ON in "--ranks 4" "--ranks 4 --procs 2"; do
	# shellcheck disable=SC2086 # options
	DFSHIM_ORDER=priority STREAM_ONLY=inherited host streamcheck $RANKS_ON --seed "$SEED"
done
exit 0
